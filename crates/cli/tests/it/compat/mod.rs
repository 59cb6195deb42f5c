//! The command lines of other programs: each case is run by the program and by restow, which must
//! have the same exit code, print the same and leave the same files.

mod mkfs_btrfs; // mkfs.btrfs
mod mkfs_erofs; // mkfs.erofs
mod mksquashfs; // mksquashfs and sqfstar
mod tar2sqfs; // tar2sqfs and sqfs2tar
mod unsquashfs; // unsquashfs and sqfscat

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::Tool;

/// The result of a command line.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    code: Option<i32>,
    out: String,
    /// A line for each file that is in the working directory afterwards.
    files: Vec<String>,
}

/// Runs a line of the shell in a new directory with the name of the program, in which the program's
/// name calls restow or, if given, the original.
fn outcome(dir: &Path, name: &str, original: Option<&Tool>, line: &str) -> Outcome {
    let work = dir.join(if original.is_some() { "theirs" } else { "ours" });
    let _ = fs::remove_dir_all(&work);
    fs::create_dir(&work).unwrap();
    let (program, second) = match original {
        Some(original) => (original.path(), ""),
        None => (Path::new(env!("CARGO_BIN_EXE_restow")), name),
    };
    let script = format!("{name}() {{ \"$PROGRAM\" $SECOND \"$@\"; }}\n{line}");
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir(&work)
        .env("PROGRAM", program)
        .env("SECOND", second)
        .env("TZ", "Europe/Berlin")
        .env_remove("SOURCE_DATE_EPOCH")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let mut files = Vec::new();
    describe(&work, "", &mut files);
    Outcome {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        files,
    }
}

/// Adds a line for each file below a directory.
fn describe(dir: &Path, path: &str, lines: &mut Vec<String>) {
    let mut entries: Vec<_> = fs::read_dir(dir).unwrap().map(Result::unwrap).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = format!("{path}/{}", entry.file_name().display());
        let file = entry.metadata().unwrap();
        let kind = file.file_type();
        let content = if kind.is_symlink() {
            fs::read_link(entry.path()).unwrap().display().to_string()
        } else if kind.is_file() {
            let mut hasher = DefaultHasher::new();
            // The holes of larger ones would take long.
            if file.len() < 1 << 24 {
                fs::read(entry.path()).unwrap().hash(&mut hasher);
            }
            format!("{} bytes, {:x}", file.len(), hasher.finish())
        } else if kind.is_block_device() || kind.is_char_device() {
            file.rdev().to_string()
        } else {
            String::new()
        };
        lines.push(format!(
            "{path} {:o} {}:{} {} links, {:?}: {content}",
            file.mode(),
            file.uid(),
            file.gid(),
            if kind.is_dir() { 1 } else { file.nlink() },
            // Files that the image does not have are as old as the test.
            file.modified()
                .ok()
                .filter(|time| time.elapsed().is_ok_and(|age| age.as_secs() > 600)),
        ));
        if kind.is_dir() {
            describe(&entry.path(), &path, lines);
        }
    }
}

/// The options of a program in docs/compat.md.
fn options(name: &str) -> Vec<String> {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/compat.md"));
    let page = page.unwrap();
    let section = page
        .split("\n## ")
        .find(|it| it.lines().next() == Some(name));
    let rows = section.unwrap().lines().filter_map(|line| {
        let (options, _) = line.strip_prefix("| `")?.split_once('`')?;
        Some(options.to_owned())
    });
    let words = rows.flat_map(|row| {
        row.split([',', ' ', '['])
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    words.filter(|word| word.starts_with('-')).collect()
}

/// Requires that each option in docs/compat.md is in a line.
#[track_caller]
fn assert_no_option_is_without_a_case(name: &str, lines: &[&str]) {
    let has = |option: &String| {
        let words = lines.iter().flat_map(|line| line.split([' ', '=']));
        words.into_iter().any(|word| word == option)
    };
    let missing: Vec<String> = options(name).into_iter().filter(|it| !has(it)).collect();
    assert!(missing.is_empty(), "{name}: no case has {missing:?}");
}
