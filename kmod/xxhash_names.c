// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The functions of xxhash.ko under the kernel's names as well, for a kernel that has no such functions. */
#include <linux/xxhash.h>
#include "exports_xxhash.h"
