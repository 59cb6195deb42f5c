//! Requests about the content and the extended attributes of files.

use linux::errno;
use tree::{Error, Extents, FileKind, Ino, Xattr, to_u64, to_usize};

use crate::device::FuseDevice;
use crate::raw::{NOTIFY_STORE, Request};
use crate::reply::{BODY_BYTES_MAX, Errno, Reply};
use crate::served::Served;
use crate::siblings::Siblings;

/// `SEEK_DATA`, `SEEK_HOLE`.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// The unit in which the kernel asks for content.
const PAGE_BYTES: usize = 4096;

/// Attributes that only root sees.
const TRUSTED: &[u8] = b"trusted.";

type Answer = Result<(), Errno>;

impl Served {
    /// `READLINK`: the target.
    pub(crate) fn answer_readlink(&self, request: &Request<'_>, reply: &mut Reply) -> Answer {
        let ino = self.nodes.ino(request.node);
        let target = self.fs.read_link(ino);
        let target = target.map_err(|error| self.failed("read the link", ino, None, &error))?;
        reply.put(&target);
        Ok(())
    }

    /// `READ`: the content, decoded straight into the reply.
    pub(crate) fn answer_read(&self, request: &Request<'_>, reply: &mut Reply) -> Answer {
        let ino = self.nodes.ino(request.node);
        let (offset, size) = place_of_read(request).ok_or(Errno(errno::EINVAL))?;
        if let Some(ahead) = &self.ahead {
            ahead.note(ino, offset, size.into());
        }
        let room = reply.room(to_usize(size).min(BODY_BYTES_MAX));
        let read = self.fs.read_at(ino, offset, room);
        let read = read.map_err(|error| {
            let at = self.first_unreadable(ino, offset, to_usize(size).min(BODY_BYTES_MAX));
            self.failed("read", ino, Some(at), &error)
        })?;
        reply.fill(read);
        self.counters.count_bytes(to_u64(read));
        Ok(())
    }

    /// Puts small files that the program probably reads next into the page cache, before a `READ`
    /// is answered.
    pub(crate) fn send_siblings(&self, request: &Request<'_>, device: &impl FuseDevice) {
        if let (Some(siblings), Some((0, _))) = (&self.siblings, place_of_read(request)) {
            let ino = self.nodes.ino(request.node);
            self.send_files(siblings, || siblings.after(ino), device);
        }
    }

    /// The same for those of a directory, before the kernel hears that it has no more names.
    pub(crate) fn send_listed(&self, request: &Request<'_>, device: &impl FuseDevice) {
        let Some(siblings) = &self.siblings else {
            return;
        };
        let Ok(directory) = self.directory(self.nodes.ino(request.node), true) else {
            return;
        };
        let entries = (0..).map_while(|index| directory.at(index));
        let files = entries.filter(|entry| entry.kind == FileKind::Regular);
        let files = files.map(|entry| entry.ino);
        self.send_files(siblings, || siblings.after_list(files), device);
    }

    fn send_files(
        &self,
        siblings: &Siblings,
        wanted: impl FnOnce() -> Vec<(Ino, usize)>,
        device: &impl FuseDevice,
    ) {
        // Another thread is sending.
        let Ok(mut record) = siblings.record.try_lock() else {
            return;
        };
        for (ino, bytes) in wanted() {
            let (Some(node), Ok(size)) = (self.nodes.of(ino), u32::try_from(bytes)) else {
                continue;
            };
            record.clear();
            record.u64(node);
            record.u64(0);
            record.u32(size);
            record.u32(0);
            // Faults in a file are found when it is asked for.
            if self.fs.read_at(ino, 0, record.room(bytes)).ok() != Some(bytes) {
                continue;
            }
            record.fill(bytes);
            // The kernel may have forgotten the file, and then those that were listed with it.
            if device
                .send(record.finish_notification(NOTIFY_STORE))
                .is_err()
            {
                return;
            }
            self.counters.count_unasked(to_u64(bytes));
        }
    }

    /// The page that cannot be read, of those that could not be read together.
    fn first_unreadable(&self, ino: Ino, offset: u64, len: usize) -> u64 {
        let mut page = [0; PAGE_BYTES];
        let pages = (offset..offset.saturating_add(to_u64(len))).step_by(PAGE_BYTES);
        let mut wrong = pages.filter(|&at| self.fs.read_at(ino, at, &mut page).is_err());
        wrong.next().unwrap_or(offset)
    }

    /// `LSEEK`: where the next data or hole begins.
    pub(crate) fn answer_lseek(&self, request: &Request<'_>, reply: &mut Reply) -> Answer {
        let ino = self.nodes.ino(request.node);
        let mut body = request.body;
        let fields = (|| {
            body.u64()?; // the handle
            Some((body.u64()?, body.u32()?))
        })();
        let (offset, whence) = fields.ok_or(Errno(errno::EINVAL))?;
        if whence != SEEK_DATA && whence != SEEK_HOLE {
            return Err(Errno(errno::EINVAL));
        }
        let found = self.seek(ino, offset, whence == SEEK_DATA);
        let found = found.map_err(|error| self.failed("read", ino, Some(offset), &error))?;
        reply.u64(found.ok_or(Errno(errno::ENXIO))?);
        Ok(())
    }

    /// The first byte at or after `offset` that is data, or none; the end counts as a hole.
    fn seek(&self, ino: Ino, offset: u64, wants_data: bool) -> Result<Option<u64>, Error> {
        let size = self.fs.metadata(ino)?.size;
        let mut extents = Extents::new(&*self.fs, ino, size);
        let mut at = offset;
        while at < size {
            let extent = extents.covering(at)?;
            if extent.kind.has_data() == wants_data {
                return Ok(Some(extent.offset.max(at)));
            }
            at = extent.end();
        }
        // A hole begins at the end of every file.
        Ok(Some(size).filter(|_| offset < size && !wants_data))
    }

    /// `GETXATTR`: a value, or its length if there is no room for it.
    pub(crate) fn answer_getxattr(&self, request: &Request<'_>, reply: &mut Reply) -> Answer {
        let mut body = request.body;
        let fields = (|| Some((body.u32()?, body.u32()?, body.name()?)))();
        let (size, _, name) = fields.ok_or(Errno(errno::EINVAL))?;
        let xattrs = self.xattrs(request)?;
        let found = xattrs.iter().find(|xattr| *xattr.name == *name);
        let value = found.ok_or(Errno(errno::ENODATA))?;
        put_sized(&value.value, size, reply)
    }

    /// `LISTXATTR`: the names, each with NUL after it, or their length if there is no room.
    pub(crate) fn answer_listxattr(&self, request: &Request<'_>, reply: &mut Reply) -> Answer {
        let mut body = request.body;
        let size = body.u32().ok_or(Errno(errno::EINVAL))?;
        let mut names = Vec::new();
        for xattr in self.xattrs(request)? {
            if request.uid == 0 || !xattr.name.starts_with(TRUSTED) {
                names.extend_from_slice(&xattr.name);
                names.push(0);
            }
        }
        put_sized(&names, size, reply)
    }

    fn xattrs(&self, request: &Request<'_>) -> Result<Vec<Xattr>, Errno> {
        if !self.options.has_xattrs {
            return Err(Errno(errno::ENOSYS));
        }
        let ino = self.nodes.ino(request.node);
        let xattrs = self.fs.xattrs(ino);
        xattrs.map_err(|error| self.failed("read attributes of", ino, None, &error))
    }
}

/// The offset and the number of bytes of a `READ`.
fn place_of_read(request: &Request<'_>) -> Option<(u64, u32)> {
    let mut body = request.body;
    body.u64()?; // the handle
    Some((body.u64()?, body.u32()?))
}

/// Appends the part that fits in `size` bytes; if there is no size, a `struct fuse_getxattr_out`
/// with the length.
fn put_sized(bytes: &[u8], size: u32, reply: &mut Reply) -> Answer {
    if size == 0 {
        let len = u32::try_from(bytes.len()).map_err(|_| Errno(errno::ERANGE))?;
        reply.u32(len);
        reply.u32(0);
        return Ok(());
    }
    if bytes.len() > to_usize(size).min(BODY_BYTES_MAX) {
        return Err(Errno(errno::ERANGE));
    }
    reply.put(bytes);
    Ok(())
}
