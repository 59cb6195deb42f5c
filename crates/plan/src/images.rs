//! SquashFS, EROFS and btrfs images as containers.

use codec::{Algorithm, Decoder, Settings};
use tree::{Duplicates, Error, Inventory, Parallel, Result};

use crate::candidate::{Candidate, Coding};
use crate::cut::{Clock, Cut, FIRST, Trial, TrialWork, Tried, timed};
use crate::population::{Kinds, Unit};

/// Longest content of a part in a btrfs image.
const EXTENT_BYTES: usize = 128 << 10;
const SECTOR_BYTES: u32 = 4096;
/// Block groups of btrfs grow in steps of a stripe.
const GROUP_STEP_BYTES: u32 = 64 << 10;
/// Small files that are stored with at most this length are inline.
const INLINE_BYTES_MAX: usize = 2048;
/// Blocks larger than this have another candidate in the first pass.
const LARGE_BLOCK_BYTES: u32 = 256 << 10;

/// The candidate of the first pass for blocks of this size.
fn first_of(block_bytes: u32) -> Candidate {
    if block_bytes <= LARGE_BLOCK_BYTES {
        return FIRST;
    }
    // In large blocks, most is won by matches that the fastest level does not find.
    Candidate {
        coding: Coding::Blocks(Settings::Zstd { level: 3 }),
        ..FIRST
    }
}

/// The tree as a SquashFS image with blocks of one size.
pub(crate) struct Squashfs<'a> {
    trial: squashfs::TrialImage<'a>,
    units: Vec<Unit>,
    block_bytes: u32,
}

impl<'a> Squashfs<'a> {
    pub(crate) fn new(
        inventory: &'a Inventory<'a>,
        duplicates: &Duplicates,
        block_bytes: u32,
    ) -> Result<Squashfs<'a>> {
        let options = squashfs::Options::default().block_bytes(block_bytes);
        let trial = squashfs::TrialImage::new(inventory, duplicates, options)?;
        let kinds = Kinds::of(inventory);
        let units = trial.blocks().iter().map(|block| Unit {
            len: block.len,
            plain: block.len,
            class: block.is_fragment().into(),
            kind: kinds.kind(inventory, block.file),
            quantum: 1,
        });
        let units = units.collect();
        Ok(Squashfs {
            trial,
            units,
            block_bytes,
        })
    }
}

impl Cut for Squashfs<'_> {
    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn first(&self) -> Candidate {
        first_of(self.block_bytes)
    }

    fn step_bytes(&self) -> u32 {
        SECTOR_BYTES
    }

    fn with<'a>(&'a self, candidate: &Candidate) -> Result<Box<dyn Trial + 'a>> {
        Ok(Box::new(SquashfsTrial {
            cut: self,
            options: self.trial.options(candidate.compression()),
        }))
    }
}

/// The tree as an EROFS image with units of one size.
pub(crate) struct Erofs<'a> {
    trial: erofs::TrialImage<'a>,
    units: Vec<Unit>,
    block_bytes: u32,
}

impl<'a> Erofs<'a> {
    /// Of the compression of the options, it only matters whether there is one.
    pub(crate) fn new(
        inventory: &'a Inventory<'a>,
        duplicates: &'a Duplicates,
        options: erofs::Options,
        parallel: Parallel,
    ) -> Result<Erofs<'a>> {
        let block_bytes = options.unit_bytes;
        let trial = erofs::TrialImage::new(inventory, duplicates, options, parallel)?;
        let kinds = Kinds::of(inventory);
        let units = trial.units().iter().map(|unit| Unit {
            len: unit.len,
            plain: unit.len,
            class: unit.is_packed().into(),
            kind: kinds.kind(inventory, unit.file),
            quantum: 1,
        });
        let units = units.collect();
        Ok(Erofs {
            trial,
            units,
            block_bytes,
        })
    }
}

impl Cut for Erofs<'_> {
    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn first(&self) -> Candidate {
        first_of(self.block_bytes)
    }

    fn step_bytes(&self) -> u32 {
        SECTOR_BYTES
    }

    fn with<'a>(&'a self, candidate: &Candidate) -> Result<Box<dyn Trial + 'a>> {
        Ok(Box::new(ErofsTrial {
            cut: self,
            options: self.trial.options(candidate.compression()),
        }))
    }
}

struct ErofsTrial<'a> {
    cut: &'a Erofs<'a>,
    options: erofs::Options,
}

impl Trial for ErofsTrial<'_> {
    fn worker(&self) -> Result<Box<dyn TrialWork + '_>> {
        let settings = self.options.compression;
        Ok(Box::new(ErofsWork {
            worker: self.cut.trial.worker(&self.options),
            units: self.cut.trial.units(),
            decoding: Decoding::new(
                settings.map(|settings| settings.algorithm()),
                StoredForm::Raw,
                self.cut.block_bytes as usize,
            ),
        }))
    }

    fn whole(&self, lens: &[u32], parallel: Parallel) -> Result<u64> {
        let trial = &self.cut.trial;
        trial.image_bytes(self.options.compression, lens, parallel)
    }
}

struct ErofsWork<'a> {
    worker: erofs::TrialUnitEncoder<'a>,
    units: &'a [erofs::TrialUnit],
    decoding: Decoding,
}

impl TrialWork for ErofsWork<'_> {
    fn run(&mut self, unit: usize, clock: Clock<'_>) -> Result<Tried> {
        let (result, encode) = timed(clock, || self.worker.encode(&self.units[unit]));
        let result = result?;
        let len = result.len;
        let decode = if result.is_plain {
            0.0
        } else {
            let content = self.units[unit].len as usize;
            self.decoding.time(&result.buffer[..len], content, clock)?
        };
        self.worker.recycle(result);
        Ok(Tried {
            len: len as u32,
            encode,
            decode,
        })
    }
}

struct SquashfsTrial<'a> {
    cut: &'a Squashfs<'a>,
    options: squashfs::Options,
}

impl Trial for SquashfsTrial<'_> {
    fn worker(&self) -> Result<Box<dyn TrialWork + '_>> {
        let settings = self.options.compression;
        Ok(Box::new(SquashfsWork {
            worker: self.cut.trial.worker(&self.options),
            blocks: self.cut.trial.blocks(),
            decoding: Decoding::new(
                settings.map(|settings| settings.algorithm()),
                StoredForm::Block,
                self.cut.block_bytes as usize,
            ),
        }))
    }

    fn whole(&self, lens: &[u32], parallel: Parallel) -> Result<u64> {
        self.cut
            .trial
            .image_bytes(self.options.compression, lens, parallel)
    }
}

struct SquashfsWork<'a> {
    worker: squashfs::TrialWorker<'a>,
    blocks: &'a [squashfs::TrialBlock],
    decoding: Decoding,
}

impl TrialWork for SquashfsWork<'_> {
    fn run(&mut self, unit: usize, clock: Clock<'_>) -> Result<Tried> {
        let (result, encode) = timed(clock, || self.worker.encode(&self.blocks[unit]));
        let result = result?;
        let len = result.len;
        let decode = if result.is_plain {
            0.0
        } else {
            let content = self.blocks[unit].len as usize;
            self.decoding.time(&result.buffer[..len], content, clock)?
        };
        self.worker.recycle(result);
        Ok(Tried {
            len: len as u32,
            encode,
            decode,
        })
    }
}

/// How data is stored around the output of the codec.
#[derive(Clone, Copy)]
enum StoredForm {
    /// As it is.
    Block,
    /// With padding.
    Extent,
    /// Of zlib, without its header and checksum.
    Raw,
}

/// Decodes blocks, to learn how long that takes.
struct Decoding {
    decoder: Decoder,
    algorithm: Option<Algorithm>,
    form: StoredForm,
    content: Vec<u8>,
}

impl Decoding {
    fn new(algorithm: Option<Algorithm>, form: StoredForm, bytes_max: usize) -> Decoding {
        Decoding {
            decoder: Decoder::new(),
            algorithm,
            form,
            content: vec![0; bytes_max],
        }
    }

    /// Decodes a block, or an extent with its padding, and returns the seconds.
    fn time(&mut self, stored: &[u8], len: usize, clock: Clock<'_>) -> Result<f64> {
        let Some(algorithm) = self.algorithm else {
            return Ok(0.0);
        };
        let content = &mut self.content[..len];
        let decoder = &mut self.decoder;
        let form = self.form;
        let (decoded, seconds) = timed(clock, || match (form, algorithm) {
            (StoredForm::Extent, _) => decoder.decompress_extent(algorithm, content, stored),
            (StoredForm::Raw, Algorithm::Zlib) => decoder.decompress_deflate(content, stored),
            _ => decoder.decompress(algorithm, content, stored),
        });
        match decoded {
            Ok(_) => Ok(seconds),
            Err(_) => Err(Error::Unverified("a sample does not decode")),
        }
    }
}

/// The tree as a btrfs image.
pub(crate) struct Btrfs<'a> {
    trial: btrfs::ImageTrial<'a>,
    units: Vec<Unit>,
}

impl<'a> Btrfs<'a> {
    pub(crate) fn new(
        inventory: &'a Inventory<'a>,
        duplicates: &'a Duplicates,
        parallel: Parallel,
    ) -> Result<Btrfs<'a>> {
        let options = btrfs::Options::default();
        let trial = btrfs::ImageTrial::new(inventory, duplicates, options, parallel)?;
        let kinds = Kinds::of(inventory);
        let units = trial.parts().iter().map(|part| {
            // Small files differ by size: some are inline, and some of the others need a whole
            // sector.
            let class = match part.len {
                _ if !part.is_small() => 0,
                0..1024 => 1,
                1024..2048 => 2,
                _ => 3,
            };
            let is_inline = part.is_small() && part.len as usize <= INLINE_BYTES_MAX;
            Unit {
                len: part.len,
                plain: if is_inline {
                    part.len
                } else {
                    part.len.next_multiple_of(SECTOR_BYTES)
                },
                class,
                kind: kinds.kind(inventory, part.file),
                quantum: if part.is_small() { 1 } else { SECTOR_BYTES },
            }
        });
        let units = units.collect();
        Ok(Btrfs { trial, units })
    }
}

impl Cut for Btrfs<'_> {
    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn in_flight(&self, _: Parallel) -> usize {
        usize::MAX // there are many, and threads seldom wait for a long one
    }

    fn step_bytes(&self) -> u32 {
        GROUP_STEP_BYTES
    }

    fn with<'a>(&'a self, candidate: &Candidate) -> Result<Box<dyn Trial + 'a>> {
        Ok(Box::new(BtrfsTrial {
            cut: self,
            options: self.trial.options(candidate.compression()),
        }))
    }
}

struct BtrfsTrial<'a> {
    cut: &'a Btrfs<'a>,
    options: btrfs::Options,
}

impl Trial for BtrfsTrial<'_> {
    fn worker(&self) -> Result<Box<dyn TrialWork + '_>> {
        let algorithm = self.options.compression.map(|settings| match settings {
            Settings::Lzo | Settings::LzoOptimal { .. } => Algorithm::LzoBtrfs {
                sector_bytes: SECTOR_BYTES,
            },
            settings => settings.algorithm(),
        });
        Ok(Box::new(BtrfsWork {
            worker: self.cut.trial.worker(&self.options),
            parts: self.cut.trial.parts(),
            decoding: Decoding::new(algorithm, StoredForm::Extent, EXTENT_BYTES),
        }))
    }

    fn whole(&self, lens: &[u32], _: Parallel) -> Result<u64> {
        self.cut.trial.image_bytes(self.options.compression, lens)
    }
}

struct BtrfsWork<'a> {
    worker: btrfs::TrialWorker<'a>,
    parts: &'a [btrfs::TrialPart],
    decoding: Decoding,
}

impl TrialWork for BtrfsWork<'_> {
    fn run(&mut self, unit: usize, clock: Clock<'_>) -> Result<Tried> {
        let (result, encode) = timed(clock, || self.worker.encode(&self.parts[unit]));
        let result = result?;
        let len = result.len;
        let decode = if result.is_plain {
            0.0
        } else {
            self.decoding
                .time(&result.buffer[..len], result.ram, clock)?
        };
        self.worker.recycle(result);
        Ok(Tried {
            len: len as u32,
            encode,
            decode,
        })
    }
}
