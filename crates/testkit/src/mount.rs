//! Loop devices and mounts of the running kernel, with automatic cleanup.
//!
//! [`BackingFile`] → [`LoopDevice`] → [`Mount`]: each owns the previous one and returns it when
//! undone explicitly. On drop (a panic), everything is undone in order. `cargo xtask kernel` runs
//! the tests as root in a private mount namespace, and a mounted loop device is marked for
//! automatic detaching. So even a killed test leaves neither mount nor device behind.

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
    /// `ext4`.
    Ext4,
    /// `erofs`, which is always read-only.
    Erofs,
}

/// Whether the kernel may write to the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It must not; for btrfs, this also prevents log replay.
    ReadOnly,
    /// It may.
    ReadWrite,
}

/// A file that holds an image: an existing one, or a temporary one that is removed on drop.
#[derive(Debug)]
pub struct BackingFile {
    path: PathBuf,
    _temporary: Option<TempDir>,
}

impl BackingFile {
    /// Creates a temporary file of `bytes` zero bytes, which take no space yet.
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

    /// The image at `path`, which is kept on drop.
    pub fn existing(path: impl AsRef<Path>) -> BackingFile {
        let path = path.as_ref();
        let path =
            fs::canonicalize(path).unwrap_or_else(|e| panic!("find {}: {e}", path.display()));
        BackingFile {
            path,
            _temporary: None,
        }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A block device whose content is a file.
#[derive(Debug)]
pub struct LoopDevice {
    device: PathBuf,
    access: Access,
    /// `None` once it has been returned, when there is nothing left to detach.
    backing: Option<BackingFile>,
}

impl LoopDevice {
    /// Attaches `backing` to a free loop device.
    ///
    /// # Panics
    ///
    /// If the kernel refuses, for example without root privileges.
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

    /// Detaches the device and returns its file.
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
    // The device detaches itself with the mount, so only its file is still owned.
    backing: Option<BackingFile>,
}

impl Mount {
    /// Mounts the image at `path` read-only, without any writes to it.
    ///
    /// # Panics
    ///
    /// If the kernel refuses: an image that it cannot mount is a failure, and so is missing support
    /// for the file system.
    pub fn read_only(path: impl AsRef<Path>, fs_type: FsType) -> Mount {
        let device = LoopDevice::attach(BackingFile::existing(path), Access::ReadOnly);
        Mount::new(device, fs_type, "")
    }

    /// Mounts a device in a new directory, with the device's access and comma-separated `options`
    /// (`subvol=a`).
    ///
    /// # Panics
    ///
    /// If the kernel refuses to.
    pub fn new(mut device: LoopDevice, fs_type: FsType, options: &str) -> Mount {
        let point = TempDir::new();
        let (name, read_only_options) = match fs_type {
            // Without log replay, the kernel does not change the image.
            FsType::Btrfs => ("btrfs", "ro,rescue=nologreplay"),
            FsType::Squashfs => ("squashfs", "ro"),
            FsType::Ext4 => ("ext4", "ro,noload"),
            FsType::Erofs => ("erofs", "ro"),
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
        // For a device in use, this marks it for detaching by its last user.
        run(Command::new("losetup").arg("--detach").arg(&mount.device));
        mount
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        self.point.as_ref().expect("mounted until undone").path()
    }

    /// The file system type.
    pub fn fs_type(&self) -> FsType {
        self.fs_type
    }

    /// The mounted loop device, such as `/dev/loop3`, as in the kernel's messages.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Unmounts, which writes everything to the file, and returns the file.
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
            // Do not remove what is still mounted there along with the directory.
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
