//! Base64, the encoding of extended attribute values in text files.

/// Decodes Base64 (RFC 4648, section 4), with or without padding. `None` if `text` is not Base64.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text
        .iter()
        .rposition(|&byte| byte != b'=')
        .map_or(0, |last| last + 1);
    if digits % 4 == 1 || text.len() - digits > 2 {
        return None;
    }
    let (mut bits, mut held) = (0u32, 0);
    let mut decoded = Vec::with_capacity(digits / 4 * 3 + 2);
    for &byte in &text[..digits] {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            decoded.push((bits >> held & 0xff) as u8);
        }
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_that_of_rfc_4648() {
        for (text, bytes) in [
            ("", ""),
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg", "foob"),
        ] {
            assert_eq!(decode(text.as_bytes()).unwrap(), bytes.as_bytes());
        }
        for bad in ["Z", "Zm9vY", "Z===", "Zm 9v", "====", "Zm9v==="] {
            assert_eq!(decode(bad.as_bytes()), None, "{bad}");
        }
    }
}
