//! The walk that measures a tree.

use std::collections::HashSet;
use std::vec::IntoIter;

use super::sums::Sums;
use super::{Amount, StoredParts, Totals};
use crate::{DirEntry, Error, FileKind, FileSystem, Ino, Metadata, NoProgress, Progress, Result};

/// Follows the walk of [`measure`], in the order of the names in each directory.
pub trait Visitor {
    /// A directory, before its contents.
    ///
    /// # Errors
    /// An error ends the walk.
    fn enter(&mut self, entry: &DirEntry, metadata: &Metadata) -> Result<()>;

    /// Another file, with what its name adds to the totals: stored and decoded bytes that were not
    /// met before, and the bytes that it refers to.
    ///
    /// # Errors
    /// An error ends the walk.
    fn file(&mut self, entry: &DirEntry, metadata: &Metadata, amount: &Amount) -> Result<()>;

    /// The end of the contents of the directory that was entered last.
    ///
    /// # Errors
    /// An error ends the walk.
    fn leave(&mut self) -> Result<()>;
}

/// Several visitors of one walk.
pub struct All<'a>(pub Vec<&'a mut dyn Visitor>);

impl Visitor for All<'_> {
    fn enter(&mut self, entry: &DirEntry, metadata: &Metadata) -> Result<()> {
        self.0
            .iter_mut()
            .try_for_each(|it| it.enter(entry, metadata))
    }

    fn file(&mut self, entry: &DirEntry, metadata: &Metadata, amount: &Amount) -> Result<()> {
        self.0
            .iter_mut()
            .try_for_each(|it| it.file(entry, metadata, amount))
    }

    fn leave(&mut self) -> Result<()> {
        self.0.iter_mut().try_for_each(|it| it.leave())
    }
}

/// Measures a file, or a directory and everything below it; `path` is that of `start`, for errors.
///
/// Memory grows with the number of extents, by about 60 bytes each, with the number of directories
/// and of files with several names, and with the largest directory.
///
/// # Errors
/// [`Error::File`] with the path of an unreadable file; the error of the visitor.
pub fn measure(
    fs: &dyn FileSystem,
    parts: &dyn StoredParts,
    start: (&DirEntry, &[u8]),
    progress: &dyn Progress,
    visitor: &mut dyn Visitor,
) -> Result<Totals> {
    let mut sums = Sums::default();
    if parts.has_fragments() {
        walk(
            fs,
            parts,
            start,
            (&mut sums, &NoProgress),
            &mut All(Vec::new()),
        )?;
        sums = sums.with_fragments();
    }
    walk(fs, parts, start, (&mut sums, progress), visitor)?;
    Ok(sums.totals)
}

fn walk(
    fs: &dyn FileSystem,
    parts: &dyn StoredParts,
    (start, path): (&DirEntry, &[u8]),
    (sums, progress): (&mut Sums, &dyn Progress),
    visitor: &mut dyn Visitor,
) -> Result<()> {
    let mut files = FileTotals {
        parts,
        sums,
        linked: HashSet::new(),
    };
    let mut path = path.to_vec();
    let metadata = fs.metadata(start.ino);
    let metadata = metadata.map_err(|error| error.in_file("read", &path))?;
    let mut entered: HashSet<Ino> = HashSet::new();
    // The entries still to visit of each open directory, and the length of its path; the innermost
    // last.
    let mut open: Vec<(usize, IntoIter<(DirEntry, Metadata)>)> = Vec::new();
    let mut next = Some((start.clone(), metadata));
    loop {
        if let Some((entry, metadata)) = next.take() {
            if entry.kind != FileKind::Directory {
                let amount = files.measure(&entry, &metadata);
                let amount = amount.map_err(|error| error.in_file("read", &path))?;
                visitor.file(&entry, &metadata, &amount)?;
                progress.advance(1, metadata.size);
            } else if entered.insert(entry.ino) {
                files.sums.totals.directories += 1;
                visitor.enter(&entry, &metadata)?;
                let entries = fs.read_dir_with_metadata(entry.ino);
                let entries = entries.map_err(|error| error.in_file("read", &path))?;
                open.push((path.len(), entries.into_iter()));
            } else {
                // A hostile image may have a directory in itself or in many places.
                let error = Error::Inconsistent("a directory is in two places");
                return Err(error.in_file("read", &path));
            }
        }
        let Some((len, entries)) = open.last_mut() else {
            return Ok(());
        };
        path.truncate(*len);
        next = entries.next();
        if let Some((entry, _)) = &next {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&entry.name);
        } else {
            open.pop();
            visitor.leave()?;
        }
    }
}

struct FileTotals<'a> {
    parts: &'a dyn StoredParts,
    sums: &'a mut Sums,
    /// Files with several names that were met.
    linked: HashSet<Ino>,
}

impl FileTotals<'_> {
    /// Adds a file to the sums. Returns its addition.
    fn measure(&mut self, entry: &DirEntry, metadata: &Metadata) -> Result<Amount> {
        let mut amount = Amount::default();
        let (ino, sums) = (entry.ino, &mut *self.sums);
        if entry.kind != FileKind::Regular {
            sums.totals.others += 1;
            return Ok(amount);
        }
        let is_link = metadata.nlink > 1 && !self.linked.insert(ino);
        sums.add_file(metadata.size);
        self.parts.stored_parts(ino, &mut |part| {
            amount.add(&sums.add((ino, is_link), &part));
            Ok(())
        })?;
        Ok(amount)
    }
}
