//! Compressed tar archives: a stream in parts.

use std::collections::HashMap;
use std::io::{self, Read};
use std::panic::resume_unwind;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use codec::{Packer, Wrapper};
use tree::{Error, Inventory, NoProgress, Parallel, Result, ordered, to_u64};

use crate::candidate::{Candidate, Coding};
use crate::cut::{Clock, Cut, Trial, TrialWork, Tried, timed};
use crate::population::Unit;

/// The tree as an archive, cut for one format of compression.
pub(crate) struct Archive<'a> {
    inventory: &'a Inventory<'a>,
    wrapper: Wrapper,
    units: Vec<Unit>,
    archive_bytes: u64,
    /// The content of the parts that are tried.
    loaded: HashMap<usize, Vec<u8>>,
}

impl<'a> Archive<'a> {
    /// An archive of `archive_bytes`, as of [`archive_bytes`].
    pub(crate) fn new(
        inventory: &'a Inventory<'a>,
        wrapper: Wrapper,
        archive_bytes: u64,
    ) -> Archive<'a> {
        let part = to_u64(Packer::part_bytes(wrapper));
        let units = (0..archive_bytes.div_ceil(part)).map(|number| {
            let len = (archive_bytes - number * part).min(part) as u32;
            Unit {
                len,
                plain: len,
                class: 0,
                kind: 0,
                quantum: 1,
            }
        });
        Archive {
            inventory,
            wrapper,
            units: units.collect(),
            archive_bytes,
            loaded: HashMap::new(),
        }
    }

    /// The level of zstd in the first pass: as good a guide to the sizes of the others, and much
    /// faster than xz. In large parts, most is won by matches that the fastest level does not find.
    fn first_level(&self) -> u8 {
        if matches!(self.wrapper, Wrapper::Zstd | Wrapper::Xz) {
            3
        } else {
            1
        }
    }

    /// Writes the archive into a pipe, as a copy does, and passes the parts in `wanted`, ascending,
    /// to `take`, until that wants no more.
    fn stream(&self, wanted: &[usize], take: &mut dyn FnMut(usize, Vec<u8>) -> bool) -> Result<()> {
        let part_bytes = Packer::part_bytes(self.wrapper);
        thread::scope(|scope| {
            // Dropped before the writer is waited for.
            let (mut content, mut to_pack) = io::pipe()?;
            let one = Parallel::new(1);
            let filled = scope.spawn(move || {
                tree::tar::write(self.inventory, false, one, &NoProgress, &mut to_pack)
            });
            let mut wanted = wanted.iter().copied().peekable();
            for number in 0..self.units.len() {
                let mut part = Vec::with_capacity(part_bytes);
                Read::by_ref(&mut content)
                    .take(to_u64(part_bytes))
                    .read_to_end(&mut part)?;
                if wanted.next_if_eq(&number).is_some() && !take(number, part) {
                    return Ok(());
                }
            }
            drop(content);
            filled.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            Ok(())
        })
    }
}

/// The size of the archive of a tree, which is written and thrown away, and how long that takes, in
/// seconds.
///
/// # Errors
/// The tree cannot be read.
pub(crate) fn archive_bytes(inventory: &Inventory<'_>, clock: Clock<'_>) -> Result<(u64, f64)> {
    let (written, seconds) = timed(clock, || {
        let one = Parallel::new(1);
        tree::tar::write(inventory, false, one, &NoProgress, &mut io::sink())
    });
    Ok((written?.archive_bytes, seconds))
}

impl Cut for Archive<'_> {
    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn first(&self) -> Candidate {
        Candidate {
            coding: Coding::Packed(Wrapper::Zstd, self.first_level()),
            block_bytes: None,
        }
    }

    /// The parts come one after another, as when the archive is written: they are not kept.
    fn first_pass(
        &self,
        units: &[usize],
        parallel: Parallel,
        clock: Clock<'_>,
    ) -> Result<Vec<Tried>> {
        let level = self.first_level();
        let mut tried = Vec::with_capacity(units.len());
        thread::scope(|scope| {
            let (parts, received) = sync_channel(2);
            let filled = scope.spawn(move || {
                let parts: SyncSender<Vec<u8>> = parts;
                self.stream(units, &mut |_, part| parts.send(part).is_ok())
            });
            let packed = ordered(
                parallel.in_flight(parallel.threads() + 1),
                received.iter(),
                || Packing::new(Wrapper::Zstd, level),
                |packing, part| {
                    packing
                        .as_mut()
                        .map_err(|error| other(*error))?
                        .pack(&part, clock)
                },
                |one| {
                    tried.push(one);
                    Ok(())
                },
            );
            drop(received);
            let filled = filled.join().unwrap_or(Err(Error::Changed));
            packed.and(filled)
        })?;
        if tried.len() < units.len() {
            return Err(Error::Changed);
        }
        Ok(tried)
    }

    fn with<'a>(&'a self, candidate: &Candidate) -> Result<Box<dyn Trial + 'a>> {
        let level = match candidate.coding {
            Coding::Packed(_, level) => level,
            Coding::Plain | Coding::Blocks(_) => 1,
        };
        Ok(Box::new(ArchiveTrial { cut: self, level }))
    }

    fn load(&mut self, units: &[usize], clock: Clock<'_>) -> Result<Option<f64>> {
        let mut sorted = units.to_vec();
        sorted.sort_unstable();
        let mut loaded = HashMap::new();
        let (streamed, seconds) = timed(clock, || {
            self.stream(&sorted, &mut |number, part| {
                loaded.insert(number, part);
                true
            })
        });
        streamed?;
        self.loaded = loaded;
        Ok(Some(seconds))
    }
}

struct ArchiveTrial<'a> {
    cut: &'a Archive<'a>,
    level: u8,
}

impl Trial for ArchiveTrial<'_> {
    fn worker(&self) -> Result<Box<dyn TrialWork + '_>> {
        Ok(Box::new(ArchiveWork {
            cut: self.cut,
            packing: Packing::new(self.cut.wrapper, self.level).map_err(other)?,
        }))
    }

    fn whole(&self, lens: &[u32], _: Parallel) -> Result<u64> {
        let packed: u64 = lens.iter().copied().map(u64::from).sum();
        // The seek table: a header, eight bytes for each part, and an end.
        let table = match self.cut.wrapper {
            Wrapper::Zstd => 8 + 8 * to_u64(lens.len()) + 9,
            _ => 0,
        };
        debug_assert!(self.cut.archive_bytes > 0);
        Ok(packed + table)
    }
}

struct ArchiveWork<'a> {
    cut: &'a Archive<'a>,
    packing: Packing,
}

impl TrialWork for ArchiveWork<'_> {
    fn run(&mut self, unit: usize, clock: Clock<'_>) -> Result<Tried> {
        let part = self.cut.loaded.get(&unit).ok_or(Error::Changed)?;
        self.packing.pack(part, clock)
    }
}

/// Packs parts, and unpacks them again.
struct Packing {
    wrapper: Wrapper,
    packer: Packer,
    packed: Vec<u8>,
    content: Vec<u8>,
}

impl Packing {
    fn new(wrapper: Wrapper, level: u8) -> Result<Packing, codec::Error> {
        Ok(Packing {
            wrapper,
            packer: Packer::new(wrapper, Some(level))?,
            packed: Vec::new(),
            content: Vec::new(),
        })
    }

    fn pack(&mut self, part: &[u8], clock: Clock<'_>) -> Result<Tried> {
        let Packing {
            wrapper,
            packer,
            packed,
            content,
        } = self;
        let (result, encode) = timed(clock, || packer.pack(part, packed));
        result.map_err(other)?;
        content.clear();
        let (result, decode) = timed(clock, || wrapper.decompress(&mut &packed[..], content));
        result.map_err(|_| Error::Unverified("a sample does not decode"))?;
        if content[..] != *part {
            return Err(Error::Unverified("a sample decodes to something else"));
        }
        Ok(Tried {
            len: packed.len() as u32,
            encode,
            decode,
        })
    }
}

fn other(error: codec::Error) -> Error {
    Error::Io(io::Error::other(error))
}
