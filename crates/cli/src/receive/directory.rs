//! Receiving into a directory of any file system.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sendstream::{Event, Replay};
use tree::extract::{Existing, ExtractOptions, extract};
use tree::{HostDir, Inventory, Limits};

use super::needed::{Needed, needed};
use super::record::{Entry, Record, digest};
use super::{Receive, tell};
use crate::bar::Bar;
use crate::copy::directory::of_unrestored;
use crate::open::Container;
use crate::stream::input::{name, of_uuid};
use crate::text;

/// Makes a directory of each subvolume. Returns what could not be kept, in words.
///
/// # Errors
/// The stream is damaged, its parent is missing or was changed, or a directory cannot be written. Directories that were complete
/// before are there.
pub(super) fn receive(args: &Receive, dir: &Path) -> Result<Vec<String>> {
    if args.end {
        bail!("-e needs subvolumes of btrfs: for directories, the whole input is read first");
    }
    let shown = text::of_host_path(dir, "-");
    linux::open_dir(dir).with_context(|| format!("open {shown}"))?;
    let read = || format!("read {}", name(&args.file));
    let Container::SendStream(stream) = Container::open(&args.file, None).with_context(read)?
    else {
        bail!("{}: not a send stream", read());
    };
    let stream = stream.into_file().with_context(read)?;
    let needed = needed(&stream).with_context(read)?;
    let mut record = Record::read(dir)?;
    let mut replay = Replay::new();
    if let Some(path) = &args.parent {
        let parent = || format!("open parent {}", text::of_host_path(path, "-"));
        let tree = Arc::new(HostDir::open(path).with_context(parent)?);
        for needed in &needed {
            replay.know(needed.uuid, None, Arc::<HostDir>::clone(&tree));
        }
    } else {
        know(&record, &needed, dir, &mut replay)?;
    }
    replay.add(Arc::new(stream)).with_context(read)?;
    let mut lost = Vec::new();
    for subvolume in replay.subvolumes() {
        let sent = subvolume.sent();
        tell(&Event::Subvolume(sent), args, dir);
        let to = dir.join(OsStr::from_bytes(&sent.name));
        let path_name = |path: &[u8]| text::of_host_path(&to.join(OsStr::from_bytes(path)), "-");
        let write = || format!("write {}", path_name(b""));
        if to.symlink_metadata().is_ok() {
            bail!(
                "{}: there is a file of that name; rename or delete it first",
                write()
            );
        }
        let inventory = Inventory::of(&**subvolume, &Limits::default()).with_context(read)?;
        let options = ExtractOptions {
            existing: Existing::Refuse,
            owners: !args.no_owners,
            sync: true,
            skip_unreadable: false,
            parallel: args.threads.parallel(),
        };
        let bar = Bar::new("received", args.quiet);
        let extracted =
            extract(&**subvolume, &inventory, &to, &options, &bar).with_context(write)?;
        bar.finish();
        lost.extend(of_unrestored(&extracted.unrestored, path_name));
        if subvolume.verity_files() > 0 {
            let files = text::count(subvolume.verity_files(), "file");
            lost.push(format!(
                "{}: fs-verity of {files} not enabled",
                path_name(b"")
            ));
        }
        let digest = HostDir::open(&to)
            .and_then(|dir| digest(&dir))
            .with_context(write)?;
        record.add(Entry {
            uuid: sent.uuid,
            ctransid: sent.ctransid,
            digest,
            name: sent.name.to_vec(),
        })?;
    }
    Ok(lost)
}

/// Makes the directories known that the stream needs, after comparing them with the record.
fn know(record: &Record, needed: &[Needed], dir: &Path, replay: &mut Replay) -> Result<()> {
    for entry in record.entries.iter().filter(|it| {
        let mut needed = needed.iter();
        needed.any(|needed| needed.uuid == it.uuid)
    }) {
        let path = dir.join(OsStr::from_bytes(&entry.name));
        let shown = text::of_host_path(&path, "-");
        let tree = HostDir::open(&path)
            .with_context(|| format!("open {shown}, received as {}", of_uuid(&entry.uuid)))?;
        let now = digest(&tree).with_context(|| format!("read {shown}"))?;
        if now != entry.digest {
            bail!(
                "{shown} was changed after it was received, and the stream builds on it; `--parent` takes a directory as it is"
            );
        }
        replay.know(entry.uuid, Some(entry.ctransid), Arc::new(tree));
    }
    Ok(())
}
