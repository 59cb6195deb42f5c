//! The commands that create a file and set its attributes.

use std::io::Write;

use tree::{FileKind, FileSystem, Ino, Metadata, Result, Xattr};

use crate::command::{Command, rdev};
use crate::raw::Version;
use crate::writer::StreamWriter;

/// The attribute that a change of the owner removes, so that it comes last.
pub(super) const CAPABILITY: &[u8] = b"security.capability";
/// Access control lists, and the form of an empty one: its version, 2.
const ACCESS_LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
const EMPTY_ACCESS_LIST: &[u8] = &[2, 0, 0, 0];

/// Creates an empty file.
pub(super) fn create<W: Write>(
    writer: &mut StreamWriter<W>,
    fs: &dyn FileSystem,
    file: Ino,
    metadata: &Metadata,
    number: u64,
    path: &[u8],
) -> Result<()> {
    let ino = number;
    let mode = u64::from(metadata.kind.mode_bits() | u32::from(metadata.permissions));
    let device = rdev(metadata.rdev);
    let target;
    let command = match metadata.kind {
        FileKind::Regular => Command::Mkfile { path, ino },
        FileKind::Directory => Command::Mkdir { path, ino },
        FileKind::Symlink => {
            target = fs.read_link(file)?;
            let path_link = &target;
            Command::Symlink {
                path,
                ino,
                path_link,
            }
        }
        FileKind::BlockDevice | FileKind::CharDevice => Command::Mknod {
            path,
            ino,
            rdev: device,
            mode,
        },
        FileKind::Fifo => Command::Mkfifo {
            path,
            ino,
            rdev: Some(device),
            mode: Some(mode),
        },
        FileKind::Socket => Command::Mksock {
            path,
            ino,
            rdev: Some(device),
            mode: Some(mode),
        },
    };
    writer.command(&command)
}

/// The attributes of a file in the order in which an image stores them.
pub(super) fn stored_xattrs(fs: &dyn FileSystem, file: Ino) -> Result<Vec<Xattr>> {
    let mut xattrs = fs.xattrs(file)?;
    xattrs.sort_by_key(|xattr| name_hash(&xattr.name));
    Ok(xattrs)
}

/// Sets an attribute.
pub(super) fn set_xattr<W: Write>(
    writer: &mut StreamWriter<W>,
    path: &[u8],
    xattr: &Xattr,
) -> Result<()> {
    let is_empty_list = xattr.value.is_empty() && ACCESS_LISTS.contains(&&*xattr.name);
    writer.command(&Command::SetXattr {
        path,
        xattr_name: &xattr.name,
        xattr_data: if is_empty_list {
            EMPTY_ACCESS_LIST
        } else {
            &xattr.value
        },
    })
}

/// Sets the times of a file.
pub(super) fn times<W: Write>(
    writer: &mut StreamWriter<W>,
    path: &[u8],
    metadata: &Metadata,
) -> Result<()> {
    let mtime = metadata.mtime;
    let has_otime = writer.version() >= Version::V2;
    writer.command(&Command::Utimes {
        path,
        atime: metadata.atime.unwrap_or(mtime),
        mtime,
        ctime: metadata.ctime.unwrap_or(mtime),
        otime: has_otime.then(|| metadata.btime.unwrap_or(mtime)),
    })
}

/// The hash by which btrfs orders the names of attributes.
pub(super) fn name_hash(name: &[u8]) -> u32 {
    !crc32c::crc32c_append(1, name)
}
