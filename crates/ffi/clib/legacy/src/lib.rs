//! The final library of the interface of 2017.
#![no_std]
#![forbid(unsafe_code)]

extern crate ffi;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    ffi::trap()
}
