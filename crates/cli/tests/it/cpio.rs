//! Archives of cpio and initramfs, compared with those of GNU cpio and bsdtar.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use testkit::{Rng, TempDir, Tool, tool};

use super::{ok, restow, run_in};

/// Runs a line of shell in a directory.
#[track_caller]
fn shell(dir: &Path, line: &str) -> Vec<u8> {
    let mut command = Command::new("sh");
    testkit::run(command.current_dir(dir).args(["-e", "-c", line])).stdout
}

/// The programs that the lines need; `None` if one is missing.
fn tools(names: &[&str]) -> Option<Vec<Tool>> {
    names.iter().map(|name| tool(name)).collect()
}

/// Runs the program with SOURCE_DATE_EPOCH; gives standard output.
fn output_of(dir: &TempDir, args: &[&str], epoch: Option<&str>) -> Vec<u8> {
    let mut command = restow(args);
    command.current_dir(dir.path());
    command.envs(epoch.map(|epoch| ("SOURCE_DATE_EPOCH", epoch)));
    testkit::run(&mut command).stdout
}

/// Compares two trees.
#[track_caller]
fn same(dir: &TempDir, first: &str, second: &str, what: &str) {
    let (code, out, words) = run_in(dir.path(), ["diff", first, second]);
    assert_eq!((code, &*out), (0, ""), "{what}: {words}");
}

/// A tree with files of all kinds that any user can make, with times in whole seconds.
fn tree(dir: &Path) {
    fs::create_dir_all(dir.join("usr/lib/deep")).unwrap();
    let mut rng = Rng::new(1);
    for (number, len) in [0, 1, 3, 4, 5, 4095, 300_000].into_iter().enumerate() {
        fs::write(dir.join(format!("usr/file{number}")), rng.bytes(len)).unwrap();
    }
    fs::hard_link(dir.join("usr/file5"), dir.join("usr/lib/a link")).unwrap();
    fs::hard_link(dir.join("usr/file5"), dir.join("b")).unwrap();
    fs::hard_link(dir.join("usr/file0"), dir.join("empty link")).unwrap();
    symlink("usr/lib", dir.join("lib")).unwrap();
    symlink("../nowhere", dir.join("usr/broken")).unwrap();
    shell(
        dir,
        "mkfifo usr/fifo; chmod 4751 usr/file3; chmod 700 usr/lib/deep",
    );
    shell(
        dir,
        "find . -exec touch -h -d '2001-02-03 04:05:06 UTC' '{}' +",
    );
}

#[test]
fn archives_of_gnu_cpio_and_bsdtar_are_read() {
    let Some(_) = tools(&["cpio", "bsdtar", "find", "touch"]) else {
        return;
    };
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    tree(&dir.join("src"));
    for line in [
        "find . | sort | cpio --quiet -o -H newc",
        "find . -depth | cpio --quiet -o -H crc",
        "find . -depth | cpio --quiet -o -H odc",
        "bsdtar --format newc -cf - .",
        "bsdtar --format odc -cf - .",
    ] {
        shell(&dir.join("src"), &format!("{line} > ../x.cpio"));
        same(&dir, "src", "x.cpio", line);
        assert!(ok(&dir, "check x.cpio").0.starts_with("0 errors"), "{line}");
    }
    let piped = shell(&dir.join("src"), "find . | cpio --quiet -o -H crc");
    // A changed byte of the content: only crc has a sum.
    let mut changed = piped.clone();
    let at = changed.len() - 200_000;
    changed[at] ^= 1;
    fs::write(dir.join("x.cpio"), changed).unwrap();
    let (code, _, words) = run_in(dir.path(), ["ls", "x.cpio"]);
    assert!(
        code == 2 && words.contains("does not match its sum"),
        "{words}"
    );
    // Cut off, and without the last member.
    fs::write(dir.join("x.cpio"), &piped[..200_000]).unwrap();
    let (code, _, words) = run_in(dir.path(), ["ls", "x.cpio"]);
    assert!(
        code == 2 && words.contains("cpio member runs past the end"),
        "{words}"
    );
    let end = piped
        .windows(10)
        .position(|it| it == b"TRAILER!!!")
        .unwrap();
    fs::write(dir.join("x.cpio"), &piped[..end - 110]).unwrap();
    let (code, _, words) = run_in(dir.path(), ["copy", "x.cpio", "out"]);
    assert!(code == 1 && words.contains("has no end marker"), "{words}");
}

#[test]
fn initramfs_are_read_as_linux_unpacks_them() {
    let programs = [
        "cpio", "gzip", "bzip2", "xz", "zstd", "lz4", "lzop", "find", "touch",
    ];
    let Some(_) = tools(&programs) else {
        return;
    };
    let dir = TempDir::new();
    for name in ["early/kernel/x86/microcode", "later/usr/lib", "src"] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    tree(&dir.join("src"));
    fs::write(
        dir.join("early/kernel/x86/microcode/AuthenticAMD.bin"),
        [7; 5000],
    )
    .unwrap();
    fs::write(dir.join("later/usr/file1"), "the last one counts").unwrap();
    fs::create_dir(dir.join("later/lib")).unwrap();
    fs::write(dir.join("later/lib/module"), "m").unwrap();
    shell(
        dir.path(),
        "find early later -exec touch -h -d '2002-03-04' '{}' +",
    );
    let pack = |name: &str| {
        let find = "find . -mindepth 1 | sort";
        let cpio = format!("{find} | cpio --quiet -o -H newc > ../{name}.cpio");
        shell(&dir.join(name), &cpio);
    };
    for name in ["early", "later", "src"] {
        pack(name);
    }
    let unpack = |names: &[&str]| {
        shell(dir.path(), "rm -rf expected; mkdir expected");
        for name in names {
            let line = format!("cpio --quiet -idum --no-absolute-filenames < ../{name}.cpio");
            shell(&dir.join("expected"), &line);
        }
        // Times of directories are those of the last member in it.
        shell(dir.path(), "chmod 755 expected");
    };
    let equal = |what: &str| {
        let (code, out, words) = run_in(
            dir.path(),
            [
                "diff", "expected", "initrd", "--ignore", "mtime", "--ignore", "owner",
            ],
        );
        assert_eq!((code, &*out), (0, ""), "{what}: {words}");
    };
    unpack(&["early", "src"]);
    for packer in [
        "cat",
        "gzip -c",
        "bzip2 -c",
        "xz -c --check=crc32",
        "xz -c --format=lzma",
        "zstd -qc",
        "lz4 -qlc",
        "lzop -c",
    ] {
        let line = format!("{packer} < src.cpio > part; cat early.cpio part > initrd");
        shell(dir.path(), &line);
        equal(packer);
        shell(dir.path(), "truncate -s %4096 early.cpio");
        shell(dir.path(), "cat early.cpio part > initrd");
        equal(packer);
    }
    unpack(&["src"]);
    for packer in ["gzip -c", "bzip2 -c", "xz -c", "zstd -qc", "lzop -c"] {
        shell(dir.path(), &format!("{packer} < src.cpio > initrd"));
        equal(packer);
        shell(dir.path(), &format!("{packer} < src.cpio | cat > pipe"));
        let (out, _) = ok(&dir, "ls initrd");
        assert!(out.contains("usr"), "{out}");
    }
    unpack(&["early", "src", "later"]);
    for line in [
        "cat early.cpio src.cpio later.cpio > initrd",
        "cat src.cpio later.cpio | zstd -qc > part; cat early.cpio part > initrd",
        "(gzip -c src.cpio; gzip -c later.cpio) > part; cat early.cpio part > initrd",
        "(lzop -c src.cpio; lzop -c later.cpio) > part; cat early.cpio part > initrd",
        "head -c 1000 /dev/zero > zeros; cat early.cpio zeros src.cpio zeros later.cpio zeros > initrd",
    ] {
        shell(dir.path(), line);
        equal(line);
    }
    // Members at which Linux stops are named.
    shell(
        dir.path(),
        "cat src.cpio > initrd; echo 'not an archive' >> initrd",
    );
    let (code, _, words) = run_in(dir.path(), ["ls", "initrd"]);
    assert!(
        code == 2 && words.contains("neither a cpio header nor"),
        "{words}"
    );
}

#[test]
fn archives_of_ours_are_unpacked_by_gnu_cpio_and_bsdtar() {
    let Some(_) = tools(&["cpio", "bsdtar", "zstd", "find", "touch"]) else {
        return;
    };
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    fs::write(dir.join("src/odd \n name\u{1f600}"), "x").unwrap();
    fs::write(dir.join("src/TRAILER!!!"), "not the end").unwrap();
    tree(&dir.join("src"));
    ok(&dir, "copy -q -j 1 src one.cpio");
    ok(&dir, "copy -q -j 4 src four.cpio");
    ok(&dir, "copy -q src x.cpio.zst");
    let archive = fs::read(dir.join("one.cpio")).unwrap();
    assert!(archive == fs::read(dir.join("four.cpio")).unwrap());
    assert!(archive == shell(dir.path(), "zstd -dc x.cpio.zst"));
    assert_eq!(archive.len() % 512, 0);
    same(&dir, "src", "x.cpio.zst", "ours");
    for line in ["cpio --quiet -idm < ../one.cpio", "bsdtar -xpf ../one.cpio"] {
        shell(dir.path(), "rm -rf out; mkdir out");
        shell(&dir.join("out"), line);
        // GNU cpio sets no times of symbolic links.
        let (code, out, _) = run_in(dir.path(), ["diff", "src", "out", "--ignore", "mtime"]);
        assert_eq!((code, &*out), (0, ""), "{line}");
        let kind = fs::metadata(dir.join("out/usr/fifo")).unwrap().file_type();
        assert!(kind.is_fifo(), "{line}");
    }
    assert!(archive == output_of(&dir, &["copy", "--to", "cpio", "src", "-"], None));
    output_of(&dir, &["copy", "src", "epoch.cpio"], Some("5"));
    let (code, out, _) = run_in(dir.path(), ["diff", "src", "epoch.cpio"]);
    let words = "b: time 2001-02-03 04:05:06.000000000 | 1970-01-01 00:00:05.000000000";
    assert!(code == 1 && out.contains(words), "{out}");
    // Frames end between members, so that Linux unpacks each.
    fs::create_dir(dir.join("large")).unwrap();
    for number in 0..6 {
        let bytes = Rng::new(number).bytes(1_500_000);
        fs::write(dir.join(format!("large/{number}")), bytes).unwrap();
    }
    ok(&dir, "copy -q large large.cpio.zst --compress zstd:1");
    let frames = String::from_utf8(shell(dir.path(), "zstd -lv large.cpio.zst")).unwrap();
    assert!(frames.contains("Zstandard Frames: 4"), "{frames}");
    // Losses are named.
    shell(
        &dir.join("large"),
        "touch -d 1969-12-31 0; truncate -s 4G 1",
    );
    let (code, _, words) = run_in(dir.path(), ["copy", "large", "y.cpio"]);
    assert!(
        code == 2 && words.contains("a file of 4 GiB or more"),
        "{words}"
    );
    assert!(!dir.join("y.cpio").exists());
    fs::remove_file(dir.join("large/1")).unwrap();
    let (code, _, words) = run_in(dir.path(), ["copy", "large", "y.cpio"]);
    assert!(
        code == 1 && words.contains("large/0: modification time changed"),
        "{words}"
    );
    let mode = fs::metadata(dir.join("y.cpio"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o100_000, 0o100_000);
    let (code, _, words) = run_in(dir.path(), ["copy", "src", "y.cpio.gz"]);
    assert!(code == 2 && words.contains("with --to cpio"), "{words}");
}
