//! Container images: which one of a layout is read, and its tree.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use erofs::Erofs;
use oci::{
    Image, ImageLayout, KnownLayers, LayerFormat, LayerImage, LayoutKind, ListedImage, Platform,
};
use squashfs::Squashfs;
use tree::tar::{LayerUsage, Tar, TarOptions};
use tree::{
    ByPath, CheckOptions, FileKind, FileSystem, Finding, HostDir, Ino, Joined, Limits, NoProgress,
    Parallel,
};

use crate::address::{ImageName, ImageStore};
use crate::error::refuse;
use crate::input::OpenedTar;
use crate::{Address, Container, OpenOptions, Result, SourceNote, text};

/// A container image, as far as it offers more than a tree.
#[non_exhaustive]
pub struct ContainerImage {
    /// Its configuration and layers.
    pub image: Image,
    merged: MergedLayers,
}

/// The layers of an image as trees, and the tree that they make.
pub(crate) struct MergedLayers {
    /// The merged archives, unless the lowest layer is an image of a file system.
    pub(crate) archives: Option<Arc<Tar>>,
    /// The layers above that are images of file systems, with the paths of their blobs.
    pub(crate) images: Vec<(Vec<u8>, LayerTree)>,
    /// All of them, if one is an image of a file system.
    joined: Option<Arc<Joined>>,
}

/// A layer that is an image of a file system.
pub(crate) enum LayerTree {
    Squashfs(Arc<Squashfs>),
    Erofs(Arc<Erofs>),
}

/// An image with its tree, and remarks about it: as for archives, those about losses last.
pub(crate) struct OpenedImage {
    pub(crate) tree: Arc<dyn FileSystem>,
    pub(crate) image: ContainerImage,
    pub(crate) notes: Vec<SourceNote>,
    pub(crate) lost: Vec<SourceNote>,
}

/// Opens the layout at an address: one that a word names, or an archive that holds one. `None` for
/// another archive.
///
/// # Errors
/// It cannot be read, or is another kind of layout.
pub(crate) fn open_layout(address: &Address, options: &OpenOptions) -> Result<Option<ImageLayout>> {
    let (tree, kind): (Arc<dyn FileSystem>, _) = match &address.image {
        ImageName::Named(ImageStore::OciDir, _) => {
            (Arc::new(HostDir::open(&address.path)?), LayoutKind::Oci)
        }
        ImageName::Named(ImageStore::OciArchive, _) => {
            (open_archive(address, options)?, LayoutKind::Oci)
        }
        ImageName::Named(ImageStore::DockerArchive, _) => {
            (open_archive(address, options)?, LayoutKind::Docker)
        }
        ImageName::Recognised | ImageName::None => {
            let tar = open_archive(address, options)?;
            match ImageLayout::kind_of(&*tar) {
                Some(kind) => (tar, kind),
                None => return Ok(None),
            }
        }
    };
    let (marker, noun) = match kind {
        LayoutKind::Oci => ("oci-layout", "layout of container images"),
        LayoutKind::Docker => ("manifest.json", "archive of `docker save`"),
    };
    if !tree.exists(marker)? {
        match ImageLayout::kind_of(&*tree) {
            None => refuse!("no {noun}: it has no {marker}"),
            Some(LayoutKind::Oci) => {
                refuse!("a layout of container images, which oci-archive: reads")
            }
            Some(LayoutKind::Docker) => {
                refuse!("an archive of `docker save`, which docker-archive: reads")
            }
        }
    }
    Ok(Some(ImageLayout::open(tree, kind)?))
}

fn open_archive(address: &Address, options: &OpenOptions) -> Result<Arc<Tar>> {
    match Container::open(&address.path, options)? {
        Container::Tar(input, wrapper) => Ok(input.open_tar(wrapper, options)?.tar),
        other => refuse!("{}, not an archive of container images", other.noun()),
    }
}

/// The image of a layout that the address and the options name.
///
/// # Errors
/// There is none, or more than one.
pub(crate) fn choose<'l>(
    layout: &'l ImageLayout,
    address: &Address,
    options: &OpenOptions,
) -> Result<&'l ListedImage> {
    let is_image = |image: &&ListedImage| is_image(image);
    let all: Vec<&ListedImage> = layout.images().iter().filter(is_image).collect();
    let is_wanted = |image: &&ListedImage| is_selected(image, address);
    let named: Vec<&ListedImage> = all.iter().copied().filter(is_wanted).collect();
    let tag = tag_of(address);
    if named.is_empty() {
        let tag = match tag {
            Some(b"") => "with an empty name".to_owned(),
            tag => text::of_name(tag.unwrap_or_default()),
        };
        match names(&all) {
            _ if all.is_empty() => refuse!("the layout has no image"),
            names if names.is_empty() => refuse!("no image {tag}: the images have no names"),
            names => refuse!("no image {tag}; the images are {names}"),
        }
    }
    if let ([image], None) = (&named[..], &options.platform) {
        return Ok(image);
    }
    let wanted = options
        .platform
        .clone()
        .unwrap_or_else(Platform::of_machine);
    let is_for = |image: &&ListedImage| image.platform.as_ref().is_some_and(|it| it.is(&wanted));
    let found: Vec<&ListedImage> = named.iter().copied().filter(is_for).collect();
    let have_one_name =
        |images: &[&ListedImage]| images.windows(2).all(|pair| pair[0].names == pair[1].names);
    match found.first() {
        // Of the variants of one architecture, the first is the general one.
        Some(image) if have_one_name(&found) => Ok(image),
        None if have_one_name(&named) || options.platform.is_some() => {
            let platforms = platforms(&named);
            refuse!("no image for {wanted}; --platform selects one of {platforms}")
        }
        _ => {
            let word = match layout.kind() {
                LayoutKind::Oci => "oci:DIR:NAME or oci-archive:FILE:NAME",
                LayoutKind::Docker => "docker-archive:FILE:NAME",
            };
            let names = names(if found.is_empty() { &named } else { &found });
            refuse!("several images; {word} selects one of {names}")
        }
    }
}

/// Whether a manifest is that of an image: signatures and descriptions of images have one, too.
fn is_image(image: &ListedImage) -> bool {
    (image.platform.as_ref()).is_none_or(|platform| platform.os != "unknown")
}

/// Whether the address selects this image, or all of them.
pub(crate) fn is_selected(image: &ListedImage, address: &Address) -> bool {
    let has = |tag| (image.names.iter()).any(|name| is_named(name.as_bytes(), tag));
    is_image(image) && tag_of(address).is_none_or(has)
}

fn tag_of(address: &Address) -> Option<&[u8]> {
    match &address.image {
        ImageName::Named(_, tag) => tag.as_deref().map(OsStrExt::as_bytes),
        _ => None,
    }
}

/// Whether a name may be given as `tag`: without its registry and `latest`, as programs that write
/// them complete it.
fn is_named(name: &[u8], tag: &[u8]) -> bool {
    const REGISTRIES: [&[u8]; 4] = [b"", b"docker.io/library/", b"docker.io/", b"localhost/"];
    let rest = name.strip_suffix(tag);
    let rest = rest.or_else(|| name.strip_suffix(b":latest")?.strip_suffix(tag));
    rest.is_some_and(|registry| REGISTRIES.contains(&registry))
}

fn names(images: &[&ListedImage]) -> String {
    let mut names: Vec<String> = (images.iter())
        .flat_map(|image| {
            image
                .names
                .iter()
                .map(|name| text::of_name(name.as_bytes()))
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

fn platforms(images: &[&ListedImage]) -> String {
    let platforms = images.iter().map(|image| match &image.platform {
        Some(platform) => text::of_name(platform.to_string().as_bytes()),
        None => "an unknown platform".to_owned(),
    });
    platforms.collect::<Vec<String>>().join(", ")
}

/// Opens the tree of the image that the address and the options name.
///
/// # Errors
/// There is no such image, or something of it is missing or wrong.
pub(crate) fn open(
    layout: &ImageLayout,
    address: &Address,
    options: &OpenOptions,
    known: Option<&KnownLayers>,
) -> Result<OpenedImage> {
    let image = layout.image(choose(layout, address, options)?)?;
    let how = TarOptions {
        skip_damaged: options.skip_damaged,
        implied: options.implied_dirs,
        ..TarOptions::default()
    };
    let merged = MergedLayers::open(layout, &image, known, &options.spool_dir, how)?;
    let archives = merged.archives.clone().map(OpenedTar::whole);
    let (mut notes, lost) = archives
        .as_ref()
        .map(SourceNote::of_tar)
        .unwrap_or_default();
    // Layers replace entries by design.
    notes.retain(|note| !matches!(note, SourceNote::ReplacedEntries(_)));
    Ok(OpenedImage {
        tree: merged.tree()?,
        image: ContainerImage { image, merged },
        notes,
        lost,
    })
}

impl MergedLayers {
    /// Opens the layers of an image, and merges them.
    ///
    /// # Errors
    /// One is missing or wrong.
    pub(crate) fn open(
        layout: &ImageLayout,
        image: &Image,
        known: Option<&KnownLayers>,
        spool_dir: &Path,
        how: TarOptions,
    ) -> tree::Result<MergedLayers> {
        let stack = layout.open_layers(image, known, spool_dir, Limits::default(), how)?;
        let archives = stack.archives.map(Arc::new);
        let mut images = Vec::new();
        for layer in stack.images {
            let path = layer.path.clone();
            let image = LayerTree::open(layer).map_err(|error| error.in_file("read", &path))?;
            images.push((path, image));
        }
        let joined = if images.is_empty() {
            None
        } else {
            let lowest = archives.clone().map(|tar| tar as Arc<dyn FileSystem>);
            let images = images.iter().map(|(_, image)| image.tree());
            let layers = lowest.into_iter().chain(images).collect();
            Some(Arc::new(Joined::overlayfs(layers, false)?))
        };
        Ok(MergedLayers {
            archives,
            images,
            joined,
        })
    }

    /// The merged tree.
    pub(crate) fn tree(&self) -> tree::Result<Arc<dyn FileSystem>> {
        match (&self.joined, &self.archives) {
            (Some(joined), _) => Ok(Arc::<Joined>::clone(joined)),
            (None, Some(tar)) => Ok(Arc::<Tar>::clone(tar)),
            (None, None) => Ok(Arc::new(Joined::new(Vec::new())?)),
        }
    }
}

impl LayerTree {
    fn open(layer: LayerImage) -> tree::Result<LayerTree> {
        Ok(match layer.format {
            LayerFormat::Squashfs => {
                let image = Squashfs::open_at(layer.bytes, 0, &Limits::default())?;
                LayerTree::Squashfs(Arc::new(image))
            }
            LayerFormat::Erofs => {
                LayerTree::Erofs(Arc::new(Erofs::open(vec![Box::new(layer.bytes)])?))
            }
        })
    }

    fn tree(&self) -> Arc<dyn FileSystem> {
        match self {
            LayerTree::Squashfs(image) => Arc::<Squashfs>::clone(image),
            LayerTree::Erofs(image) => Arc::<Erofs>::clone(image),
        }
    }

    /// Verifies the image.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn check(&self, report: &mut dyn FnMut(Finding)) -> tree::Result<()> {
        let (options, parallel) = (CheckOptions::EVERYTHING, Parallel::available());
        match self {
            LayerTree::Squashfs(image) => {
                image.check(options, parallel, &NoProgress, report)?;
            }
            LayerTree::Erofs(image) => {
                image.check(options, parallel, &NoProgress, report)?;
            }
        }
        Ok(())
    }
}

impl ContainerImage {
    /// Whether a tree is that of the image alone.
    pub(crate) fn has_tree(&self, tree: &Arc<dyn FileSystem>) -> bool {
        let own = self.merged.tree();
        own.is_ok_and(|own| Arc::as_ptr(&own).cast::<()>() == Arc::as_ptr(tree).cast::<()>())
    }

    /// The layer that a file comes from, from 0; `None` for a directory that none has.
    pub(crate) fn layer_of(&self, ino: Ino) -> Option<usize> {
        let of_archives = |ino| self.merged.archives.as_ref()?.layer_of(ino);
        let Some(joined) = &self.merged.joined else {
            return of_archives(ino);
        };
        let (number, ino) = joined.origin(ino)?;
        let archives = self.merged.archives.is_some();
        match number.checked_sub(usize::from(archives)) {
            None => of_archives(ino),
            Some(number) => {
                let below = self.image.layers.len() - self.merged.images.len();
                Some(below + number)
            }
        }
    }

    /// The content of each layer, and how much of it the tree does not show.
    ///
    /// # Errors
    /// A directory of a layer that is an image of a file system cannot be read.
    pub fn usage(&self) -> tree::Result<Vec<LayerUsage>> {
        let archives = self.merged.archives.as_ref();
        let Some(joined) = &self.merged.joined else {
            return archives.map_or(Ok(Vec::new()), |tar| tar.layer_usage());
        };
        let mut shown = HashSet::new();
        each_file(&**joined, &mut |ino, _| shown.extend(joined.origin(ino)))?;
        let mut usage = match archives {
            Some(tar) => tar.layer_usage_with(&|ino| shown.contains(&(0, ino)))?,
            None => Vec::new(),
        };
        for (number, (_, layer)) in (usize::from(archives.is_some())..).zip(&self.merged.images) {
            let mut sum = LayerUsage::default();
            each_file(&*layer.tree(), &mut |ino, bytes| {
                sum.add(bytes, shown.contains(&(number, ino)));
            })?;
            usage.push(sum);
        }
        Ok(usage)
    }
}

/// Shows each regular file of a tree once, with its size.
fn each_file(tree: &dyn FileSystem, each: &mut dyn FnMut(Ino, u64)) -> tree::Result<()> {
    let mut seen = HashSet::from([tree.root()]);
    let mut directories = vec![tree.root()];
    while let Some(dir) = directories.pop() {
        for (entry, metadata) in tree.read_dir_with_metadata(dir)? {
            match entry.kind {
                FileKind::Directory | FileKind::Regular if !seen.insert(entry.ino) => {}
                FileKind::Directory => directories.push(entry.ino),
                FileKind::Regular => each(entry.ino, metadata.size),
                _ => {}
            }
        }
    }
    Ok(())
}
