//! Parts of an image that several machines make: see [`tree::ImagePart`]. A record is a block, and
//! its word is the size word of the block.

use std::collections::HashMap;

use tree::{Inventory, PartSource, Verify};

use crate::options::Options;
use crate::raw::BLOCK_PLAIN;

/// The digests of a tree and of the options that blocks depend on.
pub fn part_source(inventory: &Inventory<'_>, options: &Options) -> PartSource {
    let mut packing: Vec<_> = options.packing.iter().collect();
    packing.sort_by_key(|(file, _)| **file);
    // Those that matter when the parts are joined have the same value.
    let of_blocks = options
        .clone()
        .exportable(true)
        .xattrs(true)
        .mkfs_time(0)
        .epoch(None)
        .sparse_max(0)
        .packing(HashMap::new())
        .padding(true)
        .pad_bytes(0)
        .align_bytes(1)
        .data_begin(0)
        .offset(0)
        .verify(Verify::Nothing);
    PartSource::of(inventory, &format!("{of_blocks:?} {packing:?}"))
}

/// The stored length of a block with this size word, whose content has this many bytes, if that is
/// known; `None` if no block can have it.
pub(crate) fn stored_len(word: u32, content_bytes: Option<usize>) -> Option<usize> {
    let (len, is_plain) = ((word & !BLOCK_PLAIN) as usize, word & BLOCK_PLAIN != 0);
    let is_possible = match content_bytes {
        Some(bytes) if is_plain => len == bytes,
        Some(bytes) => len < bytes,
        None => true,
    };
    is_possible.then_some(len)
}
