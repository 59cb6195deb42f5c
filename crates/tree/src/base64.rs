//! Base64, the encoding of extended attribute values in text files.

/// Decodes Base64 (RFC 4648, section 4), with or without padding. `None` if `text` is not Base64.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
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

/// Encodes as Base64 (RFC 4648, section 4), with padding.
pub fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 0x3f;
            let is_padding = digit > group.len();
            let letter = if is_padding {
                b'='
            } else {
                DIGITS[value as usize]
            };
            text.push(char::from(letter));
        }
    }
    text
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
            assert_eq!(
                encode(bytes.as_bytes()).trim_end_matches('='),
                text.trim_end_matches('=')
            );
            assert!(encode(bytes.as_bytes()).len().is_multiple_of(4));
        }
        for bad in ["Z", "Zm9vY", "Z===", "Zm 9v", "====", "Zm9v==="] {
            assert_eq!(decode(bad.as_bytes()), None, "{bad}");
        }
    }
}
