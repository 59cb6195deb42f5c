/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* <linux/xxhash.h> with the functions of restow_xxhash.ko in place of the kernel's. */
#ifndef RESTOW_XXHASH_H
#define RESTOW_XXHASH_H

#include "names_xxhash.h"
#include <linux/xxhash.h>

#endif
