#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod bars;
pub mod html;
pub mod scatter;
pub mod svg;
pub mod treemap;
