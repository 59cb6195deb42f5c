//! The Rust half of `panic_test.ko`: a panic on purpose, which goes the same way as one of the
//! codecs would.
#![no_std]

// With the panic handler of the other modules.
#[path = "module.rs"]
mod module;

static TABLE: [u8; 4] = [2, 3, 5, 7];

/// An element of a table of four; a panic if there is no such element.
#[unsafe(no_mangle)]
pub extern "C" fn panic_test(at: usize) -> u32 {
    u32::from(TABLE[at])
}
