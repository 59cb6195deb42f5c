//! How much of an image is decoded again before it counts as finished.

use std::ops::AddAssign;

use crate::Checksum;

/// The stored data that a sink decodes again. Each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verify {
    /// Nothing.
    Nothing,
    /// Data that it encoded, compared with the content; and kept data, if the source has no
    /// checksum for it.
    #[default]
    Encoded,
    /// Kept data, too, although the checksum of the source matched.
    Everything,
}

impl Verify {
    /// Whether data that was encoded is decoded and compared.
    pub fn decodes_encoded(self) -> bool {
        self >= Verify::Encoded
    }

    /// Whether kept data is decoded that was verified with this checksum.
    pub fn decodes_kept(self, checksum: Option<Checksum>) -> bool {
        match self {
            Verify::Nothing => false,
            Verify::Encoded => checksum.is_none(),
            Verify::Everything => true,
        }
    }
}

/// Blocks or extents that were copied as stored, and how they were verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptCount {
    /// All of them.
    pub count: u64,
    /// Those that were decoded.
    pub decoded: u64,
    /// Those that matched a checksum of the source, and were not decoded.
    pub by_checksum: u64,
}

impl KeptCount {
    /// One that was read with this checksum, and decoded or not.
    pub fn one(checksum: Option<Checksum>, is_decoded: bool) -> KeptCount {
        KeptCount {
            count: 1,
            decoded: is_decoded.into(),
            by_checksum: (checksum.is_some() && !is_decoded).into(),
        }
    }
}

impl AddAssign for KeptCount {
    fn add_assign(&mut self, other: KeptCount) {
        self.count += other.count;
        self.decoded += other.decoded;
        self.by_checksum += other.by_checksum;
    }
}
