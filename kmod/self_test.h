/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the self-tests of both zstd modules compress or expect: 751 bytes of text. */
#include <linux/kernel.h>
#include <linux/version.h>
#include <linux/vmalloc.h>

#define TEXT_SIZE 751
/* Its start serves as a dictionary for the rest. */
#define DICTIONARY_SIZE 300

/* Needs one byte more, for the zero behind the text. */
static void __init write_text(char *text)
{
	int bottles, length = 0;

	for (bottles = 20; bottles > 0; bottles--)
		length += scnprintf(text + length, TEXT_SIZE + 1 - length, "%d green bottles hanging on the wall, ", bottles);
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0) && defined(LINUX_ZSTD_H)
/* The kernel has dictionaries, and contexts in memory of an allocator. */
#define HAS_DICTIONARIES

static void *give(void *opaque, size_t size)
{
	return vmalloc(size);
}

static void take_back(void *opaque, void *address)
{
	vfree(address);
}

static const zstd_custom_mem allocator __initconst = { .customAlloc = give, .customFree = take_back };
#endif
