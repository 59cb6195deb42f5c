//! Times and rates on the command line.

use anyhow::{Context, Result, bail};

/// Parses a time, such as `90`, `90s`, `1.5m` or `1h30m`, into seconds.
///
/// # Errors
/// It is no such time, or 0.
pub(super) fn seconds(words: &str) -> Result<f64> {
    let wrong = "must be a time, as in 90s, 5m or 1h30m";
    let (mut total, mut rest) = (0.0, words);
    while !rest.is_empty() {
        let digits = rest.trim_start_matches(|it: char| it.is_ascii_digit() || it == '.');
        let number: f64 = rest[..rest.len() - digits.len()].parse().context(wrong)?;
        let (unit, after) = match digits.as_bytes() {
            [] => (1.0, digits),
            [b's', ..] => (1.0, &digits[1..]),
            [b'm', ..] => (60.0, &digits[1..]),
            [b'h', ..] => (3600.0, &digits[1..]),
            _ => bail!(wrong),
        };
        total += number * unit;
        rest = after;
    }
    if total <= 0.0 || !total.is_finite() {
        bail!(wrong);
    }
    Ok(total)
}

/// Parses a rate into bytes a second: bytes, as in `12MB`, or bits, as in `100Mbit`, either with
/// `/s` or without.
///
/// # Errors
/// It is no such rate, or 0.
pub(super) fn rate(words: &str) -> Result<f64> {
    let wrong = "must be bytes or bits a second, as in 12MB or 100Mbit";
    let words = words.strip_suffix("/s").unwrap_or(words);
    let small = words.to_ascii_lowercase();
    let rate = match small.strip_suffix("bit") {
        Some(number) => {
            let digits = number.trim_end_matches(|it: char| it.is_ascii_alphabetic());
            let unit = match &number[digits.len()..] {
                "" => 1e0,
                "k" => 1e3,
                "m" => 1e6,
                "g" => 1e9,
                _ => bail!(wrong),
            };
            digits.parse::<f64>().context(wrong)? * unit / 8.0
        }
        None => crate::options::bytes(words).context(wrong)? as f64,
    };
    if rate < 1.0 || !rate.is_finite() {
        bail!(wrong);
    }
    Ok(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_rates_have_units() {
        for (words, wanted) in [
            ("90", 90.0),
            ("90s", 90.0),
            ("1.5m", 90.0),
            ("1h30m", 5400.0),
            ("2m5s", 125.0),
        ] {
            assert_eq!(seconds(words).unwrap(), wanted, "{words}");
        }
        for wrong in ["", "0", "s", "-1", "1d", "m5", "inf"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        for (words, wanted) in [
            ("100Mbit", 12.5e6),
            ("1Gbit/s", 125e6),
            ("8kbit", 1000.0),
            ("12MB", 12e6),
            ("1M/s", 1_048_576.0),
            ("500", 500.0),
        ] {
            assert_eq!(rate(words).unwrap(), wanted, "{words}");
        }
        for wrong in ["", "0", "fast", "5xbit", "-1Mbit", "bit"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
