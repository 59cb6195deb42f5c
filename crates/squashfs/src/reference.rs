//! Where a record of a metadata table is.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

/// A reference: the block's position in its table in the upper 48 bits, and a 16-bit offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MetadataRef(pub(crate) u64);

impl MetadataRef {
    pub(crate) fn new(block: u64, offset: u16) -> Self {
        MetadataRef(block << 16 | u64::from(offset))
    }

    pub(crate) const fn block(self) -> u64 {
        self.0 >> 16
    }

    pub(crate) const fn offset(self) -> u16 {
        let [low, high, ..] = self.0.to_le_bytes();
        u16::from_le_bytes([low, high])
    }
}
