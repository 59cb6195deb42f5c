//! Which stored bytes of the source were shown before, so that what files share there is shared in the image, too.

use std::collections::{BTreeMap, HashMap, HashSet};

use tree::{Duplicates, Encoding, ExtentId, Extents, FileId, FileKind, FileSystem, Inventory};

use crate::flags::attribute;
use crate::layout::SECTOR_BYTES;

/// The file whose extents this one shows, if it has none of its own.
pub(super) fn original(
    inventory: &Inventory,
    duplicates: &Duplicates,
    file: FileId,
) -> Option<FileId> {
    let original = duplicates.original(file)?;
    // Files that are written in place share nothing.
    (!is_nocow(inventory, file) && !is_nocow(inventory, original)).then_some(original)
}

/// Whether a file is written in place: it has neither compression nor checksums.
pub(super) fn is_nocow(inventory: &Inventory, file: FileId) -> bool {
    inventory.metadata(file).attributes.0 & attribute::NOCOW != 0
}

/// The stored bytes that are shown in more than one place.
pub(super) fn shared_extents(
    fs: &dyn FileSystem,
    inventory: &Inventory,
    duplicates: &Duplicates,
) -> HashSet<ExtentId> {
    let (mut seen, mut shared) = (HashSet::new(), HashSet::new());
    for file in inventory.files() {
        if inventory.kind(file) != FileKind::Regular
            || original(inventory, duplicates, file).is_some()
        {
            continue;
        }
        let mut extents = Extents::new(fs, inventory.ino(file), inventory.size(file));
        // Whoever reads the file will meet an error.
        while let Ok(Some(extent)) = extents.next() {
            if let Some(id) = extent.id
                && !seen.insert(id)
            {
                shared.insert(id);
            }
        }
    }
    shared
}

/// Numbers for the parts that several files may show. They are given in the order of the jobs.
#[derive(Default)]
pub(super) struct Known {
    next: u32,
    encoded: HashMap<(ExtentId, Encoding), u32>,
    /// By extent, its class, and where the part begins in what it decodes to: the part's length and number.
    cut: BTreeMap<(ExtentId, Class, u64), (u64, u32)>,
    /// Files of no more than a sector, by extent, its class, place and size.
    small: HashMap<(ExtentId, Class, u64, u64), FileId>,
}

/// Only extents of one class are the same, even if a broken image says that they have the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Class {
    /// Written in place, without checksums.
    pub(super) is_nocow: bool,
    pub(super) is_encoded: bool,
}

/// What is known of the stored bytes from some place on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// They are in the part of that number, from `skip` on; `len` of them.
    Known { number: u32, skip: u32, len: u64 },
    /// Nothing, for so many bytes.
    New(u64),
}

impl Known {
    fn number(&mut self) -> Option<u32> {
        let number = self.next;
        self.next = number.checked_add(1)?;
        Some(number)
    }

    /// The number of an encoded extent that was met before; otherwise it gets one.
    pub(super) fn encoded(&mut self, id: ExtentId, encoding: &Encoding) -> Result<u32, bool> {
        // All of it is kept, so it does not matter which part of it is shown.
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

    /// What is known of an extent's bytes from `at` on, a sector's begin. What ends within a sector ends there with its
    /// file, so it serves only who wants no more.
    pub(super) fn find(&self, id: ExtentId, class: Class, at: u64, len: u64) -> Found {
        let before = self.cut.range(..=(id, class, at)).next_back();
        if let Some((&(known, of, from), &(known_len, number))) = before
            && (known, of) == (id, class)
            && at < from + known_len
        {
            let there = from + known_len - at;
            let len = match there < len {
                true => there - there % SECTOR_BYTES as u64,
                false => len,
            };
            if len > 0 {
                let skip = (at - from) as u32; // within a part
                return Found::Known { number, skip, len };
            }
        }
        let mut behind = self.cut.range((id, class, at + 1)..);
        let new = match behind.next() {
            Some((&(known, of, from), _)) if (known, of) == (id, class) => from - at,
            _ => u64::MAX,
        };
        Found::New(len.min(new))
    }

    /// Numbers a new part; gives whether there was a number left.
    pub(super) fn add(&mut self, id: ExtentId, class: Class, at: u64, len: u64) -> bool {
        let number = self.number();
        if let Some(number) = number {
            self.cut.insert((id, class, at), (len, number));
        }
        number.is_some()
    }

    /// The small file that shows the same bytes; otherwise this one does from now on.
    pub(super) fn small(
        &mut self,
        id: ExtentId,
        class: Class,
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

    const PLAIN: Class = Class {
        is_nocow: false,
        is_encoded: false,
    };
    const NOCOW: Class = Class {
        is_nocow: true,
        is_encoded: false,
    };

    #[test]
    fn parts_of_extents_are_found_again() {
        let mut known = Known::default();
        let (id, other) = (ExtentId(7), ExtentId(8));
        assert_eq!(known.find(id, PLAIN, 0, 8192), Found::New(8192));
        assert!(known.add(id, PLAIN, 4096, 8192));
        assert!(known.add(id, PLAIN, 16384, 4096));
        let found = |number, skip, len| Found::Known { number, skip, len };
        assert_eq!(known.find(id, PLAIN, 0, 8192), Found::New(4096));
        assert_eq!(known.find(id, PLAIN, 4096, 4096), found(0, 0, 4096));
        assert_eq!(known.find(id, PLAIN, 8192, 65536), found(0, 4096, 4096));
        assert_eq!(known.find(id, PLAIN, 12288, 65536), Found::New(4096));
        assert_eq!(known.find(id, PLAIN, 16384, 65536), found(1, 0, 4096));
        assert_eq!(known.find(id, PLAIN, 20480, 65536), Found::New(65536));
        assert_eq!(known.find(id, NOCOW, 4096, 4096), Found::New(4096));
        // One ends within a sector, as its file does.
        assert!(known.add(other, PLAIN, 8192, 5000));
        assert_eq!(known.find(other, PLAIN, 8192, 5000), found(2, 0, 5000));
        assert_eq!(known.find(other, PLAIN, 12288, 904), found(2, 4096, 904));
        assert_eq!(known.find(other, PLAIN, 8192, 8192), found(2, 0, 4096));
        assert_eq!(known.find(other, PLAIN, 12288, 4096), Found::New(4096));
        assert!(known.add(other, PLAIN, 12288, 4096));
        assert_eq!(known.find(other, PLAIN, 12288, 4096), found(3, 0, 4096));
        assert_eq!(known.find(other, PLAIN, 4096, 4096), Found::New(4096));
    }
}
