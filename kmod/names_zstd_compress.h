/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The functions of zstd_compress.ko: the names of <linux/zstd.h>, and those they are exported under. */
#define zstd_cctx_workspace_bound restow_zstd_cctx_workspace_bound
#define zstd_compress_bound restow_zstd_compress_bound
#define zstd_compress_cctx restow_zstd_compress_cctx
#define zstd_compress_stream restow_zstd_compress_stream
#define zstd_cstream_workspace_bound restow_zstd_cstream_workspace_bound
#define zstd_end_stream restow_zstd_end_stream
#define zstd_flush_stream restow_zstd_flush_stream
#define zstd_get_params restow_zstd_get_params
#define zstd_init_cctx restow_zstd_init_cctx
#define zstd_init_cstream restow_zstd_init_cstream
#define zstd_max_clevel restow_zstd_max_clevel
#define zstd_min_clevel restow_zstd_min_clevel
#define zstd_reset_cstream restow_zstd_reset_cstream
