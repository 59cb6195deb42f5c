//! A directory with everything that file trees rarely contain.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use linux::{OpenFlags, Timestamp};

use crate::Rng;

/// The size of the largest sparse file in [`nasty_tree`]: more than fits in 32 bits.
pub const NASTY_SPARSE_BYTES: u64 = 5 << 30;

/// Fills the directory `at` with every type of file, name, time, mode, link, hole and attribute
/// that Linux allows on common file systems. As root, this includes devices, foreign owners and
/// attributes that only root can set.
///
/// # Panics
///
/// If anything cannot be created.
pub fn nasty_tree(at: &Path) {
    let is_root = linux::process_owner().0 == 0;
    let root = linux::open_dir(at).expect("the directory opens");
    contents(at);
    holes(&at.join("holes"));
    names(&root, at);
    deep_path(&root);
    links(&at.join("links"));
    times(&root);
    modes(&at.join("modes"), is_root);
    attributes(at, is_root);
    special(&root, is_root);
    if is_root {
        owners(&root);
    }
}

fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
}

fn contents(at: &Path) {
    fs::create_dir(at.join("empty directory")).expect("create");
    write(&at.join("empty"), b"");
    let mut rng = Rng::new(4);
    for size in [1, 511, 4096, 4097, 131_072, 1_048_577, 9_000_001] {
        write(&at.join(format!("bytes-{size}")), &rng.bytes(size));
    }
    // Stored zeros are not a hole.
    write(&at.join("zeros"), &[0; 70_000]);
}

fn holes(at: &Path) {
    fs::create_dir(at).expect("create");
    let file = |name: &str, size: u64, data: &[(u64, usize)]| {
        let file = File::create(at.join(name)).expect("create");
        file.set_len(size).expect("a sparse file");
        for &(offset, len) in data {
            let bytes = Rng::new(offset).bytes(len);
            file.write_all_at(&bytes, offset).expect("write");
        }
    };
    file("all", 1 << 20, &[]);
    file("small", 100, &[]);
    file("head", 100_000, &[(65_536, 1000)]);
    file("tail", 1_000_003, &[(0, 10)]);
    let last = NASTY_SPARSE_BYTES - 1;
    file(
        "huge",
        NASTY_SPARSE_BYTES,
        &[(0, 1), (1 << 32, 5000), (last, 1)],
    );
    let comb: Vec<(u64, usize)> = (0..700).map(|n| (n * 16_384 + 8192, 4096)).collect();
    file("comb", 700 * 16_384 + 8192, &comb);
}

fn names(root: &OwnedFd, at: &Path) {
    let dir = at.join("names");
    fs::create_dir(&dir).expect("create");
    let dir = linux::open_at(root, b"names", OpenFlags::DIRECTORY, 0).expect("open");
    let create = |name: &[u8]| {
        let flags = OpenFlags::WRONLY | OpenFlags::CREATE | OpenFlags::EXCL;
        let file = File::from(linux::open_at(&dir, name, flags, 0o644).expect("create"));
        file.write_all_at(name, 0).expect("write");
    };
    for name in [
        &b"\xff\xfe not utf-8 \x80"[..],
        b"new\nline",
        b"tab\tand \\ backslash",
        b" space ",
        b"-dash",
        b"...",
        b"*",
        b"\x01\x7f",
        b"e\xcc\x81", // the same letter in two Unicode forms
        b"\xc3\xa9",
        b"A",
        b"a",
        b"a.b",
        b"a-b",
    ] {
        create(name);
    }
    create(&[b'n'; 255]);
    let all: Vec<u8> = (1..=255).filter(|&byte| byte != b'/').collect();
    create(&all);
}

/// 45 levels of names of 110 bytes, too deep for any single path.
fn deep_path(root: &OwnedFd) {
    let mut dir = root.try_clone().expect("a descriptor");
    for level in 0..45u8 {
        let name = [b'a' + level % 26; 110];
        linux::make_dir_at(&dir, &name, 0o755).expect("create");
        dir = linux::open_at(&dir, &name, OpenFlags::DIRECTORY, 0).expect("open");
    }
    let flags = OpenFlags::WRONLY | OpenFlags::CREATE;
    let file = linux::open_at(&dir, b"bottom", flags, 0o600).expect("create");
    File::from(file).write_all_at(b"here", 0).expect("write");
}

fn links(at: &Path) {
    fs::create_dir_all(at.join("z")).expect("create");
    fs::create_dir_all(at.join("b/c")).expect("create");
    write(&at.join("z/first"), b"one file, three names");
    fs::hard_link(at.join("z/first"), at.join("second")).expect("link");
    fs::hard_link(at.join("z/first"), at.join("b/c/third")).expect("link");
    let target = |target: &[u8], name: &str| {
        symlink(std::ffi::OsStr::from_bytes(target), at.join(name)).expect("link");
    };
    target(b"second", "to-file");
    target(b"no such file", "dangling");
    target(b"/etc/passwd", "absolute");
    target(b"../../../../../../etc", "up");
    target(b"b/../b/c", "to-directory");
    target(b".", "to-itself");
    target(b"\xff\n", "bytes");
    target(&[b'l'; 4095], "longest");
    fs::hard_link(at.join("dangling"), at.join("dangling too")).expect("link");
}

fn times(root: &OwnedFd) {
    linux::make_dir_at(root, b"times", 0o755).expect("create");
    let dir = linux::open_at(root, b"times", OpenFlags::DIRECTORY, 0).expect("open");
    // The last two are the limits of ext4 with 256-byte inodes.
    for seconds in [
        -1,
        0,
        1_000_000_000,
        1 << 31,
        1 << 32,
        -(1 << 31),
        15_032_385_535,
    ] {
        for nanoseconds in [0, 1, 999_999_999] {
            let name = format!("{seconds}.{nanoseconds}");
            let flags = OpenFlags::WRONLY | OpenFlags::CREATE;
            linux::open_at(&dir, name.as_bytes(), flags, 0o644).expect("create");
            let time = Timestamp {
                seconds,
                nanoseconds,
            };
            let atime = Timestamp {
                seconds: seconds / 2,
                nanoseconds: 5,
            };
            linux::set_times_at(&dir, name.as_bytes(), Some(atime), time).expect("set the times");
        }
    }
    let old = Timestamp {
        seconds: 86_400,
        nanoseconds: 123_456_789,
    };
    linux::make_symlink_at(b"0.0", &dir, b"link").expect("link");
    linux::set_times_at(&dir, b"link", Some(old), old).expect("set the times");
    linux::set_times_at(root, b"times", Some(old), old).expect("set the times");
}

fn modes(at: &Path, is_root: bool) {
    fs::create_dir(at).expect("create");
    for mode in [
        0, 0o001, 0o400, 0o644, 0o777, 0o4755, 0o2755, 0o1644, 0o7777,
    ] {
        if mode & 0o400 == 0 && !is_root {
            continue; // only root could read it again
        }
        let path = at.join(format!("file-{mode:04o}"));
        write(&path, b"content");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set the mode");
    }
    for mode in [0o555, 0o700, 0o1777, 0o2755, 0o7777] {
        let path = at.join(format!("dir-{mode:04o}"));
        fs::create_dir(&path).expect("create");
        write(&path.join("inside"), b"content");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set the mode");
    }
}

fn attributes(at: &Path, is_root: bool) {
    let root = linux::open_dir(at).expect("open");
    write(&at.join("attributes"), b"content");
    fs::create_dir(at.join("attributes.d")).expect("create");
    let set = |name: &[u8], attribute: &[u8], value: &[u8]| {
        linux::set_xattr_at(&root, name, attribute, value)
            .unwrap_or_else(|e| panic!("set {}: {e}", attribute.escape_ascii()));
    };
    set(b"attributes", b"user.empty", b"");
    set(b"attributes", b"user.bytes", &[0, 255, 10, 61, 34, 92]);
    set(b"attributes", b"user.big", &Rng::new(9).bytes(3000));
    set(b"attributes", b"user.\xc3\xa9=\n", b"an odd name");
    set(b"attributes.d", b"user.on a directory", b"yes");
    // Version 2, then tag, permissions, id: owner rw-, user 7 r--, group ---, mask r--, others ---.
    let acl = acl(&[(1, 6, !0), (2, 4, 7), (4, 0, !0), (16, 4, !0), (32, 0, !0)]);
    write(&at.join("access-list"), b"content");
    set(b"access-list", b"system.posix_acl_access", &acl);
    fs::create_dir(at.join("access-list.d")).expect("create");
    set(b"access-list.d", b"system.posix_acl_default", &acl);
    write(&at.join("access-list.d/inherits"), b"content");
    if is_root {
        // GNU tar cannot restore it unless it runs as root.
        write(&at.join("attributes-read-only"), b"content");
        set(b"attributes-read-only", b"user.a", b"1");
        let read_only = fs::Permissions::from_mode(0o444);
        fs::set_permissions(at.join("attributes-read-only"), read_only).expect("set the mode");
        symlink("attributes", at.join("attributes-link")).expect("link");
        set(b"attributes-link", b"trusted.on a link", b"yes");
        write(&at.join("capability"), b"content");
        // struct vfs_cap_data, revision 2, effective: CAP_NET_RAW permitted.
        let capability = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        set(b"capability", b"security.capability", &capability);
    }
}

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn special(root: &OwnedFd, is_root: bool) {
    linux::make_node_at(root, b"fifo", 0o010_640, (0, 0)).expect("create");
    linux::link_at(root, b"fifo", root, b"fifo too").expect("link");
    linux::make_node_at(root, b"socket", 0o140_755, (0, 0)).expect("create");
    if is_root {
        linux::make_node_at(root, b"null", 0o020_666, (1, 3)).expect("create");
        linux::make_node_at(root, b"big numbers", 0o020_600, (4095, 1_048_575)).expect("create");
        linux::make_node_at(root, b"disk", 0o060_660, (259, 65_536)).expect("create");
        linux::link_at(root, b"disk", root, b"disk too").expect("link");
    }
}

fn owners(root: &OwnedFd) {
    linux::make_dir_at(root, b"owners", 0o755).expect("create");
    let dir = linux::open_at(root, b"owners", OpenFlags::DIRECTORY, 0).expect("open");
    for (name, mode, uid, gid) in [
        (b"user", 0o644, 1000, 2000),
        (b"last", 0o600, u32::MAX - 1, u32::MAX - 1),
        (b"suid", 0o6755, 65_534, 65_534),
    ] {
        let flags = OpenFlags::WRONLY | OpenFlags::CREATE;
        let file = linux::open_at(&dir, name, flags, 0o600).expect("create");
        linux::set_owner(&file, uid, gid).expect("set the owner");
        linux::set_mode(&file, mode).expect("set the mode");
    }
    linux::make_symlink_at(b"user", &dir, b"link").expect("link");
    linux::set_owner_at(&dir, b"link", 33, 44).expect("set the owner");
    linux::make_node_at(&dir, b"fifo", 0o010_600, (0, 0)).expect("create");
    linux::set_owner_at(&dir, b"fifo", 33, 44).expect("set the owner");
    linux::set_owner(&dir, 55, 66).expect("set the owner");
}
