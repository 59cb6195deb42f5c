//! Tables of other programs' options, and their parsers.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, Result, bail};

/// An option of another program, which sets something in a request `T`.
pub(super) struct OptionRow<T: 'static> {
    /// Its spellings, with their hyphens.
    pub(super) names: &'static [&'static str],
    /// Its value, as the program's manual names it; empty for an option without one. `[=` begins
    /// one that can be left out.
    pub(super) value: &'static str,
    pub(super) effect: Effect<T>,
    /// How its effect differs from that in the program, or why it has none; can be empty for an
    /// option with the same effect.
    pub(super) note: &'static str,
}

/// The effect of an option here.
#[allow(dead_code, reason = "the programs of squashfs-tools use the others")]
pub(super) enum Effect<T: 'static> {
    /// The same as in the program, without a value.
    Flag(fn(&mut T)),
    /// The same, with the value behind it.
    Value(fn(&mut T, &OsStr) -> Result<()>),
    /// The same, with all words behind it.
    Rest(fn(&mut T, &[OsString]) -> Result<()>),
    /// The same, with the words behind it up to a `;`.
    Words(fn(&mut T, &[OsString])),
    /// It is taken, and changes nothing.
    Accepted,
    /// It is refused, before anything is written.
    Refused,
}

/// How a program writes its options.
#[allow(dead_code, reason = "the programs of squashfs-tools use the others")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// As squashfs-tools: `-long value`, each name in full.
    Hyphen,
    /// The same, but the options end at the first other word.
    HyphenFirst,
    /// As getopt_long: `--long=value`, `--long value`, unambiguous beginnings of long names,
    /// `-svalue`, and several short ones in one word.
    Getopt,
}

impl<T> OptionRow<T> {
    /// An option without a value.
    pub(super) const fn flag(names: &'static [&'static str], set: fn(&mut T)) -> Self {
        Self::row(names, "", Effect::Flag(set))
    }

    /// An option with a value.
    pub(super) const fn with(
        names: &'static [&'static str],
        value: &'static str,
        set: fn(&mut T, &OsStr) -> Result<()>,
    ) -> Self {
        Self::row(names, value, Effect::Value(set))
    }

    /// An option that changes nothing, and the reason.
    pub(super) const fn accepted(
        names: &'static [&'static str],
        value: &'static str,
        note: &'static str,
    ) -> Self {
        Self::row(names, value, Effect::Accepted).noted(note)
    }

    /// An option that is refused, and the reason.
    pub(super) const fn refused(
        names: &'static [&'static str],
        value: &'static str,
        note: &'static str,
    ) -> Self {
        Self::row(names, value, Effect::Refused).noted(note)
    }

    /// An option without a note.
    pub(super) const fn row(
        names: &'static [&'static str],
        value: &'static str,
        effect: Effect<T>,
    ) -> Self {
        OptionRow {
            names,
            value,
            effect,
            note: "",
        }
    }

    /// The same with a note.
    pub(super) const fn noted(mut self, note: &'static str) -> Self {
        self.note = note;
        self
    }

    fn takes_value(&self) -> bool {
        !self.value.is_empty() && !matches!(self.effect, Effect::Rest(_) | Effect::Words(_))
    }

    /// Whether its value is in its own word, or left out.
    fn is_optional(&self) -> bool {
        self.value.starts_with("[=")
    }

    /// Applies the option.
    fn apply(&self, name: &str, value: &OsStr, request: &mut T) -> Result<()> {
        match self.effect {
            Effect::Flag(set) => set(request),
            Effect::Value(set) => set(request, value).with_context(|| name.to_owned())?,
            Effect::Refused => bail!("{name} is not supported: {}", self.note),
            Effect::Accepted | Effect::Rest(_) | Effect::Words(_) => {}
        }
        Ok(())
    }

    /// How it is described.
    fn described(&self) -> Described {
        let names = self.names.join(", ");
        let option = if self.value.is_empty() || self.is_optional() {
            names + self.value
        } else {
            format!("{names} {}", self.value)
        };
        let state = match self.effect {
            Effect::Flag(_) | Effect::Value(_) | Effect::Rest(_) | Effect::Words(_) => "same",
            Effect::Accepted => "accepted",
            Effect::Refused => "refused",
        };
        Described {
            option,
            state,
            note: self.note,
        }
    }
}

/// An option in words.
pub(super) struct Described {
    /// Its spellings and its value.
    pub(super) option: String,
    /// Whether it has the same effect as in the program, none, or is refused.
    pub(super) state: &'static str,
    pub(super) note: &'static str,
}

/// A table of options in words.
pub(super) fn described<'a, T: 'static>(
    rows: impl IntoIterator<Item = &'a OptionRow<T>>,
) -> Vec<Described> {
    rows.into_iter().map(OptionRow::described).collect()
}

/// Applies the options among `words`, and returns the other words.
///
/// # Errors
/// An option is unknown or refused, or has no value or a wrong one; the error names it.
pub(super) fn parse<'a, T: 'static>(
    rows: impl IntoIterator<Item = &'a OptionRow<T>>,
    style: Style,
    words: &[OsString],
    request: &mut T,
) -> Result<Vec<OsString>> {
    let rows: Vec<&OptionRow<T>> = rows.into_iter().collect();
    let mut operands = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        at += 1;
        let bytes = word.as_bytes();
        if !bytes.starts_with(b"-") || bytes == b"-" {
            operands.push(word.clone());
            if style == Style::HyphenFirst {
                operands.extend_from_slice(&words[at..]);
                break;
            }
            continue;
        }
        if style == Style::Getopt {
            if bytes == b"--" {
                operands.extend_from_slice(&words[at..]);
                break;
            }
            at += usize::from(getopt(&rows, bytes, words.get(at), request)?);
            continue;
        }
        let row = (rows.iter()).find(|row| row.names.iter().any(|name| name.as_bytes() == bytes));
        let name = word.to_string_lossy();
        let row = row.with_context(|| format!("{name} is not an option of this program"))?;
        if let Effect::Rest(set) = row.effect {
            set(request, &words[at..]).with_context(|| name.into_owned())?;
            break;
        }
        if let Effect::Words(set) = row.effect {
            let end = words[at..].iter().position(|word| word == ";");
            let end = at + end.with_context(|| format!("{name} needs a `;` at its end"))?;
            set(request, &words[at..end]);
            at = end + 1;
            continue;
        }
        let value = if row.takes_value() {
            let value = words
                .get(at)
                .with_context(|| format!("{name} needs {}", row.value))?;
            at += 1;
            value.as_os_str()
        } else {
            OsStr::new("")
        };
        row.apply(&name, value, request)?;
    }
    Ok(operands)
}

/// Applies the options in one word of a program that uses getopt_long, and returns whether the next
/// word is the value of the last one.
fn getopt<T>(
    rows: &[&OptionRow<T>],
    word: &[u8],
    next: Option<&OsString>,
    request: &mut T,
) -> Result<bool> {
    let missing = |name: &str, value: &str| format!("{name} needs {value}");
    if word.starts_with(b"--") {
        let equals = word.iter().position(|&byte| byte == b'=');
        let (name, value) = match equals {
            Some(equals) => (
                &word[..equals],
                Some(OsStr::from_bytes(&word[equals + 1..])),
            ),
            None => (word, None),
        };
        let (row, name) = long(rows, name)?;
        if !row.takes_value() {
            if value.is_some() {
                bail!("{name} takes no value");
            }
            row.apply(name, OsStr::new(""), request)?;
            return Ok(false);
        }
        let value = value.or(row.is_optional().then_some(OsStr::new("")));
        let from_next = value.is_none();
        let value = value.or(next.map(OsString::as_os_str));
        let value = value.with_context(|| missing(name, row.value))?;
        row.apply(name, value, request)?;
        return Ok(from_next);
    }
    for (at, &letter) in word.iter().enumerate().skip(1) {
        let is_short = |name: &&&str| matches!(name.as_bytes(), [b'-', short] if *short == letter);
        let found = rows
            .iter()
            .find_map(|row| Some((row, row.names.iter().find(is_short)?)));
        let (row, name) = found.with_context(|| {
            let letter = [letter];
            let letter = String::from_utf8_lossy(&letter);
            format!("-{letter} is not an option of this program")
        })?;
        if !row.takes_value() {
            row.apply(name, OsStr::new(""), request)?;
            continue;
        }
        let rest = &word[at + 1..];
        let value = if rest.is_empty() {
            next.with_context(|| missing(name, row.value))?
        } else {
            OsStr::from_bytes(rest)
        };
        row.apply(name, value, request)?;
        return Ok(rest.is_empty());
    }
    Ok(false)
}

/// The option with a long name, or with the only one that begins so.
fn long<'a, T>(rows: &[&'a OptionRow<T>], name: &[u8]) -> Result<(&'a OptionRow<T>, &'static str)> {
    let names = rows
        .iter()
        .flat_map(|&row| row.names.iter().map(move |name| (row, *name)));
    let names = names.filter(|(_, known)| known.as_bytes().starts_with(name));
    let begun: Vec<_> = names.filter(|(_, known)| known.starts_with("--")).collect();
    let words = String::from_utf8_lossy(name);
    let exact = begun.iter().find(|(_, known)| known.len() == name.len());
    match (exact, &begun[..]) {
        (Some(&(row, known)), _) | (None, &[(row, known)]) => Ok((row, known)),
        (None, []) => bail!("{words} is not an option of this program"),
        (None, several) => {
            let several: Vec<&str> = several.iter().map(|(_, known)| *known).collect();
            bail!("{words} can be {}", several.join(" or "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Seen = Vec<String>;

    fn note(seen: &mut Seen, value: &OsStr) -> Result<()> {
        if value.is_empty() {
            bail!("is empty");
        }
        seen.push(format!("value {}", value.display()));
        Ok(())
    }

    const ROWS: &[OptionRow<Seen>] = &[
        row(
            &["-f", "--force"],
            "",
            Effect::Flag(|seen| seen.push("force".into())),
        ),
        row(&["-L", "--label"], "LABEL", Effect::Value(note)),
        row(&["--leaf"], "", Effect::Accepted),
        row(&["-bad"], "", Effect::Refused),
        row(
            &["-e"],
            "FILES",
            Effect::Rest(|seen, rest| {
                seen.push(format!("rest {}", rest.len()));
                Ok(())
            }),
        ),
        row(
            &["-x"],
            "FILES ;",
            Effect::Words(|seen, words| seen.push(format!("words {}", words.len()))),
        ),
    ];

    const fn row(
        names: &'static [&'static str],
        value: &'static str,
        effect: Effect<Seen>,
    ) -> OptionRow<Seen> {
        let note = "of tests";
        OptionRow {
            names,
            value,
            effect,
            note,
        }
    }

    fn parsed(style: Style, words: &[&str]) -> Result<(Vec<OsString>, Seen), String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let mut seen = Seen::new();
        let operands = parse(ROWS, style, &words, &mut seen);
        operands
            .map(|operands| (operands, seen))
            .map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn getopt_takes_what_getopt_long_takes() {
        let all = [
            "-fLx",
            "--label=y",
            "--lab",
            "z",
            "--leaf",
            "-L",
            "w",
            "a",
            "-f",
            "--",
            "-f",
        ];
        let (operands, seen) = parsed(Style::Getopt, &all).unwrap();
        assert_eq!(operands, ["a", "-f"]);
        let values = ["force", "value x", "value y", "value z", "value w", "force"];
        assert_eq!(seen, values);
        for (words, why) in [
            (&["--l"][..], "--l can be --label or --leaf"),
            (&["-L"], "-L needs LABEL"),
            (&["--label="], "--label: is empty"),
            (&["--leaf=1"], "--leaf takes no value"),
            (&["-fz"], "-z is not an option of this program"),
            (&["--zzz"], "--zzz is not an option of this program"),
        ] {
            assert_eq!(parsed(Style::Getopt, words).unwrap_err(), why);
        }
    }

    #[test]
    fn hyphen_takes_whole_names_and_the_rest() {
        let (operands, seen) =
            parsed(Style::Hyphen, &["a", "-f", "-L", "-f", "-e", "b", "-f"]).unwrap();
        assert_eq!(operands, ["a"]);
        assert_eq!(seen, ["force", "value -f", "rest 2"]);
        assert_eq!(
            parsed(Style::Hyphen, &["-bad"]).unwrap_err(),
            "-bad is not supported: of tests"
        );
        assert!(parsed(Style::Hyphen, &["-fL"]).is_err());
    }

    #[test]
    fn no_option_stands_behind_the_first_operand() {
        let words = ["-x", "-f", "a", ";", "-f", "b", "-f"];
        let (operands, seen) = parsed(Style::HyphenFirst, &words).unwrap();
        assert_eq!(operands, ["b", "-f"]);
        assert_eq!(seen, ["words 2", "force"]);
        let error = parsed(Style::HyphenFirst, &["-x", "a"]).unwrap_err();
        assert_eq!(error, "-x needs a `;` at its end");
    }
}
