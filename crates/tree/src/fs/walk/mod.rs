//! The inventory: a whole tree, sorted, with hard links merged, and without file data.
//!
//! Every container is made from an inventory. It holds a file's metadata and name in about 50
//! bytes, 8 more if any file has several names, and about 36 more if there are other times than the
//! modification time.

mod listing;
mod owners;
mod without;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use self::owners::OwnerTable;
use super::{Device, Extents, FileAttributes, FileKind, FileSystem, Ino, Metadata, Time};
use crate::{RecordTable, Scratch, Strings, high_u32, low_u32, wide_u64};

/// A file of an [`Inventory`], by number. 0 is the root, and all numbers below
/// [`Inventory::file_count`] are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// A name in an [`Inventory`], by number. 0 is the root's empty name, and all numbers below
/// [`Inventory::entry_count`] are valid. A file has one entry for each of its hard links in the
/// tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId(pub u32);

/// A step of a walk through a tree, depth first, names sorted by their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkStep {
    /// A directory, before its contents.
    Enter(EntryId),
    /// A name of a file that is not a directory.
    File(EntryId),
    /// A directory, after its contents.
    Leave(EntryId),
}

/// A whole tree in memory, without file content and extended attributes, which [`Inventory::tree`]
/// still has.
///
/// Created by [`Inventory::of`]; threads can share it.
pub struct Inventory<'t> {
    tree: &'t dyn FileSystem,
    /// Each is a [`FileRecord`], but for its owner.
    files: RecordTable<7>,
    owners: OwnerTable,
    /// Modification times that do not fit in a record.
    far_times: RecordTable<3>,
    /// Parallel to `files` if any file has one of these times, otherwise empty.
    times: RecordTable<9>,
    /// Each is a [`NameRecord`]. Those of a directory are adjacent, sorted by name.
    entries: RecordTable<2>,
    /// The file of each entry, and the first entry of each file in tree order. Both are empty while
    /// no file has several names: entries and files then have the same numbers.
    files_of: RecordTable<1>,
    first_entries: RecordTable<1>,
    /// The names of the entries.
    names: Strings,
    content_bytes: u64,
}

/// One file. 28 bytes when packed.
#[derive(Clone, Copy, Debug)]
struct FileRecord {
    ino: u64,
    /// Size of a regular file or symbolic link, number of a device, or first entry and end of a
    /// directory.
    size: u64,
    /// Seconds since [`FIRST_SECOND`], above 30 bits of nanoseconds; with [`FAR_TIME`] there, an
    /// index into [`Inventory::far_times`].
    mtime: u64,
    owner: OwnerRecord,
}

/// The first of the 2^34 seconds that ext4 can store, in 1901.
const FIRST_SECOND: i64 = -1 << 31;

/// More nanoseconds than a second has, and all of their bits.
const FAR_TIME: u64 = (1 << 30) - 1;

/// The part of a file's metadata that few files have alone. 24 bytes when packed.
#[derive(Clone, Copy, Debug)]
struct OwnerRecord {
    uid: u32,
    gid: u32,
    /// As the container states it.
    nlink: u32,
    /// The number of names in this tree.
    names: u32,
    attributes: u32,
    permissions: u16,
    kind: FileKind,
    /// Bits 0, 1, 2: it has an access, change, birth time.
    has_times: u8,
}

/// Access, change and birth time: low and high half of the seconds, then nanoseconds, without
/// padding.
type OtherTimes = [u32; 9];

/// One name. 8 bytes when packed.
#[derive(Clone, Copy, Debug)]
struct NameRecord {
    name_at: u32,
    /// The directory that holds it.
    parent: u32,
}

impl FileRecord {
    /// The record, with the number of its owner.
    fn pack(&self, owner: u32) -> [u32; 7] {
        [
            low_u32(self.ino),
            high_u32(self.ino),
            low_u32(self.size),
            high_u32(self.size),
            low_u32(self.mtime),
            high_u32(self.mtime),
            owner,
        ]
    }

    #[inline]
    fn unpack(words: &[u32; 7], owner: OwnerRecord) -> FileRecord {
        let wide = |at: usize| wide_u64(words[at], words[at + 1]);
        FileRecord {
            ino: wide(0),
            size: wide(2),
            mtime: wide(4),
            owner,
        }
    }

    /// The size of a regular file or symbolic link.
    fn content_size(&self) -> u64 {
        match self.owner.kind {
            FileKind::Regular | FileKind::Symlink => self.size,
            _ => 0,
        }
    }

    /// The entries of a directory.
    fn entry_range(&self) -> Range<u32> {
        match self.owner.kind {
            FileKind::Directory => high_u32(self.size)..low_u32(self.size),
            _ => 0..0,
        }
    }
}

impl OwnerRecord {
    fn pack(self) -> [u32; 6] {
        [
            self.uid,
            self.gid,
            self.nlink,
            self.names,
            self.attributes,
            u32::from(self.permissions)
                | self.kind.mode_bits() >> 12 << 16
                | u32::from(self.has_times) << 24,
        ]
    }

    #[inline]
    fn unpack(&[uid, gid, nlink, names, attributes, bits]: &[u32; 6]) -> OwnerRecord {
        OwnerRecord {
            uid,
            gid,
            nlink,
            names,
            attributes,
            permissions: bits as u16,
            // Only kinds are packed.
            kind: FileKind::from_mode((bits >> 16 & 0xff) << 12).unwrap_or(FileKind::Regular),
            has_times: (bits >> 24) as u8,
        }
    }
}

impl NameRecord {
    fn pack(self) -> [u32; 2] {
        [self.name_at, self.parent]
    }
}

impl fmt::Debug for Inventory<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inventory")
            .field("storage", &self.tree.storage())
            .field("files", &self.file_count())
            .finish_non_exhaustive()
    }
}

impl<'t> Inventory<'t> {
    fn new(tree: &'t dyn FileSystem, scratch: &Scratch) -> Self {
        Inventory {
            tree,
            files: RecordTable::new(scratch),
            owners: OwnerTable::new(scratch),
            far_times: RecordTable::new(scratch),
            times: RecordTable::new(scratch),
            entries: RecordTable::new(scratch),
            files_of: RecordTable::new(scratch),
            first_entries: RecordTable::new(scratch),
            names: Strings::new(scratch),
            content_bytes: 0,
        }
    }

    /// The tree that was walked. Each [`Inventory::ino`] is one of its files.
    pub fn tree(&self) -> &'t dyn FileSystem {
        self.tree
    }

    /// The number of files, each counted once regardless of its number of names. At least 1, the
    /// root.
    pub fn file_count(&self) -> u32 {
        self.files.len() as u32 // the walk refuses more
    }

    /// The number of names, including the root's.
    pub fn entry_count(&self) -> u32 {
        self.entries.len() as u32 // the walk refuses more
    }

    /// The total size of all regular files, each counted once, holes included.
    pub fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// The root directory's entry, whose name is empty.
    pub fn root(&self) -> EntryId {
        EntryId(0)
    }

    /// All files in the order of their numbers, which keeps the files of a directory together.
    pub fn files(&self) -> impl ExactSizeIterator<Item = FileId> + use<> {
        (0..self.file_count()).map(FileId)
    }

    #[inline]
    fn record(&self, file: FileId) -> FileRecord {
        self.files.with(file.0 as usize, |words| {
            FileRecord::unpack(words, self.owners.with(words[6], OwnerRecord::unpack))
        })
    }

    /// Appends a file, whose first entry is `entry`.
    fn push(&mut self, record: &FileRecord, entry: u32) {
        if !self.files_of.is_empty() {
            self.first_entries.push([entry]);
        }
        let owner = self.owners.number(record.owner.pack());
        self.files.push(record.pack(owner));
    }

    /// Appends a name of a file.
    fn push_entry(&mut self, record: NameRecord, file: u32) {
        if self.files_of.is_empty() && file != self.entry_count() {
            for number in 0..self.entry_count() {
                self.files_of.push([number]);
                self.first_entries.push([number]);
            }
        }
        if !self.files_of.is_empty() {
            self.files_of.push([file]);
        }
        self.entries.push(record.pack());
    }

    fn change(&mut self, file: u32, change: impl FnOnce(&mut FileRecord)) {
        let [.., number] = self.files.get(file as usize);
        let mut record = self.record(FileId(file));
        let before = record.owner.pack();
        change(&mut record);
        let number = match record.owner.pack() {
            owner if owner == before => number,
            owner => self.owners.number(owner),
        };
        self.files.set(file as usize, record.pack(number));
    }

    fn pack_time(&mut self, time: Time) -> u64 {
        let since = time.seconds.wrapping_sub(FIRST_SECOND).cast_unsigned();
        if since < 1 << 34 && time.nanoseconds < 1_000_000_000 {
            return since << 30 | u64::from(time.nanoseconds);
        }
        let number = self.far_times.len() as u64; // one for each file at most
        let seconds = time.seconds.cast_unsigned();
        let record = [low_u32(seconds), high_u32(seconds), time.nanoseconds];
        self.far_times.push(record);
        number << 30 | FAR_TIME
    }

    fn unpack_time(&self, mtime: u64) -> Time {
        if mtime & FAR_TIME == FAR_TIME {
            let [low, high, nanoseconds] = self.far_times.get((mtime >> 30) as usize);
            return Time {
                seconds: wide_u64(low, high).cast_signed(),
                nanoseconds,
            };
        }
        Time {
            seconds: (mtime >> 30).cast_signed() + FIRST_SECOND,
            nanoseconds: low_u32(mtime & FAR_TIME),
        }
    }

    #[inline]
    fn entry(&self, entry: EntryId) -> NameRecord {
        let read = |&[name_at, parent]: &[u32; 2]| NameRecord { name_at, parent };
        self.entries.with(entry.0 as usize, read)
    }

    fn other_times(&self, file: FileId) -> OtherTimes {
        match file.0 as usize {
            index if index < self.times.len() => self.times.get(index),
            _ => [0; 9],
        }
    }

    /// The file's identity in the file system.
    pub fn ino(&self, file: FileId) -> Ino {
        Ino(self.record(file).ino)
    }

    /// The file type.
    pub fn kind(&self, file: FileId) -> FileKind {
        self.record(file).owner.kind
    }

    /// The file's size, as in [`Metadata::size`].
    pub fn size(&self, file: FileId) -> u64 {
        self.record(file).content_size()
    }

    /// The extents of a regular file, from its beginning.
    pub fn extents(&self, file: FileId) -> Extents<'t> {
        Extents::new(self.tree, self.ino(file), self.size(file))
    }

    /// The number of names of the file in this tree. [`Metadata::nlink`], which the container
    /// states, can differ.
    pub fn name_count(&self, file: FileId) -> u32 {
        self.record(file).owner.names
    }

    /// The file's metadata, except its identity, which is not kept.
    pub fn metadata(&self, file: FileId) -> Metadata {
        let record = self.record(file);
        let owner = record.owner;
        let times = self.other_times(file);
        let other = |n: usize| {
            (owner.has_times & (1 << n) != 0).then(|| Time {
                seconds: wide_u64(times[3 * n], times[3 * n + 1]).cast_signed(),
                nanoseconds: times[3 * n + 2],
            })
        };
        let rdev = if owner.kind.is_device() {
            Device {
                major: high_u32(record.size),
                minor: low_u32(record.size),
            }
        } else {
            Device::default()
        };
        Metadata {
            kind: owner.kind,
            permissions: owner.permissions,
            uid: owner.uid,
            gid: owner.gid,
            nlink: owner.nlink,
            size: record.content_size(),
            rdev,
            mtime: self.unpack_time(record.mtime),
            atime: other(0),
            ctime: other(1),
            btime: other(2),
            attributes: FileAttributes(owner.attributes),
            identity: None,
        }
    }

    /// Gives a file attributes, beside those that it has.
    pub fn add_attributes(&mut self, file: FileId, attributes: FileAttributes) {
        self.change(file.0, |record| record.owner.attributes |= attributes.0);
    }

    /// Rounds all times down to whole seconds.
    pub fn drop_nanoseconds(&mut self) {
        for file in 0..self.file_count() {
            self.change(file, |record| {
                if record.mtime & FAR_TIME != FAR_TIME {
                    record.mtime &= !FAR_TIME;
                }
            });
        }
        for index in 0..self.far_times.len() {
            let [low, high, _] = self.far_times.get(index);
            self.far_times.set(index, [low, high, 0]);
        }
        for index in 0..self.times.len() {
            let mut times = self.times.get(index);
            for nanoseconds in times.iter_mut().skip(2).step_by(3) {
                *nanoseconds = 0;
            }
            self.times.set(index, times);
        }
    }

    /// Makes no modification time later than this one, in seconds since 1970.
    pub fn limit_mtimes(&mut self, latest: i64) {
        let limit = self.pack_time(Time {
            seconds: latest,
            nanoseconds: 0,
        });
        for file in 0..self.file_count() {
            let mtime = self.record(FileId(file)).mtime;
            if self.unpack_time(mtime).seconds >= latest {
                self.change(file, |record| record.mtime = limit);
            }
        }
    }

    /// The file's first name in the order of [`Inventory::steps`], and its only one unless it has
    /// hard links.
    pub fn first_name(&self, file: FileId) -> EntryId {
        if self.first_entries.is_empty() {
            return EntryId(file.0);
        }
        EntryId(self.first_entries.get(file.0 as usize)[0])
    }

    /// Whether this is the first name of its file; all others are hard links to it.
    pub fn is_first_name(&self, entry: EntryId) -> bool {
        self.first_name(self.file(entry)) == entry
    }

    /// The entries of a directory, sorted by name; empty for another type of file.
    pub fn entries(&self, dir: FileId) -> impl ExactSizeIterator<Item = EntryId> + use<> {
        self.entry_range(dir).map(EntryId)
    }

    fn entry_range(&self, dir: FileId) -> Range<u32> {
        self.record(dir).entry_range()
    }

    /// The file with this name.
    pub fn file(&self, entry: EntryId) -> FileId {
        if self.files_of.is_empty() {
            return FileId(entry.0);
        }
        FileId(self.files_of.get(entry.0 as usize)[0])
    }

    /// The directory that holds this name; the root for the root itself.
    pub fn parent(&self, entry: EntryId) -> FileId {
        FileId(self.entry(entry).parent)
    }

    /// The name, without a path; empty for the root.
    pub fn name(&self, entry: EntryId) -> Cow<'_, [u8]> {
        self.names.get(self.entry(entry).name_at as usize)
    }

    /// The path from the root, names joined by `/`, without a leading `/`; empty for the root.
    pub fn path(&self, entry: EntryId) -> Vec<u8> {
        let mut bytes = 0;
        self.go_up(entry, |name| bytes += name.len() + 1);
        let mut path = vec![b'/'; bytes.saturating_sub(1)];
        let mut end = path.len();
        self.go_up(entry, |name| {
            path[end - name.len()..end].copy_from_slice(name);
            end = end.saturating_sub(name.len() + 1);
        });
        path
    }

    /// Calls `each` with all names of the path, from `entry` up to the child of the root.
    fn go_up(&self, mut entry: EntryId, mut each: impl FnMut(&[u8])) {
        while entry.0 != 0 {
            each(&self.name(entry));
            entry = self.first_name(self.parent(entry));
        }
    }

    /// A walk through the whole tree, from entering the root to leaving it.
    pub fn steps(&self) -> Steps<'_> {
        Steps {
            inventory: self,
            open: Vec::new(),
            started: false,
        }
    }

    /// All names, directories before their contents: the order of an archive.
    pub fn names(&self) -> impl Iterator<Item = EntryId> {
        self.steps().filter_map(|step| match step {
            WalkStep::Enter(entry) | WalkStep::File(entry) => Some(entry),
            WalkStep::Leave(_) => None,
        })
    }

    /// The entry at this path, names joined by `/`; the root for an empty path.
    pub fn find(&self, path: &[u8]) -> Option<EntryId> {
        let mut entry = self.root();
        for name in path.split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            let Range { mut start, mut end } = self.entry_range(self.file(entry));
            loop {
                if start == end {
                    return None;
                }
                let middle = start + (end - start) / 2;
                match (*self.name(EntryId(middle))).cmp(name) {
                    std::cmp::Ordering::Less => start = middle + 1,
                    std::cmp::Ordering::Greater => end = middle,
                    std::cmp::Ordering::Equal => {
                        entry = EntryId(middle);
                        break;
                    }
                }
            }
        }
        Some(entry)
    }

    /// A directory is read before its children, but all of its entries before the entries of its
    /// first child. So the hard link that was found first need not be the first in tree order.
    fn find_first_names(&mut self) {
        if self.files().all(|file| self.name_count(file) == 1) {
            return;
        }
        let mut seen = vec![false; self.files.len()];
        let mut firsts = Vec::new();
        for entry in self.names() {
            let file = self.file(entry);
            if self.name_count(file) > 1 && !seen[file.0 as usize] {
                seen[file.0 as usize] = true;
                firsts.push((file, entry));
            }
        }
        for (file, entry) in firsts {
            self.first_entries.set(file.0 as usize, [entry.0]);
        }
    }

    /// The inventory's memory use in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.files.memory_bytes()
            + self.owners.memory_bytes()
            + self.far_times.memory_bytes()
            + self.times.memory_bytes()
            + self.entries.memory_bytes()
            + self.files_of.memory_bytes()
            + self.first_entries.memory_bytes()
            + self.names.memory_bytes()
    }
}

/// The iterator of [`Inventory::steps`]. Holds one position per directory level.
#[derive(Clone, Debug)]
pub struct Steps<'a> {
    inventory: &'a Inventory<'a>,
    open: Vec<(EntryId, Range<u32>)>,
    started: bool,
}

impl Iterator for Steps<'_> {
    type Item = WalkStep;

    fn next(&mut self) -> Option<WalkStep> {
        let entry = if !self.started {
            self.started = true;
            self.inventory.root()
        } else {
            let (dir, rest) = self.open.last_mut()?;
            match rest.next() {
                Some(entry) => EntryId(entry),
                None => {
                    let dir = *dir;
                    self.open.pop();
                    return Some(WalkStep::Leave(dir));
                }
            }
        };
        let record = self.inventory.record(self.inventory.file(entry));
        if record.owner.kind != FileKind::Directory {
            return Some(WalkStep::File(entry));
        }
        self.open.push((entry, record.entry_range()));
        Some(WalkStep::Enter(entry))
    }
}

/// Whether a file can have this name: 1 to 255 bytes, without NUL or `/`, and neither `.` nor `..`.
pub fn is_valid_name(name: &[u8]) -> bool {
    (1..=255).contains(&name.len())
        && name != b"."
        && name != b".."
        && !name.iter().any(|&byte| byte == 0 || byte == b'/')
}
