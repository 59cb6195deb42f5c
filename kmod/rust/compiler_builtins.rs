//! Stands where rustc looks for `compiler_builtins`: what a module calls of it, the kernel has,
//! such as `memcpy`.
//!
//! What the kernel does not have, such as a division of 128 bits, is an undefined symbol, which
//! fails the build.
#![feature(compiler_builtins)]
#![compiler_builtins]
#![no_builtins]
#![no_std]
