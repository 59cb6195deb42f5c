//! Containers, recognised once from their content.

use std::fs::Metadata;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use btrfs::{Btrfs, SUPERBLOCK_PLACES, Superblock};
use codec::Wrapper;
use erofs::Erofs;
use squashfs::Squashfs;
use tree::tar::Tar;
use tree::{HostDir, Limits, ReadAt};

use crate::disk_file::{DiskFile, DiskFormat};
use crate::error::{During, refuse};
use crate::indexed::{check_indexed, open_devices};
use crate::input::device_bytes;
use crate::object::is_remote;
use crate::partitions::{self, Partition};
use crate::verity::VerifiedImage;
use crate::{Error, ImageAt, Input, OpenOptions, Result, VerityRoot, foreign, text};

/// Bytes that suffice to recognise every container: the magic number of btrfs is at 64 KiB and 64
/// bytes.
const START_BYTES: usize = (64 << 10) + 72;

/// The magic number of a btrfs superblock, and where in it that is.
const BTRFS_MAGIC: &[u8; 8] = b"_BHRfS_M";
const BTRFS_MAGIC_AT: u64 = 64;

/// The magic number of an EROFS superblock, and where in the image that is.
const EROFS_MAGIC: &[u8; 4] = b"\xe2\xe1\xf5\xe0";
const EROFS_MAGIC_AT: usize = 1024;

/// Where the first label of a device of ZFS has its uberblocks, each at a multiple of 1 KiB, and
/// the number that each begins with, in the byte order of its machine.
const ZFS_BYTES: Range<usize> = 128 << 10..256 << 10;
const ZFS_MAGIC: u64 = 0x00ba_b10c;

/// A container, open and not yet read.
#[non_exhaustive]
pub enum Container {
    /// A directory of this machine.
    Directory(Box<HostDir>),
    /// A tar archive; the format that it is compressed with as a whole.
    Tar(Input, Option<Wrapper>),
    /// An archive of cpio, or an initramfs.
    Cpio(Input),
    /// A SquashFS image.
    Squashfs(ImageRange),
    /// A btrfs image.
    Btrfs(ImageRange),
    /// An EROFS image.
    Erofs(ImageRange),
    /// A disk image with partitions, while no partition was named, and the disk file that holds it.
    Disk(Vec<Partition>, Option<Arc<DiskFile>>),
    /// A btrfs send stream.
    SendStream(Input),
}

/// The part of an input that holds an image.
pub struct ImageRange {
    bytes: Arc<dyn ReadAt>,
    at: u64,
    len: u64,
    metadata: Option<Metadata>,
    disk: Option<Arc<DiskFile>>,
}

impl ImageRange {
    /// From a byte of an input to its end, or as far as `len` bytes of it.
    pub(crate) fn of(
        input: &Input,
        bytes: &Arc<dyn ReadAt>,
        at: u64,
        len: u64,
    ) -> io::Result<ImageRange> {
        Ok(ImageRange {
            len: len.min(bytes.size()?.saturating_sub(at)),
            bytes: Arc::clone(bytes),
            at,
            metadata: input.metadata().cloned(),
            disk: input.disk_file().cloned(),
        })
    }

    /// The metadata of the file of this machine.
    pub fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }

    /// Opens the SquashFS image at the beginning of the range.
    ///
    /// # Errors
    /// It cannot be read, or breaks the format.
    pub fn open_squashfs(self) -> Result<Squashfs> {
        Ok(Squashfs::open_at(self.bytes, self.at, &Limits::default())?)
    }

    /// Opens the btrfs file system on the device that this is an image of, and on the devices of
    /// the options.
    ///
    /// # Errors
    /// An image cannot be read, or breaks the format, or they are not of one file system.
    pub fn open_btrfs(self, options: &OpenOptions) -> Result<Arc<Btrfs>> {
        self.open_btrfs_beside(options, false)
    }

    /// Opens the EROFS image at the beginning of the range, with the devices of the options.
    ///
    /// # Errors
    /// An image cannot be read, breaks the format, or needs a feature that is not read.
    pub fn open_erofs(self, options: &OpenOptions) -> Result<Arc<Erofs>> {
        if options.verity.is_some() && !options.devices.is_empty() {
            refuse!("--root-hash is for images of one device");
        }
        let image: Arc<dyn ReadAt> = Arc::new(self);
        let devices = open_devices(&image, options)?;
        let all = [&image].into_iter().chain(devices.iter().map(|it| &it.1));
        let erofs = Erofs::open(all.map(|it| Box::new(Arc::clone(it)) as _).collect())?;
        check_indexed(&erofs, image, &devices)?;
        Ok(Arc::new(erofs))
    }

    /// Whether there is the superblock of an EROFS image, also where another one counts.
    ///
    /// # Errors
    /// It cannot be read.
    fn is_erofs(&self) -> Result<bool> {
        let mut magic = [0; EROFS_MAGIC.len()];
        let at = EROFS_MAGIC_AT as u64;
        if at + magic.len() as u64 <= self.len {
            self.read_exact_at(&mut magic, at)?;
        }
        Ok(magic == *EROFS_MAGIC)
    }

    /// Whether the image begins at this byte of its file.
    pub(crate) fn begins_at(&self, at: u64) -> bool {
        self.at == at
    }

    /// The image, and further devices.
    fn with_devices(self, options: &OpenOptions) -> Result<Vec<Box<dyn ReadAt>>> {
        if options.verity.is_some() && !options.devices.is_empty() {
            refuse!("--root-hash is for images of one device");
        }
        let mut images: Vec<Box<dyn ReadAt>> = vec![Box::new(self)];
        for device in &options.devices {
            let bytes = device_bytes(device, options).during(|| opening(device))?;
            images.push(Box::new(bytes));
        }
        Ok(images)
    }

    /// As [`ImageRange::open_btrfs`]; with `ignores_foreign`, devices may be of other file systems.
    pub(crate) fn open_btrfs_beside(
        self,
        options: &OpenOptions,
        ignores_foreign: bool,
    ) -> Result<Arc<Btrfs>> {
        let images = self.with_devices(options)?;
        let options = options.btrfs(ignores_foreign);
        Ok(Arc::new(Btrfs::open_with(images, &options)?))
    }

    /// The bytes of the input that these of the range are.
    fn place(&self, range: &Range<u64>) -> Range<u64> {
        let at = |at: u64| self.at.saturating_add(at.min(self.len));
        at(range.start)..at(range.end)
    }
}

impl ReadAt for ImageRange {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let end = at.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let at = self.at.checked_add(at);
        (self.bytes).read_exact_at(buf, at.ok_or(io::ErrorKind::UnexpectedEof)?)
    }

    fn will_read(&self, ranges: &[Range<u64>]) {
        let ranges = ranges.iter().map(|range| self.place(range));
        self.bytes.will_read(&ranges.collect::<Vec<_>>());
    }

    fn will_read_within(&self, range: Range<u64>) {
        self.bytes.will_read_within(self.place(&range));
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len)
    }
}

impl Container {
    /// Opens a directory or file, or standard input for `-`, and recognises its format.
    ///
    /// # Errors
    /// It cannot be opened or read, or it holds nothing that restow can read.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Container> {
        if path != Path::new("-") && !is_remote(path.as_os_str().as_bytes()) {
            match HostDir::open(path) {
                Ok(_) if options.verity.is_some() => {
                    refuse!("a directory, and --root-hash is for images");
                }
                Ok(dir) => return Ok(Container::Directory(Box::new(dir))),
                Err(tree::Error::NotADirectory) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Container::of(Input::open_with(path, &options.remote)?, options)
    }

    /// Recognises the format of an input. Of the options, only the place of an image, its root hash
    /// and `as_erofs` count.
    ///
    /// # Errors
    /// It cannot be read, or it holds nothing that restow can read.
    pub fn of(input: Input, options: &OpenOptions) -> Result<Container> {
        match Container::recognise(input, options)? {
            Container::Squashfs(image) | Container::Btrfs(image)
                if options.as_erofs && image.is_erofs()? =>
            {
                Ok(Container::Erofs(image))
            }
            Container::Erofs(image) => Ok(Container::Erofs(image)),
            other if options.as_erofs => {
                refuse!(
                    "{}, and no EROFS image: --as-erofs does not apply",
                    other.noun()
                )
            }
            container => Ok(container),
        }
    }

    fn recognise(mut input: Input, options: &OpenOptions) -> Result<Container> {
        input.open_disk_file(options)?;
        let mut image_at = options.image_at;
        if let Some(root) = &options.verity {
            let image = verified(&input, image_at.take(), root)?;
            input = input.with_bytes(Arc::new(image));
        }
        let start = input.start(START_BYTES)?;
        let bytes = input.seekable().map(Arc::clone);
        if let (Some(bytes), Some(at)) = (&bytes, options.image_at) {
            return inside(&input, bytes, at);
        }
        if let (Some(bytes), Some(disk)) = (&bytes, input.disk_file()) {
            return on_disk(&input, bytes, &start, disk);
        }
        let origin = input.origin();
        let image = |at| match &bytes {
            Some(bytes) => Ok(Some(ImageRange::of(&input, bytes, at, u64::MAX)?)),
            None => Ok::<_, Error>(None),
        };
        match Magic::of(&start) {
            Magic::Squashfs => match image(0)? {
                Some(image) => Ok(Container::Squashfs(image)),
                None => refuse!("a SquashFS image from {origin}; save it to a file first"),
            },
            Magic::Btrfs => match image(0)? {
                Some(image) => Ok(Container::Btrfs(image)),
                None => refuse!("a btrfs image from {origin}; save it to a file first"),
            },
            Magic::Erofs => match image(0)? {
                Some(image) => Ok(Container::Erofs(image)),
                None => refuse!("an EROFS image from {origin}; save it to a file first"),
            },
            Magic::SendStream => Ok(Container::SendStream(input)),
            Magic::Tar => Ok(Container::Tar(input, None)),
            Magic::Cpio => Ok(Container::Cpio(input)),
            Magic::Wrapped(wrapper) => Ok(Container::Tar(input, Some(wrapper))),
            Magic::Unknown if start.is_empty() => refuse!("the file is empty"),
            Magic::Unknown => {
                let found = match &bytes {
                    Some(bytes) => elsewhere(&input, bytes)?,
                    None => None,
                };
                found.ok_or_else(|| Error::refused(unknown(&start, input.path())))
            }
        }
    }

    /// The disk file that holds the image.
    pub fn disk_file(&self) -> Option<&Arc<DiskFile>> {
        match self {
            Container::Squashfs(image) | Container::Btrfs(image) | Container::Erofs(image) => {
                image.disk.as_ref()
            }
            Container::Disk(_, disk) => disk.as_ref(),
            _ => None,
        }
    }

    /// Its name, with an article.
    pub fn noun(&self) -> &'static str {
        match self {
            Container::Directory(_) => "a directory",
            Container::Tar(_, None) => "a tar archive",
            Container::Cpio(_) => "a cpio archive",
            Container::Tar(_, Some(_)) => "a compressed file",
            Container::Squashfs(_) => "a SquashFS image",
            Container::Btrfs(_) => "a btrfs image",
            Container::Erofs(_) => "an EROFS image",
            Container::Disk(..) => "a disk image with partitions",
            Container::SendStream(_) => "a btrfs send stream",
        }
    }
}

/// What a file or device holds, with an article, before it is written over; `None` if its bytes
/// show no format.
///
/// # Errors
/// It cannot be opened or read.
pub fn known_content(path: &Path) -> Result<Option<&'static str>> {
    let mut input = Input::open(path)?;
    let start = input.start(ZFS_BYTES.end)?;
    if let Some(format) = DiskFormat::of(&start) {
        return Ok(Some(format.noun()));
    }
    match Container::of(input, &OpenOptions::default()) {
        Ok(container) => return Ok(Some(container.noun())),
        Err(Error::Refused(_)) => {}
        Err(error) => return Err(error),
    }
    let is_zfs = |block: &[u8]| {
        let magics = [ZFS_MAGIC.to_le_bytes(), ZFS_MAGIC.to_be_bytes()];
        magics.iter().any(|magic| block.starts_with(magic))
    };
    let blocks = start.get(ZFS_BYTES.start..).unwrap_or_default();
    let foreign = foreign::noun(&start);
    let is_boot = start.get(510..512) == Some(b"\x55\xaa");
    Ok(match foreign {
        None if blocks.chunks(1024).any(is_zfs) => Some("a device of a ZFS pool"),
        None if is_boot => Some("a partition table or a boot sector"),
        foreign => foreign,
    })
}

/// The image on a disk in a disk file: archives and streams are not looked for there, which could
/// go on behind all of its zeros.
fn on_disk(
    input: &Input,
    bytes: &Arc<dyn ReadAt>,
    start: &[u8],
    disk: &DiskFile,
) -> Result<Container> {
    let image = ImageRange::of(input, bytes, 0, u64::MAX)?;
    let holds = format!("{} that holds", disk.noun());
    match Magic::of(start) {
        Magic::Squashfs => Ok(Container::Squashfs(image)),
        Magic::Btrfs => Ok(Container::Btrfs(image)),
        Magic::Erofs => Ok(Container::Erofs(image)),
        Magic::SendStream => refuse!("{holds} a btrfs send stream; only images are read there"),
        Magic::Tar | Magic::Cpio => refuse!("{holds} an archive; only images are read there"),
        Magic::Wrapped(_) => refuse!("{holds} a compressed file; only images are read there"),
        Magic::Unknown if start.iter().all(|&byte| byte == 0) && !has_btrfs_superblock(bytes)? => {
            refuse!("{holds} only zeros at its beginning")
        }
        Magic::Unknown => {
            let found = elsewhere(input, bytes)?;
            let why = || format!("{holds} {}", unknown(start, Path::new("-")));
            found.ok_or_else(|| Error::refused(why()))
        }
    }
}

/// An image of which the beginning shows nothing.
fn elsewhere(input: &Input, bytes: &Arc<dyn ReadAt>) -> Result<Option<Container>> {
    // The first superblock may be damaged, and a copy of it intact.
    if has_btrfs_superblock(bytes)? {
        let image = ImageRange::of(input, bytes, 0, u64::MAX)?;
        return Ok(Some(Container::Btrfs(image)));
    }
    // In an AppImage, a program comes before the image.
    if let Some(at) = squashfs::find_image(bytes)? {
        let image = ImageRange::of(input, bytes, at, u64::MAX)?;
        return Ok(Some(Container::Squashfs(image)));
    }
    let partitions = partitions_of(input, bytes)?;
    let disk = || input.disk_file().cloned();
    Ok((!partitions.is_empty()).then(|| Container::Disk(partitions, disk())))
}

/// Opens an image with its hash tree.
pub(crate) fn verified(
    input: &Input,
    at: Option<ImageAt>,
    root: &VerityRoot,
) -> Result<VerifiedImage> {
    let Some(bytes) = input.seekable() else {
        refuse!("neither a file nor a device, and --root-hash is for images");
    };
    let mut image = Arc::clone(bytes);
    if let Some(at) = at
        && let Container::Squashfs(range) | Container::Btrfs(range) | Container::Erofs(range) =
            inside(input, bytes, at)?
    {
        image = Arc::new(range);
    }
    VerifiedImage::open(image, root)
}

/// Opens the image inside of a file.
fn inside(input: &Input, bytes: &Arc<dyn ReadAt>, at: ImageAt) -> Result<Container> {
    let (at, len) = match at {
        ImageAt::Byte(at) => (at, u64::MAX),
        ImageAt::Partition(number) => {
            let partitions = partitions::read(bytes)?;
            let found = partitions.iter().find(|it| it.number == number);
            match (found, partitions.len()) {
                (Some(found), _) => (found.start, found.len),
                (None, 0) => refuse!("a file without a partition table"),
                (None, _) => {
                    refuse!("no partition {number}; `restow info` lists the partitions")
                }
            }
        }
        ImageAt::Search => {
            let partitions = partitions_of(input, bytes)?;
            let found = partitions.iter().find(|found| found.format.is_some());
            match found {
                Some(found) => (found.start, found.len),
                None if input.disk_file().is_some() => {
                    refuse!("no partition with an image, and disk files are not searched on")
                }
                None => match first_image(input, bytes)? {
                    Some(at) => (at, u64::MAX),
                    None => refuse!("no SquashFS, btrfs or EROFS image found"),
                },
            }
        }
    };
    let image = ImageRange::of(input, bytes, at, len)?;
    if has_btrfs_superblock(&image)? {
        return Ok(Container::Btrfs(image));
    }
    let mut start = vec![0; START_BYTES.min(usize::try_from(image.len).unwrap_or(usize::MAX))];
    image.read_exact_at(&mut start, 0)?;
    if start.iter().all(|&byte| byte == 0) {
        refuse!("no image at byte {at}: only zeros, as in an empty partition");
    }
    if Magic::of(&start) == Magic::Erofs {
        return Ok(Container::Erofs(image));
    }
    if let Some(hint) = foreign::hint(&start, input.path()) {
        refuse!("at byte {at}: {hint}");
    }
    Ok(Container::Squashfs(image))
}

/// The partitions of a file, with the formats of their images.
fn partitions_of(input: &Input, bytes: &Arc<dyn ReadAt>) -> Result<Vec<Partition>> {
    let mut partitions = partitions::read(bytes)?;
    for partition in &mut partitions {
        let image = ImageRange::of(input, bytes, partition.start, partition.len)?;
        let mut start = vec![0; START_BYTES.min(usize::try_from(image.len).unwrap_or(usize::MAX))];
        image.read_exact_at(&mut start, 0)?;
        partition.format = match Magic::of(&start) {
            Magic::Squashfs => Some("SquashFS"),
            Magic::Erofs => Some("EROFS"),
            _ => has_btrfs_superblock(&image)?.then_some("btrfs"),
        };
    }
    Ok(partitions)
}

/// Where the first image of any format begins.
fn first_image(input: &Input, bytes: &Arc<dyn ReadAt>) -> Result<Option<u64>> {
    // The first superblock of btrfs is 64 KiB after the beginning, and says so.
    let first = SUPERBLOCK_PLACES[0].0;
    let mark = BTRFS_MAGIC_AT as usize;
    let is_btrfs = |sector: &[u8], _| {
        // The address of the superblock itself comes before the magic number.
        sector[mark..].starts_with(BTRFS_MAGIC)
            && sector[mark - 16..mark - 8] == first.to_le_bytes()
    };
    // Four bytes are soon found by chance: the superblock and the root must be readable.
    let is_erofs = |sector: &[u8], at| {
        let opens = || {
            Erofs::open(vec![Box::new(
                ImageRange::of(input, bytes, at, u64::MAX).ok()?,
            )])
            .ok()
        };
        sector.starts_with(EROFS_MAGIC) && opens().is_some()
    };
    let found = [
        squashfs::search_image(bytes)?,
        search_sectors(bytes, first, &is_btrfs)?,
        search_sectors(bytes, EROFS_MAGIC_AT as u64, &is_erofs)?,
    ];
    Ok(found.into_iter().flatten().min())
}

/// Where the first image begins whose superblock, `skipped` bytes after that, is in a sector that
/// fits.
fn search_sectors(
    file: &dyn ReadAt,
    skipped: u64,
    fits: &dyn Fn(&[u8], u64) -> bool,
) -> Result<Option<u64>> {
    const STEP: u64 = 512;
    let size = file.size()?;
    let mut buffer = vec![0; 1 << 20];
    let mut at = skipped;
    while at < size {
        let len = (size - at).min(buffer.len() as u64) as usize;
        file.read_exact_at(&mut buffer[..len], at)?;
        for (number, sector) in (0..).zip(buffer[..len].chunks_exact(STEP as usize)) {
            let begin = at + number * STEP - skipped;
            if fits(sector, begin) {
                return Ok(Some(begin));
            }
        }
        at += len as u64;
    }
    Ok(None)
}

fn opening(device: &Path) -> String {
    format!("open {}", text::of_host_path(device, "-"))
}

/// The reason why a file cannot be read, and a program that can.
fn unknown(start: &[u8], path: &Path) -> String {
    let hint = foreign::hint(start, path);
    hint.unwrap_or_else(|| format!("unknown format (first bytes: {})", text::of_hex(start, 8)))
}

/// The format that the first bytes of a file tell.
#[derive(PartialEq, Eq)]
enum Magic {
    Squashfs,
    Btrfs,
    Erofs,
    SendStream,
    Tar,
    Cpio,
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
        if has(EROFS_MAGIC_AT, EROFS_MAGIC) && !Tar::recognises(start) {
            return Magic::Erofs;
        }
        if has(0, b"btrfs-stream\0") {
            return Magic::SendStream;
        }
        // Before the magic numbers of two and three bytes: a tar archive may begin with a file name
        // that has them.
        if Tar::recognises(start) {
            return Magic::Tar;
        }
        if Tar::recognises_cpio(start) {
            return Magic::Cpio;
        }
        if let Some(wrapper) = Wrapper::of(start) {
            return Magic::Wrapped(wrapper);
        }
        Magic::Unknown
    }
}

fn has_btrfs_superblock(file: &dyn ReadAt) -> Result<bool> {
    let size = file.size()?;
    for place in SUPERBLOCK_PLACES {
        let at = place.0 + BTRFS_MAGIC_AT;
        let mut magic = [0; BTRFS_MAGIC.len()];
        if size >= at + magic.len() as u64 {
            file.read_exact_at(&mut magic, at)?;
            if magic == *BTRFS_MAGIC {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Checks that each of the further devices of the options is one of one of these file systems.
///
/// # Errors
/// It is not, or it cannot be read.
pub fn check_devices(options: &OpenOptions, all: &[Arc<Btrfs>]) -> Result<()> {
    for image in &options.devices {
        let name = || opening(image);
        let file = device_bytes(image, options).during(name)?;
        let device = Superblock::read(&file).during(name)?.device;
        let is_of = |btrfs: &Arc<Btrfs>| {
            let is_listed = btrfs
                .devices()
                .iter()
                .any(|known| (known.id, known.uuid) == (device.id, device.uuid));
            is_listed && btrfs.present_devices().any(|id| id == device.id)
        };
        if !all.iter().any(is_of) {
            refuse!(
                "{}: not a device of one of the images, or older than they are",
                name()
            );
        }
    }
    Ok(())
}
