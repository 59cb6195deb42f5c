//! Huffman-coded literals.

use super::Out;
use crate::ROOMY;
use crate::bits::put_bytes;

/// Writes `literals` as one stream, with codes of at most `longest` bits. The number of bytes, or
/// `None` if they do not fit.
#[inline(always)]
pub(crate) fn write_stream(
    out: &mut [u8],
    literals: &[u8],
    codes: &[[u8; 8]; 256],
    longest: u8,
) -> Option<usize> {
    match longest {
        0..=7 if ROOMY => write_in_groups::<7>(out, literals, codes),
        8 if ROOMY => write_in_groups::<6>(out, literals, codes),
        _ => write_in_groups::<5>(out, literals, codes),
    }
}

/// The same, by 5, 6 or 7 codes.
///
/// Codes enter a word from above, in groups that were joined before: only the joined bits wait for
/// the previous ones. The length in an entry's low four bits may linger there; the last of five
/// comes without, or it would be reached: more codes are shorter.
#[inline(always)]
fn write_in_groups<const N: usize>(
    out: &mut [u8],
    literals: &[u8],
    codes: &[[u8; 8]; 256],
) -> Option<usize> {
    let mut out = Out::new(out);
    let out = &mut out;
    let code = |byte: u8| LiteralBits::of(u64::from_ne_bytes(codes[usize::from(byte)]));
    let join = |group: &[u8; N]| {
        let pair = |i: usize| code(group[i + 1]).and(code(group[i]));
        let first = pair(N - 2).and(pair(N - 4));
        first.and(match N {
            7 => pair(1).and(code(group[0])),
            6 => pair(0),
            _ => LiteralBits {
                bits: code(group[0]).bits & !0xff,
                ..code(group[0])
            },
        })
    };
    let (rest, groups) = literals.as_rchunks::<N>();
    let mut writer = TopWriter {
        at: 0,
        word: 0,
        count: 0,
    };
    // While there is room for all that these flushes can write, no flush checks.
    let sure = out.bytes().len().saturating_sub(8) / FLUSHED_MAX;
    let (later, now) = groups.split_at(groups.len() - sure.min(groups.len()));
    for group in now.iter().rev() {
        writer.add(join(group));
        let (low, bytes) = writer.waiting();
        // SAFETY: `at` is 0 before the loop, and grows by `FLUSHED_MAX` at most in each of its
        // turns, which are at most `sure`: in this one it is at most `FLUSHED_MAX * (sure - 1)`, at
        // least eight bytes before the end.
        proven!(out.put64(writer.at, low));
        writer.flushed(bytes);
    }
    for group in later.iter().rev() {
        writer.add(join(group));
        writer.flush(out.bytes());
    }
    for byte in rest.iter().rev() {
        writer.add(code(*byte));
    }
    writer.flush(out.bytes());
    writer.add(LiteralBits::of(1 << 63 | 1));
    writer.finish(out.bytes())
}

/// Most bytes that a flush writes, for any codes.
const FLUSHED_MAX: usize = 7;

/// Codes in the highest bits.
#[derive(Clone, Copy)]
struct LiteralBits {
    bits: u64,
    /// In the low 8 bits, the number of bits.
    count: u64,
}

impl LiteralBits {
    /// The code of an entry.
    #[inline(always)]
    fn of(entry: u64) -> Self {
        LiteralBits {
            bits: entry,
            count: entry,
        }
    }

    /// These codes, then others.
    #[inline(always)]
    fn and(self, next: LiteralBits) -> LiteralBits {
        LiteralBits {
            bits: self.bits >> (next.count & 63) | next.bits,
            count: self.count.wrapping_add(next.count),
        }
    }
}

/// A bit writer whose bits wait at the top of a word.
struct TopWriter {
    at: usize,
    word: u64,
    /// In the low 8 bits, the number of bits that wait.
    count: u64,
}

impl TopWriter {
    #[inline(always)]
    fn add(&mut self, codes: LiteralBits) {
        self.word = self.word >> (codes.count & 63) | codes.bits;
        self.count = self.count.wrapping_add(codes.count);
    }

    #[inline(always)]
    fn flush(&mut self, out: &mut [u8]) {
        let (low, bytes) = self.waiting();
        put_bytes(out, self.at, low, bytes);
        self.flushed(bytes);
    }

    /// The bits that wait, fewer than 64, and how many whole bytes they are: [`FLUSHED_MAX`] at
    /// most.
    #[inline(always)]
    fn waiting(&self) -> (u64, usize) {
        let low = self.word >> (64_u64.wrapping_sub(self.count) & 63);
        (low, (self.count / 8) as usize & FLUSHED_MAX)
    }

    #[inline(always)]
    fn flushed(&mut self, bytes: usize) {
        self.at += bytes;
        self.count &= 7;
    }

    #[inline(always)]
    fn finish(mut self, out: &mut [u8]) -> Option<usize> {
        self.flush(out);
        if self.count != 0 {
            let low = self.word >> (64 - self.count);
            put_bytes(out, self.at, low & ((1 << self.count) - 1), 1);
            self.at += 1;
        }
        (self.at <= out.len()).then_some(self.at)
    }
}
