//! Writing files compressed as a whole: independent parts, so that several threads can make them.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use crate::{Error, Wrapper};

/// The magic number of a skippable frame that holds a seek table, and that at the end of the table
/// (zstd's seekable format, version 0.1.0).
const SKIPPABLE_MAGIC: u32 = 0x184D_2A5E;
const SEEK_TABLE_MAGIC: u32 = 0x8F92_EAB1;
/// The number of frames, a byte of flags and the magic number, at the end of the table.
const FOOTER_BYTES: usize = 9;
/// The length of the header of a skippable frame.
const HEADER_BYTES: usize = 8;
/// The bit that says that each entry has a checksum.
const HAS_CHECKSUMS: u8 = 0x80;
/// The bits that must be zero.
const RESERVED: u8 = 0x7c;

/// Compresses parts of a stream, each into a gzip member, an .xz stream or a zstd frame.
/// Decompressed one after another, they are the whole.
pub struct Packer {
    wrapper: Wrapper,
    level: u8,
    #[cfg(feature = "zstd")]
    zstd: Option<(zstd::Compressor<Vec<u8>>, zstd::Params)>,
}

impl Packer {
    /// A packer with this level, or the usual one of the format: 6 for gzip and xz, 3 for zstd.
    ///
    /// # Errors
    /// [`Error::Settings`] if the level is out of range, [`Error::NotBuilt`] without the format's
    /// feature.
    pub fn new(wrapper: Wrapper, level: Option<u8>) -> Result<Packer, Error> {
        let level = level.unwrap_or(match wrapper {
            Wrapper::Gzip | Wrapper::Xz => 6,
            _ => 3,
        });
        let (range, wrong) = match wrapper {
            Wrapper::Gzip => (1..=12, "gzip level is not 1 to 12"),
            Wrapper::Xz => (0..=9, "xz level is not 0 to 9"),
            Wrapper::Zstd => (1..=22, "zstd level is not 1 to 22"),
            Wrapper::Bzip2 | Wrapper::Lz4 | Wrapper::Lzma | Wrapper::Lzop => {
                return Err(Error::Settings(
                    "files are compressed with gzip, xz or zstd alone",
                ));
            }
        };
        if !range.contains(&level) {
            return Err(Error::Settings(wrong));
        }
        if !wrapper.is_built() {
            return Err(wrapper.not_built());
        }
        Ok(Packer {
            wrapper,
            level,
            #[cfg(feature = "zstd")]
            zstd: (wrapper == Wrapper::Zstd).then(|| {
                let part = u64::try_from(Self::part_bytes(wrapper)).ok();
                let mut params = zstd::Params::for_level(level.into(), part);
                params.checksum = true;
                let workspace = vec![0; zstd::workspace_size(&params)];
                (zstd::Compressor::owning(workspace), params)
            }),
        })
    }

    /// The length of a part's content in bytes: large enough that the cuts cost little, and small
    /// enough to read one in place of the whole.
    pub const fn part_bytes(wrapper: Wrapper) -> usize {
        match wrapper {
            Wrapper::Gzip => 1 << 20,
            Wrapper::Zstd => 2 << 20,
            _ => 8 << 20,
        }
    }

    /// Compresses a part of at most [`Packer::part_bytes`] into `packed`, which is cleared first.
    ///
    /// # Errors
    /// [`Error::MemoryLimit`] if liblzma finds no memory.
    pub fn pack(&mut self, content: &[u8], packed: &mut Vec<u8>) -> Result<(), Error> {
        packed.clear();
        // Content that does not become smaller grows by a few bytes for each block of it.
        let room = content.len().saturating_add(content.len() >> 7);
        packed.resize(room.saturating_add(1024), 0);
        let len = match self.wrapper {
            #[cfg(feature = "zlib")]
            Wrapper::Gzip => gzip(self.level, content, packed)?,
            #[cfg(feature = "xz")]
            Wrapper::Xz => xz(self.level, content, packed)?,
            #[cfg(feature = "zstd")]
            Wrapper::Zstd => {
                let (compressor, params) = self.zstd.as_mut().expect("made with the packer");
                let written = compressor.compress(packed, content, params);
                written.map_err(Error::Zstd)?
            }
            #[allow(unreachable_patterns, reason = "all codecs can be built")]
            _ => return Err(self.wrapper.not_built()),
        };
        packed.truncate(len);
        Ok(())
    }
}

#[cfg(feature = "zlib")]
fn gzip(level: u8, content: &[u8], packed: &mut [u8]) -> Result<usize, Error> {
    use libdeflater::{CompressionLvl, Compressor};
    let level = CompressionLvl::new(level.into());
    let level = level.map_err(|_| Error::Settings("gzip level is not 1 to 12"))?;
    let written = Compressor::new(level).gzip_compress(content, packed);
    written.map_err(|_| Error::DstSizeTooSmall)
}

#[cfg(feature = "xz")]
fn xz(level: u8, content: &[u8], packed: &mut [u8]) -> Result<usize, Error> {
    use liblzma::stream::{Action, Check, Status, Stream};
    let stream = Stream::new_easy_encoder(level.into(), Check::Crc64);
    let mut stream = stream.map_err(|_| Error::MemoryLimit)?;
    match stream.process(content, packed, Action::Finish) {
        Ok(Status::StreamEnd) => {
            usize::try_from(stream.total_out()).map_err(|_| Error::DstSizeTooSmall)
        }
        _ => Err(Error::DstSizeTooSmall),
    }
}

/// The frames of a zstd file: with it, content is read from the middle without decoding the content
/// before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeekTable {
    frames: Vec<SeekFrame>,
}

/// A frame in a [`SeekTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeekFrame {
    /// Its length in the file.
    pub packed_bytes: u32,
    /// The length of its content.
    pub content_bytes: u32,
}

impl SeekTable {
    /// The length of the bytes at the end of a file that say whether it has a table.
    pub const FOOTER_BYTES: usize = FOOTER_BYTES;

    /// Adds the next frame.
    pub fn push(&mut self, packed: &[u8], content: &[u8]) {
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.frames.push(SeekFrame {
            packed_bytes: len(packed),
            content_bytes: len(content),
        });
    }

    /// The frames in order.
    pub fn frames(&self) -> &[SeekFrame] {
        &self.frames
    }

    /// The table as a skippable frame, the last one of a file.
    pub fn emit(&self) -> Vec<u8> {
        let count = u32::try_from(self.frames.len()).unwrap_or(u32::MAX);
        let body = count.saturating_mul(8).saturating_add(9);
        let mut bytes = Vec::new();
        bytes.extend(SKIPPABLE_MAGIC.to_le_bytes());
        bytes.extend(body.to_le_bytes());
        for frame in &self.frames {
            bytes.extend(frame.packed_bytes.to_le_bytes());
            bytes.extend(frame.content_bytes.to_le_bytes());
        }
        bytes.extend(count.to_le_bytes());
        bytes.push(0);
        bytes.extend(SEEK_TABLE_MAGIC.to_le_bytes());
        bytes
    }

    /// The length of the whole table, if `footer`, the last [`SeekTable::FOOTER_BYTES`] bytes of a
    /// file, is the end of one.
    pub fn len_of(footer: &[u8; FOOTER_BYTES]) -> Option<u64> {
        let [a, b, c, d, flags, magic @ ..] = *footer;
        if magic != SEEK_TABLE_MAGIC.to_le_bytes() || flags & RESERVED != 0 {
            return None;
        }
        let entry = if flags & HAS_CHECKSUMS == 0 { 8 } else { 12 };
        let entries = u64::from(u32::from_le_bytes([a, b, c, d])).checked_mul(entry)?;
        entries.checked_add(17)
    }

    /// Parses a whole table; `None` if it is not one, or does not match its own lengths.
    pub fn parse(table: &[u8]) -> Option<SeekTable> {
        let footer: &[u8; FOOTER_BYTES] = table.last_chunk()?;
        let [.., flags, _, _, _, _] = *footer;
        let body = u32::try_from(table.len().checked_sub(HEADER_BYTES)?).ok()?;
        let header = [SKIPPABLE_MAGIC.to_le_bytes(), body.to_le_bytes()].concat();
        let is_whole = Self::len_of(footer)? == u64::try_from(table.len()).ok()?;
        if !is_whole || !table.starts_with(&header) {
            return None;
        }
        let end = table.len().checked_sub(FOOTER_BYTES)?;
        let entries = table.get(HEADER_BYTES..end)?;
        let frames = entries.chunks_exact(if flags & HAS_CHECKSUMS == 0 { 8 } else { 12 });
        let frames = frames.map(|entry| {
            let (packed, rest) = entry.split_first_chunk()?;
            Some(SeekFrame {
                packed_bytes: u32::from_le_bytes(*packed),
                content_bytes: u32::from_le_bytes(*rest.first_chunk()?),
            })
        });
        let frames = frames.collect::<Option<Vec<_>>>()?;
        Some(SeekTable { frames })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_one_stream_together() {
        let text: Vec<u8> = (0..200_000u32)
            .flat_map(|n| (n / 7).to_le_bytes())
            .collect();
        let wrappers = [Wrapper::Gzip, Wrapper::Xz, Wrapper::Zstd];
        for wrapper in wrappers.into_iter().filter(|it| it.is_built()) {
            for level in [None, Some(1), Some(9)] {
                let mut packer = Packer::new(wrapper, level).unwrap();
                let (mut all, mut packed) = (Vec::new(), Vec::new());
                let mut table = SeekTable::default();
                // The last part is not compressible, and one is empty.
                let noise: Vec<u8> = (0..70_000u64)
                    .map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
                    .collect();
                for part in [&text[..500_000], &text[500_000..], &[], &noise] {
                    packer.pack(part, &mut packed).unwrap();
                    all.extend_from_slice(&packed);
                    table.push(&packed, part);
                }
                if wrapper == Wrapper::Zstd {
                    let bytes = table.emit();
                    assert_eq!(SeekTable::parse(&bytes).as_ref(), Some(&table));
                    all.extend(bytes);
                }
                let mut content = Vec::new();
                wrapper.decompress(&mut &all[..], &mut content).unwrap();
                assert_eq!(
                    content,
                    [&text[..], &noise].concat(),
                    "{wrapper:?} {level:?}"
                );
            }
        }
        for (wrapper, wrong) in [
            (Wrapper::Gzip, 0),
            (Wrapper::Gzip, 13),
            (Wrapper::Xz, 10),
            (Wrapper::Zstd, 0),
            (Wrapper::Zstd, 23),
        ] {
            assert!(Packer::new(wrapper, Some(wrong)).is_err());
        }
    }

    #[test]
    fn a_table_is_whole_or_none() {
        let mut table = SeekTable::default();
        table.push(&[0; 7], &[0; 9]);
        let bytes = table.emit();
        assert_eq!(SeekTable::len_of(bytes.last_chunk().unwrap()), Some(25));
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x84;
            // Lengths are checked by who reads the frames; everything else is fixed.
            assert_eq!(
                SeekTable::parse(&wrong).is_some(),
                (8..16).contains(&at),
                "{at}"
            );
            assert!(SeekTable::parse(&bytes[at + 1..]).is_none());
        }
        // With checksums, which other programs write.
        let mut long = [&SKIPPABLE_MAGIC.to_le_bytes()[..], &21u32.to_le_bytes()].concat();
        long.extend([
            7,
            0,
            0,
            0,
            9,
            0,
            0,
            0,
            1,
            2,
            3,
            4,
            1,
            0,
            0,
            0,
            HAS_CHECKSUMS,
        ]);
        long.extend(SEEK_TABLE_MAGIC.to_le_bytes());
        assert_eq!(SeekTable::parse(&long), Some(table));
    }
}
