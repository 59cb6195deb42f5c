//! The nodes of an overlay, in little memory.

use std::num::NonZeroU32;

use super::tables::{DirId, NodeId, push, reserve};
use crate::fs::{Device, FileAttributes, FileKind, Ino, Metadata, Time, Xattr};
use crate::{Error, RecordTable, Result, Scratch, high_u32, low_u32, wide_u64};

/// The kind of a node, with its data.
#[derive(Clone, Copy)]
pub(super) enum NodeBody {
    /// Its metadata is all there is.
    Plain,
    /// A symbolic link with its own target, at an offset of `targets`.
    Symlink(u32),
    Directory(DirId),
    /// A file of the base other than a directory, by its index in `bases`.
    Base(u32),
}

/// A file. 44 bytes when packed.
#[derive(Clone, Copy)]
pub(super) struct OverlayNode {
    /// For a device, its number: the major one in the upper half.
    size: u64,
    mtime_seconds: i64,
    mtime_nanoseconds: u32,
    uid: u32,
    gid: u32,
    pub(super) nlink: u32,
    rare: Option<RareId>,
    /// The number in the body.
    place: u32,
    permissions: u16,
    kind: FileKind,
    tag: Tag,
}

/// Which [`NodeBody`] it is.
#[derive(Clone, Copy)]
enum Tag {
    Plain,
    Symlink,
    Directory,
    Base,
}

/// The index of a [`Rare`] plus 1.
type RareId = NonZeroU32;

/// Properties that few files have, but all of a send stream. 44 bytes when packed.
#[derive(Clone, Copy)]
struct Rare {
    /// Access, change and birth time.
    times: [Packed; 3],
    attributes: u32,
    /// An index in `xattrs`; those of the base apply if there is none.
    xattrs: Option<NonZeroU32>,
}

/// A time: low and high half of the seconds, and nanoseconds, all ones if there is none.
#[derive(Clone, Copy)]
struct Packed([u32; 3]);

/// All nodes.
#[derive(Clone)]
pub(super) struct OverlayNodes<C> {
    /// Each is an [`OverlayNode`].
    nodes: RecordTable<11>,
    /// The users' data of the nodes.
    contents: Vec<C>,
    /// Each is a [`Rare`].
    rare: RecordTable<11>,
    xattrs: Vec<Vec<Xattr>>,
    /// For each target of a symbolic link, its length in four bytes, and the target.
    targets: Vec<u8>,
    /// The files of the base other than directories that have been copied up.
    bases: Vec<Ino>,
}

impl<C> OverlayNodes<C> {
    pub(super) fn new(scratch: &Scratch) -> OverlayNodes<C> {
        OverlayNodes {
            nodes: RecordTable::new(scratch),
            contents: Vec::new(),
            rare: RecordTable::new(scratch),
            xattrs: Vec::new(),
            targets: Vec::new(),
            bases: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn at(&self, id: NodeId) -> OverlayNode {
        OverlayNode::unpack(self.nodes.get(id.index()))
    }

    /// Changes a node.
    pub(super) fn change(&mut self, id: NodeId, change: impl FnOnce(&mut OverlayNode)) {
        let mut node = self.at(id);
        change(&mut node);
        self.nodes.set(id.index(), node.pack());
    }

    pub(super) fn content(&self, id: NodeId) -> &C {
        &self.contents[id.index()]
    }

    pub(super) fn content_mut(&mut self, id: NodeId) -> &mut C {
        &mut self.contents[id.index()]
    }

    fn rare(&self, id: RareId) -> Rare {
        Rare::unpack(self.rare.get(id.get() as usize - 1))
    }

    /// Adds a node without names.
    ///
    /// # Errors
    /// [`Error::Limit`] if there are 2^32 - 1 of them.
    pub(super) fn push(
        &mut self,
        metadata: &Metadata,
        body: NodeBody,
        content: C,
    ) -> Result<NodeId> {
        let id = NodeId::new(self.nodes.len()).ok_or(Error::Limit("files of an overlay"))?;
        let (tag, place) = match body {
            NodeBody::Plain => (Tag::Plain, 0),
            NodeBody::Symlink(at) => (Tag::Symlink, at),
            NodeBody::Directory(dir) => (Tag::Directory, dir.number()),
            NodeBody::Base(index) => (Tag::Base, index),
        };
        let node = OverlayNode {
            size: 0,
            mtime_seconds: 0,
            mtime_nanoseconds: 0,
            uid: 0,
            gid: 0,
            nlink: 0,
            rare: None,
            place,
            permissions: 0,
            kind: metadata.kind,
            tag,
        };
        self.nodes.push(node.pack());
        push(&mut self.contents, content);
        self.set_metadata(id, metadata);
        self.change(id, |node| node.nlink = 0);
        Ok(id)
    }

    /// Keeps the target of a symbolic link.
    ///
    /// # Errors
    /// [`Error::Limit`].
    pub(super) fn add_target(&mut self, target: &[u8]) -> Result<NodeBody> {
        let limit = Error::Limit("targets of symbolic links");
        let end = self.targets.len() + 4 + target.len();
        if u32::try_from(end).is_err() {
            return Err(limit);
        }
        let at = self.targets.len() as u32;
        reserve(&mut self.targets, target.len() + 4);
        self.targets
            .extend_from_slice(&(target.len() as u32).to_le_bytes());
        self.targets.extend_from_slice(target);
        Ok(NodeBody::Symlink(at))
    }

    /// The target that [`OverlayNodes::add_target`] put there.
    pub(super) fn target(&self, at: u32) -> &[u8] {
        let (len, rest) = self.targets[at as usize..]
            .split_first_chunk()
            .unwrap_or((&[0; 4], &[]));
        &rest[..u32::from_le_bytes(*len) as usize]
    }

    /// Keeps the number of a file of the base other than a directory. There are fewer of them than
    /// nodes.
    pub(super) fn add_base(&mut self, ino: Ino) -> NodeBody {
        push(&mut self.bases, ino);
        NodeBody::Base(self.bases.len() as u32 - 1)
    }

    /// The number that [`OverlayNodes::add_base`] keeps.
    pub(super) fn base(&self, index: u32) -> Ino {
        self.bases[index as usize]
    }

    pub(super) fn metadata(&self, id: NodeId) -> Metadata {
        let node = self.at(id);
        let rare = node.rare.map(|rare| self.rare(rare));
        let [atime, ctime, btime] = rare.map_or([None; 3], |rare| rare.times.map(Packed::time));
        let (size, rdev) = if node.kind.is_device() {
            let (major, minor) = (high_u32(node.size), low_u32(node.size));
            (0, Device { major, minor })
        } else {
            (node.size, Device::default())
        };
        Metadata {
            kind: node.kind,
            permissions: node.permissions,
            uid: node.uid,
            gid: node.gid,
            nlink: node.nlink,
            size,
            rdev,
            mtime: Time {
                seconds: node.mtime_seconds,
                nanoseconds: node.mtime_nanoseconds,
            },
            atime,
            ctime,
            btime,
            attributes: FileAttributes(rare.map_or(0, |rare| rare.attributes)),
            identity: None,
        }
    }

    pub(super) fn set_metadata(&mut self, id: NodeId, metadata: &Metadata) {
        let mut node = self.at(id);
        node.permissions = metadata.permissions;
        node.uid = metadata.uid;
        node.gid = metadata.gid;
        node.nlink = metadata.nlink;
        node.size = if node.kind.is_device() {
            wide_u64(metadata.rdev.minor, metadata.rdev.major)
        } else {
            metadata.size
        };
        node.mtime_seconds = metadata.mtime.seconds;
        node.mtime_nanoseconds = metadata.mtime.nanoseconds;
        self.nodes.set(id.index(), node.pack());
        let times = [metadata.atime, metadata.ctime, metadata.btime];
        let attributes = metadata.attributes.0;
        if times != [None; 3] || attributes != 0 || node.rare.is_some() {
            self.change_rare(id, |rare| {
                rare.times = times.map(Packed::new);
                rare.attributes = attributes;
            });
        }
    }

    fn change_rare(&mut self, id: NodeId, change: impl FnOnce(&mut Rare)) {
        let known = self.at(id).rare;
        let mut rare = known.map_or(Rare::NONE, |known| self.rare(known));
        change(&mut rare);
        match known {
            Some(known) => self.rare.set(known.get() as usize - 1, rare.pack()),
            None => {
                self.rare.push(rare.pack());
                // There are no more than nodes.
                let new = NonZeroU32::new(self.rare.len() as u32);
                self.change(id, |node| node.rare = new);
            }
        }
    }

    /// The extended attributes of a node, unless those of the base apply.
    pub(super) fn xattrs(&self, id: NodeId) -> Option<&[Xattr]> {
        let rare = self.rare(self.at(id).rare?);
        Some(&self.xattrs[rare.xattrs?.get() as usize - 1])
    }

    /// The same, to be changed. If those of the base apply, they are set to `base` first.
    pub(super) fn xattrs_mut(&mut self, id: NodeId, base: Vec<Xattr>) -> &mut Vec<Xattr> {
        let known = self.at(id).rare.and_then(|rare| self.rare(rare).xattrs);
        let index = match known {
            Some(known) => known.get() as usize - 1,
            None => {
                push(&mut self.xattrs, base);
                let new = NonZeroU32::new(self.xattrs.len() as u32);
                self.change_rare(id, |rare| rare.xattrs = new);
                self.xattrs.len() - 1
            }
        };
        &mut self.xattrs[index]
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let in_lists = |list: &Vec<Xattr>| {
            let values = list.iter().map(|it| it.name.len() + it.value.len());
            list.capacity() * size_of::<Xattr>() + values.sum::<usize>()
        };
        self.nodes.memory_bytes()
            + self.contents.capacity() * size_of::<C>()
            + self.rare.memory_bytes()
            + self.xattrs.capacity() * size_of::<Vec<Xattr>>()
            + self.xattrs.iter().map(in_lists).sum::<usize>()
            + self.targets.capacity()
            + self.bases.capacity() * size_of::<Ino>()
    }
}

impl OverlayNode {
    fn pack(&self) -> [u32; 11] {
        let seconds = self.mtime_seconds.cast_unsigned();
        let tag = match self.tag {
            Tag::Plain => 0,
            Tag::Symlink => 1,
            Tag::Directory => 2,
            Tag::Base => 3,
        };
        [
            low_u32(self.size),
            high_u32(self.size),
            low_u32(seconds),
            high_u32(seconds),
            self.mtime_nanoseconds,
            self.uid,
            self.gid,
            self.nlink,
            number(self.rare),
            self.place,
            u32::from(self.permissions) | self.kind.mode_bits() >> 12 << 16 | tag << 24,
        ]
    }

    fn unpack(words: [u32; 11]) -> OverlayNode {
        let wide = |at: usize| wide_u64(words[at], words[at + 1]);
        let kind = FileKind::from_mode((words[10] >> 16 & 0xff) << 12);
        OverlayNode {
            size: wide(0),
            mtime_seconds: wide(2).cast_signed(),
            mtime_nanoseconds: words[4],
            uid: words[5],
            gid: words[6],
            nlink: words[7],
            rare: NonZeroU32::new(words[8]),
            place: words[9],
            permissions: words[10] as u16,
            // Only kinds are packed.
            kind: kind.unwrap_or(FileKind::Regular),
            tag: match words[10] >> 24 {
                0 => Tag::Plain,
                1 => Tag::Symlink,
                2 => Tag::Directory,
                _ => Tag::Base,
            },
        }
    }

    pub(super) fn kind(&self) -> FileKind {
        self.kind
    }

    pub(super) fn body(&self) -> NodeBody {
        match self.tag {
            Tag::Plain => NodeBody::Plain,
            Tag::Symlink => NodeBody::Symlink(self.place),
            Tag::Directory => NodeBody::Directory(DirId::of(self.place)),
            Tag::Base => NodeBody::Base(self.place),
        }
    }

    pub(super) fn count_name_less(&mut self) {
        self.nlink = self.nlink.saturating_sub(1);
    }
}

impl Rare {
    const NONE: Rare = Rare {
        times: [Packed([0, 0, u32::MAX]); 3],
        attributes: 0,
        xattrs: None,
    };

    fn pack(&self) -> [u32; 11] {
        let mut words = [0; 11];
        words[..9].copy_from_slice(self.times.map(|time| time.0).as_flattened());
        words[9] = self.attributes;
        words[10] = number(self.xattrs);
        words
    }

    fn unpack(words: [u32; 11]) -> Rare {
        Rare {
            times: [0, 3, 6].map(|at| Packed([words[at], words[at + 1], words[at + 2]])),
            attributes: words[9],
            xattrs: NonZeroU32::new(words[10]),
        }
    }
}

/// An index plus 1, or 0.
fn number(index: Option<NonZeroU32>) -> u32 {
    index.map_or(0, NonZeroU32::get)
}

impl Packed {
    fn new(time: Option<Time>) -> Packed {
        let Some(time) = time else {
            return Packed([0, 0, u32::MAX]);
        };
        let seconds = time.seconds.cast_unsigned();
        Packed([low_u32(seconds), high_u32(seconds), time.nanoseconds])
    }

    fn time(self) -> Option<Time> {
        let [seconds, seconds_high, nanoseconds] = self.0;
        (nanoseconds != u32::MAX).then(|| Time {
            seconds: wide_u64(seconds, seconds_high).cast_signed(),
            nanoseconds,
        })
    }
}
