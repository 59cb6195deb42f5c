//! The campaign that extracts tar archives of other projects with GNU tar, bsdtar and restow. What
//! both peers agree on, ours must have.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, ffi::OsString};

use crate::command::{limited, output_of};
use crate::outcome::Outcome;
use crate::outside::{built, remove_all};

/// Names the folder of the archives.
const ARCHIVES: &str = "RESTOW_ARCHIVES";

/// Seconds that a program may take for an archive.
const SECONDS_MAX: u64 = 60;

/// Of longer files, only this many bytes at both ends are compared: some archives hold 60 GB of
/// holes.
const COMPARED_MAX: u64 = 64 << 20;

/// Ends of the names of archives that ours refuses, and why.
const DIFFERENCES: &[(&str, &str)] = &[
    (".Z", "compress(1) has no decoder here"),
    (
        "pax-bad-mtime-file.tar",
        "a time that is no number, which others take for 0, is an error",
    ),
    (
        "pax_timestamps.tar",
        "a time with a letter among its digits, which others read up to there, is an error",
    ),
    (
        ".iso",
        "an ISO image begins with zeros, which GNU tar takes for an empty archive, and is named",
    ),
    (
        "pax-nul-path.tar",
        "a name with a NUL, which others cut there, is an error",
    ),
    (
        "solaris_tar_acl.tar",
        "a member of a type that is not known, which others take for a file, is an error",
    ),
];

/// The programs: each with its arguments before the archive, and between archive and directory.
const PEERS: [(&str, &str, &str); 2] = [
    (
        "tar",
        "-xp --same-owner --numeric-owner --xattrs --xattrs-include=* --acls -f",
        "-C",
    ),
    ("bsdtar", "-xp --numeric-owner -f", "-C"),
];
const OURS: (&str, &str, &str) = ("restow", "copy -q --to dir", "");

/// A file as a program restored it: its properties by their names.
type Properties = BTreeMap<&'static str, Vec<u8>>;

/// All files below a directory, by their paths.
type Restored = BTreeMap<PathBuf, Properties>;

/// Extracts each archive below the folder.
pub(crate) fn campaign() -> Outcome {
    let Some(folder) = env::var_os(ARCHIVES).map(PathBuf::from) else {
        return Outcome::skipped(format!("{ARCHIVES} names no folder of archives"));
    };
    let target = match built() {
        Ok(target) => target,
        Err(reason) => return Outcome::skipped(reason),
    };
    let mut archives = Vec::new();
    if let Err(error) = files_below(&folder, &mut archives) {
        return Outcome::failed(format!("{}: {error}", folder.display()));
    }
    let scratch = target.join("outside/archives");
    let mut outcome = Outcome::default();
    let (mut read_by_both, mut losses, mut listed) = (0, Vec::new(), 0);
    for archive in &archives {
        let name = archive
            .strip_prefix(&folder)
            .unwrap_or(archive)
            .display()
            .to_string();
        let verdict = try_archive(archive, &scratch, &target.join("debug/restow"));
        let difference = DIFFERENCES.iter().find(|(end, _)| name.ends_with(end));
        let wrong = match verdict {
            Ok(None) => continue,
            Ok(Some(Agreement { code, wrong })) => {
                losses.extend((code == 1).then(|| name.clone()));
                wrong
            }
            Err(error) => Some(error),
        };
        read_by_both += 1;
        match (wrong, difference) {
            (None, None) => outcome.passed += 1,
            (None, Some(_)) => outcome.failed.push(format!("{name} is no difference")),
            (Some(_), Some((end, reason))) => {
                println!("{name} differs as listed: {end}: {reason}");
                listed += 1;
            }
            (Some(wrong), None) => outcome.failed.push(format!("{name}: {wrong}")),
        }
    }
    let _ = remove_all(&scratch);
    outcome.notes.push(format!(
        "{} files, {read_by_both} read by GNU tar and bsdtar, {listed} listed differences; restow names a loss in {} ({})",
        archives.len(),
        losses.len(),
        losses.join(", ")
    ));
    outcome
}

/// The regular files below a folder, in the order of their names.
fn files_below(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let entries: io::Result<Vec<_>> = fs::read_dir(folder)?.collect();
    let mut paths: Vec<PathBuf> = entries?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let kind = fs::symlink_metadata(&path)?.file_type();
        if kind.is_dir() {
            files_below(&path, files)?;
        } else if kind.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

/// What came of an archive that both peers read.
struct Agreement {
    /// Our exit code.
    code: i32,
    /// Where ours differs from what they agree on.
    wrong: Option<String>,
}

/// Extracts an archive with each program; nothing if a peer does not read it.
fn try_archive(archive: &Path, scratch: &Path, restow: &Path) -> Result<Option<Agreement>, String> {
    let mut peers = Vec::new();
    for peer in PEERS {
        let dir = scratch.join(peer.0);
        match extract(peer, Path::new(peer.0), archive, &dir)? {
            (0, _) => peers.push(restored(&dir)?),
            _ => return Ok(None),
        }
    }
    // What holds nothing is no archive: bsdtar reads an empty file.
    if peers.iter().all(|peer| peer.len() <= 1) {
        return Ok(None);
    }
    let dir = scratch.join("restow");
    let (code, words) = extract(OURS, restow, archive, &dir)?;
    let wrong = if code > 1 {
        Some(format!(
            "exit code {code}: {}",
            words.lines().next().unwrap_or_default()
        ))
    } else {
        difference(&peers[0], &peers[1], &restored(&dir)?)
    };
    Ok(Some(Agreement { code, wrong }))
}

/// Extracts an archive into a new directory; returns the exit code and what was said.
fn extract(
    (_, before, middle): (&str, &str, &str),
    program: &Path,
    archive: &Path,
    dir: &Path,
) -> Result<(i32, String), String> {
    let failed = |error: io::Error| format!("{}: {error}", dir.display());
    remove_all(dir)
        .and_then(|()| fs::create_dir_all(dir))
        .map_err(failed)?;
    let mut command = Command::new(program);
    command.args(before.split(' ')).arg(archive);
    command.args(middle.split_terminator(' ')).arg(dir);
    let output = limited(&command, SECONDS_MAX).output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    // A row does not name the folders of the machine.
    let words = String::from_utf8_lossy(&output.stderr)
        .replace(&*archive.to_string_lossy(), "ARCHIVE")
        .replace(&*dir.to_string_lossy(), "DST");
    Ok((output.status.code().unwrap_or(255), words))
}

/// Everything that a program restored below a directory.
fn restored(dir: &Path) -> Result<Restored, String> {
    let mut files = Restored::new();
    let failed = |error: io::Error| format!("read {}: {error}", dir.display());
    add_files(dir, Path::new(""), &mut files).map_err(failed)?;
    let mut command = Command::new("getfattr");
    command.args([
        "--recursive",
        "--physical",
        "--no-dereference",
        "--dump",
        "--match=-",
        "--encoding=hex",
        ".",
    ]);
    let words = output_of(command.current_dir(dir))?;
    for block in words.split("\n\n") {
        let Some((path, attributes)) = block.trim().split_once('\n') else {
            continue;
        };
        let path = unescaped(path.trim_start_matches("# file: "));
        let path = path.strip_prefix(".").map_or(path.as_path(), |path| path);
        if let Some(file) = files.get_mut(path) {
            let mut lines: Vec<&str> = attributes.lines().collect();
            lines.sort_unstable();
            file.insert("attributes", lines.join(", ").into_bytes());
        }
    }
    Ok(files)
}

/// A path as getfattr prints it: a backslash and three octal digits are a byte.
fn unescaped(path: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((&first, more)) = rest.split_first() {
        let digits = more.get(..3).and_then(|it| str::from_utf8(it).ok());
        let byte = digits.and_then(|it| u8::from_str_radix(it, 8).ok());
        match byte.filter(|_| first == b'\\') {
            Some(byte) => (bytes.push(byte), rest = &more[3..]).1,
            None => (bytes.push(first), rest = more).1,
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn add_files(top: &Path, path: &Path, files: &mut Restored) -> io::Result<()> {
    let whole = top.join(path);
    let metadata = fs::symlink_metadata(&whole)?;
    files.insert(path.to_owned(), properties(&whole, &metadata)?);
    if metadata.is_dir() {
        for entry in fs::read_dir(&whole)? {
            add_files(top, &path.join(entry?.file_name()), files)?;
        }
    }
    Ok(())
}

fn properties(path: &Path, metadata: &Metadata) -> io::Result<Properties> {
    let kind = metadata.file_type();
    let mut properties = Properties::from([
        ("mode", format!("{:o}", metadata.mode()).into_bytes()),
        (
            "owner",
            format!("{}:{}", metadata.uid(), metadata.gid()).into_bytes(),
        ),
        (
            "time",
            format!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec()).into_bytes(),
        ),
    ]);
    if kind.is_symlink() {
        properties.insert(
            "target",
            fs::read_link(path)?.as_os_str().as_bytes().to_vec(),
        );
    } else if kind.is_file() {
        let size = metadata.len();
        properties.insert("size", size.to_string().into_bytes());
        properties.insert("links", metadata.nlink().to_string().into_bytes());
        let file = File::open(path)?;
        let part = size.min(COMPARED_MAX) as usize;
        let mut content = vec![0; part];
        file.read_exact_at(&mut content, 0)?;
        if size > COMPARED_MAX {
            let mut tail = vec![0; part];
            file.read_exact_at(&mut tail, size - COMPARED_MAX)?;
            content.extend(tail);
        }
        properties.insert("content", content);
    } else if kind.is_block_device() || kind.is_char_device() {
        properties.insert("device", metadata.rdev().to_string().into_bytes());
    }
    Ok(properties)
}

/// The first path and property in which ours differs from what both peers have.
fn difference(gnu: &Restored, bsd: &Restored, ours: &Restored) -> Option<String> {
    for (path, properties) in gnu {
        let Some(others) = bsd.get(path) else {
            continue;
        };
        let Some(made) = ours.get(path) else {
            return Some(format!("{} is missing", path.display()));
        };
        // The directory itself existed before.
        let is_top = path.as_os_str().is_empty();
        let names = [
            "mode",
            "owner",
            "time",
            "target",
            "size",
            "links",
            "content",
            "device",
            "attributes",
        ];
        for name in names.into_iter().filter(|_| !is_top) {
            let [a, b, made] = [properties, others, made].map(|it| it.get(name));
            if a == b && a != made {
                let shown = |value: Option<&Vec<u8>>| match value {
                    Some(value) if name == "content" => format!("{} bytes", value.len()),
                    Some(value) => String::from_utf8_lossy(value).into_owned(),
                    None => "none".to_owned(),
                };
                return Some(format!(
                    "{} of {} is {}, by both others {}",
                    name,
                    path.display(),
                    shown(made),
                    shown(a)
                ));
            }
        }
    }
    let extra = ours
        .keys()
        .find(|path| !gnu.contains_key(*path) && !bsd.contains_key(*path));
    extra.map(|path| format!("{} is in ours alone", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(properties: &[(&str, &'static str, &str)]) -> Restored {
        let mut files = Restored::new();
        for (path, name, value) in properties {
            let file = files.entry(PathBuf::from(path)).or_default();
            file.insert(name, value.as_bytes().to_vec());
        }
        files
    }

    #[test]
    fn ours_has_what_both_peers_agree_on() {
        let gnu = tree(&[("a", "mode", "644"), ("a", "time", "1"), ("b", "mode", "1")]);
        let bsd = tree(&[("a", "mode", "644"), ("a", "time", "2"), ("c", "mode", "1")]);
        let same = tree(&[("a", "mode", "644"), ("a", "time", "3")]);
        assert_eq!(difference(&gnu, &bsd, &same), None);
        let other = tree(&[("a", "mode", "600")]);
        let words = difference(&gnu, &bsd, &other);
        assert_eq!(
            words.as_deref(),
            Some("mode of a is 600, by both others 644")
        );
        let none = tree(&[]);
        assert_eq!(
            difference(&gnu, &bsd, &none).as_deref(),
            Some("a is missing")
        );
        let more = tree(&[("a", "mode", "644"), ("d", "mode", "644")]);
        assert_eq!(
            difference(&gnu, &bsd, &more).as_deref(),
            Some("d is in ours alone")
        );
    }

    #[test]
    fn paths_are_those_of_getfattr() {
        assert_eq!(unescaped("a\\012b\\134"), PathBuf::from("a\nb\\"));
        assert_eq!(unescaped("a\\b"), PathBuf::from("a\\b"));
    }
}
