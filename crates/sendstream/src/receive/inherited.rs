//! Attributes that Linux gives to a new file because its directory has them, though the stream does
//! not.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::attributes::COMPRESSION;

const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";
/// The extended attributes. The first one comes from the default list of the directory.
const XATTRS: [&[u8]; 3] = [b"system.posix_acl_access", DEFAULT_ACL, COMPRESSION];

/// Whether new files in an open directory inherit something.
pub(super) fn bequeaths(dir: &OwnedFd) -> io::Result<bool> {
    let mut found = false;
    linux::for_each_xattr_of(dir, |name, _| {
        found |= name == DEFAULT_ACL || name == COMPRESSION;
    })?;
    Ok(found)
}

/// Removes what an open regular file or directory inherited.
pub(super) fn disinherit(file: impl AsFd) -> io::Result<()> {
    for name in XATTRS {
        linux::remove_xattr(&file, name)?;
    }
    Ok(())
}

/// Removes what another new file inherited.
pub(super) fn disinherit_at(dir: &OwnedFd, name: &[u8]) -> io::Result<()> {
    match linux::remove_xattr_at(dir, name, XATTRS[0]) {
        Err(error) if is_absent(&error) => Ok(()),
        removed => removed,
    }
}

/// Whether an extended attribute was not removed because there is none.
pub(super) fn is_absent(error: &io::Error) -> bool {
    error.raw_os_error() == Some(linux::errno::ENODATA)
}
