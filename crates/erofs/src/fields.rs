//! Little-endian fields of records whose length was checked.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

fn bytes<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    let rest = record.get(at..).and_then(|rest| rest.first_chunk());
    rest.copied().unwrap_or([0; N])
}

/// The byte at `at`; fields beyond the record are 0.
pub(crate) fn u8_at(record: &[u8], at: usize) -> u8 {
    record.get(at).copied().unwrap_or(0)
}

/// As [`u8_at`], of 2 bytes.
pub(crate) fn u16_at(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes(record, at))
}

/// As [`u8_at`], of 4 bytes.
pub(crate) fn u32_at(record: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes(record, at))
}

/// As [`u8_at`], of 8 bytes.
pub(crate) fn u64_at(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes(record, at))
}
