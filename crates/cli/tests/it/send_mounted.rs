//! `restow send` from a mounted btrfs, against `btrfs send`; continued transfers.

use std::fs;
use std::path::Path;
use std::process::{Command as Program, Stdio};
use std::thread;

use testkit::{Rng, TempDir, cases, run, tool};

use super::receive::{change, mounted};
use super::send::on_terminal;
use super::send_incremental::MOUNTED;
use super::{btrfs_in, restow, run_in, shown};

/// A program that is root but may not do what needs `CAP_SYS_ADMIN`.
pub(crate) fn without_privilege<'a>(args: impl IntoIterator<Item = &'a str>) -> Program {
    let mut program = Program::new("setpriv");
    program
        .args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"])
        .arg(env!("CARGO_BIN_EXE_restow"))
        .args(args)
        .stdin(Stdio::null());
    program
}

#[test]
#[ignore = "needs root"]
fn mounted_subvolumes_are_sent_as_btrfs_send_does() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    for seed in 0..cases(1) {
        let mut rng = Rng::new(seed);
        let mount = mounted(&mkfs, MOUNTED[seed as usize % MOUNTED.len()]);
        let at = mount.path();
        btrfs_in(&btrfs, at, &["subvolume", "create", "s"]);
        for name in ["a", "b", "c"] {
            change(&at.join("s"), &mut rng, 60);
            btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", name]);
        }
        let kinds: [&[&str]; 17] = [
            &["a"],
            &["--proto", "2", "a"],
            &["--proto", "0", "a"],
            &["--compressed-data", "a"],
            &["--no-data", "a"],
            &["-p", "a", "b"],
            &["-p", "a", "--compressed-data", "b"],
            &["-p", "a", "--no-data", "--proto", "2", "b"],
            &["-c", "a", "b"],
            &["-c", "a", "-c", "b", "c"],
            &["-c", "c", "-c", "a", "b"],
            &["-p", "a", "-c", "b", "c"],
            &["a", "b"],
            &["-e", "a", "b", "c"],
            &["-p", "a", "-e", "--proto", "2", "b", "c"],
            &["-c", "a", "-e", "b", "c"],
            &["-p", "a", "-c", "c", "b", "c"],
        ];
        for args in kinds {
            let theirs = btrfs_in(&btrfs, at, &[&["send"], args].concat());
            let ours = restow(["send"])
                .args(args)
                .current_dir(at)
                .output()
                .unwrap();
            let (code, _, words) = shown(&ours);
            assert_eq!(code, 0, "{args:?}: {words}");
            assert!(words.starts_with("At subvol "), "{args:?}: {words}");
            assert!(ours.stdout == theirs, "seed {seed}, {args:?}");
        }
    }
}

#[test]
#[ignore = "needs root"]
fn what_cannot_be_sent_is_refused() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let mounts = [mounted(&mkfs, ""), mounted(&mkfs, "")];
    for mount in &mounts {
        let at = mount.path();
        btrfs_in(&btrfs, at, &["subvolume", "create", "s"]);
        fs::create_dir(at.join("s/dir")).unwrap();
        btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", "a"]);
        btrfs_in(&btrfs, at, &["subvolume", "create", "other"]);
        btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "other", "o"]);
    }
    let at = mounts[0].path();
    let elsewhere = mounts[1].path().join("a");
    let elsewhere = elsewhere.to_str().unwrap();
    let refused: [(&[&str], &str); 9] = [
        (&["s"], "not read-only"),
        (&["a/dir"], "only whole subvolumes"),
        (
            &["."],
            "top level of a file system has no name and cannot be sent; `btrfs subvolume snapshot -r`",
        ),
        (&["/"], "restow: send /: "),
        (
            &["--proto", "9", "a"],
            "version 9 of streams cannot be sent: this Linux sends up to version 2",
        ),
        (
            &["--proto", "1", "--compressed-data", "a"],
            "needs version 2",
        ),
        (&["-p", "s", "a"], "not read-only"),
        (&["-p", elsewhere, "a"], "on two file systems"),
        (
            &["-c", "o", "a"],
            "no -c subvolume is a snapshot of the same subvolume",
        ),
    ];
    for (args, expected) in refused {
        let args = [&["send", "-q", "-f", "/dev/null"], args].concat();
        let (code, out, words) = run_in(at, &args);
        assert_eq!((code, &*out), (2, ""), "{args:?}");
        assert!(words.contains(expected), "{args:?}: {words}");
    }
    let refused = without_privilege(["send", "-q", "a"])
        .current_dir(at)
        .output();
    let (code, out, words) = shown(&refused.unwrap());
    assert_eq!((code, &*out), (2, ""), "{words}");
    assert!(
        words.contains("only root can send mounted subvolumes"),
        "{words}"
    );
    // Whoever reads ends early.
    let line = format!(
        "{} send -q a | head -c 20 >/dev/null; exit ${{PIPESTATUS[0]}}",
        env!("CARGO_BIN_EXE_restow")
    );
    let ended = Program::new("bash")
        .args(["-c", &line])
        .current_dir(at)
        .output();
    let (code, _, words) = shown(&ended.unwrap());
    assert!(
        code == 0 || words.contains("the pipe was closed"),
        "{code} {words}"
    );
}

/// How much a process has read; `None` if it has ended.
fn bytes_read(id: &str) -> Option<u64> {
    let io = fs::read_to_string(format!("/proc/{id}/io")).ok()?;
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    let has_ended = states(id).iter().all(|state| *state == 'Z');
    line?.parse().ok().filter(|_| !has_ended)
}

/// The states of a process's threads.
fn states(id: &str) -> Vec<char> {
    let tasks = fs::read_dir(format!("/proc/{id}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let stat = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    stat.filter_map(|stat| stat.rsplit_once(") ")?.1.chars().next())
        .collect()
}

/// Whether all threads of a process are stopped, or it has ended.
fn is_stopped(id: &str) -> bool {
    states(id).iter().all(|state| matches!(state, 'T' | 'Z'))
}

/// Stops and continues the process that sends, so that Linux starts again in the middle of a
/// command.
#[test]
#[ignore = "needs root"]
fn a_stream_that_linux_starts_again_stays_whole() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let mount = mounted(&mkfs, "noatime");
    let at = mount.path();
    btrfs_in(&btrfs, at, &["subvolume", "create", "s"]);
    let mut rng = Rng::new(7);
    for number in 0..40 {
        let path = at.join(format!("s/noise{number}"));
        fs::write(path, rng.bytes(1 << 20)).unwrap();
    }
    btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", "a"]);
    change(&at.join("s"), &mut rng, 60);
    btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", "b"]);
    let dir = TempDir::new();
    let mut restarted = 0;
    for turn in 0..cases(8_u64) {
        let args: &[&str] = [
            &["send", "a"][..],
            &["send", "--proto", "2", "-e", "a", "b"],
        ][turn as usize % 2];
        let expected = btrfs_in(&btrfs, at, args);
        let file = dir.join("stream");
        let child = restow(args)
            .arg("-f")
            .arg(&file)
            .current_dir(at)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let id = child.id().to_string();
        let signal = |name: &str| {
            let mut kill = Program::new("kill");
            let _ = kill.args([name, &id]).stderr(Stdio::null()).status();
        };
        let mut wanted = 0;
        for _ in 0..6 {
            wanted += rng.below(8 << 20);
            while bytes_read(&id).is_some_and(|read| read < wanted) {
                thread::yield_now();
            }
            signal("-STOP");
            while !is_stopped(&id) {
                thread::yield_now();
            }
            signal("-CONT");
        }
        let (code, _, words) = shown(&child.wait_with_output().unwrap());
        assert_eq!(code, 0, "{words}");
        assert!(fs::read(&file).unwrap() == expected, "turn {turn}: {words}");
        restarted += u64::from(words.contains("Linux was interrupted"));
    }
    assert!(restarted > 0, "Linux never started again");
}

/// Every way to continue the transfer of a stream that `args` make, of which `whole` is the whole.
fn continued(dir: &Path, args: &[&str], whole: &[u8]) {
    let path = dir.join("part");
    let resume = |more: &[&str]| {
        let resumed = restow(args)
            .args(["-q", "--resume-from", "part"])
            .args(more)
            .current_dir(dir)
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&resumed.stderr).into_owned();
        (resumed.status.code(), resumed.stdout, words)
    };
    let mut rng = Rng::new(3);
    let cuts = [0, 1, 17, whole.len() - 1, whole.len()];
    let random: Vec<usize> = (0..4)
        .map(|_| rng.below(whole.len() as u64) as usize)
        .collect();
    for cut in cuts.into_iter().chain(random) {
        fs::write(&path, &whole[..cut]).unwrap();
        let (code, rest, words) = resume(&[]);
        assert_eq!(code, Some(0), "{cut}: {words}");
        assert!(rest == whole[cut..], "{cut}");
        assert!(fs::read(&path).unwrap() == whole[..cut], "{cut}");
        let (code, _, words) = resume(&["-f", "part"]);
        assert_eq!(code, Some(0), "{cut}: {words}");
        assert!(fs::read(&path).unwrap() == *whole, "{cut}");
    }
    // A part of another stream, and more than the whole.
    let mut other = whole[..whole.len() / 2].to_vec();
    let at = other.len() - 5;
    other[at] ^= 1;
    fs::write(&path, &other).unwrap();
    let (code, _, words) = resume(&["-f", "part"]);
    assert_eq!(code, Some(2));
    let expected = format!("part differs from the stream in byte {at}");
    assert!(words.contains(&expected), "{words}");
    assert!(fs::read(&path).unwrap() == other);
    fs::write(&path, [whole, b"x"].concat()).unwrap();
    let (code, rest, words) = resume(&[]);
    assert_eq!((code, rest.len()), (Some(2), 0));
    assert!(words.contains("part is longer than the stream"), "{words}");
}

#[test]
fn a_cut_transfer_of_an_image_is_continued() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    fs::write(dir.join("src/noise"), Rng::new(1).bytes(300_000)).unwrap();
    fs::write(dir.join("src/text"), "a line of a text\n".repeat(9000)).unwrap();
    fs::create_dir(dir.join("src/sub")).unwrap();
    fs::rename(dir.join("src/noise"), dir.join("src/sub/noise")).unwrap();
    let make = ["copy", "-q", "--as-subvolume", "sub:ro", "src", "i.btrfs"];
    let (code, _, words) = run_in(dir.path(), make);
    assert_eq!(code, 0, "{words}");
    let args = ["send", "i.btrfs:sub"];
    let whole = restow(args)
        .current_dir(dir.path())
        .output()
        .unwrap()
        .stdout;
    continued(dir.path(), &args, &whole);
}

#[test]
#[ignore = "needs root"]
fn a_cut_transfer_of_a_mounted_subvolume_is_continued() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let mount = mounted(&mkfs, "noatime");
    let at = mount.path();
    btrfs_in(&btrfs, at, &["subvolume", "create", "s"]);
    change(&at.join("s"), &mut Rng::new(5), 40);
    btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", "a"]);
    let path = at.join("a");
    let args = ["send", "--proto", "2", path.to_str().unwrap()];
    let dir = TempDir::new();
    let whole = btrfs_in(&btrfs, at, &args);
    continued(dir.path(), &args, &whole);
}

#[test]
#[ignore = "needs root"]
fn progress_of_a_mounted_subvolume_has_the_total_of_what_changed() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let mount = mounted(&mkfs, "noatime,compress-force=zstd");
    let at = mount.path();
    btrfs_in(&btrfs, at, &["subvolume", "create", "s"]);
    let text = "a line of a text\n".repeat(200_000);
    fs::write(at.join("s/one"), &text[..1_000_000]).unwrap();
    btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", "a"]);
    fs::write(at.join("s/two"), &text[..3_000_000]).unwrap();
    btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", "b"]);
    for (args, total) in [
        (&["a"][..], "1.00 MB"),
        (&["-p", "a", "b"], "3.00 MB"),
        (&["--compressed-data", "-p", "a", "b"], "3.00 MB"),
        (&["-c", "a", "a", "b"], "3.00 MB"),
        (&["-e", "--no-data", "a", "b"], "5.00 MB"),
    ] {
        let dir = TempDir::new();
        let file = dir.join("stream");
        let args = [&["send", "-f", file.to_str().unwrap()], args].concat();
        let Some(shown) = on_terminal(at, &args) else {
            return;
        };
        let total = format!(" of {total} ");
        assert!(shown.contains(&total), "{args:?}: {shown}");
        let expected = btrfs_in(&btrfs, at, &[&["send"], &args[3..]].concat());
        assert!(fs::read(&file).unwrap() == expected, "{args:?}");
    }
}

/// `btrfs send` looks for the parent at one mount point only.
#[test]
#[ignore = "needs root"]
fn parents_at_another_mount_point_are_found() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let mount = mounted(&mkfs, "noatime");
    let at = mount.path();
    for name in ["s", "inner"] {
        btrfs_in(&btrfs, at, &["subvolume", "create", name]);
    }
    change(&at.join("s"), &mut Rng::new(8), 30);
    btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", "inner/a"]);
    change(&at.join("s"), &mut Rng::new(9), 30);
    btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", "b"]);
    let expected = btrfs_in(&btrfs, at, &["send", "-p", "inner/a", "b"]);
    let elsewhere = TempDir::new();
    let mut again = Program::new("mount");
    again.args(["-t", "btrfs", "-o", "subvol=inner"]);
    run(again.args([mount.device(), elsewhere.path()]));
    let parent = elsewhere.join("a");
    let args = ["send", "-q", "-p", parent.to_str().unwrap(), "b"];
    let sent = restow(args).current_dir(at).output().unwrap();
    run(Program::new("umount").arg(elsewhere.path()));
    let (code, _, words) = shown(&sent);
    assert_eq!(code, 0, "{words}");
    assert!(sent.stdout == expected);
}
