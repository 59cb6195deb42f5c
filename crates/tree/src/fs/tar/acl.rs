//! POSIX access control lists: as attributes of Linux, and as text in `SCHILY.acl.*`.
//!
//! The text of star and libarchive has a number behind the permissions of a named entry, that of
//! GNU tar has a name or a number alone. Entries are separated by commas or line ends, and come in
//! any order.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use crate::HostIds;

/// The attributes that hold the lists in Linux, and the records with their text.
pub(super) const LISTS: [(&str, &str); 2] = [
    ("system.posix_acl_access", "SCHILY.acl.access"),
    ("system.posix_acl_default", "SCHILY.acl.default"),
];

/// `POSIX_ACL_XATTR_VERSION`, the first 32 bits of an attribute.
const VERSION: [u8; 4] = [2, 0, 0, 0];

/// `ACL_UNDEFINED_ID`, for entries without a user or group.
const NO_ID: u32 = u32::MAX;

/// A list that Linux accepts, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Acl(Vec<AclEntry>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AclEntry {
    tag: Tag,
    id: u32,
    /// `rwx` as in a mode.
    permissions: u8,
}

/// `ACL_USER_OBJ` and so on, whose numbers are in the order of the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tag {
    Owner,
    User,
    OwningGroup,
    Group,
    Mask,
    Other,
}

impl Tag {
    const ALL: [(Tag, u8, &str); 6] = [
        (Tag::Owner, 0x01, "user"),
        (Tag::User, 0x02, "user"),
        (Tag::OwningGroup, 0x04, "group"),
        (Tag::Group, 0x08, "group"),
        (Tag::Mask, 0x10, "mask"),
        (Tag::Other, 0x20, "other"),
    ];

    fn is_named(self) -> bool {
        matches!(self, Tag::User | Tag::Group)
    }
}

impl Acl {
    /// Sorts entries as Linux stores them; `None` unless it accepts them.
    fn of(mut entries: Vec<AclEntry>) -> Option<Acl> {
        entries.sort();
        let count = |tag| entries.iter().filter(|entry| entry.tag == tag).count();
        let is_repeated = entries
            .windows(2)
            .any(|pair| matches!(pair, [a, b] if (a.tag, a.id) == (b.tag, b.id)));
        let has_names = entries.iter().any(|entry| entry.tag.is_named());
        let is_valid = [Tag::Owner, Tag::OwningGroup, Tag::Other]
            .iter()
            .all(|&tag| count(tag) == 1)
            && (count(Tag::Mask) == 1 || !has_names)
            && !is_repeated;
        is_valid.then_some(Acl(entries))
    }

    /// The list in the value of an attribute.
    pub(super) fn from_xattr(value: &[u8]) -> Option<Acl> {
        let entries = value.strip_prefix(&VERSION)?;
        let entries = entries.chunks(8).map(|entry| {
            let &[number, 0, permissions @ 0..=7, 0, ref id @ ..] = entry else {
                return None;
            };
            let &(tag, ..) = Tag::ALL.iter().find(|(_, known, _)| *known == number)?;
            let id = u32::from_le_bytes(id.try_into().ok()?);
            Some(AclEntry {
                tag,
                id: if tag.is_named() { id } else { NO_ID },
                permissions,
            })
        });
        Acl::of(entries.collect::<Option<_>>()?)
    }

    /// The list in the text of a record; `None` also if it names users or groups that this machine
    /// does not know.
    pub(super) fn from_text(text: &[u8], ids: &HostIds) -> Option<Acl> {
        let mut entries = Vec::new();
        for entry in text.split(|byte| b",\n".contains(byte)) {
            // `getfacl` adds comments.
            let entry = entry.split(|&byte| byte == b'#').next()?.trim_ascii();
            if !entry.is_empty() {
                entries.push(AclEntry::from_text(entry, ids)?);
            }
        }
        Acl::of(entries)
    }

    /// The value of the attribute.
    pub(super) fn emit_xattr(&self) -> Vec<u8> {
        let mut value = VERSION.to_vec();
        for entry in &self.0 {
            let number = entry.known().1;
            value.extend([number, 0, entry.permissions, 0]);
            value.extend(entry.id.to_le_bytes());
        }
        value
    }

    /// The text of the record, with numbers, which GNU tar and libarchive read.
    pub(super) fn emit_text(&self) -> String {
        let entries = self.0.iter().map(|entry| {
            let id = if entry.tag.is_named() {
                entry.id.to_string()
            } else {
                String::new()
            };
            let letter = |bit: u8, letter| match entry.permissions & bit {
                0 => '-',
                _ => letter,
            };
            let [r, w, x] = [letter(4, 'r'), letter(2, 'w'), letter(1, 'x')];
            format!("{}:{id}:{r}{w}{x}", entry.known().2)
        });
        entries.collect::<Vec<_>>().join(",")
    }

    /// The permissions in the mode of a file with this access list: of the group, they are the
    /// mask.
    pub(super) fn mode(&self) -> u16 {
        let of = |tag| self.0.iter().find(|entry| entry.tag == tag);
        let bits = |tag| of(tag).map_or(0, |entry| u16::from(entry.permissions));
        let group = of(Tag::Mask).map_or(Tag::OwningGroup, |mask| mask.tag);
        bits(Tag::Owner) << 6 | bits(group) << 3 | bits(Tag::Other)
    }

    /// Whether it says no more than a mode, so that Linux stores no attribute.
    pub(super) fn is_mode(&self) -> bool {
        self.0.len() == 3
    }
}

impl AclEntry {
    /// `user:NAME:rwx`, `user:NAME:rwx:ID`, `user::rwx`, `other::rwx` or `other:rwx`.
    fn from_text(entry: &[u8], ids: &HostIds) -> Option<AclEntry> {
        let mut fields: Vec<&[u8]> = entry.split(|&byte| byte == b':').collect();
        if matches!(fields.first(), Some(&b"default" | &b"d")) {
            fields.remove(0);
        }
        let (kind, name, permissions, id) = match *fields {
            [kind, permissions] => (kind, &b""[..], permissions, None),
            [kind, name, permissions] => (kind, name, permissions, None),
            [kind, name, permissions, id] => (kind, name, permissions, Some(id)),
            _ => return None,
        };
        let tag = match (kind, name.is_empty() && id.is_none()) {
            (b"user" | b"u", true) => Tag::Owner,
            (b"user" | b"u", false) => Tag::User,
            (b"group" | b"g", true) => Tag::OwningGroup,
            (b"group" | b"g", false) => Tag::Group,
            (b"mask" | b"m", true) => Tag::Mask,
            (b"other" | b"o", true) => Tag::Other,
            _ => return None,
        };
        if fields.len() == 2 && !matches!(tag, Tag::Mask | Tag::Other) {
            return None;
        }
        let number = |text: &[u8]| str::from_utf8(text).ok()?.parse().ok();
        let id = match (tag, id) {
            (Tag::User | Tag::Group, Some(id)) => number(id)?,
            (Tag::User, None) => ids.user(name).or_else(|| number(name))?,
            (Tag::Group, None) => ids.group(name).or_else(|| number(name))?,
            _ => NO_ID,
        };
        let permissions = permissions.iter().try_fold(0, |all, byte| {
            Some(match byte {
                b'r' => all | 4,
                b'w' => all | 2,
                b'x' => all | 1,
                b'-' => all,
                _ => return None,
            })
        })?;
        Some(AclEntry {
            tag,
            id,
            permissions,
        })
    }

    fn known(&self) -> &'static (Tag, u8, &'static str) {
        let known = Tag::ALL.iter().find(|(tag, ..)| *tag == self.tag);
        known.expect("all tags are listed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As setfacl 2.3.1 stores it, GNU tar 1.34 writes it, and bsdtar 3.6.2.
    #[test]
    fn both_texts_are_the_attribute() {
        let value =
            b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x07\0\0\0\0\0\x02\0\x04\0\x07\0\0\0\
            \x04\0\x04\0\xff\xff\xff\xff\x08\0\x06\0\x92\x10\0\0\x10\0\x04\0\xff\xff\xff\xff\
            \x20\0\x04\0\xff\xff\xff\xff";
        let gnu = b"user::rw-\nuser:root:rwx\nuser:7:r--\ngroup::r--\ngroup:4242:rw-\t#effective:r--\nmask::r--\nother::r--\n";
        let star = b"user::rw-,group::r--,other::r--,user:lp:r--:7,user:nobody here:rwx:0,group:news:rw-:4242,mask::r--";
        let ids = HostIds::default();
        let acl = Acl::from_xattr(value).unwrap();
        assert_eq!(Acl::from_text(gnu, &ids).as_ref(), Some(&acl));
        assert_eq!(Acl::from_text(star, &ids).as_ref(), Some(&acl));
        assert_eq!(acl.emit_xattr(), value);
        let text = "user::rw-,user:0:rwx,user:7:r--,group::r--,group:4242:rw-,mask::r--,other::r--";
        assert_eq!(acl.emit_text(), text);
        assert_eq!(Acl::from_text(text.as_bytes(), &ids), Some(acl.clone()));
        assert_eq!((acl.mode(), acl.is_mode()), (0o644, false));
    }

    #[test]
    fn what_linux_refuses_is_no_list() {
        let ids = HostIds::default();
        let read = |text: &str| Acl::from_text(text.as_bytes(), &ids);
        let short = read("u::rwx,g::r-x,o:--x").unwrap();
        assert_eq!((short.mode(), short.is_mode()), (0o751, true));
        for wrong in [
            "",
            "user::rw-",
            "user::rw-,group::r--,other::r--,user:7:rwx",
            "user::rw-,user::rw-,group::r--,other::r--",
            "user::rw-,group::r--,other::r--,user:7:rwx,user:7:r--,mask::r--",
            "user::rw-,group::r--,other::r--,user:no such user:rwx,mask::r--",
            "user::rw-,group::r--,other::r--,user:7:rwx:-1,mask::r--",
            "user::rwz,group::r--,other::r--",
            "user:rw-,group::r--,other::r--",
            "owner@:rw:allow",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        let acl = read("user::rw-,group::r--,other::r--,mask::r--").unwrap();
        let value = acl.emit_xattr();
        assert_eq!(Acl::from_xattr(&value), Some(acl));
        for end in 0..value.len() {
            assert_eq!(Acl::from_xattr(&value[..end]), None, "{end}");
        }
    }
}
