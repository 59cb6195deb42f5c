//! The records of a patch, as its maker needs them; docs/formats/patch.md describes them.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use tree::{Error, Result, sha256, to_u64, to_usize};

use crate::BlockCodec;
pub use crate::apply::{shared_memory, thread_memory};
use crate::encoder::Encoder;
pub use crate::fields::emit_number;
use crate::fields::{Fields, emit_signed};

/// The first bytes: no text, and changed by a transfer as text.
const MAGIC: [u8; 8] = *b"\x89RPATCH\n";
const VERSION: u32 = 3;

/// Bytes of memory that the buffers of a patch take at most, unless more are allowed: with the
/// program itself, less than 16 MB.
pub const APPLY_MEMORY_BYTES: u64 = 13 << 20;

/// Bytes at the beginning of a device that are zeros until all others are verified, so that the
/// first part ends there. They have the superblock of SquashFS, EROFS and ext4, and the first one
/// of btrfs, at 64 KiB.
pub const HEAD_BYTES: usize = 128 << 10;

/// The length of the header; its last bytes are the SHA-256 of those before.
pub const HEADER_BYTES: usize = 512;
const HEADER_DIGEST_AT: usize = HEADER_BYTES - 32;
const ENCODERS_AT: usize = 112;
/// As many as have room in the header, with 44 bytes each.
pub const ENCODERS_MAX: usize = 8;

/// The length of the header of a part; its first bytes are the SHA-256 of all that follows in the
/// part.
pub const PART_HEADER_BYTES: usize = 88;

/// Bytes of NEW in a part: the unit that `--resume` verifies, and may have to write again.
pub const PART_NEW_BYTES_MAX: u64 = 64 << 20;

/// The header of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The length of the old file.
    pub old_bytes: u64,
    /// The length of the new file.
    pub new_bytes: u64,
    /// The SHA-256 of the old file.
    pub old_sha256: [u8; 32],
    /// The SHA-256 of the new file.
    pub new_sha256: [u8; 32],
    /// Bytes of memory for buffers that applying needs.
    pub memory_bytes: u64,
    /// The number of parts.
    pub parts: u32,
    /// The encoders that operations name by their number.
    pub encoders: Vec<Encoder>,
}

impl Header {
    /// Emits the header with its digest.
    pub fn emit(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.parts.to_le_bytes());
        bytes.extend(self.old_bytes.to_le_bytes());
        bytes.extend(self.new_bytes.to_le_bytes());
        bytes.extend(self.old_sha256);
        bytes.extend(self.new_sha256);
        bytes.extend(self.memory_bytes.to_le_bytes());
        bytes.extend(to_u64(self.encoders.len()).to_le_bytes());
        for encoder in &self.encoders {
            bytes.extend([encoder.codec.number(), encoder.variant]);
            bytes.extend(encoder.level.to_le_bytes());
            bytes.extend(encoder.sized_bytes.to_le_bytes());
            bytes.extend(encoder.content_bytes_max.to_le_bytes());
            bytes.extend(encoder.probe_sha256);
        }
        bytes.resize(HEADER_DIGEST_AT, 0);
        let digest = sha256(&bytes);
        bytes.extend(digest);
        bytes.try_into().expect("all parts together")
    }

    pub(crate) fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Header> {
        let mut fields = Fields::new(bytes, 0);
        let magic = fields.array::<8>()?;
        if magic != MAGIC {
            let got = u64::from_be_bytes(magic);
            return Err(Error::corrupt("patch has no magic number", 0, got));
        }
        let version = fields.u32()?;
        if version != VERSION {
            let what = "patch of another version; use a newer restow";
            return Err(Error::Unsupported(what));
        }
        let (covered, digest) = bytes.split_at(HEADER_DIGEST_AT);
        if sha256(covered) != digest {
            let at = to_u64(HEADER_DIGEST_AT);
            let what = "header of the patch does not have its SHA-256";
            return Err(Error::corrupt(what, at, first_byte(digest)));
        }
        let parts = fields.u32()?;
        let mut header = Header {
            old_bytes: fields.u64()?,
            new_bytes: fields.u64()?,
            old_sha256: fields.array()?,
            new_sha256: fields.array()?,
            memory_bytes: fields.u64()?,
            parts,
            encoders: Vec::new(),
        };
        let count = fields.u64()?;
        if count > to_u64(ENCODERS_MAX) {
            let at = to_u64(ENCODERS_AT).saturating_sub(8);
            let what = "patch has more encoders than its header holds";
            return Err(Error::corrupt(what, at, count));
        }
        for _ in 0..count {
            header.encoders.push(parse_encoder(&mut fields)?);
        }
        if header.old_bytes.checked_add(header.new_bytes).is_none() {
            let what = "lengths of the patch's files overflow";
            return Err(Error::corrupt(what, 16, header.old_bytes));
        }
        Ok(header)
    }
}

fn parse_encoder(fields: &mut Fields<'_>) -> Result<Encoder> {
    let at = fields.at();
    let [codec, variant] = fields.array()?;
    let Some(codec) = BlockCodec::of(codec.into()) else {
        return Err(Error::Unsupported(
            "patch encodes with an algorithm of a newer restow",
        ));
    };
    let encoder = Encoder {
        codec,
        variant,
        level: i16::from_le_bytes(fields.array()?),
        sized_bytes: fields.u32()?,
        content_bytes_max: fields.u32()?,
        probe_sha256: fields.array()?,
    };
    if !encoder.is_known() {
        let got = u64::from(encoder.level.unsigned_abs());
        return Err(Error::corrupt(
            "encoder of the patch has no such level or variant",
            at,
            got,
        ));
    }
    Ok(encoder)
}

/// The header of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartHeader {
    /// Of all bytes of the part after this digest.
    pub sha256: [u8; 32],
    /// Of the bytes of NEW from its beginning to the end of the part.
    pub new_sha256: [u8; 32],
    /// The number of bytes of NEW that the part makes.
    pub new_bytes: u64,
    /// The length of the list of sources.
    pub sources_bytes: u32,
    /// The length of the zstd frame.
    pub frame_bytes: u32,
    /// The length of its content.
    pub content_bytes: u32,
    /// The length of the operations at the beginning of the content.
    pub operations_bytes: u32,
}

impl PartHeader {
    /// Emits the header, with the digest over it and the rest of the part.
    pub fn emit(&self, sources: &[u8], frame: &[u8]) -> [u8; PART_HEADER_BYTES] {
        let mut bytes = self.new_sha256.to_vec();
        bytes.extend(self.new_bytes.to_le_bytes());
        for len in [
            self.sources_bytes,
            self.frame_bytes,
            self.content_bytes,
            self.operations_bytes,
        ] {
            bytes.extend(len.to_le_bytes());
        }
        let mut digest = tree::Sha256::new();
        digest.update(&bytes);
        digest.update(sources);
        digest.update(frame);
        let mut whole = digest.finish().to_vec();
        whole.extend(bytes);
        whole.try_into().expect("all fields together")
    }

    pub(crate) fn parse(bytes: &[u8; PART_HEADER_BYTES], at: u64) -> Result<PartHeader> {
        let mut fields = Fields::new(bytes, at);
        let part = PartHeader {
            sha256: fields.array()?,
            new_sha256: fields.array()?,
            new_bytes: fields.u64()?,
            sources_bytes: fields.u32()?,
            frame_bytes: fields.u32()?,
            content_bytes: fields.u32()?,
            operations_bytes: fields.u32()?,
        };
        if part.new_bytes > PART_NEW_BYTES_MAX {
            let what = "part of the patch makes more than 64 MiB";
            return Err(Error::corrupt(what, at.saturating_add(64), part.new_bytes));
        }
        if part.operations_bytes > part.content_bytes {
            let got = part.operations_bytes.into();
            let what = "operations of the patch do not fit in their content";
            return Err(Error::corrupt(what, at.saturating_add(84), got));
        }
        Ok(part)
    }

    /// Bytes after the header.
    pub fn packed_bytes(&self) -> u64 {
        u64::from(self.sources_bytes).saturating_add(self.frame_bytes.into())
    }
}

/// A stretch of OLD, or of NEW as far as it is made, that precedes the content of a part as the
/// prefix of its frame. Offsets of NEW begin behind those of OLD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source {
    /// Where it begins.
    pub at: u64,
    /// Its length there.
    pub stored_bytes: u32,
    /// The length of the content, if the stretch is a block that is decoded; otherwise 0.
    pub content_bytes: u32,
    /// The codec of the block.
    pub codec: BlockCodec,
}

impl Source {
    /// Bytes of the prefix.
    pub fn prefix_bytes(&self) -> u64 {
        match self.content_bytes {
            0 => self.stored_bytes.into(),
            content => content.into(),
        }
    }

    /// Bytes of the buffer from which it is decoded.
    pub(crate) fn stored_bytes_needed(&self) -> u64 {
        match self.content_bytes {
            0 => 0,
            _ => self.stored_bytes.into(),
        }
    }

    /// Where it ends.
    pub fn end(&self) -> u64 {
        self.at.saturating_add(self.stored_bytes.into())
    }
}

/// Bytes of memory for the buffers of a part, besides those that all parts share.
pub fn part_memory(part: &PartHeader, sources: &[Source]) -> u64 {
    let prefix = prefix_bytes(sources);
    let stored = sources.iter().map(Source::stored_bytes_needed).max();
    [prefix, stored.unwrap_or(0), part.content_bytes.into()]
        .iter()
        .fold(part.packed_bytes(), |sum, bytes| sum.saturating_add(*bytes))
}

pub(crate) fn prefix_bytes(sources: &[Source]) -> u64 {
    (sources.iter().map(Source::prefix_bytes)).fold(0, u64::saturating_add)
}

/// Emits the list of sources.
pub fn emit_sources(sources: &[Source]) -> Vec<u8> {
    let (mut bytes, mut end) = (Vec::new(), 0);
    for source in sources {
        emit_signed(&mut bytes, end, source.at);
        let is_block = source.content_bytes != 0;
        let codec = if is_block { source.codec.number() } else { 0 };
        emit_number(
            &mut bytes,
            u64::from(source.stored_bytes) << 3 | u64::from(codec),
        );
        if is_block {
            emit_number(&mut bytes, source.content_bytes.into());
        }
        end = source.end();
    }
    bytes
}

/// Parses the list of sources, which ends with its bytes. `made` is the end of the readable bytes.
pub(crate) fn parse_sources(bytes: &[u8], at: u64, made: u64) -> Result<Vec<Source>> {
    let mut fields = Fields::new(bytes, at);
    let (mut sources, mut end) = (Vec::new(), 0);
    while !fields.is_empty() {
        let place = fields.at();
        let from = fields.signed(end)?;
        let stored = fields.number()?;
        let is_block = stored & 7 != 0;
        let content = if is_block { fields.number()? } else { 0 };
        let wrong = |got| Error::corrupt("source of the patch is empty or too long", place, got);
        let source = Source {
            at: from,
            stored_bytes: u32::try_from(stored >> 3).map_err(|_| wrong(stored))?,
            content_bytes: u32::try_from(content).map_err(|_| wrong(content))?,
            codec: match stored & 7 {
                0 => BlockCodec::Zstd,
                number => BlockCodec::of(number).ok_or(wrong(number))?,
            },
        };
        if source.stored_bytes == 0 || (is_block && content == 0) {
            return Err(wrong(0));
        }
        if from.checked_add(stored >> 3).is_none_or(|end| end > made) {
            let what = "source of the patch lies behind the bytes that are there";
            return Err(Error::corrupt(what, place, from));
        }
        end = source.end();
        sources.push(source);
    }
    Ok(sources)
}

/// An operation, which makes the next bytes of NEW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Copies bytes of OLD, or of NEW as far as earlier parts made it.
    Copy {
        /// Where they are.
        at: u64,
        /// Their number.
        bytes: u64,
    },
    /// Takes the next bytes of the content.
    Take {
        /// Their number.
        bytes: u64,
    },
    /// Encodes the next bytes of the content.
    Encode {
        /// Their number before they are encoded.
        bytes: u64,
        /// Which of the header's encoders.
        encoder: usize,
    },
    /// Zeros.
    Zeros {
        /// Their number.
        bytes: u64,
    },
}

/// Emits operations; an address is stored as the distance from the end of the copy before.
#[derive(Default)]
pub struct OperationWriter {
    /// The operations so far.
    pub bytes: Vec<u8>,
    end: u64,
}

impl OperationWriter {
    /// Emits the next operation.
    pub fn push(&mut self, operation: Operation) {
        let (kind, len) = match operation {
            Operation::Copy { bytes, .. } => (0, bytes),
            Operation::Take { bytes } => (1, bytes),
            Operation::Encode { bytes, .. } => (2, bytes),
            Operation::Zeros { bytes } => (3, bytes),
        };
        emit_number(&mut self.bytes, len << 2 | kind);
        match operation {
            Operation::Copy { at, bytes } => {
                emit_signed(&mut self.bytes, self.end, at);
                self.end = at.saturating_add(bytes);
            }
            Operation::Encode { encoder, .. } => emit_number(&mut self.bytes, to_u64(encoder)),
            Operation::Take { .. } | Operation::Zeros { .. } => {}
        }
    }
}

/// Parses operations, which end with their bytes.
pub(crate) struct OperationReader<'a> {
    fields: Fields<'a>,
    end: u64,
}

impl<'a> OperationReader<'a> {
    /// The place is that of the part, since the operations are compressed.
    pub(crate) fn new(bytes: &'a [u8], at: u64) -> Self {
        OperationReader {
            fields: Fields::still(bytes, at),
            end: 0,
        }
    }

    pub(crate) fn next(&mut self) -> Result<Option<Operation>> {
        if self.fields.is_empty() {
            return Ok(None);
        }
        let number = self.fields.number()?;
        let bytes = number >> 2;
        Ok(Some(match number & 3 {
            0 => {
                let at = self.fields.signed(self.end)?;
                self.end = at.saturating_add(bytes);
                Operation::Copy { at, bytes }
            }
            1 => Operation::Take { bytes },
            2 => Operation::Encode {
                bytes,
                encoder: to_usize(self.fields.number()?),
            },
            _ => Operation::Zeros { bytes },
        }))
    }
}

fn first_byte(bytes: &[u8]) -> u64 {
    bytes.first().copied().unwrap_or(0).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let encoder = Encoder {
            codec: BlockCodec::Zstd,
            variant: 1,
            level: -7,
            sized_bytes: 2 << 20,
            content_bytes_max: 131_072,
            probe_sha256: [9; 32],
        };
        let header = Header {
            old_bytes: 1 << 40,
            new_bytes: 5,
            old_sha256: [1; 32],
            new_sha256: [2; 32],
            memory_bytes: 77,
            parts: 3,
            encoders: vec![encoder; ENCODERS_MAX],
        };
        let mut bytes = header.emit();
        assert_eq!(Header::parse(&bytes).unwrap(), header);
        bytes[20] ^= 1;
        assert!(Header::parse(&bytes).is_err());

        let source = |at, stored_bytes, content_bytes| Source {
            at,
            stored_bytes,
            content_bytes,
            codec: BlockCodec::Zstd,
        };
        let sources = [
            source(500, 20, 0),
            source(4, 7, u32::MAX),
            Source {
                codec: BlockCodec::Lz4,
                ..source(510, 1, 9)
            },
        ];
        let emitted = emit_sources(&sources);
        assert_eq!(parse_sources(&emitted, 0, 520).unwrap(), sources);
        assert!(parse_sources(&emitted, 0, 519).is_err());
        assert!(parse_sources(&emitted[..2], 0, 520).is_err());
        assert!(parse_sources(&[0, 1 << 3 | 5, 9], 0, 520).is_err());

        let operations = [
            Operation::Copy {
                at: 1 << 62,
                bytes: 1 << 40,
            },
            Operation::Take { bytes: 3 },
            Operation::Copy { at: 0, bytes: 1 },
            Operation::Encode {
                bytes: 4096,
                encoder: 1,
            },
            Operation::Zeros { bytes: 1 << 33 },
        ];
        let mut writer = OperationWriter::default();
        for operation in operations {
            writer.push(operation);
        }
        let mut reader = OperationReader::new(&writer.bytes, 0);
        for operation in operations {
            assert_eq!(reader.next().unwrap(), Some(operation));
        }
        assert_eq!(reader.next().unwrap(), None);
        assert!(OperationReader::new(&[0xff; 10], 0).next().is_err());
    }
}
