//! How sources are named: `FILE`, `IMAGE:PATH` and `IMAGE:ID`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;

use testkit::{Rng, TempDir};

use super::btrfs_source::small;
use super::{names, restow, run_in, shown};

/// Runs what must succeed without a message; gives what it prints.
fn done<A: AsRef<OsStr> + std::fmt::Debug>(dir: &Path, args: &[A]) -> String {
    let (code, out, words) = run_in(dir, args);
    assert_eq!((code, &*words), (0, ""), "{args:?}: {out}");
    out
}

/// Runs what must fail; gives its message.
fn refused<A: AsRef<OsStr> + std::fmt::Debug>(dir: &Path, args: &[A]) -> String {
    let (code, out, words) = run_in(dir, args);
    assert_eq!((code, &*out), (2, ""), "{args:?}: {words}");
    words
}

/// Makes a directory `src` with a file in each of some directories, and an image `i` in which these
/// are subvolumes.
fn image_of(dir: &Path, subvolumes: &[&[u8]]) {
    let mut copy = restow(["copy", "-q", "src", "i", "--to", "btrfs"]);
    for path in subvolumes {
        let path = OsStr::from_bytes(path);
        fs::create_dir_all(dir.join("src").join(path)).unwrap();
        let text = path.as_bytes().escape_ascii().to_string();
        fs::write(dir.join("src").join(path).join("f"), text).unwrap();
        copy.arg("--as-subvolume").arg(path);
    }
    let output = copy.current_dir(dir).output().unwrap();
    assert_eq!(shown(&output), (0, String::new(), String::new()));
}

#[test]
fn every_command_takes_a_subvolume_by_path_or_number() {
    let dir = TempDir::new();
    let at = dir.path();
    small().write_file(&dir.join("i"));
    for address in ["i:s", "i:/s", "i:s/", "./i:s", "i:256"] {
        assert_eq!(done(at, &["ls", address]), "clone\nnested\n");
        assert_eq!(done(at, &["ls", address, "nested"]), "f\n");
        assert_eq!(done(at, &["cat", address, "nested/f"]).len(), 7);
        assert_eq!(
            done(at, &["manifest", address]),
            done(at, &["manifest", "i", "--subvolume", "s"])
        );
        assert_eq!(
            done(at, &["info", address]),
            done(at, &["info", "i", "--subvolume", "256"])
        );
        done(at, &["info", address, "--path", "clone"]);
        done(at, &["copy", "-q", address, "out.tar"]);
        done(at, &["diff", "out.tar", address]);
        fs::remove_file(dir.join("out.tar")).unwrap();
    }
    assert_eq!(done(at, &["ls", "i:s/nested"]), "f\n");
    assert_eq!(done(at, &["ls", "i:/"]), done(at, &["ls", "i:5"]));
    assert_eq!(
        refused(at, &["check", "i:s"]),
        "restow: check i:s: check verifies whole files: use `restow check i`\n"
    );
}

#[test]
fn two_sides_name_two_subvolumes() {
    let dir = TempDir::new();
    let at = dir.path();
    small().write_file(&dir.join("i"));
    // A snapshot does not have what is nested in its origin.
    let (code, found, words) = run_in(at, ["diff", "--ignore", "mtime", "i:s", "i:snap"]);
    assert_eq!((code, &*words), (1, ""));
    assert!(found.contains("only in i:s: nested/f (file)\n"), "{found}");
    assert!(!found.contains("clone"), "{found}");
    // The option is for the sides that name none.
    let option = [
        "diff",
        "--ignore",
        "mtime",
        "i:s",
        "i",
        "--subvolume",
        "snap",
    ];
    assert_eq!(run_in(at, option).1, found.replace("i:snap", "i"));
    assert_eq!(
        done(at, &["diff", "i", "i:snap", "--subvolume", "snap"]),
        ""
    );
    assert_eq!(
        refused(at, &["diff", "i:s", "i:snap", "--subvolume", "snap"]),
        "restow: --subvolume does not apply: the subvolume is already named\n"
    );
    assert_eq!(
        refused(at, &["ls", "i:s", "--subvolume", "snap"]),
        "restow: open i:s: --subvolume does not apply: the subvolume is already named\n"
    );
}

#[test]
fn a_subvolume_alone_has_empty_directories_for_those_nested_in_it() {
    let dir = TempDir::new();
    let at = dir.path();
    small().write_file(&dir.join("i"));
    assert_eq!(done(at, &["ls", "-R", "i:s"]), "clone\nnested\nnested/f\n");
    assert_eq!(
        done(at, &["ls", "-R", "--no-nested", "i:s"]),
        "clone\nnested\n"
    );
    let of_all = done(at, &["ls", "-R", "i"]);
    assert!(of_all.contains("\ns/nested/f\n"), "{of_all}");
    let alone = done(at, &["ls", "-R", "--no-nested", "i"]);
    assert!(alone.contains("\ns\nsnap\nsparse\n"), "{alone}");
    // The snapshot has one more file. What is nested in its origin is empty in both.
    let args = ["diff", "--no-nested", "--ignore", "mtime", "i:s", "i:snap"];
    let expected = (1, "only in i:snap: file (file)\n".into(), String::new());
    assert_eq!(run_in(at, args), expected);
    // A copy to a btrfs image has directories in their place, too.
    done(at, &["copy", "-q", "i", "all.btrfs"]);
    done(at, &["copy", "-q", "--no-nested", "i", "alone.btrfs"]);
    let subvolumes = |image: &str| {
        let info = done(at, &["info", image]);
        info.lines()
            .filter(|line| line.starts_with("subvolume"))
            .count()
    };
    assert_eq!((subvolumes("all.btrfs"), subvolumes("alone.btrfs")), (4, 1));
    done(at, &["diff", "--no-nested", "i", "alone.btrfs"]);
    fs::create_dir(dir.join("src")).unwrap();
    assert_eq!(
        refused(at, &["ls", "--no-nested", "src"]),
        "restow: open src: not a btrfs image: --no-nested does not apply\n"
    );
}

#[test]
fn files_with_colons_in_their_names_stay_in_reach() {
    let dir = TempDir::new();
    let at = dir.path();
    image_of(at, &[b"home", b"a:b", b"x:y/z"]);
    assert_eq!(done(at, &["cat", "i:home", "f"]), "home");
    assert_eq!(done(at, &["cat", "i:a:b", "f"]), "a:b");
    assert_eq!(done(at, &["cat", "i:x:y/z", "f"]), "x:y/z");
    // A file of that name hides the subvolume, and a slash shows it again.
    fs::create_dir(dir.join("i:home")).unwrap();
    fs::write(dir.join("i:home/f"), "directory").unwrap();
    for address in ["i:home", "./i:home"] {
        assert_eq!(done(at, &["cat", address, "f"]), "directory");
    }
    assert_eq!(done(at, &["cat", "i:/home", "f"]), "home");
    assert_eq!(done(at, &["cat", "i", "--subvolume", "home", "f"]), "home");
    done(at, &["copy", "-q", "i:home", "i:a", "--to", "tar"]);
    assert_eq!(done(at, &["cat", "i:a", "f"]), "directory");
    // The longest name of a file counts, so `i:a` is the archive.
    assert_eq!(
        refused(at, &["ls", "i:a:b"]),
        "restow: open i:a:b: find b: no such file or directory\n"
    );
    assert_eq!(done(at, &["cat", "i:/a:b", "f"]), "a:b");
    // A link to nowhere is there, and nothing else is read for it.
    std::os::unix::fs::symlink("nowhere", dir.join("i:x:y")).unwrap();
    assert_eq!(
        refused(at, &["ls", "i:x:y"]),
        "restow: open i:x:y: no such file or directory\n"
    );
    // A destination is never split.
    done(at, &["copy", "-q", "i:/home", "i:new"]);
    assert_eq!(names(&dir.join("i:new")), ["f"]);
    // An image in a directory with a colon, and one with a colon itself.
    fs::create_dir(dir.join("d:e")).unwrap();
    fs::copy(dir.join("i"), dir.join("d:e/i:2")).unwrap();
    assert_eq!(done(at, &["cat", "d:e/i:2:home", "f"]), "home");
    assert_eq!(done(at, &["cat", "d:e/i:2:x:y/z", "f"]), "x:y/z");
}

#[test]
fn names_of_digits_and_of_any_bytes() {
    let dir = TempDir::new();
    let at = dir.path();
    image_of(at, &[b"300", b"+256", b"\xff\xfe", b"line\nbreak", b" "]);
    assert_eq!(done(at, &["cat", "i:/300", "f"]), "300");
    assert_eq!(
        refused(at, &["cat", "i:300", "f"]),
        "restow: open i:300: no subvolume 300; `restow info i` lists the subvolumes\n"
    );
    assert_eq!(done(at, &["cat", "i:+256", "f"]), "+256");
    assert_eq!(done(at, &["cat", "i:line\nbreak", "f"]), "line\\nbreak");
    assert_eq!(done(at, &["cat", "i: ", "f"]), " ");
    fs::rename(dir.join("i"), dir.join(OsStr::from_bytes(b"\xc0:"))).unwrap();
    let address = OsStr::from_bytes(b"\xc0::\xff\xfe");
    let args = ["cat".as_ref(), address, "f".as_ref()];
    assert_eq!(done(at, &args), "\\xff\\xfe");
    let args = ["ls".as_ref(), OsStr::from_bytes(b"\xc0::\xff")];
    assert_eq!(
        refused(at, &args),
        "restow: open \\xc0::\\xff: no subvolume or directory \\xff; `restow info \\xc0:` lists the subvolumes\n"
    );
}

#[test]
fn what_an_address_does_not_reach_is_said() {
    let dir = TempDir::new();
    let at = dir.path();
    image_of(at, &[b"home"]);
    done(at, &["copy", "-q", "src", "x.tar"]);
    done(at, &["copy", "-q", "src", "x.sqfs"]);
    fs::write(dir.join("-"), "a file").unwrap();
    let neither = "no such file or directory, and no image before a colon in it";
    let subvolumes = "`restow info i` lists the subvolumes";
    let unknown = &format!("no subvolume or directory none; {subvolumes}");
    for (args, words) in [
        (&["ls", "j:home"][..], format!("open j:home: {neither}")),
        (&["ls", ":home"], format!("open :home: {neither}")),
        (&["ls", "--", "-:home"], format!("open -:home: {neither}")),
        (&["ls", "i/:home"], format!("open i/:home: {neither}")),
        (&["ls", "i:none"], format!("open i:none: {unknown}")),
        (
            &["info", "i:none"],
            format!("open i:none: no subvolume none; {subvolumes}"),
        ),
        (
            &["copy", "i:none", "out"],
            format!("copy i:none to out: open i:none: {unknown}"),
        ),
        (
            &["diff", "i:home", "i:none"],
            format!("open i:none: {unknown}"),
        ),
        (
            &["ls", "i:home/f"],
            "open i:home/f: f is a file, not a directory".into(),
        ),
        (
            &["ls", "i:"],
            "open i:: no subvolume after the colon; `i:/` is the top level".into(),
        ),
        (
            &["ls", "src:home"],
            "open src:home: no such file or directory, and src is a directory, which has no subvolumes".into(),
        ),
        (
            &["ls", "x.tar:none"],
            "open x.tar:none: find none: no such file or directory".into(),
        ),
        (
            &["ls", "x.sqfs:home/f"],
            "open x.sqfs:home/f: home/f is a file, not a directory".into(),
        ),
        (
            &["info", "x.sqfs:home"],
            "open x.sqfs:home: a SquashFS image has no subvolumes".into(),
        ),
    ] {
        assert_eq!(refused(at, args), format!("restow: {words}\n"));
    }
    assert!(!dir.join("out").exists());
}

#[test]
fn an_image_is_not_replaced_by_what_is_in_it() {
    let dir = TempDir::new();
    let at = dir.path();
    image_of(at, &[b"home"]);
    fs::create_dir(dir.join("d")).unwrap();
    fs::rename(dir.join("i"), dir.join("d/i")).unwrap();
    assert_eq!(
        refused(at, &["copy", "--replace", "d/i:home", "d"]),
        "restow: copy d/i:home to d: source d/i is inside d, which would be replaced\n"
    );
    assert_eq!(names(&dir.join("d")), ["i"]);
}

#[test]
fn an_image_on_standard_input_is_read_where_it_is() {
    let dir = TempDir::new();
    let at = dir.path();
    image_of(at, &[b"home"]);
    for args in [
        &["ls", "-", "--subvolume", "home"][..],
        &["info", "-"],
        &["check", "-"],
    ] {
        let input = fs::File::open(dir.join("i")).unwrap();
        let output = restow(args).current_dir(at).stdin(input).output().unwrap();
        let (code, out, words) = shown(&output);
        assert_eq!((code, &*words), (0, ""), "{args:?}");
        assert!(!out.is_empty());
    }
    let mut pipe = std::process::Command::new("cat")
        .arg(dir.join("i"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut command = restow(["ls", "-"]);
    let output = command.stdin(pipe.stdout.take().unwrap()).output().unwrap();
    let words = "restow: open standard input: a btrfs image from a pipe; save it to a file first\n";
    assert_eq!(shown(&output), (2, String::new(), words.to_owned()));
    // The command holds the reading end, without which `cat` ends.
    drop(command);
    let _ = pipe.wait();
}

#[test]
fn two_subvolumes_of_one_image_are_compared_without_reading_what_they_share() {
    let dir = TempDir::new();
    let at = dir.path();
    let noise = Rng::new(3).bytes(200_000);
    for subvolume in ["a", "b"] {
        fs::create_dir_all(dir.join("src").join(subvolume)).unwrap();
        fs::write(dir.join("src").join(subvolume).join("noise"), &noise).unwrap();
    }
    let copy = ["copy", "-q", "src", "i.btrfs", "--all-time", "0"];
    let both = ["--as-subvolume", "a", "--as-subvolume", "b"];
    done(at, &[&copy[..], &both].concat());
    // Both show one extent. Damage in it is found by whoever reads it.
    let mut image = fs::read(dir.join("i.btrfs")).unwrap();
    let place = image.windows(64).position(|part| part == &noise[..64]);
    image[place.unwrap()] ^= 1;
    fs::write(dir.join("i.btrfs"), image).unwrap();
    assert!(refused(at, &["cat", "i.btrfs:a", "noise"]).contains("checksum"));
    done(at, &["diff", "i.btrfs:a", "i.btrfs:b"]);
    fs::copy(dir.join("i.btrfs"), dir.join("other.btrfs")).unwrap();
    refused(at, &["diff", "i.btrfs:a", "other.btrfs:b"]);
}

#[test]
fn places_of_other_programs_are_named() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    fs::write(dir.join("list"), "").unwrap();
    let writing = [
        "copy src ADDRESS",
        "stream undump list ADDRESS",
        "receive -f list ADDRESS",
    ];
    let reading = [
        "copy ADDRESS new",
        "stream info ADDRESS",
        "stream convert ADDRESS new",
        "receive -f ADDRESS src",
    ];
    for (address, noun) in [
        ("s3://bucket/root.tar", "an object of S3"),
        ("gs://bucket/root.tar", "an object of Google Cloud Storage"),
        ("az://container/root.tar", "a blob of Azure"),
        ("docker://alpine", "a container image in a registry"),
        ("https://example.org/root.tar", "an address of the web"),
    ] {
        // Objects are read, and those of stores are written, but not received into.
        let reading = reading.iter().filter(|_| address.starts_with("docker"));
        let is_store = ["s3", "gs", "az"].contains(&&address[..2]);
        let is_written = |line: &&&str| is_store && !line.starts_with("receive");
        let writing = writing.iter().filter(|line| !is_written(line));
        for line in writing.chain(reading) {
            let (code, _, told) = run_in(dir.path(), line.replace("ADDRESS", address).split(' '));
            assert_eq!(code, 2, "{line} {address}");
            assert!(told.contains(noun), "{line}: {told}");
        }
    }
    // The name of a file is always meant.
    let (code, _, told) = run_in(dir.path(), ["copy", "-q", "src", "./oci:alpine"]);
    assert_eq!((code, &*told), (0, ""));
    let (code, ..) = run_in(dir.path(), ["ls", "oci:alpine"]);
    assert_eq!(code, 0);
    let (code, _, told) = run_in(dir.path(), ["copy", "-q", "src", "oci:alpine"]);
    assert_eq!((code, &*told), (0, ""));
    assert!(dir.join("alpine/index.json").exists());
}
