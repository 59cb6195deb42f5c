//! FSE tables (RFC 8878, section 4.1): described, built, and searched backwards to encode.

use super::ForwardBits;

/// A normalised distribution: how many of the table's 2^accuracy cells each symbol has; -1 is "less
/// than 1".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) accuracy: u32,
    pub(crate) counts: Vec<i16>,
}

/// The predefined distribution of literal lengths (RFC 8878, section 3.1.1.3.2.2.1).
pub(crate) const LITERAL_LENGTHS: (u32, &[i16]) = (
    6,
    &[
        4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1,
        1, 1, -1, -1, -1, -1,
    ],
);

/// The predefined distribution of match lengths.
pub(crate) const MATCH_LENGTHS: (u32, &[i16]) = (
    6,
    &[
        1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1,
    ],
);

/// The predefined distribution of offset codes.
pub(crate) const OFFSETS: (u32, &[i16]) = (
    5,
    &[
        1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1,
    ],
);

/// What a decoder does in one state: emit `symbol`, then read `bits` and add `base`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) symbol: u8,
    pub(crate) bits: u32,
    pub(crate) base: usize,
}

impl Counts {
    pub(crate) fn new((accuracy, counts): (u32, &[i16])) -> Self {
        Self {
            accuracy,
            counts: counts.to_vec(),
        }
    }

    /// A distribution near the given frequencies that sums to 2^accuracy; symbols of frequency 0
    /// get no cell. Rare symbols get -1. Needs at least two symbols, and fewer of them than cells.
    pub(crate) fn near(accuracy: u32, frequencies: &[u32]) -> Self {
        let size = 1i64 << accuracy;
        let total: i64 = frequencies.iter().map(|f| i64::from(*f)).sum();
        let mut counts: Vec<i16> = frequencies
            .iter()
            .map(|f| match i64::from(*f) * size / total.max(1) {
                _ if *f == 0 => 0,
                0 => -1,
                share => share as i16,
            })
            .collect();
        let sum = |counts: &[i16]| counts.iter().map(|c| i64::from(c.abs())).sum::<i64>();
        while sum(&counts) != size {
            let largest = (0..counts.len())
                .max_by_key(|i| counts[*i])
                .expect("there are symbols");
            let missing = size - sum(&counts);
            assert!(
                missing > 0 || counts[largest] > 1,
                "more symbols than cells"
            );
            counts[largest] = match counts[largest] {
                -1 => 1, // a cell of its own either way
                count => count + if missing > 0 { missing as i16 } else { -1 },
            };
        }
        Self { accuracy, counts }
    }

    /// The description as in a table header: accuracy, then the counts in bits whose number depends
    /// on what is left.
    pub(crate) fn describe(&self) -> Vec<u8> {
        let mut bits = ForwardBits::default();
        self.describe_into(&mut bits);
        bits.bytes()
    }

    fn describe_into(&self, bits: &mut ForwardBits) {
        bits.push(u64::from(self.accuracy.wrapping_sub(5)), 4);
        let mut left = (1i64 << self.accuracy) + 1;
        let mut symbol = 0;
        while left > 1 && symbol < self.counts.len() {
            let count = self.counts[symbol];
            symbol += 1;
            // A value in 0..=left, of which the low ones fit in one bit less.
            let value = i64::from(count) + 1;
            let width = 64 - (left as u64).leading_zeros();
            let threshold = (1i64 << width) - 1 - left;
            if value < threshold {
                bits.push(value as u64, width - 1);
            } else if value < 1 << (width - 1) {
                bits.push(value as u64, width);
            } else {
                bits.push((value + threshold) as u64, width);
            }
            left -= i64::from(count.abs());
            if count == 0 {
                let mut zeros = self.counts[symbol..]
                    .iter()
                    .take_while(|c| **c == 0)
                    .count();
                symbol += zeros;
                while zeros >= 3 {
                    bits.push(3, 2);
                    zeros -= 3;
                }
                bits.push(zeros as u64, 2);
            }
        }
    }

    /// The table.
    pub(crate) fn cells(&self) -> Vec<Cell> {
        let size = 1usize << self.accuracy;
        let mut symbols = vec![None; size];
        let mut end = size;
        for (symbol, count) in self.counts.iter().enumerate() {
            if *count == -1 {
                end -= 1;
                symbols[end] = Some(symbol as u8);
            }
        }
        let mut at = 0;
        for (symbol, count) in self.counts.iter().enumerate() {
            for _ in 0..(*count).max(0) {
                symbols[at] = Some(symbol as u8);
                loop {
                    at = (at + size / 2 + size / 8 + 3) % size;
                    if at < end {
                        break;
                    }
                }
            }
        }
        let mut next: Vec<usize> = self
            .counts
            .iter()
            .map(|c| usize::from(c.unsigned_abs()))
            .collect();
        symbols
            .into_iter()
            .map(|symbol| {
                let symbol = symbol.expect("the counts sum to the size of the table");
                let state = next[usize::from(symbol)];
                next[usize::from(symbol)] += 1;
                let bits = self.accuracy - state.ilog2();
                Cell {
                    symbol,
                    bits,
                    base: (state << bits) - size,
                }
            })
            .collect()
    }

    /// The states that make a decoder emit `symbols`, and with each the bits that lead to the next
    /// one (none after the last). `None` if the table cannot emit one of them. `pick` chooses the
    /// last state among several that will do.
    pub(crate) fn encode(&self, symbols: &[u8], end_with_bits: bool) -> Option<Encoded> {
        let cells = self.cells();
        let mut steps = Vec::new();
        let mut next: Option<usize> = None;
        for symbol in symbols.iter().rev() {
            let fits = |cell: &Cell| {
                cell.symbol == *symbol
                    && match next {
                        Some(next) => (cell.base..cell.base + (1 << cell.bits)).contains(&next),
                        None => !end_with_bits || cell.bits > 0,
                    }
            };
            let state = cells.iter().position(fits)?;
            let bits = next.map_or((0, 0), |next| {
                ((next - cells[state].base) as u64, cells[state].bits)
            });
            steps.push(bits);
            next = Some(state);
        }
        steps.reverse();
        Some(Encoded {
            first: next? as u64,
            steps,
        })
    }
}

/// A row of symbols as states.
pub(crate) struct Encoded {
    /// The first state.
    pub(crate) first: u64,
    /// After each symbol: the bits to read, and how many.
    pub(crate) steps: Vec<(u64, u32)>,
}

#[test]
fn predefined_tables_are_full() {
    for (accuracy, counts) in [LITERAL_LENGTHS, MATCH_LENGTHS, OFFSETS] {
        assert_eq!(counts.iter().map(|c| c.abs()).sum::<i16>(), 1 << accuracy);
    }
}
