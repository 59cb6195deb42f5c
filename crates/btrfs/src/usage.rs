//! What files take: stored and decoded bytes of each algorithm, extents that are shared counted once.

use std::collections::HashSet;

use tree::{FileKind, FileSystem, Ino, Result};

use crate::compression::Compression;
use crate::extent::{Body, FileExtent};
use crate::key::{Key, item};
use crate::read::{Btrfs, Resolved, Subvolume};
use crate::subvolume::{self, Root};

/// Bytes of one kind of extent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Extents, inline content included.
    pub extents: u64,
    /// Bytes on disk, of one copy.
    pub stored: u64,
    /// Bytes that they decode to.
    pub decoded: u64,
    /// Bytes of files that show them; more than `decoded` where they are shared.
    pub shown: u64,
}

/// What the files of some subvolumes take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Stored as it is.
    pub plain: Amount,
    /// Compressed with zlib.
    pub zlib: Amount,
    /// Compressed with LZO.
    pub lzo: Amount,
    /// Compressed with zstd.
    pub zstd: Amount,
    /// Allocated and not written.
    pub preallocated: Amount,
    /// Of `plain` and the algorithms: content that is in the trees.
    pub inline: Amount,
}

impl Amount {
    fn add(&mut self, stored: u64, decoded: u64, shown: u64, is_new: bool) {
        self.shown += shown;
        if is_new {
            self.extents += 1;
            self.stored += stored;
            self.decoded += decoded;
        }
    }
}

impl Usage {
    /// All algorithms and plain extents together.
    pub fn total(&self) -> Amount {
        let mut total = Amount::default();
        for amount in [self.plain, self.zlib, self.lzo, self.zstd] {
            total.extents += amount.extents;
            total.stored += amount.stored;
            total.decoded += amount.decoded;
            total.shown += amount.shown;
        }
        total
    }

    fn of(&mut self, compression: Option<Compression>) -> &mut Amount {
        match compression {
            None => &mut self.plain,
            Some(Compression::Zlib) => &mut self.zlib,
            Some(Compression::Lzo) => &mut self.lzo,
            Some(Compression::Zstd) => &mut self.zstd,
        }
    }
}

impl Btrfs {
    /// What the files of one subvolume take, or those of all.
    ///
    /// Memory grows with the number of extents, by 16 bytes each.
    ///
    /// # Errors
    /// [`tree::Error::NotFound`] when there is no such subvolume; a tree cannot be read.
    pub fn usage(&self, id: Option<u64>) -> Result<Usage> {
        let mut roots: Vec<Root> = Vec::new();
        subvolume::for_each(&self.volume, &self.roots, |root| {
            if root.refs > 0 && id.is_none_or(|id| id == root.tree.id) {
                roots.push(root);
            }
            Ok(())
        })?;
        if roots.is_empty() {
            return Err(tree::Error::NotFound);
        }
        let mut usage = Usage::default();
        let mut met = HashSet::new();
        for root in roots {
            let mut cursor = root.tree.seek(&self.volume, Key::MIN)?;
            while let Some(item) = cursor.item() {
                if item.key.kind == item::EXTENT_DATA {
                    let extent = FileExtent::parse(&item, self.volume.superblock.sectorsize)?;
                    // Inline content of a snapshot is in the same leaf, if it is shared.
                    add(&mut usage, &mut met, &extent);
                }
                cursor.advance()?;
            }
        }
        Ok(usage)
    }
}

impl Subvolume {
    /// What a file takes, or a directory with all that is below it, nested subvolumes included.
    ///
    /// Memory grows with the number of files and of extents, by 16 bytes each.
    ///
    /// # Errors
    /// The file is not there, or what is below it cannot be read.
    pub fn usage(&self, file: Ino) -> Result<Usage> {
        let volume = &self.btrfs().volume;
        let mut usage = Usage::default();
        let mut met = HashSet::new();
        let mut files = HashSet::new();
        let mut waiting = vec![(file, self.metadata(file)?.kind)];
        while let Some((ino, kind)) = waiting.pop() {
            // Hard links, and directories that a bad image has within themselves.
            if !files.insert(ino) {
                continue;
            }
            if kind == FileKind::Directory {
                let entries = self.read_dir(ino)?.into_iter();
                waiting.extend(entries.map(|entry| (entry.ino, entry.kind)));
            } else if let Resolved::Inode(tree, number) = self.resolve(ino)? {
                let mut cursor = tree.seek(volume, Key::new(number, item::EXTENT_DATA, 0))?;
                while let Some(item) = cursor.item_of(number, item::EXTENT_DATA) {
                    let extent = FileExtent::parse(&item, volume.superblock.sectorsize)?;
                    add(&mut usage, &mut met, &extent);
                    cursor.advance()?;
                }
            }
        }
        Ok(usage)
    }
}

fn add(usage: &mut Usage, met: &mut HashSet<u64>, part: &FileExtent<'_>) {
    let shown = part.len;
    match part.body {
        Body::Hole => {}
        Body::Inline {
            compression,
            stored,
            at,
        } => {
            let is_new = met.insert(at);
            let stored = stored.len() as u64;
            usage.of(compression).add(stored, shown, shown, is_new);
            usage.inline.add(stored, shown, shown, is_new);
        }
        Body::Stored {
            extent,
            is_preallocated,
            ..
        } => {
            let is_new = met.insert(extent.at.0);
            let amount = if is_preallocated {
                &mut usage.preallocated
            } else {
                usage.of(extent.compression)
            };
            amount.add(extent.len, extent.ram_bytes, shown, is_new);
        }
    }
}
