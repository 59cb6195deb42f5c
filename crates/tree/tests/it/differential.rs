//! Tar archives exchanged with other programs, and the kernel's view of the result.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::{TempDir, Tool, nasty_tree, tool};
use tree::Aspects;
use tree::diff::{Change, Difference, diff};
use tree::tar::{self, Summary, Tar};
use tree::{FileKind, FileSystem, HostDir, Inventory, Limits, NoProgress, Parallel};

/// The nasty tree without the path that is longer than `PATH_MAX`, which other programs cannot
/// reach, in a directory of its own. In its place is one that is longer than 255 bytes, and an
/// empty directory of 100 bytes.
fn source(dir: &TempDir) -> PathBuf {
    let at = dir.join("source");
    fs::create_dir(&at).unwrap();
    nasty_tree(&at);
    fs::remove_dir_all(at.join("a".repeat(110))).unwrap();
    let long = at.join(["l".repeat(120), "m".repeat(120), "n".repeat(120)].join("/"));
    fs::create_dir_all(&long).unwrap();
    fs::write(long.join("file"), "deep").unwrap();
    fs::hard_link(long.join("file"), at.join("link to the deep file")).unwrap();
    fs::create_dir_all(at.join("d".repeat(99)).join("e".repeat(55))).unwrap();
    at
}

fn write_tar(tree: &dyn FileSystem, threads: usize, to: &Path) -> Summary {
    let inventory = Inventory::of(tree, &Limits::default()).unwrap();
    let mut out = File::create(to).unwrap();
    let parallel = Parallel::new(threads);
    let summary = tar::write(&inventory, false, parallel, &NoProgress, &mut out).unwrap();
    assert_eq!(summary.archive_bytes, fs::metadata(to).unwrap().len());
    summary
}

fn open_tar(path: &Path) -> Tar {
    Tar::open(Box::new(File::open(path).unwrap()), Limits::default()).unwrap()
}

fn differences(a: &dyn FileSystem, b: &dyn FileSystem, options: &Aspects) -> Vec<Difference> {
    let mut found = Vec::new();
    diff(
        a,
        b,
        options,
        Parallel::new(2),
        &NoProgress,
        &mut |difference| {
            found.push(difference);
            Ok(())
        },
    )
    .unwrap();
    found
}

/// Compares without sockets, which tar cannot hold.
fn assert_same(a: &dyn FileSystem, b: &dyn FileSystem, options: &Aspects) {
    let mut found = differences(a, b, options);
    found.retain(|difference| difference.change != Change::OnlyInFirst(FileKind::Socket));
    assert!(found.is_empty(), "{found:#?}");
}

/// The kernel's view of a directory, through external programs.
fn kernel_view(find: &Tool, getfattr: &Tool, dir: &Path) -> String {
    let format = "%P|%y|%#m|%U|%G|%T@|%s|%l\\0";
    let find = find
        .command()
        .current_dir(dir)
        .args([".", "!", "-type", "s", "!", "-type", "d", "-printf", format])
        .output()
        .unwrap();
    assert!(find.status.success());
    let mut files: Vec<_> = find.stdout.split(|&byte| byte == 0).collect();
    files.sort_unstable();
    let getfattr = getfattr
        .command()
        .current_dir(dir)
        .args(["-R", "-h", "-d", "-m", "-", "-e", "hex", "."])
        .output()
        .unwrap();
    let mut attributes: Vec<_> = getfattr.stdout.split(|&byte| byte == b'\n').collect();
    attributes.sort_unstable();
    let files: Vec<_> = files
        .iter()
        .chain(&attributes)
        .map(|l| l.escape_ascii().to_string())
        .collect();
    files.join("\n")
}

/// Runs a program to completion; returns its standard error.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {words}");
    words.into()
}

fn extract(tool: &Tool, archive: &Path, to: &Path, options: &[&str]) -> String {
    fs::create_dir(to).unwrap();
    let archive = [
        OsStr::new("-xpf"),
        archive.as_ref(),
        OsStr::new("-C"),
        to.as_ref(),
    ];
    run(tool.command().args(options).args(archive))
}

#[test]
fn gnu_tar_reads_ours() {
    let (Some(gnu), Some(find), Some(getfattr)) = (tool("tar"), tool("find"), tool("getfattr"))
    else {
        return;
    };
    let dir = TempDir::new();
    let source = source(&dir);
    let archive = dir.join("ours.tar");
    let host = HostDir::open(&source).unwrap();
    let summary = write_tar(&host, 2, &archive);
    assert_eq!(summary.sockets, [b"socket"]);
    let to = dir.join("extracted");
    let words = extract(
        &gnu,
        &archive,
        &to,
        &["--xattrs", "--xattrs-include=*", "--numeric-owner"],
    );
    // It finds some times odd, as they are, and knows no character sets.
    let mut complaints = words.lines().filter(|line| !line.contains("time stamp"));
    assert!(
        complaints.all(|line| line.ends_with("'hdrcharset'")),
        "{words}"
    );
    assert_same(&host, &HostDir::open(&to).unwrap(), &Aspects::ALL);
    let views = [&source, &to].map(|dir| kernel_view(&find, &getfattr, dir));
    assert_eq!(views[0], views[1]);
    // It is not its own reader that makes it right, and our reader sees the same.
    assert_same(&host, &open_tar(&archive), &Aspects::ALL);
}

#[test]
fn libarchive_reads_ours() {
    let Some(bsdtar) = tool("bsdtar") else { return };
    let dir = TempDir::new();
    let source = source(&dir);
    let archive = dir.join("ours.tar");
    let host = HostDir::open(&source).unwrap();
    write_tar(&host, 2, &archive);
    let to = dir.join("extracted");
    let words = extract(&bsdtar, &archive, &to, &["--xattrs", "--numeric-owner"]);
    assert_eq!(words, "");
    // What libarchive 3.6 does not read or restore: access control lists that are attributes, the
    // escape of `=` in an attribute's name, fractions of seconds before 1970 (it adds them), and
    // the time of the directory it is put into.
    let mut found = differences(&host, &HostDir::open(&to).unwrap(), &Aspects::ALL);
    found.retain(|difference| match &difference.change {
        Change::OnlyInFirst(FileKind::Socket) => false,
        Change::Xattr { name, .. } => {
            !name.starts_with(b"system.posix_acl_") && !name.starts_with("user.é".as_bytes())
        }
        Change::Mtime(ours, _) => !(ours.seconds < 0 || difference.path.is_empty()),
        _ => true,
    });
    assert!(found.is_empty(), "{found:#?}");
}

/// What GNU tar does not store: hard links of what is not a regular file, and a hole that is a
/// small file.
fn is_gnu_tars_own(path: &[u8], change: &Change) -> bool {
    match change {
        Change::HardLink(..) => matches!(path, b"disk too" | b"fifo too"),
        Change::Holes { .. } => path == b"holes/small",
        _ => false,
    }
}

#[test]
fn we_read_gnu_tars_pax_archives() {
    let Some(gnu) = tool("tar") else { return };
    let dir = TempDir::new();
    let source = source(&dir);
    let host = HostDir::open(&source).unwrap();
    for sparse in [
        "--sparse-version=0.0",
        "--sparse-version=0.1",
        "--sparse-version=1.0",
    ] {
        let archive = dir.join("gnu.tar");
        let options = [
            "--format=pax",
            "--sparse",
            "--xattrs",
            "--xattrs-include=*",
            sparse,
        ];
        let output = gnu
            .command()
            .args(options)
            .args([
                OsStr::new("-cf"),
                archive.as_ref(),
                OsStr::new("-C"),
                source.as_ref(),
            ])
            .arg(".")
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let tar = open_tar(&archive);
        assert_eq!(tar.notes(), tar::Notes::default());
        let mut found = differences(&host, &tar, &Aspects::ALL);
        found.retain(|difference| match difference.change.clone() {
            Change::OnlyInFirst(FileKind::Socket) => false,
            change => !is_gnu_tars_own(&difference.path, &change),
        });
        assert!(found.is_empty(), "{found:#?}");
    }
}

#[test]
fn we_read_gnu_tars_own_archives() {
    let Some(gnu) = tool("tar") else { return };
    let dir = TempDir::new();
    let source = source(&dir);
    let host = HostDir::open(&source).unwrap();
    let archive = dir.join("gnu.tar");
    let place = [
        OsStr::new("-cf"),
        archive.as_ref(),
        OsStr::new("-C"),
        source.as_ref(),
    ];
    run(gnu
        .command()
        .args(["--format=gnu", "--sparse"])
        .args(place)
        .arg("."));
    // This format has no extended attributes; it has no nanoseconds either, and is compared to the
    // second.
    let mut found = differences(
        &host,
        &open_tar(&archive),
        &Aspects {
            xattrs: false,
            ..Aspects::ALL
        },
    );
    found.retain(|difference| match difference.change.clone() {
        Change::OnlyInFirst(FileKind::Socket) => false,
        change => !is_gnu_tars_own(&difference.path, &change),
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn we_read_libarchives_archives() {
    let Some(bsdtar) = tool("bsdtar") else { return };
    let dir = TempDir::new();
    let source = source(&dir);
    let host = HostDir::open(&source).unwrap();
    let archive = dir.join("bsd.tar");
    let place = [
        OsStr::new("-cf"),
        archive.as_ref(),
        OsStr::new("-C"),
        source.as_ref(),
    ];
    run(bsdtar
        .command()
        .args(["--format=pax", "--xattrs", "--no-acls"])
        .args(place)
        .arg("."));
    // What libarchive 3.6 does not store: access control lists as attributes, fractions of seconds
    // before 1970, and hard links of devices.
    let mut found = differences(&host, &open_tar(&archive), &Aspects::ALL);
    found.retain(|difference| match &difference.change {
        Change::OnlyInFirst(FileKind::Socket) => false,
        Change::Xattr { name, .. } => !name.starts_with(b"system.posix_acl_"),
        Change::Mtime(ours, _) => !(ours.seconds < 0 && ours.nanoseconds > 0),
        Change::HardLink(..) => &*difference.path != b"disk too",
        _ => true,
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_tar_of_a_tar_is_the_same_tar_with_any_number_of_threads() {
    let dir = TempDir::new();
    let source = source(&dir);
    let host = HostDir::open(&source).unwrap();
    let first = dir.join("1.tar");
    write_tar(&host, 1, &first);
    let expected = fs::read(&first).unwrap();
    for threads in [1, 2, 8] {
        let again = dir.join("2.tar");
        write_tar(&open_tar(&first), threads, &again);
        assert!(fs::read(&again).unwrap() == expected, "{threads} threads");
    }
}

#[test]
fn a_pipe_is_as_good_as_a_file() {
    let Some(gnu) = tool("tar") else { return };
    let dir = TempDir::new();
    let source = source(&dir);
    let host = HostDir::open(&source).unwrap();
    // Write into a pipe.
    let inventory = Inventory::of(&host, &Limits::default()).unwrap();
    let to = dir.join("extracted");
    fs::create_dir(&to).unwrap();
    let mut reader = gnu
        .command()
        .args([
            "--xattrs",
            "--xattrs-include=*",
            "--numeric-owner",
            "-xpf",
            "-",
            "-C",
        ])
        .arg(&to)
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut pipe = reader.stdin.take().unwrap();
    tar::write(&inventory, false, Parallel::new(2), &NoProgress, &mut pipe).unwrap();
    drop(pipe);
    assert!(reader.wait().unwrap().success());
    assert_same(&host, &HostDir::open(&to).unwrap(), &Aspects::ALL);
    // And read from a pipe.
    let archive = dir.join("ours.tar");
    write_tar(&host, 1, &archive);
    let mut cat = Command::new("cat")
        .arg(&archive)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = cat.stdout.take().unwrap();
    let tar = Tar::spooled(
        |mut out| std::io::copy(&mut pipe, &mut out),
        dir.path(),
        Limits::default(),
    )
    .unwrap();
    assert_same(&host, &tar, &Aspects::ALL);
    assert!(cat.wait().unwrap().success());
}

/// But for ranges of numbers, brackets within braces, which bash divides at commas, and braces
/// without a comma before others (`{a},b}`), of which bash leaves out the end.
#[test]
fn patterns_match_as_in_bash() {
    let Some(bash) = tool("bash") else {
        return;
    };
    let dir = TempDir::new();
    let mut paths = Vec::new();
    for parent in ["", "d/", "d/.h/", "{d/", "[d/", "{b,c}/"] {
        fs::create_dir_all(dir.join(parent)).unwrap();
        for name in [
            "a", "ab", "{a", "a}", "{a}", "{a,b", "{a,b}", "a,b", "{}", "[a", "a]", "[a]", "]",
            "!a", "-", "\\", "\\a", "n", "tt", ".a", "1", "1n", "*", "?", "}", "{", ",", "z-a]",
            "[z-a]",
        ] {
            let path = format!("{parent}{name}");
            fs::write(dir.join(&path), "").unwrap();
            paths.push(path);
        }
    }
    let mut patterns: Vec<String> = [
        "*",
        "?",
        ".*",
        "a*",
        "*/a",
        "**/a",
        "**/{a,b}",
        "*b",
        "d/*",
        "d/.h/*",
        "{d,{d}/a",
        "{d/a",
        "[d/a",
        "[d/]",
        "[d/a]",
        "{b,c}/a",
        "\\{b,c}/a",
        "{[d/a,d/a}",
        "{a,{b,c}",
        "{a,b}}",
        "{{a,b}",
        "{a}",
        "{}",
        "{a",
        "a}",
        "{,a}b",
        "{a,\\}}",
        "{a\\,b}",
        "[!a]",
        "[^a]",
        "[]]",
        "[]a]",
        "[!]a]",
        "[a-z]",
        "[z-a]",
        "[a-]",
        "[[:digit:]]*",
        "[![:alnum:]]",
        "[[:nope:]]",
        "[\\]]",
        "\\n",
        "\\t*",
        "\\\\",
        "\\\\a",
        "*\\]",
        "[",
        "[a",
        "a]",
        "\\[a",
        "{a,b}{,n}",
        "[{]*",
        "[[]*",
        "?{a,b}?",
        "d/{.h/,}a",
        "{d/,}{a,b,1}*",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut rng = testkit::Rng::new(5);
    for _ in 0..testkit::cases(300) {
        let atoms = [
            "a", "b", "*", "?", "}", ",", "{a,", "d/", "\\", "1", "[ab]", "[!1]",
        ];
        let count = 1 + rng.below(7);
        let pattern = (0..count).map(|_| atoms[rng.index(atoms.len())]);
        patterns.push(pattern.collect::<String>());
    }
    // Bash reads a backslash at the end on its own command line.
    patterns.retain(|it| !(it.ends_with('\\') || it.contains("**") && !it.starts_with("**/")));
    let mut command = bash.command();
    command
        .env("LC_ALL", "C")
        .current_dir(dir.path())
        .args(["-c", BASH, "bash"]);
    let output = command.args(&patterns).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let output = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<&str> = output.split_terminator('\0').collect();
    assert_eq!(answers.len(), patterns.len());
    let mut wrong = Vec::new();
    for (pattern, theirs) in patterns.iter().zip(answers) {
        let mut theirs: Vec<&str> = theirs.lines().collect();
        let all = tree::edit::Patterns::new([pattern]);
        let mut ours: Vec<&str> = paths.iter().map(String::as_str).collect();
        ours.retain(|path| all.matches(path.as_bytes()));
        ours.sort_unstable();
        theirs.sort_unstable();
        theirs.dedup();
        if ours != theirs {
            wrong.push(format!("{pattern}: {ours:?}, bash: {theirs:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Prints the files that each argument matches, and a NUL.
const BASH: &str = r#"
shopt -s globstar dotglob
for pattern; do
    eval "for file in $pattern; do [ -f \"\$file\" ] && printf '%s\n' \"\$file\"; done"
    printf '\0'
done
exit 0
"#;
