//! zstd:chunked: layers whose table of contents says where each part of each file is stored, so
//! that a file is read without the layer (containers/storage, `pkg/chunked`).
//!
//! The layer is a tar archive in zstd frames of its own for each part of a file, so any program can
//! read it. The table describes all members, and the digest of the table is in the manifest. Here
//! the archive is put together from the table: headers are made of its entries, and content is
//! decoded when it is read. Nothing else of the layer is read.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use codec::{Algorithm, Decoder, Wrapper};
use tree::json::Json;
use tree::tar::member_header;
use tree::{
    Cache, Device, FileKind, Metadata, ReadAt, Result, Sha256, Time, Xattr, base64, days, to_u64,
    to_usize,
};

use crate::descriptor::{Digest, TablePlace};

/// Maximum length of a table as it is stored, which is held in memory.
const TABLE_BYTES_MAX: u64 = 64 << 20;
/// Maximum length of its text. Podman reads at most 150 MiB.
const TEXT_BYTES_MAX: u64 = 1 << 30;
/// Maximum length of an entry's text: attributes of 64 KiB, as many as Linux lists.
const ENTRY_BYTES_MAX: usize = 4 << 20;
/// Maximum length of the text around the entries.
const FRAME_BYTES_MAX: usize = 4 << 10;

/// Maximum length of a part. Writers divide content where a rolling sum says so, usually after
/// 64 KiB, but content that repeats itself never.
const PART_BYTES_MAX: u64 = 16 << 20;

/// Parts that are kept decoded, for each of a few threads.
const CACHED: (usize, usize) = (4, 2);

const BLOCK_BYTES: u64 = 512;
/// Where a part is stored, its length there and its content's, and the digest of that.
const PART_RECORD_BYTES: usize = 56;

/// In a place in the unnamed file: the record of a part is there, not a header.
const IS_PART: u64 = 1 << 63;

/// A table that was read: the archive that it describes.
pub(crate) struct Table {
    /// Where in the archive each header or part begins, and where in the unnamed file its bytes or
    /// its record are.
    segments: Vec<(u64, u64)>,
    archive_bytes: u64,
}

impl Table {
    /// Reads the table of a layer, and writes headers and records into the unnamed file at
    /// `spool_at`. `None` for a table with which the layer cannot be read in place: then it is read
    /// as a whole.
    ///
    /// # Errors
    /// The table does not have its digest, or it cannot be read.
    pub(crate) fn read(
        stored: &dyn ReadAt,
        place: TablePlace,
        out: &mut dyn Write,
        spool_at: u64,
    ) -> Result<Option<Table>> {
        if place.len > TABLE_BYTES_MAX {
            return Ok(None);
        }
        let mut bytes = vec![0; to_usize(place.len)];
        stored.read_exact_at(&mut bytes, place.at)?;
        let mut sum = Sha256::new();
        sum.update(&bytes);
        place.digest.check(sum)?;
        let mut parser = TableText {
            depth: 0,
            in_text: false,
            is_escaped: false,
            text_bytes: 0,
            frame: Vec::new(),
            entry: Vec::new(),
            builder: Builder {
                out,
                spool_at,
                content_end: place.at,
                table: Table {
                    segments: Vec::new(),
                    archive_bytes: 0,
                },
                file: None,
            },
            written: Ok(()),
        };
        let parsed = Wrapper::Zstd.decompress(&mut &*bytes, &mut parser);
        // The disk is to blame, not the table.
        std::mem::replace(&mut parser.written, Ok(()))?;
        Ok(parsed.ok().and_then(|_| parser.finish()))
    }
}

/// Divides the text of a table into its entries.
struct TableText<'o> {
    depth: u32,
    in_text: bool,
    is_escaped: bool,
    text_bytes: u64,
    /// The text around the entries.
    frame: Vec<u8>,
    entry: Vec<u8>,
    builder: Builder<'o>,
    /// Whether the unnamed file was written.
    written: io::Result<()>,
}

impl TableText<'_> {
    /// Takes a byte of the text. `None` if it is no table.
    fn take(&mut self, byte: u8) -> Option<io::Result<()>> {
        /// Of an entry: a list in an object is around it.
        const ENTRY_DEPTH: u32 = 3;
        let was_inside = self.depth >= ENTRY_DEPTH;
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' if self.in_text => self.is_escaped = true,
            b'"' => self.in_text = !self.in_text,
            _ if self.in_text => {}
            b'{' | b'[' => self.depth = self.depth.checked_add(1)?,
            b'}' | b']' => self.depth = self.depth.checked_sub(1)?,
            b',' | b' ' | b'\n' if self.depth < ENTRY_DEPTH && self.depth > 1 => {
                return Some(Ok(()));
            }
            _ => {}
        }
        let is_inside = was_inside || self.depth >= ENTRY_DEPTH;
        let (text, len_max) = if is_inside {
            (&mut self.entry, ENTRY_BYTES_MAX)
        } else {
            (&mut self.frame, FRAME_BYTES_MAX)
        };
        if text.len() >= len_max {
            return None;
        }
        text.push(byte);
        if was_inside && self.depth < ENTRY_DEPTH {
            let entry = Json::parse(&self.entry)?;
            self.entry.clear();
            return self.builder.add(&entry);
        }
        Some(Ok(()))
    }

    fn finish(mut self) -> Option<Table> {
        let frame = Json::parse(&self.frame)?;
        let Json::Object(fields) = &frame else {
            return None;
        };
        let is_list = |json: &&(String, Json)| matches!(json.1, Json::List(_) | Json::Object(_));
        let is_table = frame.field("version") == Some(&Json::Number(1))
            && matches!(frame.field("entries"), Some(Json::List(_)))
            && fields.iter().filter(is_list).count() == 1;
        self.written = self.builder.end_file()?;
        (is_table && self.written.is_ok()).then_some(self.builder.table)
    }
}

impl Write for TableText<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.text_bytes = self.text_bytes.saturating_add(to_u64(buf.len()));
        if self.text_bytes > TEXT_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        for byte in buf {
            self.written = self.take(*byte).ok_or(io::ErrorKind::InvalidData)?;
            if self.written.is_err() {
                return Err(io::ErrorKind::Other.into());
            }
        }
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Puts the archive together.
struct Builder<'o> {
    out: &'o mut dyn Write,
    spool_at: u64,
    /// Where the stored content ends.
    content_end: u64,
    table: Table,
    /// The last file with content, whose parts follow.
    file: Option<PartedFile>,
}

/// A file whose last part is not yet known to its end.
struct PartedFile {
    name: String,
    size: u64,
    /// Where its content ends in the layer.
    stored_end: u64,
    /// Bytes of the parts before the last.
    covered: u64,
    last: Part,
}

/// A part of a file's content.
#[derive(Clone, Copy)]
struct Part {
    at: u64,
    len: u64,
    digest: Digest,
}

/// `None` for an entry that does not describe a member as whole as its header in the layer, or
/// content that is not all there.
type Added = Option<io::Result<()>>;

impl Builder<'_> {
    fn add(&mut self, entry: &Json) -> Added {
        let name = text(entry, "name")?;
        if entry.text("type") == Some("chunk") {
            let file = self.file.as_mut().filter(|file| file.name == name)?;
            let covered = file.covered.checked_add(file.last.len)?;
            let next = Part::parse(entry, "chunkDigest", number(entry, "chunkSize")?)?;
            if covered != number(entry, "chunkOffset")? {
                return None;
            }
            let before = std::mem::replace(&mut file.last, next);
            file.covered = covered;
            return self.push_part(before, next.at);
        }
        if let Err(error) = self.end_file()? {
            return Some(Err(error));
        }
        let (kind, is_hard_link) = match entry.text("type")? {
            "reg" => (FileKind::Regular, false),
            "hardlink" => (FileKind::Regular, true),
            "dir" => (FileKind::Directory, false),
            "symlink" => (FileKind::Symlink, false),
            "char" => (FileKind::CharDevice, false),
            "block" => (FileKind::BlockDevice, false),
            "fifo" => (FileKind::Fifo, false),
            _ => return None,
        };
        let mut metadata =
            Metadata::new(kind, u16::try_from(number(entry, "mode")? & 0o7777).ok()?);
        let short = |name| u32::try_from(number(entry, name)?).ok();
        (metadata.uid, metadata.gid) = (short("uid")?, short("gid")?);
        let (major, minor) = (short("devMajor")?, short("devMinor")?);
        metadata.rdev = Device { major, minor };
        if let Some(time) = entry.field("modtime") {
            metadata.mtime = match time {
                Json::Text(time) => moment(time)?,
                _ => return None,
            };
        }
        if kind == FileKind::Regular && !is_hard_link {
            metadata.size = number(entry, "size")?;
        }
        let target = text(entry, "linkName")?;
        let target = target.into_bytes();
        let xattrs = xattrs(entry)?;
        let header = member_header(name.as_bytes(), &metadata, is_hard_link, target, xattrs);
        if metadata.size > 0 {
            let size = number(entry, "chunkSize")?;
            let first = match size {
                0 => Part::parse(entry, "digest", metadata.size)?,
                size => Part::parse(entry, "chunkDigest", size)?,
            };
            self.file = Some(PartedFile {
                name,
                size: metadata.size,
                stored_end: number(entry, "endOffset")?,
                covered: 0,
                last: first,
            });
        }
        self.push(&header, to_u64(header.len()), 0)
    }

    /// Adds the last part of the last file.
    fn end_file(&mut self) -> Added {
        let Some(file) = self.file.take() else {
            return Some(Ok(()));
        };
        if file.covered.checked_add(file.last.len)? != file.size {
            return None;
        }
        let added = self.push_part(file.last, file.stored_end)?;
        let end = self.table.archive_bytes;
        self.table.archive_bytes = end.checked_next_multiple_of(BLOCK_BYTES)?;
        Some(added)
    }

    fn push_part(&mut self, part: Part, stored_end: u64) -> Added {
        let stored_len = stored_end.checked_sub(part.at)?;
        let fits = (1..=PART_BYTES_MAX).contains(&part.len)
            && (1..=PART_BYTES_MAX).contains(&stored_len)
            && stored_end <= self.content_end;
        if !fits {
            return None;
        }
        let mut record = Vec::with_capacity(PART_RECORD_BYTES);
        for number in [part.at, stored_len, part.len] {
            record.extend(number.to_le_bytes());
        }
        record.extend(part.digest.bytes());
        self.push(&record, part.len, IS_PART)
    }

    /// Adds a segment that is `len` bytes long in the archive.
    fn push(&mut self, spooled: &[u8], len: u64, kind: u64) -> Added {
        let Table {
            segments,
            archive_bytes,
        } = &mut self.table;
        segments.push((*archive_bytes, self.spool_at | kind));
        *archive_bytes = archive_bytes.checked_add(len)?;
        self.spool_at = self.spool_at.checked_add(to_u64(spooled.len()))?;
        Some(self.out.write_all(spooled))
    }
}

impl Part {
    fn parse(entry: &Json, digest: &str, len: u64) -> Option<Part> {
        Some(Part {
            at: number(entry, "offset").filter(|&at| at > 0)?,
            len,
            digest: Digest::parse(entry.text(digest)?).ok()?,
        })
    }

    fn of_record(record: &[u8; PART_RECORD_BYTES]) -> (Part, u64) {
        let ([at, stored_len, len, digest @ ..], _) = record.as_chunks::<8>() else {
            unreachable!("seven words");
        };
        let mut bytes = [0; 32];
        for (to, from) in bytes.chunks_exact_mut(8).zip(digest) {
            to.copy_from_slice(from);
        }
        let part = Part {
            at: u64::from_le_bytes(*at),
            len: u64::from_le_bytes(*len),
            digest: Digest::of_bytes(bytes),
        };
        (part, u64::from_le_bytes(*stored_len))
    }
}

/// A number, which is absent if it is 0.
fn number(entry: &Json, name: &str) -> Option<u64> {
    match entry.field(name) {
        None => Some(0),
        Some(Json::Number(number)) => Some(*number),
        Some(_) => None,
    }
}

/// A text, which is absent if it is empty. Tables have U+FFFD where a name is not UTF-8, so that
/// only the archive in the layer has the name.
fn text(entry: &Json, name: &str) -> Option<String> {
    match entry.field(name) {
        None => Some(String::new()),
        Some(Json::Text(text)) => (!text.contains(['\u{fffd}', '\0'])).then(|| text.clone()),
        Some(_) => None,
    }
}

fn xattrs(entry: &Json) -> Option<Vec<Xattr>> {
    let xattrs = match entry.field("xattrs") {
        None => return Some(Vec::new()),
        Some(Json::Object(xattrs)) => xattrs.iter(),
        Some(_) => return None,
    };
    let xattrs = xattrs.map(|(name, value)| match value {
        Json::Text(value) if !name.contains(['\u{fffd}', '\0']) => Some(Xattr {
            name: name.as_bytes().into(),
            value: base64::decode(value.as_bytes())?.into(),
        }),
        _ => None,
    });
    xattrs.collect()
}

/// A time as in RFC 3339: `2026-11-27T22:19:41.25+01:00`.
fn moment(words: &str) -> Option<Time> {
    let digits = |at: usize, len: usize| -> Option<i64> {
        let digits = words.get(at..at.checked_add(len)?)?;
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().ok())?
    };
    let sign_at = |at: usize, sign: u8| (words.as_bytes().get(at) == Some(&sign)).then_some(());
    for (at, sign) in [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')] {
        sign_at(at, sign)?;
    }
    let days = days(digits(0, 4)?, digits(5, 2)?, digits(8, 2)?)?;
    let rest = words.get(19..)?;
    let zone_at = rest.find(['Z', '+', '-'])?;
    let (fraction, zone) = rest.split_at(zone_at);
    let nanoseconds = match fraction.strip_prefix('.') {
        None if fraction.is_empty() => 0,
        Some(fraction) if fraction.len() <= 9 && fraction.bytes().all(|it| it.is_ascii_digit()) => {
            format!("{fraction:0<9}").parse().ok()?
        }
        _ => return None,
    };
    let minutes = match zone {
        "Z" => 0,
        zone => {
            let (hours, minutes) = zone.get(1..)?.split_once(':')?;
            let minutes = hours
                .parse::<i64>()
                .ok()?
                .checked_mul(60)?
                .checked_add(minutes.parse().ok()?)?;
            if zone.starts_with('-') {
                minutes.checked_neg()?
            } else {
                minutes
            }
        }
    };
    let of_day = [(11, 3600), (14, 60), (17, 1)]
        .iter()
        .try_fold(0i64, |sum, &(at, unit)| {
            sum.checked_add(digits(at, 2)?.checked_mul(unit)?)
        })?;
    let seconds = days.checked_mul(86_400)?.checked_add(of_day)?;
    Some(Time {
        seconds: seconds.checked_sub(minutes.checked_mul(60)?)?,
        nanoseconds,
    })
}

/// The archive of a layer, put together from its table.
pub(crate) struct ChunkedLayer {
    stored: Arc<dyn ReadAt>,
    /// The unnamed file.
    file: Arc<File>,
    table: Table,
    parts: Cache<Vec<u8>>,
    decoders: Mutex<Vec<Decoder>>,
}

impl ChunkedLayer {
    pub(crate) fn new(stored: Arc<dyn ReadAt>, file: Arc<File>, table: Table) -> ChunkedLayer {
        ChunkedLayer {
            stored,
            file,
            table,
            parts: Cache::new(CACHED.0, CACHED.1),
            decoders: Mutex::default(),
        }
    }

    /// Decodes a part whose record is at this place of the unnamed file.
    fn decode(&self, record_at: u64) -> io::Result<Vec<u8>> {
        let mut record = [0; PART_RECORD_BYTES];
        ReadAt::read_exact_at(&*self.file, &mut record, record_at)?;
        let (part, stored_len) = Part::of_record(&record);
        let mut stored = vec![0; to_usize(stored_len)];
        self.stored.read_exact_at(&mut stored, part.at)?;
        let mut content = vec![0; to_usize(part.len)];
        let lock = || self.decoders.lock().unwrap_or_else(PoisonError::into_inner);
        let mut decoder = lock().pop().unwrap_or_default();
        let decoded = decoder.decompress(Algorithm::Zstd, &mut content, &stored);
        lock().push(decoder);
        let wrong = |what: String| {
            let words = format!("part of a file at byte {} of its layer {what}", part.at);
            io::Error::new(io::ErrorKind::InvalidData, words)
        };
        let len = decoded.map_err(|error| wrong(format!("cannot be decoded: {error}")))?;
        let mut sum = Sha256::new();
        sum.update(&content);
        if len != content.len() || part.digest.check(sum).is_err() {
            return Err(wrong(
                "does not have the digest in the table of contents".to_owned(),
            ));
        }
        Ok(content)
    }
}

impl ReadAt for ChunkedLayer {
    fn read_exact_at(&self, mut buf: &mut [u8], mut at: u64) -> io::Result<()> {
        let segments = &self.table.segments;
        while !buf.is_empty() {
            if at >= self.table.archive_bytes {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // The first one begins at 0.
            let after = segments.partition_point(|&(begin, _)| begin <= at);
            let number = after.saturating_sub(1);
            let (begin, spooled) = segments.get(number).copied().unwrap_or_default();
            let end = segments
                .get(after)
                .map_or(self.table.archive_bytes, |next| next.0);
            let skipped = at.saturating_sub(begin);
            let len = to_usize(end.saturating_sub(at)).min(buf.len());
            let (piece, rest) = buf.split_at_mut(len);
            if spooled & IS_PART == 0 {
                let at = spooled.saturating_add(skipped);
                ReadAt::read_exact_at(&*self.file, piece, at)?;
            } else {
                let decode = |_| self.decode(spooled & !IS_PART);
                let content = self.parts.find_or_make(to_u64(number), decode)?;
                // Zeros fill the last block of a file.
                let content = content.get(to_usize(skipped)..).unwrap_or_default();
                let (with_content, zeros) = piece.split_at_mut(content.len().min(len));
                with_content.copy_from_slice(content.get(..with_content.len()).unwrap_or_default());
                zeros.fill(0);
            }
            buf = rest;
            at = at.saturating_add(to_u64(len));
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.table.archive_bytes)
    }

    /// Headers are read without the content behind them.
    fn window_bytes(&self) -> usize {
        to_usize(BLOCK_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_have_zones_and_fractions() {
        let time = |seconds, nanoseconds| {
            Some(Time {
                seconds,
                nanoseconds,
            })
        };
        for (words, expected) in [
            ("1970-01-01T00:00:00Z", time(0, 0)),
            (
                "2001-09-09T03:46:40.25+02:00",
                time(1_000_000_000, 250_000_000),
            ),
            (
                "2001-09-08T22:16:40.000000001-03:30",
                time(1_000_000_000, 1),
            ),
            ("1969-12-31T23:59:59.5Z", time(-1, 500_000_000)),
            ("0001-01-01T00:00:00Z", time(-62_135_596_800, 0)),
            ("2001-02-29T00:00:00Z", None),
            ("2001-01-01T00:00:00", None),
            ("2001-01-01 00:00:00Z", None),
            ("2001-01-01T00:00:00.0000000001Z", None),
            ("", None),
        ] {
            assert_eq!(moment(words), expected, "{words}");
        }
    }
}
