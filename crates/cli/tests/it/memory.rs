//! The memory that commands for send streams use, whatever the stream holds.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::process::{self, Child, ChildStdin, Stdio};
use std::thread;

use sendstream::{Command, StreamWriter, Version};
use testkit::{ImageLayout, Rng, TempDir, cases, layer};
use tree::Time;

use super::restow;

/// What the help of `restow stream verify` promises.
const BYTES_MAX: u64 = 64 << 20;

/// Writes a stream of files with names, owners and times, with `bytes` of data in each, as Linux
/// orders it. Returns its writer, without the last command.
fn write_files<W: Write>(to: W, files: u64, bytes: usize) -> StreamWriter<W> {
    let mut writer = StreamWriter::new(to, Version::V2);
    writer.header().unwrap();
    let (uuid, time) = ([7; 16], Time::default());
    writer
        .command(&Command::Subvol {
            path: b"s",
            uuid,
            ctransid: 9,
        })
        .unwrap();
    let data = vec![0x55; bytes];
    let mut dir = Vec::new();
    for ino in 257..257 + files {
        let orphan = format!("o{ino}-9-0").into_bytes();
        let is_dir = (ino - 257) % 1000 == 0;
        let path = if is_dir {
            format!("dir{ino}").into_bytes()
        } else {
            [&dir[..], format!("/file number {ino}").as_bytes()].concat()
        };
        let make = if is_dir {
            Command::Mkdir { path: &orphan, ino }
        } else {
            Command::Mkfile { path: &orphan, ino }
        };
        let rename = Command::Rename {
            path: &orphan,
            path_to: &path,
        };
        let mut commands = vec![make, rename];
        if bytes > 0 && !is_dir {
            commands.push(Command::Write {
                path: &path,
                file_offset: 0,
                data: &data,
            });
        }
        commands.push(Command::Chown {
            path: &path,
            uid: 0,
            gid: 0,
        });
        commands.push(Command::Utimes {
            path: &path,
            atime: time,
            mtime: time,
            ctime: time,
            otime: Some(time),
        });
        for command in &commands {
            writer.command(command).unwrap();
        }
        if is_dir {
            dir = path;
        }
    }
    writer
}

/// The largest memory that a process has used so far.
fn peak_of(child: &Child) -> u64 {
    peak_so_far(child.id()).unwrap()
}

/// The same; `None` if it has ended.
pub(crate) fn peak_so_far(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"))?;
    let words = line.trim().trim_end_matches(" kB");
    Some(words.parse::<u64>().unwrap() * 1024)
}

/// The largest memory that a command has used so far that reads a stream from its standard input,
/// when it has read almost all of it.
fn peak(args: &[&str], write: impl FnOnce(&mut ChildStdin)) -> u64 {
    let mut child = restow(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    write(&mut input);
    let used = peak_of(&child);
    child.kill().unwrap();
    child.wait().unwrap();
    used
}

#[test]
fn streams_of_any_size_are_read_in_little_memory() {
    let count = cases(60_000);
    let all: [&[&str]; 5] = [
        &["stream", "verify", "-"],
        &["stream", "convert", "--compress", "zstd:1", "-", "-"],
        &["stream", "convert", "--proto", "1", "-", "-"],
        &["stream", "info", "-"],
        &["receive", "--dump", "-f", "-"],
    ];
    for args in all {
        for (files, bytes) in [(count, 0), (count / 60, 60_000)] {
            let used = peak(args, |input| {
                let writer = write_files(BufWriter::new(input), files, bytes);
                writer.into_inner().flush().unwrap();
            });
            assert!(
                used <= BYTES_MAX,
                "{args:?}: {files} files of {bytes} bytes: {used}"
            );
        }
    }
}

/// Data that becomes much larger when it is decoded is in flight in small amounts, and a bound on
/// memory is kept.
#[test]
fn a_conversion_keeps_to_its_memory() {
    let (dir, count) = (TempDir::new(), 2000);
    let (plain, packed) = (dir.join("plain"), dir.join("packed"));
    let mut writer = write_files(
        BufWriter::new(File::create(&plain).unwrap()),
        count,
        128 << 10,
    );
    writer.command(&Command::End).unwrap();
    writer.into_inner().flush().unwrap();
    let convert = |line: &str, files: [&Path; 2]| {
        let mut command = restow(["stream", "convert", "-q"]);
        command.args(line.split_whitespace()).args(files);
        command
    };
    let encode = convert("--compress zstd:1", [&plain, &packed]).status();
    assert!(encode.unwrap().success());
    let nowhere = Path::new("/dev/null");
    let decode = |memory: &str| {
        let line = format!("-j 8 --decompress {memory}");
        convert(&line, [&packed, nowhere])
    };
    let used = peak_to_the_end(&mut decode(""));
    assert!(used <= 32 << 20, "{used}");
    let used = peak_to_the_end(&mut decode("--memory 20M"));
    assert!(used <= 20 << 20, "{used}");
    let refused = decode("--memory 1M").output().unwrap();
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(
        refused.status.code() == Some(2) && why.contains("this conversion needs"),
        "{why}"
    );
}

/// A stream of many files with a bound on memory is the same one; where its files have no room, no
/// stream is begun, and the error names the bound.
#[test]
fn a_send_keeps_to_its_memory() {
    let dir = TempDir::new();
    let (stream, image) = (dir.join("stream"), dir.join("image"));
    let files = cases(60_000);
    let mut writer = write_files(BufWriter::new(File::create(&stream).unwrap()), files, 5);
    writer.command(&Command::End).unwrap();
    writer.into_inner().flush().unwrap();
    let mut receive = restow(["receive", "--to", "image", "-q", "-f"]);
    assert!(receive.args([&stream, &image]).status().unwrap().success());
    let source = format!("{}:s", image.display());
    let send = |options: &str, name: &str| {
        let mut command = restow(["send", "-q"]);
        command.args(options.split_whitespace());
        command.arg("-f").arg(dir.join(name)).arg(&source);
        command
    };
    assert!(send("", "whole").status().unwrap().success());
    let enough = 36 + (200 * files).div_ceil(1 << 20);
    let used = peak_to_the_end(&mut send(&format!("--memory {enough}M"), "part"));
    assert!(used <= enough << 20, "{used}");
    assert!(fs::read(dir.join("part")).unwrap() == fs::read(dir.join("whole")).unwrap());
    fs::remove_file(dir.join("part")).unwrap();
    for (memory, reason) in [
        ("18M", "this stream needs"),
        ("34M", "--memory has room for"),
    ] {
        let refused = send(&format!("--memory {memory}"), "part")
            .output()
            .unwrap();
        let why = String::from_utf8_lossy(&refused.stderr);
        assert!(
            refused.status.code() == Some(2) && why.contains(reason),
            "{why}"
        );
        assert!(!dir.join("part").exists());
    }
}

/// A copy with a bound on memory takes no more, and gives the same bytes; one that needs more is
/// refused before it writes, and says how much it needs.
#[test]
fn a_copy_keeps_to_its_memory() {
    // An unoptimised program, and the memory that the allocator keeps.
    const SLACK: u64 = 8 << 20;
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    for n in 0..12 {
        let mut content = Rng::new(n).bytes(1 << 20);
        content[1 << 19..].fill(b'a');
        fs::write(dir.join(format!("src/{n}")), content).unwrap();
    }
    let copy = |options: &str, to: &str| {
        let line = format!("copy --json {options} src {to}");
        let done = restow(line.split_whitespace())
            .current_dir(dir.path())
            .output();
        let done = done.unwrap();
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let peak = said.split("\"peak_memory_bytes\":").nth(1);
        let digits = peak.and_then(|it| {
            it.split(|c: char| !c.is_ascii_digit())
                .find(|it| !it.is_empty())
        });
        let peak = digits.map(|it| it.parse::<u64>().unwrap());
        let why = String::from_utf8_lossy(&done.stderr).into_owned();
        (done.status.code(), peak.unwrap_or(0), why)
    };
    for (options, ending) in [
        ("--block-size 1M --compress lz4", "squashfs"),
        ("--compress zstd:1", "btrfs"),
        ("--compress zstd:1", "tar.zst"),
    ] {
        let options = format!("-j 8 {options}");
        let (whole, part) = (format!("whole.{ending}"), format!("part.{ending}"));
        let (code, _, why) = copy(&options, &whole);
        assert_eq!(code, Some(0), "{options}: {why}");
        let (code, _, why) = copy(&format!("{options} --memory 1M"), &part);
        assert!(
            code == Some(2) && !dir.join(&part).exists(),
            "{options}: {why}"
        );
        let needs = why
            .split("needs ")
            .nth(1)
            .and_then(|it| it.split(' ').next());
        let least: u64 = needs.unwrap().parse().unwrap();
        for memory in [least, least + 24] {
            let (code, peak, why) = copy(&format!("{options} --memory {memory}MiB"), &part);
            assert_eq!(code, Some(0), "{options}: {why}");
            let bound = (memory << 20) + SLACK;
            assert!(peak <= bound, "{options} {ending}: {memory} MiB, {peak}");
            let read = |name: &str| fs::read(dir.join(name)).unwrap();
            assert!(read(&part) == read(&whole), "{options} {ending}");
            fs::remove_file(dir.join(&part)).unwrap();
        }
        fs::remove_file(dir.join(&whole)).unwrap();
    }
}

/// The largest memory that `restow ls -R` of a container has used when it prints the first name.
fn peak_of_tree(path: &Path) -> u64 {
    let mut child = restow(["ls".as_ref(), "-R".as_ref(), path.as_os_str()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0]).unwrap();
    let used = peak_of(&child);
    child.kill().unwrap();
    child.wait().unwrap();
    used
}

#[test]
fn a_stream_opened_as_a_tree_needs_at_most_200_bytes_an_inode() {
    let dir = TempDir::new();
    let count = cases(60_000);
    for bytes in [0, 5] {
        let used = [count / 4, count].map(|files| {
            let path = dir.path().join("stream");
            let file = BufWriter::new(File::create(&path).unwrap());
            let mut writer = write_files(file, files, bytes);
            writer.command(&Command::End).unwrap();
            writer.into_inner().flush().unwrap();
            peak_of_tree(&path)
        });
        let each = used[1].saturating_sub(used[0]) / (count - count / 4);
        assert!(each <= 200, "{bytes} bytes in each file: {each}");
    }
}

#[test]
fn layers_need_at_most_150_bytes_an_entry() {
    const LAYERS: u64 = 5;
    let count = cases(50_000);
    let used = [count / 4, count].map(|entries| {
        let dir = TempDir::new();
        let layers = (0..LAYERS).map(|number| {
            let name = |file| format!("{}/file-{number}-{file}=x", file / 1000);
            layer((0..entries / LAYERS).map(name))
        });
        ImageLayout::of(layers).write_to(dir.path());
        peak_of_tree(format!("oci:{}", dir.path().display()).as_ref())
    });
    let each = used[1].saturating_sub(used[0]) / (count - count / 4);
    assert!(each <= 150, "{each}");
}

#[test]
fn streams_of_any_size_become_directories_in_little_memory() {
    let count = cases(10_000);
    for (files, bytes) in [(count, 0), (count / 60, 60_000)] {
        let target = TempDir::new();
        let path = target.path().to_str().unwrap();
        let args = [
            "receive",
            "--to",
            "directory",
            "--no-owners",
            "-q",
            "-f",
            "-",
            path,
        ];
        let used = peak(&args, |input| {
            let writer = write_files(BufWriter::new(input), files, bytes);
            writer.into_inner().flush().unwrap();
        });
        assert!(used <= BYTES_MAX, "{files} files of {bytes} bytes: {used}");
    }
    // What is done at the end, too.
    let dir = TempDir::new();
    let (stream, to) = (dir.join("stream"), dir.join("to"));
    fs::create_dir(&to).unwrap();
    let mut writer = write_files(BufWriter::new(File::create(&stream).unwrap()), count, 0);
    writer.command(&Command::End).unwrap();
    writer.into_inner().flush().unwrap();
    let mut receive = restow(["receive", "--to", "directory", "--no-owners", "-q", "-f"]);
    let used = peak_to_the_end(receive.args([&stream, &to]));
    assert!(used <= BYTES_MAX, "{used}");
}

/// The largest memory that a command uses, which must succeed.
fn peak_to_the_end(command: &mut process::Command) -> u64 {
    let mut child = command.spawn().unwrap();
    let mut used = 0;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        used = peak_so_far(child.id()).unwrap_or(used);
        thread::yield_now();
    };
    assert!(status.success() && used > 0);
    used
}

#[test]
fn streams_of_any_size_become_images_in_little_memory() {
    let dir = TempDir::new();
    let (stream, to) = (dir.join("stream"), dir.join("to.btrfs"));
    let count = cases(60_000);
    for (files, bytes) in [(count, 0), (count, 5), (count / 20, 5000)] {
        let file = BufWriter::new(File::create(&stream).unwrap());
        let mut writer = write_files(file, files, bytes);
        writer.command(&Command::End).unwrap();
        writer.into_inner().flush().unwrap();
        let mut receive = restow(["receive", "--to", "image", "-j1", "-q", "-f"]);
        let used = peak_to_the_end(receive.args([&stream, &to]));
        fs::remove_file(&to).unwrap();
        assert!(used <= BYTES_MAX, "{files} files of {bytes} bytes: {used}");
        // What is in memory of tables, and buffers, are the same for streams of any size.
        let each = used.saturating_sub(24 << 20) / files;
        assert!(each <= 40, "{files} files of {bytes} bytes: {used}");
    }
}

#[test]
#[ignore = "needs root"]
fn streams_of_any_size_are_received_in_little_memory() {
    if testkit::tool("mkfs.btrfs").is_none() {
        return;
    }
    let target = super::mounted::sized(8 << 30, "noatime");
    let count = cases(20_000);
    let path = target.path().to_str().unwrap();
    for (files, bytes) in [(count, 0), (count / 200, 60_000)] {
        let used = peak(&["receive", "-q", "-f", "-", path], |input| {
            let writer = write_files(BufWriter::new(input), files, bytes);
            writer.into_inner().flush().unwrap();
        });
        assert!(used <= BYTES_MAX, "{files} files of {bytes} bytes: {used}");
    }
}
