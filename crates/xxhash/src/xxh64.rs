//! XXH64: four lanes of 64 bits over stripes of 32 bytes.

use crate::copy;

const PRIME_1: u64 = 0x9E37_79B1_85EB_CA87;
const PRIME_2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const PRIME_3: u64 = 0x1656_67B1_9E37_79F9;
const PRIME_4: u64 = 0x85EB_CA77_C2B2_AE63;
const PRIME_5: u64 = 0x27D4_EB2F_1656_67C5;

/// How many bytes one step of the four lanes consumes.
const STRIPE: usize = 32;

/// The XXH64 of `data` with `seed`.
pub const fn xxh64(data: &[u8], seed: u64) -> u64 {
    let (hash, tail) = if data.len() < STRIPE {
        (seed.wrapping_add(PRIME_5), data)
    } else {
        let (lanes, tail) = pairs_of_stripes(initial_lanes(seed), data);
        (merge_lanes(lanes), tail)
    };
    finish(hash.wrapping_add(data.len() as u64), tail)
}

/// An XXH64 state for input in pieces.
///
/// Its size and alignment let it be stored in the `struct xxh64_state` (80 bytes) of
/// `linux/xxhash.h`. No field values make a method panic: uninitialized state gives a meaningless
/// hash, but nothing worse.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Xxh64 {
    /// Number of input bytes so far, modulo 2^64. Modulo 32, it is the used length of `pending`.
    total_len: u64,
    /// Before the first full stripe the third lane still holds the seed.
    lanes: [u64; 4],
    /// The bytes after the last full stripe.
    pending: [u8; STRIPE],
}

const _: () = assert!(size_of::<Xxh64>() <= 80 && align_of::<Xxh64>() <= 8);

impl Xxh64 {
    /// An empty state.
    pub const fn new(seed: u64) -> Self {
        Self {
            total_len: 0,
            lanes: initial_lanes(seed),
            pending: [0; STRIPE],
        }
    }

    /// Resets to the state of [`Xxh64::new`].
    pub const fn reset(&mut self, seed: u64) {
        *self = Self::new(seed);
    }

    /// Appends `data` to the input. Any split of an input into pieces, empty ones included, gives
    /// the same hash.
    #[inline]
    pub const fn update(&mut self, data: &[u8]) {
        let pending_len = (self.total_len % STRIPE as u64) as usize;
        self.total_len = self.total_len.wrapping_add(data.len() as u64);
        let (_, room) = self.pending.split_at_mut(pending_len);
        if data.len() < room.len() {
            copy(room, data);
            return;
        }
        let mut data = data;
        if pending_len != 0 {
            let (first, rest) = data.split_at(room.len());
            copy(room, first);
            data = rest;
            self.lanes = stripes(self.lanes, &self.pending).0;
        }
        let (lanes, tail) = stripes(self.lanes, data);
        self.lanes = lanes;
        // The tail is less than a stripe.
        copy(&mut self.pending, tail);
    }

    /// The hash of the input so far.
    pub const fn digest(&self) -> u64 {
        let pending_len = (self.total_len % STRIPE as u64) as usize;
        let hash = if self.total_len >= STRIPE as u64 {
            merge_lanes(self.lanes)
        } else {
            self.lanes[2].wrapping_add(PRIME_5)
        };
        finish(
            hash.wrapping_add(self.total_len),
            self.pending.split_at(pending_len).0,
        )
    }
}

impl Default for Xxh64 {
    /// An empty state with seed 0.
    fn default() -> Self {
        Self::new(0)
    }
}

const fn initial_lanes(seed: u64) -> [u64; 4] {
    [
        seed.wrapping_add(PRIME_1).wrapping_add(PRIME_2),
        seed.wrapping_add(PRIME_2),
        seed,
        seed.wrapping_sub(PRIME_1),
    ]
}

const fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(PRIME_2))
        .rotate_left(31)
        .wrapping_mul(PRIME_1)
}

const fn word(bytes: &[u8; STRIPE], index: usize) -> u64 {
    let Some((_, from)) = bytes.split_at_checked(index * 8) else {
        return 0; // index < 4
    };
    match from.first_chunk() {
        Some(word) => u64::from_le_bytes(*word),
        None => 0, // index < 4, so there are as many bytes
    }
}

const fn stripe([a, b, c, d]: [u64; 4], stripe: &[u8; STRIPE]) -> [u64; 4] {
    [
        round(a, word(stripe, 0)),
        round(b, word(stripe, 1)),
        round(c, word(stripe, 2)),
        round(d, word(stripe, 3)),
    ]
}

/// Consumes every full stripe of `data`; returns the remaining bytes.
const fn stripes(lanes: [u64; 4], data: &[u8]) -> ([u64; 4], &[u8]) {
    let (mut lanes, mut rest) = (lanes, data);
    while let Some((first, after)) = rest.split_first_chunk() {
        lanes = stripe(lanes, first);
        rest = after;
    }
    (lanes, rest)
}

/// The same, two at a time: the loop itself is a ninth of the work on one. For the hash of a whole
/// alone, as a kernel's code is to be small.
#[inline(always)]
const fn pairs_of_stripes(lanes: [u64; 4], data: &[u8]) -> ([u64; 4], &[u8]) {
    let (mut lanes, mut rest) = (lanes, data);
    while let Some((pair, after)) = rest.split_first_chunk::<{ 2 * STRIPE }>() {
        if let (Some(first), Some(second)) = (pair.first_chunk(), pair.last_chunk()) {
            lanes = stripe(stripe(lanes, first), second);
        }
        rest = after;
    }
    if let Some((last, after)) = rest.split_first_chunk() {
        lanes = stripe(lanes, last);
        rest = after;
    }
    (lanes, rest)
}

const fn merge(hash: u64, lane: u64) -> u64 {
    (hash ^ round(0, lane))
        .wrapping_mul(PRIME_1)
        .wrapping_add(PRIME_4)
}

const fn merge_lanes([a, b, c, d]: [u64; 4]) -> u64 {
    let joined = a
        .rotate_left(1)
        .wrapping_add(b.rotate_left(7))
        .wrapping_add(c.rotate_left(12))
        .wrapping_add(d.rotate_left(18));
    merge(merge(merge(merge(joined, a), b), c), d)
}

/// Consumes the last bytes (less than a stripe) and mixes the bits.
#[inline(always)]
const fn finish(mut hash: u64, tail: &[u8]) -> u64 {
    let mut rest = tail;
    // Three times at most, which the compiler unrolls.
    let mut words = 0;
    while words < 3 {
        let Some((word, after)) = rest.split_first_chunk::<8>() else {
            break;
        };
        hash ^= round(0, u64::from_le_bytes(*word));
        hash = hash
            .rotate_left(27)
            .wrapping_mul(PRIME_1)
            .wrapping_add(PRIME_4);
        rest = after;
        words += 1;
    }
    if let Some((word, after)) = rest.split_first_chunk::<4>() {
        hash ^= (u32::from_le_bytes(*word) as u64).wrapping_mul(PRIME_1);
        hash = hash
            .rotate_left(23)
            .wrapping_mul(PRIME_2)
            .wrapping_add(PRIME_3);
        rest = after;
    }
    let mut bytes = 0;
    while bytes < 3 {
        let Some((byte, after)) = rest.split_first() else {
            break;
        };
        hash ^= (*byte as u64).wrapping_mul(PRIME_5);
        hash = hash.rotate_left(11).wrapping_mul(PRIME_1);
        rest = after;
        bytes += 1;
    }

    hash = (hash ^ (hash >> 33)).wrapping_mul(PRIME_2);
    hash = (hash ^ (hash >> 29)).wrapping_mul(PRIME_3);
    hash ^ (hash >> 32)
}

/// Numbers are hashed as the bytes that they have in memory, so that only the hash of bytes is the
/// same on every machine.
impl core::hash::Hasher for Xxh64 {
    fn finish(&self) -> u64 {
        self.digest()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.update(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_is_hashed_when_building() {
        const EMPTY: u64 = xxh64(b"", 0);
        assert_eq!(EMPTY, 0xEF46_DB37_51D8_E999); // published with xxHash
        const PIECES: u64 = {
            let mut state = Xxh64::new(7);
            state.update(b"ship");
            state.update(b"shape");
            state.digest()
        };
        assert_eq!(PIECES, xxh64(b"shipshape", 7));
    }

    #[test]
    fn a_length_beyond_32_bits_is_counted() {
        // Instead of hashing 4 GiB of input, set the counter as if that had been done.
        let mut state = Xxh64::new(0);
        state.total_len = u64::from(u32::MAX) & !31;
        state.update(&[0; 64]);
        assert_eq!(state.total_len, (u64::from(u32::MAX) & !31) + 64);
        assert_ne!(
            state.digest(),
            Xxh64 {
                total_len: 32,
                ..state
            }
            .digest()
        );
    }
}
