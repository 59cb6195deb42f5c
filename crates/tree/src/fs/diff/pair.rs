//! Compares the files of one path in two trees.

use std::io;

use super::super::data::{is_zero, open_ahead};
use super::super::{
    Aspects, Extent, ExtentKind, Extents, FileKind, FileSystem, Ino, Metadata, Xattr,
};
use super::difference::{Change, READ_FIRST, READ_SECOND};
use crate::{Error, Result};

/// Files up to this size are read without first asking for their extents.
const SMALL_BYTES: u64 = 64 << 10;

/// The read buffers of a thread.
#[derive(Default)]
pub(super) struct Buffers {
    first: Vec<u8>,
    second: Vec<u8>,
}

/// The trees, and how they are compared.
pub(super) struct Compare<'a> {
    pub(super) first: &'a dyn FileSystem,
    pub(super) second: &'a dyn FileSystem,
    pub(super) aspects: &'a Aspects,
    /// Both are the same tree, so equal numbers are equal files.
    pub(super) same_tree: bool,
    /// Both show data of the same store, so equal identities are equal data.
    pub(super) same_store: bool,
    /// Whether times are compared to the second.
    pub(super) whole_seconds: bool,
    /// How many bytes of a file are read at once.
    pub(super) chunk_bytes: usize,
}

/// Two files of the same kind.
pub(super) struct Pair<'a> {
    pub(super) compare: &'a Compare<'a>,
    pub(super) first: Ino,
    pub(super) second: Ino,
    pub(super) a: Metadata,
    pub(super) b: Metadata,
    pub(super) path: &'a [u8],
}

impl Pair<'_> {
    /// Reads the metadata of both files again. Returns whether they are still of the same kind.
    fn describe_again(&mut self) -> Result<bool> {
        let Compare { first, second, .. } = self.compare;
        let a = first.metadata(self.first);
        let b = second.metadata(self.second);
        let kind = self.a.kind;
        self.a = a.map_err(|error| error.in_file(READ_FIRST, self.path))?;
        self.b = b.map_err(|error| error.in_file(READ_SECOND, self.path))?;
        Ok(self.a.kind == kind && self.b.kind == kind)
    }

    /// How many bytes of content are compared.
    pub(super) fn content_bytes(&self) -> u64 {
        let is_compared = self.compare.aspects.content
            && self.a.kind == FileKind::Regular
            && self.a.size == self.b.size;
        if is_compared { self.a.size } else { 0 }
    }

    /// All differences but those in names. If a file of a live tree changed since its directory was
    /// listed, they are compared as they are now.
    pub(super) fn changes(&mut self, buffers: &mut Buffers) -> Result<Vec<Change>> {
        match self.compare(buffers) {
            Err(error) if is_change(&error) && self.describe_again()? => self.compare(buffers),
            changes => changes,
        }
    }

    fn compare(&self, buffers: &mut Buffers) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        self.compare_metadata(&mut changes)?;
        let (a, b, aspects) = (&self.a, &self.b, self.compare.aspects);
        if a.kind == FileKind::Regular && a.size != b.size {
            changes.push(Change::Size(a.size, b.size));
        } else if a.kind == FileKind::Regular {
            if aspects.content {
                let at = self.first_difference(buffers)?;
                changes.extend(at.map(|at| Change::Content { at }));
            }
            if aspects.holes {
                let at = self.first_hole_difference()?;
                changes.extend(at.map(|at| Change::Holes { at }));
            }
        }
        Ok(changes)
    }

    fn compare_metadata(&self, changes: &mut Vec<Change>) -> Result<()> {
        let in_first = |error: Error| error.in_file(READ_FIRST, self.path);
        let in_second = |error: Error| error.in_file(READ_SECOND, self.path);
        let Compare {
            first,
            second,
            aspects,
            whole_seconds,
            ..
        } = self.compare;
        let (a, b) = (&self.a, &self.b);
        // The mode of a symbolic link has no meaning, and Linux cannot set it.
        if aspects.permissions && a.kind != FileKind::Symlink && a.permissions != b.permissions {
            changes.push(Change::Permissions(a.permissions, b.permissions));
        }
        if aspects.owner && (a.uid, a.gid) != (b.uid, b.gid) {
            changes.push(Change::Owner((a.uid, a.gid), (b.uid, b.gid)));
        }
        let fraction = !whole_seconds && a.mtime.nanoseconds != b.mtime.nanoseconds;
        if aspects.mtime && (a.mtime.seconds != b.mtime.seconds || fraction) {
            changes.push(Change::Mtime(a.mtime, b.mtime));
        }
        if a.kind.is_device() && a.rdev != b.rdev {
            changes.push(Change::Rdev(a.rdev, b.rdev));
        }
        if a.kind == FileKind::Symlink {
            let a = first.read_link(self.first).map_err(in_first)?;
            let b = second.read_link(self.second).map_err(in_second)?;
            if a != b {
                changes.push(Change::LinkTarget(a.into(), b.into()));
            }
        }
        if aspects.xattrs {
            if self.content_bytes() > 0 {
                open_ahead(*first, self.first, a.size).map_err(in_first)?;
                open_ahead(*second, self.second, b.size).map_err(in_second)?;
            }
            match (first.xattrs(self.first), second.xattrs(self.second)) {
                (Err(error), _) | (_, Err(error)) if is_list_too_long(&error) => {
                    changes.push(Change::XattrsUnlisted);
                }
                (a, b) => {
                    let (a, b) = (a.map_err(in_first)?, b.map_err(in_second)?);
                    compare_xattrs(&a, &b, changes);
                }
            }
        }
        Ok(())
    }

    /// The first byte that differs.
    fn first_difference(&self, buffers: &mut Buffers) -> Result<Option<u64>> {
        if self.a.size <= SMALL_BYTES && !self.compare.same_store {
            return self.read_and_compare(0, self.a.size, buffers);
        }
        let mut position = 0;
        let (mut a, mut b) = self.extents();
        while position < self.a.size {
            let (a, b) = (a.covering(position)?, b.covering(position)?);
            let end = a.end().min(b.end());
            if !self.known_same(&a, &b, position, buffers)? {
                let Compare { first, second, .. } = self.compare;
                let differs = match (a.kind.has_data(), b.kind.has_data()) {
                    (true, false) => {
                        let data = (*first, self.first, READ_FIRST);
                        self.first_nonzero(data, position, end, buffers)?
                    }
                    (false, true) => {
                        let data = (*second, self.second, READ_SECOND);
                        self.first_nonzero(data, position, end, buffers)?
                    }
                    _ => self.read_and_compare(position, end, buffers)?,
                };
                if differs.is_some() {
                    return Ok(differs);
                }
            }
            position = end;
        }
        Ok(None)
    }

    /// Whether two extents are known to be equal from `position`, without decoding them.
    fn known_same(
        &self,
        a: &Extent,
        b: &Extent,
        position: u64,
        buffers: &mut Buffers,
    ) -> Result<bool> {
        match (a.kind, b.kind) {
            _ if !a.kind.has_data() && !b.kind.has_data() => Ok(true),
            (
                ExtentKind::Plain {
                    stored_offset: a_at,
                },
                ExtentKind::Plain {
                    stored_offset: b_at,
                },
            ) => {
                let same_place = a_at + (position - a.offset) == b_at + (position - b.offset);
                Ok(self.compare.same_store && a.id.is_some() && a.id == b.id && same_place)
            }
            (ExtentKind::Encoded(a_code), ExtentKind::Encoded(b_code)) => {
                if a.offset != b.offset || a_code != b_code {
                    return Ok(false);
                }
                if self.compare.same_store && a.id.is_some() && a.id == b.id {
                    return Ok(true);
                }
                // Equal stored bytes decode to equal content; different ones can, too.
                let Compare { first, second, .. } = self.compare;
                let Buffers {
                    first: a_bytes,
                    second: b_bytes,
                } = buffers;
                let a_read = first.read_encoded(self.first, a, a_bytes);
                a_read.map_err(|error| error.in_file(READ_FIRST, self.path))?;
                let b_read = second.read_encoded(self.second, b, b_bytes);
                b_read.map_err(|error| error.in_file(READ_SECOND, self.path))?;
                Ok(a_bytes == b_bytes)
            }
            _ => Ok(false),
        }
    }

    /// The first byte of one of the files that is not zero, where the other one has a hole.
    fn first_nonzero(
        &self,
        (tree, file, verb): (&dyn FileSystem, Ino, &'static str),
        from: u64,
        to: u64,
        buffers: &mut Buffers,
    ) -> Result<Option<u64>> {
        let buffer = &mut buffers.first;
        buffer.resize(self.compare.chunk_bytes, 0);
        let mut position = from;
        while position < to {
            let len = (to - position).min(self.compare.chunk_bytes as u64) as usize;
            let read = tree.read_at(file, position, &mut buffer[..len]);
            let read = read.map_err(|error| error.in_file(verb, self.path))?;
            if read == 0 {
                return Err(Error::Changed.in_file(verb, self.path));
            }
            let bytes = &buffer[..read];
            if !is_zero(bytes) {
                let at = bytes.iter().position(|&byte| byte != 0).unwrap_or(0);
                return Ok(Some(position + at as u64));
            }
            position += read as u64;
        }
        Ok(None)
    }

    fn read_and_compare(&self, from: u64, to: u64, buffers: &mut Buffers) -> Result<Option<u64>> {
        let Buffers {
            first: a,
            second: b,
        } = buffers;
        a.resize(self.compare.chunk_bytes, 0);
        b.resize(self.compare.chunk_bytes, 0);
        let mut position = from;
        while position < to {
            let len = (to - position).min(self.compare.chunk_bytes as u64) as usize;
            let Compare { first, second, .. } = self.compare;
            let a_len = first.read_at(self.first, position, &mut a[..len]);
            let a_len = a_len.map_err(|error| error.in_file(READ_FIRST, self.path))?;
            let b_len = second.read_at(self.second, position, &mut b[..len]);
            let b_len = b_len.map_err(|error| error.in_file(READ_SECOND, self.path))?;
            let (a, b) = (&a[..a_len], &b[..b_len]);
            if a != b {
                let differs = a.iter().zip(b).position(|(a, b)| a != b);
                let differs = differs.unwrap_or(a_len.min(b_len));
                return Ok(Some(position + differs as u64));
            }
            if a_len == 0 {
                break; // Both were cut while they were read.
            }
            position += a_len as u64;
        }
        Ok(None)
    }

    /// The first byte that is in a hole of only one file.
    fn first_hole_difference(&self) -> Result<Option<u64>> {
        let mut position = 0;
        let (mut a, mut b) = self.extents();
        while position < self.a.size {
            let (a, b) = (a.covering(position)?, b.covering(position)?);
            if a.kind.has_data() != b.kind.has_data() {
                return Ok(Some(position));
            }
            position = a.end().min(b.end());
        }
        Ok(None)
    }

    fn extents(&self) -> (Named<'_>, Named<'_>) {
        let Compare { first, second, .. } = self.compare;
        let path = self.path;
        (
            Named {
                extents: Extents::new(*first, self.first, self.a.size),
                verb: READ_FIRST,
                path,
            },
            Named {
                extents: Extents::new(*second, self.second, self.a.size),
                verb: READ_SECOND,
                path,
            },
        )
    }
}

/// The extents of one of the files, with errors that name it.
struct Named<'a> {
    extents: Extents<'a>,
    verb: &'static str,
    path: &'a [u8],
}

impl Named<'_> {
    fn covering(&mut self, position: u64) -> Result<Extent> {
        let extent = self.extents.covering(position);
        extent.map_err(|error| error.in_file(self.verb, self.path))
    }
}

/// Compares two lists, both sorted by name.
fn compare_xattrs(a: &[Xattr], b: &[Xattr], changes: &mut Vec<Change>) {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    while let Some(name) = match (a.peek(), b.peek()) {
        (Some(a), Some(b)) => Some((&a.name).min(&b.name)),
        (Some(only), None) | (None, Some(only)) => Some(&only.name),
        (None, None) => None,
    } {
        let first = a
            .next_if(|xattr| xattr.name == *name)
            .map(|xattr| xattr.value.clone());
        let second = b
            .next_if(|xattr| xattr.name == *name)
            .map(|xattr| xattr.value.clone());
        if first != second {
            changes.push(Change::Xattr {
                name: name.clone(),
                first,
                second,
            });
        }
    }
}

fn is_list_too_long(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind() == io::ErrorKind::ArgumentListTooLong)
}

fn is_change(error: &Error) -> bool {
    match error {
        Error::Changed => true,
        Error::File { error, .. } => is_change(error),
        _ => false,
    }
}
