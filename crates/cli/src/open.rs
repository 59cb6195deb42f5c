//! What a source is, from its bytes, and the tree that it holds.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use btrfs::Subvolume;
use codec::Wrapper;
use squashfs::Squashfs;
use tree::tar::Tar;
use tree::{DirEntry, Error, FileKind, FileSystem, HostDir, Limits, ReadAt};

use crate::args::{ImageAt, SourceArgs};
use crate::text;

/// Bytes that suffice to recognise every container: btrfs has its mark at 64 KiB and 64 bytes.
const START_BYTES: usize = (64 << 10) + 72;

/// The number of a btrfs file system's top-level subvolume.
const TOP_LEVEL: u64 = 5;

/// Symbolic links followed for one path (`MAXSYMLINKS` in Linux).
const SYMLINKS_MAX: u32 = 40;

/// Where what comes from a pipe or is compressed is kept, unless `TMPDIR` says otherwise: a place for large files that is on a disk.
const SPOOL: &str = "/var/tmp";

/// A tree to read, with the name that it has for people.
pub(crate) struct Source {
    pub(crate) tree: Arc<dyn FileSystem>,
    path: PathBuf,
    is_dir: bool,
    /// The subvolume that it is, if it is one.
    pub(crate) btrfs: Option<Arc<Subvolume>>,
    /// What had to be decided while reading, in words.
    pub(crate) notes: Vec<String>,
}

/// What a file is, by its bytes.
enum Found {
    Tar,
    /// And where it begins.
    Squashfs(u64),
    Btrfs,
    /// Recognised, and not readable yet.
    NotYet(&'static str),
    /// Compressed as a whole, in a way that restow reads.
    Wrapped(Wrapper),
    /// Compressed as a whole, and what decompresses it.
    Compressed(&'static str, &'static str),
    Unknown,
}

/// Opens a directory, an archive or, for `-`, standard input.
///
/// # Errors
/// It is not there, cannot be read, or is nothing that restow knows.
pub(crate) fn open(path: &Path, args: &SourceArgs) -> Result<Source> {
    source(path, args)
        .with_context(|| format!("open {}", text::of_host_path(path, "standard input")))
}

fn source(path: &Path, args: &SourceArgs) -> Result<Source> {
    let source = any_source(path, args)?;
    applies(args, source.btrfs.is_some())?;
    Ok(source)
}

fn applies(args: &SourceArgs, is_btrfs: bool) -> Result<()> {
    if !is_btrfs && (args.subvolume.is_some() || !args.device.is_empty()) {
        bail!("it is no btrfs image: --subvolume and --device do not apply");
    }
    Ok(())
}

/// Opens two sources. What only applies to btrfs images must apply to one of them.
///
/// # Errors
/// As for [`open`].
pub(crate) fn both(first: &Path, second: &Path, args: &SourceArgs) -> Result<(Source, Source)> {
    let name = |path| format!("open {}", text::of_host_path(path, "standard input"));
    let a = any_source(first, args).with_context(|| name(first))?;
    let b = any_source(second, args).with_context(|| name(second))?;
    applies(args, a.btrfs.is_some() || b.btrfs.is_some()).with_context(|| name(first))?;
    Ok((a, b))
}

fn any_source(path: &Path, args: &SourceArgs) -> Result<Source> {
    let mut file = if path == Path::new("-") {
        File::from(io::stdin().as_fd().try_clone_to_owned()?)
    } else {
        // A directory is opened by what reads it.
        match HostDir::open(path) {
            Ok(tree) => {
                let (tree, path) = (Arc::new(tree), path.to_owned());
                return Ok(Source {
                    tree,
                    path,
                    is_dir: true,
                    btrfs: None,
                    notes: Vec::new(),
                });
            }
            Err(Error::NotADirectory) => File::open(path)?,
            Err(error) => return Err(error.into()),
        }
    };
    // What can seek is read where it is. A pipe is kept in a file, as is what was read in part before us.
    let kind = file.metadata()?.file_type();
    let seeks = kind.is_file() && io::Seek::stream_position(&mut file)? == 0;
    let seeks = seeks || std::os::unix::fs::FileTypeExt::is_block_device(&kind);
    let mut start = Vec::new();
    if seeks {
        let len = ReadAt::size(&file)?.min(START_BYTES as u64);
        start.resize(len as usize, 0);
        ReadAt::read_exact_at(&file, &mut start, 0)?;
    } else {
        (&mut file)
            .take(START_BYTES as u64)
            .read_to_end(&mut start)?;
    }
    let found = match recognise(&start) {
        _ if args.image_at.is_some() && seeks => Found::Squashfs(image_at(&file, args.image_at)?),
        // Its first superblock is gone, and a copy is not.
        Found::Unknown if seeks && crate::btrfs_image::has_mark(&file)? => Found::Btrfs,
        // An AppImage is a program with an image behind it.
        Found::Unknown if seeks => match squashfs::find_image(&file)? {
            Some(offset) => Found::Squashfs(offset),
            None => Found::Unknown,
        },
        found => found,
    };
    let wrapper = match found {
        Found::Tar => None,
        Found::Wrapped(wrapper) => Some(wrapper),
        Found::Squashfs(offset) if seeks => {
            let image = Squashfs::open_at(file, offset, &Limits::default())?;
            return Ok(Source {
                tree: Arc::new(image),
                path: path.to_owned(),
                is_dir: false,
                btrfs: None,
                notes: Vec::new(),
            });
        }
        Found::Squashfs(_) => {
            bail!("it is a SquashFS image from a pipe: save it to a file first")
        }
        Found::Btrfs if seeks => {
            let (tree, notes) = crate::btrfs_image::subvolume(path, args)?;
            let tree = Arc::new(tree);
            return Ok(Source {
                tree: Arc::<Subvolume>::clone(&tree),
                path: path.to_owned(),
                is_dir: false,
                btrfs: Some(tree),
                notes,
            });
        }
        Found::Btrfs => bail!("it is a btrfs image from a pipe: save it to a file first"),
        Found::NotYet(what) => bail!("it is {what}, which this version cannot read yet"),
        Found::Compressed(what, program) => {
            let name = text::of_host_path(path, "FILE");
            bail!(
                "it is compressed with {what}: decompress it first, as in `{program} -dc {name} | restow copy - DST`"
            );
        }
        Found::Unknown if start.is_empty() => bail!("it is empty"),
        Found::Unknown => bail!("it is nothing that restow knows{}", beginning(&start)),
    };
    let spool = || {
        let spool = std::env::var_os("TMPDIR").filter(|dir| !dir.is_empty());
        PathBuf::from(spool.unwrap_or_else(|| SPOOL.into()))
    };
    // Where it can seek, what was read of it was not read in order.
    let read_before = if seeks { &[] } else { &*start };
    let mut all = read_before.chain(&mut file);
    let tar = if let Some(wrapper) = wrapper {
        let unpack = |out: &mut dyn io::Write| wrapper.decompress(&mut all, out);
        Tar::spooled(unpack, &spool(), Limits::default())
            .with_context(|| format!("unpack it with {}", wrapper.name()))?
    } else if seeks {
        Tar::open(Box::new(file), Limits::default())?
    } else {
        Tar::from_stream(&mut all, &spool(), Limits::default())?
    };
    let notes = notes(&tar);
    Ok(Source {
        tree: Arc::new(tar),
        path: path.to_owned(),
        is_dir: false,
        btrfs: None,
        notes,
    })
}

/// Whether a file is a btrfs image, and not a SquashFS image.
///
/// # Errors
/// It is neither, or cannot be read.
pub(crate) fn is_btrfs_image(path: &Path, at: Option<ImageAt>) -> Result<bool> {
    let open = || -> Result<bool> {
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            bail!("it is a directory, not an image");
        }
        if crate::btrfs_image::has_mark(&file)? {
            return Ok(true);
        }
        if at.is_some() || squashfs::find_image(&file)?.is_some() {
            return Ok(false);
        }
        let len = ReadAt::size(&file)?.min(START_BYTES as u64);
        let mut start = vec![0; len as usize];
        ReadAt::read_exact_at(&file, &mut start, 0)?;
        let what = match recognise(&start) {
            Found::Tar => "a tar archive",
            Found::Wrapped(wrapper) => {
                bail!("it is compressed with {}, and is no image", wrapper.name())
            }
            Found::Compressed(what, _) => bail!("it is compressed with {what}, and is no image"),
            Found::NotYet(what) => what,
            Found::Squashfs(_) | Found::Btrfs | Found::Unknown => {
                bail!(
                    "it is neither a SquashFS nor a btrfs image{}",
                    beginning(&start)
                )
            }
        };
        bail!("it is {what}, not an image");
    };
    open().with_context(|| format!("open {}", text::of_host_path(path, "standard input")))
}

/// How a file begins that is nothing that we know, for people.
fn beginning(start: &[u8]) -> String {
    if start.is_empty() {
        return " (it is empty)".to_owned();
    }
    let bytes: Vec<_> = start
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!(" (it begins with {})", bytes.join(" "))
}

/// Opens a SquashFS image, wherever in the file it is.
pub(crate) fn squashfs(path: &Path, args: &SourceArgs) -> Result<Squashfs> {
    let file = File::open(path)?;
    let offset = image_at(&file, args.image_at)?;
    Ok(Squashfs::open_at(file, offset, &Limits::default())?)
}

/// Where in a file an image begins: where the user says, or where images usually are.
fn image_at(file: &File, at: Option<ImageAt>) -> Result<u64> {
    let found = match at {
        Some(ImageAt::Byte(offset)) => return Ok(offset),
        Some(ImageAt::Search) => squashfs::search_image(file)?,
        None => squashfs::find_image(file)?,
    };
    found.context("it is no SquashFS image")
}

fn recognise(start: &[u8]) -> Found {
    let has = |at: usize, mark: &[u8]| start.get(at..).is_some_and(|rest| rest.starts_with(mark));
    if has(0, b"hsqs") {
        return Found::Squashfs(0);
    }
    if has(0x10040, b"_BHRfS_M") {
        return Found::Btrfs;
    }
    if has(0, b"btrfs-stream\0") {
        return Found::NotYet("a btrfs send stream");
    }
    // Before the marks of two and three bytes, which a file name in a tar may begin with.
    if Tar::recognises(start) {
        return Found::Tar;
    }
    if let Some(wrapper) = Wrapper::of(start) {
        return Found::Wrapped(wrapper);
    }
    for (mark, what, program) in [
        (&b"BZh"[..], "bzip2", "bzip2"),
        (b"\x04\x22\x4d\x18", "LZ4", "lz4"),
    ] {
        if has(0, mark) {
            return Found::Compressed(what, program);
        }
    }
    Found::Unknown
}

fn notes(tar: &Tar) -> Vec<String> {
    let notes = tar.notes();
    let mut words = Vec::new();
    let mut add = |number: u64, noun: &str, what: &str| {
        if number > 0 {
            words.push(format!("{} {what}", text::count(number, noun)));
        }
    };
    add(
        notes.absolute_paths,
        "path",
        "began with `/`, which is left out",
    );
    add(
        notes.replaced,
        "entry",
        "came again later in the archive; the later one counts",
    );
    add(
        notes.acls_not_read,
        "text access control list",
        "in the archive cannot be read",
    );
    words
}

impl Source {
    /// Shows all of a btrfs file system in place of its default subvolume.
    ///
    /// # Errors
    /// There is no top level.
    pub(crate) fn show_all(&mut self) -> Result<()> {
        if let Some(part) = &self.btrfs {
            let top = Arc::new(part.btrfs().subvolume(TOP_LEVEL)?);
            self.tree = Arc::<Subvolume>::clone(&top);
            self.btrfs = Some(top);
        }
        Ok(())
    }

    /// Names the place of an error in this source as the user knows it.
    pub(crate) fn name_error(&self, error: Error) -> anyhow::Error {
        let Error::File { verb, path, error } = error else {
            let name = text::of_host_path(&self.path, "standard input");
            return anyhow::Error::from(error).context(format!("read {name}"));
        };
        anyhow::Error::from(*error).context(format!("{verb} {}", self.name(&path)))
    }

    /// What a file in this source is called.
    pub(crate) fn name(&self, path: &[u8]) -> String {
        if self.is_dir {
            return text::of_name(
                self.path
                    .join(std::ffi::OsStr::from_bytes(path))
                    .as_os_str()
                    .as_bytes(),
            );
        }
        let source = text::of_host_path(&self.path, "standard input");
        if path.is_empty() {
            source
        } else {
            format!("{} in {source}", text::of_path(path))
        }
    }

    /// The file of that path in the tree, a leading `/` or not. Symbolic links on the way are followed within the tree,
    /// and the last one if `follow`.
    ///
    /// # Errors
    /// It is not there, or the tree cannot be read.
    pub(crate) fn find(&self, path: &[u8], follow: bool) -> Result<DirEntry> {
        find(&*self.tree, path, follow).map_err(|error| {
            anyhow::Error::from(error).context(format!("find {}", self.name(path)))
        })
    }
}

/// As [`Source::find`], in any tree.
pub(crate) fn find(tree: &dyn FileSystem, path: &[u8], follow: bool) -> tree::Result<DirEntry> {
    let root = DirEntry {
        name: Box::default(),
        ino: tree.root(),
        kind: FileKind::Directory,
    };
    // The directories from the root to where the walk is, and the names still to go, the next one last.
    let mut above = vec![root];
    let mut names: Vec<Vec<u8>> = path
        .split(|&b| b == b'/')
        .rev()
        .map(<[u8]>::to_vec)
        .collect();
    let mut followed = 0;
    while let Some(name) = names.pop() {
        match &*name {
            b"" | b"." => continue,
            b".." => {
                if above.len() > 1 {
                    above.pop();
                }
                continue;
            }
            _ => {}
        }
        let dir = above.last().expect("the root is never taken off");
        if dir.kind != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        let entry = tree.lookup(dir.ino, &name)?;
        if entry.kind != FileKind::Symlink || (names.is_empty() && !follow) {
            above.push(entry);
            continue;
        }
        followed += 1;
        if followed > SYMLINKS_MAX {
            return Err(Error::Limit("symbolic links followed for one path"));
        }
        let target = tree.read_link(entry.ino)?;
        if target.first() == Some(&b'/') {
            above.truncate(1);
        }
        names.extend(target.split(|&b| b == b'/').rev().map(<[u8]>::to_vec));
    }
    above.pop().ok_or(Error::NotFound)
}

/// That both arguments are standard input is a mistake that would hang.
///
/// # Errors
/// When it is so.
pub(crate) fn only_one_is_standard_input(a: &Path, b: &Path) -> Result<()> {
    if a == Path::new("-") && b == Path::new("-") {
        return Err(anyhow!("standard input cannot be both trees"));
    }
    Ok(())
}
