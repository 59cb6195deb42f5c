//! The memory that a copy takes, and how many threads fit into a bound on it.

use codec::{Packer, Settings, Wrapper};
use tree::Parallel;

use super::format::Format;
use super::job::CopyJob;
use super::options::CopyOptions;
use crate::error::refuse;
use crate::object::is_remote;
use crate::{Address, Result};

/// The program itself, its stacks, and the memory that the allocator keeps.
const PROGRAM_BYTES: u64 = 12 << 20;
/// Tables of the writer for a name, besides the list of files. Those of large trees go to a file.
const NAME_BYTES: u64 = 100;
/// Tables of a source that is no directory, for a name.
const SOURCE_NAME_BYTES: u64 = 100;
/// Blocks that are filled, compared and written, with one thread.
const BLOCKS: u64 = 4;
/// Blocks of a thread: its buffers, and those that are packed or wait for it.
const THREAD_BLOCKS: u64 = 4;
/// Blocks of a job in flight: the content, and the encoded bytes.
const JOB_BLOCKS: u64 = 2;
/// Decoders and caches of a thread.
const THREAD_BYTES: u64 = 1 << 20;
/// Ranges of an object that are on their way, besides the cache.
const READ_AHEAD_BYTES: u64 = 16 << 20;
/// Three parts of an object wait at least; those of btrfs need all.
const UPLOAD_BYTES_MIN: u64 = 24 << 20;

/// The memory of a copy without that of its jobs.
struct MemoryModel {
    fixed_bytes: u64,
    thread_bytes: u64,
    block_bytes: u64,
    /// Jobs in flight for each one that is asked for.
    jobs_factor: u64,
}

impl MemoryModel {
    fn bytes(&self, parallel: Parallel) -> u64 {
        let threads = parallel.threads() as u64;
        let jobs = match threads {
            1 => 1,
            _ => parallel.jobs_max() as u64 * self.jobs_factor,
        };
        let blocks = BLOCKS + THREAD_BLOCKS * threads + JOB_BLOCKS * jobs;
        self.fixed_bytes + self.thread_bytes * threads + self.block_bytes * blocks
    }

    /// The most threads up to those that are wanted, and then the most jobs, that fit.
    fn fit(&self, wanted: Parallel, bytes_max: u64) -> Option<Parallel> {
        let threads = (1..=wanted.threads()).rev();
        let mut choices = threads.flat_map(|threads| {
            let jobs = [wanted.jobs_max().min(4 * threads), 2 * threads];
            jobs.map(|jobs| Parallel::new(threads).in_flight(jobs))
        });
        choices.find(|&parallel| self.bytes(parallel) <= bytes_max)
    }
}

impl CopyJob<'_> {
    /// Chooses threads, jobs and the buffers of an upload within the bound on memory.
    ///
    /// # Errors
    /// The options need more.
    pub(super) fn bound_memory(&mut self) -> Result<()> {
        let Some(bytes_max) = self.options.memory_max else {
            return Ok(());
        };
        let mut model = self.memory_model();
        if Address::is_written_object(self.dst) {
            let least = match self.format {
                Format::Btrfs => self.upload_bytes_max,
                _ => UPLOAD_BYTES_MIN,
            };
            let room = bytes_max.saturating_sub(model.bytes(Parallel::new(1)));
            self.upload_bytes_max = self.upload_bytes_max.min(room.max(least));
            model.fixed_bytes += self.upload_bytes_max;
        }
        match model.fit(self.parallel, bytes_max) {
            Some(parallel) => self.parallel = parallel,
            None => {
                let least = model.bytes(Parallel::new(1)).div_ceil(1 << 20);
                refuse!(
                    "--memory: this copy needs {least} MiB with one thread; smaller blocks, a lower level or another codec need less"
                )
            }
        }
        Ok(())
    }

    fn memory_model(&self) -> MemoryModel {
        let (inventory, options) = (&self.inventory, self.options);
        let names = inventory.entry_count() as u64;
        let source = match self.source.directory() {
            Some(_) => 0,
            None => SOURCE_NAME_BYTES,
        };
        let mut fixed_bytes = PROGRAM_BYTES
            + inventory.memory_bytes() as u64
            + names.saturating_mul(NAME_BYTES + source);
        if is_remote(self.source.name().as_bytes()) {
            fixed_bytes += options.remote.cache_bytes as u64 + READ_AHEAD_BYTES;
        }
        let format = options.content_format(self.format);
        let (block_bytes, encoder_bytes) = options.block(format);
        MemoryModel {
            fixed_bytes,
            thread_bytes: THREAD_BYTES + encoder_bytes,
            block_bytes,
            jobs_factor: if format == Format::Btrfs { 4 } else { 1 },
        }
    }
}

impl CopyOptions {
    /// The bytes of a block of this format, and of its encoder.
    fn block(&self, format: Format) -> (u64, u64) {
        let of_blocks = |bytes: usize, settings: Option<Settings>| {
            let encoder = settings.map_or(0, |settings| settings.memory_bytes(bytes));
            (bytes as u64, encoder as u64)
        };
        let wrapper = format.wrapper().or(match format {
            Format::Oci | Format::OciArchive => self.image.wrapper,
            _ => None,
        });
        if let Some(wrapper) = wrapper {
            let bytes = Packer::part_bytes(wrapper);
            return (bytes as u64, packer_bytes(wrapper, self.level) as u64);
        }
        match format {
            Format::Squashfs => {
                let options = &self.squashfs;
                of_blocks(options.block_bytes as usize, options.compression)
            }
            Format::Erofs => of_blocks(
                self.erofs.unit_bytes.max(256 << 10) as usize,
                self.erofs.compression,
            ),
            Format::Btrfs => {
                let rules = self.btrfs.rules.iter().map(|rule| rule.compression);
                let all = rules.chain([self.btrfs.compression]).flatten();
                let sizes = all.map(|settings| of_blocks(128 << 10, Some(settings)));
                sizes.max().unwrap_or(of_blocks(128 << 10, None))
            }
            Format::Stream => of_blocks(128 << 10, self.stream.encode),
            _ => of_blocks(256 << 10, None),
        }
    }
}

/// The memory of a packer, whose dictionaries are not bounded by the length of a part.
fn packer_bytes(wrapper: Wrapper, level: Option<u8>) -> usize {
    let settings = match wrapper {
        Wrapper::Zstd => Settings::Zstd {
            level: level.unwrap_or(3).into(),
        },
        Wrapper::Gzip => Settings::Zlib {
            level: level.unwrap_or(6),
        },
        _ => {
            const DICTIONARY_MIB: [usize; 10] = [1, 1, 2, 4, 4, 8, 8, 16, 32, 64];
            let level = level.unwrap_or(6);
            let bytes = DICTIONARY_MIB[usize::from(level.min(9))] << 20;
            let xz = Settings::Xz {
                level,
                extreme: false,
                dictionary_bytes: bytes as u32,
                filters: codec::Filters(0),
            };
            return xz.memory_bytes(bytes);
        }
    };
    settings.memory_bytes(Packer::part_bytes(wrapper))
}
