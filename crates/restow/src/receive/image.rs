//! Receiving into a btrfs image that is not mounted: a new image with the subvolumes of the old one
//! and of the stream takes its place.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use btrfs::{
    Btrfs, CreateSummary, NewSubvolume, Options, Profile, Rule, Subvolume, SubvolumeInfo,
    block_group, compat_ro, incompat, object,
};
use sendstream::{
    Event, OtherTransaction, ParentState, Replay, SentSubvolume, SentTree, StreamReader,
    StreamWriter, VerifyOptions, Version,
};
use tree::edit::Patterns;
use tree::{
    FileKind, FileSystem, Graft, Ino, Inventory, Joined, Limits, Output, Progress, ReadAt, Scratch,
    SequentialReader, Time, Verify,
};

use super::needed::{BaseSubvolume, needed};
use super::{ReceiveEvent, ReceiveLoss, ReceiveOptions};
use crate::container::ImageRange;
use crate::error::{During, refuse};
use crate::{Address, Container, Error, Input, OpenOptions, Result, find_subvolume, text};

/// The image that the subvolumes are received into.
struct ImageTarget {
    /// Where the new image goes.
    path: PathBuf,
    /// The directory for new subvolumes, as a path in the image.
    dir: Vec<u8>,
    /// The existing file.
    old: Option<ExistingImage>,
}

/// The existing image.
struct ExistingImage {
    btrfs: Arc<Btrfs>,
    top: Arc<Subvolume>,
    subvolumes: Vec<SubvolumeInfo>,
}

/// A stream and the image that will hold its subvolumes.
pub struct ImageReceiver {
    target: ImageTarget,
    options: ReceiveOptions,
    stream: Arc<dyn ReadAt>,
    /// The stream in words.
    source: String,
    scratch: Scratch,
    /// Knows the parents and clone sources of the stream.
    replay: Replay,
    other_transactions: Vec<OtherTransaction>,
}

/// A new image.
#[derive(Debug)]
#[non_exhaustive]
pub struct ImageReceived {
    /// Properties of the subvolumes that the image lacks.
    pub losses: Vec<ReceiveLoss>,
    /// The image.
    pub summary: CreateSummary,
    /// The bytes of the older image, if there was one.
    pub old_bytes: Option<u64>,
}

impl ImageReceiver {
    /// Opens a stream, and the image that it is received into: a file, or an address such as
    /// `disk.btrfs:backups` for a directory in it. An image that does not exist is made.
    ///
    /// # Errors
    /// The stream is damaged, its parent is missing or was changed, or the image cannot be read or
    /// has features that a new one would not have.
    pub fn open(stream: Input, image: &Path, options: ReceiveOptions) -> Result<ImageReceiver> {
        refuse_options(&options)?;
        let target = ImageTarget::open(image)?;
        let source = stream.name();
        let read = || format!("read {source}");
        if stream.metadata().is_some_and(fs::Metadata::is_dir) {
            refuse!("{}: not a send stream", read());
        }
        let stream = if options.stream.stops_at_end {
            first_stream(stream, &options.spool_dir).during(read)?
        } else {
            let opened = Container::of(stream, &OpenOptions::default());
            let opened = opened.during(|| format!("open {source}"))?;
            let Container::SendStream(stream) = opened else {
                refuse!("{}: not a send stream", read());
            };
            stream.into_bytes(&options.spool_dir).during(read)?
        };
        let scratch = target.scratch();
        let mut replay = Replay::in_scratch(scratch.clone());
        let mut other_transactions = Vec::new();
        let mut add_bases = || -> Result<()> {
            for base in needed(&stream)? {
                let BaseSubvolume { uuid, ctransid, .. } = base;
                // Another subvolume that is nested in it is not part of a snapshot.
                let (tree, other) = target.base(&base, &options)?;
                other_transactions.extend(other);
                let tree = tree.without_nested();
                replay.know(uuid, Some(ctransid), Arc::new(tree));
            }
            Ok(())
        };
        add_bases().during(read)?;
        Ok(ImageReceiver {
            target,
            options,
            stream,
            source,
            scratch,
            replay,
            other_transactions,
        })
    }

    /// The length of the stream in bytes.
    pub fn stream_bytes(&self) -> Option<u64> {
        self.stream.size().ok()
    }

    /// Whether the image was not unmounted cleanly. Its log is kept, too.
    pub fn has_log(&self) -> bool {
        (self.target.old.as_ref()).is_some_and(|old| old.btrfs.has_log())
    }

    /// Verifies the stream, unless the options say otherwise.
    ///
    /// # Errors
    /// The stream is damaged.
    pub fn verify(&self, progress: &dyn Progress) -> Result<()> {
        if self.options.verify {
            let input = SequentialReader::new(Arc::clone(&self.stream));
            let options = VerifyOptions::default();
            sendstream::verify(input, options, self.options.parallel, progress)
                .during(|| format!("read {}", self.source))?;
        }
        Ok(())
    }

    /// Makes a new image with the subvolumes of the old one and of the stream, and puts it in place
    /// of the old one.
    ///
    /// # Errors
    /// The stream is damaged, or the image cannot be written. The old image is as it was.
    pub fn receive(
        mut self,
        progress: &dyn Progress,
        on_event: &mut dyn FnMut(&ReceiveEvent<'_>),
    ) -> Result<ImageReceived> {
        let added = self.replay.add(Arc::clone(&self.stream));
        added.during(|| format!("read {}", self.source))?;
        let received = self.replay.subvolumes();
        for other in &self.other_transactions {
            on_event(&ReceiveEvent::Stream(&Event::OtherTransaction(other)));
        }
        let mut losses = Vec::new();
        for subvolume in received {
            let event = Event::Subvolume(subvolume.sent());
            on_event(&ReceiveEvent::Stream(&event));
            if subvolume.verity_files() > 0 {
                losses.push(ReceiveLoss::Verity {
                    subvolume: text::of_name(&subvolume.sent().name),
                    files: subvolume.verity_files(),
                });
            }
        }
        let (target, options) = (&self.target, &self.options);
        let summary = Scratch::catch(|| target.write(options, received, &self.scratch, progress))?;
        let lost_xattrs = summary.image.lost_xattrs.iter();
        losses.extend(lost_xattrs.map(|(path, name)| ReceiveLoss::Xattr {
            path: path.clone(),
            name: name.clone(),
        }));
        let old = target.old.as_ref();
        Ok(ImageReceived {
            losses,
            summary,
            old_bytes: old.map(|old| old.btrfs.superblock().device.total_bytes),
        })
    }
}

fn refuse_options(options: &ReceiveOptions) -> Result<()> {
    if options.stream.decompresses {
        refuse!(
            "--force-decompress needs a mounted btrfs; `restow stream convert --decompress` decompresses a stream"
        );
    }
    if options.stream.keeps {
        refuse!("--keep needs a mounted btrfs: an image is whole, or as it was before");
    }
    Ok(())
}

/// The first stream of an input. Nothing behind it is read from a pipe.
fn first_stream(input: Input, spool_dir: &Path) -> Result<Arc<dyn ReadAt>> {
    if let Some(bytes) = input.seekable() {
        let mut reader = StreamReader::new(SequentialReader::new(Arc::clone(bytes)));
        reader.next_stream()?;
        while reader.next_command()?.is_some() {}
        let range = ImageRange::of(&input, bytes, 0, reader.position())?;
        return Ok(Arc::new(range));
    }
    let mut reader = StreamReader::new(input.into_reader()).exactly();
    let version = reader.next_stream()?.unwrap_or(Version::V1);
    let mut damage = None;
    let copy = |out: &mut dyn Write| {
        let mut writer = StreamWriter::new(out, version);
        let mut copy_all = || -> tree::Result<()> {
            writer.header()?;
            while let Some(record) = reader.next_command()? {
                writer.copy(record.bytes)?;
            }
            Ok(())
        };
        match copy_all() {
            Err(tree::Error::Io(error)) => return Err(error),
            copied => damage = copied.err(),
        }
        Ok(writer.position())
    };
    let spooled = tree::spool(copy, spool_dir)?;
    match damage {
        Some(error) => Err(error.into()),
        None => Ok(Arc::new(spooled)),
    }
}

impl ImageTarget {
    fn open(typed: &Path) -> Result<ImageTarget> {
        Address::refuse_remote_destination(typed)?;
        let address = Address::of(typed)?;
        address.refuse_container_image()?;
        let shown = text::of_host_path(&address.path, "-");
        let new = match fs::metadata(&address.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
            found => {
                let found = found.during(|| format!("open {shown}"))?;
                if found.file_type().is_block_device() {
                    refuse!(
                        "{shown} is a device; mount it to receive into it, or receive into an image file: a new image is written beside the old one"
                    );
                }
                false
            }
        };
        if new {
            return Ok(ImageTarget {
                path: address.path,
                dir: Vec::new(),
                old: None,
            });
        }
        let open = || format!("open {shown}");
        // A symbolic link stays one.
        let path = fs::canonicalize(&address.path).during(open)?;
        refuse_attached(&path).during(open)?;
        let old = ExistingImage::open(&path).during(open)?;
        let dir = match &address.subvolume {
            None => Vec::new(),
            Some(dir) => joined(dir.as_bytes()),
        };
        let old = Some(old);
        Ok(ImageTarget { path, dir, old })
    }

    /// The parent or clone source of the stream.
    fn base(
        &self,
        base: &BaseSubvolume,
        options: &ReceiveOptions,
    ) -> Result<(Subvolume, Option<OtherTransaction>)> {
        let missing = "it needs a parent or clone source, and the image is new";
        let old = (self.old.as_ref()).ok_or_else(|| Error::refused(missing))?;
        let (id, other) = match &options.stream.parent {
            Some(path) if base.is_parent => (old.named(path, &self.path)?, None),
            _ => old.find(base.uuid, base.ctransid)?,
        };
        Ok((old.btrfs.subvolume(id)?, other))
    }

    /// A file beside the image for tables that need not be in memory. Where there can be none, they
    /// are in memory.
    fn scratch(&self) -> Scratch {
        let dir = match self.path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        Scratch::in_dir(dir).unwrap_or_default()
    }

    /// Writes the new image.
    fn write(
        &self,
        receive: &ReceiveOptions,
        received: &[Arc<SentTree>],
        scratch: &Scratch,
        progress: &dyn Progress,
    ) -> Result<CreateSummary> {
        let shown = text::of_host_path(&self.path, "-");
        let write = || format!("write {shown}");
        let now = receive.time;
        let base: Arc<dyn FileSystem> = match &self.old {
            Some(old) => Arc::<Subvolume>::clone(&old.top),
            None => Arc::new(Joined::new(Vec::new())?),
        };
        let dir = self.dir(&*base)?;
        let (mut grafts, mut names) = (vec![Graft::at(Vec::new(), base)], HashSet::new());
        for subvolume in received {
            let name = &subvolume.sent().name;
            let path = self.path_of(name);
            let path = path.split(|&byte| byte == b'/').map(Box::from).collect();
            if !names.insert(name) {
                refuse!("the stream has two subvolumes of one name");
            }
            match grafts[0].tree.lookup(dir, name) {
                Err(tree::Error::NotFound) => {}
                Ok(_) => refuse!(
                    "the image has a file {}; rename or delete it first",
                    text::of_path(&self.path_of(name))
                ),
                Err(error) => return Err(error.into()),
            }
            grafts.push(Graft::at(path, Arc::<SentTree>::clone(subvolume)));
        }
        // What a stream has of the image has the identities of the image, and its own data others.
        let joined = Joined::new(grafts)?.with_identities();
        let limits = Limits::default();
        let inventory = Inventory::in_scratch(&joined, &limits, scratch).during(write)?;
        let mut options = match &self.old {
            Some(old) => old.options(&inventory, received.len() as u64)?,
            None => Options::default().generation(Some(received.len() as u64)),
        };
        self.refuse_read_only(&options)?;
        let generation = options.generation.unwrap_or(1);
        // The same input gives the same UUIDs, and the generation grows each time.
        let uuid = |sent: &SentSubvolume| {
            let fsid = options.uuid.unwrap_or_default();
            let numbers = [sent.ctransid, generation].map(u64::to_le_bytes).concat();
            uuid_of(&[&fsid[..], &sent.uuid, &sent.name, &numbers].concat())
        };
        let mut new: Vec<NewSubvolume> = Vec::new();
        for (turn, sent) in received.iter().map(|tree| tree.sent()).enumerate() {
            let parent = sent.parent.map(|(uuid, ctransid)| {
                let before = received[..turn].iter().map(|tree| tree.sent());
                match before.zip(&new).rfind(|before| before.0.uuid == uuid) {
                    Some((_, own)) => Ok(own.uuid),
                    None => self.uuid_of_parent(receive, uuid, ctransid),
                }
            });
            new.push(NewSubvolume {
                path: self.path_of(&sent.name),
                is_read_only: true,
                uuid: Some(uuid(sent)),
                parent_uuid: parent.transpose()?.flatten(),
                // As the kernel's BTRFS_IOC_SET_RECEIVED_SUBVOL, called by `btrfs receive`.
                received: Some(btrfs::Received {
                    uuid: sent.uuid,
                    stransid: sent.ctransid,
                    rtransid: generation,
                    stime: Time::default(),
                    rtime: now,
                }),
                otime: Some(now),
                numbers: None,
            });
        }
        options.subvolumes.extend(new);
        // Plain data stays plain: this only copies.
        options.compression = None;
        options.rules = vec![Rule {
            patterns: Arc::new(Patterns::new(["**"])),
            compression: None,
        }];
        options.duplicates = false;
        // The stream is verified already, and all that is compressed in an image has a checksum.
        options.verify = Verify::Nothing;
        let output = Output::create(&self.path, self.old.is_some()).during(write)?;
        let made = btrfs::create(&inventory, &options, receive.parallel, progress, &output);
        let summary = made.during(write)?;
        output.commit().during(|| format!("finish {shown}"))?;
        Ok(summary)
    }

    /// The directory for new subvolumes.
    fn dir(&self, base: &dyn FileSystem) -> Result<Ino> {
        let shown = || format!("find {} in the image", text::of_path(&self.dir));
        let mut dir = base.root();
        let names = self.dir.split(|&byte| byte == b'/');
        for name in names.filter(|name| !name.is_empty()) {
            let entry = base.lookup(dir, name).during(shown)?;
            if entry.kind != FileKind::Directory {
                refuse!("{}: not a directory", shown());
            }
            dir = entry.ino;
        }
        Ok(dir)
    }

    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        if self.dir.is_empty() {
            name.to_vec()
        } else {
            [&self.dir[..], name].join(&b'/')
        }
    }

    /// Refuses a directory in a read-only subvolume, as Linux does.
    fn refuse_read_only(&self, options: &Options) -> Result<()> {
        let holds = |own: &&NewSubvolume| match self.dir.strip_prefix(&own.path[..]) {
            Some(rest) => own.path.is_empty() || rest.is_empty() || rest[0] == b'/',
            None => false,
        };
        let innermost = options.subvolumes.iter().filter(holds);
        let innermost = innermost.max_by_key(|own| own.path.len());
        if innermost.is_some_and(|own| own.is_read_only) {
            refuse!(
                "{} in the image is in a read-only subvolume",
                text::of_path(&self.dir)
            );
        }
        Ok(())
    }

    /// The UUID of the subvolume that a received one started from.
    fn uuid_of_parent(
        &self,
        options: &ReceiveOptions,
        uuid: [u8; 16],
        ctransid: u64,
    ) -> Result<Option<[u8; 16]>> {
        let Some(old) = &self.old else {
            return Ok(None);
        };
        let id = match &options.stream.parent {
            Some(path) => old.named(path, &self.path)?,
            None => old.find(uuid, ctransid)?.0,
        };
        let mut subvolumes = old.subvolumes.iter();
        let found = subvolumes.find(|own| own.id == id);
        Ok(found.and_then(|own| own.uuid))
    }
}

impl ExistingImage {
    fn open(path: &Path) -> Result<ExistingImage> {
        let container = Container::open(path, &OpenOptions::default())?;
        if let Some(disk) = container.disk_file() {
            refuse!("{}: only raw images are received into", disk.noun());
        }
        let Container::Btrfs(file) = container else {
            refuse!("neither a directory nor a btrfs image");
        };
        let btrfs = file.open_btrfs(&OpenOptions::default())?;
        refuse_features(&btrfs)?;
        btrfs.replay().during(|| "replay its log".to_owned())?;
        let subvolumes = btrfs.subvolumes()?;
        let top = Arc::new(btrfs.subvolume(object::FS_TREE)?);
        Ok(ExistingImage {
            btrfs,
            top,
            subvolumes,
        })
    }

    /// The subvolume that the user names.
    fn named(&self, path: &Path, image: &Path) -> Result<u64> {
        find_subvolume(&self.btrfs, &path.as_os_str().to_owned(), image)
    }

    /// The subvolume that a stream names by this UUID.
    fn find(&self, uuid: [u8; 16], ctransid: u64) -> Result<(u64, Option<OtherTransaction>)> {
        let mut candidates = Vec::new();
        for is_received in [true, false] {
            for own in self.subvolumes.iter().filter(|own| !own.is_deleted) {
                let names = if is_received {
                    own.received_uuid
                } else {
                    own.uuid
                };
                if names != Some(uuid) {
                    continue;
                }
                let last_change = if is_received && own.ctransid > own.rtransid {
                    self.last_change(own)?
                } else {
                    None
                };
                let state = ParentState {
                    is_received,
                    is_read_only: own.is_read_only,
                    stransid: own.stransid,
                    rtime: own.rtime,
                    last_change,
                };
                candidates.push((own.id, state));
            }
        }
        if candidates.is_empty() {
            refuse!(
                "no subvolume of the image has the UUID or received UUID of the parent or clone source; receive it first: a copy of its stream has neither"
            );
        }
        Ok(ParentState::choose(candidates, uuid, ctransid)?)
    }

    /// The last change time of the files of a subvolume that were written after it was received.
    fn last_change(&self, own: &SubvolumeInfo) -> Result<Option<Time>> {
        let tree = self.btrfs.subvolume(own.id)?.without_nested();
        let inventory = Inventory::of(&tree, &Limits::default())?;
        let mut last = None;
        for file in inventory.files() {
            let metadata = tree.metadata(inventory.ino(file))?;
            let identity = metadata.identity;
            if identity.is_some_and(|identity| identity.transaction > own.rtransid) {
                last = last.max(metadata.ctime);
            }
        }
        Ok(last)
    }

    /// Options for an image that continues this one by `transactions`.
    fn options(&self, inventory: &Inventory, transactions: u64) -> Result<Options> {
        let superblock = self.btrfs.superblock();
        let default = self.btrfs.default_subvolume()?;
        let (mut subvolumes, mut default_subvolume) = (Vec::new(), None);
        let mut seen: HashMap<u64, usize> = HashMap::new();
        for (id, subvolume) in self.top.subvolumes_in(inventory)? {
            if id == default && id != object::FS_TREE {
                default_subvolume = Some(subvolume.path.clone());
            }
            *seen.entry(id).or_default() += 1;
            subvolumes.push(subvolume);
        }
        for own in self.subvolumes.iter().filter(|own| !own.is_deleted) {
            if seen.get(&own.id) != Some(&1) {
                refuse!(
                    "subvolume {} of the image cannot be reached from its top level and would be lost; mount the image to repair that",
                    own.id
                );
            }
        }
        let is_dup = |kind: u64| {
            let chunks = self.btrfs.chunks().chunks().iter();
            let mut of_it = chunks.filter(|chunk| chunk.flags & kind != 0);
            of_it.any(|chunk| chunk.flags & block_group::DUP != 0)
        };
        Ok(Options::default()
            .checksum(superblock.checksum)
            .metadata(if is_dup(block_group::METADATA) {
                Profile::Dup
            } else {
                Profile::Single
            })
            .nodesize(superblock.nodesize)
            .block_group_tree(superblock.compat_ro & compat_ro::BLOCK_GROUP_TREE != 0)
            .size_min(superblock.device.total_bytes)
            .subvolumes(subvolumes)
            .default_subvolume(default_subvolume)
            .label(superblock.label.to_vec())
            .uuid(Some(superblock.fsid))
            .generation(superblock.generation.0.checked_add(transactions)))
    }
}

/// Refuses images with something that the new image would not have.
fn refuse_features(btrfs: &Btrfs) -> Result<()> {
    let superblock = btrfs.superblock();
    let lost = if superblock.num_devices != 1 {
        Some("has several devices")
    } else if superblock.is_seed {
        Some("is a seed of other file systems")
    } else if superblock.sectorsize != 4096 {
        Some("has sectors of a size other than 4096 bytes")
    } else if superblock.compat_ro & compat_ro::VERITY != 0 {
        Some("has files with fs-verity")
    } else if superblock.incompat & incompat::ZONED != 0 {
        Some("is for zoned devices")
    } else if superblock.incompat & incompat::SIMPLE_QUOTA != 0 {
        Some("has simple quotas")
    } else {
        None
    };
    match lost {
        Some(what) => {
            refuse!("the image {what}, which a new one would not have; mount it to receive into it")
        }
        None => Ok(()),
    }
}

/// Refuses a file that a loop device shows: it may be mounted.
fn refuse_attached(path: &Path) -> Result<()> {
    let Ok(file) = fs::metadata(path) else {
        return Ok(());
    };
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    for device in devices {
        let Ok(backing) = fs::read(device.path().join("loop/backing_file")) else {
            continue;
        };
        let backing = Path::new(std::ffi::OsStr::from_bytes(backing.trim_ascii_end()));
        let is_same = |it: fs::Metadata| (it.dev(), it.ino()) == (file.dev(), file.ino());
        if fs::metadata(backing).is_ok_and(is_same) {
            refuse!(
                "it is attached to /dev/{}; detach it, or receive into the mounted file system",
                device.file_name().to_string_lossy()
            );
        }
    }
    Ok(())
}

/// A UUID that derives from these bytes (RFC 9562, version 8).
fn uuid_of(bytes: &[u8]) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&tree::sha256(bytes)[..16]);
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// A path without leading, trailing or double slashes.
fn joined(path: &[u8]) -> Vec<u8> {
    let names = path.split(|&byte| byte == b'/');
    let names: Vec<&[u8]> = names.filter(|name| !matches!(*name, b"" | b".")).collect();
    names.join(&b'/')
}
