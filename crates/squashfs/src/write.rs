//! An image made from a tree of files.
//!
//! The data goes out first, block by block and in the order of the plan, while worker threads encode ahead. Then the
//! metadata, child before parent, so that every reference points at what already has its place; the superblock last.

use std::collections::HashMap;
use std::sync::Mutex;

use codec::{Codec, Encoder, Settings};
use tree::{
    Duplicates, Error, FileId, FileKind, FileSystem, Inventory, Limits, Output, Parallel, Progress,
    Result, Step, Time, Xattr, ordered,
};
use xxhash::Xxh64;
use zerocopy::{FromZeros, IntoBytes};

use crate::compressor::Compressor;
use crate::dir::ListingWriter;
use crate::encode::{Done, Encoding, Stored};
use crate::inode::{Body, File, Inode, Listing, encode_device};
use crate::metadata::{MetadataWriter, Reference};
use crate::plan::Plan;
use crate::raw::{self, METADATA_PLAIN, flags};
use crate::read::Squashfs;
use crate::superblock::{BLOCK_LOG2_MAX, BLOCK_LOG2_MIN, SUPERBLOCK_BYTES, Superblock};
use crate::table::emit_table;
use crate::verify::{self, Expected};
use crate::xattr::{XattrWriter, is_storable};

/// Different owners and groups; Linux refuses the one more that the count's field could mean.
const IDS_MAX: usize = 65_535;
/// Longest target of a symbolic link that Linux follows.
const TARGET_BYTES_MAX: usize = 4095;
/// What an image's length is a multiple of, so that it can be a block device.
const PADDING_BYTES: u64 = 4096;
/// Files that one job describes.
const DESCRIBE_BATCH: usize = 256;

/// Which parts of files share blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragments {
    /// None: every file has its own blocks.
    None,
    /// Files that are smaller than a block.
    SmallFiles,
    /// Those, and what is left of larger files behind their last whole block.
    Always,
}

/// How an image is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// How data and metadata are encoded; `None` stores all as it is.
    pub compression: Option<Settings>,
    /// Bytes of a block: a power of two from 4 KiB to 1 MiB.
    pub block_bytes: u32,
    /// Which parts of files share blocks.
    pub fragments: Fragments,
    /// Whether files with equal content share it.
    pub duplicates: bool,
    /// Whether to store a table by which NFS finds inodes.
    pub exportable: bool,
    /// Whether to store extended attributes.
    pub xattrs: bool,
    /// When the image says that it was made, in seconds since 1970.
    pub mkfs_time: u32,
    /// For each file of the inventory, how early its data is stored: higher numbers first, and among equals the order of
    /// names. Empty for that order alone.
    pub priorities: Vec<i16>,
    /// Whether the end is filled with zeros up to a multiple of 4 KiB.
    pub padding: bool,
    /// Where the image begins in the output; what is before it is not touched.
    pub offset: u64,
    /// Whether blocks of a source that stores in the same way are taken as they are, whatever the level: same codec, same
    /// block size.
    pub keep_blocks: bool,
    /// Whether every block is decoded and compared, and the image read back, before it counts as made.
    pub verify: bool,
}

impl Default for Options {
    /// zstd at level 15, blocks of 128 KiB, as most tools do it; verified.
    fn default() -> Self {
        Options {
            compression: Some(Settings::Zstd { level: 15 }),
            block_bytes: 128 << 10,
            fragments: Fragments::SmallFiles,
            duplicates: true,
            exportable: true,
            xattrs: true,
            mkfs_time: 0,
            priorities: Vec::new(),
            padding: true,
            offset: 0,
            keep_blocks: true,
            verify: true,
        }
    }
}

/// What was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Inodes.
    pub files: u64,
    /// Regular files whose content is that of an earlier one.
    pub duplicates: u64,
    /// Bytes of content, holes and duplicates included.
    pub content_bytes: u64,
    /// Bytes of the image, padding included.
    pub image_bytes: u64,
    /// Bytes of data and fragment blocks.
    pub data_bytes: u64,
    /// Blocks that were taken from the source as they are stored there.
    pub kept_blocks: u64,
    /// Blocks that are stored as they are because encoding does not make them smaller.
    pub plain_blocks: u64,
    /// Paths and names of extended attributes that SquashFS cannot hold and that are therefore not in the image.
    pub lost_xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Paths of files whose time is before 1970 or after 2106; they got the nearest that there is.
    pub changed_times: Vec<Vec<u8>>,
}

/// Makes an image of the tree `fs`, whose inventory this is. The same tree and options give the same bytes, whatever the
/// number of threads. The caller commits the output.
///
/// Times lose what is below a second, and all but the last change of content. Sockets and devices are stored.
///
/// # Errors
/// [`Error::InvalidInput`] for options that no image can have; [`Error::File`] when a file cannot be read, changes while
/// it is read, or is more than the format can hold; [`Error::Limit`] for more than 65,535 different owners and groups;
/// [`Error::Io`] when the output cannot be written, or does not hold what was written.
pub fn create(
    fs: &dyn FileSystem,
    inventory: &Inventory,
    options: &Options,
    parallel: Parallel,
    progress: &dyn Progress,
    output: &mut Output,
) -> Result<Summary> {
    check(options)?;
    progress.expect(
        Some(inventory.file_count().into()),
        Some(inventory.content_bytes()),
    );
    let mut writer = Writer::new(fs, inventory, options, parallel, output)?;
    let duplicates = match options.duplicates {
        true => Duplicates::find(fs, inventory, parallel)?,
        false => Duplicates::default(),
    };
    writer.summary.duplicates = duplicates.len() as u64;
    let plan = Plan::new(fs, inventory, &duplicates, options)?;
    drop(duplicates);
    let described = writer.describe()?;
    let data = writer.data(&plan, progress)?;
    writer.metadata(&plan, described, data)
}

fn check(options: &Options) -> Result<()> {
    let block = options.block_bytes;
    let log2 = block.trailing_zeros() as u16;
    if !block.is_power_of_two() || !(BLOCK_LOG2_MIN..=BLOCK_LOG2_MAX).contains(&log2) {
        return Err(Error::InvalidInput(
            "the block size is not a power of two from 4 KiB to 1 MiB",
        ));
    }
    if let Some(settings) = &options.compression {
        if let Settings::Xz {
            dictionary_bytes, ..
        } = *settings
        {
            let bits = dictionary_bytes.count_ones();
            let halves = dictionary_bytes & (dictionary_bytes << 1) != 0;
            if dictionary_bytes < 8192 || !(bits == 1 || (bits == 2 && halves)) {
                return Err(Error::InvalidInput(
                    "the xz dictionary is not a power of two, or one and a half, from 8 KiB on",
                ));
            }
        }
        Encoder::new(settings).map_err(|error| Error::InvalidInput(error.as_str()))?;
    }
    Ok(())
}

struct Writer<'a> {
    fs: &'a dyn FileSystem,
    inventory: &'a Inventory,
    options: &'a Options,
    parallel: Parallel,
    output: &'a mut Output,
    codec: Codec,
    /// Where the next byte goes in the image.
    at: u64,
    /// The sum of what was written so far.
    written: Xxh64,
    summary: Summary,
}

/// What is known of files beside what the inventory says.
struct Described {
    xattrs: XattrWriter,
    /// The attribute set of each file.
    sets: Vec<Option<u32>>,
    /// Targets of symbolic links.
    targets: HashMap<FileId, Box<[u8]>>,
}

/// The attributes of one file, and its target if it is a symbolic link.
type Description = (Vec<Xattr>, Option<Box<[u8]>>);

/// Where the data is.
pub(crate) struct Data {
    files: Vec<Placed>,
    words: Vec<u32>,
    fragments: Vec<raw::FragmentEntry>,
}

#[derive(Clone, Copy, Default)]
struct Placed {
    start: u64,
    sparse: u64,
    /// Where the file's size words begin.
    words: usize,
}

impl<'a> Writer<'a> {
    fn new(
        fs: &'a dyn FileSystem,
        inventory: &'a Inventory,
        options: &'a Options,
        parallel: Parallel,
        output: &'a mut Output,
    ) -> Result<Self> {
        let mut writer = Writer {
            fs,
            inventory,
            options,
            parallel,
            output,
            codec: options
                .compression
                .map_or(Codec::Zlib, |settings| settings.codec()),
            at: SUPERBLOCK_BYTES as u64,
            written: Xxh64::new(0),
            summary: Summary {
                files: inventory.file_count().into(),
                content_bytes: inventory.content_bytes(),
                ..Summary::default()
            },
        };
        if let Some(record) = writer.options_record() {
            let header = record.len() as u16 | METADATA_PLAIN;
            writer.put(&header.to_le_bytes())?;
            writer.put(&record)?;
        }
        Ok(writer)
    }

    fn options_record(&self) -> Option<Vec<u8>> {
        let settings = self.options.compression?;
        Compressor::of(&settings).emit(self.options.block_bytes)
    }

    /// Appends to the image.
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.output
            .write_all_at(bytes, self.options.offset + self.at)?;
        self.at += bytes.len() as u64;
        if self.options.verify {
            self.written.update(bytes);
        }
        Ok(())
    }

    fn encoder(&self) -> Option<Encoder> {
        let mut settings = self.options.compression?;
        if let Settings::Xz {
            dictionary_bytes,
            filters,
            ..
        } = &mut settings
        {
            *dictionary_bytes = raw::METADATA_BYTES as u32;
            *filters = codec::Filters(0);
        }
        Encoder::new(&settings).ok()
    }

    fn metadata_writer(&self) -> MetadataWriter {
        MetadataWriter::new(self.encoder())
    }

    fn path(&self, file: FileId) -> Vec<u8> {
        self.inventory.path(self.inventory.first_name(file))
    }

    /// Reads link targets and extended attributes, on all threads.
    fn describe(&mut self) -> Result<Described> {
        let (fs, inventory) = (self.fs, self.inventory);
        let with_xattrs = self.options.xattrs;
        let mut described = Described {
            xattrs: XattrWriter::new(self.metadata_writer()),
            sets: vec![None; inventory.file_count() as usize],
            targets: HashMap::new(),
        };
        let files: Vec<FileId> = inventory.files().collect();
        let describe = |file: FileId| -> Result<Description> {
            let ino = inventory.ino(file);
            let xattrs = if with_xattrs {
                fs.xattrs(ino)?
            } else {
                Vec::new()
            };
            let target = if inventory.kind(file) == FileKind::Symlink {
                let target = fs.read_link(ino)?;
                if target.len() > TARGET_BYTES_MAX {
                    return Err(Error::Limit(
                        "the target of a symbolic link is longer than Linux follows",
                    ));
                }
                Some(target.into())
            } else {
                None
            };
            Ok((xattrs, target))
        };
        let mut lost = Vec::new();
        ordered(
            self.parallel,
            files.chunks(DESCRIBE_BATCH),
            || (),
            |(), batch| {
                let mut known = Vec::new();
                for &file in batch {
                    let path = || inventory.path(inventory.first_name(file));
                    let (xattrs, target) =
                        describe(file).map_err(|error| error.in_file("read", &path()))?;
                    if !xattrs.is_empty() || target.is_some() {
                        known.push((file, xattrs, target));
                    }
                }
                Ok(known)
            },
            |known| {
                for (file, mut xattrs, target) in known {
                    xattrs.retain(|xattr| {
                        let keep = is_storable(&xattr.name);
                        if !keep {
                            let path = inventory.path(inventory.first_name(file));
                            lost.push((path, xattr.name.to_vec()));
                        }
                        keep
                    });
                    described.sets[file.0 as usize] = described.xattrs.add(xattrs);
                    if let Some(target) = target {
                        described.targets.insert(file, target);
                    }
                }
                Ok::<(), Error>(())
            },
        )?;
        self.summary.lost_xattrs = lost;
        Ok(described)
    }

    /// Encodes and writes the files' data.
    fn data(&mut self, plan: &Plan, progress: &dyn Progress) -> Result<Data> {
        let (fs, inventory) = (self.fs, self.inventory);
        let block_bytes = self.options.block_bytes as usize;
        let mut data = Data {
            files: vec![Placed::default(); inventory.file_count() as usize],
            words: Vec::new(),
            fragments: vec![raw::FragmentEntry::new_zeroed(); plan.fragment_count()],
        };
        let encoding = Encoding {
            fs,
            inventory,
            block_bytes,
            data: self.options.compression,
            fragments: self.options.compression,
            verify: self.options.verify,
            buffers: Mutex::default(),
        };
        ordered(
            self.parallel,
            plan.jobs(fs, inventory),
            || encoding.worker(),
            |worker, job| encoding.work(worker, job),
            |done| {
                let begin = |data: &mut Data, file: FileId, at: u64| {
                    data.files[file.0 as usize] = Placed {
                        start: at,
                        sparse: 0,
                        words: data.words.len(),
                    };
                };
                match done {
                    Done::Holes { file, first, bytes } => {
                        if first {
                            begin(&mut data, file, self.at);
                        }
                        let blocks = bytes.div_ceil(block_bytes as u64) as usize;
                        data.words.extend(std::iter::repeat_n(0, blocks));
                        data.files[file.0 as usize].sparse += bytes;
                        progress.advance(0, bytes);
                    }
                    Done::Block {
                        file,
                        first,
                        len,
                        stored,
                    } => {
                        if first {
                            begin(&mut data, file, self.at);
                        }
                        if let Some(stored) = stored {
                            data.words.push(stored.word());
                            self.note(&stored);
                            self.put(&stored.buffer[..stored.len])?;
                            encoding.recycle(stored.buffer);
                        } else {
                            data.words.push(0);
                            data.files[file.0 as usize].sparse += len as u64;
                        }
                        progress.advance(u64::from(first), len as u64);
                    }
                    Done::Fragment {
                        number,
                        stored,
                        len,
                        files,
                    } => {
                        data.fragments[number as usize] = raw::FragmentEntry {
                            start_block: self.at.into(),
                            size: stored.word().into(),
                            unused: 0.into(),
                        };
                        self.note(&stored);
                        self.put(&stored.buffer[..stored.len])?;
                        encoding.recycle(stored.buffer);
                        progress.advance(files as u64, len as u64);
                    }
                }
                Ok(())
            },
        )?;
        self.summary.data_bytes = self.at - SUPERBLOCK_BYTES as u64;
        Ok(data)
    }

    fn note(&mut self, stored: &Stored) {
        self.summary.plain_blocks += u64::from(stored.plain);
        self.summary.kept_blocks += u64::from(stored.kept);
    }

    /// Writes all that is not data.
    fn metadata(mut self, plan: &Plan, described: Described, data: Data) -> Result<Summary> {
        let inventory = self.inventory;
        let mut ids = Ids::default();
        let mut inodes = self.metadata_writer();
        let mut listings = self.metadata_writer();
        let mut references = vec![Reference(0); inventory.file_count() as usize];
        let mut listing = ListingWriter::default();
        let mut record = Vec::new();
        for step in inventory.steps() {
            let Step::Leave(entry) = step else { continue };
            let dir = inventory.file(entry);
            let mut subdirectories = 0;
            listing.clear();
            for entry in inventory.entries(dir) {
                let file = inventory.file(entry);
                let kind = inventory.kind(file);
                // Written already: a directory because it was left before, a file under an earlier name.
                let is_written =
                    kind == FileKind::Directory || references[file.0 as usize] != Reference(0);
                subdirectories += u32::from(kind == FileKind::Directory);
                if !is_written {
                    record.clear();
                    let inode = self.inode(file, plan, &described, &data, &mut ids)?;
                    inode.emit(&mut record);
                    if let Body::File(stored) = &inode.body {
                        let words = data.files[plan.shows[file.0 as usize].0 as usize].words;
                        let count = stored.block_count(self.options.block_bytes) as usize;
                        for word in &data.words[words..words + count] {
                            record.extend(word.to_le_bytes());
                        }
                    }
                    references[file.0 as usize] = written_reference(&inodes);
                    inodes.write(&record);
                }
            }
            for entry in inventory.entries(dir) {
                let file = inventory.file(entry);
                let reference = unwritten(references[file.0 as usize]);
                listing.push(
                    inventory.name(entry),
                    reference,
                    file.0 + 1,
                    inventory.kind(file),
                );
            }
            let parent = match entry == inventory.root() {
                true => inventory.file_count().wrapping_add(1),
                false => inventory.parent(entry).0 + 1,
            };
            record.clear();
            let (place, index) = write_listing(&mut listing, &mut listings);
            let mut inode = self.common(dir, &described, &mut ids)?;
            inode.nlink = subdirectories + 2;
            inode.body = Body::Directory {
                listing: place,
                parent,
                index_count: index.len() as u16,
            };
            inode.emit(&mut record);
            for (index, name) in index {
                record.extend(index.as_bytes());
                record.extend(name);
            }
            references[dir.0 as usize] = written_reference(&inodes);
            inodes.write(&record);
        }
        let root = unwritten(references[0]);

        let mut superblock = Superblock {
            codec: self.codec,
            block_bytes: self.options.block_bytes,
            inode_count: inventory.file_count(),
            mkfs_time: self.options.mkfs_time,
            fragment_count: data.fragments.len() as u32,
            id_count: ids.numbers.len() as u32,
            flags: self.flags(),
            root: root.0,
            bytes_used: 0,
            inode_table: self.at,
            directory_table: 0,
            fragment_table: None,
            export_table: None,
            id_table: 0,
            xattr_table: None,
        };
        let (stored, _) = inodes.finish();
        self.put(&stored)?;
        superblock.directory_table = self.at;
        let (stored, _) = listings.finish();
        self.put(&stored)?;
        drop(stored);
        let mut table = Vec::new();
        if !data.fragments.is_empty() {
            let mut writer = self.metadata_writer();
            writer.write(data.fragments.as_bytes());
            superblock.fragment_table = Some(emit_table(writer, self.at, &mut table));
            self.put(&std::mem::take(&mut table))?;
        }
        if self.options.exportable {
            let mut writer = self.metadata_writer();
            for &reference in &references {
                writer.write(&unwritten(reference).0.to_le_bytes());
            }
            superblock.export_table = Some(emit_table(writer, self.at, &mut table));
            self.put(&std::mem::take(&mut table))?;
        }
        let mut writer = self.metadata_writer();
        for id in &ids.numbers {
            writer.write(&id.to_le_bytes());
        }
        superblock.id_table = emit_table(writer, self.at, &mut table);
        self.put(&std::mem::take(&mut table))?;
        let writer = self.metadata_writer();
        let Described { xattrs, sets, .. } = described;
        superblock.xattr_table = xattrs.finish(writer, self.at, &mut table);
        if superblock.xattr_table.is_none() {
            superblock.flags |= flags::NO_XATTRS;
        }
        self.put(&table)?;
        superblock.bytes_used = self.at;
        self.finish(superblock)?;
        if self.options.verify {
            self.verify(plan, &sets, &data)?;
        }
        Ok(self.summary)
    }

    /// Fills up, and writes the superblock.
    fn finish(&mut self, superblock: Superblock) -> Result<()> {
        let bytes_used = self.at;
        if self.options.padding {
            let zeros = [0; PADDING_BYTES as usize];
            let len = bytes_used.next_multiple_of(PADDING_BYTES) - bytes_used;
            self.put(&zeros[..len as usize])?;
        }
        self.output
            .write_all_at(&superblock.emit(), self.options.offset)?;
        self.summary.image_bytes = self.at;
        Ok(())
    }

    /// Reads everything back.
    fn verify(&self, plan: &Plan, sets: &[Option<u32>], data: &Data) -> Result<()> {
        let (inventory, block_bytes) = (self.inventory, self.options.block_bytes);
        let behind_superblock = self.options.offset + SUPERBLOCK_BYTES as u64;
        let len = self.at - SUPERBLOCK_BYTES as u64;
        verify::bytes(
            &self.output.reader()?,
            behind_superblock,
            len,
            self.written.digest(),
        )?;
        let limits = Limits::default();
        let image = Squashfs::open_at(self.output.reader()?, self.options.offset, &limits)?;
        let expected = Expected {
            fs: self.fs,
            inventory,
            metadata: &|file| {
                let mut metadata = inventory.metadata(file);
                let seconds = nearest_seconds(metadata.mtime);
                metadata.mtime = Time {
                    seconds: seconds.into(),
                    nanoseconds: 0,
                };
                metadata.nlink = inventory.name_count(file);
                metadata
            },
            has_xattrs: &|file| sets[file.0 as usize].is_some(),
            data: &|file| {
                let shown = plan.shows[file.0 as usize];
                let placed = data.files[shown.0 as usize];
                let tail = plan.places[shown.0 as usize];
                let blocks = plan
                    .blocks_len(inventory.size(file), shown)
                    .div_ceil(block_bytes.into());
                let words = &data.words[placed.words..placed.words + blocks as usize];
                (placed.start, words, tail)
            },
        };
        verify::tree(&image, &expected)
    }

    fn flags(&self) -> u16 {
        let mut flags = 0;
        let mut set = |condition: bool, bit: u16| flags |= if condition { bit } else { 0 };
        let plain = self.options.compression.is_none();
        set(
            plain,
            flags::INODES_PLAIN | flags::DATA_PLAIN | flags::FRAGMENTS_PLAIN,
        );
        set(plain, flags::XATTRS_PLAIN | flags::IDS_PLAIN);
        set(
            self.options.fragments == Fragments::None,
            flags::NO_FRAGMENTS,
        );
        set(
            self.options.fragments == Fragments::Always,
            flags::ALWAYS_FRAGMENTS,
        );
        set(self.options.duplicates, flags::DUPLICATES);
        set(self.options.exportable, flags::EXPORTABLE);
        set(self.options_record().is_some(), flags::OPTIONS);
        flags
    }

    /// What all inodes have.
    fn common(&mut self, file: FileId, described: &Described, ids: &mut Ids) -> Result<Inode> {
        let metadata = self.inventory.metadata(file);
        let mtime = self.seconds(file, metadata.mtime);
        Ok(Inode {
            permissions: metadata.permissions,
            uid: ids.index(metadata.uid)?,
            gid: ids.index(metadata.gid)?,
            mtime,
            number: file.0 + 1,
            nlink: self.inventory.name_count(file),
            xattrs: described.sets[file.0 as usize],
            body: Body::Ipc {
                kind: metadata.kind,
            },
        })
    }

    /// The time that a file gets, and a note if that is another one.
    fn seconds(&mut self, file: FileId, time: Time) -> u32 {
        let seconds = nearest_seconds(time);
        if i64::from(seconds) != time.seconds {
            let path = self.path(file);
            self.summary.changed_times.push(path);
        }
        seconds
    }

    /// The inode of a file that is no directory.
    fn inode(
        &mut self,
        file: FileId,
        plan: &Plan,
        described: &Described,
        data: &Data,
        ids: &mut Ids,
    ) -> Result<Inode> {
        let mut inode = self.common(file, described, ids)?;
        let kind = self.inventory.kind(file);
        let size = self.inventory.size(file);
        inode.body = match kind {
            FileKind::Regular => {
                let shown = plan.shows[file.0 as usize].0 as usize;
                let placed = data.files[shown];
                Body::File(File {
                    start: placed.start,
                    size,
                    sparse: placed.sparse,
                    tail: plan.places[shown],
                })
            }
            FileKind::Symlink => {
                let target = described.targets.get(&file).cloned().unwrap_or_default();
                if target.is_empty() {
                    let error = Error::InvalidInput("a symbolic link without a target");
                    return Err(error.in_file("store", &self.path(file)));
                }
                Body::Symlink { target }
            }
            FileKind::BlockDevice | FileKind::CharDevice => {
                let Some(rdev) = encode_device(self.inventory.metadata(file).rdev) else {
                    let error = Error::Limit("a device number with more than 12 and 20 bits");
                    return Err(error.in_file("store", &self.path(file)));
                };
                Body::Device { kind, rdev }
            }
            FileKind::Fifo | FileKind::Socket | FileKind::Directory => Body::Ipc { kind },
        };
        Ok(inode)
    }
}

/// The nearest time that the format has.
fn nearest_seconds(time: Time) -> u32 {
    time.seconds.clamp(0, u32::MAX.into()) as u32
}

/// A reference that was given, one more so that none is 0: the first inode is at 0.
fn written_reference(inodes: &MetadataWriter) -> Reference {
    Reference(inodes.reference().0 + 1)
}

fn unwritten(reference: Reference) -> Reference {
    Reference(reference.0 - 1)
}

/// Writes a listing, and gives its place and its index: one record for each run that is the first to begin in its
/// metadata block, the listing's own first block excepted.
fn write_listing(
    listing: &mut ListingWriter,
    listings: &mut MetadataWriter,
) -> (Listing, Vec<(raw::DirectoryIndex, Vec<u8>)>) {
    let from = listings.reference();
    let len = listing.finish().len();
    let starts: Vec<(usize, Vec<u8>)> = listing
        .runs()
        .map(|(at, name)| (at as usize, name.to_vec()))
        .collect();
    let mut index = Vec::new();
    let mut block = from.block();
    for (n, (at, name)) in starts.iter().enumerate() {
        let here = listings.reference();
        if here.block() != block && index.len() < usize::from(u16::MAX) {
            block = here.block();
            let record = raw::DirectoryIndex {
                index: (*at as u32).into(),
                start_block: (here.block() as u32).into(),
                size: (name.len() as u32 - 1).into(),
            };
            index.push((record, name.clone()));
        }
        let end = starts.get(n + 1).map_or(len, |(at, _)| *at);
        listings.write(&listing.finish()[*at..end]);
    }
    let place = if len == 0 {
        Listing {
            block: 0,
            offset: 0,
            len: 0,
        }
    } else {
        Listing {
            block: from.block() as u32,
            offset: from.offset(),
            len: len as u32,
        }
    };
    (place, index)
}

/// Owners and groups, each once, in the order of their first use.
#[derive(Default)]
struct Ids {
    numbers: Vec<u32>,
    indices: HashMap<u32, u16>,
}

impl Ids {
    fn index(&mut self, id: u32) -> Result<u16> {
        if let Some(&index) = self.indices.get(&id) {
            return Ok(index);
        }
        if self.numbers.len() == IDS_MAX {
            return Err(Error::Limit("more than 65,535 different owners and groups"));
        }
        let index = self.numbers.len() as u16;
        self.numbers.push(id);
        self.indices.insert(id, index);
        Ok(index)
    }
}
