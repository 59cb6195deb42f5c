//! Copies to SquashFS images.

use anyhow::{Context, Result, bail};
use squashfs::Options;
use tree::{Error, Inventory, Output};

use super::job::{Done, Job};
use super::reuse;
use crate::text;

/// Writes a SquashFS image.
///
/// # Errors
/// The source cannot be read, or the destination cannot be written.
pub(crate) fn write(job: &Job<'_>) -> Result<Done> {
    let bar = job.bar();
    let inventory = job.inventory(&bar)?;
    let names = job.names(&bar, &inventory);
    let (args, image) = (job.args, &job.args.image);
    let old = reuse::squashfs(args, args.squashfs.compression(image)?)?;
    let options = args.squashfs.options(image, args.rescue, &inventory, old)?;
    refuse_excess_holes(job, &inventory, &options)?;
    let mut output =
        Output::create(&job.args.dst, job.args.overwrite).with_context(|| job.on_dst("create"))?;
    let made = squashfs::create(&inventory, &options, job.parallel, &names, &mut output);
    let summary = match made {
        Err(error @ Error::File { verb: "read", .. }) => {
            return Err(job.source.name_error(error).into());
        }
        made => made.with_context(|| job.on_dst("write"))?,
    };
    output.commit().with_context(|| job.on_dst("finish"))?;
    names.finish();
    let listed = job.losses(&inventory, &summary.image.unreadable);
    let mut lost = Vec::new();
    for (path, name) in &summary.image.lost_xattrs {
        let (path, name) = (job.source.path_name(path), text::of_name(name));
        lost.push(format!(
            "{path}: extended attribute {name} not copied: SquashFS cannot hold it"
        ));
    }
    for path in &summary.changed_times {
        let path = job.source.path_name(path);
        lost.push(format!(
            "{path}: modification time changed to the nearest that SquashFS can hold"
        ));
    }
    Ok(Done {
        files: inventory.entry_count().into(),
        read: summary.image.content_bytes,
        written: summary.image.image_bytes,
        used: None,
        kept: summary.image.kept,
        listed,
        lost,
        notes: reuse::note(job.args.image.reuse.as_deref(), &summary.image)
            .into_iter()
            .collect(),
    })
}

/// Refuses files whose holes would make the image large, and says how large.
fn refuse_excess_holes(job: &Job<'_>, inventory: &Inventory, options: &Options) -> Result<()> {
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
    bail!(
        "{largest}{all}; SquashFS stores 4 bytes for each block of a hole, {} in all; --sparse-max raises the limit of {}",
        text::of_bytes(excess.list_bytes),
        text::of_bytes(options.sparse_max)
    )
}
