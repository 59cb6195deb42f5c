//! Attaching the device to the mount point: by mount(2), or through `fusermount3` without
//! privilege.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::options::MountOptions;
use crate::message;

/// The program of libfuse that mounts for users; it belongs to root and has the set-user-ID bit.
const PROGRAM: &str = "fusermount3";
/// The name of the environment variable in which it finds the number of the socket to send the
/// device to.
const SOCKET: &str = "_FUSE_COMMFD";
/// The file in which root permits actions of users.
const RULES: &str = "/etc/fuse.conf";
/// The type of the file system as Linux shows it.
const TYPE: &str = "fuse.restow";

/// A mount.
pub(super) struct Attached {
    pub(super) device: File,
    undo: Undo,
    /// While it is open, `fusermount3` waits to unmount (`auto_unmount`).
    _socket: Option<UnixStream>,
}

/// How to undo a mount.
#[derive(Clone, Debug)]
pub(super) struct Undo {
    point: PathBuf,
    by_program: bool,
    /// The identity of the mount at the mount point, as long as it is this one.
    device: Option<Vec<u8>>,
}

impl Attached {
    /// Mounts at `point`, which is absolute.
    ///
    /// # Errors
    /// The kernel or `fusermount3` refuse; the error names the remedy.
    pub(super) fn mount(point: &Path, name: &[u8], options: &MountOptions) -> Result<Attached> {
        let by_call = if options.auto_unmount {
            None
        } else {
            mount_by_call(point, name, options)?
        };
        let (device, by_program, socket) = match by_call {
            Some(device) => (device, false, None),
            None => {
                let (device, socket) = mount_by_program(point, name, options)?;
                (device, true, options.auto_unmount.then_some(socket))
            }
        };
        let undo = Undo {
            point: point.to_owned(),
            by_program,
            device: linux::mounted_device(point).unwrap_or_default(),
        };
        Ok(Attached {
            device: File::from(device),
            undo,
            _socket: socket,
        })
    }

    pub(super) fn undo(&self) -> Undo {
        self.undo.clone()
    }
}

impl Undo {
    /// Unmounts unless it is in use. Does nothing if something else is mounted there by now.
    ///
    /// # Errors
    /// It is in use, or the kernel refuses.
    pub(super) fn unmount(&self) -> io::Result<()> {
        if !self.is_mounted() {
            return Ok(());
        }
        if self.by_program {
            return run_program(&["-u", "-q"], &self.point);
        }
        linux::unmount(&self.point)
    }

    /// Takes the mount out of the tree even if it is in use.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn detach(&self) -> io::Result<()> {
        if !self.is_mounted() {
            return Ok(());
        }
        if self.by_program {
            return run_program(&["-u", "-z", "-q"], &self.point);
        }
        linux::detach(&self.point)
    }

    /// Whether the mount is still the last one at its mount point, as far as that can be found out.
    fn is_mounted(&self) -> bool {
        match linux::mounted_device(&self.point) {
            Ok(device) => device == self.device,
            Err(_) => true,
        }
    }
}

/// Mounts with mount(2); nothing if that is not permitted.
fn mount_by_call(point: &Path, name: &[u8], options: &MountOptions) -> Result<Option<OwnedFd>> {
    let device = open_device()?;
    let (uid, gid) = linux::process_owner();
    let number = device.as_raw_fd();
    let mut data =
        format!("fd={number},rootmode=40000,user_id={uid},group_id={gid},default_permissions");
    if options.allow_other || options.allow_root {
        data.push_str(",allow_other");
    }
    match linux::mount(name, point, TYPE, options.how, data.as_bytes()) {
        Ok(()) => Ok(Some(device)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        Err(error) => Err(error).context("mount"),
    }
}

/// Opens the device, of which `fusermount3` needs to open another one with the same permissions.
fn open_device() -> Result<OwnedFd> {
    let device = linux::FUSE_DEVICE;
    linux::open_fuse_device().map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::NotFound => "Linux needs the module fuse: `modprobe fuse`",
            io::ErrorKind::PermissionDenied => {
                "only root may mount here; `chmod 666 /dev/fuse` lets everybody"
            }
            _ => return anyhow::Error::from(error).context(format!("open {device}")),
        };
        let reason = message::of_reason(&error.to_string());
        anyhow::anyhow!("open {device}: {reason}; {advice}")
    })
}

/// Mounts through `fusermount3`, which sends the device through a socket.
fn mount_by_program(
    point: &Path,
    name: &[u8],
    options: &MountOptions,
) -> Result<(OwnedFd, UnixStream)> {
    drop(open_device()?);
    let is_root = linux::process_owner().0 == 0;
    if !is_root && (options.allow_other || options.allow_root) && !may_allow_other() {
        bail!(
            "options allow_other and allow_root are for root only, unless {RULES} has the line `user_allow_other`"
        );
    }
    let (ours, theirs) = UnixStream::pair()?;
    let mut list = b"ro,default_permissions,subtype=restow,fsname=".to_vec();
    for &byte in name {
        if byte == b',' || byte == b'\\' {
            list.push(b'\\');
        }
        list.push(byte);
    }
    let how = options.how;
    let words = [
        (options.allow_other || options.allow_root, "allow_other"),
        (options.auto_unmount, "auto_unmount"),
        (is_root && how.dev, "dev"),
        (is_root && how.suid, "suid"),
        (how.noexec, "noexec"),
    ];
    for (_, word) in words.iter().filter(|(is_wanted, _)| *is_wanted) {
        list.push(b',');
        list.extend_from_slice(word.as_bytes());
    }
    // Its standard input is the socket: no other descriptor needs to be passed on.
    let mut program = Command::new(PROGRAM);
    program
        .arg("-o")
        .arg(OsStr::from_bytes(&list))
        .arg("--")
        .arg(point)
        .env(SOCKET, "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null());
    let mut child = program.spawn().map_err(missing)?;
    // The command holds the other end of the socket, which must be closed when the program ends.
    drop(program);
    let device = linux::receive_descriptor(&ours).context("receive the device")?;
    if !options.auto_unmount || device.is_none() {
        let status = child.wait()?;
        if device.is_none() {
            bail!("{PROGRAM} could not mount ({status})");
        }
    }
    let device = device.context("it sent no device")?;
    Ok((device, ours))
}

/// Whether root lets users mount for others.
fn may_allow_other() -> bool {
    let rules = fs::read_to_string(RULES).unwrap_or_default();
    rules.lines().any(|line| line.trim() == "user_allow_other")
}

/// Calls `fusermount3` to unmount.
fn run_program(options: &[&str], point: &Path) -> io::Result<()> {
    let mut program = Command::new(PROGRAM);
    program
        .args(options)
        .arg("--")
        .arg(point)
        .stdin(Stdio::null())
        // With `-q`, too, it says that a mount is gone.
        .stderr(Stdio::null());
    if program.status()?.success() {
        Ok(())
    } else {
        Err(io::ErrorKind::ResourceBusy.into())
    }
}

fn missing(error: io::Error) -> anyhow::Error {
    if error.kind() == io::ErrorKind::NotFound {
        return anyhow::anyhow!(
            "{PROGRAM} was not found, without which only root may mount; it is part of the package fuse3"
        );
    }
    anyhow::Error::from(error).context(format!("run {PROGRAM}"))
}

/// Unmounts the file system at a path.
///
/// # Errors
/// Nothing is mounted there, it is in use, or the kernel or `fusermount3` refuse.
pub(crate) fn unmount(point: &Path, is_lazy: bool) -> Result<()> {
    let result = if is_lazy {
        linux::detach(point)
    } else {
        linux::unmount(point)
    };
    match result {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let mut program = Command::new(PROGRAM);
            program.arg("-u").args(is_lazy.then_some("-z"));
            let ended = program.arg("--").arg(point).output().map_err(missing)?;
            if !ended.status.success() {
                let why = String::from_utf8_lossy(&ended.stderr);
                let why = why.trim().trim_start_matches("fusermount3: ");
                bail!("{PROGRAM} could not unmount it: {}", why.escape_debug());
            }
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            bail!("nothing is mounted there")
        }
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            bail!("it is in use; `--lazy` unmounts it when it is no longer")
        }
        result => Ok(result?),
    }
}

/// The name that `/proc/mounts` shows for a source.
pub(super) fn shown_name(source: &OsStr, options: &MountOptions) -> Vec<u8> {
    let name = (options.fsname.as_deref()).unwrap_or(source.as_bytes());
    restow::without_secrets(name)
}
