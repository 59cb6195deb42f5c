/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The functions that zstd_decompress.ko exports, under the names that they have where this is included. */
#include <linux/export.h>

EXPORT_SYMBOL_GPL(zstd_dctx_workspace_bound);
EXPORT_SYMBOL_GPL(zstd_decompress_dctx);
EXPORT_SYMBOL_GPL(zstd_decompress_stream);
EXPORT_SYMBOL_GPL(zstd_dstream_workspace_bound);
EXPORT_SYMBOL_GPL(zstd_find_frame_compressed_size);
EXPORT_SYMBOL_GPL(zstd_get_error_code);
EXPORT_SYMBOL_GPL(zstd_get_error_name);
EXPORT_SYMBOL_GPL(zstd_get_frame_header);
EXPORT_SYMBOL_GPL(zstd_init_dctx);
EXPORT_SYMBOL_GPL(zstd_init_dstream);
EXPORT_SYMBOL_GPL(zstd_is_error);
EXPORT_SYMBOL_GPL(zstd_reset_dstream);
