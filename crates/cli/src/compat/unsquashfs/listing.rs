//! The lines of `unsquashfs -ls` and its relatives.

use std::io::{self, IsTerminal, StdoutLock, Write};

use restow::info::Squashfs;
use tree::{Device, FileId, FileKind, HostIds, Inventory, Time, WalkStep};

use super::command_line::UnsquashOptions;
use crate::text;

/// The stated size of a directory without entries.
const EMPTY_DIR_BYTES: u32 = 3;

/// Prints lists of files.
pub(super) struct Lister<'a> {
    request: &'a UnsquashOptions,
    image: &'a Squashfs,
    /// The beginning of each line.
    prefix: &'a [u8],
    ids: HostIds,
    /// Whether the names are escaped: a terminal would obey them.
    escapes: bool,
    out: StdoutLock<'static>,
}

impl<'a> Lister<'a> {
    pub(super) fn new(request: &'a UnsquashOptions, image: &'a Squashfs, prefix: &'a [u8]) -> Self {
        let out = io::stdout().lock();
        Lister {
            request,
            image,
            prefix,
            ids: HostIds::default(),
            escapes: out.is_terminal(),
            out,
        }
    }

    /// Prints a line for each file.
    ///
    /// # Errors
    /// A link cannot be read, or the lines cannot be written.
    pub(super) fn print(&mut self, inventory: &Inventory<'_>) -> anyhow::Result<()> {
        let mut line = Vec::new();
        for step in inventory.steps() {
            let (WalkStep::Enter(entry) | WalkStep::File(entry)) = step else {
                continue;
            };
            let file = inventory.file(entry);
            let is_dir = inventory.kind(file) == FileKind::Directory;
            let is_full_dir = is_dir && self.dir_bytes(inventory, file)? > EMPTY_DIR_BYTES;
            if self.request.is_concise && is_full_dir {
                continue;
            }
            line.clear();
            if self.request.is_long {
                self.attributes(inventory, file, &mut line)?;
            }
            let mut path = self.prefix.to_vec();
            if entry != inventory.root() {
                path.push(b'/');
                path.extend(inventory.path(entry));
            }
            self.name(&path, &mut line);
            if self.request.is_long && inventory.kind(file) == FileKind::Symlink {
                line.extend_from_slice(b" -> ");
                let target = inventory.tree().read_link(inventory.ino(file))?;
                self.name(&target, &mut line);
            }
            line.push(b'\n');
            self.out.write_all(&line)?;
        }
        Ok(self.out.flush()?)
    }

    fn dir_bytes(&self, inventory: &Inventory<'_>, dir: FileId) -> tree::Result<u32> {
        self.image.stated_dir_bytes(inventory.ino(dir))
    }

    fn name(&self, name: &[u8], line: &mut Vec<u8>) {
        if self.escapes {
            line.extend_from_slice(text::of_name(name).as_bytes());
        } else {
            line.extend_from_slice(name);
        }
    }

    /// Mode, owner, size or device number, and time.
    fn attributes(
        &self,
        inventory: &Inventory<'_>,
        file: FileId,
        line: &mut Vec<u8>,
    ) -> anyhow::Result<()> {
        let metadata = inventory.metadata(file);
        let (uid, gid) = (metadata.uid, metadata.gid);
        let number = |id: u32| id.to_string().into_bytes();
        let (mut user, mut group) = (number(uid), number(gid));
        if !self.request.is_numeric {
            user = self.ids.user_name(uid).map_or(user, Vec::from);
            group = self.ids.group_name(gid).map_or(group, Vec::from);
        }
        let owner = [&*user, &*group].join(&b'/');
        let mode = text::of_mode(metadata.kind, metadata.permissions);
        write!(line, "{mode} ")?;
        line.extend_from_slice(&owner);
        match metadata.kind {
            FileKind::BlockDevice | FileKind::CharDevice => {
                let (major, minor) = stated_device(metadata.rdev);
                let width = 19_usize.saturating_sub(owner.len()).max(1);
                write!(line, " {:width$}{major:>3},{minor:>3}", "")?;
            }
            kind => {
                let size = match kind {
                    FileKind::Directory => self.dir_bytes(inventory, file)?.into(),
                    _ => metadata.size,
                };
                let width = 26_usize.saturating_sub(owner.len());
                write!(line, " {size:>width$}")?;
            }
        }
        let time = local(metadata.mtime.seconds, self.request.is_utc);
        let time = text::of_time(time);
        let shown = if self.request.is_full { time.len() } else { 16 };
        write!(line, " {} ", &time[..shown])?;
        Ok(())
    }
}

/// A device number in the form that squashfs-tools show: the stored one, divided at its eighth bit.
pub(super) fn stated_device(device: Device) -> (u32, u32) {
    let Device { major, minor } = device;
    let stored = (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12);
    (stored >> 8, stored & 0xff)
}

/// A time, moved so that its text is local time.
fn local(seconds: i64, is_utc: bool) -> Time {
    let offset = if is_utc {
        0
    } else {
        linux::local_offset(seconds)
    };
    Time {
        seconds: seconds + i64::from(offset),
        nanoseconds: 0,
    }
}

/// A time in the form of ctime(3).
pub(super) fn date(seconds: u32, is_utc: bool) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let time = local(seconds.into(), is_utc);
    let days = time.seconds.div_euclid(86_400);
    let (year, month, day) = tree::date(days);
    let week_day = DAYS[days.rem_euclid(7) as usize];
    let month = MONTHS[month as usize - 1];
    let clock = text::of_time(time);
    format!("{week_day} {month} {day:>2} {} {year}", &clock[11..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_ctime() {
        assert_eq!(date(0, true), "Thu Jan  1 00:00:00 1970");
        assert_eq!(date(951_782_399, true), "Mon Feb 28 23:59:59 2000");
        assert_eq!(date(u32::MAX, true), "Sun Feb  7 06:28:15 2106");
    }

    #[test]
    fn devices_are_divided_as_they_are_stored() {
        let device = |major, minor| stated_device(Device { major, minor });
        assert_eq!(device(1, 3), (1, 3));
        assert_eq!(device(259, 300), (4355, 44));
    }
}
