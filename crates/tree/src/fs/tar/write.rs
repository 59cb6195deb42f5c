//! Writes a tree as a tar archive, sequentially in one pass, so that the output can be a pipe.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::iter::Peekable;
use std::sync::{Arc, Mutex, PoisonError};

use super::Fragment;
use super::header::BLOCK;
use super::ustar::{self, OCTAL_7_MAX, OCTAL_11_MAX, TypeFlag};

use crate::{
    EntryId, Error, Extents, FileId, FileKind, FileSystem, Ino, Inventory, Metadata, Parallel,
    Progress, Result, Time, Xattr, ordered,
};

/// Content bytes per job. Larger files take several jobs.
const CHUNK_BYTES: u64 = 1 << 20;

/// Small files are processed together, up to this many entries or bytes: handing a file over costs as much as reading
/// it.
const BATCH_ENTRIES_MAX: usize = 64;
const BATCH_BYTES_MIN: u64 = 128 << 10;

/// Maximum number of fragments per file. If there are more, the smallest holes between them are stored as zeros.
const FRAGMENTS_MAX: usize = 1 << 20;

/// The largest holes that are stored as zeros. Larger ones would make an archive much larger than its source.
const FILLED_BYTES_MAX: u64 = 64 << 10;

/// How many bytes are collected before they are written.
const OUTPUT_BUFFER_BYTES: usize = 256 << 10;

/// A summary of what was written.
#[derive(Debug, Default)]
pub struct Summary {
    /// Entries in the archive: files of all types, and hard links.
    pub entries: u64,
    /// Bytes of file content, without holes.
    pub content_bytes: u64,
    /// Bytes of the archive.
    pub archive_bytes: u64,
    /// Paths of sockets, which tar cannot hold and which were left out.
    pub sockets: Vec<Vec<u8>>,
    /// Paths of files that could not be read and were left out, with the reason. If such a path is that of a directory,
    /// it is there without its extended attributes.
    pub unreadable: Vec<(Vec<u8>, Error)>,
    /// Paths of files with zeros in place of content that could be read at first and could not later, with the reason.
    pub damaged: Vec<(Vec<u8>, Error)>,
}

/// Writes the tree `fs`, whose inventory is `inventory`, as a PAX archive. The same tree gives the same bytes.
///
/// The archive stores content with holes, permissions, numeric owners, modification times in nanoseconds, link
/// targets, device numbers, extended attributes and hard links. It does not store other times or file attributes.
///
/// With `skip_unreadable`, files that cannot be read are left out. What is written cannot be taken back, so files of
/// more than one part or name are read once before.
///
/// # Errors
/// [`Error::File`] if a file cannot be read or became shorter while it was read; [`Error::Io`] if `out` cannot be
/// written. What was written to `out` before an error is not a valid archive.
pub fn write(
    fs: &dyn FileSystem,
    inventory: &Inventory,
    skip_unreadable: bool,
    parallel: Parallel,
    progress: &dyn Progress,
    out: &mut dyn Write,
) -> Result<Summary> {
    let mut summary = Summary::default();
    let mut out = io::BufWriter::with_capacity(OUTPUT_BUFFER_BYTES, out);
    let spare = Mutex::new(Vec::new());
    let mut reader = Reader {
        fs,
        inventory,
        skip_unreadable,
        lost: HashSet::new(),
    };
    if skip_unreadable {
        reader.lost = reader.find_lost(parallel, &mut summary)?;
    }
    ordered(
        parallel,
        Jobs {
            reader: &reader,
            names: inventory.names().peekable(),
            rest: None,
        },
        || (),
        |(), job| {
            let spare_buffer = spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut bytes: Vec<u8> = spare_buffer.unwrap_or_default();
            bytes.clear();
            reader.work(job?, bytes)
        },
        |piece: Piece| {
            summary.entries += piece.entries;
            summary.sockets.extend(piece.sockets);
            summary.unreadable.extend(piece.unreadable);
            summary.damaged.extend(piece.damaged);
            summary.content_bytes += piece.content_bytes;
            summary.archive_bytes += piece.bytes.len() as u64;
            out.write_all(&piece.bytes)?;
            progress.advance(piece.entries, piece.content_bytes);
            spare
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(piece.bytes);
            Ok(())
        },
    )?;
    out.write_all(&[0; 2 * BLOCK as usize])?;
    out.flush()?;
    summary.archive_bytes += 2 * BLOCK;
    Ok(summary)
}

/// A unit of work.
enum Job {
    /// The headers of some entries, with their content.
    Entries(Vec<EntryId>),
    /// The header of a large file.
    Large(EntryId, Arc<Plan>),
    /// A part of the stored bytes of a large file.
    Part {
        entry: EntryId,
        plan: Arc<Plan>,
        from: u64,
        to: u64,
    },
}

/// A piece of the archive.
#[derive(Default)]
struct Piece {
    bytes: Vec<u8>,
    content_bytes: u64,
    entries: u64,
    sockets: Vec<Vec<u8>>,
    unreadable: Vec<(Vec<u8>, Error)>,
    damaged: Vec<(Vec<u8>, Error)>,
}

/// Which bytes of a regular file are stored.
struct Plan {
    fragments: Vec<Fragment>,
    size: u64,
    stored_len: u64,
}

struct Jobs<'a, Names: Iterator> {
    reader: &'a Reader<'a>,
    names: Peekable<Names>,
    /// The large file that is being cut into parts, and where the next part begins.
    rest: Option<(EntryId, Arc<Plan>, u64)>,
}

impl<Names: Iterator<Item = EntryId>> Iterator for Jobs<'_, Names> {
    type Item = Result<Job>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some((entry, plan, from)) = self.rest.take() {
            let to = plan.stored_len.min(from + CHUNK_BYTES);
            if to < plan.stored_len {
                self.rest = Some((entry, Arc::clone(&plan), to));
            }
            return Some(Ok(Job::Part {
                entry,
                plan,
                from,
                to,
            }));
        }
        let reader = self.reader;
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < BATCH_ENTRIES_MAX && bytes < BATCH_BYTES_MIN {
            let Some(entry) = self.names.next_if(|&entry| !reader.is_large(entry)) else {
                break;
            };
            bytes += reader.content_bytes(entry);
            batch.push(entry);
        }
        if !batch.is_empty() {
            return Some(Ok(Job::Entries(batch)));
        }
        let entry = self.names.next()?;
        let inventory = reader.inventory;
        let file = inventory.file(entry);
        if reader.lost.contains(&file) {
            return Some(Ok(Job::Entries(Vec::new())));
        }
        let plan = reader.plan(inventory.ino(file), inventory.size(file));
        Some(
            match plan.map_err(|error| error.in_file("read", &inventory.path(entry))) {
                Err(error) => Err(error),
                Ok(plan) => {
                    let plan = Arc::new(plan);
                    if plan.stored_len > 0 {
                        self.rest = Some((entry, Arc::clone(&plan), 0));
                    }
                    Ok(Job::Large(entry, plan))
                }
            },
        )
    }
}

struct Reader<'a> {
    fs: &'a dyn FileSystem,
    inventory: &'a Inventory,
    skip_unreadable: bool,
    /// Files that are left out.
    lost: HashSet<FileId>,
}

impl Reader<'_> {
    /// Reads the files that must be known to be readable before anything of them is written: those that take several
    /// jobs, and those with several names. Returns those that cannot be read.
    fn find_lost(&self, parallel: Parallel, summary: &mut Summary) -> Result<HashSet<FileId>> {
        let inventory = self.inventory;
        let files = inventory.names().filter(|&entry| {
            let has_links = inventory.name_count(inventory.file(entry)) > 1;
            inventory.is_first_name(entry) && (self.is_large(entry) || has_links)
        });
        let mut reasons = HashMap::new();
        ordered(
            parallel,
            files,
            || (),
            |(), entry| Ok((inventory.file(entry), self.try_to_read(entry))),
            |(file, read): (FileId, Result<()>)| {
                reasons.extend(read.err().map(|error| (file, error)));
                Ok::<_, Error>(())
            },
        )?;
        let lost: HashSet<FileId> = reasons.keys().copied().collect();
        if lost.is_empty() {
            return Ok(lost);
        }
        for entry in inventory.names() {
            let file = inventory.file(entry);
            if lost.contains(&file) {
                let other = Error::Unreadable("another name of the file cannot be read");
                let error = reasons.remove(&file).unwrap_or(other);
                summary.unreadable.push((inventory.path(entry), error));
            }
        }
        Ok(lost)
    }

    fn try_to_read(&self, entry: EntryId) -> Result<()> {
        let file = self.inventory.file(entry);
        let ino = self.inventory.ino(file);
        self.fs.xattrs(ino)?;
        match self.inventory.kind(file) {
            FileKind::Symlink => self.fs.read_link(ino).map(drop),
            FileKind::Regular => {
                let plan = self.plan(ino, self.inventory.size(file))?;
                let mut piece = Piece::default();
                let mut from = 0;
                while from < plan.stored_len {
                    let to = plan.stored_len.min(from + CHUNK_BYTES);
                    piece.bytes.clear();
                    self.read(ino, &plan, from, to, &mut piece)?;
                    from = to;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Bytes of content after the header of this entry.
    fn content_bytes(&self, entry: EntryId) -> u64 {
        let file = self.inventory.file(entry);
        let has_content =
            self.inventory.kind(file) == FileKind::Regular && self.inventory.is_first_name(entry);
        if has_content {
            self.inventory.size(file)
        } else {
            0
        }
    }

    fn is_large(&self, entry: EntryId) -> bool {
        self.content_bytes(entry) > CHUNK_BYTES
    }

    fn work(&self, job: Job, bytes: Vec<u8>) -> Result<Piece> {
        let mut piece = Piece {
            bytes,
            ..Piece::default()
        };
        let in_file = |entry, done: Result<()>| {
            done.map_err(|error| error.in_file("read", &self.inventory.path(entry)))
        };
        match job {
            Job::Entries(entries) => {
                for entry in entries {
                    if self.lost.contains(&self.inventory.file(entry)) {
                        continue;
                    }
                    let before = (piece.bytes.len(), piece.entries, piece.content_bytes);
                    let done = self.entry(entry, None, &mut piece);
                    // Nothing refers to a file with one name: it can still be left out.
                    let is_alone = self.inventory.name_count(self.inventory.file(entry)) == 1;
                    match done {
                        Err(error) if self.skip_unreadable && is_alone => {
                            piece.bytes.truncate(before.0);
                            (piece.entries, piece.content_bytes) = (before.1, before.2);
                            piece.unreadable.push((self.inventory.path(entry), error));
                        }
                        done => in_file(entry, done)?,
                    }
                }
            }
            Job::Large(entry, plan) => in_file(entry, self.entry(entry, Some(&plan), &mut piece))?,
            Job::Part {
                entry,
                plan,
                from,
                to,
            } => {
                let ino = self.inventory.ino(self.inventory.file(entry));
                match self.read(ino, &plan, from, to, &mut piece) {
                    // It could be read a moment ago, and its header is written.
                    Err(error) if self.skip_unreadable => {
                        piece.bytes.clear();
                        piece.bytes.resize((to - from) as usize, 0);
                        if to == plan.stored_len {
                            pad(&mut piece.bytes);
                        }
                        piece.damaged.push((self.inventory.path(entry), error));
                    }
                    read => in_file(entry, read)?,
                }
            }
        }
        Ok(piece)
    }

    /// Appends the header of an entry, and its content unless `plan` is given: then its parts follow separately.
    fn entry(&self, entry: EntryId, plan: Option<&Plan>, piece: &mut Piece) -> Result<()> {
        let inventory = self.inventory;
        let file = inventory.file(entry);
        let ino = inventory.ino(file);
        let metadata = inventory.metadata(file);
        let mut path = inventory.path(entry);
        if metadata.kind == FileKind::Socket {
            piece.sockets.push(path);
            return Ok(());
        }
        piece.entries += 1;
        if metadata.kind == FileKind::Directory {
            path.extend_from_slice(if path.is_empty() { b"./" } else { b"/" });
        }
        let mut header = Header {
            path: &path,
            link_target: Vec::new(),
            metadata: &metadata,
            type_flag: type_flag(metadata.kind),
            stored_len: 0,
            xattrs: Vec::new(),
            sparse: None,
        };
        if !inventory.is_first_name(entry) {
            header.type_flag = TypeFlag::Link;
            header.link_target = inventory.path(inventory.first_name(file));
            header.emit(&mut piece.bytes);
            return Ok(());
        }
        // Opens the file, which makes later queries about a host file cheaper.
        let own_plan = match (metadata.kind, plan) {
            (FileKind::Regular, None) => Some(self.plan(ino, metadata.size)?),
            _ => None,
        };
        header.xattrs = match self.fs.xattrs(ino) {
            // What is in a directory can still be read.
            Err(error) if self.skip_unreadable && metadata.kind == FileKind::Directory => {
                piece.unreadable.push((inventory.path(entry), error));
                Vec::new()
            }
            xattrs => xattrs?,
        };
        match (metadata.kind, plan, own_plan) {
            (FileKind::Symlink, ..) => header.link_target = self.fs.read_link(ino)?,
            (FileKind::Regular, Some(plan), _) => header.take_plan(plan),
            (FileKind::Regular, None, Some(plan)) => {
                header.take_plan(&plan);
                header.emit(&mut piece.bytes);
                return self.read(ino, &plan, 0, plan.stored_len, piece);
            }
            _ => {}
        }
        header.emit(&mut piece.bytes);
        Ok(())
    }

    /// Finds the parts of a regular file that are not holes.
    fn plan(&self, ino: Ino, size: u64) -> Result<Plan> {
        let mut plan = Plan {
            fragments: Vec::new(),
            size,
            stored_len: 0,
        };
        // Smaller holes than this are stored.
        let mut hole_bytes_min = 0;
        let mut extents = Extents::new(self.fs, ino, size);
        while let Some(extent) = extents.next()? {
            if extent.kind.has_data() {
                plan.add(extent.offset, extent.end(), hole_bytes_min);
            }
            while plan.fragments.len() > FRAGMENTS_MAX {
                hole_bytes_min = (hole_bytes_min * 2).max(BLOCK);
                if hole_bytes_min > FILLED_BYTES_MAX {
                    return Err(Error::Limit(
                        "a sparse file with more than 2^20 parts far from each other, for a tar archive",
                    ));
                }
                plan.fill(hole_bytes_min);
            }
        }
        Ok(plan)
    }

    /// Appends stored bytes of a file, and after the last of them the padding to a whole block.
    fn read(&self, ino: Ino, plan: &Plan, from: u64, to: u64, piece: &mut Piece) -> Result<()> {
        let first = plan
            .fragments
            .partition_point(|part| part.stored + part.len <= from);
        let mut position = from;
        for fragment in &plan.fragments[first..] {
            if position == to {
                break;
            }
            let inside = position - fragment.stored;
            let len = (fragment.len - inside).min(to - position);
            let start = piece.bytes.len();
            piece.bytes.resize(start + len as usize, 0); // No more than CHUNK_BYTES.
            let mut filled = 0;
            while filled < len {
                let buffer = &mut piece.bytes[start + filled as usize..];
                match self
                    .fs
                    .read_at(ino, fragment.offset + inside + filled, buffer)?
                {
                    0 => return Err(Error::Changed),
                    count => filled += count as u64,
                }
            }
            position += len;
        }
        piece.content_bytes += to - from;
        if to == plan.stored_len {
            pad(&mut piece.bytes);
        }
        Ok(())
    }
}

impl Plan {
    /// Appends a fragment. It is joined with the previous one if it is adjacent, or if the hole between them is smaller
    /// than `hole_bytes_min`.
    fn add(&mut self, offset: u64, end: u64, hole_bytes_min: u64) {
        if let Some(last) = self.fragments.last_mut() {
            let hole = offset - (last.offset + last.len);
            if hole == 0 || hole < hole_bytes_min {
                self.stored_len += end - offset + hole;
                last.len = end - last.offset;
                return;
            }
        }
        self.fragments.push(Fragment {
            offset,
            len: end - offset,
            stored: self.stored_len,
        });
        self.stored_len += end - offset;
    }

    /// Stores all holes between fragments that are smaller than this.
    fn fill(&mut self, hole_bytes_min: u64) {
        self.stored_len = 0;
        for fragment in std::mem::take(&mut self.fragments) {
            self.add(
                fragment.offset,
                fragment.offset + fragment.len,
                hole_bytes_min,
            );
        }
    }

    /// The map of GNU's sparse format 1.0, padded to whole blocks; `None` for a file without holes.
    ///
    /// If the file ends with a hole, the last fragment is empty, as in GNU tar.
    fn map(&self) -> Option<Vec<u8>> {
        if self.stored_len == self.size {
            return None;
        }
        let ends_with_hole = self
            .fragments
            .last()
            .is_none_or(|last| last.offset + last.len < self.size);
        let count = self.fragments.len() + usize::from(ends_with_hole);
        let mut map = format!("{count}\n");
        for fragment in &self.fragments {
            map += &format!("{}\n{}\n", fragment.offset, fragment.len);
        }
        if ends_with_hole {
            map += &format!("{}\n0\n", self.size);
        }
        let mut map = map.into_bytes();
        pad(&mut map);
        Some(map)
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(BLOCK as usize), 0);
}

fn type_flag(kind: FileKind) -> TypeFlag {
    match kind {
        FileKind::Regular | FileKind::Socket => TypeFlag::Regular,
        FileKind::Directory => TypeFlag::Directory,
        FileKind::Symlink => TypeFlag::Symlink,
        FileKind::BlockDevice => TypeFlag::BlockDevice,
        FileKind::CharDevice => TypeFlag::CharDevice,
        FileKind::Fifo => TypeFlag::Fifo,
    }
}

/// Everything that precedes the data of an entry.
struct Header<'a> {
    path: &'a [u8],
    link_target: Vec<u8>,
    metadata: &'a Metadata,
    type_flag: TypeFlag,
    /// The stored content bytes, without the map of a sparse file.
    stored_len: u64,
    xattrs: Vec<Xattr>,
    sparse: Option<Vec<u8>>,
}

impl Header<'_> {
    fn take_plan(&mut self, plan: &Plan) {
        self.stored_len = plan.stored_len;
        self.sparse = plan.map();
    }

    /// Appends the PAX header (if needed), the header, and the map of a sparse file.
    fn emit(&self, out: &mut Vec<u8>) {
        let Metadata {
            uid,
            gid,
            mtime,
            rdev,
            ..
        } = *self.metadata;
        let stored_len = self.stored_len + self.sparse.as_ref().map_or(0, |map| map.len() as u64);
        // A size too large for octal is stored in base 256, in addition to the record.
        let mut header = ustar::Header::new(self.type_flag, self.metadata.permissions, stored_len);
        header.set_owner(uid.min(OCTAL_7_MAX), gid.min(OCTAL_7_MAX));
        header.set_mtime(
            mtime
                .seconds
                .clamp(0, OCTAL_11_MAX.cast_signed())
                .cast_unsigned(),
        );

        let mut records = Records::default();
        let split = split_path(self.path).filter(|_| self.sparse.is_none());
        // Records are UTF-8 unless the first one says otherwise. GNU tar warns about that one; libarchive warns
        // without it.
        let is_text = |name: &[u8], fits: bool| fits || str::from_utf8(name).is_ok();
        if !is_text(self.path, split.is_some())
            || !is_text(&self.link_target, self.link_target.len() <= 100)
        {
            records.add("hdrcharset", b"BINARY");
        }
        if self.sparse.is_some() {
            // Programs that do not support the format extract the stored bytes under this name.
            let name = self.path.rsplit(|&byte| byte == b'/').next().unwrap_or(b"");
            header.set_name(&[b"GNUSparseFile.0/", &name[..name.len().min(84)]].concat());
        } else if let Some((prefix, name)) = split {
            header.set_prefix(prefix);
            header.set_name(name);
        } else {
            records.add("path", self.path);
            header.set_name(&self.path[..100]);
        }
        let shown = &self.link_target[..self.link_target.len().min(100)];
        header.set_link_name(shown);
        if shown.len() < self.link_target.len() {
            records.add("linkpath", &self.link_target);
        }
        if self.metadata.kind.is_device() && self.type_flag != TypeFlag::Link {
            header.set_device(rdev.major.min(OCTAL_7_MAX), rdev.minor.min(OCTAL_7_MAX));
            records.add_if(rdev.major > OCTAL_7_MAX, "SCHILY.devmajor", rdev.major);
            records.add_if(rdev.minor > OCTAL_7_MAX, "SCHILY.devminor", rdev.minor);
        }
        records.add_if(stored_len > OCTAL_11_MAX, "size", stored_len);
        records.add_if(uid > OCTAL_7_MAX, "uid", uid);
        records.add_if(gid > OCTAL_7_MAX, "gid", gid);
        let fits = mtime.nanoseconds == 0
            && u64::try_from(mtime.seconds).is_ok_and(|seconds| seconds <= OCTAL_11_MAX);
        records.add_if(!fits, "mtime", Decimal(mtime));
        for xattr in &self.xattrs {
            records.add_xattr(xattr);
        }
        if self.sparse.is_some() {
            records.add("GNU.sparse.major", b"1");
            records.add("GNU.sparse.minor", b"0");
            records.add("GNU.sparse.name", self.path);
            records.add(
                "GNU.sparse.realsize",
                self.metadata.size.to_string().as_bytes(),
            );
        }
        if !records.text.is_empty() {
            records.emit(&header, out);
        }
        header.emit(out);
        out.extend_from_slice(self.sparse.as_deref().unwrap_or_default());
    }
}

/// Splits a path into ustar's prefix and name, which readers join with a `/`; `None` if it does not fit.
fn split_path(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.len() <= 100 {
        return Some((b"", path));
    }
    // The name has at most 100 bytes, and is neither empty nor just the slash that ends a directory.
    let from = path.len().checked_sub(101)?;
    let slash = path[from..path.len() - 2]
        .iter()
        .position(|&byte| byte == b'/')?
        + from;
    (1..=155)
        .contains(&slash)
        .then(|| (&path[..slash], &path[slash + 1..]))
}

/// PAX records.
#[derive(Default)]
struct Records {
    text: Vec<u8>,
}

impl Records {
    fn add(&mut self, key: &str, value: &[u8]) {
        self.add_bytes(key.as_bytes(), value);
    }

    fn add_if(&mut self, needed: bool, key: &str, value: impl ToString) {
        if needed {
            self.add(key, value.to_string().as_bytes());
        }
    }

    fn add_xattr(&mut self, xattr: &Xattr) {
        // A key ends at the first equals sign; GNU tar and libarchive read `%3D` as one.
        let mut key = b"SCHILY.xattr.".to_vec();
        for &byte in &xattr.name {
            match byte {
                b'=' => key.extend_from_slice(b"%3D"),
                b'%' => key.extend_from_slice(b"%25"),
                _ => key.push(byte),
            }
        }
        self.add_bytes(&key, &xattr.value);
    }

    fn add_bytes(&mut self, key: &[u8], value: &[u8]) {
        // The length counts its own digits.
        let rest = key.len() + value.len() + 3;
        let mut len = rest + 1;
        while rest + len.to_string().len() != len {
            len = rest + len.to_string().len();
        }
        for part in [len.to_string().as_bytes(), b" ", key, b"=", value, b"\n"] {
            self.text.extend_from_slice(part);
        }
    }

    /// Appends the records with their header, which is named after the header that follows.
    fn emit(mut self, of: &ustar::Header, out: &mut Vec<u8>) {
        let mut header = ustar::Header::new(TypeFlag::PaxHeader, 0o644, self.text.len() as u64);
        let name = of.name();
        let name = name.strip_suffix(b"/").unwrap_or(name);
        let name = name.rsplit(|&byte| byte == b'/').next().unwrap_or(b"");
        header.set_name(&[b"PaxHeaders/", &name[..name.len().min(89)]].concat());
        header.take_mtime(of);
        header.emit(out);
        pad(&mut self.text);
        out.extend_from_slice(&self.text);
    }
}

/// A time as a decimal number of seconds.
struct Decimal(Time);

impl std::fmt::Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Time {
            seconds,
            nanoseconds,
        } = self.0;
        // Seconds are rounded down: -1.25 s is -2 s and 750,000,000 ns.
        let (sign, whole, fraction) = match (seconds < 0, nanoseconds) {
            (true, 1..) => (
                "-",
                (seconds + 1).unsigned_abs(),
                1_000_000_000 - nanoseconds,
            ),
            (true, 0) => ("-", seconds.unsigned_abs(), 0),
            (false, _) => ("", seconds.unsigned_abs(), nanoseconds),
        };
        write!(f, "{sign}{whole}")?;
        if fraction == 0 {
            return Ok(());
        }
        let digits = format!("{fraction:09}");
        write!(f, ".{}", digits.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_lengths_count_themselves() {
        for len in [1, 88, 89, 90, 91, 92, 985, 986, 987, 988, 989, 990] {
            let mut records = Records::default();
            records.add("path", &vec![b'a'; len]);
            let stated: usize = str::from_utf8(&records.text).unwrap()
                [..records.text.iter().position(|&b| b == b' ').unwrap()]
                .parse()
                .unwrap();
            assert_eq!(stated, records.text.len(), "{len}");
        }
    }

    #[test]
    fn times_are_decimal_numbers() {
        for (seconds, nanoseconds, text) in [
            (0, 0, "0"),
            (1, 500_000_000, "1.5"),
            (-2, 500_000_000, "-1.5"),
            (-1, 999_999_999, "-0.000000001"),
            (-5, 0, "-5"),
        ] {
            assert_eq!(
                Decimal(Time {
                    seconds,
                    nanoseconds
                })
                .to_string(),
                text
            );
        }
    }

    #[test]
    fn paths_split_only_at_slashes_and_only_when_they_must() {
        let long =
            |dirs: usize, name: usize| [vec![b'd'; dirs], b"/".to_vec(), vec![b'n'; name]].concat();
        assert_eq!(split_path(b"a/b"), Some((&b""[..], &b"a/b"[..])));
        let path = long(155, 100);
        assert_eq!(
            split_path(&path).map(|(a, b)| (a.len(), b.len())),
            Some((155, 100))
        );
        assert_eq!(split_path(&long(156, 100)), None);
        assert_eq!(split_path(&long(20, 101)), None);
        let mut dir = long(100, 99);
        dir.push(b'/');
        assert_eq!(
            split_path(&dir).map(|(a, b)| (a.len(), b.len())),
            Some((100, 100))
        );
        dir.truncate(101);
        assert_eq!(
            split_path(&dir),
            None,
            "a directory's name must not become empty"
        );
    }

    #[test]
    fn maps_show_holes_at_both_ends() {
        let mut plan = Plan {
            fragments: Vec::new(),
            size: 100,
            stored_len: 0,
        };
        plan.add(10, 20, 0);
        plan.add(20, 30, 0);
        plan.add(50, 60, 0);
        let map = plan.map().unwrap();
        assert_eq!(map.len(), 512);
        assert!(
            map.starts_with(b"3\n10\n20\n50\n10\n100\n0\n\0"),
            "{}",
            map.escape_ascii()
        );
        assert_eq!(plan.fragments[1].stored, 20);
        plan.fill(20);
        assert_eq!((plan.fragments.len(), plan.stored_len), (2, 30));
        plan.fill(21);
        assert_eq!((plan.fragments.len(), plan.stored_len), (1, 50));
    }
}
