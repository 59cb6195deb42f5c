//! Copies to tar archives.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, Result};
use tree::{Error, Kept, Output};

use super::job::{Done, Job};
use crate::bar::Bar;
use crate::message;

/// Writes a tar archive.
///
/// # Errors
/// The source cannot be read, or the destination cannot be written.
pub(crate) fn write(job: &Job<'_>) -> Result<Done> {
    let bar = Bar::new("copied", job.args.quiet);
    let inventory = job.inventory(&bar)?;
    let mut output = if job.args.dst == Path::new("-") {
        Output::stream(File::from(io::stdout().as_fd().try_clone_to_owned()?))
    } else {
        Output::create(&job.args.dst, job.args.overwrite).with_context(|| job.on_dst("create"))?
    };
    let written = tree::tar::write(
        job.tree,
        &inventory,
        job.args.rescue.skips(),
        job.parallel,
        &bar,
        &mut output,
    );
    let summary = match written {
        Err(error @ Error::File { .. }) => return Err(job.source.name_error(error)),
        written => written.with_context(|| job.on_dst("write"))?,
    };
    output.commit().with_context(|| job.on_dst("finish"))?;
    bar.finish();
    let mut listed = job.losses(&inventory, &summary.unreadable);
    for (path, error) in &summary.damaged {
        let path = job.source.path_name(path);
        let reason = message::of_reason(&message::of_tree_error(error));
        listed.push(format!(
            "{path}: zeros in place of a part that could not be read again: {reason}"
        ));
    }
    let lost = summary.sockets.iter().map(|path| {
        format!(
            "{}: not copied: tar archives cannot hold sockets",
            job.source.path_name(path)
        )
    });
    Ok(Done {
        files: summary.entries,
        read: summary.content_bytes,
        written: summary.archive_bytes,
        kept: Kept::default(),
        listed,
        lost: lost.collect(),
        notes: Vec::new(),
    })
}
