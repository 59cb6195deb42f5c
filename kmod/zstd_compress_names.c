// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The functions of zstd_compress.ko under the kernel's names as well, for a kernel that has no such functions. */
#include <linux/zstd.h>
#include "exports_zstd_compress.h"
