//! Parts of an image that several machines make, each encoding some of the blocks, and the image
//! that is joined from them.
//!
//! All parts plan the whole image; the plan is a function of the tree, the options and the files
//! that are equal. The content of all files, in the order in which it is stored, is divided evenly,
//! and a part holds the blocks that begin in its share, one after another. Joining makes the same
//! plan and takes the blocks in its order, so it does not know where a part ends.
//! `docs/formats/part.md` describes the file.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::collections::HashMap;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::ops::Range;
use std::sync::Arc;

use tree::{
    Duplicates, EntryId, Error, FileId, FileKind, Inventory, Output, ReadAt, Result,
    SequentialReader, Verify, records, to_u64, to_usize,
};
use xxhash::{Xxh64, xxh64};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::options::Options;
use crate::raw::BLOCK_PLAIN;

/// The first bytes of a part: the name, and bytes that no text and no transfer in text mode has.
const MAGIC: [u8; 8] = *b"\x89RPART\r\n";
/// The size word that ends the blocks.
const END: u32 = u32::MAX;
/// Maximum number of parts: the shares of an image of 1 TiB are 16 MiB then.
const PARTS_MAX: u32 = 65_536;
/// How much of a part is read or written at once.
const BUFFER_BYTES: usize = 1 << 20;
/// How many pairs of equal files are read at once.
const PAIRS_AT_ONCE: u64 = 8192;

records! {
    /// The beginning of a part.
    struct PartHeader[96] {
        magic: [u8; 8],
        number: U32,
        parts: U32,
        /// The version of this crate, with zeros behind it.
        version: [u8; 32],
        /// Digests of the options, the tree, and the list of equal files.
        options: U64,
        tree: U64,
        equal: U64,
        /// Number of names in the tree. A part of the digest of each follows the header.
        names: U64,
        /// Number of pairs of equal files, which follow then.
        pairs: U64,
        /// XXH64 of the bytes before.
        checksum: U64,
    }

    /// A file, and the first file with the same content.
    struct EqualFile[8] {
        file: U32,
        original: U32,
    }
}

const HEADER_BYTES: u64 = 96;

/// The number of a part among all parts of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartNumber {
    /// From 1; 0 holds no blocks, only which files are equal.
    pub number: u32,
    /// The number of parts, without part 0.
    pub of: u32,
}

impl PartNumber {
    /// A number that is possible.
    pub fn new(number: u32, of: u32) -> Option<PartNumber> {
        ((1..=PARTS_MAX).contains(&of) && number <= of).then_some(PartNumber { number, of })
    }

    /// Its share of this many bytes. The last one includes blocks that begin behind all content.
    pub(crate) fn share(self, bytes: u64) -> Range<u64> {
        let cut = |number: u32| {
            let cut = u128::from(bytes).saturating_mul(number.into());
            let cut = cut.checked_div(self.of.into()).unwrap_or(0);
            u64::try_from(cut).unwrap_or(u64::MAX)
        };
        match self.number.checked_sub(1) {
            None => 0..0,
            Some(before) if self.number == self.of => cut(before)..u64::MAX,
            Some(before) => cut(before)..cut(self.number),
        }
    }
}

/// The digests of everything that the blocks of an image depend on, but for the content of files.
#[derive(Clone, Debug)]
pub struct PartSource {
    options: u64,
    tree: u64,
    /// The lower half of the digest of each name.
    names: Vec<u16>,
}

/// The reason why a part is not one of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartMismatch {
    /// It was made by this version.
    Version(Vec<u8>),
    /// It was made with other options.
    Options,
    /// It was made of another tree, which differs first in this name, if that is known.
    Tree(Option<EntryId>),
}

impl PartSource {
    /// The digests of a tree, by names, kinds, sizes and modification times, and of the options
    /// that the blocks depend on.
    pub fn of(inventory: &Inventory<'_>, options: &Options) -> PartSource {
        let mut all = Xxh64::new(0);
        let digest = |entry| {
            let file = inventory.file(entry);
            let mut hash = Xxh64::new(0);
            hash.update(&inventory.name(entry));
            hash.update(&inventory.parent(entry).0.to_le_bytes());
            hash.update(&file.0.to_le_bytes());
            let kind = inventory.kind(file);
            hash.update(format!("{kind:?}").as_bytes());
            // Both of a directory depend on the file system and on files that are left out.
            if kind != FileKind::Directory {
                let mtime = inventory.metadata(file).mtime;
                hash.update(&inventory.size(file).to_le_bytes());
                hash.update(&mtime.seconds.to_le_bytes());
                hash.update(&mtime.nanoseconds.to_le_bytes());
            }
            let digest = hash.digest();
            all.update(&digest.to_le_bytes());
            let [low, high, ..] = digest.to_le_bytes();
            u16::from_le_bytes([low, high])
        };
        let names = inventory.names().map(digest).collect();
        PartSource {
            options: options_digest(inventory, options),
            tree: all.digest(),
            names,
        }
    }
}

/// A digest of the options that blocks depend on, and of the form in which the source stores data.
fn options_digest(inventory: &Inventory<'_>, options: &Options) -> u64 {
    let storage = inventory.tree().storage();
    let mut packing: Vec<_> = options.packing.iter().collect();
    packing.sort_by_key(|(file, _)| **file);
    // Those that matter when the parts are joined have the same value.
    let of_blocks = options
        .clone()
        .exportable(true)
        .xattrs(true)
        .mkfs_time(0)
        .epoch(None)
        .sparse_max(0)
        .packing(HashMap::new())
        .padding(true)
        .pad_bytes(0)
        .align_bytes(1)
        .data_begin(0)
        .offset(0)
        .verify(Verify::Nothing);
    let kept = (storage.stored_extents, storage.block_encoding);
    let words = format!("{of_blocks:?} {packing:?} {kept:?}");
    xxh64(words.as_bytes(), 0)
}

fn version() -> [u8; 32] {
    let mut version = [0; 32];
    let words = env!("CARGO_PKG_VERSION").bytes();
    version
        .iter_mut()
        .zip(words)
        .for_each(|(to, from)| *to = from);
    version
}

/// The header of a part: its number, and the digests of its image.
#[derive(Clone, Debug)]
pub struct ImagePart {
    header: PartHeader,
    number: PartNumber,
}

impl ImagePart {
    /// Reads the header of a part.
    ///
    /// # Errors
    /// It is no part, its header is damaged, or it cannot be read.
    pub fn read(bytes: &dyn ReadAt) -> Result<ImagePart> {
        let mut header = PartHeader::new_zeroed();
        let size = bytes.size()?;
        if size >= HEADER_BYTES {
            bytes.read_exact_at(header.as_mut_bytes(), 0)?;
        }
        if header.magic != MAGIC {
            let start = u64::from_le_bytes(header.magic);
            return Err(Error::corrupt("not a part of an image", 0, start));
        }
        let (checksum, number) = (header.checksum.get(), header.number.get());
        if header.digest() != checksum {
            let what = "the checksum of the header of a part does not match";
            return Err(Error::corrupt(
                what,
                HEADER_BYTES.saturating_sub(8),
                checksum,
            ));
        }
        let Some(number) = PartNumber::new(number, header.parts.get()) else {
            let what = "the number of a part is too large";
            return Err(Error::corrupt(what, 8, number.into()));
        };
        let part = ImagePart { header, number };
        if part.blocks_at().is_none_or(|at| at > size) {
            let what = "a part ends within its tables";
            return Err(Error::corrupt(what, HEADER_BYTES, size));
        }
        Ok(part)
    }

    /// Its number.
    pub fn number(&self) -> PartNumber {
        self.number
    }

    /// Whether the same files were equal for another part.
    pub fn has_equal_files_of(&self, other: &ImagePart) -> bool {
        self.header.equal == other.header.equal
    }

    /// The reason why it is not a part of an image of this source.
    ///
    /// # Errors
    /// The part cannot be read.
    pub fn mismatch(
        &self,
        bytes: &Arc<dyn ReadAt>,
        inventory: &Inventory<'_>,
        source: &PartSource,
    ) -> Result<Option<PartMismatch>> {
        let header = &self.header;
        if header.version != version() {
            let words = header.version.split(|&byte| byte == 0).next();
            let words = words.unwrap_or_default().to_vec();
            return Ok(Some(PartMismatch::Version(words)));
        }
        if header.tree.get() != source.tree {
            let place = self.first_difference(bytes, &source.names)?;
            let entry = place.and_then(|place| inventory.names().nth(place));
            return Ok(Some(PartMismatch::Tree(entry)));
        }
        Ok((header.options.get() != source.options).then_some(PartMismatch::Options))
    }

    /// The place of the first name that differs from these.
    fn first_difference(&self, bytes: &Arc<dyn ReadAt>, names: &[u16]) -> Result<Option<usize>> {
        let stored = reader(bytes, HEADER_BYTES);
        let mut stored = stored.take(self.header.names.get().saturating_mul(2));
        let mut word = [0; 2];
        for (place, name) in names.iter().enumerate() {
            match stored.read_exact(&mut word) {
                Ok(()) if word == name.to_le_bytes() => {}
                Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                    return Err(error.into());
                }
                _ => return Ok(Some(place)),
            }
        }
        Ok(None)
    }

    /// The equal files, which parts 0 and 1 list.
    ///
    /// # Errors
    /// The part is damaged or cannot be read.
    pub fn equal_files(
        &self,
        bytes: &Arc<dyn ReadAt>,
        inventory: &Inventory<'_>,
    ) -> Result<Duplicates> {
        const DAMAGED: &str = "the list of equal files in a part is damaged";
        let (mut at, mut left) = (self.pairs_at().unwrap_or(0), self.header.pairs.get());
        let mut stored = reader(bytes, at);
        let (mut pairs, mut hash) = (Vec::new(), Xxh64::new(0));
        let is_stored = |file: FileId| {
            file.0 < inventory.file_count() && inventory.kind(file) == FileKind::Regular
        };
        while left > 0 {
            let mut table = vec![EqualFile::new_zeroed(); to_usize(left.min(PAIRS_AT_ONCE))];
            let read = stored.read_exact(table.as_mut_bytes());
            read.map_err(|error| cut_off(error, at))?;
            hash.update(table.as_bytes());
            for pair in &table {
                let (file, original) = (FileId(pair.file.get()), FileId(pair.original.get()));
                if !is_stored(file)
                    || !is_stored(original)
                    || inventory.size(file) != inventory.size(original)
                {
                    return Err(Error::corrupt(DAMAGED, at, pair.file.get().into()));
                }
                pairs.push((file, original));
                at = at.saturating_add(8);
            }
            left = left.saturating_sub(to_u64(table.len()));
        }
        if hash.digest() != self.header.equal.get() {
            return Err(Error::corrupt(DAMAGED, at, hash.digest()));
        }
        let equal = Duplicates::of(pairs);
        // Of files that are the originals of each other, none would be stored.
        let is_equal = |&(_, original): &(FileId, FileId)| equal.original(original).is_some();
        let wrong = equal.pairs().find(is_equal);
        match wrong {
            Some((FileId(file), _)) => Err(Error::corrupt(DAMAGED, at, file.into())),
            None => Ok(equal),
        }
    }

    /// Where the pairs of equal files begin.
    fn pairs_at(&self) -> Option<u64> {
        let bytes = self.header.names.get().checked_mul(2)?;
        bytes.checked_add(HEADER_BYTES)
    }

    /// Where the blocks begin.
    fn blocks_at(&self) -> Option<u64> {
        let bytes = self.header.pairs.get().checked_mul(8)?;
        bytes.checked_add(self.pairs_at()?)
    }
}

impl PartHeader {
    fn digest(&self) -> u64 {
        let bytes = self.as_bytes();
        xxh64(
            bytes
                .split_last_chunk::<8>()
                .map_or(bytes, |(rest, _)| rest),
            0,
        )
    }
}

fn reader(bytes: &Arc<dyn ReadAt>, at: u64) -> BufReader<SequentialReader<Arc<dyn ReadAt>>> {
    let reader = SequentialReader::starting_at(Arc::clone(bytes), at);
    BufReader::with_capacity(BUFFER_BYTES, reader)
}

/// The error of a read at `at`, which may be behind the end.
fn cut_off(error: io::Error, at: u64) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::corrupt("a part is cut off", at, 0),
        _ => error.into(),
    }
}

/// The parts of an image in order, and how to open the one with this index.
pub type Parts<'a> = (
    &'a [ImagePart],
    &'a dyn Fn(usize) -> Result<Arc<dyn ReadAt>>,
);

/// Reads the blocks of all parts, one after another.
pub(crate) struct PartBlocks<'a> {
    parts: Parts<'a>,
    /// The index of the next part.
    next: usize,
    open: Option<OpenPart>,
}

/// The part that is read.
struct OpenPart {
    reader: BufReader<SequentialReader<Arc<dyn ReadAt>>>,
    at: u64,
    /// Of the size words and checksums.
    sum: Xxh64,
}

impl<'a> PartBlocks<'a> {
    pub(crate) fn new(parts: Parts<'a>) -> PartBlocks<'a> {
        PartBlocks {
            parts,
            next: 0,
            open: None,
        }
    }

    /// Reads the next block into a buffer of the size of a block, and returns its size word: 0 for
    /// a hole. Its content has this many bytes, if that is known.
    pub(crate) fn next(&mut self, content_bytes: Option<usize>, buffer: &mut [u8]) -> Result<u32> {
        let word = self.next_word(|open| open.block(content_bytes, buffer))?;
        word.ok_or(Error::Inconsistent("the parts have too few blocks"))
    }

    /// Ends the last part.
    pub(crate) fn finish(&mut self) -> Result<()> {
        match self.next_word(|open| open.block(Some(0), &mut []))? {
            None => Ok(()),
            Some(_) => Err(Error::Inconsistent("the parts have too many blocks")),
        }
    }

    fn next_word(
        &mut self,
        mut read: impl FnMut(&mut OpenPart) -> Result<Option<u32>>,
    ) -> Result<Option<u32>> {
        loop {
            let number = to_u64(self.next);
            if let Some(open) = &mut self.open {
                let word = read(open).map_err(|error| error.in_part("part", number))?;
                if word.is_some() {
                    return Ok(word);
                }
                self.open = None;
            }
            let Some(part) = self.parts.0.get(self.next) else {
                return Ok(None);
            };
            let bytes = (self.parts.1)(self.next)?;
            self.next = self.next.saturating_add(1);
            if ImagePart::read(&*bytes)?.header.checksum != part.header.checksum {
                return Err(Error::Changed.in_part("part", to_u64(self.next)));
            }
            let at = part.blocks_at().unwrap_or(0);
            self.open = Some(OpenPart {
                reader: reader(&bytes, at),
                at,
                sum: Xxh64::new(0),
            });
        }
    }
}

impl OpenPart {
    /// The next block; `None` at the end.
    fn block(&mut self, content_bytes: Option<usize>, buffer: &mut [u8]) -> Result<Option<u32>> {
        let at = self.at;
        let word: U32 = self.record()?;
        let word = word.get();
        if word == END {
            let sum = self.sum.digest();
            let stored: U64 = self.record()?;
            if stored.get() != sum {
                let what = "the checksum at the end of a part does not match";
                return Err(Error::corrupt(what, at, stored.get()));
            }
            return Ok(None);
        }
        self.sum.update(&word.to_le_bytes());
        if word == 0 {
            return Ok(Some(0));
        }
        let (len, is_plain) = (to_usize(word & !BLOCK_PLAIN), word & BLOCK_PLAIN != 0);
        let is_possible = match content_bytes {
            Some(bytes) if is_plain => len == bytes,
            Some(bytes) => len < bytes,
            None => len <= buffer.len(),
        };
        let Some(block) = buffer.get_mut(..len).filter(|_| is_possible && len > 0) else {
            let what = "a block of a part has a size that it cannot have";
            return Err(Error::corrupt(what, at, word.into()));
        };
        let checksum: U64 = self.record()?;
        self.sum.update(checksum.as_bytes());
        let read = self.reader.read_exact(block);
        read.map_err(|error| cut_off(error, self.at))?;
        if xxh64(block, 0) != checksum.get() {
            let what = "the checksum of a block of a part does not match";
            return Err(Error::corrupt(what, self.at, xxh64(block, 0)));
        }
        self.at = self.at.saturating_add(to_u64(len));
        Ok(Some(word))
    }

    fn record<T: FromBytes + IntoBytes>(&mut self) -> Result<T> {
        let mut record = T::new_zeroed();
        let read = self.reader.read_exact(record.as_mut_bytes());
        read.map_err(|error| cut_off(error, self.at))?;
        self.at = self.at.saturating_add(to_u64(size_of::<T>()));
        Ok(record)
    }
}

/// Writes a part.
pub(crate) struct PartWriter<'a> {
    out: BufWriter<&'a mut Output>,
    sum: Xxh64,
    bytes: u64,
}

impl<'a> PartWriter<'a> {
    /// Writes the header and the tables.
    pub(crate) fn new(
        number: PartNumber,
        source: &PartSource,
        equal: &Duplicates,
        output: &'a mut Output,
    ) -> Result<PartWriter<'a>> {
        let mut pairs: Vec<_> = equal.pairs().collect();
        pairs.sort_unstable();
        let pairs = pairs.iter().map(|(file, original)| EqualFile {
            file: file.0.into(),
            original: original.0.into(),
        });
        let mut pairs: Vec<EqualFile> = pairs.collect();
        let equal = xxh64(pairs.as_bytes(), 0);
        if number.number > 1 {
            pairs.clear();
        }
        let mut header = PartHeader {
            magic: MAGIC,
            number: number.number.into(),
            parts: number.of.into(),
            version: version(),
            options: source.options.into(),
            tree: source.tree.into(),
            equal: equal.into(),
            names: to_u64(source.names.len()).into(),
            pairs: to_u64(pairs.len()).into(),
            checksum: 0.into(),
        };
        header.checksum = header.digest().into();
        let mut writer = PartWriter {
            out: BufWriter::with_capacity(BUFFER_BYTES, output),
            sum: Xxh64::new(0),
            bytes: 0,
        };
        writer.write(header.as_bytes())?;
        for name in &source.names {
            writer.write(&name.to_le_bytes())?;
        }
        writer.write(pairs.as_bytes())?;
        Ok(writer)
    }

    /// Appends a block with its size word.
    pub(crate) fn put(&mut self, word: u32, block: &[u8]) -> Result<()> {
        let checksum = xxh64(block, 0).to_le_bytes();
        self.sum.update(&word.to_le_bytes());
        self.write(&word.to_le_bytes())?;
        self.sum.update(&checksum);
        self.write(&checksum)?;
        self.write(block)
    }

    /// Appends a block that is nothing but a hole.
    pub(crate) fn put_hole(&mut self) -> Result<()> {
        self.sum.update(&[0; 4]);
        self.write(&[0; 4])
    }

    /// Ends the part and returns its size in bytes.
    pub(crate) fn finish(mut self) -> Result<u64> {
        self.write(&END.to_le_bytes())?;
        let sum = self.sum.digest();
        self.write(&sum.to_le_bytes())?;
        self.out.flush()?;
        Ok(self.bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes = self.bytes.saturating_add(to_u64(bytes.len()));
        Ok(self.out.write_all(bytes)?)
    }
}
