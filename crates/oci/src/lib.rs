#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

mod check;
mod chunked;
mod descriptor;
mod layers;
mod layout;
mod platform;
mod write;

pub use descriptor::Digest;
pub use layers::{KnownLayers, LayerFormat, LayerImage, LayerStack};
pub use layout::{Image, ImageLayout, Layer, LayoutKind, ListedImage};
pub use platform::Platform;
pub use write::{DigestWriter, LayoutWriter, NewImage, NewLayer, WrittenImage, is_image_name};
