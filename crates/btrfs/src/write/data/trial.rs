//! The parts that files would be cut into, to try settings on some of them, and the size of a file
//! system whose parts have given lengths.

use std::collections::BTreeSet;

use codec::Settings;
use tree::{Duplicates, FileId, Inventory, Lost, NoProgress, Output, Parallel, Result};

use super::area::Area;
use super::encode::{DataEncoder, EncodeWorker};
use super::job::{DataJob, DataResult, FileStep, SmallContent, UnplacedExtent};
use super::jobs::jobs;
use super::share::{Originals, is_nocow};
use super::sink::Sink;
use crate::disk::compression::Compression;
use crate::options::{CreateSummary, Options};
use crate::write::describe::{FileDescriptions, describe};
use crate::write::devices::Devices;
use crate::write::fs_tree::FileTrees;
use crate::write::layout::SECTOR_BYTES;
use crate::write::subvolumes::SubvolumePlan;
use crate::write::trees::TreeWriter;

/// The parts of a file system that is not written.
pub struct ImageTrial<'a> {
    inventory: &'a Inventory<'a>,
    duplicates: &'a Duplicates,
    options: Options,
    parts: Vec<TrialPart>,
    described: FileDescriptions,
    nothing_lost: BTreeSet<FileId>,
}

/// A part of a file: a small file as a whole, or at most 128 KiB of another.
#[derive(Clone, Copy, Debug)]
pub struct TrialPart {
    /// The file.
    pub file: FileId,
    /// The length of its content in bytes.
    pub len: u32,
    /// Where it begins in the file.
    offset: u64,
    /// Whether it may be stored inline, in a tree instead of an extent.
    is_small: bool,
}

impl TrialPart {
    /// Whether it may be stored inline, in a tree instead of an extent: such a file has any length,
    /// and extents whole sectors of 4 KiB.
    pub fn is_small(&self) -> bool {
        self.is_small
    }
}

/// The encoded bytes of a part.
#[derive(Debug)]
pub struct TrialResult {
    /// The stored bytes are the beginning of this; empty for a hole.
    pub buffer: Vec<u8>,
    /// The length of the stored bytes, with the padding of an extent.
    pub len: usize,
    /// Their decoded length, with the padding of an extent.
    pub ram: usize,
    /// Whether they are the content itself.
    pub is_plain: bool,
    /// Whether they are inline.
    pub is_inline: bool,
}

/// Encodes parts as the writer of a file system does: reads, encodes, decodes and compares. One for
/// each thread.
pub struct TrialWorker<'a> {
    work: DataEncoder<'a>,
    worker: EncodeWorker,
}

impl<'a> ImageTrial<'a> {
    /// Cuts the content of a tree into parts. Of the options, the compression does not matter;
    /// nothing is kept of the way in which the source compresses it.
    ///
    /// # Errors
    /// As for [`create`](crate::create), as far as no content is read.
    pub fn new(
        inventory: &'a Inventory<'a>,
        duplicates: &'a Duplicates,
        options: Options,
        parallel: Parallel,
    ) -> Result<ImageTrial<'a>> {
        options.check()?;
        let options = Options {
            keep_extents: false,
            skip_unreadable: false,
            ..options
        };
        let mut summary = CreateSummary::default();
        let (described, _) = describe(inventory, &options, parallel, &mut summary)?;
        let mut trial = ImageTrial {
            inventory,
            duplicates,
            options,
            parts: Vec::new(),
            described,
            nothing_lost: BTreeSet::new(),
        };
        let mut parts = Vec::new();
        let originals = Originals::new(inventory, duplicates);
        for job in jobs(
            inventory,
            &originals,
            &trial.nothing_lost,
            &trial.options,
            0..u64::MAX,
        ) {
            match job {
                DataJob::Small(files) => parts.extend(files.into_iter().map(|file| TrialPart {
                    file,
                    len: inventory.size(file) as u32,
                    offset: 0,
                    is_small: true,
                })),
                DataJob::Piece {
                    file, offset, len, ..
                } => parts.push(TrialPart {
                    file,
                    len: len as u32,
                    offset,
                    is_small: false,
                }),
                DataJob::Pass(FileStep::Unreadable { file, error }) => {
                    let path = inventory.path(inventory.first_name(file));
                    return Err(error.in_file("read", &path));
                }
                DataJob::Keep { .. } | DataJob::Pass(_) => {}
            }
        }
        trial.parts = parts;
        Ok(trial)
    }

    /// All parts, in the order in which they are stored.
    pub fn parts(&self) -> &[TrialPart] {
        &self.parts
    }

    /// The options with this compression.
    pub fn options(&self, compression: Option<Settings>) -> Options {
        Options {
            compression,
            ..self.options.clone()
        }
    }

    /// A worker that encodes with these options, which are from [`ImageTrial::options`].
    pub fn worker<'w>(&'w self, options: &'w Options) -> TrialWorker<'w> {
        let work = DataEncoder::new(self.inventory, Some(&self.described), options);
        let worker = work.worker();
        TrialWorker { work, worker }
    }

    /// The size of a file system whose parts have these lengths. A part with at least the length of
    /// its content is stored as it is, and one without length is a hole. All trees are made, and
    /// thrown away.
    ///
    /// # Errors
    /// As for [`create`](crate::create).
    pub fn image_bytes(&self, compression: Option<Settings>, lens: &[u32]) -> Result<u64> {
        let options = self.options(compression);
        let outputs: Vec<Output> = (0..options.devices_min())
            .map(|_| Output::discarding())
            .collect();
        let devices = Devices::new(&outputs, &options)?;
        let plan = SubvolumePlan::new(self.inventory, &options)?;
        let area = self.place(&options, lens, &devices)?;
        let trees = FileTrees::new(self.inventory, &self.described, &area, &plan, &options);
        let summary = TreeWriter::new(&options, &area, &trees).write(CreateSummary::default())?;
        Ok(summary.image.image_bytes)
    }

    /// Gives all parts their places.
    fn place<'o>(
        &self,
        options: &Options,
        lens: &[u32],
        devices: &'o Devices<'o>,
    ) -> Result<Area<'o>> {
        let inventory = self.inventory;
        let originals = Originals::new(inventory, self.duplicates);
        let work = DataEncoder::new(inventory, Some(&self.described), options);
        let lost = Lost::default();
        let area = Area::new(inventory.file_count(), lost, options, devices)?;
        let mut sink = Sink::new(area, &work, &NoProgress);
        let number = options
            .compression
            .map_or(0, |settings| Compression::of_settings(&settings).number());
        let mut worker = work.worker();
        let mut lens = lens.iter().copied();
        let piece = |file: FileId, len: usize, stored: u32| {
            let ram = len.next_multiple_of(SECTOR_BYTES);
            let stored = (stored as usize).next_multiple_of(SECTOR_BYTES).min(ram);
            let sums = if is_nocow(inventory, file) {
                0
            } else {
                stored / SECTOR_BYTES * options.checksum.size()
            };
            UnplacedExtent {
                buffer: work.content.buffer(),
                len: stored,
                ram: ram as u64,
                compression: if stored < ram { number } else { 0 },
                sums: vec![0; sums],
                ..UnplacedExtent::default()
            }
        };
        for job in jobs(
            inventory,
            &originals,
            &self.nothing_lost,
            &self.options,
            0..u64::MAX,
        ) {
            let done = match job {
                DataJob::Small(files) => {
                    let small = files.into_iter().map(|file| {
                        let len = inventory.size(file) as usize;
                        let stored = lens.next().unwrap_or(0);
                        let small = if stored == 0 {
                            SmallContent::Hole
                        } else if stored as usize <= work.inline_max() {
                            let is_plain = stored as usize >= len;
                            SmallContent::Inline {
                                bytes: vec![0; (stored as usize).min(len)],
                                compression: if is_plain { 0 } else { number },
                                is_reused: false,
                            }
                        } else {
                            SmallContent::Extent(piece(file, len, stored))
                        };
                        (file, Ok(small))
                    });
                    DataResult::Small(small.collect())
                }
                DataJob::Piece {
                    file,
                    offset,
                    len,
                    is_numbered,
                } => DataResult::Piece {
                    file,
                    offset,
                    len: len as u64,
                    is_numbered,
                    piece: Ok(piece(file, len, lens.next().unwrap_or(0).max(1))),
                },
                // Nothing is read or kept: these have their result already.
                job => work.work(&mut worker, job)?,
            };
            sink.take(done)?;
        }
        Ok(sink.finish(&originals))
    }
}

impl TrialWorker<'_> {
    /// Reads, encodes and verifies a part. The buffer of the result can be given back for the next.
    ///
    /// # Errors
    /// The file cannot be read; [`tree::Error::Unverified`] if the result does not decode to the
    /// content.
    pub fn encode(&mut self, part: &TrialPart) -> Result<TrialResult> {
        let TrialPart {
            file,
            len,
            offset,
            is_small,
        } = *part;
        let job = if is_small {
            DataJob::Small(vec![file])
        } else {
            DataJob::Piece {
                file,
                offset,
                len: len as usize,
                is_numbered: false,
            }
        };
        let of_piece = |piece: UnplacedExtent| TrialResult {
            len: piece.len,
            ram: piece.ram as usize,
            is_plain: piece.compression == 0,
            is_inline: false,
            buffer: piece.buffer,
        };
        let hole = TrialResult {
            buffer: Vec::new(),
            len: 0,
            ram: 0,
            is_plain: true,
            is_inline: true,
        };
        match self.work.work(&mut self.worker, job)? {
            DataResult::Small(small) => match small.into_iter().next() {
                Some((_, small)) => Ok(match small? {
                    SmallContent::Hole | SmallContent::Reserved { .. } => hole,
                    SmallContent::Inline {
                        bytes, compression, ..
                    } => TrialResult {
                        len: bytes.len(),
                        ram: len as usize,
                        is_plain: compression == 0,
                        is_inline: true,
                        buffer: bytes,
                    },
                    SmallContent::Extent(piece) => of_piece(piece),
                }),
                None => Ok(hole),
            },
            DataResult::Piece { piece, .. } => piece.map(of_piece),
            _ => Ok(hole),
        }
    }

    /// Takes back the buffer of a result.
    pub fn recycle(&self, result: TrialResult) {
        if !result.is_inline {
            self.work.content.recycle(result.buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use testkit::{Rng, TempDir};
    use tree::{HostDir, Limits};

    /// The lengths of a real run give the size of the real file system, for all settings.
    #[test]
    fn a_file_system_of_the_lengths_of_its_parts_has_its_size() {
        let dir = TempDir::new();
        let source = dir.join("source");
        fs::create_dir(&source).unwrap();
        let mut rng = Rng::new(19);
        let text = |n: usize| format!("line {n} of {}\n", n * n).repeat(1 + n % 900);
        for n in 0..300 {
            fs::write(source.join(format!("text{n}")), text(n)).unwrap();
        }
        fs::write(source.join("noise"), rng.bytes(500_000)).unwrap();
        fs::write(source.join("zeros"), vec![0; 400_000]).unwrap();
        fs::write(source.join("long"), text(899).repeat(90)).unwrap();
        fs::write(source.join("again"), text(899).repeat(90)).unwrap();
        std::os::unix::fs::symlink("long", source.join("link")).unwrap();
        let tree = HostDir::open(&source).unwrap();
        let inventory = Inventory::of(&tree, &Limits::default()).unwrap();
        let parallel = Parallel::new(2);
        let duplicates = Duplicates::find(&inventory, parallel).unwrap();
        let cases = [
            (Some(Settings::Zstd { level: 3 }), false),
            (Some(Settings::Zstd { level: -5 }), true),
            (Some(Settings::Lzo), false),
            (Some(Settings::Zlib { level: 6 }), false),
            (None, false),
        ];
        for (compression, force) in cases {
            let options = Options {
                compression,
                force,
                ..Options::default()
            };
            let output = Output::create(&dir.join("image"), true).unwrap();
            let real = crate::create(&inventory, &options, parallel, &NoProgress, &output).unwrap();
            let trial = ImageTrial::new(&inventory, &duplicates, options, parallel).unwrap();
            let options = trial.options(compression);
            let mut worker = trial.worker(&options);
            let mut lens = Vec::new();
            for part in trial.parts() {
                let result = worker.encode(part).unwrap();
                lens.push(result.len as u32);
                worker.recycle(result);
            }
            let bytes = trial.image_bytes(compression, &lens).unwrap();
            assert_eq!(bytes, real.image.image_bytes, "{compression:?} {force}");
        }
    }
}
