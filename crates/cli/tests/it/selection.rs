//! Parts of sources: directories, lists of files, stripped names, followed links; and the links of
//! a merged directory.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use testkit::{Rng, TempDir, run, tool};

use super::{ok, restow, run_in};

/// A directory `src` with two levels, hard links across them, symbolic links and content.
fn source() -> TempDir {
    let dir = TempDir::new();
    let src = dir.join("src");
    fs::create_dir_all(src.join("a/deep/er")).unwrap();
    fs::create_dir_all(src.join("b/deep")).unwrap();
    fs::write(src.join("top"), "top").unwrap();
    fs::write(src.join("a/one"), Rng::new(3).bytes(300_000)).unwrap();
    fs::write(
        src.join("a/deep/two"),
        "to be or not to be\n".repeat(20_000),
    )
    .unwrap();
    fs::write(src.join("a/deep/er/three"), "three").unwrap();
    fs::write(src.join("a/star [*]{x}?\\"), "odd").unwrap();
    fs::hard_link(src.join("a/one"), src.join("b/deep/linked")).unwrap();
    symlink("deep/two", src.join("a/link")).unwrap();
    fs::write(src.join("b/four"), "four").unwrap();
    dir
}

fn in_dir(dir: &TempDir, program: &testkit::Tool, line: &str) {
    let mut command = program.command();
    run(command
        .args(line.split_whitespace())
        .current_dir(dir.path()));
}

#[test]
fn a_directory_of_a_file_is_a_source() {
    let dir = source();
    ok(&dir, "copy -q src x.tar.zst");
    ok(&dir, "copy -q src x.tar");
    ok(&dir, "copy -q src x.squashfs");
    ok(
        &dir,
        "copy -q src x.btrfs --as-subvolume a/deep --compress zstd:3",
    );
    for file in ["x.tar", "x.tar.zst", "x.squashfs", "x.btrfs"] {
        ok(&dir, &format!("copy -q {file}:a/deep out"));
        ok(&dir, "diff --ignore mtime src/a/deep out");
        ok(&dir, &format!("diff {file}:/a/deep/ out"));
        ok(&dir, &format!("diff {file}:b/deep src/b/deep"));
        assert_eq!(ok(&dir, &format!("cat {file}:a/deep er/three")).0, "three");
        fs::remove_dir_all(dir.join("out")).unwrap();
        for (path, words) in [
            (
                "none",
                if file == "x.btrfs" {
                    "no subvolume or directory none"
                } else {
                    "find none: no such"
                },
            ),
            ("top", "top is a file, not a directory"),
        ] {
            let (code, _, error) = run_in(dir.path(), ["ls", &format!("{file}:{path}")]);
            assert!(code == 2 && error.contains(words), "{error}");
        }
    }
    // Blocks stay compressed, and the format's options apply.
    for (line, kept) in [
        ("copy x.squashfs:a y.squashfs", true),
        ("copy x.btrfs:a y.btrfs", true),
        (
            "copy x.btrfs:a y.btrfs --overwrite --no-log --recompress",
            false,
        ),
    ] {
        let (_, words) = ok(&dir, line);
        assert_eq!(words.contains(" kept compressed"), kept, "{words}");
    }
    ok(&dir, "diff src/a y.btrfs");
    if let Some(unsquashfs) = tool("unsquashfs") {
        in_dir(&dir, &unsquashfs, "-q -n -d unpacked y.squashfs");
        ok(&dir, "diff --ignore mtime src/a unpacked");
    }
    if let Some(tar2sqfs) = tool("tar2sqfs") {
        let line = format!(
            "tar2sqfs -q -r a theirs.squashfs < {}",
            dir.join("x.tar").display()
        );
        let mut sh = Command::new("sh");
        run(sh.args(["-c", &line]).current_dir(dir.path()));
        drop(tar2sqfs);
        ok(&dir, "diff x.tar:a theirs.squashfs");
    }
}

#[test]
fn names_are_stripped_as_by_tar() {
    let dir = source();
    ok(&dir, "copy -q src x.tar");
    let Some(tar) = tool("tar") else { return };
    fs::create_dir(dir.join("theirs")).unwrap();
    in_dir(&dir, &tar, "--strip-components=1 -xf x.tar -C theirs");
    for source in ["x.tar", "src"] {
        ok(&dir, &format!("copy -q --strip-components 1 {source} ours"));
        // The root of theirs is that of the directory it was unpacked into.
        ok(&dir, "diff --ignore mtime ours theirs");
        fs::remove_dir_all(dir.join("ours")).unwrap();
    }
    // GNU tar fails here: it strips the target of the hard link, too.
    ok(&dir, "copy -q --strip-components 2 x.tar two.tar");
    let (names, _) = ok(&dir, "ls -R two.tar");
    assert_eq!(names, "er\ner/three\nlinked\ntwo\n");
    // Both `deep` are one, and a file that two names lead to is still one file.
    ok(&dir, "copy -q --strip-components 1 src ours");
    let number = |path: &str| fs::metadata(dir.join(path)).unwrap().ino();
    assert_eq!(number("ours/one"), number("ours/deep/linked"));
    // PATH is a path before.
    ok(&dir, "copy -q --strip-components 2 src deep a/deep");
    assert_eq!(ok(&dir, "ls -R deep").0, "er\ner/three\ntwo\n");
    let (code, _, words) = run_in(
        dir.path(),
        ["copy", "--strip-components", "4", "src", "none"],
    );
    let expected = "src: no file to copy has 4 directories above it\n";
    assert!(code == 2 && words.ends_with(expected), "{words}");
    assert!(!dir.join("none").exists());
}

#[test]
fn files_of_a_list_are_copied() {
    let dir = source();
    let list = "a/star [*]{x}?\\\n./b/four\n\na/deep/er/\n";
    fs::write(dir.join("list"), list).unwrap();
    fs::write(dir.join("list0"), list.replace('\n', "\0")).unwrap();
    let expected = "a\na/deep\na/deep/er\na/deep/er/three\na/star [*]{x}?\\\\\nb\nb/four\n";
    for (number, line) in ["--files-from list", "-0 --files-from list0"]
        .iter()
        .enumerate()
    {
        ok(&dir, &format!("copy -q {line} src {number}.tar"));
        let (found, _) = ok(&dir, &format!("ls -R {number}.tar"));
        assert_eq!(found, expected);
    }
    if let Some(tar) = tool("tar") {
        in_dir(&dir, &tar, "--no-unquote -cf theirs.tar -C src -T list");
        let (theirs, _) = ok(&dir, "ls -R theirs.tar");
        assert_eq!(theirs, expected);
    }
    let mut piped = restow("copy -q --files-from - src piped.tar".split(' '));
    let list = fs::File::open(dir.join("list")).unwrap();
    run(piped.current_dir(dir.path()).stdin(list));
    ok(&dir, "diff 0.tar piped.tar");
    // With a pattern and a path that is not there; and nothing.
    fs::write(dir.join("missing"), "top\nnone\n").unwrap();
    let (code, _, words) = run_in(
        dir.path(),
        ["copy", "--files-from", "missing", "src", "y.tar"],
    );
    assert!(code == 2 && words.contains("none"), "{words}");
    fs::write(dir.join("empty"), "").unwrap();
    ok(&dir, "copy -q --files-from empty src empty.tar");
    assert_eq!(ok(&dir, "ls -R empty.tar").0, "");
    let args = ["copy", "--files-from", "-", "-", "y.tar"];
    let (code, _, words) = run_in(dir.path(), args);
    assert!(
        code == 2 && words.contains("standard input is SRC"),
        "{words}"
    );
}

#[test]
fn links_are_followed_on_demand() {
    let dir = source();
    fs::create_dir_all(dir.join("outside/in")).unwrap();
    fs::write(dir.join("outside/in/file"), "from outside").unwrap();
    symlink("../outside", dir.join("src/out")).unwrap();
    symlink("out/in", dir.join("src/twice")).unwrap();
    symlink(dir.join("outside/in/file"), dir.join("src/b/absolute")).unwrap();
    ok(&dir, "copy -q --dereference src ours");
    assert!(
        ok(&dir, "ls -R ours")
            .0
            .contains("out\nout/in\nout/in/file\n")
    );
    if let Some(tar) = tool("tar") {
        in_dir(
            &dir,
            &tar,
            "--dereference --format=pax -cf theirs.tar -C src .",
        );
        ok(&dir, "diff ours theirs.tar");
    }
    ok(&dir, "copy -q --dereference src ours.tar");
    ok(&dir, "diff ours ours.tar");
    for (target, words) in [
        ("nowhere", "no such file or directory"),
        ("..", "the symbolic link leads to a directory above it"),
    ] {
        symlink(target, dir.join("src/b/bad")).unwrap();
        let (code, _, error) = run_in(dir.path(), ["copy", "--dereference", "src", "y.tar"]);
        assert!(code == 2 && error.contains(words), "{error}");
        let args = [
            "copy",
            "-q",
            "--dereference",
            "--skip-unreadable",
            "src",
            "y.tar",
        ];
        let (code, _, error) = run_in(dir.path(), args);
        assert!(code == 1 && error.contains(words), "{error}");
        ok(&dir, "diff --ignore mtime ours y.tar");
        fs::remove_file(dir.join("y.tar")).unwrap();
        fs::remove_file(dir.join("src/b/bad")).unwrap();
    }
    let (code, _, words) = run_in(dir.path(), ["ls", "--dereference", "ours.tar"]);
    assert!(
        code == 2 && words.contains("--dereference does not apply"),
        "{words}"
    );
}

/// A root with merged `/usr`, as distributions have it.
fn merged_usr(at: &Path) {
    fs::create_dir_all(at.join("usr/lib/old")).unwrap();
    fs::write(at.join("usr/lib/kept"), "kept").unwrap();
    symlink("usr/lib", at.join("lib")).unwrap();
}

#[test]
fn links_to_directories_in_the_target_are_kept_on_demand() {
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("src/lib/old/deep")).unwrap();
    fs::create_dir_all(dir.join("src/lib/new")).unwrap();
    fs::write(dir.join("src/lib/new/file"), "new").unwrap();
    fs::write(dir.join("src/lib/old/deep/file"), "deep").unwrap();
    for name in ["ours", "theirs"] {
        merged_usr(&dir.join(name));
    }
    let refused = run_in(dir.path(), ["copy", "-q", "--merge", "src", "ours"]);
    assert_eq!(refused.0, 1, "{}", refused.2);
    ok(&dir, "copy -q --merge --keep-directory-symlink src ours");
    assert!(
        fs::symlink_metadata(dir.join("ours/lib"))
            .unwrap()
            .is_symlink()
    );
    let names = "kept\nnew\nnew/file\nold\nold/deep\nold/deep/file\n";
    assert_eq!(ok(&dir, "ls -R ours/usr/lib").0, names);
    if let Some(tar) = tool("tar") {
        ok(&dir, "copy -q src src.tar");
        in_dir(&dir, &tar, "--keep-directory-symlink -xf src.tar -C theirs");
        assert_eq!(ok(&dir, "ls -R ours").0, ok(&dir, "ls -R theirs").0);
    }
    // Absolute links lead to the same place, and none leads out of the target.
    fs::create_dir(dir.join("outside")).unwrap();
    for (target, code) in [
        ("/usr/lib", 0),
        ("../outside", 1),
        ("/outside", 1),
        ("lib", 1),
    ] {
        fs::remove_file(dir.join("ours/lib")).unwrap();
        symlink(target, dir.join("ours/lib")).unwrap();
        let args = [
            "copy",
            "-q",
            "--merge",
            "--keep-directory-symlink",
            "src",
            "ours",
        ];
        let (found, _, words) = run_in(dir.path(), args);
        assert_eq!(found, code, "{target}: {words}");
        assert_eq!(fs::read_dir(dir.join("outside")).unwrap().count(), 0);
    }
}
