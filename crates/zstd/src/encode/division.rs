//! Counts the content of a block and chooses the boundaries between sets of entropy tables.

use super::levels::{
    DIVISION_CHUNK_MIN, DIVISION_CHUNKS_MAX, DIVISION_GAIN, NOISE_MIN, NOISE_SAMPLE, NOISE_SAMPLES,
    NOISE_SPAN,
};
use super::store::{SequenceMark, SequenceStore};
use crate::bits::{BIT, tally, times_log};
use crate::checked::{Checked, CheckedSlice};
use crate::literals::{count_bytes, is_uniform};
use crate::sequences::{CODES, LITERAL_LENGTH_COUNTS, MATCH_LENGTH_COUNTS, count_codes};
use crate::workspace::{Carver, Cells, Scratch};

const LITERALS: usize = 256;
/// Cells of a table of counts: literals, then the codes of literal lengths, of offsets and of match
/// lengths.
const COUNTS: usize = LITERALS + CODES;

/// How often each literal and each code occurs.
pub(crate) type Counts = [[u8; 4]; COUNTS];

/// The parts of the block at hand, each with its counts.
pub(crate) struct Division<'a> {
    /// Counts of each chunk; then of each part.
    counts: &'a mut [Counts],
    /// Where the first part begins, and where each chunk ends; then each part.
    marks: &'a mut [[u8; 8]],
    progress: &'a mut DivisionProgress,
}

/// How many parts there are, and how many of them have been written.
#[derive(Clone, Copy, Default)]
pub(crate) struct DivisionProgress {
    parts: u8,
    written: u8,
}

impl DivisionProgress {
    /// Whether there is no part to write.
    pub(crate) fn is_over(self) -> bool {
        self.written >= self.parts
    }
}

/// A part of a block.
#[derive(Clone, Copy)]
pub(crate) struct BlockPart {
    pub(crate) from: SequenceMark,
    pub(crate) to: SequenceMark,
    /// The last of its block.
    pub(crate) last: bool,
}

impl<'a> Division<'a> {
    /// Bytes of workspace for blocks of at most `chunks` chunks.
    pub(crate) const fn bytes(chunks: usize) -> usize {
        4 * COUNTS * chunks + 8 * Self::marks(chunks)
    }

    /// One mark more than chunks, and a whole cache line of them.
    const fn marks(chunks: usize) -> usize {
        (chunks + 1).next_multiple_of(8)
    }

    /// The counts in `memory`, as they are.
    #[inline(always)]
    pub(crate) fn over(
        memory: &'a mut [u8],
        chunks: usize,
        progress: &'a mut DivisionProgress,
    ) -> Checked<Self> {
        let mut carver = Carver::over(memory);
        Ok(Division {
            counts: carver.cells::<4>(COUNTS * chunks)?.as_chunks_mut().0,
            marks: carver.cells(Self::marks(chunks))?,
            progress,
        })
    }

    /// The part to write next, if there is one.
    pub(crate) fn part(&self) -> Checked<Option<BlockPart>> {
        let DivisionProgress { parts, written } = *self.progress;
        if written >= parts {
            return Ok(None);
        }
        Ok(Some(BlockPart {
            from: self.mark(written)?,
            to: self.mark(written + 1)?,
            last: written + 1 == parts,
        }))
    }

    fn mark(&self, i: u8) -> Checked<SequenceMark> {
        Ok(SequenceMark::from_bits(self.marks.checked_at(i.into())?))
    }

    /// Its counts: of the literals, and of the codes.
    pub(crate) fn counts(&self) -> Checked<&Counts> {
        self.counts.checked(usize::from(self.progress.written))
    }

    /// Bytes of the block.
    pub(crate) fn length(&self) -> Checked<usize> {
        Ok(self.mark(self.progress.parts)?.bytes)
    }

    /// The part has been written.
    pub(crate) fn advance(&mut self) {
        self.progress.written += 1;
    }

    /// Counts the content after `from` in a block of `length` bytes, and divides it where that
    /// pays.
    ///
    /// Literals are counted if they are to be compressed. `scratch` is scratch.
    pub(crate) fn begin(
        &mut self,
        store: &SequenceStore<'_>,
        from: SequenceMark,
        length: usize,
        scratch: &mut Scratch,
        literals: bool,
    ) -> Checked<()> {
        self.begin_chunks(self.counts.len(), store, from, length, scratch, literals)
    }

    /// Counts all of a block that is not divided.
    pub(crate) fn begin_whole(
        &mut self,
        store: &SequenceStore<'_>,
        length: usize,
        scratch: &mut Scratch,
        literals: bool,
    ) -> Checked<()> {
        self.begin_chunks(1, store, SequenceMark::default(), length, scratch, literals)
    }

    #[inline(never)]
    fn begin_chunks(
        &mut self,
        chunks: usize,
        store: &SequenceStore<'_>,
        from: SequenceMark,
        length: usize,
        scratch: &mut Scratch,
        literals: bool,
    ) -> Checked<()> {
        // Text beside noise has matches, and tables of its own.
        let sequences = store.len() - from.sequences;
        let all_literals = store.literals()?;
        let few = sequences <= (all_literals.len() - from.literals) / NOISE_SPAN;
        let noise = literals && few && are_noise(all_literals.get(from.literals..), scratch);
        let literals = literals && !noise;
        let short = length - from.bytes <= DIVISION_CHUNK_MIN;
        let chunks = if noise || short { 1 } else { chunks };
        let whole = SequenceMark {
            sequences: store.len(),
            literals: all_literals.len(),
            bytes: length,
        };
        let size = (length - from.bytes)
            .div_ceil(chunks.max(1))
            .max(DIVISION_CHUNK_MIN);
        let mut mark = from;
        let mut parts = 0;
        self.marks.checked_put(0, from.to_bits())?;
        for (counts, end) in self.counts.iter_mut().zip(&mut self.marks[1..]) {
            let Some((of_literals, codes)) = counts.split_first_chunk_mut::<LITERALS>() else {
                return Ok(());
            };
            let Ok(codes) = codes.try_into() else {
                return Ok(());
            };
            let start = mark;
            let reversed = store.reversed_from(start.sequences)?;
            if chunks == 1 {
                count_codes::<false>(codes, reversed, length, scratch);
                mark = whole;
            } else {
                let counted = count_codes::<true>(codes, reversed, size, scratch);
                mark.sequences += counted.sequences;
                mark.literals += counted.literals;
                mark.bytes += counted.bytes;
                if mark.sequences == whole.sequences {
                    mark = whole;
                }
            }
            if literals {
                let literals = all_literals.checked(start.literals..mark.literals)?;
                count_bytes(of_literals, literals, scratch);
            } else if noise || chunks > 1 {
                of_literals.fill([0; 4]);
            }
            *end = mark.to_bits().to_ne_bytes();
            parts += 1;
            if mark.bytes == length {
                break;
            }
        }
        *self.progress = DivisionProgress { parts, written: 0 };
        if parts > 1 {
            self.join()?;
        }
        Ok(())
    }

    /// Joins neighbouring chunks as long as that saves bits: the gain of one table less, against
    /// the loss of a table that fits both less well.
    fn join(&mut self) -> Checked<()> {
        let mut n = usize::from(self.progress.parts);
        let mut costs = [0_u32; DIVISION_CHUNKS_MAX];
        let mut joint = [0_u32; DIVISION_CHUNKS_MAX];
        for (cost, counts) in costs.iter_mut().zip(&*self.counts).take(n) {
            *cost = bits(|cell| counts.checked_at(cell))?;
        }
        let both = |counts: &[Counts], i: usize| {
            let (a, b) = (counts.checked(i)?, counts.checked(i + 1)?);
            bits(|cell| Ok(a.checked_at(cell)? + b.checked_at(cell)?))
        };
        for (i, joint) in joint.iter_mut().enumerate().take(n - 1) {
            *joint = both(self.counts, i)?;
        }
        while n > 1 {
            let (mut best, mut most) = (0, i64::MIN);
            for i in 0..n - 1 {
                let apart = costs.checked(i)? + costs.checked(i + 1)?;
                let saved = i64::from(apart) - i64::from(*joint.checked(i)?);
                if saved >= most {
                    (best, most) = (i, saved);
                }
            }
            if most < -DIVISION_GAIN {
                break;
            }
            let (head, tail) = self.counts.checked_split_mut(best + 1)?;
            for (sum, count) in head.checked_mut(best)?.iter_mut().zip(tail.checked(0)?) {
                *sum = (u32::from_ne_bytes(*sum) + u32::from_ne_bytes(*count)).to_ne_bytes();
            }
            self.counts.checked_copy_within(best + 2..n, best + 1)?;
            self.marks.checked_copy_within(best + 2..n + 1, best + 1)?;
            *costs.checked_mut(best)? = *joint.checked(best)?;
            costs.checked_copy_within(best + 2..n, best + 1)?;
            joint.checked_copy_within(best + 1..n - 1, best)?;
            n -= 1;
            if best > 0 {
                *joint.checked_mut(best - 1)? = both(self.counts, best - 1)?;
            }
            if best + 1 < n {
                *joint.checked_mut(best)? = both(self.counts, best)?;
            }
        }
        self.progress.parts = n as u8;
        Ok(())
    }
}

/// Whether literals look like noise in a sample. They need no counts to be stored.
fn are_noise(literals: Option<&[u8]>, scratch: &mut Scratch) -> bool {
    let (Some(literals), Some(counts)) = (literals, scratch.first_chunk_mut::<256>()) else {
        return false;
    };
    if literals.len() < NOISE_MIN {
        return false;
    }
    counts.fill([0; 4]);
    for stretch in literals.chunks_exact(literals.len() / NOISE_SAMPLES) {
        for byte in stretch.iter().take(NOISE_SAMPLE) {
            let count = counts.at((*byte).into()) + 1;
            counts.put((*byte).into(), count);
        }
    }
    let most = (0..256).map(|cell| counts.at(cell)).max();
    is_uniform(most.unwrap_or_default(), NOISE_SAMPLES * NOISE_SAMPLE)
}

/// About how many 1/256 bits a block with these counts takes.
fn bits(count: impl Fn(usize) -> Checked<u32>) -> Checked<u32> {
    // Block header, literals' header and jump table, sequences' header.
    let mut sum = (3 + 9 + 3) * 8 * BIT;
    let codes = |from: usize, most: usize| (LITERALS + from..LITERALS + from + most, 9);
    let alphabets = [
        (0..LITERALS, 5),
        codes(0, LITERAL_LENGTH_COUNTS.len()),
        codes(64, 32),
        codes(128, MATCH_LENGTH_COUNTS.len()),
    ];
    for (alphabet, half_bits) in alphabets {
        let mut sums = 0;
        for cell in alphabet {
            sums += tally(count(cell)?);
        }
        let (total, saved) = ((sums >> 32) as u32 & 0xf_ffff, sums as u32);
        let symbols = (sums >> 52) as u32;
        if total == 0 {
            continue;
        }
        let coded =
            times_log(total) - saved.min(times_log(total)) + (8 + symbols * half_bits / 2) * BIT;
        sum += coded.min(total * 8 * BIT);
    }
    Ok(sum)
}
