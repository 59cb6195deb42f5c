//! Equal files, found before anything is written, so that a container stores their content once.

use std::collections::HashMap;

use xxhash::Xxh64;

use super::{Parallel, ordered};
use crate::{Error, FileId, FileKind, FileSystem, Inventory, Result};

/// What is read of each file of a common size first; most files that differ do so here.
const HEAD_BYTES: u64 = 64 << 10;

/// Content that a thread holds at once of one file; it holds that of two when it compares.
const BUFFER_BYTES: usize = 256 << 10;

/// Which regular files have the same content as an earlier one.
///
/// Earlier means in the order of [`Inventory::steps`], by the files' first names: the order in which writers meet
/// them. Hard links are one file here, and empty files have nothing to share.
#[derive(Clone, Debug, Default)]
pub struct Duplicates {
    originals: HashMap<FileId, FileId>,
}

/// A file among those of its size.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    /// First the size, later also a hash of the content.
    key: (u64, u64),
    /// The place of its first name in the order of the tree.
    place: u32,
    file: FileId,
}

impl Duplicates {
    /// Finds the files of equal content: those of equal size are hashed, those of equal hash compared byte by byte.
    /// Files of a size that no other has are not read. The result does not depend on the number of threads.
    ///
    /// # Errors
    /// [`Error::File`] with the path of what cannot be read.
    pub fn find(
        source: &dyn FileSystem,
        inventory: &Inventory,
        parallel: Parallel,
    ) -> Result<Duplicates> {
        let mut candidates = Vec::new();
        for (place, entry) in (0u32..).zip(inventory.names()) {
            let file = inventory.file(entry);
            let size = inventory.size(file);
            if inventory.kind(file) == FileKind::Regular
                && inventory.is_first_name(entry)
                && size > 0
            {
                let key = (size, 0);
                candidates.push(Candidate { key, place, file });
            }
        }
        keep_groups(&mut candidates);
        // The heads settle most, and all of them for small files; only for big files is the rest worth a second look.
        hash(source, inventory, parallel, &mut candidates, 0..HEAD_BYTES)?;
        let mut small: Vec<Candidate> = Vec::new();
        let mut big: Vec<Candidate> = Vec::new();
        for candidate in candidates {
            let is_small = candidate.key.0 <= HEAD_BYTES;
            if is_small { &mut small } else { &mut big }.push(candidate);
        }
        hash(source, inventory, parallel, &mut big, HEAD_BYTES..u64::MAX)?;
        small.append(&mut big);
        confirm(source, inventory, parallel, &small)
    }

    /// The first file with the same content; `None` for a file that is the first itself.
    pub fn original(&self, file: FileId) -> Option<FileId> {
        self.originals.get(&file).copied()
    }

    /// How many files have an original.
    pub fn len(&self) -> usize {
        self.originals.len()
    }

    /// Whether all files differ.
    pub fn is_empty(&self) -> bool {
        self.originals.is_empty()
    }
}

/// Sorts, and leaves only candidates whose key another one shares.
fn keep_groups(candidates: &mut Vec<Candidate>) {
    candidates.sort_unstable_by_key(|candidate| (candidate.key, candidate.place));
    let all = std::mem::take(candidates);
    let groups = all.chunk_by(|a, b| a.key == b.key);
    candidates.extend(groups.filter(|group| group.len() > 1).flatten());
}

/// Adds a hash of a range of the content to each key, and leaves those that still have company.
fn hash(
    source: &dyn FileSystem,
    inventory: &Inventory,
    parallel: Parallel,
    candidates: &mut Vec<Candidate>,
    range: std::ops::Range<u64>,
) -> Result<()> {
    let mut hashed = Vec::with_capacity(candidates.len());
    ordered(
        parallel.in_flight(64),
        candidates.drain(..),
        || vec![0; BUFFER_BYTES],
        |buf, mut candidate| {
            let (size, seed) = candidate.key;
            let mut hash = Xxh64::new(seed);
            let mut at = range.start;
            while at < size.min(range.end) {
                let len = read(
                    source,
                    inventory,
                    candidate.file,
                    at,
                    size.min(range.end),
                    buf,
                )?;
                hash.update(&buf[..len]);
                at += len as u64;
            }
            candidate.key.1 = hash.digest();
            Ok(candidate)
        },
        |candidate| {
            hashed.push(candidate);
            Ok::<_, Error>(())
        },
    )?;
    *candidates = hashed;
    keep_groups(candidates);
    Ok(())
}

/// Compares each candidate with the first of its group. A hash that was made to collide only hides a duplicate.
fn confirm(
    source: &dyn FileSystem,
    inventory: &Inventory,
    parallel: Parallel,
    candidates: &[Candidate],
) -> Result<Duplicates> {
    let groups = candidates.chunk_by(|a, b| a.key == b.key);
    let pairs = groups.flat_map(|group| {
        let (first, others) = group.split_at(group.len().min(1));
        let pair = |other: &'_ Candidate| first.first().map(|first| (*first, *other));
        others.iter().filter_map(pair).collect::<Vec<_>>()
    });
    let mut originals = HashMap::new();
    ordered(
        parallel.in_flight(64),
        pairs,
        || (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]),
        |(buf, other_buf), (first, other)| {
            let size = first.key.0;
            let mut at = 0;
            while at < size {
                let len = read(source, inventory, first.file, at, size, buf)?;
                let other_len = read(source, inventory, other.file, at, size, other_buf)?;
                if buf[..len] != other_buf[..other_len] {
                    return Ok((first.file, other.file, false));
                }
                at += len as u64;
            }
            Ok((first.file, other.file, true))
        },
        |(first, other, is_equal)| {
            if is_equal {
                originals.insert(other, first);
            }
            Ok::<_, Error>(())
        },
    )?;
    Ok(Duplicates { originals })
}

/// Fills as much of `buf` as there is before `end`.
fn read(
    source: &dyn FileSystem,
    inventory: &Inventory,
    file: FileId,
    at: u64,
    end: u64,
    buf: &mut [u8],
) -> Result<usize> {
    let len = (end - at).min(buf.len() as u64) as usize;
    let read = source.read_at(inventory.ino(file), at, &mut buf[..len]);
    let failed = |error: Error| error.in_file("read", &inventory.path(inventory.first_name(file)));
    if read.map_err(failed)? != len {
        return Err(failed(Error::Io(std::io::ErrorKind::UnexpectedEof.into())));
    }
    Ok(len)
}
