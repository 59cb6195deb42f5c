//! Send streams of subvolumes in images, compared with those of Linux, and of all other trees.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Access, BackingFile, FsType, LoopDevice, Mount, Rng, TempDir, cases, run, tool};

use crate::send_incremental::MOUNTED;
use crate::{btrfs_in, run_in};

/// Runs what must succeed; gives what it says on standard output.
fn done(dir: &Path, args: &[&str]) -> String {
    let (code, out, words) = run_in(dir, args);
    assert_eq!(code, 0, "{args:?}: {words}{out}");
    out
}

fn source(dir: &TempDir) {
    fs::create_dir_all(dir.join("src/sub/inner")).unwrap();
    fs::create_dir_all(dir.join("src/empty")).unwrap();
    fs::write(dir.join("src/small"), "a small file\n").unwrap();
    fs::write(dir.join("src/none"), "").unwrap();
    fs::write(dir.join("src/sub/large"), "a large file\n".repeat(30_000)).unwrap();
    fs::write(dir.join("src/sub/noise.bin"), Rng::new(1).bytes(300_000)).unwrap();
    fs::hard_link(dir.join("src/small"), dir.join("src/sub/hard")).unwrap();
    symlink("../small", dir.join("src/sub/soft")).unwrap();
    // A name that files have while they are sent.
    fs::write(dir.join("src/o258-1-0"), "taken").unwrap();
    let sparse = File::create(dir.join("src/sub/inner/sparse")).unwrap();
    sparse.write_all_at(b"middle", 1 << 20).unwrap();
    sparse.set_len(3 << 20).unwrap();
    fs::set_permissions(dir.join("src/small"), fs::Permissions::from_mode(0o4711)).unwrap();
}

#[test]
fn every_tree_becomes_a_stream_with_the_same_files() {
    let dir = TempDir::new();
    source(&dir);
    let at = dir.path();
    let manifest = done(at, &["manifest", "src"]);
    done(at, &["copy", "-q", "src", "src.tar"]);
    done(
        at,
        &["copy", "-q", "--compress", "gzip", "src", "src.squashfs"],
    );
    done(at, &["copy", "-q", "--compress", "lzo", "src", "src.btrfs"]);
    for (turn, tree) in ["src", "src.tar", "src.squashfs", "src.btrfs"]
        .iter()
        .enumerate()
    {
        for more in [
            &[][..],
            &["--proto", "1"],
            &["--compress", "none"],
            &["--compress", "zstd:15", "--name", "other"],
            &[
                "--compress",
                "lzo",
                "--uuid",
                "0123456789abcdef0123456789abcdef",
            ],
        ] {
            let made = format!("{turn}.stream");
            let args = ["copy", "-q", "--overwrite", tree, &made];
            done(at, &[&args[..], more].concat());
            done(at, &["stream", "verify", &made]);
            if tree.ends_with("squashfs") {
                let (code, out, words) = run_in(at, ["diff", "src.squashfs", &made]);
                assert_eq!((code, &*out), (0, ""), "{tree} {more:?} {words}");
            } else {
                assert_eq!(done(at, &["manifest", &made]), manifest, "{tree} {more:?}");
            }
            let stream = fs::read(dir.join(&made)).unwrap();
            done(at, &[&args[..], more, &["-j1"]].concat());
            assert!(
                stream == fs::read(dir.join(&made)).unwrap(),
                "{tree} {more:?}"
            );
        }
    }
    let commands = done(at, &["stream", "dump", "3.stream"]);
    assert!(commands.contains(" subvol path=\"3\""), "{commands}");
    assert!(
        commands.contains("uuid=01234567-89ab-cdef-0123-456789abcdef"),
        "{commands}"
    );
}

#[test]
fn stored_extents_stay_as_they_are_and_shared_ones_become_clones() {
    let dir = TempDir::new();
    source(&dir);
    fs::copy(dir.join("src/sub/large"), dir.join("src/sub/large.copy")).unwrap();
    let at = dir.path();
    done(
        at,
        &["copy", "-q", "--compress", "zstd", "src", "src.btrfs"],
    );
    done(at, &["copy", "-q", "src.btrfs", "src.stream"]);
    done(at, &["stream", "verify", "src.stream"]);
    let commands = done(at, &["stream", "dump", "src.stream"]);
    let count = |name: &str| commands.matches(name).count();
    // 390,000 bytes in extents of 128 KiB, and another file with the same.
    assert_eq!(
        (count(" encoded_write "), count(" clone ")),
        (3, 3),
        "{commands}"
    );
    assert_eq!(
        done(at, &["manifest", "src.stream"]),
        done(at, &["manifest", "src"])
    );
}

#[test]
fn subvolumes_of_images_are_sent() {
    let dir = TempDir::new();
    source(&dir);
    fs::hard_link(dir.join("src/sub/large"), dir.join("src/sub/inner/again")).unwrap();
    fs::remove_file(dir.join("src/sub/hard")).unwrap();
    let at = dir.path();
    let image = [
        "--as-subvolume",
        "sub:ro",
        "--compress",
        "zlib",
        "src",
        "i.btrfs",
    ];
    done(at, &[&["copy", "-q"], &image[..]].concat());
    let manifest = done(at, &["manifest", "i.btrfs:sub"]);
    for more in [
        &[][..],
        &["-vv"],
        &["--proto", "2"],
        &["--proto", "0"],
        &["--compressed-data"],
    ] {
        done(
            at,
            &[&["send", "-f", "sub.stream"], more, &["i.btrfs:sub"]].concat(),
        );
        done(at, &["stream", "verify", "sub.stream"]);
        assert_eq!(done(at, &["manifest", "sub.stream"]), manifest, "{more:?}");
    }
    done(
        at,
        &[
            "send",
            "-e",
            "--no-data",
            "-f",
            "two.stream",
            "i.btrfs:sub",
            "i.btrfs:sub",
        ],
    );
    let commands = done(at, &["stream", "dump", "two.stream"]);
    assert_eq!(commands.matches(" end").count(), 1, "{commands}");
    assert!(
        commands.contains("update_extent path=\"large\""),
        "{commands}"
    );
    let cases = [
        (
            &["send", "i.btrfs"][..],
            "name a subvolume, as in IMAGE:SUBVOL; `restow info` lists them",
        ),
        (
            &["send", "i.btrfs:5"],
            "top level of a file system has no name and cannot be sent; `restow copy IMAGE x.stream`",
        ),
        (&["send", "i.btrfs:gone"], "no subvolume gone"),
        (&["send", "src"], "directory"),
        (&["send", "--proto", "3", "i.btrfs:sub"], "only 1 and 2"),
        (
            &["send", "--proto", "1", "--compressed-data", "i.btrfs:sub"],
            "not 1",
        ),
        (
            &[
                "copy",
                "--proto",
                "1",
                "--compress",
                "lzo",
                "src",
                "x.stream",
            ],
            "no compressed data",
        ),
        (
            &["copy", "--skip-unreadable", "src", "x.stream"],
            "do not apply",
        ),
        (&["copy", "--to", "stream", "src", "-"], "--name"),
        (
            &["copy", "--name", "a/b", "src", "x.stream"],
            "cannot be a subvolume's name",
        ),
    ];
    for (args, expected) in cases {
        let (code, _, words) = run_in(at, args);
        assert!(code == 2 && words.contains(expected), "{args:?}: {words}");
    }
    let (code, _, words) = run_in(
        at,
        ["copy", "-q", "--as-subvolume", "sub", "src", "w.btrfs"],
    );
    assert_eq!(code, 0, "{words}");
    let (code, _, words) = run_in(at, ["send", "w.btrfs:sub"]);
    assert!(code == 2 && words.contains("not read-only"), "{words}");
}

/// What `restow` shows on a terminal.
pub(crate) fn on_terminal(dir: &Path, args: &[&str]) -> Option<String> {
    let script = tool("script")?;
    let line = [&[env!("CARGO_BIN_EXE_restow")], args].concat().join(" ");
    let mut shown = script.command();
    shown.args(["-qec", &line, "/dev/null"]);
    let shown = run(shown.current_dir(dir)).stdout;
    Some(String::from_utf8_lossy(&shown).into_owned())
}

#[test]
fn progress_on_a_terminal_has_the_total_of_what_is_sent() {
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("src/sub")).unwrap();
    let at = dir.path();
    fs::write(dir.join("src/sub/noise"), Rng::new(1).bytes(2_000_000)).unwrap();
    // What is no data in the stream: a clone, and a hole.
    fs::copy(dir.join("src/sub/noise"), dir.join("src/sub/copy")).unwrap();
    let sparse = File::create(dir.join("src/sub/sparse")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    done(
        at,
        &["copy", "-q", "--as-subvolume", "sub:ro", "src", "i.btrfs"],
    );
    for more in [&[][..], &["--proto", "2"], &["--compressed-data"]] {
        let args = [&["send", "-f", "sub.stream"], more, &["i.btrfs:sub"]].concat();
        let Some(shown) = on_terminal(at, &args) else {
            return;
        };
        assert!(shown.contains(" of 2.00 MB "), "{more:?}: {shown}");
        done(at, &["stream", "verify", "sub.stream"]);
        let args = [&args[..], &["-q"]].concat();
        assert_eq!(on_terminal(at, &args).unwrap(), "", "{more:?}");
    }
}

/// Changes files at random: names, hard links, content, holes, clones, modes.
fn change(dir: &Path, rng: &mut Rng, steps: usize) {
    let mut dirs = vec![dir.to_owned()];
    let (mut files, mut fresh) = (Vec::<PathBuf>::new(), Vec::new());
    for step in 0..steps {
        let place = dirs[rng.index(dirs.len())].join(format!("f{step}"));
        match rng.below(12) {
            0 | 1 => {
                fs::create_dir(&place).unwrap();
                dirs.push(place);
                continue;
            }
            2 => symlink("a target", &place).unwrap(),
            3 if !files.is_empty() => {
                let file = &files[rng.index(files.len())];
                fs::hard_link(file, &place).unwrap();
            }
            4 | 5 if !fresh.is_empty() => {
                // Where several files show one extent, Linux takes the one that comes first in its
                // own structures.
                let file: PathBuf = fresh.swap_remove(rng.index(fresh.len()));
                run(Command::new("cp")
                    .arg("--reflink=always")
                    .args([&file, &place]));
                files.push(place);
            }
            6 if !files.is_empty() => {
                let file = &files[rng.index(files.len())];
                let file = File::options().write(true).open(file).unwrap();
                let bytes = rng.index(20_000);
                file.write_all_at(&rng.bytes(bytes), rng.below(200_000))
                    .unwrap();
            }
            7 if !files.is_empty() => {
                let file = &files[rng.index(files.len())];
                let file = File::options().write(true).open(file).unwrap();
                file.set_len(rng.below(400_000)).unwrap();
            }
            8 if dirs.len() > 2 => {
                // A directory goes below one with a higher number.
                let from = dirs.swap_remove(1 + rng.index(dirs.len() - 1));
                let to = dirs[rng.index(dirs.len())].join(format!("m{step}"));
                if !to.starts_with(&from) {
                    fs::rename(&from, &to).unwrap();
                    dirs.retain(|dir| !dir.starts_with(&from));
                    files.retain(|file| !file.starts_with(&from));
                    fresh.retain(|file: &PathBuf| !file.starts_with(&from));
                    dirs.push(to);
                } else {
                    dirs.push(from);
                }
            }
            9 => {
                let bytes = rng.index(3000);
                fs::write(&place, rng.bytes(bytes)).unwrap();
                files.push(place);
            }
            _ => {
                let words = format!("{} words {step}\n", rng.next_u64());
                let content = words.repeat(rng.index(20_000));
                fs::write(&place, content).unwrap();
                let mode = 0o600 | rng.below(0o100) as u32;
                fs::set_permissions(&place, fs::Permissions::from_mode(mode)).unwrap();
                fresh.push(place.clone());
                files.push(place);
            }
        }
    }
}

/// The commands of a stream, without their places.
fn commands(dir: &Path, stream: &str) -> Vec<String> {
    let lines = done(dir, &["stream", "dump", stream]);
    let command = |line: &str| {
        line.split_whitespace()
            .skip(2)
            .collect::<Vec<_>>()
            .join(" ")
    };
    lines.lines().map(command).collect()
}

#[test]
#[ignore = "needs root"]
fn streams_of_images_are_those_of_linux() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    for seed in 0..cases(2_u64) {
        let option = MOUNTED[seed as usize % MOUNTED.len()];
        let backing = BackingFile::create(512 << 20);
        run(mkfs.command().arg("--quiet").arg(backing.path()));
        let device = LoopDevice::attach(backing, Access::ReadWrite);
        let mount = Mount::new(device, FsType::Btrfs, option);
        let at = mount.path();
        let mut rng = Rng::new(seed);
        btrfs_in(&btrfs, at, &["subvolume", "create", "s"]);
        change(&at.join("s"), &mut rng, 150);
        btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", "snap"]);
        let dir = TempDir::new();
        let kinds = [
            ("v1", &[][..]),
            ("v2", &["--proto", "2"]),
            ("v2c", &["--compressed-data"]),
        ];
        for (kind, more) in kinds {
            let mut send = btrfs.command();
            let send = send.args(["send", "-q"]).args(more).arg("-f");
            run(send
                .arg(dir.join(format!("{kind}.linux")))
                .arg(at.join("snap")));
        }
        let backing = mount.unmount();
        let image = format!("{}:snap", backing.path().display());
        let manifest = done(dir.path(), &["manifest", &image]);
        for (kind, more) in kinds {
            let names = [kind.to_owned(), format!("{kind}.linux")];
            done(
                dir.path(),
                &[&["send", "-q", "-f", &names[0]], more, &[&image]].concat(),
            );
            done(dir.path(), &["stream", "verify", &names[0]]);
            let [ours, linux] = [0, 1].map(|at| commands(dir.path(), &names[at]));
            for (number, (ours, linux)) in ours.iter().zip(&linux).enumerate() {
                assert_eq!(
                    ours,
                    linux,
                    "seed {seed}, {option}, {kind}, command {}",
                    number + 1
                );
            }
            assert_eq!(ours.len(), linux.len(), "seed {seed}, {option}, {kind}");
            let [ours, linux] = [0, 1].map(|at| fs::read(dir.join(&names[at])).unwrap());
            assert!(ours == linux, "seed {seed}, {option}, {kind}");
        }
        let target = BackingFile::create(512 << 20);
        run(mkfs.command().arg("--quiet").arg(target.path()));
        let target = Mount::new(
            LoopDevice::attach(target, Access::ReadWrite),
            FsType::Btrfs,
            "",
        );
        for (kind, _) in kinds {
            let mut receive = btrfs.command();
            run(receive
                .args(["receive", "-q", "-f"])
                .arg(dir.join(kind))
                .arg(target.path()));
            let received = target.path().join("snap");
            assert_eq!(
                done(&received, &["manifest", "."]),
                manifest,
                "seed {seed}, {option}, {kind}"
            );
            run(btrfs
                .command()
                .args(["subvolume", "delete", "-c"])
                .arg(&received));
        }
    }
}
