//! Copies to directories.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, Result};
use tree::extract::{Aspect, ExtractOptions, extract};
use tree::{Error, Kept};

use super::job::{Done, Job};
use crate::bar::Bar;
use crate::{message, text};

/// Writes a directory.
///
/// # Errors
/// The source cannot be read, or the destination cannot be written.
pub(crate) fn write(job: &Job<'_>) -> Result<Done> {
    let bar = Bar::new("copied", job.args.quiet);
    let inventory = job.inventory(&bar)?;
    let options = ExtractOptions {
        overwrite: job.args.overwrite,
        owners: !job.args.directory.no_owners,
        sync: !job.args.directory.no_sync,
        parallel: job.parallel,
    };
    let extracted = extract(job.tree, &inventory, &job.args.dst, &options, &bar);
    let unrestored = match extracted {
        Err(error @ Error::File { verb: "read", .. }) => {
            return Err(job.source.name_error(error));
        }
        Err(Error::File { verb, path, error }) => {
            let path = job.args.dst.join(OsStr::from_bytes(&path));
            let path = text::of_host_path(&path, "-");
            return Err(anyhow::Error::from(*error).context(format!("{verb} {path}")));
        }
        extracted => extracted.with_context(|| job.on_dst("write"))?,
    };
    bar.finish();
    let mut lost = Vec::new();
    for (aspect, names, count) in unrestored.counts() {
        for example in unrestored.examples(aspect) {
            let path = job.args.dst.join(OsStr::from_bytes(&example.path));
            let path = text::of_host_path(&path, "-");
            let reason = message::of_reason(&example.reason);
            lost.push(format!(
                "{path}: {} not preserved: {reason}",
                name_of(aspect)
            ));
        }
        let shown = unrestored.examples(aspect).count() as u64;
        if count > shown {
            lost.push(format!("and {} more {names}", count - shown));
        }
    }
    if unrestored.count(Aspect::Owner) > 0 {
        lost.push("use --no-owners to ignore the owners in the source".into());
    }
    Ok(Done {
        files: inventory.entry_count().into(),
        read: inventory.content_bytes(),
        written: inventory.content_bytes(),
        kept: Kept::default(),
        lost,
    })
}

fn name_of(aspect: Aspect) -> &'static str {
    match aspect {
        Aspect::Device => "device file",
        Aspect::Owner => "owner",
        Aspect::Mode => "mode",
        Aspect::Xattr => "extended attributes",
        Aspect::Attributes => "file attributes",
        Aspect::Time => "timestamps",
    }
}
