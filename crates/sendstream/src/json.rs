//! Streams as JSON lines, from which they can be built again.
//!
//! A line is an object: `{"at":0,"stream":2}` for a header with its version,
//! `{"at":17,"number":1,"command":"subvol","path":"s",…}` for a command with its attributes in the
//! order of the stream. Names and paths are strings if they are UTF-8; otherwise the key ends in
//! `_base64`, and the value is Base64. Times are seconds, a dot, and nine digits of nanoseconds,
//! which are added to the seconds also before 1970. Data is Base64, or left out: then `data_bytes`
//! states its length.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::io::{BufRead, Read, Write};

use tree::json::{Json, Object};
use tree::{Error, Result, base64, to_u64};

use crate::attributes::parse;
use crate::command::number_of;
use crate::dump::Uuid;
use crate::raw::{STREAM_HEADER_BYTES, Version, attribute, command_header, stream_header};
use crate::reader::{COMMAND_BYTES_MAX, CommandRecord};
use crate::value::{Value, ValueForm, named};

/// The longest line that is read: the longest command in Base64, and what stands beside it.
#[expect(clippy::as_conversions, reason = "`From` is not const")]
const LINE_BYTES_MAX: usize = COMMAND_BYTES_MAX as usize / 3 * 4 + (1 << 20);

/// The line of a stream's header at an offset, without a line feed.
pub fn header(version: Version, at: u64) -> String {
    let object = Object::new().number("at", at);
    object.number("stream", version.number()).line()
}

/// The line of a command, without a line feed; with its data, or only the length of it.
pub fn command(record: &CommandRecord<'_>, with_data: bool) -> String {
    let line = Object::new()
        .number("at", record.at)
        .number("number", record.number)
        .text("command", record.command.name());
    let fields = record.attributes();
    let line = fields.fold(line, |line, (name, value)| match value {
        Value::Number(number) => line.number(name, number),
        Value::Time(time) => line.time(name, time),
        Value::Uuid(uuid) => line.text(name, &Uuid(uuid).to_string()),
        Value::Bytes(bytes) => line.name(name, bytes),
        Value::Data(data) if with_data => line.base64(name, data),
        Value::Data(data) => line.number(&format!("{name}_bytes"), to_u64(data.len())),
    });
    line.line()
}

/// Builds the stream that these lines describe, with data. `at` and `number` are not needed.
///
/// # Errors
/// [`Error::Part`] with the number of a line that does not have this form, or whose command a
/// reader would refuse; the error of the input or the output.
pub fn build(mut input: impl BufRead, mut output: impl Write) -> Result<()> {
    let mut line = Vec::new();
    let (mut version, mut number) = (None, 0);
    let mut bytes = Vec::new();
    loop {
        line.clear();
        number = u64::saturating_add(number, 1);
        let read = (&mut input)
            .take(to_u64(LINE_BYTES_MAX))
            .read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        bytes.clear();
        let in_line = |error: Error| error.in_part("line", number);
        if read == LINE_BYTES_MAX && line.last() != Some(&b'\n') {
            return Err(in_line(Error::Limit("the length of a line")));
        }
        let wrong = |what| in_line(Error::InvalidInput(what));
        let is_scalar = |value: &Json| matches!(value, Json::Number(_) | Json::Text(_));
        let fields = match Json::parse(&line) {
            Some(Json::Object(fields)) if fields.iter().all(|it| is_scalar(&it.1)) => fields,
            _ => return Err(wrong("not a JSON object of strings and numbers")),
        };
        let built = build_line(&fields, &mut version, &mut bytes);
        built.map_err(|error| match error {
            Built::Wrong(what) => wrong(what),
            Built::Error(error) => in_line(error),
        })?;
        output.write_all(&bytes)?;
    }
}

/// Why a line has no bytes.
enum Built {
    Wrong(&'static str),
    Error(Error),
}

impl From<&'static str> for Built {
    fn from(what: &'static str) -> Built {
        Built::Wrong(what)
    }
}

/// Appends the bytes of a line.
fn build_line(
    fields: &[(String, Json)],
    version: &mut Option<Version>,
    bytes: &mut Vec<u8>,
) -> Result<(), Built> {
    let mut number = None;
    let mut payload = Vec::new();
    for (key, value) in fields {
        match (key.as_str(), value) {
            ("at" | "number", _) => continue,
            ("stream", Json::Number(it)) => {
                let it = u32::try_from(*it).ok().and_then(Version::parse);
                let it = it.ok_or("there is no such version of send streams")?;
                *version = Some(it);
                debug_assert_eq!(stream_header(it).len(), STREAM_HEADER_BYTES);
                bytes.extend(stream_header(it));
                return Ok(());
            }
            ("command", Json::Text(name)) => {
                let it = number_of(name.as_bytes());
                number = Some(it.ok_or("there is no such command")?);
                continue;
            }
            ("data_bytes", _) => return Err("the data was left out of the dump".into()),
            _ => {}
        }
        let (name, is_base64) = match key.strip_suffix("_base64") {
            Some(name) => (name, true),
            None => (key.as_str(), false),
        };
        let (kind, form) = named(name).ok_or("there is no such attribute")?;
        let value = value_of(form, value, is_base64).ok_or("attribute has an impossible value")?;
        payload.extend(kind.to_le_bytes());
        if kind != attribute::DATA || !version.is_some_and(Version::has_long_data) {
            let len = u16::try_from(value.len()).map_err(|_| "attribute is too long")?;
            payload.extend(len.to_le_bytes());
        }
        payload.extend(value);
    }
    let number = number.ok_or("neither the header of a stream nor a command")?;
    let version = version.ok_or("a command comes before the header of a stream")?;
    parse(version, number, &payload, 0).map_err(Built::Error)?;
    let len = u32::try_from(payload.len()).map_err(|_| "command is too long")?;
    bytes.extend(command_header(len, number, &payload));
    bytes.extend(payload);
    Ok(())
}

/// The bytes of an attribute.
fn value_of(form: ValueForm, value: &Json, is_base64: bool) -> Option<Vec<u8>> {
    match (form, value) {
        (ValueForm::Number(len), Json::Number(number)) => {
            let bytes = number.to_le_bytes();
            let (value, rest) = bytes.split_at_checked(len)?;
            rest.iter().all(|&byte| byte == 0).then(|| value.to_vec())
        }
        (ValueForm::Bytes, Json::Text(text)) if !is_base64 => Some(text.as_bytes().to_vec()),
        (ValueForm::Bytes | ValueForm::Data, Json::Text(text)) => base64::decode(text.as_bytes()),
        (ValueForm::Uuid, Json::Text(text)) => {
            let digits: String = text.split('-').collect();
            // The standard library's parsers accept a sign.
            let is_hex = digits.bytes().all(|it| it.is_ascii_hexdigit());
            let number = u128::from_str_radix(&digits, 16).ok()?;
            (is_hex && digits.len() == 32).then(|| number.to_be_bytes().to_vec())
        }
        (ValueForm::Time, Json::Text(text)) => {
            let (seconds, nanoseconds) = text.split_once('.')?;
            let is_whole =
                nanoseconds.len() == 9 && nanoseconds.bytes().all(|it| it.is_ascii_digit());
            let seconds: i64 = seconds.parse().ok()?;
            let nanoseconds: u32 = nanoseconds.parse().ok().filter(|_| is_whole)?;
            let mut bytes = seconds.to_le_bytes().to_vec();
            bytes.extend(nanoseconds.to_le_bytes());
            Some(bytes)
        }
        _ => None,
    }
}
