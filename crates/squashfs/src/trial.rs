//! The blocks that an image would have, to try settings on some of them, and the size of an image
//! whose blocks have given lengths.

use codec::Settings;
use tree::{ContentReader, Duplicates, FileId, Inventory, Lost, Output, Parallel, Result, Verify};

use crate::encode::{BlockEncoder, BlockResult, ThreadCodec};
use crate::image_writer::ImageWriter;
use crate::inode_numbers::InodeNumbers;
use crate::options::{Options, check};
use crate::plan::{BlockJob, DataLayout};
use crate::raw::{self, BLOCK_PLAIN};
use crate::reuse::OldTails;
use crate::write_data::PlacedData;

/// The blocks of an image that is not written.
pub struct TrialImage<'a> {
    inventory: &'a Inventory<'a>,
    options: Options,
    plan: DataLayout,
    blocks: Vec<TrialBlock>,
}

/// A data or fragment block.
#[derive(Clone, Debug)]
pub struct TrialBlock {
    /// The file that it is a part of, or the first of the files whose tails are in it.
    pub file: FileId,
    /// The length of its content in bytes.
    pub len: u32,
    /// Where it begins in the file.
    offset: u64,
    /// The files whose tails are in it; empty for a data block.
    tails: Box<[FileId]>,
}

impl TrialBlock {
    /// Whether it holds the tails of files.
    pub fn is_fragment(&self) -> bool {
        !self.tails.is_empty()
    }
}

/// An encoded block.
#[derive(Debug)]
pub struct TrialResult {
    /// The stored bytes are the beginning of this; empty for a block of zeros, of which nothing is
    /// stored.
    pub buffer: Vec<u8>,
    /// The length of the stored bytes.
    pub len: usize,
    /// Whether they are the content itself.
    pub is_plain: bool,
}

/// Encodes blocks as the writer of an image does: reads, encodes, decodes and compares. One for
/// each thread.
pub struct TrialWorker<'a> {
    work: BlockEncoder<'a>,
    worker: ThreadCodec,
}

impl<'a> TrialImage<'a> {
    /// Cuts the content of a tree into blocks. Of the options, the compression does not matter;
    /// nothing is kept of the way in which the source stores it.
    ///
    /// # Errors
    /// As for [`create`](crate::create), as far as no content is read.
    pub fn new(
        inventory: &'a Inventory<'a>,
        duplicates: &Duplicates,
        options: Options,
    ) -> Result<TrialImage<'a>> {
        check(&options)?;
        let options = options.keep_blocks(false).skip_unreadable(false);
        let mut plan = DataLayout::new(inventory, duplicates, &options, &Lost::default());
        plan.pack_tails(inventory, &options, &OldTails::default())?;
        let block_bytes = u64::from(options.block_bytes);
        let mut blocks = Vec::new();
        for job in plan.jobs(inventory) {
            match job {
                BlockJob::Unreadable { file, error } => {
                    let path = inventory.path(inventory.first_name(file));
                    return Err(error.in_file("read", &path));
                }
                BlockJob::Block {
                    file, offset, len, ..
                } => blocks.push(TrialBlock {
                    file,
                    len: len as u32,
                    offset,
                    tails: Box::default(),
                }),
                BlockJob::Fragment { tails, .. } => {
                    let lens = tails.iter().map(|&file| inventory.size(file) % block_bytes);
                    blocks.push(TrialBlock {
                        file: tails[0],
                        len: lens.sum::<u64>() as u32,
                        offset: 0,
                        tails: tails.into(),
                    });
                }
                // Holes have no content, and nothing is kept.
                _ => {}
            }
        }
        Ok(TrialImage {
            inventory,
            options,
            plan,
            blocks,
        })
    }

    /// All blocks, in the order in which they are stored.
    pub fn blocks(&self) -> &[TrialBlock] {
        &self.blocks
    }

    /// The options with this compression.
    pub fn options(&self, compression: Option<Settings>) -> Options {
        self.options.clone().compression(compression)
    }

    /// A worker that encodes with these options, which are from [`TrialImage::options`].
    pub fn worker(&self, options: &'a Options) -> TrialWorker<'a> {
        let block_bytes = options.block_bytes as usize;
        let work = BlockEncoder {
            content: ContentReader::new(self.inventory, block_bytes, false),
            options,
            old: None,
        };
        let worker = work.worker();
        TrialWorker { work, worker }
    }

    /// The size of an image whose blocks have these lengths. A block with the length of its content
    /// is stored as it is, and one without length is a hole. All tables are made, and thrown away.
    ///
    /// # Errors
    /// As for [`create`](crate::create).
    pub fn image_bytes(
        &self,
        compression: Option<Settings>,
        lens: &[u32],
        parallel: Parallel,
    ) -> Result<u64> {
        let options = self.options(compression).verify(Verify::Nothing);
        check(&options)?;
        let mut output = Output::discarding();
        let mut writer = ImageWriter::new(self.inventory, &options, parallel, &mut output)?;
        let described = writer.describe()?;
        let data = self.place(&mut writer, lens);
        let numbers = InodeNumbers::new(self.inventory, &writer.lost);
        writer.write_tables(&self.plan, described, &data, &numbers)?;
        Ok(writer.summary.image.image_bytes)
    }

    /// Gives all blocks their places.
    fn place(&self, writer: &mut ImageWriter<'_>, lens: &[u32]) -> PlacedData {
        let block_bytes = u64::from(self.options.block_bytes);
        let mut data = PlacedData::new(self.plan.fragment_count());
        let mut lens = self.blocks.iter().zip(lens);
        let mut next = |at: &mut u64| {
            let (block, &len) = lens.next().unwrap_or((&self.blocks[0], &0));
            let len = len.min(block.len);
            *at += u64::from(len);
            let word = if len == block.len {
                len | BLOCK_PLAIN
            } else {
                len
            };
            (block.len, word)
        };
        for job in self.plan.jobs(self.inventory) {
            if let BlockJob::Holes { file, first, .. } | BlockJob::Block { file, first, .. } = job
                && first
            {
                writer.at = writer.aligned(writer.at);
                data.begin(file, writer.at);
            }
            match job {
                BlockJob::Holes { bytes, .. } => {
                    let blocks = bytes.div_ceil(block_bytes) as usize;
                    data.push_holes(blocks, bytes);
                }
                BlockJob::Block { .. } => match next(&mut writer.at) {
                    (len, 0) => data.push_holes(1, len.into()),
                    (_, word) => data.push(word),
                },
                BlockJob::Fragment { number, .. } => {
                    writer.at = writer.aligned(writer.at);
                    let start_block = writer.at.into();
                    let (_, word) = next(&mut writer.at);
                    data.fragments[number as usize] = raw::FragmentEntry {
                        start_block,
                        size: word.into(),
                        unused: 0.into(),
                    };
                }
                _ => {}
            }
        }
        data
    }
}

impl TrialWorker<'_> {
    /// Reads, encodes and verifies a block. The buffer of the result can be given back for the
    /// next.
    ///
    /// # Errors
    /// The file cannot be read; [`tree::Error::Unverified`] if the result does not decode to the
    /// content.
    pub fn encode(&mut self, block: &TrialBlock) -> Result<TrialResult> {
        let job = if block.is_fragment() {
            BlockJob::Fragment {
                number: 0,
                tails: block.tails.to_vec(),
            }
        } else {
            BlockJob::Block {
                file: block.file,
                first: false,
                offset: block.offset,
                len: block.len as usize,
            }
        };
        let stored = match self.work.work(&mut self.worker, job)? {
            BlockResult::Block { stored, .. } => stored,
            BlockResult::Fragment { stored, .. } => Some(stored),
            BlockResult::Holes { .. } | BlockResult::Read(_) => None,
            BlockResult::Unreadable { error, .. } | BlockResult::LostFragment { error, .. } => {
                return Err(error);
            }
        };
        Ok(stored.map_or(
            TrialResult {
                buffer: Vec::new(),
                len: 0,
                is_plain: true,
            },
            |stored| TrialResult {
                buffer: stored.buffer,
                len: stored.len,
                is_plain: stored.plain,
            },
        ))
    }

    /// Takes back the buffer of a result.
    pub fn recycle(&self, result: TrialResult) {
        if !result.buffer.is_empty() {
            self.work.content.recycle(result.buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fragments;
    use std::fs;
    use testkit::{Rng, TempDir};
    use tree::{HostDir, Limits, NoProgress};

    /// The lengths of a real run give the size of the real image, for all settings.
    #[test]
    fn an_image_of_the_lengths_of_its_blocks_has_its_size() {
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
        fs::write(source.join("long"), text(899).repeat(9)).unwrap();
        fs::write(source.join("again"), text(899).repeat(9)).unwrap();
        std::os::unix::fs::symlink("long", source.join("link")).unwrap();
        let tree = HostDir::open(&source).unwrap();
        let inventory = Inventory::of(&tree, &Limits::default()).unwrap();
        let parallel = Parallel::new(2);
        let duplicates = Duplicates::find(&inventory, parallel).unwrap();
        let cases = [
            (
                Some(Settings::Zstd { level: 3 }),
                128 << 10,
                Fragments::SmallFiles,
            ),
            (Some(Settings::Lzo), 4 << 10, Fragments::None),
            (
                Some(Settings::Zlib { level: 6 }),
                1 << 20,
                Fragments::Always,
            ),
            (None, 64 << 10, Fragments::SmallFiles),
        ];
        let aligns = [1, 512, 4096, 1];
        for (align_bytes, (compression, block_bytes, fragments)) in aligns.into_iter().zip(cases) {
            let options = Options::default()
                .compression(compression)
                .block_bytes(block_bytes)
                .fragments(fragments)
                .align_bytes(align_bytes);
            let mut output = Output::create(&dir.join("image"), true).unwrap();
            let real =
                crate::create(&inventory, &options, parallel, &NoProgress, &mut output).unwrap();
            let trial = TrialImage::new(&inventory, &duplicates, options).unwrap();
            let options = trial.options(compression);
            let mut worker = trial.worker(&options);
            let mut lens = Vec::new();
            for block in trial.blocks() {
                let result = worker.encode(block).unwrap();
                lens.push(result.len as u32);
                worker.recycle(result);
            }
            let bytes = trial.image_bytes(compression, &lens, parallel).unwrap();
            assert_eq!(
                bytes, real.image.image_bytes,
                "{compression:?} {block_bytes}"
            );
        }
    }
}
