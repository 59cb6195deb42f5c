//! Copies to directories.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use restow::SourceNote;
use tree::Error;
use tree::extract::{Aspect, Conflict, Existing, ExtractOptions, Refused, Unrestored, extract};

use super::destination::is_there;
use super::job::{Done, Job, Lost};
use super::kind::Kind;
use crate::message::{self, tell};
use crate::text;

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
pub(crate) fn write(job: &Job<'_>, kind: Kind) -> Result<Done> {
    let bar = job.bar();
    let inventory = job.inventory(&bar)?;
    let names = job.names(&bar, &inventory);
    let is_file = kind == Kind::File;
    let parent = linux::split_path(&job.args.dst).map(|(parent, _)| parent);
    let dst = parent.filter(|_| is_file).unwrap_or(&job.args.dst);
    let options = ExtractOptions {
        existing: if is_file {
            // Whether it may replace another one was checked before.
            Existing::Merge(Conflict::Replace)
        } else {
            job.args.directory.existing(job.args.overwrite)
        },
        owners: !job.args.directory.no_owners,
        sync: !job.args.directory.no_sync,
        skip_unreadable: job.args.rescue.skips(),
        parallel: job.parallel,
    };
    let extracted = extract(&inventory, dst, &options, &names);
    let path_name = |path: &[u8]| {
        let path = dst.join(OsStr::from_bytes(path));
        text::of_host_path(&path, "-")
    };
    let extracted = match extracted {
        Err(error @ Error::File { verb: "read", .. }) => {
            return Err(job.source.name_error(error).into());
        }
        Err(Error::File { verb, path, error }) => {
            let path = path_name(&path);
            return Err(anyhow::Error::from(*error).context(format!("{verb} {path}")));
        }
        Err(Error::Io(error)) if error.kind() == io::ErrorKind::AlreadyExists => {
            let reason = is_there(dst).unwrap_or_else(|| "already exists".to_owned());
            bail!(reason);
        }
        extracted => extracted.with_context(|| job.on_dst("write"))?,
    };
    names.finish();
    let mut listed = job.losses(&inventory, &extracted.unreadable);
    for Refused { path, reason } in &extracted.refused {
        let (name, reason) = (path_name(path), message::of_reason(reason));
        listed.push(Lost {
            path: path.to_vec(),
            words: format!("{name}: not merged: {reason}"),
        });
    }
    let mut notes = Vec::new();
    if extracted.kept > 0 {
        notes.push(format!(
            "{} in the destination kept",
            text::count(extracted.kept, "file")
        ));
    }
    if job.args.directory.replace {
        let count = extracted.removed;
        let noun = if count == 1 { "entry" } else { "entries" };
        notes.push(format!("{count} {noun} of the old directory deleted"));
    }
    match extracted.cloned {
        0 if job.source.notes().contains(&SourceNote::Decompressed) => {
            tell(&format!(
                "{}: {}",
                job.source.name(),
                SourceNote::Decompressed
            ));
        }
        0 => {}
        1 => notes.push("1 file shares its data with the source".to_owned()),
        count => notes.push(format!("{count} files share their data with the source")),
    }
    let stored = &extracted.stored;
    if stored.shared > 0 {
        notes.push(format!(
            "{} shared with others",
            text::count(stored.shared, "extent")
        ));
    }
    if let Some(reason) = &stored.reason {
        notes.push(format!(
            "{} written decompressed: {}",
            text::count(stored.decoded, "compressed extent"),
            message::of_reason(reason)
        ));
    }
    let lost = of_unrestored(&extracted.unrestored, path_name);
    Ok(Done {
        files: if is_file {
            1
        } else {
            inventory.entry_count().into()
        },
        read: inventory.content_bytes(),
        written: inventory.content_bytes(),
        used: None,
        kept: extracted.stored.kept,
        listed,
        lost,
        notes,
    })
}

/// What could not be restored, in words.
pub(crate) fn of_unrestored(
    unrestored: &Unrestored,
    path_name: impl Fn(&[u8]) -> String,
) -> Vec<String> {
    let mut lost = Vec::new();
    for (aspect, names, count) in unrestored.counts() {
        for example in unrestored.examples(aspect) {
            let path = path_name(&example.path);
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
    lost
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
