//! Finds where bytes like those of a piece are, by hashes at places that the content chooses.

/// The mean distance of anchors in bytes, as a power of two.
const SPACING_LOG: u32 = 8;
/// The hash covers 32 bytes: older ones have left its lower half. An anchor is a place where these
/// bits are zero.
const CHOICE: u64 = ((1 << SPACING_LOG) - 1) << (32 - SPACING_LOG);

/// A number for each byte, as a gear hash adds them.
const GEAR: [u64; 256] = gear();

const fn gear() -> [u64; 256] {
    let mut gear = [0; 256];
    let mut state = 1u64;
    let mut byte = 0;
    while byte < 256 {
        // splitmix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        gear[byte] = mixed ^ (mixed >> 31);
        byte += 1;
    }
    gear
}

/// A place in content, and a hash of the 32 bytes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Anchor {
    pub(crate) key: u32,
    pub(crate) offset: u32,
}

/// The anchors of content. Of equal ones behind each other, as in repeated bytes, only the first
/// counts.
pub(crate) fn anchors(content: &[u8]) -> Vec<Anchor> {
    let mut anchors: Vec<Anchor> = Vec::new();
    let mut hash = 0u64;
    for (at, byte) in content.iter().enumerate() {
        hash = (hash << 1).wrapping_add(GEAR[usize::from(*byte)]);
        if hash & CHOICE == 0 && at >= 31 {
            let key = (((hash & 0xffff_ffff).wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 32) as u32;
            if anchors.last().is_none_or(|last| last.key != key) {
                let offset = at as u32 + 1;
                anchors.push(Anchor { key, offset });
            }
        }
    }
    anchors
}

/// Where the content of a file has anchors: 12 bytes for each, sorted by key.
#[derive(Default)]
pub(crate) struct AnchorIndex {
    entries: Vec<Entry>,
    /// Where the keys begin whose upper 16 bits are that number.
    starts: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    key: u32,
    pub(crate) segment: u32,
    /// The place behind the hashed bytes in the content of the segment.
    pub(crate) offset: u32,
}

impl AnchorIndex {
    pub(crate) fn add(&mut self, segment: u32, anchors: &[Anchor]) {
        self.entries.extend(anchors.iter().map(|anchor| Entry {
            key: anchor.key,
            segment,
            offset: anchor.offset,
        }));
    }

    /// Ends the additions. Of equal keys, the first one stays.
    pub(crate) fn sort(&mut self) {
        self.entries
            .sort_unstable_by_key(|entry| (entry.key, entry.segment, entry.offset));
        self.entries.dedup_by_key(|entry| entry.key);
        self.entries.shrink_to_fit();
        self.starts = vec![0; (1 << 16) + 1];
        for entry in &self.entries {
            self.starts[(entry.key >> 16) as usize + 1] += 1;
        }
        for at in 1..self.starts.len() {
            self.starts[at] += self.starts[at - 1];
        }
    }

    pub(crate) fn find(&self, key: u32) -> Option<Entry> {
        let bucket = (key >> 16) as usize;
        let range = self.starts[bucket] as usize..self.starts[bucket + 1] as usize;
        let entries = &self.entries[range];
        let found = entries.binary_search_by_key(&key, |entry| entry.key);
        found.ok().map(|at| entries[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Rng;

    #[test]
    fn shifted_content_has_the_same_anchors() {
        let content = Rng::new(3).bytes(200_000);
        let mut index = AnchorIndex::default();
        index.add(7, &anchors(&content));
        index.sort();
        let shifted = [b"in front", &content[50_000..]].concat();
        let found = anchors(&shifted);
        assert!((400..900).contains(&found.len()), "{}", found.len());
        let hits = found.iter().filter(|anchor| {
            let entry = index.find(anchor.key);
            entry.is_some_and(|it| it.segment == 7 && it.offset == anchor.offset + 49_992)
        });
        assert!(hits.count() + 1 >= found.len());
        assert!(anchors(&[0; 100_000]).len() <= 1);
    }
}
