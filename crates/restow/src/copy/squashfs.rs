//! Copies to SquashFS images.

use squashfs::{CreateSummary, Options};
use tree::Progress;

use super::job::CopyJob;
use super::summary::{CopySummary, Unpreserved, lost_xattrs};
use super::{dual, parts, reuse};
use crate::error::refuse;
use crate::{Error, Result, text};

/// Bytes of the first block of an EROFS image in the same file.
const BLOCK_BYTES: u64 = 4096;

/// Writes a SquashFS image.
///
/// # Errors
/// The source cannot be read, or the destination cannot be written.
pub(super) fn write(
    job: &CopyJob<'_>,
    progress: &dyn Progress,
    warn: &mut dyn FnMut(Error),
) -> Result<CopySummary> {
    parts::refuse_dependent(job.options)?;
    let options = options(job, warn)?;
    let (inventory, parallel) = (&job.inventory, job.parallel);
    let source = || squashfs::part_source(inventory, &options);
    if let Some(number) = job.options.part {
        return parts::write(job, &source(), |equal, output| {
            let number = (number, equal);
            let made =
                squashfs::create_part(inventory, &options, number, parallel, progress, output)?;
            Ok(made.image)
        });
    }
    let parts = parts::all(job, source)?;
    let tree = job.tree_output()?;
    let mut output = job.output()?;
    let mut made = if parts.is_empty() {
        let made = squashfs::create(inventory, &options, parallel, progress, &mut output);
        job.name_error(made)?
    } else {
        parts::join(job, &parts, |parts| {
            squashfs::join(inventory, &options, parts, parallel, progress, &mut output)
        })?
    };
    let face = dual::add(job, &mut output, made.image.image_bytes)?;
    if let Some(face) = &face {
        made.image.image_bytes = face.image.image_bytes;
    }
    let bytes = |made: &CreateSummary| made.image.image_bytes;
    let (made, verity) = job.finish_image(Ok(made), (output, tree), bytes)?;
    let mut result = summary(job, made);
    if let Some(face) = face {
        dual::describe(face, &mut result);
    }
    result.verity = verity;
    Ok(result)
}

/// The options for the image.
///
/// # Errors
/// The image to reuse cannot be one; the files have too many holes.
pub(super) fn options(job: &CopyJob<'_>, warn: &mut dyn FnMut(Error)) -> Result<Options> {
    let (inventory, all) = (&job.inventory, job.options);
    let newest = || job.newest_mtime().clamp(0, u32::MAX.into()) as u32;
    let mkfs_time = all.mkfs_time.unwrap_or_else(newest);
    let priorities = all.priorities.as_ref();
    let options = (all.squashfs.clone())
        .duplicates(all.duplicates)
        .mkfs_time(mkfs_time)
        .epoch(all.epoch)
        .priorities(priorities.map_or(Vec::new(), |list| list.of(inventory)))
        .packing(job.packing())
        .data_begin(if all.dual { BLOCK_BYTES } else { 0 })
        .keep_blocks(!all.recompress)
        .old(reuse::squashfs(job, warn)?)
        .skip_unreadable(all.skips())
        .verify(all.verify);
    refuse_excess_holes(job, &options)?;
    // The writer does not have to look for holes again.
    Ok(options.sparse_max(u64::MAX))
}

/// The result of an image.
pub(super) fn summary(job: &CopyJob<'_>, mut summary: CreateSummary) -> CopySummary {
    let unreadable = std::mem::take(&mut summary.image.unreadable);
    let mut result = CopySummary::of_image(&summary.image, job.options.reuse.is_some());
    result.files = job.inventory.entry_count().into();
    result.losses = job.losses(unreadable);
    let xattrs = lost_xattrs(
        std::mem::take(&mut summary.image.lost_xattrs),
        "SquashFS cannot hold it",
    );
    result.unpreserved.extend(xattrs);
    let times = std::mem::take(&mut summary.changed_times).into_iter();
    result.unpreserved.extend(times.map(Unpreserved::Time));
    result.squashfs = Some(summary);
    result
}

/// Refuses files whose holes would make the image large, and says how large.
fn refuse_excess_holes(job: &CopyJob<'_>, options: &Options) -> Result<()> {
    let inventory = &job.inventory;
    let excess = squashfs::excess_holes(inventory, options);
    let Some(excess) = excess.map_err(|error| job.source.name_error(error))? else {
        return Ok(());
    };
    let largest = inventory.path(inventory.first_name(excess.file));
    let largest = format!(
        "{} has {} of holes",
        job.source.path_name(&largest),
        text::of_bytes(excess.file_bytes)
    );
    let all = if excess.bytes > excess.file_bytes {
        format!(", all files together {}", text::of_bytes(excess.bytes))
    } else {
        String::new()
    };
    refuse!(
        "{largest}{all}; SquashFS stores 4 bytes for each block of a hole, {} in all; --sparse-max raises the limit of {}",
        text::of_bytes(excess.list_bytes),
        text::of_bytes(options.sparse_max)
    )
}
