//! No name of a file steers the terminal or forges a line, whatever the command prints.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use testkit::{TempDir, run, tool};

use super::run_in;

/// Sequences for terminals, in 7 and 8 bits, a further line, and a change of direction.
const NAMES: [&str; 5] = [
    "a\x1b[31mred",
    "b\nFORGED",
    "c\u{9b}31m",
    "d\u{202e}gnp",
    "e\r\x08\x7f",
];

/// Asserts that nothing in the output of a command is a command for a terminal.
#[track_caller]
fn assert_plain(dir: &Path, codes: &[i32], args: &[&str]) {
    let (code, out, words) = run_in(dir, args);
    assert!(codes.contains(&code), "{args:?}: {code}: {words}");
    for line in [&out, &words].into_iter().flat_map(|text| text.split('\n')) {
        let is_steering = |it: char| it.is_control() && it != '\t' || it == '\u{202e}';
        assert!(!line.contains(is_steering), "{args:?}: {line:?}");
        assert!(
            !line.trim_start().starts_with("FORGED"),
            "{args:?}: {line:?}"
        );
    }
    assert!(!out.is_empty() || !words.is_empty(), "{args:?}");
}

#[test]
fn names_are_escaped_by_every_command() {
    let dir = TempDir::new();
    let deep = dir.join("tree").join(NAMES[0]);
    fs::create_dir_all(&deep).unwrap();
    fs::create_dir(dir.join("other")).unwrap();
    for name in &NAMES[1..] {
        for at in [&dir.join("tree"), &deep] {
            fs::write(at.join(name), name.repeat(900)).unwrap();
        }
    }
    symlink(NAMES[1], dir.join("tree/link")).unwrap();
    if let Some(setfattr) = tool("setfattr") {
        let mut set = setfattr.command();
        set.args(["-n", &format!("user.{}", NAMES[0]), "-v", NAMES[1]]);
        run(set.arg(dir.join("tree/link")));
    }
    let check = |codes: &[i32], args: &[&str]| assert_plain(dir.path(), codes, args);
    let label = NAMES[..2].concat();
    for to in ["o.tar", "o.squashfs", "o.stream"] {
        check(&[0], &["copy", "-v", "tree", to]);
    }
    check(&[0], &["copy", "-v", "tree", "o.btrfs", "--label", &label]);
    for source in ["tree", "o.tar", "o.squashfs", "o.btrfs", "o.stream"] {
        check(&[0], &["ls", "-lR", source]);
        check(&[0], &["ls", "-R", "--json", source]);
        check(&[0], &["manifest", source]);
        check(&[0], &["usage", "--top", "9", source]);
        check(&[0], &["usage", "--json", source]);
        check(&[0], &["usage", "--ncdu", source]);
        check(&[1], &["diff", source, "other"]);
        check(&[1], &["diff", "--json", source, "other"]);
        check(&[2], &["cat", source, NAMES[0]]);
        check(&[2], &["ls", source, &label]);
    }
    for image in ["o.squashfs", "o.btrfs"] {
        check(&[0], &["check", image]);
        check(&[0], &["info", image]);
        check(&[0], &["info", "--json", image]);
    }
    check(&[0], &["info", "o.btrfs", "--path", NAMES[1]]);
    for how in ["info", "dump", "verify"] {
        check(&[0], &["stream", how, "o.stream"]);
    }
    check(&[0], &["stream", "dump", "--json", "o.stream"]);
    check(&[0], &["stream", "info", "--json", "o.stream"]);
    check(&[0], &["receive", "--dump", "-f", "o.stream"]);
    let into = ["receive", "-v", "-f", "o.stream"];
    check(&[0], &[&into[..], &["--to", "image", "new.btrfs"]].concat());
    let to_dir = ["--to", "directory", "--no-owners", "dir"];
    check(&[0, 1], &[&into[..], &to_dir].concat());
    check(&[2], &[&into[..], &to_dir].concat());
    check(&[2], &["copy", NAMES[0], "x.tar"]);
    check(&[2], &["copy", "tree", &format!("tree/{}", NAMES[1])]);
    check(&[2], &["copy", "tree", "x.tar", &label]);
    check(&[2], &["send", &format!("o.btrfs:{label}")]);
    check(&[2], &["stream", "verify", &label]);
}
