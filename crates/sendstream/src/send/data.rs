//! Sending the data of files: which extents are cloned, copied as they are stored, or written plain.

use std::collections::HashMap;
use std::io::Write;

use codec::Decoder;
use tree::{
    Error, Extent, ExtentId, ExtentKind, Extents, FileId, FileKind, FileSystem, Inventory, Kept,
    Progress, Result,
};

use super::order::Order;
use super::{SendData, SendOptions};
use crate::command::{Command, compression};
use crate::encoded::{ENCODED_BYTES_MAX, EncodedWrite};
use crate::raw::Version;
use crate::writer::StreamWriter;

/// The most plain bytes in one command of Linux.
const WRITE_BYTES_V1: u64 = 48 << 10;
const WRITE_BYTES_V2: u64 = 128 << 10;
/// Extents with more references are not cloned.
const REFERENCES_MAX: usize = 1024;
/// The largest sectors that a receiving file system can have.
const SECTOR_BYTES_MAX: u64 = 64 << 10;

/// A part of a file that was sent, and that shows an extent which other parts show too.
struct Shown {
    file: FileId,
    number: u64,
    offset: u64,
    /// In whole sectors.
    len: u64,
    /// Where in the extent it begins.
    begin: u64,
    is_encoded: bool,
}

/// What is known of data while it is sent.
pub(super) struct Data {
    /// The extents that several parts of files show, in ascending order.
    shared: Vec<ExtentId>,
    sent: HashMap<ExtentId, Vec<Shown>>,
    decoder: Decoder,
    buffer: Vec<u8>,
    content: Vec<u8>,
    pub(super) kept: Kept,
}

/// A regular file whose data is being sent.
pub(super) struct Target<'a> {
    pub(super) file: FileId,
    pub(super) path: &'a [u8],
    pub(super) size: u64,
    /// Where the last part that was sent ends.
    pub(super) end: u64,
}

/// Where else the data of an extent is.
struct Source {
    file: FileId,
    offset: u64,
}

/// All that does not change.
pub(super) struct Context<'a> {
    pub(super) fs: &'a dyn FileSystem,
    pub(super) inventory: &'a Inventory,
    pub(super) options: &'a SendOptions<'a>,
    pub(super) order: &'a Order<'a>,
    pub(super) progress: &'a dyn Progress,
}

/// Where in the stored or decoded extent a part of a file begins; `None` for a part without data.
fn begin(extent: &Extent) -> Option<u64> {
    match extent.kind {
        ExtentKind::Plain { stored_offset } => Some(stored_offset),
        ExtentKind::Encoded(encoding) => Some(encoding.unencoded_offset),
        ExtentKind::Hole | ExtentKind::Preallocated { .. } => None,
    }
}

impl Data {
    /// Finds the extents that are shared within the tree.
    pub(super) fn new(
        fs: &dyn FileSystem,
        inventory: &Inventory,
        order: &Order<'_>,
    ) -> Result<Data> {
        let mut ids: Vec<ExtentId> = Vec::new();
        if fs.storage().stored_extents {
            for file in inventory.files() {
                if inventory.kind(file) != FileKind::Regular {
                    continue;
                }
                let mut extents = Extents::new(fs, inventory.ino(file), inventory.size(file));
                let mut next = || {
                    extents
                        .next()
                        .map_err(|error| order.name_error(file, error))
                };
                while let Some(extent) = next()? {
                    ids.extend(extent.id.filter(|_| extent.kind.has_data()));
                }
            }
        }
        ids.sort_unstable();
        let shared = ids.chunk_by(|a, b| a == b);
        let shared = shared.filter(|same| (2..=REFERENCES_MAX).contains(&same.len()));
        Ok(Data {
            shared: shared.map(|same| same[0]).collect(),
            sent: HashMap::new(),
            decoder: Decoder::new(),
            buffer: Vec::new(),
            content: Vec::new(),
            kept: Kept::default(),
        })
    }

    /// Sends all data of a file.
    pub(super) fn send<W: Write>(
        &mut self,
        context: &Context<'_>,
        target: &mut Target<'_>,
        writer: &mut StreamWriter<W>,
    ) -> Result<()> {
        let (fs, inventory) = (context.fs, context.inventory);
        let sector = u64::from(context.options.sector_bytes);
        let mut extents = Extents::new(fs, inventory.ino(target.file), target.size);
        while let Some(extent) = extents.next()? {
            let Some(begin) = begin(&extent) else {
                continue;
            };
            let is_aligned = extent.offset.is_multiple_of(sector) && begin.is_multiple_of(sector);
            let id = extent.id.filter(|_| is_aligned);
            let id = id.filter(|id| self.shared.binary_search(id).is_ok());
            let source = id.and_then(|id| self.source(context, target, &extent, id, begin));
            match source {
                Some(source) if context.can_clone(target, &extent, &source) => {
                    self.clone_parts(context, target, &extent, source, writer)?;
                }
                _ => self.write(context, target, &extent, extent.offset, extent.len, writer)?,
            }
            target.end = extent.end();
            if let Some(id) = id {
                let shown = Shown {
                    file: target.file,
                    number: context.order.number(target.file),
                    offset: extent.offset,
                    len: extent.len.next_multiple_of(sector),
                    begin,
                    is_encoded: matches!(extent.kind, ExtentKind::Encoded(_)),
                };
                self.sent.entry(id).or_default().push(shown);
            }
        }
        Ok(())
    }

    /// The part that shows most of an extent, among those that were sent; the first one that shows all that is wanted.
    fn source(
        &self,
        context: &Context<'_>,
        target: &Target<'_>,
        extent: &Extent,
        id: ExtentId,
        begin: u64,
    ) -> Option<Source> {
        let mut found: Vec<&Shown> = self.sent.get(&id)?.iter().collect();
        // The order of references in an extent tree, where each names the begin of its extent.
        found.sort_by_key(|shown| {
            let origin = shown.offset.wrapping_sub(shown.begin);
            (shown.number, origin, shown.offset)
        });
        let number = context.order.number(target.file);
        let origin = extent.offset.wrapping_sub(begin);
        let mut best: Option<(&Shown, u64)> = None;
        for shown in found {
            // One reference in the extent tree stands for all parts of a file that begin at one place.
            if shown.number == number && shown.offset.wrapping_sub(shown.begin) == origin {
                continue;
            }
            let mut offset = shown.offset;
            if !shown.is_encoded {
                if !(shown.begin..shown.begin + shown.len).contains(&begin) {
                    continue;
                }
                offset += begin - shown.begin;
            }
            if shown.number == number && offset.saturating_add(extent.len) > target.end {
                continue;
            }
            if best.is_none_or(|(best, _)| shown.len > best.len) {
                best = Some((shown, offset));
                if shown.len >= extent.len {
                    break;
                }
            }
        }
        best.map(|(shown, offset)| Source {
            file: shown.file,
            offset,
        })
    }

    /// Clones an extent from where else it is, and writes what cannot be cloned.
    fn clone_parts<W: Write>(
        &mut self,
        context: &Context<'_>,
        target: &Target<'_>,
        extent: &Extent,
        source: Source,
        writer: &mut StreamWriter<W>,
    ) -> Result<()> {
        let (fs, inventory) = (context.fs, context.inventory);
        let sector = u64::from(context.options.sector_bytes);
        let source_size = inventory.size(source.file);
        let mut parts = Extents::new(fs, inventory.ino(source.file), source_size);
        let (mut offset, mut len) = (extent.offset, extent.len);
        let (mut at, mut wanted) = (source.offset, begin(extent).unwrap_or_default());
        // Some receivers cannot clone the first sector of a file alone.
        if at == 0 && len == sector {
            return self.write(context, target, extent, offset, len, writer);
        }
        while len > 0 && at < source_size {
            let part = parts.covering(at)?;
            let is_last = part.end() == source_size;
            if is_last && part.kind == ExtentKind::Hole {
                break;
            }
            let (mut part_len, mut found) = (part.end() - at, None);
            if part.id == extent.id
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
                // The end of a file that ends within a sector can only be cloned to the end of another one.
                let ends_within = source_end == source_size
                    && !source_end.is_multiple_of(SECTOR_BYTES_MAX)
                    && offset + shared < target.size;
                let cloned = if ends_within {
                    shared - shared % SECTOR_BYTES_MAX
                } else {
                    shared
                };
                if cloned > 0 {
                    context.clone(target, offset, cloned, source.file, at, writer)?;
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
            if source.file == target.file && at >= target.end {
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
        context: &Context<'_>,
        target: &Target<'_>,
        extent: &Extent,
        offset: u64,
        len: u64,
        writer: &mut StreamWriter<W>,
    ) -> Result<()> {
        let path = target.path;
        context.progress.advance(0, len);
        match context.options.data {
            SendData::Nothing => {
                let (file_offset, size) = (offset, len);
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
        let bytes_max = match writer.version() {
            Version::V1 => WRITE_BYTES_V1,
            _ => WRITE_BYTES_V2,
        };
        let ino = context.inventory.ino(target.file);
        let (mut offset, mut len) = (offset, len);
        while len > 0 {
            let now = len.min(bytes_max);
            self.content.resize(now as usize, 0);
            if context.fs.read_at(ino, offset, &mut self.content)? as u64 != now {
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

    /// Sends a part of an extent as it is stored, if it is encoded, a stream can hold it, and it is not longer than the part.
    fn keep<W: Write>(
        &mut self,
        context: &Context<'_>,
        target: &Target<'_>,
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
        let is_aligned = context.options.names.is_some()
            || offset.is_multiple_of(sector)
                && skipped.is_multiple_of(sector)
                && (len.is_multiple_of(sector) || offset + len == target.size);
        let is_expressible = is_aligned
            && compression(encoding.algorithm).is_some()
            && encoding.stored_len <= len.min(ENCODED_BYTES_MAX)
            && encoding.stored_len < encoding.unencoded_len
            && encoding.unencoded_len <= ENCODED_BYTES_MAX;
        if !is_expressible {
            return Ok(false);
        }
        let ino = context.inventory.ino(target.file);
        let checksum = context.fs.read_encoded(ino, extent, &mut self.buffer)?;
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
        self.kept += Kept::one(checksum, checksum.is_none());
        Ok(true)
    }
}

impl Context<'_> {
    /// Whether Linux clones an extent: one that ends within a sector must be the end of both files.
    fn can_clone(&self, target: &Target<'_>, extent: &Extent, source: &Source) -> bool {
        let sector = u64::from(self.options.sector_bytes);
        extent.end().is_multiple_of(sector)
            || extent.end() == target.size
                && source.offset.checked_add(extent.len) == Some(self.inventory.size(source.file))
    }

    fn clone<W: Write>(
        &self,
        target: &Target<'_>,
        offset: u64,
        len: u64,
        source: FileId,
        at: u64,
        writer: &mut StreamWriter<W>,
    ) -> Result<()> {
        let path;
        let clone_path = if source == target.file {
            target.path
        } else {
            path = self.order.first_path(source)?;
            &path
        };
        writer.command(&Command::Clone {
            file_offset: offset,
            clone_len: len,
            path: target.path,
            clone_uuid: self.options.uuid,
            clone_ctransid: self.options.ctransid,
            clone_path,
            clone_offset: at,
        })
    }
}
