//! EROFS images of metadata alone, whose data stays in images, streams and archives that exist.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use btrfs::Superblock;
use erofs::DataDevice;
use tree::edit::Selection;
use tree::{FileSystem, Joined, Parallel, Progress, ReadAt, StoreId};

use crate::digested::digests;
use crate::error::{During, refuse};
use crate::indexed::{IndexedImage, file_bytes};
use crate::input::{OpenedTar, device_bytes};
use crate::{
    Address, Container, CopyJob, CopyOptions, CopySummary, Format, Input, Kernel, OpenOptions,
    Result, SourceTree, is_same_file, text,
};

/// The oldest Linux that reads an index of images, and one of streams and archives, which Linux
/// seldom does: compressed metadata makes it small.
const INDEX_KERNEL: Kernel = Kernel(6, 15);
const FILE_INDEX_KERNEL: Kernel = Kernel(6, 17);

/// A device of an image that is indexed, with the number that the image gives it.
type NumberedDevice = (u64, Arc<dyn ReadAt>);

/// An image, a stream or an archive that is indexed.
struct IndexSource {
    tree: SourceTree,
    /// Its devices in the order of the command line.
    devices: Vec<NumberedDevice>,
    record: IndexedImage,
    /// Of a stream or an archive, the digests of its parts.
    digests: Vec<u8>,
}

impl IndexSource {
    /// The record of a device; the digests will be at this place behind the blocks of the index.
    fn record_of(&self, device: &dyn ReadAt, digests_at: u64) -> Result<IndexedImage> {
        let known = IndexedImage {
            bytes: device.size()?,
            ..self.record
        };
        Ok(if self.digests.is_empty() {
            known
        } else {
            known.with_digests_at(digests_at)
        })
    }
}

/// Makes an EROFS image of the metadata of images, streams and archives, which stay as they are:
/// their data is named where it is. Of several, each is a layer over those before it, and its marks
/// of overlayfs hide files. Those of `with` lie below directories; of files in several images, the
/// last counts. The options are those of EROFS images. `devices` are further devices of the one
/// image. Without `min_kernel`, Linux 6.15 can read the index, and 6.17 that of streams and
/// archives.
///
/// # Errors
/// One is no SquashFS, btrfs or EROFS image of its own, no send stream and no tar archive, or
/// cannot be read; the index cannot be written.
pub fn index(
    images: &[Address],
    with: &[(Address, &[u8])],
    devices: &[PathBuf],
    dst: &Path,
    min_kernel: Option<Kernel>,
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
    let mut opened = Vec::new();
    for image in all() {
        let source = open(image, devices, options.parallel);
        opened.push(source.during(|| format!("open {}", image.name()))?);
    }
    let are_images = opened.iter().any(|it| it.digests.is_empty());
    let usual = if are_images {
        INDEX_KERNEL
    } else {
        FILE_INDEX_KERNEL
    };
    options.erofs = options.erofs.min_kernel(min_kernel.unwrap_or(usual));
    let mut sources = Vec::new();
    for opened in opened {
        let store = opened.tree.tree().storage().store;
        for (number, bytes) in &opened.devices {
            let known = opened.record_of(&**bytes, options.appended.len() as u64)?;
            let device = DataDevice::new((store, *number), Arc::clone(bytes), &known.tag())?;
            options.erofs.devices.push(device);
        }
        let format = opened.record.format;
        let is_aligned = matches!(format, Format::Btrfs | Format::Erofs);
        if !is_aligned && !options.erofs.keeps_unaligned() {
            let format = match format {
                Format::Squashfs => "SquashFS",
                Format::Stream => "a send stream",
                _ => "a tar archive",
            };
            let name = opened.tree.name();
            refuse!("{name}: {format} does not align its data, which needs --min-kernel 6.15");
        }
        options.appended.extend(opened.digests);
        sources.push(opened.tree);
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
    let mut summary = CopyJob::with(&source, (dst, Format::Erofs), None, &options, |job| {
        job.write(progress, &mut |_| {})
    })?;
    summary.written_bytes += options.appended.len() as u64;
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
    parallel: Parallel,
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
    let (mut found, mut digests) = (Vec::new(), 0);
    for image in images {
        let source = open(image, devices, parallel);
        let source = source.during(|| format!("open {}", image.name()))?;
        for (_, device) in &source.devices {
            found.push(source.record_of(&**device, digests)?);
        }
        digests += source.digests.len() as u64;
    }
    Ok(found == tags)
}

/// Opens an image with its devices, a stream or an archive.
fn open(address: &Address, devices: &[PathBuf], parallel: Parallel) -> Result<IndexSource> {
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
        Container::Tar(..) | Container::SendStream(_) if !devices.is_empty() => {
            refuse!("{}: --device does not apply", container.noun())
        }
        Container::Tar(..) => {
            return open_file(address, Format::Tar, container, &options, parallel);
        }
        Container::SendStream(_) => {
            return open_file(address, Format::Stream, container, &options, parallel);
        }
        other => refuse!(
            "{}; an index shows a tar archive, a send stream, or a SquashFS, btrfs or EROFS image that begins with its file",
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
    Ok(IndexSource {
        tree: source,
        devices: found,
        record: tag,
        digests: Vec::new(),
    })
}

/// Opens a stream or an archive, and reads all of it for its digests.
fn open_file(
    address: &Address,
    format: Format,
    container: Container,
    options: &OpenOptions,
    parallel: Parallel,
) -> Result<IndexSource> {
    let bytes = file_bytes(format, Input::open_with(&address.path, &options.remote)?)?;
    let tree = match container {
        Container::Tar(input, wrapper) => {
            if address.subvolume.is_some() {
                refuse!("a directory in an archive; an index shows all of it");
            }
            let opened = input.open_tar(wrapper, options)?;
            let tar = Arc::into_inner(opened.tar).expect("nothing else holds it");
            let tar = Arc::new(tar.in_store(StoreId::new(), vec![0]));
            SourceTree::of_tar(OpenedTar { tar, ..opened }, address)
        }
        _ => SourceTree::open(address, options)?,
    };
    let digests = digests(&*bytes, parallel)?;
    let record = IndexedImage::of_file(format, bytes.size()?, &digests);
    Ok(IndexSource {
        tree,
        devices: vec![(0, bytes)],
        record,
        digests,
    })
}
