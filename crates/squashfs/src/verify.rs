//! Proves that an image holds its input, before it counts as finished.
//!
//! The workers have proved that each block decodes to its content, and checksums prove that the
//! output returns the bytes written. It remains to prove that a reader finds the same tree in them,
//! with each file's data where it was put.

use tree::{
    FileId, FileKind, Ino, Inventory, Metadata, Parallel, Result, Time, WrittenTree, Xattr,
    XattrSets,
};

use crate::data::BlockSpan;
use crate::inode::{TailPosition, nearest_seconds};
use crate::inode_numbers::InodeNumbers;
use crate::options::Options;
use crate::plan::DataLayout;
use crate::read::Squashfs;
use crate::write_data::PlacedData;

/// Number of entries read at once from a file's block list.
const LIST_ENTRIES: usize = 1024;

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
        let shown = self.plan.shown(file);
        let placed = self.data.placed(shown);
        let tail = self.plan.tail(shown);
        let bytes = self.plan.blocks_len(self.inventory.size(file), shown);
        let count = bytes.div_ceil(self.options.block_bytes.into()) as usize;
        let words = self.data.words(placed, count);
        (placed.start, words, tail)
    }
}

/// Reads the tree in `image` and compares it with the expected one.
pub(crate) fn tree(image: &Squashfs, expected: &ExpectedImage, parallel: Parallel) -> Result<()> {
    let tree = WrittenTree {
        image,
        inventory: expected.inventory,
        is_stored: &|file| expected.numbers.of(file).is_some(),
        ignores: &|_| false,
    };
    tree.compare(parallel, |file, ino| {
        self::file(&tree, image, ino, expected, file)
    })
}

fn file(
    tree: &WrittenTree,
    image: &Squashfs,
    ino: Ino,
    expected: &ExpectedImage,
    file: FileId,
) -> Result<()> {
    // Each file has a number of its own, so that no two can have the same inode.
    let (inode, _) = image.inode(ino)?;
    if Some(inode.number) != expected.numbers.of(file) {
        return Err(WrittenTree::differs("the image has another file there"));
    }
    let must = expected.metadata(file);
    let keeps = |xattr: &Xattr| crate::xattr::is_storable(&xattr.name);
    let has_xattrs = expected.sets.of(file).is_some();
    let keeps = has_xattrs.then_some(&keeps as &dyn Fn(&Xattr) -> bool);
    tree.compare_file((file, ino), &must, keeps)?;
    if must.kind != FileKind::Regular || must.size == 0 {
        return Ok(());
    }
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
        return Err(WrittenTree::differs(
            "the image has the file's data elsewhere",
        ));
    }
    Ok(())
}
