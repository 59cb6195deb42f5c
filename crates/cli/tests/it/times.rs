//! Which times of files an image gets.

use std::fs::{self, File, FileTimes};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use testkit::{TempDir, run, tool};

use crate::{restow, run_in, shown};

fn time(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(seconds, 500_000_000)
}

fn set_times(file: &Path, accessed: u64, modified: u64) {
    let times = FileTimes::new()
        .set_accessed(time(accessed))
        .set_modified(time(modified));
    File::open(file).unwrap().set_times(times).unwrap();
}

fn source(dir: &TempDir) {
    fs::create_dir_all(dir.join("src/dir")).unwrap();
    for name in ["early", "late", "dir/at", "dir/after"] {
        fs::write(dir.join("src").join(name), name).unwrap();
    }
    set_times(&dir.join("src/early"), 3000, 1000);
    set_times(&dir.join("src/late"), 3000, 3000);
    set_times(&dir.join("src/dir/at"), 1000, 2000);
    set_times(&dir.join("src/dir/after"), 1000, 2001);
    set_times(&dir.join("src/dir"), 1000, 1000);
    set_times(&dir.join("src"), 1000, 4000);
}

fn copy(dir: &TempDir, args: &[&str], epoch: Option<&str>) {
    let mut command = restow([&["copy", "-q", "--overwrite"], args].concat());
    if let Some(epoch) = epoch {
        command.env("SOURCE_DATE_EPOCH", epoch);
    }
    let output = command.current_dir(dir.path()).output().unwrap();
    assert_eq!(
        shown(&output),
        (0, String::new(), String::new()),
        "{args:?}"
    );
}

#[test]
fn two_copies_of_a_directory_give_the_same_image() {
    let dir = TempDir::new();
    source(&dir);
    for copy in ["one", "two"] {
        let (from, to) = (dir.join("src"), dir.join(copy));
        run(Command::new("cp").arg("-a").args([from, to]));
        // Reading a file may change its access time.
        fs::read(dir.join("src/late")).unwrap();
    }
    set_times(&dir.join("two/late"), 5000, 3000);
    let image = |name: &str| fs::read(dir.join(name)).unwrap();
    for to in ["btrfs", "squashfs", "tar"] {
        let (one, two) = (format!("1.{to}"), format!("2.{to}"));
        copy(&dir, &["one", &one], None);
        copy(&dir, &["two", &two], None);
        assert!(image(&one) == image(&two), "{to}");
    }
    copy(&dir, &["--keep-ctime", "two", "3.btrfs"], None);
    assert!(image("2.btrfs") != image("3.btrfs"));
    // What an image states is kept.
    copy(&dir, &["3.btrfs", "4.btrfs"], None);
    copy(&dir, &["--keep-ctime", "3.btrfs", "5.btrfs"], None);
    assert!(image("4.btrfs") == image("3.btrfs"));
    assert!(image("5.btrfs") == image("3.btrfs"));
    let args = ["copy", "-q", "--keep-ctime", "one", "x.squashfs"];
    let words = run_in(dir.path(), args).2;
    assert!(
        words.contains("--keep-ctime does not apply to a SquashFS image"),
        "{words}"
    );
}

/// GNU tar's archive in the format of 1988, which has no PAX headers, is as large.
#[test]
fn a_precision_of_seconds_rounds_down_and_saves_the_headers_of_nanoseconds() {
    let dir = TempDir::new();
    source(&dir);
    copy(&dir, &["src", "ns.tar"], None);
    copy(&dir, &["--time-precision=ns", "src", "same.tar"], None);
    copy(&dir, &["--time-precision=s", "src", "s.tar"], None);
    let image = |name: &str| fs::read(dir.join(name)).unwrap();
    assert!(image("ns.tar") == image("same.tar"));
    assert_eq!(image("ns.tar").len(), image("s.tar").len() + 6 * 1024);
    if let Some(tar) = tool("tar") {
        let args = ["-b1", "--format=ustar", "-cf", "gnu.tar", "-C", "src", "."];
        run(tar.command().args(args).current_dir(dir.path()));
        assert_eq!(image("gnu.tar").len(), image("s.tar").len());
        let args = ["--full-time", "--utc", "-tf", "s.tar", "-v", "early"];
        let listed = run(tar.command().args(args).current_dir(dir.path())).stdout;
        let listed = String::from_utf8(listed).unwrap();
        assert!(listed.contains("1970-01-01 00:16:40 "), "{listed}");
    }
    let early = File::open(dir.join("src/early")).unwrap();
    let before_1970 = SystemTime::UNIX_EPOCH - Duration::from_millis(1500);
    early.set_modified(before_1970).unwrap();
    for to in ["s.tar", "s.btrfs", "s.stream", "s"] {
        copy(&dir, &["--time-precision=s", "src", to], None);
        let manifest = run_in(dir.path(), ["manifest", to]).1;
        let times: Vec<&str> = (manifest.split([' ', '\n']))
            .filter_map(|word| word.strip_prefix("time="))
            .collect();
        let whole = times.iter().filter(|time| time.ends_with(".000000000"));
        assert_eq!((times.len(), whole.count()), (6, 6), "{to}: {manifest}");
        assert!(times.contains(&"-2.000000000"), "{to}: {manifest}");
    }
}

#[test]
fn source_date_epoch_bounds_the_times_of_files_as_in_mksquashfs() {
    let dir = TempDir::new();
    source(&dir);
    let words = ["1000.000000000", "2000.000000000", "1000.500000000"];
    let [early, epoch, early_and_half] = words.map(|word| format!("time={word}"));
    let times = |container: &str| -> Vec<(String, String)> {
        let (code, out, words) = run_in(dir.path(), ["manifest", container]);
        assert_eq!(code, 0, "{words}");
        let words = |line: &str| {
            let mut words = line.split(' ');
            let path = words.next().unwrap().to_owned();
            (
                path,
                words
                    .find(|word| word.starts_with("time="))
                    .unwrap()
                    .to_owned(),
            )
        };
        out.lines().skip(1).map(words).collect()
    };
    let expected = |early: &str| -> Vec<(String, String)> {
        let all = [
            (".", &*epoch),
            ("./dir", early),
            ("./dir/after", &epoch),
            ("./dir/at", &epoch),
            ("./early", early),
            ("./late", &epoch),
        ];
        all.map(|(path, time)| (path.to_owned(), time.to_owned()))
            .into()
    };
    copy(&dir, &["src", "x.squashfs"], Some("2000"));
    assert_eq!(times("x.squashfs"), expected(&early));
    copy(&dir, &["src", "x.btrfs"], Some("2000"));
    assert_eq!(times("x.btrfs"), expected(&early_and_half));
    // From an image, too, and in the same way.
    copy(&dir, &["src", "whole.btrfs"], None);
    copy(&dir, &["whole.btrfs", "x.squashfs"], Some("2000"));
    assert_eq!(times("x.squashfs"), expected(&early));
    if let Some(mksquashfs) = tool("mksquashfs") {
        let mut command = mksquashfs.command();
        let args = [
            "src",
            "theirs.squashfs",
            "-noappend",
            "-quiet",
            "-no-progress",
        ];
        run(command
            .args(args)
            .env("SOURCE_DATE_EPOCH", "2000")
            .current_dir(dir.path()));
        assert_eq!(times("theirs.squashfs"), times("x.squashfs"));
        let info = |image| run_in(dir.path(), ["info", image]).1;
        let made = |image| {
            let info: String = info(image);
            info.lines()
                .find(|line| line.contains("1970"))
                .unwrap_or_default()
                .to_owned()
        };
        assert_eq!(made("theirs.squashfs"), made("x.squashfs"));
        assert!(!made("x.squashfs").is_empty());
    }
    let mut command = restow(["copy", "src", "y.squashfs"]);
    command
        .env("SOURCE_DATE_EPOCH", "today")
        .current_dir(dir.path());
    let (code, _, words) = shown(&command.output().unwrap());
    assert_eq!(code, 2);
    assert!(
        words.contains("SOURCE_DATE_EPOCH must be a number"),
        "{words}"
    );
}
