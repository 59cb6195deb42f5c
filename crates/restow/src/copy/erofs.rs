//! Copies to EROFS images.

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
    let (inventory, all) = (&job.inventory, job.options);
    let made = all.mkfs_time.map_or_else(|| job.newest_mtime(), i64::from);
    let options = (all.erofs.clone())
        .duplicates(all.duplicates)
        .keep_extents(!all.recompress)
        .old(reuse::erofs(job, warn)?)
        .made(made)
        .epoch(all.epoch)
        .skip_unreadable(all.skips())
        .verify(all.verify);
    let tree = job.tree_output()?;
    let mut output = job.output()?;
    let made = erofs::create(inventory, &options, all.parallel, progress, &mut output);
    let bytes = |made: &erofs::ErofsSummary| made.image.image_bytes;
    let (mut summary, verity) = job.finish_image(made, (output, tree), bytes)?;
    let unreadable = std::mem::take(&mut summary.image.unreadable);
    let unstored = std::mem::take(&mut summary.image.lost_xattrs);
    let mut result = CopySummary::of_image(&summary.image, all.reuse.is_some());
    result.verity = verity;
    result.files = inventory.entry_count().into();
    result.losses = job.losses(unreadable);
    let xattrs = lost_xattrs(unstored, "EROFS cannot hold it");
    result.unpreserved.extend(xattrs);
    let recoded = summary.recoded.iter();
    let recoded = recoded.map(|(why, &count)| CopyNote::Recoded(count, why));
    result.notes.extend(recoded);
    result.erofs = Some(summary);
    Ok(result)
}
