//! SquashFS and btrfs images that are EROFS images, too.

use std::fs;

use super::index::tree;
use super::json::{Json, object_of};
use super::mount_points::in_own_mounts;
use super::{ok, run_in};

/// Images of both kinds: the name, the options, and those of the EROFS image.
const IMAGES: [(&str, &str, &str); 9] = [
    ("a.btrfs", "", ""),
    ("b.btrfs", "--metadata single --compress zlib:6", ""),
    ("c.btrfs", "--compress zstd:9", "--min-kernel 6.12"),
    ("d.btrfs", "--data dup", "--min-kernel 6.17"),
    (
        "e.btrfs",
        "--compress none --as-subvolume d/e --label both",
        "",
    ),
    ("f.squashfs", "--compress zstd:3", ""),
    ("g.squashfs", "--compress gzip:6 --no-padding", ""),
    ("h.squashfs", "--compress lz4", ""),
    ("i.squashfs", "--compress none", "--min-kernel 6.17"),
];

#[test]
fn both_images_of_a_file_hold_the_tree() {
    let dir = tree();
    for (name, options, of_erofs) in IMAGES {
        let line = format!("src {name} {options} --dual {of_erofs}");
        let (out, _) = ok(&dir, &format!("copy --json {line}"));
        let made = object_of(&out);
        let note = made["notes"].list().last().map(Json::text);
        assert!(
            note.is_some_and(|note| note.contains("mount it with -t")),
            "{line}: {out}"
        );
        let first = fs::read(dir.join(name)).unwrap();
        assert_eq!(made["written_bytes"].number(), first.len() as u64, "{line}");
        for face in ["", "--as-erofs"] {
            // Those of SquashFS are whole seconds.
            let ignored = if name.ends_with(".squashfs") {
                "--ignore mtime"
            } else {
                ""
            };
            ok(&dir, &format!("diff {ignored} {face} {name} src"));
            let (checked, _) = ok(&dir, &format!("check {face} {name}"));
            assert!(checked.starts_with("0 errors"), "{line} {face}: {checked}");
        }
        ok(&dir, &format!("copy -q -j 1 --overwrite {line}"));
        assert!(first == fs::read(dir.join(name)).unwrap(), "{line}");
        // Little more than inodes, names and indexes is behind the other image.
        let named = made["erofs"]["named_bytes"].number();
        let room = if name.ends_with(".btrfs") {
            "--slack 0"
        } else {
            ""
        };
        ok(
            &dir,
            &format!("copy -q --overwrite src {name} {options} {room}"),
        );
        let alone = fs::metadata(dir.join(name)).unwrap().len();
        let behind = first.len() as u64 - alone;
        assert!(
            named > 1_900_000 && behind < 150_000,
            "{line}: {named} named, {behind} behind"
        );
    }
}

/// Linux mounts both, one after the other, in files and on a block device.
#[test]
#[ignore = "needs root"]
fn linux_mounts_both_images_of_a_file() {
    let dir = tree();
    let both = "both() { for type in $2 erofs; do \
        mount -t $type -o ro,loop $1 m; diff -r --no-dereference m src; umount m; done; }\n\
        mkdir -p m\n";
    for (name, options, of_erofs) in IMAGES {
        let kind = &name[2..];
        let check = if kind == "btrfs" {
            "btrfs check --readonly $name > words 2>&1"
        } else {
            "unsquashfs -q -no-progress -f -d out $name > words 2>&1; diff -r --no-dereference out src"
        };
        let script = format!(
            "{both}name={name}; $restow copy -q src $name {options} --dual {of_erofs}\n\
             both $name {kind}; {check}\n\
             truncate -s 32M disk; loop=$(losetup -f --show disk); trap 'losetup -d $loop' EXIT\n\
             $restow copy -q --overwrite --to {kind} src $loop {options} --dual {of_erofs}\n\
             both $loop {kind}; $restow check -q $loop; $restow check -q --as-erofs $loop\n"
        );
        in_own_mounts(dir.path(), &script);
    }
    // On a device that has room for the btrfs image alone, nothing looks like an EROFS image.
    let script = format!(
        "{both}$restow copy -q src x.btrfs --slack 0; cp x.btrfs disk\n\
         loop=$(losetup -f --show disk); trap 'losetup -d $loop' EXIT\n\
         $restow copy -q --overwrite --to btrfs --dual src $loop 2> words && exit 1\n\
         grep -q 'no space left' words; $restow check -q $loop\n\
         $restow check --as-erofs $loop 2> words && exit 1; grep -q 'does not apply' words\n"
    );
    in_own_mounts(dir.path(), &script);
}

#[test]
fn an_erofs_image_refuses_another_image_beneath_it() {
    let dir = tree();
    for name in ["a.btrfs", "a.squashfs"] {
        ok(&dir, &format!("copy -q --dual src {name}"));
        ok(
            &dir,
            &format!(
                "copy -q --dual src other --to {} --exclude d/text1",
                &name[2..]
            ),
        );
        let (mut both, other) = (
            fs::read(dir.join(name)).unwrap(),
            fs::read(dir.join("other")).unwrap(),
        );
        fs::remove_file(dir.join("other")).unwrap();
        both[..1024].copy_from_slice(&other[..1024]);
        let end = both.len().min(other.len());
        both[4096..end].copy_from_slice(&other[4096..end]);
        fs::write(dir.join("changed"), both).unwrap();
        for command in ["check", "info", "ls"] {
            let line = format!("{command} --as-erofs changed");
            let (code, _, said) = run_in(dir.path(), line.split(' '));
            assert_eq!(
                (code, said.contains("changed since")),
                (2, true),
                "{line}: {said}"
            );
        }
    }
    ok(&dir, "copy -q src b.btrfs");
    for (line, words) in [
        ("ls --as-erofs b.btrfs", "no EROFS image: --as-erofs"),
        ("ls --as-erofs src", "--as-erofs does not apply"),
        ("copy --dual src x.erofs", "--dual does not apply"),
        ("copy --dual src x.tar", "--dual does not apply"),
        ("copy --dual --slack 1M src x.btrfs", "cannot be used with"),
        (
            "copy --dual --compress lzo src x.btrfs",
            "EROFS reads data in",
        ),
        (
            "copy --dual --compress xz src x.squashfs",
            "EROFS reads data in",
        ),
        (
            "copy --dual --min-kernel 6.12 src x.squashfs",
            "needs --min-kernel 6.15",
        ),
        (
            "copy --min-kernel 6.12 src x.btrfs",
            "--min-kernel does not apply",
        ),
    ] {
        let (code, _, said) = run_in(dir.path(), line.split(' '));
        assert_eq!((code, said.contains(words)), (2, true), "{line}: {said}");
        assert!(!dir.join("x.btrfs").exists() && !dir.join("x.squashfs").exists());
    }
}
