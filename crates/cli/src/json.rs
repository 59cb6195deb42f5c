//! JSON for other programs: objects, each on a line of its own. docs/json.md describes them.

use std::fmt::Write as _;

use sendstream::json;
use tree::{Time, base64};

/// An object under construction.
#[derive(Debug)]
pub(crate) struct Object(String);

impl Object {
    pub(crate) fn new() -> Object {
        Object("{".to_owned())
    }

    /// The first object of an output: it names what follows, and the version of its form.
    pub(crate) fn of_schema(name: &str, version: u32) -> Object {
        Object::new().text("schema", &format!("restow.{name}/{version}"))
    }

    /// A number, which may be negative.
    pub(crate) fn number(self, key: &str, number: impl Into<i128>) -> Object {
        let number: i128 = number.into();
        self.raw(key, &number.to_string())
    }

    /// A number that may have a fraction, with three decimals.
    pub(crate) fn fraction(self, key: &str, number: f64) -> Object {
        // JSON has no infinity.
        let number = if number.is_finite() { number } else { 0.0 };
        self.raw(key, &format!("{number:.3}"))
    }

    /// A number as exact as it is; `null` for infinity, which JSON does not have.
    pub(crate) fn decimal(self, key: &str, number: f64) -> Object {
        if number.is_finite() {
            self.raw(key, &number.to_string())
        } else {
            self.null(key)
        }
    }

    pub(crate) fn null(self, key: &str) -> Object {
        self.raw(key, "null")
    }

    pub(crate) fn flag(self, key: &str, is_so: bool) -> Object {
        self.raw(key, if is_so { "true" } else { "false" })
    }

    pub(crate) fn text(mut self, key: &str, text: &str) -> Object {
        self.key(key);
        json::string(text, &mut self.0);
        self
    }

    /// A name of any bytes: if they are not UTF-8, in Base64 with `_base64` behind the key.
    pub(crate) fn name(self, key: &str, name: &[u8]) -> Object {
        match str::from_utf8(name) {
            Ok(text) => self.text(key, text),
            Err(_) => self.text(&format!("{key}_base64"), &base64::encode(name)),
        }
    }

    /// A time as seconds since 1970, a dot, and nine digits of nanoseconds.
    pub(crate) fn time(self, key: &str, time: Time) -> Object {
        let Time {
            seconds,
            nanoseconds,
        } = time;
        self.text(key, &format!("{seconds}.{nanoseconds:09}"))
    }

    pub(crate) fn object(self, key: &str, object: Object) -> Object {
        self.raw(key, &object.line())
    }

    pub(crate) fn list(mut self, key: &str, objects: impl IntoIterator<Item = Object>) -> Object {
        self.key(key);
        self.0.push('[');
        for (number, object) in objects.into_iter().enumerate() {
            if number > 0 {
                self.0.push(',');
            }
            self.0 += &object.line();
        }
        self.0.push(']');
        self
    }

    pub(crate) fn texts<'a>(
        mut self,
        key: &str,
        texts: impl IntoIterator<Item = &'a str>,
    ) -> Object {
        self.key(key);
        self.0.push('[');
        for (number, text) in texts.into_iter().enumerate() {
            if number > 0 {
                self.0.push(',');
            }
            json::string(text, &mut self.0);
        }
        self.0.push(']');
        self
    }

    /// The object, without a line feed.
    pub(crate) fn line(mut self) -> String {
        self.0.push('}');
        self.0
    }

    fn raw(mut self, key: &str, value: &str) -> Object {
        self.key(key);
        self.0 += value;
        self
    }

    fn key(&mut self, key: &str) {
        let comma = if self.0.len() > 1 { "," } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{comma}\"{key}\":");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            .texts("s", ["p", "q"]);
        assert_eq!(
            object.line(),
            "{\"schema\":\"restow.test/1\",\"n\":18446744073709551615,\"m\":-3,\"f\":0.000,\"d\":1500000000000,\"i\":null,\"is\":true,\"a\":\"é\\\"\\n\",\
             \"b_base64\":\"/w==\",\"t\":\"-1.000000005\",\"o\":{},\"l\":[{},{\"x\":1}],\"s\":[\"p\",\"q\"]}"
        );
    }
}
