//! Compares two trees entry by entry.

use std::collections::HashMap;
use std::fmt;
use std::iter::Peekable;
use std::vec;

use super::data::is_zero;
use super::{
    Aspects, Device, DirEntry, Extent, ExtentKind, Extents, FileKind, FileSystem, Ino, Metadata,
    Time,
};
use crate::{Error, Parallel, Progress, Result, ordered};

/// How many bytes of each file are read and compared at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Files up to this size are read without first asking for their extents.
const SMALL_BYTES: u64 = 64 << 10;

/// One difference between two trees.
#[derive(Clone, PartialEq, Eq)]
pub struct Difference {
    /// The path from the root, without a leading `/`; empty for the root.
    pub path: Box<[u8]>,
    /// What differs there.
    pub change: Change,
}

impl fmt::Debug for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.path.escape_ascii(), self.change)
    }
}

/// What differs; the first tree's value comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Only the first tree has this name. The contents of a directory are not reported separately.
    OnlyInFirst(FileKind),
    /// Only the second tree has this name.
    OnlyInSecond(FileKind),
    /// The file type; nothing else is compared then.
    Kind(FileKind, FileKind),
    /// The low twelve bits of the mode.
    Permissions(u16, u16),
    /// Owner and group.
    Owner((u32, u32), (u32, u32)),
    /// Time of the last change of content.
    Mtime(Time, Time),
    /// Size of a regular file in bytes; the content is not compared then.
    Size(u64, u64),
    /// Content, starting at this byte.
    Content {
        /// The first byte that differs.
        at: u64,
    },
    /// The target of a symbolic link.
    LinkTarget(Box<[u8]>, Box<[u8]>),
    /// The device number.
    Rdev(Device, Device),
    /// An extended attribute, with its value in each tree that has it.
    Xattr {
        /// Its full name.
        name: Box<[u8]>,
        /// Its value in the first tree.
        first: Option<Box<[u8]>>,
        /// Its value in the second tree.
        second: Option<Box<[u8]>>,
    },
    /// The earlier path that this is a hard link to; `None` if it is not a hard link.
    HardLink(Option<Box<[u8]>>, Option<Box<[u8]>>),
    /// One file has a hole where the other has data, starting at this byte.
    Holes {
        /// The first byte of the hole.
        at: u64,
    },
}

/// The verb of an [`crate::Error::File`] if reading the first tree failed.
pub const READ_FIRST: &str = "read in the first tree";
/// The verb of an [`crate::Error::File`] if reading the second tree failed.
pub const READ_SECOND: &str = "read in the second tree";

/// Compares two trees and reports the differences in path order, directory by directory.
///
/// Content is read only where it can differ: not in files of different sizes, not where both have holes or show the
/// same stored data, and only once for all names of a file. Memory use is bounded by the directories on the current
/// path and the files with several names. If one tree has only whole seconds, times are compared to the second.
///
/// # Errors
/// A tree cannot be read, or `report` fails. The error names the file, and its verb is [`READ_FIRST`] or
/// [`READ_SECOND`].
pub fn diff(
    first: &dyn FileSystem,
    second: &dyn FileSystem,
    aspects: &Aspects,
    parallel: Parallel,
    progress: &dyn Progress,
    report: &mut dyn FnMut(Difference) -> Result<()>,
) -> Result<()> {
    let same_tree = std::ptr::addr_eq(first, second);
    let compare = Compare {
        first,
        second,
        aspects,
        same_tree,
        same_store: first.storage().store == second.storage().store,
        whole_seconds: first.storage().whole_seconds || second.storage().whole_seconds,
    };
    let lockstep = Lockstep {
        compare: &compare,
        above: Vec::new(),
        path: Vec::new(),
        started: false,
        links: Links::default(),
    };
    ordered(
        parallel,
        lockstep,
        Buffers::default,
        |buffers, job| compare.finish(job?, buffers),
        |Done {
             path,
             changes,
             bytes,
         }| {
            progress.advance(1, bytes);
            for change in changes {
                report(Difference {
                    path: path.clone(),
                    change,
                })?;
            }
            Ok(())
        },
    )
}

/// The files at one path in both trees, as far as the walk has compared them.
struct Job {
    path: Box<[u8]>,
    changes: Vec<Change>,
    /// What remains to be compared.
    pair: Option<(Ino, Ino, Metadata, Metadata)>,
}

struct Done {
    path: Box<[u8]>,
    changes: Vec<Change>,
    bytes: u64,
}

/// Walks both trees in lockstep, in name order.
struct Lockstep<'a> {
    compare: &'a Compare<'a>,
    above: Vec<Level>,
    path: Vec<u8>,
    started: bool,
    links: Links,
}

struct Level {
    first: Peekable<vec::IntoIter<DirEntry>>,
    second: Peekable<vec::IntoIter<DirEntry>>,
    /// The length of this directory's path.
    path_len: usize,
}

impl Iterator for Lockstep<'_> {
    type Item = Result<Job>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.started {
            self.started = true;
            let roots = (self.compare.first.root(), self.compare.second.root());
            return Some(self.pair(roots.0, roots.1));
        }
        loop {
            let level = self.above.last_mut()?;
            self.path.truncate(level.path_len);
            let (first, second) = match (level.first.peek(), level.second.peek()) {
                (None, None) => {
                    self.above.pop();
                    continue;
                }
                (Some(_), None) => (level.first.next(), None),
                (None, Some(_)) => (None, level.second.next()),
                (Some(first), Some(second)) => match first.name.cmp(&second.name) {
                    std::cmp::Ordering::Less => (level.first.next(), None),
                    std::cmp::Ordering::Greater => (None, level.second.next()),
                    std::cmp::Ordering::Equal => (level.first.next(), level.second.next()),
                },
            };
            let name = first.as_ref().or(second.as_ref()).map(|entry| &entry.name);
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name.map_or(&[], |name| name));
            return Some(match (first, second) {
                (Some(first), Some(second)) => self.pair(first.ino, second.ino),
                (first, second) => {
                    let only_in_first = first.map(|entry| Change::OnlyInFirst(entry.kind));
                    let only_in_second = second.map(|entry| Change::OnlyInSecond(entry.kind));
                    let changes = only_in_first.into_iter().chain(only_in_second).collect();
                    Ok(Job {
                        path: self.path.as_slice().into(),
                        changes,
                        pair: None,
                    })
                }
            });
        }
    }
}

impl Lockstep<'_> {
    fn pair(&mut self, first: Ino, second: Ino) -> Result<Job> {
        let Compare {
            first: first_tree,
            second: second_tree,
            aspects,
            same_tree,
            ..
        } = *self.compare;
        let path = self.path.as_slice();
        let in_first = |error: Error| error.in_file(READ_FIRST, path);
        let in_second = |error: Error| error.in_file(READ_SECOND, path);
        let mut job = Job {
            path: path.into(),
            changes: Vec::new(),
            pair: None,
        };
        if same_tree && first == second {
            return Ok(job);
        }
        let a = first_tree.metadata(first).map_err(in_first)?;
        let b = second_tree.metadata(second).map_err(in_second)?;
        if a.kind != b.kind {
            job.changes.push(Change::Kind(a.kind, b.kind));
            return Ok(job);
        }
        if a.kind == FileKind::Directory {
            let level = Level {
                first: first_tree
                    .read_dir(first)
                    .map_err(in_first)?
                    .into_iter()
                    .peekable(),
                second: second_tree
                    .read_dir(second)
                    .map_err(in_second)?
                    .into_iter()
                    .peekable(),
                path_len: path.len(),
            };
            self.above.push(level);
        } else if a.nlink > 1 || b.nlink > 1 {
            match self.links.add(first, second, path) {
                LinkedBefore::Neither => {}
                LinkedBefore::AsPair => return Ok(job),
                LinkedBefore::Differently(a, b) if aspects.hard_links => {
                    job.changes.push(Change::HardLink(a, b));
                }
                LinkedBefore::Differently(..) => {}
            }
        }
        job.pair = Some((first, second, a, b));
        Ok(job)
    }
}

/// The files with several names that have been seen, with the first path of each.
#[derive(Default)]
struct Links {
    first: HashMap<Ino, (Ino, Box<[u8]>)>,
    second: HashMap<Ino, (Ino, Box<[u8]>)>,
}

enum LinkedBefore {
    /// Neither has been seen before.
    Neither,
    /// Both have been seen, as a pair.
    AsPair,
    /// The first path of each that has been seen.
    Differently(Option<Box<[u8]>>, Option<Box<[u8]>>),
}

impl Links {
    fn add(&mut self, first: Ino, second: Ino, path: &[u8]) -> LinkedBefore {
        let before = match (self.first.get(&first), self.second.get(&second)) {
            (None, None) => LinkedBefore::Neither,
            (Some((other, _)), Some(_)) if *other == second => return LinkedBefore::AsPair,
            (a, b) => LinkedBefore::Differently(
                a.map(|(_, path)| path.clone()),
                b.map(|(_, path)| path.clone()),
            ),
        };
        self.first
            .entry(first)
            .or_insert_with(|| (second, path.into()));
        self.second
            .entry(second)
            .or_insert_with(|| (first, path.into()));
        before
    }
}

/// The read buffers of a thread.
#[derive(Default)]
struct Buffers {
    first: Vec<u8>,
    second: Vec<u8>,
}

struct Compare<'a> {
    first: &'a dyn FileSystem,
    second: &'a dyn FileSystem,
    aspects: &'a Aspects,
    /// Both are the same tree, so equal numbers are equal files.
    same_tree: bool,
    /// Both show data of the same store, so equal identities are equal data.
    same_store: bool,
    /// Whether times are compared to the second.
    whole_seconds: bool,
}

impl Compare<'_> {
    /// Compares what the walk left open. Runs on any thread.
    fn finish(&self, job: Job, buffers: &mut Buffers) -> Result<Done> {
        let Job {
            path,
            mut changes,
            pair,
        } = job;
        let mut bytes = 0;
        if let Some((first, second, a, b)) = pair {
            let in_first = |error: Error| error.in_file(READ_FIRST, &path);
            let in_second = |error: Error| error.in_file(READ_SECOND, &path);
            let aspects = self.aspects;
            // The mode of a symbolic link has no meaning, and Linux cannot set it.
            if aspects.permissions && a.kind != FileKind::Symlink && a.permissions != b.permissions
            {
                changes.push(Change::Permissions(a.permissions, b.permissions));
            }
            if aspects.owner && (a.uid, a.gid) != (b.uid, b.gid) {
                changes.push(Change::Owner((a.uid, a.gid), (b.uid, b.gid)));
            }
            let fraction = !self.whole_seconds && a.mtime.nanoseconds != b.mtime.nanoseconds;
            if aspects.mtime && (a.mtime.seconds != b.mtime.seconds || fraction) {
                changes.push(Change::Mtime(a.mtime, b.mtime));
            }
            if a.kind.is_device() && a.rdev != b.rdev {
                changes.push(Change::Rdev(a.rdev, b.rdev));
            }
            if a.kind == FileKind::Symlink {
                let a = self.first.read_link(first).map_err(in_first)?;
                let b = self.second.read_link(second).map_err(in_second)?;
                if a != b {
                    changes.push(Change::LinkTarget(a.into(), b.into()));
                }
            }
            if aspects.xattrs {
                let a = self.first.xattrs(first).map_err(in_first)?;
                let b = self.second.xattrs(second).map_err(in_second)?;
                compare_xattrs(&a, &b, &mut changes);
            }
            if a.kind == FileKind::Regular && a.size != b.size {
                changes.push(Change::Size(a.size, b.size));
            } else if a.kind == FileKind::Regular {
                let pair = Pair {
                    compare: self,
                    first,
                    second,
                    size: a.size,
                    path: &path,
                };
                if aspects.content {
                    bytes = a.size;
                    let at = pair.first_difference(buffers)?;
                    changes.extend(at.map(|at| Change::Content { at }));
                }
                if aspects.holes {
                    let at = pair.first_hole_difference()?;
                    changes.extend(at.map(|at| Change::Holes { at }));
                }
            }
        }
        Ok(Done {
            path,
            changes,
            bytes,
        })
    }
}

/// Compares two lists, both sorted by name.
fn compare_xattrs(a: &[super::Xattr], b: &[super::Xattr], changes: &mut Vec<Change>) {
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

/// Two regular files of the same size.
struct Pair<'a> {
    compare: &'a Compare<'a>,
    first: Ino,
    second: Ino,
    size: u64,
    path: &'a [u8],
}

impl Pair<'_> {
    /// The first byte that differs.
    fn first_difference(&self, buffers: &mut Buffers) -> Result<Option<u64>> {
        if self.size <= SMALL_BYTES && !self.compare.same_store {
            return self.read_and_compare(0, self.size, buffers);
        }
        let mut position = 0;
        let (mut a, mut b) = self.extents();
        while position < self.size {
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
        buffer.resize(CHUNK_BYTES, 0);
        let mut position = from;
        while position < to {
            let len = (to - position).min(CHUNK_BYTES as u64) as usize;
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
        a.resize(CHUNK_BYTES, 0);
        b.resize(CHUNK_BYTES, 0);
        let mut position = from;
        while position < to {
            let len = (to - position).min(CHUNK_BYTES as u64) as usize;
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
        while position < self.size {
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
                extents: Extents::new(*first, self.first, self.size),
                verb: READ_FIRST,
                path,
            },
            Named {
                extents: Extents::new(*second, self.second, self.size),
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
