//! The subvolumes that a stream is based on.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use sendstream::{Command, SentSubvolume, StreamReader};
use tree::{Error, ReadAt, Result, SequentialReader};

/// Parents and sources of clones in one input: more than any backup has.
const NEEDED_MAX: usize = 1 << 16;

/// A parent or a source of clones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BaseSubvolume {
    pub(super) uuid: [u8; 16],
    /// The transaction of its last change.
    pub(super) ctransid: u64,
    pub(super) is_parent: bool,
}

/// The parents and sources of clones, without the stream's own subvolumes.
///
/// # Errors
/// The stream cannot be read, is damaged, or needs too many.
pub(super) fn needed(stream: &Arc<dyn ReadAt>) -> Result<Vec<BaseSubvolume>> {
    let mut reader = StreamReader::new(SequentialReader::new(Arc::clone(stream)));
    let (mut needed, mut parents, mut own) = (BTreeSet::new(), HashSet::new(), HashSet::new());
    while reader.next_stream()?.is_some() {
        while let Some(record) = reader.next_command()? {
            if let Some(sent) = SentSubvolume::started_by(&record.command) {
                // One that comes later cannot be its parent.
                if let Some(parent) = sent.parent.filter(|it| !own.contains(&it.0)) {
                    needed.insert(parent);
                    parents.insert(parent.0);
                }
                own.insert(sent.uuid);
            }
            if let Command::Clone {
                clone_uuid,
                clone_ctransid,
                ..
            } = record.command
                && !own.contains(&clone_uuid)
            {
                needed.insert((clone_uuid, clone_ctransid));
            }
            if needed.len() + own.len() > NEEDED_MAX {
                return Err(Error::Limit("parents and clone sources of a send stream"));
            }
        }
    }
    let needed = needed.into_iter().map(|(uuid, ctransid)| BaseSubvolume {
        uuid,
        ctransid,
        is_parent: parents.contains(&uuid),
    });
    Ok(needed.collect())
}
