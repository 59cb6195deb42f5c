//! The commands of a stream.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use tree::{Time, to_u64};

use crate::encoded::EncodedWrite;
use crate::path;
use crate::raw::{Version, command as number};

/// The longest target of a symlink that Linux has.
const LINK_TARGET_BYTES_MAX: usize = 4095;

/// A command: one step of building a subvolume. Names and data are borrowed from the stream.
///
/// Fields have the names of the attributes. Paths are relative to the subvolume, and the empty path
/// is the subvolume itself; they name files as the steps before left them. In [`Command::Subvol`]
/// and [`Command::Snapshot`], `path` is the name of the new subvolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Start a new subvolume: all commands that follow apply to it, until another one starts or the
    /// stream ends.
    Subvol {
        /// Its name.
        path: &'a [u8],
        /// The UUID that becomes its received UUID: that of the subvolume that was sent, or that
        /// one's own received UUID.
        uuid: [u8; 16],
        /// The transaction of the last change to the subvolume that was sent.
        ctransid: u64,
    },
    /// Start a new subvolume as a snapshot of one that was received before, its parent.
    Snapshot {
        /// Its name.
        path: &'a [u8],
        /// As in [`Command::Subvol`].
        uuid: [u8; 16],
        /// As in [`Command::Subvol`].
        ctransid: u64,
        /// The UUID of the parent, or its received UUID.
        clone_uuid: [u8; 16],
        /// The transaction of the last change to the parent where it was sent.
        clone_ctransid: u64,
    },
    /// Create an empty regular file.
    Mkfile {
        /// The new file.
        path: &'a [u8],
        /// Its inode number where it was sent.
        ino: u64,
    },
    /// Create a directory.
    Mkdir {
        /// The new directory.
        path: &'a [u8],
        /// Its inode number where it was sent.
        ino: u64,
    },
    /// Create a device.
    Mknod {
        /// The new file.
        path: &'a [u8],
        /// Its inode number where it was sent.
        ino: u64,
        /// The device number, as Linux encodes it in 32 bits: see [`device`].
        rdev: u64,
        /// Kind and permissions.
        mode: u64,
    },
    /// Create a named pipe.
    Mkfifo {
        /// The new file.
        path: &'a [u8],
        /// Its inode number where it was sent.
        ino: u64,
        /// 0. Linux writes it; its documentation leaves it out.
        rdev: Option<u64>,
        /// Kind and permissions. Linux writes it; its documentation leaves it out.
        mode: Option<u64>,
    },
    /// Create a socket.
    Mksock {
        /// The new file.
        path: &'a [u8],
        /// Its inode number where it was sent.
        ino: u64,
        /// As in [`Command::Mkfifo`].
        rdev: Option<u64>,
        /// As in [`Command::Mkfifo`].
        mode: Option<u64>,
    },
    /// Create a symlink.
    Symlink {
        /// The new file.
        path: &'a [u8],
        /// Its inode number where it was sent.
        ino: u64,
        /// Its target: any bytes but NUL.
        path_link: &'a [u8],
    },
    /// Give a file or directory another name, which no other file has.
    Rename {
        /// The old name.
        path: &'a [u8],
        /// The new name.
        path_to: &'a [u8],
    },
    /// Give a file a further name.
    Link {
        /// The new name.
        path: &'a [u8],
        /// The existing name.
        path_link: &'a [u8],
    },
    /// Remove a name of a file.
    Unlink {
        /// The name.
        path: &'a [u8],
    },
    /// Remove an empty directory.
    Rmdir {
        /// The directory.
        path: &'a [u8],
    },
    /// Set an extended attribute.
    SetXattr {
        /// The file.
        path: &'a [u8],
        /// The attribute's name, with its namespace.
        xattr_name: &'a [u8],
        /// Its value.
        xattr_data: &'a [u8],
    },
    /// Remove an extended attribute.
    RemoveXattr {
        /// The file.
        path: &'a [u8],
        /// The attribute's name, with its namespace.
        xattr_name: &'a [u8],
    },
    /// Write plain bytes into a file.
    Write {
        /// The file.
        path: &'a [u8],
        /// Where in the file.
        file_offset: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// Share a range of another file, or of the same one.
    Clone {
        /// Where in the file.
        file_offset: u64,
        /// How many bytes.
        clone_len: u64,
        /// The file that gets the range.
        path: &'a [u8],
        /// The UUID or received UUID of the source's subvolume: that of the subvolume which is
        /// being received, the parent's, or another one's.
        clone_uuid: [u8; 16],
        /// The transaction of the last change to the source's subvolume where it was sent.
        clone_ctransid: u64,
        /// The source, relative to its subvolume.
        clone_path: &'a [u8],
        /// Where in the source.
        clone_offset: u64,
    },
    /// Set the size of a file.
    Truncate {
        /// The file.
        path: &'a [u8],
        /// The new size.
        size: u64,
    },
    /// Set the permissions.
    Chmod {
        /// The file.
        path: &'a [u8],
        /// The permissions, without the kind.
        mode: u64,
    },
    /// Set the owner.
    Chown {
        /// The file.
        path: &'a [u8],
        /// The user.
        uid: u64,
        /// The group.
        gid: u64,
    },
    /// Set the times.
    Utimes {
        /// The file.
        path: &'a [u8],
        /// Last access.
        atime: Time,
        /// Last change of the content.
        mtime: Time,
        /// Last change of the inode. A receiver cannot set it on a mounted file system.
        ctime: Time,
        /// Creation, in version 2 and later. A receiver cannot set it on a mounted file system.
        otime: Option<Time>,
    },
    /// The end of the stream, and of its last subvolume.
    End,
    /// A range changed, and its data was left out (`btrfs send --no-data`).
    UpdateExtent {
        /// The file.
        path: &'a [u8],
        /// Where in the file.
        file_offset: u64,
        /// How many bytes.
        size: u64,
    },
    /// Call `fallocate`. Linux only punches holes: mode 3.
    Fallocate {
        /// The file.
        path: &'a [u8],
        /// The mode of the system call.
        fallocate_mode: u32,
        /// Where in the file.
        file_offset: u64,
        /// How many bytes; they can end beyond the file.
        size: u64,
    },
    /// Set the flags of the inode.
    Fileattr {
        /// The file.
        path: &'a [u8],
        /// The flags as btrfs stores them (`BTRFS_INODE_*`), which are not those of `chattr`
        /// (`FS_*_FL`).
        fileattr: u64,
    },
    /// Write bytes that are encoded as btrfs stores them.
    EncodedWrite(EncodedWrite<'a>),
    /// Enable fs-verity.
    EnableVerity {
        /// The file.
        path: &'a [u8],
        /// The hash algorithm (`FS_VERITY_HASH_ALG_*`).
        verity_algorithm: u8,
        /// The size of a Merkle tree block, in bytes.
        verity_block_size: u32,
        /// The salt, which can be empty.
        verity_salt_data: &'a [u8],
        /// The signature, which can be empty.
        verity_sig_data: &'a [u8],
    },
}

/// The names of the commands by number, as `btrfs receive --dump` prints them.
const NAMES: [&str; 26] = [
    "subvol",
    "snapshot",
    "mkfile",
    "mkdir",
    "mknod",
    "mkfifo",
    "mksock",
    "symlink",
    "rename",
    "link",
    "unlink",
    "rmdir",
    "set_xattr",
    "remove_xattr",
    "write",
    "clone",
    "truncate",
    "chmod",
    "chown",
    "utimes",
    "end",
    "update_extent",
    "fallocate",
    "fileattr",
    "encoded_write",
    "enable_verity",
];

impl<'a> Command<'a> {
    /// Its number in a stream.
    pub const fn number(&self) -> u16 {
        match self {
            Command::Subvol { .. } => number::SUBVOL,
            Command::Snapshot { .. } => number::SNAPSHOT,
            Command::Mkfile { .. } => number::MKFILE,
            Command::Mkdir { .. } => number::MKDIR,
            Command::Mknod { .. } => number::MKNOD,
            Command::Mkfifo { .. } => number::MKFIFO,
            Command::Mksock { .. } => number::MKSOCK,
            Command::Symlink { .. } => number::SYMLINK,
            Command::Rename { .. } => number::RENAME,
            Command::Link { .. } => number::LINK,
            Command::Unlink { .. } => number::UNLINK,
            Command::Rmdir { .. } => number::RMDIR,
            Command::SetXattr { .. } => number::SET_XATTR,
            Command::RemoveXattr { .. } => number::REMOVE_XATTR,
            Command::Write { .. } => number::WRITE,
            Command::Clone { .. } => number::CLONE,
            Command::Truncate { .. } => number::TRUNCATE,
            Command::Chmod { .. } => number::CHMOD,
            Command::Chown { .. } => number::CHOWN,
            Command::Utimes { .. } => number::UTIMES,
            Command::End => number::END,
            Command::UpdateExtent { .. } => number::UPDATE_EXTENT,
            Command::Fallocate { .. } => number::FALLOCATE,
            Command::Fileattr { .. } => number::FILEATTR,
            Command::EncodedWrite(_) => number::ENCODED_WRITE,
            Command::EnableVerity { .. } => number::ENABLE_VERITY,
        }
    }

    /// Its name in lower case: `set_xattr`.
    pub fn name(&self) -> &'static str {
        name(self.number()).unwrap_or_default()
    }

    /// The first version that has it.
    pub fn since(&self) -> Version {
        since(self.number())
    }

    /// Whether it is [`Command::Subvol`] or [`Command::Snapshot`].
    pub fn starts_subvolume(&self) -> bool {
        matches!(self, Command::Subvol { .. } | Command::Snapshot { .. })
    }

    /// The file that it changes, or the name of the subvolume that it starts. [`Command::End`] has
    /// none.
    pub fn path(&self) -> Option<&'a [u8]> {
        match *self {
            Command::Subvol { path, .. }
            | Command::Snapshot { path, .. }
            | Command::Mkfile { path, .. }
            | Command::Mkdir { path, .. }
            | Command::Mknod { path, .. }
            | Command::Mkfifo { path, .. }
            | Command::Mksock { path, .. }
            | Command::Symlink { path, .. }
            | Command::Rename { path, .. }
            | Command::Link { path, .. }
            | Command::Unlink { path }
            | Command::Rmdir { path }
            | Command::SetXattr { path, .. }
            | Command::RemoveXattr { path, .. }
            | Command::Write { path, .. }
            | Command::Clone { path, .. }
            | Command::Truncate { path, .. }
            | Command::Chmod { path, .. }
            | Command::Chown { path, .. }
            | Command::Utimes { path, .. }
            | Command::UpdateExtent { path, .. }
            | Command::Fallocate { path, .. }
            | Command::Fileattr { path, .. }
            | Command::EnableVerity { path, .. } => Some(path),
            Command::EncodedWrite(write) => Some(write.path),
            Command::End => None,
        }
    }

    /// The paths of the subvolume that it names: the one that it changes, and the other one of a
    /// [`Command::Rename`] or [`Command::Link`].
    pub(crate) fn paths(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let other = match *self {
            Command::Rename { path_to: other, .. }
            | Command::Link {
                path_link: other, ..
            } => Some(other),
            _ => None,
        };
        self.path().into_iter().chain(other)
    }

    /// The bytes for a file that it carries, plain or encoded.
    pub fn data(&self) -> Option<&'a [u8]> {
        match *self {
            Command::Write { data, .. } => Some(data),
            Command::EncodedWrite(write) => Some(write.data),
            _ => None,
        }
    }

    /// The fault of its names, if any: paths that are absolute or have components that
    /// are empty, `.`, `..`, or no name for Linux; the subvolume itself where a file in it is
    /// needed; symlink targets and attribute names that Linux does not have.
    /// [`crate::StreamReader`] refuses such commands unless asked not to.
    pub fn fault(&self) -> Option<&'static str> {
        let below = |path: &[u8]| {
            path.is_empty()
                .then_some("send stream's command needs a file below its subvolume")
                .or_else(|| path::fault(path))
        };
        match *self {
            Command::Subvol { path, .. } | Command::Snapshot { path, .. } => path::name_fault(path),
            Command::Mkfile { path, .. }
            | Command::Mkdir { path, .. }
            | Command::Mknod { path, .. }
            | Command::Mkfifo { path, .. }
            | Command::Mksock { path, .. }
            | Command::Unlink { path }
            | Command::Rmdir { path } => below(path),
            Command::Symlink {
                path, path_link, ..
            } => below(path).or_else(|| {
                let is_target = (1..=LINK_TARGET_BYTES_MAX).contains(&path_link.len());
                (!is_target || path_link.contains(&0))
                    .then_some("send stream's symlink has an impossible target")
            }),
            Command::Rename { path, path_to } => below(path).or_else(|| below(path_to)),
            Command::Link { path, path_link } => below(path).or_else(|| below(path_link)),
            Command::SetXattr {
                path, xattr_name, ..
            }
            | Command::RemoveXattr { path, xattr_name } => path::fault(path).or_else(|| {
                let is_name = (1..=path::NAME_BYTES_MAX).contains(&xattr_name.len());
                (!is_name || xattr_name.contains(&0))
                    .then_some("send stream's extended attribute has an impossible name")
            }),
            Command::Chown { path, uid, gid } => path::fault(path).or_else(|| {
                (owner(uid, gid).is_none())
                    .then_some("send stream's owner is above 2^32 - 2, the last one that Linux has")
            }),
            Command::Clone {
                path, clone_path, ..
            } => below(path).or_else(|| below(clone_path)),
            _ => self.path().and_then(path::fault),
        }
    }

    /// The ranges that it names, as offset and length: they must be ranges that a file can have.
    pub(crate) fn ranges(&self) -> [Option<(u64, u64)>; 2] {
        match *self {
            Command::Write {
                file_offset, data, ..
            } => [Some((file_offset, to_u64(data.len()))), None],
            Command::Clone {
                file_offset,
                clone_offset,
                clone_len,
                ..
            } => [
                Some((file_offset, clone_len)),
                Some((clone_offset, clone_len)),
            ],
            Command::UpdateExtent {
                file_offset, size, ..
            }
            | Command::Fallocate {
                file_offset, size, ..
            } => [Some((file_offset, size)), None],
            Command::Truncate { size, .. } => [Some((size, 0)), None],
            Command::EncodedWrite(write) => {
                [Some((write.file_offset, write.unencoded_file_len)), None]
            }
            _ => [None, None],
        }
    }
}

/// The name of the command with this number.
pub(crate) fn name(number: u16) -> Option<&'static str> {
    let at = usize::from(number).checked_sub(1)?;
    NAMES.get(at).copied()
}

/// The number of the command with this name.
pub(crate) fn number_of(name: &[u8]) -> Option<u16> {
    let at = NAMES.iter().position(|it| it.as_bytes() == name)?;
    u16::try_from(at.saturating_add(1)).ok()
}

/// The first version that has the command with this number.
pub(crate) fn since(number: u16) -> Version {
    if number <= number::UPDATE_EXTENT {
        Version::V1
    } else if number <= number::ENCODED_WRITE {
        Version::V2
    } else {
        Version::V3
    }
}

/// The device with a number that is encoded as Linux does (`new_encode_dev`).
pub fn device(rdev: u64) -> tree::Device {
    let bits = |mask: u64, shift: u32| u32::try_from((rdev & mask) >> shift).unwrap_or_default();
    tree::Device {
        major: bits(0xf_ff00, 8),
        minor: bits(0xff, 0) | bits(0xfff0_0000, 12),
    }
}

/// The number of a device as Linux encodes it in a stream (`new_encode_dev`). Linux has 12 bits of
/// major and 20 bits of minor.
pub fn rdev(device: tree::Device) -> u64 {
    let (major, minor) = (u64::from(device.major), u64::from(device.minor));
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

/// The owner and group with these numbers. Linux takes 2^32 - 1 for none.
pub(crate) fn owner(uid: u64, gid: u64) -> Option<(u32, u32)> {
    let id = |number| u32::try_from(number).ok().filter(|&id| id != u32::MAX);
    Some((id(uid)?, id(gid)?))
}

/// Flags of a btrfs inode, and of `FS_IOC_GETFLAGS` (`btrfs_inode_flags_to_fsflags`).
const FLAGS: [(u64, u32); 9] = [
    (1 << 1, 0x80_0000), // NODATACOW
    (1 << 3, 0x400),     // NOCOMPRESS
    (1 << 5, 0x8),       // SYNC
    (1 << 6, 0x10),      // IMMUTABLE
    (1 << 7, 0x20),      // APPEND
    (1 << 8, 0x40),      // NODUMP
    (1 << 9, 0x80),      // NOATIME
    (1 << 10, 0x1_0000), // DIRSYNC
    (1 << 11, 0x4),      // COMPRESS
];

/// The attributes (`FS_IOC_GETFLAGS`) that the flags of a btrfs inode stand for.
pub(crate) fn file_attributes(flags: u64) -> u32 {
    let set = FLAGS.iter().filter(|(bit, _)| flags & bit != 0);
    set.fold(0, |all, (_, flag)| all | flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_encoded_as_linux_does() {
        // Sent by Linux 6.18 for a device 4095, 0x12345.
        let wide = tree::Device {
            major: 4095,
            minor: 0x12345,
        };
        assert_eq!(rdev(wide), 306_184_005);
        for (major, minor) in [(0, 0), (1, 3), (8, 255), (4095, 0xf_ffff), (259, 0x100)] {
            let it = tree::Device { major, minor };
            assert_eq!(device(rdev(it)), it);
        }
    }

    #[test]
    fn each_number_has_a_name_and_a_version() {
        for number in 1..=26 {
            assert_eq!(number_of(name(number).unwrap().as_bytes()), Some(number));
        }
        assert_eq!((name(0), name(27)), (None, None));
        assert_eq!(since(22), Version::V1);
        assert_eq!(since(23), Version::V2);
        assert_eq!(since(25), Version::V2);
        assert_eq!(since(26), Version::V3);
    }
}
