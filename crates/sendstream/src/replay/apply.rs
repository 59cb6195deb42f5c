//! Applies commands to a tree.

use std::sync::Arc;

use ::tree::{
    Encoding, Error, FileAttributes, FileKind, FileSystem, Ino, Metadata, Overlay, Result, Scratch,
    Xattr,
};

use super::known::KnownTree;
use super::parts::{FileNumber, FilePart, FileParts, PartSource};
use super::tree::{ChangedContent, ReplayInput, SentTree, StreamOrigin, SubvolumeTree};
use crate::apply::{CloneRange, CommandSink, DataChange, NO_DATA, NewAttribute, NewFile, apply};
use crate::command::{Command, device, file_attributes, owner};
use crate::subvolume::SentSubvolume;

/// Snapshots of snapshots, each of which is a tree on top of another.
const DEPTH_MAX: u32 = 1000;

/// Modes of `fallocate` (linux/falloc.h).
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 0x10;

/// A subvolume that is being built.
pub(super) struct Applying {
    built: SubvolumeTree,
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
        known: &[KnownTree],
        source: ReplayInput,
        at: u64,
        scratch: &Scratch,
    ) -> Result<Applying> {
        let wrong = |what, got| Err(Error::corrupt(what, at, got));
        let mut trees = Vec::new();
        let mut depth = 0;
        let overlay = match sent.parent {
            None => Overlay::new_in(
                scratch,
                &Metadata::new(FileKind::Directory, 0o755),
                ChangedContent::default(),
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
        let stream = StreamOrigin { source, at, depth };
        Ok(Applying {
            uuids: sent.parent.iter().map(|(uuid, _)| *uuid).collect(),
            built: SubvolumeTree {
                sent,
                overlay,
                parts: FileParts::new(scratch),
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
    /// The command asks for something impossible; [`Error::NotFound`] and the like are about its
    /// paths.
    pub(super) fn apply(
        &mut self,
        command: &Command<'_>,
        data_at: u64,
        commands: u64,
        known: &[KnownTree],
    ) -> Result<()> {
        let at = At {
            data: data_at,
            commands,
        };
        let mut step = TreeSink {
            applying: self,
            known,
            at,
        };
        apply(command, &mut step)
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

    /// The directory of an existing file, its name there, and the file with its kind.
    fn find<'p>(&self, path: &'p [u8]) -> Result<(Ino, &'p [u8], Ino, FileKind)> {
        let (dir, name) = self.parent(path)?;
        let found = self.built.overlay.find(dir, name)?;
        let (file, kind) = found.ok_or(Error::NotFound)?;
        Ok((dir, name, file, kind))
    }

    /// A regular file whose content is about to change.
    fn content(&mut self, path: &[u8]) -> Result<(Ino, FileNumber)> {
        let (ino, kind) = self.resolve(path)?;
        match kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::IsADirectory),
            _ => return Err(Error::InvalidInput("the file has no content")),
        }
        if let Some(ChangedContent(Some(file))) = self.built.overlay.content(ino) {
            return Ok((ino, *file));
        }
        // All of it is the parent's, so far.
        let file = self.built.parts.file()?;
        let len = self.built.overlay.metadata(ino)?.size;
        if len > 0 {
            self.built.parts.write(file, whole(0, ino, len), u64::MAX)?;
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

    /// The number of the tree that clones name by this UUID.
    fn tree(&mut self, uuid: [u8; 16], ctransid: u64, known: &[KnownTree], at: At) -> Result<u32> {
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

/// Applies one command to the tree.
struct TreeSink<'a> {
    applying: &'a mut Applying,
    known: &'a [KnownTree],
    at: At,
}

impl CommandSink for TreeSink<'_> {
    type Error = Error;

    fn create(&mut self, path: &[u8], file: NewFile<'_>) -> Result<()> {
        let (kind, permissions) = match file {
            NewFile::Regular => (FileKind::Regular, 0o600),
            NewFile::Directory => (FileKind::Directory, 0o700),
            NewFile::Fifo => (FileKind::Fifo, 0o600),
            NewFile::Socket => (FileKind::Socket, 0o600),
            NewFile::Symlink(_) => (FileKind::Symlink, 0o777),
            NewFile::Device { mode, .. } => {
                let kind = u32::try_from(mode).ok().and_then(FileKind::from_mode);
                match kind.filter(|kind| kind.is_device()) {
                    Some(kind) => (kind, 0o600),
                    None => return self.at.wrong("mknod command is for no device", mode),
                }
            }
        };
        let mut metadata = Metadata::new(kind, permissions);
        if let NewFile::Device { rdev, .. } = file {
            metadata.rdev = device(rdev);
        }
        let (dir, name) = self.applying.free_name(path, self.at)?;
        let SubvolumeTree { overlay, parts, .. } = &mut self.applying.built;
        let file = match file {
            NewFile::Symlink(target) => {
                overlay.add_symlink(&metadata, target, ChangedContent::default())
            }
            NewFile::Regular => overlay.add(&metadata, ChangedContent(Some(parts.file()?))),
            _ => overlay.add(&metadata, ChangedContent::default()),
        };
        overlay.link(dir, name, file?).map(drop)
    }

    fn rename(&mut self, path: &[u8], path_to: &[u8]) -> Result<()> {
        let (dir, name, _, kind) = self.applying.find(path)?;
        let inside = path_to.strip_prefix(path);
        if kind == FileKind::Directory && inside.is_some_and(|rest| rest.starts_with(b"/")) {
            return self.at.wrong("directory would be moved into itself", 0);
        }
        let to = self.applying.free_name(path_to, self.at)?;
        let overlay = &mut self.applying.built.overlay;
        overlay.rename((dir, name), to).map(drop)
    }

    fn link(&mut self, path: &[u8], existing: &[u8]) -> Result<()> {
        let (file, kind) = self.applying.resolve(existing)?;
        if kind == FileKind::Directory {
            return self.at.wrong("directory would get a second name", 0);
        }
        let (dir, name) = self.applying.free_name(path, self.at)?;
        self.applying.built.overlay.link(dir, name, file).map(drop)
    }

    fn unlink(&mut self, path: &[u8]) -> Result<()> {
        let (dir, name, _, kind) = self.applying.find(path)?;
        if kind == FileKind::Directory {
            return self.at.wrong("unlink command is for a directory", 0);
        }
        self.applying.built.overlay.unlink(dir, name).map(drop)
    }

    fn rmdir(&mut self, path: &[u8]) -> Result<()> {
        let (dir, name, gone, kind) = self.applying.find(path)?;
        let overlay = &mut self.applying.built.overlay;
        if kind != FileKind::Directory {
            let what = "rmdir command is for another file than a directory";
            return self.at.wrong(what, 0);
        }
        if !overlay.is_empty(gone)? {
            return self
                .at
                .wrong("rmdir command is for a directory with files", 0);
        }
        overlay.unlink(dir, name).map(drop)
    }

    fn change_data(&mut self, path: &[u8], change: DataChange<'_>) -> Result<()> {
        match change {
            DataChange::Write { offset, data } => {
                let place = PartSource::Plain {
                    at: self.at.data,
                    skip: 0,
                };
                self.write(path, offset, data.len() as u64, place)
            }
            DataChange::Encoded(write) => {
                let encoding = Encoding {
                    algorithm: write.compression,
                    stored_len: write.data.len() as u64,
                    unencoded_len: write.unencoded_len,
                    unencoded_offset: write.unencoded_offset,
                };
                let place = PartSource::Encoded {
                    at: self.at.data,
                    encoding,
                };
                self.write(path, write.file_offset, write.unencoded_file_len, place)
            }
            DataChange::Clone(range) => self.clone_range(path, &range),
            DataChange::Truncate(size) => {
                let (ino, file) = self.applying.content(path)?;
                let SubvolumeTree { overlay, parts, .. } = &mut self.applying.built;
                parts.punch(file, size, u64::MAX);
                overlay.change(ino, |metadata| metadata.size = size)
            }
            DataChange::Allocate { mode, offset, len } => self.allocate(path, mode, offset, len),
            DataChange::Missing => Err(NO_DATA),
            DataChange::EnableVerity => {
                self.applying.resolve(path)?;
                self.applying.built.verity += 1;
                Ok(())
            }
        }
    }

    fn set_attribute(&mut self, path: &[u8], attribute: NewAttribute<'_>) -> Result<()> {
        let (file, _) = self.applying.resolve(path)?;
        let overlay = &mut self.applying.built.overlay;
        match attribute {
            NewAttribute::Xattr { name, value } => {
                let (name, value) = (name.into(), value.into());
                overlay.set_xattr(file, Xattr { name, value })
            }
            NewAttribute::NoXattr { name } => match overlay.remove_xattr(file, name) {
                // What the parent is in, such as an image, could not hold it.
                Err(Error::NotFound) if self.applying.built.sent.parent.is_some() => Ok(()),
                Err(Error::NotFound) => self.at.wrong("removed extended attribute is not there", 0),
                result => result,
            },
            NewAttribute::Mode(mode) => overlay.change(file, |it| it.permissions = mode),
            NewAttribute::Owner { uid, gid } => {
                let Some(owner) = owner(uid, gid) else {
                    return self.at.wrong("owner's number is too large", uid.max(gid));
                };
                overlay.change(file, |it| (it.uid, it.gid) = owner)
            }
            NewAttribute::Times {
                atime,
                mtime,
                ctime,
                otime,
            } => overlay.change(file, |it| {
                (it.atime, it.mtime, it.ctime) = (Some(atime), mtime, Some(ctime));
                it.btime = otime.or(it.btime);
            }),
            NewAttribute::Flags(flags) => overlay.change(file, |it| {
                it.attributes = FileAttributes(file_attributes(flags));
            }),
        }
    }
}

/// The reader has checked that no range ends beyond the largest offset of a file.
impl TreeSink<'_> {
    fn write(&mut self, path: &[u8], offset: u64, len: u64, place: PartSource) -> Result<()> {
        let (ino, file) = self.applying.content(path)?;
        if len == 0 {
            return Ok(());
        }
        let part = FilePart { offset, len, place };
        let parts = &mut self.applying.built.parts;
        parts.write(file, part, self.at.commands)?;
        self.applying.grow(ino, offset + len)
    }

    fn allocate(&mut self, path: &[u8], mode: u32, offset: u64, len: u64) -> Result<()> {
        let (ino, file) = self.applying.content(path)?;
        match mode & !KEEP_SIZE {
            0 => {}
            PUNCH_HOLE | ZERO_RANGE => self.applying.built.parts.punch(file, offset, offset + len),
            _ => {
                return self
                    .at
                    .wrong("mode of an allocation is unknown", mode.into());
            }
        }
        if mode & KEEP_SIZE == 0 {
            self.applying.grow(ino, offset + len)?;
        }
        Ok(())
    }

    fn clone_range(&mut self, path: &[u8], range: &CloneRange<'_>) -> Result<()> {
        let CloneRange {
            offset,
            len,
            source_offset: from,
            source,
            ..
        } = *range;
        let (end, to) = (from + len, offset + len);
        let built = &self.applying.built;
        let (size, parts) = if range.uuid == built.sent.uuid {
            let (ino, kind) = self.applying.resolve(source)?;
            let size = built.overlay.metadata(ino)?.size;
            let parts = match built.overlay.content(ino) {
                _ if kind != FileKind::Regular => {
                    return self.at.wrong("clone is of no regular file", 0);
                }
                Some(ChangedContent(Some(file))) => {
                    let parts = built.parts.of(*file, from);
                    parts.take_while(|part| part.offset < end).collect()
                }
                _ => vec![whole(0, ino, size)],
            };
            (size, parts)
        } else {
            let (uuid, ctransid) = (range.uuid, range.ctransid);
            let tree = self.applying.tree(uuid, ctransid, self.known, self.at)?;
            let trees = &self.applying.built.trees;
            let (ino, size) = regular_in(&*trees[tree as usize], source, self.at)?;
            (size, vec![whole(tree, ino, size)])
        };
        if end > size {
            let what = "clone reaches behind the end of its source";
            return self.at.wrong(what, size);
        }
        let (ino, file) = self.applying.content(path)?;
        let target = &mut self.applying.built.parts;
        target.punch(file, offset, to);
        for part in parts {
            let part = part.between(part.offset.max(from), part.end().min(end));
            if part.len > 0 {
                let offset = part.offset - from + offset;
                target.write(file, FilePart { offset, ..part }, self.at.commands)?;
            }
        }
        self.applying.grow(ino, to)
    }
}

impl At {
    fn wrong<T>(self, what: &'static str, got: u64) -> Result<T> {
        Err(Error::corrupt(what, self.data, got))
    }
}

/// All of a file as one part.
fn whole(tree: u32, ino: Ino, len: u64) -> FilePart {
    FilePart {
        offset: 0,
        len,
        place: PartSource::File {
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
