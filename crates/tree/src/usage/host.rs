//! Files of the host: on a mounted btrfs as they are stored there.

use super::{ByExtents, StorageForm, StoredPart, StoredParts, algorithm_name, hole};
use crate::fs::{ExtentItem, ItemBody};
use crate::{ExtentId, HostDir, Ino, Result};

impl StoredParts for HostDir {
    fn has_fragments(&self) -> bool {
        false
    }

    /// With [`HostDir::with_stored_extents`], every extent item of a file on btrfs, also those past
    /// its end; otherwise as [`ByExtents`].
    fn stored_parts(
        &self,
        file: Ino,
        each: &mut dyn FnMut(StoredPart) -> Result<()>,
    ) -> Result<()> {
        let mut at = 0;
        let size = self.for_each_extent_item(file, &mut |item, size| {
            let part = part(item);
            let end = item.offset.saturating_add(item.len);
            let hole_end = if part.is_none() { end } else { item.offset };
            hole(at, hole_end.min(size), each)?;
            at = end.max(at);
            part.map_or(Ok(()), &mut *each)
        })?;
        match size {
            Some(size) => hole(at, size, each),
            None => ByExtents(self).stored_parts(file, each),
        }
    }
}

/// The target of an item; `None` for a hole.
fn part(item: &ExtentItem) -> Option<StoredPart> {
    let len = item.len;
    let form = item.algorithm.map_or(StorageForm::Plain, |it| {
        StorageForm::Encoded(algorithm_name(it))
    });
    match item.body {
        ItemBody::Hole => None,
        ItemBody::Inline(stored) => Some(StoredPart::Inline { form, stored, len }),
        ItemBody::Extent {
            at,
            stored,
            decoded,
            begin,
            is_preallocated,
        } => Some(StoredPart::Extent {
            form: if is_preallocated {
                StorageForm::Preallocated
            } else {
                form
            },
            id: Some(ExtentId(at)),
            stored: Some(stored),
            decoded: Some(decoded),
            begin,
            len,
            is_fragment: false,
        }),
    }
}
