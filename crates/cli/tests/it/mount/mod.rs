//! Mounts. All of them need root, and run in a mount namespace of their own.

mod content; // what a mount shows, compared with the source, and with mounts of Linux
mod faults; // damage, killed programs, forced unmounts
mod programs; // real programs that run from a mount
mod ways; // as root, as a user, in a user namespace, by mount(8); options

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use testkit::{TempDir, run};

use super::{restow, run_in};

/// A mount of ours, which is undone when it is dropped.
struct Mounted {
    point: PathBuf,
    _dir: TempDir,
}

impl Mounted {
    /// Mounts in the background.
    fn new<A: AsRef<OsStr>>(source: &Path, options: impl IntoIterator<Item = A>) -> Mounted {
        let dir = TempDir::new();
        let point = dir.join("point");
        fs::create_dir(&point).unwrap();
        let mut command = restow(["mount"]);
        let output = command.arg(source).arg(&point).args(options).output();
        let output = output.unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}");
        Mounted { point, _dir: dir }
    }

    fn path(&self) -> &Path {
        &self.point
    }

    fn unmount(self) {
        let (code, _, words) = run_in(&self.point.join(".."), ["unmount", "point"]);
        assert_eq!((code, &*words), (0, ""));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = restow(["unmount", "--lazy"])
            .arg(&self.point)
            .stderr(Stdio::null())
            .status();
    }
}

/// Mounts in the foreground; returns when the mount answers. The end of the process ends the test
/// if it is not dropped.
struct Foreground {
    child: Option<Child>,
    point: PathBuf,
    dir: TempDir,
}

impl Foreground {
    fn new<A: AsRef<OsStr>>(source: &Path, options: impl IntoIterator<Item = A>) -> Foreground {
        let dir = TempDir::new();
        let point = dir.join("point");
        fs::create_dir(&point).unwrap();
        run(Command::new("mkfifo").arg(dir.join("pipe")));
        let mut command = restow(["mount", "-f"]);
        command.arg(source).arg(&point).args(options);
        command
            .arg("-o")
            .arg(format!("notify_pipe={}", dir.join("pipe").display()));
        let words = File::create(dir.join("words")).unwrap();
        let child = command.stderr(words).spawn().unwrap();
        let answer = fs::read(dir.join("pipe")).unwrap();
        let mounted = Foreground {
            child: Some(child),
            point,
            dir,
        };
        assert_eq!(answer, b"s", "{}", mounted.words());
        mounted
    }

    fn path(&self) -> &Path {
        &self.point
    }

    fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// What it has printed to standard error.
    fn words(&self) -> String {
        fs::read_to_string(self.dir.join("words")).unwrap()
    }

    /// Sends a signal, by its name.
    fn signal(&self, signal: &str) {
        run(Command::new("kill").args(["-s", signal, &self.id().to_string()]));
    }

    /// Unmounts it, and returns what it printed.
    fn unmount(self) -> String {
        let (code, _, words) = run_in(self.dir.path(), ["unmount", "point"]);
        assert_eq!((code, &*words), (0, ""));
        self.ended()
    }

    /// Waits for its end, and returns what it printed.
    fn ended(mut self) -> String {
        let mut child = self.child.take().unwrap();
        assert!(child.wait().unwrap().success(), "{}", self.words());
        self.words()
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = Command::new("umount")
            .arg("-l")
            .arg(&self.point)
            .stderr(Stdio::null())
            .status();
    }
}

/// The number after a word in what was printed.
fn counter(words: &str, name: &str) -> u64 {
    let (_, rest) = words
        .split_once(name)
        .unwrap_or_else(|| panic!("{name} in {words}"));
    let digits = rest
        .trim_start()
        .split(|c: char| !c.is_ascii_digit())
        .next();
    digits.and_then(|digits| digits.parse().ok()).unwrap()
}

/// Runs a script in a directory, and gives what it printed.
fn script(dir: &Path, script: &str) -> String {
    let mut bash = Command::new("bash");
    bash.args(["-e", "-o", "pipefail", "-c", script]);
    let output: Output = run(bash.current_dir(dir).env("LC_ALL", "C"));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A `/dev/fuse` that everybody may use, as on usual systems, in this mount namespace.
fn open_device_for_all(dir: &Path) {
    let device = dir.join("fuse");
    run(Command::new("mknod").arg(&device).args(["c", "10", "229"]));
    fs::set_permissions(&device, fs::Permissions::from_mode(0o666)).unwrap();
    run(Command::new("mount")
        .arg("--bind")
        .arg(&device)
        .arg("/dev/fuse"));
}
