#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod analyse;
mod index;
mod input;
mod make;
mod old;
mod scan;

pub use input::{DeltaInput, Lz4Block};
pub use make::{DeltaOptions, DeltaSummary, make};
