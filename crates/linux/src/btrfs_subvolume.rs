//! Subvolumes of a mounted btrfs (linux/btrfs.h): made, marked as received, and deleted.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::ioctl::{Opcode, Setter, Updater, ioctl, opcode};

/// `BTRFS_IOCTL_MAGIC`.
pub(crate) const BTRFS: u8 = 0x94;
/// The ID of the top level of every btrfs (`BTRFS_FS_TREE_OBJECTID`).
pub const TOP_LEVEL: u64 = 5;
/// The longest name of a subvolume, as of any file.
const NAME_BYTES_MAX: usize = 255;
/// `BTRFS_SUBVOL_RDONLY`.
const READ_ONLY: u64 = 1 << 1;

/// `struct btrfs_ioctl_vol_args`.
#[repr(C)]
struct VolArgs {
    fd: i64,
    name: [u8; 4088],
}

/// `struct btrfs_ioctl_vol_args_v2`.
#[repr(C)]
struct VolArgsV2 {
    fd: i64,
    transid: u64,
    flags: u64,
    unused: [u64; 4],
    name: [u8; 4040],
}

/// `struct btrfs_ioctl_timespec`.
#[repr(C)]
#[derive(Default)]
struct Timespec {
    sec: u64,
    nsec: u32,
}

/// `struct btrfs_ioctl_received_subvol_args`.
#[repr(C)]
#[derive(Default)]
struct ReceivedSubvolArgs {
    uuid: [u8; 16],
    stransid: u64,
    rtransid: u64,
    stime: Timespec,
    rtime: Timespec,
    flags: u64,
    reserved: [u64; 16],
}

const SNAP_DESTROY: Opcode = opcode::write::<VolArgs>(BTRFS, 15);
const SNAP_CREATE_V2: Opcode = opcode::write::<VolArgsV2>(BTRFS, 23);
const SUBVOL_CREATE_V2: Opcode = opcode::write::<VolArgsV2>(BTRFS, 24);
const SUBVOL_SETFLAGS: Opcode = opcode::write::<u64>(BTRFS, 26);
const SET_RECEIVED_SUBVOL: Opcode = opcode::read_write::<ReceivedSubvolArgs>(BTRFS, 37);

/// Creates an empty subvolume with this name in a directory (`BTRFS_IOC_SUBVOL_CREATE_V2`).
///
/// # Errors
/// The kernel's error; `AlreadyExists` when the name is taken.
pub fn create_subvolume(dir: impl AsFd, name: &[u8]) -> io::Result<()> {
    let args = VolArgsV2 {
        fd: 0,
        transid: 0,
        flags: 0,
        unused: [0; 4],
        name: padded(name)?,
    };
    // SAFETY: the kernel reads a `struct btrfs_ioctl_vol_args_v2` for this opcode, which is what it
    // is given.
    let call = unsafe { Setter::<SUBVOL_CREATE_V2, VolArgsV2>::new(args) };
    // SAFETY: the kernel reads the argument, which lives until the call is over; it has no
    // pointers.
    Ok(unsafe { ioctl(dir, call) }?)
}

/// Creates a writable snapshot of the open subvolume `source`, with this name in a directory
/// (`BTRFS_IOC_SNAP_CREATE_V2`).
///
/// # Errors
/// The kernel's error; `AlreadyExists` when the name is taken.
pub fn create_snapshot(source: impl AsFd, dir: impl AsFd, name: &[u8]) -> io::Result<()> {
    let source = source.as_fd();
    let args = VolArgsV2 {
        fd: source.as_raw_fd().into(),
        transid: 0,
        flags: 0,
        unused: [0; 4],
        name: padded(name)?,
    };
    // SAFETY: the kernel reads a `struct btrfs_ioctl_vol_args_v2` for this opcode, which is what it
    // is given.
    let call = unsafe { Setter::<SNAP_CREATE_V2, VolArgsV2>::new(args) };
    // SAFETY: the kernel reads the argument, which lives until the call is over; its descriptor is
    // that of `source`, which is open until then.
    Ok(unsafe { ioctl(dir, call) }?)
}

/// Deletes the subvolume with this name in a directory, with everything in it
/// (`BTRFS_IOC_SNAP_DESTROY`).
///
/// # Errors
/// The kernel's error.
pub fn delete_subvolume(dir: impl AsFd, name: &[u8]) -> io::Result<()> {
    let args = VolArgs {
        fd: 0,
        name: padded(name)?,
    };
    // SAFETY: the kernel reads a `struct btrfs_ioctl_vol_args` for this opcode, which is what it is
    // given.
    let call = unsafe { Setter::<SNAP_DESTROY, VolArgs>::new(args) };
    // SAFETY: the kernel reads the argument, which lives until the call is over; it has no
    // pointers.
    Ok(unsafe { ioctl(dir, call) }?)
}

/// Makes an open subvolume read-only, or writable (`BTRFS_IOC_SUBVOL_SETFLAGS`).
///
/// # Errors
/// The kernel's error.
pub fn set_subvolume_read_only(subvolume: impl AsFd, is_read_only: bool) -> io::Result<()> {
    let flags = if is_read_only { READ_ONLY } else { 0 };
    // SAFETY: the kernel reads a 64-bit number for this opcode, which is what it is given.
    let call = unsafe { Setter::<SUBVOL_SETFLAGS, u64>::new(flags) };
    // SAFETY: the kernel reads the argument, which lives until the call is over; it has no
    // pointers.
    Ok(unsafe { ioctl(subvolume, call) }?)
}

/// Gives an open subvolume its received UUID, and the transaction that it had where it was sent
/// (`BTRFS_IOC_SET_RECEIVED_SUBVOL`).
///
/// # Errors
/// The kernel's error.
pub fn set_subvolume_received(
    subvolume: impl AsFd,
    uuid: [u8; 16],
    stransid: u64,
) -> io::Result<()> {
    let mut args = ReceivedSubvolArgs {
        uuid,
        stransid,
        ..ReceivedSubvolArgs::default()
    };
    // SAFETY: the kernel reads and writes a `struct btrfs_ioctl_received_subvol_args` for this
    // opcode, which is what it is given.
    let call = unsafe { Updater::<SET_RECEIVED_SUBVOL, ReceivedSubvolArgs>::new(&mut args) };
    // SAFETY: the kernel reads and writes the argument, which lives until the call is over; it has
    // no pointers, and any bytes are a value of it.
    Ok(unsafe { ioctl(subvolume, call) }?)
}

/// A name and its NUL bytes.
fn padded<const BYTES: usize>(name: &[u8]) -> io::Result<[u8; BYTES]> {
    let is_name = !name.is_empty() && !name.contains(&0) && !name.contains(&b'/');
    if !is_name || name.len() > NAME_BYTES_MAX {
        return Err(io::ErrorKind::InvalidFilename.into());
    }
    let mut field = [0; BYTES];
    field[..name.len()].copy_from_slice(name);
    Ok(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_the_sizes_of_linux() {
        assert_eq!(size_of::<VolArgs>(), 4096);
        assert_eq!(size_of::<VolArgsV2>(), 4096);
        assert_eq!(size_of::<ReceivedSubvolArgs>(), 200);
        assert_eq!(padded::<4040>(b"a").unwrap()[..3], *b"a\0\0");
        for name in [&b""[..], b"a/b", b"a\0", &[b'x'; 256]] {
            assert!(padded::<4088>(name).is_err());
        }
    }
}
