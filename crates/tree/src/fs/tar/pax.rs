//! The headers of an entry of a PAX archive.

use super::acl::{self, Acl};
use super::buffer::Buffer;
use super::header::{SELINUX_RECORD, SELINUX_XATTR};
use super::ustar::{self, OCTAL_7_MAX, OCTAL_11_MAX, TypeFlag};
use crate::{Metadata, Time, Xattr};

/// Everything that precedes the data of an entry.
pub(super) struct PaxHeader<'a> {
    pub(super) path: &'a [u8],
    pub(super) link_target: Vec<u8>,
    pub(super) metadata: &'a Metadata,
    pub(super) type_flag: TypeFlag,
    /// The stored content bytes, without the map of a sparse file.
    pub(super) stored_len: u64,
    pub(super) xattrs: Vec<Xattr>,
    pub(super) sparse: Option<Vec<u8>>,
}

impl PaxHeader<'_> {
    /// Appends the PAX header (if needed), the header, and the map of a sparse file.
    pub(super) fn emit(&self, out: &mut Buffer) {
        let Metadata {
            uid,
            gid,
            mtime,
            rdev,
            ..
        } = *self.metadata;
        let stored_len = self.stored_len + self.sparse.as_ref().map_or(0, |map| map.len() as u64);
        // A size too large for octal is stored in base 256, in addition to the record.
        let mut header =
            ustar::UstarHeader::new(self.type_flag, self.metadata.permissions, stored_len);
        header.set_owner(uid.min(OCTAL_7_MAX), gid.min(OCTAL_7_MAX));
        header.set_mtime(
            mtime
                .seconds
                .clamp(0, OCTAL_11_MAX.cast_signed())
                .cast_unsigned(),
        );

        let mut records = RecordBuffer::default();
        let split = split_path(self.path).filter(|_| self.sparse.is_none());
        // Records are UTF-8 unless the first one says otherwise. GNU tar warns about that one;
        // libarchive warns without it.
        let is_text = |name: &[u8], fits: bool| fits || str::from_utf8(name).is_ok();
        if !is_text(self.path, split.is_some())
            || !is_text(&self.link_target, self.link_target.len() <= 100)
        {
            records.add("hdrcharset", b"BINARY");
        }
        if self.sparse.is_some() {
            // Programs that do not support the format extract the stored bytes under this name.
            let name = self.path.rsplit(|&byte| byte == b'/').next().unwrap_or(b"");
            header.set_name(&[b"GNUSparseFile.0/", &name[..name.len().min(84)]].concat());
        } else if let Some((prefix, name)) = split {
            header.set_prefix(prefix);
            header.set_name(name);
        } else {
            records.add("path", self.path);
            header.set_name(&self.path[..100]);
        }
        let shown = &self.link_target[..self.link_target.len().min(100)];
        header.set_link_name(shown);
        if shown.len() < self.link_target.len() {
            records.add("linkpath", &self.link_target);
        }
        if self.metadata.kind.is_device() && self.type_flag != TypeFlag::Link {
            header.set_device(rdev.major.min(OCTAL_7_MAX), rdev.minor.min(OCTAL_7_MAX));
            records.add_if(rdev.major > OCTAL_7_MAX, "SCHILY.devmajor", rdev.major);
            records.add_if(rdev.minor > OCTAL_7_MAX, "SCHILY.devminor", rdev.minor);
        }
        records.add_if(stored_len > OCTAL_11_MAX, "size", stored_len);
        records.add_if(uid > OCTAL_7_MAX, "uid", uid);
        records.add_if(gid > OCTAL_7_MAX, "gid", gid);
        let fits = mtime.nanoseconds == 0
            && u64::try_from(mtime.seconds).is_ok_and(|seconds| seconds <= OCTAL_11_MAX);
        records.add_if(!fits, "mtime", Decimal(mtime));
        for xattr in &self.xattrs {
            records.add_xattr(xattr);
        }
        if self.sparse.is_some() {
            records.add("GNU.sparse.major", b"1");
            records.add("GNU.sparse.minor", b"0");
            records.add("GNU.sparse.name", self.path);
            records.add(
                "GNU.sparse.realsize",
                self.metadata.size.to_string().as_bytes(),
            );
        }
        if !records.text.is_empty() {
            records.emit(&header, out);
        }
        out.extend_from_slice(&header.finish());
        out.extend_from_slice(self.sparse.as_deref().unwrap_or_default());
    }
}

/// Splits a path into ustar's prefix and name, which readers join with a `/`; `None` if it does not
/// fit.
fn split_path(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.len() <= 100 {
        return Some((b"", path));
    }
    // The name has at most 100 bytes, and is neither empty nor just the slash that ends a
    // directory.
    let from = path.len().checked_sub(101)?;
    let slash = path[from..path.len() - 2]
        .iter()
        .position(|&byte| byte == b'/')?
        + from;
    (1..=155)
        .contains(&slash)
        .then(|| (&path[..slash], &path[slash + 1..]))
}

/// PAX records.
#[derive(Default)]
struct RecordBuffer {
    text: Vec<u8>,
}

impl RecordBuffer {
    fn add(&mut self, key: &str, value: &[u8]) {
        self.add_bytes(key.as_bytes(), value);
    }

    fn add_if(&mut self, needed: bool, key: &str, value: impl ToString) {
        if needed {
            self.add(key, value.to_string().as_bytes());
        }
    }

    fn add_xattr(&mut self, xattr: &Xattr) {
        self.add_other_form(xattr);
        // A key ends at the first equals sign; GNU tar and libarchive read `%3D` as one.
        let mut key = b"SCHILY.xattr.".to_vec();
        for &byte in &xattr.name {
            match byte {
                b'=' => key.extend_from_slice(b"%3D"),
                b'%' => key.extend_from_slice(b"%25"),
                _ => key.push(byte),
            }
        }
        self.add_bytes(&key, &xattr.value);
    }

    /// Adds the record from which GNU tar and libarchive restore an attribute that they do not
    /// take as one, or only with options.
    fn add_other_form(&mut self, xattr: &Xattr) {
        if *xattr.name == *SELINUX_XATTR {
            let label = xattr.value.strip_suffix(b"\0").unwrap_or(&xattr.value);
            self.add(SELINUX_RECORD, label);
        }
        let mut lists = acl::LISTS.iter();
        let list = lists.find(|(name, _)| *xattr.name == *name.as_bytes());
        if let Some((record, acl)) = list.and_then(|(_, record)| {
            let acl = Acl::from_xattr(&xattr.value)?;
            Some((record, acl))
        }) {
            self.add(record, acl.emit_text().as_bytes());
        }
    }

    fn add_bytes(&mut self, key: &[u8], value: &[u8]) {
        // The length counts its own digits.
        let rest = key.len() + value.len() + 3;
        let mut len = rest + 1;
        while rest + len.to_string().len() != len {
            len = rest + len.to_string().len();
        }
        for part in [len.to_string().as_bytes(), b" ", key, b"=", value, b"\n"] {
            self.text.extend_from_slice(part);
        }
    }

    /// Appends the records with their header, which is named after the header that follows.
    fn emit(self, of: &ustar::UstarHeader, out: &mut Buffer) {
        let mut header =
            ustar::UstarHeader::new(TypeFlag::PaxHeader, 0o644, self.text.len() as u64);
        let name = of.name();
        let name = name.strip_suffix(b"/").unwrap_or(name);
        let name = name.rsplit(|&byte| byte == b'/').next().unwrap_or(b"");
        header.set_name(&[b"PaxHeaders/", &name[..name.len().min(89)]].concat());
        header.take_mtime(of);
        out.extend_from_slice(&header.finish());
        out.extend_from_slice(&self.text);
        out.pad();
    }
}

/// A time as a decimal number of seconds.
struct Decimal(Time);

impl std::fmt::Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Time {
            seconds,
            nanoseconds,
        } = self.0;
        // Seconds are rounded down: -1.25 s is -2 s and 750,000,000 ns.
        let (sign, whole, fraction) = match (seconds < 0, nanoseconds) {
            (true, 1..) => (
                "-",
                (seconds + 1).unsigned_abs(),
                1_000_000_000 - nanoseconds,
            ),
            (true, 0) => ("-", seconds.unsigned_abs(), 0),
            (false, _) => ("", seconds.unsigned_abs(), nanoseconds),
        };
        write!(f, "{sign}{whole}")?;
        if fraction == 0 {
            return Ok(());
        }
        let digits = format!("{fraction:09}");
        write!(f, ".{}", digits.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_lengths_count_themselves() {
        for len in [1, 88, 89, 90, 91, 92, 985, 986, 987, 988, 989, 990] {
            let mut records = RecordBuffer::default();
            records.add("path", &vec![b'a'; len]);
            let stated: usize = str::from_utf8(&records.text).unwrap()
                [..records.text.iter().position(|&b| b == b' ').unwrap()]
                .parse()
                .unwrap();
            assert_eq!(stated, records.text.len(), "{len}");
        }
    }

    #[test]
    fn times_are_decimal_numbers() {
        for (seconds, nanoseconds, text) in [
            (0, 0, "0"),
            (1, 500_000_000, "1.5"),
            (-2, 500_000_000, "-1.5"),
            (-1, 999_999_999, "-0.000000001"),
            (-5, 0, "-5"),
        ] {
            assert_eq!(
                Decimal(Time {
                    seconds,
                    nanoseconds
                })
                .to_string(),
                text
            );
        }
    }

    #[test]
    fn paths_split_only_at_slashes_and_only_when_they_must() {
        let long =
            |dirs: usize, name: usize| [vec![b'd'; dirs], b"/".to_vec(), vec![b'n'; name]].concat();
        assert_eq!(split_path(b"a/b"), Some((&b""[..], &b"a/b"[..])));
        let path = long(155, 100);
        assert_eq!(
            split_path(&path).map(|(a, b)| (a.len(), b.len())),
            Some((155, 100))
        );
        assert_eq!(split_path(&long(156, 100)), None);
        assert_eq!(split_path(&long(20, 101)), None);
        let mut dir = long(100, 99);
        dir.push(b'/');
        assert_eq!(
            split_path(&dir).map(|(a, b)| (a.len(), b.len())),
            Some((100, 100))
        );
        dir.truncate(101);
        assert_eq!(
            split_path(&dir),
            None,
            "a directory's name must not become empty"
        );
    }
}
