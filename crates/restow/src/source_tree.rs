//! A source: a tree to read, and the name that it has for the user.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use btrfs::{Btrfs, Subvolume, object};
use erofs::Erofs;
use oci::{ImageLayout, KnownLayers};
use squashfs::Squashfs;
use tree::edit::Selection;
use tree::{ByPath, DirEntry, FileSystem, FollowedDir, HostDir, HostTimes, Ino, Joined};

use crate::address::ImageName;
use crate::container_image::{self, ContainerImage};
use crate::error::{During, refuse};
use crate::input::OpenedTar;
use crate::object::is_of_object;
use crate::open_options::MountPoints;
use crate::overlay::{OverlayLayers, reads_trusted_attributes};
use crate::{
    Address, Container, DiskFile, Error, Input, OpenOptions, Partition, Result, SourceNote,
    check_devices, is_same_file, replayed, text,
};

/// The way out where nothing of a btrfs image can be read.
const OLDER_ROOTS: &str = "--older-root 1, 2 or 3 reads an earlier commit";

/// A tree to read, with the name that it has for the user.
pub struct SourceTree {
    tree: Arc<dyn FileSystem>,
    name: String,
    format: SourceFormat,
    /// The mounts that are read, if it is a directory of the host.
    mount_points: MountPoints,
    notes: Vec<SourceNote>,
    lost: Vec<SourceNote>,
    disk_file: Option<Arc<DiskFile>>,
    /// The files that were selected where several sources were joined.
    pub(crate) selection: Selection,
}

/// The container of a source, as far as it offers more than a tree.
#[derive(Clone)]
enum SourceFormat {
    Directory {
        path: PathBuf,
        /// The same with its stored extents, if these are read.
        stored: Option<Arc<HostDir>>,
        /// The same, if changes of its files are accepted.
        changing: Option<Arc<HostDir>>,
    },
    Squashfs(Arc<Squashfs>),
    Erofs(Arc<Erofs>),
    Image(Arc<ContainerImage>),
    Btrfs(Arc<Subvolume>),
    /// A part of a btrfs image that is not a subvolume.
    InBtrfs(Arc<Btrfs>),
    Stream,
    Other,
}

impl SourceTree {
    /// Opens the tree at an address.
    ///
    /// # Errors
    /// It cannot be opened or read.
    pub fn open(address: &Address, options: &OpenOptions) -> Result<SourceTree> {
        let open = || SourceTree::open_any(address, options, false, None);
        open().during(|| opening(address))
    }

    /// Opens two trees to compare, each with its options, which only differ in where the image is.
    /// Each further device belongs to one of the images.
    ///
    /// # Errors
    /// One cannot be opened or read, or a device does not belong to either.
    pub fn open_pair(
        [first, second]: [&Address; 2],
        [options, second_options]: [&OpenOptions; 2],
    ) -> Result<[SourceTree; 2]> {
        let known = KnownLayers::default();
        let open = |address: &Address, options| {
            let opened = SourceTree::open_any(address, options, true, Some(&known));
            opened.during(|| opening(address))
        };
        let opened = open(first, options)?;
        // What is opened once is one store: what two subvolumes of it share is known to be the
        // same.
        let shared = opened.btrfs();
        let is_same_image =
            options.image_at == second_options.image_at && is_same_file(&first.path, &second.path);
        let shared = shared.filter(|_| is_same_image);
        let other = match shared {
            Some(btrfs) => {
                SourceTree::of_btrfs(btrfs, second, options).during(|| opening(second))?
            }
            None => open(second, second_options)?,
        };
        let both = [opened, other];
        let images = both.iter().filter_map(SourceTree::btrfs);
        let images: Vec<Arc<Btrfs>> = images.map(Arc::clone).collect();
        if !images.is_empty() {
            check_devices(options, &images)?;
        }
        Ok(both)
    }

    /// Opens a tree beside others, to which options for other formats may apply; see
    /// [`SourceTree::reading`].
    ///
    /// # Errors
    /// It cannot be opened or read.
    pub fn open_further(
        address: &Address,
        options: &OpenOptions,
        accepts_changes: bool,
    ) -> Result<SourceTree> {
        let source =
            SourceTree::open_any(address, options, true, None).during(|| opening(address))?;
        let accepts_changes = accepts_changes && source.directory().is_some();
        source.reading(HostTimes::default(), accepts_changes)
    }

    /// Opens the tree in an input.
    ///
    /// # Errors
    /// The input cannot be read, or holds no tree.
    pub fn of_input(input: Input, options: &OpenOptions) -> Result<SourceTree> {
        let address = Address::plain(input.path());
        let open = || {
            let container = Container::of(input, options)?;
            SourceTree::of_container(container, &address, options, false, None)
        };
        open().during(|| opening(&address))
    }

    /// A directory of the host.
    pub fn of_dir(path: &Path, dir: HostDir) -> SourceTree {
        let format = SourceFormat::Directory {
            path: path.to_owned(),
            stored: None,
            changing: None,
        };
        SourceTree::of(Arc::new(dir), format, &Address::plain(path))
    }

    /// A tree of no container.
    pub(crate) fn of_tree(tree: Arc<dyn FileSystem>, name: &str) -> SourceTree {
        let address = Address::plain(Path::new(name));
        SourceTree::of(tree, SourceFormat::Other, &address)
    }

    fn of(tree: Arc<dyn FileSystem>, format: SourceFormat, address: &Address) -> SourceTree {
        SourceTree {
            tree,
            name: address.name(),
            format,
            mount_points: MountPoints::default(),
            notes: Vec::new(),
            lost: Vec::new(),
            disk_file: None,
            selection: Selection::default(),
        }
    }

    /// A view of this source and others. The remarks about them stay.
    #[must_use]
    pub fn joined(mut self, tree: Arc<dyn FileSystem>, others: Vec<SourceTree>) -> SourceTree {
        for other in others {
            self.name += &format!(" with {}", other.name);
            self.notes.extend(other.notes);
            self.lost.extend(other.lost);
        }
        // A copy takes its configuration over.
        let is_image = matches!(self.format, SourceFormat::Image(_));
        let format = if is_image {
            self.format
        } else {
            SourceFormat::Other
        };
        SourceTree {
            tree,
            format,
            ..self
        }
    }

    fn open_any(
        address: &Address,
        options: &OpenOptions,
        ignores_foreign: bool,
        known: Option<&KnownLayers>,
    ) -> Result<SourceTree> {
        if let Some(overlay) = &address.overlay {
            return SourceTree::of_overlay(overlay, address, options);
        }
        if address.is_container_image() && options.verity.is_some() {
            refuse!("a container image: --root-hash does not apply");
        }
        if address.is_container_image()
            && let Some(layout) = container_image::open_layout(address, options)?
        {
            return SourceTree::of_layout(&layout, address, options, known);
        }
        let container = Container::open(&address.path, options)?;
        SourceTree::of_container(container, address, options, ignores_foreign, known)
    }

    /// The merged layers of an overlay.
    fn of_overlay(
        overlay: &OverlayLayers,
        address: &Address,
        options: &OpenOptions,
    ) -> Result<SourceTree> {
        let mut layers = Vec::new();
        for (number, layer) in overlay.layers.iter().enumerate() {
            let source = SourceTree::open_further(&Address::of(layer)?, options, false)?;
            // Marks of the lowest layer hide nothing.
            let has_marks = number > 0 && !overlay.userxattr;
            if has_marks && source.directory().is_some() && !reads_trusted_attributes() {
                let name = source.name();
                refuse!(
                    "{name}: only root can read the attributes by which overlayfs hides files of lower layers; overlay,userxattr: reads those of a mount with this option"
                );
            }
            layers.push(source);
        }
        let trees = layers.iter().map(|it| Arc::clone(it.tree())).collect();
        let joined = Joined::overlayfs(trees, overlay.userxattr)?;
        let merged = layers.remove(0).joined(Arc::new(joined), layers);
        Ok(SourceTree {
            name: address.name(),
            ..merged
        })
    }

    /// An image of a layout.
    fn of_layout(
        layout: &ImageLayout,
        address: &Address,
        options: &OpenOptions,
        known: Option<&KnownLayers>,
    ) -> Result<SourceTree> {
        let opened = container_image::open(layout, address, options, known)?;
        let format = SourceFormat::Image(Arc::new(opened.image));
        let source = SourceTree::of(opened.tree, format, address);
        Ok(SourceTree {
            notes: opened.notes,
            lost: opened.lost,
            ..source
        })
    }

    fn of_container(
        container: Container,
        address: &Address,
        options: &OpenOptions,
        ignores_foreign: bool,
        known: Option<&KnownLayers>,
    ) -> Result<SourceTree> {
        let has_directories = matches!(
            container,
            Container::Squashfs(_) | Container::Erofs(_) | Container::Tar(..) | Container::Cpio(_)
        );
        let directory = address.subvolume.as_ref().filter(|_| has_directories);
        let disk_file = container.disk_file().cloned();
        let mut source = match container {
            Container::Directory(_) if options.dereference => {
                let tree = FollowedDir::open(&address.path)?;
                SourceTree::of(Arc::new(tree), SourceFormat::Other, address)
            }
            Container::Directory(dir) => {
                let mount_points = options.mount_points();
                let dir = mount_points.in_dir(*dir)?;
                let mut source = SourceTree::of_dir(&address.path, dir);
                source.mount_points = mount_points;
                source
            }
            Container::Squashfs(image) => {
                let image = Arc::new(image.open_squashfs()?);
                let format = SourceFormat::Squashfs(Arc::clone(&image));
                SourceTree::of(image, format, address)
            }
            Container::Erofs(image) => {
                let image = image.open_erofs(options)?;
                let format = SourceFormat::Erofs(Arc::clone(&image));
                SourceTree::of(image, format, address)
            }
            Container::Btrfs(image) => {
                let btrfs = image.open_btrfs_beside(options, ignores_foreign)?;
                SourceTree::of_btrfs(&btrfs, address, options)?
            }
            Container::Disk(partitions, _) => return Err(Error::Refused(disk(&partitions))),
            Container::SendStream(stream) => {
                let (tree, note) = replayed::open(stream, address.subvolume.as_deref(), options)?;
                let verity = tree.verity_files();
                let mut source = SourceTree::of(tree, SourceFormat::Stream, address);
                source.notes.extend(note);
                source
                    .lost
                    .extend((verity > 0).then_some(SourceNote::VerityNotRead(verity)));
                source
            }
            Container::Cpio(input) => SourceTree::of_tar(input.open_tar(None, options)?, address),
            Container::Tar(input, wrapper) => {
                let opened = input.open_tar(wrapper, options)?;
                let may_be_image = address.image == ImageName::Recognised && directory.is_none();
                match may_be_image
                    .then(|| ImageLayout::kind_of(&*opened.tar))
                    .flatten()
                {
                    // Remarks about the archive do not matter: digests show that all is there.
                    Some(kind) => {
                        let layout = ImageLayout::open(opened.tar, kind)?;
                        SourceTree::of_layout(&layout, address, options, known)?
                    }
                    None => SourceTree::of_tar(opened, address),
                }
            }
        };
        source.disk_file = disk_file;
        match directory {
            Some(path) => source.below(path.as_bytes()),
            None => Ok(source),
        }
    }

    /// An archive, with the remarks about it.
    pub(crate) fn of_tar(opened: OpenedTar, address: &Address) -> SourceTree {
        let (notes, lost) = SourceNote::of_tar(&opened);
        SourceTree {
            notes,
            lost,
            ..SourceTree::of(opened.tar, SourceFormat::Other, address)
        }
    }

    /// A subvolume of an open image, or a directory in one.
    fn of_btrfs(
        btrfs: &Arc<Btrfs>,
        address: &Address,
        options: &OpenOptions,
    ) -> Result<SourceTree> {
        if let Some((subvolume, directory)) = directory_in(btrfs, address)? {
            let mut above = address.clone();
            above.subvolume = Some(subvolume);
            let source = SourceTree::of_btrfs(btrfs, &above, options)?;
            if source.tree.exists(&directory)? {
                return source.below(&directory);
            }
            let wanted = address.subvolume.as_deref().unwrap_or_default();
            let wanted = text::of_name(wanted.as_bytes());
            let image = text::of_host_path(&address.path, "-");
            refuse!(
                "no subvolume or directory {wanted}; `restow info {image}` lists the subvolumes"
            );
        }
        let tree = open_subvolume(btrfs, address, options).and_then(|tree| {
            // Without its root directory, nothing is read but by a rescue.
            if !options.skip_damaged {
                tree.metadata(tree.root())?;
            }
            Ok(Arc::new(tree))
        });
        let tree = match tree {
            Err(Error::Tree(error @ tree::Error::Corrupt(_))) => {
                return Err(Error::from(error).during(format!("read its trees ({OLDER_ROOTS})")));
            }
            tree => tree?,
        };
        let format = SourceFormat::Btrfs(Arc::clone(&tree));
        let mut source = SourceTree::of(tree, format, address);
        if btrfs.has_log() && !options.no_log && options.older_root == 0 {
            source.notes.push(SourceNote::LogRead);
        }
        Ok(source)
    }

    /// The same source; if it is a directory on btrfs, with the extents that are stored there, so
    /// that compressed ones can be copied as they are. Without privilege, it stays as it is, and
    /// there is a note.
    ///
    /// # Errors
    /// It cannot be opened again.
    pub fn with_stored_extents(mut self, times: HostTimes) -> Result<SourceTree> {
        let Some(tree) = self.open_dir_again(times)? else {
            return Ok(self);
        };
        match tree.with_stored_extents() {
            Err(tree::Error::Io(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.notes.push(SourceNote::Decompressed);
            }
            tree => {
                let tree = Arc::new(tree.during(|| format!("open {}", self.name))?);
                self.tree = Arc::<HostDir>::clone(&tree);
                if let SourceFormat::Directory { stored, .. } = &mut self.format {
                    *stored = Some(tree);
                }
            }
        }
        Ok(self)
    }

    /// The same source, if it is a directory of the host with these times of its files. With
    /// `accepts_changes`, which applies only to such a directory, files that change while they are
    /// read are no error.
    ///
    /// # Errors
    /// It is not a directory and has to accept changes, or it cannot be opened again.
    pub fn reading(mut self, times: HostTimes, accepts_changes: bool) -> Result<SourceTree> {
        let Some(dir) = self.open_dir_again(times)? else {
            if accepts_changes {
                refuse!("--accept-changed applies to directories only");
            }
            return Ok(self);
        };
        if !accepts_changes {
            self.tree = Arc::new(dir);
            return Ok(self);
        }
        let dir = Arc::new(dir.accepting_changes());
        self.tree = Arc::<HostDir>::clone(&dir);
        if let SourceFormat::Directory { changing, .. } = &mut self.format {
            *changing = Some(dir);
        }
        Ok(self)
    }

    /// The directory of the host again, with these times.
    fn open_dir_again(&self, times: HostTimes) -> Result<Option<HostDir>> {
        let Some(path) = self.directory() else {
            return Ok(None);
        };
        let open = || (self.mount_points).in_dir(HostDir::open_with(path, times)?);
        open().map(Some).during(|| format!("open {}", self.name))
    }

    /// The files.
    pub fn tree(&self) -> &Arc<dyn FileSystem> {
        &self.tree
    }

    /// The source itself, as the user named it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Remarks about the source.
    pub fn notes(&self) -> &[SourceNote] {
        &self.notes
    }

    /// Content that is not read, and so is in no copy.
    pub fn lost(&self) -> &[SourceNote] {
        &self.lost
    }

    /// The directory of the host that it is, as the user named it.
    pub fn directory(&self) -> Option<&Path> {
        match &self.format {
            SourceFormat::Directory { path, .. } => Some(path),
            _ => None,
        }
    }

    /// The directory of the host, if its stored extents are read.
    pub fn stored_dir(&self) -> Option<&Arc<HostDir>> {
        match &self.format {
            SourceFormat::Directory { stored, .. } => stored.as_ref(),
            _ => None,
        }
    }

    /// The subvolume, if it is one of a btrfs image.
    pub fn subvolume(&self) -> Option<&Arc<Subvolume>> {
        match &self.format {
            SourceFormat::Btrfs(subvolume) => Some(subvolume),
            _ => None,
        }
    }

    /// The btrfs image, if it is one or a directory in one.
    pub fn btrfs(&self) -> Option<&Arc<Btrfs>> {
        match &self.format {
            SourceFormat::Btrfs(subvolume) => Some(subvolume.btrfs()),
            SourceFormat::InBtrfs(image) => Some(image),
            _ => None,
        }
    }

    /// The same as a part of this image, if there is one.
    pub(crate) fn in_btrfs(mut self, image: Option<Arc<Btrfs>>) -> SourceTree {
        if let Some(image) = image {
            self.format = SourceFormat::InBtrfs(image);
        }
        self
    }

    /// The image, if it is a SquashFS image.
    pub fn squashfs(&self) -> Option<&Arc<Squashfs>> {
        match &self.format {
            SourceFormat::Squashfs(image) => Some(image),
            _ => None,
        }
    }

    /// The image, if it is an EROFS image.
    pub fn erofs(&self) -> Option<&Arc<Erofs>> {
        match &self.format {
            SourceFormat::Erofs(image) => Some(image),
            _ => None,
        }
    }

    /// The disk file of a virtual machine that holds the image, if one does.
    pub fn disk_file(&self) -> Option<&Arc<DiskFile>> {
        self.disk_file.as_ref()
    }

    /// The configuration and the layers, if it is a container image.
    pub fn container_image(&self) -> Option<&Arc<ContainerImage>> {
        match &self.format {
            SourceFormat::Image(image) => Some(image),
            _ => None,
        }
    }

    /// Whether it is a container image alone, whose files come from layers.
    pub fn has_layers(&self) -> bool {
        (self.container_image()).is_some_and(|image| image.has_tree(&self.tree))
    }

    /// The layer of the image that a file comes from, from 0; `None` for a directory that no layer
    /// has. The source [has layers](SourceTree::has_layers).
    pub fn layer_of(&self, ino: Ino) -> Option<usize> {
        self.container_image()?.layer_of(ino)
    }

    /// Whether it is a send stream.
    pub fn is_stream(&self) -> bool {
        matches!(self.format, SourceFormat::Stream)
    }

    /// The files that have changed while they were read, as far as that is accepted.
    pub fn changed(&self) -> Vec<Vec<u8>> {
        match &self.format {
            SourceFormat::Directory {
                changing: Some(tree),
                ..
            } => tree.changed(),
            _ => Vec::new(),
        }
    }

    /// Whether a directory is the place of a nested subvolume, empty as in a snapshot. Send streams
    /// leave it out.
    pub fn is_place_of_subvolume(&self, path: &[u8]) -> bool {
        /// `BTRFS_EMPTY_SUBVOL_DIR_OBJECTID`.
        const EMPTY_SUBVOLUME: u64 = 2;
        if let Some(dir) = self.directory() {
            let there = linux::open_dir(&dir.join(OsStr::from_bytes(path)));
            let number = there.and_then(|there| Ok((linux::stat(&there)?.ino, there)));
            return number.is_ok_and(|(number, there)| {
                number == EMPTY_SUBVOLUME && linux::is_btrfs(&there).unwrap_or(false)
            });
        }
        let metadata = || self.tree.metadata(self.tree.find_no_follow(path)?.ino);
        self.subvolume().is_some() && metadata().is_ok_and(|it| it.identity.is_none())
    }

    /// Names the file of an error in this source as the user knows it.
    pub fn name_error(&self, error: tree::Error) -> Error {
        let tree::Error::File { verb, path, error } = error else {
            let is_damaged = matches!(error, tree::Error::Corrupt(_)) && self.subvolume().is_some();
            let mut operation = format!("read {}", self.name);
            if is_damaged {
                operation += &format!(" ({OLDER_ROOTS})");
            }
            return Error::from(error).during(operation);
        };
        let operation = format!("{verb} {}", self.path_name(&path));
        let can_be_skipped = verb == "read" && !path.is_empty();
        let is_of_file = match &*error {
            tree::Error::Io(error) => !is_of_object(error),
            error => matches!(error, tree::Error::Corrupt(_)),
        };
        let error = *error;
        if can_be_skipped && is_of_file {
            Error::UnreadableFile { operation, error }
        } else {
            Error::from(error).during(operation)
        }
    }

    /// A file in this source, in words.
    pub fn path_name(&self, path: &[u8]) -> String {
        if let Some(dir) = self.directory() {
            return text::of_name(dir.join(OsStr::from_bytes(path)).as_os_str().as_bytes());
        }
        if path.is_empty() {
            self.name.clone()
        } else {
            format!("{} in {}", text::of_path(path), self.name)
        }
    }

    /// The file with that path, with or without a leading `/`. Symbolic links are followed within
    /// the tree; the last one only if `follow`.
    ///
    /// # Errors
    /// There is no such file, or the tree cannot be read.
    pub fn find(&self, path: &[u8], follow: bool) -> Result<DirEntry> {
        let found = if follow {
            self.tree.find(path)
        } else {
            self.tree.find_no_follow(path)
        };
        found.during(|| format!("find {}", self.path_name(path)))
    }
}

fn opening(address: &Address) -> String {
    format!("open {}", address.name())
}

/// Which partition of a disk image may be meant.
fn disk(partitions: &[Partition]) -> String {
    let readable = partitions.iter().find(|found| found.format.is_some());
    let hint = match readable {
        Some(Partition { number, format, .. }) => {
            let format = format.unwrap_or_default();
            format!("`--image-at partition:{number}` reads the first with an image, of {format}")
        }
        None => "no partition holds a SquashFS or btrfs image".to_owned(),
    };
    let count = text::count(partitions.len() as u64, "partition");
    format!("a disk image with {count}, which `restow info` lists; {hint}")
}

/// The number of the subvolume that the address or the options name, if they name one.
///
/// # Errors
/// There is no such subvolume, or the image cannot be read.
pub fn named_subvolume(
    btrfs: &Arc<Btrfs>,
    address: &Address,
    options: &OpenOptions,
) -> Result<Option<u64>> {
    let Some(wanted) = address.subvolume.as_ref().or(options.subvolume.as_ref()) else {
        return Ok(None);
    };
    replay(btrfs)?;
    find_subvolume(btrfs, wanted, &address.path).map(Some)
}

/// The subvolume and the directory in it that an address names; `None` if it names a subvolume, or
/// nothing.
fn directory_in(btrfs: &Arc<Btrfs>, address: &Address) -> Result<Option<(OsString, Vec<u8>)>> {
    let path = address.subvolume.as_ref().filter(|it| number(it).is_none());
    let Some(path) = path.map(|path| path.as_bytes()) else {
        return Ok(None);
    };
    replay(btrfs)?;
    let slashes = (0..path.len()).rev().filter(|&at| path[at] == b'/');
    for end in std::iter::once(path.len()).chain(slashes).chain([0]) {
        let (above, below) = path.split_at(end);
        match btrfs.find_subvolume(above) {
            Ok(_) if end == path.len() => return Ok(None),
            Ok(_) => {
                // A name of digits is no number of a subvolume here.
                let subvolume = [b"/", above].concat();
                let below = below.strip_prefix(b"/").unwrap_or(below);
                return Ok(Some((OsString::from_vec(subvolume), below.to_vec())));
            }
            Err(tree::Error::NotFound | tree::Error::NotADirectory) => {}
            Err(tree::Error::InvalidInput(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// The number of the subvolume with this path or number.
///
/// # Errors
/// There is no such subvolume, or the image cannot be read.
pub fn find_subvolume(btrfs: &Arc<Btrfs>, wanted: &OsString, image: &Path) -> Result<u64> {
    let id = match number(wanted) {
        Some(id) => Ok(id),
        None => btrfs.find_subvolume(wanted.as_bytes()),
    };
    match id.and_then(|id| btrfs.subvolume(id).map(|_| id)) {
        Ok(id) => Ok(id),
        Err(tree::Error::NotFound | tree::Error::NotADirectory | tree::Error::InvalidInput(_)) => {
            let wanted = text::of_name(wanted.as_bytes());
            let image = text::of_host_path(image, "-");
            refuse!("no subvolume {wanted}; `restow info {image}` lists the subvolumes")
        }
        Err(error) => {
            let wanted = text::of_name(wanted.as_bytes());
            Err(error).during(|| format!("find subvolume {wanted}"))
        }
    }
}

/// The subvolume that the address or the options name, otherwise the default one, or the top level.
///
/// # Errors
/// As for [`named_subvolume`].
pub fn open_subvolume(
    btrfs: &Arc<Btrfs>,
    address: &Address,
    options: &OpenOptions,
) -> Result<Subvolume> {
    let id = match named_subvolume(btrfs, address, options)? {
        Some(id) => id,
        None if options.top_level => object::FS_TREE,
        None => btrfs.default_subvolume()?,
    };
    replay(btrfs)?;
    let mut subvolume = btrfs.subvolume(id)?;
    if options.ignore_checksums {
        subvolume = subvolume.ignoring_checksums();
    }
    if options.skip_damaged {
        subvolume = subvolume.with_lost_files();
    }
    Ok(if options.no_nested {
        subvolume.without_nested()
    } else {
        subvolume
    })
}

/// Replays the log of an image that was not unmounted cleanly.
fn replay(btrfs: &Btrfs) -> Result<()> {
    let replayed = btrfs.replay();
    replayed.during(|| "replay its log (--no-log reads the last commit without it)".to_owned())
}

/// A subvolume's number, which has nothing but digits; a path that has nothing else begins with
/// `/`.
fn number(wanted: &OsString) -> Option<u64> {
    let digits = wanted.to_str()?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}
