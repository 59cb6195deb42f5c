//! The sums of a walk, and the share of each part of a file.

use std::collections::HashMap;

use super::extents::Extents;
use super::{Amount, StoredPart, Totals};
use crate::{ExtentId, Ino};

/// The sums of a walk.
#[derive(Debug, Default)]
pub(super) struct Sums {
    pub(super) totals: Totals,
    extents: Extents,
    fragments: HashMap<ExtentId, Fragment>,
}

/// A fragment block.
#[derive(Clone, Copy, Debug, Default)]
struct Fragment {
    /// Bytes of its content that files refer to; 0 while these are counted.
    content: u64,
    /// Those of them that the walk has met.
    covered: u64,
}

impl Fragment {
    /// The part of the stored bytes for content that was not met before. The parts of all content
    /// add up to all stored bytes.
    fn part(&mut self, stored: u64, fresh: u64) -> u64 {
        let before = self.share(stored);
        self.covered = self.covered.saturating_add(fresh);
        self.share(stored).saturating_sub(before)
    }

    fn share(&self, stored: u64) -> u64 {
        let product = u128::from(stored).saturating_mul(self.covered.into());
        let share = product.checked_div(self.content.into()).unwrap_or(0);
        u64::try_from(share).unwrap_or(stored)
    }
}

impl Sums {
    /// Empty sums for a second walk, which knows how much content the fragment blocks have.
    pub(super) fn with_fragments(self) -> Sums {
        let mut fragments = self.fragments;
        for fragment in fragments.values_mut() {
            fragment.content = std::mem::take(&mut fragment.covered);
        }
        Sums {
            fragments,
            ..Sums::default()
        }
    }

    /// Adds a name of a regular file.
    pub(super) fn add_file(&mut self, size: u64) {
        self.totals.files += 1;
        self.totals.content_bytes = self.totals.content_bytes.saturating_add(size);
    }

    /// Adds a part of a file, which may have been met under another name. Returns the addition.
    pub(super) fn add(&mut self, file: (Ino, bool), part: &StoredPart) -> Amount {
        let totals = &mut self.totals;
        match *part {
            StoredPart::Hole(len) => {
                totals.hole_bytes = totals.hole_bytes.saturating_add(len);
                Amount::default()
            }
            StoredPart::Inline { form, stored, len } => {
                let amount = Amount {
                    extents: 1,
                    references: 1,
                    stored,
                    decoded: len,
                    referenced: len,
                };
                totals.form(form).add(&amount);
                totals.inline.add(&amount);
                amount
            }
            StoredPart::Extent {
                form,
                id,
                stored,
                decoded,
                begin,
                len,
                is_fragment,
            } => {
                let mut amount = Amount {
                    extents: 1,
                    references: 1,
                    stored: stored.unwrap_or(len),
                    decoded: decoded.unwrap_or(len),
                    referenced: len,
                };
                match id {
                    Some(id) if is_fragment => self.add_tail(id, file, begin, &mut amount),
                    Some(id) => self.add_known(id, file, (begin, stored, decoded), &mut amount),
                    None => {
                        let rest = amount.decoded.saturating_sub(len);
                        totals.unreferenced_bytes = totals.unreferenced_bytes.saturating_add(rest);
                    }
                }
                self.totals.form(form).add(&amount);
                if is_fragment {
                    self.totals.fragments.add(&amount);
                }
                amount
            }
        }
    }

    /// Adds a reference to an extent. `amount` is its addition if it is the first one.
    fn add_known(
        &mut self,
        id: ExtentId,
        file: (Ino, bool),
        (begin, stored, decoded): (u64, Option<u64>, Option<u64>),
        amount: &mut Amount,
    ) {
        let added = self.extents.add(id, file, begin, amount.referenced);
        let totals = &mut self.totals;
        if added.is_now_shared {
            let shared = stored.unwrap_or(added.again);
            totals.shared_bytes = totals.shared_bytes.saturating_add(shared);
        }
        if let Some(decoded) = decoded {
            let whole = if added.is_new { decoded } else { 0 };
            let before = totals.unreferenced_bytes.saturating_add(whole);
            totals.unreferenced_bytes = before.saturating_sub(added.fresh);
        }
        if !added.is_new {
            amount.extents = 0;
            amount.stored = stored.map_or(added.fresh, |_| 0);
            amount.decoded = decoded.map_or(added.fresh, |_| 0);
        }
    }

    /// Adds a tail in a fragment block: its part of the block.
    fn add_tail(&mut self, id: ExtentId, file: (Ino, bool), begin: u64, amount: &mut Amount) {
        let added = self.extents.add(id, file, begin, amount.referenced);
        let fragment = self.fragments.entry(id).or_default();
        amount.extents = added.is_new.into();
        amount.stored = fragment.part(amount.stored, added.fresh);
        amount.decoded = added.fresh;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::StorageForm;

    const FILE: (Ino, bool) = (Ino(1), false);

    fn extent(form: StorageForm, begin: u64, len: u64, is_fragment: bool) -> StoredPart {
        StoredPart::Extent {
            form,
            id: Some(ExtentId(9)),
            stored: Some(1001),
            decoded: (!is_fragment).then_some(4096),
            begin,
            len,
            is_fragment,
        }
    }

    #[test]
    fn an_extent_counts_once_and_each_reference_to_it() {
        let mut sums = Sums::default();
        let zstd = StorageForm::Encoded("zstd");
        let first = sums.add(FILE, &extent(zstd, 0, 1000, false));
        assert_eq!(
            (first.stored, first.decoded, first.referenced),
            (1001, 4096, 1000)
        );
        assert_eq!(sums.totals.unreferenced_bytes, 3096);
        let second = sums.add((Ino(2), false), &extent(zstd, 500, 1000, false));
        assert_eq!(
            (second.stored, second.decoded, second.referenced),
            (0, 0, 1000)
        );
        let expected = Amount {
            extents: 1,
            references: 2,
            stored: 1001,
            decoded: 4096,
            referenced: 2000,
        };
        assert_eq!(sums.totals.forms, [(zstd, expected)]);
        assert_eq!(sums.totals.unreferenced_bytes, 2596);
        assert_eq!(sums.totals.shared_bytes, 1001);
    }

    #[test]
    fn tails_take_their_parts_of_a_fragment_block() {
        let tails = [(0, 10), (10, 333), (343, 1), (343, 1), (344, 700)];
        let mut sums = Sums::default();
        for round in 0..2 {
            let added = tails.map(|(begin, len)| {
                sums.add(FILE, &extent(StorageForm::Plain, begin, len, true))
                    .stored
            });
            if round == 1 {
                assert_eq!(added.iter().sum::<u64>(), 1001);
                // 10 / 1044 and 700 / 1044 of it; what was met takes nothing.
                assert_eq!((added[0], added[3], added[4]), (9, 0, 672));
                assert_eq!(sums.totals.fragments.stored, 1001);
                assert_eq!(sums.totals.fragments.decoded, 1044);
                assert_eq!(sums.totals.fragments.extents, 1);
            }
            sums = if round == 0 {
                sums.with_fragments()
            } else {
                sums
            };
        }
    }
}
