// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* restow_zstd_decompress.ko: the half of <linux/zstd.h> that decompresses, and the meaning of its errors. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

/* Without the header restow_zstd.h, which has two of these functions inline. */
#include "names_zstd_decompress.h"
#include <linux/zstd.h>
#include <linux/errno.h>
#include <linux/export.h>
#include <linux/module.h>
#include <linux/string.h>
#include <linux/vmalloc.h>
#include "bmi.h"
#include "exports_zstd_decompress.h"
#include "panic.h"
#include "self_test.h"

/* The text as the zstd command compresses it (-19 --check): Huffman codes, sequences, and a checksum. */
static const u8 frame[] __initconst = {
	0x28, 0xB5, 0x2F, 0xFD, 0x64, 0xEF, 0x01, 0x85, 0x02, 0x00, 0x12, 0x83, 0x0B, 0x11, 0xA0, 0xED, 0xB0, 0x12, 0xA5,
	0xD0, 0x4A, 0x27, 0xFE, 0xDB, 0xDB, 0x2D, 0x3C, 0x03, 0xA2, 0xEA, 0x6B, 0x41, 0x0C, 0x52, 0xCC, 0x41, 0x49, 0x89,
	0x03, 0xE6, 0x35, 0xAF, 0x4D, 0xBE, 0xDF, 0xB7, 0xDD, 0xF6, 0x6A, 0x8F, 0xCA, 0x52, 0x3E, 0xF6, 0x56, 0x85, 0xFB,
	0x30, 0x02, 0x13, 0xA8, 0xF0, 0x7A, 0xFF, 0xEF, 0x10, 0x3B, 0x57, 0x03, 0x10, 0xFE, 0xFF, 0xBF, 0xF1, 0x01, 0x26,
	0x4D, 0x9A, 0xE0, 0x42, 0x7E, 0xD4, 0xEC, 0xB6, 0x6D, 0xD3, 0x90, 0xE8, 0x4E, 0x01, 0x48, 0x2E, 0xA0, 0x3E,
};

static bool __init decompresses(void *workspace, size_t size, u8 *src, u8 *text)
{
	char *dst = text + TEXT_SIZE + 1;
	zstd_dctx *context = zstd_init_dctx(workspace, size);
	zstd_dstream *stream;
	zstd_in_buffer in = { .src = src, .size = sizeof(frame) };
	zstd_out_buffer out = { .dst = dst, .size = TEXT_SIZE };
	size_t result;

	write_text(text);
	memcpy(src, frame, sizeof(frame));
	if (!context || zstd_decompress_dctx(context, dst, TEXT_SIZE, src, sizeof(frame)) != TEXT_SIZE)
		return false;
	if (memcmp(dst, text, TEXT_SIZE) != 0 || zstd_find_frame_compressed_size(src, sizeof(frame)) != sizeof(frame))
		return false;
	memset(dst, 0, TEXT_SIZE);
	stream = zstd_init_dstream(TEXT_SIZE, workspace, size);
	if (!stream || zstd_decompress_stream(stream, &out, &in) != 0 || memcmp(dst, text, TEXT_SIZE) != 0)
		return false;
	/* Another checksum. */
	src[sizeof(frame) - 1] ^= 1;
	context = zstd_init_dctx(workspace, size);
	if (!context)
		return false;
	result = zstd_decompress_dctx(context, dst, TEXT_SIZE, src, sizeof(frame));
	return zstd_is_error(result) && zstd_get_error_code(result) == ZSTD_error_checksum_wrong;
}

#ifdef HAS_DICTIONARIES
/* The text behind its start, as libzstd compresses it (level 19). */
static const u8 frame_behind_dictionary[] __initconst = {
	0x28, 0xB5, 0x2F, 0xFD, 0x60, 0xC3, 0x00, 0xF5, 0x00, 0x00, 0x18, 0x32, 0x31, 0x30, 0x0D, 0xA8, 0x90, 0x1F, 0x90, 0x72,
	0x64, 0x1D, 0x10, 0x22, 0xE1, 0xFF, 0xFF, 0xC8, 0x07, 0xCA, 0x45, 0xA5, 0x3A, 0x3F, 0x59, 0xC1, 0xF4, 0xE9, 0xB6, 0x1B,
};

static bool __init decompresses_behind_dictionary(const u8 *text, u8 *dst)
{
	size_t size = TEXT_SIZE - DICTIONARY_SIZE, written = 0;
	zstd_dctx *context = zstd_create_dctx_advanced(allocator);
	zstd_ddict *dictionary = zstd_create_ddict_byreference(text, DICTIONARY_SIZE, allocator);

	if (context && dictionary)
		written = zstd_decompress_using_ddict(context, dst, size, frame_behind_dictionary,
						      sizeof(frame_behind_dictionary), dictionary);
	zstd_free_ddict(dictionary);
	zstd_free_dctx(context);
	return written == size && memcmp(dst, text + DICTIONARY_SIZE, size) == 0;
}
#else
static bool __init decompresses_behind_dictionary(const u8 *text, u8 *dst)
{
	return true;
}
#endif

static int __init self_test(void)
{
	size_t size = max(zstd_dctx_workspace_bound(), zstd_dstream_workspace_bound(TEXT_SIZE));
	u8 *workspace = vmalloc(size + sizeof(frame) + 2 * (TEXT_SIZE + 1));
	bool passed;

	if (!workspace)
		return -ENOMEM;
	passed = decompresses(workspace, size, workspace + size, workspace + size + sizeof(frame)) &&
		 decompresses_behind_dictionary(workspace + size + sizeof(frame), workspace);
	vfree(workspace);
	return passed ? 0 : -EINVAL;
}

static int __init start(void)
{
	int error = self_test();

	/* Again with the loops that were not tried. */
	choose_loops();
	if (!error && bmi)
		error = self_test();
	if (error)
		pr_err("the self-test failed (error %d)\n", error);
	return error;
}

static void __exit end(void)
{
}

module_init(start);
module_exit(end);
MODULE_DESCRIPTION("Zstandard decompression of restow");
MODULE_LICENSE("Dual MIT/GPL");
