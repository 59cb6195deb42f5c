//! Copies to btrfs images.

use std::path::PathBuf;

use btrfs::{NewSubvolume, object};
use tree::{Output, OutputPath, Progress};

use super::job::CopyJob;
use super::summary::{CopySummary, Unpreserved, lost_xattrs};
use super::{dual, parts, reuse};
use crate::error::{During, refuse};
use crate::{Error, Result, is_same_file, text};

/// Writes a btrfs image.
///
/// # Errors
/// The source cannot be read, or the destination cannot be written.
pub(super) fn write(
    job: &CopyJob<'_>,
    progress: &dyn Progress,
    warn: &mut dyn FnMut(Error),
) -> Result<CopySummary> {
    parts::refuse_dependent(job.options)?;
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
    let options = if all.dual {
        // Without free space, Linux can only read the image.
        options.slack(Some(0))
    } else {
        options
    };
    refuse_same_devices(job)?;
    let source = || btrfs::part_source(inventory, &options);
    if let Some(number) = all.part {
        return parts::write(job, &source(), |equal, output| {
            let number = (number, equal);
            let made =
                btrfs::create_part(inventory, &options, number, job.parallel, progress, output)?;
            Ok(made.image)
        });
    }
    let parts = parts::all(job, source)?;
    if !(parts.is_empty() || all.devices.is_empty()) {
        refuse!("--parts: the parts of an image are joined on one device");
    }
    let tree = job.tree_output()?;
    let mut outputs = vec![job.output()?];
    for path in &all.devices {
        let opened = if all.in_place {
            Output::in_place(path)
        } else {
            Output::create(path, all.overwrite)
        };
        outputs.push(opened.during(|| format!("create {}", text::of_host_path(path, "-")))?);
    }
    let mut made = if parts.is_empty() {
        let made = btrfs::create_on_devices(inventory, &options, job.parallel, progress, &outputs);
        job.name_error(made)?
    } else {
        parts::join(job, &parts, |parts| {
            btrfs::join(
                inventory,
                &options,
                parts,
                job.parallel,
                progress,
                &outputs[0],
            )
        })?
    };
    let mut output = finish_devices(job, outputs)?;
    let face = dual::add(job, &mut output, made.image.image_bytes)?;
    if let Some(face) = &face {
        made.image.image_bytes = face.image.image_bytes;
    }
    let bytes = |made: &btrfs::CreateSummary| made.image.image_bytes;
    let (mut summary, verity) = job.finish_image(Ok(made), (output, tree), bytes)?;
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
    if let Some(face) = face {
        dual::describe(face, &mut result);
    }
    let is_read_only = !summary.is_writable && options.slack.is_none();
    result.read_only = is_read_only.then_some(summary.can_delete);
    result.btrfs = Some(summary);
    Ok(result)
}

/// # Errors
/// A device is named twice, or cannot be one.
fn refuse_same_devices(job: &CopyJob<'_>) -> Result<()> {
    let options = job.options;
    if options.devices.is_empty() {
        return Ok(());
    }
    if options.dual {
        refuse!("an image that is also an EROFS image has one device");
    }
    if options.verity.is_some() {
        refuse!("a hash tree is for an image of one device");
    }
    let mut known: Vec<PathBuf> = Vec::new();
    for path in std::iter::once(job.dst).chain(options.devices.iter().map(PathBuf::as_path)) {
        let name = text::of_host_path(path, "standard output");
        let place = match OutputPath::of(path).during(|| format!("find {name}"))? {
            OutputPath::Named(place) => std::path::absolute(place)?,
            OutputPath::Open(_) => refuse!("{name} is a stream, and no device"),
        };
        // The directories are the same if a link leads to one of them.
        let place = match (place.parent().map(std::fs::canonicalize), place.file_name()) {
            (Some(Ok(dir)), Some(name)) => dir.join(name),
            _ => place,
        };
        if (known.iter()).any(|other| *other == place || is_same_file(other, &place)) {
            refuse!("{name} is named twice; each device needs a file of its own");
        }
        known.push(place);
    }
    Ok(())
}

/// Waits until all devices are on their media, then gives all names but that of the first one,
/// which is returned: without it, the others are no file system.
fn finish_devices(job: &CopyJob<'_>, mut outputs: Vec<Output>) -> Result<Output> {
    let further = outputs.split_off(1);
    let first = outputs.pop().expect("the destination");
    if further.is_empty() {
        return Ok(first);
    }
    let files = further.len() + 1;
    (first.sync()).during(|| job.on_dst("finish"))?;
    for (output, path) in further.iter().zip(&job.options.devices) {
        (output.sync()).during(|| format!("finish {}", text::of_host_path(path, "-")))?;
    }
    for (done, (output, path)) in further.into_iter().zip(&job.options.devices).enumerate() {
        output.commit().during(|| {
            let name = text::of_host_path(path, "-");
            match done {
                0 => format!("finish {name}"),
                _ => format!("finish {name}, after {done} of {files} devices"),
            }
        })?;
    }
    Ok(first)
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
