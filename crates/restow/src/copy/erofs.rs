//! Copies to EROFS images.

use erofs::{ErofsSummary, Options};
use tree::Progress;

use super::job::CopyJob;
use super::reuse;
use super::summary::{CopyNote, CopySummary, lost_xattrs};
use crate::{Error, Result};

/// Writes an EROFS image.
///
/// # Errors
/// The source cannot be read, or the destination cannot be written.
pub(super) fn write(
    job: &CopyJob<'_>,
    progress: &dyn Progress,
    warn: &mut dyn FnMut(Error),
) -> Result<CopySummary> {
    let options = options(job, warn)?;
    let tree = job.tree_output()?;
    let mut output = job.output()?;
    let parallel = job.parallel;
    let made = erofs::create(&job.inventory, &options, parallel, progress, &mut output);
    let bytes = |made: &ErofsSummary| made.image.image_bytes;
    let (made, verity) = job.finish_image(made, (output, tree), bytes)?;
    let mut result = summary(job, made);
    result.verity = verity;
    Ok(result)
}

/// The options for the image.
///
/// # Errors
/// The image to reuse cannot be one.
pub(super) fn options(job: &CopyJob<'_>, warn: &mut dyn FnMut(Error)) -> Result<Options> {
    let all = job.options;
    let made = all.mkfs_time.map_or_else(|| job.newest_mtime(), i64::from);
    Ok((all.erofs.clone())
        .duplicates(all.duplicates)
        .keep_extents(!all.recompress)
        .old(reuse::erofs(job, warn)?)
        .made(made)
        .epoch(all.epoch)
        .skip_unreadable(all.skips())
        .verify(all.verify))
}

/// The result of an image.
pub(super) fn summary(job: &CopyJob<'_>, mut summary: ErofsSummary) -> CopySummary {
    let unreadable = std::mem::take(&mut summary.image.unreadable);
    let unstored = std::mem::take(&mut summary.image.lost_xattrs);
    let mut result = CopySummary::of_image(&summary.image, job.options.reuse.is_some());
    result.files = job.inventory.entry_count().into();
    result.losses = job.losses(unreadable);
    let xattrs = lost_xattrs(unstored, "EROFS cannot hold it");
    result.unpreserved.extend(xattrs);
    let recoded = summary.recoded.iter();
    let recoded = recoded.map(|(why, &count)| CopyNote::Recoded(count, why));
    result.notes.extend(recoded);
    if summary.newer_keeps {
        result.notes.push(CopyNote::NewerKeeps);
    }
    result.erofs = Some(summary);
    result
}
