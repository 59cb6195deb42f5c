//! Checks a whole image: every part must be readable, and everything that is stored twice must
//! agree.

use std::collections::HashMap;

use tree::{
    CheckOptions, Error, FileId, FileKind, FileSystem, Finding, Findings, Inventory, Limits,
    NO_OWNER, Parallel, Progress, Result, Xattr, ordered,
};

use crate::data::BlockSpan;
use crate::dir::{self, ListingReader};
use crate::image::StoredSize;
use crate::inode::InodeFields;
use crate::raw;
use crate::read::Squashfs;

/// Number of entries read at once from a file's block list.
const LIST_ENTRIES: usize = 1024;
/// Number of blocks that are collected before shared ones are joined.
const STORED_MIN: usize = 1 << 20;
/// Number of blocks that one job decodes.
const BATCH_BLOCKS: usize = 16;
/// The smallest page of Linux; it reads no longer targets of symbolic links, and of those one byte
/// less.
const PAGE_BYTES: u64 = 4096;
/// `XATTR_NAME_MAX` of linux/limits.h.
const XATTR_NAME_BYTES_MAX: usize = 255;
/// `XATTR_LIST_MAX` of linux/limits.h.
const XATTR_LIST_BYTES_MAX: usize = 65_536;

/// Summary of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckSummary {
    /// Number of findings, including those not reported.
    pub findings: u64,
    /// Number of inodes.
    pub inodes: u64,
    /// Number of data blocks; blocks shared by several files count once.
    pub blocks: u64,
    /// Number of fragment blocks.
    pub fragments: u64,
    /// Number of decoded bytes.
    pub data_bytes: u64,
}

/// A data or fragment block with the expected length of its content. Sorted by place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DataBlock {
    at: u64,
    word: u32,
    /// Length of its content: exact, or for a fragment block the minimum.
    len: u32,
    is_fragment: bool,
    /// A file that uses it.
    file: FileId,
}

/// Sorts the blocks and keeps one of those that are the same.
fn join_shared(stored: &mut Vec<DataBlock>) {
    stored.sort_unstable();
    stored.dedup_by_key(|stored| (stored.at, stored.word, stored.len, stored.is_fragment));
}

struct ImageCheck<'a> {
    image: &'a Squashfs,
    findings: Findings<'a>,
    summary: CheckSummary,
    /// The inode number of each file; 0 if its inode cannot be read.
    numbers: Vec<u32>,
}

impl Squashfs {
    /// Checks the whole image and calls `report` with each finding, with the path of the file it
    /// concerns, if any: all names, inodes, attributes, link targets and lists must be readable;
    /// inode numbers must be unique, those of the directory entries, and the export table must
    /// locate them; an index must lead to its names; link counts must match the names; blocks must
    /// not overlap; and every block must decode to the length that its files expect.
    ///
    /// A directory that cannot be read ends the check of files. Memory grows by 24 bytes for each
    /// block.
    ///
    /// # Errors
    /// Fails if the medium cannot be read. Damage in the image is not an error but a finding.
    pub fn check(
        &self,
        options: CheckOptions,
        parallel: Parallel,
        progress: &dyn Progress,
        report: &mut dyn FnMut(Finding),
    ) -> Result<CheckSummary> {
        let mut check = ImageCheck {
            image: self,
            findings: Findings::new(report),
            summary: CheckSummary::default(),
            numbers: Vec::new(),
        };
        match Inventory::of(self, &Limits::default()) {
            Err(error) => check.findings.add(error.into())?,
            Ok(inventory) => check.run(&inventory, options, parallel, progress)?,
        }
        check.summary.findings = check.findings.count();
        Ok(check.summary)
    }
}

fn is_io(error: &Error) -> bool {
    match error {
        Error::Io(_) => true,
        Error::File { error, .. } => is_io(error),
        _ => false,
    }
}

impl ImageCheck<'_> {
    fn run(
        &mut self,
        inventory: &Inventory,
        options: CheckOptions,
        parallel: Parallel,
        progress: &dyn Progress,
    ) -> Result<()> {
        let superblock = *self.image.superblock();
        let mut stored = Vec::new();
        let mut tails = HashMap::new();
        // Sized by the entries found: the count in the image may be wrong.
        let mut has_number = vec![false; inventory.file_count() as usize + 1];
        let mut stored_max = STORED_MIN;
        self.numbers = vec![0; inventory.file_count() as usize];
        for file in inventory.files() {
            let mut result = self.inode(inventory, file, &mut has_number);
            if result.is_ok() && inventory.kind(file) == FileKind::Regular {
                result = self.content(inventory, file, &mut stored, &mut tails);
                // Any number of files may share blocks, so memory must not grow with the lists.
                if stored.len() > stored_max {
                    join_shared(&mut stored);
                    stored_max = STORED_MIN.max(2 * stored.len());
                }
            }
            if let Err(error) = result {
                self.findings.add(in_file(inventory, file, error))?;
            }
        }
        for dir in inventory.files() {
            if inventory.kind(dir) == FileKind::Directory
                && let Err(error) = self.directory(inventory, dir)
            {
                self.findings.add(in_file(inventory, dir, error))?;
            }
        }
        self.summary.inodes = inventory.file_count().into();
        if superblock.inode_count != inventory.file_count() {
            let (what, got) = (
                "image has the wrong number of inodes",
                inventory.file_count(),
            );
            self.findings
                .add(Error::corrupt(what, 0, got.into()).into())?;
        }
        if let Err(error) = self.image.check_for_mounting() {
            self.findings.add(error.into())?;
        }
        self.fragments(&tails, &mut stored)?;
        join_shared(&mut stored);
        self.summary.blocks = stored.len() as u64 - self.summary.fragments;
        for pair in stored.windows(2) {
            let same = (pair[0].at, pair[0].word) == (pair[1].at, pair[1].word);
            let end = pair[0].at + u64::from(pair[0].word & !raw::BLOCK_PLAIN);
            if !same && end > pair[1].at {
                let error =
                    Error::corrupt("block begins within another one", pair[1].at, pair[0].at);
                self.findings.add(in_file(inventory, pair[1].file, error))?;
            }
        }
        if options.data.decodes() {
            self.decode(inventory, &stored, parallel, progress)?;
        }
        Ok(())
    }

    /// Checks a file's metadata, without its content.
    fn inode(
        &mut self,
        inventory: &Inventory,
        file: FileId,
        has_number: &mut [bool],
    ) -> Result<()> {
        let (image, ino) = (self.image, inventory.ino(file));
        let at = image.superblock().inode_table;
        let (inode, _) = image.inode(ino)?;
        let number = inode.number;
        self.numbers[file.0 as usize] = number;
        if let Some(has_number) = has_number.get_mut(number as usize) {
            if *has_number {
                return Err(Error::corrupt(
                    "two inodes have the same number",
                    at,
                    number.into(),
                ));
            }
            *has_number = true;
        }
        if !image.has_lost_exports()
            && let Some(exported) = image.by_number(number)?
            && exported != ino
        {
            let what = "export table has the inode elsewhere";
            return Err(Error::corrupt(what, at, exported.0));
        }
        if inode.nlink == 0 {
            return Err(Error::corrupt(
                "inode has a link count of 0",
                at,
                number.into(),
            ));
        }
        if inode.mode & !0o7777 != 0 {
            let (what, got) = ("inode's mode has bits of a file type", inode.mode.into());
            return Err(Error::corrupt(what, at, got));
        }
        check_xattrs(&image.xattrs(ino)?, at)?;
        let metadata = inventory.metadata(file);
        if metadata.uid == NO_OWNER || metadata.gid == NO_OWNER {
            let what = "file's owner is the reserved number 2^32 - 1";
            return Err(Error::corrupt(what, at, NO_OWNER.into()));
        }
        if metadata.kind == FileKind::Symlink && metadata.size >= PAGE_BYTES {
            let what = "symbolic link's target is longer than Linux follows";
            return Err(Error::corrupt(what, at, metadata.size));
        }
        if metadata.kind != FileKind::Directory && metadata.nlink != inventory.name_count(file) {
            let nlink = metadata.nlink.into();
            return Err(Error::corrupt(
                "file's inode has the wrong number of names",
                at,
                nlink,
            ));
        }
        Ok(())
    }

    /// Compares a directory's listing with the inodes that it names, and with its index.
    fn directory(&mut self, inventory: &Inventory, dir: FileId) -> Result<()> {
        let image = self.image;
        let at = image.superblock().inode_table;
        let (inode, index) = image.inode(inventory.ino(dir))?;
        let InodeFields::Directory {
            listing,
            parent,
            index_count,
        } = inode.body
        else {
            return Ok(());
        };
        let above = inventory.parent(inventory.first_name(dir));
        // The root has no parent, and tools store various numbers for it.
        if dir != above && parent != self.numbers[above.0 as usize] {
            let what = "directory's inode names the wrong parent";
            return Err(Error::corrupt(what, at, parent.into()));
        }
        let end = image.directories_end();
        if let Some(mut entries) = ListingReader::new(image.image(), end, &listing)? {
            for entry in inventory.entries(dir) {
                let Some(stored) = entries.next()? else { break };
                let number = self.numbers[inventory.file(entry).0 as usize];
                // Linux finds the file by this number if it has read another one that has it.
                if number != 0 && stored.number != number {
                    let what = "directory entry has the wrong inode number";
                    let error = Error::corrupt(what, at, stored.number.into());
                    let error = error.in_file("check", &inventory.path(entry));
                    self.findings.add(error.into())?;
                }
            }
        }
        dir::check_index(image.image(), end, &listing, (index, index_count))
    }

    /// Collects the places of a file's content.
    fn content(
        &mut self,
        inventory: &Inventory,
        file: FileId,
        stored: &mut Vec<DataBlock>,
        tails: &mut HashMap<u32, (u32, FileId)>,
    ) -> Result<()> {
        let image = self.image;
        let content = image.content(inventory.ino(file))?;
        let block_bytes = u64::from(image.superblock().block_bytes);
        let mut index = 0;
        while index < content.block_count() {
            let rest = index..content.block_count();
            for block in content.blocks(image.image(), rest, LIST_ENTRIES)? {
                if let BlockSpan::Stored { at, size } = block {
                    let len = block_bytes.min(content.size() - index * block_bytes) as u32;
                    let word = size.word();
                    stored.push(DataBlock {
                        at,
                        word,
                        len,
                        is_fragment: false,
                        file,
                    });
                }
                index += block.count();
            }
        }
        if let Some(tail) = image.tail(&content)? {
            if tail.len == 0 {
                let what = "file without a tail has a fragment";
                return Err(Error::corrupt(
                    what,
                    image.superblock().inode_table,
                    content.size(),
                ));
            }
            let placed = content.placed_tail().map_or(0, |tail| tail.fragment);
            let end = tail.offset + tail.len;
            let known = tails.entry(placed).or_insert((end, file));
            if known.0 < end {
                *known = (end, file);
            }
        }
        Ok(())
    }

    /// Collects the places of the fragment blocks, and how much of each is used.
    fn fragments(
        &mut self,
        tails: &HashMap<u32, (u32, FileId)>,
        stored: &mut Vec<DataBlock>,
    ) -> Result<()> {
        let entries = match self.image.fragment_entries() {
            Ok(entries) => entries,
            Err(error) => return self.findings.add(error.into()),
        };
        for (number, entry) in (0u32..).zip(entries) {
            let at = entry.start_block.get();
            let block_bytes = self.image.superblock().block_bytes;
            self.summary.fragments += 1;
            let size = StoredSize::parse(entry.size.get(), block_bytes, at);
            let size = size.and_then(|size| {
                if self.image.image().holds_data(at, size) {
                    return Ok(size);
                }
                let what = "fragment block lies outside of the data";
                Err(Error::corrupt(what, at, number.into()))
            });
            match size {
                Ok(size) => {
                    let (len, file) = tails.get(&number).copied().unwrap_or((0, FileId(0)));
                    let word = size.word();
                    stored.push(DataBlock {
                        at,
                        word,
                        len,
                        is_fragment: true,
                        file,
                    });
                }
                Err(error) => {
                    self.summary.fragments -= 1;
                    self.findings.add(error.into())?;
                }
            }
        }
        Ok(())
    }

    /// Decodes every block.
    fn decode(
        &mut self,
        inventory: &Inventory,
        stored: &[DataBlock],
        parallel: Parallel,
        progress: &dyn Progress,
    ) -> Result<()> {
        let image = self.image;
        let block_bytes = image.superblock().block_bytes;
        let bytes = stored.iter().map(|stored| u64::from(stored.len)).sum();
        progress.expect(Some(inventory.file_count().into()), Some(bytes));
        ordered(
            parallel,
            stored.chunks(BATCH_BLOCKS),
            || vec![0; block_bytes as usize],
            |buf, batch| {
                let mut bytes = 0;
                let mut findings = Vec::new();
                for stored in batch {
                    match decode(image, stored, buf) {
                        Ok(len) => bytes += len as u64,
                        Err(error) if is_io(&error) => return Err(error),
                        Err(error) => findings.push((stored.file, error)),
                    }
                }
                Ok((bytes, findings))
            },
            |(bytes, findings)| {
                self.summary.data_bytes += bytes;
                progress.advance(0, bytes);
                for (file, error) in findings {
                    self.findings.add(in_file(inventory, file, error))?;
                }
                Ok(())
            },
        )
    }
}

/// Decodes a block and returns the length of its content.
fn decode(image: &Squashfs, stored: &DataBlock, buf: &mut [u8]) -> Result<usize> {
    let size = StoredSize::parse(stored.word, image.superblock().block_bytes, stored.at)?;
    let len = stored.len as usize;
    if !stored.is_fragment {
        image.image().block_into(stored.at, size, &mut buf[..len])?;
        return Ok(len);
    }
    let decoded = image.image().decode_block(stored.at, size, buf)?;
    if decoded < len {
        let what = "fragment block is shorter than its tails";
        return Err(Error::corrupt(what, stored.at, decoded as u64));
    }
    Ok(decoded)
}

/// Checks the limits of Linux: names of attributes of at most 255 bytes, at most 64 KiB of them.
fn check_xattrs(xattrs: &[Xattr], at: u64) -> Result<()> {
    let longest = xattrs.iter().map(|xattr| xattr.name.len()).max();
    if longest.is_some_and(|len| len > XATTR_NAME_BYTES_MAX) {
        let what = "extended attribute's name is longer than Linux reads";
        return Err(Error::corrupt(what, at, longest.unwrap_or(0) as u64));
    }
    let names: usize = xattrs.iter().map(|xattr| xattr.name.len() + 1).sum();
    if names > XATTR_LIST_BYTES_MAX {
        let what = "file has more names of extended attributes than Linux lists";
        return Err(Error::corrupt(what, at, names as u64));
    }
    Ok(())
}

fn in_file(inventory: &Inventory, file: FileId, error: Error) -> Finding {
    let path = inventory.path(inventory.first_name(file));
    error.in_file("check", &path).into()
}
