// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* restow_zstd_compress.ko: the half of <linux/zstd.h> that compresses. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "restow_zstd.h"
#include <linux/errno.h>
#include <linux/export.h>
#include <linux/module.h>
#include <linux/string.h>
#include <linux/vmalloc.h>
#include "bmi.h"
#include "exports_zstd_compress.h"
#include "panic.h"
#include "self_test.h"

/* The header of a frame of 1,000 bytes: the format leaves no choice. What follows depends on the encoder's version. */
static const u8 header[] __initconst = { 0x28, 0xB5, 0x2F, 0xFD, 0x60, 0xE8, 0x02 };

static bool __init compresses_z(const zstd_parameters *params, void *workspace, size_t size, u8 *src, u8 *dst)
{
	zstd_in_buffer in = { .src = src, .size = 1000 };
	zstd_out_buffer out = { .dst = dst, .size = 1000 };
	zstd_cstream *stream = zstd_init_cstream(params, 1000, workspace, size);

	memset(src, 'z', 1000);
	if (!stream || zstd_is_error(zstd_compress_stream(stream, &out, &in)) || zstd_end_stream(stream, &out) != 0)
		return false;
	return out.pos < 32 && memcmp(dst, header, sizeof(header)) == 0;
}

static bool __init compresses_text(const zstd_parameters *params, void *workspace, size_t size, u8 *src, u8 *dst)
{
	zstd_cctx *context = zstd_init_cctx(workspace, size);
	size_t written;

	write_text(src);
	if (!context)
		return false;
	written = zstd_compress_cctx(context, dst, 1000, src, TEXT_SIZE, params);
	return !zstd_is_error(written) && written < 250 && memcmp(dst, header, 4) == 0;
}

#ifdef HAS_DICTIONARIES
static bool __init compresses_behind_dictionary(const u8 *text, u8 *dst)
{
	size_t size = TEXT_SIZE - DICTIONARY_SIZE, written = 0;
	zstd_cctx *context = zstd_create_cctx_advanced(allocator);
	zstd_cdict *dictionary = zstd_create_cdict_byreference(text, DICTIONARY_SIZE,
							       zstd_get_cparams(3, size, DICTIONARY_SIZE), allocator);

	if (context && dictionary)
		written = zstd_compress_using_cdict(context, dst, 1000, text + DICTIONARY_SIZE, size, dictionary);
	zstd_free_cdict(dictionary);
	zstd_free_cctx(context);
	return written > 0 && written < 100 && memcmp(dst, header, 4) == 0;
}
#else
static bool __init compresses_behind_dictionary(const u8 *text, u8 *dst)
{
	return true;
}
#endif

static int __init self_test(void)
{
	zstd_parameters params = zstd_get_params(3, 1000);
	size_t size = max(zstd_cstream_workspace_bound(&params.cParams), zstd_cctx_workspace_bound(&params.cParams));
	u8 *workspace = vmalloc(size + 2000);
	bool passed;

	if (!workspace)
		return -ENOMEM;
	passed = compresses_z(&params, workspace, size, workspace + size, workspace + size + 1000) &&
		 compresses_text(&params, workspace, size, workspace + size, workspace + size + 1000) &&
		 compresses_behind_dictionary(workspace + size, workspace + size + 1000);
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
MODULE_DESCRIPTION("Zstandard compression of restow");
MODULE_LICENSE("Dual MIT/GPL");
