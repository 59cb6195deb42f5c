#![doc = include_str!("../README.md")]
//!
//! # Layout
//!
//! An image consists of the superblock, the compressor options, the files' data blocks, fragment
//! blocks that hold the tails of many files, the inode table, the directory table, and the tables
//! of fragments, of inode numbers (the export table), of user and group IDs, and of extended
//! attributes. Everything but the data is *metadata*: byte streams in blocks of 8 KiB. All
//! references point backwards or to a known place, so an image is written in one pass.
//!
//! Each file of this crate covers one structure on disk, its reader next to its writer. All records
//! are in `raw`. The reader enforces the kernel's rules, and is stricter where Linux trusts the
//! image.
#![forbid(unsafe_code)]

mod check;
mod code_filter;
mod compressor;
mod create;
mod data;
mod describe;
mod dir;
mod encode;
mod find;
mod gather;
mod holes;
mod image;
mod image_writer;
mod inode;
mod inode_numbers;
mod known_files;
mod lookup_table;
mod metadata;
mod options;
mod part;
mod plan;
mod raw;
mod read;
mod reference;
mod reuse;
mod superblock;
mod tail_packer;
mod trial;
mod usage;
mod verify;
mod write_data;
mod write_tables;
mod xattr;

pub use check::CheckSummary;
pub use compressor::Compressor;
pub use create::{create, create_part, join};
pub use find::{find_image, search_image};
pub use holes::{ExcessHoles, excess_holes};
pub use options::{CreateSummary, Fragments, Options, TableBytes};
pub use part::part_source;
pub use raw::flags;
pub use read::Squashfs;
pub use superblock::Superblock;
// For predictions by the crate `plan`.
#[doc(hidden)]
pub use trial::{TrialBlock, TrialImage, TrialResult, TrialWorker};
