//! Sending subvolumes of unmounted images.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use btrfs::{Btrfs, Subvolume, SubvolumeInfo};
use sendstream::{
    Command, KnownSubvolume, SendData, SendOptions, StoredFiles, StreamWriter, Version,
};
use tree::{ExtentId, Ino, Inventory, Limits, Progress};

use super::nearest::{ParentCandidate, nearest};
use super::request::SendRequest;
use crate::error::{During, refuse};
use crate::{Address, Container, Error, OpenOptions, Result, find_subvolume, is_same_file, text};

/// An open subvolume of an image.
struct ImageSubvolume {
    typed: PathBuf,
    name: Vec<u8>,
    info: SubvolumeInfo,
    tree: Subvolume,
    files_max: Option<u64>,
}

/// The stored records of the files of a subvolume.
struct Stored<'a>(&'a Subvolume);

impl StoredFiles for Stored<'_> {
    fn names(&self, ino: Ino) -> tree::Result<Vec<(Ino, Box<[u8]>)>> {
        self.0.stored_names(ino)
    }

    fn flags(&self, ino: Ino) -> tree::Result<u64> {
        self.0.stored_flags(ino)
    }

    fn preallocated(&self, ino: Ino, offset: u64) -> tree::Result<Option<(ExtentId, u64, u64)>> {
        self.0.stored_preallocation(ino, offset)
    }
}

impl ImageSubvolume {
    fn typed(&self) -> String {
        text::of_host_path(&self.typed, "standard input")
    }

    /// The UUID by which a receiver knows it.
    fn known_uuid(&self) -> [u8; 16] {
        (self.info.received_uuid.or(self.info.uuid)).unwrap_or_default()
    }

    fn is(&self, other: &ImageSubvolume) -> bool {
        self.is_beside(other) && self.info.id == other.info.id
    }

    /// Whether both are of one image.
    fn is_beside(&self, other: &ImageSubvolume) -> bool {
        Arc::ptr_eq(self.tree.btrfs(), other.tree.btrfs())
    }

    /// Its files, if they fit in the memory.
    fn inventory(&self) -> Result<Inventory<'_>> {
        let mut limits = Limits::default();
        let files_max = self.files_max.unwrap_or(u64::MAX);
        limits.inodes_max = limits.inodes_max.min(files_max);
        Inventory::of(&self.tree, &limits).or_else(|error| match &error {
            tree::Error::File { error: cause, .. }
                if matches!(**cause, tree::Error::Limit("too many files"))
                    && self.files_max.is_some() =>
            {
                Err(error).during(|| format!("--memory has room for {files_max} files"))
            }
            _ => Err(error.into()),
        })
    }
}

/// A subvolume that the receiver has.
struct ReceiverSubvolume<'a> {
    sent: &'a ImageSubvolume,
    stored: Stored<'a>,
    inventory: Inventory<'a>,
}

impl ReceiverSubvolume<'_> {
    fn of(sent: &ImageSubvolume) -> Result<ReceiverSubvolume<'_>> {
        let inventory = sent.inventory();
        Ok(ReceiverSubvolume {
            sent,
            stored: Stored(&sent.tree),
            inventory: inventory.during(|| format!("read {}", sent.typed()))?,
        })
    }

    fn subvolume(&self) -> KnownSubvolume<'_> {
        KnownSubvolume {
            inventory: &self.inventory,
            stored: &self.stored,
            uuid: self.sent.known_uuid(),
            ctransid: self.sent.info.ctransid,
        }
    }
}

/// The images that are open, each once.
#[derive(Default)]
struct OpenImages(Vec<(PathBuf, Arc<Btrfs>)>);

/// The subvolumes to send, and those that the receiver has.
pub(super) struct ImageSender {
    subvolumes: Vec<ImageSubvolume>,
    parent: Option<ImageSubvolume>,
    sources: Vec<ImageSubvolume>,
}

impl ImageSender {
    pub(super) fn open(request: &SendRequest) -> Result<ImageSender> {
        let mut images = OpenImages::default();
        let mut open = |verb: &str, typed: &PathBuf| {
            let name = || format!("{verb} {}", text::of_host_path(typed, "standard input"));
            open_subvolume(typed, request, &mut images).during(name)
        };
        let subvolumes = request.subvolumes.iter();
        let subvolumes = subvolumes.map(|typed| open("send", typed));
        let subvolumes: Vec<ImageSubvolume> = subvolumes.collect::<Result<_>>()?;
        let parent = (request.parent.iter().map(|typed| open("build on", typed))).next();
        let parent = parent.transpose()?;
        let sources = request.clone_sources.iter();
        let sources = sources.map(|typed| open("clone from", typed));
        let sources: Vec<ImageSubvolume> = sources.collect::<Result<_>>()?;
        for sent in &subvolumes {
            refuse_known(sent, parent.as_ref(), &sources)?;
        }
        Ok(ImageSender {
            subvolumes,
            parent,
            sources,
        })
    }

    /// Sends everything, and calls `on_subvolume` with the name of each subvolume.
    pub(super) fn write<W: Write>(
        &self,
        request: &SendRequest,
        no_data: bool,
        on_subvolume: &dyn Fn(&str),
        progress: &dyn Progress,
        writer: &mut StreamWriter<W>,
    ) -> Result<()> {
        let data = match (no_data, request.compressed_data) {
            (true, _) => SendData::Nothing,
            (false, true) => SendData::AsStored,
            (false, false) => SendData::Plain,
        };
        let chooses_parent = self.parent.is_none() && !self.sources.is_empty();
        let mut known: Vec<ReceiverSubvolume<'_>> = Vec::new();
        for sent in self.parent.iter().chain(&self.sources) {
            add(&mut known, sent)?;
        }
        for (turn, sent) in self.subvolumes.iter().enumerate() {
            let name = sent.typed();
            on_subvolume(&name);
            let base = match &self.parent {
                Some(parent) => Some(parent),
                None if !chooses_parent => None,
                None => Some(nearest_of(sent, &known).during(|| format!("send {name}"))?),
            };
            // The parent comes first.
            let mut others: Vec<KnownSubvolume<'_>> = Vec::new();
            for known in &known {
                if base.is_some_and(|base| known.sent.is(base)) {
                    others.insert(0, known.subvolume());
                } else if !known.sent.is(sent) {
                    others.push(known.subvolume());
                }
            }
            let inventory = sent.inventory().during(|| format!("send {name}"))?;
            if turn == 0 || !request.one_stream {
                writer.header()?;
            }
            let done = send_one((sent, &inventory), data, &others, progress, writer);
            done.during(|| format!("send {name}"))?;
            if turn + 1 == self.subvolumes.len() || !request.one_stream {
                writer.command(&Command::End)?;
            }
            // As `btrfs send` does: with -c and without -p, the next one can be built on it.
            if chooses_parent {
                add(&mut known, sent)?;
            }
        }
        Ok(())
    }
}

/// Sends a subvolume; if there are `known` ones, as changes of the first of these.
fn send_one<W: Write>(
    (sent, inventory): (&ImageSubvolume, &Inventory<'_>),
    data: SendData,
    known: &[KnownSubvolume<'_>],
    progress: &dyn Progress,
    writer: &mut StreamWriter<W>,
) -> tree::Result<()> {
    let stored = Stored(&sent.tree);
    let options = SendOptions::new(&sent.name)
        .uuid(sent.known_uuid())
        .ctransid(sent.info.ctransid)
        .data(data)
        .sector_bytes(sent.tree.btrfs().superblock().sectorsize)
        .stored(Some(&stored));
    match known {
        [] => sendstream::send(inventory, &options, progress, writer)?,
        [parent, sources @ ..] => {
            sendstream::send_changes(inventory, parent, sources, &options, progress, writer)?
        }
    };
    Ok(())
}

/// Refuses a parent and sources of clones that cannot be those of a subvolume.
fn refuse_known(
    sent: &ImageSubvolume,
    parent: Option<&ImageSubvolume>,
    sources: &[ImageSubvolume],
) -> Result<()> {
    let name = sent.typed();
    for known in parent.into_iter().chain(sources) {
        if !sent.is_beside(known) {
            let known = known.typed();
            refuse!("send {name}: {known} is in another image, and both must be in one");
        }
    }
    if let Some(parent) = parent.filter(|parent| sent.is(parent)) {
        refuse!("send {name}: {} is the subvolume itself", parent.typed());
    }
    Ok(())
}

/// Adds a subvolume to those that the receiver has, unless it is one of them.
fn add<'a>(known: &mut Vec<ReceiverSubvolume<'a>>, sent: &'a ImageSubvolume) -> Result<()> {
    if !known.iter().any(|known| known.sent.is(sent)) {
        known.push(ReceiverSubvolume::of(sent)?);
    }
    Ok(())
}

/// The clone source that becomes the parent.
fn nearest_of<'a>(
    sent: &ImageSubvolume,
    sources: &[ReceiverSubvolume<'a>],
) -> Result<&'a ImageSubvolume> {
    let candidate = |info: &SubvolumeInfo| ParentCandidate {
        uuid: info.uuid,
        parent_uuid: info.parent_uuid,
        ctransid: info.ctransid,
    };
    let all = sent.tree.btrfs().subvolumes()?;
    let origin = sent.info.parent_uuid;
    let origin = all
        .iter()
        .find(|info| origin.is_some() && info.uuid == origin);
    let sources: Vec<&ImageSubvolume> = sources.iter().map(|known| known.sent).collect();
    let candidates: Vec<_> = sources.iter().map(|it| candidate(&it.info)).collect();
    Ok(sources[nearest(origin.map(candidate), &candidates)?])
}

/// The version of the stream.
///
/// # Errors
/// There is no such version, or it cannot hold compressed data.
pub(super) fn version(request: &SendRequest) -> Result<Version> {
    match (request.version, request.compressed_data) {
        (Some(1), true) => refuse!("--compressed-data needs version 2 of streams, not 1"),
        (Some(1) | None, false) => Ok(Version::V1),
        (Some(0 | 2) | None, _) => Ok(Version::V2),
        (Some(number), _) => refuse!("version {number} of streams cannot be sent, only 1 and 2"),
    }
}

impl OpenImages {
    /// Opens an image, or takes it if it is open.
    fn open(&mut self, path: &Path, request: &SendRequest) -> Result<Arc<Btrfs>> {
        if let Some((_, btrfs)) = self.0.iter().find(|(open, _)| is_same_file(open, path)) {
            return Ok(Arc::clone(btrfs));
        }
        let options = OpenOptions {
            devices: request.devices.clone(),
            remote: request.remote.clone(),
            ..OpenOptions::default()
        };
        let file = match Container::open(path, &options)? {
            Container::Btrfs(file) => file,
            Container::Directory(_) => {
                refuse!("a directory, while the subvolume to send is in an image")
            }
            other => refuse!("{} has no subvolumes to send", other.noun()),
        };
        let btrfs = file.open_btrfs(&options)?;
        self.0.push((path.to_owned(), Arc::clone(&btrfs)));
        Ok(btrfs)
    }
}

/// Opens a subvolume, if it can be sent.
fn open_subvolume(
    typed: &Path,
    request: &SendRequest,
    images: &mut OpenImages,
) -> Result<ImageSubvolume> {
    let address = Address::of(typed)?;
    address.refuse_container_image()?;
    let btrfs = images.open(&address.path, request)?;
    let wanted = address.subvolume.as_ref();
    let wanted = wanted.ok_or_else(|| {
        Error::refused("name a subvolume, as in IMAGE:SUBVOL; `restow info` lists them")
    })?;
    let id = find_subvolume(&btrfs, wanted, &address.path)?;
    if btrfs.is_logged(id)? {
        refuse!(
            "the image was not unmounted cleanly, and its log holds later changes of the subvolume; mount and unmount it first"
        );
    }
    let info = btrfs.subvolumes()?.into_iter().find(|info| info.id == id);
    let info =
        info.ok_or_else(|| Error::refused("the subvolume is not in the list of subvolumes"))?;
    let path = info.path.as_deref().unwrap_or_default();
    let name = path.rsplit(|&byte| byte == b'/').next();
    let name = name.unwrap_or_default().to_vec();
    if name.is_empty() {
        refuse!(
            "the top level of a file system has no name and cannot be sent; `restow copy IMAGE x.stream` makes a full stream of its files"
        );
    }
    if !info.is_read_only {
        refuse!(
            "the subvolume is not read-only; `btrfs property set SUBVOL ro true` makes it so while it is mounted"
        );
    }
    let tree = Arc::clone(&btrfs).subvolume(id)?.without_nested();
    Ok(ImageSubvolume {
        typed: typed.to_owned(),
        name,
        info,
        tree,
        files_max: request.files_max,
    })
}
