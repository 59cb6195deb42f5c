// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * <linux/zstd.h> in Rust: the exports of its module, and which of its loops
 * are used.
 */

#include <linux/cpufeature.h>
#include <linux/export.h>
#include <linux/init.h>
#include <linux/module.h>
#include <linux/zstd.h>

/**
 * DOC: Zstandard in Rust
 *
 * The functions are those of <linux/zstd.h> and keep its promises.
 * Memory comes from the caller alone; workspaces may begin at any address.
 * Neither data nor a call out of order makes the code panic: an index that
 * the compiler cannot prove is checked, and a wrong one is the error
 * ZSTD_error_GENERIC.
 */

/* The functions are of Rust. */
#define EXPORT(name) EXPORT_SYMBOL(name)

#if IS_ENABLED(CONFIG_ZSTD_COMPRESS)
@compress@
#endif
#if IS_ENABLED(CONFIG_ZSTD_DECOMPRESS)
@decompress@
#endif

/*
 * Functions that lib/zstd exports under the names of the C library, of which
 * crypto/zstd.c calls one.
 */
unsigned int ZSTD_isError(size_t result)
{
	return result > (size_t)-ZSTD_error_maxCode;
}
EXPORT_SYMBOL_GPL(ZSTD_isError);

ZSTD_ErrorCode ZSTD_getErrorCode(size_t result)
{
	return ZSTD_isError(result) ? (ZSTD_ErrorCode)(0 - result) : ZSTD_error_no_error;
}
EXPORT_SYMBOL_GPL(ZSTD_getErrorCode);

/* Of the crate ffi: the processor must have BMI1, BMI2 and LZCNT. */
void zstd_assume_bmi(void);

/*
 * Chooses loops with instructions that not every processor has. They are of
 * integers: no state of a process has to be saved. Until then plain loops
 * are used, such as by an early decompressor.
 */
static int __init restow_zstd_init(void)
{
	if (boot_cpu_has(X86_FEATURE_BMI1) && boot_cpu_has(X86_FEATURE_BMI2) &&
	    boot_cpu_has(X86_FEATURE_ABM))
		zstd_assume_bmi();
	return 0;
}
core_initcall(restow_zstd_init);

/* A module without this cannot be unloaded. */
static void __exit restow_zstd_exit(void)
{
}
module_exit(restow_zstd_exit);

MODULE_DESCRIPTION("Zstandard in Rust");
MODULE_LICENSE("Dual MIT/GPL");
