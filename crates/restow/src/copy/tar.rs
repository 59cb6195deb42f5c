//! Copies to tar archives.

use std::io::Write;

use tree::Progress;

use super::job::CopyJob;
use super::packed::Packing;
use super::summary::{CopyLoss, CopySummary, LossReason, Unpreserved};
use crate::Result;

/// Writes a tar archive, compressed or not.
///
/// # Errors
/// The source cannot be read, or the destination cannot be written.
pub(super) fn write(job: &CopyJob<'_>, progress: &dyn Progress) -> Result<CopySummary> {
    let (parallel, skips) = (job.parallel, job.options.skips());
    let mut output = job.output()?;
    let fill =
        |out: &mut dyn Write| tree::tar::write(&job.inventory, skips, parallel, progress, out);
    let written = match job.format.wrapper() {
        None => fill(&mut output).map(|summary| {
            let bytes = summary.archive_bytes;
            (summary, bytes)
        }),
        Some(wrapper) => {
            let level = job.options.level;
            Packing { wrapper, level }.write(parallel, &mut output, fill)
        }
    };
    let (written, bytes) = job.finish(written, output)?;
    Ok(summary(job, written, bytes))
}

/// The result of an archive of this length.
pub(super) fn summary(
    job: &CopyJob<'_>,
    summary: tree::tar::Summary,
    written_bytes: u64,
) -> CopySummary {
    let mut losses = job.losses(summary.unreadable);
    losses.extend(summary.damaged.into_iter().map(|(path, error)| {
        let reason = LossReason::Reread(error);
        CopyLoss { path, reason }
    }));
    let why = "cpio archives hold none";
    let xattrs = summary.xattrs.into_iter();
    let xattrs = xattrs.map(|(path, name)| Unpreserved::Xattr {
        path,
        name: name.into_vec(),
        why,
    });
    let times = summary.times.into_iter().map(Unpreserved::Time);
    let sockets = summary.sockets.into_iter().map(Unpreserved::Socket);
    CopySummary {
        files: summary.entries,
        read_bytes: summary.content_bytes,
        written_bytes,
        losses,
        unpreserved: sockets.chain(xattrs).chain(times).collect(),
        ..CopySummary::default()
    }
}
