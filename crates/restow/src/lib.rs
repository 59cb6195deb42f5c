//! Open, copy, compare and check Linux file trees, whatever holds them.
//!
//! The command `restow` is a user of this crate: it adds words, options and progress. A library
//! prints nothing, and reads neither the environment nor the clock.
#![forbid(unsafe_code)]

mod address;
mod container;
mod error;
mod foreign;
mod input;
mod open_options;
mod partitions;
mod replayed;
mod source_note;
mod source_tree;
pub mod text;

use std::path::Path;

pub use address::{Address, is_same_file};
pub use container::{Container, ImageRange, check_devices};
pub use error::{Error, Result};
pub use input::Input;
pub use open_options::{ImageAt, OpenOptions};
pub use partitions::Partition;
pub use source_note::SourceNote;
pub use source_tree::{SourceTree, find_subvolume, named_subvolume, open_subvolume};

/// Opens the tree at an address: `src`, `src.tar.xz`, `disk.btrfs:home`, or `-` for standard input.
///
/// # Errors
/// The address names nothing; the file cannot be read, or holds nothing that restow reads.
pub fn open(address: impl AsRef<Path>) -> Result<SourceTree> {
    SourceTree::open(&Address::of(address.as_ref())?, &OpenOptions::default())
}
