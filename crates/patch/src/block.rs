//! The codecs of blocks that a patch decodes, and encodes again.

use tree::to_usize;

/// The codec of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockCodec {
    /// A frame of Zstandard.
    Zstd,
    /// A zlib stream.
    Gzip,
    /// A .xz stream.
    Xz,
    /// A raw LZ4 block.
    Lz4,
}

/// In the order of their numbers in a patch, from 1.
const CODECS: [BlockCodec; 4] = [
    BlockCodec::Zstd,
    BlockCodec::Gzip,
    BlockCodec::Xz,
    BlockCodec::Lz4,
];

impl BlockCodec {
    pub(crate) fn number(self) -> u8 {
        match self {
            BlockCodec::Zstd => 1,
            BlockCodec::Gzip => 2,
            BlockCodec::Xz => 3,
            BlockCodec::Lz4 => 4,
        }
    }

    pub(crate) fn of(number: u64) -> Option<BlockCodec> {
        CODECS.get(to_usize(number).checked_sub(1)?).copied()
    }

    /// The algorithm, as crates of codecs name it.
    pub fn algorithm(self) -> codec::Algorithm {
        match self {
            BlockCodec::Zstd => codec::Algorithm::Zstd,
            BlockCodec::Gzip => codec::Algorithm::Zlib,
            BlockCodec::Xz => codec::Algorithm::Xz,
            BlockCodec::Lz4 => codec::Algorithm::Lz4,
        }
    }

    /// Bytes that a decoder allocates: the one of zstd has the workspace of all parts.
    pub(crate) fn decoder_bytes(self) -> u64 {
        match self {
            BlockCodec::Zstd | BlockCodec::Lz4 => 0,
            BlockCodec::Gzip => 32 << 10,
            BlockCodec::Xz => XZ_DICTIONARY_BYTES_MAX + (256 << 10),
        }
    }
}

/// The longest dictionary of .xz streams that a patch decodes.
pub const XZ_DICTIONARY_BYTES_MAX: u64 = 2 << 20;

/// The filter and the dictionary of the first block of a .xz stream: the bit of the filter in
/// [`codec::Filters`] plus 1, or 0 without one, and a length.
pub fn xz_settings(stored: &[u8]) -> Option<(u8, u64)> {
    const LZMA2: u8 = 0x21;
    let (filter, properties) = match *stored.get(14..19)? {
        [LZMA2, 1, properties, ..] => (0, properties),
        // The filters for machine code are numbered from 4, without properties here.
        [id @ 4..=11, 0, LZMA2, 1, properties] => (id.saturating_sub(3), properties),
        _ => return None,
    };
    let mantissa = 2 | u64::from(properties & 1);
    let dictionary = mantissa.checked_shl(u32::from(properties / 2).saturating_add(11))?;
    Some((filter, dictionary))
}

/// Decodes blocks of all codecs.
pub struct SourceDecoder {
    pub(crate) workspace: Vec<u8>,
    others: codec::Decoder,
}

impl Default for SourceDecoder {
    fn default() -> Self {
        SourceDecoder {
            workspace: vec![0; zstd::DECOMPRESS_WORKSPACE_SIZE],
            others: codec::Decoder::new(),
        }
    }
}

impl SourceDecoder {
    /// Decodes a block that fills `content`. Returns whether it does.
    pub fn decode(&mut self, codec: BlockCodec, content: &mut [u8], stored: &[u8]) -> bool {
        let len = match codec {
            BlockCodec::Zstd => zstd::decompress(content, stored, &mut self.workspace).ok(),
            BlockCodec::Xz if !is_modest(stored) => None,
            codec => (self.others)
                .decompress(codec.algorithm(), content, stored)
                .ok(),
        };
        len == Some(content.len())
    }
}

/// Whether the dictionary of a .xz stream is no larger than the memory for it.
fn is_modest(stored: &[u8]) -> bool {
    xz_settings(stored).is_some_and(|(_, bytes)| bytes <= XZ_DICTIONARY_BYTES_MAX)
}

/// Bytes that the decoders of these codecs allocate.
pub(crate) fn decoder_bytes(codecs: impl Iterator<Item = BlockCodec>) -> u64 {
    codecs.map(BlockCodec::decoder_bytes).max().unwrap_or(0)
}
