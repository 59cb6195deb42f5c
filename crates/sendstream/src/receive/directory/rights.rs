//! Rights that files get only at the end, because they would hinder earlier commands.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use linux::{OpenFlags, Stat};
use tree::extract::Aspect;
use tree::{Error, HostFile, HostStep, Result, walk_host_dir};

use super::super::files::{DIRECTORY, KIND, REGULAR};
use super::building::{PENDING_MAX, ReceivedDirectory};
use crate::command::Command;

impl ReceivedDirectory {
    /// Gives the owner all rights to the files of a command and to the directories that they are
    /// in, until the end.
    pub(super) fn unlock(&mut self, command: &Command<'_>) -> Result<()> {
        let root = Rc::clone(&self.files.root);
        for path in command.paths() {
            let mut above: Option<OwnedFd> = None;
            self.unlock_one(&root, b".")?;
            for name in path.split(|&byte| byte == b'/') {
                let dir: &OwnedFd = above.as_ref().unwrap_or(&root);
                if name.is_empty() || !self.unlock_one(dir, name)? {
                    break;
                }
                let flags = OpenFlags::PATH | OpenFlags::DIRECTORY;
                above = Some(linux::open_at(dir, name, flags, 0)?);
            }
        }
        Ok(())
    }

    /// Returns whether it is a directory.
    fn unlock_one(&mut self, dir: &OwnedFd, name: &[u8]) -> Result<bool> {
        let stat = match linux::stat_at(dir, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            stat => stat?,
        };
        let needed = needed_mode(&stat);
        if stat.mode & needed != needed && stat.uid == self.process_owner.0 {
            linux::set_mode_at(dir, name, stat.mode & 0o7777 | needed)?;
            if self.modes.len() >= PENDING_MAX {
                return Err(Error::Limit("files that their owner may not write"));
            }
            self.modes.entry(stat.ino).or_insert(stat.mode & 0o7777);
        }
        Ok(stat.is_dir())
    }

    /// Removes the files that stand for devices, and gives files the modes that they could not have
    /// before.
    pub(super) fn tidy_up(&mut self) -> Result<()> {
        let (modes, no_devices) = (&mut self.modes, &self.no_devices);
        let (done, process_owner) = (&mut self.done, self.process_owner.0);
        let root = Rc::clone(&self.files.root);
        walk_host_dir(&root, &mut |step, file: &HostFile<'_>| {
            let HostFile {
                dir,
                name,
                path,
                stat,
            } = *file;
            if step == HostStep::Enter {
                let needed = needed_mode(stat);
                if stat.mode & needed != needed && stat.uid == process_owner {
                    modes.entry(stat.ino).or_insert(stat.mode & 0o7777);
                    linux::set_mode_at(dir, name, stat.mode & 0o7777 | needed)?;
                }
                return Ok(());
            }
            if step == HostStep::File && no_devices.contains(&stat.ino) {
                let above = linux::stat(dir)?;
                linux::unlink_at(dir, name)?;
                linux::set_times_at(dir, b".", Some(above.atime), above.mtime)?;
                let reason = io::Error::from_raw_os_error(linux::errno::EPERM);
                done.unrestored
                    .add(Aspect::Device, || path.to_vec(), &reason);
                return Ok(());
            }
            if let Some(mode) = modes.get(&stat.ino) {
                linux::set_mode_at(dir, name, *mode)?;
            }
            Ok(())
        })
    }
}

/// The rights that the owner needs to change it.
pub(super) fn needed_mode(stat: &Stat) -> u32 {
    match stat.mode & KIND {
        DIRECTORY => 0o700,
        REGULAR => 0o600,
        _ => 0,
    }
}
