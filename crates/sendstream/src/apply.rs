//! Applies the commands of a stream to a sink: the one `match` for everything that follows a
//! stream.
//!
//! A sink knows the names, the data and the attributes of files; it looks paths up and decides
//! which errors there are. The commands that start or end a subvolume are not for a sink.

use tree::{Error, Time};

use crate::command::Command;
use crate::encoded::EncodedWrite;

/// The error of sinks that need the data of [`DataChange::Missing`].
pub(crate) const NO_DATA: Error =
    Error::Unsupported("the send stream has no data: it was made with --no-data");

/// A file that a command creates.
pub(crate) enum NewFile<'a> {
    Regular,
    Directory,
    Fifo,
    Socket,
    /// A device if the mode says so: it and the number are as in the stream.
    Device {
        mode: u64,
        rdev: u64,
    },
    /// A symbolic link with its target.
    Symlink(&'a [u8]),
}

/// A change to the data of a regular file.
pub(crate) enum DataChange<'a> {
    Write {
        offset: u64,
        data: &'a [u8],
    },
    Encoded(&'a EncodedWrite<'a>),
    Clone(CloneRange<'a>),
    Truncate(u64),
    Allocate {
        mode: u32,
        offset: u64,
        len: u64,
    },
    /// The data is not in the stream.
    Missing,
    EnableVerity,
}

/// A range of a file that is shared with another one.
pub(crate) struct CloneRange<'a> {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// The subvolume of the source.
    pub(crate) uuid: [u8; 16],
    pub(crate) ctransid: u64,
    pub(crate) source: &'a [u8],
    pub(crate) source_offset: u64,
}

/// An attribute that a file gets.
pub(crate) enum NewAttribute<'a> {
    Xattr {
        name: &'a [u8],
        value: &'a [u8],
    },
    NoXattr {
        name: &'a [u8],
    },
    /// Permissions, without the kind.
    Mode(u16),
    Owner {
        uid: u64,
        gid: u64,
    },
    Times {
        atime: Time,
        mtime: Time,
        ctime: Time,
        otime: Option<Time>,
    },
    /// Flags as btrfs stores them.
    Flags(u64),
}

/// The files of a subvolume that is being built or followed. Paths are relative to it.
pub(crate) trait CommandSink {
    type Error;

    fn create(&mut self, path: &[u8], file: NewFile<'_>) -> Result<(), Self::Error>;
    fn rename(&mut self, path: &[u8], path_to: &[u8]) -> Result<(), Self::Error>;
    /// Gives the file `existing` the further name `path`.
    fn link(&mut self, path: &[u8], existing: &[u8]) -> Result<(), Self::Error>;
    fn unlink(&mut self, path: &[u8]) -> Result<(), Self::Error>;
    fn rmdir(&mut self, path: &[u8]) -> Result<(), Self::Error>;
    fn change_data(&mut self, path: &[u8], change: DataChange<'_>) -> Result<(), Self::Error>;
    fn set_attribute(
        &mut self,
        path: &[u8],
        attribute: NewAttribute<'_>,
    ) -> Result<(), Self::Error>;
}

/// Applies a command.
///
/// # Errors
/// Those of the sink.
pub(crate) fn apply<S: CommandSink>(command: &Command<'_>, sink: &mut S) -> Result<(), S::Error> {
    match *command {
        Command::Subvol { .. } | Command::Snapshot { .. } | Command::End => Ok(()),
        Command::Mkfile { path, .. } => sink.create(path, NewFile::Regular),
        Command::Mkdir { path, .. } => sink.create(path, NewFile::Directory),
        Command::Mkfifo { path, .. } => sink.create(path, NewFile::Fifo),
        Command::Mksock { path, .. } => sink.create(path, NewFile::Socket),
        Command::Mknod {
            path, rdev, mode, ..
        } => sink.create(path, NewFile::Device { mode, rdev }),
        Command::Symlink {
            path, path_link, ..
        } => sink.create(path, NewFile::Symlink(path_link)),
        Command::Rename { path, path_to } => sink.rename(path, path_to),
        Command::Link { path, path_link } => sink.link(path, path_link),
        Command::Unlink { path } => sink.unlink(path),
        Command::Rmdir { path } => sink.rmdir(path),
        Command::SetXattr {
            path,
            xattr_name: name,
            xattr_data: value,
        } => sink.set_attribute(path, NewAttribute::Xattr { name, value }),
        Command::RemoveXattr {
            path,
            xattr_name: name,
        } => sink.set_attribute(path, NewAttribute::NoXattr { name }),
        Command::Write {
            path,
            file_offset: offset,
            data,
        } => sink.change_data(path, DataChange::Write { offset, data }),
        Command::EncodedWrite(write) => sink.change_data(write.path, DataChange::Encoded(&write)),
        Command::Clone {
            file_offset: offset,
            clone_len: len,
            path,
            clone_uuid: uuid,
            clone_ctransid: ctransid,
            clone_path: source,
            clone_offset: source_offset,
        } => {
            let range = CloneRange {
                offset,
                len,
                uuid,
                ctransid,
                source,
                source_offset,
            };
            sink.change_data(path, DataChange::Clone(range))
        }
        Command::Truncate { path, size } => sink.change_data(path, DataChange::Truncate(size)),
        Command::Fallocate {
            path,
            fallocate_mode: mode,
            file_offset: offset,
            size: len,
        } => sink.change_data(path, DataChange::Allocate { mode, offset, len }),
        Command::UpdateExtent { path, .. } => sink.change_data(path, DataChange::Missing),
        Command::EnableVerity { path, .. } => sink.change_data(path, DataChange::EnableVerity),
        Command::Chmod { path, mode } => {
            sink.set_attribute(path, NewAttribute::Mode((mode & 0o7777) as u16))
        }
        Command::Chown { path, uid, gid } => {
            sink.set_attribute(path, NewAttribute::Owner { uid, gid })
        }
        Command::Utimes {
            path,
            atime,
            mtime,
            ctime,
            otime,
        } => sink.set_attribute(
            path,
            NewAttribute::Times {
                atime,
                mtime,
                ctime,
                otime,
            },
        ),
        Command::Fileattr { path, fileattr } => {
            sink.set_attribute(path, NewAttribute::Flags(fileattr))
        }
    }
}
