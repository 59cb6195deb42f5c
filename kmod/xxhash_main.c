// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* restow_xxhash.ko: XXH32 and XXH64. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "restow_xxhash.h"
#include <linux/errno.h>
#include <linux/export.h>
#include <linux/module.h>
#include "exports_xxhash.h"
#include "panic.h"

static const u32 seed = 0x9E3779B1;
static const u32 expected32 = 0x37B352EE;
static const u64 expected64 = 0xA1C6D4174C37136DULL;

/* Hashes bytes in two calls, with a copy of the state between them. */
static bool __init hashes_in_parts(const u8 *bytes, size_t length)
{
#ifdef HAS_xxh32_update
	struct xxh32_state state32, copy32;
#endif
	struct xxh64_state state64, copy64;

#ifdef HAS_xxh32_update
	xxh32_reset(&state32, seed);
	if (xxh32_update(&state32, bytes, 50))
		return false;
	xxh32_copy_state(&copy32, &state32);
	if (xxh32_update(&copy32, bytes + 50, length - 50) || xxh32_digest(&copy32) != expected32)
		return false;
#endif
	xxh64_reset(&state64, seed);
	if (xxh64_update(&state64, bytes, 50))
		return false;
#ifdef HAS_xxh64_copy_state
	xxh64_copy_state(&copy64, &state64);
#else
	copy64 = state64;
#endif
	return !xxh64_update(&copy64, bytes + 50, length - 50) && xxh64_digest(&copy64) == expected64;
}

/* The bytes 0 to 100, in one call and in two. */
static int __init self_test(void)
{
	u8 bytes[101];
	int i;

	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = i;
	if (xxh32(bytes, sizeof(bytes), seed) != expected32 || xxh64(bytes, sizeof(bytes), seed) != expected64)
		return -EINVAL;
	return hashes_in_parts(bytes, sizeof(bytes)) ? 0 : -EINVAL;
}

static int __init start(void)
{
	int error = self_test();

	if (error)
		pr_err("the self-test failed\n");
	return error;
}

static void __exit end(void)
{
}

module_init(start);
module_exit(end);
MODULE_DESCRIPTION("XXH32 and XXH64 of restow");
MODULE_LICENSE("Dual MIT/GPL");
