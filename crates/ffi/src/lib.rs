//! zstd and xxHash behind C interfaces, without the standard library and without an allocator: memory comes from the caller.
//!
//! | module | interface | names |
//! |---|---|---|
//! | [`modern`] | `linux/zstd.h` since Linux 5.16 | `zstd_*` |
//! | [`legacy`] | `linux/zstd.h` from Linux 4.14 to 5.15 | `ZSTD_*` |
//! | [`xxhash`](mod@xxhash) | `linux/xxhash.h` | `xxh32*`, `xxh64*` |
//!
//! The functions are called from C. They have their C names as symbols with the feature `export`, which only the final
//! libraries turn on: other crates may come with a `libzstd`, whose names some of them are.
//!
//! # What a caller owes
//!
//! - A pointer to a context is NULL, or what the function that makes such a context has returned, and the workspace is
//!   still there. Nothing else uses the context at the same time.
//! - A pointer to a struct is NULL or points to such a struct.
//! - A workspace has as many bytes as are said, and nobody else uses them while there is a context in it.
//! - A source has as many bytes as are said, and nobody writes to it during the call. A destination has as many bytes as are
//!   said, and nobody else uses it during the call. They do not overlap.
//! - A dictionary stays as it is while something that refers to it is used.
//!
//! # What is checked
//!
//! NULL for a context, a struct or a buffer that is not empty gives an error (NULL where a pointer is returned). So does a
//! workspace that is too small. A workspace may begin at any address. A panic aborts: none crosses into C.
//!
//! # How a context lies in its workspace
//!
//! The functions `zstd_create_*` take memory from the caller's own functions instead (feature `allocator`).
//!
//! The first aligned bytes hold the value, such as an encoder; the rest is its memory. Bounds count both, and what aligning may
//! skip.
#![no_std]
#![cfg_attr(
    not(all(
        feature = "allocator",
        feature = "compress",
        feature = "decompress",
        feature = "legacy",
        feature = "modern",
        feature = "xxhash"
    )),
    allow(
        dead_code,
        reason = "not every direction and interface needs all of what they share"
    )
)]

#[cfg(test)]
extern crate std;

#[cfg(feature = "allocator")]
mod allocator;
#[cfg(any(feature = "compress", feature = "decompress"))]
mod buffers;
#[cfg(feature = "decompress")]
mod decode;
#[cfg(feature = "compress")]
mod encode;
#[cfg(any(feature = "compress", feature = "decompress"))]
mod failure;
#[cfg(all(feature = "legacy", any(feature = "compress", feature = "decompress")))]
pub mod legacy;
mod memory;
#[cfg(all(feature = "modern", any(feature = "compress", feature = "decompress")))]
pub mod modern;
#[cfg(feature = "xxhash")]
pub mod xxhash;

#[cfg(feature = "allocator")]
pub use allocator::CustomMem;
#[cfg(any(feature = "compress", feature = "decompress"))]
pub use buffers::{InBuffer, OutBuffer};
#[cfg(feature = "decompress")]
pub use decode::DCtx;
#[cfg(feature = "compress")]
pub use encode::CCtx;

/// Chooses the loops that need BMI1, BMI2 and LZCNT, which are integer instructions.
///
/// # Safety
///
/// The processor has them, and every other one that this runs on.
#[cfg(feature = "assume-bmi")]
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_assume_bmi() {
    // SAFETY: the caller promises it.
    unsafe { zstd::assume_bmi() };
}

/// Ends the process at an instruction that no processor has: what a final library does when it panics.
pub fn trap() -> ! {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    // SAFETY: it ends the process.
    unsafe {
        core::arch::asm!("ud2", options(noreturn, nomem, nostack));
    }
    #[cfg(any(target_arch = "aarch64", target_arch = "arm"))]
    // SAFETY: it ends the process.
    unsafe {
        core::arch::asm!("udf #0", options(noreturn, nomem, nostack));
    }
    #[cfg(not(any(
        target_arch = "x86",
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "arm"
    )))]
    loop {
        core::hint::spin_loop();
    }
}

#[cfg(all(
    test,
    feature = "compress",
    feature = "decompress",
    feature = "modern",
    feature = "legacy"
))]
mod tests;
