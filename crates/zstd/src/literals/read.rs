//! The header of a literals section.

use crate::Error;

/// How literals are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// As they are.
    Raw,
    /// One byte, which all of them are.
    Rle,
    /// Huffman-coded, after the description of their table.
    Compressed,
    /// Huffman-coded with the table of an earlier block.
    Treeless,
}

/// The header of a literals section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiteralsHeader {
    pub(crate) coding: Coding,
    /// Bytes of the header.
    pub(crate) bytes: usize,
    /// Number of literals.
    pub(crate) content: usize,
    /// Bytes of the section after the header.
    pub(crate) stored: usize,
    /// Whether Huffman-coded literals come as four streams, not one.
    pub(crate) four_streams: bool,
}

impl LiteralsHeader {
    /// Reads the header. [`Error::Corruption`] if the section does not fit in `block`, or has more
    /// literals than `content_max`.
    pub(crate) fn parse(block: &[u8], content_max: usize) -> Result<LiteralsHeader, Error> {
        let mut word = [0; 8];
        let len = block.len().min(5);
        word[..len].copy_from_slice(&block[..len]);
        let word = u64::from_le_bytes(word);
        let format = (word >> 2) & 3;
        // The sizes follow the two bits of the coding and the one or two bits of the format.
        let field = |at: u32, bits: u32| ((word >> at) & ((1 << bits) - 1)) as usize;
        let coding = match word & 3 {
            0 => Coding::Raw,
            1 => Coding::Rle,
            2 => Coding::Compressed,
            _ => Coding::Treeless,
        };
        let (bytes, content, stored) = match coding {
            Coding::Raw | Coding::Rle => {
                let (bytes, content) = match format {
                    1 => (2, field(4, 12)),
                    3 => (3, field(4, 20)),
                    _ => (1, field(3, 5)),
                };
                (
                    bytes,
                    content,
                    if coding == Coding::Raw { content } else { 1 },
                )
            }
            _ => match format {
                0 | 1 => (3, field(4, 10), field(14, 10)),
                2 => (4, field(4, 14), field(18, 14)),
                _ => (5, field(4, 18), field(22, 18)),
            },
        };
        let four_streams = format != 0;
        if content > content_max || bytes + stored > block.len() {
            return Err(Error::Corruption);
        }
        Ok(LiteralsHeader {
            coding,
            bytes,
            content,
            stored,
            four_streams,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_forms() {
        let parse = |bytes: &[u8]| {
            let mut block = [0; 400_000].to_vec();
            block[..bytes.len()].copy_from_slice(bytes);
            LiteralsHeader::parse(&block, 1 << 20).map(|h| (h.coding, h.bytes, h.content, h.stored))
        };
        assert_eq!(parse(&[31 << 3]), Ok((Coding::Raw, 1, 31, 31)));
        assert_eq!(parse(&[2 << 3 | 1]), Ok((Coding::Rle, 1, 2, 1)));
        assert_eq!(parse(&[0xf5, 0xff]), Ok((Coding::Rle, 2, 4095, 1)));
        assert_eq!(parse(&[0x0d, 0, 1]), Ok((Coding::Rle, 3, 4096, 1)));
        assert_eq!(
            parse(&[0x02 | 1 << 4, 0x40, 0]),
            Ok((Coding::Compressed, 3, 1, 1))
        );
        assert_eq!(
            parse(&[0xfb, 0xff, 0xff, 0xff]),
            Ok((Coding::Treeless, 4, 16383, 16383))
        );
        assert_eq!(
            parse(&[0xfe, 0xff, 0xff, 0xff, 0xff]),
            Ok((Coding::Compressed, 5, (1 << 18) - 1, (1 << 18) - 1))
        );
        assert_eq!(
            LiteralsHeader::parse(&[], 10).map(|h| h.content),
            Err(Error::Corruption)
        );
    }
}
