//! The attributes of a command by name, for printing.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use tree::Time;

use crate::attributes::split;
use crate::raw::{COMMAND_HEADER_BYTES, attribute};
use crate::reader::CommandRecord;

/// The value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number.
    Number(u64),
    /// A point in time.
    Time(Time),
    /// A UUID.
    Uuid([u8; 16]),
    /// A name, a path, or the value of an extended attribute.
    Bytes(&'a [u8]),
    /// Data of a file.
    Data(&'a [u8]),
}

/// How the value of an attribute is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueForm {
    /// An integer of this many bytes.
    Number(usize),
    Time,
    Uuid,
    Bytes,
    Data,
}

/// Names and forms by number; there is no attribute 0.
const ATTRIBUTES: [(&str, ValueForm); attribute::COUNT] = [
    ("", ValueForm::Bytes),
    ("uuid", ValueForm::Uuid),
    ("ctransid", ValueForm::Number(8)),
    ("ino", ValueForm::Number(8)),
    ("size", ValueForm::Number(8)),
    ("mode", ValueForm::Number(8)),
    ("uid", ValueForm::Number(8)),
    ("gid", ValueForm::Number(8)),
    ("rdev", ValueForm::Number(8)),
    ("ctime", ValueForm::Time),
    ("mtime", ValueForm::Time),
    ("atime", ValueForm::Time),
    ("otime", ValueForm::Time),
    ("xattr_name", ValueForm::Bytes),
    ("xattr_data", ValueForm::Bytes),
    ("path", ValueForm::Bytes),
    ("path_to", ValueForm::Bytes),
    ("path_link", ValueForm::Bytes),
    ("file_offset", ValueForm::Number(8)),
    ("data", ValueForm::Data),
    ("clone_uuid", ValueForm::Uuid),
    ("clone_ctransid", ValueForm::Number(8)),
    ("clone_path", ValueForm::Bytes),
    ("clone_offset", ValueForm::Number(8)),
    ("clone_len", ValueForm::Number(8)),
    ("fallocate_mode", ValueForm::Number(4)),
    ("fileattr", ValueForm::Number(8)),
    ("unencoded_file_len", ValueForm::Number(8)),
    ("unencoded_len", ValueForm::Number(8)),
    ("unencoded_offset", ValueForm::Number(8)),
    ("compression", ValueForm::Number(4)),
    ("encryption", ValueForm::Number(4)),
    ("verity_algorithm", ValueForm::Number(1)),
    ("verity_block_size", ValueForm::Number(4)),
    ("verity_salt_data", ValueForm::Bytes),
    ("verity_sig_data", ValueForm::Bytes),
];

impl<'a> CommandRecord<'a> {
    /// The attributes in the order of the stream, each with its name in lower case.
    pub fn attributes(&self) -> impl Iterator<Item = (&'static str, Value<'a>)> + use<'a> {
        let version = self.version;
        let mut rest = self.bytes.get(COMMAND_HEADER_BYTES..).unwrap_or_default();
        std::iter::from_fn(move || {
            // The reader parsed them before.
            let (kind, value) = split(version, &mut rest).ok()?;
            let (name, form) = *ATTRIBUTES.get(usize::from(kind))?;
            Some((name, form.parse(value)))
        })
    }
}

impl ValueForm {
    fn parse(self, value: &[u8]) -> Value<'_> {
        match (self, value) {
            (ValueForm::Number(_), _) => {
                let number = value.iter().rev();
                Value::Number(number.fold(0, |number, byte| number << 8 | u64::from(*byte)))
            }
            (ValueForm::Time, [seconds @ .., a, b, c, d]) => Value::Time(Time {
                seconds: seconds
                    .first_chunk()
                    .map_or(0, |it| i64::from_le_bytes(*it)),
                nanoseconds: u32::from_le_bytes([*a, *b, *c, *d]),
            }),
            (ValueForm::Uuid, _) => Value::Uuid(value.try_into().unwrap_or_default()),
            (ValueForm::Data, _) => Value::Data(value),
            _ => Value::Bytes(value),
        }
    }
}

/// The number and form of the attribute with this name.
pub(crate) fn named(name: &str) -> Option<(u16, ValueForm)> {
    let mut numbered = (0..).zip(ATTRIBUTES);
    let (number, (_, form)) = numbered.find(|(_, (it, _))| *it == name)?;
    (number > 0).then_some((number, form))
}
