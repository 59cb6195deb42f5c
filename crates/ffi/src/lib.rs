#![doc = include_str!("../README.md")]
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

/// Ends the process at an invalid instruction, as a final library does when it panics.
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
