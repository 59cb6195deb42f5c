//! Send streams as sources.

use std::ffi::OsStr;
use std::sync::Arc;

use sendstream::{Replay, SentTree};

use crate::error::{During, refuse};
use crate::{Container, Error, Input, OpenOptions, Result, SourceNote, text};

/// Replays a stream after those it is based on. Returns the subvolume with this name or the last
/// one, with a remark if there are others.
///
/// # Errors
/// The stream cannot be read or breaks the format, its parent is not in the other streams, or no
/// subvolume has the name.
pub(crate) fn open(
    stream: Input,
    wanted: Option<&OsStr>,
    options: &OpenOptions,
) -> Result<(Arc<SentTree>, Option<SourceNote>)> {
    let mut replay = Replay::new();
    for base in &options.base {
        let mut open = || -> Result<()> {
            let open = OpenOptions::default().remote(options.remote.clone());
            let Container::SendStream(stream) = Container::open(base, &open)? else {
                refuse!("not a send stream");
            };
            replay.add(stream.into_bytes(&options.spool_dir)?)?;
            Ok(())
        };
        open().during(|| format!("open {}", text::of_host_path(base, "standard input")))?;
    }
    let before = replay.subvolumes().len();
    replay.add(stream.into_bytes(&options.spool_dir)?)?;
    let found = &replay.subvolumes()[before..];
    let names = || found.iter().map(|tree| tree.sent().name.to_vec());
    let Some(wanted) = wanted else {
        let last = found
            .last()
            .ok_or_else(|| Error::refused("the stream has no subvolume"))?;
        let note = (found.len() > 1).then(|| SourceNote::Subvolumes(names().collect()));
        return Ok((Arc::clone(last), note));
    };
    let wanted = wanted.as_encoded_bytes();
    match found.iter().rfind(|tree| *tree.sent().name == *wanted) {
        Some(tree) => Ok((Arc::clone(tree), None)),
        None => {
            let names: Vec<String> = names().map(|name| text::of_name(&name)).collect();
            let (wanted, names) = (text::of_name(wanted), names.join(", "));
            refuse!("no subvolume {wanted} in the stream; there is {names}");
        }
    }
}
