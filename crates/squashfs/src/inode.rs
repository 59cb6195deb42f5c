//! Inodes: all metadata of a file except its names.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use tree::{Error, FileKind, Result, Time, to_usize};
use zerocopy::IntoBytes;

use crate::metadata::{MetadataPosition, MetadataReader};
use crate::raw;

/// Longest link target that is read; Linux follows no target of a page or more.
const TARGET_BYTES_MAX: u32 = 65_535;

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageInode {
    /// The permissions. The type bits must be 0: the inode has its type elsewhere.
    pub(crate) mode: u16,
    /// Index into the id table.
    pub(crate) uid: u16,
    /// Index into the id table.
    pub(crate) gid: u16,
    /// Seconds since 1970.
    pub(crate) mtime: u32,
    /// 1 or more.
    pub(crate) number: u32,
    /// Number of names; for a directory, the number of subdirectories plus two.
    pub(crate) nlink: u32,
    /// Index of the attribute set.
    pub(crate) xattrs: Option<u32>,
    pub(crate) body: InodeFields,
}

/// The fields that depend on the kind of file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InodeFields {
    /// A directory, followed by its index.
    Directory {
        listing: DirListing,
        /// Inode number of the parent directory.
        parent: u32,
        /// Number of index records.
        index_count: u16,
    },
    /// A regular file, followed by the size words of its blocks.
    File(RegularFile),
    /// A symbolic link.
    Symlink { target: Box<[u8]> },
    /// A device, by [`FileKind`].
    Device { kind: FileKind, rdev: u32 },
    /// A fifo or a socket.
    Ipc { kind: FileKind },
}

/// The place of a directory's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirListing {
    /// Its first metadata block, relative to the start of the directory table.
    pub(crate) block: u32,
    /// Offset in that block.
    pub(crate) offset: u16,
    /// Length in bytes.
    pub(crate) len: u32,
}

/// The place of a regular file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegularFile {
    /// Position of the first block in the image.
    pub(crate) start: u64,
    /// Length of the content in bytes.
    pub(crate) size: u64,
    /// Bytes in holes.
    pub(crate) sparse: u64,
    /// The place of the tail, if it is in a fragment.
    pub(crate) tail: Option<TailPosition>,
}

/// A position in a fragment block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TailPosition {
    /// Index of the fragment block.
    pub(crate) fragment: u32,
    /// Offset of the tail in the block's content.
    pub(crate) offset: u32,
}

/// The basic inode type of a kind; the extended type is seven more.
pub(crate) const fn basic_type(kind: FileKind) -> u16 {
    match kind {
        FileKind::Directory => 1,
        FileKind::Regular => 2,
        FileKind::Symlink => 3,
        FileKind::BlockDevice => 4,
        FileKind::CharDevice => 5,
        FileKind::Fifo => 6,
        FileKind::Socket => 7,
    }
}

/// The kind of a basic inode type.
pub(crate) const fn kind_of(basic_type: u16) -> Option<FileKind> {
    Some(match basic_type {
        1 => FileKind::Directory,
        2 => FileKind::Regular,
        3 => FileKind::Symlink,
        4 => FileKind::BlockDevice,
        5 => FileKind::CharDevice,
        6 => FileKind::Fifo,
        7 => FileKind::Socket,
        _ => return None,
    })
}

impl RegularFile {
    /// Number of size words of the file.
    pub(crate) fn block_count(&self, block_bytes: u32) -> u64 {
        let block_bytes = u64::from(block_bytes);
        match self.tail {
            Some(_) => self.size.checked_div(block_bytes).unwrap_or(0),
            None => self.size.div_ceil(block_bytes),
        }
    }
}

impl ImageInode {
    pub(crate) fn kind(&self) -> FileKind {
        match &self.body {
            InodeFields::Directory { .. } => FileKind::Directory,
            InodeFields::File(_) => FileKind::Regular,
            InodeFields::Symlink { .. } => FileKind::Symlink,
            InodeFields::Device { kind, .. } | InodeFields::Ipc { kind } => *kind,
        }
    }

    /// Parses the inode at `reader` and returns the position after it: of a directory's index, or a
    /// file's size words.
    pub(crate) fn parse(reader: &mut MetadataReader) -> Result<(ImageInode, MetadataPosition)> {
        let at = reader.at();
        let header: raw::InodeHeader = reader.record()?;
        let stored_type = header.inode_type.get();
        let extended = stored_type > 7;
        let basic = stored_type.saturating_sub(if extended { 7 } else { 0 });
        let Some(kind) = kind_of(basic) else {
            return Err(Error::corrupt(
                "inode type is unknown",
                at,
                stored_type.into(),
            ));
        };
        let (body, nlink, mut xattrs) = match kind {
            FileKind::Directory => parse_directory(reader, extended)?,
            FileKind::Regular => parse_file(reader, extended, at)?,
            FileKind::Symlink => parse_symlink(reader, at)?,
            FileKind::BlockDevice | FileKind::CharDevice => {
                let raw: raw::DevInode = reader.record()?;
                let rdev = raw.rdev.get();
                let body = InodeFields::Device { kind, rdev };
                (body, raw.nlink.get(), raw::NO_XATTRS)
            }
            FileKind::Fifo | FileKind::Socket => {
                let raw: raw::IpcInode = reader.record()?;
                (InodeFields::Ipc { kind }, raw.nlink.get(), raw::NO_XATTRS)
            }
        };
        if extended && !matches!(kind, FileKind::Directory | FileKind::Regular) {
            let raw: zerocopy::little_endian::U32 = reader.record()?;
            xattrs = raw.get();
        }
        let inode = ImageInode {
            mode: header.mode.get(),
            uid: header.uid.get(),
            gid: header.guid.get(),
            mtime: header.mtime.get(),
            number: header.inode_number.get(),
            nlink,
            xattrs: (xattrs != raw::NO_XATTRS).then_some(xattrs),
            body,
        };
        Ok((inode, reader.place()))
    }

    /// Whether the extended form is needed.
    fn needs_extended(&self) -> bool {
        let more = match &self.body {
            InodeFields::Directory {
                listing,
                index_count,
                ..
            } => {
                *index_count > 0 || listing.len.saturating_add(raw::LISTING_EXTRA) > u16::MAX.into()
            }
            InodeFields::File(file) => {
                self.nlink > 1
                    || file.sparse > 0
                    || file.start > u32::MAX.into()
                    || file.size > u32::MAX.into()
            }
            _ => false,
        };
        more || self.xattrs.is_some()
    }

    /// Appends the inode in its shortest form. A directory's index or a file's size words must
    /// follow.
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        reason = "a writer: these numbers are its own"
    )]
    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        let extended = self.needs_extended();
        let xattrs = self.xattrs.unwrap_or(raw::NO_XATTRS).into();
        let header = raw::InodeHeader {
            inode_type: (basic_type(self.kind()) + if extended { 7 } else { 0 }).into(),
            mode: self.mode.into(),
            uid: self.uid.into(),
            guid: self.gid.into(),
            mtime: self.mtime.into(),
            inode_number: self.number.into(),
        };
        out.extend(header.as_bytes());
        match &self.body {
            InodeFields::Directory {
                listing,
                parent,
                index_count,
            } => {
                let file_size = listing.len + raw::LISTING_EXTRA;
                let extended_form = raw::LongDirInode {
                    nlink: self.nlink.into(),
                    file_size: file_size.into(),
                    start_block: listing.block.into(),
                    parent_inode: (*parent).into(),
                    i_count: (*index_count).into(),
                    offset: listing.offset.into(),
                    xattr: xattrs,
                };
                let basic = raw::DirInode {
                    start_block: extended_form.start_block,
                    nlink: extended_form.nlink,
                    file_size: (file_size as u16).into(),
                    offset: extended_form.offset,
                    parent_inode: extended_form.parent_inode,
                };
                out.extend(if extended {
                    extended_form.as_bytes()
                } else {
                    basic.as_bytes()
                });
            }
            InodeFields::File(file) => {
                let (fragment, offset) = file
                    .tail
                    .map_or((raw::NO_FRAGMENT, 0), |tail| (tail.fragment, tail.offset));
                let extended_form = raw::LongRegInode {
                    start_block: file.start.into(),
                    file_size: file.size.into(),
                    sparse: file.sparse.into(),
                    nlink: self.nlink.into(),
                    fragment: fragment.into(),
                    offset: offset.into(),
                    xattr: xattrs,
                };
                let basic = raw::RegInode {
                    start_block: (file.start as u32).into(),
                    fragment: fragment.into(),
                    offset: offset.into(),
                    file_size: (file.size as u32).into(),
                };
                out.extend(if extended {
                    extended_form.as_bytes()
                } else {
                    basic.as_bytes()
                });
            }
            InodeFields::Symlink { target } => {
                let raw = raw::SymlinkInode {
                    nlink: self.nlink.into(),
                    symlink_size: (target.len() as u32).into(),
                };
                out.extend(raw.as_bytes());
                out.extend(&**target);
            }
            InodeFields::Device { rdev, .. } => {
                let raw = raw::DevInode {
                    nlink: self.nlink.into(),
                    rdev: (*rdev).into(),
                };
                out.extend(raw.as_bytes());
            }
            InodeFields::Ipc { .. } => out.extend(self.nlink.to_le_bytes()),
        }
        if extended
            && !matches!(
                self.body,
                InodeFields::Directory { .. } | InodeFields::File(_)
            )
        {
            out.extend(xattrs.as_bytes());
        }
    }
}

/// Parses the fields of a directory, its link count, and the index of its attribute set.
fn parse_directory(reader: &mut MetadataReader, extended: bool) -> Result<(InodeFields, u32, u32)> {
    let raw = if extended {
        reader.record()?
    } else {
        let basic: raw::DirInode = reader.record()?;
        raw::LongDirInode {
            nlink: basic.nlink,
            file_size: u32::from(basic.file_size.get()).into(),
            start_block: basic.start_block,
            parent_inode: basic.parent_inode,
            i_count: 0.into(),
            offset: basic.offset,
            xattr: raw::NO_XATTRS.into(),
        }
    };
    let body = InodeFields::Directory {
        listing: DirListing {
            block: raw.start_block.get(),
            offset: raw.offset.get(),
            len: raw.file_size.get().saturating_sub(raw::LISTING_EXTRA),
        },
        parent: raw.parent_inode.get(),
        index_count: raw.i_count.get(),
    };
    Ok((body, raw.nlink.get(), raw.xattr.get()))
}

/// Parses the fields of a regular file, its link count, and the index of its attribute set.
fn parse_file(
    reader: &mut MetadataReader,
    extended: bool,
    at: u64,
) -> Result<(InodeFields, u32, u32)> {
    let raw = if extended {
        reader.record()?
    } else {
        let basic: raw::RegInode = reader.record()?;
        raw::LongRegInode {
            start_block: u64::from(basic.start_block.get()).into(),
            file_size: u64::from(basic.file_size.get()).into(),
            sparse: 0.into(),
            nlink: 1.into(),
            fragment: basic.fragment,
            offset: basic.offset,
            xattr: raw::NO_XATTRS.into(),
        }
    };
    let (size, fragment) = (raw.file_size.get(), raw.fragment.get());
    if i64::try_from(size).is_err() {
        return Err(Error::corrupt("file is impossibly large", at, size));
    }
    let body = InodeFields::File(RegularFile {
        start: raw.start_block.get(),
        size,
        sparse: raw.sparse.get(),
        tail: (fragment != raw::NO_FRAGMENT).then(|| TailPosition {
            fragment,
            offset: raw.offset.get(),
        }),
    });
    Ok((body, raw.nlink.get(), raw.xattr.get()))
}

/// Parses the fields of a symbolic link, its link count, and the index of no attribute set.
fn parse_symlink(reader: &mut MetadataReader, at: u64) -> Result<(InodeFields, u32, u32)> {
    let raw: raw::SymlinkInode = reader.record()?;
    let len = raw.symlink_size.get();
    if len == 0 || len > TARGET_BYTES_MAX {
        let what = "symbolic link's target has an impossible length";
        return Err(Error::corrupt(what, at, len.into()));
    }
    let target = reader.bytes(to_usize(len))?;
    if target.contains(&0) {
        let what = "symbolic link's target contains a NUL";
        return Err(Error::corrupt(what, at, len.into()));
    }
    let target = target.into();
    Ok((
        InodeFields::Symlink { target },
        raw.nlink.get(),
        raw::NO_XATTRS,
    ))
}

/// The nearest time that the format can store.
pub(crate) fn nearest_seconds(time: Time) -> u32 {
    u32::try_from(time.seconds.max(0)).unwrap_or(u32::MAX)
}
