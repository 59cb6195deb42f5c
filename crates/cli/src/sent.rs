//! Send streams as sources.

use std::fs::File;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sendstream::{Replay, SentTree};
use tree::ReadAt;

use crate::address::Address;
use crate::open::{Container, Stream};
use crate::options::SourceArgs;
use crate::text;

/// A subvolume that a stream builds.
pub(crate) struct Sent {
    pub(crate) tree: Arc<SentTree>,
    /// Messages about what is special about it.
    pub(crate) notes: Vec<String>,
    /// What the tree does not show.
    pub(crate) lost: Vec<String>,
}

/// Replays a stream.
///
/// # Errors
/// The stream cannot be read or breaks the format, its parent is not among `--base`, or the address names a subvolume that is
/// not in it.
pub(crate) fn open(stream: Stream, address: &Address, args: &SourceArgs) -> Result<Sent> {
    let mut replay = Replay::new();
    for base in &args.base {
        let mut open = || -> Result<()> {
            let Container::SendStream(stream) = Container::open(base, None)? else {
                bail!("not a send stream");
            };
            replay.add(seekable(stream)?)?;
            Ok(())
        };
        open().with_context(|| format!("open {}", text::of_host_path(base, "standard input")))?;
    }
    let before = replay.subvolumes().len();
    replay.add(seekable(stream)?)?;
    let found = &replay.subvolumes()[before..];
    let name_of = |tree: &SentTree| text::of_name(&tree.sent().name);
    let names = || found.iter().map(|tree| name_of(tree)).collect::<Vec<_>>();
    let (tree, notes) = match &address.subvolume {
        Some(wanted) => {
            let wanted = wanted.as_encoded_bytes();
            let Some(tree) = found.iter().rfind(|tree| *tree.sent().name == *wanted) else {
                let (wanted, names) = (text::of_name(wanted), names().join(", "));
                bail!("no subvolume {wanted} in the stream; there is {names}");
            };
            (tree, Vec::new())
        }
        None => {
            let last = found.last().context("the stream has no subvolume")?;
            let many = format!(
                "the stream has {} subvolumes, of which {} is read: {}",
                found.len(),
                name_of(last),
                names().join(", ")
            );
            (
                last,
                if found.len() > 1 {
                    vec![many]
                } else {
                    Vec::new()
                },
            )
        }
    };
    let mut lost = Vec::new();
    if tree.verity_files() > 0 {
        let files = text::count(tree.verity_files(), "file");
        lost.push(format!("fs-verity of {files} in the stream is not read"));
    }
    Ok(Sent {
        tree: Arc::clone(tree),
        notes,
        lost,
    })
}

/// The whole stream, to read at any place.
fn seekable(stream: Stream) -> Result<Arc<dyn ReadAt>> {
    let file: File = stream.into_file()?;
    Ok(Arc::new(file))
}
