//! Whether data is worth the attempt to compress it.

use crate::workspace::Cells;

/// Of each interval so many bytes are looked at.
const SAMPLE: usize = 16;
const INTERVAL: usize = 256;
/// Fewer different bytes than this: compressible.
const FEW_SYMBOLS: usize = 64;
/// If so many bytes make up nine tenths of the sample, it is compressible; if so many are needed, it is not.
const CORE_FEW: usize = 64;
const CORE_MANY: usize = 200;
/// From this share of eight bits a byte on, in percent, entropy says that it is not worth it.
const ENTROPY_PERCENT_MAX: u64 = 80;

/// Whether `data` looks compressible: a cheap guess from a sixteenth of it.
///
/// The test of Linux' btrfs (16 bytes of each 256, at most 8,192 of 128 KiB): equal halves, few symbols, a small core of
/// frequent ones, an entropy under 80 % of the maximum. `scratch` is of at least [`COMPRESSIBLE_SCRATCH_SIZE`] bytes;
/// with less, and for less than one interval of data, the answer is yes.
pub fn looks_compressible(data: &[u8], scratch: &mut [u8]) -> bool {
    let Some((counts, sorted)) = scratch.as_chunks_mut::<2>().0.split_at_mut_checked(256) else {
        return true;
    };
    let Some(sorted) = sorted.get_mut(..256) else {
        return true;
    };
    let samples = || {
        data.chunks(INTERVAL)
            .filter_map(|part| part.first_chunk::<SAMPLE>())
            .take(512)
    };
    let number = samples().count();
    if number == 0 || data.len() < INTERVAL {
        return true;
    }
    if number.is_multiple_of(2) {
        let half = number / 2;
        if samples().take(half).eq(samples().skip(half)) {
            return true;
        }
    }
    counts.fill([0; 2]);
    for sample in samples() {
        for &byte in sample {
            let cell = &mut counts[usize::from(byte)];
            *cell = (u16::from_ne_bytes(*cell) + 1).to_ne_bytes();
        }
    }
    let count = |cell: &[u8; 2]| u16::from_ne_bytes(*cell);
    if counts.iter().filter(|cell| count(cell) != 0).count() < FEW_SYMBOLS {
        return true;
    }
    let total = (number * SAMPLE) as u32;
    sorted.copy_from_slice(counts);
    sort_descending(sorted);
    let mut covered = 0;
    let core = sorted
        .iter()
        .position(|cell| {
            covered += u32::from(count(cell));
            covered * 10 >= total * 9
        })
        .map_or(256, |last| last + 1);
    if core <= CORE_FEW {
        return true;
    }
    if core >= CORE_MANY {
        return false;
    }
    // Bits in 1/4: the whole part of the logarithm of the fourth power.
    let log4 = |n: u32| u64::from(u64::from(n).pow(4).ilog2());
    let entropy: u64 = counts
        .iter()
        .map(|cell| u32::from(count(cell)))
        .filter(|n| *n != 0)
        .map(|n| u64::from(n) * (log4(total) - log4(n)))
        .sum();
    entropy * 100 < u64::from(total) * 4 * 8 * ENTROPY_PERCENT_MAX
}

/// Bytes of scratch for [`looks_compressible`].
pub const COMPRESSIBLE_SCRATCH_SIZE: usize = 1024;

/// Shell's sort (with Ciura's gaps): the standard library's calls itself, and a kernel's stack is small.
fn sort_descending(cells: &mut [[u8; 2]]) {
    for gap in [132, 57, 23, 10, 4, 1] {
        for end in gap..cells.len() {
            let mut at = end;
            while at >= gap && cells.at(at - gap) < cells.at(at) {
                cells.swap(at - gap, at);
                at -= gap;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn noise(size: usize) -> Vec<u8> {
        let mut x = 0x2545_f491_4f6c_dd1d_u64;
        (0..size)
            .map(|_| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                (x >> 32) as u8
            })
            .collect()
    }

    #[test]
    fn noise_is_not_and_text_is() {
        let mut scratch = [0xaa; COMPRESSIBLE_SCRATCH_SIZE];
        let noise = noise(if cfg!(miri) { 8 << 10 } else { 128 << 10 });
        assert!(!looks_compressible(&noise, &mut scratch));
        let text: Vec<u8> = noise
            .iter()
            .map(|b| b"etaoin shrdlucmfwypvbgkjqxz"[*b as usize % 27])
            .collect();
        assert!(looks_compressible(&text, &mut scratch));
        assert!(looks_compressible(&[0; 4096], &mut scratch));
        let twice = [&noise[..4096], &noise[..4096]].concat();
        assert!(looks_compressible(&twice, &mut scratch));
        assert!(looks_compressible(&noise[..255], &mut scratch));
        // A skew: three quarters of the bytes below 8.
        let skewed: Vec<u8> = noise
            .iter()
            .enumerate()
            .map(|(i, b)| if i % 4 == 0 { *b } else { b & 7 })
            .collect();
        assert!(looks_compressible(&skewed, &mut scratch));
    }

    #[test]
    fn cells_are_sorted() {
        let mut cells: Vec<_> = (0..256_u16)
            .map(|i| (i * 179 % 251).to_ne_bytes())
            .collect();
        let mut expected = cells.clone();
        expected.sort_by_key(|cell| core::cmp::Reverse(u16::from_ne_bytes(*cell)));
        sort_descending(&mut cells);
        assert_eq!(cells, expected);
    }
}
