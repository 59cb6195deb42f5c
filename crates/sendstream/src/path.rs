//! The rules for paths in a stream.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

/// The longest name that Linux has.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// Checks a path of a stream, which is relative to its subvolume; the empty one names the subvolume
/// itself. Returns its fault.
///
/// A path that passes has no empty component, no `.`, no `..`, no NUL and no name that Linux does
/// not have. It can still lead through a symlink: receivers must not follow one.
pub(crate) fn fault(path: &[u8]) -> Option<&'static str> {
    if path.is_empty() || is_plain(path) {
        return None;
    }
    if path.first() == Some(&b'/') {
        return Some("send stream's path is absolute");
    }
    let mut names = path.split(|&byte| byte == b'/');
    names.find_map(|name| match name {
        b"" => Some("send stream's path has an empty component"),
        b"." | b".." => Some("send stream's path has a component `.` or `..`"),
        name if name.contains(&0) => Some("send stream's path contains a NUL byte"),
        name if name.len() > NAME_BYTES_MAX => {
            Some("send stream's path has a name of more than 255 bytes")
        }
        _ => None,
    })
}

/// Whether a path is short and has no dot where a name begins, as most have: found without a look
/// at each name.
fn is_plain(path: &[u8]) -> bool {
    let pairs = path.iter().zip(path.iter().skip(1));
    // Not `any`, which would go byte by byte.
    let has_fault = pairs.fold(path.first() == Some(&b'.'), |found, (&a, &b)| {
        found | ((a == b'/') & ((b == b'/') | (b == b'.')))
    });
    let ends = [path.first(), path.last()];
    !has_fault && path.len() <= NAME_BYTES_MAX && !ends.contains(&Some(&b'/')) && !path.contains(&0)
}

/// Checks the name of a subvolume: like a path, but exactly one name.
pub(crate) fn name_fault(name: &[u8]) -> Option<&'static str> {
    if name.is_empty() {
        return Some("send stream's subvolume has no name");
    }
    if name.contains(&b'/') {
        return Some("send stream's subvolume has a name with a slash");
    }
    fault(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_below_the_subvolume_pass() {
        let long = [b'n'; 256];
        for good in [&b""[..], b"a", b"a/b", b"a\xff\n/..b", b"...", &long[..255]] {
            assert_eq!(fault(good), None, "{}", good.escape_ascii());
        }
        let bad: [&[u8]; 11] = [
            b"/", b"/a", b"a/", b"a//b", b".", b"a/.", b"..", b"../a", b"a/../b", b"a\0", &long,
        ];
        for bad in bad {
            assert!(fault(bad).is_some(), "{}", bad.escape_ascii());
            assert!(name_fault(bad).is_some(), "{}", bad.escape_ascii());
        }
        assert!(name_fault(b"").is_some());
        assert!(name_fault(b"a/b").is_some());
        assert_eq!(name_fault(b"s 1"), None);
    }
}
