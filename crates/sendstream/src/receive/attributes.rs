//! File attributes: from the flags of a btrfs inode (`BTRFS_INODE_*`) to those that Linux sets.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use linux::OpenFlags;
use tree::{Error, Result};

/// The property that decides how a file is compressed.
pub(super) const COMPRESSION: &[u8] = b"btrfs.compression";
/// The most files of which it is remembered that they are to be locked.
const PENDING_MAX: usize = 1 << 20;

/// Bits of `BTRFS_INODE_*` and the `FS_XFLAG_*` that set them.
const EXTENDED: [(u64, u32); 5] = [
    (1 << 5, 0x20), // sync
    (1 << 6, 0x8),  // immutable
    (1 << 7, 0x10), // append only
    (1 << 8, 0x80), // no dump
    (1 << 9, 0x40), // no access time
];
/// `FS_XFLAG_IMMUTABLE` and `FS_XFLAG_APPEND`, with which nothing more can be done to a file.
const LOCKS: u32 = 0x8 | 0x10;
/// Bits of `BTRFS_INODE_*` and the `FS_*_FL` that set them.
const PLAIN: [(u64, u32); 2] = [
    (1 << 1, 0x80_0000), // no copy on write
    (1 << 10, 0x1_0000), // synchronous directory
];
const BTRFS_INODE_NOCOMPRESS: u64 = 1 << 3;
const FS_NOCOMP_FL: u32 = tree::FileAttributes::NOT_COMPRESSED;
const FS_NOCOW_FL: u32 = 0x80_0000;

/// Attributes that files get when the subvolume is complete, by inode number.
#[derive(Default)]
pub(super) struct Pending {
    locks: HashMap<u64, u32>,
}

impl Pending {
    /// Sets the flags of an open file, except for those that lock it. Returns what could not be
    /// set.
    pub(super) fn set(&mut self, file: &OwnedFd, flags: u64) -> Result<Option<&'static str>> {
        let ino = linux::stat(file)?.ino;
        let wanted = mapped(flags, &EXTENDED);
        let others: u32 = EXTENDED.iter().map(|(_, flag)| flag).sum();
        let before = linux::extended_flags(file)?;
        let now = before & !others | wanted & !LOCKS;
        if now != before {
            linux::set_extended_flags(file, now)?;
        }
        self.insert(ino, wanted & LOCKS)?;
        set_plain(file, flags)
    }

    /// Remembers how the root of a new snapshot was locked.
    pub(super) fn insert_root(&mut self, root: &OwnedFd, locks: u32) -> Result<()> {
        let ino = linux::stat(root)?.ino;
        self.insert(ino, locks)
    }

    /// Remembers how a file is to be locked in the end; of most files, nothing is to be remembered.
    fn insert(&mut self, ino: u64, locks: u32) -> Result<()> {
        if locks == 0 {
            self.locks.remove(&ino);
            return Ok(());
        }
        if self.locks.len() >= PENDING_MAX && !self.locks.contains_key(&ino) {
            return Err(Error::Limit("files that are immutable or append-only"));
        }
        self.locks.insert(ino, locks);
        Ok(())
    }

    /// Makes a locked file changeable until the subvolume is complete. Returns whether it was
    /// locked.
    pub(super) fn unlock(&mut self, file: &OwnedFd) -> Result<bool> {
        let locks = unlock(file)?;
        if locks == 0 {
            return Ok(false);
        }
        let ino = linux::stat(file)?.ino;
        if !self.locks.contains_key(&ino) {
            self.insert(ino, locks)?;
        }
        Ok(true)
    }

    /// Locks the files of the subvolume that is now complete, except for its root. Returns how that
    /// is to be locked.
    pub(super) fn complete(
        &mut self,
        target: impl AsFd,
        subvolume: u64,
        root: &OwnedFd,
    ) -> Result<u32> {
        let target = target.as_fd();
        let root = linux::stat(root)?.ino;
        let of_root = self.locks.remove(&root).unwrap_or(0);
        for (ino, locks) in self.locks.drain() {
            let flags = OpenFlags::RDONLY | OpenFlags::NONBLOCK;
            let file = match linux::open_inode(target, subvolume, ino, flags) {
                Ok(file) => file,
                Err(error) if error.raw_os_error() == Some(linux::errno::ESTALE) => continue,
                Err(error) => return Err(error.into()),
            };
            lock(&file, locks)?;
        }
        Ok(of_root)
    }
}

/// Makes an open file immutable or append-only.
pub(super) fn lock(file: impl AsFd, locks: u32) -> io::Result<()> {
    let flags = linux::extended_flags(&file)?;
    linux::set_extended_flags(file, flags | locks)
}

/// Makes a locked file changeable. Returns how it was locked.
pub(super) fn unlock(file: impl AsFd) -> io::Result<u32> {
    let flags = linux::extended_flags(&file)?;
    if flags & LOCKS != 0 {
        linux::set_extended_flags(file, flags & !LOCKS)?;
    }
    Ok(flags & LOCKS)
}

fn mapped(flags: u64, to: &[(u64, u32)]) -> u32 {
    let set = to.iter().filter(|(from, _)| flags & from != 0);
    set.map(|(_, flag)| flag).sum()
}

/// Sets the flags that only `FS_IOC_SETFLAGS` sets, which also removes the property of compression.
fn set_plain(file: &OwnedFd, flags: u64) -> Result<Option<&'static str>> {
    let mut property = None;
    linux::for_each_xattr_of(file, |name, value| {
        if name == COMPRESSION {
            property = Some(value.to_vec());
        }
    })?;
    let own: u32 = PLAIN.iter().map(|(_, flag)| flag).sum::<u32>() | FS_NOCOMP_FL;
    let is_uncompressed = property.is_none() && flags & BTRFS_INODE_NOCOMPRESS != 0;
    let wanted = mapped(flags, &PLAIN) | if is_uncompressed { FS_NOCOMP_FL } else { 0 };
    let before = linux::attributes(file)?;
    // With the property, whether the file is compressed is its matter.
    let own = if property.is_some() {
        own & !FS_NOCOMP_FL
    } else {
        own
    };
    if before & own == wanted {
        return Ok(None);
    }
    let shown = before & !own & !0x4; // FS_COMPR_FL
    linux::set_attributes(file, shown | wanted)?;
    if let Some(value) = property {
        linux::set_xattr(file, COMPRESSION, &value)?;
    }
    let after = linux::attributes(file)?;
    let differs = (after ^ wanted) & own;
    Ok(match differs {
        0 => None,
        _ if differs & FS_NOCOW_FL != 0 => {
            Some("no copy on write can only be changed while a file is empty")
        }
        _ => Some("Linux did not set all attributes"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_of_linux() {
        // Linux sends 0x200 for a file after `chattr +A`.
        assert_eq!(mapped(0x200, &EXTENDED), 0x40);
        assert_eq!(mapped(1 << 6 | 1 << 7, &EXTENDED), LOCKS);
        assert_eq!(mapped(1 << 1 | 1, &PLAIN), FS_NOCOW_FL);
    }

    /// A stream may change the attributes of any number of files, of which few are locked.
    #[test]
    fn only_locked_files_are_remembered() {
        let mut pending = Pending::default();
        for ino in 0..=PENDING_MAX as u64 {
            pending.insert(ino, 0).unwrap();
        }
        assert!(pending.locks.is_empty());
        for ino in 0..PENDING_MAX as u64 {
            pending.insert(ino, LOCKS).unwrap();
        }
        // One that is known can change, and then there is room for another one.
        pending.insert(7, 0x8).unwrap();
        assert!(pending.insert(u64::MAX, LOCKS).is_err());
        pending.insert(7, 0).unwrap();
        pending.insert(u64::MAX, LOCKS).unwrap();
    }
}
