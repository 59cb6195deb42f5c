//! Sorting of numbers in bytes: where most are in order already, and where a few are, as well as
//! where nothing is.

use crate::checked::{Checked, CheckedSlice};
use crate::workspace::Cells;

/// The most elements that are sorted by rank.
const RANKED: usize = 16;

/// Sorts ascending. All cells differ. Parts that are no larger than `aside`, whose cells may hold
/// anything, are sorted with its help, which is quicker.
#[inline(always)]
pub(super) fn sort(cells: &mut [[u8; 8]], aside: &mut [[u8; 8]]) -> Checked<()> {
    if cells.len() <= RANKED {
        sort_by_rank(cells);
        Ok(())
    } else {
        sort_parts(cells, aside)
    }
}

/// Sorts part by part, until each has few cells or is in order.
#[inline(never)]
fn sort_parts(cells: &mut [[u8; 8]], aside: &mut [[u8; 8]]) -> Checked<()> {
    // Parts that are still to be sorted: of each pair the larger one.
    let mut later = [(0_u32, 0_u32); 24];
    let mut waiting = 0;
    let (mut from, mut to) = (0_usize, cells.len());
    // Content that makes for bad pivots must not take long: each cell may be passed so often, on
    // average.
    let mut work = 4 * cells.len() * (cells.len() | 1).ilog2() as usize;
    loop {
        if to - from > RANKED && work < to - from {
            heap_sort(cells.checked_mut(from..to)?)?;
            to = from;
        }
        work = work.saturating_sub(to - from);
        let few = to - from <= RANKED;
        // Equal keys are common, and their positions ascend as they are.
        if few || is_ascending(cells.checked(from..to)?) {
            if few {
                sort_by_rank(cells.checked_mut(from..to)?);
            }
            if waiting == 0 {
                return Ok(());
            }
            waiting -= 1;
            let next = later.checked(waiting)?;
            (from, to) = (next.0 as usize, next.1 as usize);
            continue;
        }
        let part = cells.checked_mut(from..to)?;
        let n = part.len();
        let (a, b) = (part.checked_at(0)?, part.checked_at(n / 2)?);
        let c = part.checked_at(n - 1)?;
        let pivot = a.max(b).min(a.min(b).max(c));
        let less = if let Some(aside) = aside.get_mut(..n) {
            part_aside(part, pivot, aside)?
        } else {
            let mut less = 0;
            for i in 0..n {
                let cell = part.at(i);
                part.put(i, part.checked_at(less)?);
                part.checked_put(less, cell)?;
                less += usize::from(cell < pivot);
            }
            less
        };
        let middle = from + less;
        let (small, large) = if less < n - less {
            ((from, middle), (middle, to))
        } else {
            ((middle, to), (from, middle))
        };
        *later.checked_mut(waiting)? = (large.0 as u32, large.1 as u32);
        waiting += 1;
        (from, to) = small;
    }
}

/// Whether the cells are sorted already.
fn is_ascending(cells: &[[u8; 8]]) -> bool {
    cells
        .windows(2)
        .all(|pair| u64::from_ne_bytes(pair[0]) < u64::from_ne_bytes(pair[1]))
}

/// Moves the cells less than the pivot to the start, and returns their number. No load waits for a
/// store.
#[inline(always)]
fn part_aside(part: &mut [[u8; 8]], pivot: u64, aside: &mut [[u8; 8]]) -> Checked<usize> {
    let (mut less, mut others) = (0, 0);
    for i in 0..part.len().min(aside.len()) {
        let cell = part.at(i);
        part.checked_put(less, cell)?;
        aside.checked_put(others, cell)?;
        less += usize::from(cell < pivot);
        others += usize::from(cell >= pivot);
    }
    let rest = part.checked_mut(less..)?;
    rest.checked_copy(aside.checked(..others)?)?;
    Ok(less)
}

/// Sorts in a time that does not depend on the order.
#[cold]
fn heap_sort(cells: &mut [[u8; 8]]) -> Checked<()> {
    let sift = |cells: &mut [[u8; 8]], mut at: usize| {
        while 2 * at + 1 < cells.len() {
            let mut child = 2 * at + 1;
            if child + 1 < cells.len() && cells.at(child + 1) > cells.checked_at(child)? {
                child += 1;
            }
            if cells.checked_at(child)? <= cells.checked_at(at)? {
                return Ok(());
            }
            cells.swap(child, at);
            at = child;
        }
        Ok(())
    };
    for at in (0..cells.len() / 2).rev() {
        sift(cells, at)?;
    }
    for end in (1..cells.len()).rev() {
        cells.swap(0, end);
        sift(cells.checked_mut(..end)?, 0)?;
    }
    Ok(())
}

/// Sorts a few cells: each goes where the number of smaller ones says. No branch depends on their
/// values.
#[inline(never)]
fn sort_by_rank(cells: &mut [[u8; 8]]) {
    let n = cells.len();
    if n == 2 {
        let [a, b] = [cells.at(0), cells.at(1)];
        cells.put(0, a.min(b));
        cells.put(1, a.max(b));
        return;
    }
    if n > RANKED {
        return;
    }
    let mut values = [0_u64; RANKED];
    for (value, cell) in values.iter_mut().zip(cells.iter()) {
        *value = u64::from_ne_bytes(*cell);
    }
    for i in 0..n {
        let value = values[i];
        let mut rank = 0;
        for other in &values[..n] {
            rank += usize::from(*other < value);
        }
        cells.put(rank.min(n - 1), value);
    }
}

#[cfg(test)]
mod tests {
    use super::{heap_sort, sort};
    use std::vec::Vec;

    fn numbers(count: u64) -> Vec<[u8; 8]> {
        (0..count)
            .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ i).to_ne_bytes())
            .collect()
    }

    #[test]
    fn all_sorts_agree() {
        for count in [0, 1, 2, 3, 15, 16, 17, 100, 5000] {
            let mut expected: Vec<u64> =
                numbers(count).into_iter().map(u64::from_ne_bytes).collect();
            expected.sort_unstable();
            let sorts: [fn(&mut [[u8; 8]]); 3] = [
                |cells| sort(cells, &mut numbers(1000)).unwrap(),
                |cells| sort(cells, &mut []).unwrap(),
                |cells| heap_sort(cells).unwrap(),
            ];
            for sort in sorts {
                let mut cells = numbers(count);
                sort(&mut cells);
                let sorted: Vec<u64> = cells.into_iter().map(u64::from_ne_bytes).collect();
                assert_eq!(sorted, expected);
            }
        }
    }

    /// Each cell passes the pivots a bounded number of times, in any order.
    #[test]
    fn bad_pivots_end_in_a_heap_sort() {
        // Values that rise to the middle and fall again keep the median of three near an end.
        let count = 1 << 14;
        let mut cells: Vec<[u8; 8]> = (0..count)
            .map(|i: u64| {
                (if i < count / 2 {
                    2 * i
                } else {
                    2 * (count - i) - 1
                })
                .to_ne_bytes()
            })
            .collect();
        sort(&mut cells, &mut []).unwrap();
        assert!(
            cells
                .windows(2)
                .all(|pair| u64::from_ne_bytes(pair[0]) < u64::from_ne_bytes(pair[1]))
        );
    }
}
