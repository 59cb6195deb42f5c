//! Compares two trees entry by entry.

mod difference;
mod pair;

use std::collections::HashMap;
use std::iter::Peekable;
use std::vec;

use super::{Aspects, DirEntry, FileKind, FileSystem, Ino, Metadata};
use crate::{Error, Parallel, Progress, Result, ordered};
pub use difference::{Change, Difference, READ_FIRST, READ_SECOND};
use pair::{Buffers, Compare, Pair};

/// How many bytes of each file are read and compared at once. The buffers of a thread should fit
/// the processor's cache.
const CHUNK_BYTES: usize = 64 << 10;

/// Like [`CHUNK_BYTES`], if a tree has encoded extents: each is decoded by few reads then.
const ENCODED_CHUNK_BYTES: usize = 256 << 10;

/// Files are compared together, up to this many or this many bytes: handing a file over can cost as
/// much as comparing it.
const BATCH_FILES_MAX: usize = 64;
const BATCH_BYTES_MIN: u64 = 256 << 10;

/// Compares two trees and reports the differences in path order, directory by directory.
///
/// Content is read only where it can differ: not in files of different sizes, not where both have
/// holes or show the same stored data, and only once for all names of a file. Memory use is bounded
/// by the directories on the current path and the files with several names. If one tree has only
/// whole seconds, times are compared to the second.
///
/// # Errors
/// A tree cannot be read, or `report` fails. The error names the file, and its verb is
/// [`READ_FIRST`] or [`READ_SECOND`].
pub fn diff(
    first: &dyn FileSystem,
    second: &dyn FileSystem,
    aspects: &Aspects,
    parallel: Parallel,
    progress: &dyn Progress,
    report: &mut dyn FnMut(Difference) -> Result<()>,
) -> Result<()> {
    let same_tree = std::ptr::addr_eq(first, second);
    let stored_extents = first.storage().stored_extents || second.storage().stored_extents;
    let compare = Compare {
        first,
        second,
        aspects,
        same_tree,
        same_store: first.storage().store == second.storage().store,
        whole_seconds: first.storage().whole_seconds || second.storage().whole_seconds,
        chunk_bytes: if stored_extents {
            ENCODED_CHUNK_BYTES
        } else {
            CHUNK_BYTES
        },
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
        |buffers, batch| Ok(compare.finish_batch(batch, buffers)),
        |Finished { done, error }| {
            for PairResult {
                path,
                changes,
                bytes,
            } in done
            {
                progress.advance(1, bytes);
                for change in changes {
                    report(Difference {
                        path: path.clone(),
                        change,
                    })?;
                }
            }
            error.map_or(Ok(()), Err)
        },
    )
}

/// Adjacent files.
#[derive(Default)]
struct PairBatch {
    jobs: Vec<PairJob>,
    /// Why the walk cannot go on after them.
    error: Option<Error>,
}

/// The state of a batch.
struct Finished {
    done: Vec<PairResult>,
    /// Why the next one could not be compared.
    error: Option<Error>,
}

/// The files at one path in both trees, as far as the walk has compared them.
struct PairJob {
    path: Box<[u8]>,
    changes: Vec<Change>,
    /// The files that remain to be compared.
    pair: Option<(Ino, Ino, Metadata, Metadata)>,
}

struct PairResult {
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
    first: Peekable<vec::IntoIter<Listed>>,
    second: Peekable<vec::IntoIter<Listed>>,
    /// The length of this directory's path.
    path_len: usize,
}

/// An entry of a directory. The metadata is missing if the directory could not be listed with it.
type Listed = (DirEntry, Option<Metadata>);

impl Iterator for Lockstep<'_> {
    type Item = PairBatch;

    fn next(&mut self) -> Option<PairBatch> {
        let mut batch = PairBatch::default();
        let mut bytes = 0;
        while batch.jobs.len() < BATCH_FILES_MAX && bytes < BATCH_BYTES_MIN {
            match self.next_job() {
                None => break,
                Some(Ok(job)) => {
                    bytes += job
                        .pair
                        .as_ref()
                        .map_or(0, |(_, _, a, b)| a.size.max(b.size));
                    batch.jobs.push(job);
                }
                Some(Err(error)) => {
                    batch.error = Some(error);
                    break;
                }
            }
        }
        (!batch.jobs.is_empty() || batch.error.is_some()).then_some(batch)
    }
}

impl Lockstep<'_> {
    fn next_job(&mut self) -> Option<Result<PairJob>> {
        if !self.started {
            self.started = true;
            let (first, second) = (self.compare.first.root(), self.compare.second.root());
            return Some(self.pair((first, None), (second, None)));
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
                (Some((first, _)), Some((second, _))) => match first.name.cmp(&second.name) {
                    std::cmp::Ordering::Less => (level.first.next(), None),
                    std::cmp::Ordering::Greater => (None, level.second.next()),
                    std::cmp::Ordering::Equal => (level.first.next(), level.second.next()),
                },
            };
            let name = first.as_ref().or(second.as_ref());
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path
                .extend_from_slice(name.map_or(&[], |(entry, _)| &entry.name));
            return Some(match (first, second) {
                (Some((first, a)), Some((second, b))) => self.pair((first.ino, a), (second.ino, b)),
                (first, second) => {
                    let only_in_first = first.map(|(entry, _)| Change::OnlyInFirst(entry.kind));
                    let only_in_second = second.map(|(entry, _)| Change::OnlyInSecond(entry.kind));
                    let changes = only_in_first.into_iter().chain(only_in_second).collect();
                    Ok(PairJob {
                        path: self.path.as_slice().into(),
                        changes,
                        pair: None,
                    })
                }
            });
        }
    }

    /// Describes the files of a path in both trees, whose metadata may be known, and goes into
    /// directories.
    fn pair(
        &mut self,
        (first, a): (Ino, Option<Metadata>),
        (second, b): (Ino, Option<Metadata>),
    ) -> Result<PairJob> {
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
        let mut job = PairJob {
            path: path.into(),
            changes: Vec::new(),
            pair: None,
        };
        if same_tree && first == second {
            return Ok(job);
        }
        let a = a.map_or_else(|| first_tree.metadata(first).map_err(in_first), Ok)?;
        let b = b.map_or_else(|| second_tree.metadata(second).map_err(in_second), Ok)?;
        if a.kind != b.kind {
            job.changes.push(Change::Kind(a.kind, b.kind));
            return Ok(job);
        }
        if a.kind == FileKind::Directory {
            let level = Level {
                first: list(first_tree, first).map_err(in_first)?.peekable(),
                second: list(second_tree, second).map_err(in_second)?.peekable(),
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

/// The entries of a directory, with their metadata if all of it can be read: otherwise the error
/// shall name the file.
fn list(tree: &dyn FileSystem, dir: Ino) -> Result<vec::IntoIter<Listed>> {
    let listed: Vec<Listed> = match tree.read_dir_with_metadata(dir) {
        Ok(entries) => (entries.into_iter())
            .map(|(entry, metadata)| (entry, Some(metadata)))
            .collect(),
        Err(_) => (tree.read_dir(dir)?.into_iter())
            .map(|entry| (entry, None))
            .collect(),
    };
    Ok(listed.into_iter())
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

impl Compare<'_> {
    /// Compares the pairs that the walk left open. Runs on any thread.
    fn finish_batch(&self, batch: PairBatch, buffers: &mut Buffers) -> Finished {
        let mut done = Vec::with_capacity(batch.jobs.len());
        for job in batch.jobs {
            match self.finish(job, buffers) {
                Ok(one) => done.push(one),
                Err(error) => {
                    let error = Some(error);
                    return Finished { done, error };
                }
            }
        }
        let error = batch.error;
        Finished { done, error }
    }

    fn finish(&self, job: PairJob, buffers: &mut Buffers) -> Result<PairResult> {
        let PairJob {
            path,
            mut changes,
            pair,
        } = job;
        let mut bytes = 0;
        if let Some((first, second, a, b)) = pair {
            let mut pair = Pair {
                compare: self,
                first,
                second,
                a,
                b,
                path: &path,
            };
            changes.extend(pair.changes(buffers)?);
            bytes = pair.content_bytes();
        }
        Ok(PairResult {
            path,
            changes,
            bytes,
        })
    }
}
