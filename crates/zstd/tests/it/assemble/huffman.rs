//! Huffman tables and streams (RFC 8878, section 4.2).

use super::{BackwardBits, Counts};

/// A table as the weight of each symbol; a weight of 0 is a symbol that has no code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Huffman {
    pub(crate) weights: Vec<u8>,
}

impl Huffman {
    pub(crate) fn new(weights: &[u8]) -> Self {
        Self {
            weights: weights.to_vec(),
        }
    }

    /// A valid table for these symbols whose longest code has at most `bits` (1 to 11) bits; needs
    /// two symbols or more.
    pub(crate) fn for_symbols(frequencies: &[u32; 256], bits: u32) -> Self {
        let used = || (0..256).filter(|s| frequencies[*s] > 0);
        let bits = bits.max((used().count() as u32).next_power_of_two().ilog2());
        // Weights from the frequencies' logarithms, then repaired until the codes fill the space
        // exactly.
        let max = used().map(|s| frequencies[s]).max().unwrap_or(1);
        let mut weights = vec![0u8; used().next_back().expect("a symbol") + 1];
        for symbol in used() {
            let rarer = (max / frequencies[symbol]).ilog2();
            weights[symbol] = bits.saturating_sub(rarer).max(1) as u8;
        }
        let space = 1u64 << bits;
        let sum = |weights: &[u8]| {
            weights
                .iter()
                .filter(|w| **w > 0)
                .map(|w| 1u64 << (w - 1))
                .sum::<u64>()
        };
        while sum(&weights) > space {
            let heaviest = (0..weights.len())
                .max_by_key(|s| weights[*s])
                .expect("a symbol");
            weights[heaviest] -= 1;
        }
        while sum(&weights) < space {
            let missing = space - sum(&weights);
            // Doubling a weight adds what it is: take the largest that fits.
            let fits = |s: &usize| weights[*s] > 0 && 1u64 << (weights[*s] - 1) <= missing;
            let grown = (0..weights.len())
                .filter(fits)
                .max_by_key(|s| weights[*s])
                .expect("a weight of 1");
            weights[grown] += 1;
        }
        // The longest codes have weight 1.
        let spare = weights
            .iter()
            .filter(|w| **w > 0)
            .min()
            .map_or(0, |least| least - 1);
        weights
            .iter_mut()
            .filter(|w| **w > 0)
            .for_each(|weight| *weight -= spare);
        Self { weights }
    }

    /// The length of the longest code.
    pub(crate) fn bits(&self) -> u32 {
        let sum: u64 = self
            .weights
            .iter()
            .filter(|w| **w > 0)
            .map(|w| 1u64 << (w - 1))
            .sum();
        sum.next_power_of_two().ilog2()
    }

    /// The weights in four bits each; the last one is implied. At most 129 symbols.
    pub(crate) fn describe_direct(&self) -> Vec<u8> {
        direct(&self.weights[..self.weights.len() - 1])
    }

    /// The weights as FSE, with a table of this accuracy; `None` if that cannot be (all weights are
    /// equal, or the description does not fit in 127 bytes).
    pub(crate) fn describe_fse(&self, accuracy: u32) -> Option<Vec<u8>> {
        fse(&self.weights[..self.weights.len() - 1], accuracy)
    }

    /// Either description, the short one if there is a choice.
    pub(crate) fn describe(&self) -> Vec<u8> {
        self.describe_fse(6)
            .unwrap_or_else(|| self.describe_direct())
    }

    /// The code of each symbol and its length.
    pub(crate) fn codes(&self) -> Vec<(u64, u32)> {
        let bits = self.bits();
        let mut codes = vec![(0, 0); self.weights.len()];
        let mut at = 0;
        for weight in 1..=bits as u8 {
            for symbol in (0..codes.len()).filter(|s| self.weights[*s] == weight) {
                codes[symbol] = (at >> (weight - 1), bits + 1 - u32::from(weight));
                at += 1 << (weight - 1);
            }
        }
        codes
    }

    /// One stream of these symbols, or `None` if one has no code.
    pub(crate) fn stream(&self, symbols: &[u8]) -> Option<Vec<u8>> {
        let codes = self.codes();
        let mut bits = BackwardBits::default();
        for symbol in symbols {
            let (code, len) = *codes
                .get(usize::from(*symbol))
                .filter(|(_, len)| *len > 0)?;
            bits.push(code, len);
        }
        Some(bits.bytes())
    }

    /// Four streams with their jump table; needs six symbols or more, and streams below 64 KiB.
    pub(crate) fn four_streams(&self, symbols: &[u8]) -> Option<Vec<u8>> {
        let part = symbols.len().div_ceil(4);
        let mut table = Vec::new();
        let mut streams = Vec::new();
        for index in 0..4 {
            // The last one may be empty: six symbols are 2, 2, 2, 0.
            let from = symbols.len().min(index * part);
            let to = symbols.len().min(from + part);
            let stream = self.stream(&symbols[from..to])?;
            if index < 3 {
                table.extend_from_slice(&u16::try_from(stream.len()).ok()?.to_le_bytes());
            }
            streams.extend_from_slice(&stream);
        }
        table.extend_from_slice(&streams);
        Some(table)
    }
}

/// Weights in four bits each, all of them written (the one after them is implied).
pub(crate) fn direct(weights: &[u8]) -> Vec<u8> {
    let mut bytes = vec![(127 + weights.len()) as u8];
    for pair in weights.chunks(2) {
        bytes.push(pair[0] << 4 | pair.get(1).unwrap_or(&0));
    }
    bytes
}

/// Weights as FSE: two states in turn, until the bits are used up.
pub(crate) fn fse(weights: &[u8], accuracy: u32) -> Option<Vec<u8>> {
    let mut frequencies = [0; 13];
    for weight in weights {
        frequencies[usize::from(*weight)] += 1;
    }
    let kinds = frequencies.iter().filter(|f| **f > 0).count();
    if weights.len() < 2 || kinds < 2 {
        return None;
    }
    let used = frequencies.iter().rposition(|f| *f > 0)? + 1;
    fse_with(weights, &Counts::near(accuracy, &frequencies[..used]))
}

/// Weights as FSE with the given distribution.
pub(crate) fn fse_with(weights: &[u8], counts: &Counts) -> Option<Vec<u8>> {
    let turn = |first: usize| {
        weights
            .iter()
            .skip(first)
            .step_by(2)
            .copied()
            .collect::<Vec<u8>>()
    };
    // The state of the last weight but one must ask for bits that are not there: that ends the row.
    let last_but_one = weights.len() % 2; // which row it is in
    let one = counts.encode(&turn(0), last_but_one == 0)?;
    let two = counts.encode(&turn(1), last_but_one == 1)?;
    let mut bits = BackwardBits::default();
    bits.push(one.first, counts.accuracy);
    bits.push(two.first, counts.accuracy);
    for index in 0..weights.len() {
        let (value, count) = if index % 2 == 0 {
            one.steps[index / 2]
        } else {
            two.steps[index / 2]
        };
        bits.push(value, count);
    }
    let mut bytes = counts.describe();
    bytes.extend_from_slice(&bits.bytes());
    let len = u8::try_from(bytes.len()).ok().filter(|len| *len < 128)?;
    bytes.insert(0, len);
    Some(bytes)
}
