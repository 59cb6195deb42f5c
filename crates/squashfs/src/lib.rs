//! SquashFS 4.0 images: read as a tree of files, and made from any tree.
//!
//! An image is, from front to back: the superblock, the codec's options, the files' data in blocks, fragment blocks that
//! hold the ends of many files, the inode table, the directory table, and the tables of fragments, of inode numbers (the
//! export table), of owners and of extended attributes. Everything but the data is *metadata*: streams of bytes in blocks of
//! 8 KiB. All references point backwards or to what lies at a known place, so an image is made in one pass.
//!
//! One file here is one thing on disk, reader and writer side by side; all records are in `raw`. Reading follows the
//! kernel's rules, and is stricter where Linux trusts the image.
#![forbid(unsafe_code)]

mod blocks;
mod check;
mod compressor;
mod data;
mod describe;
mod dir;
mod encode;
mod find;
mod image;
mod inode;
mod lookup_table;
mod machine;
mod metadata;
mod numbers;
mod options;
mod plan;
mod probe;
mod raw;
mod read;
mod sums;
mod superblock;
mod tables;
mod verify;
mod write;
mod writer;
mod xattr;

pub use check::CheckSummary;
pub use compressor::Compressor;
pub use find::{find_image, search_image};
pub use options::{Fragments, Options, Summary};
pub use raw::flags;
pub use read::Squashfs;
pub use superblock::Superblock;
pub use write::create;
