//! Sending small files before they are asked for, to programs that read the files of a directory
//! one after another.
//!
//! A small file costs one request, and most of that is the time in which the kernel wakes a thread
//! of the server and then the program. A process that reads two files in the order in which they
//! were listed probably reads the next ones, too. The server therefore puts some of them into the
//! page cache (`FUSE_NOTIFY_STORE`) before it answers: more each time, as reading ahead in a file
//! does.
//!
//! Many trees have few files in each directory, so that nothing is listed yet after the file that
//! is read. A process that reads the first file of a directory that it listed probably reads those
//! of the next directories, too: their files are sent when they have been listed, before the kernel
//! hears that there are no more names. Every so often a directory is left out, whose first file
//! must be asked for again. So a program that only lists costs nothing.
//!
//! The kernel stores a page once it is unlocked, so storing waits for the process that has asked
//! for it. That request is answered by another thread. Only one thread stores at a time, so that
//! there always is one, and a server with only one thread sends nothing. The program that is
//! waiting for its answer cannot ask for another file meanwhile.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tree::{Ino, to_u64, to_usize};

use crate::reply::Reply;

/// Largest file that is sent unasked: the size of a read by the kernel.
const FILE_BYTES_MAX: u64 = 128 << 10;
/// Number of listed files whose order is remembered: that of the last ones.
const LISTED_MAX: usize = 1 << 16;
/// Number of files that are sent the first time, and the most.
const SENT_MIN: u64 = 4;
const SENT_MAX: u64 = 64;
/// Bytes that are sent at once, unless the first file is larger.
const SENT_BYTES_MAX: u64 = 512 << 10;
/// Number of programs that are followed.
const READERS_MAX: usize = 8;
/// Number of directories that were listed and whose first file may still be asked for: programs may
/// list those inside first.
const EXPECTED_MAX: usize = 8;

/// The listed directories, and their readers.
pub(crate) struct Siblings {
    state: Mutex<SiblingState>,
    /// The record that is being put together, held by the thread that sends.
    pub(crate) record: Mutex<Reply>,
}

#[derive(Debug, Default)]
struct SiblingState {
    listed: VecDeque<Listed>,
    /// The place of the first of `listed`: the number of those before it.
    first: u64,
    places: HashMap<Ino, u64>,
    /// The one that read last is at the back.
    readers: VecDeque<SiblingReader>,
    walk: SiblingWalk,
}

#[derive(Clone, Copy, Debug)]
struct Listed {
    ino: Ino,
    bytes: u64,
    /// It was asked for or sent.
    is_known: bool,
}

/// A program that reads files in the order of their places.
#[derive(Clone, Copy, Debug)]
struct SiblingReader {
    /// The place after the last file that it asked for or was sent.
    next: u64,
    /// The number of files that it is sent next time.
    count: u64,
}

/// Files that are sent together.
#[derive(Debug, Default)]
struct SiblingBatch {
    files: Vec<(Ino, usize)>,
    bytes: u64,
}

/// The behaviour of programs after listing directories.
#[derive(Debug, Default)]
struct SiblingWalk {
    /// Of each directory that was listed and not sent, the place of its first file.
    expected: VecDeque<u64>,
    /// The number of directories that will be sent when they have been listed, and how many there
    /// were at first.
    left: u64,
    count: u64,
}

impl Siblings {
    /// Sending siblings for a server with this number of threads, if one of them can wait.
    pub(crate) fn new(threads: usize) -> Option<Siblings> {
        (threads > 1).then(|| Siblings {
            state: Mutex::default(),
            record: Mutex::new(Reply::new()),
        })
    }

    /// Notes that a regular file of this size was listed.
    pub(crate) fn note_listed(&self, ino: Ino, bytes: u64) {
        if bytes == 0 || bytes > FILE_BYTES_MAX {
            return;
        }
        let mut state = self.state();
        if state.listed.len() >= LISTED_MAX {
            state.forget_first();
        }
        let place = state.end();
        state.places.insert(ino, place);
        state.listed.push_back(Listed {
            ino,
            bytes,
            is_known: false,
        });
    }

    /// Notes that a file is asked for. Returns the files to be sent, with their sizes in bytes.
    pub(crate) fn after(&self, ino: Ino) -> Vec<(Ino, usize)> {
        let mut state = self.state();
        let Some(&place) = state.places.get(&ino) else {
            return Vec::new();
        };
        let next = place.saturating_add(1);
        // What it was sent may be gone from memory: it then asks for a file before its place.
        let follows = |reader: &SiblingReader| {
            let nearest = reader.next.saturating_sub(reader.count.max(1));
            (nearest..=reader.next).contains(&place)
        };
        let known = state.readers.iter().position(follows);
        let known = known.and_then(|at| state.readers.remove(at));
        let mut reader = SiblingReader {
            next: known.map_or(next, |reader| reader.next.max(next)),
            count: known.map_or(0, |reader| match reader.count {
                0 => SENT_MIN,
                count => count.saturating_mul(2).min(SENT_MAX),
            }),
        };
        state.walk.note_read(place);
        let is_known = state.mark(place);
        let files = state.take(&mut reader, is_known);
        state.follow(reader);
        files
    }

    /// Notes that all names of a directory were listed, with these files in this order. Returns
    /// those to be sent, with their sizes in bytes.
    pub(crate) fn after_list(&self, files: impl Iterator<Item = Ino>) -> Vec<(Ino, usize)> {
        let mut state = self.state();
        let files = files.take(to_usize(SENT_MAX));
        let places: Vec<u64> = files
            .filter_map(|ino| state.places.get(&ino).copied())
            .collect();
        if !places.first().is_some_and(|&first| state.walk.begin(first)) {
            return Vec::new();
        }
        let mut batch = SiblingBatch::default();
        let mut next = 0;
        for place in places {
            if !state.add(place, false, &mut batch) {
                break;
            }
            next = place.saturating_add(1);
        }
        if next < state.end() {
            // The directory has more of them.
            let count = to_u64(batch.files.len());
            state.follow(SiblingReader { next, count });
        }
        batch.files
    }

    fn state(&self) -> MutexGuard<'_, SiblingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SiblingState {
    /// The place of the next file to be listed.
    fn end(&self) -> u64 {
        self.first.saturating_add(to_u64(self.listed.len()))
    }

    fn at(&mut self, place: u64) -> Option<&mut Listed> {
        let index = place.checked_sub(self.first)?;
        self.listed.get_mut(to_usize(index))
    }

    /// Notes that a file is asked for. Returns whether it was known: then the kernel no longer has
    /// it.
    fn mark(&mut self, place: u64) -> bool {
        let listed = self.at(place);
        listed.is_some_and(|listed| std::mem::replace(&mut listed.is_known, true))
    }

    /// The files that a reader is sent now: those that are not known, or all if the kernel has
    /// forgotten what was known.
    fn take(&mut self, reader: &mut SiblingReader, is_forgotten: bool) -> Vec<(Ino, usize)> {
        let mut batch = SiblingBatch::default();
        let end = reader.next.saturating_add(reader.count).min(self.end());
        while reader.next < end && self.add(reader.next, is_forgotten, &mut batch) {
            reader.next = reader.next.saturating_add(1);
        }
        batch.files
    }

    /// Adds the file at a place to those that are sent together, unless it is known. Returns
    /// whether there was room.
    fn add(&mut self, place: u64, is_forgotten: bool, batch: &mut SiblingBatch) -> bool {
        let Some(listed) = self.at(place) else {
            return false;
        };
        let bytes = batch.bytes.saturating_add(listed.bytes);
        if bytes > SENT_BYTES_MAX && !batch.files.is_empty() {
            return false;
        }
        batch.bytes = bytes;
        if is_forgotten || !listed.is_known {
            listed.is_known = true;
            batch.files.push((listed.ino, to_usize(listed.bytes)));
        }
        true
    }

    fn follow(&mut self, reader: SiblingReader) {
        if self.readers.len() >= READERS_MAX {
            self.readers.pop_front();
        }
        self.readers.push_back(reader);
    }

    fn forget_first(&mut self) {
        let Some(gone) = self.listed.pop_front() else {
            return;
        };
        // It may have been listed again.
        if self.places.get(&gone.ino) == Some(&self.first) {
            self.places.remove(&gone.ino);
        }
        self.first = self.first.saturating_add(1);
    }
}

impl SiblingWalk {
    /// Notes that a directory was listed, by the place of its first file. Returns whether its files
    /// are to be sent.
    fn begin(&mut self, first: u64) -> bool {
        if self.left > 0 {
            self.left = self.left.saturating_sub(1);
            return true;
        }
        if self.expected.len() >= EXPECTED_MAX {
            // No process has read it.
            self.expected.pop_front();
            self.count = 0;
        }
        self.expected.push_back(first);
        false
    }

    /// Notes that the file at a place is asked for.
    fn note_read(&mut self, place: u64) {
        let Some(index) = self.expected.iter().position(|&first| first == place) else {
            return;
        };
        self.expected.remove(index);
        self.count = match self.count {
            0 => SENT_MIN,
            count => count.saturating_mul(2).min(SENT_MAX),
        };
        self.left = self.count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With files of these sizes listed, their numbers counted from 0.
    fn listed(sizes: &[u64]) -> Siblings {
        let siblings = Siblings::new(2).unwrap();
        for (ino, bytes) in (0..).zip(sizes) {
            siblings.note_listed(Ino(ino), *bytes);
        }
        siblings
    }

    fn after(siblings: &Siblings, ino: u64) -> Vec<u64> {
        let files = siblings.after(Ino(ino)).into_iter();
        files.map(|(ino, _)| ino.0).collect()
    }

    #[test]
    fn files_in_order_are_followed_by_more_each_time() {
        let siblings = listed(&[10; 300]);
        assert_eq!(after(&siblings, 0), [0; 0]);
        assert_eq!(after(&siblings, 1), [2, 3, 4, 5]);
        // The next that it asks for is the first that it was not sent.
        assert_eq!(after(&siblings, 6), (7..15).collect::<Vec<_>>());
        assert_eq!(after(&siblings, 15).len(), 16);
        assert_eq!(after(&siblings, 32).len(), 32);
        assert_eq!(after(&siblings, 65).len(), 64);
        assert_eq!(after(&siblings, 130).len(), 64);
        assert_eq!(after(&siblings, 195).len(), 64);
        assert_eq!(after(&siblings, 260), (261..300).collect::<Vec<_>>());
        assert_eq!(after(&siblings, 299), [0; 0]);
    }

    #[test]
    fn files_in_another_order_are_followed_by_nothing() {
        let siblings = listed(&[10; 300]);
        for ino in [7, 290, 12, 100, 14, 3, 299, 1000] {
            assert_eq!(after(&siblings, ino), [0; 0], "{ino}");
        }
        assert!(Siblings::new(1).is_none());
    }

    #[test]
    fn what_is_known_too_large_or_empty_is_not_sent() {
        let mut sizes = [10; 12];
        (sizes[3], sizes[4]) = (0, FILE_BYTES_MAX + 1);
        let siblings = listed(&sizes);
        assert_eq!(after(&siblings, 5), [0; 0]);
        assert_eq!(after(&siblings, 0), [0; 0]);
        assert_eq!(after(&siblings, 1), [2, 6, 7]);
        let siblings = listed(&[FILE_BYTES_MAX; 20]);
        after(&siblings, 0);
        assert_eq!(after(&siblings, 1).len(), 4);
        assert_eq!(after(&siblings, 6).len(), 4);
    }

    #[test]
    fn what_the_kernel_has_forgotten_is_sent_again() {
        let siblings = listed(&[10; 20]);
        after(&siblings, 0);
        assert_eq!(after(&siblings, 1), [2, 3, 4, 5]);
        assert_eq!(after(&siblings, 0), [0; 0]);
        assert_eq!(after(&siblings, 1), [2, 3, 4, 5]);
        assert_eq!(after(&siblings, 6).len(), 8);
    }

    #[test]
    fn readers_are_followed_apart() {
        let siblings = listed(&[10; 300]);
        for start in [0, 100, 200] {
            assert_eq!(after(&siblings, start), [0; 0]);
        }
        for start in [0, 100, 200] {
            let sent = (start + 2..start + 6).collect::<Vec<_>>();
            assert_eq!(after(&siblings, start + 1), sent);
        }
    }

    #[test]
    fn memory_is_bounded() {
        let siblings = Siblings::new(2).unwrap();
        for ino in 0..3 * LISTED_MAX as u64 {
            siblings.note_listed(Ino(ino % 70_000), 10);
        }
        let state = siblings.state();
        assert_eq!(state.listed.len(), LISTED_MAX);
        assert!(state.places.len() <= LISTED_MAX);
    }
    /// Lists directories of `files` small files each, and says how many were sent after each list.
    fn walked(
        siblings: &Siblings,
        dirs: std::ops::Range<u64>,
        files: u64,
        reads: bool,
    ) -> Vec<usize> {
        let mut sent = Vec::new();
        for dir in dirs {
            let files = (dir * 1000..).take(files as usize).map(Ino);
            for ino in files.clone() {
                siblings.note_listed(ino, 10);
            }
            let listed = siblings.after_list(files.clone());
            sent.push(listed.len());
            let is_sent = |ino: &Ino| listed.iter().any(|(sent, _)| sent == ino);
            for ino in files.filter(|ino| reads && !is_sent(ino)) {
                siblings.after(ino);
            }
        }
        sent
    }

    #[test]
    fn directories_are_sent_to_those_who_read_the_first_file_of_others() {
        let siblings = listed(&[]);
        assert_eq!(walked(&siblings, 0..8, 1, true), [0, 1, 1, 1, 1, 0, 1, 1]);
        let siblings = listed(&[]);
        assert_eq!(walked(&siblings, 0..4, 3, true), [0, 3, 3, 3]);
        // One that only lists gets what was promised to the other, and no more.
        let sent = walked(&siblings, 4..100, 3, false);
        assert_eq!(sent.iter().sum::<usize>(), 3);
        assert_eq!(walked(&siblings, 100..103, 1, true), [0, 1, 1]);
    }

    #[test]
    fn directories_inside_may_come_first() {
        let siblings = listed(&[]);
        assert_eq!(walked(&siblings, 0..5, 1, false), [0; 5]);
        siblings.after(Ino(0));
        assert_eq!(walked(&siblings, 5..7, 1, false), [1, 1]);
        assert!(siblings.after_list([Ino(77)].into_iter()).is_empty());
    }

    #[test]
    fn a_large_directory_goes_on_where_its_list_stopped() {
        let siblings = listed(&[]);
        walked(&siblings, 0..1, 1, true);
        assert_eq!(walked(&siblings, 1..2, 200, false), [64]);
        let next: Vec<u64> = (1064..1200).collect();
        assert_eq!(after(&siblings, 1064), next[1..65]);
        let large = listed(&[]);
        walked(&large, 0..1, 1, true);
        for ino in 1..9 {
            large.note_listed(Ino(ino), FILE_BYTES_MAX);
        }
        assert_eq!(large.after_list((1..9).map(Ino)).len(), 4);
    }
}
