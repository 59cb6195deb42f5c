//! Hints to the compiler. `older` are compilers that have no such hints: a kernel may be built with
//! one (`xtask/src/kmod/series/Makefile`).
#![allow(
    unexpected_cfgs,
    reason = "that makefile sets `older`, and cargo never does"
)]

#[cfg(not(older))]
pub(crate) use core::hint::{cold_path, select_unpredictable};

#[cfg(older)]
#[cold]
#[inline]
pub(crate) const fn cold_path() {}

#[cfg(older)]
#[inline(always)]
pub(crate) fn select_unpredictable<T>(condition: bool, yes: T, no: T) -> T {
    if condition { yes } else { no }
}
