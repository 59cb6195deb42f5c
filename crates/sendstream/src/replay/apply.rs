//! What each command does to a tree.

use std::sync::Arc;

use ::tree::{
    Corrupt, Encoding, Error, FileAttributes, FileKind, FileSystem, Ino, Metadata, Overlay, Result,
    Scratch, Xattr,
};

use super::Known;
use super::parts::{FileNumber, Part, Parts, Place};
use super::tree::{Built, Content, SentTree, Source, Stream};
use crate::command::{Command, device, file_attributes};
use crate::encoded::EncodedWrite;
use crate::subvolume::SentSubvolume;

/// The largest offset in a file (`MAX_LFS_FILESIZE`).
const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// Snapshots of snapshots, each of which is a tree on top of another.
const DEPTH_MAX: u32 = 1000;

/// Modes of `fallocate` (linux/falloc.h).
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 0x10;

/// A subvolume that is being built.
pub(super) struct Applying {
    built: Built,
    /// The UUIDs by which clones name the trees.
    uuids: Vec<[u8; 16]>,
}

/// The place of a command, for its errors.
#[derive(Clone, Copy)]
struct At {
    /// Where its data is in the stream.
    data: u64,
    /// How many commands there were.
    commands: u64,
}

impl Applying {
    pub(super) fn start(
        sent: SentSubvolume,
        known: &[Known],
        source: Source,
        at: u64,
        scratch: &Scratch,
    ) -> Result<Applying> {
        let wrong = |what, got| Err(Error::Corrupt(Corrupt { what, at, got }));
        let mut trees = Vec::new();
        let mut depth = 0;
        let overlay = match sent.parent {
            None => Overlay::new_in(
                scratch,
                &Metadata::new(FileKind::Directory, 0o755),
                Content::default(),
            ),
            Some((uuid, ctransid)) => {
                let mut of_it = known.iter().rev().filter(|known| known.uuid == uuid);
                let Some(parent) = of_it.clone().find(|known| known.is(ctransid)) else {
                    return match of_it.next().and_then(|other| other.ctransid) {
                        Some(other) => {
                            wrong("parent was changed after it was sent or received", other)
                        }
                        None => wrong(
                            "parent of an incremental send stream is not known",
                            ctransid,
                        ),
                    };
                };
                depth = parent.depth + 1;
                if depth > DEPTH_MAX {
                    return Err(Error::Limit("snapshots of snapshots in send streams"));
                }
                trees.push(Arc::clone(&parent.tree));
                Overlay::over_in(scratch, Arc::clone(&parent.tree))
            }
        };
        let stream = Stream { source, at, depth };
        Ok(Applying {
            uuids: sent.parent.iter().map(|(uuid, _)| *uuid).collect(),
            built: Built {
                sent,
                overlay,
                parts: Parts::new(scratch),
                trees,
                stream,
                verity: 0,
            },
        })
    }

    pub(super) fn into_tree(self) -> SentTree {
        SentTree::new(self.built)
    }

    /// Applies a command whose data is at `data_at`, the `commands`th of the input.
    ///
    /// # Errors
    /// The command asks for something impossible; [`Error::NotFound`] and the like are about its paths.
    pub(super) fn apply(
        &mut self,
        command: &Command<'_>,
        data_at: u64,
        commands: u64,
        known: &[Known],
    ) -> Result<()> {
        let at = At {
            data: data_at,
            commands,
        };
        match *command {
            Command::Subvol { .. } | Command::Snapshot { .. } | Command::End => Ok(()),
            Command::Mkfile { path, .. } => {
                self.make(path, &Metadata::new(FileKind::Regular, 0o600), at)
            }
            Command::Mkdir { path, .. } => {
                self.make(path, &Metadata::new(FileKind::Directory, 0o700), at)
            }
            Command::Mkfifo { path, .. } => {
                self.make(path, &Metadata::new(FileKind::Fifo, 0o600), at)
            }
            Command::Mksock { path, .. } => {
                self.make(path, &Metadata::new(FileKind::Socket, 0o600), at)
            }
            Command::Mknod {
                path, rdev, mode, ..
            } => {
                let kind = u32::try_from(mode).ok().and_then(FileKind::from_mode);
                let Some(kind) = kind.filter(|kind| kind.is_device()) else {
                    return at.wrong("mknod command is for no device", mode);
                };
                let mut metadata = Metadata::new(kind, 0o600);
                metadata.rdev = device(rdev);
                self.make(path, &metadata, at)
            }
            Command::Symlink {
                path, path_link, ..
            } => {
                let (dir, name) = self.free_name(path, at)?;
                let metadata = Metadata::new(FileKind::Symlink, 0o777);
                let link =
                    self.built
                        .overlay
                        .add_symlink(&metadata, path_link, Content::default())?;
                self.built.overlay.link(dir, name, link).map(drop)
            }
            Command::Rename { path, path_to } => {
                let (dir, name) = self.parent(path)?;
                let (_, kind) = self.built.overlay.find(dir, name)?.ok_or(Error::NotFound)?;
                let inside = path_to.strip_prefix(path);
                if kind == FileKind::Directory && inside.is_some_and(|rest| rest.starts_with(b"/"))
                {
                    return at.wrong("directory would be moved into itself", 0);
                }
                let to = self.free_name(path_to, at)?;
                self.built.overlay.rename((dir, name), to).map(drop)
            }
            Command::Link { path, path_link } => {
                let (file, kind) = self.resolve(path_link)?;
                if kind == FileKind::Directory {
                    return at.wrong("directory would get a second name", 0);
                }
                let (dir, name) = self.free_name(path, at)?;
                self.built.overlay.link(dir, name, file).map(drop)
            }
            Command::Unlink { path } => {
                let (dir, name) = self.parent(path)?;
                let (_, kind) = self.built.overlay.find(dir, name)?.ok_or(Error::NotFound)?;
                if kind == FileKind::Directory {
                    return at.wrong("unlink command is for a directory", 0);
                }
                self.built.overlay.unlink(dir, name).map(drop)
            }
            Command::Rmdir { path } => {
                let (dir, name) = self.parent(path)?;
                let (gone, kind) = self.built.overlay.find(dir, name)?.ok_or(Error::NotFound)?;
                if kind != FileKind::Directory {
                    return at.wrong("rmdir command is for another file than a directory", 0);
                }
                if !self.built.overlay.is_empty(gone)? {
                    return at.wrong("rmdir command is for a directory with files", 0);
                }
                self.built.overlay.unlink(dir, name).map(drop)
            }
            Command::SetXattr {
                path,
                xattr_name,
                xattr_data,
            } => {
                let (file, _) = self.resolve(path)?;
                let xattr = Xattr {
                    name: xattr_name.into(),
                    value: xattr_data.into(),
                };
                self.built.overlay.set_xattr(file, xattr)
            }
            Command::RemoveXattr { path, xattr_name } => {
                let (file, _) = self.resolve(path)?;
                match self.built.overlay.remove_xattr(file, xattr_name) {
                    Err(Error::NotFound) => at.wrong("removed extended attribute is not there", 0),
                    result => result,
                }
            }
            Command::Write {
                path,
                file_offset,
                data,
            } => {
                let place = Place::Plain {
                    at: at.data,
                    skip: 0,
                };
                self.write(path, file_offset, data.len() as u64, place, at)
            }
            Command::EncodedWrite(EncodedWrite {
                path,
                file_offset,
                unencoded_file_len,
                unencoded_len,
                unencoded_offset,
                compression,
                data,
                ..
            }) => {
                let encoding = Encoding {
                    algorithm: compression,
                    stored_len: data.len() as u64,
                    unencoded_len,
                    unencoded_offset,
                };
                let place = Place::Encoded {
                    at: at.data,
                    encoding,
                };
                self.write(path, file_offset, unencoded_file_len, place, at)
            }
            Command::Clone { .. } => self.clone_range(command, known, at),
            Command::Truncate { path, size } => {
                let (ino, file) = self.content(path)?;
                if size > FILE_BYTES_MAX {
                    return at.wrong("file would be too long", size);
                }
                self.built.parts.punch(file, size, u64::MAX);
                self.built
                    .overlay
                    .change(ino, |metadata| metadata.size = size)
            }
            Command::Fallocate {
                path,
                fallocate_mode,
                file_offset,
                size,
            } => {
                let (ino, file) = self.content(path)?;
                let end = file_offset.checked_add(size);
                let Some(end) = end.filter(|&end| end <= FILE_BYTES_MAX) else {
                    return at.wrong("allocation ends beyond the largest offset of a file", size);
                };
                let is_zeroed = fallocate_mode & (PUNCH_HOLE | ZERO_RANGE) != 0;
                match fallocate_mode & !KEEP_SIZE {
                    0 | PUNCH_HOLE | ZERO_RANGE => {}
                    _ => {
                        return at.wrong("mode of an allocation is unknown", fallocate_mode.into());
                    }
                }
                if is_zeroed {
                    self.built.parts.punch(file, file_offset, end);
                }
                if fallocate_mode & KEEP_SIZE == 0 {
                    self.grow(ino, end)?;
                }
                Ok(())
            }
            Command::UpdateExtent { .. } => Err(Error::Unsupported(
                "the send stream has no data: it was made with --no-data",
            )),
            Command::Chmod { path, mode } => {
                let (file, _) = self.resolve(path)?;
                let permissions = (mode & 0o7777) as u16;
                self.built
                    .overlay
                    .change(file, |metadata| metadata.permissions = permissions)
            }
            Command::Chown { path, uid, gid } => {
                let (file, _) = self.resolve(path)?;
                let (Ok(user), Ok(group)) = (u32::try_from(uid), u32::try_from(gid)) else {
                    return at.wrong("owner's number is too large", uid.max(gid));
                };
                self.built.overlay.change(file, |metadata| {
                    (metadata.uid, metadata.gid) = (user, group);
                })
            }
            Command::Utimes {
                path,
                atime,
                mtime,
                ctime,
                otime,
            } => {
                let (file, _) = self.resolve(path)?;
                self.built.overlay.change(file, |metadata| {
                    metadata.mtime = mtime;
                    metadata.atime = Some(atime);
                    metadata.ctime = Some(ctime);
                    metadata.btime = otime.or(metadata.btime);
                })
            }
            Command::Fileattr { path, fileattr } => {
                let (file, _) = self.resolve(path)?;
                let attributes = FileAttributes(file_attributes(fileattr));
                self.built
                    .overlay
                    .change(file, |metadata| metadata.attributes = attributes)
            }
            Command::EnableVerity { path, .. } => {
                self.resolve(path)?;
                self.built.verity += 1;
                Ok(())
            }
        }
    }

    fn resolve(&self, path: &[u8]) -> Result<(Ino, FileKind)> {
        if path.is_empty() {
            return Ok((self.built.overlay.root(), FileKind::Directory));
        }
        self.built.overlay.resolve(path.split(|&byte| byte == b'/'))
    }

    /// The directory of a path, and its last name.
    fn parent<'p>(&self, path: &'p [u8]) -> Result<(Ino, &'p [u8])> {
        let (dir, name) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&[][..], path),
        };
        // The root has no name.
        if name.is_empty() {
            return Err(Error::NotFound);
        }
        match self.resolve(dir)? {
            (dir, FileKind::Directory) => Ok((dir, name)),
            _ => Err(Error::NotADirectory),
        }
    }

    /// The same, for a name that no file has.
    fn free_name<'p>(&self, path: &'p [u8], at: At) -> Result<(Ino, &'p [u8])> {
        let (dir, name) = self.parent(path)?;
        if self.built.overlay.find(dir, name)?.is_some() {
            return at.wrong("new name is that of another file", 0);
        }
        Ok((dir, name))
    }

    fn make(&mut self, path: &[u8], metadata: &Metadata, at: At) -> Result<()> {
        let (dir, name) = self.free_name(path, at)?;
        let content = match metadata.kind {
            FileKind::Regular => Some(self.built.parts.file()?),
            _ => None,
        };
        let file = self.built.overlay.add(metadata, Content(content))?;
        self.built.overlay.link(dir, name, file).map(drop)
    }

    /// A regular file whose content is about to change.
    fn content(&mut self, path: &[u8]) -> Result<(Ino, FileNumber)> {
        let (ino, kind) = self.resolve(path)?;
        match kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::IsADirectory),
            _ => return Err(Error::InvalidInput("the file has no content")),
        }
        if let Some(Content(Some(file))) = self.built.overlay.content(ino) {
            return Ok((ino, *file));
        }
        // All of it is the parent's, so far.
        let file = self.built.parts.file()?;
        let len = self.built.overlay.metadata(ino)?.size;
        if len > 0 {
            let place = Place::File {
                tree: 0,
                ino,
                offset: 0,
            };
            let part = Part {
                offset: 0,
                len,
                place,
            };
            self.built.parts.write(file, part, u64::MAX)?;
        }
        self.built.overlay.content_mut(ino)?.0 = Some(file);
        Ok((ino, file))
    }

    fn grow(&mut self, ino: Ino, end: u64) -> Result<()> {
        if self.built.overlay.metadata(ino)?.size >= end {
            return Ok(());
        }
        self.built
            .overlay
            .change(ino, |metadata| metadata.size = end)
    }

    fn write(&mut self, path: &[u8], offset: u64, len: u64, place: Place, at: At) -> Result<()> {
        let (ino, file) = self.content(path)?;
        let end = offset.checked_add(len);
        let Some(end) = end.filter(|&end| end <= FILE_BYTES_MAX) else {
            return at.wrong("write ends beyond the largest offset of a file", offset);
        };
        if len == 0 {
            return Ok(());
        }
        self.built
            .parts
            .write(file, Part { offset, len, place }, at.commands)?;
        self.grow(ino, end)
    }

    fn clone_range(&mut self, command: &Command<'_>, known: &[Known], at: At) -> Result<()> {
        let Command::Clone {
            file_offset,
            clone_len,
            path,
            clone_uuid,
            clone_ctransid,
            clone_path,
            clone_offset,
        } = *command
        else {
            return Ok(());
        };
        let (from, end) = (clone_offset, clone_offset.checked_add(clone_len));
        let to = file_offset.checked_add(clone_len);
        let (Some(end), Some(to)) = (end, to.filter(|&to| to <= FILE_BYTES_MAX)) else {
            return at.wrong("clone ends beyond the largest offset of a file", clone_len);
        };
        let (size, parts) = if clone_uuid == self.built.sent.uuid {
            let (ino, kind) = self.resolve(clone_path)?;
            let size = self.built.overlay.metadata(ino)?.size;
            let parts = match self.built.overlay.content(ino) {
                _ if kind != FileKind::Regular => {
                    return at.wrong("clone is of no regular file", 0);
                }
                Some(Content(Some(file))) => {
                    let parts = self.built.parts.of(*file, from);
                    parts.take_while(|part| part.offset < end).collect()
                }
                _ => vec![whole(0, ino, size)],
            };
            (size, parts)
        } else {
            let tree = self.tree(clone_uuid, clone_ctransid, known, at)?;
            let (ino, size) = regular_in(&*self.built.trees[tree as usize], clone_path, at)?;
            (size, vec![whole(tree, ino, size)])
        };
        if end > size {
            return at.wrong("clone reaches behind the end of its source", size);
        }
        let (ino, file) = self.content(path)?;
        self.built.parts.punch(file, file_offset, to);
        for part in parts {
            let part = part.between(part.offset.max(from), part.end().min(end));
            if part.len > 0 {
                let offset = part.offset - from + file_offset;
                self.built
                    .parts
                    .write(file, Part { offset, ..part }, at.commands)?;
            }
        }
        self.grow(ino, to)
    }

    /// The number of the tree that clones name by this UUID.
    fn tree(&mut self, uuid: [u8; 16], ctransid: u64, known: &[Known], at: At) -> Result<u32> {
        if let Some(index) = self.uuids.iter().position(|known| *known == uuid) {
            return Ok(index as u32);
        }
        let mut of_it = known.iter().rev().filter(|known| known.uuid == uuid);
        let Some(found) = of_it.find(|known| known.is(ctransid)) else {
            return at.wrong("subvolume that a clone is from is not known", ctransid);
        };
        self.built.stream.depth = self.built.stream.depth.max(found.depth + 1);
        if self.built.stream.depth > DEPTH_MAX {
            return Err(Error::Limit("snapshots of snapshots in send streams"));
        }
        // The parent must be the first tree; without one, nothing refers to it.
        self.uuids.push(uuid);
        self.built.trees.push(Arc::clone(&found.tree));
        Ok((self.built.trees.len() - 1) as u32)
    }
}

impl At {
    fn wrong<T>(self, what: &'static str, got: u64) -> Result<T> {
        Err(Error::Corrupt(Corrupt {
            what,
            at: self.data,
            got,
        }))
    }
}

/// All of a file as one part.
fn whole(tree: u32, ino: Ino, len: u64) -> Part {
    Part {
        offset: 0,
        len,
        place: Place::File {
            tree,
            ino,
            offset: 0,
        },
    }
}

/// The regular file at a path of another tree, and its size.
fn regular_in(tree: &dyn FileSystem, path: &[u8], at: At) -> Result<(Ino, u64)> {
    let mut found = (tree.root(), FileKind::Directory);
    for name in path.split(|&byte| byte == b'/') {
        if found.1 != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        let entry = tree.lookup(found.0, name)?;
        found = (entry.ino, entry.kind);
    }
    match found {
        (ino, FileKind::Regular) => Ok((ino, tree.metadata(ino)?.size)),
        _ => at.wrong("source of a clone is not a regular file", 0),
    }
}
