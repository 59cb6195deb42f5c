//! Actions on files that pass a test, in the language of mksquashfs.

use super::list::xattr;
use super::mode::ModeChange;
use super::pattern::{PatternSyntax, Patterns, names};
use super::regex::NameExpression;
use crate::fs::{ByPath, FileKind, FileSystem, Ino, Metadata, Xattr};
use crate::{Error, HostIds, Result, to_u64};

/// Parentheses and negations in each other.
const DEPTH_MAX: usize = 64;

/// An action, and the test of the files that it is for.
#[derive(Debug)]
pub struct Action {
    pub(super) effect: Effect,
    test: Test,
}

/// The effect of an action.
#[derive(Debug)]
pub(super) enum Effect {
    /// Leaves the file out, with everything below it.
    Exclude,
    /// The same after all changes.
    Prune,
    /// Leaves an empty directory out: one that is empty in the source, or one that became so.
    Empty { source: bool, excluded: bool },
    /// Changes permissions.
    Mode(ModeChange),
    /// Changes owner and group.
    Owner(Option<u32>, Option<u32>),
    /// Chooses how data is stored.
    Pack(PackingChoice),
    /// Leaves out the extended attributes with such names, or, with the flag, all others.
    FilterXattrs(Patterns, bool),
    /// Adds an extended attribute.
    AddXattr(Xattr),
    /// Does nothing.
    Nothing,
}

/// How the data of a file is stored in a SquashFS image, where it differs from the other files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackingChoice {
    /// Whether it may share blocks.
    pub fragments: Option<bool>,
    /// Whether its tail after the last full block may share one.
    pub tails: Option<bool>,
    /// It shares blocks with the files of this group alone.
    pub group: Option<Box<[u8]>>,
    /// Whether it is stored uncompressed.
    pub plain: Option<bool>,
    /// Its blocks begin at a multiple of this power of two.
    pub align_bytes: Option<u32>,
}

impl PackingChoice {
    /// Takes over what `other` sets; as in mksquashfs, the first group counts.
    pub(super) fn change(&mut self, other: &PackingChoice) {
        let other = other.clone();
        self.fragments = other.fragments.or(self.fragments);
        self.tails = other.tails.or(self.tails);
        self.group = self.group.take().or(other.group);
        self.plain = other.plain.or(self.plain);
        self.align_bytes = other.align_bytes.or(self.align_bytes);
    }
}

/// A file that is tested.
pub(super) struct Subject<'a> {
    /// The tree in its present state.
    pub(super) tree: &'a dyn FileSystem,
    pub(super) ino: Ino,
    pub(super) path: &'a [u8],
    pub(super) metadata: &'a Metadata,
}

#[derive(Debug)]
enum Test {
    Constant(bool),
    Not(Box<Test>),
    And(Box<Test>, Box<Test>),
    Or(Box<Test>, Box<Test>),
    Name(NameExpression),
    /// The names of a path; with the flag, those of a directory above it are enough.
    Path(Vec<NameExpression>, bool),
    /// A number from the first to the second one.
    Number(Number, u64, u64),
    Kind(FileKind),
    /// These bits: exactly, all (`-`) or any (`/`).
    Permissions(u8, u16),
    /// Not a symbolic link, or one that leads to a file of the tree.
    Exists,
    /// A symbolic link with an absolute target.
    Absolute,
    /// The file to which a symbolic link leads passes, or the file itself, if it is none.
    Target(Box<Test>),
    /// The file at a path passes, which begins at the file itself unless it is absolute.
    At(Box<[u8]>, Box<Test>),
}

#[derive(Clone, Copy, Debug)]
enum Number {
    FileSize,
    Uid,
    Gid,
    Depth,
    Links,
    DirCount,
}

/// The words of an action that are not parsed yet.
struct Words<'a> {
    rest: &'a [u8],
    ids: HostIds,
    depth: usize,
    /// Whether a test looks at other files.
    needs_tree: bool,
}

/// The alignment of a file in bytes, at most.
const ALIGN_MAX: u64 = 64 << 20;

const fn wrong<T>(why: &'static str) -> Result<T> {
    Err(Error::InvalidInput(why))
}

impl Action {
    /// Parses an action such as `chmod(go-w)@type(f) && ! name(*.sh)`. Supported are all actions
    /// of squashfs-tools 4.7.5, and all tests but `file`, `inode`, and those of sizes other than
    /// `filesize`. Operators have no precedence.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for other actions and tests, and for faults.
    pub fn parse(given: &[u8]) -> Result<Action> {
        let mut words = Words {
            rest: given,
            ids: HostIds::default(),
            depth: 0,
            needs_tree: false,
        };
        let effect = words.effect()?;
        if !words.take(b"@") {
            return wrong("an action has no `@` with a test behind it");
        }
        let test = words.tests()?;
        if !words.rest.trim_ascii().is_empty() {
            return wrong("an action has words behind its test");
        }
        if words.needs_tree && matches!(effect, Effect::Exclude) {
            return wrong("exclude has no test of other files: prune has");
        }
        Ok(Action { effect, test })
    }

    /// Parses a list of actions: one a line, which continues behind a backslash at its end.
    ///
    /// # Errors
    /// As for [`Action::parse`].
    pub fn parse_list(text: &[u8]) -> Result<Vec<Action>> {
        let mut lines = vec![Vec::new()];
        for line in text.split(|&byte| byte == b'\n') {
            let last = lines.last_mut().expect("there is a first line");
            match line.strip_suffix(b"\\") {
                Some(part) => last.extend(part),
                None => {
                    last.extend(line);
                    lines.push(Vec::new());
                }
            }
        }
        let lines = lines.iter().map(|line| line.trim_ascii());
        let lines = lines.filter(|line| !line.is_empty() && line[0] != b'#');
        lines.map(Action::parse).collect()
    }

    /// Whether the action is for a file.
    ///
    /// # Errors
    /// The tree cannot be read.
    pub(super) fn is_for(&self, subject: &Subject<'_>) -> Result<bool> {
        self.test.passes(subject)
    }
}

impl Test {
    fn passes(&self, subject: &Subject<'_>) -> Result<bool> {
        let metadata = subject.metadata;
        let is_link = metadata.kind == FileKind::Symlink;
        Ok(match self {
            Test::Constant(passes) => *passes,
            Test::Not(test) => !test.passes(subject)?,
            Test::And(one, other) => one.passes(subject)? && other.passes(subject)?,
            Test::Or(one, other) => one.passes(subject)? || other.passes(subject)?,
            Test::Name(name) => names(subject.path)
                .last()
                .is_some_and(|last| name.matches(last)),
            Test::Path(expressions, is_beginning) => {
                let path = names(subject.path);
                let is_long = path.len() >= expressions.len();
                let fits = is_long && (*is_beginning || path.len() == expressions.len());
                let mut pairs = path.iter().zip(expressions);
                fits && pairs.all(|(name, expression)| expression.matches(name))
            }
            &Test::Number(number, min, max) => {
                let value = match number {
                    Number::FileSize if metadata.kind != FileKind::Regular => return Ok(false),
                    Number::DirCount if metadata.kind != FileKind::Directory => return Ok(false),
                    Number::FileSize => metadata.size,
                    Number::Uid => metadata.uid.into(),
                    Number::Gid => metadata.gid.into(),
                    Number::Depth => to_u64(names(subject.path).len()),
                    Number::Links => metadata.nlink.into(),
                    Number::DirCount => to_u64(subject.tree.read_dir(subject.ino)?.len()),
                };
                (min..=max).contains(&value)
            }
            Test::Kind(kind) => metadata.kind == *kind,
            &Test::Permissions(how, bits) => match how {
                b'-' => metadata.permissions & bits == bits,
                b'/' => metadata.permissions & bits != 0,
                _ => metadata.permissions == bits,
            },
            Test::Absolute => is_link && subject.tree.read_link(subject.ino)?.starts_with(b"/"),
            Test::Exists => !is_link || subject.follow(subject.path)?.is_some(),
            Test::Target(test) if !is_link => test.passes(subject)?,
            Test::Target(test) => subject.passes_at(subject.path, test)?,
            Test::At(path, test) => match subject.seen_from(path) {
                Some(path) => subject.passes_at(&path, test)?,
                None => false,
            },
        })
    }
}

impl Subject<'_> {
    /// A path that begins at the file, from the root; `None` if it leads out of the tree, or below
    /// a file that is no directory.
    fn seen_from(&self, path: &[u8]) -> Option<Vec<u8>> {
        let mut above = names(self.path);
        let mut rest = names(path);
        if path.starts_with(b"/") {
            above.clear();
        } else {
            let up = rest.iter().take_while(|name| **name == b"..").count();
            if up == 0 && self.metadata.kind != FileKind::Directory {
                return None;
            }
            above.truncate(above.len().checked_sub(up)?);
            rest.drain(..up);
        }
        Some([above, rest].concat().join(&b'/'))
    }

    /// The file to which a path leads, and its own path. There is none if a link on the way is
    /// absolute or leads out of the tree.
    fn follow(&self, path: &[u8]) -> Result<Option<(Vec<u8>, Ino)>> {
        let (mut paths, found) = self.tree.trace(path);
        let found = match found {
            Err(Error::NotFound | Error::NotADirectory | Error::Limit(_)) => return Ok(None),
            found => found?,
        };
        let Some(own) = paths.pop() else {
            return Ok(None);
        };
        for link in &paths {
            let target = self.tree.link_target(link)?;
            let mut depth = names(link).len() - 1;
            for name in names(&target) {
                depth = match name {
                    b"." => depth,
                    b".." if depth == 0 => return Ok(None),
                    b".." => depth - 1,
                    _ => depth + 1,
                };
            }
            if target.starts_with(b"/") {
                return Ok(None);
            }
        }
        Ok(Some((own, found.ino)))
    }

    /// Whether there is a file at a path, which passes.
    fn passes_at(&self, path: &[u8], test: &Test) -> Result<bool> {
        let Some((path, ino)) = self.follow(path)? else {
            return Ok(false);
        };
        test.passes(&Subject {
            tree: self.tree,
            ino,
            path: &path,
            metadata: &self.tree.metadata(ino)?,
        })
    }
}

impl Words<'_> {
    /// Skips a word, if it is next.
    fn take(&mut self, word: &[u8]) -> bool {
        let rest = self.rest.trim_ascii_start().strip_prefix(word);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// The name that is next, and its arguments.
    fn call(&mut self) -> Result<(Vec<u8>, Vec<Vec<u8>>)> {
        let rest = self.rest.trim_ascii_start();
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
        let end = rest.iter().position(|byte| !is_name(byte));
        let (name, rest) = rest.split_at(end.unwrap_or(rest.len()));
        self.rest = rest;
        let mut arguments = Vec::new();
        if self.take(b"(") {
            self.arguments(&mut arguments)?;
        }
        Ok((name.to_vec(), arguments))
    }

    /// The arguments up to the closing parenthesis, separated by commas.
    fn arguments(&mut self, all: &mut Vec<Vec<u8>>) -> Result<()> {
        const OPEN: &str = "an action has a parenthesis or quote that is not closed";
        let (mut argument, mut is_quoted, mut has_quotes) = (Vec::new(), false, false);
        loop {
            let Some((&byte, rest)) = self.rest.split_first() else {
                return wrong(OPEN);
            };
            self.rest = rest;
            match byte {
                b'"' => (is_quoted, has_quotes) = (!is_quoted, true),
                b'\\' if !is_quoted => {
                    let Some((&escaped, rest)) = self.rest.split_first() else {
                        return wrong(OPEN);
                    };
                    argument.push(escaped);
                    self.rest = rest;
                }
                b'(' | b'@' if !is_quoted => {
                    return wrong("an argument of an action has `(` or `@` without quotes");
                }
                b',' | b')' if !is_quoted => {
                    let argument = std::mem::take(&mut argument);
                    let is_given = has_quotes || !all.is_empty() || byte == b',';
                    let trimmed = if has_quotes {
                        &argument
                    } else {
                        argument.trim_ascii()
                    };
                    if is_given || !trimmed.is_empty() {
                        all.push(trimmed.to_vec());
                    }
                    has_quotes = false;
                    if byte == b')' {
                        return Ok(());
                    }
                }
                _ if has_quotes && !is_quoted && byte.is_ascii_whitespace() => {}
                _ if argument.is_empty() && !is_quoted && byte.is_ascii_whitespace() => {}
                _ => argument.push(byte),
            }
        }
    }

    fn effect(&mut self) -> Result<Effect> {
        let (name, arguments) = self.call()?;
        let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        Ok(match (&*name, &arguments[..]) {
            (b"exclude", []) => Effect::Exclude,
            (b"prune", []) => Effect::Prune,
            (b"empty", [] | [b"all"]) => Effect::Empty {
                source: true,
                excluded: true,
            },
            (b"empty", [reason @ (b"source" | b"excluded")]) => Effect::Empty {
                source: *reason == b"source",
                excluded: *reason == b"excluded",
            },
            // A symbolic mode can have commas.
            (b"chmod", [_, ..]) => Effect::Mode(mode(&arguments.join(&b','))?),
            (b"uid", [user]) => Effect::Owner(Some(self.user(user)?), None),
            (b"gid", [group]) => Effect::Owner(None, Some(self.group(group)?)),
            (b"guid", [user, group]) => {
                Effect::Owner(Some(self.user(user)?), Some(self.group(group)?))
            }
            (b"noop", []) => Effect::Nothing,
            (b"xattrs-exclude" | b"xattrs-include", [expression]) => {
                let names = Patterns::parse(PatternSyntax::TextRegex, [*expression])?;
                Effect::FilterXattrs(names, name == b"xattrs-include")
            }
            (b"xattrs-add", [given]) => {
                Effect::AddXattr(xattr(given).map_err(Error::InvalidInput)?)
            }
            _ => Effect::Pack(packing(&name, &arguments)?),
        })
    }

    fn user(&self, word: &[u8]) -> Result<u32> {
        let number = str::from_utf8(word).ok().and_then(|word| word.parse().ok());
        let user = number.or_else(|| self.ids.user(word));
        user.ok_or(Error::InvalidInput("an action names a user who is unknown"))
    }

    fn group(&self, word: &[u8]) -> Result<u32> {
        let number = str::from_utf8(word).ok().and_then(|word| word.parse().ok());
        let group = number.or_else(|| self.ids.group(word));
        group.ok_or(Error::InvalidInput(
            "an action names a group that is unknown",
        ))
    }

    /// Tests with operators between them, from left to right.
    fn tests(&mut self) -> Result<Test> {
        let mut test = self.test()?;
        loop {
            if self.take(b"&&") {
                test = Test::And(Box::new(test), Box::new(self.test()?));
            } else if self.take(b"||") {
                test = Test::Or(Box::new(test), Box::new(self.test()?));
            } else {
                return Ok(test);
            }
        }
    }

    fn test(&mut self) -> Result<Test> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return wrong("an action has more than 64 parentheses and negations in each other");
        }
        let test = if self.take(b"!") {
            Test::Not(Box::new(self.test()?))
        } else if self.take(b"(") {
            let tests = self.tests()?;
            if !self.take(b")") {
                return wrong("an action has a parenthesis that is not closed");
            }
            tests
        } else {
            self.named_test()?
        };
        self.depth -= 1;
        Ok(test)
    }

    fn named_test(&mut self) -> Result<Test> {
        let (name, arguments) = self.call()?;
        let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        let base = name.strip_suffix(b"_range");
        let number = match base.unwrap_or(&name) {
            b"filesize" => Some(Number::FileSize),
            b"uid" => Some(Number::Uid),
            b"gid" => Some(Number::Gid),
            b"depth" => Some(Number::Depth),
            b"nlink" => Some(Number::Links),
            b"dircount" => Some(Number::DirCount),
            _ => None,
        };
        self.needs_tree |= matches!(number, Some(Number::DirCount))
            || [&b"exists"[..], b"absolute", b"readlink", b"eval"].contains(&&*name);
        Ok(match (&*name, &arguments[..], number) {
            (_, [one], Some(number)) if base.is_none() => {
                let (min, max) = range(one)?;
                Test::Number(number, min, max)
            }
            (_, [min, max], Some(number)) if base.is_some() => {
                Test::Number(number, plain_number(min)?, plain_number(max)?)
            }
            (b"true", [], _) => Test::Constant(true),
            (b"false", [], _) => Test::Constant(false),
            (b"name", [pattern], _) => Test::Name(expression(pattern)?),
            (b"pathname" | b"subpathname", [pattern], _) => {
                let names = names(pattern).into_iter().map(expression);
                Test::Path(names.collect::<Result<_>>()?, name == b"subpathname")
            }
            (b"user", [user], _) => {
                let id = self.user(user)?.into();
                Test::Number(Number::Uid, id, id)
            }
            (b"group", [group], _) => {
                let id = self.group(group)?.into();
                Test::Number(Number::Gid, id, id)
            }
            (b"type", [letter], _) => Test::Kind(match *letter {
                b"f" => FileKind::Regular,
                b"d" => FileKind::Directory,
                b"l" => FileKind::Symlink,
                b"c" => FileKind::CharDevice,
                b"b" => FileKind::BlockDevice,
                b"p" => FileKind::Fifo,
                b"s" => FileKind::Socket,
                _ => return wrong("a type in an action is not f, d, l, c, b, p or s"),
            }),
            (b"perm", [_, ..], _) => {
                let bits = arguments.join(&b',');
                let how = bits[..].first().copied().filter(|it| b"-/".contains(it));
                let bits = mode(&bits[usize::from(how.is_some())..])?.apply(0, false);
                Test::Permissions(how.unwrap_or(b'='), bits)
            }
            (b"exists", [], _) => Test::Exists,
            (b"absolute", [], _) => Test::Absolute,
            (b"readlink", [test], _) => Test::Target(Box::new(self.quoted_test(test)?)),
            (b"eval", [path, test], _) => {
                Test::At((*path).into(), Box::new(self.quoted_test(test)?))
            }
            _ => {
                return wrong(
                    "a test of an action is not name, pathname, subpathname, filesize, uid, gid, depth, nlink, dircount, user, group, type, perm, exists, absolute, readlink, eval, true or false, or has other arguments",
                );
            }
        })
    }

    /// A test in an argument of another one.
    fn quoted_test(&mut self, argument: &[u8]) -> Result<Test> {
        let mut words = Words {
            rest: argument,
            ids: HostIds::default(),
            depth: self.depth,
            needs_tree: true,
        };
        let test = words.tests()?;
        if !words.rest.trim_ascii().is_empty() {
            return wrong("an action has words behind its test");
        }
        Ok(test)
    }
}

/// The packing that an action chooses.
fn packing(action: &[u8], arguments: &[&[u8]]) -> Result<PackingChoice> {
    let mut packing = PackingChoice::default();
    match (action, arguments) {
        (b"fragment", [name]) => packing.group = Some((*name).into()),
        (b"fragments", []) => packing.fragments = Some(true),
        (b"no-fragments", []) => packing.fragments = Some(false),
        (b"tailend" | b"always-use-fragments", []) => packing.tails = Some(true),
        (b"no-tailend", []) => packing.tails = Some(false),
        (b"compressed", []) => packing.plain = Some(false),
        (b"uncompressed", []) => packing.plain = Some(true),
        (b"align", [bytes]) => {
            let bytes = plain_number(bytes)?;
            let is_possible = bytes.is_power_of_two() && bytes <= ALIGN_MAX;
            let bytes = u32::try_from(bytes).ok().filter(|_| is_possible);
            packing.align_bytes = Some(bytes.ok_or(Error::InvalidInput(
                "an alignment in an action is not a power of two up to 64M",
            ))?);
        }
        _ => {
            return wrong(
                "an action is not exclude, prune, empty(all, source or excluded), chmod(MODE), uid(USER), gid(GROUP), guid(USER, GROUP), xattrs-exclude, xattrs-include(REGEX), xattrs-add(NAME=VALUE), fragment(NAME), fragments, no-fragments, tailend, no-tailend, compressed, uncompressed, align(BYTES) or noop",
            );
        }
    }
    Ok(packing)
}

/// A pattern for a name, in which wildcards match a leading dot, too.
fn expression(pattern: &[u8]) -> Result<NameExpression> {
    Ok(NameExpression::shell(pattern)?.with_dots())
}

fn mode(words: &[u8]) -> Result<ModeChange> {
    ModeChange::parse(str::from_utf8(words).unwrap_or_default())
}

/// A number with a unit.
fn plain_number(words: &[u8]) -> Result<u64> {
    let (digits, shift) = match words {
        [digits @ .., b'k' | b'K'] => (digits, 10),
        [digits @ .., b'm' | b'M'] => (digits, 20),
        [digits @ .., b'g' | b'G'] => (digits, 30),
        digits => (digits, 0),
    };
    let number = str::from_utf8(digits)
        .ok()
        .and_then(|it| it.parse::<u64>().ok());
    let number = number.and_then(|number| number.checked_mul(1 << shift));
    number.ok_or(Error::InvalidInput("an action has a wrong number"))
}

/// The numbers from the first to the second that a comparison means.
fn range(words: &[u8]) -> Result<(u64, u64)> {
    Ok(match words {
        [b'<', b'=', rest @ ..] => (0, plain_number(rest)?),
        [b'>', b'=', rest @ ..] => (plain_number(rest)?, u64::MAX),
        // Without any smaller or larger one, an empty range.
        [b'<' | b'-', rest @ ..] => match plain_number(rest)? {
            0 => (1, 0),
            number => (0, number - 1),
        },
        [b'>' | b'+', rest @ ..] => match plain_number(rest)? {
            u64::MAX => (1, 0),
            number => (number + 1, u64::MAX),
        },
        _ => {
            let number = plain_number(words)?;
            (number, number)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Joined;

    #[test]
    fn tests_are_read_from_left_to_right() {
        let mut metadata = Metadata::new(FileKind::Regular, 0o640);
        (metadata.size, metadata.uid, metadata.gid) = (2048, 5, 6);
        for (test, passes) in [
            ("true || false && false", false),
            ("true || (false && false)", true),
            ("! true || true", true),
            ("name(*.txt)", true),
            ("name ( \"f 1.txt\" )", true),
            (r"name(f\ 1.txt)", true),
            ("name(\"@(f|g)*\")", true),
            ("pathname(d/*)&&!pathname(d)", true),
            ("subpathname(d)&&!subpathname(d/e)", true),
            ("filesize(2k)", true),
            ("filesize(<2K)", false),
            ("filesize(-2049)&&filesize(+2047)", true),
            ("filesize(<=2048)&&filesize(>=2048)", true),
            ("filesize(<0)||filesize(+18446744073709551615)", false),
            ("filesize_range(1, 1M)&&depth_range(2,2)", true),
            ("uid(5)&&gid(>5)&&!user(root)&&!group(root)", true),
            ("type(f)&&!type(d)", true),
            ("perm(640)&&perm(u=rw,g=r)", true),
            ("perm(-u+r)&&perm(/o=r,u=w)&&!perm(/o=r)&&!perm(-o+r)", true),
        ] {
            let action = Action::parse(format!("prune@{test}").as_bytes()).unwrap();
            let subject = Subject {
                tree: &Joined::new(Vec::new()).unwrap(),
                ino: Ino(0),
                path: b"d/f 1.txt",
                metadata: &metadata,
            };
            assert_eq!(action.is_for(&subject).unwrap(), passes, "{test}");
        }
        let nested = format!("prune@{}true", "(".repeat(1000));
        for wrong in [
            "prune",
            "prune@",
            "prune()",
            "prune(a)@true",
            "prune@nothing",
            "prune@true true",
            "prune@(true",
            "prune@name(a",
            "prune@name(\"a)",
            "prune@filesize(x)",
            "prune@filesize()",
            "prune@uid_range(1)",
            "prune@type(x)",
            "prune@perm(9)",
            "fragment()@true",
            "align(100)@true",
            "align(128M)@true",
            "xattrs-add(a)@true",
            "move(a)@true",
            "exclude@exists",
            "exclude@readlink(true)",
            "prune@readlink(\"true true\")",
            "uid(no-such-user)@true",
            "chmod()@true",
            "empty(x)@true",
            "prune@true &&",
            &nested,
        ] {
            assert!(Action::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let list = b"# comment\n\nprune@true && \\\n name(a)\nchmod(u+x,o=)@true\n";
        assert_eq!(Action::parse_list(list).unwrap().len(), 2);
    }
}
