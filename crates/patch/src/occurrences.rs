//! Where the bytes of a match occur before it: most matches copy from the nearest place, so that
//! their offsets need not be in a patch.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use tree::to_usize;

/// Places of three bytes with one hash are linked.
const HASH_LOG: u32 = 15;
/// Links that are followed for a match.
const LINKS_MAX: usize = 256;
/// Before the first place of a hash.
const NONE: u32 = u32::MAX;

/// The places of each three bytes of some content.
#[derive(Default)]
pub(crate) struct Occurrences {
    /// Of each place, the last one before it with the same hash.
    links: Vec<u32>,
    heads: Vec<u32>,
}

impl Occurrences {
    /// Bytes of memory for content of this length.
    pub(crate) const fn bytes(content_bytes: u64) -> u64 {
        content_bytes
            .saturating_add(1 << HASH_LOG)
            .saturating_mul(4)
    }

    /// Links the places of this content.
    pub(crate) fn link(&mut self, content: &[u8]) {
        self.heads.clear();
        self.heads.resize(1 << HASH_LOG, NONE);
        self.links.clear();
        self.links.reserve_exact(content.len());
        for (place, bytes) in (0..NONE).zip(content.windows(3)) {
            let number = (bytes.iter().rev()).fold(0u32, |it, byte| it << 8 | u32::from(*byte));
            let hash = number.wrapping_mul(0x9e37_79b1);
            let head = self
                .heads
                .get_mut(to_usize(u64::from(hash >> (32 - HASH_LOG))));
            let before = head.map_or(NONE, |head| std::mem::replace(head, place));
            self.links.push(before);
        }
    }

    /// The offsets at which the `length` bytes at `at` occur before: the last three offsets, then
    /// the others from the nearest place on.
    pub(crate) fn offsets<'a>(
        &'a self,
        content: &'a [u8],
        late: [u32; 3],
        at: u32,
        length: u32,
    ) -> impl Iterator<Item = u32> + 'a {
        let link = |place: u32| self.links.get(to_usize(u64::from(place))).copied();
        let next = move |place: &u32| link(*place).filter(|place| *place != NONE);
        let places = std::iter::successors(next(&at), next).take(LINKS_MAX);
        let others = places.map(move |place| at.saturating_sub(place));
        let others = others.filter(move |offset| !late.contains(offset));
        let bytes = move |from: u32| {
            let from = to_usize(u64::from(from));
            content.get(from..from.checked_add(to_usize(u64::from(length)))?)
        };
        let here = bytes(at);
        (late.into_iter().chain(others)).filter(move |offset| {
            let from = at.checked_sub(*offset).filter(|_| *offset > 0);
            match (from.and_then(bytes), here) {
                // Most places of a hash differ in the last byte: that is the cheaper question.
                (Some(there), Some(here)) => there.last() == here.last() && there == here,
                _ => false,
            }
        })
    }
}

/// The last three offsets, of which each is there once, the latest first.
pub(crate) fn pass_offset(late: &mut [u32; 3], offset: u32) {
    let known = late.iter().position(|it| *it == offset).unwrap_or(2);
    if let Some(passed) = late.get_mut(..=known) {
        passed.rotate_right(1);
    }
    late[0] = offset;
}
