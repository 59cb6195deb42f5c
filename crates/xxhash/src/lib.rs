#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

mod xxh32;
mod xxh64;

pub use xxh32::{Xxh32, xxh32};
pub use xxh64::{Xxh64, xxh64};
