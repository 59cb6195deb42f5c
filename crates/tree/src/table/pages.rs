//! Tables whose records are in pages, most of which are in a file.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::scratch::Scratched;

/// Records in a page.
pub(super) const PAGE_RECORDS: usize = 256;
/// Pages of a table in memory. A table with no more records has no place in the file.
pub(super) const PAGES_MAX: usize = 64;

/// Instead of a place in memory: the page is only in the file.
const NOWHERE: u32 = u32::MAX;

/// Records in pages.
#[derive(Debug)]
pub(super) struct Paged<const N: usize> {
    len: usize,
    pages: Mutex<Pages<N>>,
}

/// Where a page is.
#[derive(Clone, Copy, Debug)]
struct PageAddress {
    /// The index in memory.
    slot: u32,
    /// Its place in the file plus 1; 0 if it has none.
    at: u64,
}

/// A page in memory.
#[derive(Debug)]
struct PageFrame {
    /// `None` if its page could not be read.
    page: Option<usize>,
    /// Its records, as they are in the file.
    bytes: Box<[u8]>,
    /// It differs from the file.
    is_changed: bool,
    /// It was used since it was last considered to go.
    is_used: bool,
}

#[derive(Debug)]
struct Pages<const N: usize> {
    file: Arc<Scratched>,
    places: Vec<PageAddress>,
    slots: Vec<PageFrame>,
    /// The slot to consider next.
    hand: usize,
    /// The file could not be written: pages stay in memory.
    is_full: bool,
}

impl<const N: usize> Paged<N> {
    /// Turns full pages into a table in a file.
    pub(super) fn new(file: Arc<Scratched>, records: Vec<[u32; N]>) -> Paged<N> {
        let mut pages = Pages {
            file,
            places: Vec::new(),
            slots: Vec::new(),
            hand: 0,
            is_full: false,
        };
        for (index, record) in records.iter().enumerate() {
            pages.push(index, *record);
        }
        Paged {
            len: records.len(),
            pages: Mutex::new(pages),
        }
    }

    fn pages(&self) -> MutexGuard<'_, Pages<N>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pages_mut(&mut self) -> &mut Pages<N> {
        let pages = self.pages.get_mut();
        pages.unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, index: usize) -> [u32; N] {
        assert!(index < self.len, "the record exists");
        let mut pages = self.pages();
        let slot = pages.load(index / PAGE_RECORDS);
        unpack(&pages.slots[slot].bytes[place::<N>(index)])
    }

    pub(super) fn set(&mut self, index: usize, record: [u32; N]) {
        assert!(index < self.len, "the record exists");
        self.pages_mut().set(index, record);
    }

    pub(super) fn push(&mut self, record: [u32; N]) {
        let index = self.len;
        self.len += 1;
        self.pages_mut().push(index, record);
    }

    /// Drops the last records. Their pages are used again.
    pub(super) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The memory that it holds, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let pages = self.pages();
        pages.slots.len() * PAGE_RECORDS * size_of::<[u32; N]>()
            + pages.places.capacity() * size_of::<PageAddress>()
    }
}

impl<const N: usize> Pages<N> {
    const BYTES: usize = PAGE_RECORDS * size_of::<[u32; N]>();

    fn set(&mut self, index: usize, record: [u32; N]) {
        let slot = self.load(index / PAGE_RECORDS);
        let slot = &mut self.slots[slot];
        slot.is_changed = true;
        pack(record, &mut slot.bytes[place::<N>(index)]);
    }

    /// Sets a record, which may be the first one of a new page.
    fn push(&mut self, index: usize, record: [u32; N]) {
        let page = index / PAGE_RECORDS;
        if page == self.places.len() {
            self.places.push(PageAddress {
                slot: NOWHERE,
                at: 0,
            });
            let slot = self.free_slot();
            self.put(page, slot);
        }
        self.set(index, record);
    }

    /// The slot of a page, which is read if it is not in memory.
    #[inline]
    fn load(&mut self, page: usize) -> usize {
        let PageAddress { slot, at } = self.places[page];
        if slot != NOWHERE {
            self.slots[slot as usize].is_used = true;
            return slot as usize;
        }
        self.read(page, at)
    }

    #[cold]
    fn read(&mut self, page: usize, at: u64) -> usize {
        let slot = self.free_slot();
        self.file.read(&mut self.slots[slot].bytes, at - 1);
        self.put(page, slot);
        slot
    }

    /// A slot without a page: one of those that there are if there are enough. What is in it is not
    /// of any page.
    fn free_slot(&mut self) -> usize {
        if self.slots.len() >= PAGES_MAX
            && !self.is_full
            && let Some(slot) = self.make_room()
        {
            return slot;
        }
        self.slots.push(PageFrame {
            page: None,
            bytes: vec![0; Self::BYTES].into(),
            is_changed: false,
            is_used: false,
        });
        self.slots.len() - 1
    }

    /// Gives a slot to a page.
    fn put(&mut self, page: usize, slot: usize) {
        self.places[page].slot = slot as u32; // There are no more than pages.
        let slot = &mut self.slots[slot];
        (slot.page, slot.is_changed, slot.is_used) = (Some(page), false, true);
    }

    /// A slot whose page is in the file as it is. `None` if that cannot be written.
    fn make_room(&mut self) -> Option<usize> {
        loop {
            let slot = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            if std::mem::take(&mut self.slots[slot].is_used) {
                continue;
            }
            let Some(page) = self.slots[slot].page else {
                return Some(slot);
            };
            if self.slots[slot].is_changed && !self.write(page, slot) {
                self.is_full = true;
                return None;
            }
            self.places[page].slot = NOWHERE;
            self.slots[slot].page = None;
            return Some(slot);
        }
    }

    fn write(&mut self, page: usize, slot: usize) -> bool {
        let place = &mut self.places[page];
        if place.at == 0 {
            place.at = self.file.place(Self::BYTES as u64) + 1;
        }
        let bytes = &self.slots[slot].bytes;
        self.file.write(bytes, place.at - 1).is_ok()
    }
}

/// Where a record is in its page.
fn place<const N: usize>(index: usize) -> Range<usize> {
    let from = index % PAGE_RECORDS * size_of::<[u32; N]>();
    from..from + size_of::<[u32; N]>()
}

#[inline]
fn pack<const N: usize>(record: [u32; N], bytes: &mut [u8]) {
    for (bytes, word) in bytes.chunks_exact_mut(4).zip(record) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}

#[inline]
fn unpack<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let mut record = [0; N];
    for (word, bytes) in record.iter_mut().zip(bytes.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    record
}
