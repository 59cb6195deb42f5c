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
use tree::{ExtentId, FileKind, Ino, Inventory, Limits, Result, to_u64, to_usize};

use crate::image::Erofs;
use crate::index::{IndexHeader, IndexedFile};
use crate::inode::MetaAt;
use crate::piece::{Format, Piece, PieceKind, StoredPlace};

impl Erofs {
    /// Bytes of metadata in the image: the superblock, inodes with their attributes, indexes and
    /// inline data, shared attributes, directories, and the metabox.
    ///
    /// # Errors
    /// The image cannot be read.
    pub fn metadata_bytes(&self) -> Result<u64> {
        let inventory = Inventory::of(self, &Limits::default())?;
        let nids = inventory.files().map(|file| inventory.ino(file).0);
        let special = [self.superblock.packed, self.superblock.metabox];
        let mut ranges = vec![(0, self.superblock.end)];
        for nid in nids.chain(special.into_iter().flatten()) {
            let content = self.content(nid)?;
            let inode = &content.inode;
            let mut add = |from: MetaAt, to: MetaAt| {
                if !from.in_metabox {
                    ranges.push((from.at, to.at));
                }
            };
            add(inode.at, content.end);
            for (from, to) in self.attributes(inode)?.shared {
                add(from, to);
            }
            // Of other files than regular ones, all is metadata.
            let is_metadata =
                inode.kind != FileKind::Regular || self.superblock.metabox == Some(nid);
            if inode.kind.is_device() {
                continue;
            }
            self.each_piece(&content, &mut |piece| {
                let (place, len) = match piece.kind {
                    PieceKind::Plain(place) => (place, piece.len),
                    PieceKind::Cluster(cluster) => (cluster.place, cluster.stored_len),
                    PieceKind::Hole | PieceKind::Fragment(_) => return Ok(()),
                };
                match place {
                    StoredPlace::Meta(place) if !place.in_metabox => {
                        ranges.push((place.at, place.after(len).at));
                    }
                    StoredPlace::Data { device, at } if is_metadata => {
                        if let (0, at) = self.locate(device, at)? {
                            ranges.push((at, at.saturating_add(len)));
                        }
                    }
                    _ => {}
                }
                Ok(())
            })?;
        }
        ranges.sort_unstable();
        let (mut bytes, mut end) = (0_u64, 0);
        for (from, to) in ranges {
            bytes = bytes.saturating_add(to.saturating_sub(from.max(end)));
            end = end.max(to);
        }
        Ok(bytes)
    }

    /// Bytes of zeros before compressed data in indexes of blocks, where it ends with a block: the
    /// cost of alignment. The first block of each cluster is read.
    ///
    /// # Errors
    /// The image cannot be read.
    pub fn padding_bytes(&self) -> Result<u64> {
        let inventory = Inventory::of(self, &Limits::default())?;
        let nids = inventory.files().map(|file| inventory.ino(file).0);
        let mut clusters = Vec::new();
        for nid in nids.chain(self.superblock.packed) {
            let content = self.content(nid)?;
            if !matches!(content.header, Some(IndexHeader::Clusters(_))) {
                continue;
            }
            self.each_piece(&content, &mut |piece| {
                if let PieceKind::Cluster(cluster) = piece.kind
                    && let StoredPlace::Data { device, at } = cluster.place
                {
                    clusters.push((device, at));
                }
                Ok(())
            })?;
        }
        clusters.sort_unstable();
        clusters.dedup();
        let mut block = vec![0; to_usize(self.superblock.block_bytes())];
        let mut bytes = 0_u64;
        for (device, at) in clusters {
            self.read_stored(&mut block, device, at)?;
            let zeros = block.iter().take_while(|&&byte| byte == 0).count();
            bytes = bytes.saturating_add(to_u64(zeros));
        }
        Ok(bytes)
    }

    /// The whole LZ4 blocks in the image, of files, tables and the packed inode: where they begin,
    /// without zeros before them, and their lengths. Each one is read.
    ///
    /// # Errors
    /// The image cannot be read.
    pub fn lz4_blocks(&self) -> Result<Vec<(u64, u64)>> {
        let inventory = Inventory::of(self, &Limits::default())?;
        let nids = inventory.files().map(|file| inventory.ino(file).0);
        let special = [self.superblock.packed, self.superblock.metabox];
        let mut clusters = Vec::new();
        for nid in nids.chain(special.into_iter().flatten()) {
            let content = self.content(nid)?;
            if content.inode.kind.is_device() {
                continue;
            }
            self.each_piece(&content, &mut |piece| {
                if let PieceKind::Cluster(cluster) = piece.kind
                    && cluster.format == Format::Lz4
                    && let StoredPlace::Data { device, at } = cluster.place
                    && let (0, at) = self.locate(device, at)?
                {
                    clusters.push((at, cluster));
                }
                Ok(())
            })?;
        }
        clusters.sort_unstable();
        clusters.dedup_by_key(|(at, _)| *at);
        let mut blocks = Vec::new();
        for (at, cluster) in clusters {
            // Damage is met again where the image is read.
            if let Ok(zeros) = self.zeros_before(&cluster) {
                let len = cluster.stored_len.saturating_sub(zeros);
                blocks.push((at.saturating_add(zeros), len));
            }
        }
        Ok(blocks)
    }

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
