// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The functions of restow_xxhash.ko under the kernel's names as well: RESTOW_KERNEL_NAMES. */
#include <linux/export.h>
#include <linux/xxhash.h>
#include "exports_xxhash.h"
