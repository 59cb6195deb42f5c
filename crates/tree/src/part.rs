//! Parts of an image that several machines make, each encoding some of the content, and the image
//! that is joined from them.
//!
//! All parts plan the whole image; the plan is a function of the tree, the options and the files
//! that are equal. The content of all files, in the order in which it is stored, is divided evenly,
//! and a part holds the records of its share, one after another: blocks of SquashFS, results of
//! jobs of btrfs. Joining takes the records in order, so it does not know where a part ends.
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

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::ops::Range;
use std::sync::Arc;

use xxhash::{Xxh64, xxh64};

use crate::{
    Duplicates, EntryId, Error, FileId, FileKind, Inventory, Output, ReadAt, Result,
    SequentialReader, high_u32, low_u32, to_u64, to_usize, wide_u64,
};

/// The first bytes of a part: the name, and bytes that no text and no transfer in text mode has.
const MAGIC: [u8; 8] = *b"\x89RPART\r\n";
/// The word that ends the records.
const END: u32 = u32::MAX;
/// Maximum number of parts: the shares of an image of 1 TiB are 16 MiB then.
const PARTS_MAX: u32 = 65_536;
/// How much of a part is read or written at once.
const BUFFER_BYTES: usize = 1 << 20;
/// How much is read with the word of a record: many small records, or the beginning of a large one.
const AHEAD_BYTES: usize = 8 << 10;
/// How many pairs of equal files are read at once.
const PAIRS_AT_ONCE: u64 = 8192;

/// The beginning of a part. The checksum of these fields is its last field.
#[derive(Clone, Copy, Debug)]
struct PartHeader {
    number: PartNumber,
    /// The version of this crate, with zeros behind it.
    version: [u8; 32],
    /// Digests of the options, the tree, and the list of equal files.
    options: u64,
    tree: u64,
    equal: u64,
    /// Number of names in the tree. A part of the digest of each follows the header.
    names: u64,
    /// Number of pairs of equal files, which follow then: a file, and the first file with the same
    /// content.
    pairs: u64,
}

const HEADER_LEN: usize = 96;
const HEADER_BYTES: u64 = 96;

/// The number of a part among all parts of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartNumber {
    /// From 1; 0 holds no records, only which files are equal.
    pub number: u32,
    /// The number of parts, without part 0.
    pub of: u32,
}

impl PartNumber {
    /// A number that is possible.
    pub fn new(number: u32, of: u32) -> Option<PartNumber> {
        ((1..=PARTS_MAX).contains(&of) && number <= of).then_some(PartNumber { number, of })
    }

    /// Its share of this many bytes. The last one includes records that begin behind all content.
    pub fn share(self, bytes: u64) -> Range<u64> {
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

/// The digests of everything that the records of an image depend on, but for the content of files.
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
    /// The digests of a tree, by names, kinds, sizes and modification times, of a text about the
    /// format and the options that the records depend on, and of the form in which the source
    /// stores data.
    pub fn of(inventory: &Inventory<'_>, options: &str) -> PartSource {
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
        let storage = inventory.tree().storage();
        let kept = (storage.stored_extents, storage.block_encoding);
        PartSource {
            options: xxh64(format!("{options} {kept:?}").as_bytes(), 0),
            tree: all.digest(),
            names,
        }
    }
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
}

impl ImagePart {
    /// Reads the header of a part.
    ///
    /// # Errors
    /// It is no part, its header is damaged, or it cannot be read.
    pub fn read(bytes: &dyn ReadAt) -> Result<ImagePart> {
        let (size, mut header) = (bytes.size()?, [0; HEADER_LEN]);
        if size >= HEADER_BYTES {
            bytes.read_exact_at(&mut header, 0)?;
        }
        let part = ImagePart {
            header: PartHeader::parse(&header)?,
        };
        if part.records_at().is_none_or(|at| at > size) {
            let what = "a part ends within its tables";
            return Err(Error::corrupt(what, HEADER_BYTES, size));
        }
        Ok(part)
    }

    /// Its number.
    pub fn number(&self) -> PartNumber {
        self.header.number
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
        if header.tree != source.tree {
            let place = self.first_difference(bytes, &source.names)?;
            let entry = place.and_then(|place| inventory.names().nth(place));
            return Ok(Some(PartMismatch::Tree(entry)));
        }
        Ok((header.options != source.options).then_some(PartMismatch::Options))
    }

    /// The place of the first name that differs from these.
    fn first_difference(&self, bytes: &Arc<dyn ReadAt>, names: &[u16]) -> Result<Option<usize>> {
        let stored = reader(bytes, HEADER_BYTES);
        let mut stored = stored.take(self.header.names.saturating_mul(2));
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
        let (mut at, mut left) = (self.pairs_at().unwrap_or(0), self.header.pairs);
        let mut stored = reader(bytes, at);
        let (mut pairs, mut hash) = (Vec::new(), Xxh64::new(0));
        let is_stored = |file: FileId| {
            file.0 < inventory.file_count() && inventory.kind(file) == FileKind::Regular
        };
        while left > 0 {
            let mut table = vec![[0; 8]; to_usize(left.min(PAIRS_AT_ONCE))];
            let read = stored.read_exact(table.as_flattened_mut());
            read.map_err(|error| cut_off(error, at))?;
            hash.update(table.as_flattened());
            for pair in &table {
                let pair = u64::from_le_bytes(*pair);
                let (file, original) = (FileId(low_u32(pair)), FileId(high_u32(pair)));
                if !is_stored(file)
                    || !is_stored(original)
                    || inventory.size(file) != inventory.size(original)
                {
                    return Err(Error::corrupt(DAMAGED, at, file.0.into()));
                }
                pairs.push((file, original));
                at = at.saturating_add(8);
            }
            left = left.saturating_sub(to_u64(table.len()));
        }
        if hash.digest() != self.header.equal {
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
        let bytes = self.header.names.checked_mul(2)?;
        bytes.checked_add(HEADER_BYTES)
    }

    /// Where the records begin.
    fn records_at(&self) -> Option<u64> {
        let bytes = self.header.pairs.checked_mul(8)?;
        bytes.checked_add(self.pairs_at()?)
    }
}

impl PartHeader {
    /// Its bytes, with their checksum.
    fn emit(&self) -> Vec<u8> {
        let numbers = [self.number.number, self.number.of].map(u32::to_le_bytes);
        let digests = [self.options, self.tree, self.equal, self.names, self.pairs];
        let digests = digests.map(u64::to_le_bytes);
        let mut bytes = [
            &MAGIC[..],
            numbers.as_flattened(),
            &self.version,
            digests.as_flattened(),
        ]
        .concat();
        bytes.extend(xxh64(&bytes, 0).to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8; HEADER_LEN]) -> Result<PartHeader> {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |index: usize| words.get(index).copied().map_or(0, u64::from_le_bytes);
        if word(0) != u64::from_le_bytes(MAGIC) {
            return Err(Error::corrupt("not a part of an image", 0, word(0)));
        }
        let (fields, checksum) = bytes.split_last_chunk::<8>().unwrap_or((bytes, &[0; 8]));
        let checksum = u64::from_le_bytes(*checksum);
        if xxh64(fields, 0) != checksum {
            let what = "the checksum of the header of a part does not match";
            return Err(Error::corrupt(what, to_u64(fields.len()), checksum));
        }
        let (number, of) = (low_u32(word(1)), high_u32(word(1)));
        let Some(number) = PartNumber::new(number, of) else {
            let what = "the number of a part is too large";
            return Err(Error::corrupt(what, 8, number.into()));
        };
        let version = words
            .get(2..6)
            .and_then(|it| it.as_flattened().try_into().ok());
        Ok(PartHeader {
            number,
            version: version.unwrap_or_default(),
            options: word(6),
            tree: word(7),
            equal: word(8),
            names: word(9),
            pairs: word(10),
        })
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

/// Reads the records of all parts, one after another.
pub struct PartReader<'a> {
    parts: Parts<'a>,
    /// The index of the next part.
    next: usize,
    open: Option<OpenPart>,
}

/// The part that is read.
struct OpenPart {
    bytes: Arc<dyn ReadAt>,
    size: u64,
    at: u64,
    /// Of the words and checksums.
    sum: Xxh64,
    /// Bytes that were read with the last word, and where they are.
    ahead: Vec<u8>,
    ahead_at: u64,
}

impl<'a> PartReader<'a> {
    /// # Errors
    /// These are not all parts in order.
    pub fn new(parts: Parts<'a>) -> Result<PartReader<'a>> {
        let is_next = |(part, number): (&ImagePart, u32)| part.number().number == number;
        let (first, count) = (parts.0.first(), parts.0.len());
        if first.is_none_or(|first| to_usize(first.number().of) != count)
            || !parts.0.iter().zip(1..).all(is_next)
        {
            return Err(Error::InvalidInput("these are not all parts in order"));
        }
        Ok(PartReader {
            parts,
            next: 0,
            open: None,
        })
    }

    /// The equal files, which the first part lists.
    ///
    /// # Errors
    /// The part is damaged or cannot be read.
    pub fn equal_files(&self, inventory: &Inventory<'_>) -> Result<Duplicates> {
        let Some(first) = self.parts.0.first() else {
            return Ok(Duplicates::default());
        };
        let equal = (self.parts.1)(0).and_then(|bytes| first.equal_files(&bytes, inventory));
        equal.map_err(|error| error.in_part("part", 1))
    }

    /// Reads a record into a buffer, and returns its word and its length: 0 for a hole, `None`
    /// behind the last part. `len` gives the length that follows from a word, if that is possible.
    ///
    /// # Errors
    /// A part is damaged, is another one than at the beginning, or cannot be read.
    pub fn next(
        &mut self,
        len: impl Fn(u32) -> Option<usize>,
        buffer: &mut [u8],
    ) -> Result<Option<(u32, usize)>> {
        let bytes_max = buffer.len();
        let Some(record) = self.next_record(|word| len(word).filter(|&len| len <= bytes_max))?
        else {
            return Ok(None);
        };
        let buffer = buffer.get_mut(..record.len).unwrap_or_default();
        let open = self.open.as_ref();
        match open.and_then(|open| open.ahead_at(record.at, record.len)) {
            Some(ahead) => {
                buffer.copy_from_slice(ahead);
                record.verify(buffer)?;
            }
            None => record.read(buffer)?,
        }
        Ok(Some((record.word, record.len)))
    }

    /// Finds the next record, without reading its bytes; `None` behind the last part. `len` as for
    /// [`PartReader::next`].
    ///
    /// # Errors
    /// As for [`PartReader::next`].
    pub fn next_record(
        &mut self,
        len: impl Fn(u32) -> Option<usize>,
    ) -> Result<Option<StoredRecord>> {
        loop {
            let number = to_u64(self.next);
            if let Some(open) = &mut self.open {
                let record = open.next(&len, number);
                let record = record.map_err(|error| error.in_part("part", number))?;
                if record.is_some() {
                    return Ok(record);
                }
                self.open = None;
            }
            let Some(part) = self.parts.0.get(self.next) else {
                return Ok(None);
            };
            let bytes = (self.parts.1)(self.next)?;
            self.next = self.next.saturating_add(1);
            if ImagePart::read(&*bytes)?.header.emit() != part.header.emit() {
                return Err(Error::Changed.in_part("part", to_u64(self.next)));
            }
            self.open = Some(OpenPart {
                size: bytes.size()?,
                bytes,
                at: part.records_at().unwrap_or(0),
                sum: Xxh64::new(0),
                ahead: Vec::new(),
                ahead_at: 0,
            });
        }
    }

    /// An error in the record that was read last: of the part's file, and of the place behind it.
    pub fn error(&self, what: &'static str, found: u64) -> Error {
        let at = self.open.as_ref().map_or(0, |open| open.at);
        Error::corrupt(what, at, found).in_part("part", to_u64(self.next))
    }
}

impl OpenPart {
    /// The next record; `None` at the end.
    fn next(
        &mut self,
        len: impl Fn(u32) -> Option<usize>,
        number: u64,
    ) -> Result<Option<StoredRecord>> {
        let at = self.at;
        let word = u32::from_le_bytes(self.field()?);
        if word == END {
            let sum = self.sum.digest();
            let stored = u64::from_le_bytes(self.field()?);
            if stored != sum {
                let what = "the checksum at the end of a part does not match";
                return Err(Error::corrupt(what, at, stored));
            }
            return Ok(None);
        }
        self.sum.update(&word.to_le_bytes());
        let mut record = StoredRecord {
            word,
            len: 0,
            checksum: 0,
            bytes: Arc::clone(&self.bytes),
            at,
            number,
        };
        if word == 0 {
            return Ok(Some(record));
        }
        let Some(len) = len(word).filter(|&len| len > 0) else {
            let what = "a record of a part has a size that it cannot have";
            return Err(Error::corrupt(what, at, word.into()));
        };
        let checksum: [u8; 8] = self.field()?;
        self.sum.update(&checksum);
        (record.len, record.checksum) = (len, u64::from_le_bytes(checksum));
        record.at = self.at;
        self.at = self.at.saturating_add(to_u64(len));
        Ok(Some(record))
    }

    fn field<const N: usize>(&mut self) -> Result<[u8; N]> {
        if self.ahead_at(self.at, N).is_none() {
            let left = self.size.saturating_sub(self.at);
            let bytes = left.min(to_u64(AHEAD_BYTES));
            self.ahead.resize(to_usize(bytes), 0);
            self.ahead_at = self.at;
            let read = self.bytes.read_exact_at(&mut self.ahead, self.at);
            read.map_err(|error| cut_off(error, self.at))?;
        }
        let field = self.ahead_at(self.at, N).and_then(|it| it.try_into().ok());
        let end = || cut_off(io::ErrorKind::UnexpectedEof.into(), self.at);
        let field = field.ok_or_else(end)?;
        self.at = self.at.saturating_add(to_u64(N));
        Ok(field)
    }

    /// These bytes, if they were read ahead.
    fn ahead_at(&self, at: u64, len: usize) -> Option<&[u8]> {
        let from = to_usize(at.checked_sub(self.ahead_at)?);
        self.ahead.get(from..from.checked_add(len)?)
    }
}

/// A record of a part, whose bytes any thread can read.
pub struct StoredRecord {
    word: u32,
    len: usize,
    checksum: u64,
    bytes: Arc<dyn ReadAt>,
    at: u64,
    /// Of the part.
    number: u64,
}

impl StoredRecord {
    /// Its word, which is 0 for a hole.
    pub fn word(&self) -> u32 {
        self.word
    }

    /// Reads its bytes into the beginning of a buffer.
    ///
    /// # Errors
    /// The part is damaged or cannot be read.
    pub fn read(&self, buffer: &mut [u8]) -> Result<()> {
        let Some(buffer) = buffer.get_mut(..self.len) else {
            return Err(Error::InvalidInput("a record is larger than its buffer"));
        };
        let read = self.bytes.read_exact_at(buffer, self.at);
        let read = read.map_err(|error| cut_off(error, self.at));
        read.map_err(|error| error.in_part("part", self.number))?;
        self.verify(buffer)
    }

    fn verify(&self, bytes: &[u8]) -> Result<()> {
        let sum = xxh64(bytes, 0);
        if self.word != 0 && sum != self.checksum {
            let what = "the checksum of a record of a part does not match";
            return Err(Error::corrupt(what, self.at, sum).in_part("part", self.number));
        }
        Ok(())
    }
}

/// Writes a part.
pub struct PartWriter<'a> {
    out: BufWriter<&'a mut Output>,
    sum: Xxh64,
    bytes: u64,
}

impl<'a> PartWriter<'a> {
    /// Writes the header and the tables.
    ///
    /// # Errors
    /// Those of the output, as in all methods.
    pub fn new(
        number: PartNumber,
        source: &PartSource,
        equal: &Duplicates,
        output: &'a mut Output,
    ) -> Result<PartWriter<'a>> {
        let mut pairs: Vec<_> = equal.pairs().collect();
        pairs.sort_unstable();
        let pairs = pairs
            .iter()
            .map(|(file, original)| wide_u64(file.0, original.0));
        let mut pairs: Vec<[u8; 8]> = pairs.map(u64::to_le_bytes).collect();
        let equal = xxh64(pairs.as_flattened(), 0);
        if number.number > 1 {
            pairs.clear();
        }
        let header = PartHeader {
            number,
            version: version(),
            options: source.options,
            tree: source.tree,
            equal,
            names: to_u64(source.names.len()),
            pairs: to_u64(pairs.len()),
        };
        let mut writer = PartWriter {
            out: BufWriter::with_capacity(BUFFER_BYTES, output),
            sum: Xxh64::new(0),
            bytes: 0,
        };
        writer.write(&header.emit())?;
        for name in &source.names {
            writer.write(&name.to_le_bytes())?;
        }
        writer.write(pairs.as_flattened())?;
        Ok(writer)
    }

    /// Appends a record, which is given in pieces, with its word: neither 0 nor `u32::MAX`.
    ///
    /// # Errors
    /// Those of the output.
    pub fn put(&mut self, word: u32, pieces: &[&[u8]]) -> Result<()> {
        let mut checksum = Xxh64::new(0);
        pieces.iter().for_each(|piece| checksum.update(piece));
        let checksum = checksum.digest().to_le_bytes();
        self.sum.update(&word.to_le_bytes());
        self.write(&word.to_le_bytes())?;
        self.sum.update(&checksum);
        self.write(&checksum)?;
        pieces.iter().try_for_each(|piece| self.write(piece))
    }

    /// Appends a record that is nothing but a hole.
    ///
    /// # Errors
    /// Those of the output.
    pub fn put_hole(&mut self) -> Result<()> {
        self.sum.update(&[0; 4]);
        self.write(&[0; 4])
    }

    /// Ends the part and returns its size in bytes.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self) -> Result<u64> {
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
