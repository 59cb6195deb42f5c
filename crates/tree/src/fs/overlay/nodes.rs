//! The nodes of an overlay, in little memory.

use std::num::NonZeroU32;

use super::tables::{DirId, NodeId, push, reserve};
use crate::fs::{Device, FileAttributes, FileKind, Ino, Metadata, Time, Xattr};
use crate::{Error, Result};

/// What a node is in addition to its metadata.
#[derive(Clone, Copy)]
pub(super) enum Body {
    /// Its metadata is all there is.
    Plain,
    /// A symbolic link with its own target, at an offset of `targets`.
    Symlink(u32),
    Directory(DirId),
    /// A file of the base other than a directory, by its index in `bases`.
    Base(u32),
}

/// A file. 48 bytes with a content of 4 bytes.
#[derive(Clone)]
pub(super) struct Node<C> {
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
    pub(super) content: C,
    permissions: u16,
    kind: FileKind,
    tag: Tag,
}

const _: () = assert!(size_of::<Node<u32>>() == 48);

/// Which [`Body`] it is.
#[derive(Clone, Copy)]
enum Tag {
    Plain,
    Symlink,
    Directory,
    Base,
}

/// The index of a [`Rare`] plus 1.
type RareId = NonZeroU32;

/// What few files have, but all of a send stream. 44 bytes.
#[derive(Clone)]
struct Rare {
    /// Access, change and birth time.
    times: [Packed; 3],
    attributes: u32,
    /// An index in `xattrs`; those of the base apply if there is none.
    xattrs: Option<NonZeroU32>,
}

const _: () = assert!(size_of::<Rare>() == 44);

/// A time: low and high half of the seconds, and nanoseconds, all ones if there is none.
#[derive(Clone, Copy)]
struct Packed([u32; 3]);

/// All nodes.
#[derive(Clone)]
pub(super) struct Nodes<C> {
    nodes: Vec<Node<C>>,
    rare: Vec<Rare>,
    xattrs: Vec<Vec<Xattr>>,
    /// For each target of a symbolic link, its length in four bytes, and the target.
    targets: Vec<u8>,
    /// The files of the base other than directories that have been copied up.
    bases: Vec<Ino>,
}

impl<C> Nodes<C> {
    pub(super) fn new() -> Nodes<C> {
        Nodes {
            nodes: Vec::new(),
            rare: Vec::new(),
            xattrs: Vec::new(),
            targets: Vec::new(),
            bases: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn at(&self, id: NodeId) -> &Node<C> {
        &self.nodes[id.index()]
    }

    pub(super) fn at_mut(&mut self, id: NodeId) -> &mut Node<C> {
        &mut self.nodes[id.index()]
    }

    /// Adds a node without names.
    ///
    /// # Errors
    /// [`Error::Limit`] if there are 2^32 - 1 of them.
    pub(super) fn push(&mut self, metadata: &Metadata, body: Body, content: C) -> Result<NodeId> {
        let id = NodeId::new(self.nodes.len()).ok_or(Error::Limit("files of an overlay"))?;
        let (tag, place) = match body {
            Body::Plain => (Tag::Plain, 0),
            Body::Symlink(at) => (Tag::Symlink, at),
            Body::Directory(dir) => (Tag::Directory, dir.number()),
            Body::Base(index) => (Tag::Base, index),
        };
        let node = Node {
            size: 0,
            mtime_seconds: 0,
            mtime_nanoseconds: 0,
            uid: 0,
            gid: 0,
            nlink: 0,
            rare: None,
            place,
            content,
            permissions: 0,
            kind: metadata.kind,
            tag,
        };
        push(&mut self.nodes, node);
        self.set_metadata(id, metadata);
        self.at_mut(id).nlink = 0;
        Ok(id)
    }

    /// Keeps the target of a symbolic link.
    ///
    /// # Errors
    /// [`Error::Limit`].
    pub(super) fn add_target(&mut self, target: &[u8]) -> Result<Body> {
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
        Ok(Body::Symlink(at))
    }

    /// The target that [`Nodes::add_target`] put there.
    pub(super) fn target(&self, at: u32) -> &[u8] {
        let (len, rest) = self.targets[at as usize..]
            .split_first_chunk()
            .unwrap_or((&[0; 4], &[]));
        &rest[..u32::from_le_bytes(*len) as usize]
    }

    /// Keeps the number of a file of the base other than a directory. There are fewer of them than nodes.
    pub(super) fn add_base(&mut self, ino: Ino) -> Body {
        push(&mut self.bases, ino);
        Body::Base(self.bases.len() as u32 - 1)
    }

    /// The number that [`Nodes::add_base`] keeps.
    pub(super) fn base(&self, index: u32) -> Ino {
        self.bases[index as usize]
    }

    pub(super) fn metadata(&self, id: NodeId) -> Metadata {
        let node = self.at(id);
        let rare = node.rare.map(|rare| &self.rare[rare.get() as usize - 1]);
        let [atime, ctime, btime] = rare.map_or([None; 3], |rare| rare.times.map(Packed::time));
        let (size, rdev) = if node.kind.is_device() {
            let (major, minor) = ((node.size >> 32) as u32, node.size as u32);
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
        let node = &mut self.nodes[id.index()];
        node.permissions = metadata.permissions;
        node.uid = metadata.uid;
        node.gid = metadata.gid;
        node.nlink = metadata.nlink;
        node.size = if node.kind.is_device() {
            u64::from(metadata.rdev.major) << 32 | u64::from(metadata.rdev.minor)
        } else {
            metadata.size
        };
        node.mtime_seconds = metadata.mtime.seconds;
        node.mtime_nanoseconds = metadata.mtime.nanoseconds;
        let times = [metadata.atime, metadata.ctime, metadata.btime];
        let attributes = metadata.attributes.0;
        if times != [None; 3] || attributes != 0 || node.rare.is_some() {
            let rare = self.rare_mut(id);
            rare.times = times.map(Packed::new);
            rare.attributes = attributes;
        }
    }

    fn rare_mut(&mut self, id: NodeId) -> &mut Rare {
        let node = &mut self.nodes[id.index()];
        let index = match node.rare {
            Some(known) => known.get() as usize - 1,
            None => {
                let none = Rare {
                    times: [Packed::new(None); 3],
                    attributes: 0,
                    xattrs: None,
                };
                push(&mut self.rare, none);
                // There are no more than nodes.
                node.rare = NonZeroU32::new(self.rare.len() as u32);
                self.rare.len() - 1
            }
        };
        &mut self.rare[index]
    }

    /// The extended attributes of a node, unless those of the base apply.
    pub(super) fn xattrs(&self, id: NodeId) -> Option<&[Xattr]> {
        let rare = &self.rare[self.at(id).rare?.get() as usize - 1];
        Some(&self.xattrs[rare.xattrs?.get() as usize - 1])
    }

    /// The same, to be changed. If those of the base apply, they are set to `base` first.
    pub(super) fn xattrs_mut(&mut self, id: NodeId, base: Vec<Xattr>) -> &mut Vec<Xattr> {
        let known = self.rare_mut(id).xattrs;
        let index = match known {
            Some(known) => known.get() as usize - 1,
            None => {
                push(&mut self.xattrs, base);
                self.rare_mut(id).xattrs = NonZeroU32::new(self.xattrs.len() as u32);
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
        self.nodes.capacity() * size_of::<Node<C>>()
            + self.rare.capacity() * size_of::<Rare>()
            + self.xattrs.capacity() * size_of::<Vec<Xattr>>()
            + self.xattrs.iter().map(in_lists).sum::<usize>()
            + self.targets.capacity()
            + self.bases.capacity() * size_of::<Ino>()
    }
}

impl<C> Node<C> {
    pub(super) fn kind(&self) -> FileKind {
        self.kind
    }

    pub(super) fn body(&self) -> Body {
        match self.tag {
            Tag::Plain => Body::Plain,
            Tag::Symlink => Body::Symlink(self.place),
            Tag::Directory => Body::Directory(DirId::of(self.place)),
            Tag::Base => Body::Base(self.place),
        }
    }

    pub(super) fn count_name_less(&mut self) {
        self.nlink = self.nlink.saturating_sub(1);
    }
}

impl Packed {
    fn new(time: Option<Time>) -> Packed {
        let Some(time) = time else {
            return Packed([0, 0, u32::MAX]);
        };
        let seconds = time.seconds.cast_unsigned();
        Packed([seconds as u32, (seconds >> 32) as u32, time.nanoseconds])
    }

    fn time(self) -> Option<Time> {
        let [low, high, nanoseconds] = self.0;
        (nanoseconds != u32::MAX).then(|| Time {
            seconds: (u64::from(high) << 32 | u64::from(low)).cast_signed(),
            nanoseconds,
        })
    }
}
