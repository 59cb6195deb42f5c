//! Writes directories, shared attributes and inodes with their indexes.

use tree::{FileId, FileKind, Result};

use super::block::{BLOCK_BYTES, BLOCK_LOG2, block_number};
use super::data::PlacedFile;
use super::image::{ImageWriter, MetaWriter};
use super::index::{cluster_entries, compact_packs, emit_record};
use super::layout::{ImageContent, InodeBody, InodeLayout, MetaFile, record_bytes};
use super::options::Options;
use super::unit::{Codec, PlacedUnit};
use crate::dir::ENTRY_BYTES;
use crate::index::{
    ADVISE_BIG_1, ADVISE_BIG_2, ADVISE_COMPACTED_2B, ADVISE_RECORDS, WHOLE_FRAGMENT,
};
use crate::inode::COMPACT_BYTES;

/// The layouts of [`Layout`](crate::inode::Layout) in the bits of an inode's format.
const FLAT: u16 = 0;
const FULL: u16 = 1;
const INLINE: u16 = 2;
const COMPACT: u16 = 3;
const CHUNKS: u16 = 4;
/// The address of a chunk that is a hole.
const HOLE_CHUNK: u32 = u32::MAX;

/// The type of a directory entry, as in linux/fs_types.h.
fn entry_type(kind: FileKind) -> u8 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::CharDevice => 3,
        FileKind::BlockDevice => 4,
        FileKind::Fifo => 5,
        FileKind::Socket => 6,
        FileKind::Symlink => 7,
    }
}

/// The fields of an inode.
struct InodeRecord {
    is_extended: bool,
    layout: u16,
    xattr_bytes: usize,
    mode: u32,
    size: u64,
    nlink: u32,
    /// A block, a number of blocks, the format of chunks, or a device.
    union: u32,
    number: u32,
    uid: u32,
    gid: u32,
    mtime: tree::Time,
    /// The time of a compact inode.
    compact_time: u32,
}

impl InodeRecord {
    fn emit(&self, out: &mut Vec<u8>) {
        out.extend((u16::from(self.is_extended) | self.layout << 1).to_le_bytes());
        // 12 bytes of a header, and 4 for each further count.
        let xattr_count = self.xattr_bytes.saturating_sub(8) / 4;
        out.extend((xattr_count as u16).to_le_bytes());
        out.extend((self.mode as u16).to_le_bytes());
        if !self.is_extended {
            out.extend((self.nlink as u16).to_le_bytes());
            out.extend((self.size as u32).to_le_bytes());
            out.extend(self.compact_time.to_le_bytes());
            out.extend(self.union.to_le_bytes());
            out.extend(self.number.to_le_bytes());
            out.extend((self.uid as u16).to_le_bytes());
            out.extend((self.gid as u16).to_le_bytes());
            out.extend([0; 4]);
            return;
        }
        out.extend([0; 2]);
        out.extend(self.size.to_le_bytes());
        out.extend(self.union.to_le_bytes());
        out.extend(self.number.to_le_bytes());
        out.extend(self.uid.to_le_bytes());
        out.extend(self.gid.to_le_bytes());
        out.extend(self.mtime.seconds.to_le_bytes());
        out.extend(self.mtime.nanoseconds.to_le_bytes());
        out.extend(self.nlink.to_le_bytes());
        out.extend([0; 16]);
    }
}

/// The metadata in progress.
struct TableWriter<'w, 'a, 'c> {
    content: &'c ImageContent<'c>,
    layout: &'c InodeLayout,
    out: MetaWriter<'w, 'a>,
}

impl ImageWriter<'_> {
    /// Writes all metadata but the superblock.
    pub(crate) fn write_tables(
        &mut self,
        content: &ImageContent,
        layout: &mut InodeLayout,
        shared_xattrs: &[u8],
    ) -> Result<()> {
        if content.options.has_metabox() {
            return self.write_compressed_tables(content, layout, shared_xattrs);
        }
        let mut tables = TableWriter {
            content,
            layout,
            out: MetaWriter::new(self),
        };
        tables.put_listings()?;
        tables.out.pad_to(layout.xattr_at)?;
        tables.out.put_with(|out| out.extend(shared_xattrs))?;
        tables.put_inodes()?;
        if let Some(packed) = &layout.packed {
            tables.put_meta_file(packed, || content.packed_units(packed))?;
        }
        tables.out.finish()?;
        self.align()
    }

    /// Writes large listings to the packed inode, and the inodes of files to the metabox. Their own
    /// inodes come last, when all units have places.
    fn write_compressed_tables(
        &mut self,
        content: &ImageContent,
        layout: &mut InodeLayout,
        shared_xattrs: &[u8],
    ) -> Result<()> {
        let mut tables = TableWriter {
            content,
            layout,
            out: MetaWriter::in_file(self, content.data.packed_bytes),
        };
        tables.put_listings()?;
        let mut packed = MetaFile {
            units: tables.out.finish()?,
            bytes: layout.packed_bytes(),
            nid: 0,
        };
        let mut tables = TableWriter {
            content,
            layout,
            out: MetaWriter::in_file(self, 0),
        };
        tables.put_inodes()?;
        let mut metabox = MetaFile {
            bytes: tables.out.at(),
            units: tables.out.finish()?,
            nid: 0,
        };
        self.align()?;
        layout.xattr_at = self.at;
        self.put(shared_xattrs)?;
        self.align()?;
        layout.meta_at = self.at;
        block_number(layout.meta_at >> BLOCK_LOG2)?;
        let mut next = layout.meta_at + COMPACT_BYTES as u64;
        if packed.bytes > 0 {
            let body = content.units_body(content.packed_units(&packed))?;
            packed.nid = layout.place_meta_file(content, &mut next, body, packed.bytes)?;
        }
        let body = content.units_body(metabox.units.iter().copied())?;
        metabox.nid = layout.place_meta_file(content, &mut next, body, metabox.bytes)?;
        let mut tables = TableWriter {
            content,
            layout,
            out: MetaWriter::new(self),
        };
        if packed.bytes > 0 {
            tables.put_meta_file(&packed, || content.packed_units(&packed))?;
        }
        tables.put_meta_file(&metabox, || metabox.units.iter().copied())?;
        tables.out.finish()?;
        layout.packed = (packed.bytes > 0).then_some(packed);
        layout.metabox = Some(metabox);
        self.align()
    }
}

impl TableWriter<'_, '_, '_> {
    /// Writes the blocks of directories, and of links that do not fit behind their inodes.
    fn put_listings(&mut self) -> Result<()> {
        let (content, inventory) = (self.content, self.content.inventory);
        let mut listings = self.layout.listings();
        for file in inventory.files() {
            let kind = inventory.kind(file);
            if !matches!(kind, FileKind::Directory | FileKind::Symlink) {
                continue;
            }
            match listings.body(content, file) {
                (size, InodeBody::Packed(_)) => self.put_listing(file, 0, size)?,
                (size, InodeBody::Flat { tail_len, .. }) if size > tail_len as u64 => {
                    self.put_listing(file, 0, size - tail_len as u64)?;
                    let at = self.out.at();
                    self.out.pad_to(at.next_multiple_of(BLOCK_BYTES as u64))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes a part of a directory, in whole blocks or up to its end, or of a link's target.
    fn put_listing(&mut self, file: FileId, from: u64, len: u64) -> Result<()> {
        let (content, inventory) = (self.content, self.content.inventory);
        if inventory.kind(file) == FileKind::Symlink {
            let target = content.targets.get(&file).map_or(&[][..], |target| target);
            let (from, to) = (from as usize, (from + len) as usize);
            return self.out.put_with(|out| out.extend(&target[from..to]));
        }
        let (mut at, mut used) = (0, 0);
        let mut block = Vec::new();
        let end = from + len;
        for (name, entry) in content.listing(file) {
            let bytes = ENTRY_BYTES + name.len();
            if used + bytes > BLOCK_BYTES {
                if at >= from && at < end {
                    self.put_block(&block, true)?;
                }
                at += BLOCK_BYTES as u64;
                used = 0;
                block.clear();
            }
            used += bytes;
            block.push((name, entry));
        }
        if at >= from && at < end {
            self.put_block(&block, false)?;
        }
        Ok(())
    }

    /// Writes a block of a directory.
    fn put_block(
        &mut self,
        entries: &[(std::borrow::Cow<'_, [u8]>, FileId)],
        is_full: bool,
    ) -> Result<()> {
        let (layout, content) = (self.layout, self.content);
        let inventory = content.inventory;
        self.out.put_with(|out| {
            let begin = out.len();
            let mut name_at = ENTRY_BYTES * entries.len();
            for (name, file) in entries {
                out.extend(layout.nid(content, *file).to_le_bytes());
                out.extend((name_at as u16).to_le_bytes());
                out.extend([entry_type(inventory.kind(*file)), 0]);
                name_at += name.len();
            }
            for (name, _) in entries {
                out.extend_from_slice(name);
            }
            if is_full {
                out.resize(begin + BLOCK_BYTES, 0);
            }
        })
    }

    fn put_inodes(&mut self) -> Result<()> {
        let (content, layout) = (self.content, self.layout);
        let inventory = content.inventory;
        let mut listings = layout.listings();
        for file in inventory.files() {
            let (size, body) = listings.body(content, file);
            if !content.is_stored(file) {
                continue;
            }
            let (metadata, nlink) = (inventory.metadata(file), content.nlink(file));
            let mtime = content.mtime(file);
            let mut union = self.union(body, content);
            if metadata.kind.is_device() {
                let path = || inventory.path(inventory.first_name(file));
                let limit = tree::Error::Limit("a device number with more than 12 and 20 bits");
                let number = metadata.rdev.emit();
                union = number.ok_or_else(|| limit.in_file("store", &path()))?;
            }
            let inode = InodeRecord {
                is_extended: content.is_extended(file, size, nlink),
                layout: layout_of(body),
                xattr_bytes: content.xattrs.bytes(file),
                mode: metadata.kind.mode_bits() | u32::from(metadata.permissions),
                size,
                nlink,
                union,
                number: file.0 + 1,
                uid: metadata.uid,
                gid: metadata.gid,
                mtime,
                compact_time: content.compact_time(mtime).unwrap_or(0),
            };
            self.out.pad_to(layout.inode_at(file))?;
            self.out.put_with(|out| {
                inode.emit(out);
                content.xattrs.emit(file, out);
            })?;
            match body {
                InodeBody::Flat { tail_len: 0, .. } => {}
                InodeBody::Flat { tail_len, .. } if metadata.kind == FileKind::Regular => {
                    if let PlacedFile::Flat { tail: Some(at), .. } = content.placed(file) {
                        let data = content.data;
                        self.out.put_with(|out| data.tail(at, tail_len, out))?;
                    }
                }
                InodeBody::Flat { tail_len, .. } => {
                    self.put_listing(file, size - tail_len as u64, tail_len as u64)?;
                }
                InodeBody::Packed(offset) => {
                    let at = self.out.at();
                    self.out.pad_to(content.index_at(body, at, size))?;
                    let header = offset | u64::from(WHOLE_FRAGMENT) << 56;
                    self.out.put_with(|out| out.extend(header.to_le_bytes()))?;
                }
                InodeBody::Units { first, count, .. } => {
                    self.put_units(body, size, || content.data.units(first, count))?;
                }
                InodeBody::Chunks { log2, first, count } => {
                    self.put_chunks(log2, size, content.data.units(first, count))?;
                }
            }
        }
        Ok(())
    }

    /// The field of an inode that depends on how its content is stored.
    fn union(&self, body: InodeBody, content: &ImageContent) -> u32 {
        match body {
            InodeBody::Flat { block, .. } => block,
            InodeBody::Packed(_) => 0,
            InodeBody::Units { first, count, .. } => {
                stored_blocks(content.data.units(first, count), content.options)
            }
            InodeBody::Chunks { log2, .. } => u32::from(log2 - BLOCK_LOG2),
        }
    }

    /// Writes the inode of a file that no directory has.
    fn put_meta_file<I: Iterator<Item = PlacedUnit> + Clone>(
        &mut self,
        file: &MetaFile,
        units: impl Fn() -> I,
    ) -> Result<()> {
        let (content, layout) = (self.content, self.layout);
        let body = content.units_body(units())?;
        let inode = InodeRecord {
            is_extended: true,
            layout: layout_of(body),
            xattr_bytes: 0,
            mode: FileKind::Regular.mode_bits(),
            size: file.bytes,
            nlink: 1,
            union: stored_blocks(units(), content.options),
            number: content.inventory.file_count() + 1,
            uid: 0,
            gid: 0,
            mtime: content.epoch,
            compact_time: 0,
        };
        self.out.pad_to(layout.slot_at(file.nid))?;
        self.out.put_with(|out| inode.emit(out))?;
        self.put_units(body, file.bytes, units)
    }

    /// Writes the index of a compressed file, whose inode ends here.
    fn put_units<I: Iterator<Item = PlacedUnit>>(
        &mut self,
        body: InodeBody,
        size: u64,
        units: impl Fn() -> I,
    ) -> Result<()> {
        let content = self.content;
        let at = self.out.at();
        let index_at = content.index_at(body, at, size);
        self.out.pad_to(at.next_multiple_of(8))?;
        if content.options.has_records() {
            let InodeBody::Units { count, .. } = body else {
                return Ok(());
            };
            let record_bytes = record_bytes(size);
            let record_log2 = record_bytes.ilog2() as u16 - 2;
            self.out.put_with(|out| {
                out.extend(count.to_le_bytes());
                out.extend((ADVISE_RECORDS | record_log2 << 1).to_le_bytes());
                out.extend([0; 2]);
            })?;
            self.out.pad_to(index_at)?;
            for unit in units() {
                self.out
                    .put_with(|out| emit_record(&unit, record_bytes, out))?;
            }
            return Ok(());
        }
        let InodeBody::Units { is_compact, .. } = body else {
            return Ok(());
        };
        let advise = if is_compact {
            ADVISE_BIG_1 | ADVISE_BIG_2 | ADVISE_COMPACTED_2B
        } else {
            ADVISE_BIG_1
        };
        self.out.put_with(|out| {
            out.extend([0; 4]);
            out.extend(advise.to_le_bytes());
            let settings = content.options.compression;
            let codec = settings.map_or(Codec::Lz4, |settings| Codec::of(settings.algorithm()));
            out.extend([codec as u8, 0]);
        })?;
        self.out.pad_to(index_at)?;
        let entries = cluster_entries(units(), size);
        if is_compact {
            let count = size.div_ceil(BLOCK_BYTES as u64);
            for pack in compact_packs(index_at, count, entries) {
                self.out.put_with(|out| out.extend(pack))?;
            }
            return Ok(());
        }
        for entry in entries {
            self.out.put_with(|out| entry.emit(out))?;
        }
        Ok(())
    }

    fn put_chunks(
        &mut self,
        log2: u8,
        size: u64,
        chunks: impl Iterator<Item = PlacedUnit>,
    ) -> Result<()> {
        let mut next = 0;
        let count = ((size - 1) >> log2) + 1;
        let mut holes = |out: &mut MetaWriter, until: u64| -> Result<()> {
            while next < until {
                out.put_with(|out| out.extend(HOLE_CHUNK.to_le_bytes()))?;
                next += 1;
            }
            next += 1;
            Ok(())
        };
        for chunk in chunks {
            holes(&mut self.out, chunk.from >> log2)?;
            let block = block_number(chunk.at >> BLOCK_LOG2)?;
            self.out.put_with(|out| out.extend(block.to_le_bytes()))?;
        }
        holes(&mut self.out, count)
    }
}

fn layout_of(body: InodeBody) -> u16 {
    match body {
        InodeBody::Flat { tail_len: 0, .. } => FLAT,
        InodeBody::Flat { .. } => INLINE,
        InodeBody::Units {
            is_compact: true, ..
        } => COMPACT,
        InodeBody::Units { .. } | InodeBody::Packed(_) => FULL,
        InodeBody::Chunks { .. } => CHUNKS,
    }
}

/// The blocks that units take.
fn stored_blocks(units: impl Iterator<Item = PlacedUnit>, options: &Options) -> u32 {
    let block_bytes = BLOCK_BYTES as u64;
    let lens = units.map(|unit| u64::from(unit.stored_len));
    let blocks = if options.has_records() {
        lens.sum::<u64>().div_ceil(block_bytes)
    } else {
        lens.map(|len| len.div_ceil(block_bytes)).sum()
    };
    u32::try_from(blocks).unwrap_or(u32::MAX)
}
