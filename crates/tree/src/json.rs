//! JSON (RFC 8259), written and parsed.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::fmt::{self, Display, Write as _};

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

    /// Adds a value that was parsed.
    pub fn json(self, key: &str, value: &Json) -> Object {
        self.raw(key, value)
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
        // Writing to a string cannot fail.
        let _ = write_text(&mut self.0, text);
    }
}

/// Writes a string with its quotes.
fn write_text(to: &mut impl fmt::Write, text: &str) -> fmt::Result {
    to.write_char('"')?;
    for letter in text.chars() {
        match letter {
            '"' => to.write_str("\\\"")?,
            '\\' => to.write_str("\\\\")?,
            '\n' => to.write_str("\\n")?,
            '\t' => to.write_str("\\t")?,
            // No escaped character needs a surrogate pair.
            _ if letter.is_control() || is_invisible(letter) => {
                write!(to, "\\u{:04x}", u32::from(letter))?;
            }
            _ => to.write_char(letter)?,
        }
    }
    to.write_char('"')
}

/// Whether a letter changes how others look, but cannot be seen itself: zero-width characters, line
/// separators and marks that change the direction of writing.
pub fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Lists and objects that may lie within each other.
const DEPTH_MAX: u32 = 32;

/// A parsed value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json {
    /// An unsigned integer.
    Number(u64),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Json>),
    /// An object, in the order of the text.
    Object(Vec<(String, Json)>),
    /// `null`, a boolean, or a number that is no unsigned integer of 64 bits: the word of the text.
    Other(Box<str>),
}

/// The value in one line, with the fields of objects in their order.
impl Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Number(number) => write!(f, "{number}"),
            Json::Text(text) => write_text(f, text),
            Json::List(values) => {
                for (comma, value) in separators('[').zip(values) {
                    write!(f, "{comma}{value}")?;
                }
                f.write_str(if values.is_empty() { "[]" } else { "]" })
            }
            Json::Object(fields) => {
                for (comma, (key, value)) in separators('{').zip(fields) {
                    f.write_char(comma)?;
                    write_text(f, key)?;
                    write!(f, ":{value}")?;
                }
                f.write_str(if fields.is_empty() { "{}" } else { "}" })
            }
            Json::Other(word) => f.write_str(word),
        }
    }
}

/// The bracket before the first item, and the commas before the others.
fn separators(bracket: char) -> impl Iterator<Item = char> {
    std::iter::once(bracket).chain(std::iter::repeat(','))
}

impl Json {
    /// Parses a text of one value. `None` if it is not JSON, or nested too deeply. Memory is at
    /// most 32 times the text.
    pub fn parse(text: &[u8]) -> Option<Json> {
        let mut rest = str::from_utf8(text).ok()?.trim_start_matches(SPACE);
        let value = parse_value(&mut rest, DEPTH_MAX)?;
        rest.is_empty().then_some(value)
    }

    /// The field of an object with this name, the last one if there are several.
    pub fn field(&self, name: &str) -> Option<&Json> {
        match self {
            Json::Object(fields) => fields.iter().rfind(|(key, _)| key == name).map(|it| &it.1),
            _ => None,
        }
    }

    /// Sets a field of an object. Other values stay as they are.
    pub fn set(&mut self, name: &str, value: Json) {
        if let Json::Object(fields) = self {
            match fields.iter_mut().rfind(|(key, _)| key == name) {
                Some(field) => field.1 = value,
                None => fields.push((name.to_owned(), value)),
            }
        }
    }

    /// The string in this field.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.field(name)? {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The list in this field; an empty one if there is none.
    pub fn list(&self, name: &str) -> &[Json] {
        match self.field(name) {
            Some(Json::List(values)) => values,
            _ => &[],
        }
    }

    /// The strings of the list in this field.
    pub fn texts(&self, name: &str) -> Vec<String> {
        let texts = self.list(name).iter().filter_map(|value| match value {
            Json::Text(text) => Some(text.clone()),
            _ => None,
        });
        texts.collect()
    }
}

const SPACE: [char; 4] = [' ', '\t', '\n', '\r'];

/// Takes a value and the space behind it.
fn parse_value(rest: &mut &str, depth: u32) -> Option<Json> {
    let depth = depth.checked_sub(1)?;
    let value = match rest.bytes().next()? {
        b'"' => Json::Text(parse_string(rest)?),
        b'[' => {
            let mut values = Vec::new();
            parse_items(rest, ('[', ']'), |rest| {
                values.push(parse_value(rest, depth)?);
                Some(())
            })?;
            Json::List(values)
        }
        b'{' => {
            let mut fields = Vec::new();
            parse_items(rest, ('{', '}'), |rest| {
                let key = parse_string(rest)?;
                skip_space(rest);
                *rest = rest.strip_prefix(':')?.trim_start_matches(SPACE);
                fields.push((key, parse_value(rest, depth)?));
                Some(())
            })?;
            Json::Object(fields)
        }
        _ => {
            let end = rest.find([',', ']', '}', ' ', '\t', '\n', '\r']);
            let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
            *rest = after;
            parse_word(word)?
        }
    };
    skip_space(rest);
    Some(value)
}

fn skip_space(rest: &mut &str) {
    *rest = rest.trim_start_matches(SPACE);
}

/// Takes the items between two brackets.
fn parse_items(
    rest: &mut &str,
    (open, close): (char, char),
    mut item: impl FnMut(&mut &str) -> Option<()>,
) -> Option<()> {
    *rest = rest.strip_prefix(open)?.trim_start_matches(SPACE);
    if let Some(after) = rest.strip_prefix(close) {
        *rest = after;
        return Some(());
    }
    loop {
        item(rest)?;
        if let Some(after) = rest.strip_prefix(close) {
            *rest = after;
            return Some(());
        }
        *rest = rest.strip_prefix(',')?.trim_start_matches(SPACE);
    }
}

/// A value without brackets and quotes.
fn parse_word(word: &str) -> Option<Json> {
    if matches!(word, "null" | "true" | "false") {
        return Some(Json::Other(word.into()));
    }
    let digits = word.strip_prefix('-').unwrap_or(word);
    let leads = digits.bytes().take(2);
    if !matches!(
        leads.collect::<Vec<u8>>()[..],
        [b'0'] | [b'1'..=b'9', ..] | [b'0', b'.' | b'e' | b'E']
    ) || !digits
        .bytes()
        .all(|it| it.is_ascii_digit() || b"+-.eE".contains(&it))
    {
        return None;
    }
    // Other numbers may be wrong within, which the standard library finds.
    match word.parse() {
        Ok(number) => Some(Json::Number(number)),
        Err(_) => (word.parse::<f64>().ok()).map(|_| Json::Other(word.into())),
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

/// Takes a string.
fn parse_string(text: &mut &str) -> Option<String> {
    let mut rest = text.strip_prefix('"')?;
    let mut parsed = String::new();
    loop {
        let end = rest.find(|it: char| it < ' ' || matches!(it, '"' | '\\'))?;
        let (plain, after) = rest.split_at(end);
        parsed.push_str(plain);
        if let Some(after) = after.strip_prefix('"') {
            *text = after;
            return Some(parsed);
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

    fn text(text: &str) -> Json {
        Json::Text(text.to_owned())
    }

    #[test]
    fn fields_are_replaced_in_their_place() {
        let mut object = Json::parse(br#"{"a":1,"b":2}"#).unwrap();
        object.set("a", text("x"));
        object.set("c", Json::List(vec![Json::Number(3)]));
        assert_eq!(object.to_string(), r#"{"a":"x","b":2,"c":[3]}"#);
    }

    #[test]
    fn values_are_parsed_as_others_write_them() {
        let parsed = Json::parse(
            b" { \"a\" : 18446744073709551615 , \"b\":\"\\u00e9\\ud83d\\ude00\\n\\/\\\"\",
               \"c\" : [ 0 , -1, 1.5e3, true, null, [], {} ], \"a\": 7 }\n",
        );
        let parsed = parsed.unwrap();
        assert_eq!(parsed.field("a"), Some(&Json::Number(7)));
        assert_eq!(parsed.text("b"), Some("\u{e9}\u{1f600}\n/\""));
        let (list, object) = (Json::List(Vec::new()), Json::Object(Vec::new()));
        let other = |word: &str| Json::Other(word.into());
        let values = [
            Json::Number(0),
            other("-1"),
            other("1.5e3"),
            other("true"),
            other("null"),
            list,
            object,
        ];
        assert_eq!(parsed.list("c"), values);
        let line =
            r#"{"a":18446744073709551615,"b":"é😀\n/\"","c":[0,-1,1.5e3,true,null,[],{}],"a":7}"#;
        assert_eq!(parsed.to_string(), line);
        assert_eq!(Json::parse(line.as_bytes()), Some(parsed));
        let large = "18446744073709551616";
        assert_eq!(Json::parse(large.as_bytes()), Some(other(large)));
        for bad in [
            "",
            "{",
            "{}x",
            "[1",
            "[1,]",
            "{\"a\":1",
            "{\"a\"}",
            "{\"a\":1,}",
            "{\"a\":\"}",
            "{a:1}",
            "\"\\ud800\"",
            "\"\\x\"",
            "\"\n\"",
            "+1",
            "01",
            "-",
            "1.2.3",
            "inf",
            "NaN",
            "tru",
            "1 2",
            "[1 2]",
        ] {
            assert_eq!(Json::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn values_within_each_other_have_a_limit() {
        let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert!(Json::parse(nested(32).as_bytes()).is_some());
        assert_eq!(Json::parse(nested(33).as_bytes()), None);
        assert_eq!(Json::parse("[".repeat(1 << 20).as_bytes()), None);
    }

    #[test]
    fn strings_are_written_so_that_they_read_back() {
        let all: String = ('\0'..='\u{2ff}').collect();
        let line = Object::new().text("k", &all).line();
        assert!(!line.contains('\n'));
        let fields = vec![("k".to_owned(), text(&all))];
        assert_eq!(Json::parse(line.as_bytes()), Some(Json::Object(fields)));
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
