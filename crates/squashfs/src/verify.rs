//! Proves that an image holds its input, before it counts as finished.
//!
//! The workers have proved that each block decodes to its content, and checksums prove that the
//! output returns the bytes written. It remains to prove that a reader finds the same tree in them,
//! with each file's data where it was put.

use std::collections::HashMap;
use std::io;

use tree::{
    DirEntry, Error, FileId, FileKind, FileSystem, Ino, Inventory, Metadata, Parallel, Result,
    Time, WalkStep, ordered,
};

use crate::data::BlockSpan;
use crate::describe::XattrSets;
use crate::inode::{TailPosition, nearest_seconds};
use crate::inode_numbers::InodeNumbers;
use crate::options::Options;
use crate::plan::DataLayout;
use crate::read::Squashfs;
use crate::write_data::PlacedData;

/// Number of entries read at once from a file's block list.
const LIST_ENTRIES: usize = 1024;
/// Number of files that one job compares.
const BATCH_FILES: usize = 256;

/// The expected content of the image.
pub(crate) struct ExpectedImage<'a> {
    /// The tree that was the input.
    pub(crate) inventory: &'a Inventory<'a>,
    pub(crate) options: &'a Options,
    pub(crate) plan: &'a DataLayout,
    /// Where the data was put.
    pub(crate) data: &'a PlacedData,
    /// Which files are in the image, and their inode numbers.
    pub(crate) numbers: &'a InodeNumbers,
    pub(crate) sets: &'a XattrSets,
}

impl ExpectedImage<'_> {
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
    fn data(&self, file: FileId) -> (u64, &[u32], Option<TailPosition>) {
        let shown = self.plan.shows[file.0 as usize];
        let placed = self.data.placed(shown);
        let tail = self.plan.tail(shown);
        let bytes = self.plan.blocks_len(self.inventory.size(file), shown);
        let count = bytes.div_ceil(self.options.block_bytes.into()) as usize;
        let words = self.data.words(placed, count);
        (placed.start, words, tail)
    }
}

fn differs(what: &'static str) -> Error {
    Error::Io(io::Error::other(what))
}

/// Reads the tree in `image` and compares it with the expected one.
pub(crate) fn tree(image: &Squashfs, expected: &ExpectedImage, parallel: Parallel) -> Result<()> {
    ordered(
        parallel,
        ImageWalk::new(image, expected),
        || (),
        |(), batch| {
            let theirs = expected.inventory;
            for (file, ino) in batch? {
                self::file(image, ino, expected, file).map_err(|error| {
                    error.in_file("verify", &theirs.path(theirs.first_name(file)))
                })?;
            }
            Ok(())
        },
        Ok,
    )
}

/// Walks both trees at once, without a list of visited files: returns each file once, and its inode
/// in the image.
struct ImageWalk<'a, S> {
    image: &'a Squashfs,
    expected: &'a ExpectedImage<'a>,
    /// The steps through the input.
    steps: S,
    /// The entries left in each open directory of the image.
    open: Vec<std::vec::IntoIter<DirEntry>>,
    /// The inodes of files with several names.
    linked: HashMap<FileId, Ino>,
    failed: bool,
}

impl<'a> ImageWalk<'a, ()> {
    fn new(
        image: &'a Squashfs,
        expected: &'a ExpectedImage,
    ) -> ImageWalk<'a, impl Iterator<Item = WalkStep> + use<'a>> {
        ImageWalk {
            image,
            expected,
            steps: expected.inventory.steps(),
            open: Vec::new(),
            linked: HashMap::new(),
            failed: false,
        }
    }
}

impl<S> ImageWalk<'_, S> {
    /// Takes a step in the image, too: a file that was not met before.
    fn step(&mut self, step: WalkStep) -> Result<Option<(FileId, Ino)>> {
        let theirs = self.expected.inventory;
        let (entry, is_left) = match step {
            WalkStep::Enter(entry) | WalkStep::File(entry) => (entry, false),
            WalkStep::Leave(entry) => (entry, true),
        };
        let file = theirs.file(entry);
        if self.expected.numbers.of(file).is_none() {
            return Ok(None);
        }
        if is_left {
            let rest = self.open.pop();
            return match rest.and_then(|mut rest| rest.next()) {
                Some(_) => Err(differs("the image has more names there")),
                None => Ok(None),
            };
        }
        let ino = match self.open.last_mut() {
            None => self.image.root(),
            Some(listing) => match listing.next() {
                Some(found) if *found.name == *theirs.name(entry) => found.ino,
                _ => return Err(differs("the image has a different name there")),
            },
        };
        if matches!(step, WalkStep::Enter(_)) {
            let listing = self.image.read_dir(ino)?;
            self.open.push(listing.into_iter());
        } else if theirs.name_count(file) > 1
            && let Some(first) = self.linked.insert(file, ino)
        {
            if first != ino {
                return Err(differs("the image has another file there"));
            }
            return Ok(None);
        }
        Ok(Some((file, ino)))
    }
}

impl<S: Iterator<Item = WalkStep>> Iterator for ImageWalk<'_, S> {
    type Item = Result<Vec<(FileId, Ino)>>;

    /// The next files, up to an error.
    fn next(&mut self) -> Option<Self::Item> {
        let mut batch = Vec::new();
        while !self.failed && batch.len() < BATCH_FILES {
            let Some(step) = self.steps.next() else { break };
            match self.step(step) {
                Ok(file) => batch.extend(file),
                Err(error) => {
                    self.failed = true;
                    let (WalkStep::Enter(entry) | WalkStep::File(entry) | WalkStep::Leave(entry)) =
                        step;
                    let path = self.expected.inventory.path(entry);
                    return Some(Err(error.in_file("verify", &path)));
                }
            }
        }
        (!batch.is_empty()).then_some(Ok(batch))
    }
}

fn file(image: &Squashfs, ino: Ino, expected: &ExpectedImage, file: FileId) -> Result<()> {
    // Each file has a number of its own, so that no two can have the same inode.
    let (inode, _) = image.inode(ino)?;
    if Some(inode.number) != expected.numbers.of(file) {
        return Err(differs("the image has another file there"));
    }
    let (is, must) = (image.metadata(ino)?, expected.metadata(file));
    let kind = must.kind;
    // Fields that the format cannot store, and a directory's link count, are not compared.
    let same = is.kind == kind
        && (is.permissions, is.uid, is.gid) == (must.permissions, must.uid, must.gid)
        && (is.size, is.rdev, is.mtime) == (must.size, must.rdev, must.mtime)
        && (kind == FileKind::Directory || is.nlink == must.nlink);
    if !same {
        return Err(differs("the image has other metadata"));
    }
    let source = expected.inventory.ino(file);
    let xattrs = image.xattrs(ino)?;
    if expected.sets.of(file).is_some() {
        let mut must = expected.inventory.tree().xattrs(source)?;
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
        FileKind::Symlink
            if image.read_link(ino)? != expected.inventory.tree().read_link(source)? =>
        {
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
                        BlockSpan::Holes(_) => words.iter().all(|&word| word == 0),
                        BlockSpan::Stored { at: here, size } => {
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
