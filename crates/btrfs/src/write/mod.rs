//! Creates a file system from a tree of files.
//!
//! The data is written first, extent by extent, while worker threads compress ahead. By then the
//! content of all trees is known: they are measured, placed after the data, and written. The
//! superblocks come last. Nothing is written twice, except for data with two copies.

mod builder;
mod data;
mod describe;
mod devices;
mod file_set;
mod fs_tree;
mod heuristic;
mod layout;
mod roots;
mod snapshots;
mod space_trees;
mod spooled_bytes;
mod subvolumes;
mod trees;

use tree::{
    Duplicates, Error, FileId, ImageSummary, Inventory, Output, OutputKind, Parallel, PartNumber,
    PartReader, PartWriter, Parts, Progress, ReadAt, Result, Scratch,
};

use self::data::{Area, FileContent};
pub use self::data::{ImageTrial, TrialPart, TrialResult, TrialWorker, part_source};
use self::describe::describe;
use self::devices::Devices;
use self::fs_tree::FileTrees;
use self::layout::GROUPS_BEGIN;
use self::subvolumes::SubvolumePlan;
use self::trees::TreeWriter;
use crate::disk::address_space::{DEVICES, DEVICES_MAX};
use crate::disk::raw::SUPERBLOCK_BYTES;
use crate::disk::superblock::SUPERBLOCK_PLACES;
use crate::options::{CreateSummary, Options};

/// Creates a file system that holds the tree `fs`, described by this inventory, in its top-level
/// subvolume and in the subvolumes that the options name. The same tree and options give the same
/// bytes for any number of threads. The caller commits the output.
///
/// # Errors
/// [`Error::InvalidInput`] for options that are impossible; [`Error::TooSmall`] for a size that is;
/// [`tree::Error::File`] if a file cannot be read, changes while it is read, or exceeds the limits
/// of the format; [`Error::Io`] if the output cannot be written; [`tree::Error::Unsupported`] for a
/// stream, which cannot be written out of order.
pub fn create(
    inventory: &Inventory,
    options: &Options,
    parallel: Parallel,
    progress: &dyn Progress,
    output: &Output,
) -> Result<CreateSummary> {
    let outputs = std::slice::from_ref(output);
    create_on_devices(inventory, options, parallel, progress, outputs)
}

/// As [`create`], on several devices: the first output becomes the device with the ID 1. The caller
/// commits all outputs, that of the first one last.
///
/// # Errors
/// As for [`create`]; [`Error::InvalidInput`] if there are fewer devices than a profile needs.
pub fn create_on_devices(
    inventory: &Inventory,
    options: &Options,
    parallel: Parallel,
    progress: &dyn Progress,
    outputs: &[Output],
) -> Result<CreateSummary> {
    create_from(inventory, options, None, parallel, progress, outputs)
}

/// Joins the parts of an image, in order, into the one that [`create`] would make. No content of
/// files is read.
///
/// # Errors
/// As for [`create`]; [`tree::Error::Part`] if a part is damaged or does not fit the tree.
pub fn join(
    inventory: &Inventory,
    options: &Options,
    parts: Parts<'_>,
    parallel: Parallel,
    progress: &dyn Progress,
    output: &Output,
) -> Result<CreateSummary> {
    refuse_dependent(options)?;
    let mut parts = PartReader::new(parts)?;
    let outputs = std::slice::from_ref(output);
    create_from(
        inventory,
        options,
        Some(&mut parts),
        parallel,
        progress,
        outputs,
    )
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
    options.check()?;
    refuse_dependent(options)?;
    let equal = match equal {
        Some(equal) => equal,
        None if options.duplicates => Duplicates::find(inventory, parallel)?,
        None => Duplicates::default(),
    };
    let source = part_source(inventory, options);
    let mut part = PartWriter::new(number, &source, &equal, output)?;
    drop(source);
    let mut image = data::write_part(
        inventory, &equal, number, options, parallel, progress, &mut part,
    )?;
    image.image_bytes = part.finish()?;
    Ok(CreateSummary {
        image,
        ..CreateSummary::default()
    })
}

/// Refuses options with which data depends on more than the tree.
fn refuse_dependent(options: &Options) -> Result<()> {
    if options.old.is_some() || options.skip_unreadable {
        return Err(Error::InvalidInput(
            "parts of images reuse no old image and leave out no files",
        ));
    }
    Ok(())
}

/// Creates a file system whose data comes from the files, or from parts.
fn create_from(
    inventory: &Inventory,
    options: &Options,
    mut parts: Option<&mut PartReader<'_>>,
    parallel: Parallel,
    progress: &dyn Progress,
    outputs: &[Output],
) -> Result<CreateSummary> {
    options.check()?;
    if outputs.len() < options.devices_min() {
        return Err(Error::InvalidInput(
            "too few devices: raid1 and raid10 need 2, raid1c3 needs 3, raid1c4 needs 4",
        ));
    }
    if outputs.len() > DEVICES_MAX {
        return Err(Error::InvalidInput(DEVICES));
    }
    if outputs.iter().any(|it| it.kind() == OutputKind::Stream) {
        return Err(Error::Unsupported("a btrfs image as a stream"));
    }
    let devices = Devices::new(outputs, options)?;
    Scratch::catch(|| {
        let plan = SubvolumePlan::new(inventory, options)?;
        progress.expect(
            Some(inventory.file_count().into()),
            Some(inventory.content_bytes()),
        );
        let mut discarded_bytes = 0;
        for (index, output) in outputs.iter().enumerate() {
            for place in SUPERBLOCK_PLACES {
                output.hold(place.0, SUPERBLOCK_BYTES as u64);
            }
            let Some(bytes) = devices.fixed[index] else {
                continue;
            };
            let bytes = options.size_of(index).unwrap_or(bytes);
            if options.discard && output.discard(bytes).is_ok() {
                discarded_bytes += bytes;
            }
            wipe(output)?;
        }
        let mut summary = CreateSummary {
            image: ImageSummary {
                files: inventory.file_count().into(),
                content_bytes: inventory.content_bytes(),
                ..ImageSummary::default()
            },
            subvolumes: plan.subvolumes.len() as u64,
            discarded_bytes,
            ..CreateSummary::default()
        };
        let duplicates = if let Some(parts) = &parts {
            parts.equal_files(inventory)?
        } else if options.duplicates {
            match Duplicates::find(inventory, parallel) {
                // Every unreadable file is met again later, and listed then.
                Err(_) if options.skip_unreadable => Duplicates::default(),
                found => found?,
            }
        } else {
            Duplicates::default()
        };
        summary.image.duplicates = duplicates.len() as u64;
        let (described, undescribed) = describe(inventory, options, parallel, &mut summary)?;
        let area = data::write(
            inventory,
            &described,
            &duplicates,
            undescribed,
            parts.take(),
            options,
            parallel,
            progress,
            &devices,
        )?;
        drop(duplicates);
        summarize(inventory, &area, &mut summary);
        let trees = FileTrees::new(inventory, &described, &area, &plan, options);
        summary.split_links = trees.split_links();
        let mut summary = TreeWriter::new(options, &area, &trees).write(summary)?;
        summary.image.unreadable = area.lost.into_paths(inventory);
        Ok(summary)
    })
}

fn summarize(inventory: &Inventory, area: &Area<'_>, summary: &mut CreateSummary) {
    let is_inline = |&file: &FileId| matches!(area.content(file), FileContent::Inline { .. });
    summary.inline_files = inventory.files().filter(is_inline).count() as u64;
    summary.extents = area.extent_count() as u64;
    summary.compressed = area.counts.compressed.iter().sum();
    summary.shared_bytes = area.counts.shared_bytes;
    summary.image.kept = area.counts.kept;
    summary.image.reused = area.counts.reused;
    summary.image.encoded = area.counts.encoded;
    summary.image.old_differs = area.old_differs;
    summary.image.data_bytes = area.groups.iter().map(|group| group.used).sum();
}

/// Ensures that an unfinished device does not look like a finished one, and a finished one not like
/// that which was on it: other formats have their marks near the beginning or the end.
fn wipe(output: &Output) -> Result<()> {
    let size = ReadAt::size(output)?;
    let zeros = vec![0; GROUPS_BEGIN as usize];
    for (at, len) in [
        (0, GROUPS_BEGIN),
        (size.saturating_sub(GROUPS_BEGIN), GROUPS_BEGIN),
    ]
    .into_iter()
    .chain(SUPERBLOCK_PLACES.map(|place| (place.0, SUPERBLOCK_BYTES as u64)))
    {
        let len = len.min(size.saturating_sub(at));
        output.write_all_at(&zeros[..len as usize], at)?;
    }
    Ok(())
}
