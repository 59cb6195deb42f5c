//! The parts of files as they are stored.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use tree::usage::{StorageForm, StoredPart, StoredParts};
use tree::{ExtentId, Ino, Result};

use crate::data::BlockSpan;
use crate::image::StoredSize;
use crate::read::Squashfs;

/// Number of blocks that are read from a list at once.
const BLOCKS_MAX: usize = 1024;

impl Squashfs {
    fn form(&self, size: StoredSize) -> StorageForm {
        if size.plain {
            StorageForm::Plain
        } else {
            StorageForm::Encoded(self.superblock().algorithm.name())
        }
    }
}

impl StoredParts for Squashfs {
    fn has_fragments(&self) -> bool {
        self.superblock().fragment_count > 0
    }

    /// The length of a fragment block's content is not recorded: the ranges that files refer to
    /// count.
    fn stored_parts(
        &self,
        file: Ino,
        each: &mut dyn FnMut(StoredPart) -> Result<()>,
    ) -> Result<()> {
        let content = self.content(file)?;
        let block_bytes = u64::from(self.superblock().block_bytes);
        let mut index = 0;
        while index < content.block_count() {
            let rest = index..content.block_count();
            let blocks = content.blocks(self.image(), rest, BLOCKS_MAX)?;
            if blocks.is_empty() {
                break;
            }
            for block in blocks {
                let from = index.saturating_mul(block_bytes);
                index = index.saturating_add(block.count());
                let end = content.size().min(index.saturating_mul(block_bytes));
                let len = end.saturating_sub(from);
                each(match block {
                    BlockSpan::Holes(_) => StoredPart::Hole(len),
                    BlockSpan::Stored { at, size } => StoredPart::Extent {
                        form: self.form(size),
                        id: Some(ExtentId(at)),
                        stored: Some(size.bytes.into()),
                        decoded: Some(len),
                        begin: 0,
                        len,
                        is_fragment: false,
                    },
                })?;
            }
        }
        let Some(tail) = self.tail(&content)?.filter(|tail| tail.len > 0) else {
            return Ok(());
        };
        each(StoredPart::Extent {
            form: self.form(tail.size),
            id: Some(ExtentId(tail.at)),
            stored: Some(tail.size.bytes.into()),
            decoded: None,
            begin: tail.offset.into(),
            len: tail.len.into(),
            is_fragment: true,
        })
    }
}
