//! XXH32: four lanes of 32 bits over stripes of 16 bytes.

use crate::copy;

const PRIME_1: u32 = 0x9E37_79B1;
const PRIME_2: u32 = 0x85EB_CA77;
const PRIME_3: u32 = 0xC2B2_AE3D;
const PRIME_4: u32 = 0x27D4_EB2F;
const PRIME_5: u32 = 0x1656_67B1;

/// How many bytes one step of the four lanes consumes.
const STRIPE: usize = 16;

/// The XXH32 of `data` with `seed`.
pub const fn xxh32(data: &[u8], seed: u32) -> u32 {
    let (hash, tail) = if data.len() < STRIPE {
        (seed.wrapping_add(PRIME_5), data)
    } else {
        let (lanes, tail) = pairs_of_stripes(initial_lanes(seed), data);
        (merge_lanes(lanes), tail)
    };
    finish(hash.wrapping_add(data.len() as u32), tail)
}

/// An XXH32 state for input in pieces.
///
/// Its size and alignment let it be stored in the `struct xxh32_state` (44 bytes) of
/// `linux/xxhash.h`. No field values make a method panic: uninitialized state gives a meaningless
/// hash, but nothing worse.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Xxh32 {
    /// Number of input bytes so far, modulo 2^32. Modulo 16, it is the used length of `pending`.
    total_len: u32,
    /// Nonzero once a full stripe has been consumed; until then the third lane holds the seed.
    large: u32,
    lanes: [u32; 4],
    /// The bytes after the last full stripe.
    pending: [u8; STRIPE],
}

const _: () = assert!(size_of::<Xxh32>() <= 44 && align_of::<Xxh32>() <= 4);

impl Xxh32 {
    /// An empty state.
    pub const fn new(seed: u32) -> Self {
        Self {
            total_len: 0,
            large: 0,
            lanes: initial_lanes(seed),
            pending: [0; STRIPE],
        }
    }

    /// Resets to the state of [`Xxh32::new`].
    pub const fn reset(&mut self, seed: u32) {
        *self = Self::new(seed);
    }

    /// Appends `data` to the input. Any split of an input into pieces, empty ones included, gives
    /// the same hash.
    #[inline]
    pub const fn update(&mut self, data: &[u8]) {
        let pending_len = (self.total_len % STRIPE as u32) as usize;
        self.total_len = self.total_len.wrapping_add(data.len() as u32);
        let (_, room) = self.pending.split_at_mut(pending_len);
        if data.len() < room.len() {
            copy(room, data);
            return;
        }
        self.large = 1;
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
    pub const fn digest(&self) -> u32 {
        let pending_len = (self.total_len % STRIPE as u32) as usize;
        let hash = if self.large != 0 {
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

impl Default for Xxh32 {
    /// An empty state with seed 0.
    fn default() -> Self {
        Self::new(0)
    }
}

const fn initial_lanes(seed: u32) -> [u32; 4] {
    [
        seed.wrapping_add(PRIME_1).wrapping_add(PRIME_2),
        seed.wrapping_add(PRIME_2),
        seed,
        seed.wrapping_sub(PRIME_1),
    ]
}

const fn round(lane: u32, word: u32) -> u32 {
    lane.wrapping_add(word.wrapping_mul(PRIME_2))
        .rotate_left(13)
        .wrapping_mul(PRIME_1)
}

const fn word(bytes: &[u8; STRIPE], index: usize) -> u32 {
    let Some((_, from)) = bytes.split_at_checked(index * 4) else {
        return 0; // index < 4
    };
    match from.first_chunk() {
        Some(word) => u32::from_le_bytes(*word),
        None => 0, // index < 4, so there are as many bytes
    }
}

const fn stripe([a, b, c, d]: [u32; 4], stripe: &[u8; STRIPE]) -> [u32; 4] {
    [
        round(a, word(stripe, 0)),
        round(b, word(stripe, 1)),
        round(c, word(stripe, 2)),
        round(d, word(stripe, 3)),
    ]
}

/// Consumes every full stripe of `data`; returns the remaining bytes.
const fn stripes(lanes: [u32; 4], data: &[u8]) -> ([u32; 4], &[u8]) {
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
const fn pairs_of_stripes(lanes: [u32; 4], data: &[u8]) -> ([u32; 4], &[u8]) {
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

const fn merge_lanes([a, b, c, d]: [u32; 4]) -> u32 {
    a.rotate_left(1)
        .wrapping_add(b.rotate_left(7))
        .wrapping_add(c.rotate_left(12))
        .wrapping_add(d.rotate_left(18))
}

/// Consumes the last bytes (less than a stripe) and mixes the bits.
#[inline(always)]
const fn finish(mut hash: u32, tail: &[u8]) -> u32 {
    let mut rest = tail;
    // Three times at most, which the compiler unrolls.
    let mut words = 0;
    while words < 3 {
        let Some((word, after)) = rest.split_first_chunk::<4>() else {
            break;
        };
        hash = hash.wrapping_add(u32::from_le_bytes(*word).wrapping_mul(PRIME_3));
        hash = hash.rotate_left(17).wrapping_mul(PRIME_4);
        rest = after;
        words += 1;
    }
    let mut bytes = 0;
    while bytes < 3 {
        let Some((byte, after)) = rest.split_first() else {
            break;
        };
        hash = hash.wrapping_add((*byte as u32).wrapping_mul(PRIME_5));
        hash = hash.rotate_left(11).wrapping_mul(PRIME_1);
        rest = after;
        bytes += 1;
    }

    hash = (hash ^ (hash >> 15)).wrapping_mul(PRIME_2);
    hash = (hash ^ (hash >> 13)).wrapping_mul(PRIME_3);
    hash ^ (hash >> 16)
}

/// Numbers are hashed as the bytes that they have in memory, so that only the hash of bytes is the
/// same on every machine.
impl core::hash::Hasher for Xxh32 {
    fn finish(&self) -> u64 {
        self.digest().into()
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
        const EMPTY: u32 = xxh32(b"", 0);
        assert_eq!(EMPTY, 0x02CC_5D05); // published with xxHash
        const PIECES: u32 = {
            let mut state = Xxh32::new(7);
            state.update(b"ship");
            state.update(b"shape");
            state.digest()
        };
        assert_eq!(PIECES, xxh32(b"shipshape", 7));
    }

    #[test]
    fn a_length_beyond_32_bits_keeps_the_lanes() {
        // After 4 GiB the counter wraps to less than a stripe; the lanes must still be used.
        let mut state = Xxh32::new(0);
        state.update(&[1; 16]);
        state.total_len = !15;
        let lanes = state.lanes;
        state.update(&[2; 16]);
        assert_eq!((state.total_len, state.large), (0, 1));
        assert_ne!(state.lanes, lanes);
        assert_eq!(state.digest(), finish(merge_lanes(state.lanes), &[]));
    }
}
