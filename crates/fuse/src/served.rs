//! The tree that is served, with what all requests need: attributes, problems, directories that
//! were read.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use linux::errno;
use tree::{DirEntry, Error, Extents, FileKind, FileSystem, Ino, Metadata, Result, setters};

use crate::ahead::Ahead;
use crate::attributes::{Attributes, Owner};
use crate::counters::Counters;
use crate::directory::{Directories, OpenDirectory};
use crate::numbers::{NodeNumbers, Numbers};
use crate::places::Places;
use crate::reply::{Errno, Reply};
use crate::siblings::Siblings;

/// How long the kernel may keep what cannot change: decades. Linux cuts what is longer than it can
/// count.
const FOREVER: Duration = Duration::from_secs(1 << 30);
/// How long it may keep what can change.
const LIVE: Duration = Duration::from_secs(1);

/// Files up to this size count as stored without holes: finding out would cost more than the rest
/// of a listing.
const DENSE_BYTES_MAX: u64 = 64 << 10;
/// How many extents of a file are searched for holes; what follows counts as data.
const EXTENTS_MAX: u32 = 4096;
/// Number of problems that are remembered, so that one is not reported twice.
const REPORTED_MAX: usize = 256;
/// Problems in one part of this size are one.
const PROBLEM_BYTES: u64 = 128 << 10;

/// How a tree is served.
#[non_exhaustive]
pub struct Options {
    /// The directory that is the root of what is served; by default that of the tree.
    pub root: Option<Ino>,
    /// Changes to owners and permissions.
    pub owner: Owner,
    /// The tree can change, so the kernel asks again after a second, and forgets content when a
    /// file is opened.
    pub is_live: bool,
    /// How long the kernel may keep names and attributes of a tree that does not change; by
    /// default, forever.
    pub lifetime: Option<Duration>,
    /// Whether files may have extended attributes. If not, the kernel asks only once.
    pub has_xattrs: bool,
    /// Whether files may have a time of birth. If not, the kernel asks only once.
    pub has_birth_times: bool,
    /// Only root and this user may see anything (`allow_root`).
    pub only_user: Option<u32>,
    /// The size of what is mounted, in bytes, as `df` shows it.
    pub size_bytes: u64,
    /// The number of files, as `df` shows it; 0 if it is not known.
    pub files: u64,
    /// What `st_ino` of a file is; unique in the tree.
    pub numbers: Numbers,
    /// The size of a directory (`st_size`), which trees do not have; by default, 0.
    pub directory_bytes: DirectoryBytes,
    /// The number of threads that will call [`Server::serve`](crate::Server::serve).
    pub threads: usize,
    /// Called with each request: its name, the number of the file, and the error number of the
    /// answer.
    pub trace: Option<Trace>,
}

/// One thread, and everything as the tree has it, which does not change.
impl Default for Options {
    fn default() -> Options {
        Options {
            root: None,
            owner: Owner::default(),
            is_live: false,
            lifetime: None,
            has_xattrs: true,
            has_birth_times: true,
            only_user: None,
            size_bytes: 0,
            files: 0,
            // Programs take no file to be number 0, which trees may count from.
            numbers: Box::new(|ino| Ok(ino.0.wrapping_add(1))),
            directory_bytes: Box::new(|_| Ok(0)),
            threads: 1,
            trace: None,
        }
    }
}

setters!(Options {
    root: Option<Ino>,
    owner: Owner,
    is_live: bool,
    lifetime: Option<Duration>,
    has_xattrs: bool,
    has_birth_times: bool,
    only_user: Option<u32>,
    size_bytes: u64,
    files: u64,
    numbers: Numbers,
    directory_bytes: DirectoryBytes,
    threads: usize,
    trace: Option<Trace>,
});

/// See [`Options::directory_bytes`].
pub type DirectoryBytes = Box<dyn Fn(Ino) -> Result<u64> + Send + Sync>;

/// See [`Options::trace`].
pub type Trace = Box<dyn Fn(&str, u64, i32) + Send + Sync>;

/// Something that could not be read.
#[derive(Debug)]
pub struct Problem<'a> {
    /// What was to be done.
    pub verb: &'static str,
    /// The path of the file from the root of what is served, if it is known.
    pub path: Option<Vec<u8>>,
    /// Its number in the tree.
    pub ino: Ino,
    /// Where in its content, in bytes.
    pub offset: Option<u64>,
    /// Why not.
    pub error: &'a Error,
}

/// The part of a file that a problem is in.
type ProblemPlace = (&'static str, Ino, Option<u64>);

/// A tree, and what is remembered of it.
pub(crate) struct Served {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) root: Ino,
    pub(crate) nodes: NodeNumbers,
    pub(crate) options: Options,
    pub(crate) counters: Counters,
    pub(crate) ahead: Option<Ahead>,
    pub(crate) siblings: Option<Siblings>,
    directories: Directories,
    places: Places,
    reported: Mutex<VecDeque<ProblemPlace>>,
    report: Box<dyn Fn(&Problem<'_>) + Send + Sync>,
}

impl Served {
    pub(crate) fn new(
        fs: Arc<dyn FileSystem>,
        options: Options,
        report: Box<dyn Fn(&Problem<'_>) + Send + Sync>,
    ) -> Served {
        let root = options.root.unwrap_or_else(|| fs.root());
        // What can change is not sent before it is asked for.
        let siblings = Siblings::new(options.threads).filter(|_| !options.is_live);
        Served {
            ahead: Ahead::new(&fs.storage(), options.threads),
            siblings,
            fs,
            root,
            nodes: NodeNumbers::new(root),
            options,
            counters: Counters::default(),
            directories: Directories::default(),
            places: Places::default(),
            reported: Mutex::default(),
            report,
        }
    }

    /// How long the kernel may keep an answer.
    pub(crate) fn lifetime(&self) -> Duration {
        if self.options.only_user.is_some() {
            // Whoever may not see a name must ask for it.
            return Duration::ZERO;
        }
        if self.options.is_live {
            return LIVE;
        }
        self.options.lifetime.unwrap_or(FOREVER)
    }

    /// The attributes of a file.
    pub(crate) fn attributes(&self, ino: Ino) -> Result<Attributes> {
        let mut metadata = self.fs.metadata(ino)?;
        if metadata.kind == FileKind::Directory {
            metadata.size = (self.options.directory_bytes)(ino)?;
        }
        let attributes = Attributes {
            number: (self.options.numbers)(ino)?,
            stored_bytes: self.stored_bytes(ino, &metadata),
            metadata,
        };
        Ok(attributes.owned(self.options.owner))
    }

    /// Bytes of a file's content that are not holes.
    fn stored_bytes(&self, ino: Ino, metadata: &Metadata) -> u64 {
        let size = metadata.size;
        if metadata.kind != FileKind::Regular {
            return 0;
        }
        if size <= DENSE_BYTES_MAX {
            return size;
        }
        let mut extents = Extents::new(&*self.fs, ino, size);
        let mut holes = 0u64;
        for _ in 0..EXTENTS_MAX {
            // What is wrong with the extents is found when they are read.
            let Ok(Some(extent)) = extents.next() else {
                break;
            };
            if !extent.kind.has_data() {
                holes = holes.saturating_add(extent.len);
            }
        }
        size.saturating_sub(holes)
    }

    /// A directory, from memory if `again` and it is there.
    pub(crate) fn directory(&self, dir: Ino, again: bool) -> Result<Arc<OpenDirectory>> {
        if again && let Some(directory) = self.directories.find(dir) {
            return Ok(directory);
        }
        let directory = Arc::new(OpenDirectory::new(self.fs.read_dir(dir)?)?);
        self.directories.keep(dir, &directory);
        Ok(directory)
    }

    /// The entry with a name in a directory, which is read only if it is in memory.
    pub(crate) fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Option<DirEntry>> {
        if !self.options.is_live
            && let Some(directory) = self.directories.find(dir)
        {
            return Ok(directory.find(name).map(|found| DirEntry {
                name: found.name.into(),
                ino: found.ino,
                kind: found.kind,
            }));
        }
        match self.fs.lookup(dir, name) {
            Ok(entry) => Ok(Some(entry)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Remembers where a directory is.
    pub(crate) fn note_directory(&self, ino: Ino, parent: Ino, name: &[u8]) {
        self.places.note_directory(ino, parent, name);
    }

    /// Remembers where a file is, for a while.
    pub(crate) fn note_file(&self, ino: Ino, parent: Ino, name: &[u8]) {
        self.places.note_file(ino, parent, name);
    }

    /// The directory that a directory is in, if that was seen.
    pub(crate) fn parent(&self, dir: Ino) -> Option<Ino> {
        if dir == self.root {
            return Some(dir);
        }
        self.places.parent(dir)
    }

    /// Appends a `struct fuse_entry_out`.
    pub(crate) fn emit_entry(&self, node: u64, attributes: &Attributes, reply: &mut Reply) {
        let lifetime = self.lifetime();
        reply.u64(node);
        reply.u64(0);
        reply.u64(lifetime.as_secs());
        reply.u64(lifetime.as_secs());
        reply.u32(lifetime.subsec_nanos());
        reply.u32(lifetime.subsec_nanos());
        attributes.emit(reply);
    }

    /// The error number for an error. What is not an answer to the program's question, but a
    /// problem with the tree, is reported.
    pub(crate) fn failed(
        &self,
        verb: &'static str,
        ino: Ino,
        offset: Option<u64>,
        error: &Error,
    ) -> Errno {
        let number = match cause(error) {
            Error::NotFound => return Errno(errno::ENOENT),
            Error::NotADirectory => return Errno(errno::ENOTDIR),
            Error::IsADirectory => return Errno(errno::EISDIR),
            Error::InvalidInput(_) => return Errno(errno::EINVAL),
            Error::Changed => errno::ESTALE,
            Error::Io(error) => of_io(error),
            _ => errno::EIO,
        };
        self.counters.count_error();
        if self.is_new((verb, ino, offset.map(|at| at.wrapping_div(PROBLEM_BYTES)))) {
            let path = self.places.path(ino, self.root, &self.directories);
            (self.report)(&Problem {
                verb,
                path,
                ino,
                offset,
                error,
            });
        }
        Errno(number)
    }

    /// Whether this problem was not reported before, as far as that is remembered.
    fn is_new(&self, place: ProblemPlace) -> bool {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.contains(&place) {
            return false;
        }
        if reported.len() >= REPORTED_MAX {
            reported.pop_front();
        }
        reported.push_back(place);
        true
    }
}

/// The error without its place.
fn cause(mut error: &Error) -> &Error {
    while let Error::File { error: inner, .. } | Error::Part { error: inner, .. } = error {
        error = inner;
    }
    error
}

fn of_io(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(errno::EIO)
}
