//! The Linux system calls that the standard library lacks, safe on the outside.
//!
//! Everything here takes an open directory and names beneath it, as bytes, and never follows a symbolic link in the
//! last component. The calls come from rustix, so this crate holds no unsafe code of its own so far; the crates above
//! it see neither rustix nor errno numbers, but [`std::io::Error`].

mod cpu;
mod file;
mod xattr;

pub use cpu::pin_thread;
pub use file::*;
pub use xattr::*;
