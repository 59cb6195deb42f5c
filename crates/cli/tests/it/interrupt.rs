use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use testkit::{ImageLayout, TempDir, layer};

use super::names;

/// A tree of `files` files of 20 kB each.
fn source(dir: &TempDir, files: usize) {
    let mut content = [b'x'; 20_000];
    let from = names(&dir.join("src")).len();
    for number in from..files {
        content[..8].copy_from_slice(format!("{number:8}").as_bytes());
        fs::write(dir.join(format!("src/{number}")), content).unwrap();
    }
}

fn signal(child: &Child, name: &str) {
    let kill = Command::new("sh")
        .arg("-c")
        .arg(format!("kill -s {name} {}", child.id()))
        .status();
    assert!(kill.unwrap().success());
}

/// Whether it has begun to write to `out`: a directory under a temporary name, or an open file
/// without a name, or that is written over.
fn is_writing(child: &Child, out: &Path) -> bool {
    let is_temporary = |name: &String| name.ends_with(".tmp") && name.starts_with('.');
    if let Some(name) = names(out).iter().find(|name| is_temporary(name)) {
        let size = fs::read_dir(out.join(name)).map(Iterator::count);
        if size.is_ok_and(|count| count > 5) {
            return true;
        }
    }
    let Ok(open) = fs::read_dir(format!("/proc/{}/fd", child.id())) else {
        return false;
    };
    open.flatten().any(|file| {
        let target = fs::read_link(file.path()).unwrap_or_default();
        target.starts_with(out) && fs::metadata(file.path()).is_ok_and(|file| file.blocks() > 200)
    })
}

/// Starts a copy and sends a signal while it writes. Gives exit code, standard error, and what it
/// left in `out`.
fn interrupted(dir: &TempDir, dst: &str, name: &str) -> (Option<i32>, String, Vec<String>) {
    let (code, words, out) = interrupted_at(dir, &["copy", "-j1", "src"], dst, name, |_| ());
    (code, words, names(&out))
}

/// The same with any command, and for `out` after `prepare`, which is returned.
fn interrupted_at(
    dir: &TempDir,
    command: &[&str],
    dst: &str,
    name: &str,
    prepare: impl Fn(&Path),
) -> (Option<i32>, String, PathBuf) {
    fs::create_dir_all(dir.join("src")).unwrap();
    let mut files = 2000;
    loop {
        source(dir, files);
        let out = dir.join(format!("out-{name}-{files}"));
        fs::create_dir(&out).unwrap();
        prepare(&out);
        // A signal that is ignored here, as in the background of a shell, would be ignored there,
        // too.
        let mut child = Command::new("env")
            .arg("--default-signal=INT,TERM,HUP")
            .arg(env!("CARGO_BIN_EXE_restow"))
            .args(command)
            .arg(out.join(dst))
            .stdin(Stdio::null())
            .current_dir(dir.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ended = false;
        while !ended && !is_writing(&child, &out) {
            ended = child.try_wait().unwrap().is_some();
        }
        if !ended {
            signal(&child, name);
        }
        let status = child.wait().unwrap();
        // It was too fast for us: the next tree is larger.
        if status.success() {
            files *= 2;
            assert!(files <= 32_000, "it ends before {name} comes");
            continue;
        }
        let mut words = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut words)
            .unwrap();
        return (status.code(), words, out);
    }
}

#[test]
fn ctrl_c_leaves_no_part_of_a_container_image() {
    let dir = TempDir::new();
    let copy = ["copy", "-j1", "--compress", "none", "--to", "oci", "src"];
    let (code, words, out) = interrupted_at(&dir, &copy, "l", "INT", |_| ());
    assert_eq!(code, Some(130), "{words}");
    assert_eq!(names(&out), [""; 0]);
    let layout = ImageLayout::of([layer(["x=1"])]);
    let add = |out: &Path| layout.write_to(&out.join("l"));
    let (code, words, out) = interrupted_at(&dir, &copy, "l:new", "TERM", add);
    assert_eq!(code, Some(143), "{words}");
    for (path, bytes) in &layout.files {
        assert!(
            fs::read(out.join("l").join(path)).unwrap() == *bytes,
            "{path}"
        );
    }
    assert_eq!(
        names(&out.join("l/blobs/sha256")).len() + 2,
        layout.files.len()
    );
}

#[test]
fn ctrl_c_leaves_nothing() {
    let dir = TempDir::new();
    for dst in ["dst.tar", "dst"] {
        for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
            let left = interrupted(&dir, dst, name);
            assert_eq!(left, (Some(code), String::new(), vec![]), "{dst} {name}");
            fs::remove_dir_all(dir.join("src")).unwrap();
            for out in names(dir.path()) {
                fs::remove_dir_all(dir.join(out)).unwrap();
            }
        }
    }
}

#[test]
fn ctrl_c_leaves_zeros_of_the_old_length_in_a_file_that_is_written_over() {
    let dir = TempDir::new();
    let prepare = |out: &Path| {
        let img = fs::File::create(out.join("img")).unwrap();
        img.set_len(500 << 20).unwrap();
    };
    let command = ["mkfs.btrfs", "-r", "src"];
    let (code, words, out) = interrupted_at(&dir, &command, "img", "INT", prepare);
    assert_eq!((code, &*words), (Some(130), ""));
    assert_eq!(names(&out), ["img"]);
    let img = fs::metadata(out.join("img")).unwrap();
    assert_eq!((img.len(), img.blocks()), (500 << 20, 0));
}

#[test]
fn kill_leaves_nothing_under_the_final_name() {
    let dir = TempDir::new();
    let (code, _, left) = interrupted(&dir, "dst.tar", "KILL");
    assert_eq!(code, None);
    assert!(!left.contains(&"dst.tar".to_owned()), "{left:?}");
    fs::remove_dir_all(dir.path().join("src")).unwrap();
    let dir = TempDir::new();
    let (code, _, left) = interrupted(&dir, "dst", "KILL");
    assert_eq!(code, None);
    // The temporary name says what it is.
    assert!(
        left.iter().all(|name| name.starts_with(".dst.restow-")),
        "{left:?}"
    );
    // The next copy to the same place removes it.
    for out in names(dir.path())
        .iter()
        .filter(|name| name.starts_with("out-"))
    {
        let dst = format!("{out}/dst");
        let args = ["copy", "-q", "--merge", "src", &dst];
        let args = args
            .iter()
            .filter(|arg| **arg != "--merge" || dir.join(&dst).exists());
        let (code, _, words) = super::run_in(dir.path(), args);
        assert_eq!((code, &*words), (0, ""));
        assert_eq!(names(&dir.join(out)), ["dst"]);
    }
}
