//! The neutral file tree that every container is a view of.

mod aspects;
pub mod diff;
pub mod edit;
mod extents;
pub mod extract;
mod host;
pub mod manifest;
mod overlay;
pub mod tar;
mod walk;

pub use aspects::Aspects;
pub use extents::Extents;
pub use host::HostDir;
pub use overlay::Overlay;
pub use walk::{EntryId, FileId, Inventory, Step, Steps, is_valid_name};

use std::sync::atomic::{AtomicU64, Ordering};

use codec::Algorithm;

use crate::{Error, Result};

/// A file's identity within one [`FileSystem`]. Hard links are names of the same `Ino`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ino(pub u64);

/// The seven kinds of file that Linux knows (`S_IFMT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl FileKind {
    /// The kind in the type bits (`S_IFMT`) of a Linux `st_mode`; `None` for the unused bit patterns.
    pub const fn from_mode(mode: u32) -> Option<FileKind> {
        Some(match mode & 0o170_000 {
            0o010_000 => FileKind::Fifo,
            0o020_000 => FileKind::CharDevice,
            0o040_000 => FileKind::Directory,
            0o060_000 => FileKind::BlockDevice,
            0o100_000 => FileKind::Regular,
            0o120_000 => FileKind::Symlink,
            0o140_000 => FileKind::Socket,
            _ => return None,
        })
    }

    /// The type bits (`S_IFMT`) of a Linux `st_mode`.
    pub const fn mode_bits(self) -> u32 {
        match self {
            FileKind::Fifo => 0o010_000,
            FileKind::CharDevice => 0o020_000,
            FileKind::Directory => 0o040_000,
            FileKind::BlockDevice => 0o060_000,
            FileKind::Regular => 0o100_000,
            FileKind::Symlink => 0o120_000,
            FileKind::Socket => 0o140_000,
        }
    }

    /// Whether files of this kind have a device number.
    pub const fn is_device(self) -> bool {
        matches!(self, FileKind::BlockDevice | FileKind::CharDevice)
    }
}

/// A point in time: seconds since 1970-01-01 00:00 UTC, which may be negative, and nanoseconds after that second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Whole seconds, rounded down.
    pub seconds: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nanoseconds: u32,
}

/// A device number, as `mknod` takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// Which driver.
    pub major: u32,
    /// Which of its devices.
    pub minor: u32,
}

/// File attributes beside the mode (`FS_IOC_GETFLAGS`, bits of `FS_*_FL` in linux/fs.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileAttributes(pub u32);

/// What is known of a file beside its names and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// What kind of file it is.
    pub kind: FileKind,
    /// The low twelve bits of the mode: set-id, sticky, and the permissions.
    pub permissions: u16,
    /// Owner, as a number.
    pub uid: u32,
    /// Group, as a number.
    pub gid: u32,
    /// Names of this file in the whole tree, as the container states it; at least 1.
    pub nlink: u32,
    /// Content of a regular file, or length of a symbolic link's target, in bytes; 0 for all others.
    pub size: u64,
    /// Device number of a device; zero for all others.
    pub rdev: Device,
    /// Last change of content.
    pub mtime: Time,
    /// Last read access, where the container stores it.
    pub atime: Option<Time>,
    /// Last change of metadata, where the container stores it.
    pub ctime: Option<Time>,
    /// Birth, where the container stores it.
    pub btime: Option<Time>,
    /// Attributes such as immutable or no-copy-on-write, where the container stores them.
    pub attributes: FileAttributes,
    /// Which file it is and when it last changed, where the container stores that.
    pub identity: Option<FileIdentity>,
}

impl Metadata {
    /// An empty file of root's, of 1970, with nothing that a container need not store.
    pub const fn new(kind: FileKind, permissions: u16) -> Metadata {
        const EPOCH: Time = Time {
            seconds: 0,
            nanoseconds: 0,
        };
        Metadata {
            kind,
            permissions,
            uid: 0,
            gid: 0,
            nlink: 1,
            size: 0,
            rdev: Device { major: 0, minor: 0 },
            mtime: EPOCH,
            atime: None,
            ctime: None,
            btime: None,
            attributes: FileAttributes(0),
            identity: None,
        }
    }
}

/// Which file of its subvolume a file is, beyond its names, and when it last changed.
///
/// Two views of one store, one of them a snapshot of the other, show the same file where `number` and `generation` are
/// equal; a number is used again after its file was deleted, and the generation then differs. If `transaction` is equal
/// too, the file did not change between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileIdentity {
    /// The inode's number in its subvolume.
    pub number: u64,
    /// The transaction that created the file (`btrfs_inode_item.generation`).
    pub generation: u64,
    /// The transaction that last changed it (`btrfs_inode_item.transid`).
    pub transaction: u64,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name: 1 to 255 bytes without NUL and `/`, neither `.` nor `..`. Readers guarantee this.
    pub name: Box<[u8]>,
    /// The file of that name.
    pub ino: Ino,
    /// Its kind, equal to that in its [`Metadata`].
    pub kind: FileKind,
}

/// An extended attribute, with its full name (`user.mime_type`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xattr {
    /// Name with namespace, without NUL.
    pub name: Box<[u8]>,
    /// Any bytes.
    pub value: Box<[u8]>,
}

/// How an extent is stored, when it is not stored as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Encoding {
    /// What decodes it.
    pub algorithm: Algorithm,
    /// Bytes that [`FileSystem::read_encoded`] gives.
    pub stored_len: u64,
    /// Bytes that decoding is meant to give. What the frame gives short of it are zeros.
    pub unencoded_len: u64,
    /// Where, in the decoded bytes, the part begins that the file shows; [`Extent::len`] says how long it is.
    pub unencoded_offset: u64,
}

/// The identity of stored data within one store ([`Storage::store`]): extents with equal ids show parts of the same stored
/// bytes, so a sink that can share data stores them once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExtentId(pub u64);

/// What stands behind a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExtentKind {
    /// Nothing is stored; reads as zeros.
    Hole,
    /// Space is reserved for it and nothing is written there (`fallocate`); reads as zeros.
    Preallocated,
    /// Bytes, stored as they are.
    Plain {
        /// Where, in the stored bytes that [`Extent::id`] names, this part begins.
        stored_offset: u64,
    },
    /// Bytes, stored compressed.
    Encoded(Encoding),
}

impl ExtentKind {
    /// Whether bytes stand behind it. What has no data reads as zeros.
    pub const fn has_data(self) -> bool {
        matches!(self, ExtentKind::Plain { .. } | ExtentKind::Encoded(_))
    }
}

/// A part of a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// How many bytes of the file it covers; never 0, and never past the file's size.
    pub len: u64,
    /// What stands behind it.
    pub kind: ExtentKind,
    /// Which stored data it shows; `None` when the container does not say.
    pub id: Option<ExtentId>,
}

impl Extent {
    /// Where it ends in the file, in bytes.
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// What holds the stored data of a file system, for as long as the program runs.
///
/// All views of one open container have the same: two subvolumes of an image, or a tree with edits and the tree below
/// it. The same container opened twice is two stores, for nothing proves that it did not change in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreId(u64);

impl StoreId {
    /// The identity of a store that is opened now: no other one has it.
    #[expect(clippy::new_without_default, reason = "no two are equal")]
    pub fn new() -> StoreId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        StoreId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// How all content of a file system is stored, if there is one way: in blocks of `block_bytes`, the last of a file being
/// shorter, each encoded with `algorithm` or, where that makes nothing smaller, plain. Ends of files may be parts of
/// blocks that they share. A sink that stores in the same way can take the blocks as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEncoding {
    /// What decodes a block.
    pub algorithm: Algorithm,
    /// Content of a block, in bytes.
    pub block_bytes: u32,
}

/// How a file system stores what it shows. A view of another file system passes it on as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storage {
    /// What holds the data: [`ExtentId`]s and [`FileIdentity`]s are comparable where this is equal.
    pub store: StoreId,
    /// The one way in which all content is stored, if there is one.
    pub block_encoding: Option<BlockEncoding>,
    /// Whether extents may be encoded or have identities: whether it is worth asking for those of small files, too.
    pub stored_extents: bool,
    /// Whether no time in it is finer than a second, so that a comparison of times can be no finer either.
    pub whole_seconds: bool,
}

impl Storage {
    /// A store of plain bytes, with times in nanoseconds.
    pub const fn plain(store: StoreId) -> Storage {
        Storage {
            store,
            block_encoding: None,
            stored_extents: false,
            whole_seconds: false,
        }
    }
}

/// A checksum over stored bytes that a container keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Checksum {
    /// CRC-32C, 4 bytes.
    Crc32c,
    /// XXH64 with seed 0, 8 bytes.
    Xxh64,
    /// SHA-256, 32 bytes.
    Sha256,
    /// BLAKE2b with 32 bytes.
    Blake2b,
}

/// A read-only tree of files: the one trait that all containers share.
///
/// Names and link targets are bytes. Everything may be called from several threads at once. An `Ino` that this file
/// system did not give is an error ([`Error::NotFound`]) or the wrong file, never a panic.
///
/// No method has a default: a view of another file system that forgets one does not compile. A file system for which
/// the obvious answer does calls [`with_metadata`] and [`entry_named`].
pub trait FileSystem: Send + Sync {
    /// The root directory.
    fn root(&self) -> Ino;

    /// How content is stored. Costs nothing to ask.
    fn storage(&self) -> Storage;

    /// What is known of a file.
    ///
    /// # Errors
    /// The medium cannot be read, or the file's description breaks the format.
    fn metadata(&self, ino: Ino) -> Result<Metadata>;

    /// The entries of a directory, without `.` and `..`, ascending by the bytes of their names, each name once.
    ///
    /// # Errors
    /// [`Error::NotADirectory`], or as for [`FileSystem::metadata`].
    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>>;

    /// The entries of a directory as [`FileSystem::read_dir`] gives them, each with its metadata: what a walk needs,
    /// in one go where the container can do that cheaper.
    ///
    /// # Errors
    /// As for [`FileSystem::read_dir`] and [`FileSystem::metadata`].
    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>>;

    /// The file of that name in a directory.
    ///
    /// # Errors
    /// [`Error::NotFound`] when no entry has that name, or as for [`FileSystem::read_dir`].
    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<DirEntry>;

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when the file is not a link, or as for [`FileSystem::metadata`].
    fn read_link(&self, link: Ino) -> Result<Vec<u8>>;

    /// The extended attributes of a file, ascending by name, each name once.
    ///
    /// # Errors
    /// As for [`FileSystem::metadata`].
    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>>;

    /// The extents of a regular file from the one that covers `from` on, without gaps between them.
    ///
    /// At least one when `from` is before the file's end, none otherwise. They need not reach the end: the caller asks
    /// again from where the last one ends, so that the list of a file with millions of extents is never held whole.
    ///
    /// # Errors
    /// [`Error::IsADirectory`], or as for [`FileSystem::metadata`].
    fn extents(&self, file: Ino, from: u64) -> Result<Vec<Extent>>;

    /// Reads decoded content of a regular file, and returns how many bytes there are: fewer than `buf` holds only at
    /// the file's end, 0 from there on. Nothing beyond that count is written to `buf`.
    ///
    /// # Errors
    /// The content cannot be read or decoded, or its checksum differs.
    fn read_at(&self, file: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Puts the stored bytes of an encoded extent of that file into `stored`, which is cleared first. Returns the checksum
    /// of the container that they were compared with; `None` if the container has none for them.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when the extent is not an encoded one of that file; the bytes cannot be read, or their
    /// checksum differs.
    fn read_encoded(
        &self,
        file: Ino,
        extent: &Extent,
        stored: &mut Vec<u8>,
    ) -> Result<Option<Checksum>>;
}

/// The answer of [`FileSystem::read_dir_with_metadata`] where it costs as much as asking one by one.
///
/// # Errors
/// As for [`FileSystem::read_dir_with_metadata`].
pub fn with_metadata(
    fs: &dyn FileSystem,
    entries: Vec<DirEntry>,
) -> Result<Vec<(DirEntry, Metadata)>> {
    let describe = |entry: DirEntry| {
        let metadata = fs.metadata(entry.ino)?;
        Ok((entry, metadata))
    };
    entries.into_iter().map(describe).collect()
}

/// The answer of [`FileSystem::lookup`] from all entries of the directory, which ascend by name.
///
/// # Errors
/// [`Error::NotFound`] when no entry has that name.
pub fn entry_named(mut entries: Vec<DirEntry>, name: &[u8]) -> Result<DirEntry> {
    match entries.binary_search_by(|entry| (*entry.name).cmp(name)) {
        Ok(at) => Ok(entries.swap_remove(at)),
        Err(_) => Err(Error::NotFound),
    }
}

/// What [`FileSystem::read_encoded`] says where nothing is encoded.
pub(crate) const NOTHING_ENCODED: Error =
    Error::InvalidInput("this file system holds no encoded extents");
