//! The images that an index of metadata was made of, as its device table records them.

use std::path::PathBuf;
use std::sync::Arc;

use btrfs::Btrfs;
use codec::Wrapper;
use erofs::{Erofs, TAG_BYTES};
use squashfs::Squashfs;
use tree::{ReadAt, Seekable, sha256};

use crate::digested::DigestedFile;
use crate::error::{During, refuse};
use crate::input::device_bytes;
use crate::{Format, Input, OpenOptions, Result, text};

/// How the tag of a device begins that an index was made of.
const MAGIC: &[u8; 8] = b"restow-1";
/// Bytes of a digest in a tag.
const DIGEST_BYTES: usize = 16;
/// Bytes that suffice to recognise a compressed file.
const START_BYTES: usize = 512;
/// Why members of an archive have no place.
const WHOLE: &str =
    "compressed as a whole; `restow copy` to a .tar.zst makes an archive with a seek table";

/// The record of a device in an index that names its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexedImage {
    /// The format.
    pub(crate) format: Format,
    /// Bytes of the device; of a compressed archive, those of its content.
    pub(crate) bytes: u64,
    /// Of btrfs, the generation of the subvolume; of other images, when it was made, in seconds
    /// since 1970; of streams and archives, where behind the blocks of the index its digests are.
    pub(crate) generation: u64,
    /// Of btrfs, the number of the subvolume.
    pub(crate) subvolume: u64,
    /// The beginning of a SHA-256 of the superblock and tables; of streams and archives, of the
    /// digests of all parts.
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
            b't' => Format::Tar,
            b'd' => Format::Stream,
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
            Format::Tar => b't',
            Format::Stream => b'd',
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
        Ok(IndexedImage {
            format,
            bytes: first.size()?,
            generation,
            subvolume,
            digest: shortened(&digest),
        })
    }

    /// A stream or an archive, with the digests of its parts, which begin right behind the blocks
    /// of the index.
    pub(crate) fn of_file(format: Format, bytes: u64, digests: &[u8]) -> IndexedImage {
        IndexedImage {
            format,
            bytes,
            generation: 0,
            subvolume: 0,
            digest: shortened(&sha256(digests)),
        }
    }

    /// The same with the place of its digests behind the blocks of the index.
    pub(crate) fn with_digests_at(self, at: u64) -> IndexedImage {
        IndexedImage {
            generation: at,
            ..self
        }
    }

    /// Whether it is a stream or an archive: its parts are verified when they are read.
    fn is_file(&self) -> bool {
        matches!(self.format, Format::Tar | Format::Stream)
    }
}

fn shortened(digest: &[u8]) -> [u8; DIGEST_BYTES] {
    digest.first_chunk().copied().unwrap_or_default()
}

/// Why a file of another size is refused.
const OTHER_FILE: &str = "not the file that the index was made of, or changed since";

/// Opens the devices of an image; those that an index was made of so that they are verified.
///
/// # Errors
/// One cannot be opened, or is not of the size that it had.
pub(crate) fn open_devices(
    image: &Arc<dyn ReadAt>,
    options: &OpenOptions,
) -> Result<Vec<(PathBuf, Arc<dyn ReadAt>)>> {
    if options.devices.is_empty() {
        return Ok(Vec::new());
    }
    let index = Erofs::open(vec![Box::new(Arc::clone(image))])?;
    let superblock = index.superblock();
    let end = superblock.blocks << superblock.block_log2;
    let mut tags = index.device_tags().map(IndexedImage::of_tag);
    let mut open = |path: &PathBuf| {
        let mut open = || match tags.next().flatten().filter(IndexedImage::is_file) {
            Some(tag) => {
                let file = file_bytes(tag.format, Input::open_with(path, &options.remote)?)?;
                let size = file.size()?;
                if size != tag.bytes {
                    let had = tag.bytes;
                    refuse!("{OTHER_FILE}: it has {size} bytes, and had {had}");
                }
                let digests = (Arc::clone(image), end.saturating_add(tag.generation));
                Ok(Arc::new(DigestedFile::open(file, digests)?) as _)
            }
            None => device_bytes(path, options),
        };
        let bytes = open().during(|| format!("open {}", text::of_host_path(path, "-")))?;
        Ok((path.clone(), bytes))
    };
    options.devices.iter().map(&mut open).collect()
}

/// The bytes of a stream or of an archive, in which an index has the places of their data.
///
/// # Errors
/// They can be read only once, or are compressed as a whole.
pub(crate) fn file_bytes(format: Format, mut input: Input) -> Result<Arc<dyn ReadAt>> {
    // A stream is not looked at: its beginning would be fetched for that.
    let start = match format {
        Format::Stream => Vec::new(),
        _ => input.start(START_BYTES)?,
    };
    let Some(bytes) = input.seekable().cloned() else {
        refuse!("a pipe; save it to a file first");
    };
    match Wrapper::of(&start) {
        Some(Wrapper::Zstd) if format == Format::Tar => match Seekable::open(bytes)? {
            Some(content) => Ok(Arc::new(content)),
            None => refuse!("{WHOLE}"),
        },
        Some(_) => refuse!("{WHOLE}"),
        None => Ok(bytes),
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
        if let Some(tag) = tag.filter(|tag| !tag.is_file()) {
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
