//! Several sources at once, and single files.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, SystemTime};

use testkit::TempDir;

use super::{names, ok, run_in};

/// Three directories that share some paths.
fn sources() -> TempDir {
    let dir = TempDir::new();
    for (path, content) in [
        ("a/both", "a"),
        ("a/only-a", "a"),
        ("a/d/x", "a"),
        ("a/file-or-dir", "a"),
        ("b/both", "b"),
        ("b/d/y", "b"),
        ("b/file-or-dir/z", "b"),
        ("c/both", "c"),
    ] {
        fs::create_dir_all(dir.join(path).parent().unwrap()).unwrap();
        fs::write(dir.join(path), content).unwrap();
    }
    fs::hard_link(dir.join("b/d/y"), dir.join("b/d/y2")).unwrap();
    dir
}

#[test]
fn later_sources_are_over_earlier_ones() {
    let dir = sources();
    ok(&dir, "copy -q c c.squashfs");
    let all = "both\nd\nd/x\nd/y\nd/y2\nfile-or-dir\nfile-or-dir/z\nonly-a\n";
    for dst in ["x.tar", "x.squashfs", "x.btrfs", "x.stream", "x"] {
        let (_, words) = ok(&dir, &format!("copy a {dst} --with b --with c.squashfs"));
        let replaced = "restow: 3 files replaced by later ones with the same path\n";
        assert!(words.contains(replaced), "{dst}: {words}");
        assert_eq!(ok(&dir, &format!("ls -R {dst}")).0, all, "{dst}");
        assert_eq!(
            ok(&dir, &format!("cat {dst} both d/x d/y file-or-dir/z")).0,
            "cabb"
        );
        let (links, _) = ok(&dir, &format!("ls -l {dst} d/y d/y2"));
        assert!(
            links
                .lines()
                .all(|line| line.starts_with("-rw-r--r--   2 ")),
            "{links}"
        );
    }
    ok(&dir, "diff x.tar x.squashfs --ignore mtime");
    // The other order.
    ok(&dir, "copy -q b y.tar --with a");
    assert_eq!(ok(&dir, "cat y.tar both file-or-dir").0, "aa");
    // What is excluded is excluded of all; paths after DST select from all.
    ok(&dir, "copy -q a z.tar d only-a --with b --exclude d/x");
    assert_eq!(ok(&dir, "ls -R z.tar").0, "d\nd/y\nd/y2\nonly-a\n");
    let (code, _, words) = run_in(dir.path(), ["copy", "a", "w.tar", "--with", "none"]);
    assert_eq!(code, 2);
    assert_eq!(
        words,
        "restow: copy a to w.tar: open none: no such file or directory\n"
    );
    assert!(!names(dir.path()).contains(&"w.tar".to_owned()));
}

#[test]
fn a_source_goes_where_its_path_says() {
    let dir = sources();
    ok(&dir, "copy -q a x.tar --with b=opt/b --with c=/opt/b/d/");
    let (list, _) = ok(&dir, "ls -R x.tar opt");
    assert_eq!(
        list,
        "opt/b\nopt/b/both\nopt/b/d\nopt/b/d/both\nopt/b/d/y\nopt/b/d/y2\n\
         opt/b/file-or-dir\nopt/b/file-or-dir/z\n"
    );
    ok(&dir, "copy -q a y.tar --root-becomes usr/share/a");
    let expected = "usr\nusr/share\nusr/share/a\nusr/share/a/both\n";
    assert!(ok(&dir, "ls -R y.tar").0.starts_with(expected));
    ok(&dir, "copy -q a z.tar --root-becomes a --with b");
    assert_eq!(ok(&dir, "ls z.tar").0, "a\nboth\nd\nfile-or-dir\n");
    let (code, _, words) = run_in(dir.path(), ["copy", "a", "w.tar", "--with", "b=../x"]);
    assert_eq!(code, 2);
    assert!(
        words.contains("../x is not a path in the destination"),
        "{words}"
    );
}

#[test]
fn paths_and_exclude_are_paths_of_each_source_wherever_it_goes() {
    let dir = sources();
    ok(&dir, "copy -q a x.tar d --root-becomes opt --exclude d/y");
    assert_eq!(ok(&dir, "ls -R x.tar").0, "opt\nopt/d\nopt/d/x\n");
    let (_, words) = ok(
        &dir,
        "copy a y.tar d both --root-becomes opt/a --with b=opt/b --exclude d/y --exclude opt/a/d",
    );
    let list = "opt\nopt/a\nopt/a/both\nopt/a/d\nopt/a/d/x\n\
                opt/b\nopt/b/both\nopt/b/d\nopt/b/d/y2\n";
    assert_eq!(ok(&dir, "ls -R y.tar").0, list);
    assert!(
        words.contains("nothing matches --exclude opt/a/d\n"),
        "{words}"
    );
    assert!(!words.contains("--exclude d/y"), "{words}");
    // One source is enough; a path in none is an error, and nothing is written.
    ok(&dir, "copy -q a z.tar only-a --with b=b");
    assert_eq!(ok(&dir, "ls -R z.tar").0, "b\nonly-a\n");
    let args = ["copy", "a", "w.tar", "b/both", "--with", "b=b"];
    let (code, _, words) = run_in(dir.path(), args);
    assert_eq!(code, 2);
    assert!(
        words.contains("b/both in a with b does not exist"),
        "{words}"
    );
    assert!(!names(dir.path()).contains(&"w.tar".to_owned()));
}

/// The judge is the shell of the patterns' own words: `find`, which matches whole paths.
#[test]
fn patterns_select_the_files_that_find_selects() {
    let dir = TempDir::new();
    for path in [
        "x.o",
        "y.c",
        "a/b/z.o",
        "a/b/z.c",
        "a/x.o",
        "none/y.c",
        "usr/README",
        "usr/local/bin/tool",
        "usr/local/lib/l.o",
        "usr/bin",
        "etc/fstab",
    ] {
        fs::create_dir_all(dir.join("s").join(path).parent().unwrap()).unwrap();
        fs::write(dir.join("s").join(path), path).unwrap();
    }
    let source = dir.join("s");
    for (number, (pattern, regex)) in [
        ("*.o", "[^/]*\\.o"),
        ("**/*.o", ".*\\.o"),
        ("... *.o", ".*\\.o"),
        ("usr/*/bin", "usr/[^/]*/bin(/.*)?"),
        ("{etc,usr/local/lib}/*", "(etc|usr/local/lib)/[^/]*"),
        ("**/{bin,x.o}", "(.*/)?(bin|x\\.o)(/.*)?"),
    ]
    .into_iter()
    .enumerate()
    {
        let dst = dir.join(format!("d{number}"));
        let found = |dir: &std::path::Path, regex: &str| {
            let mut find = std::process::Command::new("find");
            find.current_dir(dir)
                .args([".", "-regextype", "posix-extended", "-type", "f"]);
            let out = find
                .args(["-regex", &format!("\\./({regex})")])
                .output()
                .unwrap();
            let words = String::from_utf8(out.stdout).unwrap();
            let mut lines: Vec<String> = words.lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        let args = ["copy", "-q", "s", dst.to_str().unwrap(), pattern];
        assert_eq!(run_in(dir.path(), args).0, 0, "{pattern}");
        let expected = found(&source, regex);
        assert!(!expected.is_empty());
        assert_eq!(found(&dst, ".*"), expected, "{pattern}");
        assert!(!dst.join("none").exists(), "{pattern}");
    }
}

/// Kept blocks stay kept, although they come from two images.
#[test]
fn encoded_data_passes_through_a_joined_tree() {
    let dir = sources();
    for name in ["a", "b"] {
        let text = format!("{name} to be, or not to be\n").repeat(50_000);
        fs::write(dir.join(name).join(format!("large-{name}")), text).unwrap();
        ok(
            &dir,
            &format!("copy -q {name} {name}.squashfs --compress gzip"),
        );
    }
    let (_, words) = ok(
        &dir,
        "copy a.squashfs x.squashfs --with b.squashfs --compress gzip",
    );
    assert!(words.contains(" kept compressed ("), "{words}");
    ok(&dir, "copy -q a y --with b");
    ok(&dir, "diff x.squashfs y --ignore mtime");
}

#[test]
fn a_single_file_keeps_mode_and_times() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    let file = dir.join("src/notes.txt");
    fs::write(&file, "notes").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4710)).unwrap();
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_600_000_000, 123_456_789);
    fs::File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_modified(then)
        .unwrap();
    ok(&dir, "copy -q src src.tar");
    ok(&dir, "copy -q src src.btrfs");
    for line in [
        "copy --to file src/notes.txt copy.txt",
        "copy --to file src copy.txt notes.txt",
        "copy --to file src.tar copy.txt notes.txt",
        "copy --to file src.btrfs ./copy.txt /notes.txt",
    ] {
        let (_, words) = ok(&dir, line);
        assert!(words.starts_with("restow: 1 file, 5 B read, "), "{words}");
        let copy = fs::metadata(dir.join("copy.txt")).unwrap();
        assert_eq!(
            (copy.mode() & 0o7777, copy.modified().unwrap()),
            (0o4710, then),
            "{line}"
        );
        assert_eq!(fs::read(dir.join("copy.txt")).unwrap(), b"notes");
        let (code, _, words) = run_in(dir.path(), line.split_whitespace());
        assert_eq!(code, 2);
        assert!(
            words.ends_with("already exists; --overwrite replaces it\n"),
            "{words}"
        );
        ok(&dir, &format!("{line} --overwrite"));
        fs::remove_file(dir.join("copy.txt")).unwrap();
    }
    assert_eq!(names(dir.path()), ["src", "src.btrfs", "src.tar"]);
    for (line, why) in [
        (
            "copy --to file src copy.txt",
            "is a directory; --to file copies a regular file",
        ),
        (
            "copy --to file src copy.txt none",
            "no such file or directory",
        ),
        (
            "copy --to file src copy.txt a b",
            "--to file copies one file",
        ),
        ("copy --to file src.tar -", "`restow cat` prints a file"),
        (
            "copy --to file --merge src.tar x notes.txt",
            "--merge does not apply to a file",
        ),
    ] {
        let (code, _, words) = run_in(dir.path(), line.split_whitespace());
        assert_eq!(code, 2, "{line}");
        assert!(words.contains(why), "{line}: {words}");
    }
}
