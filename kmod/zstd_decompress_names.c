// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The functions of restow_zstd_decompress.ko under the kernel's names as well: RESTOW_KERNEL_NAMES. */
#include <linux/export.h>
#include <linux/zstd.h>
#include "exports_zstd_decompress.h"
