//! Proves that an image holds its input, before it counts as finished.
//!
//! The workers have proved that each unit decodes to its content, and checksums prove that the
//! output returns the bytes written. It remains to prove that a reader finds the same tree in them,
//! with each file's data where it was put.

use std::io;
use std::sync::Arc;

use tree::{Cache, FileId, FileKind, Ino, Metadata, Parallel, ReadAt, Result, WrittenTree, Xattr};

use super::data::PlacedFile;
use super::layout::{ImageContent, InodeLayout};
use super::unit::{PlacedUnit, UnitKind};
use super::xattrs::{DIGEST_NAME, is_storable};
use crate::image::Erofs;
use crate::index::IndexedFile;
use crate::piece::{Piece, PieceKind, StoredPlace};

/// Bytes that are read at once, and how many of them are kept.
const WINDOW_BYTES: u64 = 32 << 10;
const WINDOW_SLOTS: (usize, usize) = (8, 4);

/// The new image in windows: inodes, which are read one by one, follow each other.
pub(crate) struct WindowReader {
    written: Arc<dyn ReadAt>,
    size: u64,
    windows: Cache<Vec<u8>>,
}

impl WindowReader {
    pub(crate) fn new(written: Arc<dyn ReadAt>) -> Result<WindowReader> {
        Ok(WindowReader {
            size: written.size()?,
            written,
            windows: Cache::new(WINDOW_SLOTS.0, WINDOW_SLOTS.1),
        })
    }
}

impl ReadAt for WindowReader {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let (number, begin) = (at / WINDOW_BYTES, (at % WINDOW_BYTES) as usize);
        let end = begin + buf.len();
        if end as u64 > WINDOW_BYTES || at + buf.len() as u64 > self.size {
            return self.written.read_exact_at(buf, at);
        }
        let window = self.windows.find_or_make(number, |gone| {
            let from = number * WINDOW_BYTES;
            let mut window = gone.unwrap_or_default();
            window.resize((self.size - from).min(WINDOW_BYTES) as usize, 0);
            self.written.read_exact_at(&mut window, from)?;
            Ok::<_, io::Error>(window)
        })?;
        buf.copy_from_slice(&window[begin..end]);
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }
}

const ELSEWHERE: &str = "the image has the file's data elsewhere";

/// Reads the tree in `image` and compares it with the one that was written.
pub(crate) fn tree(
    image: &Erofs,
    content: &ImageContent,
    layout: &InodeLayout,
    parallel: Parallel,
) -> Result<()> {
    let tree = WrittenTree {
        image,
        inventory: content.inventory,
        is_stored: &|file| content.is_stored(file),
        ignores: &|xattr| content.options.content_digest && *xattr.name == *DIGEST_NAME,
    };
    tree.compare(parallel, |file, ino| {
        let must = expected_metadata(content, file);
        let has_xattrs = content.xattrs.has(file);
        let keeps = |xattr: &Xattr| is_storable(xattr) && !(tree.ignores)(xattr);
        let keeps = has_xattrs.then_some(&keeps as &dyn Fn(&Xattr) -> bool);
        if ino != Ino(layout.nid(content, file)) {
            return Err(WrittenTree::differs("the image has another file there"));
        }
        tree.compare_file((file, ino), &must, keeps)?;
        if must.kind == FileKind::Regular {
            let is = image.content(ino.0)?;
            compare_data(image, &is, content, file)?;
        }
        Ok(())
    })?;
    if let Some(packed) = &layout.packed {
        let is = image.content(packed.nid.into())?;
        compare_units(image, &is, content.packed_units(packed))?;
    }
    if let Some(metabox) = &layout.metabox {
        let is = image.content(metabox.nid.into())?;
        compare_units(image, &is, metabox.units.iter().copied())?;
    }
    Ok(())
}

fn expected_metadata(content: &ImageContent, file: FileId) -> Metadata {
    let mut metadata = content.inventory.metadata(file);
    metadata.mtime = content.mtime(file);
    metadata.nlink = content.inventory.name_count(file);
    if let Some(target) = content.targets.get(&file) {
        metadata.size = target.len() as u64;
    }
    metadata
}

/// Compares the places of a file's data.
fn compare_data(
    image: &Erofs,
    is: &IndexedFile,
    content: &ImageContent,
    file: FileId,
) -> Result<()> {
    let differs = || Err(WrittenTree::differs(ELSEWHERE));
    let data = |at| PieceKind::Plain(StoredPlace::Data { device: 0, at });
    match content.placed(file) {
        PlacedFile::Nothing if is.inode.size == 0 => Ok(()),
        PlacedFile::Nothing => differs(),
        PlacedFile::Packed(offset) => image.each_piece(is, &mut |piece| {
            if piece.kind == PieceKind::Fragment(offset) && piece.len == is.inode.size {
                return Ok(());
            }
            differs()
        }),
        PlacedFile::Flat { block, tail } => image.each_piece(is, &mut |piece| {
            let at = (u64::from(block) << image.superblock().block_log2) + piece.from;
            if let (PieceKind::Plain(StoredPlace::Meta(_)), Some(tail)) = (piece.kind, tail) {
                let (mut must, mut is_there) = (Vec::new(), vec![0; piece.len as usize]);
                content.data.tail(tail, is_there.len(), &mut must);
                image.read_content(is, piece.from, &mut is_there)?;
                return if must == is_there { Ok(()) } else { differs() };
            }
            if piece.kind == data(at) {
                Ok(())
            } else {
                differs()
            }
        }),
        PlacedFile::Units { first, count, .. } => {
            compare_units(image, is, content.data.units(first, count))
        }
        PlacedFile::Chunks { first, count, .. } => {
            let mut chunks = content.data.units(first, count).peekable();
            image.each_piece(is, &mut |piece| {
                let chunk = chunks.next_if(|chunk| chunk.from == piece.from);
                let must = chunk.map_or(PieceKind::Hole, |chunk| data(chunk.at));
                if piece.kind == must {
                    Ok(())
                } else {
                    differs()
                }
            })?;
            if chunks.next().is_some() {
                return differs();
            }
            Ok(())
        }
    }
}

/// Compares the places of a file's units.
fn compare_units(
    image: &Erofs,
    is: &IndexedFile,
    mut units: impl Iterator<Item = PlacedUnit>,
) -> Result<()> {
    let mut unit = units.next();
    let mut next = units.next();
    image.each_piece(is, &mut |piece| {
        if next.is_some_and(|next| next.from <= piece.from) {
            unit = next;
            next = units.next();
        }
        let end = next.map_or(is.inode.size, |next| next.from);
        match unit {
            Some(unit) if is_of_unit(piece, &unit, end) => Ok(()),
            _ => Err(WrittenTree::differs(ELSEWHERE)),
        }
    })?;
    if next.is_some() {
        return Err(WrittenTree::differs(ELSEWHERE));
    }
    Ok(())
}

/// Whether a piece is a unit that ends at `end` of its file, or a block of a plain one.
fn is_of_unit(piece: &Piece, unit: &PlacedUnit, end: u64) -> bool {
    let is_whole = (piece.from, piece.end()) == (unit.from, end);
    match (piece.kind, unit.kind) {
        (PieceKind::Hole, UnitKind::Hole) => is_whole,
        (PieceKind::Cluster(cluster), UnitKind::Encoded(_)) => {
            let StoredPlace::Data { device: 0, at } = cluster.place else {
                return false;
            };
            // With blocks, the data is at the end of them.
            let stored_end = unit.at + u64::from(unit.stored_len);
            is_whole
                && cluster.is_partial == unit.is_partial
                && at <= unit.at
                && at + cluster.stored_len == stored_end
        }
        (PieceKind::Plain(StoredPlace::Data { device: 0, at }), UnitKind::Plain) => {
            piece.from >= unit.from
                && at == unit.at + (piece.from - unit.from)
                && piece.end() <= end
        }
        _ => false,
    }
}
