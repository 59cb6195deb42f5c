//! Nothing has its final name before commit, however the program ends.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use testkit::{MemoryFs, TempDir};
use tree::extract::{Aspect, Existing, ExtractOptions, extract};
use tree::{
    Device, Error, FileKind, FileSystem, Inventory, Limits, NoProgress, Output, OutputKind,
    Parallel, Progress, ReadAt, temporary,
};

/// Where a child process works.
const DIR: &str = "RESTOW_TEST_DIR";

fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn is_kind(error: &Error, kind: ErrorKind) -> bool {
    matches!(error, Error::Io(error) if error.kind() == kind)
}

#[test]
fn a_file_appears_on_commit_and_not_before() {
    let dir = TempDir::new();
    let to = dir.join("out");
    let mut output = Output::create(&to, false).unwrap();
    assert_eq!(output.kind(), OutputKind::File);
    output.write_all(b"in order").unwrap();
    output.write_all_at(b"IN", 0).unwrap();
    output.write_all(b", further").unwrap();
    output.set_len(20).unwrap();
    assert!(!to.exists());
    assert_eq!(output.size().unwrap(), 20);
    let mut again = [0; 8];
    output.read_exact_at(&mut again, 0).unwrap();
    assert_eq!(&again, b"IN order");
    output.commit().unwrap();
    assert_eq!(fs::read(&to).unwrap(), b"IN order, further\0\0\0");
    assert_eq!(names(dir.path()), ["out"]);
}

#[test]
fn without_commit_nothing_is_left() {
    let dir = TempDir::new();
    let mut output = Output::create(&dir.join("out"), false).unwrap();
    output.write_all(b"half").unwrap();
    drop(output);
    assert_eq!(names(dir.path()), [] as [&str; 0]);
}

#[test]
fn what_is_there_stays_until_it_is_replaced_whole() {
    let dir = TempDir::new();
    let to = dir.join("out");
    fs::write(&to, "old").unwrap();
    let error = Output::create(&to, false).unwrap_err();
    assert!(is_kind(&error, ErrorKind::AlreadyExists), "{error}");
    let mut output = Output::create(&to, true).unwrap();
    output.write_all(b"new").unwrap();
    assert_eq!(fs::read(&to).unwrap(), b"old");
    drop(output);
    assert_eq!(fs::read(&to).unwrap(), b"old");
    let mut output = Output::create(&to, true).unwrap();
    output.write_all(b"new").unwrap();
    output.commit().unwrap();
    assert_eq!(fs::read(&to).unwrap(), b"new");
    assert_eq!(names(dir.path()), ["out"]);
}

#[test]
fn a_name_that_was_taken_meanwhile_is_an_error() {
    let dir = TempDir::new();
    let to = dir.join("out");
    let mut output = Output::create(&to, false).unwrap();
    output.write_all(b"ours").unwrap();
    fs::write(&to, "theirs").unwrap();
    let error = output.commit().unwrap_err();
    assert!(is_kind(&error, ErrorKind::AlreadyExists), "{error}");
    assert_eq!(fs::read(&to).unwrap(), b"theirs");
    assert_eq!(names(dir.path()), ["out"]);
}

#[test]
fn links_and_directories_in_the_way() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("dir")).unwrap();
    std::os::unix::fs::symlink("nowhere", dir.join("dangling")).unwrap();
    let error = Output::create(&dir.join("dir"), true).unwrap_err();
    assert!(matches!(error, Error::IsADirectory));
    let error = Output::create(&dir.join("dangling"), false).unwrap_err();
    assert!(is_kind(&error, ErrorKind::AlreadyExists));
    let error = Output::create(Path::new("/"), false).unwrap_err();
    assert!(matches!(error, Error::IsADirectory));
    let error = Output::create(&dir.join("no/such/dir"), false).unwrap_err();
    assert!(is_kind(&error, ErrorKind::NotFound));
}

#[test]
fn streams_take_bytes_in_order() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let file = fs::File::from(std::os::fd::OwnedFd::from(writer));
    let mut output = Output::stream(file);
    assert_eq!(output.kind(), OutputKind::Stream);
    output.write_all(b"one, ").unwrap();
    output.write_all(b"two").unwrap();
    assert!(output.write_all_at(b"x", 0).is_err());
    output.commit().unwrap();
    let mut got = String::new();
    reader.read_to_string(&mut got).unwrap();
    assert_eq!(got, "one, two");
    let null = Output::create(Path::new("/dev/null"), false).unwrap();
    assert_eq!(null.kind(), OutputKind::Stream);
    null.commit().unwrap();
}

/// A tree of many small files and a big one, which takes a moment to write.
fn big_tree() -> MemoryFs {
    let mut tree = MemoryFs::new();
    let root = tree.root();
    for d in 0..50 {
        let dir = tree.add_dir(root, format!("{d:02}"));
        for n in 0..50 {
            tree.add_file(dir, format!("{n:02}"), b"content");
        }
    }
    tree
}

fn write_tree(to: &Path, progress: &dyn Progress) -> Result<(), Error> {
    let options = ExtractOptions {
        existing: Existing::Refuse,
        skip_unreadable: false,
        owners: true,
        sync: false,
        parallel: Parallel::new(2),
        ..ExtractOptions::default()
    };
    let tree = big_tree();
    let inventory = Inventory::of(&tree, &Limits::default()).unwrap();
    extract(&inventory, to, &options, progress).map(drop)
}

/// Runs this program again for a single test that only works this way.
fn child(test: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = format!("output::{test}");
    command.args([&test, "--exact"]);
    command.stdout(Stdio::null());
    command.env(DIR, dir);
    command
}

fn child_dir() -> Option<PathBuf> {
    std::env::var_os(DIR).map(PathBuf::from)
}

/// Waits until a child creates `ready`, and kills it then.
fn kill_when_ready(mut child: Child, dir: &Path) {
    while !dir.join("ready").exists() {
        assert_eq!(child.try_wait().unwrap(), None, "the child ended by itself");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    fs::remove_file(dir.join("ready")).unwrap();
}

#[test]
// Only does something when run by killed_programs_leave_no_final_name.
fn child_writes_a_file_and_waits() {
    let Some(dir) = child_dir() else { return };
    let mut output = Output::create(&dir.join("out"), false).unwrap();
    output.write_all(&[1; 1 << 20]).unwrap();
    fs::write(dir.join("ready"), "").unwrap();
    std::thread::park();
}

struct Stop(PathBuf);

impl Progress for Stop {
    fn expect(&self, _: Option<u64>, _: Option<u64>) {}
    fn advance(&self, _: u64, _: u64) {
        fs::write(&self.0, "").unwrap();
        std::thread::park();
    }
}

#[test]
// Only does something when run by killed_programs_leave_no_final_name.
fn child_extracts_and_waits() {
    let Some(dir) = child_dir() else { return };
    write_tree(&dir.join("out"), &Stop(dir.join("ready"))).unwrap();
}

#[test]
fn killed_programs_leave_no_final_name() {
    let dir = TempDir::new();
    let writer = child("child_writes_a_file_and_waits", dir.path()).spawn();
    kill_when_ready(writer.unwrap(), dir.path());
    // If the file system supports unnamed files, nothing is left.
    for name in names(dir.path()) {
        assert!(name.starts_with(".out.restow-") && name.ends_with(".tmp"));
        fs::remove_file(dir.join(&name)).unwrap();
    }
    let writer = child("child_extracts_and_waits", dir.path()).spawn();
    kill_when_ready(writer.unwrap(), dir.path());
    let left = names(dir.path());
    assert_eq!(left.len(), 1);
    assert!(left[0].starts_with(".out.restow-") && left[0].ends_with(".tmp"));
}

/// What a program does when asked to stop during an extraction with an uncommitted file.
#[test]
// Only does something when run by stopping_removes_everything_unfinished.
fn child_is_asked_to_stop() {
    struct Tell(std::sync::mpsc::SyncSender<()>);
    impl Progress for Tell {
        fn expect(&self, _: Option<u64>, _: Option<u64>) {}
        fn advance(&self, _: u64, _: u64) {
            let _ = self.0.try_send(());
        }
    }
    let Some(dir) = child_dir() else { return };
    let mut output = Output::create(&dir.join("file"), false).unwrap();
    output.write_all(b"half").unwrap();
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    std::thread::scope(|scope| {
        let extraction = scope.spawn(|| write_tree(&dir.join("out"), &Tell(tell)));
        told.recv().unwrap();
        temporary::remove_all();
        // It notices either the stop or, just before, the loss of its directory. It never succeeds.
        assert!(extraction.join().unwrap().is_err());
    });
    assert!(temporary::is_stopping());
    let error = output.commit().unwrap_err();
    assert!(is_kind(&error, ErrorKind::Interrupted), "{error}");
    assert_eq!(names(&dir), [] as [&str; 0]);
}

#[test]
fn stopping_removes_everything_unfinished() {
    for _ in 0..10 {
        let dir = TempDir::new();
        let status = child("child_is_asked_to_stop", dir.path())
            .status()
            .unwrap();
        assert!(status.success());
        assert_eq!(names(dir.path()), [] as [&str; 0]);
    }
}

#[test]
// Only does something when run by an_ordinary_user_learns_what_could_not_be_restored.
fn child_extracts_what_only_root_may() {
    let Some(dir) = child_dir() else { return };
    let mut tree = MemoryFs::new();
    let root = tree.root();
    let inner = tree.add_dir(root, "inner");
    tree.metadata_mut(inner).permissions = 0o555;
    let file = tree.add_file(inner, "suid", b"x");
    tree.metadata_mut(file).permissions = 0o6755;
    let file = tree.add_file(inner, "read-only", b"x");
    tree.metadata_mut(file).permissions = 0o400;
    tree.metadata_mut(file).uid = 65_534;
    tree.metadata_mut(file).gid = 65_534;
    tree.add_xattr(file, b"user.fine", b"x");
    tree.add_xattr(file, b"trusted.denied", b"x");
    let rdev = Device { major: 1, minor: 3 };
    let null = tree.add_special(root, "null", FileKind::CharDevice, rdev);
    tree.link(inner, "null too", null);
    tree.add_special(root, "fifo", FileKind::Fifo, Device::default());
    let inventory = Inventory::of(&tree, &Limits::default()).unwrap();
    let options = ExtractOptions {
        existing: Existing::Refuse,
        skip_unreadable: false,
        owners: true,
        sync: false,
        parallel: Parallel::new(2),
        ..ExtractOptions::default()
    };
    let to = dir.join("out");
    let extracted = extract(&inventory, &to, &options, &NoProgress).unwrap();
    let unrestored = extracted.unrestored;
    let counts: Vec<_> = unrestored
        .counts()
        .map(|(a, _, count)| (a, count))
        .collect();
    let expected = [
        (Aspect::Device, 2), // both names
        (Aspect::Owner, 4),  // the root, inner, suid, fifo
        (Aspect::Mode, 1),
        (Aspect::Xattr, 1),
    ];
    assert_eq!(counts, expected);
    // A directory that its owner cannot write to is still replaced and removed.
    let overwrite = ExtractOptions {
        existing: Existing::ReplaceDirectory,
        ..options
    };
    extract(&inventory, &to, &overwrite, &NoProgress).unwrap();
    assert_eq!(names(&dir), ["out"]);
}

#[test]
#[ignore = "needs root"]
fn an_ordinary_user_learns_what_could_not_be_restored() {
    let dir = TempDir::new();
    std::os::unix::fs::chown(dir.path(), Some(65_534), Some(65_534)).unwrap();
    // The program itself can be where that user has no access.
    let program = dir.join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::create_dir(dir.join("work")).unwrap();
    std::os::unix::fs::chown(dir.join("work"), Some(65_534), Some(65_534)).unwrap();
    let mut command = Command::new(&program);
    command.args(["output::child_extracts_what_only_root_may", "--exact"]);
    command.env(DIR, dir.join("work")).uid(65_534).gid(65_534);
    let output = command.current_dir("/").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
    assert_eq!(names(&dir.join("work")), ["out"]);
}
