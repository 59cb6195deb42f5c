//! Units of content, and where they are stored.

use codec::Algorithm;
use tree::{high_u32, low_u32, wide_u64};

use super::block::BLOCK_LOG2;

/// A codec, by its number in indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    Lz4 = 0,
    Deflate = 2,
    Zstd = 3,
}

impl Codec {
    pub(crate) const ALL: [Codec; 3] = [Codec::Lz4, Codec::Deflate, Codec::Zstd];

    /// The codec for data that is encoded with this algorithm, or is after its frame is taken off.
    pub(crate) fn of(algorithm: Algorithm) -> Codec {
        match algorithm {
            Algorithm::Zlib => Codec::Deflate,
            Algorithm::Zstd => Codec::Zstd,
            _ => Codec::Lz4,
        }
    }
}

/// Where a unit of a file is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitKind {
    Hole,
    Plain,
    Encoded(Codec),
}

/// A stored unit, or a stored chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacedUnit {
    /// Where it begins in the file.
    pub(crate) from: u64,
    /// Where its bytes are in the image, without padding.
    pub(crate) at: u64,
    pub(crate) stored_len: u32,
    pub(crate) kind: UnitKind,
    /// Its content goes on behind the part that is shown.
    pub(crate) is_partial: bool,
}

impl PlacedUnit {
    /// A whole unit where indexes are records.
    pub(crate) fn in_records(from: u64, at: u64, stored_len: u32, kind: UnitKind) -> PlacedUnit {
        PlacedUnit {
            from,
            at,
            stored_len,
            kind,
            is_partial: may_end_early(kind, at, stored_len),
        }
    }

    pub(crate) fn pack(&self) -> [u32; 5] {
        let kind = match self.kind {
            UnitKind::Hole => 0,
            UnitKind::Plain => 1,
            UnitKind::Encoded(codec) => 2 + codec as u64,
        };
        let at = self.at | kind << 60 | u64::from(self.is_partial) << 59;
        [
            low_u32(self.from),
            high_u32(self.from),
            low_u32(at),
            high_u32(at),
            self.stored_len,
        ]
    }

    pub(crate) fn unpack(
        [from_low, from_high, at_low, at_high, stored_len]: [u32; 5],
    ) -> PlacedUnit {
        let at = wide_u64(at_low, at_high);
        PlacedUnit {
            from: wide_u64(from_low, from_high),
            at: at & ((1 << 59) - 1),
            stored_len,
            kind: match at >> 60 {
                0 => UnitKind::Hole,
                1 => UnitKind::Plain,
                2 => UnitKind::Encoded(Codec::Lz4),
                4 => UnitKind::Encoded(Codec::Deflate),
                _ => UnitKind::Encoded(Codec::Zstd),
            },
            is_partial: at >> 59 & 1 != 0,
        }
    }
}

/// Whether Linux can have all content of a unit before it has seen the end of the stored data. It
/// hands over one page of stored data at a time, and the last page may hold nothing but the end of
/// a deflate stream: complete content is then an error, unless the unit is marked as shown in part
/// (`z_erofs_deflate_decompress`; seen with Linux 6.18 and 7.2).
fn may_end_early(kind: UnitKind, at: u64, stored_len: u32) -> bool {
    let last = at + u64::from(stored_len.max(1)) - 1;
    kind == UnitKind::Encoded(Codec::Deflate) && at >> BLOCK_LOG2 != last >> BLOCK_LOG2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_survive_their_records() {
        let encoded = Codec::ALL.map(UnitKind::Encoded);
        for kind in [UnitKind::Hole, UnitKind::Plain].into_iter().chain(encoded) {
            let unit = PlacedUnit {
                from: (1 << 62) + 1,
                at: (1 << 58) + 2,
                stored_len: 1 << 20,
                kind,
                is_partial: true,
            };
            assert_eq!(PlacedUnit::unpack(unit.pack()), unit);
        }
    }
}
