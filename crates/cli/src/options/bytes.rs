//! Sizes and bytes on the command line.

use anyhow::{Context, Result, bail};

const SUFFIX: &str = "must be a number of bytes, as in 4096, 16K, 1.5G, 1GiB or 2GB";

/// Parses pairs of hexadecimal digits.
pub(crate) fn hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| match *pair {
        [high, low] => Some(char::from(high).to_digit(16)? << 4 | char::from(low).to_digit(16)?),
        _ => None,
    });
    pairs.map(|byte| u8::try_from(byte?).ok()).collect()
}

/// Parses a number of bytes, such as `4096`, `16K`, `1.5G`, `1GiB` or `2GB`.
///
/// K, M, G, T, P and E, alone or as `KiB` and so on, are powers of 1024; `kB`, `MB` and so on are
/// powers of 1000. A fraction of a byte is dropped.
///
/// # Errors
/// It is not such a number, or exceeds 64 bits.
pub(crate) fn bytes(words: &str) -> Result<u64> {
    let digits = words.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = unit(&words[digits.len()..])?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let are_digits = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
    if !are_digits(whole) || !are_digits(fraction) {
        bail!(SUFFIX);
    }
    let whole: u128 = whole.parse().context("too large")?;
    // More digits than these stand for less than a byte.
    let fraction = &fraction[..fraction.len().min(18)];
    let parts: u128 = fraction.parse().context(SUFFIX)?;
    let parts = parts * unit / 10u128.pow(fraction.len() as u32);
    let number = whole.checked_mul(unit).and_then(|it| it.checked_add(parts));
    number
        .and_then(|it| u64::try_from(it).ok())
        .context("too large")
}

fn unit(suffix: &str) -> Result<u128> {
    let suffix = suffix.to_ascii_lowercase();
    let (letter, base) = match suffix.as_bytes() {
        [] | [b'b'] => return Ok(1),
        [letter] | [letter, b'i', b'b'] => (letter, 1024u128),
        [letter, b'b'] => (letter, 1000),
        _ => bail!(SUFFIX),
    };
    let power = b"kmgtpe".iter().position(|known| known == letter);
    Ok(base.pow(power.context(SUFFIX)? as u32 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_suffixes() {
        for (words, number) in [
            ("0", 0),
            ("16K", 16384),
            ("3g", 3 << 30),
            ("8E", 8 << 60),
            ("1GiB", 1 << 30),
            ("1gib", 1 << 30),
            ("2GB", 2_000_000_000),
            ("5kB", 5000),
            ("7B", 7),
            ("1.5G", 3 << 29),
            ("1.5GB", 1_500_000_000),
            ("0.1K", 102),
            ("1.0000000000000000000000001E", 1 << 60),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(bytes(words).unwrap(), number, "{words}");
        }
        for wrong in [
            "",
            "K",
            "1KiBs",
            "1Ki",
            "1X",
            "-1",
            "+1",
            "1.",
            ".5K",
            "1.5.5K",
            "1e3",
            "16E",
            "99999999999999T",
            "999999999999999999999999999999999999999999",
        ] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
