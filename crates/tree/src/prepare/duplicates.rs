//! Finds identical files before anything is written, so that a container stores their content once.

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;

use xxhash::Xxh64;

use crate::fs::data::{DataRuns, SMALL_BYTES, for_each_nonzero, is_zero};
use crate::{Error, Extent, FileId, FileKind, Inventory, Parallel, Result, ordered};

/// How much of each file of a common size is read first; most files that differ do so here.
const HEAD_BYTES: u64 = SMALL_BYTES;

/// How much content of one file a thread holds at once; when comparing, it holds that of two.
const BUFFER_BYTES: usize = 256 << 10;

/// How much content one job reads, if its files are small enough to be combined.
const BATCH_BYTES: u64 = 1 << 20;

/// The cost of opening a file, as the number of bytes that could be read in that time.
const FILE_COST_BYTES: u64 = 16 << 10;

/// Maximum number of files that one job compares with another file.
const OTHERS_MAX: usize = 16;

/// Maximum number of extents whose identities are compared; files with more are compared by
/// content.
const EXTENTS_MAX: usize = 1024;

/// Which regular files have the same content as an earlier one.
///
/// Earlier in the order of [`Inventory::steps`], by the files' first names: the order in which
/// writers process them. Hard links are one file here, and empty files are never duplicates.
#[derive(Clone, Debug, Default)]
pub struct Duplicates {
    originals: HashMap<FileId, FileId>,
}

/// One of several files of the same size. 16 bytes: all small files of a tree can be among them.
#[derive(Clone, Copy, Debug)]
struct SizedFile {
    /// The size, and later a hash of size and content.
    key: u64,
    /// The position of its first name in tree order.
    place: u32,
    file: FileId,
}

impl Duplicates {
    /// Finds files of equal content: files of equal size are hashed, and those of equal hash are
    /// compared byte by byte. A file is not read if no other has its size, or if it shows the same
    /// stored data as another one, and holes are never read. The result does not depend on the
    /// number of threads.
    ///
    /// # Errors
    /// [`Error::File`] with the path of a file that cannot be read.
    pub fn find(inventory: &Inventory<'_>, parallel: Parallel) -> Result<Duplicates> {
        Duplicates::find_larger(inventory, 0, parallel)
    }

    /// Like [`Duplicates::find`], among the files of more than `bytes` bytes.
    ///
    /// # Errors
    /// As for [`Duplicates::find`].
    pub fn find_larger(
        inventory: &Inventory<'_>,
        bytes: u64,
        parallel: Parallel,
    ) -> Result<Duplicates> {
        let mut candidates = Vec::new();
        for (place, entry) in (0u32..).zip(inventory.names()) {
            let file = inventory.file(entry);
            let size = inventory.size(file);
            if inventory.kind(file) == FileKind::Regular
                && inventory.is_first_name(entry)
                && size > bytes
            {
                let key = size;
                candidates.push(SizedFile { key, place, file });
            }
        }
        keep_groups(&mut candidates);
        let mut duplicates = Duplicates::default();
        let shared = DuplicateSearch {
            inventory,
            parallel,
        };
        shared.find_shared(&mut candidates, &mut duplicates)?;
        keep_groups(&mut candidates);
        // The heads decide most cases, and all small files; only big files are worth a second pass.
        let is_big = |file: &mut SizedFile| file.key > HEAD_BYTES;
        let mut big: Vec<SizedFile> = candidates.extract_if(.., is_big).collect();
        shared.hash(&mut candidates, 0..HEAD_BYTES)?;
        shared.hash(&mut big, 0..HEAD_BYTES)?;
        shared.hash(&mut big, HEAD_BYTES..u64::MAX)?;
        candidates.append(&mut big);
        shared.confirm(&candidates, &mut duplicates)?;
        duplicates.resolve();
        Ok(duplicates)
    }

    /// Files that are known to equal others: each with the first file of the same content.
    pub fn of(pairs: impl IntoIterator<Item = (FileId, FileId)>) -> Duplicates {
        Duplicates {
            originals: pairs.into_iter().collect(),
        }
    }

    /// Each file that has an original, and that; in any order.
    pub fn pairs(&self) -> impl Iterator<Item = (FileId, FileId)> {
        let pairs = self.originals.iter();
        pairs.map(|(file, original)| (*file, *original))
    }

    /// Replaces originals that are duplicates themselves: files that share stored data can later
    /// turn out equal to another file.
    fn resolve(&mut self) {
        let known = self.originals.clone();
        for original in self.originals.values_mut() {
            if let Some(first) = known.get(original) {
                *original = *first;
            }
        }
    }

    /// The first file with the same content; `None` if this is the first.
    pub fn original(&self, file: FileId) -> Option<FileId> {
        self.originals.get(&file).copied()
    }

    /// The number of files that have an original.
    pub fn len(&self) -> usize {
        self.originals.len()
    }

    /// Whether there are no duplicates.
    pub fn is_empty(&self) -> bool {
        self.originals.is_empty()
    }
}

/// Sorts the candidates and keeps only those that share their key with another one.
fn keep_groups(candidates: &mut Vec<SizedFile>) {
    candidates.sort_unstable_by_key(|candidate| (candidate.key, candidate.place));
    let (mut at, mut kept) = (0, 0);
    while let Some(group) = candidates[at..].chunk_by(|a, b| a.key == b.key).next() {
        let len = group.len();
        if len > 1 {
            candidates.copy_within(at..at + len, kept);
            kept += len;
        }
        at += len;
    }
    candidates.truncate(kept);
}

/// The subject and the means of a search.
struct DuplicateSearch<'a> {
    inventory: &'a Inventory<'a>,
    parallel: Parallel,
}

/// Files of equal size and hash.
struct EqualFiles {
    first: SizedFile,
    others: Vec<SizedFile>,
}

impl DuplicateSearch<'_> {
    /// Finds files that show the same stored data, by its identity alone, if the source provides
    /// identities.
    fn find_shared(
        &self,
        candidates: &mut Vec<SizedFile>,
        duplicates: &mut Duplicates,
    ) -> Result<()> {
        let mut originals = HashMap::new();
        let (mut has_identities, mut failed) = (true, Ok(()));
        candidates.retain(|candidate| {
            if !has_identities || failed.is_err() {
                return true;
            }
            let first = self.first_with_extents(candidate, &mut originals);
            match first.map_err(|error| self.in_file(candidate.file, error)) {
                Ok(Some(first)) if first != candidate.file => {
                    duplicates.originals.insert(candidate.file, first);
                    return false;
                }
                Ok(first) => has_identities = first.is_some(),
                Err(error) => failed = Err(error),
            }
            true
        });
        failed
    }

    /// The first file with the same size and extents, which may be this one; `None` if the source
    /// provides no identities.
    fn first_with_extents(
        &self,
        candidate: &SizedFile,
        originals: &mut HashMap<(u64, Vec<Extent>), FileId>,
    ) -> Result<Option<FileId>> {
        let (file, size) = (candidate.file, candidate.key);
        let extents = (self.inventory.tree()).extents(self.inventory.ino(file), 0)?;
        let has_identity = |extent: &Extent| !extent.kind.has_data() || extent.id.is_some();
        if !extents.iter().all(has_identity) {
            return Ok(None);
        }
        let end = extents.last().map(|extent| extent.offset + extent.len);
        if end != Some(size) || extents.len() > EXTENTS_MAX {
            return Ok(Some(file));
        }
        Ok(Some(*originals.entry((size, extents)).or_insert(file)))
    }

    /// Adds a hash of a range of the content to each key, and keeps candidates that still share
    /// their key.
    fn hash(&self, candidates: &mut Vec<SizedFile>, range: Range<u64>) -> Result<()> {
        // Read neighbours in the tree together: their directories are open already.
        candidates.sort_unstable_by_key(|candidate| candidate.place);
        let size = |candidate: &SizedFile| self.inventory.size(candidate.file);
        let part = |candidate: &SizedFile| size(candidate).min(range.end) - range.start;
        // The same list takes the results: they come in order, after their files were taken.
        let list = Cell::from_mut(&mut **candidates).as_slice_of_cells();
        let mut rest = list.iter();
        ordered(
            self.parallel,
            batches(list.iter().map(Cell::get), part),
            || vec![0; BUFFER_BYTES],
            |buf, mut batch: Vec<SizedFile>| {
                for candidate in &mut batch {
                    candidate.key = self.hash_of(candidate, range.clone(), buf)?;
                }
                Ok(batch)
            },
            |batch| {
                for (hashed, place) in batch.into_iter().zip(rest.by_ref()) {
                    place.set(hashed);
                }
                Ok::<_, Error>(())
            },
        )?;
        keep_groups(candidates);
        Ok(())
    }

    /// Adds the blocks in a range that are not all zeros to a file's hash, each run of them with
    /// its offset.
    fn hash_of(&self, candidate: &SizedFile, range: Range<u64>, buf: &mut [u8]) -> Result<u64> {
        let size = self.inventory.size(candidate.file);
        let ino = self.inventory.ino(candidate.file);
        let mut hash = Xxh64::new(candidate.key);
        let mut hashed_to = range.start;
        for_each_nonzero(
            self.inventory.tree(),
            ino,
            size,
            range,
            buf,
            |offset, bytes| {
                if offset != hashed_to {
                    hash.update(&offset.to_le_bytes());
                }
                hash.update(bytes);
                hashed_to = offset + bytes.len() as u64;
                true
            },
        )
        .map_err(|error| self.in_file(candidate.file, error))?;
        Ok(hash.digest())
    }

    /// Compares each candidate with the first of its group. A deliberate hash collision can only
    /// hide a duplicate.
    fn confirm(&self, candidates: &[SizedFile], duplicates: &mut Duplicates) -> Result<()> {
        let mut groups = Vec::new();
        for group in candidates.chunk_by(|a, b| a.key == b.key) {
            if let Some((&first, others)) = group.split_first() {
                groups.extend(others.chunks(OTHERS_MAX).map(|others| EqualFiles {
                    first,
                    others: others.to_vec(),
                }));
            }
        }
        groups.sort_unstable_by_key(|group| group.first.place);
        let files = |group: &EqualFiles| 1 + group.others.len() as u64;
        let size = |group: &EqualFiles| self.inventory.size(group.first.file);
        let bytes = |group: &EqualFiles| size(group).saturating_mul(files(group));
        ordered(
            self.parallel,
            batches(groups.into_iter(), bytes),
            || (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]),
            |(buf, other_buf), mut batch: Vec<EqualFiles>| {
                for group in &mut batch {
                    self.keep_equal(group, buf, other_buf)?;
                }
                Ok(batch)
            },
            |batch| {
                for EqualFiles { first, others } in batch {
                    let pairs = others.into_iter().map(|other| (other.file, first.file));
                    duplicates.originals.extend(pairs);
                }
                Ok::<_, Error>(())
            },
        )
    }

    /// Removes the files from a group that differ from its first. What is a hole in all of them is
    /// skipped.
    fn keep_equal(
        &self,
        group: &mut EqualFiles,
        buf: &mut [u8],
        other_buf: &mut [u8],
    ) -> Result<()> {
        let size = self.inventory.size(group.first.file);
        (group.others).retain(|other| self.inventory.size(other.file) == size);
        let reader = |candidate: SizedFile| ComparedFile {
            source: self,
            candidate,
            runs: DataRuns::new(
                self.inventory.tree(),
                self.inventory.ino(candidate.file),
                size,
            ),
            run: 0..0,
        };
        let mut first = reader(group.first);
        let mut others: Vec<ComparedFile<'_>> = group.others.drain(..).map(reader).collect();
        let mut at = 0;
        while at < size && !others.is_empty() {
            let mut data_at = first.find(at)?;
            for other in &mut others {
                data_at = data_at.min(other.find(at)?);
            }
            at = at.max(data_at);
            let mut end = size.min(at.saturating_add(buf.len() as u64));
            for reader in others.iter().chain([&first]) {
                end = end.min(reader.same_until(at));
            }
            let len = end.saturating_sub(at) as usize;
            let is_data = first.read(at, &mut buf[..len])?;
            let mut failed = Ok(());
            others.retain(|other| match other.read(at, &mut other_buf[..len]) {
                Ok(other_is_data) => match (is_data, other_is_data) {
                    (true, true) => buf[..len] == other_buf[..len],
                    (true, false) => is_zero(&buf[..len]),
                    (false, true) => is_zero(&other_buf[..len]),
                    (false, false) => true,
                },
                Err(error) => {
                    failed = Err(error);
                    false
                }
            });
            failed?;
            at = end;
        }
        group.others = others.into_iter().map(|other| other.candidate).collect();
        Ok(())
    }

    fn in_file(&self, file: FileId, error: Error) -> Error {
        error.in_file(
            "read",
            &self.inventory.path(self.inventory.first_name(file)),
        )
    }
}

/// One of the files that are compared.
struct ComparedFile<'a> {
    source: &'a DuplicateSearch<'a>,
    candidate: SizedFile,
    runs: DataRuns<'a>,
    /// The run of data that was found last.
    run: Range<u64>,
}

impl ComparedFile<'_> {
    /// Where the next data begins; `at` or before if it is in data.
    fn find(&mut self, at: u64) -> Result<u64> {
        let run = self.runs.after(at);
        self.run = run.map_err(|error| self.source.in_file(self.candidate.file, error))?;
        Ok(self.run.start)
    }

    /// Where the data or the hole at `at` ends.
    fn same_until(&self, at: u64) -> u64 {
        if at < self.run.start {
            self.run.start
        } else {
            self.run.end
        }
    }

    /// Fills `buf` with the content at `at`; returns `false` if that is a hole, and nothing was
    /// read.
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<bool> {
        if at < self.run.start {
            return Ok(false);
        }
        let inventory = self.source.inventory;
        let file = self.candidate.file;
        match inventory.tree().read_at(inventory.ino(file), at, buf) {
            Ok(len) if len == buf.len() => Ok(true),
            Ok(_) => Err(self.source.in_file(file, Error::Changed)),
            Err(error) => Err(self.source.in_file(file, error)),
        }
    }
}

/// Puts neighbours together until they are worth a thread's attention.
fn batches<T>(
    mut items: impl Iterator<Item = T>,
    bytes: impl Fn(&T) -> u64,
) -> impl Iterator<Item = Vec<T>> {
    std::iter::from_fn(move || {
        let (mut batch, mut sum) = (Vec::new(), 0u64);
        while sum < BATCH_BYTES
            && let Some(item) = items.next()
        {
            sum = sum.saturating_add(bytes(&item).saturating_add(FILE_COST_BYTES));
            batch.push(item);
        }
        (!batch.is_empty()).then_some(batch)
    })
}
