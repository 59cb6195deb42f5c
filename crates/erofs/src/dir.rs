//! Directories: blocks of sorted entries (`struct erofs_dirent`), each block with its names.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::sync::Arc;

use tree::{DirEntry, Error, FileKind, Ino, Result, is_valid_name, to_usize};

use crate::fields::{u8_at, u16_at, u64_at};
use crate::image::Erofs;
use crate::index::IndexedFile;
use crate::piece::PieceKind;

/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = 12;

impl Erofs {
    pub(crate) fn directory(&self, dir: Ino) -> Result<Arc<IndexedFile>> {
        let content = self.content(dir.0)?;
        if content.inode.kind != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        Ok(content)
    }

    /// All entries of a directory, with `.` and `..`, and why others cannot be read.
    pub(crate) fn list(&self, dir: &IndexedFile) -> (Vec<DirEntry>, Vec<Error>) {
        let (mut entries, mut errors) = (Vec::<DirEntry>::new(), Vec::new());
        for number in 0..self.block_count(dir) {
            let noted = self.note_listing(dir, number);
            match noted.and_then(|()| self.directory_block(dir, number)) {
                Ok(block) => {
                    let last = entries.last().map(|entry| &entry.name);
                    let first = block.first().map(|entry| &entry.name);
                    if last.is_some() && last >= first {
                        let what = "directory's blocks are not in the order of names";
                        errors.push(Error::corrupt(what, dir.inode.at.at, number));
                        // A directory of one block repeated must not be read to its end.
                        break;
                    }
                    entries.extend(block);
                }
                Err(error) => {
                    errors.push(error);
                    // After much damage, a hostile size is the likely reason.
                    if errors.len() > 64 {
                        break;
                    }
                }
            }
        }
        (entries, errors)
    }

    fn block_count(&self, dir: &IndexedFile) -> u64 {
        dir.inode.size.div_ceil(self.superblock.block_bytes())
    }

    /// Finds a name in a directory.
    pub(crate) fn find(&self, dir: &IndexedFile, name: &[u8]) -> Result<Option<DirEntry>> {
        let (mut low, mut high) = (0, self.block_count(dir));
        while low < high {
            let middle = low.midpoint(high);
            let mut block = self.directory_block(dir, middle)?;
            match block.binary_search_by(|entry| (*entry.name).cmp(name)) {
                Ok(at) => return Ok(Some(block.swap_remove(at))),
                Err(0) => high = middle,
                Err(at) if at == block.len() => low = middle.saturating_add(1),
                Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Notes where the bytes of a block are.
    fn note_listing(&self, dir: &IndexedFile, number: u64) -> Result<()> {
        let block_bytes = self.superblock.block_bytes();
        let mut at = number.saturating_mul(block_bytes);
        let end = at.saturating_add(block_bytes).min(dir.inode.size);
        while at < end {
            let piece = self.piece_at(dir, at)?;
            if !self.listed.note(&piece, dir.inode.nid) {
                let what = "directory's blocks are also those of another directory";
                return Err(Error::corrupt(what, dir.inode.at.at, at));
            }
            if piece.kind == PieceKind::Hole {
                let what = "directory has a hole";
                return Err(Error::corrupt(what, dir.inode.at.at, at));
            }
            at = piece.end();
        }
        Ok(())
    }

    /// The entries of a block of a directory, sorted.
    fn directory_block(&self, dir: &IndexedFile, number: u64) -> Result<Vec<DirEntry>> {
        let block_bytes = self.superblock.block_bytes();
        let corrupt = |what, got: u64| Error::corrupt(what, dir.inode.at.at, got);
        let at = number.saturating_mul(block_bytes);
        let len = to_usize(dir.inode.size.saturating_sub(at).min(block_bytes));
        let mut block = vec![0; len];
        self.read_content(dir, at, &mut block)?;
        let names_at = usize::from(u16_at(&block, 8));
        let count = names_at / ENTRY_BYTES;
        if count == 0 || names_at % ENTRY_BYTES != 0 || names_at > len {
            let what = "directory block's first name is not behind its entries";
            return Err(corrupt(what, names_at.try_into().unwrap_or(0)));
        }
        let mut entries: Vec<DirEntry> = Vec::with_capacity(count);
        let (records, _) = block.as_chunks::<ENTRY_BYTES>();
        let mut records = records.iter().take(count).peekable();
        while let Some(record) = records.next() {
            let from = u16_at(record, 8).into();
            let name = match records.peek() {
                Some(next) => block.get(from..u16_at(*next, 8).into()),
                // The last name ends with the block, or before zeros.
                None => {
                    let rest = block.get(from..);
                    rest.and_then(|rest| rest.split(|&byte| byte == 0).next())
                }
            };
            let Some(name) = name else {
                return Err(corrupt(
                    "name's place in a directory block is impossible",
                    u16_at(record, 8).into(),
                ));
            };
            if !is_valid_name(name) && ![&b"."[..], b".."].contains(&name) {
                let what = "directory has an impossible name";
                return Err(corrupt(what, u16_at(record, 8).into()));
            }
            if entries.last().is_some_and(|last| *last.name >= *name) {
                let what = "directory block is not sorted";
                return Err(corrupt(what, u16_at(record, 8).into()));
            }
            let ino = Ino(u64_at(record, 0));
            // As in linux/fs_types.h; 0 is unknown.
            let kind = match u8_at(record, 10) {
                0 => self.inode(ino.0)?.kind,
                1 => FileKind::Regular,
                2 => FileKind::Directory,
                3 => FileKind::CharDevice,
                4 => FileKind::BlockDevice,
                5 => FileKind::Fifo,
                6 => FileKind::Socket,
                7 => FileKind::Symlink,
                other => {
                    return Err(corrupt(
                        "type in a directory entry of erofs is unknown",
                        other.into(),
                    ));
                }
            };
            entries.push(DirEntry {
                name: name.into(),
                ino,
                kind,
            });
        }
        Ok(entries)
    }
}

/// Whether it is `.` or `..`.
pub(crate) fn is_dot(entry: &DirEntry) -> bool {
    matches!(&*entry.name, b"." | b"..")
}
