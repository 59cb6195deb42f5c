/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the devices of both zstd modules share: which codec at which level, in how much memory, and what comes out.
 *
 * The output is hashed with the kernel's own XXH64, and thrown away.
 */
#include <linux/timex.h>
#include <linux/vmalloc.h>
#include <linux/xxhash.h>
#include "device.h"

static char *method = "zstd";
module_param(method, charp, 0444);
MODULE_PARM_DESC(method, "zstd, zlib, or none to only count");
static int level = 3;
module_param(level, int, 0444);
MODULE_PARM_DESC(level, "the codec's level; to decompress, the one whose largest window must fit");
static unsigned long workspace_size;
module_param(workspace_size, ulong, 0444);
MODULE_PARM_DESC(workspace_size, "bytes of memory to request, 0 for as many as the level needs");

static unsigned long long cycles;
module_param(cycles, ullong, 0444);
MODULE_PARM_DESC(cycles, "of the processor's clock that zstd took for the last file (result)");

struct codec {
	const char *name;
	/* How many bytes of workspace the level needs, 0 if there is no such level. */
	size_t (*bound)(void);
	/* Begins a stream in the workspace. */
	int (*begin)(void);
	/* Takes `length` bytes of `input`. */
	int (*take)(size_t length);
	/* Ends the stream. */
	int (*finish)(void);
};

/* Bytes of a page, as streams are given and give them. */
#define PAGE_BYTES 4096
static unsigned int frame_size;
module_param(frame_size, uint, 0444);
MODULE_PARM_DESC(frame_size, "bytes of each frame of zstd, a multiple of 4096: known, as to file systems; 0 for one frame of unknown size");

static void *workspace;
/* A frame of a page has room in it. */
static u8 output[2 * PAGE_BYTES];
static struct xxh64_state output_hash;
static const struct codec *codec;

/* `length` bytes of `output` are done with. */
static void take_output(size_t length)
{
	xxh64_update(&output_hash, output, length);
}

static size_t none_bound(void)
{
	return 1;
}

static int none_begin(void)
{
	return 0;
}

static int none_take(size_t length)
{
	return 0;
}

static int none_finish(void)
{
	return 0;
}

static int codec_begin(void)
{
	xxh64_reset(&output_hash, 0);
	cycles = 0;
	return codec->begin();
}

static int codec_finish(bool is_good)
{
	int result = is_good ? codec->finish() : 0;

	snprintf(digest, sizeof(digest), "%016llx", (unsigned long long)xxh64_digest(&output_hash));
	return result;
}

/* Loads the device with the codec that was asked for, one of `codecs`; `take` counts the input and gives it to that codec. */
static int codec_start(const struct codec *codecs, int count, int (*take)(size_t length))
{
	static struct taker codec_taker = { .begin = codec_begin, .finish = codec_finish };
	size_t needed;
	int result, i;

	for (i = 0; i < count; i++)
		if (strcmp(codecs[i].name, method) == 0)
			codec = &codecs[i];
	needed = codec ? codec->bound() : 0;
	if (!needed) {
		pr_err("there is no %s at level %d\n", method, level);
		return -EINVAL;
	}
	if (!workspace_size)
		workspace_size = needed;
	codec_taker.take = take;
	workspace = vmalloc(workspace_size);
	if (!workspace)
		return -ENOMEM;
	result = codec->begin();
	if (!result)
		result = device_start(&codec_taker);
	if (result) {
		vfree(workspace);
		return result;
	}
	pr_info("%s at level %d, %lu bytes of workspace\n", method, level, workspace_size);
	return 0;
}

static void codec_end(void)
{
	device_end();
	vfree(workspace);
}
