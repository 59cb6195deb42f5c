//! Space usage of files: stored and decoded bytes for each algorithm, with shared extents counted once.

use std::collections::HashSet;

use tree::{FileKind, FileSystem, Ino, Result, to_u64};

use crate::compression::Compression;
use crate::extent::{Body, FileExtent};
use crate::key::{Key, item};
use crate::read::{Btrfs, Resolved, Subvolume};
use crate::subvolume::{self, Root};

/// Space used by one kind of extent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Number of extents, including inline content.
    pub extents: u64,
    /// Bytes on disk, for a single copy.
    pub stored: u64,
    /// Decoded length in bytes.
    pub decoded: u64,
    /// Bytes of files that refer to them; more than `decoded` if they are shared.
    pub shown: u64,
}

/// Space used by the files of some subvolumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Stored uncompressed.
    pub plain: Amount,
    /// Compressed with zlib.
    pub zlib: Amount,
    /// Compressed with LZO.
    pub lzo: Amount,
    /// Compressed with zstd.
    pub zstd: Amount,
    /// Preallocated and not written.
    pub preallocated: Amount,
    /// The part of `plain` and of the algorithms that is inline in the trees.
    pub inline: Amount,
}

impl Amount {
    fn add(&mut self, stored: u64, decoded: u64, shown: u64, is_new: bool) {
        self.shown = self.shown.saturating_add(shown);
        if is_new {
            self.extents += 1;
            self.stored = self.stored.saturating_add(stored);
            self.decoded = self.decoded.saturating_add(decoded);
        }
    }
}

impl Usage {
    /// The total of all algorithms and plain extents.
    pub fn total(&self) -> Amount {
        let mut total = Amount::default();
        for amount in [self.plain, self.zlib, self.lzo, self.zstd] {
            total.extents += amount.extents;
            total.stored = total.stored.saturating_add(amount.stored);
            total.decoded = total.decoded.saturating_add(amount.decoded);
            total.shown = total.shown.saturating_add(amount.shown);
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
    /// The space used by the files of one subvolume, or of all.
    ///
    /// Memory grows with the number of extents, by 16 bytes each.
    ///
    /// # Errors
    /// [`tree::Error::NotFound`] if there is no such subvolume; also fails if a tree cannot be read.
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
                    // If inline content is shared with a snapshot, it is in the same leaf.
                    add(&mut usage, &mut met, &extent);
                }
                cursor.advance()?;
            }
        }
        Ok(usage)
    }
}

impl Subvolume {
    /// The space used by a file, or by a directory and everything below it, including nested subvolumes.
    ///
    /// Memory grows with the number of files and of extents, by 16 bytes each.
    ///
    /// # Errors
    /// Fails if the file does not exist, or if something below it cannot be read.
    pub fn usage(&self, file: Ino) -> Result<Usage> {
        let volume = &self.btrfs().volume;
        let mut usage = Usage::default();
        let mut met = HashSet::new();
        let mut files = HashSet::new();
        let mut waiting = vec![(file, self.metadata(file)?.kind)];
        while let Some((ino, kind)) = waiting.pop() {
            // Hard links, and directories that a damaged image nests within themselves.
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
            let stored = to_u64(stored.len());
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
