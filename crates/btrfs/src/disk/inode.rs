//! Inodes, and the references that hold their names.

use tree::{
    Device, FileAttributes, FileIdentity, FileKind, Metadata, Result, Time, low_u32, to_u64,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::disk::flags::{attribute, inode_flags};
use crate::disk::key::{Generation, item};
use crate::disk::node::TreeItem;
use crate::disk::raw::{self, NAME_BYTES_MAX};
use crate::disk::superblock::Superblock;

/// A validated inode item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredInode {
    /// The transaction that created it.
    pub(crate) generation: Generation,
    /// The transaction that last changed it.
    pub(crate) transid: Generation,
    pub(crate) kind: FileKind,
    pub(crate) permissions: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// 0 for an inode that was deleted while it was open.
    pub(crate) nlink: u32,
    pub(crate) size: u64,
    /// Bytes of extents.
    pub(crate) nbytes: u64,
    pub(crate) rdev: Device,
    /// Bits of [`inode_flags`].
    pub(crate) flags: u64,
    pub(crate) atime: Time,
    pub(crate) ctime: Time,
    pub(crate) mtime: Time,
    pub(crate) otime: Time,
}

impl StoredInode {
    pub(crate) fn parse(item: &TreeItem<'_>, superblock: &Superblock) -> Result<StoredInode> {
        let Ok(raw) = raw::InodeItem::ref_from_bytes(item.data) else {
            return Err(item.corrupt("inode item's size is wrong", to_u64(item.data.len())));
        };
        StoredInode::check(raw, item, superblock)
    }

    fn check(
        raw: &raw::InodeItem,
        item: &TreeItem<'_>,
        superblock: &Superblock,
    ) -> Result<StoredInode> {
        if item.key.offset != 0 {
            return Err(item.corrupt("inode item's key has an offset", item.key.offset));
        }
        // A change may reach the disk one commit before the superblock records it.
        let newest = Generation(superblock.generation.0.saturating_add(1));
        for generation in [raw.generation.get(), raw.transid.get()] {
            if Generation(generation) > newest {
                return Err(item.corrupt("inode is newer than the superblock", generation));
            }
        }
        let mode = raw.mode.get();
        let kind = FileKind::from_mode(mode).filter(|_| mode <= 0o177_777);
        let Some(kind) = kind else {
            return Err(item.corrupt("inode's mode is impossible", mode.into()));
        };
        let nlink = raw.nlink.get();
        if kind == FileKind::Directory && nlink > 1 {
            return Err(item.corrupt("directory has more than one name", nlink.into()));
        }
        let flags = raw.flags.get();
        if flags & !(inode_flags::ALL | inode_flags::RO_VERITY) != 0 {
            return Err(item.corrupt("inode has unknown flags", flags));
        }
        let size = raw.size.get();
        if i64::try_from(size).is_err() {
            return Err(item.corrupt("inode's size is impossible", size));
        }
        let rdev = raw.rdev.get();
        Ok(StoredInode {
            generation: Generation(raw.generation.get()),
            transid: Generation(raw.transid.get()),
            kind,
            permissions: u16::try_from(mode & 0o7777).unwrap_or(0),
            uid: raw.uid.get(),
            gid: raw.gid.get(),
            nlink,
            size,
            nbytes: raw.nbytes.get(),
            rdev: Device {
                major: low_u32(rdev >> 20),
                minor: low_u32(rdev & 0xf_ffff),
            },
            flags,
            atime: time(&raw.atime),
            ctime: time(&raw.ctime),
            mtime: time(&raw.mtime),
            otime: time(&raw.otime),
        })
    }

    /// The metadata of this inode, whose number is `number`.
    pub(crate) fn metadata(&self, number: u64) -> Metadata {
        let has_size = matches!(self.kind, FileKind::Regular | FileKind::Symlink);
        Metadata {
            kind: self.kind,
            permissions: self.permissions,
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink.max(1),
            size: if has_size { self.size } else { 0 },
            rdev: if self.kind.is_device() {
                self.rdev
            } else {
                Device::default()
            },
            mtime: self.mtime,
            atime: Some(self.atime),
            ctime: Some(self.ctime),
            btime: Some(self.otime),
            attributes: attributes(self.flags),
            identity: Some(FileIdentity {
                number,
                generation: self.generation.0,
                transaction: self.transid.0,
            }),
        }
    }

    /// Whether its content has checksums.
    pub(crate) fn has_checksums(&self) -> bool {
        self.flags & inode_flags::NODATASUM == 0
    }
}

/// Linux does not check nanoseconds, and some old file systems have a second or more of them. Whole
/// seconds of them count as seconds.
fn time(raw: &raw::Timespec) -> Time {
    const SECOND: u32 = 1_000_000_000;
    let (seconds, nanoseconds) = (raw.sec.get().cast_signed(), raw.nsec.get());
    let carry = nanoseconds / SECOND;
    Time {
        seconds: seconds.saturating_add(carry.into()),
        nanoseconds: nanoseconds % SECOND,
    }
}

/// Inode flags, and the corresponding `FS_*_FL` bit of linux/fs.h.
pub(crate) const ATTRIBUTES: [(u64, u32); 9] = [
    (inode_flags::COMPRESS, 0x4),
    (inode_flags::SYNC, 0x8),
    (inode_flags::IMMUTABLE, 0x10),
    (inode_flags::APPEND, 0x20),
    (inode_flags::NODUMP, 0x40),
    (inode_flags::NOATIME, 0x80),
    (inode_flags::NOCOMPRESS, attribute::NOCOMP),
    (inode_flags::DIRSYNC, 0x1_0000),
    (inode_flags::NODATACOW, attribute::NOCOW),
];

fn attributes(flags: u64) -> FileAttributes {
    let set = ATTRIBUTES.iter().filter(|(flag, _)| flags & flag != 0);
    let bits = set.fold(0, |bits, (_, bit)| bits | bit);
    FileAttributes(match flags & inode_flags::COMPRESS {
        0 => bits,
        _ => bits & !attribute::NOCOMP,
    })
}

/// A name of an inode, as its references record it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InodeName<'a> {
    pub(crate) parent: u64,
    pub(crate) index: u64,
    pub(crate) name: &'a [u8],
}

/// Calls `each` with the names in an `INODE_REF` or `INODE_EXTREF` item.
pub(crate) fn for_each_name<'a>(
    item: &TreeItem<'a>,
    mut each: impl FnMut(InodeName<'a>) -> Result<()>,
) -> Result<()> {
    let mut rest = item.data;
    let is_extended = item.key.kind == item::INODE_EXTREF;
    if rest.is_empty() && !is_extended {
        return Err(item.corrupt("inode reference is empty", 0));
    }
    while !rest.is_empty() {
        let (parent, index, len, names) = if is_extended {
            let Ok((raw, names)) = raw::InodeExtref::ref_from_prefix(rest) else {
                return Err(item.corrupt("extended reference is cut off", to_u64(rest.len())));
            };
            (
                raw.parent_objectid.get(),
                raw.index.get(),
                raw.name_len.get(),
                names,
            )
        } else {
            let Ok((raw, names)) = raw::InodeRef::ref_from_prefix(rest) else {
                return Err(item.corrupt("inode reference is cut off", to_u64(rest.len())));
            };
            (item.key.offset, raw.index.get(), raw.name_len.get(), names)
        };
        let split = names.split_at_checked(len.into());
        let Some((name, after)) =
            split.filter(|(name, _)| (1..=NAME_BYTES_MAX).contains(&name.len()))
        else {
            return Err(if is_extended {
                item.corrupt("extended reference's name does not fit", len.into())
            } else {
                item.corrupt("inode reference's name does not fit", len.into())
            });
        };
        each(InodeName {
            parent,
            index,
            name,
        })?;
        rest = after;
    }
    Ok(())
}

/// An entry of an `INODE_REF` item.
pub(crate) fn emit_ref(index: u64, name: &[u8]) -> Vec<u8> {
    let head = raw::InodeRef {
        index: index.into(),
        name_len: raw::stored_len(name).into(),
    };
    [head.as_bytes(), name].concat()
}

/// An entry of an `INODE_EXTREF` item.
pub(crate) fn emit_extref(parent: u64, index: u64, name: &[u8]) -> Vec<u8> {
    let head = raw::InodeExtref {
        parent_objectid: parent.into(),
        index: index.into(),
        name_len: raw::stored_len(name).into(),
    };
    [head.as_bytes(), name].concat()
}
