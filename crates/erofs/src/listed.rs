//! Where the listings of directories and large indexes of files are.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::inode::MetaAt;
use crate::piece::{Piece, PieceKind, StoredPlace};

/// The ranges of listings or of indexes, so that no two directories or files have the same: then a
/// small image would list any number of names, or of extents.
#[derive(Default)]
pub(crate) struct OwnedRanges(Mutex<BTreeMap<(u32, u64), (u64, u64)>>);

impl OwnedRanges {
    /// Records that a directory lists a piece; returns whether no other directory does.
    pub(crate) fn note(&self, piece: &Piece, nid: u64) -> bool {
        const METABOX: u32 = 1 << 16;
        const PACKED: u32 = METABOX + 1;
        let of_place = |place| match place {
            StoredPlace::Data { device, at } => (device.into(), at),
            StoredPlace::Meta(place) if place.in_metabox => (METABOX, place.at),
            StoredPlace::Meta(place) => (0, place.at),
        };
        let ((space, from), len) = match piece.kind {
            PieceKind::Hole => return true,
            PieceKind::Plain(place) => (of_place(place), piece.len),
            PieceKind::Cluster(cluster) => (of_place(cluster.place), cluster.stored_len),
            PieceKind::Fragment(offset) => ((PACKED, offset), piece.len),
        };
        self.note_range(space, (from, from.saturating_add(len)), nid)
    }

    /// Records that the index of a file is at these bytes of metadata; returns whether no other
    /// file's is.
    pub(crate) fn note_index(&self, at: MetaAt, len: u64, nid: u64) -> bool {
        self.note_range(
            at.in_metabox.into(),
            (at.at, at.at.saturating_add(len)),
            nid,
        )
    }

    fn note_range(&self, space: u32, (from, to): (u64, u64), nid: u64) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.range(..(space, to)).next_back() {
            Some((_, &(_, other))) if other == nid => true,
            Some((&(other, _), &(end, _))) if other == space && end > from => false,
            _ => {
                known.insert((space, from), (to, nid));
                true
            }
        }
    }
}
