//! Creates one file and sets all of its metadata.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linux::{OpenFlags, Timestamp};

use super::super::data::open_ahead;
use super::super::{
    EntryId, Extent, ExtentKind, Extents, FileAttributes, FileId, FileKind, HostContent, Ino,
    Inventory, Metadata, NO_OWNER, Time, Xattr,
};
use super::clones::Clones;
use super::options::ExtractOptions;
use super::outcome::{Aspect, Unrestored};
use super::stored::{Failure, StoredCopies, StoredWorkspace, StoredWriter};
use crate::{Error, Result};

/// The verb of a failed read of the source. No failure to write has this verb.
const READ: &str = "read";

/// How much content a thread holds at once if blocks are read of which the size is not known. Reads
/// end at multiples of this, so blocks of any size are read whole.
const BUFFER_BYTES: u64 = 1 << 20;

/// Like [`BUFFER_BYTES`], for sources without larger blocks: data is written while it is still in
/// the processor's cache.
const BUFFER_BYTES_MIN: u64 = 128 << 10;

/// Smaller files are written without looking for holes, which would save nothing.
const HOLE_BYTES_MIN: u64 = 4096;

/// Creates files from their descriptions. All threads of an extraction share one.
pub(super) struct Maker<'a> {
    inventory: &'a Inventory<'a>,
    owners: bool,
    skip_unreadable: bool,
    umask: Option<u32>,
    process_owner: (u32, u32),
    buffer_bytes: u64,
    /// Writes extents as they are stored, if the target is on btrfs and this is permitted.
    stored: Option<StoredWriter>,
    /// Clones files of the host, which comes before anything else.
    clones: Clones,
}

/// The state that a thread keeps between files.
pub(super) struct Workspace {
    buf: Vec<u8>,
    stored: StoredWorkspace,
    done: WorkerResult,
    /// The last owner that could not be set, and why: it is not tried again.
    denied: Option<(u32, u32, String)>,
}

/// The summary of a job.
#[derive(Default)]
pub(super) struct WorkerResult {
    pub(super) unrestored: Unrestored,
    /// Files that could not be created.
    pub(super) missing: Vec<FileId>,
    /// Files that could not be read. Of a directory, these are only its extended attributes.
    pub(super) lost: Vec<(FileId, Error)>,
    /// Extents written as they are stored.
    pub(super) stored: StoredCopies,
    /// The number of files that were cloned.
    pub(super) cloned: u64,
}

impl Workspace {
    pub(super) fn take_done(&mut self) -> WorkerResult {
        self.done.stored = std::mem::take(&mut self.stored.done);
        std::mem::take(&mut self.done)
    }
}

/// A file that is written in parts.
pub(super) struct Big {
    dir: Arc<OwnedFd>,
    file: File,
    entry: EntryId,
    ino: Ino,
    size: u64,
    /// Whether it has its content already.
    is_cloned: bool,
    parts: AtomicU32,
    /// Why it cannot be read, if it cannot.
    lost: Mutex<Option<Error>>,
}

impl Big {
    fn lost(&self) -> MutexGuard<'_, Option<Error>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost().is_some()
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn part_begun(&self) {
        self.parts.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether this was the last part.
    pub(super) fn part_done(&self) -> bool {
        self.parts.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl<'a> Maker<'a> {
    /// For files below the open directory `target`. `umask` is the umask of this process, if it
    /// alone is known to determine the modes of new files.
    pub(super) fn new(
        inventory: &'a Inventory<'a>,
        options: &ExtractOptions,
        umask: Option<u32>,
        target: &OwnedFd,
    ) -> Self {
        let source = inventory.tree();
        let storage = source.storage();
        let block_bytes = storage
            .block_encoding
            .map(|blocks| u64::from(blocks.block_bytes));
        let any_bytes = if storage.stored_extents {
            BUFFER_BYTES
        } else {
            0
        };
        Maker {
            buffer_bytes: block_bytes.unwrap_or(any_bytes).max(BUFFER_BYTES_MIN),
            inventory,
            owners: options.owners,
            skip_unreadable: options.skip_unreadable,
            umask,
            process_owner: linux::process_owner(),
            stored: StoredWriter::of(target, source),
            clones: Clones::into(target),
        }
    }

    pub(super) fn inventory(&self) -> &'a Inventory<'a> {
        self.inventory
    }

    pub(super) fn workspace(&self) -> Workspace {
        Workspace {
            buf: Vec::new(),
            stored: StoredWorkspace::default(),
            done: WorkerResult::default(),
            denied: None,
        }
    }

    /// Whether two regular files end in the same stored data, as far as this is cheap to know.
    pub(super) fn share_storage(&self, one: FileId, other: FileId) -> bool {
        let place = |file: FileId| {
            let from = self.inventory.size(file).checked_sub(1)?;
            let extents = self
                .inventory
                .tree()
                .extents(self.inventory.ino(file), from)
                .ok()?;
            extents.last()?.id
        };
        let is_regular = |file| self.inventory.kind(file) == FileKind::Regular;
        // Other file systems share whole extents, if anything.
        self.inventory.tree().storage().block_encoding.is_some()
            && is_regular(one)
            && is_regular(other)
            && place(one).is_some_and(|shared| place(other) == Some(shared))
    }

    /// Creates a file other than a directory, or leaves it out if it cannot be read and such files
    /// are left out.
    pub(super) fn make(&self, dir: &OwnedFd, entry: EntryId, ws: &mut Workspace) -> Result<()> {
        let file = self.inventory.file(entry);
        let metadata = self.inventory.metadata(file);
        let made = match metadata.kind {
            FileKind::Regular => self.make_regular(dir, entry, &metadata, ws),
            _ => self.make_special(dir, entry, &metadata, ws),
        };
        match self.unless_lost(made)? {
            Some(error) => self.lose(dir, entry, error, ws),
            None => Ok(()),
        }
    }

    /// Why the file of this result is lost, if it is and such files are left out.
    fn unless_lost(&self, made: Result<()>) -> Result<Option<Error>> {
        match made {
            Ok(()) => Ok(None),
            Err(Error::File {
                verb: READ, error, ..
            }) if self.skip_unreadable => Ok(Some(*error)),
            Err(error) => Err(error),
        }
    }

    /// Removes the written part of a file that cannot be read.
    fn lose(&self, dir: &OwnedFd, entry: EntryId, error: Error, ws: &mut Workspace) -> Result<()> {
        match linux::unlink_at(dir, &self.inventory.name(entry)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(self.failed("remove", entry)(error));
            }
            _ => {}
        }
        ws.done.lost.push((self.inventory.file(entry), error));
        Ok(())
    }

    /// Leaves a big file out if a part of it cannot be read and such files are left out.
    pub(super) fn or_lose_big(&self, big: &Big, done: Result<()>) -> Result<()> {
        if let Some(error) = self.unless_lost(done)? {
            big.lost().get_or_insert(error);
        }
        Ok(())
    }

    fn failed(&self, verb: &'static str, entry: EntryId) -> impl Fn(io::Error) -> Error {
        move |error| Error::from(error).in_file(verb, &self.inventory.path(entry))
    }

    fn unreadable(&self, entry: EntryId) -> impl Fn(Error) -> Error {
        move |error| error.in_file(READ, &self.inventory.path(entry))
    }

    fn not_written(&self, entry: EntryId, error: Error) -> Error {
        error.in_file("write", &self.inventory.path(entry))
    }

    fn xattrs(&self, entry: EntryId) -> Result<Vec<Xattr>> {
        let ino = self.inventory.ino(self.inventory.file(entry));
        self.inventory
            .tree()
            .xattrs(ino)
            .map_err(self.unreadable(entry))
    }

    fn make_regular(
        &self,
        dir: &OwnedFd,
        entry: EntryId,
        metadata: &Metadata,
        ws: &mut Workspace,
    ) -> Result<()> {
        let ino = self.inventory.ino(self.inventory.file(entry));
        let content = self
            .clones
            .content(self.inventory.tree(), ino, metadata.size);
        if content.is_none() {
            let opened = open_ahead(self.inventory.tree(), ino, metadata.size);
            opened.map_err(self.unreadable(entry))?;
        }
        let xattrs = self.xattrs(entry)?;
        // Attributes can only be set on a file that its owner may write.
        let writable = if xattrs.is_empty() { 0 } else { 0o600 };
        let mode = u32::from(metadata.permissions) & 0o777 | writable;
        let out = self.create(dir, entry, mode)?;
        if self.clone(content, entry, metadata.size, &out)? {
            ws.done.cloned += 1;
        } else {
            let end = self.copy(&out, entry, ino, 0..metadata.size, metadata.size, ws)?;
            if end < metadata.size {
                out.set_len(metadata.size)
                    .map_err(self.failed("write", entry))?;
            }
        }
        let made = self.umask.map(|umask| mode & !umask);
        self.finish(&OwnedFd::from(out), entry, metadata, &xattrs, made, ws)
    }

    /// Lets an empty file share the content of a file of the host. Returns whether it does;
    /// otherwise it is still empty.
    fn clone(
        &self,
        content: Option<HostContent<'_>>,
        entry: EntryId,
        size: u64,
        out: &File,
    ) -> Result<bool> {
        let Some(content) = content else {
            return Ok(false);
        };
        let cloned = self.clones.make(&content, size, out);
        cloned.map_err(self.failed("write", entry))
    }

    fn create(&self, dir: &OwnedFd, entry: EntryId, mode: u32) -> Result<File> {
        // Encoded extents are read back.
        let flags = OpenFlags::RDWR | OpenFlags::CREATE | OpenFlags::EXCL;
        let out = linux::open_at(dir, &self.inventory.name(entry), flags, mode);
        Ok(out.map_err(self.failed("create", entry))?.into())
    }

    /// Creates a regular file of full size, without content unless it is cloned.
    pub(super) fn make_big(&self, dir: Arc<OwnedFd>, entry: EntryId) -> Result<Big> {
        let file = self.inventory.file(entry);
        let (ino, size) = (self.inventory.ino(file), self.inventory.size(file));
        let content = self.clones.content(self.inventory.tree(), ino, size);
        let out = self.create(&dir, entry, 0o600)?;
        let is_cloned = self.clone(content, entry, size, &out)?;
        if !is_cloned {
            out.set_len(size).map_err(self.failed("write", entry))?;
        }
        Ok(Big {
            dir,
            file: out,
            entry,
            ino,
            size,
            is_cloned,
            parts: AtomicU32::new(1),
            lost: Mutex::default(),
        })
    }

    /// The position of the first data at or after `at` that has to be written; the file's size if
    /// there is none.
    pub(super) fn next_data(&self, big: &Big, mut at: u64) -> Result<u64> {
        if big.is_cloned {
            return Ok(big.size);
        }
        let mut extents = Extents::new(self.inventory.tree(), big.ino, big.size);
        while at < big.size {
            let extent = extents.covering(at).map_err(self.unreadable(big.entry))?;
            if extent.kind.has_data() {
                break;
            }
            at = extent.end();
        }
        Ok(at)
    }

    /// Writes a part of a big file.
    pub(super) fn fill(&self, big: &Big, range: Range<u64>, ws: &mut Workspace) -> Result<()> {
        self.copy(&big.file, big.entry, big.ino, range, big.size, ws)?;
        Ok(())
    }

    /// Finishes a big file after all its parts are written; removes it if it is lost.
    pub(super) fn finish_big(&self, big: &Big, ws: &mut Workspace) -> Result<()> {
        let file = self.inventory.file(big.entry);
        let metadata = self.inventory.metadata(file);
        ws.done.cloned += u64::from(big.is_cloned);
        let mut finish = || {
            let xattrs = self.xattrs(big.entry)?;
            self.finish(&big.file, big.entry, &metadata, &xattrs, None, ws)
        };
        if !big.is_lost() {
            self.or_lose_big(big, finish())?;
        }
        let lost = big.lost().take();
        match lost {
            Some(error) => self.lose(&big.dir, big.entry, error, ws),
            None => Ok(()),
        }
    }

    /// Copies the data in a range of a file and skips its holes. Returns where the last data ended.
    fn copy(
        &self,
        out: &File,
        entry: EntryId,
        ino: Ino,
        range: Range<u64>,
        size: u64,
        ws: &mut Workspace,
    ) -> Result<u64> {
        let (mut at, end) = (range.start, range.end);
        if size < HOLE_BYTES_MIN && self.stored.is_none() {
            self.copy_data(out, entry, ino, at..end, ws)?;
            return Ok(end);
        }
        let mut written = at;
        ws.stored.forget_written();
        let mut extents = Extents::new(self.inventory.tree(), ino, size);
        while at < end {
            let extent = extents.covering(at).map_err(self.unreadable(entry))?;
            let extent_end = extent.end().min(end);
            match &self.stored {
                Some(stored) if stored.keeps(&extent, size) => {
                    // It is written as a whole, with the part of the file in which it begins.
                    if extent.offset >= range.start {
                        self.copy_stored(stored, out, entry, ino, &extent, ws)?;
                    }
                    at = extent.end();
                    written = at;
                    continue;
                }
                Some(stored) if extent.id.is_some() => {
                    if let ExtentKind::Plain { stored_offset } = extent.kind {
                        let part = Extent {
                            offset: at,
                            len: extent_end - at,
                            kind: ExtentKind::Plain {
                                stored_offset: stored_offset + (at - extent.offset),
                            },
                            id: extent.id,
                        };
                        self.share_or_copy(stored, out, entry, ino, &part, ws)?;
                        written = extent_end;
                        at = extent_end;
                        continue;
                    }
                }
                _ => {}
            }
            if extent.kind.has_data() {
                self.copy_data(out, entry, ino, at..extent_end, ws)?;
                written = extent_end;
            }
            at = extent_end;
        }
        let read_back = ws.stored.read_back(out);
        read_back.map_err(|error| self.not_written(entry, error))?;
        Ok(written)
    }

    /// Writes an extent as it is stored.
    fn copy_stored(
        &self,
        stored: &StoredWriter,
        out: &File,
        entry: EntryId,
        ino: Ino,
        extent: &Extent,
        ws: &mut Workspace,
    ) -> Result<()> {
        let ExtentKind::Encoded(encoding) = extent.kind else {
            return Ok(());
        };
        let source = (self.inventory.tree(), ino);
        let written = stored.write(source, extent, &encoding, out, &mut ws.stored);
        written.map_err(|failure| match failure {
            Failure::Read(error) => self.unreadable(entry)(error),
            Failure::Write(error) => self.failed("write", entry)(error),
            Failure::ReadBack(error) => self.not_written(entry, error),
        })
    }

    /// Shares a part of a file with earlier data, or copies it.
    fn share_or_copy(
        &self,
        stored: &StoredWriter,
        out: &File,
        entry: EntryId,
        ino: Ino,
        part: &Extent,
        ws: &mut Workspace,
    ) -> Result<()> {
        let mut shares = std::mem::take(&mut ws.stored);
        // Its errors have their places already.
        let copied = stored.share_plain(part, out, &mut shares, || {
            self.copy_data(out, entry, ino, part.offset..part.end(), ws)
                .map_err(Failure::Read)
        });
        ws.stored = shares;
        copied.map_err(|failure| match failure {
            Failure::Read(error) => error,
            Failure::Write(error) => self.failed("write", entry)(error),
            Failure::ReadBack(error) => self.not_written(entry, error),
        })
    }

    fn copy_data(
        &self,
        out: &File,
        entry: EntryId,
        ino: Ino,
        range: Range<u64>,
        ws: &mut Workspace,
    ) -> Result<()> {
        let Range { start: mut at, end } = range;
        while at < end {
            let room = self.buffer_bytes - at % self.buffer_bytes;
            let len = room.min(end - at) as usize;
            if ws.buf.len() < len {
                ws.buf.resize(len, 0);
            }
            let buf = &mut ws.buf[..len];
            let read = self.inventory.tree().read_at(ino, at, buf);
            let read = read.map_err(self.unreadable(entry))?;
            if read != len {
                return Err(self.unreadable(entry)(Error::Changed));
            }
            out.write_all_at(buf, at)
                .map_err(self.failed("write", entry))?;
            at += len as u64;
        }
        Ok(())
    }

    /// Sets owner, attributes, mode and times of an open file or directory, in an order in which
    /// none undoes another: changing the owner clears capabilities and set-ID bits, and an access
    /// control list changes the mode. `made` is its current mode, if known.
    fn finish(
        &self,
        file: &impl std::os::fd::AsFd,
        entry: EntryId,
        metadata: &Metadata,
        xattrs: &[Xattr],
        made: Option<u32>,
        ws: &mut Workspace,
    ) -> Result<()> {
        let path = || self.inventory.path(entry);
        let set_owner = |uid, gid| linux::set_owner(file, uid, gid);
        let permissions = self.restore_owner(entry, metadata, ws, set_owner)?;
        for Xattr { name, value } in xattrs {
            if let Err(error) = linux::set_xattr(file, name, value) {
                let reason = format!("{}: {error}", name.escape_ascii());
                ws.done.unrestored.add(Aspect::Xattr, path, &reason);
            }
        }
        if made != Some(permissions) || !xattrs.is_empty() {
            linux::set_mode(file, permissions).map_err(self.failed("set the mode of", entry))?;
        }
        let attributes = metadata.attributes.to_keep();
        if attributes != 0 {
            let settable = attributes & FileAttributes::SETTABLE;
            let set = match settable {
                0 => Ok(()),
                _ => linux::change_attributes(file, FileAttributes::SETTABLE, settable),
            };
            match set {
                Err(error) => ws.done.unrestored.add(Aspect::Attributes, path, &error),
                Ok(()) if settable != attributes => {
                    let reason = "it would hinder the extraction";
                    ws.done.unrestored.add(Aspect::Attributes, path, &reason);
                }
                Ok(()) => {}
            }
        }
        let (atime, mtime) = times(metadata);
        linux::set_times(file, atime, mtime).map_err(self.failed("set the times of", entry))?;
        self.check_time(entry, mtime, ws, || linux::stat(file))
    }

    /// Finishes a directory after everything in it exists.
    pub(super) fn finish_dir(
        &self,
        dir: &OwnedFd,
        entry: EntryId,
        ws: &mut Workspace,
    ) -> Result<()> {
        let file = self.inventory.file(entry);
        let metadata = self.inventory.metadata(file);
        let xattrs = match self.xattrs(entry) {
            Err(error) => {
                let lost = self.unless_lost(Err(error))?;
                ws.done.lost.extend(lost.map(|error| (file, error)));
                Vec::new()
            }
            xattrs => xattrs?,
        };
        self.finish(dir, entry, &metadata, &xattrs, None, ws)
    }

    fn make_special(
        &self,
        dir: &OwnedFd,
        entry: EntryId,
        metadata: &Metadata,
        ws: &mut Workspace,
    ) -> Result<()> {
        let name = &*self.inventory.name(entry);
        let path = || self.inventory.path(entry);
        let file = self.inventory.file(entry);
        let mode = u32::from(metadata.permissions) & 0o777;
        if metadata.kind == FileKind::Symlink {
            let target = self.inventory.tree().read_link(self.inventory.ino(file));
            let target = target.map_err(self.unreadable(entry))?;
            linux::make_symlink_at(&target, dir, name).map_err(self.failed("create", entry))?;
        } else {
            let kind = metadata.kind.mode_bits();
            let rdev = (metadata.rdev.major, metadata.rdev.minor);
            match linux::make_node_at(dir, name, kind | mode, rdev) {
                Err(error)
                    if metadata.kind.is_device()
                        && error.kind() == io::ErrorKind::PermissionDenied =>
                {
                    ws.done.missing.push(file);
                    ws.done.unrestored.add(Aspect::Device, path, &error);
                    return Ok(());
                }
                made => made.map_err(self.failed("create", entry))?,
            }
        }
        let set_owner = |uid, gid| linux::set_owner_at(dir, name, uid, gid);
        let permissions = self.restore_owner(entry, metadata, ws, set_owner)?;
        let xattrs = self.xattrs(entry)?;
        for xattr in &xattrs {
            if let Err(error) = linux::set_xattr_at(dir, name, &xattr.name, &xattr.value) {
                let reason = format!("{}: {error}", xattr.name.escape_ascii());
                ws.done.unrestored.add(Aspect::Xattr, path, &reason);
            }
        }
        let made = self.umask.map(|umask| mode & !umask);
        let has_mode = metadata.kind != FileKind::Symlink; // Linux ignores those of links
        if has_mode && (made != Some(permissions) || !xattrs.is_empty()) {
            linux::set_mode_at(dir, name, permissions)
                .map_err(self.failed("set the mode of", entry))?;
        }
        if metadata.attributes.to_keep() != 0 {
            let reason = "only files and directories can have them";
            ws.done.unrestored.add(Aspect::Attributes, path, &reason);
        }
        let (atime, mtime) = times(metadata);
        linux::set_times_at(dir, name, atime, mtime)
            .map_err(self.failed("set the times of", entry))?;
        self.check_time(entry, mtime, ws, || linux::stat_at(dir, name))
    }

    /// Sets a file's owner, and returns the permissions that it may have then: set-ID bits only if
    /// the owner could be set.
    fn restore_owner(
        &self,
        entry: EntryId,
        metadata: &Metadata,
        ws: &mut Workspace,
        set_owner: impl FnOnce(u32, u32) -> io::Result<()>,
    ) -> Result<u32> {
        let permissions = u32::from(metadata.permissions);
        let (uid, gid) = (metadata.uid, metadata.gid);
        if (uid, gid) == self.process_owner {
            return Ok(permissions);
        }
        let path = || self.inventory.path(entry);
        if self.owners {
            let denied = match &ws.denied {
                Some((denied_uid, denied_gid, reason))
                    if (*denied_uid, *denied_gid) == (uid, gid) =>
                {
                    Err(reason.clone())
                }
                // For Linux, it is no change.
                _ if [uid, gid].contains(&NO_OWNER) => Err("it means no owner".to_owned()),
                _ => match set_owner(uid, gid) {
                    Ok(()) => Ok(()),
                    // `EINVAL` means that the owner does not exist in this user namespace.
                    Err(error)
                        if matches!(
                            error.kind(),
                            io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput
                        ) =>
                    {
                        Err(error.to_string())
                    }
                    Err(error) => return Err(self.failed("set the owner of", entry)(error)),
                },
            };
            match denied {
                Ok(()) => return Ok(permissions),
                Err(reason) => {
                    ws.done.unrestored.add(Aspect::Owner, path, &reason);
                    ws.denied = Some((uid, gid, reason));
                }
            }
        }
        if permissions & 0o6000 != 0 && metadata.kind != FileKind::Directory {
            let reason = "set-id bits are not given to a file of another owner";
            ws.done.unrestored.add(Aspect::Mode, path, &reason);
            return Ok(permissions & !0o6000);
        }
        Ok(permissions)
    }

    /// File systems silently truncate times that they cannot hold; no common one truncates those of
    /// 1970 to 2038.
    fn check_time(
        &self,
        entry: EntryId,
        mtime: Timestamp,
        ws: &mut Workspace,
        stat: impl FnOnce() -> io::Result<linux::Stat>,
    ) -> Result<()> {
        if (0..1 << 31).contains(&mtime.seconds) {
            return Ok(());
        }
        let stat = stat().map_err(self.failed("read back", entry))?;
        if stat.mtime != mtime {
            let path = || self.inventory.path(entry);
            let reason = "the file system cannot hold it";
            ws.done.unrestored.add(Aspect::Time, path, &reason);
        }
        Ok(())
    }
}

/// Access and modification time.
pub(super) fn times(metadata: &Metadata) -> (Option<Timestamp>, Timestamp) {
    let timestamp = |time: Time| Timestamp {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
    };
    (metadata.atime.map(timestamp), timestamp(metadata.mtime))
}
