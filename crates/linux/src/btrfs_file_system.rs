//! The properties of a mounted btrfs (`BTRFS_IOC_FS_INFO`).

use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use crate::btrfs_subvolume::BTRFS;

/// A mounted btrfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BtrfsFileSystem {
    /// Its UUID, which no two mounted file systems share.
    pub uuid: [u8; 16],
    /// The unit in which it stores data, in bytes.
    pub sector_bytes: u32,
}

/// `struct btrfs_ioctl_fs_info_args`, as far as every kernel fills it.
#[repr(C)]
struct FsInfoArgs {
    max_id: u64,
    num_devices: u64,
    fsid: [u8; 16],
    nodesize: u32,
    sectorsize: u32,
    clone_alignment: u32,
    rest: [u8; 980],
}

const FS_INFO: Opcode = opcode::read::<FsInfoArgs>(BTRFS, 31);

/// The btrfs that a file or directory is on.
///
/// # Errors
/// The kernel's error; an inappropriate-ioctl error on other file systems.
pub fn btrfs_file_system(file: impl AsFd) -> io::Result<BtrfsFileSystem> {
    let mut info = Box::new(FsInfoArgs {
        max_id: 0,
        num_devices: 0,
        fsid: [0; 16],
        nodesize: 0,
        sectorsize: 0,
        clone_alignment: 0,
        rest: [0; 980],
    });
    // SAFETY: the kernel reads and writes a `struct btrfs_ioctl_fs_info_args` for this opcode,
    // which is what it is given.
    let call = unsafe { Updater::<FS_INFO, FsInfoArgs>::new(&mut info) };
    // SAFETY: the kernel reads and writes the argument, which lives until the call is over; it has
    // no pointers, and any bytes are a value of it.
    unsafe { ioctl(file, call) }?;
    Ok(BtrfsFileSystem {
        uuid: info.fsid,
        sector_bytes: info.sectorsize,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_the_size_of_linux() {
        assert_eq!(size_of::<FsInfoArgs>(), 1024);
    }
}
