//! The running kernel as a witness: loop devices and mounts that go away by themselves.
//!
//! [`BackingFile`] → [`LoopDevice`] → [`Mount`]: each owns the one before it and gives it back when undone by name; when
//! dropped (a panic), everything is undone in order. `cargo xtask kernel` runs the tests as root in a private mount
//! namespace, and a mounted loop device is marked to be cleared with its last user; so even a killed test leaves neither
//! mount nor device.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, str};

use crate::{TempDir, run};

/// A file system of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsType {
    /// `btrfs`.
    Btrfs,
    /// `squashfs`, which is always read-only.
    Squashfs,
}

/// Whether the kernel may write to the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It may not; for btrfs also no log is replayed.
    ReadOnly,
    /// It may.
    ReadWrite,
}

/// A file that holds an image: one of the test's own, or a temporary one that goes with this value.
#[derive(Debug)]
pub struct BackingFile {
    path: PathBuf,
    _temporary: Option<TempDir>,
}

impl BackingFile {
    /// A temporary file of `bytes` zero bytes that take no space yet.
    pub fn create(bytes: u64) -> BackingFile {
        let dir = TempDir::new();
        let path = dir.join("image");
        let file = fs::File::create_new(&path).and_then(|file| file.set_len(bytes));
        file.unwrap_or_else(|error| panic!("create {}: {error}", path.display()));
        BackingFile {
            path,
            _temporary: Some(dir),
        }
    }

    /// The image at `path`, which stays when this value goes.
    pub fn existing(path: impl AsRef<Path>) -> BackingFile {
        let path = path.as_ref();
        let path =
            fs::canonicalize(path).unwrap_or_else(|e| panic!("find {}: {e}", path.display()));
        BackingFile {
            path,
            _temporary: None,
        }
    }

    /// Where the file lies.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A block device whose content is a file.
#[derive(Debug)]
pub struct LoopDevice {
    device: PathBuf,
    access: Access,
    /// `None` once it is given back, and then there is nothing left to detach.
    backing: Option<BackingFile>,
}

impl LoopDevice {
    /// Attaches `backing` to a free loop device.
    ///
    /// # Panics
    ///
    /// If the kernel refuses, as it does without root's rights.
    pub fn attach(backing: BackingFile, access: Access) -> LoopDevice {
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show"]);
        if access == Access::ReadOnly {
            losetup.arg("--read-only");
        }
        let output = run(losetup.arg(backing.path()));
        let device = str::from_utf8(&output.stdout).expect("losetup names a device");
        LoopDevice {
            device: PathBuf::from(device.trim_end()),
            access,
            backing: Some(backing),
        }
    }

    /// The device's path, such as `/dev/loop3`.
    pub fn path(&self) -> &Path {
        &self.device
    }

    /// Detaches the device and gives its file back.
    pub fn detach(mut self) -> BackingFile {
        let backing = self.backing.take().expect("owned until given back");
        run(Command::new("losetup").arg("--detach").arg(&self.device));
        backing
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if self.backing.is_some() {
            attempt(Command::new("losetup").arg("--detach").arg(&self.device));
        }
    }
}

/// A mounted file system.
#[derive(Debug)]
pub struct Mount {
    /// `None` once it is unmounted.
    point: Option<TempDir>,
    fs_type: FsType,
    device: PathBuf,
    // The device clears itself with the mount, so only its file is left to own.
    backing: Option<BackingFile>,
}

impl Mount {
    /// Mounts the image at `path` so that nothing can write to it.
    ///
    /// # Panics
    ///
    /// If the kernel refuses to: an image that it cannot mount is a failure, and so is a kernel without the file system.
    pub fn read_only(path: impl AsRef<Path>, fs_type: FsType) -> Mount {
        let device = LoopDevice::attach(BackingFile::existing(path), Access::ReadOnly);
        Mount::new(device, fs_type, "")
    }

    /// Mounts a device in a new directory, with the device's access and comma-separated `options` (`subvol=a`).
    ///
    /// # Panics
    ///
    /// If the kernel refuses to.
    pub fn new(mut device: LoopDevice, fs_type: FsType, options: &str) -> Mount {
        let point = TempDir::new();
        let (name, read_only_options) = match fs_type {
            // Without a log replay the kernel leaves the image as it is.
            FsType::Btrfs => ("btrfs", "ro,rescue=nologreplay"),
            FsType::Squashfs => ("squashfs", "ro"),
        };
        let access = match device.access {
            Access::ReadOnly => read_only_options,
            Access::ReadWrite => "rw",
        };
        let separator = if options.is_empty() { "" } else { "," };
        let mut mount = Command::new("mount");
        mount.args(["-t", name, "-o", &format!("{access}{separator}{options}")]);
        run(mount.arg(device.path()).arg(point.path()));
        let mount = Mount {
            point: Some(point),
            fs_type,
            device: device.path().to_owned(),
            backing: device.backing.take(),
        };
        // Of a device in use this marks it to be cleared when its last user goes.
        run(Command::new("losetup").arg("--detach").arg(&mount.device));
        mount
    }

    /// The directory where the file system is seen.
    pub fn path(&self) -> &Path {
        self.point.as_ref().expect("mounted until undone").path()
    }

    /// The file system that it is.
    pub fn fs_type(&self) -> FsType {
        self.fs_type
    }

    /// The loop device that is mounted, such as `/dev/loop3`; the kernel's messages name it.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Unmounts, which writes everything to the file, and gives the file back.
    ///
    /// # Panics
    ///
    /// If a file is still open below the mount.
    pub fn unmount(mut self) -> BackingFile {
        run(Command::new("umount").arg(self.path()));
        self.point = None;
        self.backing.take().expect("owned until given back")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let Some(point) = self.point.take() else {
            return;
        };
        let unmounted = attempt(Command::new("umount").arg(point.path()))
            || attempt(Command::new("umount").arg("--lazy").arg(point.path()));
        if !unmounted {
            // What is still mounted there must not be removed with the directory.
            std::mem::forget(point);
        }
    }
}

/// Runs a command whose failure can only be told: the caller is being dropped, perhaps by a panic.
fn attempt(command: &mut Command) -> bool {
    let failure = match command.output() {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    let _ = writeln!(io::stderr(), "{command:?}: {failure}");
    false
}
