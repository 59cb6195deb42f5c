//! Writes a tree into a host directory.
//!
//! ```
//! use tree::extract::{ExtractOptions, extract};
//! use tree::{Inventory, Limits, NoProgress};
//!
//! fn restore(tree: &dyn tree::FileSystem, to: &std::path::Path) -> tree::Result<bool> {
//!     let inventory = Inventory::of(tree, &Limits::default())?;
//!     let mut options = ExtractOptions::default();
//!     options.owners = false;
//!     let done = extract(&inventory, to, &options, &NoProgress)?;
//!     for (_, name, count) in done.unrestored.counts() {
//!         println!("{count} {name} could not be restored");
//!     }
//!     Ok(done.unrestored.is_empty())
//! }
//! # let to = std::env::temp_dir().join(format!("extract-{}", std::process::id()));
//! # restore(&tree::HostDir::open("src/fs/extract".as_ref())?, &to)?;
//! # assert!(to.join("mod.rs").exists());
//! # std::fs::remove_dir_all(to)?;
//! # Ok::<(), tree::Error>(())
//! ```
//!
//! Every file is created relative to an open directory that this module created itself, under a
//! name that the inventory has checked. No path is ever resolved as text, so nothing can be written
//! outside the target by any tree. The target appears under its name once it is
//! complete: see `target.rs`; or its files move into a directory that holds others: see `merge.rs`.
//!
//! The ordered map writes the files: small ones in batches, big ones in parts. Hard links follow,
//! and finally the owners, modes and times of directories, deepest first.

mod clones;
mod file;
mod merge;
mod options;
mod outcome;
mod stored;
mod target;

use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use linux::OpenFlags;

use self::file::{Big, Maker};
use self::merge::{MergeRules, OPEN_LEVELS_MAX, Selection};
pub use self::options::{Conflict, Existing, ExtractOptions};
pub use self::outcome::{Aspect, Example, Extracted, Refused, Unrestored};
pub use self::stored::StoredCopies;
use self::target::ExtractTarget;
use super::{EntryId, FileId, FileKind, Inventory, Steps, WalkStep};
use crate::{Error, Parallel, Progress, Result, ordered, temporary};

/// Larger files are written in parts of this size by several threads.
const PART_BYTES: u64 = 1 << 20;

/// A batch is full at this many files or bytes: enough work to pay for handing it over.
const BATCH_FILES: u32 = 32;
const BATCH_BYTES: u64 = 1 << 20;

/// A batch is full at this many directories.
const BATCH_DIRS_MAX: usize = 16;
/// Maximum number of directories in all batches in flight, unless each batch has only one. They are
/// kept open, and a process can usually have only 1,024 open files.
const BATCHED_DIRS_MAX: usize = 256;

/// Maximum number of files in a batch. Beyond [`BATCH_FILES`], only files that share stored data
/// with the last one are added: a thread that decoded the same data at the same time would have to
/// wait.
const BATCH_FILES_MAX: u32 = 256;

/// Writes a tree into the directory `to`; [`ExtractOptions::existing`] decides about an existing
/// one.
///
/// The tree is written under a temporary name next to `to` and renamed once it is complete. A mount
/// point or the working directory cannot be replaced: then the tree is written under a temporary
/// name inside `to`, and its files are moved up one by one at the end, as when it is merged into
/// others. After an error nothing of it is left behind, except if the error occurs while files are
/// moved up: then each file is the whole old or the whole new one.
///
/// Failing to restore modes, times, holes or hard links is an error.
///
/// # Errors
/// [`Error::File`] with operation and path for a file that cannot be read or written;
/// `AlreadyExists`; [`Error::NotADirectory`]; [`Error::InvalidInput`] for an impossible tree (see
/// [`Inventory::of`]), and for a directory that may not be replaced; `Interrupted` after
/// [`temporary::remove_all`].
pub fn extract(
    inventory: &Inventory<'_>,
    to: &Path,
    options: &ExtractOptions,
    progress: &dyn Progress,
) -> Result<Extracted> {
    let target = ExtractTarget::begin(to, options.existing)?;
    let mut extracted = Extracted::default();
    let mut selected = None;
    let follows = matches!(options.existing, Existing::MergeThroughLinks(_));
    if let Some((into, Some(conflict))) = target.inside_of() {
        let selection = Selection::of(inventory, into, conflict, follows)?;
        selected = selection.inventory(inventory);
        (extracted.kept, extracted.refused) = (selection.kept, selection.refused);
    }
    let inventory = selected.as_ref().unwrap_or(inventory);
    progress.expect(
        Some(inventory.file_count().into()),
        Some(inventory.content_bytes()),
    );
    let maker = Maker::new(inventory, options, target.umask(), target.dir());
    let mut missing = HashSet::new();
    let mut lost = Vec::new();
    ordered(
        options.parallel,
        ExtractJobs::new(&maker, target.dir(), options.parallel),
        || maker.workspace(),
        |workspace, job: Result<ExtractJob>| {
            if temporary::is_stopping() {
                return Err(Error::Io(io::ErrorKind::Interrupted.into()));
            }
            let (files, bytes) = job?.run(&maker, workspace)?;
            progress.advance(files, bytes);
            Ok(workspace.take_done())
        },
        |done| {
            extracted.unrestored.append(done.unrestored);
            extracted.stored.append(done.stored);
            extracted.cloned += done.cloned;
            missing.extend(done.missing);
            missing.extend(done.lost.iter().map(|(file, _)| *file));
            lost.extend(done.lost);
            Ok(())
        },
    )?;
    link(inventory, target.dir(), &missing, &mut extracted, &lost)?;
    let mut workspace = maker.workspace();
    let mut finish = |dir: &OwnedFd, entry| {
        maker.finish_dir(dir, entry, &mut workspace)?;
        progress.advance(1, 0);
        Ok::<_, Error>(())
    };
    match target.inside_of() {
        None => {
            for step in inventory.steps() {
                if let WalkStep::Leave(entry) = step {
                    let dir = open_made_dir(inventory, target.dir(), inventory.file(entry))?;
                    finish(&dir, entry)?;
                }
            }
            if options.sync {
                target.sync()?;
            }
        }
        Some((into, conflict)) => {
            if options.sync {
                target.sync()?;
            }
            let how = MergeRules {
                conflict,
                follows,
                updates_dirs: options.update_dirs,
            };
            let moved = merge::move_up(&maker, target.dir(), into, how, &missing, &mut finish)?;
            extracted.refused.extend(moved.refused);
            extracted.kept += moved.kept;
        }
    }
    let finish_root = |root: &OwnedFd| finish(root, inventory.root());
    extracted.removed = target.commit(options.sync, options.update_dirs, finish_root)?;
    let done = workspace.take_done();
    extracted.unrestored.append(done.unrestored);
    lost.extend(done.lost);
    let named = |(file, error)| (inventory.path(inventory.first_name(file)), error);
    extracted.unreadable.extend(lost.into_iter().map(named));
    extracted
        .unreadable
        .sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(extracted)
}

fn open_made_dir(inventory: &Inventory, root: &OwnedFd, dir: FileId) -> Result<OwnedFd> {
    let path = inventory.path(inventory.first_name(dir));
    let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
    linux::open_beneath(root, &path, flags, 0)
        .map_err(|error| Error::from(error).in_file("open", &path))
}

/// Creates all names of files with several names, except the first. Those of `missing` files cannot
/// be created; some of these are `lost` since they could not be read.
fn link(
    inventory: &Inventory,
    root: &OwnedFd,
    missing: &HashSet<FileId>,
    extracted: &mut Extracted,
    lost: &[(FileId, Error)],
) -> Result<()> {
    if inventory.entry_count() == inventory.file_count() {
        return Ok(());
    }
    let lost: HashSet<FileId> = lost.iter().map(|(file, _)| *file).collect();
    let mut dirs = OpenDirs::default();
    for entry in inventory.names().filter(|&e| !inventory.is_first_name(e)) {
        let file = inventory.file(entry);
        if lost.contains(&file) {
            let error = Error::Unreadable("another name of the file cannot be read");
            extracted.unreadable.push((inventory.path(entry), error));
            continue;
        }
        if missing.contains(&file) {
            let (path, reason) = (
                || inventory.path(entry),
                "its first name could not be created",
            );
            extracted.unrestored.add(Aspect::Device, path, &reason);
            continue;
        }
        let first = inventory.first_name(file);
        let from = dirs.open(inventory, root, inventory.parent(first))?;
        let to = dirs.open(inventory, root, inventory.parent(entry))?;
        linux::link_at(&from, &inventory.name(first), &to, &inventory.name(entry))
            .map_err(|error| Error::from(error).in_file("link", &inventory.path(entry)))?;
    }
    Ok(())
}

/// The most recently used directories, open.
#[derive(Default)]
struct OpenDirs(Vec<(FileId, Arc<OwnedFd>)>);

impl OpenDirs {
    fn open(&mut self, inventory: &Inventory, root: &OwnedFd, dir: FileId) -> Result<Arc<OwnedFd>> {
        if let Some(at) = self.0.iter().position(|(known, _)| *known == dir) {
            self.0[..=at].rotate_right(1);
        } else {
            let open = Arc::new(open_made_dir(inventory, root, dir)?);
            self.0.truncate(OPEN_LEVELS_MAX - 1);
            self.0.insert(0, (dir, open));
        }
        Ok(Arc::clone(&self.0[0].1))
    }
}

/// A unit of work for one thread.
enum ExtractJob {
    /// Adjacent files other than directories.
    Batch(Vec<EntryRange>),
    /// A part of a big file that exists already, and the length of the hole before it.
    Part {
        big: Arc<Big>,
        hole_bytes: u64,
        range: Range<u64>,
    },
}

/// Some adjacent files of one directory.
struct EntryRange {
    dir: Arc<OwnedFd>,
    entries: Range<u32>,
}

impl ExtractJob {
    /// Returns the number of files finished and the number of content bytes processed.
    fn run(self, maker: &Maker<'_>, workspace: &mut file::Workspace) -> Result<(u64, u64)> {
        match self {
            ExtractJob::Batch(pieces) => {
                let mut bytes = 0;
                let mut files = 0;
                for EntryRange { dir, entries } in pieces {
                    for entry in entries.map(EntryId) {
                        if is_made_in_batch(maker.inventory(), entry) {
                            maker.make(&dir, entry, workspace)?;
                            files += 1;
                            bytes += content_bytes(maker.inventory(), entry);
                        }
                    }
                }
                Ok((files, bytes))
            }
            ExtractJob::Part {
                big,
                hole_bytes,
                range,
            } => {
                let bytes = hole_bytes + (range.end - range.start);
                if !big.is_lost() {
                    let filled = maker.fill(&big, range, workspace);
                    maker.or_lose_big(&big, filled)?;
                }
                let is_last = big.part_done();
                if is_last {
                    maker.finish_big(&big, workspace)?;
                }
                Ok((is_last.into(), bytes))
            }
        }
    }
}

fn content_bytes(inventory: &Inventory, entry: EntryId) -> u64 {
    let file = inventory.file(entry);
    match inventory.kind(file) {
        FileKind::Regular => inventory.size(file),
        _ => 0,
    }
}

fn is_big(inventory: &Inventory, file: FileId) -> bool {
    inventory.kind(file) == FileKind::Regular && inventory.size(file) > PART_BYTES
}

fn is_made_in_batch(inventory: &Inventory, entry: EntryId) -> bool {
    let file = inventory.file(entry);
    inventory.kind(file) != FileKind::Directory
        && inventory.is_first_name(entry)
        && !is_big(inventory, file)
}

/// The jobs, in tree order. Creates directories and empty big files along the way.
struct ExtractJobs<'a> {
    maker: &'a Maker<'a>,
    root: &'a OwnedFd,
    steps: Steps<'a>,
    /// The path to the current directory; directories far up are closed.
    way: Vec<(EntryId, Option<Arc<OwnedFd>>)>,
    /// The directory whose files are being handed out, and which files are left.
    files: Option<(Arc<OwnedFd>, Range<u32>)>,
    batch: FileBatch,
    /// A batch is full at this many directories.
    batch_dirs: usize,
    /// The big file whose parts are being handed out, and where the next one begins.
    big: Option<(Arc<Big>, u64)>,
}

/// What has been collected for the next batch.
#[derive(Default)]
struct FileBatch {
    pieces: Vec<EntryRange>,
    files: u32,
    bytes: u64,
    /// The last file added.
    last: Option<FileId>,
}

impl FileBatch {
    /// Adds a piece of `files` files, unless it is empty.
    fn add(&mut self, dir: &Arc<OwnedFd>, entries: Range<u32>, files: u32) {
        if files > 0 {
            let dir = Arc::clone(dir);
            self.pieces.push(EntryRange { dir, entries });
            self.files += files;
        }
    }

    /// Whether the batch is full with `more` additional files, whose bytes are counted already.
    fn is_full(&self, more: u32, dirs_max: usize) -> bool {
        self.files + more >= BATCH_FILES
            || self.bytes >= BATCH_BYTES
            || self.pieces.len() >= dirs_max
    }

    /// The batch, unless it is empty.
    fn take(&mut self) -> Option<ExtractJob> {
        let batch = std::mem::take(self);
        (batch.files > 0).then_some(ExtractJob::Batch(batch.pieces))
    }
}

impl<'a> ExtractJobs<'a> {
    fn new(maker: &'a Maker<'a>, root: &'a OwnedFd, parallel: Parallel) -> Self {
        ExtractJobs {
            maker,
            root,
            steps: maker.inventory().steps(),
            way: Vec::new(),
            files: None,
            batch: FileBatch::default(),
            batch_dirs: (BATCHED_DIRS_MAX / parallel.jobs_max()).clamp(1, BATCH_DIRS_MAX),
            big: None,
        }
    }

    fn next_job(&mut self) -> Result<Option<ExtractJob>> {
        loop {
            if let Some(job) = self.next_part()? {
                return Ok(Some(job));
            }
            if let Some(job) = self.next_batch()? {
                return Ok(Some(job));
            }
            if self.big.is_some() {
                continue;
            }
            match self.steps.next() {
                None => return Ok(self.batch.take()),
                Some(WalkStep::Enter(entry)) => self.enter(entry)?,
                Some(WalkStep::File(_)) => {}
                Some(WalkStep::Leave(_)) => {
                    self.way.pop();
                }
            }
        }
    }

    fn enter(&mut self, entry: EntryId) -> Result<()> {
        let inventory = self.maker.inventory();
        let dir = match self.way.last_mut() {
            None => self.root.try_clone()?,
            Some((parent, open)) => {
                if open.is_none() {
                    let parent = inventory.file(*parent);
                    *open = Some(Arc::new(open_made_dir(inventory, self.root, parent)?));
                }
                let above: &OwnedFd = open.as_ref().map_or(self.root, |open| open);
                make_dir(above, &inventory.name(entry))
                    .map_err(|error| Error::from(error).in_file("create", &inventory.path(entry)))?
            }
        };
        let dir = Arc::new(dir);
        let mut entries = inventory.entries(inventory.file(entry));
        let start = entries.next().map_or(0, |entry| entry.0);
        let count = inventory.entries(inventory.file(entry)).len() as u32;
        self.files = Some((Arc::clone(&dir), start..start + count));
        self.way.push((entry, Some(dir)));
        let far = self.way.len().checked_sub(OPEN_LEVELS_MAX);
        if let Some((_, open)) = far.and_then(|far| self.way.get_mut(far)) {
            *open = None;
        }
        Ok(())
    }

    /// Collects files of the current directory; returns the batch when it is full.
    fn next_batch(&mut self) -> Result<Option<ExtractJob>> {
        let (maker, inventory) = (self.maker, self.maker.inventory());
        let Some((dir, left)) = &mut self.files else {
            return Ok(None);
        };
        let batch = &mut self.batch;
        let mut gathered = left.start..left.start;
        let mut files = 0;
        while let Some(entry) = left.clone().next().map(EntryId) {
            let file = inventory.file(entry);
            let is_made = is_made_in_batch(inventory, entry);
            if is_made && batch.is_full(files, self.batch_dirs) {
                let more = batch.files + files < BATCH_FILES_MAX
                    && batch
                        .last
                        .is_some_and(|last| maker.share_storage(last, file));
                if !more {
                    batch.add(dir, gathered, files);
                    return Ok(batch.take());
                }
            }
            left.start += 1;
            if is_big(inventory, file) && inventory.is_first_name(entry) {
                self.big = Some((Arc::new(maker.make_big(Arc::clone(dir), entry)?), 0));
                break;
            }
            gathered.end = entry.0 + 1;
            if is_made {
                files += 1;
                batch.bytes += content_bytes(inventory, entry);
                batch.last = Some(file);
            }
        }
        batch.add(dir, gathered, files);
        if self.big.is_none() {
            self.files = None;
        }
        Ok(None)
    }

    /// Parts begin at data and skip holes. The last part is empty: only then is the number of parts
    /// known.
    fn next_part(&mut self) -> Result<Option<ExtractJob>> {
        let Some((big, at)) = &mut self.big else {
            return Ok(None);
        };
        let size = big.size();
        let start = match self.maker.next_data(big, *at) {
            Err(error) => {
                self.maker.or_lose_big(big, Err(error))?;
                size
            }
            start => start?,
        };
        let end = size.min((start - start % PART_BYTES).saturating_add(PART_BYTES));
        let job = ExtractJob::Part {
            big: Arc::clone(big),
            hole_bytes: start - *at,
            range: start..end,
        };
        if start >= size {
            self.big = None;
        } else {
            *at = end;
            big.part_begun();
        }
        Ok(Some(job))
    }
}

impl Iterator for ExtractJobs<'_> {
    type Item = Result<ExtractJob>;

    fn next(&mut self) -> Option<Result<ExtractJob>> {
        self.next_job().transpose()
    }
}

/// Creates and opens a directory that only its owner can enter until it is finished.
fn make_dir(above: &OwnedFd, name: &[u8]) -> io::Result<OwnedFd> {
    linux::make_dir_at(above, name, 0o700)?;
    let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
    linux::open_at(above, name, flags, 0)
}
