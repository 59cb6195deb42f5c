/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The functions that zstd_compress.ko exports, under the names that they have where this is included. */
#include <linux/export.h>

EXPORT_SYMBOL_GPL(zstd_cctx_workspace_bound);
EXPORT_SYMBOL_GPL(zstd_compress_bound);
EXPORT_SYMBOL_GPL(zstd_compress_cctx);
EXPORT_SYMBOL_GPL(zstd_compress_stream);
EXPORT_SYMBOL_GPL(zstd_cstream_workspace_bound);
EXPORT_SYMBOL_GPL(zstd_end_stream);
EXPORT_SYMBOL_GPL(zstd_flush_stream);
EXPORT_SYMBOL_GPL(zstd_get_params);
EXPORT_SYMBOL_GPL(zstd_init_cctx);
EXPORT_SYMBOL_GPL(zstd_init_cstream);
EXPORT_SYMBOL_GPL(zstd_max_clevel);
EXPORT_SYMBOL_GPL(zstd_min_clevel);
EXPORT_SYMBOL_GPL(zstd_reset_cstream);
