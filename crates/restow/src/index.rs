//! EROFS images of metadata alone, whose data stays in images that exist.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use btrfs::Superblock;
use erofs::DataDevice;
use tree::edit::Selection;
use tree::{FileSystem, Joined, Progress, ReadAt};

use crate::container::device_bytes;
use crate::error::{During, refuse};
use crate::indexed::IndexedImage;
use crate::{
    Address, Container, CopyJob, CopyOptions, CopySummary, Format, OpenOptions, Result, SourceTree,
    is_same_file, text,
};

/// A device of an image that is indexed, with the number that the image gives it.
type NumberedDevice = (u64, Arc<dyn ReadAt>);

/// Makes an EROFS image of the metadata of images, which stay as they are: their data is named
/// where it is. Of several, each is a layer over those before it, and its marks of overlayfs hide
/// files. Those of `with` lie below directories; of files in several images, the last counts. The
/// options are those of EROFS images. `devices` are further devices of the one image.
///
/// # Errors
/// One is no SquashFS, btrfs or EROFS image of its own, or cannot be read; the index cannot be
/// written.
pub fn index(
    images: &[Address],
    with: &[(Address, &[u8])],
    devices: &[PathBuf],
    dst: &Path,
    mut options: CopyOptions,
    progress: &dyn Progress,
) -> Result<(SourceTree, CopySummary)> {
    let all = || images.iter().chain(with.iter().map(|(image, _)| image));
    let mut paths = all().map(|image| &image.path).chain(devices);
    if let Some(path) = paths.find(|path| is_same_file(path, dst)) {
        let name = text::of_host_path(path, "-");
        refuse!("{name} holds the data; name another file for the index");
    }
    if all().count() > 1 && !devices.is_empty() {
        refuse!("--device is for an index of one image");
    }
    let mut sources = Vec::new();
    for image in all() {
        let opened = open(image, devices).during(|| format!("open {}", image.name()))?;
        let (source, devices, tag) = opened;
        let store = source.tree().storage().store;
        for (number, bytes) in devices {
            let known = IndexedImage {
                bytes: bytes.size()?,
                ..tag
            };
            let device = DataDevice::new((store, number), bytes, &known.tag())?;
            options.erofs.devices.push(device);
        }
        if tag.format == Format::Squashfs && !options.erofs.keeps_unaligned() {
            refuse!(
                "{}: SquashFS does not align its data, which needs --min-kernel 6.15",
                source.name()
            );
        }
        sources.push(source);
    }
    let below = sources.split_off(images.len());
    let trees: Vec<Arc<dyn FileSystem>> = sources.iter().map(|it| Arc::clone(it.tree())).collect();
    let mut source = sources.remove(0);
    if !sources.is_empty() {
        source = source.joined(Arc::new(Joined::overlayfs(trees, false)?), sources);
    }
    if !below.is_empty() {
        let at = with.iter().map(|&(_, at)| at);
        let below = below.into_iter().zip(at).collect();
        (source, _) = source.join(b"", below, Selection::default(), 0)?;
    }
    // Equal data is found by its place, and not read.
    options.duplicates = false;
    let summary = CopyJob::with(&source, (dst, Format::Erofs), None, &options, |job| {
        job.write(progress, &mut |_| {})
    })?;
    Ok((source, summary))
}

/// Whether a file is an index of these images, in this order, as they are now: not whether it was
/// made with the same options.
///
/// # Errors
/// It is no index that restow made, or an image cannot be read.
pub fn is_current_index<'a>(
    images: impl Iterator<Item = &'a Address>,
    devices: &[PathBuf],
    index: &Path,
) -> Result<bool> {
    let name = || format!("open {}", text::of_host_path(index, "-"));
    let opened = || match Container::open(index, &OpenOptions::default())? {
        Container::Erofs(image) => image.open_erofs(&OpenOptions::default()),
        other => refuse!("{}, not an index; it is not replaced", other.noun()),
    };
    let opened = opened().during(name)?;
    let tags: Option<Vec<_>> = opened.device_tags().map(IndexedImage::of_tag).collect();
    let Some(tags) = tags.filter(|tags| !tags.is_empty()) else {
        refuse!("{}: not an index of restow; it is not replaced", name());
    };
    let mut found = Vec::new();
    for image in images {
        let (_, devices, tag) = open(image, devices).during(|| format!("open {}", image.name()))?;
        for (_, device) in devices {
            let bytes = device.size()?;
            found.push(IndexedImage { bytes, ..tag });
        }
    }
    Ok(found == tags)
}

/// Opens an image, with its devices in the order of the command line.
fn open(
    address: &Address,
    devices: &[PathBuf],
) -> Result<(SourceTree, Vec<NumberedDevice>, IndexedImage)> {
    let options = OpenOptions::default()
        .devices(devices.to_vec())
        .top_level(address.subvolume.is_none());
    if address.is_container_image() || address.overlay.is_some() {
        refuse!("no image of a file system; an index shows SquashFS, btrfs and EROFS images");
    }
    let container = Container::open(&address.path, &options)?;
    if container.disk_file().is_some() {
        refuse!("{}, whose data has no place in an image", container.noun());
    }
    let format = match &container {
        Container::Squashfs(image) if image.begins_at(0) => Format::Squashfs,
        Container::Btrfs(image) if image.begins_at(0) => Format::Btrfs,
        Container::Erofs(image) if image.begins_at(0) => Format::Erofs,
        other => refuse!(
            "{}; an index shows a SquashFS, btrfs or EROFS image that begins with its file",
            other.noun()
        ),
    };
    if format == Format::Squashfs && !devices.is_empty() {
        refuse!("neither a btrfs nor an EROFS image: --device does not apply");
    }
    let paths: Vec<PathBuf> = [&address.path]
        .into_iter()
        .chain(devices)
        .cloned()
        .collect();
    let bytes = paths.iter().map(|path| device_bytes(path, &options));
    let bytes = bytes.collect::<Result<Vec<_>>>()?;
    let source = SourceTree::open(address, &options)?;
    let subvolume = match (source.subvolume(), format) {
        (Some(subvolume), Format::Btrfs) => subvolume.id(),
        (None, Format::Squashfs) if source.squashfs().is_some() => 0,
        (None, Format::Erofs) if source.erofs().is_some() => 0,
        _ => refuse!("a directory in an image; an index shows a whole image or a subvolume"),
    };
    let tag = IndexedImage::of(format, subvolume, &bytes)?;
    let mut found = Vec::new();
    for (number, bytes) in (0..).zip(bytes) {
        let number = match format {
            Format::Btrfs => Superblock::read(&*bytes)?.device.id,
            _ => number,
        };
        found.push((number, bytes));
    }
    Ok((source, found, tag))
}
