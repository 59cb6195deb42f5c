//! Literals sections (RFC 8878, section 3.1.1.3.1).

use super::Huffman;

/// A literals section: how it is written, with the size format as asked.
#[derive(Clone, Debug)]
pub(crate) enum Literals {
    Raw {
        format: u8,
        bytes: Vec<u8>,
    },
    Rle {
        format: u8,
        byte: u8,
        len: usize,
    },
    /// With a table, described or not, in one stream (format 0) or four.
    Compressed {
        format: u8,
        table: Vec<u8>,
        huffman: Huffman,
        bytes: Vec<u8>,
    },
    Treeless {
        format: u8,
        huffman: Huffman,
        bytes: Vec<u8>,
    },
    /// Whatever the test says: type, format, both sizes, what follows the header, and what it
    /// stands for.
    Forged {
        kind: u8,
        format: u8,
        regenerated: usize,
        compressed: usize,
        body: Vec<u8>,
        bytes: Vec<u8>,
    },
}

impl Literals {
    /// Raw, in the shortest header.
    pub(crate) fn raw(bytes: &[u8]) -> Self {
        Self::Raw {
            format: short_format(bytes.len()),
            bytes: bytes.to_vec(),
        }
    }

    /// One byte repeated, in the shortest header.
    pub(crate) fn rle(byte: u8, len: usize) -> Self {
        Self::Rle {
            format: short_format(len),
            byte,
            len,
        }
    }

    /// The literals that a decoder gets.
    pub(crate) fn content(&self) -> Vec<u8> {
        match self {
            Self::Raw { bytes, .. }
            | Self::Compressed { bytes, .. }
            | Self::Treeless { bytes, .. }
            | Self::Forged { bytes, .. } => bytes.clone(),
            Self::Rle { byte, len, .. } => vec![*byte; *len],
        }
    }

    /// The section.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Raw { format, bytes } => {
                [header(0, *format, bytes.len(), 0), bytes.clone()].concat()
            }
            Self::Rle { format, byte, len } => [header(1, *format, *len, 0), vec![*byte]].concat(),
            Self::Compressed {
                format,
                table,
                huffman,
                bytes,
            } => {
                let body = [table.clone(), streams(huffman, *format, bytes)].concat();
                [header(2, *format, bytes.len(), body.len()), body].concat()
            }
            Self::Treeless {
                format,
                huffman,
                bytes,
            } => {
                let body = streams(huffman, *format, bytes);
                [header(3, *format, bytes.len(), body.len()), body].concat()
            }
            Self::Forged {
                kind,
                format,
                regenerated,
                compressed,
                body,
                ..
            } => [
                header(*kind, *format, *regenerated, *compressed),
                body.clone(),
            ]
            .concat(),
        }
    }
}

fn streams(huffman: &Huffman, format: u8, bytes: &[u8]) -> Vec<u8> {
    let streams = if format == 0 {
        huffman.stream(bytes)
    } else {
        huffman.four_streams(bytes)
    };
    streams.expect("the table has a code for every literal")
}

/// The size format of raw and RLE literals of this length.
fn short_format(len: usize) -> u8 {
    match len {
        0..32 => 0,
        32..4096 => 1,
        _ => 3,
    }
}

/// The header; sizes are cut to what the format holds.
pub(crate) fn header(kind: u8, format: u8, regenerated: usize, compressed: usize) -> Vec<u8> {
    let (low, regenerated) = (u64::from(kind), regenerated as u64);
    let (bits, len) = if kind < 2 {
        match format {
            // The second bit of the format is already the size's first.
            0 => (low | regenerated << 3, 1),
            1 => (low | 1 << 2 | (regenerated & 0xFFF) << 4, 2),
            _ => (low | 3 << 2 | (regenerated & 0xF_FFFF) << 4, 3),
        }
    } else {
        let (width, len) = [(10, 3), (10, 3), (14, 4), (18, 5)][usize::from(format)];
        let mask = (1u64 << width) - 1;
        let sizes = (regenerated & mask) | (compressed as u64 & mask) << width;
        (low | u64::from(format) << 2 | sizes << 4, len)
    };
    bits.to_le_bytes()[..len].to_vec()
}
