//! The fields of records: little-endian numbers, and numbers in groups of seven bits.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use tree::{Error, Result, to_u64};

/// Emits a number in groups of seven bits.
pub fn emit_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

/// Emits the distance from `from` to `to`, its sign in the lowest bit.
pub(crate) fn emit_signed(bytes: &mut Vec<u8>, from: u64, to: u64) {
    let distance = to.wrapping_sub(from).cast_signed();
    let folded = distance.wrapping_shl(1) ^ distance.wrapping_shr(63);
    emit_number(bytes, folded.cast_unsigned());
}

/// Reads fields in order.
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    at: u64,
    /// Whether the place of an error is that of the field.
    moves: bool,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8], at: u64) -> Self {
        let moves = true;
        Fields { bytes, at, moves }
    }

    /// Of bytes that were compressed: the place of all errors is that of their part.
    pub(crate) fn still(bytes: &'a [u8], at: u64) -> Self {
        let moves = false;
        Fields { bytes, at, moves }
    }

    /// The fields that are not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let Some((array, rest)) = self.bytes.split_first_chunk::<N>() else {
            let got = to_u64(self.bytes.len());
            return Err(Error::corrupt(
                "record of the patch ends too early",
                self.at,
                got,
            ));
        };
        self.bytes = rest;
        if self.moves {
            self.at = self.at.saturating_add(to_u64(N));
        }
        Ok(*array)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number in groups of seven bits, the lowest first (LEB128).
    pub(crate) fn number(&mut self) -> Result<u64> {
        let at = self.at;
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            let group = u64::from(byte & 0x7f);
            if shift == 63 && group > 1 {
                break;
            }
            number |= group.wrapping_shl(shift);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Error::corrupt(
            "number of the patch exceeds 64 bits",
            at,
            number,
        ))
    }

    #[cfg(feature = "encode")]
    pub(crate) fn number_u32(&mut self) -> Result<u32> {
        let at = self.at;
        let number = self.number()?;
        let what = "number of the patch exceeds 32 bits";
        u32::try_from(number).map_err(|_| Error::corrupt(what, at, number))
    }

    /// A number of at most `max`.
    #[cfg(feature = "encode")]
    pub(crate) fn number_to(&mut self, max: u64) -> Result<u64> {
        let at = self.at;
        let number = self.number()?;
        let what = "number of the patch exceeds its limit";
        (number <= max)
            .then_some(number)
            .ok_or(Error::corrupt(what, at, number))
    }

    /// The place that is a signed distance from `from`.
    pub(crate) fn signed(&mut self, from: u64) -> Result<u64> {
        let folded = self.number()?;
        let distance = (folded >> 1) ^ (folded & 1).wrapping_neg();
        Ok(from.wrapping_add(distance))
    }
}
