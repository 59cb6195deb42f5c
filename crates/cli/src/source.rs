//! A source: a tree to read, and the name that it has for the user.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use btrfs::{Btrfs, OpenOptions, Subvolume, object};
use squashfs::Squashfs;
use tree::tar::Tar;
use tree::{ByPath, DirEntry, Error, FileSystem, HostDir, HostTimes};

use crate::address::Address;
use crate::open::{self, Container, FoundPartition};
use crate::options::SourceArgs;
use crate::sent;
use crate::text;

/// The context of an error: what was being done to a file of the source that the rest of it can do without.
#[derive(Debug)]
pub(crate) struct Unreadable(String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The note of [`Source::with_stored_extents`] without privilege.
pub(crate) const DECOMPRESSED: &str =
    "compressed data on btrfs is read decompressed; only root can read it as it is stored";

/// A tree to read, with the name that it has for the user.
pub(crate) struct Source {
    pub(crate) tree: Arc<dyn FileSystem>,
    name: String,
    /// The path, if it is a directory of the host.
    dir: Option<PathBuf>,
    /// Whether a directory of the host is read without what is mounted in it.
    one_file_system: bool,
    /// The subvolume, if it is one.
    pub(crate) subvolume: Option<Arc<Subvolume>>,
    /// The directory of the host, if its stored extents are read.
    pub(crate) stored_dir: Option<Arc<HostDir>>,
    /// The image, if it is a SquashFS image.
    pub(crate) squashfs: Option<Arc<Squashfs>>,
    is_stream: bool,
    /// Messages about what is special about it.
    pub(crate) notes: Vec<String>,
    /// Messages about what in it is not read, and so is in no copy.
    pub(crate) lost: Vec<String>,
    /// The tree, if it is a directory of the host whose changes are accepted.
    changing: Option<Arc<HostDir>>,
}

/// The subvolume that is read if the user names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unnamed {
    /// The one that Linux mounts if none is named.
    Default,
    TopLevel,
}

/// How a source is opened.
#[derive(Clone, Copy)]
struct Opening {
    unnamed: Unnamed,
    /// Further devices may belong to another source.
    ignores_foreign: bool,
}

impl Source {
    /// Opens the tree at an address.
    ///
    /// # Errors
    /// It cannot be opened or read, or options do not apply to it.
    pub(crate) fn open(address: &Address, args: &SourceArgs, unnamed: Unnamed) -> Result<Source> {
        let open = || -> Result<Source> {
            let how = Opening {
                unnamed,
                ignores_foreign: false,
            };
            let source = Source::open_any(address, args, how)?;
            if args.one_file_system && source.dir.is_none() {
                bail!("not a directory: --one-file-system does not apply");
            }
            if source.subvolume.is_none() {
                if args.ignore_checksums {
                    bail!("not a btrfs image: option ignore_checksums does not apply");
                }
                args.refuse_options_of_btrfs()?;
            } else if address.subvolume.is_some() {
                args.refuse_subvolume()?;
            }
            Ok(source)
        };
        open().with_context(|| format!("open {}", address.name()))
    }

    /// Opens two trees. An option for btrfs images must apply to one of them.
    ///
    /// # Errors
    /// As for [`Source::open`].
    pub(crate) fn open_both(
        addresses: [&Address; 2],
        args: &SourceArgs,
    ) -> Result<(Source, Source)> {
        // Each further device belongs to one of the images.
        let how = Opening {
            unnamed: Unnamed::Default,
            ignores_foreign: true,
        };
        let open = |address: &Address| {
            Source::open_any(address, args, how).with_context(|| format!("open {}", address.name()))
        };
        let first = open(addresses[0])?;
        // What is opened once is one store: what two subvolumes of it share is known to be the same.
        let shared = first.subvolume.as_ref().map(|tree| tree.btrfs());
        let second = match shared.filter(|_| is_same_file(&addresses[0].path, &addresses[1].path)) {
            Some(btrfs) => Source::of_btrfs(btrfs, addresses[1], args, how)
                .with_context(|| format!("open {}", addresses[1].name()))?,
            None => open(addresses[1])?,
        };
        let sources = (first, second);
        let both = [(addresses[0], &sources.0), (addresses[1], &sources.1)];
        let images = both.iter().filter(|(_, source)| source.subvolume.is_some());
        let images: Vec<&Address> = images.map(|(address, _)| *address).collect();
        if images.is_empty() {
            args.refuse_options_of_btrfs()?;
        } else if images.iter().all(|address| address.subvolume.is_some()) {
            args.refuse_subvolume()?;
        }
        let subvolumes = both
            .iter()
            .filter_map(|(_, source)| source.subvolume.as_ref());
        let opened: Vec<Arc<Btrfs>> = subvolumes.map(|tree| Arc::clone(tree.btrfs())).collect();
        open::check_devices(&args.file.device, &opened)?;
        Ok(sources)
    }

    /// Opens a tree beside others, to which options for other formats may apply.
    ///
    /// # Errors
    /// It cannot be opened or read.
    pub(crate) fn open_further(
        address: &Address,
        args: &SourceArgs,
        accepts_changes: bool,
    ) -> Result<Source> {
        let how = Opening {
            unnamed: Unnamed::Default,
            ignores_foreign: true,
        };
        let open = || format!("open {}", address.name());
        let source = Source::open_any(address, args, how).with_context(open)?;
        let accepts_changes = accepts_changes && source.dir.is_some();
        source.reading(HostTimes::default(), accepts_changes)
    }

    /// A directory of the host.
    pub(crate) fn of_dir(address: &Address, dir: HostDir) -> Source {
        Source {
            tree: Arc::new(dir),
            name: address.name(),
            dir: Some(address.path.clone()),
            one_file_system: false,
            subvolume: None,
            stored_dir: None,
            squashfs: None,
            is_stream: false,
            notes: Vec::new(),
            lost: Vec::new(),
            changing: None,
        }
    }

    /// A view of this source and others. What is known about them stays known.
    pub(crate) fn joined(mut self, tree: Arc<dyn FileSystem>, others: Vec<Source>) -> Source {
        for other in others {
            self.name += &format!(" with {}", other.name);
            self.notes.extend(other.notes);
            self.lost.extend(other.lost);
        }
        Source {
            tree,
            dir: None,
            subvolume: None,
            stored_dir: None,
            squashfs: None,
            is_stream: false,
            ..self
        }
    }

    fn open_any(address: &Address, args: &SourceArgs, how: Opening) -> Result<Source> {
        let container = Container::open(&address.path, args.file.image_at)?;
        let has_subvolumes = matches!(container, Container::Btrfs(_) | Container::SendStream(_));
        if address.subvolume.is_some() && !has_subvolumes {
            let path = text::of_host_path(&address.path, "standard input");
            bail!("{path} is {}, which has no subvolumes", container.noun());
        }
        let source = |tree| Source {
            tree,
            name: address.name(),
            dir: None,
            one_file_system: args.one_file_system,
            subvolume: None,
            stored_dir: None,
            squashfs: None,
            is_stream: false,
            notes: Vec::new(),
            lost: Vec::new(),
            changing: None,
        };
        let tar = match container {
            Container::Directory(dir) => {
                let dir = if args.one_file_system {
                    dir.on_one_file_system()?
                } else {
                    *dir
                };
                return Ok(Source {
                    dir: Some(address.path.clone()),
                    ..source(Arc::new(dir))
                });
            }
            Container::Squashfs(file, at) => {
                let image = Arc::new(open::open_squashfs(file, at)?);
                return Ok(Source {
                    squashfs: Some(Arc::clone(&image)),
                    ..source(image)
                });
            }
            Container::Btrfs(file) => {
                let options = OpenOptions {
                    ignores_foreign: how.ignores_foreign,
                    ..args.open_options()
                };
                let btrfs = open::open_btrfs(file, &args.file.device, &options)?;
                return Source::of_btrfs(&btrfs, address, args, how);
            }
            Container::Disk(partitions) => bail!(disk(&partitions)),
            Container::SendStream(stream) => {
                let sent = sent::open(stream, address, args)?;
                return Ok(Source {
                    notes: sent.notes,
                    lost: sent.lost,
                    is_stream: true,
                    ..source(sent.tree)
                });
            }
            Container::Tar(stream) => stream.open_tar(args.ignore_zeros)?,
            Container::CompressedTar(wrapper, stream) => {
                stream.open_compressed_tar(wrapper, args.ignore_zeros)?
            }
        };
        Ok(Source {
            notes: notes(&tar),
            lost: lost(&tar),
            ..source(Arc::new(tar))
        })
    }

    /// A subvolume of an open image.
    fn of_btrfs(
        btrfs: &Arc<Btrfs>,
        address: &Address,
        args: &SourceArgs,
        how: Opening,
    ) -> Result<Source> {
        let tree = Arc::new(open_subvolume(btrfs, address, args, how.unnamed)?);
        let mut notes = Vec::new();
        if btrfs.has_log() && !args.no_log && args.older_root.is_none() {
            notes.push(
                "the image was not unmounted cleanly; what its log has is read, too".to_owned(),
            );
        }
        Ok(Source {
            tree: Arc::<Subvolume>::clone(&tree),
            name: address.name(),
            dir: None,
            one_file_system: false,
            subvolume: Some(tree),
            stored_dir: None,
            squashfs: None,
            is_stream: false,
            notes,
            lost: Vec::new(),
            changing: None,
        })
    }

    /// The same source; if it is a directory on btrfs, with the extents that are stored there, so that compressed ones can be copied
    /// as they are. Without privilege, it stays as it is, and there is a note.
    ///
    /// # Errors
    /// It cannot be opened again.
    pub(crate) fn with_stored_extents(mut self, times: HostTimes) -> Result<Source> {
        let Some(dir) = &self.dir else {
            return Ok(self);
        };
        let open = || format!("open {}", self.name);
        let tree = self.open_dir(dir, times).with_context(open)?;
        match tree.with_stored_extents() {
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.notes.push(DECOMPRESSED.to_owned());
            }
            tree => {
                let tree = Arc::new(tree.with_context(open)?);
                self.stored_dir = Some(Arc::clone(&tree));
                self.tree = tree;
            }
        }
        Ok(self)
    }

    /// The same source, if it is a directory of the host with these times of its files. With `accepts_changes`, which applies
    /// only to such a directory, files that change while they are read are no error.
    ///
    /// # Errors
    /// It is not a directory and has to accept changes, or it cannot be opened again.
    pub(crate) fn reading(self, times: HostTimes, accepts_changes: bool) -> Result<Source> {
        let Some(dir) = &self.dir else {
            if accepts_changes {
                bail!("--accept-changed applies to directories only");
            }
            return Ok(self);
        };
        let open = || format!("open {}", self.name);
        let tree = self.open_dir(dir, times).with_context(open)?;
        if !accepts_changes {
            let tree = Arc::new(tree);
            return Ok(Source { tree, ..self });
        }
        let tree = Arc::new(tree.accepting_changes());
        Ok(Source {
            changing: Some(Arc::clone(&tree)),
            tree,
            ..self
        })
    }

    /// The directory of the host again, with these times.
    fn open_dir(&self, dir: &Path, times: HostTimes) -> tree::Result<HostDir> {
        let dir = HostDir::open_with(dir, times)?;
        if self.one_file_system {
            return dir.on_one_file_system();
        }
        Ok(dir)
    }

    /// The directory of the host that it is, as the user named it.
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// The files that have changed while they were read, as far as that is accepted.
    pub(crate) fn changed(&self) -> Vec<Vec<u8>> {
        let changed = self.changing.as_ref().map(|tree| tree.changed());
        changed.unwrap_or_default()
    }

    /// Names the place of an error in this source as the user knows it.
    pub(crate) fn name_error(&self, error: Error) -> anyhow::Error {
        let Error::File { verb, path, error } = error else {
            return anyhow::Error::from(error).context(format!("read {}", self.name));
        };
        let words = format!("{verb} {}", self.path_name(&path));
        let can_be_skipped = verb == "read" && !path.is_empty();
        let is_of_file = matches!(*error, Error::Io(_) | Error::Corrupt(_));
        let error = anyhow::Error::from(*error);
        if can_be_skipped && is_of_file {
            error.context(Unreadable(words))
        } else {
            error.context(words)
        }
    }

    /// Whether it is a send stream.
    pub(crate) fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// The source itself, as the user named it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A file in this source, in words.
    pub(crate) fn path_name(&self, path: &[u8]) -> String {
        if let Some(dir) = &self.dir {
            return text::of_name(dir.join(OsStr::from_bytes(path)).as_os_str().as_bytes());
        }
        if path.is_empty() {
            self.name.clone()
        } else {
            format!("{} in {}", text::of_path(path), self.name)
        }
    }

    /// The file with that path, with or without a leading `/`. Symbolic links are followed within the tree; the last
    /// one only if `follow`.
    ///
    /// # Errors
    /// There is no such file, or the tree cannot be read.
    pub(crate) fn find(&self, path: &[u8], follow: bool) -> Result<DirEntry> {
        let found = if follow {
            self.tree.find(path)
        } else {
            self.tree.find_no_follow(path)
        };
        found.map_err(|error| {
            anyhow::Error::from(error).context(format!("find {}", self.path_name(path)))
        })
    }
}

/// Which partition of a disk image may be meant.
fn disk(partitions: &[FoundPartition]) -> String {
    let readable = partitions.iter().find(|found| found.format.is_some());
    let hint = match readable {
        Some(FoundPartition { partition, format }) => {
            let (number, format) = (partition.number, format.unwrap_or_default());
            format!("`--image-at partition:{number}` reads the first with an image, of {format}")
        }
        None => "no partition holds a SquashFS or btrfs image".to_owned(),
    };
    let count = text::count(partitions.len() as u64, "partition");
    format!("a disk image with {count}, which `restow info` lists; {hint}")
}

/// Whether two paths lead to one file.
pub(crate) fn is_same_file(first: &Path, second: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino()));
    matches!((identity(first), identity(second)), (Ok(first), Ok(second)) if first == second)
}

/// The number of the subvolume that the address or the options name, if they name one.
///
/// # Errors
/// There is no such subvolume, or the image cannot be read.
pub(crate) fn named_subvolume(
    btrfs: &Arc<Btrfs>,
    address: &Address,
    args: &SourceArgs,
) -> Result<Option<u64>> {
    let Some(wanted) = address.subvolume.as_ref().or(args.subvolume.as_ref()) else {
        return Ok(None);
    };
    replay(btrfs)?;
    find_subvolume(btrfs, wanted, &address.path).map(Some)
}

/// The number of the subvolume with this path or number.
///
/// # Errors
/// There is no such subvolume, or the image cannot be read.
pub(crate) fn find_subvolume(btrfs: &Arc<Btrfs>, wanted: &OsString, image: &Path) -> Result<u64> {
    let id = match number(wanted) {
        Some(id) => Ok(id),
        None => btrfs.find_subvolume(wanted.as_bytes()),
    };
    match id.and_then(|id| btrfs.subvolume(id).map(|_| id)) {
        Ok(id) => Ok(id),
        Err(Error::NotFound | Error::NotADirectory | Error::InvalidInput(_)) => {
            let wanted = text::of_name(wanted.as_bytes());
            let image = text::of_host_path(image, "-");
            bail!("no subvolume {wanted}; `restow info {image}` lists the subvolumes")
        }
        Err(error) => {
            let wanted = text::of_name(wanted.as_bytes());
            Err(error).with_context(|| format!("find subvolume {wanted}"))
        }
    }
}

/// The subvolume that the address or the options name, otherwise the one that `unnamed` says.
///
/// # Errors
/// As for [`named_subvolume`].
pub(crate) fn open_subvolume(
    btrfs: &Arc<Btrfs>,
    address: &Address,
    args: &SourceArgs,
    unnamed: Unnamed,
) -> Result<Subvolume> {
    let id = match named_subvolume(btrfs, address, args)? {
        Some(id) => id,
        None if unnamed == Unnamed::TopLevel => object::FS_TREE,
        None => btrfs.default_subvolume()?,
    };
    replay(btrfs)?;
    let mut subvolume = btrfs.subvolume(id)?;
    if args.ignore_checksums {
        subvolume = subvolume.ignoring_checksums();
    }
    Ok(if args.no_nested {
        subvolume.without_nested()
    } else {
        subvolume
    })
}

/// Replays the log of an image that was not unmounted cleanly.
fn replay(btrfs: &Btrfs) -> Result<()> {
    let replayed = btrfs.replay();
    replayed.context("replay its log (--no-log reads the last commit without it)")
}

/// A subvolume's number, which has nothing but digits; a path that has nothing else begins with `/`.
fn number(wanted: &OsString) -> Option<u64> {
    let digits = wanted.to_str()?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}

fn notes(tar: &Tar) -> Vec<String> {
    let notes = tar.notes();
    let mut words = Vec::new();
    let mut add = |number: u64, noun: &str, plural: &str, what: &str| match number {
        0 => {}
        1 => words.push(format!("1 {noun} {what}")),
        _ => words.push(format!("{number} {plural} {what}")),
    };
    add(
        notes.absolute_paths,
        "path",
        "paths",
        "had a leading `/`, which was removed",
    );
    add(
        notes.replaced,
        "entry",
        "entries",
        "replaced by a later one with the same path",
    );
    words
}

fn lost(tar: &Tar) -> Vec<String> {
    match tar.notes().acls_not_read {
        0 => Vec::new(),
        1 => vec!["1 text access control list cannot be read".to_owned()],
        number => vec![format!("{number} text access control lists cannot be read")],
    }
}
