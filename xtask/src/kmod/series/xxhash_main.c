// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* <linux/xxhash.h> in Rust: the exports of its module. */

#include <linux/export.h>
#include <linux/module.h>
#include <linux/xxhash.h>

/* The functions are of Rust. */
#define EXPORT(name) EXPORT_SYMBOL(name)

@xxhash@

MODULE_DESCRIPTION("XXH32 and XXH64 in Rust");
MODULE_LICENSE("Dual MIT/GPL");
