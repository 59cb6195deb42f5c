//! Creates an image from a tree of files.
//!
//! The data is written first, block by block in the order of the plan, while worker threads
//! compress ahead. Then comes the metadata, child before parent, so that every reference points to
//! something already placed. The superblock comes last.

use tree::{Duplicates, Error, Inventory, Limits, Output, Parallel, Progress, Result};

use crate::gather::{Gather, SMALL_BYTES};
use crate::holes::excess_holes;
use crate::image_writer::ImageWriter;
use crate::inode_numbers::InodeNumbers;
use crate::options::{CreateSummary, Options, check};
use crate::plan::DataLayout;
use crate::read::Squashfs;
use crate::reuse::{OldBlocks, OldTails};
use crate::superblock::SUPERBLOCK_BYTES;
use crate::verify::{self, ExpectedImage};

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
    check(options)?;
    if let Some(excess) = excess_holes(inventory, options)? {
        let path = inventory.path(inventory.first_name(excess.file));
        let error = Error::Limit("larger holes than the options allow in an image");
        return Err(error.in_file("store", &path));
    }
    progress.expect(
        Some(inventory.file_count().into()),
        Some(inventory.content_bytes()),
    );
    let mut writer = ImageWriter::new(inventory, options, parallel, output)?;
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
    writer.summary.image.duplicates = duplicates.len() as u64;
    let described = writer.describe()?;
    let mut plan = DataLayout::new(inventory, &duplicates, options, &writer.lost);
    drop(duplicates);
    let old = writer.old_blocks();
    let old_tails = match &old {
        Some(old) => {
            let (packed, others) = plan.packed_and_others(inventory);
            old.tails(inventory, (&packed, &others), parallel)
        }
        None => OldTails::default(),
    };
    let data = if is_gathered {
        writer.gather_data(&mut plan, progress)?
    } else {
        plan.pack_tails(inventory, options, &old_tails)?;
        writer.write_data(&plan, old.as_ref(), progress)?
    };
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
