// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* xxhash_test.ko: what is written to /dev/xxhash_test is hashed, in pieces of one size. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "restow_xxhash.h"
#include <linux/crc32.h>
#include "device.h"

static char *method = "xxh64";
module_param(method, charp, 0444);
MODULE_PARM_DESC(method, "xxh32, xxh64, crc32, or none to only count");
module_param_named(buffer_size, piece, uint, 0444);
MODULE_PARM_DESC(buffer_size, "bytes that are hashed at once: 1024, 4096, 8192 or 16384");

#ifdef HAS_xxh32_update
static struct xxh32_state state32;
#endif
static struct xxh64_state state64;
static u32 crc;

static int none_take(size_t length)
{
	return 0;
}

#ifdef HAS_xxh32_update
static int xxh32_take(size_t length)
{
	return xxh32_update(&state32, input, length);
}

static void xxh32_print(void)
{
	snprintf(digest, sizeof(digest), "%08x", xxh32_digest(&state32));
}
#endif

static int xxh64_take(size_t length)
{
	return xxh64_update(&state64, input, length);
}

static int crc32_take(size_t length)
{
	crc = crc32_le(crc, input, length);
	return 0;
}

static void none_digest(void)
{
}

static void xxh64_print(void)
{
	snprintf(digest, sizeof(digest), "%016llx", (unsigned long long)xxh64_digest(&state64));
}

static void crc32_print(void)
{
	snprintf(digest, sizeof(digest), "%08x", ~crc);
}

static const struct hash {
	const char *name;
	int (*take)(size_t length);
	void (*print)(void);
} hashes[] = {
	{ "none", none_take, none_digest },
#ifdef HAS_xxh32_update
	{ "xxh32", xxh32_take, xxh32_print },
#endif
	{ "xxh64", xxh64_take, xxh64_print },
	{ "crc32", crc32_take, crc32_print },
};
static const struct hash *hash;

static int begin(void)
{
#ifdef HAS_xxh32_update
	xxh32_reset(&state32, 0);
#endif
	xxh64_reset(&state64, 0);
	crc = ~0;
	return 0;
}

static int take(size_t length)
{
	uncompressed_len += length;
	return hash->take(length);
}

static int finish(bool is_good)
{
	hash->print();
	return 0;
}

static const struct taker hash_taker = { .begin = begin, .take = take, .finish = finish };

static int __init start(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(hashes); i++)
		if (strcmp(hashes[i].name, method) == 0)
			hash = &hashes[i];
	if (!hash || (piece != 1024 && piece != 4096 && piece != 8192 && piece != 16384)) {
		pr_err("there is no %s with buffers of %u bytes\n", method, piece);
		return -EINVAL;
	}
	return device_start(&hash_taker);
}

static void __exit end(void)
{
	device_end();
}

module_init(start);
module_exit(end);
MODULE_DESCRIPTION("A device that hashes what is written to it");
MODULE_LICENSE("Dual MIT/GPL");
