//! An object as a file: blocks in a bounded cache, and reading ahead.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tree::ReadAt;

use crate::error::{Fault, RemoteError};
use crate::object::{Object, START_BYTES};
use crate::options::RemoteOptions;

/// The unit of the cache.
const BLOCK_BYTES: u64 = 64 << 10;
/// Blocks of one request.
const REQUEST_BLOCKS_MAX: u64 = (8 << 20) / BLOCK_BYTES;
/// Blocks between two ranges for which a second request would take longer than their bytes.
const GAP_BLOCKS: u64 = (256 << 10) / BLOCK_BYTES;
/// Places where something reads in order at the same time.
const RUNS_MAX: usize = 16;

/// An object that can be read at any place, by several threads.
pub struct RemoteFile {
    object: Object,
    state: Mutex<State>,
    /// A block has arrived, or will not.
    arrived: Condvar,
    blocks_max: usize,
}

#[derive(Default)]
struct State {
    blocks: HashMap<u64, Block>,
    /// The blocks that are there, in the order in which they are looked at to evict one.
    clock: VecDeque<u64>,
    runs: VecDeque<ReadAhead>,
    /// Blocks with which reading ends that begins in them, of the files that were opened last.
    ends: VecDeque<Range<u64>>,
    /// Why nothing more can be read.
    end: Option<RemoteError>,
}

enum Block {
    /// On its way.
    Asked,
    Here {
        bytes: Arc<[u8]>,
        is_used: bool,
    },
}

/// Blocks that are read in order.
struct ReadAhead {
    start: u64,
    next: u64,
    /// Blocks that were fetched for it.
    fetched: u64,
}

impl RemoteFile {
    /// Of an object, with its first bytes.
    pub(crate) fn new(object: Object, start: Vec<u8>, options: &RemoteOptions) -> RemoteFile {
        let blocks = options.cache_bytes as u64 / BLOCK_BYTES;
        let file = RemoteFile {
            // Two requests have to fit, even if they are small.
            blocks_max: blocks.max(16) as usize,
            object,
            state: Mutex::default(),
            arrived: Condvar::new(),
        };
        let size = file.object.size();
        let mut state = file.state();
        for (number, bytes) in (0..).zip(start.chunks(BLOCK_BYTES as usize)) {
            if bytes.len() as u64 == BLOCK_BYTES || start.len() as u64 == size {
                state.add(number, bytes.into());
            }
        }
        state.runs.push_back(ReadAhead {
            start: START_BYTES / BLOCK_BYTES,
            next: START_BYTES / BLOCK_BYTES,
            fetched: START_BYTES / BLOCK_BYTES,
        });
        drop(state);
        file
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request_blocks_max(&self) -> u64 {
        REQUEST_BLOCKS_MAX.min(self.blocks_max as u64 / 8)
    }

    fn block_count(&self) -> u64 {
        self.object.size().div_ceil(BLOCK_BYTES)
    }

    /// A block, of a read that goes on to another one.
    fn block(&self, number: u64, last: u64) -> Result<Arc<[u8]>, RemoteError> {
        let mut state = self.state();
        loop {
            match state.blocks.get_mut(&number) {
                Some(Block::Here { bytes, is_used }) => {
                    *is_used = true;
                    return Ok(Arc::clone(bytes));
                }
                Some(Block::Asked) => {
                    let waited = self.arrived.wait(state);
                    state = waited.unwrap_or_else(PoisonError::into_inner);
                }
                None => {
                    if let Some(end) = &state.end {
                        return Err(end.clone());
                    }
                    let ahead = state.ahead(number, self.request_blocks_max());
                    let count = ahead.max(last - number + 1).min(self.request_blocks_max());
                    let range = number..(number + count).min(self.block_count());
                    let range = state.ask(range);
                    drop(state);
                    return self.fetch(range);
                }
            }
        }
    }

    /// Fetches blocks that were asked for, and returns the first of them.
    fn fetch(&self, range: Range<u64>) -> Result<Arc<[u8]>, RemoteError> {
        let (from, to) = (range.start * BLOCK_BYTES, range.end * BLOCK_BYTES);
        let to = to.min(self.object.size());
        let (mut number, mut at) = (range.start, from);
        let mut first = None;
        let mut block = Vec::with_capacity(BLOCK_BYTES as usize);
        let mut take = |mut bytes: &[u8]| {
            while !bytes.is_empty() {
                let room = BLOCK_BYTES as usize - block.len();
                let (part, rest) = bytes.split_at(room.min(bytes.len()));
                block.extend_from_slice(part);
                at += part.len() as u64;
                bytes = rest;
                if block.len() as u64 == BLOCK_BYTES || at == to {
                    let here: Arc<[u8]> = block.as_slice().into();
                    block.clear();
                    first.get_or_insert_with(|| Arc::clone(&here));
                    let mut state = self.state();
                    state.add(number, here);
                    state.evict(self.blocks_max);
                    drop(state);
                    self.arrived.notify_all();
                    number += 1;
                }
            }
        };
        let read = self.object.read(from, to, &mut take);
        if let Err(error) = &read {
            let mut state = self.state();
            for number in number..range.end {
                state.blocks.remove(&number);
            }
            if error.fault == Fault::Replaced {
                state.end = Some(error.clone());
            }
            drop(state);
            self.arrived.notify_all();
        }
        read.map(|()| first.expect("a range has a block"))
    }
}

impl State {
    fn add(&mut self, number: u64, bytes: Arc<[u8]>) {
        // Blocks that were read ahead will be used; else they would go before older ones.
        let is_used = true;
        self.blocks.insert(number, Block::Here { bytes, is_used });
        self.clock.push_back(number);
    }

    /// Removes blocks until few enough are there. One that was used since it was last looked at
    /// stays.
    fn evict(&mut self, blocks_max: usize) {
        while self.clock.len() > blocks_max {
            let Some(number) = self.clock.pop_front() else {
                return;
            };
            match self.blocks.get_mut(&number) {
                Some(Block::Here { is_used, .. }) if *is_used => {
                    *is_used = false;
                    self.clock.push_back(number);
                }
                _ => {
                    self.blocks.remove(&number);
                }
            }
        }
    }

    /// How many blocks to fetch at a place: the more, the more of them were read in order before.
    /// By half as much as those, so that not many are fetched in vain, and not beyond the end of a
    /// file in which they began. If they began far before it, what follows it may be read as well.
    fn ahead(&self, number: u64, max: u64) -> u64 {
        let run = self.runs.iter().find(|run| run.is_continued_at(number));
        let ahead = run.map_or(1, |run| (run.fetched / 2).clamp(1, max));
        let start = run.map_or(number, |run| run.start);
        let is_end =
            |range: &&Range<u64>| range.contains(&number) && range.start <= start + GAP_BLOCKS;
        let end = self.ends.iter().rev().find(is_end);
        end.map_or(ahead, |range| ahead.min(range.end - number))
    }

    /// Notes that blocks are on their way: those of a range up to the first in memory.
    fn ask(&mut self, range: Range<u64>) -> Range<u64> {
        let known = range
            .clone()
            .find(|number| self.blocks.contains_key(number));
        let range = range.start..known.unwrap_or(range.end);
        self.blocks
            .extend(range.clone().map(|number| (number, Block::Asked)));
        let index = (self.runs.iter()).position(|run| run.is_continued_at(range.start));
        let run = index.and_then(|index| self.runs.remove(index));
        let (start, fetched) = run.map_or((range.start, 0), |run| (run.start, run.fetched));
        if self.runs.len() == RUNS_MAX {
            self.runs.pop_front();
        }
        self.runs.push_back(ReadAhead {
            start,
            next: range.end,
            fetched: fetched + (range.end - range.start),
        });
        range
    }
}

impl ReadAhead {
    fn is_continued_at(&self, number: u64) -> bool {
        (self.next..self.next + GAP_BLOCKS).contains(&number)
    }
}

impl ReadAt for RemoteFile {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let size = self.object.size();
        let end = at.checked_add(buf.len() as u64).filter(|&end| end <= size);
        let Some(end) = end else {
            let words = format!(
                "{} bytes at byte {at} of an object that ends at byte {size}",
                buf.len()
            );
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, words));
        };
        let (mut at, mut left) = (at, buf);
        while !left.is_empty() {
            let number = at / BLOCK_BYTES;
            let block = self.block(number, (end - 1) / BLOCK_BYTES)?;
            let rest = &block[(at % BLOCK_BYTES) as usize..];
            let len = rest.len().min(left.len());
            let (part, behind) = left.split_at_mut(len);
            part.copy_from_slice(&rest[..len]);
            at += len as u64;
            left = behind;
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.object.size())
    }

    /// Fetches the ranges that are not there, near ones together, as far as half of the cache holds
    /// them. An error shows when they are read.
    fn will_read(&self, ranges: &[Range<u64>]) {
        let mut wanted: Vec<Range<u64>> = (ranges.iter())
            .filter(|range| range.start < range.end)
            .map(|range| range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES))
            .collect();
        wanted.sort_unstable_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for range in wanted {
            match joined.last_mut() {
                Some(last) if range.start <= last.end + GAP_BLOCKS => {
                    last.end = last.end.max(range.end);
                }
                _ => joined.push(range),
            }
        }
        let mut left = self.blocks_max as u64 / 2;
        for range in joined {
            let mut at = range.start;
            let end = range.end.min(self.block_count()).min(at + left);
            left -= end.saturating_sub(at);
            while at < end {
                let mut state = self.state();
                if state.end.is_some() {
                    return;
                }
                if state.blocks.contains_key(&at) {
                    at += 1;
                    continue;
                }
                let asked = state.ask(at..end.min(at + self.request_blocks_max()));
                drop(state);
                at = asked.end;
                if self.fetch(asked).is_err() {
                    return;
                }
            }
        }
    }

    fn will_read_within(&self, range: Range<u64>) {
        let mut state = self.state();
        if state.ends.len() == RUNS_MAX {
            state.ends.pop_front();
        }
        let end = range.end.div_ceil(BLOCK_BYTES);
        state.ends.push_back(range.start / BLOCK_BYTES..end);
    }
}
