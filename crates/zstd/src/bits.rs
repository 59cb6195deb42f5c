//! Bit streams, forward for table descriptions and backward for everything else (RFC 8878, section
//! 4.1).

// ---- reading (both features: an encoder reads the tables of its dictionary) ----

/// Reads bits in the order in which they are stored, low bits first. Bits after the end read as
/// zero.
#[derive(Clone, Debug)]
pub(crate) struct BitReader<'s> {
    src: &'s [u8],
    /// Bits at hand, the next one lowest.
    word: u64,
    /// How many they are.
    left: u32,
    /// The bit after them, counted from the start of `src`.
    end: usize,
}

impl<'s> BitReader<'s> {
    pub(crate) fn new(src: &'s [u8]) -> BitReader<'s> {
        BitReader {
            src,
            word: 0,
            left: 0,
            end: 0,
        }
    }

    /// Lets at least 24 bits be at hand.
    #[inline(always)]
    pub(crate) fn refill(&mut self) {
        if self.left >= 24 {
            return;
        }
        let at = self.end - self.left as usize;
        let rest = self.src.get(at / 8..).unwrap_or_default();
        let word = match rest.first_chunk() {
            Some(chunk) => u64::from_le_bytes(*chunk),
            None => last_word(rest),
        };
        self.word = word >> (at % 8);
        self.left = 64 - at as u32 % 8;
        self.end = at + self.left as usize;
    }

    /// The next `count` bits, of those at hand, without moving on.
    #[inline(always)]
    pub(crate) fn peek(&self, count: u32) -> u32 {
        self.word as u32 & ((1 << count) - 1)
    }

    /// Moves on by `count` of the bits at hand.
    #[inline(always)]
    pub(crate) fn skip(&mut self, count: u32) {
        self.word >>= count;
        self.left -= count;
    }

    /// Bytes that hold the bits read so far, `None` if the source has fewer.
    pub(crate) fn bytes_read(&self) -> Option<usize> {
        let bytes = (self.end - self.left as usize).div_ceil(8);
        (bytes <= self.src.len()).then_some(bytes)
    }
}

/// Fewer than eight bytes as a number.
#[cold]
#[inline(never)]
fn last_word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// Reads bits from the end of a stream to its start.
///
/// A 64-bit word of the stream is at hand; bits are taken from its top. Reading past the start of
/// the stream is allowed, gives bits without meaning, and is remembered:
/// [`is_overrun`](Self::is_overrun).
#[derive(Clone, Debug)]
pub(crate) struct ReverseBitReader<'s> {
    pub(crate) src: &'s [u8],
    /// Where in `src` the word begins.
    pub(crate) at: usize,
    /// Eight bytes of the stream; a shorter stream fills the top of it.
    pub(crate) word: u64,
    /// Bits of `word` that have been taken, from the top.
    pub(crate) taken: u32,
    /// Bits of `word` that belong to the stream: 64, fewer if the stream is shorter than 8 bytes.
    valid: u32,
}

impl<'s> ReverseBitReader<'s> {
    /// A reader of nothing.
    pub(crate) const fn empty() -> ReverseBitReader<'s> {
        ReverseBitReader {
            src: &[],
            at: 0,
            word: 0,
            taken: 0,
            valid: 0,
        }
    }

    /// Begins at the end of `src`; `None` if `src` is empty or the end mark (the highest set bit of
    /// the last byte) is missing.
    pub(crate) fn new(src: &'s [u8]) -> Option<ReverseBitReader<'s>> {
        let &last = src.last()?;
        if last == 0 {
            return None;
        }
        let taken = last.leading_zeros() + 1;
        Some(match src.last_chunk::<8>() {
            Some(&chunk) => {
                let word = u64::from_le_bytes(chunk);
                ReverseBitReader {
                    src,
                    at: src.len() - 8,
                    word,
                    taken,
                    valid: 64,
                }
            }
            None => {
                let mut chunk = [0; 8];
                chunk[8 - src.len()..].copy_from_slice(src);
                let valid = 8 * src.len() as u32;
                ReverseBitReader {
                    src,
                    at: 0,
                    word: u64::from_le_bytes(chunk),
                    taken,
                    valid,
                }
            }
        })
    }

    /// A reader of the rest of the stream, copied to the end of `buffer` with zeros before it.
    /// Reading it needs no check for the stream's start. `None` if there are not `zeros` bytes of
    /// room for them.
    #[allow(dead_code, reason = "only `arch` needs it")]
    pub(crate) fn after_zeros<'b, const N: usize>(
        &self,
        buffer: &'b mut [u8; N],
        zeros: usize,
    ) -> Option<ReverseBitReader<'b>> {
        if self.is_overrun() {
            return None;
        }
        let rest = self.src.get(..self.at + self.valid as usize / 8)?;
        let before = N
            .checked_sub(rest.len())
            .filter(|&before| before >= zeros)?;
        for (to, from) in buffer.get_mut(before..)?.iter_mut().zip(rest) {
            *to = *from;
        }
        let mut bits = ReverseBitReader {
            word: u64::from_le_bytes(*buffer.last_chunk()?),
            at: N - 8,
            src: buffer,
            taken: self.taken,
            valid: 64,
        };
        bits.refill();
        Some(bits)
    }

    /// Moves on by as many bits as were taken from `other`, the result of
    /// [`after_zeros`](Self::after_zeros) for a buffer of `size` bytes.
    #[allow(dead_code, reason = "only `arch` needs it")]
    pub(crate) fn follow(&mut self, other: &ReverseBitReader<'_>, size: usize) {
        let words = size.saturating_sub(8 + other.at);
        self.taken = other.taken + 8 * words as u32;
        self.refill();
    }

    /// Makes at least 57 bits readable, or all that are left.
    #[inline(always)]
    pub(crate) fn refill(&mut self) {
        let back = ((self.taken >> 3) as usize).min(self.at);
        if back > 0 {
            let at = self.at - back;
            if let Some(chunk) = self.src.get(at..).and_then(|rest| rest.first_chunk()) {
                self.at = at;
                self.taken -= 8 * back as u32;
                self.word = u64::from_le_bytes(*chunk);
            }
        }
    }

    /// The next `count` bits, 0 to 57, without moving on.
    #[inline(always)]
    pub(crate) fn peek(&self, count: u32) -> u64 {
        (self.word << (self.taken & 63)) >> 1 >> (63 - (count & 63))
    }

    #[inline(always)]
    pub(crate) fn skip(&mut self, count: u32) {
        self.taken = self.taken.wrapping_add(count);
    }

    /// The next `count` bits, 0 to 57.
    #[inline(always)]
    pub(crate) fn read(&mut self, count: u32) -> u64 {
        let bits = self.peek(count);
        self.skip(count);
        bits
    }

    /// Whether more bits have been taken than the stream has.
    #[inline(always)]
    pub(crate) fn is_overrun(&self) -> bool {
        self.at == 0 && self.taken > self.valid
    }

    /// Whether exactly all bits have been taken.
    #[inline(always)]
    pub(crate) fn is_finished(&self) -> bool {
        self.at == 0 && self.taken == self.valid
    }
}

// ---- writing (feature `compress`) ----

/// Writes `bytes` low bytes of `value` at `at`, as far as there is room. If there is room for
/// eight, eight are written.
#[cfg(feature = "compress")]
#[inline(always)]
pub(crate) fn put_bytes(out: &mut [u8], at: usize, value: u64, bytes: usize) {
    #[cold]
    #[inline(never)]
    fn at_the_end(out: &mut [u8], at: usize, value: u64, bytes: usize) {
        let room = out.get_mut(at..).unwrap_or_default();
        for (place, byte) in room.iter_mut().zip(value.to_le_bytes()).take(bytes) {
            *place = byte;
        }
    }
    match out.get_mut(at..).and_then(|room| room.first_chunk_mut()) {
        Some(place) => *place = value.to_le_bytes(),
        None => at_the_end(out, at, value, bytes),
    }
}

/// Writes bits from the lowest of each byte upwards, into memory that it never leaves.
///
/// Between two flushes at most 56 bits may be added. Where there is no room, bits are dropped, and
/// [`BitWriter::finish`] tells so: the inner loops need no error of their own. The memory is given
/// to each call, so that the rest stays in registers.
#[cfg(feature = "compress")]
#[derive(Default)]
pub(crate) struct BitWriter {
    at: usize,
    bits: u64,
    count: u32,
}

#[cfg(feature = "compress")]
impl BitWriter {
    /// Adds the `count` low bits of `value`, which has no others.
    #[inline(always)]
    pub(crate) fn add(&mut self, value: u64, count: u32) {
        self.bits |= value << (self.count & 63);
        self.count += count;
    }

    /// Writes out the whole bytes among the bits added.
    #[inline(always)]
    pub(crate) fn flush(&mut self, out: &mut [u8]) {
        put_bytes(out, self.at, self.bits, (self.count / 8) as usize);
        self.at += (self.count / 8) as usize;
        self.bits >>= self.count & 56;
        self.count &= 7;
    }

    /// Writes out the whole bytes among the bits added, unless there is room for `bits` more, at
    /// most 49.
    #[inline(always)]
    pub(crate) fn make_room(&mut self, out: &mut [u8], bits: u32) {
        if self.count + bits > 56 {
            self.flush(out);
        }
    }

    /// One that goes on after `at` bytes, with `count` bits that wait.
    #[inline(always)]
    pub(crate) fn resume(at: usize, bits: u64, count: u32) -> Self {
        BitWriter { at, bits, count }
    }

    /// Closes a stream that is read backwards: a last set bit, then zeros up to a whole byte. The
    /// number of bytes, or `None` if they did not fit.
    #[inline(always)]
    pub(crate) fn finish_with_mark(mut self, out: &mut [u8]) -> Option<usize> {
        self.flush(out);
        self.add(1, 1);
        self.finish(out)
    }

    /// Fills the last byte with zeros. The number of bytes, or `None` if they did not fit.
    #[inline(always)]
    pub(crate) fn finish(mut self, out: &mut [u8]) -> Option<usize> {
        self.flush(out);
        self.count = self.count.next_multiple_of(8);
        self.flush(out);
        (self.at <= out.len()).then_some(self.at)
    }
}

/// One bit, where bits are counted in fractions.
#[cfg(feature = "compress")]
pub(crate) const BIT: u32 = 256;

/// Logarithm to base 2, in 1/256, less than 4 too small and less than 2 too large. `n` is at least
/// 1.
#[cfg(feature = "compress")]
#[inline(always)]
pub(crate) const fn log2(n: u32) -> u32 {
    let whole = crate::checked::ilog2(n);
    // The fraction f, in 1/65536; the logarithm of 1 + f is f + 0.343 f (1 - f), nearly.
    let f = ((n as u64) << 16 >> whole) as u32 & 0xffff;
    let bend = ((f * ((0x1_0000 - f) >> 4)) >> 12) * 343 / 1000;
    (whole << 8) + ((f + bend) >> 8)
}

/// Numbers whose tally is in a table.
#[cfg(feature = "compress")]
const TABLED: usize = 1024;

#[cfg(feature = "compress")]
static TALLIES: [u64; TABLED] = {
    let mut table = [0; TABLED];
    let mut n = 1;
    while n < TABLED {
        table[n] = new_tally(n as u32);
        n += 1;
    }
    table
};

/// In one word, so that one addition sums up all: `n` times its logarithm, in 32 bits; above them
/// `n`, in 20; and above them 1, for a symbol that occurs.
#[cfg(feature = "compress")]
const fn new_tally(n: u32) -> u64 {
    1 << 52 | (n as u64) << 32 | (n * log2(n)) as u64
}

/// The same, and 0 for 0. `n` is at most 2^18.
#[cfg(feature = "compress")]
#[inline(always)]
pub(crate) fn tally(n: u32) -> u64 {
    match TALLIES.get(n as usize) {
        Some(tally) => *tally,
        None => new_tally(n),
    }
}

/// `n` times its logarithm to base 2, in 1/256. `n` is at most 2^18.
#[cfg(feature = "compress")]
#[inline(always)]
pub(crate) fn times_log(n: u32) -> u32 {
    tally(n) as u32
}

#[cfg(all(test, feature = "compress"))]
mod tests {
    use super::log2;

    #[test]
    fn logarithms_are_nearly_right() {
        for n in 1..=1 << 17 {
            let off = f64::from(log2(n)) - 256.0 * f64::from(n).log2();
            assert!(-4.0 < off && off < 2.0, "{n}: {off}");
        }
    }
}
