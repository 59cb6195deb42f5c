//! The extents that a walk has met, and which of their bytes files refer to.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use crate::{ExtentId, Ino};

/// An extent that was met. With its key, about 60 bytes.
#[derive(Debug)]
struct Met {
    /// The file that referred to it first.
    file: Ino,
    /// The range of its decoded bytes that parts refer to, if that is one.
    range: (u64, u64),
    is_shared: bool,
    /// Whether the ranges are in [`Extents::ranges`] instead.
    is_scattered: bool,
}

/// The addition of a reference to an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Added {
    /// Whether it is the first one to the extent.
    pub(super) is_new: bool,
    /// Decoded bytes that no part before referred to.
    pub(super) fresh: u64,
    /// Whether the extent is now known to be shared.
    pub(super) is_now_shared: bool,
    /// Decoded bytes that parts before referred to.
    pub(super) again: u64,
}

/// All extents that were met.
#[derive(Debug, Default)]
pub(super) struct Extents {
    met: HashMap<ExtentId, Met>,
    /// For extents of which separate ranges are referred to: beginning and end of each.
    ranges: HashMap<ExtentId, BTreeMap<u64, u64>>,
}

impl Extents {
    /// Notes that a file refers to a range of an extent. `is_link` if the file was met under
    /// another name.
    pub(super) fn add(
        &mut self,
        id: ExtentId,
        (file, is_link): (Ino, bool),
        begin: u64,
        len: u64,
    ) -> Added {
        let end = begin.saturating_add(len);
        let len = end.saturating_sub(begin);
        let met = match self.met.entry(id) {
            Entry::Vacant(place) => {
                place.insert(Met {
                    file,
                    range: (begin, end),
                    is_shared: false,
                    is_scattered: false,
                });
                return Added {
                    is_new: true,
                    fresh: len,
                    is_now_shared: false,
                    again: 0,
                };
            }
            Entry::Occupied(place) => place.into_mut(),
        };
        let (from, to) = met.range;
        let fresh = if met.is_scattered || end < from || begin > to {
            let ranges = self.ranges.entry(id).or_default();
            if !met.is_scattered {
                ranges.insert(from, to);
                met.is_scattered = true;
            }
            cover(ranges, begin, end)
        } else {
            met.range = (from.min(begin), to.max(end));
            (met.range.1 - met.range.0) - (to - from)
        };
        let again = len - fresh;
        let is_now_shared = !met.is_shared && !is_link && (met.file != file || again > 0);
        met.is_shared |= is_now_shared;
        Added {
            is_new: false,
            fresh,
            is_now_shared,
            again,
        }
    }
}

/// Adds a range to ranges that neither overlap nor touch. Returns how many bytes of it are new.
fn cover(ranges: &mut BTreeMap<u64, u64>, begin: u64, end: u64) -> u64 {
    let (mut from, mut to) = (begin, end);
    let mut old = 0;
    // The last range that begins at or before the end, and those before it, as far as they touch.
    while let Some((&at, &until)) = ranges.range(..=to).next_back() {
        if until < from {
            break;
        }
        ranges.remove(&at);
        old += until - at;
        (from, to) = (from.min(at), to.max(until));
    }
    ranges.insert(from, to);
    (to - from) - old
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As [`Extents::add`], byte by byte.
    #[test]
    fn ranges_are_counted_as_a_table_of_bytes_counts_them() {
        let mut rng = testkit::Rng::new(7);
        for _ in 0..200 {
            let mut extents = Extents::default();
            let mut bytes = [false; 64];
            for step in 0..12 {
                let begin = rng.below(60);
                let len = 1 + rng.below(64 - begin);
                let range = begin as usize..(begin + len) as usize;
                let fresh = bytes[range.clone()].iter().filter(|it| !**it).count() as u64;
                bytes[range].fill(true);
                let added = extents.add(ExtentId(1), (Ino(1), false), begin, len);
                assert_eq!(
                    (added.is_new, added.fresh, added.again),
                    (step == 0, fresh, len - fresh)
                );
            }
        }
    }

    #[test]
    fn an_extent_is_shared_by_two_files_or_by_two_parts_of_the_same_bytes() {
        let mut extents = Extents::default();
        let mut add = |id, file, begin| {
            let added = extents.add(ExtentId(id), (Ino(file), false), begin, 10);
            added.is_now_shared
        };
        // Two parts of one extent with a gap, as left by an overwrite.
        assert_eq!(
            [add(1, 1, 0), add(1, 1, 20), add(1, 1, 20), add(1, 2, 0)],
            [false, false, true, false]
        );
        assert_eq!(
            [add(2, 1, 0), add(2, 2, 50), add(2, 3, 0)],
            [false, true, false]
        );
        // A second name of the file shares nothing.
        extents.add(ExtentId(3), (Ino(1), false), 0, 10);
        assert!(
            !extents
                .add(ExtentId(3), (Ino(1), true), 0, 10)
                .is_now_shared
        );
    }
}
