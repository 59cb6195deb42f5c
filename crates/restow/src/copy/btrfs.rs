//! Copies to btrfs images.

use btrfs::{NewSubvolume, object};
use tree::Progress;

use super::job::CopyJob;
use super::reuse;
use super::summary::{CopySummary, Unpreserved, lost_xattrs};
use crate::{Error, Result};

/// Writes a btrfs image.
///
/// # Errors
/// The source cannot be read, or the destination cannot be written.
pub(super) fn write(
    job: &CopyJob<'_>,
    progress: &dyn Progress,
    warn: &mut dyn FnMut(Error),
) -> Result<CopySummary> {
    let (inventory, all) = (&job.inventory, job.options);
    let old = reuse::btrfs(job, warn)?;
    let (subvolumes, default) = subvolumes(job)?;
    let options = (all.btrfs.clone())
        .keep_extents(!all.recompress)
        .old(old)
        .subvolumes(subvolumes)
        .default_subvolume(default.filter(|path| !path.is_empty()))
        .epoch(all.epoch)
        .duplicates(all.duplicates)
        .skip_unreadable(all.skips())
        .verify(all.verify);
    let tree = job.tree_output()?;
    let output = job.output()?;
    let made = btrfs::create(inventory, &options, all.parallel, progress, &output);
    let bytes = |made: &btrfs::CreateSummary| made.image.image_bytes;
    let (mut summary, verity) = job.finish_image(made, (output, tree), bytes)?;
    let image = &mut summary.image;
    let unreadable = std::mem::take(&mut image.unreadable);
    let unstored = std::mem::take(&mut image.lost_xattrs);
    let mut result = CopySummary::of_image(&summary.image, all.reuse.is_some());
    result.verity = verity;
    result.files = inventory.entry_count().into();
    result.used_bytes = Some(summary.image.data_bytes + summary.metadata_bytes);
    result.losses = job.losses(unreadable);
    let xattrs = lost_xattrs(unstored, "it does not fit in a tree block");
    result.unpreserved.extend(xattrs);
    let links = std::mem::take(&mut summary.split_links);
    let links = links.into_iter().map(Unpreserved::Links);
    result.unpreserved.extend(links);
    let is_read_only = !summary.is_writable && options.slack.is_none();
    result.read_only = is_read_only.then_some(summary.can_delete);
    result.btrfs = Some(summary);
    Ok(result)
}

/// The subvolumes of the new image, and the default one: those of a source on btrfs, then those of
/// the options.
fn subvolumes(job: &CopyJob<'_>) -> Result<(Vec<NewSubvolume>, Option<Vec<u8>>)> {
    let (mut subvolumes, mut default) = (Vec::new(), None);
    if let Some(tree) = job.source.subvolume() {
        let id = tree.btrfs().default_subvolume()?;
        for (own, subvolume) in tree.subvolumes_in(&job.inventory)? {
            if own == id {
                default = Some(subvolume.path.clone());
            }
            subvolumes.push(subvolume);
        }
        // One subvolume becomes the top level of the new file system, which is writable.
        if tree.id() != object::FS_TREE {
            subvolumes.retain(|subvolume| !subvolume.path.is_empty());
        }
    }
    for new in &job.options.subvolumes {
        match subvolumes.iter_mut().find(|known| known.path == new.path) {
            Some(known) => known.is_read_only = new.is_read_only,
            None => subvolumes.push(new.clone()),
        }
    }
    Ok((
        subvolumes,
        job.options.btrfs.default_subvolume.clone().or(default),
    ))
}
