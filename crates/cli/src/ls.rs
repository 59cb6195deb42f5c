//! `restow ls`: lists the files in a tree.

use std::collections::HashSet;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{ArgAction, Args};
use restow::{Address, SourceTree};
use tree::json::Object;
use tree::{DirEntry, Error, FileKind, FileSystem, Ino, Metadata};

use crate::options::{QuietArgs, SOURCE_HELP, SOURCE_LONG_HELP, SourceArgs};

use crate::text;

/// The version of the JSON form.
const VERSION: u32 = 1;

/// List the files in a tree
///
/// By default, prints the names in the root directory, one per line. Control characters and bytes
/// that are not UTF-8 are shown as `\xNN` unless `-0` is given.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Examples:
  restow ls src.tar               list the root directory
  restow ls -l src.tar usr/bin    with modes, owners, sizes and times
  restow ls -lh src.tar usr etc   two directories, with sizes as in 1.5M
  restow ls disk.btrfs:home       list a subvolume
  restow ls -R0 src.tar | xargs -0 -n1 echo
                                  all paths, for use by a program")]
pub(crate) struct Ls {
    #[arg(help = SOURCE_HELP, long_help = SOURCE_LONG_HELP)]
    src: PathBuf,

    /// Directories and files to list [default: the root directory]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Show mode, link count, owner, size or device number, time (UTC), and link target
    #[arg(short, long)]
    long: bool,

    /// Show sizes with the suffixes K, M, G, T, P and E, for powers of 1024
    #[arg(short = 'h', long)]
    human_readable: bool,

    /// Has no effect: names that begin with a dot are always listed, one name per line
    #[arg(short, long, short_aliases = ['A', '1'], action = ArgAction::Count)]
    all: u8,

    /// List all directories below PATH
    #[arg(short = 'R', long)]
    recursive: bool,

    /// List directories themselves, not their contents
    #[arg(short, long)]
    directory: bool,

    /// End each line with NUL instead of a newline, and print names unmodified
    #[arg(short = '0', long)]
    null: bool,

    /// Print a JSON object per file, which docs/json.md describes
    #[arg(long, conflicts_with_all = ["null", "human_readable"])]
    json: bool,

    #[command(flatten)]
    quiet: QuietArgs,

    /// Show the number of the layer that each file comes from, as `restow info` counts them; `-`
    /// for a directory that no layer has
    #[arg(long, help_heading = "Container images as sources")]
    layers: bool,

    #[command(flatten)]
    source: SourceArgs,

    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Prints the list.
///
/// # Errors
/// The tree cannot be read, or the list cannot be written.
pub(crate) fn run(args: &Ls) -> Result<()> {
    let address = Address::of(&args.src)?;
    let source = args.source.open(&address, false)?;
    let has_layers = source.has_layers();
    if args.layers && !has_layers {
        bail!(
            "{}: not a container image: --layers does not apply",
            source.name()
        );
    }
    let mut list = TreeLister {
        args,
        source: &source,
        has_layers,
        out: BufWriter::new(io::stdout().lock()),
    };
    if args.json {
        let header = Object::of_schema("ls", VERSION).text("source", source.name());
        writeln!(list.out, "{}", header.line())?;
    }
    let root = [PathBuf::new()];
    let paths = if args.paths.is_empty() {
        &root[..]
    } else {
        &args.paths
    };
    // As in `ls`, files come before directories.
    let mut directories = Vec::new();
    for path in paths {
        let path = path.as_os_str().as_bytes();
        // As in `ls`, -l and -d show a symbolic link itself.
        let follow = !args.long && !args.directory || path.ends_with(b"/");
        let entry = source.find(path, follow)?;
        let trimmed = path.strip_prefix(b"/").unwrap_or(path);
        let trimmed = trimmed.strip_suffix(b"/").unwrap_or(trimmed);
        if args.directory || entry.kind != FileKind::Directory {
            let metadata = list.metadata(&entry, trimmed)?;
            list.line(&entry, &metadata, trimmed, trimmed)?;
        } else {
            directories.push((entry, trimmed));
        }
    }
    let mut is_first = directories.len() == paths.len();
    for (entry, path) in &directories {
        // With -R, each line has the whole path.
        if paths.len() > 1 && !args.recursive && !args.null && !args.json {
            list.heading(path, is_first)?;
        }
        is_first = false;
        list.directory(entry, path)?;
    }
    Ok(list.out.flush()?)
}

struct TreeLister<'a, W> {
    args: &'a Ls,
    source: &'a SourceTree,
    /// Whether files come from layers of a container image.
    has_layers: bool,
    out: W,
}

impl<W: Write> TreeLister<'_, W> {
    fn tree(&self) -> &dyn FileSystem {
        &**self.source.tree()
    }

    fn metadata(&self, entry: &DirEntry, path: &[u8]) -> Result<Metadata> {
        let metadata = self.tree().metadata(entry.ino);
        Ok(metadata.map_err(|error| self.source.name_error(error.in_file("read", path)))?)
    }

    /// Says which directory follows.
    fn heading(&mut self, path: &[u8], is_first: bool) -> Result<()> {
        let blank = if is_first { "" } else { "\n" };
        Ok(writeln!(self.out, "{blank}{}:", text::of_path(path))?)
    }

    /// Lists a directory; with `-R`, everything below it.
    fn directory(&mut self, dir: &DirEntry, path: &[u8]) -> Result<()> {
        // The entries still to list of each open directory, and the length of its path; the
        // innermost last.
        let mut path = path.to_vec();
        let mut open = vec![(path.len(), self.entries(dir, &path)?)];
        // A hostile image may have a directory in itself or in many places.
        let mut listed: HashSet<Ino> = HashSet::from([self.tree().root(), dir.ino]);
        while let Some((len, entries)) = open.last_mut() {
            path.truncate(*len);
            let Some(entry) = entries.next() else {
                open.pop();
                continue;
            };
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&entry.name);
            let metadata = if self.args.long || self.args.json {
                self.metadata(&entry, &path)?
            } else {
                nothing(&entry)
            };
            let shown = if self.args.recursive {
                &*path
            } else {
                &*entry.name
            };
            self.line(&entry, &metadata, shown, &path)?;
            if self.args.recursive && entry.kind == FileKind::Directory {
                if !listed.insert(entry.ino) {
                    let error = Error::Inconsistent("a directory is in two places");
                    return Err(self.source.name_error(error.in_file("read", &path)).into());
                }
                let entries = self.entries(&entry, &path)?;
                open.push((path.len(), entries));
            }
        }
        Ok(())
    }

    fn entries(&self, dir: &DirEntry, path: &[u8]) -> Result<std::vec::IntoIter<DirEntry>> {
        let entries = self.tree().read_dir(dir.ino);
        let entries =
            entries.map_err(|error| self.source.name_error(error.in_file("read", path)))?;
        Ok(entries.into_iter())
    }

    fn line(
        &mut self,
        entry: &DirEntry,
        metadata: &Metadata,
        shown: &[u8],
        path: &[u8],
    ) -> Result<()> {
        if self.args.json {
            let object = self.object(entry, metadata, path)?;
            return Ok(writeln!(self.out, "{}", object.line())?);
        }
        let end = if self.args.null { b'\0' } else { b'\n' };
        if self.args.layers {
            let layer = self
                .layer(entry)
                .map_or("-".to_owned(), |it| it.to_string());
            write!(self.out, "{layer:>3} ")?;
        }
        if self.args.long {
            let Metadata {
                kind,
                permissions,
                uid,
                gid,
                nlink,
                size,
                rdev,
                mtime,
                ..
            } = *metadata;
            let mode = text::of_mode(kind, permissions);
            let size = if kind.is_device() {
                format!("{}, {}", rdev.major, rdev.minor)
            } else if self.args.human_readable {
                text::of_size(size)
            } else {
                size.to_string()
            };
            let time = text::of_time(mtime);
            write!(
                self.out,
                "{mode} {nlink:>3} {uid:>5} {gid:>5} {size:>11} {time} "
            )?;
        }
        let shown = if shown.is_empty() { b"." } else { shown };
        self.name(shown)?;
        if self.args.long && entry.kind == FileKind::Symlink {
            let target = self.target(entry, path)?;
            self.out.write_all(b" -> ")?;
            self.name(&target)?;
        }
        Ok(self.out.write_all(&[end])?)
    }

    /// The number of the layer that a file comes from, from 1.
    fn layer(&self, entry: &DirEntry) -> Option<u64> {
        let layer = self.has_layers.then(|| self.source.layer_of(entry.ino))??;
        Some(layer as u64 + 1)
    }

    /// Everything that a long list shows.
    fn object(&self, entry: &DirEntry, metadata: &Metadata, path: &[u8]) -> Result<Object> {
        let Metadata {
            kind,
            permissions,
            uid,
            gid,
            nlink,
            size,
            rdev,
            mtime,
            ..
        } = *metadata;
        let object = Object::new()
            .name("path", path)
            .text("kind", text::of_kind(kind))
            .number("inode", entry.ino.0)
            .text("mode", &format!("{permissions:04o}"))
            .number("links", nlink)
            .number("uid", uid)
            .number("gid", gid)
            .time("mtime", mtime);
        let object = match self.layer(entry) {
            Some(layer) => object.number("layer", layer),
            None => object,
        };
        Ok(match kind {
            FileKind::Regular => object.number("size_bytes", size),
            FileKind::Symlink => object.name("target", &self.target(entry, path)?),
            kind if kind.is_device() => {
                let object = object.number("device_major", rdev.major);
                object.number("device_minor", rdev.minor)
            }
            _ => object,
        })
    }

    fn target(&self, link: &DirEntry, path: &[u8]) -> Result<Vec<u8>> {
        let target = self.tree().read_link(link.ino);
        Ok(target.map_err(|error| self.source.name_error(error.in_file("read", path)))?)
    }

    fn name(&mut self, name: &[u8]) -> io::Result<()> {
        if self.args.null {
            return self.out.write_all(name);
        }
        self.out.write_all(text::of_name(name).as_bytes())
    }
}

/// Stands in for metadata that a short list does not show.
fn nothing(entry: &DirEntry) -> Metadata {
    Metadata {
        kind: entry.kind,
        permissions: 0,
        uid: 0,
        gid: 0,
        nlink: 1,
        size: 0,
        rdev: tree::Device::default(),
        mtime: tree::Time::default(),
        atime: None,
        ctime: None,
        btime: None,
        attributes: tree::FileAttributes::default(),
        identity: None,
    }
}
