//! SELinux labels by path: the format of `file_contexts` (selabel_file(5)).
//!
//! A file gets the context of the last line that matches, where lines without wildcards come after
//! all others. A policy has thousands of lines, so they are found by the bytes that they begin
//! with, and expressions are tried on the rest of a path alone.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::{fs, io};

use regex::bytes::Regex;

use super::regex::perl;
use crate::fs::{FileKind, Xattr};
use crate::{Error, Result};

/// The attribute that holds a label.
pub(super) const NAME: &[u8] = b"security.selinux";

/// The characters that make a path an expression, in libselinux.
const WILDCARDS: &[u8] = b".^$?*+|[({";

/// The SELinux labels of a policy.
#[derive(Default)]
pub struct FileContexts {
    /// The last that matches counts.
    rules: Vec<ContextRule>,
    /// The rules whose paths begin with these bytes, in their order.
    by_prefix: HashMap<Box<[u8]>, Vec<usize>>,
    /// Paths that count as others: those of this machine, and then those of its distribution.
    aliases: [Vec<[Box<[u8]>; 2]>; 2],
    labels: Vec<Xattr>,
    /// The path of the tree's root, without a slash at its end.
    mount_point: Box<[u8]>,
}

/// One line.
struct ContextRule {
    kind: Option<FileKind>,
    rest: PathRest,
    /// An index into the labels; `None` for files whose labels stay.
    label: Option<usize>,
}

/// The rest behind the literal beginning of a path.
enum PathRest {
    Nothing,
    Anything,
    /// `(/.*)?`: nothing, or names below it.
    Below,
    Expression(Regex),
    /// For the whole path.
    Whole(Regex),
}

/// A line, before its place among the others is known.
struct ParsedLine<'a> {
    rule: ContextRule,
    prefix: Vec<u8>,
    is_exact: bool,
    context: &'a [u8],
}

impl fmt::Debug for FileContexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileContexts")
            .field("rules", &self.rules.len())
            .finish_non_exhaustive()
    }
}

impl FileContexts {
    /// Reads a file, and those beside it that have its name with the endings `.homedirs`, `.local`,
    /// `.subs` and `.subs_dist`.
    ///
    /// # Errors
    /// A file cannot be read, but those with an ending may be missing; [`Error::Part`] for a line
    /// that has not the format, or an expression that is not supported.
    pub fn read(file: &Path) -> Result<FileContexts> {
        let beside = |ending: &str| {
            let mut name = OsString::from(file);
            name.push(ending);
            match fs::read(&name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
                content => content.map_err(|error| in_file(error.into(), ending)),
            }
        };
        let files = [
            ("", fs::read(file)?),
            (".homedirs", beside(".homedirs")?),
            (".local", beside(".local")?),
        ];
        let mut contexts = FileContexts::default();
        contexts.add(&files)?;
        for (aliases, ending) in contexts.aliases.iter_mut().zip([".subs", ".subs_dist"]) {
            for line in beside(ending)?.split(|&byte| byte == b'\n') {
                let mut words = words(line);
                if let (Some(from), Some(to)) = (words.next(), words.next()) {
                    aliases.push([from.into(), to.into()]);
                }
            }
            // The last one that fits counts.
            aliases.reverse();
        }
        Ok(contexts)
    }

    /// Labels files as below this path, such as `/vendor`.
    #[must_use]
    pub fn below(mut self, mount_point: &[u8]) -> FileContexts {
        let names = mount_point.split(|&byte| byte == b'/');
        let names = names.filter(|name| !name.is_empty());
        let path: Vec<u8> = names.flat_map(|name| [b"/", name].concat()).collect();
        self.mount_point = path.into();
        self
    }

    fn add(&mut self, files: &[(&str, Vec<u8>)]) -> Result<()> {
        let mut parsed = Vec::new();
        for (ending, content) in files {
            for (number, line) in (1..).zip(content.split(|&byte| byte == b'\n')) {
                let line = parse(line);
                let line = line.map_err(|error| in_file(error.in_part("line", number), ending))?;
                parsed.extend(line);
            }
        }
        parsed.sort_by_key(|line| line.is_exact);
        let mut known: HashMap<&[u8], usize> = HashMap::new();
        for line in parsed {
            let mut rule = line.rule;
            if line.context != b"<<none>>" {
                rule.label = Some(*known.entry(line.context).or_insert_with(|| {
                    self.labels.push(Xattr {
                        name: NAME.into(),
                        // As setfiles stores it.
                        value: [line.context, b"\0"].concat().into(),
                    });
                    self.labels.len() - 1
                }));
            }
            let of_prefix = self.by_prefix.entry(line.prefix.into()).or_default();
            of_prefix.push(self.rules.len());
            self.rules.push(rule);
        }
        Ok(())
    }

    /// The label of a file, by its path from the root of the tree, names joined by `/`; `None` if
    /// its label stays as it is.
    pub(super) fn find(&self, path: &[u8], kind: FileKind) -> Option<usize> {
        let mut whole = self.mount_point.to_vec();
        if !path.is_empty() || whole.is_empty() {
            whole.push(b'/');
        }
        whole.extend_from_slice(path);
        for aliases in &self.aliases {
            if let Some(other) = aliases.iter().find_map(|alias| renamed(&whole, alias)) {
                whole = other;
            }
        }
        let mut best = None;
        for len in (0..=whole.len()).rev() {
            let (prefix, rest) = whole.split_at(len);
            let rules = self.by_prefix.get(prefix).into_iter().flatten();
            for &number in rules.rev().take_while(|&&number| Some(number) > best) {
                let rule = &self.rules[number];
                if rule.kind.is_none_or(|it| it == kind) && rule.rest.matches(rest, &whole) {
                    best = Some(number);
                    break;
                }
            }
        }
        self.rules[best?].label
    }

    pub(super) fn label(&self, number: usize) -> &Xattr {
        &self.labels[number]
    }
}

impl PathRest {
    fn matches(&self, rest: &[u8], whole: &[u8]) -> bool {
        match self {
            PathRest::Nothing => rest.is_empty(),
            PathRest::Anything => true,
            PathRest::Below => matches!(rest, [] | [b'/', ..]),
            PathRest::Expression(regex) => regex.is_match(rest),
            PathRest::Whole(regex) => regex.is_match(whole),
        }
    }
}

/// Names the file beside the main one.
fn in_file(error: Error, ending: &str) -> Error {
    match ending {
        "" => error,
        ending => error.in_file("read", [b"*", ending.as_bytes()].concat().as_slice()),
    }
}

/// The words of a line that is no comment.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let line = line.trim_ascii();
    let line = if line.starts_with(b"#") { b"" } else { line };
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    (line.split(is_space)).filter(|word| !word.is_empty())
}

/// The path with `from` at its beginning replaced.
fn renamed(path: &[u8], [from, to]: &[Box<[u8]>; 2]) -> Option<Vec<u8>> {
    let rest = path.strip_prefix(&**from)?;
    match rest {
        [b'/', names @ ..] if **to == *b"/" => Some([to, names].concat()),
        [] | [b'/', ..] => Some([to, rest].concat()),
        _ => None,
    }
}

/// Parses a line: a path, a file type, which may be missing, and a context. `None` if it is empty.
fn parse(line: &[u8]) -> Result<Option<ParsedLine<'_>>> {
    let mut words = words(line);
    let Some(path) = words.next() else {
        return Ok(None);
    };
    let (kind, context) = match (words.next(), words.next()) {
        (Some(kind), Some(context)) => (Some(kind), context),
        (Some(context), None) => (None, context),
        _ => return Err(Error::InvalidInput("a path without a context")),
    };
    let kind = match kind {
        None => None,
        Some(b"--") => Some(FileKind::Regular),
        Some(b"-b") => Some(FileKind::BlockDevice),
        Some(b"-c") => Some(FileKind::CharDevice),
        Some(b"-d") => Some(FileKind::Directory),
        Some(b"-l") => Some(FileKind::Symlink),
        Some(b"-p") => Some(FileKind::Fifo),
        Some(b"-s") => Some(FileKind::Socket),
        Some(_) => {
            let what = "a file type is `--`, `-b`, `-c`, `-d`, `-l`, `-p` or `-s`";
            return Err(Error::InvalidInput(what));
        }
    };
    let is_context = context.iter().filter(|&&byte| byte == b':').count() >= 2;
    if !is_context && context != b"<<none>>" {
        let what = "a context is USER:ROLE:TYPE, with a range behind it, or `<<none>>`";
        return Err(Error::InvalidInput(what));
    }
    let (prefix, rest) = match literal_prefix(path) {
        _ if has_alternatives(path) => (first_name(path).to_vec(), PathRest::Whole(perl(path)?)),
        (prefix, b"") => (prefix, PathRest::Nothing),
        (prefix, b".*") => (prefix, PathRest::Anything),
        (prefix, b"(/.*)?") => (prefix, PathRest::Below),
        (prefix, rest) => (prefix, PathRest::Expression(perl(rest)?)),
    };
    Ok(Some(ParsedLine {
        rule: ContextRule {
            kind,
            rest,
            label: None,
        },
        prefix,
        is_exact: !has_wildcards(path),
        context,
    }))
}

fn has_wildcards(path: &[u8]) -> bool {
    let mut bytes = path.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => _ = bytes.next(),
            byte if WILDCARDS.contains(byte) => return true,
            _ => {}
        }
    }
    false
}

/// The bytes that every match of an expression without alternatives begins with, and the expression
/// for the bytes behind them.
fn literal_prefix(expression: &[u8]) -> (Vec<u8>, &[u8]) {
    let (mut prefix, mut at, mut last_at) = (Vec::new(), 0, 0);
    loop {
        let (byte, len) = match expression[at..] {
            [b'\\', byte, ..] if !byte.is_ascii_alphanumeric() => (byte, 2),
            // It repeats the last byte, which then is no part of the prefix.
            [b'?' | b'*' | b'+' | b'{', ..] => {
                prefix.pop();
                at = last_at;
                break;
            }
            [b'\\', ..] | [] => break,
            [byte, ..] if WILDCARDS.contains(&byte) => break,
            [byte, ..] => (byte, 1),
        };
        prefix.push(byte);
        (last_at, at) = (at, at + len);
    }
    (prefix, &expression[at..])
}

/// The first name of an expression with the slashes around it, which libselinux compares on its
/// own; empty if it is not literal.
fn first_name(expression: &[u8]) -> &[u8] {
    let slash = expression.iter().skip(1).position(|&byte| byte == b'/');
    let name = slash.map_or(&b""[..], |slash| &expression[..slash + 2]);
    let has_wildcards = name.iter().any(|byte| WILDCARDS.contains(byte));
    if has_wildcards { b"" } else { name }
}

/// Whether an expression has `|` outside of groups and brackets.
fn has_alternatives(expression: &[u8]) -> bool {
    let (mut depth, mut at) = (0_u32, 0);
    while let Some(&byte) = expression.get(at) {
        match byte {
            b'\\' => at += 1,
            b'[' => {
                // A bracket at the beginning stands for itself.
                let rest = expression.iter().skip(at + 2);
                let len = rest.clone().position(|&byte| byte == b']');
                at += 2 + len.unwrap_or(rest.len());
            }
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b'|' if depth == 0 => return true,
            _ => {}
        }
        at += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(files: &[(&str, &str)]) -> FileContexts {
        let files: Vec<_> = (files.iter())
            .map(|(ending, text)| (*ending, text.as_bytes().to_vec()))
            .collect();
        let mut contexts = FileContexts::default();
        contexts.add(&files).unwrap();
        contexts
    }

    fn label_of(contexts: &FileContexts, path: &str, kind: FileKind) -> String {
        let found = contexts.find(path.as_bytes(), kind);
        found.map_or("-".into(), |number| {
            let value = &contexts.label(number).value;
            let value = value.strip_suffix(b"\0").unwrap();
            String::from_utf8(value.strip_prefix(b"u:r:").unwrap().to_vec()).unwrap()
        })
    }

    #[test]
    fn the_last_line_that_matches_counts_but_an_exact_path_always() {
        use FileKind::{Directory, Regular, Symlink};
        let base = "# comment\n/.* u:r:any\n/exact/a\\.b  -- u:r:exact\n/exact/.*\tu:r:below\n\
                    \n/usr(/.*)? u:r:usr\n/usr/lib(64)?/x[.|]o? u:r:x\n/none <<none>>\n\
                    /usr/(s|l)?bin/.+ -d u:r:bin\n/p{q u:r:brace\n/a+b u:r:plus\n/alt/a|/alt/b u:r:alt";
        let contexts = labels(&[("", base), (".local", "/usr/local/.* u:r:local\n")]);
        for (path, kind, label) in [
            ("", Directory, "any"),
            ("exact/a.b", Regular, "exact"),
            ("exact/a.b", Symlink, "below"),
            ("exact/axb", Regular, "below"),
            ("usr", Directory, "usr"),
            ("usrx", Directory, "any"),
            ("usr/lib64/x.", Regular, "x"),
            ("usr/lib/x|o", Regular, "x"),
            ("usr/lib/xx", Regular, "usr"),
            ("usr/sbin/d", Directory, "bin"),
            ("usr/sbin/d", Regular, "usr"),
            ("usr/local/a\nb", Regular, "local"),
            ("none", Regular, "-"),
            ("none/a", Regular, "any"),
            ("p{q", Regular, "brace"),
            ("aaab", Regular, "plus"),
            ("b", Regular, "any"),
            // As in libselinux, an anchor belongs to the first or the last alternative.
            ("alt/a", Regular, "alt"),
            ("alt/axx", Regular, "alt"),
            ("alt/b", Regular, "alt"),
            ("zz/alt/b", Regular, "any"),
        ] {
            assert_eq!(label_of(&contexts, path, kind), label, "{path}");
        }
        let contexts = labels(&[("", "/vendor u:r:v\n/vendor/x u:r:x")]).below(b"vendor/");
        assert_eq!(label_of(&contexts, "", Directory), "v");
        assert_eq!(label_of(&contexts, "x", Directory), "x");
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (line, words) in [
            ("/a", "line 2: a path without a context"),
            ("/a -x u:r:t", "line 2: a file type is"),
            ("/a -- t", "line 2: a context is"),
            ("/a(?=b) u:r:t", "line 2: not a regular expression"),
            ("/a( u:r:t", "line 2: not a regular expression"),
            ("/a.*+ u:r:t", "line 2: not a regular expression"),
        ] {
            let file = ("", format!("\n{line}\n").into_bytes());
            let error = FileContexts::default().add(&[file]).unwrap_err();
            assert!(error.to_string().starts_with(words), "{error}");
        }
        let file = (".local", b"/a".to_vec());
        let error = FileContexts::default().add(&[file]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "read *.local: line 1: a path without a context"
        );
    }
}
