//! Searching the trees of a mounted btrfs (`BTRFS_IOC_TREE_SEARCH_V2`): for subvolumes, changes and
//! extents.

use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use crate::btrfs_subvolume::BTRFS;
use crate::stat::Timestamp;

/// `BTRFS_ROOT_TREE_OBJECTID`, `BTRFS_UUID_TREE_OBJECTID`.
const ROOT_TREE: u64 = 1;
const UUID_TREE: u64 = 9;
/// `BTRFS_INODE_ITEM_KEY`, `BTRFS_EXTENT_DATA_KEY`.
const INODE_ITEM: u32 = 1;
const EXTENT_DATA: u32 = 108;
/// `BTRFS_ROOT_ITEM_KEY`, `BTRFS_UUID_KEY_SUBVOL`, `BTRFS_UUID_KEY_RECEIVED_SUBVOL`.
const ROOT_ITEM: u32 = 132;
const UUID_SUBVOL: u32 = 251;
const UUID_RECEIVED_SUBVOL: u32 = 252;
/// `BTRFS_FIRST_FREE_OBJECTID`: the inode number of the root of every subvolume.
const FIRST_FREE_OBJECTID: u64 = 256;
/// `BTRFS_ROOT_SUBVOL_RDONLY` in the flags of a root item.
const ROOT_READ_ONLY: u64 = 1;
/// Room for the items of one search. An item of the trees that are searched here is at most a leaf,
/// 64 KiB.
const BUFFER_BYTES: usize = 128 << 10;
/// The length of `struct btrfs_ioctl_search_header`.
const HEADER_BYTES: usize = 32;

/// `struct btrfs_ioctl_search_key`.
#[repr(C)]
#[derive(Default)]
struct SearchKey {
    tree_id: u64,
    min_objectid: u64,
    max_objectid: u64,
    min_offset: u64,
    max_offset: u64,
    min_transid: u64,
    max_transid: u64,
    min_type: u32,
    max_type: u32,
    nr_items: u32,
    unused: u32,
    unused64: [u64; 4],
}

/// `struct btrfs_ioctl_search_args_v2`, of which the opcode has the size without the buffer.
#[repr(C)]
struct SearchHead {
    key: SearchKey,
    buf_size: u64,
}

#[repr(C)]
struct SearchArgs {
    head: SearchHead,
    buf: [u8; BUFFER_BYTES],
}

/// `struct btrfs_ioctl_ino_lookup_args`.
#[repr(C)]
struct InoLookupArgs {
    treeid: u64,
    objectid: u64,
    name: [u8; 4080],
}

const TREE_SEARCH_V2: Opcode = opcode::read_write::<SearchHead>(BTRFS, 17);
const INO_LOOKUP: Opcode = opcode::read_write::<InoLookupArgs>(BTRFS, 18);

/// A subvolume, as its root item describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subvolume {
    /// Its number.
    pub id: u64,
    /// Whether it is read-only.
    pub is_read_only: bool,
    /// Its own UUID.
    pub uuid: [u8; 16],
    /// The UUID that it was received with; zeros if it was not received.
    pub received_uuid: [u8; 16],
    /// The UUID of the subvolume that it is a snapshot of; zeros if it is none.
    pub parent_uuid: [u8; 16],
    /// The transaction of its last change.
    pub ctransid: u64,
    /// The transaction that it had where it was sent.
    pub stransid: u64,
    /// The transaction in which it was received.
    pub rtransid: u64,
    /// The time at which it was received.
    pub rtime: Timestamp,
}

/// The number of the subvolume that an open file or directory is in (`BTRFS_IOC_INO_LOOKUP`).
///
/// # Errors
/// The kernel's error.
pub fn subvolume_id(file: impl AsFd) -> io::Result<u64> {
    let mut args = Box::new(InoLookupArgs {
        treeid: 0,
        objectid: FIRST_FREE_OBJECTID,
        name: [0; 4080],
    });
    // SAFETY: the kernel reads and writes a `struct btrfs_ioctl_ino_lookup_args` for this opcode,
    // which is what it is given.
    let call = unsafe { Updater::<INO_LOOKUP, InoLookupArgs>::new(&mut args) };
    // SAFETY: the kernel reads and writes the argument, which lives until the call is over; it has
    // no pointers, and any bytes are a value of it.
    unsafe { ioctl(file, call) }?;
    Ok(args.treeid)
}

/// The subvolumes with this UUID, or with this received UUID, of the btrfs that `file` is on. Needs
/// privilege.
///
/// # Errors
/// The kernel's error; `PermissionDenied` without privilege.
pub fn subvolumes_by_uuid(
    file: impl AsFd,
    uuid: [u8; 16],
    is_received: bool,
) -> io::Result<Vec<Subvolume>> {
    let file = file.as_fd();
    let kind = if is_received {
        UUID_RECEIVED_SUBVOL
    } else {
        UUID_SUBVOL
    };
    let objectid = number(&uuid, 0).unwrap_or_default();
    let offset = number(&uuid, 8).unwrap_or_default();
    let mut ids = Vec::new();
    search(file, UUID_TREE, objectid, kind, (offset, offset), |item| {
        ids.extend((0..item.len() / 8).filter_map(|at| number(item, at * 8)));
    })?;
    let mut found = Vec::new();
    for id in ids {
        found.extend(subvolume(file, id)?);
    }
    Ok(found)
}

/// The subvolume with this number of the btrfs that `file` is on. Needs privilege.
///
/// # Errors
/// The kernel's error; `PermissionDenied` without privilege.
pub fn subvolume(file: impl AsFd, id: u64) -> io::Result<Option<Subvolume>> {
    let mut found = None;
    search(
        file,
        ROOT_TREE,
        id,
        ROOT_ITEM,
        (0, u64::MAX),
        // The last one counts: a snapshot's has the transaction in which it was made.
        |item| found = parse_root(id, item).or(found),
    )?;
    Ok(found)
}

/// The fields of a `struct btrfs_root_item`.
fn parse_root(id: u64, item: &[u8]) -> Option<Subvolume> {
    let uuid = |at: usize| item.get(at..at + 16)?.try_into().ok();
    Some(Subvolume {
        id,
        is_read_only: number(item, 208)? & ROOT_READ_ONLY != 0,
        uuid: uuid(247)?,
        received_uuid: uuid(279)?,
        parent_uuid: uuid(263)?,
        ctransid: number(item, 295)?,
        stransid: number(item, 311)?,
        rtransid: number(item, 319)?,
        rtime: timestamp(item, 363)?,
    })
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

/// A `struct btrfs_timespec`.
fn timestamp(bytes: &[u8], at: usize) -> Option<Timestamp> {
    let nanoseconds = bytes.get(at + 8..)?.first_chunk()?;
    Some(Timestamp {
        seconds: number(bytes, at)?.cast_signed(),
        nanoseconds: u32::from_le_bytes(*nanoseconds),
    })
}

/// The last change time (`ctime`) of the files in the subvolume with this number whose inode was
/// written to the tree after a transaction; `None` if there are none. Needs privilege.
///
/// # Errors
/// The kernel's error; `PermissionDenied` without privilege.
pub fn last_change_after(
    file: impl AsFd,
    subvolume: u64,
    transaction: u64,
) -> io::Result<Option<Timestamp>> {
    let mut last = None;
    let range = Range {
        tree: subvolume,
        from: (FIRST_FREE_OBJECTID, INODE_ITEM, 0),
        to: (u64::MAX, INODE_ITEM, u64::MAX),
        min_transid: transaction.saturating_add(1),
    };
    search_range(file, &range, |(_, kind, _), item| {
        // Tree blocks that were written since hold older items, too.
        if kind == INODE_ITEM && number(item, 8).is_some_and(|transid| transid > transaction) {
            last = last.max(timestamp(item, 124));
        }
        true
    })?;
    Ok(last)
}

/// Calls `each` with the extent items of a file, in order, from the first one at or after `from`:
/// with the offset in the file, and the `struct btrfs_file_extent_item` as it is stored. Ends when
/// `each` returns `false`. Needs privilege.
///
/// Data that has no extent yet is not seen: see [`flush_extents`](crate::flush_extents).
///
/// # Errors
/// The kernel's error; `PermissionDenied` without privilege.
pub fn for_each_extent_item(
    file: impl AsFd,
    subvolume: u64,
    ino: u64,
    from: u64,
    mut each: impl FnMut(u64, &[u8]) -> bool,
) -> io::Result<()> {
    let range = Range {
        tree: subvolume,
        from: (ino, EXTENT_DATA, from),
        to: (ino, EXTENT_DATA, u64::MAX),
        min_transid: 0,
    };
    search_range(file, &range, |(_, _, offset), item| each(offset, item))
}

/// Calls `each` with the items of this number and type, and an offset in a range.
fn search(
    file: impl AsFd,
    tree: u64,
    objectid: u64,
    kind: u32,
    (from, to): (u64, u64),
    mut each: impl FnMut(&[u8]),
) -> io::Result<()> {
    let range = Range {
        tree,
        from: (objectid, kind, from),
        to: (objectid, kind, to),
        min_transid: 0,
    };
    search_range(file, &range, |_, item| {
        each(item);
        true
    })
}

/// A key: objectid, type, offset.
type Key = (u64, u32, u64);

/// Items of a tree: those with keys in a range, from tree blocks that were written in or after a
/// transaction.
struct Range {
    tree: u64,
    from: Key,
    to: Key,
    min_transid: u64,
}

/// Calls `each` with the items of a range, until it returns `false`.
fn search_range(
    file: impl AsFd,
    range: &Range,
    mut each: impl FnMut(Key, &[u8]) -> bool,
) -> io::Result<()> {
    let file = file.as_fd();
    let mut args = Box::new(SearchArgs {
        head: SearchHead {
            key: SearchKey::default(),
            buf_size: 0,
        },
        buf: [0; BUFFER_BYTES],
    });
    let mut from = range.from;
    loop {
        args.head = SearchHead {
            key: SearchKey {
                tree_id: range.tree,
                min_objectid: from.0,
                max_objectid: range.to.0,
                min_offset: from.2,
                max_offset: range.to.2,
                min_transid: range.min_transid,
                max_transid: u64::MAX,
                min_type: from.1,
                max_type: range.to.1,
                nr_items: u32::MAX,
                ..SearchKey::default()
            },
            buf_size: BUFFER_BYTES as u64,
        };
        // SAFETY: the kernel reads and writes a `struct btrfs_ioctl_search_args_v2` for this
        // opcode, and at most `buf_size` bytes after it, which is what it is given.
        let call = unsafe { Updater::<TREE_SEARCH_V2, SearchArgs>::new(&mut args) };
        // SAFETY: the kernel reads and writes the argument, which lives until the call is over; it
        // has no pointers, and any bytes are a value of it.
        unsafe { ioctl(file, call) }?;
        let mut rest = &args.buf[..];
        let mut last = None;
        for _ in 0..args.head.key.nr_items {
            // transid, objectid, offset, type, len
            let Some((header, after)) = rest.split_first_chunk::<HEADER_BYTES>() else {
                break;
            };
            let long = |at: usize| {
                let bytes = header[at..].first_chunk();
                bytes.map_or(0, |it| u64::from_ne_bytes(*it))
            };
            let short = |at: usize| {
                let bytes = header[at..].first_chunk();
                bytes.map_or(0, |it| u32::from_ne_bytes(*it))
            };
            let Some((item, after)) = after.split_at_checked(short(28) as usize) else {
                break;
            };
            let key = (long(8), short(24), long(16));
            if !each(key, item) {
                return Ok(());
            }
            last = Some(key);
            rest = after;
        }
        match last.and_then(after) {
            Some(next) if next <= range.to => from = next,
            _ => return Ok(()),
        }
    }
}

/// The key after this one.
fn after((objectid, kind, offset): Key) -> Option<Key> {
    if let Some(offset) = offset.checked_add(1) {
        return Some((objectid, kind, offset));
    }
    match kind {
        0..255 => Some((objectid, kind + 1, 0)),
        _ => Some((objectid.checked_add(1)?, 0, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_the_sizes_of_linux() {
        assert_eq!(size_of::<SearchKey>(), 104);
        assert_eq!(size_of::<SearchHead>(), 112);
        assert_eq!(size_of::<InoLookupArgs>(), 4096);
    }

    #[test]
    fn root_items_are_read_where_linux_has_the_fields() {
        let mut item = vec![0; 439];
        item[208] = 1;
        item[247..263].copy_from_slice(&[1; 16]);
        item[279..295].copy_from_slice(&[2; 16]);
        item[263..279].copy_from_slice(&[6; 16]);
        (item[295], item[311], item[319]) = (3, 4, 5);
        (item[363], item[371]) = (7, 8);
        let expected = Subvolume {
            id: 300,
            is_read_only: true,
            uuid: [1; 16],
            received_uuid: [2; 16],
            parent_uuid: [6; 16],
            ctransid: 3,
            stransid: 4,
            rtransid: 5,
            rtime: Timestamp {
                seconds: 7,
                nanoseconds: 8,
            },
        };
        assert_eq!(parse_root(300, &item), Some(expected));
        // As older kernels wrote them.
        assert_eq!(parse_root(300, &item[..239]), None);
    }
}
