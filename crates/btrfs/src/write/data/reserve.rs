//! Preallocated parts of files: space that is reserved in the image as in the source, and shared
//! where it is shared there.

use tree::{Error, ExtentId, Result};

use super::share::{ExtentClass, NumberedParts, PartLookup};

/// Maximum size of all preallocated space: a hostile image can claim far more than any device has.
const RESERVED_BYTES_MAX: u64 = 16 << 40;
/// The size of a preallocated extent for which room at the end of a group is left out.
const EXTENT_BYTES_MIN: u64 = 1 << 20;

const CLASS: ExtentClass = ExtentClass {
    is_nocow: false,
    is_encoded: false,
};

/// The space reserved so far.
#[derive(Default)]
pub(super) struct ReservedSpace {
    known: NumberedParts,
    /// For each numbered part, its extent and its offset in it; `None` if it was taken back.
    places: Vec<Option<(u32, u32)>>,
    bytes: u64,
}

/// Where the next bytes of a preallocated part go.
pub(super) enum ReservedPart {
    /// To an extent that another file refers to, starting at this offset in it.
    Shared(u32, u32),
    /// To new space, which other files may refer to if it is numbered.
    New { is_numbered: bool },
}

impl ReservedSpace {
    /// Finds the place of up to `len` bytes of the source's reserved space, and how many go there.
    /// `room` is the length of the largest extent that leaves nothing out.
    pub(super) fn next(
        &mut self,
        id: ExtentId,
        at: u64,
        len: u64,
        room: u64,
    ) -> Result<(ReservedPart, u64)> {
        let (is_numbered, len) = match self.known.find(id, CLASS, at, len) {
            PartLookup::Known { number, skip, len } => match self.places[number as usize] {
                Some((extent, begin)) => {
                    return Ok((ReservedPart::Shared(extent, begin + skip), len));
                }
                None => (false, len),
            },
            PartLookup::New(len) => {
                let len = len.min(room.max(EXTENT_BYTES_MIN));
                (self.known.add(id, CLASS, at, len), len)
            }
        };
        self.bytes = self.bytes.saturating_add(len);
        if self.bytes > RESERVED_BYTES_MAX {
            return Err(Error::Limit("more than 16 TiB of preallocated space"));
        }
        Ok((ReservedPart::New { is_numbered }, len))
    }

    /// Records the place of numbered space; `None` if its file is left out.
    pub(super) fn place(&mut self, place: Option<(u32, u32)>) {
        self.places.push(place);
    }

    /// Forgets the extents with this index or a larger one.
    pub(super) fn take_back(&mut self, extents: usize) {
        for place in &mut self.places {
            if place.is_some_and(|(extent, _)| extent as usize >= extents) {
                *place = None;
            }
        }
    }
}
