//! Sending subvolumes of a mounted btrfs (`BTRFS_IOC_SEND`).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

use crate::btrfs_subvolume::BTRFS;

/// `BTRFS_SEND_FLAG_NO_FILE_DATA`, `BTRFS_SEND_FLAG_VERSION`, `BTRFS_SEND_FLAG_COMPRESSED`.
const NO_FILE_DATA: u64 = 1;
const VERSION: u64 = 8;
const COMPRESSED: u64 = 16;

/// A subvolume to send, and the form of its stream.
#[derive(Clone, Copy, Debug)]
pub struct SubvolumeToSend<'a> {
    /// The number of the parent, for an incremental stream.
    pub parent: Option<u64>,
    /// The numbers of the subvolumes that files can be cloned from; the parent is one of them only
    /// if it is listed.
    pub sources: &'a [u64],
    /// The version of the stream.
    pub version: u32,
    /// Leave out the data of files.
    pub no_data: bool,
    /// Send compressed extents as they are stored.
    pub compressed: bool,
}

/// `struct btrfs_ioctl_send_args`.
#[repr(C)]
struct SendArgs {
    send_fd: i64,
    clone_sources_count: u64,
    clone_sources: *const u64,
    parent_root: u64,
    flags: u64,
    version: u32,
    reserved: [u8; 28],
}

const SEND: Opcode = opcode::write::<SendArgs>(BTRFS, 38);

/// Writes a read-only subvolume, which is open as `subvolume`, as a send stream to `output`. Needs
/// privilege.
///
/// If the process is stopped and continued, or the system suspended, Linux starts the call again,
/// and `output` gets the whole stream again after its content so far: part of a command can be its
/// last bytes.
///
/// # Errors
/// The kernel's error: `PermissionDenied` without privilege or if a subvolume is not
/// read-only, `WouldBlock` while one of them is deduplicated, `EPROTO` for a version that this
/// kernel cannot send.
pub fn send_subvolume(
    subvolume: impl AsFd,
    what: &SubvolumeToSend<'_>,
    output: impl AsFd,
) -> io::Result<()> {
    let output = output.as_fd();
    let mut flags = 0;
    if what.no_data {
        flags |= NO_FILE_DATA;
    }
    // Old kernels know neither the flag nor the field.
    if what.version > 1 {
        flags |= VERSION;
    }
    if what.compressed {
        flags |= COMPRESSED;
    }
    let args = SendArgs {
        send_fd: output.as_raw_fd().into(),
        clone_sources_count: what.sources.len() as u64,
        clone_sources: what.sources.as_ptr(),
        parent_root: what.parent.unwrap_or(0),
        flags,
        version: if what.version > 1 { what.version } else { 0 },
        reserved: [0; 28],
    };
    // SAFETY: the kernel reads a `struct btrfs_ioctl_send_args` for this opcode, which is what it
    // is given.
    let call = unsafe { Setter::<SEND, SendArgs>::new(args) };
    // SAFETY: the kernel reads the argument, and as many numbers as it says where it points, which
    // are those of `what.sources`. Both live until the call returns, and so does the descriptor of
    // `output`.
    Ok(unsafe { ioctl(subvolume, call) }?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn arguments_have_the_size_of_linux() {
        assert_eq!(size_of::<SendArgs>(), 72);
    }
}
