/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Where a panic of a module's Rust half goes. Each module has its own. */
#include <linux/bug.h>
#include <linux/printk.h>

void restow_panic(const char *file, size_t length, u32 line);

void restow_panic(const char *file, size_t length, u32 line)
{
	pr_emerg("Rust panic at %.*s:%u\n", (int)length, file, line);
	BUG();
}
