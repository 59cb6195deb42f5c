//! LZO1X segments: the btrfs framing of extents for an algorithm without a frame of its own.
//!
//! An extent begins with its length, which includes these four bytes. Segments follow, each
//! preceded by the length of its encoded bytes. Each holds one sector of content; the last one can
//! hold less. Lengths are little-endian and never cross a sector boundary: if fewer than four bytes
//! of the sector remain after a segment, they are filled with zeros. The extent's length includes
//! these zeros, even after the last segment; earlier versions of this project left out the last
//! ones.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use crate::Error;

/// The size of a length field.
const LENGTH_BYTES: usize = 4;
/// The sector sizes of btrfs.
const SECTOR_BYTES: std::ops::RangeInclusive<u32> = 4 << 10..=64 << 10;

/// The framing for one sector size.
#[derive(Clone, Copy)]
pub(crate) struct Segments {
    sector_bytes: usize,
}

/// The outcome of decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecodedSegments {
    /// The number of bytes written to the destination.
    pub(crate) written: usize,
    /// Whether there are more segments, for which the destination had no room.
    pub(crate) more: bool,
}

impl Segments {
    /// # Errors
    /// The sector size is not a power of two from 4 KiB to 64 KiB.
    pub(crate) fn new(sector_bytes: u32) -> Result<Self, Error> {
        if !sector_bytes.is_power_of_two() || !SECTOR_BYTES.contains(&sector_bytes) {
            return Err(Error::Settings(
                "sector size is not a power of two from 4096 to 65536",
            ));
        }
        let sector_bytes = usize::try_from(sector_bytes).unwrap_or(usize::MAX);
        Ok(Segments { sector_bytes })
    }

    /// Encodes `src` into the beginning of `dst`; `None` if it does not fit. `encode` does so for
    /// the content of a segment.
    pub(crate) fn compress(
        self,
        dst: &mut [u8],
        src: &[u8],
        mut encode: impl FnMut(&mut [u8], &[u8]) -> Option<usize>,
    ) -> Option<usize> {
        let mut at = LENGTH_BYTES;
        for sector in src.chunks(self.sector_bytes) {
            let (length, segment) = dst.get_mut(at..)?.split_first_chunk_mut()?;
            let len = encode(segment, sector)?;
            *length = u32::try_from(len).ok()?.to_le_bytes();
            at = at.checked_add(LENGTH_BYTES)?.checked_add(len)?;
            let padding = self.padding(at);
            dst.get_mut(at..)?.get_mut(..padding)?.fill(0);
            at = at.checked_add(padding)?;
        }
        *dst.first_chunk_mut()? = u32::try_from(at).ok()?.to_le_bytes();
        Some(at)
    }

    /// Decodes segments into the beginning of `dst` until it is full; `decode` does so for a
    /// segment, and returns the length of its content.
    ///
    /// # Errors
    /// A length is impossible, or a segment breaks its format, holds more than a sector, or holds
    /// less and is not the last one.
    pub(crate) fn decompress(
        self,
        dst: &mut [u8],
        src: &[u8],
        mut decode: impl FnMut(&mut [u8], &[u8]) -> Result<usize, Error>,
    ) -> Result<DecodedSegments, Error> {
        let broken = |what, at, got: usize| Error::Framing {
            what,
            at,
            got: u64::try_from(got).unwrap_or(u64::MAX),
        };
        let total = length(src, 0).unwrap_or(0);
        if total < 2 * LENGTH_BYTES || total > src.len() {
            return Err(broken("lzo extent's length is impossible", 0, total));
        }
        let (src, _) = src.split_at(total);
        let (mut at, mut written) = (LENGTH_BYTES, 0_usize);
        while at < total && written < dst.len() {
            let begin = at.saturating_add(LENGTH_BYTES);
            let len = length(src, at).unwrap_or(0);
            let next = begin.saturating_add(len);
            let Some(segment) = src.get(begin..next) else {
                return Err(broken("lzo segment reaches beyond its extent", at, len));
            };
            if segment.is_empty() {
                return Err(broken("lzo segment is empty", at, 0));
            }
            let (_, room) = dst.split_at_mut(written);
            let (sector, _) = room.split_at_mut(room.len().min(self.sector_bytes));
            let decoded = decode(sector, segment)?;
            written = written.saturating_add(decoded);
            let next = next.saturating_add(self.padding(next));
            if decoded != self.sector_bytes && next < total && written < dst.len() {
                let what = "lzo segment is shorter than a sector";
                return Err(broken(what, at, decoded));
            }
            at = next;
        }
        Ok(DecodedSegments {
            written,
            more: at < total,
        })
    }

    /// How many zeros fill the sector after a segment that ends at `at`.
    fn padding(self, at: usize) -> usize {
        let left = at.wrapping_neg() & self.sector_bytes.wrapping_sub(1);
        if left < LENGTH_BYTES { left } else { 0 }
    }
}

/// The length stored at `at`.
fn length(src: &[u8], at: usize) -> Option<usize> {
    let bytes = src.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*bytes)).ok()
}

#[cfg(all(test, feature = "lzo"))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::decompress_lzo;

    const SECTOR: usize = 4096;

    fn segments() -> Segments {
        Segments::new(SECTOR as u32).unwrap()
    }

    /// Bytes in which LZO finds no repetition.
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..len).map(|_| next()).collect()
    }

    /// The layout by its definition, a byte at a time; also where the last segment ends.
    fn layout(content: &[u8], workspace: &mut lzo::Workspace) -> (Vec<u8>, usize) {
        let (mut all, mut end) = (vec![0; 4], 4);
        for sector in content.chunks(SECTOR) {
            let mut segment = vec![0; 2 * SECTOR];
            let len = lzo::compress(&mut segment, sector, workspace).unwrap();
            all.extend((len as u32).to_le_bytes());
            all.extend(&segment[..len]);
            end = all.len();
            while all.len() % SECTOR > SECTOR - 4 {
                all.push(0);
            }
        }
        let total = all.len() as u32;
        all[..4].copy_from_slice(&total.to_le_bytes());
        (all, end)
    }

    /// Every tail length, and every position in a sector where the last segment can end: the output
    /// is that of Linux, and it reads back with and without padding, into a destination that is
    /// exact, too short or too long.
    #[test]
    fn every_tail_and_end_reads_back() {
        let mut workspace = Box::default();
        let content = noise(3 * SECTOR);
        let mut ends = BTreeSet::new();
        for len in 1..=content.len() {
            let content = &content[..len];
            let (expected, end) = layout(content, &mut workspace);
            ends.insert(end % SECTOR);
            let mut stored = vec![0xaa; expected.len().next_multiple_of(SECTOR)];
            let mut encode = |dst: &mut [u8], src: &[u8]| lzo::compress(dst, src, &mut workspace);
            let total = segments().compress(&mut stored, content, &mut encode);
            assert_eq!(total, Some(expected.len()));
            assert!(stored[..expected.len()] == expected, "{len} bytes");
            stored[expected.len()..].fill(0);
            let mut room = vec![0; expected.len()];
            assert!(segments().compress(&mut room, content, &mut encode) == total);
            room.pop();
            assert!(
                segments()
                    .compress(&mut room, content, &mut encode)
                    .is_none()
            );

            // Without the padding after the last segment, as earlier versions of this project wrote
            // it.
            let mut unpadded = expected[..end].to_vec();
            unpadded[..4].copy_from_slice(&(end as u32).to_le_bytes());
            for stored in [&stored, &expected, &unpadded] {
                for room in [len, len.next_multiple_of(SECTOR), len + 2 * SECTOR] {
                    let mut back = vec![0; room];
                    let decoded = segments().decompress(&mut back, stored, decompress_lzo);
                    let whole = DecodedSegments {
                        written: len,
                        more: false,
                    };
                    assert_eq!(decoded, Ok(whole), "{len} bytes, {end}, room for {room}");
                    assert!(&back[..len] == content);
                }
                if len > SECTOR {
                    let mut back = [0; SECTOR];
                    let decoded = segments().decompress(&mut back, stored, decompress_lzo);
                    let first = DecodedSegments {
                        written: SECTOR,
                        more: true,
                    };
                    assert_eq!(decoded, Ok(first));
                    assert!(back == content[..SECTOR]);
                }
            }
        }
        assert_eq!(ends.len(), SECTOR, "every place in a sector");
    }

    #[test]
    fn a_broken_frame_says_what_and_where() {
        let mut workspace = Box::default();
        let (stored, end) = layout(&[noise(SECTOR), vec![0; 3000]].concat(), &mut workspace);
        let second = 8 + length(&stored, 4).unwrap();
        let second = second + segments().padding(second);
        let decode = |stored: &[u8]| match segments().decompress(
            &mut [0; 3 * SECTOR],
            stored,
            decompress_lzo,
        ) {
            Err(Error::Framing { what, at, got }) => Some((what, at, got)),
            _ => None,
        };
        let with = |at: usize, value: u32| {
            let mut stored = stored.clone();
            stored.resize(stored.len() + 100, 0);
            stored[at..at + 4].copy_from_slice(&value.to_le_bytes());
            decode(&stored)
        };
        assert_eq!(decode(&stored), None);
        assert_eq!(
            decode(&stored[..3]),
            Some(("lzo extent's length is impossible", 0, 0))
        );
        assert_eq!(
            with(0, 7),
            Some(("lzo extent's length is impossible", 0, 7))
        );
        assert_eq!(
            with(0, 1 << 20),
            Some(("lzo extent's length is impossible", 0, 1 << 20))
        );
        assert_eq!(with(second, 0), Some(("lzo segment is empty", second, 0)));
        let beyond = Some((
            "lzo segment reaches beyond its extent",
            second,
            u64::from(u32::MAX),
        ));
        assert_eq!(with(second, u32::MAX), beyond);
        let short = Some(("lzo segment is shorter than a sector", second, 3000));
        assert_eq!(with(0, end as u32 + 5), short);
        for sector_bytes in [0, 1, 2048, 5000, 128 << 10] {
            assert!(Segments::new(sector_bytes).is_err());
        }
    }
}
