//! What a file holds, recognised once from its content.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use btrfs::{Btrfs, OpenOptions, SUPERBLOCK_PLACES, Superblock};
use codec::Wrapper;
use squashfs::Squashfs;
use tree::tar::Tar;
use tree::{Error, HostDir, Limits, ReadAt, Seekable};

use crate::foreign;
use crate::options::ImageAt;
use crate::partitions::{self, Partition};
use crate::text;

/// Bytes that suffice to recognise every container: the magic number of btrfs is at 64 KiB and 64 bytes.
const START_BYTES: usize = (64 << 10) + 72;

/// The magic number of a btrfs superblock, and where in it that is.
const BTRFS_MAGIC: &[u8; 8] = b"_BHRfS_M";
const BTRFS_MAGIC_AT: u64 = 64;

/// Where archives from a pipe and decompressed archives are stored unless `TMPDIR` is set: a place for large files.
const SPOOL: &str = "/var/tmp";

/// A container, open and not yet read.
pub(crate) enum Container {
    Directory(Box<HostDir>),
    Tar(Stream),
    /// A tar archive that is compressed as a whole.
    CompressedTar(Wrapper, Stream),
    /// And the byte of the file at which the image begins.
    Squashfs(File, u64),
    Btrfs(Part),
    /// A disk image with partitions, while no partition was named.
    Disk(Vec<FoundPartition>),
    SendStream(Stream),
}

/// A part of a file.
pub(crate) struct Part {
    file: File,
    at: u64,
    len: u64,
}

impl Part {
    /// A file from a byte to its end.
    fn of(file: File, at: u64) -> io::Result<Part> {
        let len = ReadAt::size(&file)?.saturating_sub(at);
        Ok(Part { file, at, len })
    }

    /// What is known about the file.
    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }
}

impl ReadAt for Part {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let end = at.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let at = self.at.checked_add(at);
        ReadAt::read_exact_at(&self.file, buf, at.ok_or(io::ErrorKind::UnexpectedEof)?)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len)
    }
}

/// A partition, and what it holds.
pub(crate) struct FoundPartition {
    pub(crate) partition: Partition,
    /// The format of an image in it that restow reads.
    pub(crate) format: Option<&'static str>,
}

/// A file that is read from its beginning.
pub(crate) struct Stream {
    file: File,
    /// What was already read of a file that cannot seek.
    start: Vec<u8>,
    can_seek: bool,
}

impl Container {
    /// Opens a directory or file, or standard input for `-`, and recognises what it holds.
    ///
    /// # Errors
    /// It cannot be opened or read, or it holds nothing that restow can read.
    pub(crate) fn open(path: &Path, image_at: Option<ImageAt>) -> Result<Container> {
        let mut file = if path == Path::new("-") {
            File::from(io::stdin().as_fd().try_clone_to_owned()?)
        } else {
            match HostDir::open(path) {
                Ok(dir) => return Ok(Container::Directory(Box::new(dir))),
                Err(Error::NotADirectory) => File::open(path)?,
                Err(error) => return Err(error.into()),
            }
        };
        let kind = file.metadata()?.file_type();
        // A file that someone else has read in part is a stream.
        let is_at_start = kind.is_file() && io::Seek::stream_position(&mut file)? == 0;
        let can_seek = is_at_start || kind.is_block_device();
        let mut start = Vec::new();
        if can_seek {
            let len = ReadAt::size(&file)?.min(START_BYTES as u64);
            start.resize(len as usize, 0);
            ReadAt::read_exact_at(&file, &mut start, 0)?;
        } else {
            (&mut file)
                .take(START_BYTES as u64)
                .read_to_end(&mut start)?;
        }
        if can_seek && let Some(at) = image_at {
            return inside(file, at);
        }
        let stream = |file, start| Stream {
            file,
            start,
            can_seek,
        };
        match Magic::of(&start) {
            Magic::Squashfs if can_seek => Ok(Container::Squashfs(file, 0)),
            Magic::Squashfs => bail!("a SquashFS image from a pipe; save it to a file first"),
            Magic::Btrfs if can_seek => Ok(Container::Btrfs(Part::of(file, 0)?)),
            Magic::Btrfs => bail!("a btrfs image from a pipe; save it to a file first"),
            Magic::SendStream => Ok(Container::SendStream(stream(file, start))),
            Magic::Tar => Ok(Container::Tar(stream(file, start))),
            Magic::Wrapped(wrapper) => Ok(Container::CompressedTar(wrapper, stream(file, start))),
            Magic::Unknown if start.is_empty() => bail!("the file is empty"),
            // The first superblock may be damaged, and a copy of it intact.
            Magic::Unknown if can_seek && has_btrfs_superblock(&file)? => {
                Ok(Container::Btrfs(Part::of(file, 0)?))
            }
            Magic::Unknown => {
                // In an AppImage, a program comes before the image.
                let at = if can_seek {
                    squashfs::find_image(&file)?
                } else {
                    None
                };
                match at {
                    Some(at) => Ok(Container::Squashfs(file, at)),
                    None => {
                        let partitions = if can_seek {
                            partitions_of(&file)?
                        } else {
                            Vec::new()
                        };
                        if partitions.is_empty() {
                            bail!(unknown(&start, path));
                        }
                        Ok(Container::Disk(partitions))
                    }
                }
            }
        }
    }

    /// What it is called, with an article.
    pub(crate) fn noun(&self) -> &'static str {
        match self {
            Container::Directory(_) => "a directory",
            Container::Tar(_) => "a tar archive",
            Container::CompressedTar(..) => "a compressed file",
            Container::Squashfs(..) => "a SquashFS image",
            Container::Btrfs(_) => "a btrfs image",
            Container::Disk(_) => "a disk image with partitions",
            Container::SendStream(_) => "a btrfs send stream",
        }
    }
}

/// Opens the image inside of a file.
fn inside(file: File, at: ImageAt) -> Result<Container> {
    let (at, len) = match at {
        ImageAt::Byte(at) => (at, u64::MAX),
        ImageAt::Partition(number) => {
            let partitions = partitions::read(&file)?;
            let found = partitions.iter().find(|it| it.number == number);
            let found = found.with_context(|| match partitions.len() {
                0 => "a file without a partition table".to_owned(),
                _ => format!("no partition {number}; `restow info` lists the partitions"),
            })?;
            (found.start, found.len)
        }
        ImageAt::Search => {
            let partitions = partitions_of(&file)?;
            let found = partitions.iter().find(|found| found.format.is_some());
            match found.map(|found| (found.partition.start, found.partition.len)) {
                Some(place) => place,
                None => (
                    first_image(&file)?.context("no SquashFS or btrfs image found")?,
                    u64::MAX,
                ),
            }
        }
    };
    let rest = ReadAt::size(&file)?.saturating_sub(at);
    let part = Part {
        file,
        at,
        len: len.min(rest),
    };
    if has_btrfs_superblock(&part)? {
        return Ok(Container::Btrfs(part));
    }
    Ok(Container::Squashfs(part.file, at))
}

/// The partitions of a file, with what they hold.
fn partitions_of(file: &File) -> Result<Vec<FoundPartition>> {
    let mut found = Vec::new();
    for partition in partitions::read(file)? {
        let part = Part {
            file: file.try_clone()?,
            at: partition.start,
            len: partition.len,
        };
        let mut start = [0; 4];
        let is_squashfs = part.len > 96 && {
            part.read_exact_at(&mut start, 0)?;
            start == *b"hsqs"
        };
        let format = if is_squashfs {
            Some("SquashFS")
        } else {
            has_btrfs_superblock(&part)?.then_some("btrfs")
        };
        found.push(FoundPartition { partition, format });
    }
    Ok(found)
}

/// Where the first image of either format begins.
fn first_image(file: &File) -> Result<Option<u64>> {
    let (squashfs, btrfs) = (squashfs::search_image(file)?, search_btrfs(file)?);
    Ok(match (squashfs, btrfs) {
        (Some(squashfs), Some(btrfs)) => Some(squashfs.min(btrfs)),
        (found, None) | (None, found) => found,
    })
}

/// Where the first btrfs image begins: its first superblock is 64 KiB after that, and says so.
fn search_btrfs(file: &File) -> Result<Option<u64>> {
    const STEP: u64 = 512;
    let size = ReadAt::size(file)?;
    let first = SUPERBLOCK_PLACES[0].0;
    let mut buffer = vec![0; 1 << 20];
    let mut at = first;
    while at < size {
        let len = (size - at).min(buffer.len() as u64) as usize;
        ReadAt::read_exact_at(file, &mut buffer[..len], at)?;
        for (number, sector) in (0..).zip(buffer[..len].chunks_exact(STEP as usize)) {
            // The address of the superblock itself comes before the magic number.
            let mark = BTRFS_MAGIC_AT as usize;
            if sector[mark..].starts_with(BTRFS_MAGIC)
                && sector[mark - 16..mark - 8] == first.to_le_bytes()
            {
                return Ok(Some(at + number * STEP - first));
            }
        }
        at += len as u64;
    }
    Ok(None)
}

/// Why a file cannot be read, and what can read it.
fn unknown(start: &[u8], path: &Path) -> String {
    let hint = foreign::hint(start, path);
    hint.unwrap_or_else(|| format!("unknown format (first bytes: {})", text::of_hex(start, 8)))
}

/// What the first bytes of a file say.
enum Magic {
    Squashfs,
    Btrfs,
    SendStream,
    Tar,
    /// Compressed in a way that restow reads.
    Wrapped(Wrapper),
    Unknown,
}

impl Magic {
    fn of(start: &[u8]) -> Magic {
        let has =
            |at: usize, magic: &[u8]| start.get(at..).is_some_and(|rest| rest.starts_with(magic));
        if has(0, b"hsqs") {
            return Magic::Squashfs;
        }
        if has(
            (SUPERBLOCK_PLACES[0].0 + BTRFS_MAGIC_AT) as usize,
            BTRFS_MAGIC,
        ) {
            return Magic::Btrfs;
        }
        if has(0, b"btrfs-stream\0") {
            return Magic::SendStream;
        }
        // Before the magic numbers of two and three bytes: a tar archive may begin with a file name that has them.
        if Tar::recognises(start) {
            return Magic::Tar;
        }
        if let Some(wrapper) = Wrapper::of(start) {
            return Magic::Wrapped(wrapper);
        }
        Magic::Unknown
    }
}

fn has_btrfs_superblock(file: &dyn ReadAt) -> Result<bool> {
    let size = ReadAt::size(file)?;
    for place in SUPERBLOCK_PLACES {
        let at = place.0 + BTRFS_MAGIC_AT;
        let mut magic = [0; BTRFS_MAGIC.len()];
        if size >= at + magic.len() as u64 {
            ReadAt::read_exact_at(file, &mut magic, at)?;
            if magic == *BTRFS_MAGIC {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

impl Stream {
    /// Reads it as a tar archive.
    ///
    /// # Errors
    /// It cannot be read, or breaks the format.
    pub(crate) fn open_tar(self, ignore_zeros: bool) -> Result<Tar> {
        tar(Box::new(self.into_file()?), ignore_zeros)
    }

    /// All of it, to read at any place. A stream that cannot seek is stored in a file first.
    ///
    /// # Errors
    /// It cannot be read, or the file not be written.
    pub(crate) fn into_file(self) -> Result<File> {
        let Stream {
            mut file,
            start,
            can_seek,
        } = self;
        if can_seek {
            return Ok(file);
        }
        let mut all = (&*start).chain(&mut file);
        Ok(tree::spool(
            |mut out| io::copy(&mut all, &mut out),
            &spool(),
        )?)
    }

    /// Decompresses it, and reads what comes out as a tar archive.
    ///
    /// # Errors
    /// It cannot be read or decompressed, or what comes out is not a tar archive.
    pub(crate) fn open_compressed_tar(self, wrapper: Wrapper, ignore_zeros: bool) -> Result<Tar> {
        let Stream {
            mut file,
            start,
            can_seek,
        } = self;
        if can_seek && wrapper == Wrapper::Zstd {
            file = match Seekable::open(file)? {
                Ok(seekable) => return tar(Box::new(seekable), ignore_zeros),
                Err(file) => file,
            };
        }
        // If it can seek, `start` was read without moving its position.
        let read_before = if can_seek { &[] } else { &*start };
        let mut all = read_before.chain(&mut file);
        let unpack = |out: &mut dyn io::Write| wrapper.decompress(&mut all, out);
        let open = || tar(Box::new(tree::spool(unpack, &spool())?), ignore_zeros);
        open().with_context(|| format!("decompress it with {}", wrapper.name()))
    }
}

fn tar(archive: Box<dyn ReadAt>, ignore_zeros: bool) -> Result<Tar> {
    let open = if ignore_zeros {
        Tar::open_concatenated
    } else {
        Tar::open
    };
    Ok(open(archive, Limits::default())?)
}

fn spool() -> PathBuf {
    let spool = std::env::var_os("TMPDIR").filter(|dir| !dir.is_empty());
    PathBuf::from(spool.unwrap_or_else(|| SPOOL.into()))
}

/// Opens the SquashFS image at a byte of a file.
///
/// # Errors
/// It cannot be read, or breaks the format.
pub(crate) fn open_squashfs(file: File, at: u64) -> Result<Squashfs> {
    Ok(Squashfs::open_at(file, at, &Limits::default())?)
}

/// Opens a btrfs file system on the device that `file` is an image of, and on the others.
///
/// # Errors
/// An image cannot be read, or breaks the format, or they are not of one file system.
pub(crate) fn open_btrfs(
    file: Part,
    others: &[PathBuf],
    options: &OpenOptions,
) -> Result<Arc<Btrfs>> {
    let mut images: Vec<Box<dyn ReadAt>> = vec![Box::new(file)];
    for other in others {
        let name = || format!("open {}", text::of_host_path(other, "-"));
        images.push(Box::new(File::open(other).with_context(name)?));
    }
    Ok(Arc::new(Btrfs::open_with(images, options)?))
}

/// Checks that each of these images is one of the devices of one of these file systems.
///
/// # Errors
/// It is not, or it cannot be read.
pub(crate) fn check_devices(images: &[PathBuf], all: &[Arc<Btrfs>]) -> Result<()> {
    for image in images {
        let name = || format!("open {}", text::of_host_path(image, "-"));
        let file = File::open(image).with_context(name)?;
        let device = Superblock::read(&file).with_context(name)?.device;
        let is_of = |btrfs: &Arc<Btrfs>| {
            let is_listed = btrfs
                .devices()
                .iter()
                .any(|known| (known.id, known.uuid) == (device.id, device.uuid));
            is_listed && btrfs.present_devices().any(|id| id == device.id)
        };
        if !all.iter().any(is_of) {
            bail!(
                "{}: not a device of one of the images, or older than they are",
                name()
            );
        }
    }
    Ok(())
}
