/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The function of the Rust half of panic_test.ko, and its name there. */
#define panic_test restow_panic_test
