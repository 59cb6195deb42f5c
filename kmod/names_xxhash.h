/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The functions of restow_xxhash.ko: the names of <linux/xxhash.h>, and those they are exported under. */
#define xxh32 restow_xxh32
#define xxh32_copy_state restow_xxh32_copy_state
#define xxh32_digest restow_xxh32_digest
#define xxh32_reset restow_xxh32_reset
#define xxh32_update restow_xxh32_update
#define xxh64 restow_xxh64
#define xxh64_copy_state restow_xxh64_copy_state
#define xxh64_digest restow_xxh64_digest
#define xxh64_reset restow_xxh64_reset
#define xxh64_update restow_xxh64_update
