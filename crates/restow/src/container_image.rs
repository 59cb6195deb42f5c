//! Container images: which one of a layout is read, and its tree.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use oci::{Image, ImageLayout, KnownLayers, LayoutKind, ListedImage, Platform};
use tree::tar::{LayerUsage, Tar, TarOptions};
use tree::{FileSystem, HostDir, Limits};

use crate::address::{ImageName, ImageStore};
use crate::error::refuse;
use crate::input::OpenedTar;
use crate::{Address, Container, OpenOptions, Result, SourceNote, text};

/// A container image, as far as it offers more than a tree.
#[non_exhaustive]
pub struct ContainerImage {
    /// Its configuration and layers.
    pub image: Image,
    /// The content of each layer, and how much of it the tree does not show.
    pub usage: Vec<LayerUsage>,
}

/// An image with its tree, and remarks about it: as for archives, those about losses last.
pub(crate) struct OpenedImage {
    pub(crate) tree: Arc<Tar>,
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
    Ok(Some(ImageLayout::open(tree, kind)?))
}

fn open_archive(address: &Address, options: &OpenOptions) -> Result<Arc<Tar>> {
    match Container::open(&address.path, options)? {
        Container::Tar(input, wrapper) => Ok(Arc::new(input.open_tar(wrapper, options)?.tar)),
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
        let tag = text::of_name(tag.unwrap_or_default());
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
    let limits = Limits::default();
    let tar = layout.open_tree(&image, known, &options.spool_dir, limits, how)?;
    let opened = OpenedTar::whole(tar);
    let (mut notes, lost) = SourceNote::of_tar(&opened);
    // Layers replace entries by design.
    notes.retain(|note| !matches!(note, SourceNote::ReplacedEntries(_)));
    let usage = opened.tar.layer_usage()?;
    Ok(OpenedImage {
        tree: Arc::new(opened.tar),
        image: ContainerImage { image, usage },
        notes,
        lost,
    })
}
