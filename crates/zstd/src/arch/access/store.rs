//! Where sequences and literals are put.

use super::{IndexedBytes, opaque};
use crate::checked::{Checked, ensure};
use crate::encode::store::{OVERRUN, SequenceStore};
use crate::sequences::Sequence;

/// A store for the sequences of the last bytes of the data.
pub(crate) struct Store<'s, 'a> {
    store: &'s mut SequenceStore<'a>,
    start: *mut u8,
    /// Where the literals end, and where the sequences begin.
    literals: *mut u8,
    sequences: *mut u8,
    /// Room in bytes beyond the need of the rest of the block (all of it as literals) and one more
    /// sequence.
    room: isize,
}

impl<'s, 'a> Store<'s, 'a> {
    /// A store for the sequences of the `rest` last bytes of the data.
    #[inline(always)]
    pub(crate) fn new(store: &'s mut SequenceStore<'a>, rest: usize) -> Checked<Self> {
        let (buffer, literals, sequences, room) = store.raw_parts(rest);
        ensure!(literals <= sequences && sequences <= buffer.len() && room >= 0);
        ensure!(room as usize + rest + 8 + OVERRUN == sequences - literals);
        let start = buffer.as_mut_ptr();
        Ok(Store {
            store,
            start,
            literals: start.wrapping_add(literals),
            sequences: start.wrapping_add(sequences),
            room,
        })
    }

    /// Tells the sequence store its new ends.
    #[inline(always)]
    pub(crate) fn finish(self) -> Checked<()> {
        let start = self.start.addr();
        self.store
            .set_ends(self.literals.addr() - start, self.sequences.addr() - start)
    }

    /// Appends a sequence: `literals` bytes from `anchor` on, then a match of `matched` bytes.
    ///
    /// The block ends where `data` ends. Returns whether the block may go on: when this is false
    /// the store is full (the sequence was taken), and the search must return, with the block
    /// ending after this match.
    ///
    /// # Safety
    ///
    /// The literals and the match lie in the last bytes of `data` that the store is for, after
    /// those of the call before, which returned true.
    #[inline(always)]
    #[must_use]
    pub(crate) unsafe fn append(
        &mut self,
        data: IndexedBytes<'_>,
        anchor: usize,
        literals: usize,
        offset_value: u32,
        matched: usize,
    ) -> bool {
        debug_assert!(self.room >= 0);
        debug_assert!(anchor + literals + matched <= data.end);
        let to = self.literals;
        if anchor + literals + OVERRUN > data.end {
            // SAFETY: the literals are a part of the rest of the block, for which there is room;
            // they lie in the data.
            unsafe { copy_bytes(to, data.origin.wrapping_add(anchor), literals) };
        } else {
            // Sixteen bytes or 32, for any length: most runs are shorter, and excess bytes are
            // overwritten.
            // SAFETY: `anchor + literals + OVERRUN <= end`, and `OVERRUN` is more than 16.
            let chunk = unsafe { data.read::<16>(anchor) };
            // SAFETY: `room` is not negative: before the sequences there is room for the rest of
            // the block, of which the literals are a part, and `OVERRUN` bytes more, of which this
            // writes the first 16.
            unsafe { to.cast::<[u8; 16]>().write(chunk) };
            let mut done = 16;
            while done < literals {
                // SAFETY: `done < literals`, and as above.
                let chunk = unsafe { data.read::<16>(anchor + done) };
                let place = to.wrapping_add(done).cast::<[u8; 16]>();
                // SAFETY: as above; this writes at most 15 bytes after the literals.
                unsafe { place.write(chunk) };
                // Were this seen through, the loop would become a call of `memcpy`, around which
                // nothing stays in registers.
                done = opaque(done + 16);
            }
        }
        self.literals = to.wrapping_add(literals);
        self.sequences = self.sequences.wrapping_sub(8);
        let sequence = Sequence::pack(literals, offset_value, matched);
        let place = self.sequences.cast::<[u8; 8]>();
        // SAFETY: there was room for a sequence besides the rest of the block, and these literals
        // are of that rest.
        unsafe { place.write(sequence.bits().to_ne_bytes()) };
        // The literals are no longer part of the rest, but they take up as much: only the match
        // counts.
        self.room += matched as isize - 8;
        self.room >= 0
    }
}

/// Copies `length` bytes, out of line to keep the loop small.
///
/// # Safety
///
/// `from` must be readable for that many bytes, `to` writable, and neither may reach into the
/// other.
#[cold]
#[inline(never)]
unsafe fn copy_bytes(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: as the caller promises.
    unsafe { to.copy_from_nonoverlapping(from, length) };
}
