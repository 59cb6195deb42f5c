//! Sets of address ranges.

/// Lists are sorted and joined when they have grown to twice what was left the time before, and to
/// more than this.
const KEPT_MIN: usize = 1 << 12;

/// Ranges that are added in any order and may repeat. Memory grows with the number of ranges that
/// do not touch.
#[derive(Default)]
pub(super) struct Ranges {
    /// Start and end of each.
    list: Vec<(u64, u64)>,
    /// How many were left when they were last joined.
    kept: usize,
}

impl Ranges {
    /// Adds the range from `start` to `end`, exclusive.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        self.list.push((start, end));
        if self.list.len() > self.kept.saturating_mul(2).max(KEPT_MIN) {
            join(&mut self.list);
            self.kept = self.list.len();
        }
    }

    /// All ranges: sorted, and those that touch joined.
    pub(super) fn into_joined(mut self) -> Vec<(u64, u64)> {
        join(&mut self.list);
        self.list
    }
}

/// The end of the range that contains `at`; 0 if there is none.
pub(super) fn end_in(ranges: &[(u64, u64)], at: u64) -> u64 {
    let index = ranges.partition_point(|range| range.0 <= at);
    let range = index.checked_sub(1).map(|index| ranges[index]);
    range.map_or(0, |(_, end)| if end > at { end } else { 0 })
}

/// Sorts ranges and joins those that touch.
pub(super) fn join(ranges: &mut Vec<(u64, u64)>) {
    ranges.sort_unstable();
    ranges.dedup_by(|next, range| {
        let touches = next.0 <= range.1;
        if touches {
            range.1 = range.1.max(next.1);
        }
        touches
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_joined_and_found() {
        let mut ranges = vec![(30, 40), (10, 20), (20, 25), (12, 15)];
        join(&mut ranges);
        assert_eq!(ranges, [(10, 25), (30, 40)]);
        let ends = [9, 10, 24, 25, 30, 40].map(|at| end_in(&ranges, at));
        assert_eq!(ends, [0, 25, 25, 0, 40, 0]);
    }

    /// A hostile log may name the same blocks in any number of its trees.
    #[test]
    fn ranges_that_repeat_take_no_memory() {
        let mut ranges = Ranges::default();
        for turn in 0..1_000_000 {
            let start = turn % 100 * 10;
            ranges.add(start, start + 5);
        }
        assert!(ranges.list.capacity() < 1 << 15);
        let joined = ranges.into_joined();
        assert_eq!((joined.len(), joined[99]), (100, (990, 995)));
    }
}
