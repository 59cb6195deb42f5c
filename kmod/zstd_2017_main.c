// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* restow_zstd_2017.ko: both halves of <linux/zstd.h> as it was from Linux 4.14 to 5.15, for modules outside the tree. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "restow_zstd_2017.h"
#include <linux/errno.h>
#include <linux/export.h>
#include <linux/module.h>
#include <linux/string.h>
#include <linux/vmalloc.h>
#include "bmi.h"
#include "exports_zstd_2017.h"
#include "panic.h"
#include "self_test.h"

/* Where the parts of the workspace are. */
struct places {
	void *memory;
	size_t size;
	char *text;
	char *back;
	u8 *frame;
};

/* In one call, behind the start of the text as a dictionary. */
static bool __init one_call(const struct places *at, ZSTD_parameters params)
{
	ZSTD_CCtx *cctx = ZSTD_initCCtx(at->memory, at->size);
	size_t size, length = TEXT_SIZE - 300;
	ZSTD_DCtx *dctx;

	if (!cctx)
		return false;
	size = ZSTD_compress_usingDict(cctx, at->frame, 1000, at->text + 300, length, at->text, 300, params);
	dctx = ZSTD_initDCtx(at->memory, at->size);
	if (ZSTD_isError(size) || size > 100 || !dctx)
		return false;
	memset(at->back, 0, length);
	return ZSTD_isError(ZSTD_decompressDCtx(dctx, at->back, length, at->frame, size)) &&
	       ZSTD_decompress_usingDict(dctx, at->back, length, at->frame, size, at->text, 300) == length &&
	       memcmp(at->back, at->text + 300, length) == 0;
}

static bool __init streams(const struct places *at, ZSTD_parameters params)
{
	ZSTD_CStream *cstream = ZSTD_initCStream(params, 0, at->memory, at->size);
	ZSTD_inBuffer in = { .src = at->text, .size = TEXT_SIZE };
	ZSTD_outBuffer out = { .dst = at->frame, .size = 1000 };
	ZSTD_DStream *dstream;

	if (!cstream || ZSTD_isError(ZSTD_compressStream(cstream, &out, &in)) || ZSTD_endStream(cstream, &out) != 0)
		return false;
	dstream = ZSTD_initDStream(1 << params.cParams.windowLog, at->memory, at->size);
	in = (ZSTD_inBuffer){ .src = at->frame, .size = out.pos };
	out = (ZSTD_outBuffer){ .dst = at->back, .size = TEXT_SIZE };
	memset(at->back, 0, TEXT_SIZE);
	return dstream && ZSTD_decompressStream(dstream, &out, &in) == 0 && memcmp(at->back, at->text, TEXT_SIZE) == 0;
}

static int __init self_test(void)
{
	ZSTD_parameters params = ZSTD_getParams(3, 1000, 0);
	struct places at = { .size = ZSTD_CStreamWorkspaceBound(params.cParams) };
	bool passed;

	at.size = max3(at.size, ZSTD_DCtxWorkspaceBound(), ZSTD_DStreamWorkspaceBound(1 << params.cParams.windowLog));
	at.memory = vmalloc(at.size + 3000);
	if (!at.memory)
		return -ENOMEM;
	at.text = (char *)at.memory + at.size;
	at.back = at.text + 1000;
	at.frame = (u8 *)at.back + 1000;
	write_text(at.text);
	passed = one_call(&at, params) && streams(&at, params);
	vfree(at.memory);
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
MODULE_DESCRIPTION("Zstandard of restow under the names of 2017");
MODULE_LICENSE("Dual MIT/GPL");
