//! Every command in README.md, in the guides and in the help texts does what it says: each is run
//! by a shell, in a directory of its own that holds the files that examples speak of.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use testkit::{TempDir, tool};

use super::{restow, run_in};

/// The commands that have a help text; the first is the program itself.
const COMMANDS: [&str; 23] = [
    "",
    "copy",
    "index",
    "ls",
    "cat",
    "diff",
    "manifest",
    "info",
    "usage",
    "check",
    "plan",
    "send",
    "stream",
    "stream verify",
    "stream info",
    "stream dump",
    "stream undump",
    "stream convert",
    "receive",
    "mount",
    "unmount",
    "delta",
    "patch",
];

/// Stand-ins for what examples call besides restow: name and script.
const PROGRAMS: [(&str, &str); 9] = [
    // Runs what it would run on the host, here.
    ("ssh", "#!/bin/sh\nmkdir -p dst && exec sh -c \"$2\"\n"),
    ("curl", "#!/bin/sh\nexec cat \"$FIXTURE/src.tar\"\n"),
    ("ncdu", "#!/bin/sh\nexec cat > /dev/null\n"),
    // It gives back what it could have stored.
    (
        "restic",
        "#!/bin/sh\n\
         case \"$1\" in\n\
         backup) exec restow stream verify -q - ;;\n\
         dump) exec cat \"$FIXTURE/monday.stream\" ;;\n\
         esac\n\
         exit 1\n",
    ),
    ("borg", "#!/bin/sh\nexec restow stream verify -q -\n"),
    // The images that it would fetch exist, and those that it would send must.
    (
        "skopeo",
        "#!/bin/sh\nfor place in \"$2\" \"$3\"; do\n\
         case $place in oci:*) restow check -q \"$place\" || exit 1 ;; esac\ndone\n",
    ),
    ("syft", "#!/bin/sh\nexec tar -tf \"${2#file:}\"\n"),
    ("btrfs", "#!/bin/sh\nexec cat \"$FIXTURE/monday.stream\"\n"),
    (
        "cargo",
        "#!/bin/sh\n\
         case \"$1\" in\n\
         run) while [ \"$1\" != -- ]; do shift; done; shift; exec restow \"$@\" ;;\n\
         install) exec test -f \"$ROOT/$3/Cargo.toml\" ;;\n\
         xtask) exec grep -q \"\\\"$2\\\",\" \"$ROOT/xtask/src/main.rs\" ;;\n\
         esac\n\
         exit 1\n",
    ),
];

/// The root of the repository.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn help(command: &str) -> String {
    let args = command.split(' ').chain(["--help"]);
    let args = args.filter(|word| !word.is_empty());
    let (code, help, words) = run_in(Path::new("/"), args);
    assert_eq!((code, &*words), (0, ""));
    help
}

/// The commands below "Examples:". Two spaces end a command; an explanation may follow.
fn examples_of_help(help: &str) -> Vec<String> {
    let (_, examples) = help.split_once("\nExamples:\n").expect("it has examples");
    let lines = examples.lines().take_while(|line| !line.is_empty());
    // A line with more room before it goes on with an explanation.
    let lines = lines.filter_map(|line| {
        line.strip_prefix("  ")
            .filter(|rest| !rest.starts_with(' '))
    });
    let command = |line: &str| line.split("  ").next().unwrap_or(line).to_owned();
    lines.map(command).collect()
}

/// The lines of the blocks of shell commands in a page, without comments.
fn examples_of_page(page: &str) -> Vec<String> {
    let blocks = page.split("```sh\n").skip(1);
    let lines = blocks.flat_map(|rest| rest.split("```").next().unwrap_or_default().lines());
    let command = |line: &str| line.split("  #").next().unwrap_or(line).trim().to_owned();
    lines
        .map(command)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

/// The options that take a value, as the help texts name them.
fn options_with_values(helps: &[String]) -> BTreeSet<String> {
    let lines = helps.iter().flat_map(|help| help.lines());
    let lines = lines.filter(|line| line.trim_start().starts_with('-') && line.contains(" <"));
    let names = lines.flat_map(|line| line.split(" <").next().unwrap_or_default().split(','));
    names.map(|name| name.trim().to_owned()).collect()
}

/// What a copy in the command would make, which may not be there before.
fn destination<'a>(command: &'a str, with_values: &BTreeSet<String>) -> Option<&'a str> {
    let (_, rest) = command.split_once(" copy ")?;
    let rest = rest.split(['|', '&', ';']).next()?;
    let mut words = words(rest).into_iter();
    let mut trees = Vec::new();
    while let Some(word) = words.next() {
        if with_values.contains(word) {
            words.next();
        } else if word == "-" || !word.starts_with('-') {
            trees.push(word);
        }
    }
    let overwrites = rest.contains("--overwrite");
    trees
        .get(1)
        .copied()
        .filter(|path| *path != "-" && !overwrites)
}

/// The words of a command, those in single quotes whole.
fn words(command: &str) -> Vec<&str> {
    let mut is_quoted = false;
    let words = command.split(|c: char| {
        is_quoted ^= c == '\'';
        c.is_whitespace() && !is_quoted
    });
    words.filter(|word| !word.is_empty()).collect()
}

/// Makes what the examples read. Trees are equal, so that comparing any two finds nothing.
fn make_fixture(dir: &Path) -> Option<()> {
    let mkfs = tool("mkfs.btrfs")?;
    for tree in [
        "src",
        "photos",
        "old",
        "new",
        "a",
        "b",
        "rootfs",
        "restored",
        "some/directory",
    ] {
        for folder in ["etc", "usr/bin", "usr/lib/bin"] {
            fs::create_dir_all(dir.join(tree).join(folder)).unwrap();
        }
        for file in ["etc/os-release", "usr/bin/sh", "usr/lib/bin/x.o", "a", "b"] {
            fs::write(dir.join(tree).join(file), file.repeat(1000)).unwrap();
        }
    }
    // What examples call subvolumes is a directory in every other container.
    const SUBVOLUMES: [&str; 4] = ["home", "monday:ro", "snapshot:ro", "tuesday:ro"];
    for folder in ["home/user", "monday", "snapshot/etc"] {
        fs::create_dir_all(dir.join("src").join(folder)).unwrap();
    }
    for file in ["monday/notes", "snapshot/etc/fstab"] {
        fs::write(dir.join("src").join(file), file).unwrap();
    }
    // With all times, so that both days are the same.
    let days = [dir.join("src/monday"), dir.join("src/tuesday")];
    testkit::run(Command::new("cp").arg("-a").args(days));
    let as_subvolumes: Vec<&str> = SUBVOLUMES
        .iter()
        .flat_map(|path| ["--as-subvolume", path])
        .collect();
    let copy = |source: &str, target: &str, options: &[&str]| {
        let args = [&["copy", "-q", source, target], options].concat();
        let (code, _, words) = run_in(dir, args);
        assert_eq!((code, &*words), (0, ""), "{target}");
    };
    for target in [
        "src.tar",
        "photos.tar",
        "old.tar",
        "new.tar",
        "backup.tar",
        "src.squashfs",
        "image.squashfs",
        "live.squashfs",
        "v1.squashfs",
        "v2.squashfs",
        "src.erofs",
        "src.btrfs",
        "image.btrfs",
        "disk.btrfs",
        "photos.btrfs",
    ] {
        if target.ends_with(".btrfs") {
            copy("src", target, &as_subvolumes);
        } else {
            copy("src", target, &[]);
        }
    }
    copy("src", "oci:images:base", &[]);
    let delta = ["delta", "-q", "v1.squashfs", "v2.squashfs", "v1-v2.patch"];
    let (code, _, words) = run_in(dir, delta);
    assert_eq!((code, &*words), (0, ""));
    fs::write(dir.join("config.json"), "{}").unwrap();
    fs::write(dir.join("file_contexts"), "/.* u:r:file:s0\n").unwrap();
    // Whatever was compared with the tree that it was made of.
    for tree in ["photos", "restored", "rootfs", "old", "new", "a", "b"] {
        fs::remove_dir_all(dir.join(tree)).unwrap();
        copy("src", tree, &[]);
    }
    let packed = root().join("crates/sendstream/testdata/zstd.full.v2c.zst");
    let mut stream = vec![0; 1 << 20];
    let packed = fs::read(packed).unwrap();
    let decoded = codec::Decoder::new().decompress(codec::Algorithm::Zstd, &mut stream, &packed);
    stream.truncate(decoded.unwrap());
    fs::write(dir.join("home.stream"), stream).unwrap();
    // A transfer that was cut before its first byte.
    fs::write(dir.join("part.stream"), "").unwrap();
    fs::write(dir.join("monday.stream"), monday(dir)).unwrap();
    fs::create_dir(dir.join("backup")).unwrap();
    for image in ["a.img", "b.img"] {
        let file = fs::File::create(dir.join(image)).unwrap();
        file.set_len(256 << 20).unwrap();
    }
    mkfs.run([Path::new("-q"), &dir.join("a.img"), &dir.join("b.img")]);
    fs::create_dir(dir.join("bin")).unwrap();
    for (name, script) in PROGRAMS {
        let path = dir.join("bin").join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    symlink(env!("CARGO_BIN_EXE_restow"), dir.join("bin/restow")).unwrap();
    Some(())
}

/// A send stream whose files belong to the user who runs the tests, so that they can be restored
/// without root.
fn monday(dir: &Path) -> Vec<u8> {
    use sendstream::Command as Step;
    let owner = fs::metadata(dir).unwrap();
    let (uid, gid) = (owner.uid().into(), owner.gid().into());
    let (path, name) = (&b"notes"[..], &b"@monday"[..]);
    let mut writer = sendstream::StreamWriter::new(Vec::new(), sendstream::Version::V1);
    writer.header().unwrap();
    for step in [
        Step::Subvol {
            path: name,
            uuid: [1; 16],
            ctransid: 9,
        },
        Step::Chown {
            path: b"",
            uid,
            gid,
        },
        Step::Mkfile { path, ino: 257 },
        Step::Write {
            path,
            file_offset: 0,
            data: b"buy milk",
        },
        Step::Chown { path, uid, gid },
        Step::End,
    ] {
        writer.command(&step).unwrap();
    }
    writer.into_inner()
}

/// Runs a command in a directory where only what it makes is missing.
fn run(command: &str, fixture: &Path, with_values: &BTreeSet<String>) -> Output {
    let dir = TempDir::new();
    testkit::run(
        Command::new("cp")
            .arg("-a")
            .arg(fixture.join("."))
            .arg(dir.path()),
    );
    if let Some(destination) = destination(command, with_values) {
        let path = dir.join(destination);
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let mut bash = Command::new("bash");
    bash.args(["-o", "pipefail", "-c", command])
        .current_dir(dir.path());
    bash.env("PATH", format!("{}:{path}", fixture.join("bin").display()));
    bash.env("FIXTURE", fixture).env("ROOT", root());
    bash.output().unwrap()
}

/// Runs commands; each must succeed.
fn run_all(commands: impl FnOnce(&[String]) -> Vec<String>) {
    let fixture = TempDir::new();
    let Some(()) = make_fixture(fixture.path()) else {
        return;
    };
    let helps = COMMANDS.map(help);
    let with_values = options_with_values(&helps);
    let mut commands = commands(&helps);
    assert!(commands.len() > 25, "{commands:#?}");
    // What they mount has tests of its own, in namespaces of their own; here, it must be something
    // that can be listed.
    let is_mount = |command: &String| command.contains("restow mount ");
    for command in &mut commands {
        if is_mount(command) {
            let words: Vec<&str> = words(command);
            let source = words[2..].iter().find(|word| !word.starts_with('-'));
            *command = format!("restow ls {}", source.unwrap());
        }
    }
    commands.retain(|command| !command.contains("restow unmount "));
    for command in commands {
        let output = run(&command, fixture.path(), &with_values);
        let (code, _, words) = super::shown(&output);
        assert_eq!(code, 0, "{command}\n{words}");
    }
}

#[test]
fn every_command_in_the_help_texts_and_the_readme_works() {
    run_all(|helps| {
        let mut commands: Vec<String> = helps
            .iter()
            .flat_map(|help| examples_of_help(help))
            .collect();
        let readme = fs::read_to_string(root().join("README.md")).unwrap();
        commands.extend(examples_of_page(&readme));
        commands
    });
}

#[test]
fn every_command_in_the_guides_works() {
    run_all(|_| {
        let mut commands = Vec::new();
        for guide in fs::read_dir(root().join("docs/guides")).unwrap() {
            let page = fs::read_to_string(guide.unwrap().path()).unwrap();
            commands.extend(examples_of_page(&page));
        }
        commands
    });
}

#[test]
fn examples_are_found() {
    let help = "Usage\n\nExamples:\n  restow copy a b   some words\n  restow x\n            more\n\nExit\n";
    assert_eq!(examples_of_help(help), ["restow copy a b", "restow x"]);
    let page = "x\n```sh\nrestow a  # why\n# only words\nrestow b | c\n```\n```text\nno\n```\n";
    assert_eq!(examples_of_page(page), ["restow a", "restow b | c"]);
    let helps = ["  -j, --threads <N>\n      --compress <CODEC>\n      --quiet\n".to_owned()];
    let values = options_with_values(&helps);
    assert_eq!(
        values,
        ["--compress", "--threads", "-j"].map(str::to_owned).into()
    );
    let of = |command| destination(command, &values);
    assert_eq!(of("restow copy --compress x -j 2 a b c"), Some("b"));
    assert_eq!(of("restow copy --compress '... *.o' a b"), Some("b"));
    assert_eq!(of("restow copy a - | restow copy - d"), None);
    assert_eq!(of("curl | restow copy - d"), Some("d"));
    assert_eq!(of("restow copy --overwrite a b"), None);
    assert_eq!(of("restow ls a"), None);
}

/// A word of a help text that no command stands behind would be an example that nobody can run.
#[test]
fn every_command_of_the_program_has_examples() {
    let help = help("");
    let (_, list) = help.split_once("\nCommands:\n").unwrap();
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.split_whitespace().next());
    let names: BTreeSet<&str> = names.filter(|name| *name != "help").collect();
    let commands = COMMANDS[1..].iter().copied();
    assert_eq!(names, commands.filter(|name| !name.contains(' ')).collect());
    assert!(restow(["help", "copy"]).output().unwrap().status.success());
}
