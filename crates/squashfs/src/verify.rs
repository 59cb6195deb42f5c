//! Proves that an image holds its input, before it counts as finished.
//!
//! The workers have proved that each block decodes to its content, and checksums prove that the output returns the
//! bytes written. What remains is to prove that a reader finds the same tree in them, with each file's data where it
//! was put.

use std::io;

use tree::{
    Error, FileId, FileKind, FileSystem, Inventory, Limits, Metadata, Parallel, Result, Step, Time,
    ordered,
};

use crate::blocks::Data;
use crate::data::Block;
use crate::inode::{Tail, nearest_seconds};
use crate::numbers::Numbers;
use crate::options::Options;
use crate::plan::Plan;
use crate::read::Squashfs;

/// Number of entries read at once from a file's block list.
const LIST_ENTRIES: usize = 1024;
/// Number of files that one job compares.
const BATCH_FILES: usize = 256;

/// The expected content of the image.
pub(crate) struct Expected<'a> {
    /// The tree that was the input.
    pub(crate) fs: &'a dyn FileSystem,
    pub(crate) inventory: &'a Inventory,
    pub(crate) options: &'a Options,
    pub(crate) plan: &'a Plan,
    /// Where the data was put.
    pub(crate) data: &'a Data,
    /// Which files are in the image, and their inode numbers.
    pub(crate) numbers: &'a Numbers,
    /// By file: its set of extended attributes.
    pub(crate) sets: &'a [Option<u32>],
}

impl Expected<'_> {
    /// The expected metadata of a file.
    fn metadata(&self, file: FileId) -> Metadata {
        let mut metadata = self.inventory.metadata(file);
        metadata.mtime = Time {
            seconds: nearest_seconds(self.options.clamped(metadata.mtime)).into(),
            nanoseconds: 0,
        };
        metadata.nlink = self.inventory.name_count(file);
        metadata
    }

    /// The start of a regular file's blocks, their size words, and the place of its tail.
    fn data(&self, file: FileId) -> (u64, &[u32], Option<Tail>) {
        let shown = self.plan.shows[file.0 as usize];
        let placed = self.data.files[shown.0 as usize];
        let tail = self.plan.places[shown.0 as usize];
        let bytes = self.plan.blocks_len(self.inventory.size(file), shown);
        let count = bytes.div_ceil(self.options.block_bytes.into()) as usize;
        let words = &self.data.words[placed.words..placed.words + count];
        (placed.start, words, tail)
    }
}

fn differs(what: &'static str) -> Error {
    Error::Io(io::Error::other(what))
}

/// Reads the tree in `image` and compares it with what is expected.
pub(crate) fn tree(image: &Squashfs, expected: &Expected, parallel: Parallel) -> Result<()> {
    let ours = Inventory::of(image, &Limits::default())?;
    let (theirs, numbers) = (expected.inventory, expected.numbers);
    let number = |entry| numbers.of(theirs.file(entry));
    let mut steps = ours.steps();
    // Both walks number their files in the same order, so equal trees have equal numbers, except for files left out.
    for must in theirs.steps() {
        let (Step::Enter(entry) | Step::File(entry) | Step::Leave(entry)) = must;
        let Some(number) = number(entry) else {
            continue;
        };
        let same = steps.next().is_some_and(|is| {
            let (Step::Enter(found) | Step::File(found) | Step::Leave(found)) = is;
            std::mem::discriminant(&is) == std::mem::discriminant(&must)
                && ours.name(found) == theirs.name(entry)
                && ours.file(found).0 + 1 == number
        });
        if !same {
            let error = differs("the image has a different name there");
            return Err(error.in_file("verify", &theirs.path(entry)));
        }
    }
    if ours.file_count() != numbers.count() || steps.next().is_some() {
        return Err(differs("the image does not hold as many files as went in"));
    }
    let files: Vec<FileId> = theirs.files().collect();
    ordered(
        parallel,
        files.chunks(BATCH_FILES),
        || (),
        |(), batch| {
            for &file in batch {
                let Some(number) = numbers.of(file) else {
                    continue;
                };
                let found = (&ours, FileId(number - 1));
                self::file(image, found, expected, file).map_err(|error| {
                    error.in_file("verify", &theirs.path(theirs.first_name(file)))
                })?;
            }
            Ok(())
        },
        Ok,
    )
}

fn file(
    image: &Squashfs,
    (ours, found): (&Inventory, FileId),
    expected: &Expected,
    file: FileId,
) -> Result<()> {
    let (is, must) = (ours.metadata(found), expected.metadata(file));
    let kind = must.kind;
    // Fields that the format cannot store, and a directory's link count, are not compared.
    let same = is.kind == kind
        && (is.permissions, is.uid, is.gid) == (must.permissions, must.uid, must.gid)
        && (is.size, is.rdev, is.mtime) == (must.size, must.rdev, must.mtime)
        && (kind == FileKind::Directory || is.nlink == must.nlink);
    if !same {
        return Err(differs("the image has other metadata"));
    }
    let (ino, source) = (ours.ino(found), expected.inventory.ino(file));
    let xattrs = image.xattrs(ino)?;
    if expected.sets[file.0 as usize].is_some() {
        let mut must = expected.fs.xattrs(source)?;
        must.retain(|xattr| crate::xattr::is_storable(&xattr.name));
        if xattrs != must {
            return Err(differs("the image has other extended attributes"));
        }
    } else if !xattrs.is_empty() {
        return Err(differs(
            "the image has extended attributes that it must not have",
        ));
    }
    match kind {
        FileKind::Symlink if image.read_link(ino)? != expected.fs.read_link(source)? => {
            Err(differs("the image has a different link target"))
        }
        FileKind::Regular if must.size > 0 => {
            let (start, words, tail) = expected.data(file);
            let content = image.content(ino)?;
            let mut at = start;
            let mut index = 0;
            let mut same = content.block_count() == words.len() as u64;
            while same && index < words.len() as u64 {
                let rest = index..content.block_count();
                for block in content.blocks(image.image(), rest, LIST_ENTRIES)? {
                    let from = index as usize;
                    index += block.count();
                    let words = &words[from..index as usize];
                    same &= match block {
                        Block::Holes(_) => words.iter().all(|&word| word == 0),
                        Block::Stored { at: here, size } => {
                            let same = here == at && size.word() == words[0];
                            at = here + u64::from(size.bytes);
                            same
                        }
                    };
                }
            }
            if !same || content.placed_tail() != tail {
                return Err(differs("the image has the file's data elsewhere"));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}
