//! Where content goes, the literals that go there, and the history that matches copy from.

use crate::Error;

/// The fast loop writes and reads at most this many bytes past the end of a copy.
pub(crate) const CHUNK: usize = 32;

/// Sequences at the end of a block that make up for a whole chunk, as each gives at least 3 bytes.
pub(crate) const TAIL: usize = CHUNK.div_ceil(3);

/// The literals of a block that are left.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Literals<'s> {
    /// `bytes[at..end]`.
    Slice {
        bytes: &'s [u8],
        at: usize,
        end: usize,
    },
    /// `at..end` of the output's bytes.
    InPlace { at: usize, end: usize },
}

/// History before the first byte at hand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OlderHistory<'d> {
    /// The content of a dictionary (it may be empty), reachable while the frame has given no more
    /// than a window.
    Dictionary(&'d [u8]),
    /// The part of the output buffer that ends here, from before the output began again at the
    /// buffer's start.
    Wrapped { end: usize },
}

/// The destination of a block, with history.
#[derive(Debug)]
pub(crate) struct BlockOutput<'o, 'd> {
    pub(crate) bytes: &'o mut [u8],
    /// The next byte to write.
    pub(crate) at: usize,
    /// This byte and all after it stay as they are.
    pub(crate) end: usize,
    /// Bytes before this one may be written over by copies that are longer than they must be,
    /// except for those that the last [`tail`](Self::tail) sequences of a block leave behind them.
    pub(crate) scratch_end: usize,
    /// The number of sequences at the end of a block that are copied exactly.
    pub(crate) tail: usize,
    /// Matches reach back to this byte, and then into `older`.
    pub(crate) start: usize,
    pub(crate) older: OlderHistory<'d>,
    /// Matches reach back no farther than this many bytes, except into a dictionary.
    pub(crate) window: usize,
    /// The meaning of content that does not fit before `end`.
    pub(crate) full: FullOutput,
}

/// The meaning of content that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FullOutput {
    /// The frame breaks its own word.
    Fails(Error),
    /// The caller wants no more.
    Truncates,
}

/// Whether a block's content is all there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Whole,
    /// The output is full, the content goes on.
    Truncated,
}

impl BlockOutput<'_, '_> {
    /// Bytes that still fit.
    #[inline(always)]
    pub(crate) fn room(&self) -> usize {
        self.end.saturating_sub(self.at)
    }

    /// How much of `len` bytes fits, or why that is an error.
    #[inline(always)]
    pub(crate) fn fit(&self, len: usize) -> Result<usize, Error> {
        match self.full {
            _ if len <= self.room() => Ok(len),
            FullOutput::Fails(error) => Err(error),
            FullOutput::Truncates => Ok(self.room()),
        }
    }

    /// Writes all of `src`, or as much as fits.
    #[inline(never)]
    pub(crate) fn push_slice(&mut self, src: &[u8]) -> Result<Extent, Error> {
        let len = self.fit(src.len())?;
        let place = self.bytes.get_mut(self.at..self.at.wrapping_add(len));
        match (place, src.get(..len)) {
            (Some(place), Some(src)) => place.copy_from_slice(src),
            _ => return Err(Error::Corruption),
        }
        self.at += len;
        Ok(if len == src.len() {
            Extent::Whole
        } else {
            Extent::Truncated
        })
    }

    /// Writes `byte` `count` times, or as often as fits.
    #[inline(never)]
    pub(crate) fn push_fill(&mut self, byte: u8, count: usize) -> Result<Extent, Error> {
        let len = self.fit(count)?;
        self.fill(byte, len)?;
        Ok(if len == count {
            Extent::Whole
        } else {
            Extent::Truncated
        })
    }

    /// Writes `byte` `len` times (they fit).
    #[inline(always)]
    fn fill(&mut self, byte: u8, len: usize) -> Result<(), Error> {
        let place = self.bytes.get_mut(self.at..self.at.wrapping_add(len));
        place.ok_or(Error::Corruption)?.fill(byte);
        self.at += len;
        Ok(())
    }

    /// Writes `len` bytes (they fit) of the output buffer that begin at `from`.
    #[inline(always)]
    pub(crate) fn push_within(&mut self, from: usize, len: usize) -> Result<(), Error> {
        // The preconditions of `copy_within`, in its own terms, so that it does not panic.
        let (size, end) = (self.bytes.len(), from.wrapping_add(len));
        if from > end || end > size || self.at > size - (end - from) {
            return Err(Error::Corruption);
        }
        self.bytes.copy_within(from..end, self.at);
        self.at += len;
        Ok(())
    }

    /// Copies `len` bytes (they fit) from `offset` bytes back. [`Error::Corruption`] if no history
    /// is there.
    #[inline(always)]
    pub(crate) fn push_match(&mut self, offset: usize, len: usize) -> Result<(), Error> {
        let have = self.at - self.start;
        if offset > have {
            return self.push_older_match(offset, len);
        }
        if offset > self.window || offset == 0 {
            return Err(Error::Corruption);
        }
        self.repeat_back(offset, len)
    }

    /// Copies from `offset` bytes back, which is at least 1 and at hand.
    #[inline(always)]
    fn repeat_back(&mut self, offset: usize, len: usize) -> Result<(), Error> {
        let from = self.at - offset;
        if offset >= len {
            return self.push_within(from, len);
        }
        if offset == 1 {
            let byte = *self.bytes.get(from).ok_or(Error::Corruption)?;
            return self.fill(byte, len);
        }
        // Each turn doubles the distance between source and destination.
        let end = self.at + len;
        while self.at < end {
            let step = (self.at - from).min(end - self.at);
            self.push_within(from, step)?;
        }
        Ok(())
    }

    /// Copies a match that begins before `start`.
    #[cold]
    #[inline(never)]
    fn push_older_match(&mut self, offset: usize, len: usize) -> Result<(), Error> {
        let have = self.at - self.start;
        let back = offset - have;
        let len_older = back.min(len);
        match self.older {
            OlderHistory::Dictionary(content) => {
                if have > self.window || back > content.len() {
                    return Err(Error::Corruption);
                }
                let from = content.len() - back;
                let place = self.bytes.get_mut(self.at..self.at.wrapping_add(len_older));
                match (place, content.get(from..from.wrapping_add(len_older))) {
                    (Some(place), Some(older)) => place.copy_from_slice(older),
                    _ => return Err(Error::Corruption),
                }
                self.at += len_older;
            }
            OlderHistory::Wrapped { end } => {
                if offset > self.window || back > end {
                    return Err(Error::Corruption);
                }
                self.push_within(end - back, len_older)?;
            }
        }
        if len > len_older {
            self.repeat_back(offset, len - len_older)?;
        }
        Ok(())
    }
}
