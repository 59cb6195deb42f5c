//! Tracks which stored bytes of the source have been seen, so that files that share extents there
//! also share them in the image.

use std::collections::{BTreeMap, HashMap, HashSet};

use tree::{Duplicates, Encoding, Extent, ExtentId, ExtentKind, FileId, FileKind, Inventory};

use crate::disk::flags::attribute;
use crate::write::layout::SECTOR_BYTES;

/// Extents to collect before repeated ones are looked for.
const SEEN_MIN: usize = 1 << 16;

/// Which files refer only to the extents of another file.
pub(super) struct Originals<'a> {
    inventory: &'a Inventory<'a>,
    duplicates: &'a Duplicates,
    /// Duplicates, and originals of duplicates, that have preallocated parts.
    reserving: HashSet<FileId>,
}

impl<'a> Originals<'a> {
    pub(super) fn new(inventory: &'a Inventory<'a>, duplicates: &'a Duplicates) -> Self {
        let mut reserving = HashSet::new();
        if inventory.tree().storage().stored_extents {
            let is_reserving = |file| {
                let mut extents = inventory.extents(file);
                // The error comes up again when the file is read.
                while let Ok(Some(extent)) = extents.next() {
                    if reserved(&extent).is_some() {
                        return true;
                    }
                }
                false
            };
            let mut seen = HashSet::new();
            for file in inventory.files() {
                let Some(original) = duplicates.original(file) else {
                    continue;
                };
                for file in [file, original] {
                    if seen.insert(file) && is_reserving(file) {
                        reserving.insert(file);
                    }
                }
            }
        }
        Originals {
            inventory,
            duplicates,
            reserving,
        }
    }

    /// The file whose extents this one refers to.
    pub(super) fn of(&self, file: FileId) -> Option<FileId> {
        let original = self.duplicates.original(file)?;
        // Files without copy-on-write share nothing, and preallocated space belongs to one file.
        let is_own = |file| is_nocow(self.inventory, file) || self.reserving.contains(&file);
        (!is_own(file) && !is_own(original)).then_some(original)
    }
}

/// The space that a preallocated part starts in, if the source names it, and its offset there.
pub(super) fn reserved(extent: &Extent) -> Option<(ExtentId, u64)> {
    match (extent.kind, extent.id) {
        (ExtentKind::Preallocated { stored_offset }, Some(id)) => {
            let is_whole = [extent.offset, stored_offset]
                .iter()
                .all(|at| at.is_multiple_of(SECTOR_BYTES as u64));
            is_whole.then_some((id, stored_offset))
        }
        _ => None,
    }
}

/// Whether a file has neither compression nor checksums, as one that is written in place.
pub(super) fn is_nocow(inventory: &Inventory, file: FileId) -> bool {
    inventory.metadata(file).attributes.0 & (attribute::NOCOW | attribute::NOSUM) != 0
}

/// Stored bytes that several files refer to, from the extents of all files.
#[derive(Default)]
pub(super) struct SharedExtents {
    /// Those that are referenced from more than one place.
    pub(super) shared: HashSet<ExtentId>,
    /// Encoded ones that hold the ends of several files, and of which the files that could refer to
    /// them as they are stored show less than half.
    pub(super) mostly_hidden: HashSet<ExtentId>,
}

impl SharedExtents {
    /// Looks at the extents of all files.
    pub(super) fn of(inventory: &Inventory, originals: &Originals<'_>) -> SharedExtents {
        let has_shared_ends = inventory.tree().storage().block_encoding.is_some();
        let (mut seen, mut shared) = (SeenExtents::default(), HashSet::new());
        let mut parts = Vec::new();
        for file in inventory.files() {
            if inventory.kind(file) != FileKind::Regular || originals.of(file).is_some() {
                continue;
            }
            let size = inventory.size(file);
            let mut extents = inventory.extents(file);
            // The error comes up again when the file is read.
            while let Ok(Some(extent)) = extents.next() {
                let Some(id) = extent.id.filter(|_| extent.kind.has_data()) else {
                    continue;
                };
                seen.add(id, &mut shared);
                if has_shared_ends
                    && let ExtentKind::Encoded(stored) = extent.kind
                    && extent.len < stored.unencoded_len
                    && is_on_sectors(&extent, &stored, size)
                {
                    let from = stored.unencoded_offset;
                    let to = from.saturating_add(extent.len);
                    parts.push((id, from, to, stored.unencoded_len));
                }
            }
        }
        seen.take_repeated(&mut shared);
        drop(seen);
        parts.sort_unstable();
        let mostly_hidden = parts
            .chunk_by(|part, next| part.0 == next.0)
            .filter(|parts| {
                let (mut shown, mut end) = (0, 0);
                for &(_, from, to, _) in *parts {
                    shown += to.saturating_sub(from.max(end));
                    end = end.max(to);
                }
                shown < parts[0].3.div_ceil(2)
            })
            .map(|parts| parts[0].0)
            .collect();
        SharedExtents {
            shared,
            mostly_hidden,
        }
    }
}

/// Extents that were seen, in half of the memory of a set.
#[derive(Default)]
struct SeenExtents {
    ids: Vec<ExtentId>,
    /// How many to have before repeated ones are taken out.
    full: usize,
}

impl SeenExtents {
    fn add(&mut self, id: ExtentId, repeated: &mut HashSet<ExtentId>) {
        if self.ids.len() >= self.full {
            self.take_repeated(repeated);
            self.full = SEEN_MIN.max(2 * self.ids.len());
        }
        self.ids.push(id);
    }

    /// Keeps each one once, and moves the others.
    fn take_repeated(&mut self, repeated: &mut HashSet<ExtentId>) {
        self.ids.sort_unstable();
        for pair in self.ids.windows(2) {
            if pair[0] == pair[1] {
                repeated.insert(pair[0]);
            }
        }
        self.ids.dedup();
    }
}

/// Whether a file of `size` bytes can refer to an encoded extent as it is stored: the part that it
/// shows begins at sector boundaries, and ends at one or with the file.
pub(super) fn is_on_sectors(extent: &Extent, stored: &Encoding, size: u64) -> bool {
    let sector = SECTOR_BYTES as u64;
    let end = extent.end();
    extent.offset.is_multiple_of(sector)
        && stored.unencoded_offset.is_multiple_of(sector)
        && (end.is_multiple_of(sector) || end == size)
}

/// Numbers for the parts that several files may refer to, assigned in the order of the jobs.
#[derive(Default)]
pub(super) struct NumberedParts {
    next: u32,
    encoded: HashMap<(ExtentId, Encoding), u32>,
    /// By extent, its class, and the start of the part in the decoded data: the length and number
    /// of the part.
    cut: BTreeMap<(ExtentId, ExtentClass, u64), (u64, u32)>,
    /// Files of at most a sector, by extent, class, offset and size.
    small: HashMap<(ExtentId, ExtentClass, u64, u64), FileId>,
}

/// Extents of different classes are never equal, even if a damaged image puts them at the same
/// place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ExtentClass {
    /// Written in place, without checksums.
    pub(super) is_nocow: bool,
    pub(super) is_encoded: bool,
}

/// The result of looking up stored bytes, starting at some offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartLookup {
    /// `len` of them are in the part with this number, starting at `skip`.
    Known { number: u32, skip: u32, len: u64 },
    /// Nothing is known of this many bytes.
    New(u64),
}

impl NumberedParts {
    fn number(&mut self) -> Option<u32> {
        let number = self.next;
        self.next = number.checked_add(1)?;
        Some(number)
    }

    /// The number of a compressed extent that was seen before; otherwise assigns one.
    pub(super) fn encoded(&mut self, id: ExtentId, encoding: &Encoding) -> Result<u32, bool> {
        // The whole extent is kept, so it does not matter which part of it is referenced.
        let key = Encoding {
            unencoded_offset: 0,
            ..*encoding
        };
        if let Some(&number) = self.encoded.get(&(id, key)) {
            return Ok(number);
        }
        let number = self.number();
        if let Some(number) = number {
            self.encoded.insert((id, key), number);
        }
        Err(number.is_some())
    }

    /// Looks up an extent's bytes starting at `at`, a sector boundary. A part that ends
    /// within a sector ends there with its file, so it matches only requests that end no later.
    pub(super) fn find(&self, id: ExtentId, class: ExtentClass, at: u64, len: u64) -> PartLookup {
        let before = self.cut.range(..=(id, class, at)).next_back();
        if let Some((&(known, of, from), &(known_len, number))) = before
            && (known, of) == (id, class)
            && at < from + known_len
        {
            let there = from + known_len - at;
            let len = if there < len {
                there - there % SECTOR_BYTES as u64
            } else {
                len
            };
            if len > 0 {
                let skip = (at - from) as u32; // within a part
                return PartLookup::Known { number, skip, len };
            }
        }
        let mut behind = self.cut.range((id, class, at + 1)..);
        let new = match behind.next() {
            Some((&(known, of, from), _)) if (known, of) == (id, class) => from - at,
            _ => u64::MAX,
        };
        PartLookup::New(len.min(new))
    }

    /// Numbers a new part; returns whether a number was left.
    pub(super) fn add(&mut self, id: ExtentId, class: ExtentClass, at: u64, len: u64) -> bool {
        let number = self.number();
        if let Some(number) = number {
            self.cut.insert((id, class, at), (len, number));
        }
        number.is_some()
    }

    /// The small file that refers to the same bytes; otherwise remembers this one.
    pub(super) fn small(
        &mut self,
        id: ExtentId,
        class: ExtentClass,
        at: u64,
        size: u64,
        file: FileId,
    ) -> Option<FileId> {
        let original = *self.small.entry((id, class, at, size)).or_insert(file);
        (original != file).then_some(original)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: ExtentClass = ExtentClass {
        is_nocow: false,
        is_encoded: false,
    };
    const NOCOW: ExtentClass = ExtentClass {
        is_nocow: true,
        is_encoded: false,
    };

    #[test]
    fn repeated_extents_are_found_however_far_they_are_apart() {
        let (mut seen, mut repeated) = (SeenExtents::default(), HashSet::new());
        let count = 3 * SEEN_MIN as u64;
        for id in (0..count).chain([0, count - 1, 7, 7]) {
            seen.add(ExtentId(id), &mut repeated);
        }
        seen.take_repeated(&mut repeated);
        assert_eq!(seen.ids.len() as u64, count);
        let mut repeated: Vec<u64> = repeated.iter().map(|id| id.0).collect();
        repeated.sort_unstable();
        assert_eq!(repeated, [0, 7, count - 1]);
    }

    #[test]
    fn parts_of_extents_are_found_again() {
        let mut known = NumberedParts::default();
        let (id, other) = (ExtentId(7), ExtentId(8));
        assert_eq!(known.find(id, PLAIN, 0, 8192), PartLookup::New(8192));
        assert!(known.add(id, PLAIN, 4096, 8192));
        assert!(known.add(id, PLAIN, 16384, 4096));
        let found = |number, skip, len| PartLookup::Known { number, skip, len };
        assert_eq!(known.find(id, PLAIN, 0, 8192), PartLookup::New(4096));
        assert_eq!(known.find(id, PLAIN, 4096, 4096), found(0, 0, 4096));
        assert_eq!(known.find(id, PLAIN, 8192, 65536), found(0, 4096, 4096));
        assert_eq!(known.find(id, PLAIN, 12288, 65536), PartLookup::New(4096));
        assert_eq!(known.find(id, PLAIN, 16384, 65536), found(1, 0, 4096));
        assert_eq!(known.find(id, PLAIN, 20480, 65536), PartLookup::New(65536));
        assert_eq!(known.find(id, NOCOW, 4096, 4096), PartLookup::New(4096));
        // A part may end within a sector, as its file does.
        assert!(known.add(other, PLAIN, 8192, 5000));
        assert_eq!(known.find(other, PLAIN, 8192, 5000), found(2, 0, 5000));
        assert_eq!(known.find(other, PLAIN, 12288, 904), found(2, 4096, 904));
        assert_eq!(known.find(other, PLAIN, 8192, 8192), found(2, 0, 4096));
        assert_eq!(known.find(other, PLAIN, 12288, 4096), PartLookup::New(4096));
        assert!(known.add(other, PLAIN, 12288, 4096));
        assert_eq!(known.find(other, PLAIN, 12288, 4096), found(3, 0, 4096));
        assert_eq!(known.find(other, PLAIN, 4096, 4096), PartLookup::New(4096));
    }
}
