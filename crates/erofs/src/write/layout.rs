//! The place of every inode and of every directory, before they are written: a pure function of the
//! tree and the places of its data.

use std::borrow::Cow;
use std::collections::HashMap;

use tree::{
    Duplicates, Error, FileId, FileKind, Inventory, Lost, RecordTable, Result, Scratch, Time,
};

use super::block::{BLOCK_BYTES, BLOCK_LOG2, block_number};
use super::data::{PlacedData, PlacedFile, fit_compact};
use super::index::compact_bytes;
use super::options::Options;
use super::plan::inline_tail;
use super::unit::PlacedUnit;
use super::xattrs::XattrTable;
use crate::dir::ENTRY_BYTES;
use crate::inode::{COMPACT_BYTES, EXTENDED_BYTES};
use crate::superblock::IN_METABOX;

/// Everything that the metadata is made from.
pub(crate) struct ImageContent<'a> {
    pub(crate) inventory: &'a Inventory<'a>,
    pub(crate) options: &'a Options,
    pub(crate) lost: &'a Lost,
    pub(crate) duplicates: &'a Duplicates,
    pub(crate) data: &'a PlacedData,
    pub(crate) xattrs: &'a XattrTable<'a>,
    pub(crate) targets: &'a HashMap<FileId, Box<[u8]>>,
    /// The time of compact inodes; with records, theirs is an offset from it.
    pub(crate) epoch: Time,
}

/// How the content of an inode is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InodeBody {
    /// In blocks in a row, beginning with this one, and in this many bytes behind the inode.
    Flat { block: u32, tail_len: usize },
    /// In units: the index of the first one, and their number; and whether its index is
    /// compact.
    Units {
        first: u32,
        count: u32,
        is_compact: bool,
    },
    /// In chunks of this logarithm: the index of the first one with data, and their number.
    Chunks { log2: u8, first: u32, count: u32 },
    /// At this offset in the packed inode.
    Packed(u64),
}

/// Stands for the inline bytes of a listing that is in the packed inode.
const IN_PACKED: u32 = u32::MAX;

/// No content.
const EMPTY: InodeBody = InodeBody::Flat {
    block: 0,
    tail_len: 0,
};

impl ImageContent<'_> {
    pub(crate) fn is_stored(&self, file: FileId) -> bool {
        !self.lost.has(file)
    }

    /// The file whose content a file shows.
    fn shown(&self, file: FileId) -> FileId {
        self.duplicates.original(file).unwrap_or(file)
    }

    /// How the content of a regular file is stored, and where its inline tail is.
    pub(crate) fn placed(&self, file: FileId) -> PlacedFile {
        self.data.file(self.shown(file))
    }

    pub(crate) fn mtime(&self, file: FileId) -> Time {
        self.options.clamped(self.inventory.metadata(file).mtime)
    }

    /// A time as a compact inode stores it; `None` if it cannot.
    pub(crate) fn compact_time(&self, time: Time) -> Option<u32> {
        let seconds = time.seconds.checked_sub(self.epoch.seconds)?;
        let seconds = u32::try_from(seconds).ok()?;
        let fits = seconds == 0 || self.options.has_records();
        (fits && time.nanoseconds == self.epoch.nanoseconds).then_some(seconds)
    }

    /// Whether the inode of a file of this size has 64 bytes.
    pub(crate) fn is_extended(&self, file: FileId, size: u64, nlink: u32) -> bool {
        let metadata = self.inventory.metadata(file);
        let is_short = |number: u32| u16::try_from(number).is_ok();
        !(u32::try_from(size).is_ok()
            && is_short(metadata.uid)
            && is_short(metadata.gid)
            && is_short(nlink)
            && self.compact_time(self.mtime(file)).is_some())
    }

    /// The link count: names of a file, or subdirectories of a directory and two.
    pub(crate) fn nlink(&self, file: FileId) -> u32 {
        if self.inventory.kind(file) != FileKind::Directory {
            return self.inventory.name_count(file);
        }
        let entries = self.inventory.entries(file);
        let is_dir =
            |&entry: &_| self.inventory.kind(self.inventory.file(entry)) == FileKind::Directory;
        2 + entries.filter(is_dir).count() as u32
    }

    /// The entries of a directory in the order of names, with `.` and `..`.
    pub(crate) fn listing(&self, dir: FileId) -> impl Iterator<Item = (Cow<'_, [u8]>, FileId)> {
        let inventory = self.inventory;
        let parent = inventory.parent(inventory.first_name(dir));
        let mut dots = [(&b"."[..], dir), (b"..", parent)].into_iter().peekable();
        let entries = inventory.entries(dir);
        let stored = entries.filter(|&entry| self.is_stored(inventory.file(entry)));
        let mut entries = stored.peekable();
        std::iter::from_fn(move || {
            let name = entries.peek().map(|&entry| inventory.name(entry));
            let next = |&(dot, _): &(&[u8], FileId)| name.as_ref().is_none_or(|name| dot < &**name);
            if let Some((dot, file)) = dots.next_if(next) {
                return Some((Cow::Borrowed(dot), file));
            }
            let entry = entries.next()?;
            Some((inventory.name(entry), inventory.file(entry)))
        })
    }

    /// The bytes of a directory: each block has as many entries as fit.
    fn listing_bytes(&self, dir: FileId) -> u64 {
        let (mut blocks, mut used) = (0, 0);
        for (name, _) in self.listing(dir) {
            let bytes = ENTRY_BYTES + name.len();
            if used + bytes > BLOCK_BYTES {
                blocks += 1;
                used = 0;
            }
            used += bytes;
        }
        (blocks << BLOCK_LOG2) + used as u64
    }

    /// Where the index of a body begins behind an inode and its attributes, which end at `at`.
    pub(crate) fn index_at(&self, body: InodeBody, at: u64, size: u64) -> u64 {
        match body {
            InodeBody::Flat { .. } | InodeBody::Chunks { .. } => at,
            InodeBody::Packed(_) => at.next_multiple_of(8),
            InodeBody::Units { .. } if self.options.has_records() => {
                (at.next_multiple_of(8) + 8).next_multiple_of(record_bytes(size))
            }
            InodeBody::Units {
                is_compact: true, ..
            } => at.next_multiple_of(8) + 8,
            InodeBody::Units { .. } => at.next_multiple_of(8) + 16,
        }
    }

    /// The bytes of the index of a body that begins at `at`.
    fn index_bytes(&self, body: InodeBody, at: u64, size: u64) -> u64 {
        match body {
            InodeBody::Flat { tail_len, .. } => tail_len as u64,
            InodeBody::Packed(_) => 8,
            InodeBody::Units { count, .. } if self.options.has_records() => {
                u64::from(count) * record_bytes(size)
            }
            InodeBody::Units { is_compact, .. } => {
                let clusters = size.div_ceil(BLOCK_BYTES as u64);
                if is_compact {
                    compact_bytes(at, clusters)
                } else {
                    clusters * 8
                }
            }
            InodeBody::Chunks { log2, .. } => (((size - 1) >> log2) + 1) * 4,
        }
    }
}

/// Bytes of a record of a file of this size.
pub(crate) fn record_bytes(size: u64) -> u64 {
    if u32::try_from(size).is_ok() { 16 } else { 32 }
}

/// The places of all metadata.
pub(crate) struct InodeLayout {
    /// By file: the place of its inode in units of 32 bytes; 0 of files that are left out.
    slots: Vec<u32>,
    /// For each directory and symbolic link, in the order of files: bytes, first block, and inline
    /// bytes or [`IN_PACKED`].
    listings: RecordTable<4>,
    /// Where listings begin in the packed inode, and its size.
    packed_listings: u64,
    packed_bytes: u64,
    /// The inode that has small files, and listings; and the one that has the inodes of files.
    pub(crate) packed: Option<MetaFile>,
    pub(crate) metabox: Option<MetaFile>,
    /// Where shared attributes begin, and inodes: in the metabox if there is one.
    pub(crate) xattr_at: u64,
    pub(crate) meta_at: u64,
}

/// A file that no directory has.
#[derive(Default)]
pub(crate) struct MetaFile {
    pub(crate) nid: u32,
    pub(crate) bytes: u64,
    /// The units of metadata in it, behind those of small files.
    pub(crate) units: Vec<PlacedUnit>,
}

/// The next directories and symbolic links of a layout.
pub(crate) struct Listings<'a> {
    table: &'a RecordTable<4>,
    next: usize,
    /// Where the next one is in the packed inode, if it is there.
    packed_at: u64,
}

impl Listings<'_> {
    /// The size of the next directory or link, and where it is stored.
    fn next(&mut self) -> (u64, InodeBody) {
        let [low, high, block, tail_len] = self.table.get(self.next);
        self.next += 1;
        let size = tree::wide_u64(low, high);
        if tail_len == IN_PACKED {
            let at = self.packed_at;
            self.packed_at += size;
            return (size, InodeBody::Packed(at));
        }
        let tail_len = tail_len as usize;
        (size, InodeBody::Flat { block, tail_len })
    }

    /// The size of the next file, and how its content is stored.
    pub(crate) fn body(&mut self, content: &ImageContent, file: FileId) -> (u64, InodeBody) {
        let size = content.inventory.size(file);
        match content.inventory.kind(file) {
            FileKind::Directory | FileKind::Symlink => self.next(),
            FileKind::Regular if size > 0 => {
                let body = match content.placed(file) {
                    PlacedFile::Nothing => EMPTY,
                    PlacedFile::Flat { block, tail } => InodeBody::Flat {
                        block,
                        tail_len: tail.map_or(0, |_| content.tail_len(file)),
                    },
                    PlacedFile::Units {
                        first,
                        count,
                        fits_compact,
                    } => InodeBody::Units {
                        first,
                        count,
                        is_compact: fits_compact && !content.options.has_records(),
                    },
                    PlacedFile::Chunks { log2, first, count } => {
                        InodeBody::Chunks { log2, first, count }
                    }
                    PlacedFile::Packed(offset) => InodeBody::Packed(offset),
                };
                (size, body)
            }
            _ => (0, EMPTY),
        }
    }
}

impl ImageContent<'_> {
    /// The units of the packed inode: those of small files, and those of listings.
    pub(crate) fn packed_units<'u>(
        &'u self,
        packed: &'u MetaFile,
    ) -> impl Iterator<Item = PlacedUnit> + Clone + use<'u> {
        let small = self.data.packed_units();
        small.chain(packed.units.iter().copied())
    }

    /// How a file of these units is stored.
    pub(crate) fn units_body(
        &self,
        units: impl Iterator<Item = PlacedUnit> + Clone,
    ) -> Result<InodeBody> {
        let count = u32::try_from(units.clone().count());
        Ok(InodeBody::Units {
            first: 0,
            count: count.map_err(|_| Error::Limit("more than 2^32 units of small files"))?,
            is_compact: !self.options.has_records() && fit_compact(units),
        })
    }

    /// The bytes of the inline tail of a file: as many as its original has.
    pub(crate) fn tail_len(&self, file: FileId) -> usize {
        let shown = self.shown(file);
        inline_tail(self.inventory.size(shown), self.xattrs.widest(shown))
    }
}

impl InodeLayout {
    /// Places the metadata behind the data, which ends at `at`; in a metabox, it begins at 0.
    pub(crate) fn new(
        content: &ImageContent,
        at: u64,
        shared_bytes: u64,
        scratch: &Scratch,
    ) -> Result<InodeLayout> {
        let inventory = content.inventory;
        let packed_bytes = content.data.packed_bytes;
        let mut layout = InodeLayout {
            slots: Vec::with_capacity(inventory.file_count() as usize),
            listings: RecordTable::new(scratch),
            packed_listings: packed_bytes,
            packed_bytes,
            packed: None,
            metabox: None,
            xattr_at: 0,
            meta_at: 0,
        };
        let mut block = at >> BLOCK_LOG2;
        for file in inventory.files() {
            let size = match inventory.kind(file) {
                FileKind::Directory => content.listing_bytes(file),
                FileKind::Symlink => content
                    .targets
                    .get(&file)
                    .map_or(0, |target| target.len() as u64),
                _ => continue,
            };
            let (low, high) = (tree::low_u32(size), tree::high_u32(size));
            let tail_len = inline_tail(size, content.xattrs.bytes(file)) as u32;
            if content.options.has_metabox() && u64::from(tail_len) < size {
                layout.listings.push([low, high, 0, IN_PACKED]);
                layout.packed_bytes += size;
                continue;
            }
            let record = [low, high, block_number(block)?, tail_len];
            layout.listings.push(record);
            block += (size - u64::from(tail_len)).div_ceil(BLOCK_BYTES as u64);
        }
        if !content.options.has_metabox() {
            layout.xattr_at = block << BLOCK_LOG2;
            let xattr_end = layout.xattr_at + shared_bytes;
            layout.meta_at = xattr_end.next_multiple_of(BLOCK_BYTES as u64);
            block_number(layout.meta_at >> BLOCK_LOG2)?;
        }
        // The place is also the number that programs see, and 0 means that there is no file.
        let mut next = layout.meta_at + COMPACT_BYTES as u64;
        let mut slots = std::mem::take(&mut layout.slots);
        let mut listings = layout.listings();
        for file in inventory.files() {
            let (size, body) = listings.body(content, file);
            if !content.is_stored(file) {
                slots.push(0);
                continue;
            }
            let head = content.head_bytes(file, size);
            slots.push(layout.place(content, &mut next, head, body, size)?);
        }
        layout.slots = slots;
        if !content.options.has_metabox() && packed_bytes > 0 {
            let body = content.units_body(content.data.packed_units())?;
            let mut packed = MetaFile {
                bytes: packed_bytes,
                ..MetaFile::default()
            };
            packed.nid = layout.place_meta_file(content, &mut next, body, packed_bytes)?;
            layout.packed = Some(packed);
        }
        Ok(layout)
    }

    /// The number of a file that no directory has, whose inode is placed at `next`.
    pub(crate) fn place_meta_file(
        &self,
        content: &ImageContent,
        next: &mut u64,
        body: InodeBody,
        bytes: u64,
    ) -> Result<u32> {
        self.place(content, next, EXTENDED_BYTES as u64, body, bytes)
    }

    /// The slot of an inode that is placed at `next` or behind it.
    fn place(
        &self,
        content: &ImageContent,
        next: &mut u64,
        head: u64,
        body: InodeBody,
        size: u64,
    ) -> Result<u32> {
        let mut at = next.next_multiple_of(COMPACT_BYTES as u64);
        if let InodeBody::Flat { tail_len: 1.., .. } = body {
            let end = at % BLOCK_BYTES as u64 + head + content.index_bytes(body, at, size);
            if end > BLOCK_BYTES as u64 {
                at = at.next_multiple_of(BLOCK_BYTES as u64);
            }
        }
        let index_at = content.index_at(body, at + head, size);
        *next = index_at + content.index_bytes(body, index_at, size);
        let slot = u32::try_from((at - self.meta_at) / COMPACT_BYTES as u64);
        slot.map_err(|_| Error::Limit("more than 128 GiB of inodes"))
    }

    pub(crate) fn listings(&self) -> Listings<'_> {
        Listings {
            table: &self.listings,
            next: 0,
            packed_at: self.packed_listings,
        }
    }

    /// The size of the packed inode.
    pub(crate) fn packed_bytes(&self) -> u64 {
        self.packed_bytes
    }

    /// The number of a file that is stored.
    pub(crate) fn nid(&self, content: &ImageContent, file: FileId) -> u64 {
        let in_metabox = if content.options.has_metabox() {
            IN_METABOX
        } else {
            0
        };
        u64::from(self.slots[file.0 as usize]) | in_metabox
    }

    /// Where the inode of a file is: in the metabox if there is one.
    pub(crate) fn inode_at(&self, file: FileId) -> u64 {
        self.slot_at(self.slots[file.0 as usize])
    }

    pub(crate) fn slot_at(&self, slot: u32) -> u64 {
        self.meta_at + u64::from(slot) * COMPACT_BYTES as u64
    }
}

impl ImageContent<'_> {
    /// The bytes of an inode and its attributes.
    fn head_bytes(&self, file: FileId, size: u64) -> u64 {
        let inode_bytes = if self.is_extended(file, size, self.nlink(file)) {
            EXTENDED_BYTES
        } else {
            COMPACT_BYTES
        };
        (inode_bytes + self.xattrs.bytes(file)) as u64
    }
}
