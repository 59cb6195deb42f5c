//! Creates an image from a tree of files.
//!
//! The data is written first, block by block in the order of the plan, while worker threads
//! compress ahead, or from parts that others have made. Then comes the metadata, child before
//! parent, so that every reference points to something already placed. The superblock comes last.

use tree::{
    ContentReader, Duplicates, Error, Inventory, Limits, Lost, Output, Parallel, PartNumber,
    PartReader, PartWriter, Parts, Progress, Result, ordered,
};

use crate::describe::DescribedFiles;
use crate::encode::{BlockEncoder, BlockResult};
use crate::gather::{Gather, SMALL_BYTES};
use crate::holes::excess_holes;
use crate::image_writer::ImageWriter;
use crate::inode_numbers::InodeNumbers;
use crate::options::{CreateSummary, Options, check};
use crate::part::part_source;
use crate::plan::DataLayout;
use crate::read::Squashfs;
use crate::reuse::{OldBlocks, OldTails};
use crate::superblock::SUPERBLOCK_BYTES;
use crate::verify::{self, ExpectedImage};
use crate::write_data::PlacedData;

/// Creates an image of a tree. The same tree and options give the same bytes,
/// for any number of threads. The caller commits the output.
///
/// Times lose their fraction of a second, and only the modification time is kept. Sockets and
/// devices are stored.
///
/// # Errors
/// [`tree::Error::InvalidInput`] for options that are impossible; [`tree::Error::File`] if a file
/// cannot be read, changes while it is read, or exceeds the limits of the format, or with the
/// largest holes of files that have [more of them](crate::excess_holes) than the options allow;
/// [`tree::Error::Limit`] for more than 65,535 different owners and groups; [`tree::Error::Io`] if
/// the output cannot be written, or does not return the bytes written.
pub fn create(
    inventory: &Inventory,
    options: &Options,
    parallel: Parallel,
    progress: &dyn Progress,
    output: &mut Output,
) -> Result<CreateSummary> {
    create_with(inventory, options, parallel, progress, output, |writer| {
        writer.encode(progress)
    })
}

/// Joins the parts of an image, in order, into the one that [`create`] would make. No content of
/// files is read.
///
/// # Errors
/// As for [`create`]; [`tree::Error::Part`] if a part is damaged or has other blocks than the
/// image.
pub fn join(
    inventory: &Inventory,
    options: &Options,
    parts: Parts<'_>,
    parallel: Parallel,
    progress: &dyn Progress,
    output: &mut Output,
) -> Result<CreateSummary> {
    let mut blocks = PartReader::new(parts)?;
    refuse_dependent(options)?;
    create_with(inventory, options, parallel, progress, output, |writer| {
        let duplicates = blocks.equal_files(inventory)?;
        writer.summary.image.duplicates = duplicates.len() as u64;
        let described = writer.describe()?;
        let mut plan = DataLayout::new(inventory, &duplicates, options, &writer.lost);
        drop(duplicates);
        plan.pack_tails(inventory, options, &OldTails::default())?;
        let data = writer.join_data(&plan, &mut blocks, progress)?;
        Ok((plan, described, data))
    })
}

/// Makes a part of an image. `equal` are the files with equal content, if they are known.
///
/// # Errors
/// As for [`create`].
pub fn create_part(
    inventory: &Inventory,
    options: &Options,
    (number, equal): (PartNumber, Option<Duplicates>),
    parallel: Parallel,
    progress: &dyn Progress,
    output: &mut Output,
) -> Result<CreateSummary> {
    check(options)?;
    refuse_excess_holes(inventory, options)?;
    refuse_dependent(options)?;
    let equal = match equal {
        Some(equal) => equal,
        None if options.duplicates => Duplicates::find(inventory, parallel)?,
        None => Duplicates::default(),
    };
    let mut plan = DataLayout::new(inventory, &equal, options, &Lost::default());
    plan.pack_tails(inventory, options, &OldTails::default())?;
    let content_bytes = plan.content_bytes(inventory);
    let share = number.share(content_bytes);
    let share_bytes = share.end.min(content_bytes) - share.start;
    progress.expect(None, Some(share_bytes));
    let source = part_source(inventory, options);
    let mut part = PartWriter::new(number, &source, &equal, output)?;
    drop((source, equal));
    let mut summary = CreateSummary::default();
    let image = &mut summary.image;
    let block_bytes = options.block_bytes as usize;
    let work = BlockEncoder {
        content: ContentReader::new(inventory, block_bytes, false),
        options,
        old: None,
    };
    let take = |done: BlockResult| {
        let (files, bytes, stored) = match done {
            BlockResult::Holes { first, bytes, .. } => {
                for _ in 1..bytes.div_ceil(block_bytes as u64) {
                    part.put_hole()?;
                }
                (u64::from(first), bytes, None)
            }
            BlockResult::Block {
                first, len, stored, ..
            } => (u64::from(first), len as u64, stored),
            BlockResult::Fragment {
                files, len, stored, ..
            } => (files as u64, len as u64, Some(stored)),
            BlockResult::Unreadable { error, .. } | BlockResult::LostFragment { error, .. } => {
                return Err(error);
            }
            BlockResult::Read(_) => return Ok(()),
        };
        match stored {
            Some(stored) => {
                part.put(stored.word(), &[&stored.buffer[..stored.len]])?;
                image.kept += stored.kept;
                progress.wrote(stored.len as u64);
                work.content.recycle(stored.buffer);
            }
            None => part.put_hole()?,
        }
        image.files += files;
        image.content_bytes += bytes;
        progress.advance(files, bytes);
        Ok(())
    };
    ordered(
        parallel,
        plan.jobs_in(inventory, share, true),
        || work.worker(),
        |worker, job| work.work(worker, job),
        take,
    )?;
    image.image_bytes = part.finish()?;
    Ok(summary)
}

/// Refuses options with which blocks depend on more than the tree.
fn refuse_dependent(options: &Options) -> Result<()> {
    if options.old.is_some() || options.skip_unreadable {
        return Err(Error::InvalidInput(
            "parts of images reuse no old image and leave out no files",
        ));
    }
    Ok(())
}

fn refuse_excess_holes(inventory: &Inventory, options: &Options) -> Result<()> {
    let Some(excess) = excess_holes(inventory, options)? else {
        return Ok(());
    };
    let path = inventory.path(inventory.first_name(excess.file));
    let error = Error::Limit("larger holes than the options allow in an image");
    Err(error.in_file("store", &path))
}

/// Creates an image whose data `write_data` writes.
fn create_with<'a>(
    inventory: &'a Inventory<'a>,
    options: &'a Options,
    parallel: Parallel,
    progress: &dyn Progress,
    output: &'a mut Output,
    write_data: impl FnOnce(&mut ImageWriter<'a>) -> Result<(DataLayout, DescribedFiles, PlacedData)>,
) -> Result<CreateSummary> {
    check(options)?;
    refuse_excess_holes(inventory, options)?;
    progress.expect(
        Some(inventory.file_count().into()),
        Some(inventory.content_bytes()),
    );
    let mut writer = ImageWriter::new(inventory, options, parallel, output)?;
    let (plan, described, data) = write_data(&mut writer)?;
    let numbers = InodeNumbers::new(inventory, &writer.lost);
    // An object on its way to a store gives back the tables alone, and the store has checksums.
    let reads_data = writer.output.keep_from(options.offset + writer.at);
    let sets = writer.write_tables(&plan, described, &data, &numbers)?;
    if options.verify.decodes_encoded() {
        let behind_superblock = options.offset + SUPERBLOCK_BYTES as u64;
        let written = writer.output.reader()?;
        if reads_data {
            writer
                .written
                .compare(&*written, behind_superblock, parallel)?;
        }
        let image = Squashfs::open_at(written, options.offset, &Limits::default())?;
        let expected = ExpectedImage {
            inventory,
            options,
            plan: &plan,
            data: &data,
            numbers: &numbers,
            sets: &sets,
        };
        verify::tree(&image, &expected, parallel)?;
    }
    let image = &mut writer.summary.image;
    image.unreadable = writer.lost.into_paths(inventory);
    // Blocks of any level are kept then, so that there are none has another reason.
    image.old_differs &= options.reuse_exact || image.reused > 0;
    Ok(writer.summary)
}

impl<'a> ImageWriter<'a> {
    /// Plans, encodes and writes the files' data.
    fn encode(
        &mut self,
        progress: &dyn Progress,
    ) -> Result<(DataLayout, DescribedFiles, PlacedData)> {
        let (inventory, options, parallel) = (self.inventory, self.options, self.parallel);
        let is_gathered = Gather::is_possible(options, inventory.tree().storage().stored_extents);
        let duplicates = if options.duplicates {
            // Equal small files are found when they are read for the image.
            let small_bytes = if is_gathered {
                SMALL_BYTES.min(u64::from(options.block_bytes) - 1)
            } else {
                0
            };
            match Duplicates::find_larger(inventory, small_bytes, parallel) {
                // Every unreadable file is met again later, and listed then.
                Err(_) if options.skip_unreadable => Duplicates::default(),
                found => found?,
            }
        } else {
            Duplicates::default()
        };
        self.summary.image.duplicates = duplicates.len() as u64;
        let described = self.describe()?;
        let mut plan = DataLayout::new(inventory, &duplicates, options, &self.lost);
        drop(duplicates);
        let old = self.old_blocks();
        let old_tails = match &old {
            Some(old) => {
                let (packed, others) = plan.packed_and_others(inventory);
                old.tails(inventory, (&packed, &others), parallel)
            }
            None => OldTails::default(),
        };
        let data = if is_gathered {
            self.gather_data(&mut plan, progress)?
        } else {
            plan.pack_tails(inventory, options, &old_tails)?;
            self.write_data(&plan, old.as_ref(), progress)?
        };
        Ok((plan, described, data))
    }

    /// The blocks of the old image, if there is one whose blocks may be kept.
    fn old_blocks(&mut self) -> Option<OldBlocks<'a>> {
        let options = self.options;
        let settings = options.compression?;
        let old = OldBlocks::find(self.inventory, options, self.parallel)?;
        let is_like_new = old.is_made_with(&settings, options.filter_code);
        self.summary.image.old_differs = !is_like_new;
        (is_like_new || !options.reuse_exact).then_some(old)
    }
}
