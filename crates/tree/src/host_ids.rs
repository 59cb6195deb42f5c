//! Users and groups of this machine by name.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Calls of `getent` for each of the two: an archive may name a million users.
const CALLS_MAX: u32 = 1000;
/// Bytes of its answer: a group can have many members.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// The users and groups in `/etc/passwd` and `/etc/group`, which are read when they are needed, and
/// those that the program `getent` knows besides, such as those of LDAP.
#[derive(Debug)]
pub struct HostIds {
    users: Mutex<IdTable>,
    groups: Mutex<IdTable>,
}

/// The entries of one of the two that are known.
#[derive(Debug)]
struct IdTable {
    /// The name of the file in `/etc`, and of the database.
    database: &'static str,
    is_read: bool,
    /// `None` for names that do not exist.
    ids: HashMap<Box<[u8]>, Option<u32>>,
    names: HashMap<u32, Option<Box<[u8]>>>,
    calls: u32,
}

impl Default for HostIds {
    fn default() -> HostIds {
        HostIds {
            users: Mutex::new(IdTable::of("passwd")),
            groups: Mutex::new(IdTable::of("group")),
        }
    }
}

impl HostIds {
    /// The ID of the user with this name.
    pub fn user(&self, name: &[u8]) -> Option<u32> {
        with(&self.users, |users| users.id(name))
    }

    /// The ID of the group with this name.
    pub fn group(&self, name: &[u8]) -> Option<u32> {
        with(&self.groups, |groups| groups.id(name))
    }

    /// The name of the user with this ID.
    pub fn user_name(&self, id: u32) -> Option<Box<[u8]>> {
        with(&self.users, |users| users.name(id))
    }

    /// The name of the group with this ID.
    pub fn group_name(&self, id: u32) -> Option<Box<[u8]>> {
        with(&self.groups, |groups| groups.name(id))
    }
}

fn with<T>(table: &Mutex<IdTable>, ask: impl FnOnce(&mut IdTable) -> T) -> T {
    let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
    if !table.is_read {
        table.is_read = true;
        let file = fs::read(format!("/etc/{}", table.database));
        table.add(&file.unwrap_or_default());
    }
    ask(&mut table)
}

impl IdTable {
    fn of(database: &'static str) -> IdTable {
        IdTable {
            database,
            is_read: false,
            ids: HashMap::new(),
            names: HashMap::new(),
            calls: 0,
        }
    }

    fn id(&mut self, name: &[u8]) -> Option<u32> {
        // `getent` takes digits for an ID, and a hyphen for an option.
        let is_name = !name.is_empty() && !name.iter().all(u8::is_ascii_digit);
        if !self.ids.contains_key(name) && is_name && !name.starts_with(b"-") {
            let answer = self.getent(name);
            self.add(&answer);
            self.ids.entry(name.into()).or_insert(None);
        }
        self.ids.get(name).copied().flatten()
    }

    fn name(&mut self, id: u32) -> Option<Box<[u8]>> {
        if !self.names.contains_key(&id) {
            let answer = self.getent(id.to_string().as_bytes());
            self.add(&answer);
            self.names.entry(id).or_insert(None);
        }
        self.names.get(&id).cloned().flatten()
    }

    /// The lines that `getent` prints about a name or an ID; empty if there is no such program.
    fn getent(&mut self, key: &[u8]) -> Vec<u8> {
        let mut answer = Vec::new();
        if self.calls == CALLS_MAX {
            return answer;
        }
        self.calls += 1;
        let mut getent = Command::new("getent");
        getent.arg(self.database).arg(OsStr::from_bytes(key));
        getent.stdin(Stdio::null()).stderr(Stdio::null());
        let Ok(mut child) = getent.stdout(Stdio::piped()).spawn() else {
            self.calls = CALLS_MAX;
            return answer;
        };
        if let Some(output) = child.stdout.take() {
            let read = output.take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
            if answer.len() as u64 == ANSWER_BYTES_MAX {
                let _ = child.kill(); // it may print on forever
            }
            if read.is_err() || child.wait().is_ok_and(|status| !status.success()) {
                answer.clear();
            }
        }
        answer
    }

    /// Adds the first and the third field of each line, as in passwd(5) and group(5).
    fn add(&mut self, text: &[u8]) {
        for line in text.split(|&byte| byte == b'\n') {
            let mut fields = line.split(|&byte| byte == b':');
            let (name, id) = (fields.next().unwrap_or_default(), fields.nth(1));
            let id = id.and_then(|id| str::from_utf8(id).ok()?.parse().ok());
            if let Some(id) = id.filter(|_| !name.is_empty()) {
                // Of lines with one name or one ID, the first counts.
                self.ids.entry(name.into()).or_insert(Some(id));
                (self.names.entry(id)).or_insert_with(|| Some(name.into()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_name_counts() {
        let table =
            b"root:x:0:0:root:/root:/bin/sh\n+::::\nbroken\n:x:1\nwww:*:33:33::/var/www:\nwww:*:34\nweb:*:33";
        let mut known = IdTable::of("passwd");
        known.calls = CALLS_MAX;
        known.add(table);
        assert_eq!(known.id(b"root"), Some(0));
        assert_eq!(known.id(b"www"), Some(33));
        assert_eq!(known.ids.len(), 3);
        assert_eq!(known.name(33).as_deref(), Some(&b"www"[..]));
        assert_eq!(HostIds::default().user(b"root"), Some(0));
        assert_eq!(HostIds::default().group(b"no such group"), None);
        let root = HostIds::default().group_name(0);
        assert_eq!(root.as_deref(), Some(&b"root"[..]));
        assert_eq!(HostIds::default().user_name(u32::MAX), None);
    }
}
