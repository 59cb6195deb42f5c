//! Tests of btrfs images: those that the kernel writes, those that we make, and those that were made to do harm.
#![forbid(unsafe_code)]

mod check;
mod copied;
mod create;
mod damage;
mod devices;
mod hostile;
mod images;
mod kernel;
mod linux;
mod packed;
mod small;
mod subvolumes;
mod verdicts;
