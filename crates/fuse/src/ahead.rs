//! Reading ahead in files that are read in sequence.
//!
//! Linux asks for at most 256 KiB ahead, so that two threads decode at most two blocks of usual
//! size at once, and one a larger block while the other waits for it. Here, threads of their own
//! decode the next blocks: the tree keeps the decoded blocks.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tree::{Ino, Storage, to_u64};

/// The size of a read by Linux.
const REQUEST_BYTES: u64 = 128 << 10;
/// Requests of a file in sequence arrive at most this far from their place.
const NEAR_BYTES: u64 = 2 * REQUEST_BYTES;
/// Number of files that are followed.
const FILES_MAX: usize = 16;

/// The blocks to read ahead.
#[derive(Debug)]
pub(crate) struct Ahead {
    block_bytes: u64,
    /// Number of blocks to read ahead, and of threads that do.
    depth: usize,
    state: Mutex<AheadState>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct AheadState {
    /// The files read last, the last one at the back.
    files: VecDeque<Followed>,
    jobs: VecDeque<(Ino, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Followed {
    ino: Ino,
    /// The end of the last read.
    end: u64,
    /// The block up to which reading ahead was asked for.
    asked: u64,
}

impl Ahead {
    /// Reading ahead for a server with this number of threads, if it helps.
    pub(crate) fn new(storage: &Storage, threads: usize) -> Option<Ahead> {
        if !storage.stored_extents {
            return None;
        }
        let encoding = storage.block_encoding;
        let block_bytes = encoding.map_or(REQUEST_BYTES, |encoding| encoding.block_bytes.into());
        let depth = threads.saturating_sub(1);
        // Two blocks of usual size are decoded at once without this.
        let helps = depth > 1 || (depth == 1 && block_bytes > REQUEST_BYTES);
        helps.then(|| Ahead {
            block_bytes,
            depth,
            state: Mutex::default(),
            wake: Condvar::new(),
        })
    }

    pub(crate) fn threads(&self) -> usize {
        self.depth
    }

    /// Notes a request before it is answered, and the blocks to read after it.
    pub(crate) fn note(&self, ino: Ino, offset: u64, len: u64) {
        let mut state = self.state();
        let place = state.files.iter().position(|file| file.ino == ino);
        let known = place.and_then(|place| state.files.remove(place));
        let end = offset.saturating_add(len);
        let followed = match known {
            Some(file) if offset.abs_diff(file.end) <= NEAR_BYTES => Followed {
                end: end.max(file.end),
                asked: self.ask(&mut state, file, end.max(file.end)),
                ino,
            },
            _ => Followed { ino, end, asked: 0 },
        };
        if state.files.len() >= FILES_MAX {
            state.files.pop_front();
        }
        state.files.push_back(followed);
    }

    /// Asks for the blocks after `end`. Returns the last one.
    fn ask(&self, state: &mut AheadState, file: Followed, end: u64) -> u64 {
        let block_of = |at: u64| at.checked_div(self.block_bytes).unwrap_or(0);
        let next = block_of(end.saturating_sub(1)).saturating_add(1);
        let last = next.saturating_add(to_u64(self.depth)).saturating_sub(1);
        for block in next.max(file.asked.saturating_add(1))..=last {
            if state.jobs.len() >= self.depth.saturating_mul(2) {
                state.jobs.pop_front();
            }
            let at = block.saturating_mul(self.block_bytes);
            state.jobs.push_back((file.ino, at));
            self.wake.notify_one();
        }
        last.max(file.asked)
    }

    /// Waits for a place to read at.
    pub(crate) fn next(&self) -> (Ino, u64) {
        let mut state = self.state();
        loop {
            while let Some((ino, at)) = state.jobs.pop_front() {
                // A block requested meanwhile is being read.
                let is_late = |file: &Followed| file.ino == ino && file.end > at;
                if !state.files.iter().any(is_late) {
                    return (ino, at);
                }
            }
            let woken = self.wake.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, AheadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tree::StoreId;

    fn ahead(threads: usize) -> Option<Ahead> {
        let storage = Storage {
            stored_extents: true,
            ..Storage::plain(StoreId::new())
        };
        Ahead::new(&storage, threads)
    }

    #[test]
    fn files_in_sequence_are_read_ahead_and_others_not() {
        const BLOCK: u64 = REQUEST_BYTES;
        let ahead = ahead(3).unwrap();
        let jobs = || {
            ahead
                .state()
                .jobs
                .drain(..)
                .map(|job| job.1 / BLOCK)
                .collect::<Vec<_>>()
        };
        let (one, other) = (Ino(1), Ino(2));
        ahead.note(one, 0, BLOCK);
        assert_eq!(jobs(), []);
        ahead.note(one, BLOCK, BLOCK);
        assert_eq!(jobs(), [2, 3]);
        ahead.note(other, 50 * BLOCK, 4096);
        ahead.note(one, 3 * BLOCK, BLOCK);
        assert_eq!(jobs(), [4, 5]);
        // It arrives late.
        ahead.note(one, 2 * BLOCK, BLOCK);
        assert_eq!(jobs(), []);
        ahead.note(other, 7 * BLOCK, 4096);
        ahead.note(other, 90 * BLOCK, 4096);
        assert_eq!(jobs(), []);
        ahead.note(one, u64::MAX, u64::MAX);
        ahead.note(one, u64::MAX, u64::MAX);
        assert!(jobs().len() <= 4);
    }

    #[test]
    fn it_is_done_only_where_it_helps() {
        assert!(ahead(1).is_none());
        assert!(ahead(2).is_none());
        assert_eq!(ahead(4).unwrap().threads(), 3);
        let plain = Storage::plain(StoreId::new());
        assert!(Ahead::new(&plain, 8).is_none());
    }
}
