//! Points in time on the command line.

use anyhow::{Context, Result, bail};

const FORM: &str = "must be a date such as 2020-01-01 or 2020-01-01T12:30:00Z (in UTC), or seconds since 1970 such as @0";

/// Parses a point in time as seconds since 1970: `2020-01-01`, `2020-01-01T12:30`, `2020-01-01
/// 12:30:00Z`, `@0` or `0`.
///
/// # Errors
/// It has another form, or there is no such day.
pub(crate) fn seconds(words: &str) -> Result<i64> {
    let number = words.strip_prefix('@').unwrap_or(words);
    if let Ok(seconds) = number.parse() {
        return Ok(seconds);
    }
    let words = words.strip_suffix('Z').unwrap_or(words);
    let (date, time) = words.split_once(['T', ' ']).unwrap_or((words, "00:00:00"));
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let time = match time.len() {
        5 => format!("{time}:00"),
        _ => time.to_owned(),
    };
    let [hour, minute, second] = numbers(&time, ':', [2, 2, 2])?;
    if hour > 23 || minute > 59 || second > 59 {
        bail!(FORM);
    }
    let days = tree::days(year, month, day).context("there is no such day")?;
    Ok(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// Three numbers with these numbers of digits.
fn numbers(words: &str, between: char, digits: [usize; 3]) -> Result<[i64; 3]> {
    let mut parts = words.split(between);
    let mut all = [0; 3];
    for (number, digits) in all.iter_mut().zip(digits) {
        let part = parts.next().unwrap_or_default();
        if part.len() != digits || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            bail!(FORM);
        }
        *number = part.parse().context(FORM)?;
    }
    if parts.next().is_some() {
        bail!(FORM);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_numbers_are_moments() {
        for (words, expected) in [
            ("0", 0),
            ("@0", 0),
            ("-1", -1),
            ("@-1", -1),
            ("@1700000000", 1_700_000_000),
            ("1970-01-01", 0),
            ("2020-01-01", 1_577_836_800),
            ("2000-02-29", 951_782_400),
            ("2000-03-01T00:00", 951_868_800),
            ("2023-11-14T22:13:20Z", 1_700_000_000),
            ("2023-11-14 22:13:20", 1_700_000_000),
            ("1900-03-01", -2_203_891_200),
            ("0000-12-31", -62_135_683_200),
            ("9999-12-31T23:59:59", 253_402_300_799),
        ] {
            assert_eq!(seconds(words).unwrap(), expected, "{words}");
        }
        for wrong in [
            "",
            "@",
            "x",
            "2020",
            "2020-1-1",
            "2020-13-01",
            "2020-00-01",
            "2021-02-29",
            "2020-01-32",
            "2020-01-00",
            "2020-01-01T24:00",
            "2020-01-01T1:00",
            "2020-01-01-01",
            "99999999999999999999",
        ] {
            // A year alone is a number of seconds.
            assert_eq!(seconds(wrong).is_ok(), wrong == "2020", "{wrong}");
        }
    }
}
