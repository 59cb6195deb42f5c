//! Modes, times and sizes as text.

use std::fmt::Write as _;

use restow::info::Layer;
use tree::{FileKind, Time};

pub(crate) use restow::text::{
    count, name, of_bytes, of_digits, of_host_path, of_kind, of_name, of_path, of_uuid, quoted,
};

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

/// Writes a number, with `fill` before it up to a width of at most 20. Formatting takes longer, and
/// a stream has a dozen for each file.
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

/// Writes a number from 0 to 99. Formatting takes several times as long, and a stream has four
/// times for each file.
fn two_digits(number: i64, text: &mut String) {
    for digit in [number / 10, number % 10] {
        text.push(char::from(b'0' + digit as u8));
    }
}

/// A number of bytes in the form of `ls -h`: at most three digits, and a suffix for a power of
/// 1024. It is rounded up.
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

/// The digest of a layer: of its stored bytes, if it is known, otherwise of the archive in them.
pub(crate) fn of_layer(layer: &Layer) -> String {
    let digest = layer.digest.or(layer.diff_id);
    digest.map_or("no digest".to_owned(), |digest| digest.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
