//! Tables of small records, which may be in a temporary file: a stream can have millions of files.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Result;

/// Records in a page.
const PAGE_RECORDS: usize = 256;
/// Pages of a table in memory. A table with no more records has no place in the file.
const PAGES_MAX: usize = 64;
/// Instead of a place in memory: the page is only in the file.
const NOWHERE: u32 = u32::MAX;

/// A temporary file for what [tables](Table) do not keep in memory. It has no name, and ends with the last of them.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    /// `None` if all is kept in memory.
    file: Option<Arc<Scratched>>,
}

#[derive(Debug)]
struct Scratched {
    file: File,
    /// Where the next page goes.
    end: AtomicU64,
}

impl Scratch {
    /// Keeps all in memory.
    pub fn memory() -> Scratch {
        Scratch::default()
    }

    /// A file in this directory.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) with the directory.
    pub fn in_dir(dir: &Path) -> Result<Scratch> {
        let file = crate::output::unnamed_file(dir);
        let file =
            file.map_err(|error| error.in_file("write in", dir.as_os_str().as_encoded_bytes()))?;
        Ok(Scratch::in_file(Some(file)))
    }

    /// An empty file without a name; `None` to keep all in memory.
    pub fn in_file(file: Option<File>) -> Scratch {
        let end = AtomicU64::new(0);
        Scratch {
            file: file.map(|file| Arc::new(Scratched { file, end })),
        }
    }
}

/// Records of `N` words, by index. With a [`Scratch`] file, a table keeps some pages in memory and the others there, and is
/// fastest where it is used in order. If the file cannot be written, what is left stays in memory.
///
/// # Panics
/// All functions panic if an index is out of range, or if what was written to the file cannot be read.
#[derive(Debug)]
pub struct Table<const N: usize> {
    /// All records, or none if they are in pages.
    records: Vec<[u32; N]>,
    scratch: Scratch,
    paged: Option<Box<Paged<N>>>,
}

#[derive(Debug)]
struct Paged<const N: usize> {
    len: usize,
    pages: Mutex<Pages<N>>,
}

/// Where a page is.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The index in memory.
    slot: u32,
    /// Its place in the file plus 1; 0 if it has none.
    at: u64,
}

/// A page in memory.
#[derive(Debug)]
struct Slot<const N: usize> {
    page: usize,
    records: Vec<[u32; N]>,
    /// It differs from the file.
    is_changed: bool,
    /// It was used since it was last considered to go.
    is_used: bool,
}

#[derive(Debug)]
struct Pages<const N: usize> {
    file: Arc<Scratched>,
    places: Vec<Place>,
    slots: Vec<Slot<N>>,
    /// The slot to consider next.
    hand: usize,
    /// The file could not be written: pages stay in memory.
    is_full: bool,
    buffer: Vec<u8>,
}

impl<const N: usize> Default for Table<N> {
    fn default() -> Self {
        Table::new(&Scratch::memory())
    }
}

/// The copy is in memory.
impl<const N: usize> Clone for Table<N> {
    fn clone(&self) -> Self {
        Table {
            records: (0..self.len()).map(|index| self.get(index)).collect(),
            scratch: Scratch::memory(),
            paged: None,
        }
    }
}

impl<const N: usize> Table<N> {
    /// An empty table.
    pub fn new(scratch: &Scratch) -> Table<N> {
        Table {
            records: Vec::new(),
            scratch: scratch.clone(),
            paged: None,
        }
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        match &self.paged {
            None => self.records.len(),
            Some(paged) => paged.len,
        }
    }

    /// Whether it has no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A record.
    #[inline]
    pub fn get(&self, index: usize) -> [u32; N] {
        match &self.paged {
            None => self.records[index],
            Some(paged) => paged.get(index),
        }
    }

    /// Replaces a record.
    #[inline]
    pub fn set(&mut self, index: usize, record: [u32; N]) {
        match &mut self.paged {
            None => self.records[index] = record,
            Some(paged) => {
                assert!(index < paged.len, "the record exists");
                *paged.pages_mut().record_mut(index) = record;
            }
        }
    }

    /// Appends a record.
    pub fn push(&mut self, record: [u32; N]) {
        if let Some(paged) = &mut self.paged {
            let index = paged.len;
            paged.len += 1;
            let pages = paged.pages_mut();
            if index / PAGE_RECORDS == pages.places.len() {
                pages.add(vec![[0; N]; PAGE_RECORDS]);
            }
            *pages.record_mut(index) = record;
            return;
        }
        if self.records.len() == PAGE_RECORDS * PAGES_MAX
            && let Some(file) = self.scratch.file.take()
        {
            self.paged = Some(Box::new(Paged::new(
                file,
                std::mem::take(&mut self.records),
            )));
            return self.push(record);
        }
        // Tables grow by an eighth, not by doubling.
        if self.records.len() == self.records.capacity() {
            self.records.reserve_exact(self.records.len() / 8 + 16);
        }
        self.records.push(record);
    }

    /// Drops the records from this number on, if there are more.
    pub fn truncate(&mut self, len: usize) {
        match &mut self.paged {
            None => self.records.truncate(len),
            // Its pages are used again.
            Some(paged) => paged.len = paged.len.min(len),
        }
    }

    /// The last record.
    pub fn last(&self) -> Option<[u32; N]> {
        Some(self.get(self.len().checked_sub(1)?))
    }

    /// Replaces the last record, if there is one.
    pub fn set_last(&mut self, record: [u32; N]) {
        if let Some(last) = self.len().checked_sub(1) {
            self.set(last, record);
        }
    }

    /// Drops room for more records.
    pub fn shrink_to_fit(&mut self) {
        self.records.shrink_to_fit();
    }

    /// The memory that it holds, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let paged = self.paged.as_ref().map_or(0, |paged| {
            let pages = paged.pages();
            pages.slots.len() * PAGE_RECORDS * size_of::<[u32; N]>()
                + pages.places.capacity() * size_of::<Place>()
        });
        self.records.capacity() * size_of::<[u32; N]>() + paged
    }
}

impl<const N: usize> Paged<N> {
    /// Turns full pages into a table in a file.
    fn new(file: Arc<Scratched>, records: Vec<[u32; N]>) -> Paged<N> {
        let mut pages = Pages {
            file,
            places: Vec::new(),
            slots: Vec::new(),
            hand: 0,
            is_full: false,
            buffer: Vec::new(),
        };
        for page in records.chunks_exact(PAGE_RECORDS) {
            pages.add(page.to_vec());
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

    fn get(&self, index: usize) -> [u32; N] {
        assert!(index < self.len, "the record exists");
        let mut pages = self.pages();
        let slot = pages.load(index / PAGE_RECORDS);
        pages.slots[slot].records[index % PAGE_RECORDS]
    }
}

impl<const N: usize> Pages<N> {
    const BYTES: u64 = (PAGE_RECORDS * size_of::<[u32; N]>()) as u64;

    fn record_mut(&mut self, index: usize) -> &mut [u32; N] {
        let slot = self.load(index / PAGE_RECORDS);
        let slot = &mut self.slots[slot];
        slot.is_changed = true;
        &mut slot.records[index % PAGE_RECORDS]
    }

    /// Appends a page.
    fn add(&mut self, records: Vec<[u32; N]>) {
        let page = self.places.len();
        self.places.push(Place {
            slot: NOWHERE,
            at: 0,
        });
        self.put(Slot {
            page,
            records,
            is_changed: true,
            is_used: true,
        });
    }

    /// The slot of a page, which is read if it is not in memory.
    #[inline]
    fn load(&mut self, page: usize) -> usize {
        let Place { slot, at } = self.places[page];
        if slot != NOWHERE {
            self.slots[slot as usize].is_used = true;
            return slot as usize;
        }
        self.read(page, at)
    }

    fn read(&mut self, page: usize, at: u64) -> usize {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(Self::BYTES as usize, 0);
        if let Err(error) = self.file.file.read_exact_at(&mut buffer, at - 1) {
            panic!("a temporary file cannot be read: {error}");
        }
        let mut words = buffer.chunks_exact(4);
        let mut records = vec![[0; N]; PAGE_RECORDS];
        for word in records.as_flattened_mut() {
            let bytes = words.next().and_then(|bytes| bytes.first_chunk());
            *word = bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes));
        }
        self.buffer = buffer;
        self.put(Slot {
            page,
            records,
            is_changed: false,
            is_used: true,
        })
    }

    /// Puts a page into memory, in place of another one if there are enough.
    fn put(&mut self, new: Slot<N>) -> usize {
        let page = new.page;
        let slot = if self.slots.len() < PAGES_MAX || self.is_full {
            None
        } else {
            self.make_room()
        };
        let slot = match slot {
            Some(slot) => {
                self.slots[slot] = new;
                slot
            }
            None => {
                self.slots.push(new);
                self.slots.len() - 1
            }
        };
        self.places[page].slot = slot as u32; // There are no more than pages.
        slot
    }

    /// A slot whose page is in the file as it is. `None` if that cannot be written.
    fn make_room(&mut self) -> Option<usize> {
        loop {
            let slot = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            if !std::mem::take(&mut self.slots[slot].is_used) {
                if self.slots[slot].is_changed && !self.write(slot) {
                    self.is_full = true;
                    return None;
                }
                self.places[self.slots[slot].page].slot = NOWHERE;
                return Some(slot);
            }
        }
    }

    fn write(&mut self, slot: usize) -> bool {
        let slot = &self.slots[slot];
        let place = &mut self.places[slot.page];
        if place.at == 0 {
            place.at = self.file.end.fetch_add(Self::BYTES, Ordering::Relaxed) + 1;
        }
        self.buffer.clear();
        for word in slot.records.as_flattened() {
            self.buffer.extend_from_slice(&word.to_le_bytes());
        }
        let written = self.file.file.write_all_at(&self.buffer, place.at - 1);
        written.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use testkit::{Rng, TempDir};

    use super::*;

    fn check(scratch: &Scratch, pages_max: usize) {
        let mut table: Table<3> = Table::new(scratch);
        let (mut must, mut rng) = (Vec::new(), Rng::new(7));
        for step in 0..60_000_u32 {
            table.push([step, 1, 2]);
            must.push([step, 1, 2]);
            // Near the end, and anywhere.
            let near = must.len() - 1 - rng.index(must.len().min(100));
            let any = rng.index(must.len());
            for index in [near, any] {
                assert_eq!(table.get(index), must[index]);
                must[index][1] = step;
                table.set(index, must[index]);
            }
            if step % 1000 == 999 {
                let len = must.len() - rng.index(700);
                table.truncate(len);
                must.truncate(len);
                assert_eq!(table.last(), must.last().copied());
            }
        }
        assert_eq!(table.len(), must.len());
        let copy = table.clone();
        for (index, record) in must.iter().enumerate() {
            assert_eq!((table.get(index), copy.get(index)), (*record, *record));
        }
        let pages = table.memory_bytes() / (PAGE_RECORDS * size_of::<[u32; 3]>());
        assert!(pages <= pages_max, "{pages}");
    }

    #[test]
    fn records_are_those_of_a_vec() {
        let dir = TempDir::new();
        check(&Scratch::memory(), usize::MAX);
        check(&Scratch::in_dir(dir.path()).unwrap(), PAGES_MAX + 2);
    }

    #[test]
    fn a_table_stays_in_memory_when_its_file_cannot_be_written() {
        let file = File::open("/dev/null").unwrap();
        check(&Scratch::in_file(Some(file)), usize::MAX);
    }
}
