//! Pictures for reports: SVG drawings and HTML pages of one file.
//!
//! The same input gives the same bytes, so that pictures can be compared with golden files. Colours
//! are classes of one style sheet that has a light and a dark variant, and nothing is loaded from
//! elsewhere. This crate knows no container and no file system: it draws what it is given.
//!
//! ```
//! use report::svg::Svg;
//! use report::treemap::{Rect, Tile, draw};
//!
//! let tile = |label: &str, size, children| {
//!     Tile { label: label.into(), size, children, ..Tile::default() }
//! };
//! let etc = tile("etc", 3000, vec![1, 2]);
//! let tiles = [etc, tile("fonts", 2000, vec![]), tile("ssl", 1000, vec![])];
//! let mut svg = Svg::new(300, 200, "Sizes");
//! draw(&mut svg, &tiles, Rect { x: 0.0, y: 0.0, width: 300.0, height: 200.0 });
//! let page = report::html::page("Sizes", &svg.element());
//! assert!(page.contains("fonts"));
//! ```
#![forbid(unsafe_code)]

pub mod bars;
pub mod html;
pub mod scatter;
pub mod svg;
pub mod treemap;
