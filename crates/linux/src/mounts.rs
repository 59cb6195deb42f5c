//! Where file systems are mounted.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The paths of all mount points in this process's mount namespace, below its root directory. Needs
/// `/proc`.
///
/// # Errors
/// The kernel's error.
pub fn mount_points() -> io::Result<Vec<Vec<u8>>> {
    let info = std::fs::read("/proc/self/mountinfo")?;
    let lines = info.split(|&byte| byte == b'\n');
    // Fields: mount ID, parent ID, device, root of the mount in its file system, mount point, and
    // more.
    let paths = lines.filter_map(|line| line.split(|&byte| byte == b' ').nth(4));
    Ok(paths.map(unescape).collect())
}

/// The device number, as `major:minor`, of the mount at a path: of the last one, which
/// covers the others. Needs `/proc`, and does not ask the file system, which may not answer.
///
/// # Errors
/// The kernel's error.
pub fn mounted_device(point: &Path) -> io::Result<Option<Vec<u8>>> {
    let info = std::fs::read("/proc/self/mountinfo")?;
    let mut found = None;
    for line in info.split(|&byte| byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        if let (Some(device), Some(path)) = (fields.get(2), fields.get(4))
            && unescape(path) == point.as_os_str().as_bytes()
        {
            found = Some(device.to_vec());
        }
    }
    Ok(found)
}

/// Undoes the kernel's `\ooo` for space, tab, newline and backslash.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let digits = after.first_chunk::<3>().filter(|_| byte == b'\\');
        let octal = digits.and_then(|digits| {
            let digits = str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        path.push(octal.unwrap_or(byte));
        if octal.is_some() {
            rest = after.get(3..).unwrap_or_default();
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_paths_as_bytes() {
        assert_eq!(unescape(b"/a\\040b\\134c"), b"/a b\\c");
        assert_eq!(unescape(b"/a\\9"), b"/a\\9");
        assert!(mount_points().unwrap().contains(&b"/".to_vec()));
        assert!(mounted_device(Path::new("/")).unwrap().is_some());
        assert!(mounted_device(Path::new("/none")).unwrap().is_none());
    }
}
