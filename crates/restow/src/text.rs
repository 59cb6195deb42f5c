//! Names, numbers and kinds of files in words.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tree::FileKind;
use tree::json::is_invisible;

use crate::object;

/// A path in a tree; the root is `.`.
pub fn of_path(path: &[u8]) -> String {
    if path.is_empty() {
        ".".into()
    } else {
        of_name(path)
    }
}

/// A path of this machine; `-` becomes `dash`.
pub fn of_host_path(path: &Path, dash: &str) -> String {
    if path == Path::new("-") {
        dash.into()
    } else if let Some(address) = object::redacted(path) {
        of_name(address.as_bytes())
    } else {
        of_name(path.as_os_str().as_bytes())
    }
}

/// A name, with control characters and bytes that are not UTF-8 as `\xNN` and backslashes doubled,
/// so that no name can look like another or send commands to a terminal.
pub fn of_name(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    name(bytes, &mut text);
    text
}

/// Writes a name as [`of_name`] does.
pub fn name(name: &[u8], text: &mut String) {
    // Not `all`, which would go byte by byte.
    let is_plain = (name.iter()).fold(true, |plain, &it| {
        plain & matches!(it, b' '..=b'~') & (it != b'\\')
    });
    if is_plain && let Ok(name) = str::from_utf8(name) {
        *text += name;
        return;
    }
    for chunk in name.utf8_chunks() {
        letters(chunk.valid(), text);
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
}

fn letters(valid: &str, text: &mut String) {
    for letter in valid.chars() {
        match letter {
            '\\' => *text += "\\\\",
            _ if letter.is_control() || is_invisible(letter) => {
                let mut bytes = [0; 4];
                for byte in letter.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(text, "\\x{byte:02x}");
                }
            }
            _ => text.push(letter),
        }
    }
}

/// The name of a kind of file.
pub fn of_kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::BlockDevice => "block device",
        FileKind::CharDevice => "character device",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
    }
}

/// A number of bytes with a decimal unit.
pub fn of_bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "kB", "MB", "GB", "TB", "PB"] {
        if value < 999.5 {
            let places = if unit == "B" || value >= 99.95 { 0 } else { 1 };
            return format!("{value:.places$} {unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.1} EB")
}

/// A number and a noun with a regular plural: `1 file`, `2 files`.
pub fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// At most `max` bytes in hexadecimal.
pub fn of_hex(bytes: &[u8], max: usize) -> String {
    let bytes = bytes.iter().take(max).map(|byte| format!("{byte:02x}"));
    bytes.collect::<Vec<_>>().join(" ")
}

/// Bytes as hexadecimal digits.
pub fn of_digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A word for a shell.
pub fn quoted(word: &OsStr) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-./:@%+=,".contains(byte);
    let bytes = word.as_bytes();
    let before = if bytes.starts_with(b"-") && bytes.len() > 1 {
        "./"
    } else {
        ""
    };
    if !bytes.is_empty() && bytes.iter().all(is_plain) {
        return format!("{before}{}", word.to_string_lossy());
    }
    match word.to_str() {
        Some(text) if !text.chars().any(char::is_control) => {
            format!("{before}'{}'", text.replace('\'', "'\\''"))
        }
        _ => {
            let mut escaped = String::new();
            for &byte in bytes {
                match byte {
                    b' '..=b'~' if byte != b'\'' && byte != b'\\' => escaped.push(byte.into()),
                    _ => escaped += &format!("\\x{byte:02x}"),
                }
            }
            format!("$'{before}{escaped}'")
        }
    }
}

/// A UUID in its usual form.
pub fn of_uuid(uuid: &[u8; 16]) -> String {
    let mut words = String::new();
    for (at, byte) in uuid.iter().enumerate() {
        let dash = if matches!(at, 4 | 6 | 8 | 10) {
            "-"
        } else {
            ""
        };
        words += &format!("{dash}{byte:02x}");
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        for (word, wanted) in [
            (&b"usr/lib"[..], "usr/lib"),
            (b"a b", "'a b'"),
            (b"it's", "'it'\\''s'"),
            (b"-x", "./-x"),
            (b"a\xff\n", "$'a\\xff\\x0a'"),
            (b"", "''"),
        ] {
            assert_eq!(quoted(OsStr::from_bytes(word)), wanted);
        }
    }

    #[test]
    fn names_cannot_steer_the_terminal() {
        assert_eq!(of_name(b"a\x1b[2Jb\n\xff\\"), "a\\x1b[2Jb\\x0a\\xff\\\\");
        assert_eq!(of_name("naïve ✓".as_bytes()), "naïve ✓");
        assert_eq!(of_name("\u{202e}".as_bytes()), "\\xe2\\x80\\xae");
    }

    #[test]
    fn sizes_have_three_digits_at_most() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (99_940, "99.9 kB"),
            (99_960, "100 kB"),
            (999_600, "1.0 MB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(of_bytes(bytes), text);
        }
    }
}
