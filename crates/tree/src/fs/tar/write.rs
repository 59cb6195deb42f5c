//! Writes a tree as a tar archive, sequentially in one pass, so that the output can be a pipe.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::iter::Peekable;
use std::sync::{Arc, Mutex, PoisonError};

use super::buffer::Buffer;
use super::header::BLOCK;
use super::member::Fragment;
use super::newc;
use super::pax::PaxHeader;
use super::ustar::TypeFlag;

use crate::{
    Device, EntryId, Error, Extents, FileId, FileKind, Ino, Inventory, Metadata, Parallel,
    Progress, Result, Xattr, ordered,
};

/// Content bytes per job. Larger files take several jobs. What is in flight should fit the
/// processor's cache.
const CHUNK_BYTES: u64 = 256 << 10;

/// Small files are processed together, up to this many entries or bytes: handing a file over costs
/// as much as reading it.
const BATCH_ENTRIES_MAX: usize = 256;
const BATCH_BYTES_MIN: u64 = 128 << 10;

/// Maximum number of fragments per file. If there are more, the smallest holes between them are
/// stored as zeros.
const FRAGMENTS_MAX: usize = 1 << 20;

/// The largest holes that are stored as zeros. Larger ones would make an archive much larger than
/// its source.
const FILLED_BYTES_MAX: u64 = 64 << 10;

/// Fewer bytes than this are collected before they are written.
const OUTPUT_BUFFER_BYTES: usize = 64 << 10;

/// A summary of the written archive.
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
    /// Paths and names of extended attributes, which cpio cannot hold.
    pub xattrs: Vec<(Vec<u8>, Box<[u8]>)>,
    /// Paths of files whose times cpio cannot hold: the nearest that it can are stored.
    pub times: Vec<Vec<u8>>,
    /// Paths of files that could not be read and were left out, with the reason. If such a path is
    /// that of a directory, it is there without its extended attributes.
    pub unreadable: Vec<(Vec<u8>, Error)>,
    /// Paths of files with zeros in place of content that could be read at first and could not
    /// later, with the reason.
    pub damaged: Vec<(Vec<u8>, Error)>,
}

/// Writes a tree as a PAX archive. The same tree gives the same bytes.
///
/// The archive stores content with holes, permissions, numeric owners, modification times in
/// nanoseconds, link targets, device numbers, extended attributes and hard links. It does not store
/// other times or file attributes.
///
/// With `skip_unreadable`, files that cannot be read are left out. Written bytes cannot be taken
/// back, so files of more than one part or name are read once before.
///
/// # Errors
/// [`Error::File`] if a file cannot be read or became shorter while it was read; [`Error::Io`] if
/// `out` cannot be written. The bytes written to `out` before an error are not a valid archive.
pub fn write(
    inventory: &Inventory<'_>,
    skip_unreadable: bool,
    parallel: Parallel,
    progress: &dyn Progress,
    out: &mut dyn Write,
) -> Result<Summary> {
    write_as(
        ArchiveForm::Pax,
        inventory,
        skip_unreadable,
        parallel,
        progress,
        out,
    )
}

/// Writes a tree as an archive of cpio in the form newc, as Linux reads an initramfs. The same tree
/// gives the same bytes: files are numbered in its order.
///
/// The archive stores content, permissions, numeric owners, modification times in seconds, link
/// targets, device numbers and hard links, each in 32 bits. `out` is flushed between members, and
/// only there: Linux wants a compressed part of an initramfs to end there.
///
/// # Errors
/// As for [`write`](fn@write); [`Error::Unsupported`] for a file of 4 GiB or more.
pub fn write_newc(
    inventory: &Inventory<'_>,
    skip_unreadable: bool,
    parallel: Parallel,
    progress: &dyn Progress,
    out: &mut dyn Write,
) -> Result<Summary> {
    write_as(
        ArchiveForm::Newc,
        inventory,
        skip_unreadable,
        parallel,
        progress,
        out,
    )
}

/// The form of an archive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ArchiveForm {
    Pax,
    Newc,
}

fn write_as(
    form: ArchiveForm,
    inventory: &Inventory<'_>,
    skip_unreadable: bool,
    parallel: Parallel,
    progress: &dyn Progress,
    out: &mut dyn Write,
) -> Result<Summary> {
    let mut summary = Summary::default();
    let mut out = io::BufWriter::with_capacity(OUTPUT_BUFFER_BYTES, out);
    let spare = Mutex::new(Vec::new());
    let mut reader = MemberReader {
        form,
        inventory,
        skip_unreadable,
        lost: HashSet::new(),
    };
    if skip_unreadable {
        reader.lost = reader.find_lost(parallel, &mut summary)?;
    }
    ordered(
        parallel,
        MemberJobs {
            reader: &reader,
            names: inventory.names().peekable(),
            rest: None,
        },
        PathBuffer::default,
        |paths, job| {
            let spare_buffer = spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut bytes: Buffer = spare_buffer.unwrap_or_default();
            bytes.truncate(0);
            reader.work(job?, paths, bytes)
        },
        |piece: ArchivePart| {
            summary.entries += piece.entries;
            summary.sockets.extend(piece.sockets);
            summary.xattrs.extend(piece.xattrs);
            summary.times.extend(piece.times);
            summary.unreadable.extend(piece.unreadable);
            summary.damaged.extend(piece.damaged);
            summary.content_bytes += piece.content_bytes;
            summary.archive_bytes += piece.bytes.len() as u64;
            out.write_all(piece.bytes.as_slice())?;
            if piece.is_whole && form == ArchiveForm::Newc {
                out.flush()?;
            }
            progress.advance(piece.entries, piece.content_bytes);
            spare
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(piece.bytes);
            Ok(())
        },
    )?;
    let end = match form {
        ArchiveForm::Pax => {
            let mut end = Buffer::default();
            end.append(2 * BLOCK as usize).fill(0);
            end
        }
        ArchiveForm::Newc => newc::end(summary.archive_bytes),
    };
    out.write_all(end.as_slice())?;
    out.flush()?;
    summary.archive_bytes += end.len() as u64;
    Ok(summary)
}

/// A unit of work.
enum MemberJob {
    /// The headers of some entries, with their content.
    Entries(Vec<EntryId>),
    /// The header of a large file.
    Large(EntryId, Arc<SparseLayout>),
    /// A part of the stored bytes of a large file.
    Part {
        entry: EntryId,
        plan: Arc<SparseLayout>,
        from: u64,
        to: u64,
    },
}

/// A piece of the archive.
#[derive(Default)]
struct ArchivePart {
    bytes: Buffer,
    content_bytes: u64,
    entries: u64,
    /// Whether the last member in it ends with it.
    is_whole: bool,
    sockets: Vec<Vec<u8>>,
    xattrs: Vec<(Vec<u8>, Box<[u8]>)>,
    times: Vec<Vec<u8>>,
    unreadable: Vec<(Vec<u8>, Error)>,
    damaged: Vec<(Vec<u8>, Error)>,
}

/// The path of one entry after another: that of their directory is made once.
#[derive(Default)]
struct PathBuffer {
    dir: Option<FileId>,
    path: Vec<u8>,
    /// Where the path of the directory ends.
    name_at: usize,
}

impl PathBuffer {
    fn of(&mut self, inventory: &Inventory<'_>, entry: EntryId) -> &mut Vec<u8> {
        let dir = inventory.parent(entry);
        if self.dir != Some(dir) {
            self.path = inventory.path(inventory.first_name(dir));
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            (self.dir, self.name_at) = (Some(dir), self.path.len());
        }
        self.path.truncate(self.name_at);
        self.path.extend_from_slice(&inventory.name(entry));
        &mut self.path
    }
}

/// Which bytes of a regular file are stored.
struct SparseLayout {
    fragments: Vec<Fragment>,
    size: u64,
    stored_len: u64,
}

struct MemberJobs<'a, Names: Iterator> {
    reader: &'a MemberReader<'a>,
    names: Peekable<Names>,
    /// The large file that is being cut into parts, and where the next part begins.
    rest: Option<(EntryId, Arc<SparseLayout>, u64)>,
}

impl<Names: Iterator<Item = EntryId>> Iterator for MemberJobs<'_, Names> {
    type Item = Result<MemberJob>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some((entry, plan, from)) = self.rest.take() {
            let to = plan.stored_len.min(from + CHUNK_BYTES);
            if to < plan.stored_len {
                self.rest = Some((entry, Arc::clone(&plan), to));
            }
            return Some(Ok(MemberJob::Part {
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
            let Some(&entry) = self.names.peek() else {
                break;
            };
            let content_bytes = reader.content_bytes(entry);
            if content_bytes > CHUNK_BYTES {
                break;
            }
            self.names.next();
            bytes += content_bytes;
            batch.push(entry);
        }
        if !batch.is_empty() {
            return Some(Ok(MemberJob::Entries(batch)));
        }
        let entry = self.names.next()?;
        let inventory = reader.inventory;
        let file = inventory.file(entry);
        if reader.lost.contains(&file) {
            return Some(Ok(MemberJob::Entries(Vec::new())));
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
                    Ok(MemberJob::Large(entry, plan))
                }
            },
        )
    }
}

struct MemberReader<'a> {
    form: ArchiveForm,
    inventory: &'a Inventory<'a>,
    skip_unreadable: bool,
    /// Files that are left out.
    lost: HashSet<FileId>,
}

impl MemberReader<'_> {
    /// Reads the files that must be known to be readable before anything of them is written: those
    /// that take several jobs, and those with several names. Returns those that cannot be read.
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
        self.inventory.tree().xattrs(ino)?;
        match self.inventory.kind(file) {
            FileKind::Symlink => self.inventory.tree().read_link(ino).map(drop),
            FileKind::Regular => {
                let plan = self.plan(ino, self.inventory.size(file))?;
                let mut piece = ArchivePart::default();
                let mut from = 0;
                while from < plan.stored_len {
                    let to = plan.stored_len.min(from + CHUNK_BYTES);
                    piece.bytes.truncate(0);
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

    fn work(&self, job: MemberJob, paths: &mut PathBuffer, bytes: Buffer) -> Result<ArchivePart> {
        let mut piece = ArchivePart {
            bytes,
            ..ArchivePart::default()
        };
        let in_file = |entry, done: Result<()>| {
            done.map_err(|error| error.in_file("read", &self.inventory.path(entry)))
        };
        match job {
            MemberJob::Entries(entries) => {
                piece.is_whole = true;
                for entry in entries {
                    if self.lost.contains(&self.inventory.file(entry)) {
                        continue;
                    }
                    let before = (piece.bytes.len(), piece.entries, piece.content_bytes);
                    // Nothing refers to a file with one name: it can still be left out.
                    let is_alone = || self.inventory.name_count(self.inventory.file(entry)) == 1;
                    match self.entry(entry, None, paths, &mut piece) {
                        Err(error) if self.skip_unreadable && is_alone() => {
                            piece.bytes.truncate(before.0);
                            (piece.entries, piece.content_bytes) = (before.1, before.2);
                            piece.unreadable.push((self.inventory.path(entry), error));
                        }
                        done => in_file(entry, done)?,
                    }
                }
            }
            MemberJob::Large(entry, plan) => {
                in_file(entry, self.entry(entry, Some(&plan), paths, &mut piece))?;
            }
            MemberJob::Part {
                entry,
                plan,
                from,
                to,
            } => {
                let ino = self.inventory.ino(self.inventory.file(entry));
                piece.is_whole = to == plan.stored_len;
                match self.read(ino, &plan, from, to, &mut piece) {
                    // It could be read a moment ago, and its header is written.
                    Err(error) if self.skip_unreadable => {
                        piece.bytes.truncate(0);
                        piece.bytes.append((to - from) as usize).fill(0);
                        if to == plan.stored_len {
                            self.pad(&mut piece.bytes);
                        }
                        piece.damaged.push((self.inventory.path(entry), error));
                    }
                    read => in_file(entry, read)?,
                }
            }
        }
        Ok(piece)
    }

    /// Appends the header of an entry, and its content unless `plan` is given: then its parts
    /// follow separately.
    fn entry(
        &self,
        entry: EntryId,
        plan: Option<&SparseLayout>,
        paths: &mut PathBuffer,
        piece: &mut ArchivePart,
    ) -> Result<()> {
        let inventory = self.inventory;
        let file = inventory.file(entry);
        let ino = inventory.ino(file);
        let metadata = inventory.metadata(file);
        let path = paths.of(inventory, entry);
        if self.form == ArchiveForm::Newc {
            return self.newc_entry(entry, plan, path, &metadata, piece);
        }
        if metadata.kind == FileKind::Socket {
            piece.sockets.push(path.clone());
            return Ok(());
        }
        piece.entries += 1;
        if metadata.kind == FileKind::Directory {
            path.extend_from_slice(if path.is_empty() { b"./" } else { b"/" });
        }
        let mut header = PaxHeader {
            path,
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
        header.xattrs = match self.inventory.tree().xattrs(ino) {
            // The files of a directory can still be read.
            Err(error) if self.skip_unreadable && metadata.kind == FileKind::Directory => {
                piece.unreadable.push((inventory.path(entry), error));
                Vec::new()
            }
            xattrs => xattrs?,
        };
        match (metadata.kind, plan, own_plan) {
            (FileKind::Symlink, ..) => header.link_target = self.inventory.tree().read_link(ino)?,
            (FileKind::Regular, Some(plan), _) => plan.describe(&mut header),
            (FileKind::Regular, None, Some(plan)) => {
                plan.describe(&mut header);
                header.emit(&mut piece.bytes);
                return self.read(ino, &plan, 0, plan.stored_len, piece);
            }
            _ => {}
        }
        header.emit(&mut piece.bytes);
        Ok(())
    }

    /// As [`MemberReader::entry`], in the form newc. A file with several names has its content at
    /// the first.
    fn newc_entry(
        &self,
        entry: EntryId,
        plan: Option<&SparseLayout>,
        path: &[u8],
        metadata: &Metadata,
        piece: &mut ArchivePart,
    ) -> Result<()> {
        let (inventory, tree) = (self.inventory, self.inventory.tree());
        let file = inventory.file(entry);
        let ino = inventory.ino(file);
        let is_first = inventory.is_first_name(entry);
        let target = match metadata.kind {
            FileKind::Symlink => tree.read_link(ino)?,
            _ => Vec::new(),
        };
        let size = match metadata.kind {
            FileKind::Symlink => target.len() as u64,
            FileKind::Regular if is_first => metadata.size,
            _ => 0,
        };
        let too_large = Error::Unsupported("a file of 4 GiB or more in a cpio archive");
        let size = u32::try_from(size).map_err(|_| too_large)?;
        if is_first {
            match tree.xattrs(ino) {
                Err(error) if self.skip_unreadable && metadata.kind == FileKind::Directory => {
                    piece.unreadable.push((path.to_vec(), error));
                }
                xattrs => {
                    let names = xattrs?.into_iter().map(|it| (path.to_vec(), it.name));
                    piece.xattrs.extend(names);
                }
            }
        }
        let seconds = metadata.mtime.seconds;
        let mtime = u32::try_from(seconds.max(0)).unwrap_or(u32::MAX);
        if i64::from(mtime) != seconds {
            piece.times.push(path.to_vec());
        }
        let links = match metadata.kind {
            FileKind::Directory => 2,
            // Linux has no hard links of them in an archive.
            FileKind::Symlink => 1,
            _ => inventory.name_count(file),
        };
        let FileId(number) = file;
        let Device { major, minor } = metadata.rdev;
        let mode = newc::type_bits(metadata.kind) | u32::from(metadata.permissions);
        let fields = [
            number + 1,
            mode,
            metadata.uid,
            metadata.gid,
            links,
            mtime,
            size,
            0,
            0,
            major,
            minor,
        ];
        piece.entries += 1;
        newc::emit(&mut piece.bytes, fields, &newc::name(path));
        piece.bytes.extend_from_slice(&target);
        piece.bytes.pad_to(newc::PADDING);
        if metadata.kind == FileKind::Regular && is_first && plan.is_none() {
            let plan = SparseLayout::whole(metadata.size);
            self.read(ino, &plan, 0, plan.stored_len, piece)?;
        }
        Ok(())
    }

    /// Finds the parts of a regular file that are not holes.
    fn plan(&self, ino: Ino, size: u64) -> Result<SparseLayout> {
        if self.form == ArchiveForm::Newc {
            return Ok(SparseLayout::whole(size));
        }
        let mut plan = SparseLayout {
            fragments: Vec::new(),
            size,
            stored_len: 0,
        };
        // Smaller holes than this are stored.
        let mut hole_bytes_min = 0;
        let mut extents = Extents::new(self.inventory.tree(), ino, size);
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

    fn pad(&self, bytes: &mut Buffer) {
        match self.form {
            ArchiveForm::Pax => bytes.pad(),
            ArchiveForm::Newc => bytes.pad_to(newc::PADDING),
        }
    }

    /// Appends stored bytes of a file, and after the last of them the padding.
    fn read(
        &self,
        ino: Ino,
        plan: &SparseLayout,
        from: u64,
        to: u64,
        piece: &mut ArchivePart,
    ) -> Result<()> {
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
            let buffer = piece.bytes.append(len as usize); // No more than CHUNK_BYTES.
            let mut filled = 0;
            while filled < buffer.len() {
                let at = fragment.offset + inside + filled as u64;
                match self
                    .inventory
                    .tree()
                    .read_at(ino, at, &mut buffer[filled..])?
                {
                    0 => return Err(Error::Changed),
                    count => filled += count,
                }
            }
            position += len;
        }
        piece.content_bytes += to - from;
        if to == plan.stored_len {
            self.pad(&mut piece.bytes);
        }
        Ok(())
    }
}

impl SparseLayout {
    /// All of a file, with its holes.
    fn whole(size: u64) -> SparseLayout {
        let mut plan = SparseLayout {
            fragments: Vec::new(),
            size,
            stored_len: 0,
        };
        if size > 0 {
            plan.add(0, size, 0);
        }
        plan
    }

    /// Gives the header the number of stored bytes, and the map of a sparse file.
    fn describe(&self, header: &mut PaxHeader<'_>) {
        header.stored_len = self.stored_len;
        header.sparse = self.map();
    }

    /// Appends a fragment. It is joined with the previous one if it is adjacent, or if the hole
    /// between them is smaller than `hole_bytes_min`.
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
        let len = map.len().next_multiple_of(BLOCK as usize);
        let mut map = map.into_bytes();
        map.resize(len, 0);
        Some(map)
    }
}

/// The header of a member of an archive that is put together from a description of its members.
/// The content of a regular file follows it, and zeros up to a whole block of 512 bytes.
pub fn member_header(
    path: &[u8],
    metadata: &Metadata,
    is_hard_link: bool,
    link_target: Vec<u8>,
    xattrs: Vec<Xattr>,
) -> Vec<u8> {
    let header = PaxHeader {
        path,
        link_target,
        metadata,
        type_flag: if is_hard_link {
            TypeFlag::Link
        } else {
            type_flag(metadata.kind)
        },
        stored_len: metadata.size,
        xattrs,
        sparse: None,
    };
    let mut out = Buffer::default();
    header.emit(&mut out);
    out.as_slice().to_vec()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_show_holes_at_both_ends() {
        let mut plan = SparseLayout {
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
