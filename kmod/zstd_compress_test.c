// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * zstd_compress_test.ko: what is written to /dev/zstd_compress_test is compressed, counted and thrown away.
 *
 * `cp FILE /dev/zstd_compress_test` measures compression without a disk.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#ifdef LINUX_ZSTD
#include <linux/zstd.h>
#else
#include "restow_zstd.h"
#endif
#include <linux/zlib.h>
#include "codec.h"

static void take_compressed(size_t length)
{
	compressed_len += length;
	take_output(length);
}

static unsigned long long content_size;
module_param(content_size, ullong, 0444);
MODULE_PARM_DESC(content_size, "bytes that zstd's parameters are chosen for, 0 for unknown");

static zstd_parameters params;
static zstd_cstream *stream;
static zstd_cctx *context;
/* Bytes that the frame still takes, if it has a known size. */
static unsigned int frame_left;

static size_t zstd_bound(void)
{
	if (level < zstd_min_clevel() || level > zstd_max_clevel())
		return 0;
	params = zstd_get_params(level, frame_size ?: content_size);
	return max(zstd_cctx_workspace_bound(&params.cParams), zstd_cstream_workspace_bound(&params.cParams));
}

static int zstd_begin(void)
{
	frame_left = 0;
	if (frame_size == PAGE_BYTES)
		context = zstd_init_cctx(workspace, workspace_size);
	if (frame_size)
		return frame_size % PAGE_BYTES || (frame_size == PAGE_BYTES && !context) ? -EINVAL : 0;
	if (!stream)
		stream = zstd_init_cstream(&params, 0, workspace, workspace_size);
	if (!stream)
		return -EINVAL;
	return zstd_is_error(zstd_reset_cstream(stream, 0)) ? -EIO : 0;
}

static int zstd_step(size_t length, bool end)
{
	zstd_in_buffer in = { .src = input, .size = length };
	size_t result;

	do {
		zstd_out_buffer out = { .dst = output, .size = PAGE_BYTES };
		cycles_t start = get_cycles();

		result = end ? zstd_end_stream(stream, &out) : zstd_compress_stream(stream, &out, &in);
		cycles += get_cycles() - start;
		if (zstd_is_error(result)) {
			pr_err("zstd error %d\n", zstd_get_error_code(result));
			return -EIO;
		}
		take_compressed(out.pos);
	} while (end ? result != 0 : in.pos < in.size);
	return 0;
}

/* Takes a frame at once, as zram does. */
static int zstd_take_whole(size_t length)
{
	cycles_t start = get_cycles();
	size_t result = zstd_compress_cctx(context, output, sizeof(output), input, length, &params);

	cycles += get_cycles() - start;
	if (zstd_is_error(result))
		return -EIO;
	take_compressed(result);
	return 0;
}

/* Takes a part of a frame, as btrfs does: the stream begins with each frame. */
static int zstd_take_part(size_t length)
{
	int result;

	if (!frame_left) {
		cycles_t start = get_cycles();

		stream = zstd_init_cstream(&params, frame_size, workspace, workspace_size);
		cycles += get_cycles() - start;
		if (!stream)
			return -EINVAL;
		frame_left = frame_size;
	}
	result = zstd_step(length, false);
	frame_left -= length;
	return result || frame_left ? result : zstd_step(0, true);
}

static int zstd_take(size_t length)
{
	if (!frame_size)
		return zstd_step(length, false);
	if (length != PAGE_BYTES)
		return -EINVAL;
	return frame_size == PAGE_BYTES ? zstd_take_whole(length) : zstd_take_part(length);
}

static int zstd_finish(void)
{
	if (frame_size)
		return frame_left ? -EPIPE : 0;
	return zstd_step(0, true);
}

#if IS_REACHABLE(CONFIG_ZLIB_DEFLATE)
static struct z_stream_s deflate_stream;

static size_t zlib_bound(void)
{
	return level < 1 || level > 9 ? 0 : zlib_deflate_workspacesize(MAX_WBITS, DEF_MEM_LEVEL);
}

static int zlib_begin(void)
{
	deflate_stream.workspace = workspace;
	return zlib_deflateInit(&deflate_stream, level) == Z_OK ? 0 : -EINVAL;
}

static int zlib_step(size_t length, bool end)
{
	int result;

	deflate_stream.next_in = input;
	deflate_stream.avail_in = length;
	do {
		deflate_stream.next_out = output;
		deflate_stream.avail_out = sizeof(output);
		result = zlib_deflate(&deflate_stream, end ? Z_FINISH : Z_NO_FLUSH);
		if (result != Z_OK && result != Z_STREAM_END)
			return -EIO;
		take_compressed(sizeof(output) - deflate_stream.avail_out);
	} while (end ? result != Z_STREAM_END : deflate_stream.avail_in != 0);
	return 0;
}

static int zlib_take(size_t length)
{
	return zlib_step(length, false);
}

static int zlib_finish(void)
{
	return zlib_step(0, true);
}
#endif

static const struct codec codecs[] = {
	{ "none", none_bound, none_begin, none_take, none_finish },
	{ "zstd", zstd_bound, zstd_begin, zstd_take, zstd_finish },
#if IS_REACHABLE(CONFIG_ZLIB_DEFLATE)
	{ "zlib", zlib_bound, zlib_begin, zlib_take, zlib_finish },
#endif
};

static int take(size_t length)
{
	uncompressed_len += length;
	if (codec->take == none_take)
		compressed_len += length;
	return codec->take(length);
}

static int __init start(void)
{
	return codec_start(codecs, ARRAY_SIZE(codecs), take);
}

static void __exit end(void)
{
	codec_end();
}

module_init(start);
module_exit(end);
MODULE_DESCRIPTION("A device that compresses what is written to it");
MODULE_LICENSE("Dual MIT/GPL");
