//! The words by which `--if-changed` knows that a copy would be the same.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Result, bail};
use restow::{Address, SourceTree, object_state};

use super::args::Copy;
use crate::options::open_options;

/// Options that do not change the result.
const IRRELEVANT: [&str; 10] = [
    "-q",
    "--quiet",
    "-v",
    "--verbose",
    "--no-progress",
    "--overwrite",
    "--resume",
    "--read-back",
    "--if-changed",
    "--json",
];
/// Parts of an argument, as in `--with=a.btrfs:home=b`, that are looked up together.
const PARTS_MAX: usize = 16;

/// The arguments, and the state of each file and object that one of them names.
///
/// # Errors
/// The source is not known before it is read.
pub(crate) fn words(args: &Copy, source: &SourceTree) -> Result<Vec<u8>> {
    if args.src == Path::new("-") {
        bail!("--if-changed: standard input is not known before it is read");
    }
    if source.disk_file().is_some() {
        bail!("--if-changed: the files behind a disk file are not compared");
    }
    let mut words = Vec::new();
    let mut add = |word: &[u8]| {
        words.extend_from_slice(&(word.len() as u64).to_le_bytes());
        words.extend_from_slice(word);
    };
    add(std::env::var_os("SOURCE_DATE_EPOCH")
        .unwrap_or_default()
        .as_bytes());
    for word in std::env::args_os().skip(1) {
        if IRRELEVANT.iter().any(|option| word == *option) {
            continue;
        }
        let word = word.as_bytes();
        add(word);
        if word == args.dst.as_os_str().as_bytes() {
            continue;
        }
        let is_mark = |byte: &u8| matches!(byte, b'=' | b':');
        let marks = word.iter().enumerate().filter(|(_, byte)| is_mark(byte));
        let mut marks: Vec<usize> = marks.map(|(at, _)| at).take(PARTS_MAX).collect();
        marks.push(word.len());
        let begins = [0].into_iter().chain(marks.iter().map(|at| at + 1));
        for begin in begins.filter(|&begin| begin < word.len()) {
            for &end in marks.iter().filter(|&&end| end > begin) {
                if let Some(state) = state(&word[begin..end]) {
                    add(state.as_bytes());
                }
            }
        }
    }
    Ok(words)
}

/// The state of a file or object of this name; `None` if there is none, or a directory, whose files
/// are compared themselves. Of a layout of container images, its index.
fn state(name: &[u8]) -> Option<String> {
    let path = Path::new(OsStr::from_bytes(name));
    if let Some(text) = path.to_str().filter(|_| Address::plain(path).is_object()) {
        // The part of an argument that names an object was opened before.
        return object_state(text, &open_options().remote).ok();
    }
    let file = |path: &Path| fs::metadata(path).ok().filter(fs::Metadata::is_file);
    let file = file(path).or_else(|| file(&path.join("index.json")))?;
    let (seconds, nanoseconds) = (file.ctime(), file.ctime_nsec());
    let (size, ino, mtime) = (file.size(), file.ino(), (file.mtime(), file.mtime_nsec()));
    Some(format!("{size} {ino} {mtime:?} {seconds} {nanoseconds}"))
}
