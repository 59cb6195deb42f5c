//! The images that an index of metadata was made of, as its device table records them.

use std::path::PathBuf;
use std::sync::Arc;

use btrfs::Btrfs;
use erofs::{Erofs, TAG_BYTES};
use squashfs::Squashfs;
use tree::ReadAt;

use crate::error::{During, refuse};
use crate::{Format, Result, text};

/// How the tag of a device begins that an index was made of.
const MAGIC: &[u8; 8] = b"restow-1";
/// Bytes of a digest in a tag.
const DIGEST_BYTES: usize = 16;

/// The record of a device in an index that names its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexedImage {
    /// The format.
    pub(crate) format: Format,
    /// Bytes of the device.
    pub(crate) bytes: u64,
    /// Of btrfs, the generation of the subvolume; of others, when the image was made, in seconds
    /// since 1970.
    pub(crate) generation: u64,
    /// Of btrfs, the number of the subvolume.
    pub(crate) subvolume: u64,
    /// The beginning of a SHA-256 of the superblock and tables.
    pub(crate) digest: [u8; DIGEST_BYTES],
}

impl IndexedImage {
    /// The record in the device table of an EROFS image, if restow made it an index.
    pub(crate) fn of_tag(tag: &[u8; TAG_BYTES]) -> Option<IndexedImage> {
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

    pub(crate) fn tag(&self) -> Vec<u8> {
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
    pub(crate) fn of(
        format: Format,
        subvolume: u64,
        devices: &[Arc<dyn ReadAt>],
    ) -> Result<IndexedImage> {
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

/// Checks that the devices of an index are those that it was made of, and that the image in the
/// same `file` is.
///
/// # Errors
/// One is another image, or changed; it cannot be read.
pub(crate) fn check_indexed(
    index: &Erofs,
    file: Arc<dyn ReadAt>,
    devices: &[(PathBuf, Arc<dyn ReadAt>)],
) -> Result<()> {
    if let Some(tag) = IndexedImage::of_tag(&index.tag_beneath()?) {
        let comparing = || "compare it with the other image in the same file".to_owned();
        compare(&tag, &[file]).during(comparing)?;
    }
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
