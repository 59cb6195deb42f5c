//! The kernel's warnings about an image.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use crate::{FsType, Mount};

/// `KERN_WARNING` of linux/kern_levels.h; smaller is worse.
const WARNING: u64 = 4;

/// `O_NONBLOCK` of asm-generic/fcntl.h, which x86, Arm, RISC-V, POWER and s390 share.
const O_NONBLOCK: i32 = 0o4000;

/// The kernel's log, starting now.
#[derive(Debug)]
pub struct KernelLog {
    kmsg: File,
}

impl KernelLog {
    /// Starts watching; earlier messages are ignored.
    ///
    /// # Panics
    ///
    /// If the log cannot be read, for example without root privileges.
    pub fn watch() -> KernelLog {
        let kmsg = (OpenOptions::new().read(true))
            .custom_flags(O_NONBLOCK)
            .open("/dev/kmsg");
        let mut kmsg = kmsg.unwrap_or_else(|error| panic!("open /dev/kmsg: {error}"));
        kmsg.seek(SeekFrom::End(0))
            .expect("/dev/kmsg can seek to its end");
        KernelLog { kmsg }
    }

    /// The warnings and errors about `mount` since the last call: messages that name its device,
    /// and those of its file system type that name no device.
    pub fn warnings(&mut self, mount: &Mount) -> Vec<String> {
        let device = mount.device().file_name().unwrap_or_default();
        let device = device.to_str().expect("loop devices have plain names");
        let records = self.records();
        (records.iter())
            .filter_map(|record| warning(record, mount.fs_type(), device))
            .map(str::to_owned)
            .collect()
    }

    /// # Panics
    ///
    /// If the kernel has warned about `mount`; the message includes the warnings.
    pub fn assert_quiet(&mut self, mount: &Mount) {
        let warnings = self.warnings(mount);
        assert!(
            warnings.is_empty(),
            "the kernel warns:\n{}",
            warnings.join("\n")
        );
    }

    /// The messages since the last call that say that the kernel itself failed: nothing that it
    /// does from now on can be trusted.
    pub fn crashes(&mut self) -> Vec<String> {
        let failures = [
            "BUG: ",
            "Oops: ",
            "general protection",
            "kernel BUG at",
            "WARNING: ",
        ];
        let mut records = self.records();
        records.retain(|record| failures.iter().any(|failure| record.contains(failure)));
        records
    }

    fn records(&mut self) -> Vec<String> {
        let mut records = Vec::new();
        // One read gives one record, at most CONSOLE_EXT_LOG_MAX long.
        let mut record = [0; 8192];
        loop {
            match self.kmsg.read(&mut record) {
                Ok(len) => records.push(String::from_utf8_lossy(&record[..len]).into_owned()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return records,
                // Records were lost because the ring was full: the next read gives the oldest that
                // is left.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                Err(error) => panic!("read /dev/kmsg: {error}"),
            }
        }
    }
}

/// The text of `record` (`priority,sequence,time,flags;text`) if it is a warning about `device`, or
/// one of this file system type that names no device.
fn warning<'a>(record: &'a str, fs_type: FsType, device: &str) -> Option<&'a str> {
    let (prefix, text) = record.split_once(';')?;
    let text = text.lines().next().unwrap_or_default();
    // The three lowest bits are the level; those above say who logged.
    let level = prefix.split(',').next()?.parse::<u64>().ok()? & 7;
    let names_device = text
        .split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| word == device);
    let names_another = !names_device && text.contains("loop");
    let of_file_system = text.starts_with(match fs_type {
        FsType::Btrfs => "BTRFS",
        FsType::Squashfs => "SQUASHFS",
        FsType::Ext4 => "EXT4-fs",
        FsType::Erofs => "erofs",
    });
    (level <= WARNING && (names_device || of_file_system && !names_another)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_told_from_news_and_from_others() {
        let bad = "4,900,1,-;BTRFS warning (device loop3): checksum verify failed\n SUBSYSTEM=x\n";
        let text = "BTRFS warning (device loop3): checksum verify failed";
        assert_eq!(warning(bad, FsType::Btrfs, "loop3"), Some(text));
        assert_eq!(warning(bad, FsType::Btrfs, "loop30"), None);
        let news = "6,901,1,-;BTRFS info (device loop3): first mount\n";
        assert_eq!(warning(news, FsType::Btrfs, "loop3"), None);
        let nameless = "3,902,1,-;SQUASHFS error: unable to read id index table\n";
        assert!(warning(nameless, FsType::Squashfs, "loop3").is_some());
        assert_eq!(warning(nameless, FsType::Btrfs, "loop3"), None);
        // Level 3 of facility 1, which a program wrote.
        let other = "11,903,1,-;something about eth0\n";
        assert_eq!(warning(other, FsType::Btrfs, "loop3"), None);
    }
}
