//! The neutral file tree: every container is a view of it.

mod aspects;
mod by_path;
pub(crate) mod data;
pub mod diff;
pub mod edit;
mod extents;
pub mod extract;
mod followed;
mod host;
mod inode_index;
mod joined;
pub mod manifest;
mod overlay;
mod overlay_layer;
mod overlayfs;
pub mod rescue;
pub mod tar;
mod walk;

pub use aspects::Aspects;
pub use by_path::ByPath;
pub use extents::Extents;
pub use followed::FollowedDir;
pub(crate) use host::{ExtentItem, ItemBody};
pub use host::{HostContent, HostDir, HostFile, HostStep, HostTimes, walk_host_dir};
pub use joined::{Graft, Joined};
pub use overlay::Overlay;
pub use overlay_layer::OverlayLayer;
pub use walk::{EntryId, FileId, Inventory, Steps, WalkStep, is_valid_name};

use std::sync::atomic::{AtomicU64, Ordering};

use codec::Algorithm;

use crate::{Error, Result};

/// A file's identity within one [`FileSystem`]. Hard links are names of the same `Ino`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ino(pub u64);

/// The seven file types of Linux (`S_IFMT`).
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
    /// The file type in the type bits (`S_IFMT`) of a Linux `st_mode`; `None` for unused bit
    /// patterns.
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

/// A point in time: seconds since 1970-01-01 00:00 UTC, possibly negative, plus nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Whole seconds, rounded down.
    pub seconds: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nanoseconds: u32,
}

/// A device number, as passed to `mknod`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// Identifies the driver.
    pub major: u32,
    /// Identifies the device among those of the driver.
    pub minor: u32,
}

impl Device {
    /// The number in an image, as the kernel's `new_decode_dev` takes it: 12 bits of major, 20 of
    /// minor.
    pub const fn parse(stored: u32) -> Device {
        Device {
            major: stored >> 8 & 0xfff,
            minor: (stored & 0xff) | (stored >> 12 & 0xf_ff00),
        }
    }

    /// The number for an image, as the kernel's `new_encode_dev` makes it; `None` if it does not
    /// fit.
    pub fn emit(self) -> Option<u32> {
        let fits = self.major < 1 << 12 && self.minor < 1 << 20;
        fits.then_some((self.minor & 0xff) | (self.major << 8) | ((self.minor & !0xff) << 12))
    }
}

/// File attributes other than the mode (`FS_IOC_GETFLAGS`, bits of `FS_*_FL` in linux/fs.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileAttributes(pub u32);

impl FileAttributes {
    /// `FS_COMPR_FL`, `FS_SYNC_FL`, `FS_NODUMP_FL`, `FS_NOATIME_FL` and `FS_NOCOW_FL`: those that,
    /// unlike immutable, do not prevent finishing or removing a file.
    pub const SETTABLE: u32 = 0x04 | 0x08 | 0x40 | 0x80 | Self::NO_COW;
    /// `FS_NOCOW_FL`: content is written in place, without compression and checksums.
    pub const NO_COW: u32 = 0x0080_0000;
    /// Content has no checksums. No bit of Linux: btrfs has one of its own, which no program shows.
    pub const NO_CHECKSUMS: u32 = 1 << 31;
    /// `FS_NOCOMP_FL`: content is not compressed.
    pub const NOT_COMPRESSED: u32 = 0x400;

    /// Those that a copy into a directory has to keep. [`FileAttributes::NOT_COMPRESSED`] is none:
    /// btrfs also sets it by itself, on what it could not make smaller.
    pub fn to_keep(self) -> u32 {
        self.0 & !Self::NOT_COMPRESSED
    }
}

/// The user or group that Linux takes for none (`INVALID_UID`): images and streams with it are
/// refused, and `chown` takes it for no change.
pub const NO_OWNER: u32 = u32::MAX;

/// A file's metadata: everything but its names and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The file type.
    pub kind: FileKind,
    /// The low twelve bits of the mode: permissions, set-user-ID, set-group-ID and sticky.
    pub permissions: u16,
    /// The owner's user ID.
    pub uid: u32,
    /// The group ID.
    pub gid: u32,
    /// The number of names (hard links) of this file in the whole tree, as the container states it;
    /// at least 1, or 0 to make each name a file of its own.
    pub nlink: u32,
    /// The size of a regular file's content or of a symbolic link's target, in bytes; 0 for all
    /// others.
    pub size: u64,
    /// The device number of a device; zero for all others.
    pub rdev: Device,
    /// Time of the last change of content.
    pub mtime: Time,
    /// Time of the last read access, if the container stores it.
    pub atime: Option<Time>,
    /// Time of the last change of metadata, if the container stores it.
    pub ctime: Option<Time>,
    /// Time of creation, if the container stores it.
    pub btime: Option<Time>,
    /// Attributes such as immutable or no-copy-on-write, if the container stores them.
    pub attributes: FileAttributes,
    /// Which file this is and when it last changed, if the container stores that.
    pub identity: Option<FileIdentity>,
}

impl Metadata {
    /// Checks that Linux can have the owner and the group.
    ///
    /// # Errors
    /// One of them is [`NO_OWNER`].
    pub fn check_owner(&self) -> Result<()> {
        if [self.uid, self.gid].contains(&NO_OWNER) {
            return Err(Error::InvalidInput(
                "the owner or group is the reserved number 2^32 - 1; --map-uids, --map-gids or --all-root give another",
            ));
        }
        Ok(())
    }

    /// An empty file owned by root and dated 1970, without any optional field.
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

/// A file's identity in its subvolume, independent of its names, and when it last changed.
///
/// Two views of one store, such as a subvolume and its snapshot, show the same file if `number` and
/// `generation` are equal: the number of a deleted file can be reused, but then the generation
/// differs. If `transaction` is equal too, the file did not change between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileIdentity {
    /// The inode number in its subvolume.
    pub number: u64,
    /// The transaction that created the file (`btrfs_inode_item.generation`).
    pub generation: u64,
    /// The transaction that last changed it (`btrfs_inode_item.transid`).
    pub transaction: u64,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name: 1 to 255 bytes without NUL or `/`, and neither `.` nor `..`. Readers guarantee
    /// this.
    pub name: Box<[u8]>,
    /// The file with this name.
    pub ino: Ino,
    /// The file type, equal to [`Metadata::kind`].
    pub kind: FileKind,
}

/// An extended attribute with its full name, such as `user.mime_type`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xattr {
    /// The name with its namespace, without NUL.
    pub name: Box<[u8]>,
    /// The value: any bytes.
    pub value: Box<[u8]>,
}

impl Xattr {
    /// Whether Linux lets files of this type have it: the namespace `user` is for regular files and
    /// directories.
    pub(crate) fn fits(&self, kind: FileKind) -> bool {
        matches!(kind, FileKind::Regular | FileKind::Directory) || !self.name.starts_with(b"user.")
    }
}

/// How a compressed extent is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Encoding {
    /// The algorithm that decodes it.
    pub algorithm: Algorithm,
    /// The number of bytes that [`FileSystem::read_encoded`] returns.
    pub stored_len: u64,
    /// The expected size of the decoded data, in bytes. If the frame decodes to less, the rest is
    /// zeros.
    pub unencoded_len: u64,
    /// Where, in the decoded bytes, the part that the file shows begins; [`Extent::len`] is its
    /// length.
    pub unencoded_offset: u64,
}

/// The identity of stored data within one store ([`Storage::store`]): extents with equal IDs show
/// parts of the same stored bytes, so a sink that can share data stores those once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExtentId(pub u64);

/// How a part of a file is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExtentKind {
    /// Nothing is stored; reads as zeros.
    Hole,
    /// Space is reserved but nothing is written (`fallocate`); reads as zeros.
    Preallocated {
        /// Where, in the reserved space that [`Extent::id`] names, this part begins.
        stored_offset: u64,
    },
    /// Bytes, stored uncompressed.
    Plain {
        /// Where, in the stored bytes that [`Extent::id`] names, this part begins.
        stored_offset: u64,
    },
    /// Bytes, stored compressed.
    Encoded(Encoding),
}

impl ExtentKind {
    /// Whether the extent has stored data; an extent without data reads as zeros.
    pub const fn has_data(self) -> bool {
        matches!(self, ExtentKind::Plain { .. } | ExtentKind::Encoded(_))
    }
}

/// A part of a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Where the extent begins in the file, in bytes.
    pub offset: u64,
    /// Its length in bytes: never 0, and never past the end of the file.
    pub len: u64,
    /// How it is stored.
    pub kind: ExtentKind,
    /// The stored data that it shows; `None` if the container does not say.
    pub id: Option<ExtentId>,
}

impl Extent {
    /// Where the extent ends in the file, in bytes.
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// The identity of the store that holds a file system's data, valid while the program runs.
///
/// All views of one open container have the same store: two subvolumes of an image, or an edited
/// tree and the tree below it. Opening a container twice gives two stores, since it could have
/// changed in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreId(u64);

impl StoreId {
    /// A new identity, different from all others.
    #[expect(clippy::new_without_default, reason = "no two are equal")]
    pub fn new() -> StoreId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        StoreId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The uniform encoding of all content of a file system, if it has one: blocks of `block_bytes`,
/// except that the last block of a file can be shorter, each encoded with `algorithm`, or plain if
/// encoding does not make it smaller. Ends of files can be parts of shared blocks. A sink that
/// stores data in the same way can copy the blocks unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEncoding {
    /// The algorithm that decodes a block.
    pub algorithm: Algorithm,
    /// The size of a block's content, in bytes.
    pub block_bytes: u32,
}

/// How a file system stores its content. A view of another file system passes this on unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storage {
    /// The store: [`ExtentId`]s and [`FileIdentity`]s are comparable only if this is equal.
    pub store: StoreId,
    /// The uniform encoding of all content, if there is one.
    pub block_encoding: Option<BlockEncoding>,
    /// Whether extents can be encoded or have identities, so that asking for them pays off even for
    /// small files.
    pub stored_extents: bool,
    /// Whether all times are whole seconds, so that times can only be compared to the second.
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

/// Where stored bytes are on a device of a container, in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevicePlace {
    /// The store that the device belongs to.
    pub store: StoreId,
    /// The number that the container gives the device; 0 if there can be only one.
    pub device: u64,
    /// The byte of the device where they begin.
    pub at: u64,
    /// Their number.
    pub len: u64,
}

/// The checksum that a container keeps of stored bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Checksum {
    /// CRC-32C, 4 bytes.
    Crc32c,
    /// XXH64 with seed 0, 8 bytes.
    Xxh64,
    /// SHA-256, 32 bytes.
    Sha256,
    /// BLAKE2b with a 32-byte hash.
    Blake2b,
}

/// A read-only tree of files: the trait that all containers implement.
///
/// Names and link targets are bytes. All methods can be called from several threads at once.
/// Passing an `Ino` that this file system did not return gives an error ([`Error::NotFound`]) or
/// the wrong file, but never a panic.
///
/// Only [`FileSystem::host_content`] and [`FileSystem::stored_at`] have default implementations, so
/// a view of another file system that forgets another method does not compile. [`with_metadata`]
/// and [`entry_named`] are the simple implementations for file systems that need no better one.
/// [`ByPath`] adds access by path.
pub trait FileSystem: Send + Sync {
    /// The root directory.
    fn root(&self) -> Ino;

    /// How content is stored. This call is cheap.
    fn storage(&self) -> Storage;

    /// The metadata of a file.
    ///
    /// # Errors
    /// The medium cannot be read, or the file's metadata breaks the format.
    fn metadata(&self, ino: Ino) -> Result<Metadata>;

    /// The entries of a directory, without `.` and `..`, sorted by the bytes of their names,
    /// without duplicates.
    ///
    /// # Errors
    /// [`Error::NotADirectory`], or as for [`FileSystem::metadata`].
    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>>;

    /// The entries of a directory as returned by [`FileSystem::read_dir`], each with its metadata.
    /// Walks use this: containers can often do it faster than with one call per file.
    ///
    /// # Errors
    /// As for [`FileSystem::read_dir`] and [`FileSystem::metadata`].
    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>>;

    /// The entries of a directory that can be listed, as in [`FileSystem::read_dir`], and why
    /// others cannot: one [`Error::File`] with the name for each that is known, and any other error
    /// for an unknown number of them. Walks that are to lose as little as possible use this after
    /// [`FileSystem::read_dir_with_metadata`] failed; [`all_or_nothing`] is the implementation for
    /// directories that can be listed as a whole or not at all.
    fn list_readable(&self, dir: Ino) -> (Vec<DirEntry>, Vec<Error>);

    /// The entry with this name in a directory.
    ///
    /// # Errors
    /// [`Error::NotFound`] if no entry has this name, or as for [`FileSystem::read_dir`].
    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<DirEntry>;

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the file is not a symbolic link, or as for
    /// [`FileSystem::metadata`].
    fn read_link(&self, link: Ino) -> Result<Vec<u8>>;

    /// The extended attributes of a file, sorted by name, without duplicates.
    ///
    /// # Errors
    /// As for [`FileSystem::metadata`].
    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>>;

    /// The extents of a regular file, starting with the one that covers `from`, without gaps.
    ///
    /// Returns at least one extent if `from` is before the end of the file, otherwise none. They
    /// need not reach the end: the caller asks again from the end of the last one, so the extents
    /// of a file with millions of them are never held in memory all at once.
    ///
    /// # Errors
    /// [`Error::IsADirectory`], or as for [`FileSystem::metadata`].
    fn extents(&self, file: Ino, from: u64) -> Result<Vec<Extent>>;

    /// Reads decoded content of a regular file and returns the number of bytes read. This is less
    /// than `buf.len()` only at the end of the file, and 0 past it. The rest of `buf` is not
    /// written.
    ///
    /// # Errors
    /// The content cannot be read or decoded, or its checksum does not match.
    fn read_at(&self, file: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Reads the stored bytes of an encoded extent of this file into `stored`, which is cleared
    /// first. Returns the kind of checksum that the bytes were verified with; `None` if the
    /// container has no checksum for them.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the extent is not an encoded extent of this file; the bytes
    /// cannot be read, or their checksum does not match.
    fn read_encoded(
        &self,
        file: Ino,
        extent: &Extent,
        stored: &mut Vec<u8>,
    ) -> Result<Option<Checksum>>;

    /// The open file of the host that has exactly the content of this regular file, if there is one
    /// and it can be opened. A sink on the same file system can then share the content instead of
    /// copying it.
    ///
    /// `None` is always right, and so the default: the content is then read. A view passes this on
    /// only where it shows the content of a file unchanged.
    fn host_content(&self, file: Ino) -> Option<HostContent<'_>> {
        let _ = file;
        None
    }

    /// Where the stored bytes of an extent of this file, as [`FileSystem::extents`] returns it, are
    /// on a device: those that [`FileSystem::read_encoded`] reads, or of a plain extent the part
    /// that it shows. A sink can then refer to them instead of copying them.
    ///
    /// `None` is always right, and so the default. It is the answer for bytes in several pieces, as
    /// on striped devices.
    fn stored_at(&self, file: Ino, extent: &Extent) -> Option<DevicePlace> {
        let _ = (file, extent);
        None
    }
}

/// Implements [`FileSystem::list_readable`] with the result of [`FileSystem::read_dir`].
pub fn all_or_nothing(listed: Result<Vec<DirEntry>>) -> (Vec<DirEntry>, Vec<Error>) {
    match listed {
        Ok(entries) => (entries, Vec::new()),
        Err(error) => (Vec::new(), vec![error]),
    }
}

/// Implements [`FileSystem::read_dir_with_metadata`] with one call of [`FileSystem::metadata`] per
/// entry.
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

/// Implements [`FileSystem::lookup`] by a search in all entries of the directory, which must be
/// sorted by name.
///
/// # Errors
/// [`Error::NotFound`] if no entry has this name.
pub fn entry_named(mut entries: Vec<DirEntry>, name: &[u8]) -> Result<DirEntry> {
    match entries.binary_search_by(|entry| (*entry.name).cmp(name)) {
        Ok(at) => Ok(entries.swap_remove(at)),
        Err(_) => Err(Error::NotFound),
    }
}

/// The error of [`FileSystem::read_encoded`] for file systems without encoded extents.
pub(crate) const NOTHING_ENCODED: Error =
    Error::InvalidInput("this file system holds no encoded extents");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive() {
        for (major, minor) in [(0, 0), (8, 1), (259, 65_535), (4095, (1 << 20) - 1)] {
            let device = Device { major, minor };
            assert_eq!(Device::parse(device.emit().unwrap()), device);
        }
        // 259:0x12345 in the kernel's encoding: the minor number's low byte, the major number, the
        // rest of the minor number.
        let device = Device {
            major: 259,
            minor: 0x1_2345,
        };
        assert_eq!(device.emit(), Some(0x1231_0345));
        assert_eq!(
            Device {
                major: 4096,
                minor: 0
            }
            .emit(),
            None
        );
        assert_eq!(
            Device {
                major: 0,
                minor: 1 << 20
            }
            .emit(),
            None
        );
    }
}
