//! Frames and blocks (RFC 8878, section 3.1), and what a decoder must make of them.

use super::{Literals, Sequence};

/// A frame header, field by field; nothing is checked.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) magic: bool,
    /// Two bits: 0, 2, 4 or 8 bytes of content size; 0 means 1 byte in a single segment.
    pub(crate) size_flag: u8,
    pub(crate) single_segment: bool,
    pub(crate) unused_bit: bool,
    pub(crate) reserved_bit: bool,
    pub(crate) checksum: bool,
    /// Two bits: 0, 1, 2 or 4 bytes of dictionary id.
    pub(crate) dictionary_flag: u8,
    /// Exponent in five bits, mantissa in three; absent in a single segment.
    pub(crate) window: u8,
    pub(crate) dictionary: u32,
    pub(crate) content_size: u64,
}

impl Header {
    /// A window of 1 KiB shifted left by `exponent`, nothing else.
    pub(crate) fn window(exponent: u8) -> Self {
        Self {
            magic: true,
            size_flag: 0,
            single_segment: false,
            unused_bit: false,
            reserved_bit: false,
            checksum: false,
            dictionary_flag: 0,
            window: exponent << 3,
            dictionary: 0,
            content_size: 0,
        }
    }

    /// A single segment whose content size has the shortest form.
    pub(crate) fn single(content_size: u64) -> Self {
        let size_flag = match content_size {
            0..256 => 0,
            256..65792 => 1,
            65792..0x1_0000_0000 => 2,
            _ => 3,
        };
        Self {
            single_segment: true,
            size_flag,
            content_size,
            ..Self::window(0)
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.magic {
            bytes.extend_from_slice(&[0x28, 0xB5, 0x2F, 0xFD]);
        }
        bytes.push(
            self.size_flag << 6
                | u8::from(self.single_segment) << 5
                | u8::from(self.unused_bit) << 4
                | u8::from(self.reserved_bit) << 3
                | u8::from(self.checksum) << 2
                | self.dictionary_flag,
        );
        if !self.single_segment {
            bytes.push(self.window);
        }
        let dictionary = [0, 1, 2, 4][usize::from(self.dictionary_flag)];
        bytes.extend_from_slice(&self.dictionary.to_le_bytes()[..dictionary]);
        let (size, width) = match self.size_flag {
            0 => (self.content_size, usize::from(self.single_segment)),
            1 => (self.content_size.wrapping_sub(256), 2),
            2 => (self.content_size, 4),
            _ => (self.content_size, 8),
        };
        bytes.extend_from_slice(&size.to_le_bytes()[..width]);
        bytes
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockType {
    Raw,
    Rle,
    Compressed,
    Reserved,
}

/// A block: header with the given size, then the body.
pub(crate) fn block(last: bool, kind: BlockType, size: usize, body: &[u8]) -> Vec<u8> {
    let header = u32::from(last) | (kind as u32) << 1 | (size as u32) << 3;
    [&header.to_le_bytes()[..3], body].concat()
}

/// A skippable frame.
pub(crate) fn skippable(magic: u32, body: &[u8]) -> Vec<u8> {
    [
        &magic.to_le_bytes(),
        &(body.len() as u32).to_le_bytes(),
        body,
    ]
    .concat()
}

/// The four bytes that end a frame with a checksum: the low half of XXH64.
pub(crate) fn checksum(content: &[u8]) -> [u8; 4] {
    (twox_hash::XxHash64::oneshot(0, content) as u32).to_le_bytes()
}

/// What a decoder has: history, content so far, the repeat offsets.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// The dictionary's content, then that of the frame.
    history: Vec<u8>,
    dictionary: usize,
    pub(crate) repeats: [u64; 3],
}

impl Model {
    pub(crate) fn new() -> Self {
        Self::with_dictionary(&[], [1, 4, 8])
    }

    pub(crate) fn with_dictionary(content: &[u8], repeats: [u64; 3]) -> Self {
        Self {
            history: content.to_vec(),
            dictionary: content.len(),
            repeats,
        }
    }

    /// The content so far.
    pub(crate) fn content(&self) -> &[u8] {
        &self.history[self.dictionary..]
    }

    /// A model without content: enough to see where repeat offsets lead.
    pub(crate) fn clone_repeats(&self) -> Self {
        Self::with_dictionary(&[], self.repeats)
    }

    /// Takes a raw or RLE block.
    pub(crate) fn plain(&mut self, bytes: &[u8]) {
        self.history.extend_from_slice(bytes);
    }

    /// The distance of an offset value after `literals` literals; updates the repeat offsets.
    /// `None` if it is 0.
    pub(crate) fn distance(&mut self, offset: u64, literals: u32) -> Option<u64> {
        let [one, two, three] = self.repeats;
        let index = offset + u64::from(literals == 0);
        let (distance, repeats) = match index {
            _ if offset > 3 => (offset - 3, [offset - 3, one, two]),
            1 => (one, [one, two, three]),
            2 => (two, [two, one, three]),
            3 => (three, [three, one, two]),
            _ => (one.checked_sub(1)?, [one - 1, one, two]),
        };
        self.repeats = repeats;
        (distance > 0).then_some(distance)
    }

    /// Takes a compressed block. `None` if a match begins before the history or literals run out:
    /// no decoder may accept it.
    pub(crate) fn compressed(&mut self, literals: &Literals, sequences: &[Sequence]) -> Option<()> {
        let literals = literals.content();
        let mut literals = &literals[..];
        for sequence in sequences {
            let (copied, rest) = literals.split_at_checked(sequence.literals as usize)?;
            self.history.extend_from_slice(copied);
            literals = rest;
            let distance = self.distance(sequence.offset, sequence.literals)? as usize;
            for _ in 0..sequence.length {
                let from = self.history.len().checked_sub(distance)?;
                self.history.push(self.history[from]);
            }
        }
        self.history.extend_from_slice(literals);
        Some(())
    }
}
