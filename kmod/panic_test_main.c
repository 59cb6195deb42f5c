// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* panic_test.ko: shows what a panic of a module's Rust half does. It panics when it is loaded with `at` of 4 or more. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include "names_panic_test.h"
#include "panic.h"

static ulong at;
module_param(at, ulong, 0444);

u32 panic_test(size_t at);

static int __init start(void)
{
	pr_info("%lu: %u\n", at, panic_test(at));
	return 0;
}

static void __exit end(void)
{
}

module_init(start);
module_exit(end);
MODULE_DESCRIPTION("A panic of restow on purpose");
MODULE_LICENSE("Dual MIT/GPL");
