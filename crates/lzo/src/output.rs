//! The instructions of a stream, as the encoders write them.

use crate::{END, MIDDLE_MAX, NEAR_MAX};

/// A stream that is being written.
pub(crate) struct InstructionWriter<'a> {
    dst: &'a mut [u8],
    at: usize,
}

impl<'a> InstructionWriter<'a> {
    pub(crate) fn new(dst: &'a mut [u8]) -> Self {
        InstructionWriter { dst, at: 0 }
    }

    /// Emits up to 16 literals and a match of common length, without branching on either. Returns
    /// `false` and emits nothing if there are more literals, the match is longer, the literals
    /// start the stream, or the end of `dst` is near.
    #[inline(always)]
    pub(crate) fn usual(
        &mut self,
        src: &[u8],
        from: usize,
        end: usize,
        distance: usize,
        len: usize,
    ) -> bool {
        let count = end - from;
        let (first, bits, back) = if distance <= MIDDLE_MAX {
            (0b0010_0000, 31, distance - 1)
        } else {
            let back = distance - MIDDLE_MAX;
            (0b0001_0000 | ((back >> 11) & 8), 7, back & (MIDDLE_MAX - 1))
        };
        if (count > 16) | (len - 2 > bits) | (self.at < 2) {
            return false;
        }
        let Some(to) = self.dst.get_mut(self.at.wrapping_sub(2)..self.at + 24) else {
            return false;
        };
        let Some(literals) = src.get(from..from + 16) else {
            return false;
        };
        let spare = count <= 3;
        to[0] |= if spare { count as u8 } else { 0 };
        to[2] = (count as u8).wrapping_sub(3);
        let head = 2 + usize::from(!spare);
        to[head..head + 16].copy_from_slice(literals);
        let near = (distance <= NEAR_MAX) & (len <= 8);
        let short = ((len.wrapping_sub(1) << 5) | ((back & 7) << 2)) | ((back >> 3) << 8);
        let long = (first | (len - 2)) | (back << 10);
        let word = if near { short } else { long } as u32;
        let tail = head + count;
        to[tail..tail + 4].copy_from_slice(&word.to_le_bytes());
        self.at += tail - 2 + if near { 2 } else { 3 };
        true
    }

    /// Emits the literals of `src` from `from` up to `end`.
    #[inline(always)]
    pub(crate) fn literals(&mut self, src: &[u8], from: usize, end: usize) -> Option<()> {
        let len = end - from;
        if len == 0 {
            return Some(());
        }
        if len <= 3 && self.at != 0 {
            // The spare bits of the previous match, which in all of its forms are two bytes back.
            self.dst[self.at - 2] |= len as u8;
        } else if self.at == 0 && len <= 238 {
            *self.dst.get_mut(self.at)? = 17 + len as u8;
            self.at += 1;
        } else if len <= 18 {
            *self.dst.get_mut(self.at)? = (len - 3) as u8;
            self.at += 1;
        } else {
            self.long(0, len - 18)?;
        }
        if len <= 16
            && let (Some(to), Some(from)) = (
                self.dst.get_mut(self.at..self.at + 16),
                src.get(from..from + 16),
            )
        {
            to.copy_from_slice(from);
            self.at += len;
            return Some(());
        }
        self.dst
            .get_mut(self.at..self.at + len)?
            .copy_from_slice(&src[from..end]);
        self.at += len;
        Some(())
    }

    /// Emits a match.
    #[inline(always)]
    pub(crate) fn matched(&mut self, distance: usize, len: usize) -> Option<()> {
        if distance <= NEAR_MAX && len <= 8 {
            let back = distance - 1;
            let to = self.dst.get_mut(self.at..self.at + 2)?;
            to[0] = (((len - 1) << 5) | ((back & 7) << 2)) as u8;
            to[1] = (back >> 3) as u8;
            self.at += 2;
            return Some(());
        }
        let (first, bits, back) = if distance <= MIDDLE_MAX {
            (0b0010_0000, 31, distance - 1)
        } else {
            let back = distance - MIDDLE_MAX;
            (0b0001_0000 | ((back >> 11) & 8), 7, back & (MIDDLE_MAX - 1))
        };
        if len - 2 <= bits {
            *self.dst.get_mut(self.at)? = (first | (len - 2)) as u8;
            self.at += 1;
        } else {
            self.long(first as u8, len - 2 - bits)?;
        }
        let to = self.dst.get_mut(self.at..self.at + 2)?;
        to.copy_from_slice(&((back << 2) as u16).to_le_bytes());
        self.at += 2;
        Some(())
    }

    /// Emits a match of two or three bytes in the form that only follows literals: `back` is its
    /// distance beyond the least one of that form.
    #[inline(always)]
    pub(crate) fn matched_after_literals(&mut self, back: usize) -> Option<()> {
        let to = self.dst.get_mut(self.at..self.at + 2)?;
        to.copy_from_slice(&[((back & 3) << 2) as u8, (back >> 2) as u8]);
        self.at += 2;
        Some(())
    }

    /// Emits the end mark and returns the length of the stream.
    pub(crate) fn end(self) -> Option<usize> {
        self.dst
            .get_mut(self.at..self.at + END.len())?
            .copy_from_slice(&END);
        Some(self.at + END.len())
    }

    /// Emits an instruction's first byte and a length that does not fit in it.
    #[inline(never)]
    fn long(&mut self, first: u8, len: usize) -> Option<()> {
        let zeros = (len - 1) / 255;
        let to = self.dst.get_mut(self.at..self.at + zeros + 2)?;
        to[0] = first;
        to[1..=zeros].fill(0);
        to[zeros + 1] = (len - 255 * zeros) as u8;
        self.at += zeros + 2;
        Some(())
    }
}
