//! EROFS images in the same file as a SquashFS or btrfs image, over the data of that.

use std::sync::Arc;

use btrfs::Btrfs;
use erofs::{DataDevice, ErofsSummary};
use squashfs::Squashfs;
use tree::{FileSystem, Inventory, NoProgress, Output};

use super::format::Format;
use super::job::CopyJob;
use super::summary::{CopyNote, CopySummary, lost_xattrs};
use crate::Result;
use crate::error::During;
use crate::indexed::IndexedImage;

/// Writes an EROFS image behind the image of these bytes that is in the output, if it gets one. It
/// shows the tree that a mount of the other one shows.
///
/// # Errors
/// The image cannot be read back; the output has no room.
pub(super) fn add(
    job: &CopyJob<'_>,
    output: &mut Output,
    bytes: u64,
) -> Result<Option<ErofsSummary>> {
    if !job.options.dual {
        return Ok(None);
    }
    let mut add = || -> Result<ErofsSummary> {
        let written = output.reader()?;
        let devices = [Arc::clone(&written)];
        let (tree, device, subvolume) = match job.format {
            Format::Btrfs => {
                let btrfs = Arc::new(Btrfs::open(vec![Box::new(Arc::clone(&written))])?);
                let device = btrfs.superblock().device.id;
                let subvolume = btrfs.default_subvolume()?;
                let tree = Box::new(btrfs.subvolume(subvolume)?) as Box<dyn FileSystem>;
                (tree, device, subvolume)
            }
            _ => (Box::new(Squashfs::open(Arc::clone(&written))?) as _, 0, 0),
        };
        let tag = IndexedImage::of(job.format, subvolume, &devices)?;
        let tag = IndexedImage { bytes, ..tag }.tag();
        let device = DataDevice::new((tree.storage().store, device), written, &tag)?;
        let all = job.options;
        let options = (all.erofs.clone())
            .devices(vec![device.beneath(bytes)])
            // Equal data is found by its place, and not read.
            .duplicates(false)
            .made(job.newest_mtime())
            .epoch(all.epoch)
            .verify(all.verify);
        let inventory = Inventory::of(&*tree, &all.limits)?;
        let made = erofs::create(&inventory, &options, job.parallel, &NoProgress, output)?;
        Ok(made)
    };
    let made = add().during(|| job.on_dst("add an EROFS image to"))?;
    Ok(Some(made))
}

/// Adds the EROFS image to the result of a copy.
pub(super) fn describe(mut made: ErofsSummary, result: &mut CopySummary) {
    let unstored = std::mem::take(&mut made.image.lost_xattrs);
    let xattrs = lost_xattrs(unstored, "EROFS cannot hold it");
    result.unpreserved.extend(xattrs);
    let recoded = made.recoded.iter();
    let recoded = recoded.map(|(why, &count)| CopyNote::Recoded(count, why));
    result.notes.extend(recoded);
    result.notes.push(CopyNote::Dual);
    result.erofs = Some(made);
}
