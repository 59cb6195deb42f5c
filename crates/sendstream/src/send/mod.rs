//! Sending: a tree as the commands that build it, in the order of Linux.

mod attributes;
mod data;
mod dirs;
mod incremental;
mod items;
mod moves;
mod options;
mod order;
mod receiver;
mod waiting;

use std::collections::HashSet;
use std::io::Write;

use tree::{Error, FileId, FileKind, Inventory, Metadata, Progress, Result};

use self::attributes::{CAPABILITY, create, set_xattr, stored_xattrs, times};
use self::data::{CloneRoot, DataSender, SendSettings, SentFile};
use self::dirs::ChangedDirs;
use self::items::has_items;
use self::order::Order;
use crate::command::Command;
use crate::raw::Version;
use crate::writer::StreamWriter;

pub use incremental::{KnownSubvolume, send_changes};
pub use options::{SendData, SendOptions, SendSummary};
pub use order::StoredFiles;

/// Writes the commands that build a subvolume with the files of a tree: [`Command::Subvol`] is the
/// first. The caller writes the header before, and [`Command::End`] after the last subvolume.
///
/// Data that files of the tree share is cloned. The same tree gives the same commands.
///
/// # Errors
/// The tree cannot be read, has paths that are too long for Linux, or contradicts itself; or the
/// output cannot be written.
pub fn send<W: Write>(
    inventory: &Inventory<'_>,
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
    let order = Order::new(inventory, options.stored, options.ctransid)?;
    let data = DataSender::new(&CloneRoot {
        inventory,
        order: &order,
        uuid: options.uuid,
        ctransid: options.ctransid,
    })?;
    let mut sender = Sender {
        inventory,
        options,
        progress,
        data,
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
    inventory: &'a Inventory<'a>,
    options: &'a SendOptions<'a>,
    progress: &'a dyn Progress,
    order: Order<'a>,
    data: DataSender,
    writer: &'a mut StreamWriter<W>,
    /// Directories that were created for a file with a lower number.
    created: HashSet<FileId>,
    changed: ChangedDirs,
}

impl<W: Write> Sender<'_, W> {
    /// Sends a file: it is created, gets its names, attributes and data, and last what the steps
    /// before change.
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
            if self.changed.has_excess() && has_items(self.inventory, file)? {
                self.times_of_excess()?;
            }
        }
        let path = &path[..];
        self.order.progress = number + 1;
        let xattrs = stored_xattrs(self.inventory.tree(), self.inventory.ino(file))?;
        for xattr in xattrs.iter().filter(|it| *it.name != *CAPABILITY) {
            set_xattr(self.writer, path, xattr)?;
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
            set_xattr(self.writer, path, xattr)?;
        }
        if self.inventory.entries(file).len() > 0 {
            self.changed.add(file);
        } else {
            self.times(path, &metadata)?;
        }
        self.times_of_excess()
    }

    /// Sends the times of directories of which too many wait.
    fn times_of_excess(&mut self) -> Result<()> {
        while let Some(dir) = self.changed.take_excess() {
            self.times_of_dir(dir)?;
        }
        Ok(())
    }

    /// Creates a file under its temporary name.
    fn create(&mut self, file: FileId, metadata: &Metadata) -> Result<()> {
        let path = &self.order.temporary_name(file)[..];
        let (ino, number) = (self.inventory.ino(file), self.order.number(file));
        create(
            self.writer,
            self.inventory.tree(),
            ino,
            metadata,
            number,
            path,
        )
    }

    /// Gives a file its names, and returns the first one as a path. Directories in which it gets
    /// them are created if they come later.
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
        let root = CloneRoot {
            inventory: self.inventory,
            order: &self.order,
            uuid: self.options.uuid,
            ctransid: self.options.ctransid,
        };
        let context = SendSettings {
            options: self.options,
            progress: self.progress,
            roots: &[root],
            path: &|file| self.order.first_path(file),
        };
        let mut target = SentFile {
            file,
            number: self.order.number(file),
            path,
            size,
            end: 0,
            done: 0,
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
        times(self.writer, path, metadata)
    }
}
