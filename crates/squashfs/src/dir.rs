//! Directories: runs of entries, each with a header for the fields that the entries share.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tree::{Error, FileKind, Result, is_valid_name, to_u64, to_usize};
use zerocopy::IntoBytes;

use crate::image::Image;
use crate::inode::{DirListing, basic_type, kind_of};
use crate::metadata::{MetadataPosition, MetadataReader};
use crate::raw;
use crate::reference::MetadataRef;

/// Longest listing that is read: 40 MiB hold a million names of average length.
const LISTING_BYTES_MAX: u32 = 256 << 20;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListingEntry {
    pub(crate) name: Box<[u8]>,
    /// The inode.
    pub(crate) inode: MetadataRef,
    /// The inode's number.
    pub(crate) number: u32,
    pub(crate) kind: FileKind,
}

/// Iterates over a listing's entries in order.
pub(crate) struct ListingReader<'a> {
    reader: MetadataReader<'a>,
    /// Remaining bytes of the listing.
    left: u32,
    /// Remaining entries of the run.
    run_left: u32,
    header: raw::DirectoryHeader,
    /// The names of the last entry and of the one before it.
    name: Vec<u8>,
    previous: Vec<u8>,
}

impl<'a> ListingReader<'a> {
    /// The entries of a listing, from its start.
    ///
    /// `Ok(None)` if the listing is empty, at any position.
    pub(crate) fn new(image: &'a Image, end: u64, listing: &DirListing) -> Result<Option<Self>> {
        Self::from(
            image,
            end,
            listing,
            0,
            MetadataRef::new(listing.block.into(), listing.offset),
        )
    }

    /// The entries starting at the header that is `skipped` bytes into the listing, at position
    /// `at`.
    fn from(
        image: &'a Image,
        end: u64,
        listing: &DirListing,
        skipped: u32,
        at: MetadataRef,
    ) -> Result<Option<Self>> {
        if listing.len > LISTING_BYTES_MAX {
            return Err(Error::Limit("a directory listing of more than 256 MiB"));
        }
        let left = listing.len.saturating_sub(skipped);
        if left == 0 {
            return Ok(None);
        }
        let table = image.superblock.directory_table;
        Ok(Some(ListingReader {
            reader: MetadataReader::new(image, table, end, at)?,
            left,
            run_left: 0,
            header: raw::DirectoryHeader {
                count: 0.into(),
                start_block: 0.into(),
                inode_number: 0.into(),
            },
            name: Vec::new(),
            previous: Vec::new(),
        }))
    }

    /// The next entry.
    pub(crate) fn next(&mut self) -> Result<Option<ListingEntry>> {
        let entry = self.advance()?;
        Ok(entry.map(|entry| self.with_name(entry)))
    }

    fn with_name(&self, entry: ListingEntry) -> ListingEntry {
        let name = self.name.as_slice().into();
        ListingEntry { name, ..entry }
    }

    /// Reads the next entry, without its name, which is in `self`: a search allocates none.
    fn advance(&mut self) -> Result<Option<ListingEntry>> {
        let at = self.reader.at();
        let corrupt = |what, got: u64| Error::corrupt(what, at, got);
        if self.run_left == 0 {
            if self.left == 0 {
                return Ok(None);
            }
            self.take(size_of::<raw::DirectoryHeader>())?;
            self.header = self.reader.record()?;
            let count = self.header.count.get();
            if count >= raw::RUN_ENTRIES_MAX {
                return Err(corrupt("directory run has too many entries", count.into()));
            }
            self.run_left = count.saturating_add(1);
        }
        self.run_left = self.run_left.saturating_sub(1);
        self.take(size_of::<raw::DirectoryEntry>())?;
        let entry: raw::DirectoryEntry = self.reader.record()?;
        let len = u32::from(entry.size.get()).saturating_add(1);
        if to_usize(len) > raw::NAME_BYTES_MAX {
            return Err(corrupt("directory entry's name is too long", len.into()));
        }
        self.take(to_usize(len))?;
        std::mem::swap(&mut self.name, &mut self.previous);
        self.name.resize(to_usize(len), 0);
        self.reader.read_exact(&mut self.name)?;
        if !is_valid_name(&self.name) {
            return Err(corrupt("directory entry's name is not valid", len.into()));
        }
        if self.name <= self.previous {
            return Err(corrupt("directory entries are not in order", len.into()));
        }
        let Some(kind) = kind_of(entry.kind.get()) else {
            return Err(corrupt(
                "directory entry's type is unknown",
                entry.kind.get().into(),
            ));
        };
        let delta = i64::from(entry.inode_number.get());
        let number = i64::from(self.header.inode_number.get()).saturating_add(delta);
        let Some(number) = u32::try_from(number).ok().filter(|&number| number > 0) else {
            return Err(corrupt(
                "directory entry's inode number is impossible",
                number.cast_unsigned(),
            ));
        };
        Ok(Some(ListingEntry {
            name: Box::default(),
            inode: MetadataRef::new(self.header.start_block.get().into(), entry.offset.get()),
            number,
            kind,
        }))
    }

    /// Position of the next record.
    pub(crate) fn place(&self) -> MetadataPosition {
        self.reader.place()
    }

    fn take(&mut self, bytes: usize) -> Result<()> {
        let left = u32::try_from(bytes)
            .ok()
            .and_then(|bytes| self.left.checked_sub(bytes));
        let Some(left) = left else {
            return Err(Error::corrupt(
                "directory record does not fit in its listing",
                self.reader.at(),
                self.left.into(),
            ));
        };
        self.left = left;
        Ok(())
    }
}

/// The listings read so far, which must not overlap.
///
/// If directories could share a listing, a small image could name any number of files. Uses about
/// 60 bytes for each directory.
#[derive(Default)]
pub(crate) struct ListedRanges(Mutex<BTreeMap<MetadataPosition, (MetadataPosition, u64)>>);

impl ListedRanges {
    /// Records that the directory `dir`, given by its reference, lists the bytes between two
    /// positions; returns whether no other directory does.
    pub(crate) fn note(
        &self,
        (from, to): (MetadataPosition, MetadataPosition),
        dir: MetadataRef,
    ) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.range(..to).next_back() {
            Some((_, &(_, other))) if other == dir.0 => true,
            Some((_, &(end, _))) if end > from => false,
            _ => {
                known.insert(from, (to, dir.0));
                true
            }
        }
    }
}

/// Lists the readable entries: after a bad metadata block, the directory's index says where a run
/// begins in a later one. `note` is called with the range that was read and returns whether no
/// other directory lists it. Returns also why entries are missing.
pub(crate) fn list_readable(
    image: &Image,
    end: u64,
    listing: &DirListing,
    (index, index_count): (MetadataPosition, u16),
    mut note: impl FnMut((MetadataPosition, MetadataPosition)) -> bool,
) -> (Vec<ListingEntry>, Vec<Error>) {
    let (mut entries, mut errors) = (Vec::new(), Vec::new());
    // Bytes into the listing where a run begins, and the position there.
    let mut starts = vec![(0, MetadataRef::new(listing.block.into(), listing.offset))];
    errors.extend(read_index(image, listing, (index, index_count), &mut starts).err());
    let mut done = 0;
    for (skipped, from) in &starts {
        // It was read already, behind an earlier start.
        if *skipped < done {
            continue;
        }
        let reader = match ListingReader::from(image, end, listing, *skipped, *from) {
            Ok(Some(reader)) => reader,
            Ok(None) => break,
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        let (mut reader, mut failed) = (reader, false);
        let begin = reader.place();
        let known = entries.len();
        loop {
            match reader.next() {
                Ok(Some(entry)) => entries.push(entry),
                Ok(None) => break,
                Err(error) => {
                    errors.push(error);
                    failed = true;
                    break;
                }
            }
        }
        if !note((begin, reader.place())) {
            entries.truncate(known);
            errors.push(Error::Inconsistent(
                "another directory lists the same entries",
            ));
        }
        if !failed {
            break;
        }
        done = listing
            .len
            .saturating_sub(reader.left)
            .max(skipped.saturating_add(1));
    }
    // Damage can look like names.
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    entries.dedup_by(|one, other| one.name == other.name);
    (entries, errors)
}

/// Appends where the directory's index says that runs begin, as far as it can be read.
fn read_index(
    image: &Image,
    listing: &DirListing,
    (index, index_count): (MetadataPosition, u16),
    starts: &mut Vec<(u32, MetadataRef)>,
) -> Result<()> {
    if index_count == 0 {
        return Ok(());
    }
    let mut reader = MetadataReader::resume(image, image.superblock.directory_table, index)?;
    for _ in 0..index_count {
        let record: raw::DirectoryIndex = reader.record()?;
        let len = record.size.get().saturating_add(1);
        let skipped = record.index.get();
        let is_next = starts.last().is_some_and(|(last, _)| *last < skipped);
        if to_usize(len) > raw::NAME_BYTES_MAX || skipped > listing.len || !is_next {
            return Ok(()); // `find` says what is wrong
        }
        reader.bytes(to_usize(len))?;
        starts.push((skipped, run_place(listing, &record)));
    }
    Ok(())
}

/// Finds a name through the directory's index, which has `index_count` records starting at `index`.
pub(crate) fn find(
    image: &Image,
    end: u64,
    listing: &DirListing,
    (index, index_count): (MetadataPosition, u16),
    name: &[u8],
) -> Result<Option<ListingEntry>> {
    let mut from = MetadataRef::new(listing.block.into(), listing.offset);
    let mut skipped = 0;
    let mut first = None;
    if index_count > 0 {
        let mut reader = MetadataReader::resume(image, image.superblock.directory_table, index)?;
        for _ in 0..index_count {
            let (record, named) = index_record(&mut reader, listing)?;
            if *named > *name {
                break;
            }
            first = Some(named);
            skipped = record.index.get();
            from = run_place(listing, &record);
        }
    }
    let Some(mut entries) = ListingReader::from(image, end, listing, skipped, from)? else {
        return Ok(None);
    };
    while let Some(entry) = entries.advance()? {
        if let Some(first) = first.take()
            && first != entries.name
        {
            return Err(Error::corrupt(
                "directory index leads to another name",
                image.superblock.directory_table,
                skipped.into(),
            ));
        }
        match entries.name.as_slice().cmp(name) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => return Ok(Some(entries.with_name(entry))),
            std::cmp::Ordering::Greater => break,
        }
    }
    Ok(None)
}

/// Where the run begins that a record of the index leads to.
fn run_place(listing: &DirListing, record: &raw::DirectoryIndex) -> MetadataRef {
    const BLOCK: u64 = to_u64(raw::METADATA_BYTES);
    let at = u64::from(listing.offset).saturating_add(record.index.get().into());
    let offset = at % BLOCK;
    let offset = u16::try_from(offset).unwrap_or(u16::MAX); // less than 8,192
    MetadataRef::new(record.start_block.get().into(), offset)
}

/// The next record of a directory's index, and its name.
fn index_record(
    reader: &mut MetadataReader,
    listing: &DirListing,
) -> Result<(raw::DirectoryIndex, Vec<u8>)> {
    let at = reader.at();
    let record: raw::DirectoryIndex = reader.record()?;
    let len = record.size.get().saturating_add(1);
    if to_usize(len) > raw::NAME_BYTES_MAX || record.index.get() > listing.len {
        return Err(Error::corrupt(
            "directory index is impossible",
            at,
            record.index.get().into(),
        ));
    }
    let name = reader.bytes(to_usize(len))?;
    Ok((record, name))
}

/// Compares a directory's index, which has `index_count` records starting at `index`, with its
/// listing: each record must lead to a run after that of the previous record, and have the run's
/// first name.
pub(crate) fn check_index(
    image: &Image,
    end: u64,
    listing: &DirListing,
    (index, index_count): (MetadataPosition, u16),
) -> Result<()> {
    if index_count == 0 {
        return Ok(());
    }
    let table = image.superblock.directory_table;
    let mut reader = MetadataReader::resume(image, table, index)?;
    let mut entries = ListingReader::new(image, end, listing)?;
    for _ in 0..index_count {
        let at = reader.at();
        let (record, named) = index_record(&mut reader, listing)?;
        let wanted = record.index.get();
        let mut leads_to_run = false;
        if let Some(entries) = &mut entries {
            let done = |entries: &ListingReader| listing.len.saturating_sub(entries.left);
            while done(entries) < wanted && entries.next()?.is_some() {}
            let place = run_place(listing, &record);
            leads_to_run = done(entries) == wanted
                && entries.run_left == 0
                && entries.reader.reference(table) == place
                && entries.next()?.is_some_and(|entry| *entry.name == *named);
        }
        if !leads_to_run {
            return Err(Error::corrupt(
                "directory index leads to no run of its listing",
                at,
                wanted.into(),
            ));
        }
    }
    Ok(())
}

/// Builds listings, one directory at a time.
#[derive(Default)]
pub(crate) struct ListingWriter {
    /// The listing so far.
    bytes: Vec<u8>,
    /// Position of the open run's header, if a run is open.
    run: Option<EntryRun>,
    /// The position of each run in the listing, and of the first name in it.
    runs: Vec<(u32, std::ops::Range<usize>)>,
}

struct EntryRun {
    at: usize,
    count: u32,
    block: u32,
    base: u32,
}

#[expect(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "a writer: these numbers are its own"
)]
impl ListingWriter {
    /// Appends an entry. Names must arrive in ascending order.
    pub(crate) fn push(&mut self, name: &[u8], inode: MetadataRef, number: u32, kind: FileKind) {
        let block = inode.block() as u32;
        let fits = self.run.as_ref().is_some_and(|run| {
            let delta = i64::from(number) - i64::from(run.base);
            run.count < raw::RUN_ENTRIES_MAX && run.block == block && i16::try_from(delta).is_ok()
        });
        if !fits {
            self.end_run();
            let at = self.bytes.len();
            self.bytes.extend([0; size_of::<raw::DirectoryHeader>()]);
            let name_at = self.bytes.len() + size_of::<raw::DirectoryEntry>();
            self.runs.push((at as u32, name_at..name_at + name.len()));
            self.run = Some(EntryRun {
                at,
                count: 0,
                block,
                base: number,
            });
        }
        let run = self.run.as_mut().expect("a run is open");
        run.count += 1;
        let entry = raw::DirectoryEntry {
            offset: inode.offset().into(),
            inode_number: (number.wrapping_sub(run.base) as u16).cast_signed().into(),
            kind: basic_type(kind).into(),
            size: (name.len() as u16 - 1).into(),
        };
        self.bytes.extend(entry.as_bytes());
        self.bytes.extend(name);
    }

    fn end_run(&mut self) {
        if let Some(run) = self.run.take() {
            let header = raw::DirectoryHeader {
                count: (run.count - 1).into(),
                start_block: run.block.into(),
                inode_number: run.base.into(),
            };
            self.bytes[run.at..run.at + size_of::<raw::DirectoryHeader>()]
                .copy_from_slice(header.as_bytes());
        }
    }

    /// The listing of the entries pushed since the last call.
    pub(crate) fn finish(&mut self) -> &[u8] {
        self.end_run();
        &self.bytes
    }

    /// The runs of the finished listing that may be indexed: the offset and first name of each.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.runs
            .iter()
            .map(|(at, name)| (*at, &self.bytes[name.clone()]))
    }

    /// Starts the next directory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.runs.clear();
        self.run = None;
    }
}
