//! Proof that an image holds what went in, before it counts as made.
//!
//! That each block decodes to its content, the workers have proved when they encoded it. What is left: that the output
//! gives back the bytes that were written, and that a reader finds in them the same tree, with each file's data where it
//! was put.

use std::fs::File;
use std::io;

use tree::{
    Error, FileId, FileKind, FileSystem, Inventory, Limits, Metadata, Parallel, ReadAt, Result,
    Step, ordered,
};
use xxhash::Xxh64;

use crate::data::Block;
use crate::inode::Tail;
use crate::lost::Numbers;
use crate::read::Squashfs;

/// Bytes that are summed at once.
const CHUNK_BYTES: u64 = 1 << 20;
/// Bytes that are read back at once: few enough that they are summed from the processor's cache.
const READ_BYTES: usize = 128 << 10;
/// Files that one job compares.
const BATCH_FILES: usize = 256;

/// What must be found again.
pub(crate) struct Expected<'a> {
    /// The tree that went in.
    pub(crate) fs: &'a dyn FileSystem,
    pub(crate) inventory: &'a Inventory,
    /// Which of its files are in the image, and their numbers.
    pub(crate) numbers: &'a Numbers,
    /// What a file's metadata must be.
    pub(crate) metadata: &'a (dyn Fn(FileId) -> Metadata + Sync),
    /// Whether a file has a set of extended attributes.
    pub(crate) has_xattrs: &'a (dyn Fn(FileId) -> bool + Sync),
    /// Where a regular file's blocks begin, their size words, and where its tail is.
    pub(crate) data: &'a (dyn Fn(FileId) -> (u64, &'a [u32], Option<Tail>) + Sync),
}

fn differs(what: &'static str) -> Error {
    Error::Io(io::Error::other(what))
}

/// Sums of what is written, one for each [`CHUNK_BYTES`], so that any number of threads can compare them.
pub(crate) struct Sums {
    open: Xxh64,
    /// Bytes that `open` is the sum of.
    open_bytes: u64,
    done: Vec<u64>,
}

/// How [`Sums`] were.
pub(crate) struct SumsMark {
    open: Xxh64,
    open_bytes: u64,
    done: usize,
}

impl Sums {
    pub(crate) fn new() -> Self {
        Sums {
            open: Xxh64::new(0),
            open_bytes: 0,
            done: Vec::new(),
        }
    }

    /// Where this is now.
    pub(crate) fn mark(&self) -> SumsMark {
        SumsMark {
            open: self.open,
            open_bytes: self.open_bytes,
            done: self.done.len(),
        }
    }

    /// Forgets what was appended since.
    pub(crate) fn rewind(&mut self, mark: SumsMark) {
        (self.open, self.open_bytes) = (mark.open, mark.open_bytes);
        self.done.truncate(mark.done);
    }

    /// Appends what was written.
    pub(crate) fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = CHUNK_BYTES - self.open_bytes;
            let (now, later) = bytes.split_at(room.min(bytes.len() as u64) as usize);
            self.open.update(now);
            self.open_bytes += now.len() as u64;
            if self.open_bytes == CHUNK_BYTES {
                self.done.push(self.open.digest());
                (self.open, self.open_bytes) = (Xxh64::new(0), 0);
            }
            bytes = later;
        }
    }

    /// Compares the sums with those of what is in the output from `at` on.
    pub(crate) fn compare(&self, output: &File, at: u64, parallel: Parallel) -> Result<()> {
        let whole = self.done.iter().map(|&sum| (CHUNK_BYTES, sum));
        let last = (self.open_bytes > 0).then(|| (self.open_bytes, self.open.digest()));
        let chunks = (0u64..).zip(whole.chain(last));
        ordered(
            parallel,
            chunks,
            || vec![0; READ_BYTES],
            |buf, (index, (len, written))| {
                let mut sum = Xxh64::new(0);
                let start = at + index * CHUNK_BYTES;
                for done in (0..len).step_by(READ_BYTES) {
                    let part = READ_BYTES.min((len - done) as usize);
                    output.read_exact_at(&mut buf[..part], start + done)?;
                    sum.update(&buf[..part]);
                }
                match sum.digest() == written {
                    true => Ok(()),
                    false => Err(differs("the output does not hold what was written to it")),
                }
            },
            Ok,
        )
    }
}

/// Reads the tree in `image` and compares it with what is expected.
pub(crate) fn tree(image: &Squashfs, expected: &Expected, parallel: Parallel) -> Result<()> {
    let ours = Inventory::of(image, &Limits::default())?;
    let (theirs, numbers) = (expected.inventory, expected.numbers);
    let number = |entry| numbers.of(theirs.file(entry));
    let mut steps = ours.steps();
    // Both walks number what they find in the same order, so equal trees have equal numbers, but for what is left out.
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
            let error = differs("the image has another name there");
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
    let (is, must) = (ours.metadata(found), (expected.metadata)(file));
    let kind = must.kind;
    // What the format has no room for, and a directory's link count, are not compared.
    let same = is.kind == kind
        && (is.permissions, is.uid, is.gid) == (must.permissions, must.uid, must.gid)
        && (is.size, is.rdev, is.mtime) == (must.size, must.rdev, must.mtime)
        && (kind == FileKind::Directory || is.nlink == must.nlink);
    if !same {
        return Err(differs("the image has other metadata"));
    }
    let (ino, source) = (ours.ino(found), expected.inventory.ino(file));
    let xattrs = image.xattrs(ino)?;
    if (expected.has_xattrs)(file) {
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
            Err(differs("the image has another link target"))
        }
        FileKind::Regular if must.size > 0 => {
            let (start, words, tail) = (expected.data)(file);
            let content = image.content(ino)?;
            let mut at = start;
            let blocks = content.blocks(image.image(), 0, content.block_count())?;
            let same = blocks.len() == words.len()
                && blocks.iter().zip(words).all(|(block, &word)| match *block {
                    Block::Hole => word == 0,
                    Block::Stored { at: here, size } => {
                        let same = here == at && size.word() == word;
                        at = here + u64::from(size.bytes);
                        same
                    }
                });
            if !same || content.placed_tail() != tail {
                return Err(differs("the image has the file's data elsewhere"));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}
