//! Users and groups on the command line: numbers, or names that this machine knows.

use anyhow::{Context, Result};
use tree::HostIds;

/// Parses a user ID, or the name of a user of this machine.
///
/// # Errors
/// There is no such user.
pub(crate) fn user(words: &str) -> Result<u32> {
    let id = words.parse().ok();
    id.or_else(|| HostIds::default().user(words.as_bytes()))
        .with_context(|| format!("no user `{words}` on this machine; a user ID is always accepted"))
}

/// Parses a group ID, or the name of a group of this machine.
///
/// # Errors
/// There is no such group.
pub(crate) fn group(words: &str) -> Result<u32> {
    let id = words.parse().ok();
    id.or_else(|| HostIds::default().group(words.as_bytes()))
        .with_context(|| {
            format!("no group `{words}` on this machine; a group ID is always accepted")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_need_no_names() {
        assert_eq!(user("4294967295").unwrap(), u32::MAX);
        assert_eq!(user("root").unwrap(), 0);
        assert!(group("no such group").is_err());
    }
}
