//! The interface of `linux/xxhash.h`. The layouts of the states are public, and are those of Linux.
#![expect(
    clippy::missing_safety_doc,
    reason = "the crate's documentation says what a caller owes"
)]

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;

use crate::memory::bytes;
use xxhash::{Xxh32, Xxh64};

/// The result of `update` for NULL: `-EINVAL`.
const EINVAL: c_int = -22;

/// `struct xxh32_state`, 44 bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Xxh32State {
    state: Xxh32,
    /// Bytes that wait for a full stripe. Linux counts them here; the state itself knows.
    memsize: u32,
}

/// `struct xxh64_state`, 80 bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Xxh64State {
    state: Xxh64,
    /// Bytes that wait for a full stripe. Linux counts them here; the state itself knows.
    memsize: u32,
    padding: u32,
}

const _: () = assert!(size_of::<Xxh32State>() == 44 && align_of::<Xxh32State>() == 4);
const _: () = assert!(size_of::<Xxh64State>() == 80 && align_of::<Xxh64State>() == 8);

/// The hash of `length` bytes. NULL is a pointer to no bytes.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn xxh32(input: *const c_void, length: usize, seed: u32) -> u32 {
    // SAFETY: the caller promises it.
    let input = unsafe { bytes(input, length) };
    xxhash::xxh32(input.unwrap_or_default(), seed)
}

/// The hash of `length` bytes. NULL is a pointer to no bytes.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn xxh64(input: *const c_void, length: usize, seed: u64) -> u64 {
    // SAFETY: the caller promises it.
    let input = unsafe { bytes(input, length) };
    xxhash::xxh64(input.unwrap_or_default(), seed)
}

/// Begins a hash.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn xxh32_reset(state: Option<&mut MaybeUninit<Xxh32State>>, seed: u32) {
    if let Some(state) = state {
        state.write(Xxh32State {
            state: Xxh32::new(seed),
            memsize: 0,
        });
    }
}

/// Begins a hash.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn xxh64_reset(state: Option<&mut MaybeUninit<Xxh64State>>, seed: u64) {
    if let Some(state) = state {
        state.write(Xxh64State {
            state: Xxh64::new(seed),
            memsize: 0,
            padding: 0,
        });
    }
}

/// Appends input: 0, or `-EINVAL` if a pointer is NULL, even to no bytes.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn xxh32_update(
    state: Option<&mut Xxh32State>,
    input: *const c_void,
    length: usize,
) -> c_int {
    if input.is_null() {
        return EINVAL;
    }
    // SAFETY: the caller promises it.
    let input = unsafe { bytes(input, length) };
    let (Some(state), Some(input)) = (state, input) else {
        return EINVAL;
    };
    state.state.update(input);
    state.memsize = state.memsize.wrapping_add(input.len() as u32) % 16;
    0
}

/// Appends input: 0, or `-EINVAL` if a pointer is NULL, even to no bytes.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn xxh64_update(
    state: Option<&mut Xxh64State>,
    input: *const c_void,
    length: usize,
) -> c_int {
    if input.is_null() {
        return EINVAL;
    }
    // SAFETY: the caller promises it.
    let input = unsafe { bytes(input, length) };
    let (Some(state), Some(input)) = (state, input) else {
        return EINVAL;
    };
    state.state.update(input);
    state.memsize = state.memsize.wrapping_add(input.len() as u32) % 32;
    0
}

/// The hash of all input so far; more may follow. 0 for NULL.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn xxh32_digest(state: Option<&Xxh32State>) -> u32 {
    state.map_or(0, |state| state.state.digest())
}

/// The hash of all input so far; more may follow. 0 for NULL.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn xxh64_digest(state: Option<&Xxh64State>) -> u64 {
    state.map_or(0, |state| state.state.digest())
}

/// Copies a state.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn xxh32_copy_state(
    dst: Option<&mut MaybeUninit<Xxh32State>>,
    src: Option<&Xxh32State>,
) {
    if let (Some(dst), Some(src)) = (dst, src) {
        dst.write(*src);
    }
}

/// Copies a state.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn xxh64_copy_state(
    dst: Option<&mut MaybeUninit<Xxh64State>>,
    src: Option<&Xxh64State>,
) {
    if let (Some(dst), Some(src)) = (dst, src) {
        dst.write(*src);
    }
}
