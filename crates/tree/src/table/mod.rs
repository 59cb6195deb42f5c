//! Tables of small records, which may be in a temporary file: a stream can have millions of files.

mod pages;
mod scratch;
mod strings;

use self::pages::{PAGE_RECORDS, PAGES_MAX, Paged};
pub use self::scratch::Scratch;
pub use self::strings::Strings;

/// Records of `N` words, by index. With a [`Scratch`] file, a table keeps some pages in memory and
/// the others there, and is fastest where it is used in order. If the file cannot be written, what
/// is left stays in memory.
///
/// # Panics
/// All functions panic if an index is out of range. They unwind to [`Scratch::catch`] if data
/// written to the file cannot be read.
#[derive(Debug)]
pub struct RecordTable<const N: usize> {
    /// All records, or none if they are in pages.
    records: Vec<[u32; N]>,
    scratch: Scratch,
    paged: Option<Box<Paged<N>>>,
}

impl<const N: usize> Default for RecordTable<N> {
    fn default() -> Self {
        RecordTable::new(&Scratch::memory())
    }
}

/// The copy is in memory.
impl<const N: usize> Clone for RecordTable<N> {
    fn clone(&self) -> Self {
        RecordTable {
            records: (0..self.len()).map(|index| self.get(index)).collect(),
            scratch: Scratch::memory(),
            paged: None,
        }
    }
}

impl<const N: usize> RecordTable<N> {
    /// An empty table.
    pub fn new(scratch: &Scratch) -> RecordTable<N> {
        RecordTable {
            records: Vec::new(),
            scratch: scratch.clone(),
            paged: None,
        }
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        match &self.paged {
            None => self.records.len(),
            Some(paged) => paged.len(),
        }
    }

    /// Whether it has no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A record.
    #[inline]
    pub fn get(&self, index: usize) -> [u32; N] {
        self.with(index, |record| *record)
    }

    /// Calls `read` with a record. In memory, nothing but the words that it needs is loaded.
    #[inline]
    pub(crate) fn with<T>(&self, index: usize, read: impl Fn(&[u32; N]) -> T) -> T {
        match &self.paged {
            None => read(&self.records[index]),
            Some(paged) => read(&paged.get(index)),
        }
    }

    /// Replaces a record.
    #[inline]
    pub fn set(&mut self, index: usize, record: [u32; N]) {
        match &mut self.paged {
            None => self.records[index] = record,
            Some(paged) => {
                paged.set(index, record);
            }
        }
    }

    /// Appends a record.
    pub fn push(&mut self, record: [u32; N]) {
        if let Some(paged) = &mut self.paged {
            return paged.push(record);
        }
        if self.records.len() == PAGE_RECORDS * PAGES_MAX
            && let Some(file) = self.scratch.take()
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
            Some(paged) => paged.truncate(len),
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
        let paged = self.paged.as_ref().map_or(0, |paged| paged.memory_bytes());
        self.records.capacity() * size_of::<[u32; N]>() + paged
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::path::Path;

    use testkit::{Rng, TempDir};

    use crate::{Error, Parallel, Result, ordered};

    use super::*;

    fn check(scratch: &Scratch, pages_max: usize) {
        let mut table: RecordTable<3> = RecordTable::new(scratch);
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
    fn a_table_that_cannot_be_read_back_is_an_error_that_names_the_directory() {
        let dir = TempDir::new();
        let path = dir.join("file");
        // It can only be written.
        let file = OpenOptions::new().write(true).create_new(true).open(path);
        let scratch = Scratch::in_file(file.unwrap(), dir.path());
        let must = format!(
            "read a temporary file in {}: Bad file descriptor (os error 9)",
            dir.path().display()
        );
        let mut table: RecordTable<3> = RecordTable::new(&scratch);
        let mut strings = Strings::new(&scratch);
        for step in 0..60_000 {
            table.push([step, 1, 2]);
            strings.push(b"a string of some length, and not a short one");
        }
        let is_error = |read: &dyn Fn()| {
            let caught: Result<()> = Scratch::catch(|| {
                read();
                panic!("it was read")
            });
            assert_eq!(caught.unwrap_err().to_string(), must);
        };
        is_error(&|| assert_eq!(table.get(0), [0, 1, 2]));
        is_error(&|| assert!(!strings.get(0).is_empty()));
        // A worker's, too; and what is in memory can still be read.
        is_error(&|| {
            let read = |_: &mut (), index| Ok::<_, Error>(table.get(index));
            let parallel = Parallel::new(2);
            ordered(parallel, (0..60_000).rev(), || (), read, |_| Ok(())).unwrap();
        });
        assert_eq!(table.get(59_999), [59_999, 1, 2]);
    }

    #[test]
    fn a_table_stays_in_memory_when_its_file_cannot_be_written() {
        let file = File::open("/dev/null").unwrap();
        check(&Scratch::in_file(file, Path::new("/dev")), usize::MAX);
    }
}
