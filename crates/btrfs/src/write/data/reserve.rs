//! Preallocated parts of files: space that is reserved in the image as in the source, and shared where it is shared
//! there.

use tree::{Error, ExtentId, FileId, Result};

use super::Sink;
use super::area::ExtentSlice;
use super::job::UnplacedExtent;
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

impl ReservedSpace {
    /// Forgets the extents with this index or a larger one.
    pub(super) fn take_back(&mut self, extents: usize) {
        for place in &mut self.places {
            if place.is_some_and(|(extent, _)| extent as usize >= extents) {
                *place = None;
            }
        }
    }
}

impl Sink<'_, '_> {
    /// Adds a preallocated part to a file: space that other files have already, or new space.
    pub(super) fn reserve(
        &mut self,
        file: FileId,
        mut offset: u64,
        len: u64,
        (id, mut at): (ExtentId, u64),
    ) -> Result<()> {
        let end = offset + len;
        while offset < end {
            let found = self.reserved.known.find(id, CLASS, at, end - offset);
            let (number, len) = match found {
                PartLookup::Known { number, skip, len } => {
                    if let Some((extent, begin)) = self.reserved.places[number as usize] {
                        let before = self.open(file).before;
                        let part = ExtentSlice {
                            offset,
                            len,
                            extent,
                            skip: begin + skip,
                        };
                        self.area.show(&before, part);
                        (offset, at) = (offset + len, at + len);
                        continue;
                    }
                    (None, len)
                }
                PartLookup::New(len) => {
                    let len = len.min(self.area.room().max(EXTENT_BYTES_MIN));
                    let number = self.reserved.places.len();
                    let is_numbered = self.reserved.known.add(id, CLASS, at, len);
                    (is_numbered.then_some(number), len)
                }
            };
            self.reserved.bytes = self.reserved.bytes.saturating_add(len);
            if self.reserved.bytes > RESERVED_BYTES_MAX {
                return Err(Error::Limit("more than 16 TiB of preallocated space"));
            }
            let place = self.take_piece(file, offset, len, UnplacedExtent::reserved(len))?;
            if number.is_some() {
                self.reserved.places.push(place);
            }
            (offset, at) = (offset + len, at + len);
        }
        Ok(())
    }
}
