//! A sequence as it is kept, the codes of its numbers, and the names of offsets.

/// The shortest match that a sequence can hold.
pub(crate) const MATCH_MIN: usize = 3;

/// Extra bits that follow each literal length code.
pub(crate) static LITERAL_LENGTH_BITS: [u8; 64] = extra_bits(
    16,
    &[
        1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
    ],
);

/// Extra bits that follow each match length code.
pub(crate) static MATCH_LENGTH_BITS: [u8; 64] = extra_bits(
    32,
    &[
        1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
    ],
);

/// Codes below `first` are the lengths themselves; after them come `rest`.
const fn extra_bits(first: usize, rest: &[u8]) -> [u8; 64] {
    let mut bits = [0; 64];
    let mut i = 0;
    while i < rest.len() {
        bits[first + i] = rest[i];
        i += 1;
    }
    bits
}

/// Extra bits that follow each offset code.
pub(crate) static OFFSET_BITS: [u8; 64] = {
    let mut bits = [0; 64];
    let mut code = 0;
    while code < 32 {
        bits[code] = code as u8;
        code += 1;
    }
    bits
};

/// Codes of the lengths below a bound, from the number of extra bits of each code.
const fn codes<const N: usize>(bits: &[u8; 64]) -> [u8; N] {
    let mut table = [0; N];
    let (mut code, mut value) = (0, 0);
    while value < N {
        let next = value + (1 << bits[code]);
        while value < next && value < N {
            table[value] = code as u8;
            value += 1;
        }
        code += 1;
    }
    table
}

pub(crate) static LITERAL_LENGTH_CODES: [u8; 64] = codes(&LITERAL_LENGTH_BITS);
pub(crate) static MATCH_LENGTH_CODES: [u8; 128] = codes(&MATCH_LENGTH_BITS);

/// The code of a literal length.
#[inline(always)]
pub(crate) fn literal_length_code(length: u32) -> u32 {
    match LITERAL_LENGTH_CODES.get(length as usize) {
        Some(&code) => u32::from(code),
        None => length.ilog2() + 19,
    }
}

/// The code of a match length, given less [`MATCH_MIN`].
#[inline(always)]
pub(crate) fn match_length_code(length_less_min: u32) -> u32 {
    match MATCH_LENGTH_CODES.get(length_less_min as usize) {
        Some(&code) => u32::from(code),
        None => length_less_min.ilog2() + 36,
    }
}

/// The code of an offset value; also its number of extra bits. The value is never 0.
#[inline(always)]
pub(crate) fn offset_code(value: u32) -> u32 {
    (value | 1).ilog2()
}

/// The offset value of an offset that is not a repeat.
#[inline(always)]
pub(crate) const fn offset_value(offset: u32) -> u32 {
    offset + 3
}

/// The three last offsets after a sequence with this offset value, as a decoder will have them.
#[inline]
pub(crate) fn update_repeat_offsets(repeat: &mut [u32; 3], value: u32, literal_length: u32) {
    let [a, b, c] = *repeat;
    *repeat = match value + u32::from(value <= 3 && literal_length == 0) {
        1 => [a, b, c],
        2 => [b, a, c],
        3 => [c, a, b],
        4 if value == 3 => [a.wrapping_sub(1), a, b],
        _ => [value - 3, a, b],
    };
}

/// The offset value that means `offset` after these last offsets.
pub(crate) fn offset_name(repeat: &[u32; 3], offset: u32, literal_length: u32) -> u32 {
    let [a, b, c] = *repeat;
    let names = if literal_length == 0 {
        [b, c, a.wrapping_sub(1)]
    } else {
        [a, b, c]
    };
    match (1..).zip(names).find(|(_, late)| *late == offset) {
        Some((name, _)) => name,
        None => offset_value(offset),
    }
}

/// One sequence: literals, then a match.
///
/// Packed in a word, from the lowest bit: 28 bits of offset value, 18 of literal length, 18 of
/// match length less [`MATCH_MIN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sequence(u64);

impl Sequence {
    /// A sequence. `offset_value` is 1 to 3 for a repeat offset (whose meaning shifts when there
    /// are no literals, RFC 8878 section 3.1.1.5), else the offset plus 3. `match_length` is at
    /// least [`MATCH_MIN`].
    #[inline(always)]
    pub(crate) fn new(literal_length: u32, offset_value: u32, match_length: u32) -> Self {
        let match_length = u64::from(match_length - MATCH_MIN as u32);
        Sequence(u64::from(offset_value) | u64::from(literal_length) << 28 | match_length << 46)
    }

    /// The same, of lengths that are known to be in their range.
    #[cfg(feature = "arch")]
    #[inline(always)]
    pub(crate) fn pack(literals: usize, offset_value: u32, matched: usize) -> Self {
        let lengths = (literals as u64) << 28 | ((matched - MATCH_MIN) as u64) << 46;
        Sequence(u64::from(offset_value) | lengths)
    }

    /// The sequence in a word.
    #[inline(always)]
    pub(crate) fn from_bits(bits: u64) -> Self {
        Sequence(bits)
    }

    /// The word of a sequence.
    #[inline(always)]
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// Number of literals before the match.
    #[inline(always)]
    pub(crate) fn literal_length(self) -> u32 {
        (self.0 >> 28) as u32 & 0x3_ffff
    }

    /// Offset value, see [`Sequence::new`].
    #[inline(always)]
    pub(crate) fn offset_value(self) -> u32 {
        self.0 as u32 & 0xfff_ffff
    }

    /// Length of the match less [`MATCH_MIN`].
    #[inline(always)]
    pub(crate) fn match_length_less_min(self) -> u32 {
        (self.0 >> 46) as u32
    }

    /// Length of the match.
    #[inline(always)]
    pub(crate) fn match_length(self) -> u32 {
        self.match_length_less_min() + MATCH_MIN as u32
    }
}
