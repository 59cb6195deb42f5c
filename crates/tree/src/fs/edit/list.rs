//! Parsers for two text lists: files to add to a tree, and the order in which files are stored.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::pattern::Patterns;
use crate::fs::is_valid_name;
use crate::{Device, FileId, FileKind, Inventory, Time, WalkStep, Xattr, base64};

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addition {
    /// The path from the root, names joined by `/`; empty for the root.
    pub path: Box<[u8]>,
    /// The addition or change.
    pub what: Added,
}

/// A file to add, or a change.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// A regular file of the host, with its metadata.
    HostFile(PathBuf),
    /// New permissions and owner for an existing file.
    Change(Stats),
    /// An extended attribute for an existing file; replaces one with the same name.
    Xattr(Xattr),
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

impl Addition {
    /// Parses a list in the format of mksquashfs pseudo files, without the ones that run programs:
    ///
    /// ```text
    /// PATH d MODE UID GID               a directory, or new permissions for one
    /// PATH m MODE UID GID               new permissions for an existing file
    /// PATH s MODE UID GID TARGET        a symbolic link
    /// PATH b|c MODE UID GID MAJOR MINOR a device
    /// PATH i MODE UID GID [f|s]         a fifo or socket
    /// PATH l HOSTFILE                   a regular file of the host
    /// PATH x NAME=VALUE                 an extended attribute, also 0x…, 0s… (base64), 0t…
    /// ```
    ///
    /// The capitals `D M S B C I` take a time, in seconds since 1970, before the mode. Modes are
    /// octal, owners are numbers. A path can be quoted, and a backslash escapes the next character.
    /// Lines that begin with `#` are comments.
    ///
    /// # Errors
    /// A line does not have this format.
    pub fn parse_list(text: &[u8]) -> Result<Vec<Addition>, ListError> {
        let lines = text.split(|&byte| byte == b'\n').enumerate();
        let mut all = Vec::new();
        for (index, line) in lines {
            let line = line.trim_ascii();
            if !line.is_empty() && line[0] != b'#' {
                all.push(parse(line).map_err(|what| ListError {
                    line: index + 1,
                    what,
                })?);
            }
        }
        Ok(all)
    }
}

fn parse(line: &[u8]) -> Result<Addition, &'static str> {
    let (path, rest) = quoted_word(line)?;
    let names: Vec<&[u8]> = path
        .split(|&byte| byte == b'/')
        .filter(|name| !matches!(*name, b"" | b"."))
        .collect();
    if !names.iter().all(|name| is_valid_name(name)) {
        return Err("invalid name in the path");
    }
    let path = names.join(&b'/').into();
    let (letter, mut rest) = word(rest);
    let what = match letter {
        b"l" => match rest {
            b"" => return Err("missing host file"),
            file => Added::HostFile(OsStr::from_bytes(file).into()),
        },
        b"x" => Added::Xattr(xattr(rest)?),
        b"f" | b"F" => {
            return Err(
                "`f` would run a program, which is refused: create the file, and add it with `l`",
            );
        }
        [
            letter @ (b'd' | b'm' | b's' | b'b' | b'c' | b'i' | b'D' | b'M' | b'S' | b'B' | b'C'
            | b'I'),
        ] => {
            let stats = stats(&mut rest, letter.is_ascii_uppercase())?;
            let (mut rdev, mut target) = (Device::default(), Box::<[u8]>::default());
            let kind = match letter.to_ascii_lowercase() {
                b'd' => FileKind::Directory,
                b's' => {
                    target = std::mem::take(&mut rest).into();
                    FileKind::Symlink
                }
                b'i' => match std::mem::take(&mut rest) {
                    b"" | b"f" => FileKind::Fifo,
                    b"s" => FileKind::Socket,
                    _ => return Err("expected f (fifo) or s (socket)"),
                },
                b'm' => {
                    return end(
                        rest,
                        Addition {
                            path,
                            what: Added::Change(stats),
                        },
                    );
                }
                device => {
                    rdev = Device {
                        major: number(&mut rest)?,
                        minor: number(&mut rest)?,
                    };
                    if device == b'b' {
                        FileKind::BlockDevice
                    } else {
                        FileKind::CharDevice
                    }
                }
            };
            if kind == FileKind::Symlink && (target.is_empty() || target.contains(&0)) {
                return Err("the link's target is missing or invalid");
            }
            if kind != FileKind::Directory && path.is_empty() {
                return Err("the root is a directory");
            }
            let what = Added::File {
                kind,
                stats,
                rdev,
                target,
            };
            return end(rest, Addition { path, what });
        }
        _ => return Err("unknown type; expected d, m, s, b, c, i, l or x"),
    };
    Ok(Addition { path, what })
}

fn end(rest: &[u8], addition: Addition) -> Result<Addition, &'static str> {
    if rest.is_empty() {
        Ok(addition)
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

fn stats(rest: &mut &[u8], has_time: bool) -> Result<Stats, &'static str> {
    let mtime = if has_time {
        Some(Time {
            seconds: number(rest)?,
            nanoseconds: 0,
        })
    } else {
        None
    };
    let (mode, behind) = word(rest);
    *rest = behind;
    let mode = std::str::from_utf8(mode)
        .ok()
        .and_then(|mode| u16::from_str_radix(mode, 8).ok());
    Ok(Stats {
        permissions: mode
            .filter(|&mode| mode <= 0o7777)
            .ok_or("the mode is not octal")?,
        uid: number(rest)?,
        gid: number(rest)?,
        mtime,
    })
}

fn xattr(words: &[u8]) -> Result<Xattr, &'static str> {
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
        [b'0', b't' | b'T', text @ ..] | text => text.to_vec(),
    };
    Ok(Xattr {
        name: name.into(),
        value: value.into(),
    })
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
        Addition::parse_list(line.as_bytes()).map(|mut all| all.remove(0))
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
            ("x l /bin/a b", "x", Added::HostFile("/bin/a b".into())),
        ] {
            let addition = one(line).unwrap();
            assert_eq!(
                (&*addition.path, addition.what),
                (path.as_bytes(), what),
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
            "a f 644 0 0 date",
            "/ s 777 0 0 x",
            "a x =1",
            "a x u=0x1",
            "a x u=0sA",
            "a l",
        ] {
            let list = format!("# a comment\n\n{line}");
            let error = Addition::parse_list(list.as_bytes()).unwrap_err();
            assert_eq!(error.line, 3, "{line}");
        }
        assert!(Priorities::parse_list(b"a 1\nb 99999").is_err_and(|error| error.line == 2));
    }
}
