//! Sequences sections (RFC 8878, section 3.1.1.3.2).

use super::{BackwardBits, Counts, LITERAL_LENGTHS, MATCH_LENGTHS, OFFSETS};

/// Copy `literals` literals, then `length` bytes from a distance that `offset` says: 1 to 3 are the
/// repeat offsets, more is a distance plus 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sequence {
    pub(crate) literals: u32,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

/// How the codes of one kind are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Predefined,
    /// One code for all sequences.
    Rle(u8),
    Fse(Counts),
    /// The table of the block before; what it is must be said again.
    Repeat(Box<Coding>),
}

impl Coding {
    fn mode(&self) -> u8 {
        match self {
            Self::Predefined => 0,
            Self::Rle(_) => 1,
            Self::Fse(_) => 2,
            Self::Repeat(_) => 3,
        }
    }

    fn table(&self) -> Vec<u8> {
        match self {
            Self::Predefined | Self::Repeat(_) => Vec::new(),
            Self::Rle(code) => vec![*code],
            Self::Fse(counts) => counts.describe(),
        }
    }

    /// Whether it has all of these codes.
    pub(crate) fn codes(&self, codes: &[u8], predefined: (u32, &[i16])) -> bool {
        self.encode(codes, predefined).is_some()
    }

    /// The states of these codes; `None` if one cannot be coded. The accuracy is 0 for RLE.
    fn encode(
        &self,
        codes: &[u8],
        predefined: (u32, &[i16]),
    ) -> Option<(u32, super::fse::Encoded)> {
        let counts = match self {
            Self::Predefined => &Counts::new(predefined),
            Self::Fse(counts) => counts,
            Self::Repeat(before) => return before.encode(codes, predefined),
            Self::Rle(code) => {
                let all = codes.iter().all(|c| c == code);
                let steps = vec![(0, 0); codes.len()];
                return all.then_some((0, super::fse::Encoded { first: 0, steps }));
            }
        };
        Some((counts.accuracy, counts.encode(codes, false)?))
    }
}

/// The codings of the three kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sections {
    pub(crate) literal_lengths: Coding,
    pub(crate) offsets: Coding,
    pub(crate) match_lengths: Coding,
}

impl Sections {
    pub(crate) const PREDEFINED: Self = Self {
        literal_lengths: Coding::Predefined,
        offsets: Coding::Predefined,
        match_lengths: Coding::Predefined,
    };

    /// The section with these sequences (at least one), its count in the shortest form.
    pub(crate) fn bytes(&self, sequences: &[Sequence]) -> Option<Vec<u8>> {
        let mut bytes = sequence_count(sequences.len());
        bytes.push(self.modes());
        bytes.extend_from_slice(&self.tables());
        bytes.extend_from_slice(&self.stream(sequences)?.bytes());
        Some(bytes)
    }

    pub(crate) fn modes(&self) -> u8 {
        self.literal_lengths.mode() << 6 | self.offsets.mode() << 4 | self.match_lengths.mode() << 2
    }

    pub(crate) fn tables(&self) -> Vec<u8> {
        [
            self.literal_lengths.table(),
            self.offsets.table(),
            self.match_lengths.table(),
        ]
        .concat()
    }

    /// The bit stream.
    pub(crate) fn stream(&self, sequences: &[Sequence]) -> Option<BackwardBits> {
        let literals: Vec<_> = sequences
            .iter()
            .map(|s| literal_length_code(s.literals))
            .collect();
        let offsets: Vec<_> = sequences.iter().map(|s| offset_code(s.offset)).collect();
        let lengths: Vec<_> = sequences
            .iter()
            .map(|s| match_length_code(s.length))
            .collect();
        let codes = |parts: &[Code]| parts.iter().map(|part| part.code).collect::<Vec<u8>>();
        let (accuracy_l, states_l) = self
            .literal_lengths
            .encode(&codes(&literals), LITERAL_LENGTHS)?;
        let (accuracy_o, states_o) = self.offsets.encode(&codes(&offsets), OFFSETS)?;
        let (accuracy_m, states_m) = self.match_lengths.encode(&codes(&lengths), MATCH_LENGTHS)?;
        let mut bits = BackwardBits::default();
        bits.push(states_l.first, accuracy_l);
        bits.push(states_o.first, accuracy_o);
        bits.push(states_m.first, accuracy_m);
        for index in 0..sequences.len() {
            for part in [offsets[index], lengths[index], literals[index]] {
                bits.push(part.extra, part.bits);
            }
            for states in [&states_l, &states_m, &states_o] {
                let (value, count) = states.steps[index];
                bits.push(value, count);
            }
        }
        Some(bits)
    }
}

/// The number of sequences in the shortest form.
pub(crate) fn sequence_count(count: usize) -> Vec<u8> {
    match count {
        0..128 => vec![count as u8],
        128..0x7F00 => vec![(count >> 8) as u8 + 128, count as u8],
        _ => [vec![255], ((count - 0x7F00) as u16).to_le_bytes().to_vec()].concat(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) code: u8,
    pub(crate) extra: u64,
    pub(crate) bits: u32,
}

/// The widths of the literal-length codes from 16 on.
pub(crate) const LITERAL_LENGTH_BITS: [u32; 20] = [
    1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
];
/// The widths of the match-length codes from 32 on.
pub(crate) const MATCH_LENGTH_BITS: [u32; 21] = [
    1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
];

fn code_after(first: u8, start: u32, widths: &[u32], value: u32) -> Code {
    let mut base = start;
    for (index, bits) in widths.iter().enumerate() {
        if value < base + (1 << bits) {
            return Code {
                code: first + index as u8,
                extra: u64::from(value - base),
                bits: *bits,
            };
        }
        base += 1 << bits;
    }
    panic!("{value} is longer than any code");
}

fn literal_length_code(value: u32) -> Code {
    match value {
        0..16 => Code {
            code: value as u8,
            extra: 0,
            bits: 0,
        },
        _ => code_after(16, 16, &LITERAL_LENGTH_BITS, value),
    }
}

fn match_length_code(value: u32) -> Code {
    match value {
        3..35 => Code {
            code: (value - 3) as u8,
            extra: 0,
            bits: 0,
        },
        _ => code_after(32, 35, &MATCH_LENGTH_BITS, value),
    }
}

fn offset_code(value: u64) -> Code {
    let bits = value.ilog2();
    Code {
        code: bits as u8,
        extra: value - (1 << bits),
        bits,
    }
}

/// The codes of each kind that these sequences need: literal lengths, offsets, match lengths.
pub(crate) fn codes(sequence: &Sequence) -> [u8; 3] {
    [
        literal_length_code(sequence.literals).code,
        offset_code(sequence.offset).code,
        match_length_code(sequence.length).code,
    ]
}

#[test]
fn codes_reach_their_ends() {
    assert_eq!(
        literal_length_code(65535 + 65536),
        Code {
            code: 35,
            extra: 65535,
            bits: 16
        }
    );
    assert_eq!(
        literal_length_code(18),
        Code {
            code: 17,
            extra: 0,
            bits: 1
        }
    );
    assert_eq!(
        match_length_code(65539 + 65535),
        Code {
            code: 52,
            extra: 65535,
            bits: 16
        }
    );
    assert_eq!(
        match_length_code(37),
        Code {
            code: 33,
            extra: 0,
            bits: 1
        }
    );
    assert_eq!(
        offset_code(3),
        Code {
            code: 1,
            extra: 1,
            bits: 1
        }
    );
}
