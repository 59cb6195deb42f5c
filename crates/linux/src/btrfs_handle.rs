//! Opening files of a mounted btrfs by number (open_by_handle_at(2)).

use std::ffi::{c_int, c_uint};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use crate::open::OpenFlags;

/// `FILEID_BTRFS_WITHOUT_PARENT`.
const FILEID_BTRFS_WITHOUT_PARENT: c_int = 0x4d;
/// The part of `struct btrfs_fid` that such a handle has: objectid, root_objectid and generation.
const FID_BYTES: usize = 20;

/// `struct file_handle`.
#[repr(C)]
struct FileHandle {
    handle_bytes: c_uint,
    handle_type: c_int,
    f_handle: [u8; FID_BYTES],
}

unsafe extern "C" {
    /// open_by_handle_at(2) of the C library.
    fn open_by_handle_at(mount: c_int, handle: *mut FileHandle, flags: c_int) -> c_int;
}

/// Opens the file or directory with this inode number, in the subvolume with this number, of the
/// btrfs that `mount` is on: wherever it is, also where no mount shows it. Number 256 is the
/// subvolume itself. Needs privilege.
///
/// # Errors
/// The kernel's error; a stale file handle where there is no such file.
pub fn open_inode(
    mount: impl AsFd,
    subvolume: u64,
    ino: u64,
    flags: OpenFlags,
) -> io::Result<OwnedFd> {
    let flags = flags | OpenFlags::NOFOLLOW | OpenFlags::CLOEXEC | OpenFlags::NOCTTY;
    let flags = c_int::try_from(flags.bits()).map_err(io::Error::other)?;
    // Generation 0 is any. btrfs does not use an inode number twice in a subvolume.
    let mut fid = [0; FID_BYTES];
    fid[..8].copy_from_slice(&ino.to_ne_bytes());
    fid[8..16].copy_from_slice(&subvolume.to_ne_bytes());
    let mut handle = FileHandle {
        handle_bytes: FID_BYTES as c_uint,
        handle_type: FILEID_BTRFS_WITHOUT_PARENT,
        f_handle: fid,
    };
    let mount = mount.as_fd();
    // SAFETY: the arguments are those of open_by_handle_at: a descriptor that `mount` keeps open; a
    // handle that lives until the call is over and has as many bytes as it says; and flags. The
    // kernel checks every value.
    let opened = unsafe { open_by_handle_at(mount.as_raw_fd(), &raw mut handle, flags) };
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened this descriptor, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}
