//! Codes for encoding, and their descriptions in a frame.

use crate::bits::BitWriter;
use crate::checked::{Checked, CheckedSlice};
use crate::fse::{
    FseEncoder, SpreadCells, accuracy, end, normalise, start, step, write_description,
};
use crate::hint::select_unpredictable;
use crate::workspace::{Carver, Cells};

/// Longest code.
const LENGTH_MAX: u32 = 11;
const SYMBOLS: usize = 256;
/// Most weights that a description holds as they are, four bits each.
const DIRECT_WEIGHTS_MAX: usize = 128;
/// Largest accuracy of the table that weights are compressed with.
const WEIGHT_LOG_MAX: u32 = 6;

/// Room to build tables in.
pub(crate) struct HuffmanScratch<'a> {
    /// Symbols in the low 8 bits and their counts above, ascending.
    sorted: &'a mut [[u8; 4]; SYMBOLS],
    /// The inner nodes of the tree; at first the symbols in their order, as if sorted, and room to
    /// sort.
    tree: &'a mut [[u8; 4]; 2 * SYMBOLS],
    /// The weight of each symbol in the code that was built last.
    weights: &'a mut [[u8; 1]; SYMBOLS],
    weight_table: FseEncoder<'a>,
}

impl<'a> HuffmanScratch<'a> {
    /// Bytes of workspace.
    pub(crate) const BYTES: usize = 4 * SYMBOLS + 8 * SYMBOLS + SYMBOLS + FseEncoder::BYTES;

    /// Takes the room from a workspace.
    pub(crate) fn carve(carver: &mut Carver<'a>) -> Checked<Self> {
        Ok(HuffmanScratch {
            sorted: carver.array()?,
            tree: carver.array()?,
            weights: carver.array()?,
            weight_table: FseEncoder::carve(carver)?,
        })
    }

    /// Lists the symbols that occur, for [`HuffmanEncoder::build`].
    pub(crate) fn list(&mut self, counts: &[[u8; 4]; SYMBOLS]) -> UsedSymbols {
        // Text has none in the upper half.
        let (lower, upper) = counts.split_at(SYMBOLS / 2);
        let is_lower = upper.iter().all(|count| *count == [0; 4]);
        let counts = if is_lower { lower } else { counts };
        let mut used = UsedSymbols {
            number: 0,
            last: 0,
            most: 0,
        };
        for (symbol, count) in counts.iter().enumerate() {
            let count = u32::from_ne_bytes(*count);
            // One that does not occur is overwritten by the next.
            let place = used.number & (SYMBOLS - 1);
            self.tree.put(place, count << 8 | symbol as u32);
            used.number += usize::from(count != 0);
            used.most = used.most.max(count);
        }
        let last = self.tree.at(used.number.wrapping_sub(1) & (SYMBOLS - 1));
        used.last = last as usize & 0xff;
        used
    }
}

/// The symbols that occur.
#[derive(Clone, Copy)]
pub(crate) struct UsedSymbols {
    pub(crate) number: usize,
    /// The largest of them.
    pub(crate) last: usize,
    /// How often the most frequent occurs.
    pub(crate) most: u32,
}

/// A code for bytes.
pub(crate) struct HuffmanEncoder<'a> {
    /// For each byte its code in the highest bits, the code's length in the lowest; 0 where there
    /// is none.
    codes: &'a mut [[u8; 8]; SYMBOLS],
    /// The length of the longest code, 0 where there is no code.
    longest: &'a mut u8,
}

impl<'a> HuffmanEncoder<'a> {
    /// Bytes of workspace.
    pub(crate) const BYTES: usize = 8 * SYMBOLS;

    /// Takes a table from a workspace, as it is; `longest` belongs to it, and is 0 at first.
    pub(crate) fn carve(carver: &mut Carver<'a>, longest: &'a mut u8) -> Checked<Self> {
        Ok(HuffmanEncoder {
            codes: carver.array()?,
            longest,
        })
    }

    /// Whether the table may be used again.
    pub(crate) fn is_valid(&self) -> bool {
        *self.longest != 0
    }

    /// Makes the table unusable until it is built again.
    pub(crate) fn invalidate(&mut self) {
        *self.longest = 0;
    }

    /// Bits that all of `counts` take, or `None` if a symbol has no code.
    pub(crate) fn cost(&self, counts: &[[u8; 4]; SYMBOLS]) -> Option<u64> {
        let (mut bits, mut missing) = (0, false);
        for symbol in 0..SYMBOLS {
            let (count, length) = (counts.at(symbol), self.codes.at(symbol) & 0xff);
            bits += u64::from(count) * length;
            missing |= count != 0 && length == 0;
        }
        (!missing).then_some(bits)
    }

    /// Builds the best code for the symbols that were listed (at least two, the sum of their counts
    /// at most 2^17), of codes of at most `length_max` bits. Returns the bits that all symbols
    /// take.
    pub(crate) fn build(
        &mut self,
        used: UsedSymbols,
        length_max: u32,
        scratch: &mut HuffmanScratch<'_>,
    ) -> Checked<u64> {
        sort(used, scratch)?;
        let mut numbers = [0_u16; LENGTH_MAX as usize + 1];
        let depths = numbers.checked_mut(..=length_max as usize)?;
        count_depths(scratch, used.number, depths)?;
        limit(
            &mut numbers,
            scratch.sorted.checked(..used.number)?,
            length_max,
        )?;
        Ok(self.assign(&numbers, used.last, scratch))
    }

    /// Gives codes: `numbers[l]` symbols have length `l`, and the rarest have the longest. Returns
    /// the bits that all symbols take. Its tables are on a stack of its own.
    #[inline(never)]
    fn assign(
        &mut self,
        numbers: &[u16; LENGTH_MAX as usize + 1],
        last: usize,
        scratch: &mut HuffmanScratch<'_>,
    ) -> u64 {
        let longest = numbers.iter().rposition(|n| *n != 0).unwrap_or(1);
        *scratch.weights = [[0]; SYMBOLS];
        // The next entry of each weight, and how far it lies from the one after it.
        let (mut next, mut steps) = ([0_u64; 16], [0_u64; 16]);
        let (mut code, mut bits) = (0, 0);
        let mut at = 0;
        for length in (1..=longest).rev() {
            let number = numbers[length];
            let weight = (longest + 1 - length) & 15;
            next[weight] = code << (64 - length) | length as u64;
            steps[weight] = 1 << (64 - length);
            code = (code + u64::from(number)) >> 1;
            let mut count = 0;
            for i in at..at + usize::from(number) {
                let entry = scratch.sorted.at(i & (SYMBOLS - 1));
                scratch.weights[entry as usize & 0xff] = [weight as u8];
                count += u64::from(entry >> 8);
            }
            at += usize::from(number);
            bits += count * length as u64;
        }
        // A symbol that does not occur has the weight and the entry 0.
        let (codes, others) = self.codes.split_at_mut((last & 0xff) + 1);
        for (place, [weight]) in codes.iter_mut().zip(&*scratch.weights) {
            let weight = usize::from(*weight) & 15;
            *place = next[weight].to_ne_bytes();
            next[weight] = next[weight].wrapping_add(steps[weight]);
        }
        others.fill([0; 8]);
        *self.longest = longest as u8;
        bits
    }

    /// Sets a code from the weights of a description (as in a dictionary).
    pub(crate) fn set_weights(&mut self, weights: &[u8], length_max: u32) {
        let mut numbers = [0_u16; 16];
        for &weight in weights.iter().filter(|w| **w != 0) {
            numbers[(length_max + 1 - u32::from(weight)) as usize & 15] += 1;
        }
        let (mut next, mut code) = ([0_u16; 16], 0);
        for length in (1..=length_max as usize).rev() {
            next[length & 15] = code;
            code = (code + numbers[length & 15]) >> 1;
        }
        self.codes.fill([0; 8]);
        for (symbol, &weight) in weights.iter().enumerate().take(SYMBOLS) {
            if weight != 0 {
                let length = length_max + 1 - u32::from(weight);
                let code = &mut next[length as usize & 15];
                let entry = u64::from(*code) << (64 - length) | u64::from(length);
                self.codes.put(symbol, entry);
                *code += 1;
            }
        }
        *self.longest = length_max as u8;
    }

    /// Writes the description of the code that was built last in `scratch`, and whose last symbol
    /// this is. The number of bytes, or `None` if they do not fit.
    pub(crate) fn write_description(
        out: &mut [u8],
        last: usize,
        scratch: &mut HuffmanScratch<'_>,
    ) -> Option<usize> {
        // The last weight is not written: it makes the sum a power of two.
        let (header, rest) = out.split_first_mut()?;
        let direct = last.div_ceil(2);
        let weights = scratch.weights.as_flattened().get(..last)?;
        let (counts, cells) = scratch.tree.split_at_mut(16);
        let cells = cells.as_flattened_mut().first_chunk_mut()?;
        let packed = compress_weights(rest, weights, counts, cells, &mut scratch.weight_table);
        match packed {
            Some(bytes) if bytes < 128 && (bytes < direct || last > DIRECT_WEIGHTS_MAX) => {
                *header = bytes as u8;
                return Some(1 + bytes);
            }
            _ if last > DIRECT_WEIGHTS_MAX => return None,
            _ => {}
        }
        *header = 127 + last as u8;
        let rest = rest.get_mut(..direct)?;
        for (place, pair) in rest.iter_mut().zip(weights.chunks(2)) {
            let weight = |i: usize| pair.get(i).copied().unwrap_or(0);
            *place = weight(0) << 4 | weight(1);
        }
        Some(1 + direct)
    }

    /// Writes `literals` as one stream. The number of bytes, or `None` if they do not fit.
    pub(crate) fn write_stream(&self, out: &mut [u8], literals: &[u8]) -> Option<usize> {
        #[cfg(feature = "arch")]
        return crate::arch::entropy::write_stream(out, literals, self.codes, *self.longest);
        #[cfg(not(feature = "arch"))]
        crate::encode::streams::literals::write_stream(out, literals, self.codes, *self.longest)
    }
}

/// Bits of a digit that symbols are sorted by. The counts of a block have three digits at most,
/// those of a short one two.
const DIGIT: u32 = 6;

/// Sorts the symbols that were listed by their counts, ascending.
fn sort(used: UsedSymbols, scratch: &mut HuffmanScratch<'_>) -> Checked<()> {
    let (from, numbers) = scratch.tree.split_at_mut(SYMBOLS);
    let numbers = &mut numbers[..1 << DIGIT];
    let (used, largest) = (used.number, used.most);
    // By digits, the lowest first.
    let mut shift = 8;
    let mut swapped = false;
    loop {
        let (source, target) = if swapped {
            (&scratch.sorted[..], &mut *from)
        } else {
            (&*from, &mut scratch.sorted[..])
        };
        let digit = |entry: u32| (entry >> shift) as usize & ((1 << DIGIT) - 1);
        numbers.fill([0; 4]);
        for i in 0..used {
            let digit = digit(source.checked_at(i)?);
            numbers.put(digit, numbers.at(digit) + 1);
        }
        let mut sum = 0;
        for number in numbers.iter_mut() {
            let next = sum + u32::from_ne_bytes(*number);
            *number = sum.to_ne_bytes();
            sum = next;
        }
        for i in 0..used {
            let entry = source.checked_at(i)?;
            let digit = digit(entry);
            let place = numbers.at(digit);
            numbers.put(digit, place + 1);
            target.checked_put(place as usize & 0xff, entry)?;
        }
        swapped = !swapped;
        shift += DIGIT;
        if shift >= 32 || largest >> (shift - 8) == 0 {
            break;
        }
    }
    if !swapped {
        let sorted = scratch.sorted.checked_mut(..used)?;
        sorted.checked_copy(from.checked(..used)?)?;
    }
    Ok(())
}

/// Counts the leaves of each depth of a Huffman tree over `n` weights in ascending order; those
/// that are deeper than `numbers` goes are counted as its last. At least two leaves.
///
/// The tree is made in the memory of its parents (Moffat and Katajainen, "In-place calculation of
/// minimum-redundancy codes", 1995). The leaves of each depth are the children of the inner nodes
/// above that are no inner nodes.
fn count_depths(scratch: &mut HuffmanScratch<'_>, n: usize, numbers: &mut [u16]) -> Checked<()> {
    const LAST: usize = SYMBOLS - 1;
    let (tree, sorted) = (&mut *scratch.tree, &mut *scratch.sorted);
    // Parents replace the weights of the nodes that they join. No branch depends on which of two
    // nodes is lighter, and none on whether any is left: one that is heavier than all lies behind
    // the leaves, and another behind the inner nodes. Of all 256 leaves the first makes room.
    tree.put(0, (sorted.at(0) >> 8) + (sorted.at(1) >> 8));
    let behind = sorted.at(n & LAST);
    sorted.put(n & LAST, u32::MAX);
    let (mut leaf, mut root) = (2, 0);
    for next in 1..n - 1 {
        tree.put(next & LAST, u32::MAX);
        let mut weight = 0;
        for _ in 0..2 {
            let of_leaf = sorted.at(leaf & LAST) >> 8;
            let of_root = tree.at(root & LAST);
            let takes_root = of_root < of_leaf;
            weight += of_root.min(of_leaf);
            let parent = select_unpredictable(takes_root, next as u32, of_root);
            tree.put(root & LAST, parent);
            root += usize::from(takes_root);
            leaf += usize::from(!takes_root);
        }
        tree.put(next & LAST, weight);
    }
    sorted.put(n & LAST, behind);
    // The depth takes the place of the parent, from the root down.
    let deepest = numbers.len() - 1;
    tree.put((n - 2) & LAST, 0);
    let mut inner = [0_u16; LENGTH_MAX as usize + 1];
    inner[0] = 1;
    for i in (0..n - 2).rev() {
        let depth = tree.at(tree.at(i & LAST) as usize & LAST) + 1;
        tree.put(i & LAST, depth);
        if let Some(number) = inner.get_mut(depth as usize) {
            *number += 1;
        }
    }
    let (mut nodes, mut left) = (1, n as u16);
    for (number, inner) in numbers.checked_mut(..deepest)?.iter_mut().zip(inner) {
        *number = nodes - inner;
        left -= *number;
        nodes = 2 * inner;
    }
    *numbers.checked_mut(deepest)? = left;
    Ok(())
}

/// Makes the code complete again after lengths were cut to `length_max`, at little cost.
/// `numbers[l]` symbols have length `l`.
fn limit(
    numbers: &mut [u16; LENGTH_MAX as usize + 1],
    sorted: &[[u8; 4]],
    length_max: u32,
) -> Checked<()> {
    let longest = length_max as usize;
    let unit = |length: usize| 1_i32 << (longest - length);
    let mut debt = -unit(0);
    for (length, &number) in numbers.iter().enumerate().skip(1) {
        if length <= longest {
            debt += i32::from(number) * unit(length);
        }
    }
    // `first(l)`: where symbols of length `l` begin among the sorted.
    let first = |numbers: &[u16; LENGTH_MAX as usize + 1], length: usize| -> Checked<usize> {
        let longer = numbers.checked(length + 1..)?;
        Ok(longer.iter().map(|n| usize::from(*n)).sum())
    };
    while debt > 0 {
        // Lengthen the rarest symbol of some length: the one that costs least for each owed unit
        // that it frees.
        let mut best = (0, u64::MAX);
        for length in 1..longest {
            if *numbers.checked(length)? == 0 {
                continue;
            }
            let count = u64::from(sorted.checked_at(first(numbers, length)?)? >> 8);
            let freed = (unit(length) / 2).min(debt) as u64;
            let price = (count << 16) / freed.max(1);
            if price < best.1 {
                best = (length, price);
            }
        }
        let length = best.0;
        if length == 0 {
            return Ok(());
        }
        *numbers.checked_mut(length)? -= 1;
        *numbers.checked_mut(length + 1)? += 1;
        debt -= unit(length) / 2;
    }
    while debt < 0 {
        // Shorten the commonest symbol of the length that wins most and fits.
        let mut best = (0, 0);
        for length in 2..=longest {
            let number = usize::from(*numbers.checked(length)?);
            if number == 0 || unit(length) > -debt {
                continue;
            }
            let last = first(numbers, length)? + number - 1;
            let count = u64::from(sorted.checked_at(last)? >> 8);
            let gain = (count << 16) / unit(length) as u64;
            if gain >= best.1 {
                best = (length, gain);
            }
        }
        let length = best.0;
        if length == 0 {
            return Ok(());
        }
        *numbers.checked_mut(length)? -= 1;
        *numbers.checked_mut(length - 1)? += 1;
        debt += unit(length);
    }
    Ok(())
}

/// Compresses weights with a table of their own and two states in turn.
fn compress_weights(
    out: &mut [u8],
    weights: &[u8],
    counts: &mut [[u8; 4]],
    cells: &mut SpreadCells,
    table: &mut FseEncoder<'_>,
) -> Option<usize> {
    if weights.len() < 2 {
        return None;
    }
    counts.fill([0; 4]);
    for &weight in weights {
        let weight = usize::from(weight) & 15;
        counts.put(weight, counts.at(weight) + 1);
    }
    let largest = (0..16).rposition(|w| counts.at(w) != 0)?;
    let most = (0..16).map(|w| counts.at(w)).max()?;
    if most as usize == weights.len() || most == 1 {
        return None;
    }
    let total = weights.len() as u32;
    let log = accuracy(WEIGHT_LOG_MAX, total, largest);
    let mut probabilities = [0_i16; 16];
    let probabilities = &mut probabilities[..=largest];
    normalise(probabilities, counts, total, log, false).ok()?;
    let head = write_description(out, probabilities, log)?;
    table.build(probabilities, log, cells).ok()?;
    let (table, _) = table.table();

    let out = out.get_mut(head..)?;
    let mut writer = BitWriter::default();
    let mut back = weights.iter().map(|w| u32::from(*w)).rev();
    // The state that ends first in time is the one that holds the symbol of even place.
    let (mut one, mut two);
    if weights.len().is_multiple_of(2) {
        two = start(table, back.next()?);
        one = start(table, back.next()?);
    } else {
        one = start(table, back.next()?);
        two = start(table, back.next()?);
        let (next, value, bits) = step(table, one, back.next()?);
        one = next;
        writer.add(value, bits);
    }
    while let Some(weight) = back.next() {
        let (next, value, bits) = step(table, two, weight);
        two = next;
        writer.add(value, bits);
        let (next, value, bits) = step(table, one, back.next()?);
        one = next;
        writer.add(value, bits);
        writer.make_room(out, 2 * WEIGHT_LOG_MAX);
    }
    writer.add(end(two, log), log);
    writer.add(end(one, log), log);
    Some(head + writer.finish_with_mark(out)?)
}

#[cfg(test)]
#[cfg(feature = "decompress")]
mod tests {
    use super::super::{CODE_BITS_MAX, SYMBOLS_MAX, WeightScratch, read_weights};
    use super::*;
    use crate::fse::WEIGHT_CELLS;
    use std::vec;
    use std::vec::Vec;

    /// The bits of the best code, found by merging packages (Larmore and Hirschberg, 1990).
    fn least_bits(counts: &[u32], length_max: u32) -> u64 {
        let mut leaves: Vec<_> = counts.iter().map(|count| u64::from(*count)).collect();
        leaves.retain(|count| *count != 0);
        leaves.sort_unstable();
        let mut list = leaves.clone();
        for _ in 1..length_max {
            list = list.chunks_exact(2).map(|pair| pair[0] + pair[1]).collect();
            list.extend(&leaves);
            list.sort_unstable();
        }
        list[..2 * leaves.len() - 2].iter().sum()
    }

    /// Equal weights cannot be compressed, and more than 128 of them cannot be told otherwise.
    #[test]
    fn weights_are_as_they_are_or_compressed_or_refused() {
        let bytes = HuffmanEncoder::BYTES + HuffmanScratch::BYTES;
        let mut memory = vec![0; Carver::SLACK + bytes];
        let mut carver = Carver::new(&mut memory, bytes).unwrap();
        let mut longest = 0;
        let mut code = HuffmanEncoder::carve(&mut carver, &mut longest).unwrap();
        let mut scratch = HuffmanScratch::carve(&mut carver).unwrap();
        let mut out = [0xee; 200];
        // As many codes of 8 bits and, for the rest, one of 1 bit.
        let mut counts = [1_u32.to_ne_bytes(); SYMBOLS];
        counts.put(128, 128);
        counts[129..].fill([0; 4]);
        let mut write = |counts, out: &mut [u8]| {
            let used = scratch.list(counts);
            code.build(used, 11, &mut scratch).unwrap();
            HuffmanEncoder::write_description(out, used.last, &mut scratch)
        };
        assert_eq!(write(&counts, &mut out), Some(65));
        assert_eq!(out[..66], [[255].as_slice(), &[0x11; 64], &[0xee]].concat());
        assert_eq!(write(&counts, &mut out[..64]), None);
        let counts = [1_u32.to_ne_bytes(); SYMBOLS];
        assert_eq!(write(&counts, &mut out), None);
    }

    #[test]
    fn codes_are_nearly_the_shortest_and_are_read_back() {
        let bytes = 2 * HuffmanEncoder::BYTES + HuffmanScratch::BYTES;
        let mut memory = vec![0; Carver::SLACK + bytes];
        let mut carver = Carver::new(&mut memory, bytes).unwrap();
        let mut longest = [0; 2];
        let [first, second] = &mut longest;
        let mut code = HuffmanEncoder::carve(&mut carver, first).unwrap();
        let mut again = HuffmanEncoder::carve(&mut carver, second).unwrap();
        let mut scratch = HuffmanScratch::carve(&mut carver).unwrap();
        let mut seed = 9_u32;
        let mut random = || {
            seed = seed.wrapping_mul(0x19660d).wrapping_add(0x3c6ef35f);
            seed >> 16
        };
        let (mut limited, mut refused) = (0, 0);
        for round in 0..3000 {
            let used = 2 + random() as usize % [6, 30, 127, 255][round % 4];
            let steepness = random() % 12;
            let mut counts = [0; SYMBOLS];
            for i in 0..used {
                let most = 1 << (10 - (i as u32 * steepness / 8).min(10));
                counts[random() as usize % SYMBOLS] = 1 + random() % most * (1 + random() % 3);
            }
            let used = counts.iter().filter(|count| **count != 0).count();
            if used < 2 {
                continue;
            }
            // The lengths that literals ask for, and the most.
            let least = (used as u32 - 1).ilog2() + 2;
            let total: u32 = counts.iter().sum();
            let usual = (total - 1).ilog2().saturating_sub(1);
            for length_max in [usual.max(least).clamp(5, 11), 11] {
                let cells = counts.map(u32::to_ne_bytes);
                let listed = scratch.list(&cells);
                assert_eq!(listed.number, used);
                let bits = code.build(listed, length_max, &mut scratch).unwrap();
                assert_eq!(code.cost(&cells), Some(bits));
                let best = least_bits(&counts, length_max);
                // Short codes for few and uneven counts are the furthest from the best.
                assert!(best <= bits && 6 * bits <= 7 * best, "{best}, {bits}");
                if u32::from(*code.longest) < length_max {
                    assert_eq!(best, bits);
                } else {
                    limited += 1;
                }
                let mut out = [0; 300];
                let describe = HuffmanEncoder::write_description;
                let Some(bytes) = describe(&mut out, listed.last, &mut scratch) else {
                    refused += 1;
                    continue;
                };
                let mut weights = WeightScratch {
                    weights: &mut [0; SYMBOLS_MAX],
                    cells: &mut [[0; 8]; WEIGHT_CELLS],
                };
                let found = read_weights(&out[..bytes], CODE_BITS_MAX, &mut weights).unwrap();
                assert_eq!((found.bytes, found.log), (bytes, u32::from(*code.longest)));
                let last = counts.iter().rposition(|count| *count != 0).unwrap();
                assert_eq!(found.symbols, last + 1);
                again.set_weights(&weights.weights[..found.symbols], found.log);
                assert_eq!(again.codes, code.codes);
                assert_eq!(again.longest, code.longest);
                let short = &mut out[..bytes - 1];
                assert!(describe(short, listed.last, &mut scratch).is_none());
            }
        }
        assert!(limited > 100 && refused < 10, "{limited}, {refused}");
    }
}
