//! Huffman-coded literals.

use super::Out;
use crate::bits::put_bytes;

/// Writes `literals` as one stream. The number of bytes, or `None` if they do not fit.
///
/// Codes enter a word from above, five at a time that were joined before: only the joined bits wait
/// for the previous ones. The length in an entry's low four bits may linger there; the last of five
/// comes without, or it would be reached.
#[inline(always)]
pub(crate) fn write_stream(
    out: &mut [u8],
    literals: &[u8],
    codes: &[[u8; 8]; 256],
) -> Option<usize> {
    let mut out = Out::new(out);
    let out = &mut out;
    let code = |byte: u8| LiteralBits::of(u64::from_ne_bytes(codes[usize::from(byte)]));
    let five = |[a, b, c, d, e]: [u8; 5]| {
        let first = code(e).and(code(d)).and(code(c).and(code(b)));
        let last = code(a);
        first.and(LiteralBits {
            bits: last.bits & !0xff,
            ..last
        })
    };
    let (rest, fives) = literals.as_rchunks::<5>();
    let mut writer = TopWriter {
        at: 0,
        word: 0,
        count: 0,
    };
    // While there is room for all that these flushes can write, no flush checks.
    let sure = out.bytes().len().saturating_sub(8) / FLUSHED_MAX;
    let (later, now) = fives.split_at(fives.len() - sure.min(fives.len()));
    for codes in now.iter().rev() {
        writer.add(five(*codes));
        let (low, bytes) = writer.waiting();
        // SAFETY: `at` is 0 before the loop, and grows by `FLUSHED_MAX` at most in each of its
        // turns, which are at most `sure`: in this one it is at most `FLUSHED_MAX * (sure - 1)`, at
        // least eight bytes before the end.
        proven!(out.put64(writer.at, low));
        writer.flushed(bytes);
    }
    for codes in later.iter().rev() {
        writer.add(five(*codes));
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
