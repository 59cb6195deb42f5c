use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use testkit::{TempDir, nasty_tree, tool};

use super::{names, restow, run_in, shown};

const MANY_FILES: usize = 10_000;

/// Larger files would add time to the test and nothing that smaller ones do not show.
const MANY_FILES_BYTES_MAX: u64 = 256 << 10;

/// Copies the first 10,000 files of /usr, which others may change meanwhile, into `to`; what /usr
/// has too few of is made up.
#[expect(clippy::print_stdout, reason = "a test says what it was made of")]
fn many_files(to: &Path) {
    fs::create_dir(to).unwrap();
    let mut left = MANY_FILES;
    copy_files(Path::new("/usr"), to, &mut left);
    println!("{} of {MANY_FILES} files are from /usr", MANY_FILES - left);
    fs::create_dir(to.join("made up")).unwrap();
    for number in 0..left {
        let text = format!("{number}\n").repeat(number % 1000);
        fs::write(to.join(format!("made up/{number}")), text).unwrap();
    }
}

/// Copies up to `left` files from what is in one directory into another. What cannot be read is
/// left out.
fn copy_files(from: &Path, to: &Path, left: &mut usize) {
    let mut entries: Vec<_> = fs::read_dir(from).into_iter().flatten().flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        if *left == 0 {
            return;
        } else if metadata.is_dir() {
            fs::create_dir(&to).unwrap();
            copy_files(&from, &to, left);
        } else if metadata.is_symlink() {
            let Ok(target) = fs::read_link(&from) else {
                continue;
            };
            std::os::unix::fs::symlink(target, &to).unwrap();
            *left -= 1;
        } else if metadata.is_file() && metadata.len() <= MANY_FILES_BYTES_MAX {
            let Ok(content) = fs::read(&from) else {
                continue;
            };
            fs::write(&to, content).unwrap();
            let copy = File::options().write(true).open(&to).unwrap();
            copy.set_modified(metadata.modified().unwrap()).unwrap();
            // Readable to all who run this, and no set-id programs in a place where nobody looks
            // for them.
            let mode = metadata.permissions().mode() & 0o777 | 0o400;
            copy.set_permissions(fs::Permissions::from_mode(mode))
                .unwrap();
            *left -= 1;
        }
    }
}

#[test]
fn ten_thousand_files_there_and_back() {
    let (Some(find), Some(getfattr)) = (tool("find"), tool("getfattr")) else {
        return;
    };
    let dir = TempDir::new();
    let source = dir.join("source");
    many_files(&source);
    let (code, _, words) = run_in(dir.path(), ["copy", "source", "x.tar"]);
    assert_eq!(code, 0, "{words}");
    assert!(
        words.starts_with("restow: ") && words.contains(" files, "),
        "{words}"
    );
    let (code, _, words) = run_in(
        dir.path(),
        ["copy", "x.tar", "back", "--quiet", "--no-sync"],
    );
    assert_eq!((code, &*words), (0, ""));
    for other in ["x.tar", "back"] {
        let (code, found, words) = run_in(dir.path(), ["diff", "--holes", other, "source"]);
        assert_eq!((code, &*found, &*words), (0, "", ""));
    }
    // What programs say that know nothing of us.
    let view = |at: &Path| {
        let format = "%P|%y|%m|%U|%G|%T@|%n|%l|%s\\0";
        // The size of a directory is the file system's business.
        let dirs = [
            "-type",
            "d",
            "-printf",
            "%P|%m|%U|%G|%T@\\0",
            "-o",
            "-printf",
            format,
        ];
        let found = find
            .command()
            .current_dir(at)
            .arg(".")
            .args(dirs)
            .output()
            .unwrap();
        let mut lines: Vec<_> = found
            .stdout
            .split(|&b| b == 0)
            .map(<[u8]>::to_vec)
            .collect();
        lines.sort();
        let options = ["-R", "-h", "-d", "-m", "-", "-e", "hex", "."];
        let attributes = getfattr
            .command()
            .current_dir(at)
            .args(options)
            .output()
            .unwrap();
        (lines, attributes.stdout)
    };
    let back = dir.join("back");
    let (ours, theirs) = (view(&back), view(&source));
    assert!(ours.0.len() > MANY_FILES);
    let differs = ours.0.iter().zip(&theirs.0).find(|(a, b)| a != b);
    let differs =
        differs.map(|(a, b)| (a.escape_ascii().to_string(), b.escape_ascii().to_string()));
    assert_eq!(differs, None);
    assert!(ours == theirs);
    let diff = std::process::Command::new("diff")
        .args(["-r", "--no-dereference"])
        .args([&source, &back])
        .output()
        .unwrap();
    assert_eq!(shown(&diff), (0, String::new(), String::new()));
}

#[test]
fn all_that_linux_has_there_and_back() {
    let Some(find) = tool("find") else { return };
    let dir = TempDir::new();
    fs::create_dir(dir.join("nasty")).unwrap();
    nasty_tree(&dir.join("nasty"));
    // A file system has no holes as small as this, and extraction does not look for them.
    fs::remove_file(dir.join("nasty/holes/small")).unwrap();
    let (code, _, words) = run_in(dir.path(), ["copy", "nasty", "x.tar", "-q"]);
    assert_eq!(code, 1, "{words}");
    assert_eq!(
        words,
        "restow: nasty/socket: not copied: tar archives cannot hold sockets\n"
    );
    let (code, _, words) = run_in(dir.path(), ["copy", "x.tar", "back", "-q", "--no-sync"]);
    assert_eq!((code, &*words), (0, ""));
    let (code, found, words) = run_in(dir.path(), ["diff", "--holes", "nasty", "back"]);
    assert_eq!((code, &*words), (1, ""));
    assert_eq!(found, "only in nasty: socket (socket)\n");
    // A directory is copied with its sockets.
    let (code, _, words) = run_in(dir.path(), ["copy", "nasty", "copy", "-q", "--no-sync"]);
    assert_eq!((code, &*words), (0, ""));
    let (code, found, words) = run_in(dir.path(), ["diff", "--holes", "nasty", "copy"]);
    assert_eq!((code, &*found, &*words), (0, "", ""));
    // Five gigabytes of zeros take long to hash.
    for of in ["nasty", "copy"] {
        let holes = dir.join(of).join("holes");
        fs::remove_file(holes.join("huge")).unwrap();
        // The removal is a change of the directory, at a time of its own.
        let holes = File::open(holes).unwrap();
        holes
            .set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
    }
    let manifest = |of: &str| {
        let (code, text, words) = run_in(dir.path(), ["manifest", "--holes", of]);
        assert_eq!((code, &*words), (0, ""));
        text
    };
    let (nasty, copy) = (manifest("nasty"), manifest("copy"));
    assert!(nasty == copy);
    // As many lines as there are files, whatever their names are.
    let count = find.run([
        dir.join("nasty").as_os_str(),
        "-printf".as_ref(),
        "x".as_ref(),
    ]);
    assert_eq!(nasty.lines().count(), count.stdout.len() + 1);
    let same = run_in(
        dir.path(),
        ["manifest", "--ignore", "content", "-j1", "x.tar"],
    );
    assert_eq!(same.0, 0);
    assert!(!same.1.contains("sha256digest"));
}

#[test]
fn through_pipes() {
    let Some(tar) = tool("tar") else { return };
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    fs::write(dir.join("src/file"), "content").unwrap();
    let mut ours = restow(["copy", "src", "-", "-q"])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let list = tar
        .command()
        .arg("t")
        .stdin(ours.stdout.take().unwrap())
        .output()
        .unwrap();
    assert_eq!(shown(&list), (0, "./\nfile\n".into(), String::new()));
    assert!(ours.wait().unwrap().success());

    let mut theirs = tar
        .command()
        .args(["c", "src"])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let copied = restow(["copy", "-", "dst", "-q"])
        .current_dir(dir.path())
        .stdin(theirs.stdout.take().unwrap())
        .output()
        .unwrap();
    assert_eq!(shown(&copied), (0, String::new(), String::new()));
    assert!(theirs.wait().unwrap().success());
    assert_eq!(fs::read(dir.join("dst/src/file")).unwrap(), b"content");

    // A file as standard input is read where it is.
    assert_eq!(run_in(dir.path(), ["copy", "src", "src.tar", "-q"]).0, 0);
    let file = File::open(dir.join("src.tar")).unwrap();
    let shows = restow(["cat", "-", "file"]).stdin(file).output().unwrap();
    assert_eq!(shown(&shows), (0, "content".into(), String::new()));
}

/// Archives that the usual programs compressed, as files and from pipes, whole, in several streams,
/// and damaged.
#[test]
fn compressed_archives() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    let lines: String = (0..50_000).map(|number| format!("{number}\n")).collect();
    fs::write(dir.join("src/file"), lines).unwrap();
    assert_eq!(run_in(dir.path(), ["copy", "-q", "src", "x.tar"]).0, 0);
    let plain = fs::read(dir.join("x.tar")).unwrap();
    for (program, extension) in [("gzip", "gz"), ("xz", "xz"), ("zstd", "zst")] {
        let Some(program) = tool(program) else {
            continue;
        };
        let packed = |bytes: &[u8]| {
            fs::write(dir.join("part"), bytes).unwrap();
            program
                .run(["-c".as_ref(), dir.join("part").as_os_str()])
                .stdout
        };
        let whole = packed(&plain);
        let (first, second) = plain.split_at(100_000);
        let parts = [packed(first), packed(second)].concat();
        let name = format!("x.tar.{extension}");
        for bytes in [&whole, &parts] {
            fs::write(dir.join(&name), bytes).unwrap();
            let (code, found, words) = run_in(dir.path(), ["diff", "src", &name]);
            assert_eq!((code, &*found, &*words), (0, "", ""), "{name}");
            let mut pipe = std::process::Command::new("cat")
                .arg(dir.join(&name))
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut command = restow(["diff", "src", "-"]);
            let output = command
                .current_dir(dir.path())
                .stdin(pipe.stdout.take().unwrap());
            let shown = shown(&output.output().unwrap());
            assert_eq!(shown, (0, String::new(), String::new()), "{name}");
            assert!(pipe.wait().unwrap().success());
        }
        let mut damaged = whole.clone();
        damaged[whole.len() / 2] ^= 0x10;
        for bytes in [&whole[..whole.len() - 1], &whole[..100], &damaged] {
            fs::write(dir.join(&name), bytes).unwrap();
            let (code, _, words) = run_in(dir.path(), ["copy", &name, "dst"]);
            assert_eq!(code, 2, "{words}");
            assert!(
                words.contains(&format!("open {name}: decompress it with ")),
                "{words}"
            );
            assert!(!dir.join("dst").exists());
        }
    }
}

#[test]
fn a_destination_that_is_there_is_refused_unless_it_shall_be_replaced() {
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("src/sub")).unwrap();
    fs::write(dir.join("there.tar"), "precious").unwrap();
    fs::create_dir(dir.join("there")).unwrap();
    fs::write(dir.join("there/file"), "precious").unwrap();
    let held = "there holds 1 entry; --merge puts the tree into it, --replace deletes its contents";
    for (args, reason) in [
        (
            &["src", "there.tar"][..],
            "there.tar already exists; --overwrite replaces it",
        ),
        (&["src", "there"], held),
        (&["--overwrite", "src", "there"], held),
    ] {
        let to = args[args.len() - 1];
        let (code, _, words) = run_in(dir.path(), [&["copy"], args].concat());
        let expected = format!("restow: copy src to {to}: {reason}\n");
        assert_eq!((code, words), (2, expected));
    }
    assert_eq!(fs::read(dir.join("there.tar")).unwrap(), b"precious");
    assert_eq!(names(&dir.join("there")), ["file"]);
    for (option, there) in [("--overwrite", "there.tar"), ("--replace", "there")] {
        let (code, _, words) = run_in(dir.path(), ["copy", "-q", option, "src", there]);
        assert_eq!((code, &*words), (0, ""));
        assert_eq!(run_in(dir.path(), ["diff", "src", there]).0, 0);
    }
    assert_eq!(names(dir.path()), ["src", "there", "there.tar"]);
    // Nothing is replaced that is needed for it.
    fs::write(dir.join("src/file"), "precious").unwrap();
    assert_eq!(run_in(dir.path(), ["copy", "-q", "src", "src/in.tar"]).0, 0);
    for source in ["src", "src/sub", "src/in.tar"] {
        let (code, _, words) = run_in(dir.path(), ["copy", "--replace", source, "src"]);
        let reason = format!("source {source} is inside src, which would be replaced");
        let expected = format!("restow: copy {source} to src: {reason}\n");
        assert_eq!((code, words), (2, expected));
    }
    assert_eq!(names(&dir.join("src")), ["file", "in.tar", "sub"]);
    // A copy into its own source does not have itself in it.
    assert_eq!(run_in(dir.path(), ["copy", "-q", "src", "src/in"]).0, 0);
    assert_eq!(names(&dir.join("src/in")), ["file", "in.tar", "sub"]);
    for name in ["in.tar", "file"] {
        fs::remove_file(dir.join("src").join(name)).unwrap();
    }
    fs::remove_dir_all(dir.join("src/in")).unwrap();
    // An empty directory is as good as none.
    fs::create_dir(dir.join("empty")).unwrap();
    assert_eq!(run_in(dir.path(), ["copy", "-q", "src", "empty"]).0, 0);
    assert_eq!(names(&dir.join("empty")), ["sub"]);
}

#[test]
fn a_source_that_is_bad_leaves_nothing() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    fs::write(dir.join("src/file"), vec![b'x'; 100_000]).unwrap();
    assert_eq!(run_in(dir.path(), ["copy", "src", "good.tar", "-q"]).0, 0);
    let good = fs::read(dir.join("good.tar")).unwrap();
    fs::write(dir.join("cut.tar"), &good[..50_000]).unwrap();
    let before = names(dir.path());
    for dst in ["dst", "dst.tar"] {
        let (code, _, words) = run_in(dir.path(), ["copy", "cut.tar", dst]);
        let reason = "tar entry runs past the end of the archive (found 0x186a0 at byte 0xa00); \
                      --skip-unreadable leaves it out";
        let expected =
            format!("restow: copy cut.tar to {dst}: open cut.tar: read its members: {reason}\n");
        assert_eq!((code, words), (2, expected));
        assert_eq!(names(dir.path()), before);
    }
}

/// A file that may not be read is named, and nothing is left.
#[test]
fn a_file_that_cannot_be_read_is_named() {
    let Some(setpriv) = tool("setpriv") else {
        return;
    };
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("src/sub")).unwrap();
    fs::write(dir.join("src/sub/secret"), "x").unwrap();
    fs::set_permissions(
        dir.join("src/sub/secret"),
        fs::Permissions::from_mode(0o000),
    )
    .unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // Where an ordinary user can reach it. Another process makes the copy: a file that is open for
    // writing in this one may be so in a child that another test starts just then, and cannot be
    // run.
    let copy = [Path::new(env!("CARGO_BIN_EXE_restow")), &dir.join("restow")];
    testkit::run(std::process::Command::new("cp").args(copy));
    let is_root = fs::metadata("/proc/self").unwrap().permissions().mode() != 0
        && std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap()) == 0;
    for dst in ["dst", "dst.tar"] {
        let mut command = if is_root {
            let mut command = setpriv.command();
            command.args(["--reuid", "65534", "--clear-groups", "./restow"]);
            command
        } else {
            std::process::Command::new("./restow")
        };
        let output = command
            .args(["copy", "src", dst])
            .current_dir(dir.path())
            .output()
            .unwrap();
        let reason = "read src/sub/secret: permission denied; --skip-unreadable leaves it out";
        let expected = format!("restow: copy src to {dst}: {reason}\n");
        assert_eq!(shown(&output), (2, String::new(), expected));
        assert_eq!(names(dir.path()), ["restow", "src"]);
    }
}
