//! Small files, packed while the image is written: each is read once, and dropped then if it equals
//! an earlier one.
//!
//! Workers read files in batches. The calling thread takes the batches in order, finds equal files,
//! and fills fragment blocks, which are jobs for the workers again. The layout is that of
//! [`DataLayout::pack_tails`]: both place tails with a [`TailPacker`].

use std::collections::VecDeque;

use tree::{ContentReader, FileId, Parallel, Result};

use crate::code_filter::CodeShares;
use crate::known_files::KnownFiles;
use crate::options::{Fragments, Options};
use crate::plan::{BatchItem, BlockJob, DataLayout, FileJobs, PackedTail, TailBatch};
use crate::tail_packer::TailPacker;

/// Files up to this size are compared when they are read. Larger ones take longer to read again
/// than to find, and equal ones among them are found before.
pub(crate) const SMALL_BYTES: u64 = 64 << 10;
/// How much content a batch has at most, unless a block is larger.
const BATCH_BYTES: usize = 256 << 10;
/// How many files a batch has at most.
const BATCH_FILES: usize = 512;
/// How many earlier files with the same key a file is compared with. There are rarely several,
/// unless somebody makes them.
const COMPARED_MAX: u32 = 4;

/// The next data in the image.
enum Unit {
    Fragment(BlockJob),
    /// The blocks of a file.
    Blocks(FileId),
}

/// The fragment block that is being filled.
struct OpenFragment {
    /// A buffer of the size of a block.
    buffer: Vec<u8>,
    used: usize,
    files: usize,
    code: CodeShares,
}

/// The files of a plan on their way into the image.
pub(crate) struct Gather<'a> {
    plan: &'a mut DataLayout,
    options: &'a Options,
    content: &'a ContentReader<'a>,
    /// The index of the next file to read.
    next: usize,
    /// Batches that are being read, and the most of them.
    reading: usize,
    reading_max: usize,
    /// In the order in which they are stored.
    ready: VecDeque<Unit>,
    blocks: Option<FileJobs<'a>>,
    open: OpenFragment,
    packer: TailPacker,
    /// The number of the fragment block that is being filled.
    number: u32,
    /// The first small file with this hash of its content; one of another content with the same key
    /// has the next key.
    known: KnownFiles,
    /// How many files equal an earlier one.
    pub(crate) duplicates: u64,
    /// Buffers for batches, to be reused.
    free: Vec<Vec<u8>>,
    scratch: Vec<u8>,
}

impl<'a> Gather<'a> {
    /// Whether files can be packed as they are read: equal files must have no influence on their
    /// order, all files are packed alike, and every file must be readable.
    pub(crate) fn is_possible(options: &Options, stored_extents: bool) -> bool {
        options.fragments != Fragments::None
            && options.priorities.is_empty()
            && options.packing.is_empty()
            && options.old.is_none()
            && !options.skip_unreadable
            && !stored_extents
    }

    pub(crate) fn new(
        plan: &'a mut DataLayout,
        options: &'a Options,
        content: &'a ContentReader<'a>,
        parallel: Parallel,
    ) -> Self {
        Gather {
            plan,
            options,
            content,
            next: 0,
            reading: 0,
            reading_max: parallel.threads(),
            ready: VecDeque::new(),
            blocks: None,
            open: OpenFragment {
                buffer: content.buffer(),
                used: 0,
                files: 0,
                code: CodeShares::default(),
            },
            packer: TailPacker::new(options.block_bytes.into()),
            number: 0,
            known: KnownFiles::new(),
            duplicates: 0,
            free: Vec::new(),
            scratch: vec![0; SMALL_BYTES as usize],
        }
    }

    /// The next job; `None` if it depends on results, or at the end.
    pub(crate) fn next(&mut self) -> Option<BlockJob> {
        loop {
            let is_ahead = self.ready.len() >= 4 * self.reading_max;
            let is_unread = self.next < self.plan.files().len();
            if is_unread && !is_ahead && self.reading < self.reading_max {
                self.reading += 1;
                return Some(BlockJob::Read(self.batch()));
            }
            if let Some(blocks) = &mut self.blocks {
                if let Some(job) = blocks.next() {
                    return Some(job);
                }
                self.blocks = None;
            }
            match self.ready.pop_front() {
                Some(Unit::Fragment(job)) => return Some(job),
                Some(Unit::Blocks(file)) => {
                    let inventory = self.content.inventory();
                    self.blocks = Some(self.plan.file_jobs(inventory, file));
                }
                None if self.reading == 0 && !is_unread && self.open.files > 0 => self.close(),
                None => return None,
            }
        }
    }

    /// The next files to read.
    fn batch(&mut self) -> TailBatch {
        let inventory = self.content.inventory();
        let block_bytes = u64::from(self.options.block_bytes);
        let room = BATCH_BYTES.max(self.options.block_bytes as usize);
        let (mut items, mut used) = (Vec::new(), 0);
        while let Some(&file) = self.plan.files().get(self.next)
            && items.len() < BATCH_FILES
        {
            let size = inventory.size(file);
            let is_packed = self.plan.is_packed(file, size);
            let len = (size % block_bytes) as usize;
            if is_packed {
                if used + len > room {
                    break;
                }
                used += len;
                items.push(BatchItem::Tail(PackedTail {
                    file,
                    offset: size - len as u64,
                    len,
                    is_hashed: self.options.duplicates && size <= SMALL_BYTES && size < block_bytes,
                    hash: 0,
                    filter: codec::Filters(0),
                }));
            }
            if !is_packed || size >= block_bytes {
                items.push(BatchItem::Blocks(file));
            }
            self.next += 1;
        }
        let content = self.free.pop().unwrap_or_else(|| vec![0; room]);
        TailBatch { items, content }
    }

    /// Takes the files of a batch that was read.
    ///
    /// # Errors
    /// A file cannot be read again.
    pub(crate) fn take(&mut self, batch: TailBatch) -> Result<()> {
        self.reading -= 1;
        let mut at = 0;
        for item in &batch.items {
            match item {
                BatchItem::Blocks(file) => self.ready.push_back(Unit::Blocks(*file)),
                BatchItem::Tail(part) => {
                    self.pack(part, &batch.content[at..at + part.len])?;
                    at += part.len;
                }
            }
        }
        self.free.push(batch.content);
        Ok(())
    }

    /// Puts a file into the fragment block, unless it equals an earlier one.
    fn pack(&mut self, part: &PackedTail, bytes: &[u8]) -> Result<()> {
        if part.is_hashed {
            for more in 0..COMPARED_MAX {
                let key = (part.hash as u32).wrapping_add(more);
                match self.known.first(part.hash >> 32, key, part.file) {
                    Some(original) if self.is_equal(original, bytes)? => {
                        self.plan.show(part.file, original);
                        self.duplicates += 1;
                        return Ok(());
                    }
                    Some(_) => {}
                    None => break,
                }
            }
        }
        let place = self.packer.place(0, part.len as u64);
        if place.offset == 0 {
            self.close();
            self.number = place.fragment;
        }
        self.plan.place(part.file, place);
        let open = &mut self.open;
        open.buffer[open.used..open.used + part.len].copy_from_slice(bytes);
        open.used += part.len;
        open.files += 1;
        open.code.add(part.filter, part.len);
        Ok(())
    }

    /// Compares an earlier small file, which may be on its way into the image, with this content.
    fn is_equal(&mut self, original: FileId, bytes: &[u8]) -> Result<bool> {
        if self.content.inventory().size(original) != bytes.len() as u64 {
            return Ok(false);
        }
        if let Some(place) = self.plan.tail(original)
            && place.fragment == self.number
        {
            let begin = place.offset as usize;
            return Ok(self.open.buffer[begin..begin + bytes.len()] == *bytes);
        }
        let again = &mut self.scratch[..bytes.len()];
        let read = self.content.read(original, 0, again);
        read.map_err(|error| self.content.in_file(original, error))?;
        Ok(again == bytes)
    }

    /// Ends the fragment block, if it has any tails.
    fn close(&mut self) {
        let open = &mut self.open;
        if open.files == 0 {
            return;
        }
        let content = std::mem::replace(&mut open.buffer, self.content.buffer());
        self.ready.push_back(Unit::Fragment(BlockJob::Packed {
            number: self.number,
            content,
            len: open.used,
            files: open.files,
            filter: open.code.most(open.used),
        }));
        (open.used, open.files, open.code) = (0, 0, CodeShares::default());
    }
}
