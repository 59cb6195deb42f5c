//! The choice of the parent among clone sources.

use crate::{Error, Result};

/// The fields of a subvolume on which the choice depends.
pub(super) struct ParentCandidate {
    pub(super) uuid: Option<[u8; 16]>,
    /// The UUID of the subvolume that it is a snapshot of.
    pub(super) parent_uuid: Option<[u8; 16]>,
    pub(super) ctransid: u64,
}

/// The index of the clone source that becomes the parent of a snapshot of `origin`, as `btrfs send`
/// chooses it: `origin` itself, or its snapshot with the nearest transaction. `origin` is `None` if
/// the subvolume is not a snapshot, or that of a deleted one.
pub(super) fn nearest(
    origin: Option<ParentCandidate>,
    sources: &[ParentCandidate],
) -> Result<usize> {
    let origin = origin.ok_or_else(|| {
        Error::refused(
            "the subvolume is not a snapshot of an existing one; name the parent with -p",
        )
    })?;
    if let Some(index) = sources.iter().position(|source| source.uuid == origin.uuid) {
        return Ok(index);
    }
    let sources = sources.iter().enumerate();
    let related = sources.filter(|(_, source)| source.parent_uuid == origin.uuid);
    let nearest = related.min_by_key(|(_, source)| source.ctransid.abs_diff(origin.ctransid));
    let (index, _) = nearest.ok_or_else(|| {
        Error::refused(
            "no -c subvolume is a snapshot of the same subvolume; name the parent with -p",
        )
    })?;
    Ok(index)
}
