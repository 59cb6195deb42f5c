//! Tests of btrfs images: those that the kernel writes, and those that were made to do harm.
#![forbid(unsafe_code)]

mod hostile;
mod kernel;
mod small;
