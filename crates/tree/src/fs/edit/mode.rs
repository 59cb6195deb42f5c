//! Changes of permissions, in the syntax of `chmod`.

use crate::{Error, Result};

/// A change of permissions: octal, as in `755`, or symbolic, as in `u=rwX,go-w`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeChange(Vec<Clause>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clause {
    /// The bits that it can change.
    who: u16,
    operator: Operator,
    /// The permissions, for user, group and others alike, and the set-ID and sticky bits.
    bits: u16,
    /// `X`: execute permission for directories and for files that someone can execute already.
    execute_if_any: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Remove,
    Set,
}

const NOT_A_MODE: Error = Error::InvalidInput("not a mode such as 755 or u=rwX,go-w");

impl ModeChange {
    /// Parses a change.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if `words` is not a valid change.
    pub fn parse(words: &str) -> Result<ModeChange> {
        if words.starts_with(|c: char| c.is_ascii_digit()) {
            let bits = u16::from_str_radix(words, 8)
                .ok()
                .filter(|&bits| bits <= 0o7777);
            return Ok(ModeChange(vec![Clause {
                who: 0o7777,
                operator: Operator::Set,
                bits: bits.ok_or(NOT_A_MODE)?,
                execute_if_any: false,
            }]));
        }
        let clauses = words
            .split(',')
            .map(Clause::parse)
            .collect::<Result<Vec<_>>>()?;
        Ok(ModeChange(clauses))
    }

    /// The permissions of a file or directory after the change.
    pub fn apply(&self, permissions: u16, is_directory: bool) -> u16 {
        self.0.iter().fold(permissions, |mode, clause| {
            let mut bits = clause.bits;
            if clause.execute_if_any && (is_directory || mode & 0o111 != 0) {
                bits |= 0o111;
            }
            bits &= clause.who;
            match clause.operator {
                Operator::Add => mode | bits,
                Operator::Remove => mode & !bits,
                Operator::Set => mode & !clause.who | bits,
            }
        })
    }
}

impl Clause {
    fn parse(words: &str) -> Result<Clause> {
        let operator_at = words.find(['+', '-', '=']).ok_or(NOT_A_MODE)?;
        let (who_words, rest) = words.split_at(operator_at);
        let mut who = 0;
        for letter in who_words.chars() {
            who |= match letter {
                'u' => 0o4700,
                'g' => 0o2070,
                'o' => 0o0007,
                'a' => 0o7777,
                _ => return Err(NOT_A_MODE),
            };
        }
        let mut letters = rest.chars();
        let operator = match letters.next() {
            Some('+') => Operator::Add,
            Some('-') => Operator::Remove,
            _ => Operator::Set,
        };
        let (mut bits, mut execute_if_any) = (0, false);
        for letter in letters {
            bits |= match letter {
                'r' => 0o444,
                'w' => 0o222,
                'x' => 0o111,
                's' => 0o6000,
                't' => 0o1000,
                'X' => {
                    execute_if_any = true;
                    0
                }
                _ => return Err(NOT_A_MODE),
            };
        }
        // The sticky bit belongs to no class of users.
        let who = if who == 0 {
            0o7777
        } else {
            who | bits & 0o1000
        };
        Ok(Clause {
            who,
            operator,
            bits,
            execute_if_any,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_change_as_chmod_changes_them() {
        for (change, before, is_directory, after) in [
            ("755", 0o4600, false, 0o755),
            ("0", 0o7777, false, 0),
            ("7777", 0, false, 0o7777),
            ("u=rwX,go=rX", 0o4711, false, 0o755),
            ("u=rwX,go=rX", 0o600, false, 0o644),
            ("u=rwX,go=rX", 0o600, true, 0o755),
            ("go-w", 0o666, false, 0o644),
            ("a+r", 0o200, false, 0o644),
            ("+x", 0o644, false, 0o755),
            ("u+s,o+t", 0o755, false, 0o5755),
            ("u=", 0o4777, false, 0o077),
        ] {
            let parsed = ModeChange::parse(change).unwrap();
            assert_eq!(
                parsed.apply(before, is_directory),
                after,
                "{change} of {before:o}"
            );
        }
        for wrong in ["", "8", "77777", "rwx", "z+x", "u+y", "u=rw,"] {
            assert!(ModeChange::parse(wrong).is_err(), "{wrong}");
        }
    }
}
