//! Users and groups of this machine by name.

use std::collections::HashMap;
use std::fs;
use std::sync::OnceLock;

/// The users and groups in `/etc/passwd` and `/etc/group`, which are read when they are needed.
#[derive(Debug, Default)]
pub struct HostIds {
    users: OnceLock<HashMap<Box<[u8]>, u32>>,
    groups: OnceLock<HashMap<Box<[u8]>, u32>>,
}

impl HostIds {
    /// The ID of the user with this name.
    pub fn user(&self, name: &[u8]) -> Option<u32> {
        let users = self.users.get_or_init(|| read("/etc/passwd"));
        users.get(name).copied()
    }

    /// The ID of the group with this name.
    pub fn group(&self, name: &[u8]) -> Option<u32> {
        let groups = self.groups.get_or_init(|| read("/etc/group"));
        groups.get(name).copied()
    }
}

fn read(file: &str) -> HashMap<Box<[u8]>, u32> {
    ids_in(&fs::read(file).unwrap_or_default())
}

/// The first and the third field of each line, as in passwd(5) and group(5).
fn ids_in(table: &[u8]) -> HashMap<Box<[u8]>, u32> {
    let mut ids = HashMap::new();
    for line in table.split(|&byte| byte == b'\n') {
        let mut fields = line.split(|&byte| byte == b':');
        let (name, id) = (fields.next().unwrap_or_default(), fields.nth(1));
        let id = id.and_then(|id| str::from_utf8(id).ok()?.parse().ok());
        if let Some(id) = id.filter(|_| !name.is_empty()) {
            // Of lines with one name, the first counts.
            ids.entry(name.into()).or_insert(id);
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_name_counts() {
        let table =
            b"root:x:0:0:root:/root:/bin/sh\n+::::\nbroken\n:x:1\nwww:*:33:33::/var/www:\nwww:*:34";
        let ids = ids_in(table);
        assert_eq!(ids.get(&b"root"[..]), Some(&0));
        assert_eq!(ids.get(&b"www"[..]), Some(&33));
        assert_eq!(ids.len(), 2);
        assert_eq!(HostIds::default().user(b"root"), Some(0));
        assert_eq!(HostIds::default().group(b"no such group"), None);
    }
}
