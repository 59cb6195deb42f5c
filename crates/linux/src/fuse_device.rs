//! The device through which the kernel talks to a file system in user space (`/dev/fuse`).

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::ioctl::{Opcode, Setter, ioctl, opcode};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// Where the device is.
pub const FUSE_DEVICE: &str = "/dev/fuse";

/// `FUSE_DEV_IOC_CLONE`: its argument is read and written by no one but the kernel, which reads a
/// descriptor.
const CLONE: Opcode = opcode::read::<u32>(229, 0);

/// Opens the device.
///
/// # Errors
/// The kernel's error: `NotFound` without support for FUSE, `PermissionDenied` where only root
/// may open it.
pub fn open_fuse_device() -> io::Result<OwnedFd> {
    let file = File::options().read(true).write(true).open(FUSE_DEVICE)?;
    Ok(file.into())
}

/// Opens the device again for the file system that `device` serves, so that two threads do not
/// share a queue.
///
/// # Errors
/// The kernel's error.
pub fn clone_fuse_device(device: impl AsFd) -> io::Result<OwnedFd> {
    let clone = open_fuse_device()?;
    let number = device.as_fd().as_raw_fd().cast_unsigned();
    // SAFETY: the kernel reads a `u32` for this opcode, although its number says otherwise, and
    // writes nothing. It is the number of a descriptor that is open until the call returns.
    let call = unsafe { Setter::<CLONE, u32>::new(number) };
    // SAFETY: the argument lives until the call returns, which changes no memory of this process.
    unsafe { ioctl(&clone, call) }?;
    Ok(clone)
}

/// Receives one descriptor from a socket, as `fusermount3` sends it; `None` if the other end was
/// closed.
///
/// # Errors
/// The kernel's error.
pub fn receive_descriptor(socket: impl AsFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        let mut parts = [IoSliceMut::new(&mut byte)];
        match recvmsg(&socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => {
                received?;
                break;
            }
        }
    }
    let mut received = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.into_iter().next(),
        _ => None,
    });
    Ok(received.next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_socket_sends_no_descriptor() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(theirs);
        assert!(receive_descriptor(&ours).unwrap().is_none());
    }

    #[test]
    fn opcode_is_that_of_linux() {
        assert_eq!(CLONE, 0x8004_e500);
    }
}
