//! Requests for the entries of directories.

use linux::errno;
use tree::{FileKind, Ino, to_usize};

use crate::attributes::{ATTRIBUTE_BYTES, entry_type};
use crate::raw::Request;
use crate::reply::{BODY_BYTES_MAX, Errno, Reply};
use crate::served::Served;

/// The size of `struct fuse_entry_out`.
const ENTRY_BYTES: usize = 40 + ATTRIBUTE_BYTES;
/// The size of `struct fuse_dirent` without the name.
const NAMED_BYTES: usize = 24;

/// Entries of which every directory has one: itself and the one that it is in.
const DOTS: [&[u8]; 2] = [b".", b".."];

impl Served {
    /// `READDIR` and `READDIRPLUS`: as many entries as fit, starting with the one at an offset,
    /// which is the number of entries before it. With `plus`, each with its attributes, so that the
    /// kernel does not ask for them.
    pub(crate) fn answer_readdir(
        &self,
        request: &Request<'_>,
        plus: bool,
        reply: &mut Reply,
    ) -> Result<(), Errno> {
        let dir = self.nodes.ino(request.node);
        let mut body = request.body;
        let fields = (|| {
            body.u64()?; // the handle
            Some((body.u64()?, body.u32()?))
        })();
        let (from, size) = fields.ok_or(Errno(errno::EINVAL))?;
        let size = to_usize(size).min(BODY_BYTES_MAX);
        let again = !self.options.is_live || from > 0;
        let directory = self.directory(dir, again);
        let directory =
            directory.map_err(|error| self.failed("read the directory", dir, None, &error))?;
        let mut index = from;
        loop {
            let next = index.saturating_add(1);
            let entry = match DOTS.get(to_usize(index)) {
                Some(name) => Some((*name, dir, FileKind::Directory)),
                None => {
                    let entry = directory.at(to_usize(index).saturating_sub(DOTS.len()));
                    entry.map(|entry| (entry.name, entry.ino, entry.kind))
                }
            };
            let Some((name, ino, kind)) = entry else {
                return Ok(());
            };
            let named_bytes = NAMED_BYTES.saturating_add(name.len()).next_multiple_of(8);
            let bytes = named_bytes.saturating_add(if plus { ENTRY_BYTES } else { 0 });
            if reply.body_len().saturating_add(bytes) > size {
                return Ok(());
            }
            let is_dot = to_usize(index) < DOTS.len();
            let number = if is_dot {
                self.number_of_dot(dir, name)
            } else if plus {
                self.put_attributes(dir, (name, ino, kind), reply)
            } else {
                self.number(ino)
            };
            if is_dot && plus {
                reply.zeros(ENTRY_BYTES);
            }
            reply.u64(number);
            reply.u64(next);
            reply.u32(u32::try_from(name.len()).unwrap_or(0)); // at most 255
            reply.u32(entry_type(kind));
            reply.put(name);
            reply.zeros(named_bytes.saturating_sub(NAMED_BYTES.saturating_add(name.len())));
            index = next;
        }
    }

    /// Appends a `struct fuse_entry_out`, and returns the number that programs see. A file whose
    /// attributes cannot be read has only a name here; whoever asks for them gets the error.
    fn put_attributes(
        &self,
        dir: Ino,
        (name, ino, kind): (&[u8], Ino, FileKind),
        reply: &mut Reply,
    ) -> u64 {
        if kind == FileKind::Directory {
            self.note_directory(ino, dir, name);
        }
        match (self.nodes.of(ino), self.attributes(ino)) {
            // What is not of the kind that its directory says cannot have been meant.
            (Some(node), Ok(attributes)) if attributes.metadata.kind == kind => {
                if kind == FileKind::Regular
                    && let Some(siblings) = &self.siblings
                {
                    siblings.note_listed(ino, attributes.metadata.size);
                }
                self.emit_entry(node, &attributes, reply);
                attributes.number
            }
            _ => {
                reply.zeros(ENTRY_BYTES);
                self.number(ino)
            }
        }
    }

    fn number(&self, ino: Ino) -> u64 {
        let number = (self.options.numbers)(ino);
        number.unwrap_or_else(|_| self.nodes.of(ino).unwrap_or(u64::MAX))
    }

    fn number_of_dot(&self, dir: Ino, name: &[u8]) -> u64 {
        let shown = if name == b".." {
            self.parent(dir).unwrap_or(dir)
        } else {
            dir
        };
        self.number(shown)
    }
}
