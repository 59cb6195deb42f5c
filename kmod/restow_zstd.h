/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * <linux/zstd.h> with the functions of restow_zstd_compress.ko and restow_zstd_decompress.ko in place of the kernel's.
 *
 * Included before <linux/zstd.h>, or by the compiler's option -include, it sends all calls of a source file to those modules.
 */
#ifndef RESTOW_ZSTD_H
#define RESTOW_ZSTD_H

#include "names_zstd_compress.h"
#include "names_zstd_decompress.h"
#include <linux/zstd.h>

/* What is an error is arithmetic: so who only compresses needs no decompressor for it. */
#undef zstd_is_error
#undef zstd_get_error_code

static inline unsigned int restow_zstd_result_is_error(size_t result)
{
	return result > (size_t)-ZSTD_error_maxCode;
}

static inline zstd_error_code restow_zstd_result_error_code(size_t result)
{
	return restow_zstd_result_is_error(result) ? (zstd_error_code)(0 - result) : ZSTD_error_no_error;
}

#define zstd_is_error restow_zstd_result_is_error
#define zstd_get_error_code restow_zstd_result_error_code

#endif
