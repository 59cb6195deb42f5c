//! Users and groups on the command line: numbers, or names that this machine knows.

use std::fs;

use anyhow::{Context, Result};

/// Parses a user ID, or the name of a user in `/etc/passwd`.
///
/// # Errors
/// There is no such user.
pub(crate) fn user(words: &str) -> Result<u32> {
    id(words, "/etc/passwd")
        .with_context(|| format!("no user `{words}` in /etc/passwd; a user ID is always accepted"))
}

/// Parses a group ID, or the name of a group in `/etc/group`.
///
/// # Errors
/// There is no such group.
pub(crate) fn group(words: &str) -> Result<u32> {
    id(words, "/etc/group")
        .with_context(|| format!("no group `{words}` in /etc/group; a group ID is always accepted"))
}

fn id(words: &str, file: &str) -> Option<u32> {
    words
        .parse()
        .ok()
        .or_else(|| id_in(&fs::read(file).unwrap_or_default(), words))
}

/// The third field of the line that begins with a name, as in passwd(5) and group(5).
fn id_in(table: &[u8], name: &str) -> Option<u32> {
    let lines = table.split(|&byte| byte == b'\n');
    let mut lines = lines.map(|line| line.split(|&byte| byte == b':'));
    lines.find_map(|mut fields| {
        let is_it = !name.is_empty() && fields.next() == Some(name.as_bytes());
        let id = is_it.then(|| fields.nth(1))??;
        str::from_utf8(id).ok()?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_up_and_numbers_are_not() {
        let table = b"root:x:0:0:root:/root:/bin/sh\n+::::\nbroken\nwww:*:33:33::/var/www:\n";
        assert_eq!(id_in(table, "root"), Some(0));
        assert_eq!(id_in(table, "www"), Some(33));
        for missing in ["", "ww", "broken", "+", "0"] {
            assert_eq!(id_in(table, missing), None, "{missing}");
        }
        assert_eq!(user("4294967295").unwrap(), u32::MAX);
        assert!(group("no such group").is_err());
    }
}
