//! The memory that a command takes, and how many threads fit into a bound on it.

use tree::Parallel;

use crate::Result;
use crate::error::refuse;

/// The program itself, its stacks, and the memory that the allocator keeps.
pub(crate) const PROGRAM_BYTES: u64 = 12 << 20;
/// Ranges of an object that are on their way, besides the cache.
pub(crate) const READ_AHEAD_BYTES: u64 = 16 << 20;
/// Decoders and caches of a thread.
pub(crate) const THREAD_BYTES: u64 = 1 << 20;
/// Blocks that are filled, compared and written, with one thread.
const BLOCKS: u64 = 4;
/// Blocks of a thread: its buffers, and those that are packed or wait for it.
const THREAD_BLOCKS: u64 = 4;
/// Blocks of a job in flight: the content, and the encoded bytes.
const JOB_BLOCKS: u64 = 2;
/// Three parts of an object wait at least.
const UPLOAD_BYTES_MIN: u64 = 24 << 20;
/// Connections, and the threads that send parts.
const CONNECTION_BYTES: u64 = 3 << 20;

/// Parts of an object that wait at most, where memory is not bounded.
const UPLOAD_BYTES_MAX: u64 = 56 << 20;
/// Those of btrfs: two that are written last, and three that are filled or sent. Tables that have
/// no file are in memory, too.
const BTRFS_UPLOAD_BYTES: u64 = 40 << 20;

/// Parts of an object that wait at most, where memory is not bounded.
pub(crate) fn upload_bytes_max(is_btrfs: bool) -> u64 {
    if is_btrfs {
        BTRFS_UPLOAD_BYTES
    } else {
        UPLOAD_BYTES_MAX
    }
}

/// The memory of a command without that of its jobs.
pub(crate) struct MemoryModel {
    pub(crate) fixed_bytes: u64,
    pub(crate) thread_bytes: u64,
    pub(crate) block_bytes: u64,
    /// Jobs in flight for each one that is asked for.
    pub(crate) jobs_factor: u64,
}

impl MemoryModel {
    pub(crate) fn bytes(&self, parallel: Parallel) -> u64 {
        let threads = parallel.threads() as u64;
        let jobs = match threads {
            1 => 1,
            _ => parallel.jobs_max() as u64 * self.jobs_factor,
        };
        let blocks = BLOCKS + THREAD_BLOCKS * threads + JOB_BLOCKS * jobs;
        self.fixed_bytes + self.thread_bytes * threads + self.block_bytes * blocks
    }

    /// Makes room for the parts of an object that is written, and returns their bytes. Those of
    /// btrfs need all.
    pub(crate) fn add_upload(&mut self, bytes_max: u64, is_btrfs: bool) -> u64 {
        self.fixed_bytes += CONNECTION_BYTES;
        let room = bytes_max.saturating_sub(self.bytes(Parallel::new(1)));
        let most = upload_bytes_max(is_btrfs);
        let least = if is_btrfs { most } else { UPLOAD_BYTES_MIN };
        let upload_bytes = room.clamp(least, most);
        self.fixed_bytes += upload_bytes;
        upload_bytes
    }

    /// The most threads up to those that are wanted, and then the most jobs, that fit.
    ///
    /// # Errors
    /// One thread needs more.
    pub(crate) fn fit(
        &self,
        wanted: Parallel,
        bytes_max: u64,
        (noun, advice): (&str, &str),
    ) -> Result<Parallel> {
        let threads = (1..=wanted.threads()).rev();
        let mut choices = threads.flat_map(|threads| {
            let jobs = [wanted.jobs_max().min(4 * threads), 2 * threads];
            jobs.map(|jobs| Parallel::new(threads).in_flight(jobs))
        });
        match choices.find(|&parallel| self.bytes(parallel) <= bytes_max) {
            Some(parallel) => Ok(parallel),
            None => {
                let least = self.bytes(Parallel::new(1)).div_ceil(1 << 20);
                refuse!("--memory: this {noun} needs {least} MiB with one thread{advice}")
            }
        }
    }
}
