/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* <linux/zstd.h> of Linux 4.14 to 5.15, with the functions of restow_zstd_2017.ko. */
#ifndef RESTOW_ZSTD_2017_NAMES_H
#define RESTOW_ZSTD_2017_NAMES_H

#include "names_zstd_2017.h"
#include "zstd_2017.h"

#endif
