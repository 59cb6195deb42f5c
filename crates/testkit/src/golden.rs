//! Golden files: reviewed output of the program, which it must reproduce.

use std::path::Path;
use std::{env, fs, io};

/// Compares `got` with the committed file `expected`.
///
/// With `RESTOW_UPDATE=1` the file is written instead; review it with `git diff`.
///
/// # Panics
///
/// If they differ or the file does not exist; the message shows the first line that differs.
pub fn golden(expected: impl AsRef<Path>, got: impl AsRef<[u8]>) {
    if let Err(difference) = compare(expected.as_ref(), got.as_ref(), updates()) {
        panic!("{difference}");
    }
}

/// Whether to rewrite committed files: `RESTOW_UPDATE=1`.
pub fn updates() -> bool {
    env::var_os("RESTOW_UPDATE").is_some_and(|value| value == "1")
}

fn compare(path: &Path, got: &[u8], update: bool) -> Result<(), String> {
    let name = path.display();
    let expected = match fs::read(path) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(format!("read {name}: {error}")),
    };
    if expected.as_deref() == Some(got) {
        return Ok(());
    }
    if update {
        return fs::write(path, got).map_err(|error| format!("write {name}: {error}"));
    }
    let Some(expected) = expected else {
        return Err(format!("{name} does not exist; RESTOW_UPDATE=1 writes it"));
    };
    let mut lines = (expected.split(|b| *b == b'\n')).zip(got.split(|b| *b == b'\n'));
    // If one is the beginning of the other, the difference is the line that only one of them has.
    let common = lines.position(|(old, new)| old != new).unwrap_or_else(|| {
        let newlines = |bytes: &[u8]| bytes.iter().filter(|b| **b == b'\n').count();
        newlines(&expected).min(newlines(got)) + 1
    });
    let line = |bytes: &[u8]| match bytes.split(|b| *b == b'\n').nth(common) {
        Some(line) => String::from_utf8_lossy(line).into_owned(),
        None => "(end of file)".to_owned(),
    };
    Err(format!(
        "{name}, line {}:\n  expected {}\n       got {}\nRESTOW_UPDATE=1 accepts the new content",
        common + 1,
        line(&expected),
        line(got)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TempDir;

    #[test]
    fn missing_file_is_a_failure_that_says_how_to_make_it() {
        let dir = TempDir::new();
        let error = compare(&dir.join("a.txt"), b"x", false).unwrap_err();
        assert!(
            error.ends_with("a.txt does not exist; RESTOW_UPDATE=1 writes it"),
            "{error}"
        );
    }

    #[test]
    fn update_writes_and_then_all_is_equal() {
        let dir = TempDir::new();
        let path = dir.join("a.txt");
        compare(&path, b"one\ntwo\n", true).unwrap();
        compare(&path, b"one\ntwo\n", false).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one\ntwo\n");
    }

    #[test]
    fn difference_names_the_line() {
        let dir = TempDir::new();
        let path = dir.join("a.txt");
        fs::write(&path, "one\ntwo\nthree\n").unwrap();
        let changed = compare(&path, b"one\n2\nthree\n", false).unwrap_err();
        assert!(
            changed.contains("line 2:\n  expected two\n       got 2\n"),
            "{changed}"
        );
        let shorter = compare(&path, b"one\ntwo\nthree", false).unwrap_err();
        assert!(
            shorter.contains("line 4:\n  expected \n       got (end of file)\n"),
            "{shorter}"
        );
        assert_eq!(
            fs::read(&path).unwrap(),
            b"one\ntwo\nthree\n",
            "only an update writes"
        );
    }
}
