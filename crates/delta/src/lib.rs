#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod analyse;
mod index;
mod make;
mod old;
mod scan;

pub use make::{DeltaOptions, DeltaSummary, make};
