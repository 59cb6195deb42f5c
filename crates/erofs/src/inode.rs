//! Inodes (`struct erofs_inode_compact` and `struct erofs_inode_extended`).
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use tree::{Device, Error, FileKind, Metadata, Result, Time, to_u64};

use crate::fields::{u16_at, u32_at, u64_at};

/// Bytes of the two kinds of inodes.
pub(crate) const COMPACT_BYTES: usize = 32;
pub(crate) const EXTENDED_BYTES: usize = 64;

/// How content is stored (`EROFS_INODE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Blocks in a row.
    Plain,
    /// Clusters, with an index of 8 bytes each or with records.
    Full,
    /// As `Plain`, but the last part of a block is behind the inode.
    Inline,
    /// Clusters, with an index of 2 or 4 bytes each.
    Compact,
    /// Chunks of equal size.
    Chunks,
}

impl Layout {
    pub(crate) fn is_compressed(self) -> bool {
        matches!(self, Layout::Full | Layout::Compact)
    }
}

/// A position in metadata: in the image, or in the content of the metabox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MetaAt {
    pub(crate) in_metabox: bool,
    pub(crate) at: u64,
}

impl MetaAt {
    /// The position after this many bytes, of which hostile numbers can make nothing that exists.
    pub(crate) fn after(self, bytes: u64) -> MetaAt {
        let at = self.at.saturating_add(bytes);
        MetaAt { at, ..self }
    }

    /// The next position that is a multiple of `unit`, a power of two.
    pub(crate) fn aligned(self, unit: u64) -> MetaAt {
        let at = self.at.checked_next_multiple_of(unit);
        MetaAt {
            at: at.unwrap_or(u64::MAX),
            ..self
        }
    }
}

/// A parsed inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    pub(crate) nid: u64,
    /// Where it is.
    pub(crate) at: MetaAt,
    pub(crate) kind: FileKind,
    pub(crate) mode: u16,
    pub(crate) layout: Layout,
    pub(crate) size: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) nlink: u32,
    pub(crate) mtime: Time,
    pub(crate) rdev: Device,
    /// The first block of plain content; `None`: a hole.
    pub(crate) start_block: Option<u64>,
    pub(crate) chunk_format: u16,
    /// A directory without an entry `.`.
    pub(crate) omits_dot: bool,
    /// Where its attributes are, and their bytes.
    pub(crate) xattrs_at: MetaAt,
    pub(crate) xattr_bytes: u64,
    /// Where the index of its content begins.
    pub(crate) index_at: MetaAt,
}

impl Inode {
    /// Parses an inode; a compact one has only the first half of the bytes.
    pub(crate) fn parse(
        bytes: &[u8; EXTENDED_BYTES],
        nid: u64,
        at: MetaAt,
        epoch: Time,
    ) -> Result<Inode> {
        let corrupt = |what, got: u64| Err(Error::corrupt(what, at.at, got));
        let format = u16_at(bytes, 0);
        if format >> 5 != 0 {
            return Err(Error::Unsupported("an EROFS inode of an unknown format"));
        }
        let layout = match format >> 1 & 7 {
            0 => Layout::Plain,
            1 => Layout::Full,
            2 => Layout::Inline,
            3 => Layout::Compact,
            4 => Layout::Chunks,
            _ => return Err(Error::Unsupported("an EROFS inode of an unknown layout")),
        };
        let (is_extended, bit_4) = (format & 1 != 0, format & 0x10 != 0);
        let mode = u16_at(bytes, 4);
        let Some(kind) = FileKind::from_mode(mode.into()) else {
            return corrupt("inode's mode has no file type", mode.into());
        };
        let is_dir = kind == FileKind::Directory;
        // The field is the number of links, unless a bit says that this is 1.
        let has_high = is_extended || (bit_4 && !is_dir);
        let (high, low) = (u16_at(bytes, 6), u32_at(bytes, 16));
        let mut inode_bytes = COMPACT_BYTES;
        let (size, uid, gid, nlink, mtime);
        if is_extended {
            inode_bytes = EXTENDED_BYTES;
            size = u64_at(bytes, 8);
            (uid, gid) = (u32_at(bytes, 24), u32_at(bytes, 28));
            nlink = u32_at(bytes, 44);
            mtime = Time {
                seconds: i64::from_le_bytes(u64_at(bytes, 32).to_le_bytes()),
                nanoseconds: u32_at(bytes, 40),
            };
        } else {
            size = u32_at(bytes, 8).into();
            (uid, gid) = (u16_at(bytes, 24).into(), u16_at(bytes, 26).into());
            nlink = if has_high { 1 } else { high.into() };
            mtime = Time {
                seconds: epoch.seconds.saturating_add(u32_at(bytes, 12).into()),
                ..epoch
            };
        }
        if size > i64::MAX.unsigned_abs() {
            return corrupt("inode's size is negative", size);
        }
        if mtime.nanoseconds > 999_999_999 {
            return corrupt(
                "inode's time has too many nanoseconds",
                mtime.nanoseconds.into(),
            );
        }
        let block = u64::from(low) | if has_high { u64::from(high) << 32 } else { 0 };
        let none = if has_high {
            (1 << 48) - 1
        } else {
            u64::from(u32::MAX)
        };
        let xattr_count = u64::from(u16_at(bytes, 2));
        // 12 bytes of a header, and 4 for each further count.
        let xattr_bytes = if xattr_count == 0 {
            0
        } else {
            xattr_count.saturating_mul(4).saturating_add(8)
        };
        let xattrs_at = at.after(to_u64(inode_bytes));
        Ok(Inode {
            nid,
            at,
            kind,
            mode,
            layout,
            size,
            uid,
            gid,
            nlink,
            mtime,
            rdev: if kind.is_device() {
                Device::parse(low)
            } else {
                Device::default()
            },
            start_block: Some(block).filter(|&block| block != none),
            chunk_format: u16_at(bytes, 16),
            omits_dot: is_dir && bit_4,
            xattrs_at,
            xattr_bytes,
            index_at: xattrs_at.after(xattr_bytes),
        })
    }
    pub(crate) fn metadata(&self) -> Metadata {
        let mut metadata = Metadata::new(self.kind, self.mode & 0o7777);
        (metadata.uid, metadata.gid) = (self.uid, self.gid);
        metadata.nlink = self.nlink.max(1);
        if matches!(self.kind, FileKind::Regular | FileKind::Symlink) {
            metadata.size = self.size;
        }
        (metadata.rdev, metadata.mtime) = (self.rdev, self.mtime);
        metadata
    }
}
