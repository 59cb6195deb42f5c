//! Users and groups of this machine by name.

use std::collections::HashMap;
use std::fs;
use std::sync::OnceLock;

/// The users and groups in `/etc/passwd` and `/etc/group`, which are read when they are needed.
#[derive(Debug, Default)]
pub struct HostIds {
    users: OnceLock<IdTable>,
    groups: OnceLock<IdTable>,
}

/// One of the two files.
#[derive(Debug, Default)]
struct IdTable {
    ids: HashMap<Box<[u8]>, u32>,
    names: HashMap<u32, Box<[u8]>>,
}

impl HostIds {
    fn users(&self) -> &IdTable {
        self.users.get_or_init(|| IdTable::read("/etc/passwd"))
    }

    fn groups(&self) -> &IdTable {
        self.groups.get_or_init(|| IdTable::read("/etc/group"))
    }

    /// The ID of the user with this name.
    pub fn user(&self, name: &[u8]) -> Option<u32> {
        self.users().ids.get(name).copied()
    }

    /// The ID of the group with this name.
    pub fn group(&self, name: &[u8]) -> Option<u32> {
        self.groups().ids.get(name).copied()
    }

    /// The name of the user with this ID.
    pub fn user_name(&self, id: u32) -> Option<&[u8]> {
        self.users().names.get(&id).map(|name| &**name)
    }

    /// The name of the group with this ID.
    pub fn group_name(&self, id: u32) -> Option<&[u8]> {
        self.groups().names.get(&id).map(|name| &**name)
    }
}

impl IdTable {
    fn read(file: &str) -> IdTable {
        IdTable::parse(&fs::read(file).unwrap_or_default())
    }

    /// The first and the third field of each line, as in passwd(5) and group(5).
    fn parse(text: &[u8]) -> IdTable {
        let mut table = IdTable::default();
        for line in text.split(|&byte| byte == b'\n') {
            let mut fields = line.split(|&byte| byte == b':');
            let (name, id) = (fields.next().unwrap_or_default(), fields.nth(1));
            let id = id.and_then(|id| str::from_utf8(id).ok()?.parse().ok());
            if let Some(id) = id.filter(|_| !name.is_empty()) {
                // Of lines with one name or one ID, the first counts.
                table.ids.entry(name.into()).or_insert(id);
                table.names.entry(id).or_insert_with(|| name.into());
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_name_counts() {
        let table =
            b"root:x:0:0:root:/root:/bin/sh\n+::::\nbroken\n:x:1\nwww:*:33:33::/var/www:\nwww:*:34\nweb:*:33";
        let IdTable { ids, names } = IdTable::parse(table);
        assert_eq!(ids.get(&b"root"[..]), Some(&0));
        assert_eq!(ids.get(&b"www"[..]), Some(&33));
        assert_eq!(ids.len(), 3);
        assert_eq!(&*names[&33], b"www");
        assert_eq!(HostIds::default().user(b"root"), Some(0));
        assert_eq!(HostIds::default().group(b"no such group"), None);
        assert_eq!(HostIds::default().group_name(0), Some(&b"root"[..]));
        assert_eq!(HostIds::default().user_name(u32::MAX), None);
    }
}
