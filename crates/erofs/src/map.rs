//! Maps the content of files to stored bytes.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use tree::{Error, Result, to_u64, to_usize};

use crate::fields::{u16_at, u32_at};
use crate::image::{Erofs, min_len};
use crate::index::{IndexHeader, IndexedFile};
use crate::inode::{Inode, Layout};
use crate::piece::{Piece, PieceKind, StoredPlace};

/// Bits of the format of chunks (`EROFS_CHUNK_FORMAT_*`).
const CHUNK_BITS: u16 = 0x1f;
const CHUNK_INDEXES: u16 = 0x20;
const CHUNK_48BIT: u16 = 0x40;

/// Bytes of a chunk's address or index.
fn chunk_entry_bytes(inode: &Inode) -> u8 {
    if inode.chunk_format & CHUNK_INDEXES != 0 {
        8
    } else {
        4
    }
}

impl Erofs {
    /// Reads the header of a file's index.
    pub(crate) fn open_content(&self, inode: Inode) -> Result<IndexedFile> {
        let header = if inode.layout.is_compressed() {
            Some(self.read_header(&inode)?)
        } else {
            None
        };
        let mut end = match &header {
            None => inode.index_at,
            Some(IndexHeader::Fragment(_)) => inode.index_at.aligned(8).after(8),
            Some(IndexHeader::Clusters(index)) => index.end(),
            Some(header @ IndexHeader::Records { at, .. }) => at.after(header.records_len(&inode)),
        };
        if inode.layout == Layout::Chunks
            && inode.chunk_format & !(CHUNK_BITS | CHUNK_INDEXES | CHUNK_48BIT) != 0
        {
            return Err(Error::Unsupported(
                "an EROFS file with chunks of an unknown format",
            ));
        }
        if inode.layout == Layout::Chunks {
            let count = inode.size.div_ceil(1 << self.chunk_log2(&inode));
            let unit = chunk_entry_bytes(&inode);
            let at = inode.index_at.aligned(unit.into());
            let len = count.saturating_mul(unit.into());
            self.check_index(&inode, at, len)?;
            end = at.after(len);
        }
        Ok(IndexedFile { inode, header, end })
    }

    /// The part of a file that covers `offset`, which is before its end.
    pub(crate) fn piece_at(&self, content: &IndexedFile, offset: u64) -> Result<Piece> {
        let inode = &content.inode;
        let mut piece = match &content.header {
            Some(header) => self.cluster_at(inode, header, offset)?,
            None if inode.layout == Layout::Chunks => self.chunk_at(inode, offset)?,
            None => self.flat_at(inode, offset)?,
        };
        piece.len = piece.len.min(inode.size.saturating_sub(piece.from));
        if offset < piece.from || offset >= piece.end() {
            let what = "file's index does not lead to all of its content";
            return Err(Error::corrupt(what, inode.at.at, offset));
        }
        Ok(piece)
    }

    fn flat_at(&self, inode: &Inode, offset: u64) -> Result<Piece> {
        let block_bytes = self.superblock.block_bytes();
        let tail = if inode.layout == Layout::Inline {
            // As Linux counts: the last block, whole or not.
            let last = inode.size.saturating_sub(1);
            last.saturating_sub(self.block_offset(last))
        } else {
            inode.size
        };
        if offset >= tail {
            let len = inode.size.saturating_sub(tail);
            self.check_inline(inode, inode.index_at, len)?;
            return Ok(Piece {
                from: tail,
                len,
                kind: PieceKind::Plain(StoredPlace::Meta(inode.index_at)),
            });
        }
        let kind = match inode.start_block {
            None if inode.layout == Layout::Plain => PieceKind::Hole,
            start => {
                let at = start.unwrap_or(u64::MAX).saturating_mul(block_bytes);
                PieceKind::Plain(StoredPlace::Data { device: 0, at })
            }
        };
        Ok(Piece {
            from: 0,
            len: tail,
            kind,
        })
    }

    /// Logarithm of the bytes of a chunk.
    fn chunk_log2(&self, inode: &Inode) -> u32 {
        let block_log2 = u32::from(self.superblock.block_log2);
        u32::from(inode.chunk_format & CHUNK_BITS).saturating_add(block_log2)
    }

    fn chunk_at(&self, inode: &Inode, offset: u64) -> Result<Piece> {
        let log2 = self.chunk_log2(inode);
        let number = offset >> log2;
        let has_indexes = inode.chunk_format & CHUNK_INDEXES != 0;
        let unit = chunk_entry_bytes(inode);
        let mut entry = [0; 8];
        let (entry, _) = entry.split_at_mut(unit.into());
        let skipped = number.saturating_mul(unit.into());
        self.read_meta(inode.index_at.aligned(unit.into()).after(skipped), entry)?;
        let (block, device, none) = if has_indexes {
            let low = u64::from(u32_at(entry, 4));
            let device = self.device_number(u16_at(entry, 2));
            if inode.chunk_format & CHUNK_48BIT != 0 {
                (
                    low | u64::from(u16_at(entry, 0)) << 32,
                    device,
                    (1 << 48) - 1,
                )
            } else {
                (low, device, u64::from(u32::MAX))
            }
        } else {
            (u32_at(entry, 0).into(), 0, u64::from(u32::MAX))
        };
        let kind = if block == none {
            PieceKind::Hole
        } else {
            PieceKind::Plain(StoredPlace::Data {
                device,
                at: block << self.superblock.block_log2,
            })
        };
        Ok(Piece {
            from: number << log2,
            len: 1 << log2,
            kind,
        })
    }

    /// Reads content that is known to be there.
    pub(crate) fn read_content(
        &self,
        content: &IndexedFile,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let (mut rest, mut at) = (buf, offset);
        while !rest.is_empty() {
            let piece = self.piece_at(content, at)?;
            let len = min_len(piece.end().saturating_sub(at), rest.len());
            let (part, after) = rest.split_at_mut(len);
            self.read_piece(content, &piece, at.saturating_sub(piece.from), part)?;
            (rest, at) = (after, at.saturating_add(to_u64(len)));
        }
        Ok(())
    }

    /// Reads a part of a piece, starting at `skip` bytes in it.
    fn read_piece(
        &self,
        content: &IndexedFile,
        piece: &Piece,
        skip: u64,
        part: &mut [u8],
    ) -> Result<()> {
        match piece.kind {
            PieceKind::Hole => part.fill(0),
            PieceKind::Plain(place) => match place.after(skip) {
                StoredPlace::Data { device, at } => self.read_stored(part, device, at)?,
                StoredPlace::Meta(place) => self.read_meta(place, part)?,
            },
            PieceKind::Cluster(cluster) => self.with_cluster(&cluster, |decoded, _| {
                let skip = to_usize(skip);
                // A piece is as long as the shown part of its cluster, or shorter at the end.
                if let Some(shown) = decoded.get(skip..).and_then(|rest| rest.get(..part.len())) {
                    part.copy_from_slice(shown);
                }
            })?,
            PieceKind::Fragment(offset) => {
                let inode = &content.inode;
                let corrupt = |what, got| Err(Error::corrupt(what, inode.at.at, got));
                // The metabox must not be in the packed inode, which can be in the metabox.
                if [self.superblock.packed, self.superblock.metabox].contains(&Some(inode.nid)) {
                    return corrupt("packed inode or metabox has a fragment", offset);
                }
                let Some(nid) = self.superblock.packed else {
                    return corrupt("file has a fragment, and the image no packed inode", offset);
                };
                let packed = self.content(nid)?;
                let from = offset.saturating_add(skip);
                if from.saturating_add(to_u64(part.len())) > packed.inode.size {
                    return corrupt("fragment lies beyond the end of the packed inode", offset);
                }
                self.read_content(&packed, from, part)?;
            }
        }
        Ok(())
    }
}
