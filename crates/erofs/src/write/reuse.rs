//! Keeps units of an older image whose content is unchanged.

use codec::ZstdFrame;
use tree::{FileId, Inventory, Parallel, Reuse};

use super::options::Options;
use super::unit::Codec;
use crate::image::Erofs;
use crate::piece::{Format, Piece, PieceKind};

/// The units of an older image, by the files of a new one.
pub(crate) struct OldUnits<'a> {
    image: &'a Erofs,
    reuse: Reuse<'a>,
    format: Format,
    window_max: u64,
}

impl<'a> OldUnits<'a> {
    /// Pairs the files with those of the old image that the options name.
    pub(crate) fn find(
        inventory: &'a Inventory<'a>,
        options: &'a Options,
        parallel: Parallel,
    ) -> Option<OldUnits<'a>> {
        let (old, settings) = (options.old.as_ref()?, options.compression?);
        Some(OldUnits {
            image: &old.image,
            reuse: Reuse::find(inventory, &old.tree, parallel),
            format: match Codec::of(settings.algorithm()) {
                Codec::Lz4 => Format::Lz4,
                Codec::Deflate => Format::Deflate,
                Codec::Zstd => Format::Zstd,
            },
            window_max: options.unit() as u64,
        })
    }

    /// The part of the old file that covers an offset.
    fn piece(&self, file: FileId, offset: u64) -> Option<Piece> {
        let content = self.image.content(self.reuse.counterpart(file)?.0).ok()?;
        let is_inside = offset < content.inode.size;
        is_inside.then(|| self.image.piece_at(&content, offset).ok())?
    }

    /// The old unit of small files of which this one is the first: the whole content of a cluster
    /// of the packed inode.
    fn packed(&self, file: FileId) -> Option<Piece> {
        let PieceKind::Fragment(offset) = self.piece(file, 0)?.kind else {
            return None;
        };
        let packed = self.image.content(self.image.superblock().packed?).ok()?;
        let piece = self.image.piece_at(&packed, offset).ok()?;
        (piece.from == offset).then_some(piece)
    }

    /// Whether a unit of small files begins with this one.
    pub(crate) fn begins_unit(&self, file: FileId) -> bool {
        self.packed(file).is_some()
    }

    /// Reads the data of the old unit of `len` bytes at this offset of a file, or that begins with
    /// this small file, into the beginning of `buffer`; returns its length. It may have more
    /// content.
    pub(crate) fn read(
        &self,
        (file, offset): (FileId, Option<u64>),
        len: usize,
        buffer: &mut [u8],
    ) -> Option<usize> {
        let piece = match offset {
            Some(offset) => self.piece(file, offset)?,
            None => self.packed(file)?,
        };
        let PieceKind::Cluster(cluster) = piece.kind else {
            return None;
        };
        let is_whole = offset.is_none_or(|offset| piece.from == offset);
        if !is_whole || piece.len != len as u64 || cluster.format != self.format {
            return None;
        }
        let mut stored = Vec::new();
        self.image.read_data(&cluster, &mut stored).ok()?;
        if self.format == Format::Zstd {
            ZstdFrame::parse(&stored, self.window_max).filter(|it| it.bytes == stored.len())?;
        }
        buffer.get_mut(..stored.len())?.copy_from_slice(&stored);
        Some(stored.len())
    }
}
