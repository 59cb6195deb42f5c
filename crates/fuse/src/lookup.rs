//! Requests about names and attributes.

use linux::errno;
use tree::{FileKind, Ino};

use crate::attributes::Attributes;
use crate::raw::{NAME_BYTES_MAX, Request};
use crate::reply::{Errno, Reply};
use crate::served::Served;

/// The block size that `df` counts in.
const STATFS_BLOCK_BYTES: u32 = 4096;

type Answer = Result<(), Errno>;

impl Served {
    /// `LOOKUP`: `struct fuse_entry_out`, with number 0 for a name that does not exist.
    pub(crate) fn answer_lookup(&self, request: &Request<'_>, reply: &mut Reply) -> Answer {
        let dir = self.nodes.ino(request.node);
        let mut body = request.body;
        let name = body.name().ok_or(Errno(errno::EINVAL))?;
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno(errno::ENAMETOOLONG));
        }
        // Servers of NFS ask for a file by its number, and for the directory that one is in.
        match name {
            b"." => return self.entry(dir, reply),
            b".." => {
                let parent = self.parent(dir).ok_or(Errno(errno::ESTALE))?;
                return self.entry(parent, reply);
            }
            _ => {}
        }
        let found = self.lookup(dir, name);
        let found = found.map_err(|error| self.failed("read the directory", dir, None, &error))?;
        let Some(found) = found else {
            let lifetime = self.lifetime();
            reply.u64(0);
            reply.u64(0);
            reply.u64(lifetime.as_secs());
            reply.u64(0);
            reply.u32(lifetime.subsec_nanos());
            reply.u32(0);
            reply.zeros(crate::attributes::ATTRIBUTE_BYTES);
            return Ok(());
        };
        if found.kind == FileKind::Directory {
            self.note_directory(found.ino, dir, name);
        } else {
            self.note_file(found.ino, dir, name);
        }
        self.entry(found.ino, reply)
    }

    fn entry(&self, ino: Ino, reply: &mut Reply) -> Answer {
        let attributes = self.attributes(ino);
        let attributes = attributes.map_err(|error| match error {
            // A file handle of NFS that names no file.
            tree::Error::NotFound => Errno(errno::ESTALE),
            error => self.failed("read", ino, None, &error),
        })?;
        let node = self.nodes.of(ino).ok_or(Errno(errno::EOVERFLOW))?;
        self.emit_entry(node, &attributes, reply);
        Ok(())
    }

    /// The attributes of the file that is asked about, after appending how long the kernel may keep
    /// them.
    fn attributes_with_lifetime(
        &self,
        request: &Request<'_>,
        reply: &mut Reply,
    ) -> Result<Attributes, Errno> {
        let ino = self.nodes.ino(request.node);
        let attributes = self.attributes(ino);
        let attributes = attributes.map_err(|error| self.failed("read", ino, None, &error))?;
        let lifetime = self.lifetime();
        reply.u64(lifetime.as_secs());
        reply.u32(lifetime.subsec_nanos());
        reply.u32(0);
        Ok(attributes)
    }

    /// `GETATTR`: `struct fuse_attr_out`.
    pub(crate) fn answer_getattr(&self, request: &Request<'_>, reply: &mut Reply) -> Answer {
        let attributes = self.attributes_with_lifetime(request, reply)?;
        attributes.emit(reply);
        Ok(())
    }

    /// `STATX`, which is sent if a program wants to know the time of birth: `struct
    /// fuse_statx_out`.
    pub(crate) fn answer_statx(&self, request: &Request<'_>, reply: &mut Reply) -> Answer {
        if !self.options.has_birth_times {
            return Err(Errno(errno::ENOSYS));
        }
        let attributes = self.attributes_with_lifetime(request, reply)?;
        reply.u64(0);
        reply.u64(0);
        attributes.emit_statx(reply);
        Ok(())
    }

    /// `STATFS`: `struct fuse_statfs_out`. Nothing is free.
    pub(crate) fn answer_statfs(&self, reply: &mut Reply) {
        let blocks = self.options.size_bytes.div_ceil(STATFS_BLOCK_BYTES.into());
        for field in [blocks, 0, 0, self.options.files, 0] {
            reply.u64(field);
        }
        reply.u32(STATFS_BLOCK_BYTES);
        reply.u32(u32::try_from(NAME_BYTES_MAX).unwrap_or(u32::MAX));
        reply.u32(STATFS_BLOCK_BYTES);
        reply.zeros(28);
    }
}
