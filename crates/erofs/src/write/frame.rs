//! The lengths of a zstd frame on a device, of which only headers are read.

use tree::{ReadAt, Result};

/// The longest header of a frame, and that of a block behind it.
const HEAD_BYTES: usize = 18 + BLOCK_HEADER;
const BLOCK_HEADER: usize = 3;
const MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();

/// The frame at a place of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredFrame {
    /// Its length in bytes.
    pub(crate) bytes: u64,
    pub(crate) content_bytes: u64,
    pub(crate) window_bytes: u64,
}

impl StoredFrame {
    /// Measures the frame at the beginning of `len` bytes at `at`; `None` if there is none, it does
    /// not state the length of its content, or needs a dictionary.
    pub(crate) fn measure(device: &dyn ReadAt, at: u64, len: u64) -> Result<Option<StoredFrame>> {
        let mut head = [0; HEAD_BYTES];
        let known = usize::try_from(len).unwrap_or(usize::MAX).min(HEAD_BYTES);
        device.read_exact_at(&mut head[..known], at)?;
        let [magic @ .., descriptor] = head.first_chunk().copied().unwrap_or([0; 5]);
        let is_single = descriptor & 0x20 != 0;
        // A reserved bit, and the length of a number of a dictionary.
        if magic != MAGIC || descriptor & 0x0b != 0 {
            return Ok(None);
        }
        let mut next = 5;
        let mut window_bytes = 0;
        if !is_single {
            let (exponent, mantissa) = (head[next] >> 3, u64::from(head[next] & 7));
            window_bytes = 1 << (10 + exponent);
            window_bytes += window_bytes / 8 * mantissa;
            next += 1;
        }
        let count = match descriptor >> 6 {
            0 => usize::from(is_single),
            log2 => 1 << log2,
        };
        let mut number = [0; 8];
        number[..count].copy_from_slice(&head[next..next + count]);
        let content_bytes = match count {
            0 => return Ok(None),
            2 => u64::from_le_bytes(number) + 256,
            _ => u64::from_le_bytes(number),
        };
        next += count;
        if is_single {
            window_bytes = content_bytes;
        }
        let mut end = next as u64;
        let mut header = [0; BLOCK_HEADER];
        header.copy_from_slice(&head[next..next + BLOCK_HEADER]);
        loop {
            let [one, two, three] = header.map(u32::from);
            let header_bits = one | two << 8 | three << 16;
            let stored = match header_bits >> 1 & 3 {
                1 => 1,
                3 => return Ok(None),
                _ => u64::from(header_bits >> 3),
            };
            end += BLOCK_HEADER as u64 + stored;
            if header_bits & 1 != 0 {
                break;
            }
            if end + BLOCK_HEADER as u64 > len {
                return Ok(None);
            }
            device.read_exact_at(&mut header, at + end)?;
        }
        if descriptor & 4 != 0 {
            end += 4;
        }
        Ok((end <= len).then_some(StoredFrame {
            bytes: end,
            content_bytes,
            window_bytes,
        }))
    }
}

#[cfg(test)]
mod tests {
    use codec::{Encoder, Settings, ZstdFrame};

    use super::*;

    #[test]
    fn a_frame_is_measured_as_if_all_of_it_were_read() {
        let mut noise = 1_u32;
        let content: Vec<u8> = (0..700_000)
            .map(|at: u32| {
                noise = noise.wrapping_mul(1_103_515_245).wrapping_add(12_345);
                if at.is_multiple_of(3) {
                    (noise >> 16) as u8
                } else {
                    b'a'
                }
            })
            .collect();
        let mut encoder = Encoder::new(&Settings::Zstd { level: 3 }).unwrap();
        for len in [
            1, 100, 255, 256, 300, 65_791, 65_792, 131_072, 200_000, 700_000,
        ] {
            let mut stored = vec![0; len + 1000];
            let frame = encoder.compress(&mut stored[7..], &content[..len]);
            let Some(bytes) = frame else { continue };
            let known = ZstdFrame::parse(&stored[7..], 1 << 27).unwrap();
            let must = StoredFrame {
                bytes: bytes as u64,
                content_bytes: len as u64,
                window_bytes: known.window_bytes,
            };
            let measure = |room: usize| StoredFrame::measure(&stored, 7, room as u64).unwrap();
            assert_eq!(measure(bytes), Some(must), "{len}");
            assert_eq!(measure(bytes + 900), Some(must), "{len}");
            for room in [bytes - 1, bytes / 2, 6, 0] {
                assert_eq!(measure(room), None, "{len} {room}");
            }
        }
    }
}
