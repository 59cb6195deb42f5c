//! Parses the contents of a tar header: numbers, checksums, PAX records and sparse maps.
//!
//! Module `ustar` has the layout of the 512-byte block. This module interprets its fields: negative
//! and large numbers, PAX records that override any field, and PAX sparse maps. Errors carry the
//! byte offset.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use super::acl::{self, Acl};
use super::member::Fragment;
use crate::integers::{to_u64, to_usize};
use crate::{Corrupt, Error, HostIds, Result, Time, Xattr, base64};

/// The size of a tar block. A header is one block, and data is padded to whole blocks.
pub(super) const BLOCK: u64 = 512;

/// A header, or a part of a map of fragments.
pub(super) type Block = [u8; 512];

/// Maximum number of fragments of sparse files in one archive: 256 MiB of memory, far above any
/// archive of real files.
pub(super) const FRAGMENTS_MAX: usize = 1 << 24;

/// The record in which GNU tar stores the label of SELinux, and the attribute that holds it in
/// Linux.
pub(super) const SELINUX_RECORD: &str = "RHT.security.selinux";
pub(super) const SELINUX_XATTR: &[u8] = b"security.selinux";

/// Maximum length of a name in a global header (`PATH_MAX` in Linux). POSIX lets it name all files
/// that follow and have no name of their own; it is copied for each.
const GLOBAL_NAME_BYTES_MAX: usize = 4096;

/// Parses a number in a header: octal digits surrounded by spaces and NULs, or base 256 if the
/// first byte's high bit is set.
///
/// An empty field is 0, and so is one that begins with a NUL, as for GNU tar and libarchive. GNU
/// tar skips one NUL before digits, since an old program left it there. Base 256 is two's
/// complement, which allows times before 1970.
pub(super) fn number(field: &[u8], at: u64) -> Result<i64, Corrupt> {
    let wrong = |got: u8| Corrupt {
        what: "tar header field is not a number",
        at,
        got: got.into(),
    };
    let first = field.first().copied().unwrap_or(0);
    if first & 0x80 != 0 {
        // Bit 6 of the first byte is the sign.
        let mut value = if first & 0x40 == 0 {
            i128::from(first & 0x3f)
        } else {
            i128::from(first.cast_signed())
        };
        for &byte in field.iter().skip(1) {
            value = value
                .checked_shl(8)
                .filter(|_| field.len() <= 12)
                .ok_or_else(|| wrong(first))?
                | i128::from(byte);
        }
        return i64::try_from(value).map_err(|_| Corrupt {
            what: "tar header number needs more than 64 bits",
            at,
            got: first.into(),
        });
    }
    let mut value = 0i64; // 12 digits of 3 bits cannot overflow.
    let field = field
        .strip_prefix(b"\0")
        .unwrap_or(field)
        .trim_ascii_start();
    if field.first() == Some(&0) {
        return Ok(0);
    }
    let mut digits = field.iter().copied();
    for byte in digits.by_ref() {
        match byte {
            b'0'..=b'7' => value = value << 3 | i64::from(byte & 7),
            b' ' | 0 => break,
            other => return Err(wrong(other)),
        }
    }
    match digits.find(|&byte| byte != b' ' && byte != 0) {
        // Some writers leave stale bytes after the NUL that ends the number; digits there would be
        // ambiguous.
        Some(byte) if byte.is_ascii_digit() => Err(wrong(byte)),
        _ => Ok(value),
    }
}

/// Like [`number`], for numbers that must not be negative.
pub(super) fn unsigned(field: &[u8], at: u64) -> Result<u64, Corrupt> {
    let value = number(field, at)?;
    u64::try_from(value).map_err(|_| Corrupt {
        what: "tar header number is negative",
        at,
        got: value.unsigned_abs(),
    })
}

/// Like [`number`], for 32-bit numbers.
pub(super) fn unsigned32(field: &[u8], at: u64) -> Result<u32, Corrupt> {
    let value = number(field, at)?;
    u32::try_from(value).map_err(|_| Corrupt {
        what: "tar header number is not one of 32 bits",
        at,
        got: value.unsigned_abs(),
    })
}

/// A text field: the bytes before the first NUL.
pub(super) fn text(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == 0).next().unwrap_or(field)
}

/// Whether the checksum of a header block is right: the sum of its bytes, with the checksum itself
/// counted as spaces. Old writers summed signed bytes, which is accepted too. What follows its
/// digits says nothing, as for GNU tar and libarchive.
pub(super) fn checksum_is_right(block: &Block) -> bool {
    const FIELD: std::ops::Range<usize> = 148..156;
    // Spaces and NULs come before the digits, too.
    let end = |byte: &u8| matches!(byte, b' ' | 0);
    let mut parts = block[FIELD].split(end).filter(|part| !part.is_empty());
    let digits = parts.next().unwrap_or_default();
    let Ok(stated) = number(digits, 0) else {
        return false;
    };
    let (mut sum, mut signed_sum) = (0i64, 0i64);
    for (at, &byte) in block.iter().enumerate() {
        let byte = if FIELD.contains(&at) { b' ' } else { byte };
        // The sum of 512 bytes.
        sum = sum.wrapping_add(byte.into());
        signed_sum = signed_sum.wrapping_add(byte.cast_signed().into());
    }
    stated == sum || stated == signed_sum
}

/// The values of PAX records (POSIX.1-2001) and GNU long names that override header fields.
#[derive(Clone, Default)]
pub(super) struct Overrides {
    pub(super) path: Option<Box<[u8]>>,
    pub(super) link_target: Option<Box<[u8]>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) mtime: Option<Time>,
    pub(super) atime: Option<Time>,
    pub(super) ctime: Option<Time>,
    pub(super) btime: Option<Time>,
    pub(super) dev_major: Option<u32>,
    pub(super) dev_minor: Option<u32>,
    pub(super) has_xattrs: bool,
    /// The permissions in the access control list, of the attribute or else of the text.
    pub(super) permissions: Option<u16>,
    /// Whether the attributes of the access and the default list are there, and whether a text is
    /// there that cannot be read.
    pub(super) has_list: [bool; 2],
    pub(super) has_unread_text: [bool; 2],
    pub(super) sparse: PaxSparse,
}

/// The sparse file formats 0.0, 0.1 and 1.0 that GNU tar keeps in PAX records.
#[derive(Clone, Default, PartialEq)]
pub(super) struct PaxSparse {
    pub(super) major: Option<u64>,
    pub(super) minor: Option<u64>,
    pub(super) name: Option<Box<[u8]>>,
    pub(super) real_size: Option<u64>,
    /// Whether the records contain a map (0.0 and 0.1).
    pub(super) has_map: bool,
    /// This map: alternating offsets and lengths.
    pub(super) map: Vec<u64>,
}

impl Overrides {
    /// Adds the records of a PAX header, whose text begins at byte `at` of the archive.
    pub(super) fn take_in(&mut self, records: &[u8], at: u64, ids: &HostIds) -> Result<()> {
        for record in PaxRecords::new(records, at) {
            let PaxRecord { key, value, at } = record?;
            let number = || decimal(value, at);
            match key {
                b"path" => self.path = some_text(value, at)?,
                b"linkpath" => self.link_target = some_text(value, at)?,
                b"size" => self.size = Some(number()?),
                b"uid" => self.uid = Some(decimal32(value, at)?),
                b"gid" => self.gid = Some(decimal32(value, at)?),
                b"mtime" => self.mtime = Some(time(value, at)?),
                b"atime" => self.atime = Some(time(value, at)?),
                b"ctime" => self.ctime = Some(time(value, at)?),
                b"LIBARCHIVE.creationtime" => self.btime = Some(time(value, at)?),
                b"SCHILY.devmajor" => self.dev_major = Some(decimal32(value, at)?),
                b"SCHILY.devminor" => self.dev_minor = Some(decimal32(value, at)?),
                b"GNU.sparse.major" => self.sparse.major = Some(number()?),
                b"GNU.sparse.minor" => self.sparse.minor = Some(number()?),
                b"GNU.sparse.name" => self.sparse.name = some_text(value, at)?,
                b"GNU.sparse.size" | b"GNU.sparse.realsize" => {
                    self.sparse.real_size = Some(number()?);
                }
                b"GNU.sparse.numblocks" => self.sparse.has_map = true,
                b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => {
                    self.sparse
                        .push(number()?, at, key == b"GNU.sparse.offset")?;
                }
                b"GNU.sparse.map" => {
                    self.sparse.has_map = true;
                    for text in value
                        .split(|&byte| byte == b',')
                        .filter(|text| !text.is_empty())
                    {
                        let is_offset = self.sparse.map.len().is_multiple_of(2);
                        self.sparse.push(decimal(text, at)?, at, is_offset)?;
                    }
                }
                _ if key == SELINUX_RECORD.as_bytes() => self.has_xattrs = true,
                _ if key.starts_with(b"SCHILY.acl.") => self.take_in_acl(key, value, ids),
                _ if let Some((name, _)) = xattr_name(key) => {
                    self.has_xattrs = true;
                    for (has, (list, _)) in self.has_list.iter_mut().zip(acl::LISTS) {
                        *has |= name == list.as_bytes();
                    }
                    if key == b"SCHILY.xattr.system.posix_acl_access" {
                        self.permissions = Acl::from_xattr(value).map(|acl| acl.mode());
                    }
                }
                _ => {} // Comments, character sets, user names, and what other writers invented.
            }
        }
        Ok(())
    }

    /// Adds the text of an access control list.
    fn take_in_acl(&mut self, key: &[u8], text: &[u8], ids: &HostIds) {
        let kind = usize::from(key != b"SCHILY.acl.access");
        let acl = Acl::from_text(text, ids).filter(|_| key != b"SCHILY.acl.ace");
        let [has_access, _] = self.has_list;
        match &acl {
            Some(acl) if kind == 0 && !has_access => self.permissions = Some(acl.mode()),
            _ => {}
        }
        self.has_xattrs |= acl.is_some();
        if let Some(unread) = self.has_unread_text.get_mut(kind) {
            *unread |= acl.is_none() && !text.is_empty();
        }
    }

    /// Whether an access control list is there in no form that can be read.
    pub(super) fn has_unread_acl(&self) -> bool {
        let mut lists = self.has_unread_text.iter().zip(self.has_list);
        lists.any(|(&is_unread, has_list)| is_unread && !has_list)
    }

    /// Whether it contains anything that only makes sense for a single file, or a name that is too
    /// long to be that of each.
    pub(super) fn is_for_one_file(&self) -> bool {
        let is_long = |name: &Option<Box<[u8]>>| {
            let name = name.as_deref().unwrap_or_default();
            name.len() > GLOBAL_NAME_BYTES_MAX
        };
        let has_name = is_long(&self.path) || is_long(&self.link_target);
        let has_acl = self.has_unread_text != [false; 2];
        has_name || self.has_xattrs || has_acl || self.sparse != PaxSparse::default()
    }
}

impl PaxSparse {
    fn push(&mut self, value: u64, at: u64, is_offset: bool) -> Result<()> {
        if is_offset != self.map.len().is_multiple_of(2) {
            let what = "tar sparse map does not alternate between offsets and sizes";
            return Err(Corrupt {
                what,
                at,
                got: value,
            }
            .into());
        }
        if self.map.len() / 2 >= FRAGMENTS_MAX {
            return Err(Error::Limit("fragments of sparse files in a tar archive"));
        }
        self.map.push(value);
        Ok(())
    }
}

/// The extended attributes in the records of a PAX header, sorted by name. If a name repeats, the
/// last one counts. An attribute itself counts more than its form for other systems.
pub(super) fn xattrs(
    records: &[u8],
    at: u64,
    value_bytes_max: u32,
    ids: &HostIds,
) -> Result<Vec<Xattr>> {
    let mut found: Vec<Xattr> = Vec::new();
    let mut others: Vec<Xattr> = Vec::new();
    for record in PaxRecords::new(records, at) {
        let PaxRecord { key, value, at } = record?;
        others.extend(from_other_form(key, value, ids));
        let Some((name, value)) = (match xattr_name(key) {
            None => None,
            Some((name, XattrStyle::Schily)) => Some((percent_decoded(name), value.to_vec())),
            Some((name, XattrStyle::Libarchive)) => {
                let what = "tar record LIBARCHIVE.xattr is not base64";
                let bad = || Corrupt {
                    what,
                    at,
                    got: to_u64(value.len()),
                };
                Some((
                    percent_decoded(name),
                    base64::decode(value).ok_or_else(bad)?,
                ))
            }
        }) else {
            continue;
        };
        if name.is_empty() || name.len() > 255 || name.contains(&0) {
            let what = "extended attribute in tar has a bad name";
            return Err(Corrupt {
                what,
                at,
                got: to_u64(name.len()),
            }
            .into());
        }
        found.push(Xattr {
            name: name.into(),
            value: value.into(),
        });
    }
    others.append(&mut found);
    let mut found = others;
    if found
        .iter()
        .any(|it| it.value.len() > to_usize(value_bytes_max))
    {
        let what = "size of an extended attribute in a tar archive";
        return Err(Error::Limit(what));
    }
    // The sort is stable, so the last of equals is the last in the archive.
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found.reverse();
    found.dedup_by(|next, kept| next.name == kept.name);
    found.reverse();
    Ok(found)
}

/// The attribute in a record that is not named after it.
fn from_other_form(key: &[u8], value: &[u8], ids: &HostIds) -> Option<Xattr> {
    if key == SELINUX_RECORD.as_bytes() {
        // The attribute ends with a NUL.
        let label = value.strip_suffix(b"\0").unwrap_or(value);
        return Some(Xattr {
            name: SELINUX_XATTR.into(),
            value: [label, b"\0"].concat().into(),
        });
    }
    let is_it = |(_, record): &&(&str, &str)| key == record.as_bytes();
    let (name, record) = acl::LISTS.iter().find(is_it)?;
    let acl = Acl::from_text(value, ids)?;
    // Linux has an access list in the mode alone if that suffices.
    let is_mode = acl.is_mode() && record.ends_with("access");
    (!is_mode).then(|| Xattr {
        name: name.as_bytes().into(),
        value: acl.emit_xattr().into(),
    })
}

enum XattrStyle {
    Schily,
    Libarchive,
}

fn xattr_name(key: &[u8]) -> Option<(&[u8], XattrStyle)> {
    if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
        return Some((name, XattrStyle::Schily));
    }
    Some((
        key.strip_prefix(b"LIBARCHIVE.xattr.")?,
        XattrStyle::Libarchive,
    ))
}

/// One PAX record: `"<length> <key>=<value>\n"`, where the length includes everything.
struct PaxRecord<'a> {
    key: &'a [u8],
    value: &'a [u8],
    at: u64,
}

struct PaxRecords<'a> {
    rest: &'a [u8],
    at: u64,
}

impl<'a> PaxRecords<'a> {
    fn new(records: &'a [u8], at: u64) -> Self {
        PaxRecords { rest: records, at }
    }

    fn record(&mut self) -> Result<PaxRecord<'a>, Corrupt> {
        let at = self.at;
        let bad = |what, got| Corrupt { what, at, got };
        let digits = self
            .rest
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let (stated, after) = self.rest.split_at(digits);
        let stated = stated.iter().try_fold(0u64, |len, &digit| {
            len.checked_mul(10)?.checked_add(digit_value(digit)?)
        });
        let len = stated.filter(|_| digits > 0 && after.first() == Some(&b' '));
        let len = len.ok_or_else(|| {
            let first = self.rest.first().copied().unwrap_or(0);
            bad("pax record does not begin with its length", first.into())
        })?;
        let parts = self.rest.split_at_checked(to_usize(len));
        let parts = parts.and_then(|(record, rest)| Some((record.get(digits..)?.get(1..)?, rest)));
        let (record, rest) = parts.ok_or_else(|| bad("pax record has a wrong length", len))?;
        let Some((b'\n', record_text)) = record.split_last() else {
            return Err(bad("pax record does not end where its length says", len));
        };
        let mut parts = record_text.splitn(2, |&byte| byte == b'=');
        let (Some(key), Some(value)) = (parts.next(), parts.next()) else {
            return Err(bad("pax record has no equals sign", len));
        };
        self.rest = rest;
        self.at = at.saturating_add(len);
        Ok(PaxRecord { key, value, at })
    }
}

impl<'a> Iterator for PaxRecords<'a> {
    type Item = Result<PaxRecord<'a>, Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let record = self.record();
        if record.is_err() {
            self.rest = &[];
        }
        Some(record)
    }
}

/// A path or link target; `None` if empty, as POSIX defines.
fn some_text(value: &[u8], at: u64) -> Result<Option<Box<[u8]>>, Corrupt> {
    if value.contains(&0) {
        let what = "pax record has a NUL in a path";
        return Err(Corrupt {
            what,
            at,
            got: to_u64(value.len()),
        });
    }
    Ok((!value.is_empty()).then(|| value.into()))
}

/// The value of a decimal digit.
fn digit_value(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(10).map(u64::from)
}

pub(super) fn decimal(text: &[u8], at: u64) -> Result<u64, Corrupt> {
    let value = text.iter().try_fold(0u64, |value, &byte| {
        value.checked_mul(10)?.checked_add(digit_value(byte)?)
    });
    value
        .filter(|value| !text.is_empty() && *value <= i64::MAX.cast_unsigned())
        .ok_or(Corrupt {
            what: "decimal number in tar is not one of 63 bits",
            at,
            got: text.first().copied().unwrap_or(0).into(),
        })
}

fn decimal32(text: &[u8], at: u64) -> Result<u32, Corrupt> {
    let value = decimal(text, at)?;
    let what = "owner or device number in tar is not one of 32 bits";
    u32::try_from(value).map_err(|_| Corrupt {
        what,
        at,
        got: value,
    })
}

/// Parses seconds since 1970: a decimal number with an optional sign and fraction. Digits beyond
/// nanoseconds are dropped.
fn time(text: &[u8], at: u64) -> Result<Time, Corrupt> {
    let bad = Corrupt {
        what: "time in pax record is not a number",
        at,
        got: to_u64(text.len()),
    };
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut parts = text.splitn(2, |&byte| byte == b'.');
    let whole = decimal(parts.next().unwrap_or_default(), at)?.cast_signed();
    let mut nanoseconds = 0u32;
    let fraction = parts.next().unwrap_or_default();
    for place in 0..fraction.len().max(9) {
        let byte = fraction.get(place).copied().unwrap_or(b'0');
        let Some(digit) = char::from(byte).to_digit(10) else {
            return Err(bad);
        };
        if place < 9 {
            // Nine digits fit.
            nanoseconds = nanoseconds.wrapping_mul(10).wrapping_add(digit);
        }
    }
    Ok(match (negative, nanoseconds) {
        (false, _) => Time {
            seconds: whole,
            nanoseconds,
        },
        (true, 0) => Time {
            seconds: whole.saturating_neg(),
            nanoseconds: 0,
        },
        (true, _) => Time {
            // The complement to -1 of a number that is not negative.
            seconds: !whole,
            nanoseconds: 1_000_000_000u32.saturating_sub(nanoseconds),
        },
    })
}

/// GNU tar and libarchive write `=` as `%3D`, because a record's key cannot contain it.
fn percent_decoded(name: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(name.len());
    let mut rest = name;
    while let [byte, tail @ ..] = rest {
        let digits = (*byte == b'%').then(|| tail.get(..2)).flatten();
        // `from_str_radix` accepts a sign, so that `%+f` would be one.
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let code =
            digits.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        decoded.push(code.unwrap_or(*byte));
        rest = match (code, tail) {
            (Some(_), [_, _, after @ ..]) => after,
            _ => tail,
        };
    }
    decoded
}

/// Checks a sparse map and drops its empty fragments.
///
/// Fragments must be sorted, must not overlap, must lie within the file, and must add up to the
/// stored bytes. `at` is the offset of the header.
pub(super) fn fragments(
    map: impl Iterator<Item = (u64, u64)>,
    real_size: u64,
    stored_len: u64,
    at: u64,
) -> Result<Vec<Fragment>, Corrupt> {
    let mut fragments: Vec<Fragment> = Vec::new();
    let (mut end, mut stored) = (0u64, 0u64);
    for (offset, len) in map {
        if offset < end {
            let what = "fragments of a sparse file in tar overlap";
            return Err(Corrupt {
                what,
                at,
                got: offset,
            });
        }
        end = offset
            .checked_add(len)
            .filter(|&end| end <= real_size)
            .ok_or(Corrupt {
                what: "fragment of a sparse file in tar lies past the file's end",
                at,
                got: offset,
            })?;
        if len > 0 {
            fragments.push(Fragment {
                offset,
                len,
                stored,
            });
            // No more than `real_size`, since they do not overlap.
            stored = stored.saturating_add(len);
        }
    }
    if stored != stored_len {
        let what = "fragments of a sparse file in tar differ from its stored size";
        return Err(Corrupt {
            what,
            at,
            got: stored,
        });
    }
    fragments.shrink_to_fit();
    Ok(fragments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percent_sign_is_an_escape_only_before_two_hexadecimal_digits() {
        for (name, decoded) in [
            (&b"user.a%3Db"[..], &b"user.a=b"[..]),
            (b"user.%3d%25", b"user.=%"),
            (b"user.%+f", b"user.%+f"),
            (b"user.%-1%3", b"user.%-1%3"),
        ] {
            assert_eq!(percent_decoded(name), decoded);
        }
    }

    #[test]
    fn a_checksum_ends_with_its_digits() {
        let mut block = [0; 512];
        block[0] = b'a';
        let sum = u64::from(b'a') + 8 * 32;
        for (field, right) in [
            (format!("{sum:06o}\0 "), true),
            (format!("  {sum:o}\0\0\0"), true),
            (format!("{sum:o}\x0036\0\0"), true),
            (format!("{sum:o} 36\0\0"), true),
            (format!("{sum:o}36\0\0\0"), false),
            (format!("1\0{sum:o}\0\0\0"), false),
            ("\0".repeat(8), false),
        ] {
            block[148..156].copy_from_slice(field.as_bytes());
            assert_eq!(checksum_is_right(&block), right, "{field:?}");
        }
    }

    #[test]
    fn numbers_in_octal_and_base_256() {
        for (field, value) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"\x000644\0", Some(0o644)),
            (b"\0\x00644\0", Some(0)),
            (b"\0\0\0\0\0 644", Some(0)),
            (b"77777777", Some(0o77_777_777)),
            (b"644\0junk", Some(0o644)),
            (b"644\0 644", None),
            (b"648\0\0\0\0\0", None),
            (b"-1\0\0\0\0\0\0", None),
            (&[0x80, 0, 0, 0, 0x80, 0, 0, 0], Some(1 << 31)),
            (&[0xff; 12], Some(-1)),
            (
                &[
                    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0,
                ],
                Some(-256),
            ),
            (
                &[
                    0x80, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                ],
                Some(i64::MAX),
            ),
            (&[0x80, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0], None),
            (
                &[
                    0xbf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                ],
                None,
            ),
        ] {
            assert_eq!(number(field, 0).ok(), value, "{field:x?}");
        }
        assert!(unsigned(&[0xff; 12], 0).is_err());
        assert!(unsigned32(&[0x80, 0, 0, 1, 0, 0, 0, 0], 0).is_err());
    }

    #[test]
    fn times_before_1970_round_down() {
        for (text, seconds, nanoseconds) in [
            (&b"0"[..], 0, 0),
            (b"1.5", 1, 500_000_000),
            (b"-1.5", -2, 500_000_000),
            (b"-1", -1, 0),
            (b"-0.000000001", -1, 999_999_999),
            (b"1700000000.123456789999", 1_700_000_000, 123_456_789),
            (b"5.", 5, 0),
        ] {
            let found = time(text, 0).unwrap();
            assert_eq!(
                found,
                Time {
                    seconds,
                    nanoseconds
                },
                "{}",
                text.escape_ascii()
            );
        }
        for text in [
            &b""[..],
            b"-",
            b"1.x",
            b"x",
            b"1e9",
            b"99999999999999999999",
        ] {
            assert!(time(text, 0).is_err(), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn records_with_wrong_lengths_are_refused_where_they_are() {
        let mut overrides = Overrides::default();
        overrides
            .take_in(b"12 path=a/b\n13 uid=70000\n", 0, &HostIds::default())
            .unwrap();
        assert_eq!(
            (overrides.path.as_deref(), overrides.uid),
            (Some(&b"a/b"[..]), Some(70000))
        );
        for bad in [
            &b"99 path=a\n"[..],
            b"3 path=a\n",
            b"11 path=a/b\n",
            b"0 path=a\n",
            b"99999999999999999999 path=a\n",
            b"path=a\n",
            b"5 ab\n",
            b"11 path=a\0\n",
            b"\0\0\0",
            b"15 size=12x456\n",
        ] {
            let mut text = b"12 path=a/b\n".to_vec();
            text.extend(bad);
            match Overrides::default().take_in(&text, 1000, &HostIds::default()) {
                Err(Error::Corrupt(corrupt)) => assert_eq!(corrupt.at, 1012, "{corrupt}"),
                other => panic!("{}: {other:?}", bad.escape_ascii()),
            }
        }
    }

    #[test]
    fn xattrs_of_both_styles_last_wins() {
        let records = b"31 SCHILY.xattr.user.a%3Db=one\n26 SCHILY.xattr.user.z=\n\0\n\
            32 LIBARCHIVE.xattr.user.z=dHdv\n";
        let found = xattrs(records, 0, 100, &HostIds::default()).unwrap();
        let found: Vec<_> = found.iter().map(|x| (&*x.name, &*x.value)).collect();
        assert_eq!(
            found,
            [(&b"user.a=b"[..], &b"one"[..]), (b"user.z", b"two")]
        );
        assert!(xattrs(records, 0, 2, &HostIds::default()).is_err());
    }

    #[test]
    fn sparse_maps_must_fit() {
        let map =
            |pairs: &[(u64, u64)], size, stored| fragments(pairs.iter().copied(), size, stored, 0);
        assert_eq!(map(&[(0, 5), (100, 0)], 100, 5).unwrap().len(), 1);
        assert_eq!(map(&[(10, 5), (20, 5)], 25, 10).unwrap()[1].stored, 5);
        assert!(map(&[(10, 5), (12, 5)], 25, 10).is_err());
        assert!(map(&[(10, 5), (20, 6)], 25, 11).is_err());
        assert!(map(&[(u64::MAX, 5)], 25, 5).is_err());
        assert!(map(&[(0, 5)], 25, 6).is_err());
    }
}
