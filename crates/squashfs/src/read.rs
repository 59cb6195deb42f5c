//! Reads an image as a tree of files.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::sync::Arc;

use codec::Algorithm;
use tree::{
    BlockCounts, BlockEncoding, Cache, Checksum, Corrupt, DevicePlace, DirEntry, Encoding, Error,
    Extent, ExtentId, ExtentKind, FileAttributes, FileSystem, Ino, Limits, Metadata, ReadAt,
    Result, Sha256, Storage, StoreId, Time, Xattr, to_u64, to_usize, with_metadata,
};

use crate::compressor::{Compressor, OPTIONS_BYTES_MAX};
use crate::data::{BlockLists, BlockSpan, FileBlocks, TailPart};
use crate::dir::{self, ListedRanges, ListingEntry, ListingReader};
use crate::image::{Image, StoredSize};
use crate::inode::{ImageInode, InodeFields};
use crate::lookup_table::LookupTable;
use crate::metadata::{MetadataPosition, MetadataReader};
use crate::raw::{self, flags};
use crate::reference::MetadataRef;
use crate::superblock::{SUPERBLOCK_BYTES, Superblock};
use crate::xattr::XattrTable;

/// Number of files whose block lists are cached.
const CONTENT_SLOTS: (usize, usize) = (8, 8);
/// Maximum number of extents that one call of [`FileSystem::extents`] returns, without a tail.
const EXTENTS_MAX: usize = 1024;

/// A SquashFS image, open for reading.
///
/// An [`Ino`] is the inode's reference: its position in the inode table. Any number of threads may
/// read. Decoded blocks go through small caches whose memory does not grow with the image, except
/// for about 60 bytes for each directory and each file of more than 2,048 blocks that is read.
pub struct Squashfs {
    image: Image,
    compressor: Compressor,
    ids: OwnerIds,
    fragments: Option<MaybeDamaged<LookupTable<raw::FragmentEntry>>>,
    exports: Option<MaybeDamaged<LookupTable<zerocopy::little_endian::U64>>>,
    xattrs: Option<MaybeDamaged<XattrTable>>,
    /// Where the id table starts, if that is known.
    ids_start: Option<u64>,
    /// The first table whose list does not end where the next table says that it starts, although
    /// it can be read.
    gap: Option<Corrupt>,
    /// Where the directory table ends.
    directories_end: u64,
    contents: Cache<FileBlocks>,
    lists: BlockLists,
    listed: ListedRanges,
    store: StoreId,
}

/// A table, or the damage of its list.
type MaybeDamaged<T> = std::result::Result<T, Corrupt>;

/// Separates damage, which may be of no consequence, from a medium that cannot be read.
fn damaged_or<T>(read: Result<T>) -> Result<MaybeDamaged<T>> {
    match read {
        Ok(table) => Ok(Ok(table)),
        Err(Error::Corrupt(corrupt)) => Ok(Err(corrupt)),
        Err(error) => Err(error),
    }
}

/// Reads the list at `at` of a table. `next` is where the next table in the image starts and ends,
/// if that is known: the list must end where it starts. If the next table is the damaged one, notes
/// in `gap` that they do not meet.
fn read_table<T: zerocopy::FromBytes + zerocopy::IntoBytes>(
    image: &Image,
    at: u64,
    next: Option<(u64, u64)>,
    count: u32,
    gap: &mut Option<Corrupt>,
) -> Result<MaybeDamaged<LookupTable<T>>> {
    let place = (image.superblock.directory_table, at);
    let read = |end| damaged_or(LookupTable::read(image, at, end, place, count));
    let table = read(next.map(|(start, _)| start))?;
    match (table, next) {
        // The start of the next one may be damaged.
        (Err(damage), Some((start, end))) if !is_chain(image, start, end) => {
            let table = read(None)?;
            if table.is_ok() {
                gap.get_or_insert(damage);
            }
            Ok(table)
        }
        (table, _) => Ok(table),
    }
}

/// Whether readable metadata blocks fill this part of the image.
fn is_chain(image: &Image, mut at: u64, end: u64) -> bool {
    while at < end {
        let Ok(block) = image.metadata(at, end) else {
            return false;
        };
        at = block.next;
    }
    at == end
}

/// User and group IDs.
struct OwnerIds {
    /// By index; `None` in a block that cannot be read.
    numbers: Vec<Option<u32>>,
    /// Why the first such block cannot be read.
    damage: Option<Corrupt>,
}

impl OwnerIds {
    fn read(
        image: &Image,
        table: &MaybeDamaged<LookupTable<zerocopy::little_endian::U32>>,
        count: u32,
    ) -> Result<OwnerIds> {
        let mut ids = OwnerIds {
            numbers: Vec::with_capacity(to_usize(count)),
            damage: None,
        };
        match table {
            Err(corrupt) => ids.damage = Some(*corrupt),
            Ok(table) => {
                for block in 0..table.block_count() {
                    match damaged_or(table.block(image, block))? {
                        Ok(block) => ids.numbers.extend(block.iter().map(|id| Some(id.get()))),
                        Err(corrupt) => {
                            let end = ids.numbers.len().saturating_add(table.records_in(block));
                            ids.numbers.resize(end, None);
                            ids.damage = ids.damage.or(Some(corrupt));
                        }
                    }
                }
            }
        }
        ids.numbers.resize(to_usize(count), None);
        Ok(ids)
    }
}

/// Bytes of tables that are read at once for their digest.
const DIGEST_BYTES: usize = 256 << 10;

impl Squashfs {
    /// Opens an image that starts at the first byte of `source`.
    ///
    /// # Errors
    /// Fails if the source cannot be read, is not an image, breaks the format, or has a version
    /// before 4.0.
    pub fn open(source: impl ReadAt + 'static) -> Result<Squashfs> {
        Self::open_at(source, 0, &Limits::default())
    }

    /// Opens an image that starts at byte `offset` of `source`, as in an AppImage; see
    /// [`crate::find_image`].
    ///
    /// # Errors
    /// As for [`Squashfs::open`].
    pub fn open_at(
        source: impl ReadAt + 'static,
        offset: u64,
        limits: &Limits,
    ) -> Result<Squashfs> {
        let image = Image::open(Box::new(source), offset)?;
        let superblock = image.superblock;
        let compressor = read_compressor(&image)?;

        // The tables are contiguous: each list ends where the next table starts. Go from the last
        // to the first. A damaged table costs what is in it, so its error waits until it is needed.
        let xattrs = match superblock.xattr_table {
            Some(at) => damaged_or(XattrTable::read(&image, at, limits))?.transpose(),
            None => None,
        };
        let mut next = match &xattrs {
            Some(Ok(table)) => Some(table.stored()),
            None if superblock.xattr_table.is_none() => {
                Some((superblock.bytes_used, superblock.bytes_used))
            }
            _ => None,
        };
        let mut gap = None;
        let count = superblock.id_count;
        let id_table = read_table(&image, superblock.id_table, next, count, &mut gap)?;
        let ids = OwnerIds::read(&image, &id_table, superblock.id_count)?;
        next = id_table.as_ref().ok().map(LookupTable::stored);
        let ids_start = next.map(|(start, _)| start);
        let mut exports = None;
        if let Some(at) = superblock.export_table {
            let count = superblock.inode_count;
            let table = read_table(&image, at, next, count, &mut gap)?;
            next = table.as_ref().ok().map(LookupTable::stored);
            exports = Some(table);
        }
        let mut fragments = None;
        if let Some(at) = superblock.fragment_table {
            let count = superblock.fragment_count;
            fragments = Some(read_table(&image, at, next, count, &mut gap)?);
        }
        let tables = [superblock.fragment_table, superblock.export_table];
        let first = tables.into_iter().flatten().next();
        let directories_end = first.unwrap_or(superblock.id_table);
        Ok(Squashfs {
            image,
            compressor,
            ids,
            fragments,
            exports,
            xattrs,
            ids_start,
            gap,
            directories_end,
            contents: Cache::new(CONTENT_SLOTS.0, CONTENT_SLOTS.1),
            lists: BlockLists::default(),
            listed: ListedRanges::default(),
            store: StoreId::new(),
        })
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.image.superblock
    }

    /// The SHA-256 of the superblock and of all tables, in which every change of a file shows, but
    /// for one of stored data that leaves all its lengths as they are.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn digest(&self) -> Result<[u8; 32]> {
        let mut digest = Sha256::new();
        let superblock = &self.image.superblock;
        let ranges = [
            (0, to_u64(SUPERBLOCK_BYTES)),
            (superblock.inode_table, superblock.bytes_used),
        ];
        let mut buffer = vec![0; DIGEST_BYTES];
        for (mut at, end) in ranges {
            while at < end {
                let len = to_usize(end.saturating_sub(at)).min(DIGEST_BYTES);
                let (part, _) = buffer.split_at_mut(len);
                self.image.read(part, at)?;
                digest.update(part);
                at = at.saturating_add(to_u64(len));
            }
        }
        Ok(digest.finish())
    }

    /// The compressor options, as the image records them.
    pub fn compressor(&self) -> Compressor {
        self.compressor
    }

    /// The number of different sets of extended attributes.
    pub fn xattr_set_count(&self) -> u32 {
        let xattrs = self.xattrs.as_ref().and_then(|table| table.as_ref().ok());
        xattrs.map_or(0, XattrTable::len)
    }

    /// The file with this inode number, from the export table; `None` without a table, and for
    /// numbers it lacks.
    ///
    /// # Errors
    /// Fails if the table, or the part of it that has this number, cannot be read.
    pub fn by_number(&self, number: u32) -> Result<Option<Ino>> {
        let (Some(exports), Some(index)) = (&self.exports, number.checked_sub(1)) else {
            return Ok(None);
        };
        let exports = exports.as_ref().map_err(|&corrupt| corrupt)?;
        Ok(exports
            .find(&self.image, index)?
            .map(|reference| Ino(reference.get())))
    }

    /// Keeps up to this many bytes of decoded data blocks, instead of the few that reading in order
    /// needs.
    pub fn keep_decoded(&self, bytes: usize) {
        self.image.keep(bytes);
    }

    /// How many data blocks were decoded.
    pub fn decoded(&self) -> BlockCounts {
        self.image.counts()
    }

    /// The number of an inode, unique in the image, starting at 1.
    ///
    /// # Errors
    /// As for [`FileSystem::metadata`].
    pub fn number(&self, ino: Ino) -> Result<u32> {
        Ok(self.inode(ino)?.0.number)
    }

    /// The size of a directory that its inode states, which is that of its listing; 0 for another
    /// type of file.
    ///
    /// # Errors
    /// As for [`FileSystem::metadata`].
    pub fn stated_dir_bytes(&self, dir: Ino) -> Result<u32> {
        Ok(match self.inode(dir)?.0.body {
            InodeFields::Directory { listing, .. } => {
                listing.len.saturating_add(raw::LISTING_EXTRA)
            }
            _ => 0,
        })
    }

    /// An inode, and the position after it.
    pub(crate) fn inode(&self, ino: Ino) -> Result<(ImageInode, MetadataPosition)> {
        let superblock = &self.image.superblock;
        let (table, end) = (superblock.inode_table, superblock.directory_table);
        let mut reader = MetadataReader::new(&self.image, table, end, MetadataRef(ino.0))?;
        let at = reader.at();
        let (inode, place) = ImageInode::parse(&mut reader)?;
        if inode.number == 0 || inode.number > superblock.inode_count {
            return Err(Error::corrupt(
                "inode number is not one of the image's",
                at,
                inode.number.into(),
            ));
        }
        Ok((inode, place))
    }

    /// Checks the requirements of Linux that reading does not have: the options of LZ4 and xz, the
    /// lists of all tables, an export table even without its flag, and sets in the table of
    /// extended attributes.
    pub(crate) fn check_for_mounting(&self) -> Result<()> {
        let superblock = &self.image.superblock;
        if superblock.algorithm == Algorithm::Lz4 && superblock.flags & flags::OPTIONS == 0 {
            return Err(Error::corrupt(
                "lz4 image has no record of its options",
                to_u64(SUPERBLOCK_BYTES),
                superblock.flags.into(),
            ));
        }
        if let Compressor::Xz {
            dictionary_bytes, ..
        } = self.compressor
            && superblock.flags & flags::OPTIONS != 0
            && to_usize(dictionary_bytes) < raw::METADATA_BYTES
        {
            return Err(Error::corrupt(
                "xz image has a dictionary shorter than a metadata block",
                to_u64(SUPERBLOCK_BYTES),
                dictionary_bytes.into(),
            ));
        }
        if let (None, Some(at)) = (superblock.export_table, superblock.export_position) {
            let place = (superblock.directory_table, at);
            let (end, count) = (self.ids_start, superblock.inode_count);
            LookupTable::<zerocopy::little_endian::U64>::read(&self.image, at, end, place, count)?;
        }
        if superblock.xattr_table.is_some() && self.xattrs.is_none() {
            return Err(Error::corrupt(
                "table of extended attributes has no sets",
                superblock.xattr_table.unwrap_or(0),
                0,
            ));
        }
        let lists = [
            self.fragments
                .as_ref()
                .and_then(|table| table.as_ref().err()),
            self.exports.as_ref().and_then(|table| table.as_ref().err()),
            self.xattrs.as_ref().and_then(|table| table.as_ref().err()),
            self.ids.damage.as_ref(),
            self.gap.as_ref(),
        ];
        match lists.into_iter().flatten().next() {
            Some(&damage) => Err(damage.into()),
            None => Ok(()),
        }
    }

    /// Whether the export table's list is damaged, so that it has no inode.
    pub(crate) fn has_lost_exports(&self) -> bool {
        matches!(self.exports, Some(Err(_)))
    }

    fn id(&self, index: u16) -> Result<u32> {
        let corrupt = match (self.ids.numbers.get(usize::from(index)), self.ids.damage) {
            (Some(&Some(id)), _) => return Ok(id),
            (Some(None), Some(damage)) => damage,
            _ => Corrupt {
                what: "owner's index is too large",
                at: self.image.superblock.id_table,
                got: index.into(),
            },
        };
        Err(corrupt.into())
    }

    /// Where the directory table ends.
    pub(crate) fn directories_end(&self) -> u64 {
        self.directories_end
    }

    pub(crate) fn image(&self) -> &Image {
        &self.image
    }

    /// Where the file's tail is, if it is in a fragment.
    pub(crate) fn tail(&self, content: &FileBlocks) -> Result<Option<TailPart>> {
        if content.placed_tail().is_none() {
            return Ok(None);
        }
        content.tail(&self.image, self.fragment_table()?)
    }

    fn fragment_table(&self) -> Result<Option<&LookupTable<raw::FragmentEntry>>> {
        match &self.fragments {
            None => Ok(None),
            Some(Ok(table)) => Ok(Some(table)),
            Some(Err(damage)) => Err((*damage).into()),
        }
    }

    /// The places of all fragment blocks.
    pub(crate) fn fragment_entries(&self) -> Result<Vec<raw::FragmentEntry>> {
        let table = self.fragment_table()?;
        table.map_or(Ok(Vec::new()), |table| table.all(&self.image))
    }

    pub(crate) fn content(&self, file: Ino) -> Result<Arc<FileBlocks>> {
        self.contents.find_or_make(file.0, |_| {
            let (inode, list) = self.inode(file)?;
            match inode.body {
                InodeFields::File(body) => {
                    let content = FileBlocks::new(&self.image, body, list)?;
                    (self.lists).note(&self.image, file.0, content.block_count())?;
                    Ok(content)
                }
                InodeFields::Directory { .. } => Err(Error::IsADirectory),
                _ => Err(Error::InvalidInput("not a regular file")),
            }
        })
    }

    fn algorithm(&self) -> Algorithm {
        self.image.superblock.algorithm
    }

    /// The extent of stored data for `len` bytes of the file starting at `offset`, which start at
    /// `begin` in the block's content.
    fn extent(
        &self,
        offset: u64,
        len: u64,
        at: u64,
        size: StoredSize,
        begin: u64,
        unencoded: u64,
    ) -> Extent {
        let kind = if size.plain {
            ExtentKind::Plain {
                stored_offset: begin,
            }
        } else {
            ExtentKind::Encoded(Encoding {
                algorithm: self.algorithm(),
                stored_len: size.bytes.into(),
                unencoded_len: unencoded,
                unencoded_offset: begin,
            })
        };
        Extent {
            offset,
            len,
            kind,
            id: Some(ExtentId(at)),
        }
    }
}

fn read_compressor(image: &Image) -> Result<Compressor> {
    let superblock = &image.superblock;
    if superblock.flags & flags::OPTIONS == 0 {
        return Ok(Compressor::usual(
            superblock.algorithm,
            superblock.block_bytes,
        ));
    }
    // The record is a metadata block of its own, always uncompressed: the options to decode it are
    // not known yet.
    let at = to_u64(SUPERBLOCK_BYTES);
    let mut header = [0; 2];
    image.read(&mut header, at)?;
    let header = u16::from_le_bytes(header);
    let len = usize::from(header & !raw::METADATA_PLAIN);
    if header & raw::METADATA_PLAIN == 0 || len > OPTIONS_BYTES_MAX {
        return Err(Error::corrupt(
            "compressor's options are not stored as they must be",
            at,
            header.into(),
        ));
    }
    let mut record = [0; OPTIONS_BYTES_MAX];
    let (record, _) = record.split_at_mut(len);
    let at = at.saturating_add(2);
    image.read(record, at)?;
    Compressor::parse(superblock.algorithm, record, at)
}

impl FileSystem for Squashfs {
    fn root(&self) -> Ino {
        Ino(self.image.superblock.root)
    }

    fn storage(&self) -> Storage {
        Storage {
            store: self.store,
            block_encoding: Some(BlockEncoding {
                algorithm: self.algorithm(),
                block_bytes: self.image.superblock.block_bytes,
            }),
            stored_extents: true,
            whole_seconds: true,
        }
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        let (inode, _) = self.inode(ino)?;
        let size = match &inode.body {
            InodeFields::File(file) => file.size,
            InodeFields::Symlink { target } => to_u64(target.len()),
            _ => 0,
        };
        let rdev = match inode.body {
            InodeFields::Device { rdev, .. } => tree::Device::parse(rdev),
            _ => tree::Device::default(),
        };
        Ok(Metadata {
            kind: inode.kind(),
            permissions: inode.mode & 0o7777,
            uid: self.id(inode.uid)?,
            gid: self.id(inode.gid)?,
            nlink: inode.nlink.max(1),
            size,
            rdev,
            mtime: Time {
                seconds: inode.mtime.into(),
                nanoseconds: 0,
            },
            atime: None,
            ctime: None,
            btime: None,
            attributes: FileAttributes::default(),
            identity: None,
        })
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        let (inode, _) = self.inode(dir)?;
        let InodeFields::Directory { listing, .. } = inode.body else {
            return Err(Error::NotADirectory);
        };
        let mut entries = Vec::new();
        let Some(mut reader) = ListingReader::new(&self.image, self.directories_end, &listing)?
        else {
            return Ok(entries);
        };
        let from = reader.place();
        while let Some(entry) = reader.next()? {
            entries.push(dir_entry(entry));
        }
        if !self.listed.note((from, reader.place()), MetadataRef(dir.0)) {
            return Err(Error::corrupt(
                "directory's listing is also that of another directory",
                self.image.superblock.directory_table,
                listing.block.into(),
            ));
        }
        Ok(entries)
    }

    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        with_metadata(self, self.read_dir(dir)?)
    }

    fn list_readable(&self, dir: Ino) -> (Vec<DirEntry>, Vec<Error>) {
        let (inode, index) = match self.inode(dir) {
            Ok(inode) => inode,
            Err(error) => return (Vec::new(), vec![error]),
        };
        let InodeFields::Directory {
            listing,
            index_count,
            ..
        } = inode.body
        else {
            return (Vec::new(), vec![Error::NotADirectory]);
        };
        let end = self.directories_end;
        let index = (index, index_count);
        let listed = dir::list_readable(&self.image, end, &listing, index, |(from, to)| {
            self.listed.note((from, to), MetadataRef(dir.0))
        });
        (listed.0.into_iter().map(dir_entry).collect(), listed.1)
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<DirEntry> {
        let (inode, index) = self.inode(dir)?;
        let InodeFields::Directory {
            listing,
            index_count,
            ..
        } = inode.body
        else {
            return Err(Error::NotADirectory);
        };
        let end = self.directories_end;
        let entry = dir::find(&self.image, end, &listing, (index, index_count), name)?;
        entry.map(dir_entry).ok_or(Error::NotFound)
    }

    fn read_link(&self, link: Ino) -> Result<Vec<u8>> {
        match self.inode(link)?.0.body {
            InodeFields::Symlink { target } => Ok(target.into()),
            _ => Err(Error::InvalidInput("not a symbolic link")),
        }
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>> {
        // Without a table, Linux reads inodes that name a set as if they had none.
        let Some(table) = &self.xattrs else {
            return Ok(Vec::new());
        };
        match self.inode(ino)?.0.xattrs {
            Some(index) => {
                let table = table.as_ref().map_err(|&damage| damage)?;
                table.set(&self.image, index)
            }
            None => Ok(Vec::new()),
        }
    }

    fn extents(&self, file: Ino, from: u64) -> Result<Vec<Extent>> {
        let content = self.content(file)?;
        let block_bytes = u64::from(self.image.superblock.block_bytes);
        let mut extents: Vec<Extent> = Vec::new();
        if from >= content.size() {
            return Ok(extents);
        }
        let mut index = from.checked_div(block_bytes).unwrap_or(0);
        let rest = index..content.block_count();
        for block in content.blocks(&self.image, rest, EXTENTS_MAX)? {
            let offset = index.saturating_mul(block_bytes);
            index = index.saturating_add(block.count());
            let end = content.size().min(index.saturating_mul(block_bytes));
            let len = end.saturating_sub(offset);
            extents.push(match block {
                BlockSpan::Holes(_) => Extent {
                    offset,
                    len,
                    kind: ExtentKind::Hole,
                    id: None,
                },
                BlockSpan::Stored { at, size } => self.extent(offset, len, at, size, 0, len),
            });
        }
        if index == content.block_count()
            && let Some(tail) = self.tail(&content)?
            && tail.len > 0
        {
            let begin = tail.offset.into();
            // The length of the fragment's content is not recorded; it is at most a block.
            extents.push(self.extent(
                index.saturating_mul(block_bytes),
                tail.len.into(),
                tail.at,
                tail.size,
                begin,
                block_bytes,
            ));
        }
        Ok(extents)
    }

    fn read_at(&self, file: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let content = self.content(file)?;
        let left = content.size().saturating_sub(offset);
        let wanted = to_usize(left).min(buf.len());
        let Some(last_byte) = wanted.checked_sub(1) else {
            return Ok(0);
        };
        let (mut rest, _) = buf.split_at_mut(wanted);
        let image = &self.image;
        let block_bytes = u64::from(image.superblock.block_bytes);
        let block_of = |at: u64| at.checked_div(block_bytes).unwrap_or(0);
        let mut at = offset;
        let mut index = block_of(offset);
        let blocks_end = block_of(offset.saturating_add(to_u64(last_byte))).saturating_add(1);
        for block in content.blocks(image, index..blocks_end, usize::MAX)? {
            let begin = index.saturating_mul(block_bytes);
            index = index.saturating_add(block.count());
            let end = content.size().min(index.saturating_mul(block_bytes));
            let len = to_usize(end.saturating_sub(begin));
            let skip = to_usize(at.saturating_sub(begin));
            let part_len = rest.len().min(len.saturating_sub(skip));
            let (part, after) = std::mem::take(&mut rest).split_at_mut(part_len);
            match block {
                BlockSpan::Holes(_) => part.fill(0),
                BlockSpan::Stored { at, size } if part_len == len => {
                    image.block_into(at, size, part)?;
                }
                BlockSpan::Stored { at, size } => {
                    let decoded = image.block(at, size)?;
                    let shown = decoded.get(skip..).and_then(|rest| rest.get(..part_len));
                    let Some(shown) = shown.filter(|_| decoded.len() == len) else {
                        return Err(Error::corrupt(
                            "data block is not as long as its file says",
                            at,
                            to_u64(decoded.len()),
                        ));
                    };
                    part.copy_from_slice(shown);
                }
            }
            rest = after;
            at = at.saturating_add(to_u64(part_len));
        }
        if !rest.is_empty() {
            let begin = content.block_count().saturating_mul(block_bytes);
            let Some(tail) = self.tail(&content)? else {
                return Err(Error::corrupt(
                    "file's blocks end before its size",
                    image.superblock.inode_table,
                    begin,
                ));
            };
            tail.read(image, to_usize(at.saturating_sub(begin)), rest)?;
        }
        Ok(wanted)
    }

    fn read_encoded(
        &self,
        file: Ino,
        extent: &Extent,
        stored: &mut Vec<u8>,
    ) -> Result<Option<Checksum>> {
        stored.clear();
        const NOT_OURS: Error = Error::InvalidInput("not an encoded extent of that file");
        let (ExtentKind::Encoded(encoding), Some(ExtentId(at))) = (extent.kind, extent.id) else {
            return Err(NOT_OURS);
        };
        let content = self.content(file)?;
        let block_bytes = u64::from(self.image.superblock.block_bytes);
        let index = extent.offset.checked_div(block_bytes).unwrap_or(0);
        let (place, size) = if index < content.block_count() {
            let one = index..index.saturating_add(1);
            match content.blocks(&self.image, one, 1)?.first() {
                Some(&BlockSpan::Stored { at, size }) => (at, size),
                _ => return Err(NOT_OURS),
            }
        } else {
            match self.tail(&content)? {
                Some(tail) => (tail.at, tail.size),
                None => return Err(NOT_OURS),
            }
        };
        if place != at || size.plain || u64::from(size.bytes) != encoding.stored_len {
            return Err(NOT_OURS);
        }
        stored.resize(to_usize(size.bytes), 0);
        self.image.read(stored, at)?;
        Ok(None)
    }

    fn stored_at(&self, _: Ino, extent: &Extent) -> Option<DevicePlace> {
        let (at, len) = match extent.kind {
            ExtentKind::Plain { stored_offset } => (stored_offset, extent.len),
            ExtentKind::Encoded(encoding) => (0, encoding.stored_len),
            ExtentKind::Hole | ExtentKind::Preallocated { .. } => return None,
        };
        Some(DevicePlace {
            store: self.store,
            device: 0,
            at: self.image.base.checked_add(extent.id?.0)?.checked_add(at)?,
            len,
        })
    }
}

fn dir_entry(entry: ListingEntry) -> DirEntry {
    DirEntry {
        name: entry.name,
        ino: Ino(entry.inode.0),
        kind: entry.kind,
    }
}
