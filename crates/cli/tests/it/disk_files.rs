//! Images on the disks of virtual machines, and the files that such disks name.

use std::fs;
use std::os::unix::fs::symlink;

use testkit::{TempDir, Tool, tool};

use super::{ok, partitions, run_in};

const MIB: u64 = 1 << 20;

#[track_caller]
fn img(tool: &Tool, dir: &TempDir, line: &str) {
    let mut command = tool.command();
    command
        .current_dir(dir.path())
        .args(line.split_whitespace());
    testkit::run(&mut command);
}

#[test]
fn partitions_in_disk_files_are_read_by_every_command() {
    let Some(qemu) = tool("qemu-img") else {
        return;
    };
    let dir = TempDir::new();
    let Some(()) = partitions::disk(&dir, "gpt", [MIB, 16 * MIB, 32 * MIB]) else {
        return;
    };
    img(
        &qemu,
        &dir,
        "convert -t unsafe -O qcow2 -c disk.img base.qcow2",
    );
    img(
        &qemu,
        &dir,
        "create -q -f qcow2 -b base.qcow2 -F qcow2 disk.qcow2",
    );
    img(
        &qemu,
        &dir,
        "convert -t unsafe -O vmdk -o subformat=streamOptimized disk.img disk.vmdk",
    );
    let (info, _) = ok(&dir, "info disk.qcow2");
    let of_disk = "qcow2 version 3, 201326592 bytes in clusters of 65536";
    let expected = [
        format!("disk file       {of_disk}"),
        format!("backing file    ./base.qcow2, {of_disk}"),
        "format          disk image with partitions".to_owned(),
    ];
    let lines: Vec<&str> = info.lines().collect();
    assert_eq!(lines[..3], expected);
    assert!(
        lines[4].ends_with("SquashFS") && lines[5].ends_with("btrfs"),
        "{info}"
    );
    let (json, _) = ok(&dir, "info --json disk.vmdk");
    let of_file = r#""disk_file":[{"path":"disk.vmdk","format":"VMDK streamOptimized","#;
    assert!(json.contains(of_file), "{json}");
    for file in ["disk.qcow2", "disk.vmdk"] {
        for number in [2, 3] {
            let at = format!("--image-at partition:{number} {file}");
            assert_eq!(ok(&dir, &format!("cat {at} file")).0, "content");
            ok(&dir, &format!("check {at}"));
            ok(
                &dir,
                &format!("diff src --second-image-at partition:{number} {file} --ignore mtime"),
            );
            ok(&dir, &format!("copy -q {at} out{number}.{file}.tar"));
            assert!(ok(&dir, &format!("info {at}")).0.starts_with("disk file  "));
        }
        assert_eq!(
            ok(&dir, &format!("cat --image-at search {file} file")).0,
            "content"
        );
    }
    let (code, _, words) = run_in(dir.path(), ["ls", "disk.vmdk"]);
    assert!(
        code == 2 && words.contains("`--image-at partition:2` reads"),
        "{words}"
    );
    // An image without a table of partitions, and no receive into it.
    img(
        &qemu,
        &dir,
        "convert -t unsafe -O qcow2 a.btrfs whole.qcow2",
    );
    assert_eq!(ok(&dir, "cat whole.qcow2 file").0, "content");
    ok(&dir, "copy -q src a.stream");
    let (code, _, words) = run_in(dir.path(), ["receive", "-f", "a.stream", "whole.qcow2"]);
    assert!(code == 2 && words.contains("only raw images"), "{words}");
}

#[test]
fn a_name_in_a_disk_file_leads_to_a_file_beside_it_or_nowhere() {
    let Some(qemu) = tool("qemu-img") else {
        return;
    };
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("src")).unwrap();
    fs::create_dir_all(dir.join("vm/pool")).unwrap();
    fs::write(dir.join("src/file"), "content").unwrap();
    ok(&dir, "copy -q src vm/base.sqfs");
    fs::copy(dir.join("vm/base.sqfs"), dir.join("secret")).unwrap();
    symlink("../secret", dir.join("vm/link")).unwrap();
    let secret = fs::canonicalize(dir.join("secret")).unwrap();
    let secret = secret.to_str().unwrap();
    let create = |name: &str, format: &str| {
        img(
            &qemu,
            &dir,
            &format!("create -q -u -f qcow2 -b {name} -F {format} vm/disk 1M"),
        );
    };
    let outside = "is not in or below its directory: --backing FILE gives it";
    for (name, words) in [
        (secret, outside),
        ("../secret", outside),
        ("pool/../../secret", outside),
        ("nbd:localhost:10809", outside),
        ("file:base.sqfs", outside),
        (
            "link",
            "a symbolic link, which is not followed: --backing FILE gives it",
        ),
        ("pool", "is not a regular file"),
        ("missing", "no such file or directory"),
    ] {
        create(name, "raw");
        let (code, out, found) = run_in(dir.path(), ["ls", "vm/disk"]);
        assert_eq!((code, &*out), (2, ""), "{name}");
        assert!(found.contains(words), "{name}: {found}");
        if name != "missing" {
            assert_eq!(ok(&dir, "cat --backing secret vm/disk file").0, "content");
        }
    }
    create("./base.sqfs", "raw");
    assert_eq!(ok(&dir, "cat vm/disk file").0, "content");
    // A raw disk that a machine made look like a disk file is raw, or not read.
    img(
        &qemu,
        &dir,
        "create -q -u -f qcow2 -b base.sqfs -F raw vm/raw 1M",
    );
    create("raw", "raw");
    let (code, _, words) = run_in(dir.path(), ["ls", "vm/disk"]);
    assert!(
        code == 2 && words.contains("that holds unknown format"),
        "{words}"
    );
    create("base.sqfs", "raw");
    let mut disk = fs::read(dir.join("vm/disk")).unwrap();
    let at = disk
        .windows(4)
        .position(|bytes| bytes == b"\xe2\x79\x2a\xca")
        .unwrap();
    disk[at] = 0;
    fs::write(dir.join("vm/disk"), disk).unwrap();
    let (code, _, words) = run_in(dir.path(), ["ls", "vm/disk"]);
    assert!(
        code == 2 && words.contains("neither a known disk file, nor named"),
        "{words}"
    );
    // In a circle, and one file too many.
    create("disk", "qcow2");
    let (code, _, words) = run_in(dir.path(), ["ls", "vm/disk"]);
    assert!(
        code == 2 && words.contains("a chain of more than 64"),
        "{words}"
    );
    create("base.sqfs", "raw");
    let line = [
        "ls",
        "vm/disk",
        "--backing",
        "secret",
        "--backing",
        "secret",
    ];
    let (code, _, words) = run_in(dir.path(), line);
    assert!(
        code == 2 && words.contains("secret has no backing file"),
        "{words}"
    );
    let (code, _, words) = run_in(dir.path(), ["ls", "secret", "--backing", "secret"]);
    assert!(
        code == 2 && words.contains("--backing does not apply"),
        "{words}"
    );
}

#[test]
fn disk_files_that_are_not_read_are_named() {
    let Some(qemu) = tool("qemu-img") else {
        return;
    };
    let dir = TempDir::new();
    fs::write(dir.join("raw"), vec![7; MIB as usize]).unwrap();
    for (line, words) in [
        (
            "create -q -f qcow2 -o data_file=data x 1M",
            "read it as a qcow2 image: its data is in another file",
        ),
        (
            "create -q -f vmdk -o subformat=twoGbMaxExtentSparse x 1M",
            "a VMDK descriptor, which restow does not read",
        ),
        (
            "convert -t unsafe -O qcow2 raw x",
            "a qcow2 image that holds unknown format (first bytes: 07 07",
        ),
        (
            "create -q -f qcow2 x 1M",
            "a qcow2 image that holds only zeros at its beginning",
        ),
    ] {
        img(&qemu, &dir, line);
        let (code, _, found) = run_in(dir.path(), ["ls", "x"]);
        assert!(code == 2 && found.contains(words), "{line}: {found}");
    }
    // `crypt_method`: LUKS.
    let mut encrypted = fs::read(dir.join("x")).unwrap();
    encrypted[35] = 2;
    fs::write(dir.join("x"), encrypted).unwrap();
    let (code, _, words) = run_in(dir.path(), ["ls", "x"]);
    assert!(
        code == 2 && words.contains("its content is encrypted"),
        "{words}"
    );
}
