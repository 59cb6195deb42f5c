//! Copies to btrfs images.

use anyhow::{Context, Result};
use btrfs::CreateSummary;
use restow::SourceTree;
use tree::{Error, Output};

use super::job::{Done, Job};
use super::reuse;
use crate::message::tell;
use crate::text;

/// Writes a btrfs image.
///
/// # Errors
/// The source cannot be read, or the destination cannot be written.
pub(crate) fn write(job: &Job<'_>) -> Result<Done> {
    let bar = job.bar();
    let inventory = job.inventory(&bar)?;
    let names = job.names(&bar, &inventory);
    let options = job.args.btrfs.options(
        &job.args.image,
        job.args.rescue,
        job.source.subvolume().map(|tree| &**tree),
        &inventory,
        reuse::btrfs(job.args)?,
    )?;
    let output =
        Output::create(&job.args.dst, job.args.overwrite).with_context(|| job.on_dst("create"))?;
    let made = btrfs::create(&inventory, &options, job.parallel, &names, &output);
    let summary = match made {
        Err(error @ Error::File { .. }) => return Err(job.source.name_error(error).into()),
        made => made.with_context(|| job.on_dst("write"))?,
    };
    output.commit().with_context(|| job.on_dst("finish"))?;
    names.finish();
    if !summary.is_writable && options.slack.is_none() && !job.args.quiet {
        tell(match (summary.can_delete, options.size) {
            (true, None) => {
                "Linux can delete files in the image but not add any until it is enlarged; --slack leaves free space"
            }
            (true, Some(_)) => {
                "Linux can delete files in the image but may find no room to add any; a larger --size leaves free space"
            }
            (false, _) => {
                "Linux can only read the image: its free space is too small to delete or add files; a larger --size or device leaves more"
            }
        });
    }
    Ok(Done {
        files: inventory.entry_count().into(),
        read: summary.image.content_bytes,
        written: summary.image.image_bytes,
        used: Some(summary.image.data_bytes + summary.metadata_bytes),
        kept: summary.image.kept,
        listed: job.losses(&inventory, &summary.image.unreadable),
        lost: lost_in(&summary, job.source),
        notes: reuse::note(job.args.image.reuse.as_deref(), &summary.image)
            .into_iter()
            .collect(),
    })
}

/// What could not be preserved, a line each.
fn lost_in(summary: &CreateSummary, source: &SourceTree) -> Vec<String> {
    let mut lost = Vec::new();
    for (path, name) in &summary.image.lost_xattrs {
        let (path, name) = (source.path_name(path), text::of_name(name));
        lost.push(format!(
            "{path}: extended attribute {name} not copied: it does not fit in a tree block"
        ));
    }
    for path in &summary.split_links {
        let path = source.path_name(path);
        lost.push(format!(
            "{path}: hard links across subvolumes became files with shared extents"
        ));
    }
    lost
}
