//! The lines of `btrfs receive --dump` of btrfs-progs 6.14, byte for byte: other programs parse
//! them.

use std::io::Write;
use std::mem::take;

use tree::{Error, Result, Time};

use crate::command::Command;
use crate::encoded::compression;

/// The width of a command's name, and of a path if it is shorter.
const NAME_WIDTH: usize = 16;
const PATH_WIDTH: usize = 32;

/// Prints commands as `btrfs receive --dump` of btrfs-progs 6.14 does, in its words and with its
/// peculiarities: times without fractions, file attributes in decimal after `0x`, values without a
/// name before them. Older versions print values after `data=` and only up to a NUL byte, and
/// neither these nor the names of attributes and sources of clones have escapes there. The end of a
/// stream and fs-verity have no line.
pub struct Dump<W, Z> {
    out: W,
    zone: Z,
    /// `./NAME` of the current subvolume.
    subvolume: Vec<u8>,
    line: Vec<u8>,
    rest: Vec<u8>,
}

impl<W: Write, Z: Fn(i64) -> i32> Dump<W, Z> {
    /// Prints to `out`. `zone` is the offset of local time from UTC in seconds, east positive, at a
    /// time in seconds since 1970: btrfs-progs prints local times.
    pub fn new(out: W, zone: Z) -> Self {
        Dump {
            out,
            zone,
            subvolume: Vec::new(),
            line: Vec::new(),
            rest: Vec::new(),
        }
    }

    /// The output.
    pub fn into_inner(self) -> W {
        self.out
    }

    /// Prints a command.
    ///
    /// # Errors
    /// The error of the output; [`Error::InvalidInput`] for a year that btrfs-progs cannot print.
    pub fn command(&mut self, command: &Command<'_>) -> Result<()> {
        let Some(path) = command.path() else {
            return Ok(());
        };
        let (mut line, mut rest) = (take(&mut self.line), take(&mut self.rest));
        line.clear();
        rest.clear();
        let has_line = self.rest(command, &mut rest)?;
        if has_line {
            write!(line, "{:NAME_WIDTH$}", command.name())?;
            if command.starts_subvolume() {
                self.subvolume = [b"./", path].concat();
                escape(&self.subvolume, &mut line);
            } else {
                self.escape_below(path, &mut line);
            }
            if !rest.is_empty() {
                // At least one space, and up to the column.
                let width = (line.len() + 1).max(NAME_WIDTH + PATH_WIDTH);
                line.resize(width, b' ');
                line.extend(&rest);
            }
            line.push(b'\n');
            self.out.write_all(&line)?;
        }
        (self.line, self.rest) = (line, rest);
        Ok(())
    }

    fn escape_below(&self, path: &[u8], to: &mut Vec<u8>) {
        escape(&self.subvolume, to);
        to.push(b'/');
        escape(path, to);
    }

    /// Writes the part after the path; false if the command has no line.
    fn rest(&self, command: &Command<'_>, to: &mut Vec<u8>) -> Result<bool> {
        match *command {
            Command::Subvol { uuid, ctransid, .. } => {
                write!(to, "uuid={} transid={ctransid}", Uuid(uuid))?;
            }
            Command::Snapshot {
                uuid,
                ctransid,
                clone_uuid,
                clone_ctransid,
                ..
            } => write!(
                to,
                "uuid={} transid={ctransid} parent_uuid={} parent_transid={clone_ctransid}",
                Uuid(uuid),
                Uuid(clone_uuid)
            )?,
            Command::Mkfile { .. }
            | Command::Mkdir { .. }
            | Command::Mkfifo { .. }
            | Command::Mksock { .. }
            | Command::Unlink { .. }
            | Command::Rmdir { .. } => {}
            Command::Mknod { rdev, mode, .. } => write!(to, "mode={mode:o} dev={rdev:#x}")?,
            Command::Symlink { path_link, .. } | Command::Link { path_link, .. } => {
                to.extend(b"dest=");
                escape(path_link, to);
            }
            Command::Rename { path_to, .. } => {
                to.extend(b"dest=");
                self.escape_below(path_to, to);
            }
            Command::SetXattr {
                xattr_name,
                xattr_data,
                ..
            } => {
                to.extend(b"name=");
                escape(xattr_name, to);
                to.push(b' ');
                escape(xattr_data, to);
                write!(to, " len={}", xattr_data.len())?;
            }
            Command::RemoveXattr { xattr_name, .. } => {
                to.extend(b"name=");
                escape(xattr_name, to);
            }
            Command::Write {
                file_offset, data, ..
            } => write!(to, "offset={file_offset} len={}", data.len())?,
            Command::Clone {
                file_offset,
                clone_len,
                clone_path,
                clone_offset,
                ..
            } => {
                write!(to, "offset={file_offset} len={clone_len} from=")?;
                self.escape_below(clone_path, to);
                write!(to, " clone_offset={clone_offset}")?;
            }
            Command::Truncate { size, .. } => write!(to, "size={size}")?,
            Command::Chmod { mode, .. } => write!(to, "mode={mode:o}")?,
            Command::Chown { uid, gid, .. } => write!(to, "gid={gid} uid={uid}")?,
            Command::Utimes {
                atime,
                mtime,
                ctime,
                ..
            } => {
                for (space, name, time) in [
                    ("", "atime", atime),
                    (" ", "mtime", mtime),
                    (" ", "ctime", ctime),
                ] {
                    write!(to, "{space}{name}=")?;
                    self.time(time, to)?;
                }
            }
            Command::UpdateExtent {
                file_offset, size, ..
            } => write!(to, "offset={file_offset} len={size}")?,
            Command::Fallocate {
                fallocate_mode,
                file_offset,
                size,
                ..
            } => {
                let mode = fallocate_mode.cast_signed();
                write!(to, "mode={mode} offset={file_offset} len={size}")?;
            }
            Command::Fileattr { fileattr, .. } => write!(to, "fileattr=0x{fileattr}")?,
            Command::EncodedWrite(it) => write!(
                to,
                "offset={} len={} unencoded_file_len={} unencoded_len={} unencoded_offset={} \
                 compression={} encryption={}",
                it.file_offset,
                it.data.len(),
                it.unencoded_file_len,
                it.unencoded_len,
                it.unencoded_offset,
                compression(it.compression).unwrap_or_default(),
                it.encryption.unwrap_or_default(),
            )?,
            Command::End | Command::EnableVerity { .. } => return Ok(false),
        }
        Ok(true)
    }

    /// Writes a time as strftime's `%FT%T%z`.
    fn time(&self, time: Time, to: &mut Vec<u8>) -> Result<()> {
        let offset = (self.zone)(time.seconds);
        let no_year = Error::InvalidInput("the year of a time is too large");
        let Some(local) = time.seconds.checked_add(offset.into()) else {
            return Err(no_year);
        };
        let (days, second) = (local.div_euclid(86_400), local.rem_euclid(86_400));
        let (year, month, day) = tree::date(days);
        if i32::try_from(year - 1900).is_err() {
            return Err(no_year);
        }
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let sign = if offset < 0 { '-' } else { '+' };
        let zone = offset.unsigned_abs() / 60;
        let (zone_hour, zone_minute) = (zone / 60, zone % 60);
        write!(
            to,
            "{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{sign}{zone_hour:02}{zone_minute:02}"
        )?;
        Ok(())
    }
}

/// Escapes a path, a name or a value: control characters as in C with octal numbers, bytes beyond
/// ASCII, spaces and backslashes.
fn escape(path: &[u8], to: &mut Vec<u8>) {
    for &byte in path {
        match byte {
            0x07 => to.extend(b"\\a"),
            0x08 => to.extend(b"\\b"),
            b'\t' => to.extend(b"\\t"),
            b'\n' => to.extend(b"\\n"),
            0x0b => to.extend(b"\\v"),
            0x0c => to.extend(b"\\f"),
            b'\r' => to.extend(b"\\r"),
            0x1b => to.extend(b"\\e"),
            b' ' | b'\\' => to.extend([b'\\', byte]),
            b'!'..=b'~' => to.push(byte),
            _ => to.extend([b'\\', digit(byte >> 6), digit(byte >> 3), digit(byte)]),
        }
    }
}

fn digit(bits: u8) -> u8 {
    b'0' + (bits & 7)
}

/// A UUID in its usual form.
pub(crate) struct Uuid(pub(crate) [u8; 16]);

impl std::fmt::Display for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            let dash = if matches!(at, 4 | 6 | 8 | 10) {
                "-"
            } else {
                ""
            };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}
