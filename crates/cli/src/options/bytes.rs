//! Sizes on the command line.

use anyhow::{Context, Result, bail};

/// Parses a number of bytes, with an optional suffix K, M, G or T for powers of 1024.
///
/// # Errors
/// It is not such a number, or exceeds 64 bits.
pub(crate) fn bytes(words: &str) -> Result<u64> {
    let digits = words.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match words[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => bail!("the suffix must be K, M, G or T"),
    };
    let number: u64 = digits
        .parse()
        .context("must be a number of bytes, optionally with K, M, G or T")?;
    number.checked_mul(1 << shift).context("too large")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_suffixes() {
        assert_eq!(bytes("16K").unwrap(), 16384);
        assert_eq!(bytes("3g").unwrap(), 3 << 30);
        for wrong in ["", "K", "1KB", "-1", "99999999999999T"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
