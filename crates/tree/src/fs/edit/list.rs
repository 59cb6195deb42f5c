//! Parsers for two text lists: files to add to a tree, and the order in which files are stored.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::pattern::Patterns;
use crate::fs::is_valid_name;
use crate::{
    Device, FileId, FileKind, HostIds, Inventory, Result, Time, WalkStep, Xattr, base64, spool,
};

/// The line between the files of a list and their data, as unsquashfs writes it.
const DATA: &[u8] = b"# START OF DATA - DO NOT MODIFY";

/// A fault in a list, and its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListError {
    /// The line number, starting at 1.
    pub line: usize,
    /// The fault, in words.
    pub what: &'static str,
}

impl std::fmt::Display for ListError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for ListError {}

/// A file to add to a tree, or a change to an existing one.
#[derive(Clone, Debug)]
pub struct Addition {
    /// The path from the root, names joined by `/`; empty for the root.
    pub path: Box<[u8]>,
    /// The addition or change.
    pub what: Added,
}

/// A file to add, or a change.
#[derive(Clone, Debug)]
pub enum Added {
    /// A file without content: any type except a regular file.
    File {
        /// The file type.
        kind: FileKind,
        /// Owner, permissions and time.
        stats: Stats,
        /// The device number of a device.
        rdev: Device,
        /// The target of a symbolic link.
        target: Box<[u8]>,
    },
    /// A file of the host other than a directory, with its metadata.
    HostFile {
        /// Its path.
        path: PathBuf,
        /// Whether it is the target of a symbolic link with that path.
        follows: bool,
    },
    /// A regular file.
    Regular {
        /// Owner, permissions and time.
        stats: Stats,
        /// Its content.
        content: AddedContent,
    },
    /// Another name for the file with this path.
    Link(Box<[u8]>),
    /// New permissions and owner for an existing file.
    Change(Stats),
    /// An extended attribute for an existing file; replaces one with the same name.
    Xattr(Xattr),
}

/// The content of an added file.
#[derive(Clone, Debug)]
pub enum AddedContent {
    /// The output of a shell command.
    Command(Box<[u8]>),
    /// A part of a file of the host.
    Part {
        /// The file; `None` if the list has no data.
        file: Option<Arc<File>>,
        /// Where the content begins.
        at: u64,
        /// Its length in bytes.
        len: u64,
    },
}

/// The metadata on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// The permissions, 12 bits.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of the last change of content, if the line has one.
    pub mtime: Option<Time>,
}

impl Default for Stats {
    /// 0755, root, no time.
    fn default() -> Self {
        Stats {
            permissions: 0o755,
            uid: 0,
            gid: 0,
            mtime: None,
        }
    }
}

impl Addition {
    /// Parses a list in the format of mksquashfs pseudo files:
    ///
    /// ```text
    /// PATH d MODE UID GID               a directory, or new permissions for one
    /// PATH m MODE UID GID               new permissions for an existing file
    /// PATH s MODE UID GID TARGET        a symbolic link
    /// PATH b|c MODE UID GID MAJOR MINOR a device
    /// PATH i MODE UID GID [f|s]         a fifo or socket
    /// PATH f MODE UID GID COMMAND       a regular file with the output of a command
    /// PATH R TIME MODE UID GID LEN AT 0 a regular file, whose data follows the list
    /// PATH l HOSTFILE                   a file of the host; `h` follows symbolic links
    /// PATH L PATH                       another name for a file
    /// PATH x NAME=VALUE                 an extended attribute, also 0x…, 0s… (base64), 0t… (with
    ///                                   octal escapes)
    /// ```
    ///
    /// The capitals `D M S B C I F` take a time before the mode: seconds since 1970, or words that
    /// `time` knows, in quotes if there are spaces. Modes are octal, owners are numbers, or names
    /// that this machine knows. A path can be quoted, and a backslash escapes the next character,
    /// also the end of the line. Lines that begin with `#` are comments.
    ///
    /// # Errors
    /// A line does not have this format.
    pub fn parse_list(
        text: &[u8],
        time: &dyn Fn(&str) -> Option<i64>,
    ) -> Result<Vec<Addition>, ListError> {
        let words = Words {
            ids: HostIds::default(),
            time,
        };
        let mut all = Vec::new();
        let (mut rest, mut number) = (text, 0);
        while !rest.is_empty() {
            let mut end = 0;
            let first = number + 1;
            // The end of a line that ends with a backslash is part of it.
            loop {
                let line = &rest[end..];
                let len = line.iter().position(|&byte| byte == b'\n');
                end += len.unwrap_or(line.len());
                number += 1;
                if end == rest.len() || !rest[..end].ends_with(b"\\") {
                    break;
                }
                end += 1;
            }
            let line = rest[..end].trim_ascii();
            rest = rest.get(end + 1..).unwrap_or_default();
            if !line.is_empty() && line[0] != b'#' {
                let parsed = words.parse(line);
                all.push(parsed.map_err(|what| ListError { line: first, what })?);
            }
        }
        Ok(all)
    }

    /// Reads such a list, and the data behind it into an unnamed file in the directory `spool_dir`.
    ///
    /// # Errors
    /// It cannot be read, or a line does not have the format.
    pub fn read_list(
        mut list: impl BufRead,
        time: &dyn Fn(&str) -> Option<i64>,
        spool_dir: &Path,
    ) -> Result<Vec<Addition>> {
        let (mut text, mut data) = (Vec::new(), None);
        loop {
            let begin = text.len();
            if list.read_until(b'\n', &mut text)? == 0 {
                break;
            }
            if text[begin..].trim_ascii() == DATA {
                list.read_until(b'\n', &mut text)?; // `#`
                let spooled = spool(|out| io::copy(&mut list, out), spool_dir)?;
                data = Some(Arc::new(spooled));
                break;
            }
        }
        let mut all = Addition::parse_list(&text, time).map_err(io::Error::other)?;
        for addition in &mut all {
            if let Added::Regular { content, .. } = &mut addition.what
                && let AddedContent::Part { file, .. } = content
            {
                file.clone_from(&data);
            }
        }
        Ok(all)
    }
}

/// The words that depend on the machine.
struct Words<'a> {
    ids: HostIds,
    time: &'a dyn Fn(&str) -> Option<i64>,
}

impl Words<'_> {
    fn parse(&self, line: &[u8]) -> Result<Addition, &'static str> {
        let (given, rest) = quoted_word(line)?;
        let path = path(&given)?;
        // Only in names, the end of a line is a part of a word.
        let lines = rest.split_inclusive(|&byte| byte == b'\n');
        let rest: Vec<u8> = lines
            .flat_map(|line| line.strip_suffix(b"\\\n").unwrap_or(line))
            .copied()
            .collect();
        let (letter, mut rest) = word(&rest);
        let &[letter] = letter else {
            return Err(UNKNOWN_TYPE);
        };
        let what = match letter {
            b'l' | b'h' if rest.is_empty() => return Err("missing host file"),
            b'l' | b'h' => Added::HostFile {
                path: OsStr::from_bytes(rest).into(),
                follows: letter == b'h',
            },
            b'L' => Added::Link(self::path(rest)?),
            b'x' => Added::Xattr(xattr(rest)?),
            _ => self.with_stats(letter, &mut rest)?,
        };
        let is_file = match what {
            Added::File { kind, .. } => kind != FileKind::Directory,
            Added::HostFile { .. } | Added::Regular { .. } | Added::Link(_) => true,
            Added::Change(_) | Added::Xattr(_) => false,
        };
        if is_file && path.is_empty() {
            return Err("the root is a directory");
        }
        Ok(Addition { path, what })
    }

    /// Parses the words behind the letter of a type with a mode and owners.
    fn with_stats(&self, letter: u8, rest: &mut &[u8]) -> Result<Added, &'static str> {
        let kind = match letter.to_ascii_lowercase() {
            b'd' => FileKind::Directory,
            b's' => FileKind::Symlink,
            b'b' => FileKind::BlockDevice,
            b'c' => FileKind::CharDevice,
            b'i' => FileKind::Fifo,
            b'm' | b'f' => FileKind::Regular,
            b'r' if letter == b'R' => FileKind::Regular,
            _ => return Err(UNKNOWN_TYPE),
        };
        let stats = self.stats(rest, letter.is_ascii_uppercase())?;
        let (mut kind, mut rdev, mut target) = (kind, Device::default(), Box::<[u8]>::default());
        match (kind, letter) {
            (FileKind::Symlink, _) => {
                target = std::mem::take(rest).into();
                if target.is_empty() || target.contains(&0) {
                    return Err("the link's target is missing or invalid");
                }
            }
            (FileKind::Fifo, _) => {
                kind = match std::mem::take(rest) {
                    b"" | b"f" => FileKind::Fifo,
                    b"s" => FileKind::Socket,
                    _ => return Err("expected f (fifo) or s (socket)"),
                };
            }
            (FileKind::BlockDevice | FileKind::CharDevice, _) => {
                rdev = Device {
                    major: number(rest)?,
                    minor: number(rest)?,
                };
            }
            (FileKind::Regular, b'f' | b'F') => {
                if rest.is_empty() {
                    return Err("missing command");
                }
                let content = AddedContent::Command(std::mem::take(rest).into());
                return Ok(Added::Regular { stats, content });
            }
            (FileKind::Regular, b'R') => {
                let (len, at) = (number(rest)?, number(rest)?);
                let _: u8 = number(rest)?; // Whether it had holes, which are found anyway.
                end(rest)?;
                let file = None;
                let content = AddedContent::Part { file, at, len };
                return Ok(Added::Regular { stats, content });
            }
            _ => {}
        }
        end(rest)?;
        if kind == FileKind::Regular {
            return Ok(Added::Change(stats));
        }
        Ok(Added::File {
            kind,
            stats,
            rdev,
            target,
        })
    }

    fn stats(&self, rest: &mut &[u8], has_time: bool) -> Result<Stats, &'static str> {
        let mut mtime = None;
        if has_time {
            let (given, behind) = quoted_word(rest)?;
            *rest = behind;
            let given = str::from_utf8(&given).unwrap_or_default();
            let seconds = given.strip_prefix('@').unwrap_or(given).parse().ok();
            let seconds = seconds.or_else(|| (self.time)(given));
            mtime = Some(Time {
                seconds: seconds.ok_or("the time is unknown")?,
                nanoseconds: 0,
            });
        }
        let (mode, behind) = word(rest);
        let mode = str::from_utf8(mode).ok();
        let mode = mode.and_then(|mode| u16::from_str_radix(mode, 8).ok());
        let (user, behind) = word(behind);
        let (group, behind) = word(behind);
        *rest = behind;
        Ok(Stats {
            permissions: mode
                .filter(|&mode| mode <= 0o7777)
                .ok_or("the mode is not octal")?,
            uid: number(&mut &*user)
                .ok()
                .or_else(|| self.ids.user(user))
                .ok_or("the user is missing or unknown")?,
            gid: number(&mut &*group)
                .ok()
                .or_else(|| self.ids.group(group))
                .ok_or("the group is missing or unknown")?,
            mtime,
        })
    }
}

const UNKNOWN_TYPE: &str = "unknown type; expected d, m, s, b, c, i, f, R, l, h, L or x";

/// A path as an addition has it.
fn path(given: &[u8]) -> Result<Box<[u8]>, &'static str> {
    let names = given.split(|&byte| byte == b'/');
    let names: Vec<&[u8]> = names.filter(|it| !matches!(*it, b"" | b".")).collect();
    if !names.iter().all(|name| is_valid_name(name)) {
        return Err("invalid name in the path");
    }
    Ok(names.join(&b'/').into())
}

fn end(rest: &[u8]) -> Result<(), &'static str> {
    if rest.is_empty() {
        Ok(())
    } else {
        Err("too many words")
    }
}

/// Splits off the first word.
fn word(line: &[u8]) -> (&[u8], &[u8]) {
    let end = line
        .iter()
        .position(u8::is_ascii_whitespace)
        .unwrap_or(line.len());
    let (word, rest) = line.split_at(end);
    (word, rest.trim_ascii_start())
}

/// Splits off a word that can be quoted and contain backslash escapes.
fn quoted_word(line: &[u8]) -> Result<(Vec<u8>, &[u8]), &'static str> {
    let is_quoted = line.first() == Some(&b'"');
    let mut word = Vec::new();
    let mut at = usize::from(is_quoted);
    while let Some(&byte) = line.get(at) {
        at += 1;
        match byte {
            b'\\' => {
                word.extend(line.get(at));
                at += 1;
            }
            b'"' if is_quoted => return Ok((word, line[at..].trim_ascii_start())),
            _ if byte.is_ascii_whitespace() && !is_quoted => {
                return Ok((word, line[at..].trim_ascii_start()));
            }
            _ => word.push(byte),
        }
    }
    if is_quoted {
        Err("unterminated quote")
    } else {
        Ok((word, b""))
    }
}

fn number<T: std::str::FromStr>(rest: &mut &[u8]) -> Result<T, &'static str> {
    let (digits, behind) = word(rest);
    *rest = behind;
    let digits = std::str::from_utf8(digits).ok();
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or("a number is missing or too large")
}

pub(super) fn xattr(words: &[u8]) -> Result<Xattr, &'static str> {
    let equals = words
        .iter()
        .position(|&byte| byte == b'=')
        .ok_or("it is not NAME=VALUE")?;
    let (name, value) = (&words[..equals], &words[equals + 1..]);
    if name.is_empty() || name.contains(&0) {
        return Err("attribute without a name");
    }
    let value = match value {
        [b'0', b'x' | b'X', digits @ ..] => {
            hexadecimal(digits).ok_or("the value is not hexadecimal")?
        }
        [b'0', b's' | b'S', letters @ ..] => {
            let whole = letters.len().is_multiple_of(4);
            let bytes = base64::decode(letters).filter(|_| whole);
            bytes.ok_or("the value is not base64")?
        }
        [b'0', b't' | b'T', text @ ..] => {
            unescaped(text).ok_or("the value has a backslash without three octal digits")?
        }
        text => text.to_vec(),
    };
    Ok(Xattr {
        name: name.into(),
        value: value.into(),
    })
}

/// The text, in which a backslash and three octal digits are a byte.
fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut parts = text.split(|&byte| byte == b'\\');
    let mut bytes = parts.next()?.to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(3)?;
        bytes.push(u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok()?);
        bytes.extend(rest);
    }
    Some(bytes)
}

fn hexadecimal(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let pairs = digits.chunks_exact(2);
    pairs
        .map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8))
        .collect()
}

/// How early files are stored: higher priorities come first.
#[derive(Debug, Default)]
pub struct Priorities {
    patterns: Patterns,
    /// One priority per pattern.
    numbers: Vec<i16>,
}

impl Priorities {
    /// Parses a list in the format of mksquashfs sort files: each line is a path, which can be a
    /// [pattern](Patterns), and a number from -32,768 to 32,767. Files that are not listed have
    /// priority 0.
    ///
    /// # Errors
    /// A line does not have this format.
    pub fn parse_list(text: &[u8]) -> Result<Priorities, ListError> {
        let (mut patterns, mut numbers) = (Vec::new(), Vec::new());
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let error = |what| ListError {
                line: index + 1,
                what,
            };
            let at = line.iter().rposition(u8::is_ascii_whitespace);
            let (path, digits) = line.split_at(at.ok_or(error("expected a path and a number"))?);
            let digits = std::str::from_utf8(digits.trim_ascii()).ok();
            let number = digits.and_then(|digits| digits.parse().ok());
            numbers.push(number.ok_or(error("its number is not from -32768 to 32767"))?);
            patterns.push(path.trim_ascii_end());
        }
        Ok(Priorities {
            patterns: Patterns::new(patterns),
            numbers,
        })
    }

    /// The priority of each file of an inventory. Files below a directory inherit its priority
    /// unless they have their own. If several patterns match, the last one counts; if a file has
    /// several names, the highest priority counts.
    pub fn of(&self, inventory: &Inventory) -> Vec<i16> {
        let mut priorities = vec![None; inventory.file_count() as usize];
        let mut above = vec![0];
        for step in inventory.steps() {
            let (WalkStep::Enter(entry) | WalkStep::File(entry)) = step else {
                above.pop();
                continue;
            };
            let FileId(file) = inventory.file(entry);
            let inherited = *above.last().unwrap_or(&0);
            let own = self
                .patterns
                .last_match(&inventory.path(entry))
                .map(|index| self.numbers[index]);
            let priority = own.unwrap_or(inherited);
            let known = &mut priorities[file as usize];
            *known = Some(known.map_or(priority, |known| priority.max(known)));
            if let WalkStep::Enter(_) = step {
                above.push(priority);
            }
        }
        priorities
            .into_iter()
            .map(Option::unwrap_or_default)
            .collect()
    }

    /// The patterns that have matched nothing so far.
    pub fn unmatched(&self) -> impl Iterator<Item = &[u8]> {
        self.patterns.unmatched()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Result<Addition, ListError> {
        let two_days = |words: &str| (words == "two days").then_some(2);
        Addition::parse_list(line.as_bytes(), &two_days).map(|mut all| all.remove(0))
    }

    #[test]
    fn every_kind_of_line_is_read() {
        let stats = |mtime: Option<i64>| Stats {
            permissions: 0o644,
            uid: 1,
            gid: 2,
            mtime: mtime.map(|seconds| Time {
                seconds,
                nanoseconds: 0,
            }),
        };
        let file = |kind| Added::File {
            kind,
            stats: stats(None),
            rdev: Device::default(),
            target: Box::default(),
        };
        for (line, path, what) in [
            ("/a/b d 644 1 2", "a/b", file(FileKind::Directory)),
            ("a i 644 1 2", "a", file(FileKind::Fifo)),
            ("a i 644 1 2 s", "a", file(FileKind::Socket)),
            (
                "\"a b\\\"\" m 0644 1 2",
                "a b\"",
                Added::Change(stats(None)),
            ),
            ("a\\ b M 99 644 1 2", "a b", Added::Change(stats(Some(99)))),
            ("/ m 644 1 2", "", Added::Change(stats(None))),
            (
                "x l /bin/a b",
                "x",
                Added::HostFile {
                    path: "/bin/a b".into(),
                    follows: false,
                },
            ),
            ("x L /a//b", "x", Added::Link(Box::from(*b"a/b"))),
            ("x d 644 \\\ndaemon 2", "x", file(FileKind::Directory)),
            ("x\\\ny M @9 644 1 2", "x\ny", Added::Change(stats(Some(9)))),
            (
                "x F \"two days\" 644 1 2 echo a  b",
                "x",
                Added::Regular {
                    stats: stats(Some(2)),
                    content: AddedContent::Command(Box::from(*b"echo a  b")),
                },
            ),
        ] {
            let addition = one(line).unwrap();
            assert_eq!(
                (&*addition.path, format!("{:?}", addition.what)),
                (path.as_bytes(), format!("{what:?}")),
                "{line}"
            );
        }
        let Added::File { rdev, .. } = one("dev/sda b 660 0 6 8 17").unwrap().what else {
            panic!()
        };
        assert_eq!((rdev.major, rdev.minor), (8, 17));
        let Added::File { target, .. } = one("s s 777 0 0 to some where").unwrap().what else {
            panic!()
        };
        assert_eq!(&*target, b"to some where");
        for (words, value) in [
            ("user.a=b=c", &b"b=c"[..]),
            ("user.a=0x00fF", b"\x00\xff"),
            ("user.a=0saGVsbG8=", b"hello"),
            ("user.a=0t0x00", b"0x00"),
            ("user.a=0ta\\012b\\377", b"a\nb\xff"),
            ("user.a=", b""),
        ] {
            let Added::Xattr(xattr) = one(&format!("a x {words}")).unwrap().what else {
                panic!()
            };
            assert_eq!(
                (&*xattr.name, &*xattr.value),
                (&b"user.a"[..], value),
                "{words}"
            );
        }
    }

    #[test]
    fn wrong_lines_are_named() {
        for line in [
            "a",
            "a q 644 0 0",
            "a d 999 0 0",
            "a d 644 0",
            "a d 644 0 0 x",
            "a/../b d 755 0 0",
            "\"a d 755 0 0",
            "a c 644 0 0 1",
            "a s 777 0 0",
            "a f 644 0 0",
            "a r 644 0 0 1 0 0",
            "a R 0 644 0 0 1 0",
            "a D yesterday 755 0 0",
            "a d 755 no-such-user 0",
            "a x u=0ta\\01",
            "a h",
            "a L ../b",
            "/ s 777 0 0 x",
            "a x =1",
            "a x u=0x1",
            "a x u=0sA",
            "a l",
        ] {
            let list = format!("# a comment\n\n{line}");
            let error = Addition::parse_list(list.as_bytes(), &|_| None).unwrap_err();
            assert_eq!(error.line, 3, "{line}");
        }
        assert!(Priorities::parse_list(b"a 1\nb 99999").is_err_and(|error| error.line == 2));
    }
}
