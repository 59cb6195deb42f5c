//! Tables for encoding, and their descriptions in a frame.

use super::{spread_step, undo_step};
use crate::bits::BitWriter;
use crate::checked::{Checked, CheckedSlice};
use crate::workspace::{Carver, Cells};

/// Largest accuracy of a table that this encoder makes, as a logarithm.
pub(crate) const ENCODER_LOG_MAX: u32 = 9;
const STATES: usize = 1 << ENCODER_LOG_MAX;
/// Symbols that a table has room for.
const SYMBOLS: usize = 64;
/// Fractions of a bit in which costs are counted.
pub(crate) const COST_ONE: u32 = 256;

/// Base-2 logarithms in 1/256 bit of 256/i, rounded: the cost of a symbol of probability i/256.
pub(crate) static COSTS: [u16; 257] = {
    let mut costs = [0; 257];
    let mut i = 1;
    while i <= 256 {
        // Square a number between 1 and 2, ten times: its logarithm's digits.
        let mut whole = 0;
        while i >> (whole + 1) != 0 {
            whole += 1;
        }
        let mut x = (i as u64) << (32 - whole);
        let mut log = whole as u64;
        let mut digit = 0;
        while digit < 10 {
            x = ((x as u128 * x as u128) >> 32) as u64;
            log *= 2;
            if x >> 33 != 0 {
                x >>= 1;
                log += 1;
            }
            digit += 1;
        }
        costs[i] = ((8 * 1024 - log + 2) / 4) as u16;
        i += 1;
    }
    costs[0] = costs[1];
    costs
};

/// A table for encoding: a state for each symbol and number, and how to get there.
pub(crate) struct FseEncoder<'a> {
    table: &'a mut FseTable,
}

/// For each symbol eight bytes: in the low half the number to add to a state so that its upper 16
/// bits are the number of bits to write, in the high half the start of the symbol's states. Behind
/// them the next states, two bytes each, those of a symbol together. Then the accuracy, and whether
/// the table is valid, which need no place on a small stack.
pub(crate) type FseTable = [u8; VALID + 63];

const LOG: usize = 8 * SYMBOLS + 2 * STATES;
const VALID: usize = LOG + 1;

/// The value of a symbol's cell: the number to add to a state, and the start of the symbol's
/// states.
#[inline(always)]
pub(crate) fn symbol(table: &FseTable, symbol: u32) -> (u32, u32) {
    let at = 8 * (symbol as usize & (SYMBOLS - 1));
    let cell = u64::from_ne_bytes(table[at..at + 8].try_into().unwrap_or_default());
    (cell as u32, (cell >> 32) as u32)
}

/// The next states, two bytes each.
pub(crate) fn states(table: &FseTable) -> &[u8] {
    &table[8 * SYMBOLS..]
}

/// The state in a cell.
#[inline(always)]
fn state(table: &FseTable, i: u32) -> u32 {
    let at = 8 * SYMBOLS + 2 * (i as usize & (STATES - 1));
    u32::from(u16::from_ne_bytes(
        table[at..at + 2].try_into().unwrap_or_default(),
    ))
}

/// The first state, which can end with `next` and costs nothing to enter.
#[inline(always)]
pub(crate) fn start(table: &FseTable, next: u32) -> u32 {
    let (raise, first) = symbol(table, next);
    let bits = raise.wrapping_add(1 << 15) >> 16;
    let from = (bits << 16).wrapping_sub(raise);
    state(table, (from >> (bits & 31)).wrapping_add(first))
}

/// From `from` to a state that yields `next`: the new state, and the bits to write with their
/// number.
#[inline(always)]
pub(crate) fn step(table: &FseTable, from: u32, next: u32) -> (u32, u64, u32) {
    let (raise, first) = symbol(table, next);
    let bits = from.wrapping_add(raise) >> 16;
    let low = u64::from(from) & ((1_u64 << (bits & 31)) - 1);
    let place = (from >> (bits & 31)).wrapping_add(first);
    (state(table, place), low, bits)
}

/// The bits to write for the last state, as many as the accuracy says.
#[inline(always)]
pub(crate) fn end(from: u32, log: u32) -> u64 {
    u64::from(from) & ((1_u64 << log) - 1)
}

impl<'a> FseEncoder<'a> {
    /// Bytes of workspace.
    pub(crate) const BYTES: usize = size_of::<FseTable>();

    /// Takes a table from a workspace, as it is.
    pub(crate) fn carve(carver: &mut Carver<'a>) -> Checked<Self> {
        let table = carver.bytes(Self::BYTES)?.try_into();
        let table = table.expect("as many bytes were taken");
        Ok(FseEncoder { table })
    }

    /// The table itself, and its accuracy.
    pub(crate) fn table(&self) -> (&FseTable, u32) {
        (self.table, self.log())
    }

    /// The cells of the symbols and of the states.
    fn cells(&mut self) -> (&mut [[u8; 8]], &mut [[u8; 2]]) {
        let (symbols, states) = self.table.split_at_mut(8 * SYMBOLS);
        (symbols.as_chunks_mut().0, states.as_chunks_mut().0)
    }

    fn log(&self) -> u32 {
        self.table[LOG].into()
    }

    /// Whether the table may be used for a *repeat*.
    pub(crate) fn is_valid(&self) -> bool {
        self.table[VALID] != 0
    }

    /// Makes the table unusable until it is built again.
    pub(crate) fn invalidate(&mut self) {
        self.table[VALID] = 0;
    }

    /// The table in which `symbol` alone exists, and costs nothing.
    pub(crate) fn build_single(&mut self, symbol: usize) {
        let (symbols, states) = self.cells();
        symbols.fill((1_u64 << 16).to_ne_bytes());
        symbols.put(symbol % SYMBOLS, 0);
        states.put(0, 0);
        (self.table[LOG], self.table[VALID]) = (0, 1);
    }

    /// The table of normalised probabilities, whose sum is 2^`log`. `cells` is scratch.
    pub(crate) fn build(
        &mut self,
        probabilities: &[i16],
        log: u32,
        cells: &mut SpreadCells,
    ) -> Checked<()> {
        let size = 1_usize << log;
        (self.table[LOG], self.table[VALID]) = (log as u8, 1);
        let absent = ((log + 1) << 16) - size as u32;
        let (symbols, states) = self.cells();
        symbols.fill(u64::from(absent).to_ne_bytes());

        let mut next = [0_u16; SYMBOLS];
        let (mut total, mut rare) = (0_u32, false);
        for (symbol, &probability) in probabilities.iter().enumerate().take(SYMBOLS) {
            if probability == 0 {
                continue;
            }
            rare |= probability < 0;
            let count = u32::from(probability.unsigned_abs());
            let bits = if count == 1 {
                log
            } else {
                log - (count - 1).ilog2()
            };
            let raise = (bits << 16).wrapping_sub(count << bits);
            next[symbol % SYMBOLS] = total as u16;
            let first = total.wrapping_sub(count);
            symbols.put(symbol % SYMBOLS, u64::from(raise) | u64::from(first) << 32);
            // The symbols in their order, eight at a time.
            let mut at = total;
            total += count;
            while at < total {
                let place = at as usize & (STATES - 1);
                cells[place..place + 8].fill(symbol as u8);
                at += 8;
            }
        }
        let next_cell = if rare {
            spread(probabilities, size, cells)?;
            1
        } else {
            undo_step(size)
        };
        // The states of a symbol ascend with its cells.
        let mask = (size - 1) & (STATES - 1);
        let mut at = 0_usize;
        for state in size as u16..2 * size as u16 {
            let place = &mut next[usize::from(cells[at & mask]) % SYMBOLS];
            at = at.wrapping_add(next_cell);
            states.put(usize::from(*place) & (STATES - 1), state);
            *place += 1;
        }
        Ok(())
    }

    /// The cost of `symbol` in 1/256 bit, averaged over the states; `None` if the table lacks it.
    pub(crate) fn cost(&self, symbol: usize) -> Option<u32> {
        let (raise, _) = self::symbol(self.table, symbol as u32);
        let log = self.log();
        if log == 0 {
            return (raise == 0).then_some(0);
        }
        // A state in [size, 2 size) costs the lower number of bits up to a threshold, above it one
        // more.
        let bits_low = raise >> 16;
        let threshold = (bits_low + 1) << 16;
        let above = threshold - (raise + (1 << log));
        let cost = (bits_low + 1) * COST_ONE - ((above * COST_ONE) >> log);
        (cost < (log + 1) * COST_ONE).then_some(cost)
    }
}

/// Scratch for the symbols of a table's cells.
pub(crate) type SpreadCells = [u8; STATES + 8];

/// Writes the symbols of a table's cells, where some are rare: those take their cells from the end,
/// the others step through the rest.
#[cold]
#[inline(never)]
fn spread(probabilities: &[i16], size: usize, cells: &mut SpreadCells) -> Checked<()> {
    let step = spread_step(size);
    let mut high = size;
    for (symbol, _) in (0_u8..).zip(probabilities).filter(|(_, p)| **p < 0) {
        high -= 1;
        *cells.checked_mut(high)? = symbol;
    }
    let mut at = 0;
    for (symbol, &probability) in (0_u8..).zip(probabilities) {
        for _ in 0..probability {
            *cells.checked_mut(at & (size - 1))? = symbol;
            at = (at + step) & (size - 1);
            while at >= high {
                at = (at + step) & (size - 1);
            }
        }
    }
    Ok(())
}

/// The accuracy to use for a table of `total` symbols, of which `symbol_max` is the largest.
pub(crate) fn accuracy(log_max: u32, total: u32, symbol_max: usize) -> u32 {
    let total = total.max(2);
    let worth = (total - 1).ilog2().saturating_sub(2);
    let least = (total.ilog2() + 1).min((symbol_max as u32).max(1).ilog2() + 2);
    worth.max(least).min(log_max).max(5)
}

/// Scales `counts`, whose sum is `total`, to probabilities whose sum is 2^`log`. No count is
/// `total` itself.
///
/// Every symbol that occurs keeps a probability: 1, or -1 ("less than 1") if `rare` allows it.
pub(crate) fn normalise(
    probabilities: &mut [i16],
    counts: &[[u8; 4]],
    total: u32,
    log: u32,
    rare: bool,
) -> Checked<()> {
    // Where a fraction is rounded up, in 1/1000: the point at which n and n + 1 cost the same.
    const ROUND: [u64; 8] = [0, 443, 466, 476, 481, 485, 487, 489];
    let size = 1_u64 << log;
    let scale = (1_u64 << 40) / u64::from(total.max(1)) * size;
    let low = total >> log;
    let mut left = size as i32;
    let (mut largest, mut largest_probability) = (0, 0);
    for (symbol, probability) in probabilities.iter_mut().enumerate() {
        let count = counts.checked_at(symbol)?;
        if count == 0 {
            *probability = 0;
            continue;
        }
        if count <= low {
            *probability = if rare { -1 } else { 1 };
            left -= 1;
            continue;
        }
        let exact = u64::from(count) * scale;
        let whole = exact >> 40;
        let fraction = ((exact >> 20 & 0xf_ffff) * 1000) >> 20;
        let round = ROUND.get(whole as usize).copied().unwrap_or(500);
        let rounded = (whole + u64::from(fraction > round)).max(1) as i16;
        *probability = rounded;
        left -= i32::from(rounded);
        if rounded > largest_probability {
            (largest, largest_probability) = (symbol, rounded);
        }
    }
    // The rest goes to the largest, which it changes least; too large a debt is taken one by one
    // from all.
    let mut known = largest_probability > 0;
    while left < 0 && -left >= i32::from(largest_probability) / 4 {
        let before = left;
        known = false;
        for probability in probabilities.iter_mut() {
            if *probability > 1 && left < 0 {
                *probability -= 1;
                left += 1;
            }
        }
        largest_probability = probabilities.iter().copied().max().unwrap_or(0);
        if left == before {
            break;
        }
    }
    if left != 0 {
        for (symbol, &probability) in probabilities.iter().enumerate() {
            if !known && probability > *probabilities.checked(largest)? {
                largest = symbol;
            }
        }
        *probabilities.checked_mut(largest)? += left as i16;
    }
    Ok(())
}

/// Most bits that are added to a description at once: a probability, and two of zeros.
const ADDED_MAX: u32 = ENCODER_LOG_MAX + 1 + 2;

/// Writes the description of a table. The number of bytes, or `None` if they do not fit.
pub(crate) fn write_description(out: &mut [u8], probabilities: &[i16], log: u32) -> Option<usize> {
    let mut writer = BitWriter::default();
    writer.add(u64::from(log - 5), 4);
    let mut left = (1_i32 << log) + 1;
    let mut symbol = 0;
    while left > 1 {
        let &probability = probabilities.get(symbol)?;
        symbol += 1;
        // Of the values 0 to `left` the smallest need a bit less.
        let bits = left.ilog2() + 1;
        let short = (2 << (bits - 1)) - 1 - left;
        let value = i32::from(probability) + 1;
        let half = 1 << (bits - 1);
        if value < short {
            writer.add(value as u64, bits - 1);
        } else if value < half {
            writer.add(value as u64, bits);
        } else {
            writer.add((value + short) as u64, bits);
        }
        left -= i32::from(probability.unsigned_abs());
        if probability == 0 {
            // How many more zeros follow, in threes.
            let rest = probabilities.get(symbol..)?;
            let mut zeros = rest.iter().take_while(|p| **p == 0).count();
            symbol += zeros;
            while zeros >= 3 {
                writer.add(3, 2);
                writer.make_room(out, ADDED_MAX);
                zeros -= 3;
            }
            writer.add(zeros as u64, 2);
        }
        writer.make_room(out, ADDED_MAX);
    }
    writer.finish(out)
}

/// The costs of all symbols under probabilities out of 2^`log`, all above 0.
pub(crate) const fn costs<const N: usize>(probabilities: &[i16; N], log: u32) -> [u16; N] {
    let mut costs = [0; N];
    let mut symbol = 0;
    while symbol < N {
        let probability = probabilities[symbol].unsigned_abs() as usize;
        costs[symbol] = COSTS[probability << 8 >> log];
        symbol += 1;
    }
    costs
}

/// The cost of `counts` in whole bits, if there is a cost for each.
pub(crate) fn sum_of_costs(counts: &[[u8; 4]], costs: &[u16]) -> Option<u64> {
    let costs = costs.get(..counts.len())?;
    let pairs = counts.iter().zip(costs);
    let cost =
        |(count, cost): (&[u8; 4], &u16)| u64::from(u32::from_ne_bytes(*count)) * u64::from(*cost);
    Some(pairs.map(cost).sum::<u64>() / u64::from(COST_ONE))
}

/// The cost of `counts` in whole bits under probabilities out of 2^`log`.
pub(crate) fn cost_of_probabilities(
    counts: &[[u8; 4]],
    probabilities: &[i16],
    log: u32,
) -> Option<u64> {
    let mut cost = 0;
    for symbol in 0..counts.len() {
        let count = counts.at(symbol);
        if count == 0 {
            continue;
        }
        let probability = probabilities.get(symbol).map_or(0, |p| p.unsigned_abs());
        if probability == 0 {
            return None;
        }
        let of_256 = (usize::from(probability) << 8) >> log;
        cost += u64::from(count) * u64::from(COSTS[of_256.clamp(1, 256)]);
    }
    Some(cost / u64::from(COST_ONE))
}

#[cfg(test)]
#[cfg(feature = "decompress")]
mod tests {
    use super::super::{SymbolMeaning, build_any, read_distribution};
    use super::*;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn costs_are_logarithms() {
        for (i, cost) in COSTS.iter().enumerate().skip(1) {
            // The tenth binary digit is cut off, not rounded.
            let over = f64::from(*cost) - 256.0 * (256.0 / i as f64).log2();
            assert!((-0.5..0.75).contains(&over), "{i}: {over}");
        }
        assert_eq!(COSTS[0], COSTS[1]);
    }

    /// Probabilities for counts that fall off at many rates: the accuracy, and how many counts are
    /// 0.
    fn distributions(mut check: impl FnMut(&[i16], u32)) {
        let mut seed = 3_u32;
        let mut random = || {
            seed = seed.wrapping_mul(0x19660d).wrapping_add(0x3c6ef35f);
            seed >> 16
        };
        for round in 0..2000 {
            let symbols = 2 + random() as usize % 50;
            let gaps = random() % 5;
            let counts: Vec<_> = (0..symbols)
                .map(|i| match random() % (gaps + 1) {
                    0 => 1 + random() % (1 + (4000 >> (i % 13))),
                    _ => 0,
                })
                .collect();
            let total: u32 = counts.iter().sum();
            if counts.iter().filter(|count| **count != 0).count() < 2 {
                continue;
            }
            let log = accuracy(9, total, symbols - 1);
            let mut probabilities = vec![0; symbols];
            let cells: Vec<_> = counts.iter().map(|count| count.to_ne_bytes()).collect();
            let rare = round % 2 == 0;
            normalise(&mut probabilities, &cells, total, log, rare).unwrap();
            for (count, probability) in counts.iter().zip(&probabilities) {
                assert_eq!(*count == 0, *probability == 0, "{counts:?}");
                assert!(*probability >= -1 && (rare || *probability >= 0));
            }
            check(&probabilities, log);
        }
    }

    #[test]
    fn probabilities_fill_the_table_and_are_read_back() {
        distributions(|probabilities, log| {
            let sum: u32 = probabilities
                .iter()
                .map(|p| u32::from(p.unsigned_abs()))
                .sum();
            assert_eq!(sum, 1 << log);
            let mut out = [0; 200];
            let bytes = write_description(&mut out, probabilities, log).unwrap();
            let mut counts = [0; 64];
            let found = read_distribution(&out[..bytes], 9, &mut counts).unwrap();
            assert_eq!((found.log, found.bytes), (log, bytes));
            let used = probabilities.iter().rposition(|p| *p != 0).unwrap() + 1;
            assert_eq!(found.symbols, used);
            assert_eq!(counts[..used], probabilities[..used]);
            assert!(write_description(&mut out[..bytes - 1], probabilities, log).is_none());
        });
    }

    /// Cell by cell, a table for encoding is that for decoding; and its costs are the bits that it
    /// writes.
    #[test]
    fn tables_are_those_of_a_decoder() {
        let meanings: Vec<_> = (0..64)
            .map(|symbol| SymbolMeaning::new(symbol, 0))
            .collect();
        let mut table = [0; size_of::<FseTable>()];
        distributions(|probabilities, log| {
            let size = 1_usize << log;
            let mut cells = vec![[0; 8]; size];
            build_any(&mut cells, probabilities, &meanings);
            let mut scratch = [0; STATES + 8];
            let mut encoder = FseEncoder { table: &mut table };
            encoder.build(probabilities, log, &mut scratch).unwrap();
            let mut bits_of = [0; 64];
            let mut seen = [0; 64];
            for (cell, place) in cells.iter().enumerate() {
                let [symbol, _, _, _, low, high, bits, _] = *place;
                let next = usize::from(u16::from_le_bytes([low, high]));
                // Each of these states leads here when it encodes the symbol.
                for value in 0..1 << bits {
                    let from = size + next + value;
                    let expected = ((size + cell) as u32, value as u64, u32::from(bits));
                    assert_eq!(step(encoder.table, from as u32, symbol.into()), expected);
                }
                bits_of[usize::from(symbol)] += usize::from(bits) << bits;
                seen[usize::from(symbol)] += 1 << bits;
            }
            for symbol in 0..64 {
                let cost =
                    (seen[symbol] != 0).then(|| (256 * bits_of[symbol]).div_ceil(size) as u32);
                assert!(seen[symbol] == 0 || seen[symbol] == size);
                assert_eq!(encoder.cost(symbol), cost);
            }
        });
    }
}
