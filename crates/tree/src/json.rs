//! JSON (RFC 8259): writes objects, and parses objects of strings and unsigned integers.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::fmt::{Display, Write as _};

use crate::{Time, base64};

/// An object under construction: one line, keys in the order of the calls.
///
/// ```
/// use tree::json::Object;
///
/// let line = Object::new().number("size_bytes", 5_u32).name("path", b"a").line();
/// assert_eq!(line, r#"{"size_bytes":5,"path":"a"}"#);
/// ```
#[derive(Debug)]
pub struct Object(String);

impl Default for Object {
    fn default() -> Object {
        Object::new()
    }
}

impl Object {
    /// An object without fields.
    pub fn new() -> Object {
        Object("{".to_owned())
    }

    /// The first object of an output: its form and the version of that.
    pub fn of_schema(name: &str, version: u32) -> Object {
        Object::new().text("schema", &format!("restow.{name}/{version}"))
    }

    /// Adds an integer, which may be negative.
    pub fn number(self, key: &str, number: impl Into<i128>) -> Object {
        self.raw(key, number.into())
    }

    /// Adds a number with three decimals.
    pub fn fraction(self, key: &str, number: f64) -> Object {
        // JSON has no infinity.
        let number = if number.is_finite() { number } else { 0.0 };
        self.raw(key, format_args!("{number:.3}"))
    }

    /// Adds a number as exact as it is; `null` for infinity, which JSON does not have.
    pub fn decimal(self, key: &str, number: f64) -> Object {
        if number.is_finite() {
            self.raw(key, number)
        } else {
            self.null(key)
        }
    }

    /// Adds `null`.
    pub fn null(self, key: &str) -> Object {
        self.raw(key, "null")
    }

    /// Adds a boolean.
    pub fn flag(self, key: &str, is_so: bool) -> Object {
        self.raw(key, is_so)
    }

    /// Adds a string.
    pub fn text(mut self, key: &str, text: &str) -> Object {
        self.key(key);
        self.push_text(text);
        self
    }

    /// Adds a name of any bytes: a string if it is UTF-8, otherwise Base64 with `_base64` behind
    /// the key.
    pub fn name(self, key: &str, name: &[u8]) -> Object {
        match str::from_utf8(name) {
            Ok(text) => self.text(key, text),
            Err(_) => self.base64(&format!("{key}_base64"), name),
        }
    }

    /// Adds a string that is the Base64 of these bytes.
    pub fn base64(self, key: &str, bytes: &[u8]) -> Object {
        self.raw(key, format_args!("\"{}\"", base64::encode(bytes)))
    }

    /// Adds a time: seconds since 1970, a dot, and nine digits of nanoseconds.
    pub fn time(self, key: &str, time: Time) -> Object {
        let Time {
            seconds,
            nanoseconds,
        } = time;
        self.raw(key, format_args!("\"{seconds}.{nanoseconds:09}\""))
    }

    /// Adds an object.
    pub fn object(self, key: &str, object: Object) -> Object {
        self.raw(key, object.line())
    }

    /// Adds a list of objects.
    pub fn list(self, key: &str, objects: impl IntoIterator<Item = Object>) -> Object {
        self.list_of(key, objects, |to, object| to.0 += &object.line())
    }

    /// Adds a list of integers.
    pub fn numbers(self, key: &str, numbers: impl IntoIterator<Item = u32>) -> Object {
        self.list_of(key, numbers, |to, number| to.0 += &number.to_string())
    }

    /// Adds a list of strings.
    pub fn texts<'a>(self, key: &str, texts: impl IntoIterator<Item = &'a str>) -> Object {
        self.list_of(key, texts, Object::push_text)
    }

    /// The object, without a line feed.
    pub fn line(mut self) -> String {
        self.0.push('}');
        self.0
    }

    fn list_of<T>(
        mut self,
        key: &str,
        values: impl IntoIterator<Item = T>,
        mut push: impl FnMut(&mut Object, T),
    ) -> Object {
        self.key(key);
        let mut separator = '[';
        for value in values {
            self.0.push(separator);
            push(&mut self, value);
            separator = ',';
        }
        if separator == '[' {
            self.0.push('[');
        }
        self.0.push(']');
        self
    }

    fn raw(mut self, key: &str, value: impl Display) -> Object {
        self.key(key);
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{value}");
        self
    }

    fn key(&mut self, key: &str) {
        let comma = if self.0.len() > 1 { "," } else { "" };
        for part in [comma, "\"", key, "\":"] {
            self.0 += part;
        }
    }

    fn push_text(&mut self, text: &str) {
        let to = &mut self.0;
        to.push('"');
        for letter in text.chars() {
            match letter {
                '"' => to.push_str("\\\""),
                '\\' => to.push_str("\\\\"),
                '\n' => to.push_str("\\n"),
                '\t' => to.push_str("\\t"),
                // No escaped character needs a surrogate pair.
                _ if letter.is_control() || is_invisible(letter) => {
                    let _ = write!(to, "\\u{:04x}", u32::from(letter));
                }
                _ => to.push(letter),
            }
        }
        to.push('"');
    }
}

/// Whether a letter changes how others look, but cannot be seen itself: zero-width characters, line
/// separators and marks that change the direction of writing.
pub fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The value of a parsed field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// An unsigned integer.
    Number(u64),
    /// A string.
    Text(String),
}

/// Parses an object whose values are strings and unsigned integers. `None` if `text` is none.
pub fn parse_object(text: &[u8]) -> Option<Vec<(String, Scalar)>> {
    let mut rest = str::from_utf8(text).ok()?.trim();
    rest = rest.strip_prefix('{')?.trim_start();
    let mut fields = Vec::new();
    if rest == "}" {
        return Some(fields);
    }
    loop {
        let (key, after) = parse_string(rest)?;
        rest = after.trim_start().strip_prefix(':')?.trim_start();
        let value;
        if rest.starts_with('"') {
            let (text, after) = parse_string(rest)?;
            (value, rest) = (Scalar::Text(text), after);
        } else {
            let end = rest.find(|it: char| !it.is_ascii_digit())?;
            let (digits, after) = rest.split_at(end);
            (value, rest) = (Scalar::Number(digits.parse().ok()?), after);
        }
        fields.push((key, value));
        rest = rest.trim_start();
        if rest == "}" {
            return Some(fields);
        }
        rest = rest.strip_prefix(',')?.trim_start();
    }
}

/// Takes the four hexadecimal digits of a UTF-16 code unit.
fn code_unit(rest: &mut &str) -> Option<u16> {
    let (digits, after) = rest.split_at_checked(4)?;
    *rest = after;
    // `from_str_radix` accepts a sign.
    let is_hex = digits.bytes().all(|it| it.is_ascii_hexdigit());
    u16::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

/// Parses a string. Returns it with the rest of the text.
fn parse_string(text: &str) -> Option<(String, &str)> {
    let mut rest = text.strip_prefix('"')?;
    let mut parsed = String::new();
    loop {
        let end = rest.find(['"', '\\'])?;
        let (plain, after) = rest.split_at(end);
        parsed.push_str(plain);
        if let Some(after) = after.strip_prefix('"') {
            return Some((parsed, after));
        }
        let mut letters = after.strip_prefix('\\')?.chars();
        let letter = letters.next()?;
        rest = letters.as_str();
        parsed.push(match letter {
            '"' | '\\' | '/' => letter,
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let first = code_unit(&mut rest)?;
                let mut units = vec![first];
                if (0xd800..0xdc00).contains(&first) {
                    rest = rest.strip_prefix("\\u")?;
                    units.push(code_unit(&mut rest)?);
                }
                char::decode_utf16(units).next()?.ok()?
            }
            _ => return None,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_parsed_as_others_write_them() {
        let text = |text: &str| Scalar::Text(text.to_owned());
        let parsed = parse_object(
            b" { \"a\" : 18446744073709551615 , \"b\":\"\\u00e9\\ud83d\\ude00\\n\\/\\\"\" }\n",
        );
        let expected = vec![
            ("a".to_owned(), Scalar::Number(u64::MAX)),
            ("b".to_owned(), text("\u{e9}\u{1f600}\n/\"")),
        ];
        assert_eq!(parsed, Some(expected));
        assert_eq!(parse_object(b"{}"), Some(Vec::new()));
        for bad in [
            "",
            "{",
            "{}x",
            "[]",
            "{\"a\":-1}",
            "{\"a\":1",
            "{\"a\"}",
            "{\"a\":\"\\ud800\"}",
            "{\"a\":\"\\x\"}",
            "{\"a\":18446744073709551616}",
            "{\"a\":1,}",
            "{\"a\":\"}",
        ] {
            assert_eq!(parse_object(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn strings_are_written_so_that_they_read_back() {
        let all: String = ('\0'..='\u{2ff}').collect();
        let line = Object::new().text("k", &all).line();
        assert!(!line.contains('\n'));
        assert_eq!(
            parse_object(line.as_bytes()),
            Some(vec![("k".to_owned(), Scalar::Text(all))])
        );
    }

    #[test]
    fn values_of_every_kind() {
        let time = Time {
            seconds: -1,
            nanoseconds: 5,
        };
        let object = Object::of_schema("test", 1)
            .number("n", u64::MAX)
            .number("m", -3)
            .fraction("f", f64::INFINITY)
            .decimal("d", 1.5e12)
            .decimal("i", f64::INFINITY)
            .flag("is", true)
            .name("a", "é\"\n".as_bytes())
            .name("b", b"\xff")
            .time("t", time)
            .object("o", Object::new())
            .list("l", [Object::new(), Object::new().number("x", 1)])
            .list("e", [])
            .numbers("v", [1, 2])
            .texts("s", ["p", "q"]);
        assert_eq!(
            object.line(),
            "{\"schema\":\"restow.test/1\",\"n\":18446744073709551615,\"m\":-3,\"f\":0.000,\"d\":1500000000000,\"i\":null,\"is\":true,\"a\":\"é\\\"\\n\",\
             \"b_base64\":\"/w==\",\"t\":\"-1.000000005\",\"o\":{},\"l\":[{},{\"x\":1}],\"e\":[],\"v\":[1,2],\"s\":[\"p\",\"q\"]}"
        );
    }
}
