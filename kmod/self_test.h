/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the self-tests of both zstd modules compress or expect: 751 bytes of text. */
#include <linux/kernel.h>

#define TEXT_SIZE 751

/* Needs one byte more, for the zero behind the text. */
static void __init write_text(char *text)
{
	int bottles, length = 0;

	for (bottles = 20; bottles > 0; bottles--)
		length += scnprintf(text + length, TEXT_SIZE + 1 - length, "%d green bottles hanging on the wall, ", bottles);
}
