/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The functions that xxhash.ko exports, under the names that they have where this is included. */
#include <linux/export.h>

EXPORT_SYMBOL_GPL(xxh32);
EXPORT_SYMBOL_GPL(xxh32_copy_state);
EXPORT_SYMBOL_GPL(xxh32_digest);
EXPORT_SYMBOL_GPL(xxh32_reset);
EXPORT_SYMBOL_GPL(xxh32_update);
EXPORT_SYMBOL_GPL(xxh64);
EXPORT_SYMBOL_GPL(xxh64_copy_state);
EXPORT_SYMBOL_GPL(xxh64_digest);
EXPORT_SYMBOL_GPL(xxh64_reset);
EXPORT_SYMBOL_GPL(xxh64_update);
