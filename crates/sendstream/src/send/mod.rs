//! Sending: a tree as the commands that build it, in the order of Linux.

mod data;
mod dirs;
mod order;

use std::collections::HashSet;
use std::io::Write;

use tree::{Error, FileId, FileKind, FileSystem, Inventory, Kept, Metadata, Progress, Result};

use self::data::{Context, Data, Target};
use self::dirs::ChangedDirs;
use self::order::Order;
use crate::command::{Command, rdev};
use crate::raw::Version;
use crate::writer::StreamWriter;

pub use order::StoredNames;

/// The attribute that a change of the owner removes, so that it comes last.
const CAPABILITY: &[u8] = b"security.capability";
/// Access control lists, and what stands for an empty one: its version, 2.
const ACCESS_LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
const EMPTY_ACCESS_LIST: &[u8] = &[2, 0, 0, 0];

/// How a tree is sent.
pub struct SendOptions<'a> {
    /// The name of the subvolume.
    pub name: &'a [u8],
    /// What will be its received UUID.
    pub uuid: [u8; 16],
    /// The transaction of its last change.
    pub ctransid: u64,
    /// How data is sent.
    pub data: SendData,
    /// The sector size of the file system.
    pub sector_bytes: u32,
    /// The names of files as their image stores them: with it, files are sent in the order of their numbers in the image, as
    /// Linux does. The tree is one subvolume of a btrfs image then. Without it, files get numbers.
    pub names: Option<&'a StoredNames<'a>>,
}

/// How data is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendData {
    /// Decoded.
    Plain,
    /// Encoded as it is stored if version 2 can hold that, otherwise decoded.
    AsStored,
    /// Not at all: only where it is.
    Nothing,
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendSummary {
    /// How many files, each counted once.
    pub files: u64,
    /// Extents that were sent as they are stored.
    pub kept: Kept,
}

/// Writes the commands that build a subvolume with the files of a tree: [`Command::Subvol`] is the first. The caller writes
/// the header before, and [`Command::End`] after the last subvolume.
///
/// Data that files of the tree share is cloned. The same tree gives the same commands.
///
/// # Errors
/// The tree cannot be read, has paths that are too long for Linux, or contradicts itself; or the output cannot be written.
pub fn send<W: Write>(
    fs: &dyn FileSystem,
    inventory: &Inventory,
    options: &SendOptions<'_>,
    progress: &dyn Progress,
    writer: &mut StreamWriter<W>,
) -> Result<SendSummary> {
    if options.data == SendData::AsStored && writer.version() == Version::V1 {
        return Err(Error::InvalidInput("version 1 has no encoded data"));
    }
    writer.command(&Command::Subvol {
        path: options.name,
        uuid: options.uuid,
        ctransid: options.ctransid,
    })?;
    let order = Order::new(fs, inventory, options.names, options.ctransid)?;
    let mut sender = Sender {
        fs,
        inventory,
        options,
        progress,
        data: Data::new(fs, inventory, &order)?,
        order,
        writer,
        created: HashSet::new(),
        changed: ChangedDirs::default(),
    };
    for turn in 0..sender.order.len() {
        let file = sender.order.file(turn);
        let sent = sender.file(file);
        // An error of the output has no file.
        sent.map_err(|error| match error {
            Error::Io(_) => error,
            error => sender.order.name_error(file, error),
        })?;
        progress.advance(1, 0);
    }
    while let Some(dir) = sender.changed.take_last() {
        sender.times_of_dir(dir)?;
    }
    Ok(SendSummary {
        files: sender.order.len() as u64,
        kept: sender.data.kept,
    })
}

struct Sender<'a, W> {
    fs: &'a dyn FileSystem,
    inventory: &'a Inventory,
    options: &'a SendOptions<'a>,
    progress: &'a dyn Progress,
    order: Order<'a>,
    data: Data,
    writer: &'a mut StreamWriter<W>,
    /// Directories that were created for a file with a lower number.
    created: HashSet<FileId>,
    changed: ChangedDirs,
}

impl<W: Write> Sender<'_, W> {
    /// Sends a file: it is created, gets its names, attributes and data, and last what the steps before change.
    fn file(&mut self, file: FileId) -> Result<()> {
        let metadata = self.inventory.metadata(file);
        let number = self.order.number(file);
        self.order.progress = number;
        let mut path = Vec::new();
        if file != FileId(0) {
            if !self.created.contains(&file) {
                self.create(file, &metadata)?;
            }
            path = self.name(file)?;
        }
        let path = &path[..];
        self.order.progress = number + 1;
        let mut xattrs = self.fs.xattrs(self.inventory.ino(file))?;
        xattrs.sort_by_key(|xattr| name_hash(&xattr.name));
        for xattr in xattrs.iter().filter(|it| *it.name != *CAPABILITY) {
            let is_empty_list = xattr.value.is_empty() && ACCESS_LISTS.contains(&&*xattr.name);
            self.writer.command(&Command::SetXattr {
                path,
                xattr_name: &xattr.name,
                xattr_data: if is_empty_list {
                    EMPTY_ACCESS_LIST
                } else {
                    &xattr.value
                },
            })?;
        }
        if metadata.kind == FileKind::Regular {
            self.content(file, path, metadata.size)?;
        }
        self.writer.command(&Command::Chown {
            path,
            uid: metadata.uid.into(),
            gid: metadata.gid.into(),
        })?;
        if metadata.kind != FileKind::Symlink {
            let mode = metadata.permissions.into();
            self.writer.command(&Command::Chmod { path, mode })?;
        }
        if let Some(xattr) = xattrs.iter().find(|it| *it.name == *CAPABILITY) {
            self.writer.command(&Command::SetXattr {
                path,
                xattr_name: &xattr.name,
                xattr_data: &xattr.value,
            })?;
        }
        if self.inventory.entries(file).len() > 0 {
            self.changed.add(file);
        } else {
            self.times(path, &metadata)?;
        }
        while let Some(dir) = self.changed.take_excess() {
            self.times_of_dir(dir)?;
        }
        Ok(())
    }

    /// Creates a file under its temporary name.
    fn create(&mut self, file: FileId, metadata: &Metadata) -> Result<()> {
        let path = &self.order.temporary_name(file)[..];
        let ino = self.order.number(file);
        let mode = u64::from(metadata.kind.mode_bits() | u32::from(metadata.permissions));
        let device = rdev(metadata.rdev);
        let target;
        let command = match metadata.kind {
            FileKind::Regular => Command::Mkfile { path, ino },
            FileKind::Directory => Command::Mkdir { path, ino },
            FileKind::Symlink => {
                target = self.fs.read_link(self.inventory.ino(file))?;
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
        self.writer.command(&command)
    }

    /// Gives a file its names, and returns the first one as a path. Directories in which it gets them are created if they
    /// come later.
    fn name(&mut self, file: FileId) -> Result<Vec<u8>> {
        let number = self.order.number(file);
        let mut first = None;
        for (dir, name) in self.order.names(file)? {
            let is_later = self.order.number(dir) > number;
            if is_later && self.created.insert(dir) {
                self.create(dir, &self.inventory.metadata(dir))?;
            }
            let new = self.order.path(dir, &name)?;
            match &first {
                None => {
                    let path = &self.order.temporary_name(file);
                    let path_to = &new;
                    self.writer.command(&Command::Rename { path, path_to })?;
                    first = Some(new);
                }
                Some(path_link) => self.writer.command(&Command::Link {
                    path: &new,
                    path_link,
                })?,
            }
            // The times of directories that come later are sent with them.
            if !is_later {
                self.changed.add(dir);
            }
        }
        first.ok_or(Error::Inconsistent("a file has no name"))
    }

    /// Sends the data of a regular file, and its size if that does not follow.
    fn content(&mut self, file: FileId, path: &[u8], size: u64) -> Result<()> {
        let context = Context {
            fs: self.fs,
            inventory: self.inventory,
            options: self.options,
            order: &self.order,
            progress: self.progress,
        };
        let mut target = Target {
            file,
            path,
            size,
            end: 0,
        };
        self.data.send(&context, &mut target, self.writer)?;
        if target.end != size {
            self.writer.command(&Command::Truncate { path, size })?;
        }
        Ok(())
    }

    fn times_of_dir(&mut self, dir: FileId) -> Result<()> {
        let path = self.order.dir_path(dir);
        self.times(&path, &self.inventory.metadata(dir))
    }

    fn times(&mut self, path: &[u8], metadata: &Metadata) -> Result<()> {
        let mtime = metadata.mtime;
        let has_otime = self.writer.version() >= Version::V2;
        self.writer.command(&Command::Utimes {
            path,
            atime: metadata.atime.unwrap_or(mtime),
            mtime,
            ctime: metadata.ctime.unwrap_or(mtime),
            otime: has_otime.then(|| metadata.btime.unwrap_or(mtime)),
        })
    }
}

/// The hash by which btrfs orders the names of attributes.
fn name_hash(name: &[u8]) -> u32 {
    !crc32c::crc32c_append(1, name)
}
