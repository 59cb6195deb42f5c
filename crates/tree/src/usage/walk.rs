//! The walk that measures a tree.

use std::collections::HashSet;
use std::vec::IntoIter;

use super::extents::Extents;
use super::{Amount, StoredPart, StoredParts, Totals};
use crate::{DirEntry, FileKind, FileSystem, Ino, Metadata};
use crate::{Error, Progress, Result};

/// Follows the walk of [`measure`], in the order of the names in each directory.
pub trait Visitor {
    /// A directory, before its contents.
    ///
    /// # Errors
    /// An error ends the walk.
    fn enter(&mut self, entry: &DirEntry, metadata: &Metadata) -> Result<()>;

    /// Another file, with what its name adds to the totals: stored and decoded bytes that were not met before, and the bytes
    /// that it refers to.
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
/// Memory grows with the number of extents, by about 60 bytes each, with the number of directories and of files with several
/// names, and with the largest directory.
///
/// # Errors
/// [`Error::File`] with the path of what cannot be read; what the visitor returns.
pub fn measure(
    fs: &dyn FileSystem,
    parts: &dyn StoredParts,
    (start, path): (&DirEntry, &[u8]),
    progress: &dyn Progress,
    visitor: &mut dyn Visitor,
) -> Result<Totals> {
    let mut walk = Walk {
        parts,
        extents: Extents::default(),
        linked: HashSet::new(),
        totals: Totals::default(),
    };
    let mut path = path.to_vec();
    let metadata = fs.metadata(start.ino);
    let metadata = metadata.map_err(|error| error.in_file("read", &path))?;
    if start.kind != FileKind::Directory {
        walk.file(start, &metadata, &path, visitor)?;
        return Ok(walk.totals);
    }
    let mut entered: HashSet<Ino> = HashSet::new();
    // The entries still to visit of each open directory, and the length of its path; the innermost last.
    let mut open: Vec<(usize, IntoIter<(DirEntry, Metadata)>)> = Vec::new();
    let mut next = Some((start.clone(), metadata));
    loop {
        if let Some((entry, metadata)) = next.take() {
            if entry.kind != FileKind::Directory {
                walk.file(&entry, &metadata, &path, visitor)?;
                progress.advance(1, metadata.size);
            } else if entered.insert(entry.ino) {
                walk.totals.directories += 1;
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
            return Ok(walk.totals);
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

struct Walk<'a> {
    parts: &'a dyn StoredParts,
    extents: Extents,
    /// Files with several names that were met.
    linked: HashSet<Ino>,
    totals: Totals,
}

impl Walk<'_> {
    fn file(
        &mut self,
        entry: &DirEntry,
        metadata: &Metadata,
        path: &[u8],
        visitor: &mut dyn Visitor,
    ) -> Result<()> {
        let mut amount = Amount::default();
        if entry.kind == FileKind::Regular {
            let is_link = metadata.nlink > 1 && !self.linked.insert(entry.ino);
            let (extents, totals) = (&mut self.extents, &mut self.totals);
            totals.files += 1;
            totals.content_bytes = totals.content_bytes.saturating_add(metadata.size);
            let counted = self.parts.stored_parts(entry.ino, &mut |part| {
                amount.add(&count(extents, totals, (entry.ino, is_link), &part));
                Ok(())
            });
            counted.map_err(|error| error.in_file("read", path))?;
        } else {
            self.totals.others += 1;
        }
        visitor.file(entry, metadata, &amount)
    }
}

/// Adds a part to the totals. Returns what it adds to the file.
fn count(met: &mut Extents, totals: &mut Totals, file: (Ino, bool), part: &StoredPart) -> Amount {
    match *part {
        StoredPart::Hole(len) => {
            totals.hole_bytes = totals.hole_bytes.saturating_add(len);
            Amount::default()
        }
        StoredPart::Inline { form, stored, len } => {
            let amount = Amount {
                extents: 1,
                references: 1,
                stored,
                decoded: len,
                referenced: len,
            };
            totals.form(form).add(&amount);
            totals.inline.add(&amount);
            amount
        }
        StoredPart::Extent {
            form,
            id,
            stored,
            decoded,
            begin,
            len,
            is_fragment,
        } => {
            let mut amount = Amount {
                extents: 1,
                references: 1,
                stored: stored.unwrap_or(len),
                decoded: decoded.unwrap_or(len),
                referenced: len,
            };
            let added = id.map(|id| met.add(id, file, begin, len));
            if let Some(added) = added {
                if added.is_now_shared {
                    let shared = stored.unwrap_or(added.again);
                    totals.shared_bytes = totals.shared_bytes.saturating_add(shared);
                }
                if let Some(decoded) = decoded {
                    let whole = if added.is_new { decoded } else { 0 };
                    let before = totals.unreferenced_bytes.saturating_add(whole);
                    totals.unreferenced_bytes = before.saturating_sub(added.fresh);
                }
                if !added.is_new {
                    amount.extents = 0;
                    amount.stored = stored.map_or(added.fresh, |_| 0);
                    amount.decoded = decoded.map_or(added.fresh, |_| 0);
                }
            } else {
                let rest = amount.decoded.saturating_sub(len);
                totals.unreferenced_bytes = totals.unreferenced_bytes.saturating_add(rest);
            }
            totals.form(form).add(&amount);
            if is_fragment {
                totals.fragments.add(&amount);
            }
            amount
        }
    }
}
