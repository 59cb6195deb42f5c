//! Sizes on the command line.

use anyhow::{Context, Result, bail};

/// Parses a number of bytes, with an optional suffix K, M, G, T, P or E for powers of 1024.
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
        "P" => 50,
        "E" => 60,
        _ => bail!("the suffix must be K, M, G, T, P or E"),
    };
    let number: u64 = digits
        .parse()
        .context("must be a number of bytes, optionally with K, M, G, T, P or E")?;
    number.checked_mul(1 << shift).context("too large")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_suffixes() {
        assert_eq!(bytes("16K").unwrap(), 16384);
        assert_eq!(bytes("3g").unwrap(), 3 << 30);
        assert_eq!(bytes("8E").unwrap(), 8 << 60);
        for wrong in ["", "K", "1KB", "-1", "99999999999999T"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
