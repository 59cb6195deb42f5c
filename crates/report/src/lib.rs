//! Pictures for reports: SVG drawings and HTML pages of one file.
//!
//! The same input gives the same bytes, so that pictures can be compared with golden files. Colours are classes of one
//! style sheet that has a light and a dark variant, and nothing is loaded from elsewhere. This crate knows no container
//! and no file system: it draws what it is given.
#![forbid(unsafe_code)]

pub mod bars;
pub mod html;
pub mod scatter;
pub mod svg;
pub mod treemap;
