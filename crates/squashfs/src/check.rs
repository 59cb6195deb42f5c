//! Checks a whole image: every part must be readable, and everything that is stored twice must agree.

use std::collections::HashMap;

use tree::{
    CheckOptions, Corrupt, Error, FileId, FileKind, FileSystem, Finding, Findings, Inventory,
    Limits, Parallel, Progress, Result, ordered,
};

use crate::data::Block;
use crate::image::StoredSize;
use crate::raw;
use crate::read::Squashfs;

/// Number of entries read at once from a file's block list.
const LIST_ENTRIES: usize = 1024;
/// Number of blocks that are collected before shared ones are joined.
const STORED_MIN: usize = 1 << 20;
/// Number of blocks that one job decodes.
const BATCH_BLOCKS: usize = 16;

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

/// A data or fragment block, and what its content must be. Sorted by place.
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

struct Check<'a> {
    image: &'a Squashfs,
    findings: Findings<'a>,
    summary: CheckSummary,
}

impl Squashfs {
    /// Checks the whole image and calls `report` with each finding, with the path of the file it concerns, if any: all
    /// names, inodes, attributes, link targets and lists must be readable; inode numbers must be unique and the export
    /// table must locate them; link counts must match the names; blocks must not overlap; and every block must decode
    /// to the length that its files expect.
    ///
    /// A directory that cannot be read ends the check of files. Memory grows by 24 bytes for each block.
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
        let mut check = Check {
            image: self,
            findings: Findings::new(report),
            summary: CheckSummary::default(),
        };
        match Inventory::of(self, &Limits::default()) {
            Err(error) => check.findings.add(error.into())?,
            Ok(inventory) => check.run(&inventory, options, parallel, progress)?,
        }
        check.summary.findings = check.findings.count();
        Ok(check.summary)
    }
}

fn corrupt(what: &'static str, at: u64, got: u64) -> Error {
    Error::Corrupt(Corrupt { what, at, got })
}

fn is_io(error: &Error) -> bool {
    match error {
        Error::Io(_) => true,
        Error::File { error, .. } => is_io(error),
        _ => false,
    }
}

impl Check<'_> {
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
        // Sized by what was found: the count in the image may be wrong.
        let mut has_number = vec![false; inventory.file_count() as usize + 1];
        let mut stored_max = STORED_MIN;
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
        self.summary.inodes = inventory.file_count().into();
        if superblock.inode_count != inventory.file_count() {
            let (what, got) = (
                "image has another number of inodes than it says",
                inventory.file_count(),
            );
            self.findings.add(corrupt(what, 0, got.into()).into())?;
        }
        self.fragments(&tails, &mut stored)?;
        join_shared(&mut stored);
        self.summary.blocks = stored.len() as u64 - self.summary.fragments;
        for pair in stored.windows(2) {
            let same = (pair[0].at, pair[0].word) == (pair[1].at, pair[1].word);
            let end = pair[0].at + u64::from(pair[0].word & !raw::BLOCK_PLAIN);
            if !same && end > pair[1].at {
                let error = corrupt("block begins within another one", pair[1].at, pair[0].at);
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
        let number = image.number(ino)?;
        if let Some(has_number) = has_number.get_mut(number as usize) {
            if *has_number {
                return Err(corrupt(
                    "two inodes have the same number",
                    at,
                    number.into(),
                ));
            }
            *has_number = true;
        }
        match image.by_number(number)? {
            Some(exported) if exported != ino => {
                return Err(corrupt(
                    "export table has the inode elsewhere",
                    at,
                    exported.0,
                ));
            }
            _ => {}
        }
        image.xattrs(ino)?;
        let metadata = inventory.metadata(file);
        if metadata.kind == FileKind::Symlink {
            image.read_link(ino)?;
        }
        if metadata.kind != FileKind::Directory && metadata.nlink != inventory.name_count(file) {
            let nlink = metadata.nlink.into();
            return Err(corrupt(
                "file has another number of names than its inode says",
                at,
                nlink,
            ));
        }
        Ok(())
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
                if let Block::Stored { at, size } = block {
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
        for (number, entry) in (0u32..).zip(self.image.fragment_entries()?) {
            let at = entry.start_block.get();
            let block_bytes = self.image.superblock().block_bytes;
            self.summary.fragments += 1;
            let size = StoredSize::parse(entry.size.get(), block_bytes, at);
            let size = size.and_then(|size| {
                if self.image.image().holds_data(at, size) {
                    return Ok(size);
                }
                let what = "fragment block lies outside of the data";
                Err(corrupt(what, at, number.into()))
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
        return Err(corrupt(what, stored.at, decoded as u64));
    }
    Ok(decoded)
}

fn in_file(inventory: &Inventory, file: FileId, error: Error) -> Finding {
    let path = inventory.path(inventory.first_name(file));
    error.in_file("check", &path).into()
}
