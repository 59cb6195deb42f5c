//! The sources of `mksquashfs`, and the files on this machine that become files of the image.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use restow::{Address, SourceTree};
use tree::Time;
use tree::edit::{Patterns, Stats};

use crate::message::tell;
use crate::options::open_options;
use crate::text;

/// How sources are read, and where their files go.
#[derive(Default)]
pub(super) struct SourceRules {
    /// Standard input holds an archive.
    pub(super) is_tar: bool,
    /// NFS can export the image of an archive, too.
    pub(super) exports: bool,
    /// Files keep the directories in the paths of sources.
    pub(super) keeps_paths: bool,
    /// Standard input holds a list of files, each with this byte behind it.
    pub(super) list_end: Option<u8>,
    /// A single directory becomes one in the root.
    pub(super) keeps_directory: bool,
    pub(super) one_file_system: bool,
    pub(super) no_mount_points: bool,
    pub(super) ignore_zeros: bool,
    /// Directories that an archive does not have.
    pub(super) implied: Stats,
}

/// The sources as one tree.
pub(super) struct Gathered {
    pub(super) tree: SourceTree,
    /// The files of it to take.
    pub(super) only: Patterns,
    /// If no source is the root: the time of the newest source.
    pub(super) new_root: Option<Time>,
    /// Whether there are no files but those of pseudo definitions.
    pub(super) is_empty: bool,
    /// The sources on this machine, in which excluded files are looked up.
    sources: Vec<PathBuf>,
    /// Files and directories of this machine, without links in their paths, and their places.
    places: Vec<(PathBuf, Vec<u8>)>,
}

/// The lines of a list of excluded files.
pub(super) fn lines(list: &[u8]) -> impl Iterator<Item = OsString> {
    let lines = list
        .split(|&byte| byte == b'\n')
        .map(<[u8]>::trim_ascii_start);
    let lines = lines.filter(|line| !line.is_empty() && line[0] != b'#');
    lines.map(|line| OsString::from_vec(line.to_vec()))
}

/// A path without links in its directories; `None` if there is no such file.
fn real(path: &Path) -> Option<PathBuf> {
    let Some((parent, name)) = linux::split_path(path) else {
        return fs::canonicalize(path).ok();
    };
    let path = fs::canonicalize(parent).ok()?.join(OsStr::from_bytes(name));
    fs::symlink_metadata(&path).ok().map(|_| path)
}

impl SourceRules {
    /// Opens the sources.
    ///
    /// # Errors
    /// One cannot be opened, or does not go with the options.
    pub(super) fn gather(&self, given: Vec<PathBuf>) -> Result<Gathered> {
        let mut options = open_options();
        options.one_file_system = self.one_file_system;
        options.no_mount_points = self.no_mount_points;
        options.ignore_zeros = self.ignore_zeros;
        options.implied_dirs = self.implied;
        let is_stdin = given == [Path::new("-")];
        if (self.is_tar || self.list_end.is_some()) && !is_stdin {
            bail!("the source must be `-`: standard input");
        }
        let mut gathered = Gathered {
            tree: SourceTree::empty()?,
            only: Patterns::default(),
            new_root: None,
            is_empty: is_stdin && !self.is_tar && self.list_end.is_none(),
            sources: Vec::new(),
            places: Vec::new(),
        };
        if gathered.is_empty {
            gathered.new_root = Some(Time::default());
            return Ok(gathered);
        }
        if self.is_tar {
            gathered.tree = SourceTree::open(&Address::plain(Path::new("-")), &options)?;
            return Ok(gathered);
        }
        let listed = self.list_end.map(read_list).transpose()?;
        if self.keeps_paths || listed.is_some() {
            gathered.sources = listed.clone().unwrap_or(given);
            let base = base_of(&gathered.sources)?;
            for path in &gathered.sources {
                let name = text::of_host_path(path, "-");
                fs::symlink_metadata(path).with_context(|| format!("open {name}"))?;
            }
            let paths = gathered
                .sources
                .iter()
                .map(|path| path.as_os_str().as_bytes());
            let only = Patterns::default().with_paths(paths);
            gathered.only = if listed.is_some() {
                only.of_exact_paths()
            } else {
                only
            };
            gathered.tree = SourceTree::open(&Address::plain(base), &options)?;
            gathered.places = vec![(fs::canonicalize(base)?, Vec::new())];
            return Ok(gathered);
        }
        let mut newest = Time::default();
        for path in &given {
            let name = text::of_host_path(path, "-");
            let there = fs::symlink_metadata(path).with_context(|| format!("open {name}"))?;
            newest.seconds = newest.seconds.max(there.mtime());
            if given.len() == 1 && there.is_dir() && !self.keeps_directory {
                gathered.tree = SourceTree::open(&Address::plain(path), &options)?;
                gathered.places = vec![(fs::canonicalize(path)?, Vec::new())];
                gathered.sources = given;
                return Ok(gathered);
            }
        }
        let names;
        (gathered.tree, names) = SourceTree::gather(&given, &options)?;
        let names = given.iter().zip(names);
        gathered.places = names
            .filter_map(|(path, name)| Some((real(path)?, name.into())))
            .collect();
        gathered.new_root = Some(newest);
        gathered.sources = given;
        Ok(gathered)
    }
}

/// The files in a list on standard input.
fn read_list(end: u8) -> Result<Vec<PathBuf>> {
    let mut list = Vec::new();
    io::stdin()
        .read_to_end(&mut list)
        .context("read standard input")?;
    let paths = list
        .split(|&byte| byte == end)
        .filter(|path| !path.is_empty());
    Ok(paths.map(|path| OsStr::from_bytes(path).into()).collect())
}

/// The directory that paths begin at: the root, or the working directory.
fn base_of(paths: &[PathBuf]) -> Result<&'static Path> {
    if let Some(path) =
        (paths.iter()).find(|path| path.components().any(|it| it == Component::ParentDir))
    {
        bail!(
            "{}: `..` is not supported where paths are kept",
            text::of_host_path(path, "-")
        );
    }
    let absolute = paths.iter().filter(|path| path.is_absolute()).count();
    match absolute {
        0 => Ok(Path::new(".")),
        _ if absolute == paths.len() => Ok(Path::new("/")),
        _ => bail!("absolute and relative paths together are not supported where paths are kept"),
    }
}

impl Gathered {
    /// The places in the tree of a file of this machine.
    pub(super) fn in_tree(&self, path: &Path) -> Vec<Vec<u8>> {
        let path = real(path);
        let places = self.places.iter().filter_map(|(host, place)| {
            let rest = path
                .as_ref()?
                .strip_prefix(host)
                .ok()?
                .as_os_str()
                .as_bytes();
            let parts = [&**place, rest].into_iter().filter(|it| !it.is_empty());
            Some(parts.collect::<Vec<_>>().join(&b'/'))
        });
        places.collect()
    }

    /// The places in the tree of a file that an option names: with `/`, `./` or `../` in front, a
    /// path on this machine; otherwise one in each source.
    fn places_of(&self, word: &[u8]) -> Vec<Vec<u8>> {
        let path = Path::new(OsStr::from_bytes(word));
        let is_host = [&b"/"[..], b"./", b"../"]
            .iter()
            .any(|it| word.starts_with(it));
        if is_host {
            return self.in_tree(path);
        }
        let all = self
            .sources
            .iter()
            .flat_map(|source| self.in_tree(&source.join(path)));
        all.collect()
    }

    /// The places of excluded files; names those that do not exist.
    pub(super) fn find(&self, words: &[OsString]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        for word in words {
            let places = self.places_of(word.as_bytes());
            if places.is_empty() {
                let name = text::of_name(word.as_bytes());
                tell(&format!("nothing to exclude: {name} is not in a source"));
            }
            found.extend(places);
        }
        found
    }

    /// Refuses patterns that begin with a directory of this machine.
    ///
    /// # Errors
    /// There is one.
    pub(super) fn check_patterns(words: &[OsString]) -> Result<()> {
        for word in words {
            let is_host = [&b"/"[..], b"./", b"../"]
                .iter()
                .any(|it| word.as_bytes().starts_with(it));
            if is_host {
                let name = text::of_name(word.as_bytes());
                bail!("{name}: a pattern does not begin with /, ./ or ../");
            }
        }
        Ok(())
    }

    /// A list for `-sort` with the places of its files in the tree.
    ///
    /// # Errors
    /// A line has no number.
    pub(super) fn sort_list(&self, list: &[u8]) -> Result<Vec<u8>> {
        let mut sorted = Vec::new();
        for line in lines(list) {
            let line = line.as_bytes().trim_ascii_end();
            let at = line.iter().rposition(u8::is_ascii_whitespace);
            let at = at.with_context(|| format!("no number behind {}", text::of_name(line)))?;
            let places = self.places_of(line[..at].trim_ascii_end());
            if places.is_empty() {
                tell(&format!(
                    "nothing to sort: {} is not in a source",
                    text::of_name(&line[..at])
                ));
            }
            for place in places {
                for byte in place {
                    if b"*?[{\\".contains(&byte) {
                        sorted.push(b'\\');
                    }
                    sorted.push(byte);
                }
                sorted.extend_from_slice(&line[at..]);
                sorted.push(b'\n');
            }
        }
        Ok(sorted)
    }
}
