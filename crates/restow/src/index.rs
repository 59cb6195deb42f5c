//! EROFS images of metadata alone, whose data stays in images that exist.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use btrfs::{Btrfs, Superblock};
use erofs::{DataDevice, Erofs, TAG_BYTES};
use squashfs::Squashfs;
use tree::{FileSystem, Joined, Progress, ReadAt};

use crate::container::device_bytes;
use crate::error::{During, refuse};
use crate::{
    Address, Container, CopyJob, CopyOptions, CopySummary, Format, OpenOptions, Result, SourceTree,
    is_same_file, text,
};

/// How the tag of a device begins that an index was made of.
const MAGIC: &[u8; 8] = b"restow-1";
/// Bytes of a digest in a tag.
const DIGEST_BYTES: usize = 16;

/// What an index records of a device that has its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IndexedImage {
    /// The format.
    format: Format,
    /// Bytes of the device.
    bytes: u64,
    /// Of btrfs, the generation of the subvolume; of others, when the image was made, in seconds
    /// since 1970.
    generation: u64,
    /// Of btrfs, the number of the subvolume.
    subvolume: u64,
    /// The beginning of a SHA-256 of the superblock and tables.
    digest: [u8; DIGEST_BYTES],
}

impl IndexedImage {
    /// What an image in the device table of an EROFS image was, if restow made it an index.
    fn of_tag(tag: &[u8; TAG_BYTES]) -> Option<IndexedImage> {
        let rest = tag.strip_prefix(MAGIC)?;
        let (&[format], rest) = rest.split_first_chunk()?;
        let format = match format {
            b's' => Format::Squashfs,
            b'b' => Format::Btrfs,
            b'e' => Format::Erofs,
            _ => return None,
        };
        let (numbers, rest) = rest.split_at_checked(24)?;
        let (numbers, _) = numbers.as_chunks::<8>();
        let [bytes, generation, subvolume] = *numbers else {
            return None;
        };
        Some(IndexedImage {
            format,
            bytes: u64::from_le_bytes(bytes),
            generation: u64::from_le_bytes(generation),
            subvolume: u64::from_le_bytes(subvolume),
            digest: *rest.first_chunk()?,
        })
    }

    fn tag(&self) -> Vec<u8> {
        let mut tag = MAGIC.to_vec();
        tag.push(match self.format {
            Format::Squashfs => b's',
            Format::Btrfs => b'b',
            _ => b'e',
        });
        for number in [self.bytes, self.generation, self.subvolume] {
            tag.extend(number.to_le_bytes());
        }
        tag.extend(self.digest);
        tag
    }

    /// The image on these devices, of the same format and subvolume.
    fn of(format: Format, subvolume: u64, devices: &[Arc<dyn ReadAt>]) -> Result<IndexedImage> {
        let boxed = || {
            devices
                .iter()
                .map(|it| Box::new(Arc::clone(it)) as Box<dyn ReadAt>)
        };
        let first = devices.first().ok_or(tree::Error::NotFound)?;
        let (generation, digest) = match format {
            Format::Btrfs => {
                let btrfs = Arc::new(Btrfs::open(boxed().collect())?);
                let all = btrfs.subvolumes()?;
                let found = all.iter().find(|it| it.id == subvolume);
                let generation = found.ok_or(tree::Error::NotFound)?.generation;
                (generation, btrfs.subvolume(subvolume)?.digest()?)
            }
            Format::Squashfs => {
                let image = Squashfs::open(Arc::clone(first))?;
                (image.superblock().mkfs_time.into(), image.digest()?)
            }
            _ => {
                let image = Erofs::open(boxed().collect())?;
                let made = image.superblock().made.seconds;
                (made.cast_unsigned(), image.digest()?)
            }
        };
        let (digest, _) = digest
            .split_first_chunk()
            .unwrap_or((&[0; DIGEST_BYTES], &[]));
        Ok(IndexedImage {
            format,
            bytes: first.size()?,
            generation,
            subvolume,
            digest: *digest,
        })
    }
}

/// A device of an image that is indexed, with the number that the image gives it.
type NumberedDevice = (u64, Arc<dyn ReadAt>);

/// Makes an EROFS image of the metadata of images, which stay as they are: their data is named
/// where it is. Of several, each is a layer over those before it, and its marks of overlayfs hide
/// files. The options are those of EROFS images. `devices` are further devices of the one image.
///
/// # Errors
/// One is no SquashFS, btrfs or EROFS image of its own, or cannot be read; the index cannot be
/// written.
pub fn index(
    images: &[Address],
    devices: &[PathBuf],
    dst: &Path,
    mut options: CopyOptions,
    progress: &dyn Progress,
) -> Result<(SourceTree, CopySummary)> {
    let mut paths = images.iter().map(|image| &image.path).chain(devices);
    if let Some(path) = paths.find(|path| is_same_file(path, dst)) {
        let name = text::of_host_path(path, "-");
        refuse!("{name} holds the data; name another file for the index");
    }
    if images.len() > 1 && !devices.is_empty() {
        refuse!("--device is for an index of one image");
    }
    let mut sources = Vec::new();
    for image in images {
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
    let trees: Vec<Arc<dyn FileSystem>> = sources.iter().map(|it| Arc::clone(it.tree())).collect();
    let mut source = sources.remove(0);
    if !sources.is_empty() {
        source = source.joined(Arc::new(Joined::overlayfs(trees, false)?), sources);
    }
    // Equal data is found by its place: none of it is read.
    options.duplicates = false;
    let summary = CopyJob::with(&source, (dst, Format::Erofs), None, &options, |job| {
        job.write(progress, &mut |_| {})
    })?;
    Ok((source, summary))
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

/// Checks that the devices of an index are those that it was made of.
///
/// # Errors
/// One is another image, or changed; it cannot be read.
pub(crate) fn check_indexed(index: &Erofs, devices: &[(PathBuf, Arc<dyn ReadAt>)]) -> Result<()> {
    let tags: Vec<_> = index.device_tags().map(IndexedImage::of_tag).collect();
    let mut rest: &[_] = &tags;
    let mut devices = devices;
    while let (Some(&tag), false) = (rest.first(), devices.is_empty()) {
        let is_same = |other: &Option<IndexedImage>| match (tag, other) {
            (Some(tag), Some(other)) => {
                (tag.digest, tag.subvolume) == (other.digest, other.subvolume)
            }
            _ => false,
        };
        let count = rest
            .iter()
            .take_while(|other| is_same(other))
            .count()
            .max(1);
        let (own, others) = devices.split_at(count.min(devices.len()));
        if let Some(tag) = tag {
            let name = || format!("open {}", text::of_host_path(&own[0].0, "-"));
            let bytes: Vec<_> = own.iter().map(|(_, bytes)| Arc::clone(bytes)).collect();
            compare(&tag, &bytes).during(name)?;
        }
        (rest, devices) = (&rest[count..], others);
    }
    Ok(())
}

fn compare(tag: &IndexedImage, devices: &[Arc<dyn ReadAt>]) -> Result<()> {
    const OTHER: &str = "not the image that the index was made of, or changed since";
    let size = devices[0].size()?;
    if size < tag.bytes {
        refuse!("{OTHER}: it has {size} bytes, and had {}", tag.bytes);
    }
    let found = IndexedImage::of(tag.format, tag.subvolume, devices);
    match found {
        Ok(found) if found.digest == tag.digest => Ok(()),
        Ok(found) if found.generation != tag.generation && tag.format == Format::Btrfs => refuse!(
            "{OTHER}: its subvolume {} is of generation {}, and was of {}",
            tag.subvolume,
            found.generation,
            tag.generation
        ),
        Ok(_) => refuse!("{OTHER}: its tables are others"),
        Err(error) => Err(error.during(OTHER)),
    }
}
