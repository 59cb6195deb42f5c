//! Expressions for one name, as regular expressions of bytes: POSIX extended ones, and patterns of
//! `fnmatch` with the extensions of the GNU library. Expressions of Perl for paths.

use regex::bytes::{Regex, RegexBuilder};

use crate::{Error, Result};

const NOT_AN_EXPRESSION: Error = Error::InvalidInput(
    "not a POSIX extended regular expression without back-references and collating elements",
);
const NOT_A_PATTERN: Error = Error::InvalidInput(
    "not a pattern of a shell without collating elements, in which `!(...)`, if there is one, is a whole name",
);

const NOT_OF_PERL: Error = Error::InvalidInput(
    "not a regular expression of Perl without back-references, assertions and possessive repetition",
);

/// The classes of POSIX; the crate has more, and takes an unknown one for a set of letters.
const CLASSES: [&str; 12] = [
    "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "xdigit",
];

/// Where an expression in brackets is from: the escapes and the negation differ.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Syntax {
    Posix,
    Shell,
    Perl,
}

/// An expression for names.
#[derive(Debug)]
pub(super) struct NameExpression {
    regex: Regex,
    /// Whether the names that do not match are meant.
    is_negated: bool,
    /// Whether names that begin with a dot do not match.
    skips_dots: bool,
}

impl NameExpression {
    /// Parses a regular expression, which is found anywhere in a name.
    pub(super) fn posix(given: &[u8]) -> Result<NameExpression> {
        let mut to = String::new();
        let mut rest = given;
        while let Some((&byte, behind)) = rest.split_first() {
            rest = behind;
            match (byte, behind) {
                (b'[', _) => {
                    rest = bracket(rest, Syntax::Posix, &mut to).ok_or(NOT_AN_EXPRESSION)?;
                }
                // Flags, which POSIX does not have.
                (b'(', [b'?', ..]) => return Err(NOT_AN_EXPRESSION),
                (b'\\', [escaped, behind @ ..]) if escaped.is_ascii_punctuation() => {
                    literal(*escaped, &mut to);
                    rest = behind;
                }
                (128.., _) => literal(byte, &mut to),
                _ => to.push(byte.into()),
            }
        }
        NameExpression::new(&to, NOT_AN_EXPRESSION)
    }

    /// Parses a pattern for a whole name. `@(a|b)`, `?(...)`, `*(...)` and `+(...)` are supported,
    /// and `!(...)` if it is the whole pattern. A dot at the begin has to be written.
    pub(super) fn shell(given: &[u8]) -> Result<NameExpression> {
        let inner = given.strip_prefix(b"!").filter(|it| it.starts_with(b"("));
        let groups = inner.map_or(given.to_vec(), |inner| [b"@", inner].concat());
        let mut to = String::from("^(?:");
        let (mut rest, mut ends) = (&groups[..], Vec::new());
        while let Some((&byte, behind)) = rest.split_first() {
            rest = behind;
            match (byte, behind) {
                (b'!', [b'(', ..]) => return Err(NOT_A_PATTERN),
                (b'@' | b'?' | b'*' | b'+', [b'(', behind @ ..]) => {
                    to.push_str("(?:");
                    ends.push((byte != b'@').then_some(byte));
                    rest = behind;
                    // The whole pattern is the group.
                    let is_all = ends.len() == 1 && to.len() == "^(?:(?:".len();
                    if inner.is_some() && is_all && !closes_last(rest) {
                        return Err(NOT_A_PATTERN);
                    }
                }
                (b'|', _) if !ends.is_empty() => to.push('|'),
                (b')', _) if !ends.is_empty() => {
                    to.push(')');
                    to.extend(ends.pop().flatten().map(char::from));
                }
                _ => rest = wildcard(byte, rest, &mut to)?,
            }
        }
        to.push_str(")$");
        let expression = NameExpression::new(&to, NOT_A_PATTERN)?;
        let is_group = given.get(1) == Some(&b'(');
        Ok(NameExpression {
            is_negated: inner.is_some(),
            skips_dots: matches!(given.first(), Some(b'*' | b'?' | b'[')) && !is_group,
            ..expression
        })
    }

    /// Parses a pattern for a whole name, as in a shell without extensions, but with alternatives
    /// in braces. Wildcards match a dot at the begin, too.
    pub(super) fn glob(given: &[u8]) -> Result<NameExpression> {
        let mut to = String::from("^(?:");
        let (mut rest, mut open) = (given, 0_u32);
        while let Some((&byte, behind)) = rest.split_first() {
            rest = behind;
            match (byte, behind) {
                (b'{', _) => {
                    to.push_str("(?:");
                    open += 1;
                }
                (b',', _) if open > 0 => to.push('|'),
                (b'}', _) if open > 0 => {
                    to.push(')');
                    open -= 1;
                }
                _ => rest = wildcard(byte, rest, &mut to)?,
            }
        }
        to.push_str(")$");
        NameExpression::new(&to, NOT_A_PATTERN)
    }

    /// The same expression, in which wildcards match a dot at the begin, too.
    pub(super) fn with_dots(self) -> NameExpression {
        NameExpression {
            skips_dots: false,
            ..self
        }
    }

    fn new(regex: &str, error: Error) -> Result<NameExpression> {
        Ok(NameExpression {
            regex: expression(regex, error)?,
            is_negated: false,
            skips_dots: false,
        })
    }

    pub(super) fn matches(&self, name: &[u8]) -> bool {
        let is_skipped = self.skips_dots && name.starts_with(b".");
        !is_skipped && self.regex.is_match(name) != self.is_negated
    }
}

/// Translates a regular expression of Perl, for the whole of a text: its ends are anchors, which
/// alternatives outside of groups separate.
pub(super) fn perl(given: &[u8]) -> Result<Regex> {
    let mut to = String::from("^");
    let (mut rest, mut repeats) = (given, false);
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        let repeated = std::mem::take(&mut repeats);
        match (byte, behind) {
            (b'[', _) => rest = bracket(rest, Syntax::Perl, &mut to).ok_or(NOT_OF_PERL)?,
            (b'\\', [escaped, behind @ ..]) => {
                if escaped.is_ascii_alphanumeric() {
                    to.extend(['\\', (*escaped).into()]);
                } else {
                    literal(*escaped, &mut to);
                }
                rest = behind;
            }
            (b'+', _) if repeated => return Err(NOT_OF_PERL),
            // Elsewhere, a brace stands for itself.
            (b'{', _) if !begins_count(behind) => literal(byte, &mut to),
            (128.., _) => literal(byte, &mut to),
            _ => {
                repeats = matches!(byte, b'?' | b'*' | b'+' | b'}');
                to.push(byte.into());
            }
        }
    }
    to.push('$');
    expression(&to, NOT_OF_PERL)
}

/// Whether a count such as `2,3}` follows a brace.
fn begins_count(rest: &[u8]) -> bool {
    let end = rest.iter().position(|&byte| byte == b'}');
    let count = &rest[..end.unwrap_or(0)];
    count.first().is_some_and(u8::is_ascii_digit)
        && count.iter().all(|it| it.is_ascii_digit() || *it == b',')
}

fn expression(regex: &str, error: Error) -> Result<Regex> {
    let mut builder = RegexBuilder::new(regex);
    // A dot is any byte, as in the C locale.
    builder.unicode(false).dot_matches_new_line(true);
    builder.build().map_err(|_| error)
}

/// Translates a byte of a pattern of a shell, a wildcard or one that stands for itself, and returns
/// the bytes behind what it begins.
fn wildcard<'a>(byte: u8, rest: &'a [u8], to: &mut String) -> Result<&'a [u8]> {
    match (byte, rest) {
        (b'?', _) => to.push('.'),
        (b'*', _) => to.push_str(".*"),
        (b'[', _) => match bracket(rest, Syntax::Shell, to) {
            Some(behind) => return Ok(behind),
            None if rest.contains(&b']') => return Err(NOT_A_PATTERN),
            None => literal(byte, to),
        },
        (b'\\', [escaped, behind @ ..]) => {
            literal(*escaped, to);
            return Ok(behind);
        }
        _ => literal(byte, to),
    }
    Ok(rest)
}

/// Whether the parenthesis that is open is closed by the last byte.
fn closes_last(rest: &[u8]) -> bool {
    let mut depth = 1;
    for (at, byte) in rest.iter().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1 == rest.len();
        }
    }
    false
}

/// Translates the rest of a bracket expression, and returns the bytes behind it; `None` if it has
/// no end, or collating elements.
fn bracket<'a>(mut rest: &'a [u8], syntax: Syntax, to: &mut String) -> Option<&'a [u8]> {
    let mut inner = String::from("[");
    if let [b'^', behind @ ..] = rest {
        (rest, inner) = (behind, "[^".into());
    } else if let [b'!', behind @ ..] = rest
        && syntax == Syntax::Shell
    {
        (rest, inner) = (behind, "[^".into());
    }
    let (mut is_first, mut begins_range) = (true, false);
    loop {
        let (&byte, behind) = rest.split_first()?;
        rest = behind;
        match (byte, behind) {
            (b']', _) if !is_first => break,
            (b'[', [b'.' | b'=', ..]) => return None,
            (b'[', [b':', ..]) => {
                let end = behind.windows(2).position(|two| two == b":]")? + 2;
                let class = str::from_utf8(behind.get(1..end - 2)?).ok()?;
                CLASSES.contains(&class).then_some(())?;
                inner += &format!("[:{class}:]");
                rest = &behind[end..];
                begins_range = false;
            }
            (b'-', [next, ..]) if begins_range && *next != b']' => {
                inner.push('-');
                let (&end, behind) = behind.split_first()?;
                literal(end, &mut inner);
                rest = behind;
                begins_range = false;
            }
            (b'\\', [escaped, behind @ ..]) if syntax != Syntax::Posix => {
                if syntax == Syntax::Perl && escaped.is_ascii_alphanumeric() {
                    inner.extend(['\\', (*escaped).into()]);
                } else {
                    literal(*escaped, &mut inner);
                }
                rest = behind;
                begins_range = true;
            }
            _ => {
                literal(byte, &mut inner);
                begins_range = true;
            }
        }
        is_first = false;
    }
    to.push_str(&inner);
    to.push(']');
    Some(rest)
}

fn literal(byte: u8, to: &mut String) {
    if byte.is_ascii_alphanumeric() {
        to.push(byte.into());
    } else {
        *to += &format!("\\x{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expectations are the results of mksquashfs 4.7.5 with the GNU C library.
    #[test]
    fn names_match_as_in_posix() {
        for (given, yes, no) in [
            ("x", &["x.o", "abx"][..], &["ab"][..]),
            (r"x\.o$", &["x.o", "xx.o"], &["x.oo", "xoo"]),
            ("^(b|c)[xy]{2}", &["bxy", "cyyz"], &["bx", "abxx"]),
            ("[[:lower:]]+[.]c", &["a.c"], &["A.c"]),
            (r"[\s]", &[r"a\b", "s"], &["a b"]),
            ("[]a]", &["]", "a"], &["b"]),
            ("[^]a-c]", &["d"], &["]", "a", "b"]),
            ("[a-]", &["-", "a"], &["b"]),
            ("[a&&b~~]", &["&", "~"], &["c"]),
            ("...", &["abc", "a\nb"], &["ab"]),
            ("\u{e9}", &["caf\u{e9}"], &["cafe"]),
        ] {
            let expression = NameExpression::posix(given.as_bytes()).unwrap();
            for (names, matches) in [(yes, true), (no, false)] {
                for name in names {
                    assert_eq!(
                        expression.matches(name.as_bytes()),
                        matches,
                        "{given} {name}"
                    );
                }
            }
        }
        for wrong in ["((", "*b", r"(a)\1", "[[=a=]]", "[a", "(?i)a", r"a\"] {
            assert!(NameExpression::posix(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_match_as_in_fnmatch() {
        for (given, yes, no) in [
            ("*", &["a", "a.b"][..], &[".a"][..]),
            (".*", &[".a"], &["a"]),
            ("?", &["a"], &[".", "ab"]),
            ("[.]a", &[], &[".a"]),
            ("?(b)", &["b"], &["bb", "a"]),
            ("+(b| c)", &["b", "b c", "bb"], &["bc"]),
            ("*.@(o|[ch])", &["a.o", "b.c"], &["a.x", "a.oo"]),
            ("!(b|d)", &["a", ".a", "bd"], &["b", "d"]),
            (r"\[z\]", &["[z]"], &["z"]),
            ("[[]z]", &["[z]"], &["z"]),
            ("[!a-c]", &["d"], &["a"]),
            ("[a", &["[a"], &["a"]),
            ("{b,A}", &["{b,A}"], &["b"]),
            (r"[\]]", &["]"], &[r"\"]),
        ] {
            let expression = NameExpression::shell(given.as_bytes()).unwrap();
            for (names, matches) in [(yes, true), (no, false)] {
                for name in names {
                    assert_eq!(
                        expression.matches(name.as_bytes()),
                        matches,
                        "{given} {name}"
                    );
                }
            }
        }
        for wrong in [
            "[[.a.]]",
            "[[:word:]]",
            "[[:]",
            "b!(b)",
            "!(a)b",
            "!(a)(b)",
            "@(a",
        ] {
            assert!(NameExpression::shell(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
