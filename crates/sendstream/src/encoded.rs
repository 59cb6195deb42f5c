//! Encoded writes: extents as btrfs stores them.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use codec::{Algorithm, Decoder, ZstdFrame};
use tree::{Error, Result, to_u64, to_usize};

/// The longest content of an encoded write, and the longest encoded data (`BTRFS_MAX_COMPRESSED`,
/// `BTRFS_MAX_UNCOMPRESSED`).
pub const ENCODED_BYTES_MAX: u64 = 128 << 10;
/// The largest window of a zstd frame that Linux promises to read.
const WINDOW_MAX: u64 = 1 << 17;
/// The unit in which btrfs stores and compresses, at least.
const SECTOR_BYTES: usize = 4096;

/// [`Command::EncodedWrite`](crate::Command::EncodedWrite): a compressed extent, of which a file
/// shows a part.
///
/// The reader has checked that the part lies in the extent, and that neither is longer than
/// [`ENCODED_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodedWrite<'a> {
    /// The file.
    pub path: &'a [u8],
    /// Where in the file.
    pub file_offset: u64,
    /// How many bytes of the file are written.
    pub unencoded_file_len: u64,
    /// The length of the extent when it is decoded. If the content is shorter, zeros follow.
    pub unencoded_len: u64,
    /// Where the written bytes begin in the decoded extent.
    pub unencoded_offset: u64,
    /// How the data is compressed: zlib, zstd, or LZO in segments.
    pub compression: Algorithm,
    /// 0. Linux leaves it out for inline extents.
    pub encryption: Option<u32>,
    /// The encoded extent, with its padding.
    pub data: &'a [u8],
}

impl EncodedWrite<'_> {
    /// The command without its path and data.
    pub(crate) fn numbers(&self) -> EncodedWrite<'static> {
        EncodedWrite {
            path: &[],
            data: &[],
            ..*self
        }
    }

    /// The extent as Linux takes it, if it knows the algorithm.
    pub(crate) fn extent(&self) -> Option<linux::EncodedExtent<'_>> {
        Some(linux::EncodedExtent {
            offset: self.file_offset,
            len: self.unencoded_file_len,
            unencoded_len: self.unencoded_len,
            unencoded_offset: self.unencoded_offset,
            compression: compression(self.compression)?,
            data: self.data,
        })
    }

    /// Decodes the extent as Linux does and returns the bytes that the file gets:
    /// `unencoded_file_len` of them. `decoder` (of the crate `restow-codec`) and `buffer` are
    /// memory to reuse for any number of extents.
    ///
    /// ```no_run
    /// use sendstream::{Command, StreamReader};
    ///
    /// let (mut decoder, mut buffer) = (codec::Decoder::new(), Vec::new());
    /// let mut reader = StreamReader::new(std::io::stdin().lock());
    /// while let Some(_version) = reader.next_stream()? {
    ///     while let Some(record) = reader.next_command()? {
    ///         if let Command::EncodedWrite(write) = &record.command {
    ///             let content = write.decode(&mut decoder, &mut buffer)?;
    ///             println!("{} bytes for {}", content.len(), write.path.escape_ascii());
    ///         }
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The data breaks its format.
    pub fn decode<'b>(
        &self,
        decoder: &mut Decoder,
        buffer: &'b mut Vec<u8>,
    ) -> Result<&'b [u8], codec::Error> {
        self.decode_extent(decoder, buffer)?;
        Ok(self.shown(buffer))
    }

    /// Like [`EncodedWrite::decode`], but refuses data that Linux or another reader could decode in
    /// another way: it must be one frame followed by nothing but zeros, with a window that Linux
    /// reads, and with no more content than is stated.
    ///
    /// Some kernels compress the last sector of an inline extent whole: zeros up to its end are not
    /// content.
    ///
    /// # Errors
    /// [`Error::Unverified`] with the fault of the data.
    pub fn decode_exactly<'b>(
        &self,
        decoder: &mut Decoder,
        buffer: &'b mut Vec<u8>,
    ) -> Result<&'b [u8]> {
        let len = to_usize(self.unencoded_len);
        let room = len.next_multiple_of(SECTOR_BYTES);
        // One byte more than can be content, to see that there is none.
        buffer.clear();
        buffer.resize(room.saturating_add(1), 0);
        let wrong = |error: codec::Error| Error::Unverified(error.as_str());
        let (content, end) = match self.compression {
            Algorithm::Zlib => decoder
                .decompress_zlib_extent(buffer, self.data)
                .map_err(wrong)?,
            Algorithm::Zstd => {
                let frame = ZstdFrame::parse(self.data, WINDOW_MAX);
                let frame = frame.ok_or(Error::Unverified(
                    "encoded data is not a zstd frame with a window of at most 128 KiB",
                ))?;
                let (stored, _) = self.data.split_at(frame.bytes);
                let content = decoder.decompress_extent(self.compression, buffer, stored);
                (content.map_err(wrong)?, frame.bytes)
            }
            _ => {
                let content = decoder.decompress_extent(self.compression, buffer, self.data);
                // The frame begins with its length, which was just decoded.
                let end = self
                    .data
                    .first_chunk()
                    .map_or(0, |it| u32::from_le_bytes(*it));
                (content.map_err(wrong)?, to_usize(end))
            }
        };
        // A decoder may write behind the content.
        buffer.iter_mut().skip(content).for_each(|byte| *byte = 0);
        let padding = self.data.get(end..).unwrap_or_default();
        if padding.len() >= SECTOR_BYTES {
            return Err(Error::Unverified(
                "encoded data has a sector or more after its frame",
            ));
        }
        if padding.iter().any(|&byte| byte != 0) {
            return Err(Error::Unverified("encoded data continues after its frame"));
        }
        if content > room || buffer.iter().skip(len).any(|&byte| byte != 0) {
            return Err(Error::Unverified("encoded data holds more than is stated"));
        }
        buffer.truncate(len);
        Ok(self.shown(buffer))
    }

    fn decode_extent(
        &self,
        decoder: &mut Decoder,
        buffer: &mut Vec<u8>,
    ) -> Result<(), codec::Error> {
        let len = to_usize(self.unencoded_len);
        // zlib must have room for what it decodes; Linux drops what is beyond the extent.
        buffer.clear();
        buffer.resize(len.next_multiple_of(SECTOR_BYTES), 0);
        decoder.decompress_extent(self.compression, buffer, self.data)?;
        buffer.truncate(len);
        Ok(())
    }

    /// The part of the extent that the file shows.
    fn shown<'b>(&self, extent: &'b [u8]) -> &'b [u8] {
        let (_, rest) = extent.split_at(to_usize(self.unencoded_offset));
        rest.split_at(to_usize(self.unencoded_file_len)).0
    }

    /// The fault of the numbers, if any, and the number.
    pub(crate) fn fault(&self) -> Option<(&'static str, u64)> {
        let end = self.unencoded_offset.checked_add(self.unencoded_file_len);
        if self.unencoded_len == 0 || self.unencoded_len > ENCODED_BYTES_MAX {
            let what = "encoded write's extent is empty or longer than 128 KiB";
            return Some((what, self.unencoded_len));
        }
        if end.is_none_or(|end| end > self.unencoded_len) || self.unencoded_file_len == 0 {
            let what = "encoded write shows nothing or more than its extent";
            return Some((what, self.unencoded_file_len));
        }
        if self.data.is_empty() || to_u64(self.data.len()) > ENCODED_BYTES_MAX {
            let what = "encoded write's data is empty or longer than 128 KiB";
            return Some((what, to_u64(self.data.len())));
        }
        None
    }
}

/// The algorithm with this number in an encoded write (`BTRFS_ENCODED_IO_COMPRESSION_*`).
pub fn algorithm(compression: u32) -> Option<Algorithm> {
    match compression {
        1 => Some(Algorithm::Zlib),
        2 => Some(Algorithm::Zstd),
        3..=7 => Some(Algorithm::LzoBtrfs {
            sector_bytes: sector_bytes(compression),
        }),
        _ => None,
    }
}

/// The size of the sectors that LZO data with this number is divided into.
const fn sector_bytes(compression: u32) -> u32 {
    1 << compression.saturating_add(9)
}

/// The number of an algorithm in an encoded write, if Linux can send it.
pub fn compression(algorithm: Algorithm) -> Option<u32> {
    match algorithm {
        Algorithm::Zlib => Some(1),
        Algorithm::Zstd => Some(2),
        Algorithm::LzoBtrfs { sector_bytes } => {
            (3..=7).find(|&number| sector_bytes == self::sector_bytes(number))
        }
        Algorithm::Lzo | Algorithm::Lz4 | Algorithm::Xz | Algorithm::Lzma => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_has_the_numbers_of_linux() {
        for number in 1..=7 {
            assert_eq!(compression(algorithm(number).unwrap()), Some(number));
        }
        let lzo_4k = Algorithm::LzoBtrfs { sector_bytes: 4096 };
        assert_eq!(compression(lzo_4k), Some(3));
        assert_eq!(algorithm(0), None);
        assert_eq!(algorithm(8), None);
        assert_eq!(compression(Algorithm::Lzo), None);
    }
}
