//! The Rust half of a module: the C interface of one codec, and what a panic does.
#![no_std]

use core::arch::asm;
use core::panic::PanicInfo;

// All of it is reached by its C names.
extern crate ffi as _;

unsafe extern "C" {
    /// Logs where a panic was and ends the process, see `panic.h`. It does not return, but objtool
    /// wants code behind a call.
    fn restow_panic(file: *const u8, length: usize, line: u32);
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let (file, line) = info
        .location()
        .map_or(("?", 0), |at| (at.file(), at.line()));
    // SAFETY: the pointer and the length are those of a string, which lives as long as the module.
    unsafe { restow_panic(file.as_ptr(), file.len(), line) };
    #[cfg(target_arch = "x86_64")]
    // SAFETY: an invalid instruction never returns.
    unsafe {
        asm!("ud2", options(noreturn))
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        asm!("udf #0", options(noreturn))
    }
}
