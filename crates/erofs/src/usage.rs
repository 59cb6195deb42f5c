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

use crate::image::Erofs;
use crate::index::IndexedFile;
use crate::piece::{Piece, PieceKind, StoredPlace};

impl Erofs {
    /// Calls `each` with the part of a piece, or with those of the packed inode that a fragment
    /// shows.
    fn parts_of(
        &self,
        piece: &Piece,
        is_fragment: bool,
        each: &mut dyn FnMut(StoredPart) -> Result<()>,
    ) -> Result<()> {
        let len = piece.len;
        match piece.kind {
            PieceKind::Hole => each(StoredPart::Hole(len)),
            PieceKind::Plain(StoredPlace::Meta(_)) => each(StoredPart::Inline {
                form: StorageForm::Plain,
                stored: len,
                len,
            }),
            PieceKind::Plain(StoredPlace::Data { at, .. }) => each(StoredPart::Extent {
                form: StorageForm::Plain,
                id: Some(ExtentId(at)),
                stored: Some(len),
                decoded: Some(len),
                begin: 0,
                len,
                is_fragment: false,
            }),
            PieceKind::Cluster(cluster) => {
                let form = StorageForm::Encoded(cluster.format.name());
                let stored = cluster.stored_len;
                match cluster.place {
                    StoredPlace::Meta(_) => each(StoredPart::Inline { form, stored, len }),
                    StoredPlace::Data { at, .. } => each(StoredPart::Extent {
                        form,
                        id: Some(ExtentId(at)),
                        stored: Some(stored),
                        decoded: (!is_fragment).then_some(cluster.len),
                        begin: 0,
                        len,
                        is_fragment,
                    }),
                }
            }
            PieceKind::Fragment(offset) => self.packed_parts(offset, len, each),
        }
    }

    fn packed_parts(
        &self,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(StoredPart) -> Result<()>,
    ) -> Result<()> {
        let Some(nid) = self.superblock.packed else {
            return Ok(());
        };
        let packed = self.content(nid)?;
        let end = offset.saturating_add(len).min(packed.inode.size);
        let mut at = offset;
        while at < end {
            let piece = self.piece_at(&packed, at)?;
            if matches!(piece.kind, PieceKind::Fragment(_)) {
                return Ok(());
            }
            let until = piece.end().min(end);
            let (begin, len) = (at.saturating_sub(piece.from), until.saturating_sub(at));
            self.parts_of(&piece, true, &mut |part| {
                each(match part {
                    StoredPart::Hole(_) => StoredPart::Hole(len),
                    StoredPart::Inline { form, .. } => StoredPart::Inline {
                        form,
                        stored: len,
                        len,
                    },
                    StoredPart::Extent {
                        form, id, stored, ..
                    } => StoredPart::Extent {
                        form,
                        id,
                        stored,
                        decoded: None,
                        begin,
                        len,
                        is_fragment: true,
                    },
                })
            })?;
            at = until;
        }
        Ok(())
    }

    /// Calls `each` with the pieces of a file.
    pub(crate) fn each_piece(
        &self,
        content: &IndexedFile,
        each: &mut dyn FnMut(&Piece) -> Result<()>,
    ) -> Result<()> {
        let mut at = 0;
        while at < content.inode.size {
            let piece = self.piece_at(content, at)?;
            each(&piece)?;
            at = piece.end();
        }
        Ok(())
    }
}

impl StoredParts for Erofs {
    fn has_fragments(&self) -> bool {
        self.superblock.packed.is_some()
    }

    /// A compressed cluster counts with the blocks that it takes.
    fn stored_parts(
        &self,
        file: Ino,
        each: &mut dyn FnMut(StoredPart) -> Result<()>,
    ) -> Result<()> {
        let content = self.regular(file)?;
        self.each_piece(&content, &mut |piece| self.parts_of(piece, false, each))
    }
}
