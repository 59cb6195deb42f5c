//! Use by type of file: by the last part of its name.

use std::collections::HashMap;

use super::{Amount, Visitor};
use crate::Result;
use crate::{DirEntry, FileKind, Metadata};

/// The longest ending that is a type, in bytes: longer ones are names.
const TYPE_BYTES_MAX: usize = 12;

/// The type of a file with this name: the part behind the last dot, in lower case, if it has only
/// letters and digits; empty otherwise. Numbers of versions behind `.so` are ignored.
pub fn type_of(name: &[u8]) -> Vec<u8> {
    let mut rest = name;
    while let Some(at) = rest.iter().rposition(|&byte| byte == b'.') {
        let (before, ending) = (&rest[..at], &rest[at + 1..]);
        if ending.iter().all(u8::is_ascii_digit) && is_library(before) {
            rest = before;
            continue;
        }
        let is_type = at > 0
            && (1..=TYPE_BYTES_MAX).contains(&ending.len())
            && ending.iter().all(u8::is_ascii_alphanumeric)
            && !ending.iter().all(u8::is_ascii_digit);
        return if is_type {
            ending.to_ascii_lowercase()
        } else {
            Vec::new()
        };
    }
    Vec::new()
}

/// Whether a name without its last ending is that of a library, such as `libc.so` or `libc.so.6`.
fn is_library(name: &[u8]) -> bool {
    let mut name = name;
    while let Some(at) = name.iter().rposition(|&byte| byte == b'.') {
        let ending = &name[at + 1..];
        if ending == b"so" {
            return true;
        }
        if ending.is_empty() || !ending.iter().all(u8::is_ascii_digit) {
            return false;
        }
        name = &name[..at];
    }
    false
}

/// Collects the use by type.
#[derive(Debug, Default)]
pub struct Types {
    types: HashMap<Vec<u8>, (u64, Amount)>,
}

impl Types {
    /// The types with their numbers of files and amounts, the one with the most stored bytes first.
    pub fn sorted(&self) -> Vec<(&[u8], u64, Amount)> {
        let types = self.types.iter();
        let mut types: Vec<_> = types
            .map(|(name, (files, amount))| (&**name, *files, *amount))
            .collect();
        types.sort_unstable_by(|a, b| (b.2.stored, a.0).cmp(&(a.2.stored, b.0)));
        types
    }
}

impl Visitor for Types {
    fn enter(&mut self, _: &DirEntry, _: &Metadata) -> Result<()> {
        Ok(())
    }

    fn file(&mut self, entry: &DirEntry, _: &Metadata, amount: &Amount) -> Result<()> {
        if entry.kind == FileKind::Regular {
            let (files, sum) = self.types.entry(type_of(&entry.name)).or_default();
            *files += 1;
            sum.add(amount);
        }
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_a_short_ending() {
        for (name, kind) in [
            ("a.TXT", "txt"),
            ("archive.tar.gz", "gz"),
            ("libc.so", "so"),
            ("libc.so.6", "so"),
            ("libstdc++.so.6.0.30", "so"),
            ("python3.11", ""),
            ("ls", ""),
            (".profile", ""),
            ("x.", ""),
            ("a.b c", ""),
            ("mail.1700000000", ""),
            ("file.averyveryverylongending", ""),
            ("page.1.gz", "gz"),
            ("a.so.x", "x"),
            ("a.7z", "7z"),
        ] {
            assert_eq!(type_of(name.as_bytes()), kind.as_bytes(), "{name}");
        }
        assert_eq!(type_of(b"a.\xff"), b"");
    }
}
