//! What `btrfs receive --dump` prints.

use std::process::Stdio;

use sendstream::{Command, Dump, StreamReader, Version};
use testkit::{TempDir, newer_tool, tool};
use tree::Time;

use crate::sample::{KERNEL_MADE, every_command, full, kernel_made, read, stream};

fn ours(input: &[u8]) -> Vec<u8> {
    let mut dump = Dump::new(Vec::new(), |_| 0);
    let mut reader = StreamReader::new(input).any_paths();
    while reader.next_stream().unwrap().is_some() {
        while let Some(record) = reader.next_command().unwrap() {
            dump.command(&record.command).unwrap();
        }
    }
    dump.into_inner()
}

/// Names, values and numbers at their limits, and the widths around which columns begin.
fn odd_ones() -> Vec<u8> {
    let all: Vec<u8> = (1..=255).filter(|&byte| byte != b'/').collect();
    let long: Vec<Vec<u8>> = (20..40).map(|len| vec![b'x'; len]).collect();
    let mut commands: Vec<_> = long
        .iter()
        .map(|path| Command::Chmod { path, mode: 0o7777 })
        .collect();
    let seconds = [
        0,
        -1,
        -2_208_988_800,
        1 << 31,
        253_402_300_800,
        -62_135_596_800,
        -62_167_219_201,
        951_782_400,
        1 << 40,
    ];
    commands.extend(seconds.map(|seconds| {
        let time = Time {
            seconds,
            nanoseconds: 999_999_999,
        };
        Command::Utimes {
            path: b"",
            atime: time,
            mtime: time,
            ctime: time,
            otime: Some(time),
        }
    }));
    let (path, ino) = (&all[..], 1);
    commands.extend([
        Command::Mkfile { path, ino },
        Command::Rename {
            path: b"a",
            path_to: path,
        },
        Command::Link {
            path,
            path_link: path,
        },
        Command::Symlink {
            path,
            ino,
            path_link: path,
        },
        Command::SetXattr {
            path: b"",
            xattr_name: path,
            xattr_data: path,
        },
        Command::SetXattr {
            path: b"a",
            xattr_name: b"user.x",
            xattr_data: b"to\0here",
        },
        Command::Clone {
            file_offset: 1 << 40,
            clone_len: i32::MAX as u64,
            path,
            clone_uuid: [7; 16],
            clone_ctransid: 1,
            clone_path: path,
            clone_offset: 1 << 50,
        },
        Command::Mknod {
            path: b"a",
            ino,
            rdev: u64::MAX,
            mode: u64::MAX,
        },
        Command::Chown {
            path: b"a",
            uid: u64::MAX,
            gid: u64::MAX,
        },
        Command::Fallocate {
            path: b"a",
            fallocate_mode: u32::MAX,
            file_offset: 1 << 40,
            size: 1 << 50,
        },
        Command::Fileattr {
            path: b"a",
            fileattr: u64::MAX,
        },
    ]);
    full(Version::V2, &commands)
}

/// Printed by btrfs-progs 6.14.
#[test]
fn names_values_and_clone_sources_are_escaped() {
    let odd = &b"a\n b\x1b[31m\\\"\x07\x80\xff,="[..];
    let commands = [
        Command::SetXattr {
            path: b"x",
            xattr_name: odd,
            xattr_data: &[odd, b"\0zz"].concat(),
        },
        Command::RemoveXattr {
            path: b"x",
            xattr_name: odd,
        },
        Command::Clone {
            file_offset: 1,
            clone_len: 2,
            path: b"x",
            clone_uuid: [7; 16],
            clone_ctransid: 9,
            clone_path: odd,
            clone_offset: 5,
        },
    ];
    let printed = String::from_utf8(ours(&full(Version::V2, &commands))).unwrap();
    let escaped = r#"a\n\ b\e[31m\\"\a\200\377,="#;
    let lines: Vec<&str> = printed.lines().skip(1).collect();
    let ends = [
        format!(" name={escaped} {escaped}\\000zz len=19"),
        format!(" name={escaped}"),
        format!("/{escaped} clone_offset=5"),
    ];
    assert_eq!(lines.len(), ends.len(), "{lines:?}");
    for (line, end) in lines.iter().zip(ends) {
        assert!(line.ends_with(&end), "{line}: {end}");
    }
}

/// The forms that btrfs-progs 6.2 prints in another way.
fn is_newer(line: &[u8]) -> bool {
    line.starts_with(b"set_xattr") || line.starts_with(b"encoded_write")
}

#[test]
fn every_line_is_that_of_btrfs_progs() {
    let newer = newer_tool("btrfs");
    let Some(btrfs) = newer.clone().or_else(|| tool("btrfs")) else {
        return;
    };
    let mut inputs: Vec<_> = KERNEL_MADE.map(kernel_made).into();
    inputs
        .extend([Version::V1, Version::V2].map(|version| stream(version, &every_command(version))));
    if newer.is_some() {
        inputs.push(odd_ones());
    }
    let dir = TempDir::new();
    for (at, input) in inputs.iter().enumerate() {
        let path = dir.join("stream");
        std::fs::write(&path, input).unwrap();
        let output = (btrfs.command().env("TZ", "UTC").stdin(Stdio::null()))
            .args(["receive", "--dump", "-f"])
            .arg(&path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let (ours, theirs) = (ours(input), output.stdout);
        let lines = |text: &[u8]| -> Vec<String> {
            let lines = text.split(|it| *it == b'\n');
            let lines = lines.filter(|line| newer.is_some() || !is_newer(line));
            lines.map(|line| line.escape_ascii().to_string()).collect()
        };
        let (ours, theirs) = (lines(&ours), lines(&theirs));
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs, "{at}");
        }
        assert_eq!(ours.len(), theirs.len(), "{at}");
    }
}

#[test]
fn times_are_local() {
    let input = full(
        Version::V1,
        &[Command::Utimes {
            path: b"",
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            otime: None,
        }],
    );
    // TZ=America/St_Johns in 1970.
    let mut dump = Dump::new(Vec::new(), |_| -12_600);
    read(&input, |_, record| dump.command(&record.command).unwrap()).unwrap();
    let lines = String::from_utf8(dump.into_inner()).unwrap();
    assert!(lines.contains("atime=1969-12-31T20:30:00-0330 "), "{lines}");
}
