//! The order of positions by the bytes that follow them, and how many of those two neighbours have
//! in common.

use super::sort::sort;
use crate::checked::{Checked, CheckedSlice};
use crate::encode::finder::index::{match_length, read64};
use crate::workspace::Cells;

/// Bits of a position.
const POSITION_BITS: u32 = 24;
pub(super) const POSITION_MASK: u64 = (1 << POSITION_BITS) - 1;
/// Bits of a key beside a position.
const KEY_BITS: u32 = 64 - POSITION_BITS;
/// Bytes that a round of sorting compares.
const KEY_BYTES: usize = KEY_BITS as usize / 8;
/// Logarithm of the number of buckets, at most.
const BUCKETS_LOG: u32 = 16;
/// Shortest length of a node.
const LENGTH_MIN: usize = 4;
/// Below this, lengths are exact; from this length, candidates have at least that many bytes in
/// common.
pub(super) const EXACT_MAX: usize = 37;
/// Lengths of the nodes beyond.
const DEEP: [usize; 3] = [53, 85, 149];
/// The longest length of a node.
pub(super) const LENGTH_MAX: usize = 200;
/// Not told apart yet.
const SAME: u64 = 255;

/// Sorts the first `n` positions of `data`. Each of `sorted` then holds a position and, in the
/// highest eight bits, the length that it has in common with the one before.
///
/// `buckets` and `aside` may hold anything; the more there is `aside`, the quicker.
#[inline(never)]
pub(super) fn sort_positions(
    sorted: &mut [[u8; 8]],
    buckets: &mut [[u8; 4]],
    aside: &mut [[u8; 8]],
    data: &[u8],
    n: usize,
) -> Checked<()> {
    let log = n.max(2).ilog2().min(BUCKETS_LOG);
    let buckets = buckets.checked_mut(..1 << log)?;
    buckets.fill([0; 4]);
    // A product with an odd number keeps four bytes apart: its upper bits choose the bucket, the
    // lower ones begin the key.
    let scramble = |word: u64| (word as u32).wrapping_mul(0x9e37_79b1);
    let words = data
        .windows(8)
        .map(|w| u64::from_le_bytes(w.try_into().unwrap_or_default()));
    for word in words.clone().take(n) {
        let bucket = (scramble(word) >> (32 - log)) as usize;
        let count = buckets.checked_at(bucket)? + 1;
        buckets.checked_put(bucket, count)?;
    }
    let mut sum = 0;
    for bucket in buckets.iter_mut() {
        let count = u32::from_ne_bytes(*bucket);
        *bucket = u32::to_ne_bytes(sum);
        sum += count;
    }
    let rest_bits = 32 - log;
    let key_bytes = (KEY_BITS - rest_bits) / 8;
    let spare = KEY_BITS - rest_bits - 8 * key_bytes;
    for (position, word) in words.take(n).enumerate() {
        let product = scramble(word);
        let bucket = (product >> rest_bits) as usize;
        let place = buckets.checked_at(bucket)?;
        buckets.checked_put(bucket, place + 1)?;
        let rest = u64::from(product) & ((1 << rest_bits) - 1);
        let key = rest << (8 * key_bytes) | word.swap_bytes() << 32 >> (64 - 8 * key_bytes);
        let element = key << (POSITION_BITS + spare) | position as u64;
        sorted.checked_put(place as usize, element)?;
    }
    let depth = LENGTH_MIN + key_bytes as usize;
    let mut from = 0;
    for bucket in 0..1 << log {
        let to = buckets.checked_at(bucket)? as usize;
        if to - from > 1 {
            let bucket = sorted.checked_mut(from..to)?;
            sort_bucket(bucket, aside, data, spare, depth)?;
        } else if to > from {
            let position = sorted.checked_at(from)? & POSITION_MASK;
            sorted.checked_put(from, position)?;
        }
        from = to;
    }
    Ok(())
}

/// Sorts a bucket; afterwards each element holds the length that it has in common with the one
/// before.
fn sort_bucket(
    bucket: &mut [[u8; 8]],
    aside: &mut [[u8; 8]],
    data: &[u8],
    spare: u32,
    depth: usize,
) -> Checked<()> {
    sort(bucket, aside)?;
    // The key is followed by `spare` zero bits; before its bytes lies the rest of four bytes.
    let first = bucket.checked_at(0)?;
    let mut before = first >> (POSITION_BITS + spare);
    bucket.checked_put(0, first & POSITION_MASK)?;
    let mut same = false;
    for i in 1..bucket.len() {
        let element = bucket.at(i);
        let key = element >> (POSITION_BITS + spare);
        let length = if key == before {
            same = true;
            SAME
        } else {
            let bytes = (64 - (key ^ before).leading_zeros()).div_ceil(8) as usize;
            if bytes > depth - LENGTH_MIN {
                0
            } else {
                (depth - bytes) as u64
            }
        };
        before = key;
        bucket.put(i, length << 56 | (element & POSITION_MASK));
    }
    let mut depth = depth;
    while same && depth < EXACT_MAX {
        let step = KEY_BYTES.min(EXACT_MAX - depth);
        same = refine(
            bucket,
            aside,
            data,
            depth,
            |position| Ok(window(data, position + depth)? >> (64 - 8 * step)),
            |difference| {
                let bytes = (64 - difference.leading_zeros()).div_ceil(8) as usize;
                (depth + step - bytes) as u64
            },
        )?;
        depth += step;
    }
    for next in DEEP {
        if !same {
            return Ok(());
        }
        same = refine(
            bucket,
            aside,
            data,
            depth,
            |position| hash(data, position + depth, position + next),
            |_| depth as u64,
        )?;
        depth = next;
    }
    if same {
        for i in 0..bucket.len() {
            let element = bucket.at(i);
            if element >> 56 == SAME {
                bucket.put(i, (depth as u64) << 56 | (element & POSITION_MASK));
            }
        }
    }
    Ok(())
}

/// Sorts each run of elements that are the same so far by a further key. Returns whether some still
/// are.
fn refine(
    bucket: &mut [[u8; 8]],
    aside: &mut [[u8; 8]],
    data: &[u8],
    depth: usize,
    key: impl Fn(usize) -> Checked<u64>,
    length: impl Fn(u64) -> u64,
) -> Checked<bool> {
    let mut same = false;
    let mut at = 1;
    while at < bucket.len() {
        if bucket.at(at) >> 56 != SAME {
            at += 1;
            continue;
        }
        let from = at - 1;
        while at < bucket.len() && bucket.at(at) >> 56 == SAME {
            at += 1;
        }
        let run = bucket.checked_mut(from..at)?;
        let first = run.checked_at(0)? & !POSITION_MASK;
        if run.len() <= if depth < EXACT_MAX { FEW } else { FEW_DEEP } {
            sort_few(run, data, depth)?;
            continue;
        }
        let mut last = 0;
        let mut ascending = true;
        for element in run.iter_mut() {
            let position = u64::from_ne_bytes(*element) & POSITION_MASK;
            let next = key(position as usize)? << POSITION_BITS | position;
            ascending &= last <= next;
            last = next;
            *element = next.to_ne_bytes();
        }
        // Where the same goes on for long, all keys are equal, and positions ascend as they are.
        if !ascending {
            sort(run, aside)?;
        }
        let least = run.checked_at(0)?;
        let mut before = least >> POSITION_BITS;
        run.checked_put(0, first | (least & POSITION_MASK))?;
        for i in 1..run.len() {
            let element = run.at(i);
            let key = element >> POSITION_BITS;
            let common = if key == before {
                same = true;
                SAME
            } else {
                length(key ^ before)
            };
            before = key;
            run.put(i, common << 56 | (element & POSITION_MASK));
        }
    }
    Ok(same)
}

/// The eight bytes at `at`, the first in the highest place; zero beyond the end.
#[inline(always)]
fn window(data: &[u8], at: usize) -> Checked<u64> {
    Ok(if at + 8 <= data.len() {
        read64(data, at)?.swap_bytes()
    } else {
        let rest = data.get(at..).unwrap_or_default();
        rest.iter()
            .fold((0, 64), |(word, shift), byte| {
                (word | u64::from(*byte) << (shift - 8), shift - 8)
            })
            .0
    })
}

/// A hash of the bytes `from..to`, of [`KEY_BITS`] bits.
fn hash(data: &[u8], from: usize, to: usize) -> Checked<u64> {
    let mut sum = 0_u64;
    let mut at = from;
    while at < to {
        sum = (sum.rotate_left(29) ^ window(data, at)?).wrapping_mul(0x9e37_79b1_85eb_ca87);
        at += 8;
    }
    Ok(sum >> (64 - KEY_BITS))
}

/// The most positions that are compared byte by byte; fewer where they are known to have less in
/// common.
const FEW: usize = 6;
const FEW_DEEP: usize = 48;

/// Sorts a few elements whose bytes are the same up to `depth`. They then hold the lengths that
/// they have in common with the one before.
fn sort_few(run: &mut [[u8; 8]], data: &[u8], depth: usize) -> Checked<()> {
    let first = run.checked_at(0)? & !POSITION_MASK;
    let common = |a: u64, b: u64| {
        let (a, b) = ((a & POSITION_MASK) as usize, (b & POSITION_MASK) as usize);
        let (a, b) = (a.min(b), a.max(b));
        let end = data.len().min(b + LENGTH_MAX);
        let skip = depth.min(end - b);
        Ok(skip + match_length(data, b + skip, a + skip, end)?)
    };
    if let [a, b] = run {
        let element = u64::from_ne_bytes(*b);
        let length = common(u64::from_ne_bytes(*a), element)?;
        *b = ((length as u64) << 56 | (element & POSITION_MASK)).to_ne_bytes();
        return Ok(());
    }
    for i in 1..run.len() {
        let element = run.at(i) & POSITION_MASK;
        // The place after all that are not greater.
        let (mut from, mut to) = (0, i);
        while from < to {
            let middle = (from + to) / 2;
            let other = run.checked_at(middle)?;
            let length = common(other, element)?;
            let byte = |position: u64| data.get(position as usize + length);
            if byte(other & POSITION_MASK) <= byte(element) {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        run.checked_copy_within(from..i, from + 1)?;
        run.checked_put(from, element)?;
    }
    for i in (1..run.len()).rev() {
        let length = common(run.at(i - 1), run.at(i))? as u64;
        let element = run.at(i) & POSITION_MASK;
        run.put(i, length << 56 | element);
    }
    let element = run.checked_at(0)? & POSITION_MASK;
    run.checked_put(0, first | element)
}
