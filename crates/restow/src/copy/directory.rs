//! Copies to directories.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tree::Progress;
use tree::extract::{Conflict, Existing, ExtractOptions, Refused, extract};

use super::format::Format;
use super::job::CopyJob;
use super::summary::{CopyLoss, CopyNote, CopySummary, LossReason, Unpreserved};
use crate::error::{During, refuse};
use crate::{Error, Result, text};

/// Whether a directory is made on btrfs, which can keep extents as they are stored.
pub(super) fn is_on_btrfs(to: &Path) -> bool {
    let parent = linux::split_path(to).map_or(to, |(parent, _)| parent);
    let dir = linux::open_dir(to).or_else(|_| linux::open_dir(parent));
    dir.and_then(|dir| linux::is_btrfs(&dir)).unwrap_or(false)
}

/// Writes a directory; or one file, which is merged into the directory where it belongs.
///
/// # Errors
/// The source cannot be read, or the destination cannot be written.
pub(super) fn write(job: &CopyJob<'_>, progress: &dyn Progress) -> Result<CopySummary> {
    let (inventory, all) = (&job.inventory, job.options);
    let is_file = job.format == Format::File;
    if is_file && fs::symlink_metadata(job.dst).is_ok_and(|there| !there.is_file()) {
        let name = text::of_host_path(job.dst, "-");
        refuse!("{name} is not a regular file, and is not replaced by one");
    }
    let parent = linux::split_path(job.dst).map(|(parent, _)| parent);
    let dst = parent.filter(|_| is_file).unwrap_or(job.dst);
    let options = ExtractOptions {
        existing: if is_file {
            // Whether it may replace another one was checked before.
            Existing::Merge(Conflict::Replace)
        } else {
            all.existing
        },
        update_dirs: all.update_dirs,
        owners: all.owners,
        sync: all.sync,
        skip_unreadable: all.skips(),
        parallel: job.parallel,
    };
    let extracted = match extract(inventory, dst, &options, progress) {
        Err(error @ tree::Error::File { verb: "read", .. }) => {
            return Err(job.source.name_error(error));
        }
        Err(tree::Error::File { verb, path, error }) => {
            let path = dst.join(OsStr::from_bytes(&path));
            let path = text::of_host_path(&path, "-");
            return Err(Error::from(*error).during(format!("{verb} {path}")));
        }
        extracted => extracted.during(|| job.on_dst("write"))?,
    };
    let mut losses = job.losses(extracted.unreadable);
    let refused = extracted.refused.into_iter();
    losses.extend(refused.map(|Refused { path, reason }| CopyLoss {
        path: path.into(),
        reason: LossReason::NotMerged(reason),
    }));
    let stored = extracted.stored;
    let some = |count: u64, note: fn(u64) -> CopyNote| (count > 0).then(|| note(count));
    let notes = [
        some(extracted.kept, CopyNote::FilesKept),
        matches!(options.existing, Existing::ReplaceDirectory)
            .then_some(CopyNote::Deleted(extracted.removed)),
        some(extracted.cloned, CopyNote::Cloned),
        some(stored.shared, CopyNote::ExtentsShared),
        (stored.reason).map(|reason| CopyNote::Decompressed(stored.decoded, reason.into())),
    ];
    let is_host = extracted.unrestored.counts().next().is_some();
    Ok(CopySummary {
        files: if is_file {
            1
        } else {
            inventory.entry_count().into()
        },
        read_bytes: inventory.content_bytes(),
        written_bytes: inventory.content_bytes(),
        kept: stored.kept,
        losses,
        unpreserved: is_host
            .then_some(Unpreserved::Host(extracted.unrestored))
            .into_iter()
            .collect(),
        notes: notes.into_iter().flatten().collect(),
        ..CopySummary::default()
    })
}
