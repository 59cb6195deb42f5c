//! Plans the data to store and its order: a pure function of the inventory and the options.

use std::collections::HashMap;
use std::ops::Range;

use codec::{Algorithm, Filters};
use tree::edit::PackingChoice;
use tree::{
    BlockEncoding, Duplicates, Error, Extent, ExtentId, ExtentKind, Extents, FileId, FileKind,
    Inventory, Lost, Result,
};

use crate::inode::TailPosition;
use crate::options::{Fragments, Options};
use crate::raw::flags;
use crate::reuse::{OldFragment, OldTails};
use crate::tail_packer::TailPacker;

/// The order of the files' data, and which tails share a fragment block.
pub(crate) struct DataLayout {
    /// The files whose data is stored, in order.
    files: Vec<FileId>,
    /// In the order in which they are stored.
    fragments: Vec<PlannedFragment>,
    /// By file, up to the last one with either: the place of its tail; with [`SHOWN`] as the
    /// offset, the file whose data it refers to; otherwise [`NOWHERE`].
    places: Vec<TailPosition>,
    block_bytes: u64,
    /// Which tails are packed.
    packing: Fragments,
    /// The files that are stored in another way, and whether fragment blocks are uncompressed.
    exceptions: HashMap<FileId, PackingChoice>,
    has_plain_fragments: bool,
    /// The algorithm of data that is copied from the source as it is stored, if it forms a block of
    /// this image.
    keep: Option<Algorithm>,
    /// Whether all blocks of the source are such blocks, including its fragment blocks.
    keep_fragments: bool,
}

/// The place of tails outside of fragment blocks, of which there are never as many.
const NOWHERE: TailPosition = TailPosition {
    fragment: u32::MAX,
    offset: 0,
};

/// An offset that no tail has.
const SHOWN: u32 = u32::MAX;

/// A fragment block.
struct PlannedFragment {
    number: u32,
    content: FragmentContent,
    /// How many files' data is stored before it.
    after: usize,
}

enum FragmentContent {
    /// The files whose tails are in it, one after another.
    Tails(Vec<FileId>),
    /// The source block that holds this file's tail.
    Kept {
        file: FileId,
        extent: Extent,
        len: usize,
        files: usize,
    },
    /// A block of the old image.
    Old(OldFragment),
}

/// A job for a worker.
pub(crate) enum BlockJob {
    /// This many blocks of a file that are nothing but holes.
    Holes {
        file: FileId,
        first: bool,
        bytes: u64,
    },
    /// A block of a file, or a part of one that is stored as a block.
    Block {
        file: FileId,
        first: bool,
        offset: u64,
        len: usize,
    },
    /// A block of a file to copy as the source stores it, if the stored data is valid in this
    /// image.
    Keep {
        file: FileId,
        first: bool,
        extent: Extent,
    },
    /// The source cannot tell where a file's data is.
    Unreadable { file: FileId, error: Error },
    /// The tails of files, one after another.
    Fragment { number: u32, tails: Vec<FileId> },
    /// Files to read.
    Read(TailBatch),
    /// The tails of files that were read, at the beginning of a buffer of the size of a block.
    Packed {
        number: u32,
        content: Vec<u8>,
        len: usize,
        files: usize,
        filter: Filters,
    },
    /// A fragment block to copy as the source stores it: the extent of a file in it, the bytes of
    /// its content that are used, and how many files use them.
    KeepFragment {
        number: u32,
        file: FileId,
        extent: Extent,
        len: usize,
        files: usize,
    },
    /// A fragment block to copy as the old image stores it.
    OldFragment { number: u32, fragment: OldFragment },
}

/// Files in order.
pub(crate) struct TailBatch {
    pub(crate) items: Vec<BatchItem>,
    /// Room for their parts, one after another.
    pub(crate) content: Vec<u8>,
}

pub(crate) enum BatchItem {
    /// A part of a file that goes into a fragment.
    Tail(PackedTail),
    /// All other content of a file, which is not read yet.
    Blocks(FileId),
}

/// A part of a file that goes into a fragment.
pub(crate) struct PackedTail {
    pub(crate) file: FileId,
    pub(crate) offset: u64,
    pub(crate) len: usize,
    /// Whether it may equal an earlier file.
    pub(crate) is_hashed: bool,
    /// The hash of it, once it was read.
    pub(crate) hash: u64,
    /// The filter for it, once it was read.
    pub(crate) filter: Filters,
}

/// A block of the source that holds tails.
#[derive(Default)]
struct SourceFragment {
    /// Bytes of it that are tails of files in the inventory.
    used: u64,
    /// Where the last of these tails ends.
    end: u64,
    files: usize,
    /// Its number as a fragment, once assigned.
    number: Option<u32>,
}

impl DataLayout {
    /// Plans the data of all regular files in an inventory that are not left out, in the order of
    /// their names. Their tails have no place yet.
    pub(crate) fn new(
        inventory: &Inventory,
        duplicates: &Duplicates,
        options: &Options,
        lost: &Lost,
    ) -> DataLayout {
        let block_bytes = u64::from(options.block_bytes);
        let ours = options.compression.map(|settings| settings.algorithm());
        let storage = inventory.tree().storage();
        let keep_fragments = ours.is_some_and(|algorithm| {
            let block_bytes = options.block_bytes;
            storage.block_encoding
                == Some(BlockEncoding {
                    algorithm,
                    block_bytes,
                })
        });
        // In other formats an extent may happen to be a valid block, if its end can be found.
        let is_some_kept = keep_fragments
            || (storage.block_encoding.is_none()
                && storage.stored_extents
                && matches!(
                    ours,
                    Some(Algorithm::Zstd | Algorithm::Zlib | Algorithm::Lz4)
                ));
        let mut plan = DataLayout {
            files: Vec::new(),
            fragments: Vec::new(),
            places: Vec::new(),
            block_bytes,
            packing: options.fragments,
            exceptions: options.packing.clone(),
            has_plain_fragments: options.is_plain(None, flags::FRAGMENTS_PLAIN),
            keep: ours.filter(|_| is_some_kept && options.keep_blocks),
            keep_fragments: keep_fragments && options.keep_blocks,
        };
        let first_names = inventory
            .names()
            .filter(|&entry| inventory.is_first_name(entry));
        for file in first_names.map(|entry| inventory.file(entry)) {
            if let Some(original) = duplicates.original(file) {
                plan.show(file, original);
            } else if inventory.kind(file) == FileKind::Regular
                && inventory.size(file) > 0
                && !lost.has(file)
            {
                plan.files.push(file);
            }
        }
        plan.sort(inventory, &options.priorities);
        plan
    }

    /// The files whose data is stored, in order.
    pub(crate) fn files(&self) -> &[FileId] {
        &self.files
    }

    /// Makes a file show the data of an earlier one.
    pub(crate) fn show(&mut self, file: FileId, original: FileId) {
        let shown = TailPosition {
            fragment: original.0,
            offset: SHOWN,
        };
        self.place(file, shown);
    }

    /// The file whose data a file refers to, which may be itself.
    pub(crate) fn shown(&self, file: FileId) -> FileId {
        match self.places.get(file.0 as usize) {
            Some(place) if place.offset == SHOWN => FileId(place.fragment),
            _ => file,
        }
    }

    /// Gives the tail of a file its place.
    pub(crate) fn place(&mut self, file: FileId, tail: TailPosition) {
        let index = file.0 as usize;
        if self.places.len() <= index {
            self.places.resize(index + 1, NOWHERE);
        }
        self.places[index] = tail;
    }

    /// The place of a file's tail, if it is in a fragment.
    pub(crate) fn tail(&self, file: FileId) -> Option<TailPosition> {
        let tail = self.places.get(file.0 as usize).copied();
        tail.filter(|&tail| tail != NOWHERE && tail.offset != SHOWN)
    }

    /// Whether the tail of a file of this size goes into a fragment.
    pub(crate) fn is_packed(&self, file: FileId, size: u64) -> bool {
        let (mut is_packed, mut has_tail) = match self.packing {
            Fragments::None => (false, false),
            Fragments::SmallFiles => (true, false),
            Fragments::Always => (true, true),
        };
        if let Some(exception) = self.exceptions.get(&file) {
            is_packed = exception.fragments.unwrap_or(is_packed);
            has_tail = exception.tails.unwrap_or(has_tail);
            // As in squashfs-tools, a file that is aligned, or compressed unlike the fragments, is
            // not in them.
            is_packed &= exception.align_bytes.is_none()
                && (exception.plain).is_none_or(|plain| plain == self.has_plain_fragments);
        }
        is_packed
            && (size < self.block_bytes || (has_tail && !size.is_multiple_of(self.block_bytes)))
    }

    /// The files whose tails go into fragments, and the other ones, in order.
    pub(crate) fn packed_and_others(&self, inventory: &Inventory) -> (Vec<FileId>, Vec<FileId>) {
        let is_packed = |file: &FileId| self.is_packed(*file, inventory.size(*file));
        self.files.iter().partition(|file| is_packed(file))
    }

    /// Sorts the files by priority, if there are any priorities. Shared data gets the highest
    /// priority of the files that use it.
    fn sort(&mut self, inventory: &Inventory, priorities: &[i16]) {
        if priorities.is_empty() {
            return;
        }
        let mut highest = vec![i16::MIN; inventory.file_count() as usize];
        for (file, &priority) in inventory.files().zip(priorities) {
            let highest = &mut highest[self.shown(file).0 as usize];
            *highest = priority.max(*highest);
        }
        self.files
            .sort_by_key(|file| std::cmp::Reverse(highest[file.0 as usize]));
    }

    /// Assigns the files' tails to fragments: blocks of the old image, of the source, or new ones.
    pub(crate) fn pack_tails(
        &mut self,
        inventory: &Inventory,
        options: &Options,
        old: &OldTails,
    ) -> Result<()> {
        let mut source = self.source_fragments(inventory, options, old)?;
        // The number of each fragment of the old image, and the last file with a tail in it.
        let mut old_numbers = vec![None; old.fragments.len()];
        let mut packer = TailPacker::new(self.block_bytes);
        // For each group of files, the number of the block that is being filled, and its tails.
        let mut open: Vec<(u32, Vec<FileId>)> = Vec::new();
        let mut groups: HashMap<Box<[u8]>, usize> = HashMap::new();
        for index in 0..self.files.len() {
            let file = self.files[index];
            let size = inventory.size(file);
            if !self.is_packed(file, size) {
                continue;
            }
            let in_source = match old.of(file) {
                None if !source.is_empty() => self.source_tail(inventory, options, file)?,
                _ => None,
            };
            let position = if let Some((fragment, offset)) = old.of(file) {
                let place = &mut old_numbers[fragment];
                let (number, last) = place.get_or_insert_with(|| (packer.number(), index));
                *last = index;
                TailPosition {
                    fragment: *number,
                    offset,
                }
            } else if let Some((extent, id, begin)) = in_source
                && let Some(fragment) = source.get_mut(&id)
            {
                let number = *fragment.number.get_or_insert_with(|| {
                    let number = packer.number();
                    self.fragments.push(PlannedFragment {
                        number,
                        content: FragmentContent::Kept {
                            file,
                            extent,
                            len: fragment.end as usize,
                            files: fragment.files,
                        },
                        after: index,
                    });
                    number
                });
                TailPosition {
                    fragment: number,
                    offset: begin as u32,
                }
            } else {
                let exception = self.exceptions.get(&file);
                let group = exception.and_then(|exception| exception.group.clone());
                let next = groups.len() + 1;
                let group = group.map_or(0, |name| *groups.entry(name).or_insert(next));
                let position = packer.place(group, size % self.block_bytes);
                if open.len() <= group {
                    open.resize_with(group + 1, Default::default);
                }
                if position.offset == 0 {
                    let begun = (position.fragment, Vec::new());
                    let (number, tails) = std::mem::replace(&mut open[group], begun);
                    self.end_fragment(number, tails, index);
                }
                open[group].1.push(file);
                position
            };
            self.place(file, position);
        }
        for (number, tails) in open {
            self.end_fragment(number, tails, self.files.len());
        }
        for (&content, place) in old.fragments.iter().zip(old_numbers) {
            let Some((number, last)) = place else {
                continue;
            };
            // As if it ended because the next tail did not fit.
            let is_packed = |&index: &usize| {
                let file = self.files[index];
                self.is_packed(file, inventory.size(file))
            };
            let next = (last + 1..self.files.len()).find(is_packed);
            self.fragments.push(PlannedFragment {
                number,
                content: FragmentContent::Old(content),
                after: next.unwrap_or(self.files.len()),
            });
        }
        self.fragments
            .sort_by_key(|fragment| (fragment.after, fragment.number));
        Ok(())
    }

    /// The fragment blocks of the source that are kept.
    fn source_fragments(
        &self,
        inventory: &Inventory,
        options: &Options,
        old: &OldTails,
    ) -> Result<HashMap<ExtentId, SourceFragment>> {
        let mut fragments: HashMap<ExtentId, SourceFragment> = HashMap::new();
        if !self.keep_fragments {
            return Ok(fragments);
        }
        for &file in &self.files {
            let size = inventory.size(file);
            if self.is_packed(file, size)
                && old.of(file).is_none()
                && let Some((_, id, begin)) = self.source_tail(inventory, options, file)?
            {
                let tail = size % self.block_bytes;
                let fragment = fragments.entry(id).or_default();
                fragment.used += tail;
                fragment.end = fragment.end.max(begin + tail);
                fragment.files += 1;
            }
        }
        // A block that is mostly unused is rebuilt.
        fragments.retain(|_, fragment| fragment.used * 2 >= fragment.end);
        Ok(fragments)
    }

    /// Ends the fragment block with these tails, if there are any.
    fn end_fragment(&mut self, number: u32, tails: Vec<FileId>, after: usize) {
        if !tails.is_empty() {
            let content = FragmentContent::Tails(tails);
            self.fragments.push(PlannedFragment {
                number,
                content,
                after,
            });
        }
    }

    /// The compressed source block that holds a file's tail, and the offset of the tail in its
    /// content.
    fn source_tail(
        &self,
        inventory: &Inventory,
        options: &Options,
        file: FileId,
    ) -> Result<Option<(Extent, ExtentId, u64)>> {
        let size = inventory.size(file);
        let tail = size % self.block_bytes;
        let extent = inventory.extents(file).covering(size - tail);
        let extent = match extent {
            Ok(extent) => extent,
            // The error comes up again when the tail is read.
            Err(_) if options.skip_unreadable => return Ok(None),
            Err(error) => {
                let path = inventory.path(inventory.first_name(file));
                return Err(error.in_file("read", &path));
            }
        };
        if (extent.offset, extent.len) != (size - tail, tail) {
            return Ok(None);
        }
        Ok(match (extent.kind, extent.id) {
            (ExtentKind::Encoded(encoding), Some(id)) if Some(encoding.algorithm) == self.keep => {
                Some((extent, id, encoding.unencoded_offset))
            }
            _ => None,
        })
    }

    /// The files whose tails are in a fragment.
    pub(crate) fn files_in(&self, fragment: u32) -> impl Iterator<Item = FileId> {
        let files = (0..self.places.len() as u32).map(FileId);
        let of = move |&file: &FileId| {
            self.tail(file)
                .is_some_and(|tail| tail.fragment == fragment)
        };
        files.filter(of)
    }

    /// The number of fragment blocks.
    pub(crate) fn fragment_count(&self) -> usize {
        self.fragments.len()
    }

    /// How many bytes of a file are in blocks; the rest, if any, is in a fragment.
    pub(crate) fn blocks_len(&self, size: u64, file: FileId) -> u64 {
        match self.tail(file) {
            Some(_) => size - size % self.block_bytes,
            None => size,
        }
    }

    /// The content of all files whose data is stored, in bytes.
    pub(crate) fn content_bytes(&self, inventory: &Inventory) -> u64 {
        self.files.iter().map(|&file| inventory.size(file)).sum()
    }

    /// The jobs in order. The jobs of a file are consecutive.
    pub(crate) fn jobs<'a>(
        &'a self,
        inventory: &'a Inventory<'a>,
    ) -> impl Iterator<Item = BlockJob> + 'a {
        self.jobs_in(inventory, 0..u64::MAX, true)
    }

    /// The jobs that begin in a range of the content of all files. A fragment block begins where
    /// the next data does. Without `asks`, the source is not asked for extents: there is a job for
    /// each block, and holes have content, too.
    pub(crate) fn jobs_in<'a>(
        &'a self,
        inventory: &'a Inventory<'a>,
        range: Range<u64>,
        asks: bool,
    ) -> impl Iterator<Item = BlockJob> + 'a {
        let mut fragments = self.fragments.iter().peekable();
        let mut file_at = 0;
        (0..=self.files.len()).flat_map(move |index| {
            let mut jobs = Vec::new();
            while let Some(fragment) = fragments.next_if(|fragment| fragment.after == index) {
                if !range.contains(&file_at) {
                    continue;
                }
                let number = fragment.number;
                jobs.push(match &fragment.content {
                    FragmentContent::Tails(tails) => BlockJob::Fragment {
                        number,
                        tails: tails.clone(),
                    },
                    &FragmentContent::Kept {
                        file,
                        extent,
                        len,
                        files,
                    } => BlockJob::KeepFragment {
                        number,
                        file,
                        extent,
                        len,
                        files,
                    },
                    &FragmentContent::Old(fragment) => BlockJob::OldFragment { number, fragment },
                });
            }
            let file = self.files.get(index).map(|&file| {
                let mut jobs = self.file_jobs(inventory, file);
                let block_at = |at: u64| {
                    let offset = at.saturating_sub(file_at);
                    offset
                        .div_ceil(self.block_bytes)
                        .saturating_mul(self.block_bytes)
                };
                jobs.offset = block_at(range.start);
                jobs.end = jobs.end.min(block_at(range.end));
                jobs.extents = jobs.extents.filter(|_| asks);
                file_at += inventory.size(file);
                jobs
            });
            jobs.into_iter().chain(file.into_iter().flatten())
        })
    }

    /// The jobs for the blocks of a file whose tail has its place.
    pub(crate) fn file_jobs<'a>(&self, inventory: &Inventory<'a>, file: FileId) -> FileJobs<'a> {
        let size = inventory.size(file);
        FileJobs {
            file,
            end: self.blocks_len(size, file),
            offset: 0,
            block_bytes: self.block_bytes,
            keep: self.keep,
            extents: Some(inventory.extents(file)),
        }
    }
}

/// The jobs for one file's blocks. Holes are found without reading them.
pub(crate) struct FileJobs<'a> {
    file: FileId,
    /// Where the bytes that are in blocks end.
    end: u64,
    offset: u64,
    block_bytes: u64,
    keep: Option<Algorithm>,
    /// `None` if the source is not asked.
    extents: Option<Extents<'a>>,
}

impl Iterator for FileJobs<'_> {
    type Item = BlockJob;

    fn next(&mut self) -> Option<BlockJob> {
        if self.offset >= self.end {
            return None;
        }
        let (file, offset) = (self.file, self.offset);
        let first = offset == 0;
        // For a file of one block, asking costs more than the read that it may save.
        let is_asked = self.end > self.block_bytes || self.keep.is_some();
        let extents = self.extents.as_mut().filter(|_| is_asked);
        let extent = match extents.map(|it| it.covering(offset)).transpose() {
            Ok(extent) => extent,
            Err(error) => {
                self.offset = self.end;
                return Some(BlockJob::Unreadable { file, error });
            }
        };
        let hole_end = extent
            .filter(|extent| !extent.kind.has_data())
            .map_or(offset, |hole| hole.end().min(self.end));
        // Full blocks, or everything up to the end.
        let hole_end = if hole_end == self.end {
            hole_end
        } else {
            hole_end - hole_end % self.block_bytes
        };
        if hole_end > offset {
            self.offset = hole_end;
            return Some(BlockJob::Holes {
                file,
                first,
                bytes: hole_end - offset,
            });
        }
        let len = self.block_bytes.min(self.end - offset);
        self.offset += len;
        // The decoded data may extend past what the file refers to: the worker then finds that it
        // is not a valid block.
        if let Some(extent) = extent
            && let ExtentKind::Encoded(encoding) = extent.kind
            && Some(encoding.algorithm) == self.keep
            && (extent.offset, extent.len) == (offset, len)
            && encoding.unencoded_offset == 0
            && encoding.unencoded_len >= len
            && encoding.stored_len <= self.block_bytes
        {
            return Some(BlockJob::Keep {
                file,
                first,
                extent,
            });
        }
        Some(BlockJob::Block {
            file,
            first,
            offset,
            len: len as usize,
        })
    }
}
