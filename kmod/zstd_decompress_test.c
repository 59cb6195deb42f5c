// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * zstd_decompress_test.ko: what is written to /dev/zstd_decompress_test is decompressed, counted and thrown away.
 *
 * Bytes that no decoder takes fail to be written, with EIO; a file that ends within a frame leaves error at -EPIPE.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#ifdef LINUX_ZSTD
#include <linux/zstd.h>
#else
#include "restow_zstd.h"
#endif
#include <linux/zlib.h>
#include "codec.h"

static int zstd_error;
module_param(zstd_error, int, 0444);
MODULE_PARM_DESC(zstd_error, "the number of the last error of zstd (result)");

/* What was taken ends where a frame does. */
static bool is_whole;

static void take_uncompressed(size_t length)
{
	uncompressed_len += length;
	take_output(length);
}

static int finish(void)
{
	return is_whole ? 0 : -EPIPE;
}

/* The logarithm of the window that each level has for content of any size. */
static const u8 window_logs[] = { 21, 19, 20, 21, 21, 21, 21, 21, 21, 22, 22, 22, 22, 22, 22, 22, 22, 23, 23, 23, 25, 26, 27 };
static zstd_dstream *stream;
static zstd_dctx *context;

static size_t window_size(void)
{
	if (frame_size)
		return frame_size;
	return (size_t)1 << window_logs[level];
}

static size_t zstd_bound(void)
{
	if (level < 0 || level >= ARRAY_SIZE(window_logs))
		return 0;
	return max(zstd_dctx_workspace_bound(), zstd_dstream_workspace_bound(window_size()));
}

static int zstd_begin(void)
{
	zstd_error = 0;
	is_whole = true;
	if (frame_size == PAGE_BYTES) {
		context = zstd_init_dctx(workspace, workspace_size);
		return context ? 0 : -EINVAL;
	}
	if (!stream)
		stream = zstd_init_dstream(window_size(), workspace, workspace_size);
	if (!stream)
		return -EINVAL;
	return zstd_is_error(zstd_reset_dstream(stream)) ? -EIO : 0;
}

/* Takes a frame at once, as zram does. The input has it at its start. */
static int zstd_take_whole(size_t length)
{
	size_t size = zstd_find_frame_compressed_size(input, length);
	cycles_t start = get_cycles();
	size_t result = zstd_is_error(size) ? size : zstd_decompress_dctx(context, output, sizeof(output), input, size);

	cycles += get_cycles() - start;
	if (zstd_is_error(result)) {
		zstd_error = zstd_get_error_code(result);
		return -EIO;
	}
	take_uncompressed(result);
	return 0;
}

static int zstd_take(size_t length)
{
	zstd_in_buffer in = { .src = input, .size = length };
	bool is_full;

	if (context)
		return zstd_take_whole(length);
	do {
		zstd_out_buffer out = { .dst = output, .size = PAGE_BYTES };
		cycles_t start = get_cycles();
		size_t result;

		/* File systems begin with each frame. */
		if (is_whole && frame_size)
			stream = zstd_init_dstream(window_size(), workspace, workspace_size);
		result = stream ? zstd_decompress_stream(stream, &out, &in) : -EINVAL;
		cycles += get_cycles() - start;
		if (zstd_is_error(result)) {
			zstd_error = zstd_get_error_code(result);
			return -EIO;
		}
		take_uncompressed(out.pos);
		is_whole = result == 0;
		is_full = out.pos == out.size;
	} while (in.pos < in.size || (is_full && !is_whole));
	return 0;
}

#if IS_REACHABLE(CONFIG_ZLIB_INFLATE)
static struct z_stream_s inflate_stream;

static size_t zlib_bound(void)
{
	return zlib_inflate_workspacesize();
}

static int zlib_begin(void)
{
	inflate_stream.workspace = workspace;
	is_whole = true;
	return zlib_inflateInit(&inflate_stream) == Z_OK ? 0 : -EINVAL;
}

static int zlib_take(size_t length)
{
	int result;

	inflate_stream.next_in = input;
	inflate_stream.avail_in = length;
	do {
		inflate_stream.next_out = output;
		inflate_stream.avail_out = sizeof(output);
		result = zlib_inflate(&inflate_stream, Z_SYNC_FLUSH);
		if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
			return -EIO;
		take_uncompressed(sizeof(output) - inflate_stream.avail_out);
		is_whole = result == Z_STREAM_END;
	} while (!is_whole && inflate_stream.avail_out == 0);
	return inflate_stream.avail_in == 0 ? 0 : -EIO;
}
#endif

static const struct codec codecs[] = {
	{ "none", none_bound, none_begin, none_take, none_finish },
	{ "zstd", zstd_bound, zstd_begin, zstd_take, finish },
#if IS_REACHABLE(CONFIG_ZLIB_INFLATE)
	{ "zlib", zlib_bound, zlib_begin, zlib_take, finish },
#endif
};

static int take(size_t length)
{
	compressed_len += length;
	if (codec->take == none_take)
		uncompressed_len += length;
	return codec->take(length);
}

static int __init start(void)
{
	/* Each frame of a page is followed by bytes that fill two. */
	if (frame_size == PAGE_BYTES)
		piece = 2 * PAGE_BYTES;
	return codec_start(codecs, ARRAY_SIZE(codecs), take);
}

static void __exit end(void)
{
	codec_end();
}

module_init(start);
module_exit(end);
MODULE_DESCRIPTION("A device that decompresses what is written to it");
MODULE_LICENSE("Dual MIT/GPL");
