/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The functions of zstd_decompress.ko: the names of <linux/zstd.h>, and those they are exported under. */
#define zstd_dctx_workspace_bound restow_zstd_dctx_workspace_bound
#define zstd_decompress_dctx restow_zstd_decompress_dctx
#define zstd_decompress_stream restow_zstd_decompress_stream
#define zstd_dstream_workspace_bound restow_zstd_dstream_workspace_bound
#define zstd_find_frame_compressed_size restow_zstd_find_frame_compressed_size
#define zstd_get_error_code restow_zstd_get_error_code
#define zstd_get_error_name restow_zstd_get_error_name
#define zstd_get_frame_header restow_zstd_get_frame_header
#define zstd_init_dctx restow_zstd_init_dctx
#define zstd_init_dstream restow_zstd_init_dstream
#define zstd_is_error restow_zstd_is_error
#define zstd_reset_dstream restow_zstd_reset_dstream
