//! Sending the data of files: which extents are cloned, copied as they are stored, or written
//! plain.

use std::collections::HashMap;
use std::io::Write;

use codec::Decoder;
use tree::{
    Encoding, Error, Extent, ExtentId, ExtentKind, Extents, FileId, FileKind, Inventory, KeptCount,
    Progress, Result,
};

use super::options::{SendData, SendOptions};
use super::order::Order;
use crate::command::Command;
use crate::encoded::{ENCODED_BYTES_MAX, EncodedWrite, compression};
use crate::raw::Version;
use crate::writer::StreamWriter;

const WRITE_BYTES_V1: u64 = 48 << 10;
const WRITE_BYTES_V2: u64 = 128 << 10;
/// Extents with more references are not cloned.
const REFERENCES_MAX: usize = 1024;
/// The largest sectors that a receiving file system can have.
const SECTOR_BYTES_MAX: u64 = 64 << 10;

/// A part of a file that is at the receiver, or will be, and that shows an extent which other parts
/// show too.
#[derive(Clone, Copy)]
struct ShownRange {
    /// Of [`SendSettings::roots`].
    root: usize,
    file: FileId,
    number: u64,
    offset: u64,
    /// In whole sectors.
    len: u64,
    /// Where in the extent it begins.
    begin: u64,
    is_encoded: bool,
}

/// The state of data while it is sent.
pub(super) struct DataSender {
    /// The extents that several parts of files show, in ascending order.
    shared: Vec<ExtentId>,
    sent: HashMap<ExtentId, Vec<ShownRange>>,
    /// Whether `sent` has all parts from the beginning, and not only those that were sent.
    is_indexed: bool,
    decoder: Decoder,
    buffer: Vec<u8>,
    content: Vec<u8>,
    pub(super) kept: KeptCount,
}

/// A regular file whose data is being sent.
pub(super) struct SentFile<'a> {
    pub(super) file: FileId,
    pub(super) number: u64,
    pub(super) path: &'a [u8],
    pub(super) size: u64,
    /// Where the last part that was sent ends.
    pub(super) end: u64,
    /// Up to here, the file at the receiver is as it shall be.
    pub(super) done: u64,
}

/// Where else the data of an extent is.
#[derive(Clone, Copy)]
struct CloneSource {
    root: usize,
    file: FileId,
    offset: u64,
}

/// A subvolume in which data to clone can be.
#[derive(Clone, Copy)]
pub(super) struct CloneRoot<'a> {
    pub(super) inventory: &'a Inventory<'a>,
    pub(super) order: &'a Order<'a>,
    pub(super) uuid: [u8; 16],
    pub(super) ctransid: u64,
}

/// All that does not change.
pub(super) struct SendSettings<'a> {
    pub(super) options: &'a SendOptions<'a>,
    pub(super) progress: &'a dyn Progress,
    /// The subvolume that is sent, and those that the receiver has.
    pub(super) roots: &'a [CloneRoot<'a>],
    /// The path of a file of the subvolume that is sent, as it is now.
    pub(super) path: &'a dyn Fn(FileId) -> Result<Vec<u8>>,
}

/// The most plain bytes in one command of Linux.
pub(super) fn write_bytes_max(version: Version) -> u64 {
    match version {
        Version::V1 => WRITE_BYTES_V1,
        _ => WRITE_BYTES_V2,
    }
}

/// Where in the stored or decoded extent, or in preallocated space, a part of a file begins; `None`
/// for a hole.
pub(super) fn begin(extent: &Extent) -> Option<u64> {
    match extent.kind {
        ExtentKind::Plain { stored_offset } | ExtentKind::Preallocated { stored_offset } => {
            Some(stored_offset)
        }
        ExtentKind::Encoded(encoding) => Some(encoding.unencoded_offset),
        ExtentKind::Hole => None,
    }
}

/// Whether two parts of files with one extent show the same bytes, if they begin at the same place
/// of it.
pub(super) fn is_stored_alike(a: ExtentKind, b: ExtentKind) -> bool {
    match (a, b) {
        (ExtentKind::Plain { .. }, ExtentKind::Plain { .. })
        | (ExtentKind::Preallocated { .. }, ExtentKind::Preallocated { .. }) => true,
        (ExtentKind::Encoded(a), ExtentKind::Encoded(b)) => {
            let stored = |it: Encoding| (it.algorithm, it.stored_len, it.unencoded_len);
            stored(a) == stored(b)
        }
        _ => false,
    }
}

impl DataSender {
    /// Finds the extents that are shared within the tree.
    pub(super) fn new(root: &CloneRoot<'_>) -> Result<DataSender> {
        let mut ids: Vec<ExtentId> = Vec::new();
        for_each_extent(root, &mut |_, extent| {
            ids.extend(extent.id.filter(|_| extent.kind.has_data()));
        })?;
        ids.sort_unstable();
        let shared = ids.chunk_by(|a, b| a == b);
        let shared = shared.filter(|same| (2..=REFERENCES_MAX).contains(&same.len()));
        let shared = shared.map(|same| same[0]).collect();
        Ok(DataSender::with(shared, HashMap::new(), false))
    }

    /// Finds all parts of the subvolumes that show one of the extents in `wanted`, if several do.
    pub(super) fn indexed(
        roots: &[CloneRoot<'_>],
        mut wanted: Vec<ExtentId>,
        sector_bytes: u32,
    ) -> Result<DataSender> {
        wanted.sort_unstable();
        wanted.dedup();
        let mut all: HashMap<ExtentId, Vec<ShownRange>> = HashMap::new();
        for (turn, root) in roots.iter().enumerate() {
            for_each_extent(root, &mut |file, extent| {
                let Some(id) = extent.id.filter(|id| wanted.binary_search(id).is_ok()) else {
                    return;
                };
                let number = root.order.number(file);
                let Some(shown) = ShownRange::of(turn, file, number, extent, sector_bytes.into())
                else {
                    return;
                };
                let shown_of = all.entry(id).or_default();
                // One more than the most says that there are more.
                if shown_of.len() <= REFERENCES_MAX {
                    shown_of.push(shown);
                }
            })?;
        }
        all.retain(|_, shown| (2..=REFERENCES_MAX).contains(&shown.len()));
        let mut shared: Vec<ExtentId> = all.keys().copied().collect();
        shared.sort_unstable();
        Ok(DataSender::with(shared, all, true))
    }

    fn with(
        shared: Vec<ExtentId>,
        sent: HashMap<ExtentId, Vec<ShownRange>>,
        is_indexed: bool,
    ) -> DataSender {
        DataSender {
            shared,
            sent,
            is_indexed,
            decoder: Decoder::new(),
            buffer: Vec::new(),
            content: Vec::new(),
            kept: KeptCount::default(),
        }
    }

    /// Sends all data of a file.
    pub(super) fn send<W: Write>(
        &mut self,
        context: &SendSettings<'_>,
        target: &mut SentFile<'_>,
        writer: &mut StreamWriter<W>,
    ) -> Result<()> {
        let inventory = context.sent().inventory;
        let mut extents = Extents::new(inventory.tree(), inventory.ino(target.file), target.size);
        while let Some(extent) = extents.next()? {
            if extent.kind.has_data() {
                self.send_extent(context, target, &extent, writer)?;
                target.done = target.end;
            }
        }
        Ok(())
    }

    /// Sends an extent of a file, which is not a hole.
    pub(super) fn send_extent<W: Write>(
        &mut self,
        context: &SendSettings<'_>,
        target: &mut SentFile<'_>,
        extent: &Extent,
        writer: &mut StreamWriter<W>,
    ) -> Result<()> {
        let sector = u64::from(context.options.sector_bytes);
        let begin = begin(extent).unwrap_or_default();
        let is_aligned = extent.offset.is_multiple_of(sector) && begin.is_multiple_of(sector);
        let id = extent.id.filter(|_| is_aligned);
        let id = id.filter(|id| self.shared.binary_search(id).is_ok());
        let source = id.and_then(|id| self.source(target, extent, id, begin));
        match source {
            Some(source) if context.can_clone(target, extent, &source) => {
                self.clone_parts(context, target, extent, source, writer)?;
            }
            _ => self.write(context, target, extent, extent.offset, extent.len, writer)?,
        }
        target.end = context.end_of(extent, target.size);
        if let Some(id) = id.filter(|_| !self.is_indexed)
            && let Some(shown) = ShownRange::of(0, target.file, target.number, extent, sector)
        {
            self.sent.entry(id).or_default().push(shown);
        }
        Ok(())
    }

    /// The part that shows most of an extent, among those that were sent; the first one that shows
    /// all that is wanted.
    fn source(
        &self,
        target: &SentFile<'_>,
        extent: &Extent,
        id: ExtentId,
        begin: u64,
    ) -> Option<CloneSource> {
        let mut found: Vec<&ShownRange> = self.sent.get(&id)?.iter().collect();
        // The order of references in an extent tree, where each names the begin of its extent.
        found.sort_by_key(|shown| {
            let origin = shown.offset.wrapping_sub(shown.begin);
            (shown.number, origin, shown.offset, shown.root)
        });
        let origin = extent.offset.wrapping_sub(begin);
        let mut best: Option<(&ShownRange, u64)> = None;
        for shown in found {
            let is_own = shown.root == 0 && shown.number == target.number;
            if shown.root == 0 && shown.number > target.number {
                continue;
            }
            // One reference in the extent tree stands for all parts of a file that begin at one
            // place.
            if is_own && shown.offset.wrapping_sub(shown.begin) == origin {
                continue;
            }
            let mut offset = shown.offset;
            if !shown.is_encoded {
                if !(shown.begin..shown.begin + shown.len).contains(&begin) {
                    continue;
                }
                offset += begin - shown.begin;
            }
            if is_own && offset.saturating_add(extent.len) > target.done {
                continue;
            }
            if best.is_none_or(|(best, _)| shown.len > best.len) {
                best = Some((shown, offset));
                if shown.len >= extent.len {
                    break;
                }
            }
        }
        best.map(|(shown, offset)| CloneSource {
            root: shown.root,
            file: shown.file,
            offset,
        })
    }

    /// Clones an extent from where else it is, and writes what cannot be cloned.
    fn clone_parts<W: Write>(
        &mut self,
        context: &SendSettings<'_>,
        target: &SentFile<'_>,
        extent: &Extent,
        source: CloneSource,
        writer: &mut StreamWriter<W>,
    ) -> Result<()> {
        let inventory = context.roots[source.root].inventory;
        let sector = u64::from(context.options.sector_bytes);
        let source_size = inventory.size(source.file);
        let mut parts = Extents::new(inventory.tree(), inventory.ino(source.file), source_size);
        let (mut offset, mut len) = (extent.offset, extent.len);
        let (mut at, mut wanted) = (source.offset, begin(extent).unwrap_or_default());
        // Some receivers cannot clone the first sector of a file alone.
        if at == 0 && len == sector {
            return self.write(context, target, extent, offset, len, writer);
        }
        // What ends within a sector can only be cloned to the end, and the file may have been
        // longer.
        if context.roots.len() > 1 && !extent.end().is_multiple_of(sector) {
            let (path, size) = (target.path, extent.offset);
            writer.command(&Command::Truncate { path, size })?;
        }
        while len > 0 && at < source_size {
            let part = parts.covering(at)?;
            let is_last = part.end() == source_size;
            if is_last && part.kind == ExtentKind::Hole {
                break;
            }
            let (mut part_len, mut found) = (part.end() - at, None);
            if part.id == extent.id
                && is_stored_alike(part.kind, extent.kind)
                && let Some(begin) = begin(&part)
            {
                (at, part_len, found) = (part.offset, part.len, Some(begin));
                if let Some(skip) = wanted.checked_sub(begin).filter(|skip| *skip < part_len) {
                    (at, part_len, found) = (at + skip, part_len - skip, Some(wanted));
                }
            }
            let shared = part_len.min(len);
            let source_end = at + shared;
            if found == Some(wanted) {
                // The end of a file that ends within a sector can only be cloned to the end of
                // another one.
                let ends_within = source_end == source_size
                    && !source_end.is_multiple_of(SECTOR_BYTES_MAX)
                    && offset + shared < target.size;
                let cloned = if ends_within {
                    shared - shared % SECTOR_BYTES_MAX
                } else {
                    shared
                };
                if cloned > 0 {
                    let part = CloneSource {
                        offset: at,
                        ..source
                    };
                    context.clone(target, offset, cloned, &part, writer)?;
                }
                if cloned < shared {
                    let (offset, len) = (offset + cloned, shared - cloned);
                    self.write(context, target, extent, offset, len, writer)?;
                }
            } else if is_last && !source_size.is_multiple_of(sector) && shared < len {
                break;
            } else {
                self.write(context, target, extent, offset, shared, writer)?;
            }
            len -= shared;
            offset += shared;
            at = source_end;
            wanted += shared;
            let is_own = source.root == 0 && source.file == target.file;
            if is_own && at >= target.done {
                break;
            }
        }
        if len > 0 {
            self.write(context, target, extent, offset, len, writer)?;
        }
        Ok(())
    }

    /// Sends a part of an extent that cannot be cloned.
    fn write<W: Write>(
        &mut self,
        context: &SendSettings<'_>,
        target: &SentFile<'_>,
        extent: &Extent,
        offset: u64,
        len: u64,
        writer: &mut StreamWriter<W>,
    ) -> Result<()> {
        let path = target.path;
        context.progress.advance(0, len);
        let whole_len = if offset + len == extent.end() {
            context.end_of(extent, target.size) - offset
        } else {
            len
        };
        match context.options.data {
            SendData::Nothing => {
                let (file_offset, size) = (offset, whole_len);
                return writer.command(&Command::UpdateExtent {
                    path,
                    file_offset,
                    size,
                });
            }
            SendData::AsStored if self.keep(context, target, extent, offset, len, writer)? => {
                return Ok(());
            }
            SendData::AsStored | SendData::Plain => {}
        }
        let bytes_max = write_bytes_max(writer.version());
        let inventory = context.sent().inventory;
        let ino = inventory.ino(target.file);
        let (mut offset, mut len) = (offset, whole_len);
        while len > 0 {
            let now = len.min(bytes_max);
            self.content.resize(now as usize, 0);
            if inventory.tree().read_at(ino, offset, &mut self.content)? as u64 != now {
                return Err(Error::Changed);
            }
            writer.command(&Command::Write {
                path,
                file_offset: offset,
                data: &self.content,
            })?;
            offset += now;
            len -= now;
        }
        Ok(())
    }

    /// Sends a part of an extent as it is stored, if it is encoded, a stream can hold it, and it is
    /// not longer than the part.
    fn keep<W: Write>(
        &mut self,
        context: &SendSettings<'_>,
        target: &SentFile<'_>,
        extent: &Extent,
        offset: u64,
        len: u64,
        writer: &mut StreamWriter<W>,
    ) -> Result<bool> {
        let ExtentKind::Encoded(encoding) = extent.kind else {
            return Ok(false);
        };
        let sector = u64::from(context.options.sector_bytes);
        let skipped = encoding.unencoded_offset + (offset - extent.offset);
        // Linux sends other parts of its own extents too; receivers decode them.
        let is_aligned = context.options.stored.is_some()
            || offset.is_multiple_of(sector)
                && skipped.is_multiple_of(sector)
                && (len.is_multiple_of(sector) || offset + len == target.size);
        let is_expressible = is_aligned
            && compression(encoding.algorithm).is_some()
            && encoding.stored_len <= len.min(ENCODED_BYTES_MAX)
            // Linux also sends what it stores compressed in a tree block without making it shorter.
            && (context.options.stored.is_some() || encoding.stored_len < encoding.unencoded_len)
            && encoding.unencoded_len <= ENCODED_BYTES_MAX;
        if !is_expressible {
            return Ok(false);
        }
        let inventory = context.sent().inventory;
        let ino = inventory.ino(target.file);
        let checksum = inventory
            .tree()
            .read_encoded(ino, extent, &mut self.buffer)?;
        if !encoding.algorithm.is_extent(&self.buffer) {
            return Ok(false);
        }
        let write = EncodedWrite {
            path: target.path,
            file_offset: offset,
            unencoded_file_len: len,
            unencoded_len: encoding.unencoded_len,
            unencoded_offset: skipped,
            compression: encoding.algorithm,
            // Linux names it for extents, and not for content in the inode's tree.
            encryption: extent.id.is_some().then_some(0),
            data: &self.buffer,
        };
        let (decoder, content) = (&mut self.decoder, &mut self.content);
        if checksum.is_none() && write.decode_exactly(decoder, content).is_err() {
            return Ok(false);
        }
        writer.command(&Command::EncodedWrite(write))?;
        self.kept += KeptCount::one(checksum, checksum.is_none());
        Ok(true)
    }
}

impl ShownRange {
    /// A part of a file that has data.
    fn of(
        root: usize,
        file: FileId,
        number: u64,
        extent: &Extent,
        sector: u64,
    ) -> Option<ShownRange> {
        Some(ShownRange {
            root,
            file,
            number,
            offset: extent.offset,
            len: extent.len.next_multiple_of(sector),
            begin: begin(extent)?,
            is_encoded: matches!(extent.kind, ExtentKind::Encoded(_)),
        })
    }
}

/// Calls `each` with all extents of the files of a subvolume.
fn for_each_extent(root: &CloneRoot<'_>, each: &mut dyn FnMut(FileId, &Extent)) -> Result<()> {
    let CloneRoot {
        inventory, order, ..
    } = *root;
    if !inventory.tree().storage().stored_extents {
        return Ok(());
    }
    for file in inventory.files() {
        if inventory.kind(file) != FileKind::Regular {
            continue;
        }
        let mut extents = Extents::new(inventory.tree(), inventory.ino(file), inventory.size(file));
        let mut next = || {
            extents
                .next()
                .map_err(|error| order.name_error(file, error))
        };
        while let Some(extent) = next()? {
            each(file, &extent);
        }
    }
    Ok(())
}

impl SendSettings<'_> {
    /// The subvolume that is sent.
    fn sent(&self) -> &CloneRoot<'_> {
        &self.roots[0]
    }

    /// Where an extent of a file ends. In an image, the content in an inode's tree fills its
    /// sector, or the file.
    pub(super) fn end_of(&self, extent: &Extent, size: u64) -> u64 {
        let is_inline = extent.id.is_none() && extent.kind.has_data();
        if !is_inline || self.options.stored.is_none() {
            return extent.end();
        }
        let sector = u64::from(self.options.sector_bytes);
        extent.end().next_multiple_of(sector).min(size)
    }

    /// Whether Linux clones an extent: one that ends within a sector must be the end of both files.
    fn can_clone(&self, target: &SentFile<'_>, extent: &Extent, source: &CloneSource) -> bool {
        let sector = u64::from(self.options.sector_bytes);
        let source_size = self.roots[source.root].inventory.size(source.file);
        extent.end().is_multiple_of(sector)
            || extent.end() == target.size
                && source.offset.checked_add(extent.len) == Some(source_size)
    }

    fn clone<W: Write>(
        &self,
        target: &SentFile<'_>,
        offset: u64,
        len: u64,
        source: &CloneSource,
        writer: &mut StreamWriter<W>,
    ) -> Result<()> {
        let root = &self.roots[source.root];
        let path;
        let clone_path = if source.root > 0 {
            path = root.order.first_path(source.file)?;
            &path
        } else if source.file == target.file {
            target.path
        } else {
            path = (self.path)(source.file)?;
            &path
        };
        writer.command(&Command::Clone {
            file_offset: offset,
            clone_len: len,
            path: target.path,
            clone_uuid: root.uuid,
            clone_ctransid: root.ctransid,
            clone_path,
            clone_offset: source.offset,
        })
    }
}
