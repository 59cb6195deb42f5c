//! Hostile and damaged archives of cpio: each gives an error with a position, or a safe tree.

use std::path::Path;
use std::sync::Arc;

use testkit::{Rng, cases};
use tree::tar::{Tar, TarOptions};
use tree::{ByPath, Error, FileSystem, Limits};

/// A member: number of the inode, mode, count of links, name, content.
fn member(magic: &str, inode: u32, mode: u32, links: u32, name: &str, content: &[u8]) -> Vec<u8> {
    let (len, name_len) = (content.len(), name.len() + 1);
    let sum: u32 = content.iter().map(|&byte| u32::from(byte)).sum();
    let numbers = if magic == "070707" {
        format!(
            "000001{inode:06o}{mode:06o}000000000000{links:06o}000000{0:011o}{name_len:06o}{len:011o}",
            5
        )
    } else {
        let sum = if magic == "070702" { sum } else { 0 };
        format!(
            "{inode:08x}{mode:08x}{0:08x}{0:08x}{links:08x}{1:08x}{len:08x}{0:08x}{0:08x}{0:08x}{0:08x}{name_len:08x}{sum:08x}",
            0, 5
        )
    };
    let mut bytes = format!("{magic}{numbers}{name}\0").into_bytes();
    let pad = |bytes: &mut Vec<u8>| {
        if magic != "070707" {
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
    };
    pad(&mut bytes);
    bytes.extend(content);
    pad(&mut bytes);
    bytes
}

fn newc(mode: u32, name: &str, content: &[u8]) -> Vec<u8> {
    member("070701", 1, mode, 1, name, content)
}

fn open_with(members: &[Vec<u8>], options: TarOptions) -> Result<Tar, Error> {
    let archive = Arc::new(members.concat());
    Tar::open_cpio(archive, Limits::default(), options, Path::new("/tmp"))
}

fn open(members: &[Vec<u8>]) -> Result<Tar, Error> {
    open_with(members, TarOptions::default())
}

fn end() -> Vec<u8> {
    newc(0, "TRAILER!!!", b"")
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let file = newc(0o100_644, "file", b"content");
    let fails = |members: &[Vec<u8>], words: &str| {
        let error = open(members).err().expect("it is refused").to_string();
        assert!(error.starts_with(words), "{error}");
    };
    fails(&[newc(0o100_644, "../up", b"")], "path in tar has a '..'");
    fails(&[newc(0o100_644, "a/../b", b"")], "path in tar has a '..'");
    fails(
        &[newc(0o170_644, "a", b"")],
        "cpio member has an unknown type",
    );
    fails(
        &[newc(0o120_777, "a", b"")],
        "target of a symbolic link in cpio",
    );
    fails(
        &[file.clone(), b"07070".to_vec()],
        "cpio header has a wrong magic",
    );
    fails(
        &[file[..100].to_vec()],
        "cpio archive is cut off within a header",
    );
    fails(
        &[file[..112].to_vec()],
        "cpio archive is cut off within a name",
    );
    fails(&[file[..120].to_vec()], "cpio member runs past the end");
    fails(
        &[end(), b"junk".to_vec()],
        "neither a cpio header nor compressed",
    );
    fails(
        &[file.clone(), newc(0o100_644, "file/below", b"")],
        "tar entry lies below a file",
    );
    let mut sign = file.clone();
    sign[6] = b'+';
    fails(&[sign], "cpio header has a field that is not a number");
    let mut sum = member("070702", 1, 0o100_644, 1, "a", b"content");
    sum[116] ^= 1;
    fails(&[sum], "content of a cpio member does not match its sum");
    let mut name = file.clone();
    name[94..102].copy_from_slice(b"ffffffff");
    fails(&[name], "name in cpio is empty or too long");
    let mut size = file;
    size[54..62].copy_from_slice(b"fffffff0");
    fails(&[size], "cpio member runs past the end");
}

#[test]
fn links_and_later_members_are_as_for_linux() {
    let link = |number, name, content: &[u8]| member("070701", number, 0o100_644, 3, name, content);
    let tree = open(&[
        newc(0o040_755, "/usr/lib", b""),
        newc(0o120_777, "lib", b"/usr/lib"),
        // The content comes with the last name, as from GNU cpio.
        link(7, "one", b""),
        link(7, "lib/two", b""),
        link(7, "three", b"content"),
        newc(0o100_600, "later", b"old"),
        end(),
        vec![0; 500],
        // In another archive, the number is that of another file.
        link(7, "four", b"4"),
        newc(0o100_640, "./later", b"new and longer"),
        end(),
    ]);
    let tree = tree.unwrap();
    let read = |path: &str| {
        let found = tree.find(path).unwrap();
        let metadata = tree.metadata(found.ino).unwrap();
        let mut content = vec![0; metadata.size as usize];
        tree.read_at(found.ino, 0, &mut content).unwrap();
        (found.ino, metadata.nlink, content)
    };
    let (one, links, content) = read("one");
    assert_eq!((links, &*content), (3, &b"content"[..]));
    assert_eq!((read("usr/lib/two").0, read("three").0), (one, one));
    assert_eq!(read("four").2, b"4");
    assert_ne!(read("four").0, one);
    assert_eq!(read("later").2, b"new and longer");
    assert_eq!((tree.notes().absolute_paths, tree.notes().replaced), (1, 1));
    assert_eq!(tree.notes().no_end_at, None);
}

#[test]
fn damaged_archives_are_read_or_refused() {
    let mut rng = Rng::new(5);
    let archives = ["070701", "070702", "070707"].map(|magic| {
        let member = |number, mode, links, name: &str, content: &[u8]| {
            member(magic, number, mode, links, name, content)
        };
        [
            member(1, 0o040_755, 2, "dir", b""),
            member(2, 0o100_644, 2, "dir/file", b""),
            member(2, 0o100_644, 2, "dir/link", &[5; 3000]),
            member(3, 0o120_777, 1, "to", b"dir"),
            member(4, 0o100_600, 1, "to/deep/er/file", b"content"),
            member(5, 0o020_600, 1, "device", b""),
            member(6, 0o140_600, 1, "socket", b""),
            member(0, 0, 1, "TRAILER!!!", b""),
            vec![0; 40],
        ]
        .concat()
    });
    let (mut read, mut refused) = (0, 0);
    for case in 0..cases(1500) {
        let mut archive = archives[case % 3].clone();
        for _ in 0..=rng.below(2) {
            let at = rng.index(archive.len());
            archive[at] = match rng.below(3) {
                0 => b"0123456789abcdef"[rng.index(16)],
                1 => rng.below(256) as u8,
                _ => archive[rng.index(at + 1)],
            };
        }
        if rng.chance(10) {
            archive.truncate(rng.index(archive.len()));
        }
        for skip_damaged in [false, true] {
            let options = TarOptions {
                skip_damaged,
                ..TarOptions::default()
            };
            match open_with(&[archive.clone()], options) {
                Ok(tree) => {
                    read += 1;
                    _ = testkit::use_all(&tree, &Limits::default());
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(read > 0 && refused > 0, "{read}, {refused}");
}
