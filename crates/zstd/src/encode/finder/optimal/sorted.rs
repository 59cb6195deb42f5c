//! The nearest source for every length, from all positions sorted by what follows them.

use super::candidates::{Candidates, Match};
use super::match_length;
use super::parse::TAIL;
use crate::Error;
use crate::encode::finder::{read32, read64};
use crate::sequences::{offset_code, offset_value};
use crate::workspace::{Carver, Cells};

/// Positions are told in so many bits.
const POSITION_BITS: u32 = 24;
const POSITION_MASK: u64 = (1 << POSITION_BITS) - 1;
/// Bits of a key beside a position.
const KEY_BITS: u32 = 64 - POSITION_BITS;
/// Bytes that a round of sorting compares.
const KEY_BYTES: usize = KEY_BITS as usize / 8;
/// Logarithm of the number of buckets, at most.
const BUCKETS_LOG: u32 = 16;
/// Shortest length of a node.
const LENGTH_MIN: usize = 4;
/// Below this, lengths are exact; from here on sources have at least so many bytes in common.
const EXACT_MAX: usize = 37;
/// Lengths of the nodes beyond.
const DEEP: [usize; 3] = [53, 85, 149];
/// The longest length of a node.
const LENGTH_MAX: usize = 200;
/// Not told apart yet.
const SAME: u64 = 255;
/// Most nodes from a leaf to the root.
const DEPTH_MAX: usize = LENGTH_MAX + 1;

/// All positions of a frame, as the leaves of a tree: two positions meet in a node whose length is that of what they
/// have in common.
///
/// The tree is made once. Then positions are visited in their order; a visit goes from the leaf to the root and leaves
/// the position in each node. So a node always knows the last position that has its bytes: the nearest source for its
/// length.
pub(super) struct Sorted<'a> {
    /// Sorted positions, then nodes: 24 bits of parent, 8 of length, 32 of the last position, plus 1.
    nodes: &'a mut [[u8; 8]],
    nodes_len: usize,
    /// For each position the deepest node that it shares.
    leaves: &'a mut [[u8; 4]],
    /// The last positions of three bytes, plus 1.
    triples: &'a mut [[u8; 4]],
    /// Open nodes while the tree is made.
    open: &'a mut [[u8; 8]; DEPTH_MAX + 1],
    /// Positions from here to there are known.
    next: usize,
    len: usize,
    /// Where a long match begins and ends, and its offset. A later plan may begin before it.
    within: (usize, usize, u32),
    /// Whether what is found is recorded, or told from the record.
    record: Record,
    /// The next cell for a match that is not a position's longest.
    more: usize,
}

/// What to do with a record of all matches.
///
/// The longest match of a position takes the place of its leaf, which has served its turn; the others lie behind the
/// nodes, or are left out when that is full. A match is 17 bits of offset, 14 of length, and whether another one follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Record {
    None,
    Write,
    Read,
}

/// Bits of an offset and of a length in a record, and the bit that says that another match follows.
const RECORD_OFFSET_BITS: u32 = 17;
const RECORD_LENGTH_MAX: u32 = (1 << 14) - 1;
const RECORD_MORE: u32 = 1 << 31;

/// Most positions that can be recorded.
pub(super) const RECORDED_MAX: usize = 1 << RECORD_OFFSET_BITS;

impl<'a> Sorted<'a> {
    /// Bytes of workspace with as many cells as [`Sorted::carve`] is given.
    pub(super) fn bytes(nodes: usize, leaves: usize, triples_log: u8) -> usize {
        8 * nodes + 4 * leaves + (4 << triples_log) + 8 * (DEPTH_MAX + 1)
    }

    /// Takes the tree from a workspace, for as many positions as there are `nodes` and `leaves`, with a table of three
    /// bytes of 2^`triples_log` cells.
    pub(super) fn carve(
        carver: &mut Carver<'a>,
        nodes: usize,
        leaves: usize,
        triples_log: u8,
    ) -> Result<Self, Error> {
        Ok(Sorted {
            nodes: carver.cells(nodes)?,
            nodes_len: 0,
            leaves: carver.cells(leaves)?,
            triples: carver.cells(1 << triples_log)?,
            open: carver.array()?,
            next: 0,
            len: 0,
            within: (0, 0, 0),
            record: Record::None,
            more: 0,
        })
    }

    /// The memory of the nodes, for another use.
    pub(super) fn nodes_memory(&mut self) -> &mut [[u8; 4]] {
        self.nodes_len = 0;
        self.nodes.as_flattened_mut().as_chunks_mut().0
    }

    /// The memory of the leaves. Those of positions that have been looked at may be overwritten if the tree is not
    /// started again.
    pub(super) fn leaves_memory(&mut self) -> &mut [[u8; 4]] {
        self.leaves
    }

    /// Sorts the positions of `data` and makes the tree.
    #[inline(never)]
    pub(super) fn build(&mut self, data: &[u8]) {
        let n = data.len().saturating_sub(TAIL - 1).min(self.leaves.len());
        self.len = n;
        self.sort(data, n);
        self.grow(n);
        self.restart();
    }

    /// Forgets all visits.
    pub(super) fn restart(&mut self) {
        for node in &mut self.nodes[..self.nodes_len] {
            *node = (u64::from_ne_bytes(*node) & !u64::from(u32::MAX)).to_ne_bytes();
        }
        self.triples.fill([0; 4]);
        self.next = 0;
        self.within = (0, 0, 0);
        self.record = Record::None;
    }

    /// Records what is found from here on, for [`Sorted::replay`]. At most [`RECORDED_MAX`] positions are sorted.
    pub(super) fn record(&mut self) {
        self.record = Record::Write;
        self.more = 2 * self.nodes_len;
    }

    /// Whether there is a record. Then the leaves are gone.
    pub(super) fn is_recorded(&self) -> bool {
        self.record != Record::None
    }

    /// Tells the same matches again, from the first position on.
    pub(super) fn replay(&mut self) {
        self.record = Record::Read;
        self.more = 2 * self.nodes_len;
        self.next = 0;
    }

    /// Writes the matches of a position to the record.
    #[inline(always)]
    fn write_record(&mut self, position: usize, candidates: &Candidates<'_>) {
        let pack = |found: Match, more: bool| {
            found.offset
                | found.length.min(RECORD_LENGTH_MAX) << RECORD_OFFSET_BITS
                | if more { RECORD_MORE } else { 0 }
        };
        let range = candidates.pending();
        let cells: &mut [[u8; 4]] = self.nodes.as_flattened_mut().as_chunks_mut().0;
        let more = range.len().saturating_sub(1).min(cells.len() - self.more);
        let first = match range.clone().next_back() {
            Some(last) => pack(candidates.at(last), more > 0),
            None => 0,
        };
        self.leaves.put(position, first);
        for (i, found) in range.rev().skip(1).take(more).enumerate() {
            cells.put(self.more, pack(candidates.at(found), i + 1 < more));
            self.more += 1;
        }
    }

    /// As [`Sorted::fill`], from the record.
    #[inline(always)]
    fn fill_again(&mut self, data: &[u8], end: usize, at: usize, candidates: &mut Candidates<'_>) {
        let cells: &[[u8; 4]] = self.nodes.as_flattened().as_chunks().0;
        candidates.start(at);
        let stop = end.saturating_sub(TAIL - 1).min(self.len);
        while self.next < stop && candidates.has_room() {
            let known = self.next >= at;
            let mut bits = self.leaves.at(self.next);
            loop {
                let offset = bits & (RECORDED_MAX as u32 - 1);
                if known && offset > 0 {
                    let mut length = bits >> RECORD_OFFSET_BITS & RECORD_LENGTH_MAX;
                    if length == RECORD_LENGTH_MAX {
                        let source = self.next - offset as usize;
                        length = match_length(data, self.next, source, end) as u32;
                    }
                    candidates.push_shorter(length, offset);
                }
                if bits & RECORD_MORE == 0 {
                    break;
                }
                bits = cells.at(self.more);
                self.more += 1;
            }
            if known {
                candidates.end_position(true);
            }
            self.next += 1;
        }
        while candidates.end() < end && candidates.end() >= stop && candidates.has_room() {
            candidates.end_position(false);
        }
    }

    fn sort(&mut self, data: &[u8], n: usize) {
        let log = n.max(2).ilog2().min(BUCKETS_LOG);
        let buckets = &mut self.leaves[..1 << log];
        buckets.fill([0; 4]);
        // A product with an odd number keeps four bytes apart: its upper bits choose the bucket, the lower ones begin
        // the key.
        let scramble = |word: u64| (word as u32).wrapping_mul(0x9e37_79b1);
        let words = data
            .windows(8)
            .map(|w| u64::from_le_bytes(w.try_into().unwrap_or_default()));
        for word in words.clone().take(n) {
            let bucket = (scramble(word) >> (32 - log)) as usize;
            let count = buckets.at(bucket) + 1;
            buckets.put(bucket, count);
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
            let place = buckets.at(bucket);
            buckets.put(bucket, place + 1);
            let rest = u64::from(product) & ((1 << rest_bits) - 1);
            let key = rest << (8 * key_bytes) | word.swap_bytes() << 32 >> (64 - 8 * key_bytes);
            let element = key << (POSITION_BITS + spare) | position as u64;
            self.nodes.put(place as usize, element);
        }
        let depth = LENGTH_MIN + key_bytes as usize;
        let mut from = 0;
        for bucket in 0..1 << log {
            let to = self.leaves.at(bucket) as usize;
            if to - from > 1 {
                let aside = self.triples.as_flattened_mut().as_chunks_mut().0;
                Self::sort_bucket(&mut self.nodes[from..to], aside, data, spare, depth);
            } else if to > from {
                let position = self.nodes.at(from) & POSITION_MASK;
                self.nodes.put(from, position);
            }
            from = to;
        }
    }

    /// Sorts a bucket; afterwards each element holds the length that it has in common with the one before.
    fn sort_bucket(
        bucket: &mut [[u8; 8]],
        aside: &mut [[u8; 8]],
        data: &[u8],
        spare: u32,
        depth: usize,
    ) {
        sort(bucket, aside);
        // The key is followed by `spare` zero bits; before its bytes lies what is left of four bytes.
        let mut before = bucket.at(0) >> (POSITION_BITS + spare);
        bucket.put(0, bucket.at(0) & POSITION_MASK);
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
            same = Self::refine(
                bucket,
                aside,
                data,
                depth,
                |position| window(data, position + depth) >> (64 - 8 * step),
                |difference| {
                    let bytes = (64 - difference.leading_zeros()).div_ceil(8) as usize;
                    (depth + step - bytes) as u64
                },
            );
            depth += step;
        }
        for next in DEEP {
            if !same {
                return;
            }
            same = Self::refine(
                bucket,
                aside,
                data,
                depth,
                |position| hash(data, position + depth, position + next),
                |_| depth as u64,
            );
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
    }

    /// Sorts each run of elements that are the same so far by a further key. Returns whether some still are.
    fn refine(
        bucket: &mut [[u8; 8]],
        aside: &mut [[u8; 8]],
        data: &[u8],
        depth: usize,
        key: impl Fn(usize) -> u64,
        length: impl Fn(u64) -> u64,
    ) -> bool {
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
            let run = &mut bucket[from..at];
            let first = run.at(0) & !POSITION_MASK;
            if run.len() <= if depth < EXACT_MAX { FEW } else { FEW_DEEP } {
                sort_few(run, data, depth);
                continue;
            }
            let mut last = 0;
            let mut ascending = true;
            for element in run.iter_mut() {
                let position = u64::from_ne_bytes(*element) & POSITION_MASK;
                let next = key(position as usize) << POSITION_BITS | position;
                ascending &= last <= next;
                last = next;
                *element = next.to_ne_bytes();
            }
            // Where the same goes on for long, all keys are equal, and positions ascend as they are.
            if !ascending {
                sort(run, aside);
            }
            let mut before = run.at(0) >> POSITION_BITS;
            run.put(0, first | (run.at(0) & POSITION_MASK));
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
        same
    }

    /// Makes the tree from the lengths that neighbours have in common.
    ///
    /// There are fewer nodes than elements before: nodes take the places of elements that are done with.
    fn grow(&mut self, n: usize) {
        let mut nodes = 0_usize;
        // The open nodes: length and number, the root first.
        let mut top = 0_usize;
        self.open.put(0, 0);
        let (mut top_length, mut top_node) = (0, 0_u64);
        let mut before = if n > 0 {
            self.nodes.at(0) & POSITION_MASK
        } else {
            0
        };
        for i in 1..=n {
            let element = if i < n { self.nodes.at(i) } else { 0 };
            let length = element >> 56;
            if length > top_length {
                nodes += 1;
                self.nodes.put(nodes - 1, top_node << 40 | length << 32);
                top = (top + 1).min(DEPTH_MAX);
                (top_length, top_node) = (length, nodes as u64);
                self.open.put(top, length << 32 | top_node);
                self.leaves.put(before as usize, top_node as u32);
            } else {
                self.leaves.put(before as usize, top_node as u32);
                while length < top_length {
                    let under = self.open.at(top - 1);
                    if under >> 32 < length {
                        // The node is a child of one that has just come to light.
                        nodes += 1;
                        self.nodes
                            .put(nodes - 1, (under & 0xffff_ffff) << 40 | length << 32);
                        self.nodes.put(
                            top_node as usize - 1,
                            (nodes as u64) << 40 | top_length << 32,
                        );
                        (top_length, top_node) = (length, nodes as u64);
                        self.open.put(top, length << 32 | top_node);
                        break;
                    }
                    top -= 1;
                    (top_length, top_node) = (under >> 32, under & 0xffff_ffff);
                }
            }
            before = element & POSITION_MASK;
        }
        self.nodes_len = nodes;
    }

    /// Visits the positions up to `to` without asking.
    ///
    /// The last one goes first: a node that knows a later position is left as it is, and so is all above it.
    #[inline(always)]
    fn visit(&mut self, data: &[u8], to: usize) {
        for position in (self.next..to).rev() {
            let seen = position as u64 + 1;
            let mut node = self.leaves.at(position);
            while node != 0 {
                let bits = self.nodes.at(node as usize - 1);
                if bits & u64::from(u32::MAX) >= seen {
                    break;
                }
                self.nodes.put(node as usize - 1, bits >> 32 << 32 | seen);
                node = (bits >> 40) as u32;
            }
        }
        for position in self.next..to {
            if self.record == Record::Write {
                self.leaves.put(position, 0);
            }
            let triple = triple(data, position, self.triples.len());
            self.triples.put(triple, position as u32 + 1);
        }
        self.next = self.next.max(to);
    }

    /// Finds the matches of positions from `at` on.
    #[inline(never)]
    pub(super) fn fill(
        &mut self,
        data: &[u8],
        end: usize,
        window: u32,
        at: usize,
        enough: usize,
        candidates: &mut Candidates<'_>,
    ) {
        if self.record == Record::Read {
            self.fill_again(data, end, at, candidates);
            return;
        }
        self.visit(data, at.min(self.len));
        candidates.start(at);
        let mut at = at;
        let stop = end.saturating_sub(TAIL - 1).min(self.len);
        while at < stop && candidates.has_room() {
            if self.within.0 <= at && at < self.within.1 {
                self.visit(data, self.within.1.min(stop));
                let rest = (self.within.1 - at) as u32;
                if rest >= 3 {
                    candidates.push(rest, self.within.2);
                }
                if self.record == Record::Write {
                    self.write_record(at, candidates);
                }
                candidates.end_position(false);
                at += 1;
                continue;
            }
            let mut nearest = 0;
            let mut code = u32::MAX;
            let mut node = self.leaves.at(at);
            while node != 0 {
                let bits = self.nodes.at(node as usize - 1);
                self.nodes
                    .put(node as usize - 1, bits >> 32 << 32 | (at as u64 + 1));
                let source = bits as u32;
                // A position beyond this one was visited for an earlier plan that did not keep it.
                if source > nearest && source as usize <= at {
                    let offset = at as u32 + 1 - source;
                    let offset_code = offset_code(offset_value(offset));
                    if offset_code < code && offset <= window {
                        code = offset_code;
                        let length = (bits >> 32) as usize & 0xff;
                        let length = if length < EXACT_MAX {
                            length.min(end - at)
                        } else {
                            match_length(data, at, source as usize - 1, end)
                        };
                        candidates.push_shorter(length as u32, offset);
                        if length >= enough && at + length > self.within.1 {
                            self.within = (at, at + length, offset);
                        }
                    }
                    nearest = source;
                }
                node = (bits >> 40) as u32;
            }
            let triple = triple(data, at, self.triples.len());
            let source = self.triples.at(triple);
            self.triples.put(triple, at as u32 + 1);
            if source > nearest && source as usize <= at {
                let offset = at as u32 + 1 - source;
                if offset <= window
                    && offset_code(offset_value(offset)) < code
                    && (read32(data, at) ^ read32(data, source as usize - 1)) << 8 == 0
                {
                    candidates.push_shorter(3, offset);
                }
            }
            candidates.turn();
            if self.record == Record::Write {
                self.write_record(at, candidates);
            }
            candidates.end_position(false);
            at += 1;
            self.next = self.next.max(at);
        }
        while at < end && candidates.has_room() {
            candidates.end_position(false);
            at += 1;
        }
    }
}

/// The cell of three bytes, of 2^n `cells`.
#[inline(always)]
fn triple(data: &[u8], at: usize, cells: usize) -> usize {
    let hash = (read32(data, at) << 8).wrapping_mul(0x9e37_79b1);
    (hash >> ((cells as u32 - 1).leading_zeros() & 31)) as usize
}

/// The eight bytes at `at`, the first in the highest place; zero beyond the end.
#[inline(always)]
fn window(data: &[u8], at: usize) -> u64 {
    if at + 8 <= data.len() {
        read64(data, at).swap_bytes()
    } else {
        let rest = data.get(at..).unwrap_or_default();
        rest.iter()
            .fold((0, 64), |(word, shift), byte| {
                (word | u64::from(*byte) << (shift - 8), shift - 8)
            })
            .0
    }
}

/// A hash of the bytes `from..to`, of [`KEY_BITS`] bits.
fn hash(data: &[u8], from: usize, to: usize) -> u64 {
    let mut sum = 0_u64;
    let mut at = from;
    while at < to {
        sum = (sum.rotate_left(29) ^ window(data, at)).wrapping_mul(0x9e37_79b1_85eb_ca87);
        at += 8;
    }
    sum >> (64 - KEY_BITS)
}

/// Up to so many positions are compared byte by byte: the fewer, the less they are known to have in common.
const FEW: usize = 6;
const FEW_DEEP: usize = 48;

/// Sorts a few elements whose bytes are the same up to `depth`. They then hold the lengths that they have in common with
/// the one before.
fn sort_few(run: &mut [[u8; 8]], data: &[u8], depth: usize) {
    let first = run.at(0) & !POSITION_MASK;
    let common = |a: u64, b: u64| {
        let (a, b) = ((a & POSITION_MASK) as usize, (b & POSITION_MASK) as usize);
        let (a, b) = (a.min(b), a.max(b));
        let end = data.len().min(b + LENGTH_MAX);
        let skip = depth.min(end - b);
        skip + match_length(data, b + skip, a + skip, end)
    };
    if let [_, b] = run {
        let element = u64::from_ne_bytes(*b);
        let length = common(first_position(run), element);
        run.put(1, (length as u64) << 56 | (element & POSITION_MASK));
        return;
    }
    for i in 1..run.len() {
        let element = run.at(i) & POSITION_MASK;
        // The place behind all that are not greater.
        let (mut from, mut to) = (0, i);
        while from < to {
            let middle = (from + to) / 2;
            let other = run.at(middle);
            let length = common(other, element);
            let byte = |position: u64| data.get(position as usize + length);
            if byte(other & POSITION_MASK) <= byte(element) {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        run.copy_within(from..i, from + 1);
        run.put(from, element);
    }
    for i in (1..run.len()).rev() {
        let length = common(run.at(i - 1), run.at(i)) as u64;
        let element = run.at(i) & POSITION_MASK;
        run.put(i, length << 56 | element);
    }
    let element = run.at(0) & POSITION_MASK;
    run.put(0, first | element);
}

fn first_position(run: &[[u8; 8]]) -> u64 {
    run.at(0) & POSITION_MASK
}

/// Up to so many elements are sorted by rank.
const RANKED: usize = 16;

/// Sorts ascending. All cells differ. Parts that are no larger than `aside`, whose cells may hold anything, are sorted
/// with its help, which is quicker.
fn sort(cells: &mut [[u8; 8]], aside: &mut [[u8; 8]]) {
    // Parts that are still to be sorted: of each pair the larger one.
    let mut later = [(0_u32, 0_u32); 24];
    let mut waiting = 0;
    let (mut from, mut to) = (0_usize, cells.len());
    // Content that makes for bad pivots must not take long: each cell may be passed so often, on average.
    let mut work = 4 * cells.len() * (cells.len() | 1).ilog2() as usize;
    loop {
        if to - from > RANKED && work < to - from {
            heap_sort(&mut cells[from..to]);
            to = from;
        }
        work = work.saturating_sub(to - from);
        let few = to - from <= RANKED;
        // Equal keys are common, and their positions ascend as they are.
        if few || is_ascending(&cells[from..to]) {
            if few {
                sort_by_rank(&mut cells[from..to]);
            }
            if waiting == 0 {
                return;
            }
            waiting -= 1;
            (from, to) = (later[waiting].0 as usize, later[waiting].1 as usize);
            continue;
        }
        let part = &mut cells[from..to];
        let n = part.len();
        let [a, b, c] = [part.at(0), part.at(n / 2), part.at(n - 1)];
        let pivot = a.max(b).min(a.min(b).max(c));
        let less = if let Some(aside) = aside.get_mut(..n) {
            part_aside(part, pivot, aside)
        } else {
            let mut less = 0;
            for i in 0..n {
                let cell = part.at(i);
                part.put(i, part.at(less));
                part.put(less, cell);
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
        later[waiting] = (large.0 as u32, large.1 as u32);
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

/// Brings the cells that are less than the pivot to the front, and tells how many they are. No load waits for a store.
#[inline(always)]
fn part_aside(part: &mut [[u8; 8]], pivot: u64, aside: &mut [[u8; 8]]) -> usize {
    let (mut less, mut others) = (0, 0);
    for i in 0..part.len().min(aside.len()) {
        let cell = part.at(i);
        part.put(less, cell);
        aside.put(others, cell);
        less += usize::from(cell < pivot);
        others += usize::from(cell >= pivot);
    }
    part[less..].copy_from_slice(&aside[..others]);
    less
}

/// Sorts in a time that does not depend on the order.
#[cold]
fn heap_sort(cells: &mut [[u8; 8]]) {
    let sift = |cells: &mut [[u8; 8]], mut at: usize| {
        while 2 * at + 1 < cells.len() {
            let mut child = 2 * at + 1;
            if child + 1 < cells.len() && cells.at(child + 1) > cells.at(child) {
                child += 1;
            }
            if cells.at(child) <= cells.at(at) {
                return;
            }
            cells.swap(child, at);
            at = child;
        }
    };
    for at in (0..cells.len() / 2).rev() {
        sift(cells, at);
    }
    for end in (1..cells.len()).rev() {
        cells.swap(0, end);
        sift(&mut cells[..end], 0);
    }
}

/// Sorts a few cells: each goes where the number of smaller ones says. No branch depends on their values.
#[inline(always)]
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
                |cells| sort(cells, &mut numbers(1000)),
                |cells| sort(cells, &mut []),
                heap_sort,
            ];
            for sort in sorts {
                let mut cells = numbers(count);
                sort(&mut cells);
                let sorted: Vec<u64> = cells.into_iter().map(u64::from_ne_bytes).collect();
                assert_eq!(sorted, expected);
            }
        }
    }

    /// Each cell passes the pivots a bounded number of times, whatever the order.
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
        sort(&mut cells, &mut []);
        assert!(
            cells
                .windows(2)
                .all(|pair| u64::from_ne_bytes(pair[0]) < u64::from_ne_bytes(pair[1]))
        );
    }
}
