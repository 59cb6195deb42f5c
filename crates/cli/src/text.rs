//! Names, modes, times and sizes as text.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tree::{FileKind, Time};

/// A path in a tree; the root is `.`.
pub(crate) fn of_path(path: &[u8]) -> String {
    if path.is_empty() {
        ".".into()
    } else {
        of_name(path)
    }
}

/// A path of this machine; `-` becomes `dash`.
pub(crate) fn of_host_path(path: &Path, dash: &str) -> String {
    if path == Path::new("-") {
        dash.into()
    } else {
        of_name(path.as_os_str().as_bytes())
    }
}

/// A name, with control characters and bytes that are not UTF-8 as `\xNN` and backslashes doubled, so that no name can look
/// like another or send commands to a terminal.
pub(crate) fn of_name(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    name(bytes, &mut text);
    text
}

/// Writes a name as [`of_name`] does.
pub(crate) fn name(name: &[u8], text: &mut String) {
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

/// Zero-width characters, line separators and marks that change the direction of writing.
fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The name of a kind of file.
pub(crate) fn of_kind(kind: FileKind) -> &'static str {
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

/// Kind and permissions in the form of `ls -l`.
pub(crate) fn of_mode(kind: FileKind, permissions: u16) -> String {
    let kind = match kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::BlockDevice => 'b',
        FileKind::CharDevice => 'c',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = permissions >> shift;
        text.push(if bits & 4 == 0 { '-' } else { 'r' });
        text.push(if bits & 2 == 0 { '-' } else { 'w' });
        text.push(match (permissions & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, false) => letter.to_ascii_uppercase(),
            (true, true) => letter,
        });
    }
    text
}

/// Date and time in UTC.
pub(crate) fn of_time(moment: Time) -> String {
    let mut text = String::new();
    time(moment, ' ', &mut text);
    text
}

/// Writes a time as [`of_time`] does, with `between` between day and hour.
pub(crate) fn time(time: Time, between: char, text: &mut String) {
    let (days, second) = (
        time.seconds.div_euclid(86400),
        time.seconds.rem_euclid(86400),
    );
    let (year, month, day) = tree::date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    if !(0..10_000).contains(&year) {
        let _ = write!(text, "{year:04}-{month:02}-{day:02}");
    } else {
        two_digits(year / 100, text);
        two_digits(year % 100, text);
        *text += "-";
        two_digits(month, text);
        *text += "-";
        two_digits(day, text);
    }
    text.push(between);
    two_digits(hour, text);
    *text += ":";
    two_digits(minute, text);
    *text += ":";
    two_digits(second, text);
}

/// Writes a number, with `fill` before it up to a width of at most 20. Formatting takes longer, and a stream has a dozen for each
/// file.
pub(crate) fn number(number: u64, fill: u8, width: usize, text: &mut String) {
    let mut digits = [fill; 20];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let digits = &digits[at.min(digits.len() - width)..];
    text.extend(digits.iter().map(|&digit| char::from(digit)));
}

/// Writes a number from 0 to 99. Formatting takes several times as long, and a stream has four times for each file.
fn two_digits(number: i64, text: &mut String) {
    for digit in [number / 10, number % 10] {
        text.push(char::from(b'0' + digit as u8));
    }
}

/// A number of bytes with a decimal unit.
pub(crate) fn of_bytes(bytes: u64) -> String {
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

/// A number of bytes in the form of `ls -h`: at most three digits, and a suffix for a power of 1024. It is rounded up.
pub(crate) fn of_size(bytes: u64) -> String {
    let (mut unit, mut shift) = ("", 0);
    for larger in ["K", "M", "G", "T", "P", "E"] {
        if bytes.div_ceil(1 << shift) < 1024 {
            break;
        }
        (unit, shift) = (larger, shift + 10);
    }
    let whole = bytes.div_ceil(1 << shift);
    let tenths = (u128::from(bytes) * 10).div_ceil(1 << shift);
    if unit.is_empty() || tenths >= 100 {
        format!("{whole}{unit}")
    } else {
        format!("{}.{}{unit}", tenths / 10, tenths % 10)
    }
}

/// A number and a noun with a regular plural: `1 file`, `2 files`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// At most `max` bytes in hexadecimal.
pub(crate) fn of_hex(bytes: &[u8], max: usize) -> String {
    let bytes = bytes.iter().take(max).map(|byte| format!("{byte:02x}"));
    bytes.collect::<Vec<_>>().join(" ")
}

/// A word for a shell.
pub(crate) fn quoted(word: &OsStr) -> String {
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
    fn numbers_are_written_as_by_the_standard_library() {
        for value in [0, 7, 10, 99, 1_234_567_890, u64::MAX] {
            for width in [0, 1, 9, 10, 20] {
                let mut text = String::new();
                number(value, b' ', width, &mut text);
                number(value, b'0', width, &mut text);
                assert_eq!(text, format!("{value:>width$}{value:0>width$}"));
            }
        }
    }

    #[test]
    fn times_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (-1, "1969-12-31 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (951_868_800, "2000-03-01 00:00:00"),
            (1_700_000_000, "2023-11-14 22:13:20"),
            (4_107_542_400, "2100-03-01 00:00:00"),
            (-2_203_891_200, "1900-03-01 00:00:00"),
            (253_402_300_799, "9999-12-31 23:59:59"),
        ] {
            assert_eq!(
                of_time(Time {
                    seconds,
                    nanoseconds: 0
                }),
                text
            );
        }
        // No time that can be stored panics.
        for seconds in [i64::MIN / 2, i64::MAX / 2] {
            of_time(Time {
                seconds,
                nanoseconds: 0,
            });
        }
    }

    #[test]
    fn modes_as_ls_shows_them() {
        assert_eq!(of_mode(FileKind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(of_mode(FileKind::Regular, 0o6654), "-rwSr-sr--");
        assert_eq!(of_mode(FileKind::Symlink, 0o777), "lrwxrwxrwx");
    }

    #[test]
    fn names_cannot_steer_the_terminal() {
        assert_eq!(of_name(b"a\x1b[2Jb\n\xff\\"), "a\\x1b[2Jb\\x0a\\xff\\\\");
        assert_eq!(of_name("naïve ✓".as_bytes()), "naïve ✓");
        assert_eq!(of_name("\u{202e}".as_bytes()), "\\xe2\\x80\\xae");
    }

    #[test]
    fn sizes_are_those_of_ls() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (1536, "1.5K"),
            (10_240, "10K"),
            (10_241, "11K"),
            (1_047_553, "1.0M"),
            (1 << 20, "1.0M"),
            (5 << 30, "5.0G"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(of_size(bytes), text, "{bytes}");
        }
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
