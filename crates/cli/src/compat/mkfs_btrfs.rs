//! `mkfs.btrfs` of btrfs-progs 7.3: a btrfs file system on a device or in a file, empty or with the
//! files of a directory.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use restow::{
    Address, BtrfsSummary, ChecksumType, CopyOptions, Format, NewSubvolume, OpenOptions, Profile,
    SourceTree, Unpreserved, is_same_file, known_content,
};
use tree::edit::Edits;
use tree::{FileAttributes, HostTimes, Time};

use super::options::{OptionRow, Style, parse};
use super::write::write;
use crate::message::tell;
use crate::options::{bytes, epoch, joined, profile, settings, uuid};
use crate::text;

/// The contents of the command line.
#[derive(Default)]
pub(super) struct NewFileSystem {
    copy: CopyOptions,
    rootdir: Option<PathBuf>,
    /// The size of the file system on each device, in bytes.
    size: Option<u64>,
    metadata: Option<Profile>,
    shrinks: bool,
    /// The codec as it was typed.
    codec: Option<String>,
    /// Whether the device's UUID is chosen.
    names_device: bool,
    /// Whether the content of a device is not discarded.
    keeps: bool,
    overwrites: bool,
    is_quiet: bool,
    /// The output that takes the place of any other.
    prints: Option<&'static str>,
}

/// `mkfs.btrfs -O list-all`, and where each feature stands.
const FEATURES: &str = "\
Filesystem features available:
extref              - increased hardlink limit per file to 65536 (always)
skinny-metadata     - reduced-size metadata extent refs (always)
no-holes            - no explicit hole extents for files (always)
fst                 - free-space-tree alias
free-space-tree     - free space tree, improved space tracking (space_cache=v2) (always)
bgt                 - block-group-tree alias
block-group-tree    - block group tree, more efficient block group tracking to reduce mount time (default)
";

/// `mkfs.btrfs --version`: scripts look for the version of btrfs-progs.
const VERSION: &str = concat!(
    "mkfs.btrfs, part of restow ",
    env!("CARGO_PKG_VERSION"),
    ", with the options of btrfs-progs v7.3\n"
);

/// Space that a new file has beside its content.
const ROOM: u64 = 64 << 20;

/// `O_EXCL`: a block device that is mounted or otherwise in use does not open.
const EXCLUSIVE: i32 = 0o200;

type Row = OptionRow<NewFileSystem>;

/// Its options.
pub(super) const ROWS: &[Row] = &[
    Row::with(&["-b", "--byte-count"], "SIZE", |request, size| {
        request.size = Some(bytes(words(size)?)?);
        Ok(())
    })
    .noted("smaller file systems than theirs are possible"),
    Row::with(&["--csum", "--checksum"], "TYPE", |request, name| {
        let name = match words(name)? {
            "blake2" => "blake2b",
            name => name,
        };
        let found = ChecksumType::ALL.into_iter().find(|it| it.name() == name);
        request.copy.btrfs.checksum = found.context("must be crc32c, xxhash, sha256 or blake2")?;
        Ok(())
    }),
    Row::with(&["-d", "--data"], "PROFILE", |request, name| {
        request.copy.btrfs.data = profile(&words(name)?.to_ascii_lowercase())?;
        Ok(())
    })
    .noted("all but raid5 and raid6"),
    Row::with(&["-m", "--metadata"], "PROFILE", |request, name| {
        request.metadata = Some(profile(&words(name)?.to_ascii_lowercase())?);
        Ok(())
    })
    .noted("all but raid5 and raid6"),
    Row::refused(
        &["-M", "--mixed"],
        "",
        "data and metadata are in separate block groups",
    ),
    Row::with(&["-n", "--nodesize"], "SIZE", |request, size| {
        request.copy.btrfs.nodesize = u32::try_from(bytes(words(size)?)?)?;
        Ok(())
    }),
    Row::with(&["-s", "--sectorsize"], "SIZE", |_, size| {
        match bytes(words(size)?)? {
            4096 => Ok(()),
            _ => bail!("restow writes sectors of 4096 bytes"),
        }
    })
    .noted("4096; others are refused"),
    Row::with(&["-L", "--label"], "LABEL", |request, label| {
        request.copy.btrfs.label = label.as_bytes().to_vec();
        Ok(())
    }),
    Row::flag(&["-K", "--nodiscard"], |request| request.keeps = true)
        .noted("a file is always emptied"),
    Row::with(&["-r", "--rootdir"], "DIR", |request, dir| {
        request.rootdir = Some(dir.into());
        Ok(())
    })
    .noted("also on several devices; a new file has 64 MiB of free space"),
    Row::with(&["--compress"], "ALGO[:LEVEL]", |request, codec| {
        let codec = words(codec)?;
        let bare = codec.strip_suffix(":0").or(codec.strip_suffix(':'));
        let codec = bare.unwrap_or(codec);
        request.copy.btrfs.compression = settings(codec)?;
        request.codec = Some(codec.to_owned());
        Ok(())
    })
    .noted("also zstd:-15 to -1 and lzo:2 to 9; a sample decides whether a file is tried"),
    Row::with(&["-u", "--subvol"], "[TYPE:]SUBDIR", subvolume),
    Row::with(&["--inode-flags"], "FLAGS:PATH", |request, flags| {
        let (flags, path) = split(flags.as_bytes()).context("must be FLAGS:PATH")?;
        let mut attributes = FileAttributes(0);
        for flag in flags.split(|&byte| byte == b',') {
            attributes.0 |= match flag {
                b"nodatacow" => FileAttributes::NO_COW,
                b"nodatasum" => FileAttributes::NO_CHECKSUMS,
                flag => bail!("{} is not a flag", text::of_name(flag)),
            };
        }
        request.copy.attributes.push((joined(path), attributes));
        Ok(())
    }),
    Row::flag(&["--reflink"], |request| request.copy.btrfs.reflink = true)
        .noted("a message says so if nothing can be shared"),
    Row::flag(&["--shrink"], |request| request.shrinks = true)
        .noted("smaller than theirs, with the free space that Linux needs to write"),
    Row::with(&["-O", "--features"], "LIST", features)
        .noted("block-group-tree on or off, and what is always on; the others are refused"),
    Row::with(&["-R", "--runtime-features"], "LIST", features).noted("as -O"),
    Row::flag(&["-f", "--force"], |request| request.overwrites = true)
        .noted("also needed to write over an archive or a send stream"),
    Row::flag(&["-q", "--quiet"], |request| request.is_quiet = true),
    Row::flag(&["-v", "--verbose"], |request| request.is_quiet = false),
    Row::with(&["-U", "--uuid"], "UUID", |request, id| {
        request.copy.btrfs.uuid = Some(uuid(words(id)?)?);
        Ok(())
    }),
    Row::with(&["--device-uuid"], "UUID", |request, id| {
        request.copy.btrfs.device_uuid = Some(uuid(words(id)?)?);
        request.names_device = true;
        Ok(())
    }),
    Row::flag(&["-V", "--version"], |request| {
        request.prints = Some(VERSION);
    }),
];

fn words(value: &OsStr) -> Result<&str> {
    value.to_str().context("must be text")
}

/// The parts before and behind the first colon.
fn split(words: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = words.iter().position(|&byte| byte == b':')?;
    Some((&words[..colon], &words[colon + 1..]))
}

fn subvolume(request: &mut NewFileSystem, words: &OsStr) -> Result<()> {
    let words = words.as_bytes();
    let (kind, path) = match split(words) {
        Some((kind @ (b"rw" | b"ro" | b"default" | b"default-ro"), path)) => (kind, path),
        _ => (&b"rw"[..], words),
    };
    let path = joined(path);
    let name = text::of_path(&path);
    if request.copy.subvolumes.iter().any(|it| it.path == path) {
        bail!("{name} is named twice");
    }
    let default = &mut request.copy.btrfs.default_subvolume;
    if kind.starts_with(b"default") && default.replace(path.clone()).is_some() {
        bail!("{name}: another subvolume is the default already");
    }
    request.copy.subvolumes.push(NewSubvolume {
        path,
        is_read_only: kind.ends_with(b"ro"),
        ..NewSubvolume::default()
    });
    Ok(())
}

fn features(request: &mut NewFileSystem, list: &OsStr) -> Result<()> {
    for feature in words(list)?.split(',') {
        let (is_off, name) = match feature.strip_prefix('^') {
            Some(name) => (true, name),
            None => (false, feature),
        };
        match (name, is_off) {
            ("list-all", false) => request.prints = Some(FEATURES),
            ("bgt" | "block-group-tree", _) => request.copy.btrfs.block_group_tree = !is_off,
            ("extref" | "skinny-metadata" | "no-holes" | "fst" | "free-space-tree", false)
            | ("mixed-bg" | "quota" | "squota" | "raid56" | "raid1c34" | "zoned", true) => {}
            _ => bail!("{feature} is not supported; `-O list-all` lists the features"),
        }
    }
    Ok(())
}

/// The device or file of the new file system, if it is there.
pub(super) struct Target {
    is_device: bool,
    bytes: u64,
}

impl Target {
    /// # Errors
    /// It is in use, or holds something and may not be overwritten.
    pub(super) fn of(path: &Path, overwrites: bool) -> Result<Option<Target>> {
        let name = text::of_host_path(path, "-");
        let kind = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            there => there.with_context(|| name.clone())?.file_type(),
        };
        let is_device = kind.is_block_device();
        if !is_device && !kind.is_file() {
            bail!("{name} is neither a block device nor a regular file");
        }
        if in_use(path, is_device).with_context(|| name.clone())? {
            bail!("{name} is mounted, or in use by another program");
        }
        let content = known_content(path)?.filter(|_| !overwrites);
        if let Some(content) = content {
            bail!("{name} holds {content}; -f writes over it");
        }
        let mut file = File::open(path).with_context(|| name)?;
        let bytes = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
        Ok(Some(Target { is_device, bytes }))
    }
}

/// Whether a block device, or a loop device of a file, is mounted or in use otherwise.
fn in_use(path: &Path, is_device: bool) -> io::Result<bool> {
    let is_busy = |device: &Path| {
        let mut options = File::options();
        let opened = options.read(true).custom_flags(EXCLUSIVE).open(device);
        opened.is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy)
    };
    if is_device {
        return Ok(is_busy(path));
    }
    let Ok(devices) = fs::read_dir("/sys/block") else {
        return Ok(false);
    };
    for device in devices {
        let device = device?;
        let Ok(backing) = fs::read(device.path().join("loop/backing_file")) else {
            continue;
        };
        let backing = Path::new(OsStr::from_bytes(backing.trim_ascii_end()));
        if is_same_file(backing, path) && is_busy(&Path::new("/dev").join(device.file_name())) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Sets the size of the file system, and whether the target is written in place.
fn set_size(request: &mut NewFileSystem, targets: &[(&Path, Option<Target>)]) -> Result<()> {
    let has_files = request.rootdir.is_some();
    let (_, first) = &targets[0];
    let is_device = first.as_ref().is_some_and(|target| target.is_device);
    let grows = has_files && !is_device && targets.len() == 1;
    let mut sizes = Vec::new();
    for (path, target) in targets {
        let there = target.as_ref().map_or(0, |target| target.bytes);
        if let Some(size) = request.size
            && size > there
            && !grows
        {
            let name = text::of_host_path(path, "-");
            bail!("{name} has {there} bytes, fewer than the {size} of --byte-count");
        }
        sizes.push(request.size.unwrap_or(there));
    }
    request.copy.in_place = first.is_some();
    let btrfs = &mut request.copy.btrfs;
    btrfs.slack = Some(1);
    if request.shrinks {
        // As small as the content.
    } else if grows {
        btrfs.size_min = sizes[0];
        if sizes[0] == 0 {
            btrfs.slack = Some(ROOM);
        }
    } else {
        btrfs.device_sizes = sizes;
    }
    Ok(())
}

/// A UUID of random numbers.
///
/// # Errors
/// The system has none.
pub(super) fn random_uuid() -> Result<[u8; 16]> {
    let mut id = [0; 16];
    let random = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut id));
    random.context("read /dev/urandom")?;
    id[6] = id[6] & 0x0f | 0x40;
    id[8] = id[8] & 0x3f | 0x80;
    Ok(id)
}

/// Sets the UUIDs and the times, which are different each time unless the environment says
/// otherwise.
fn set_environment(request: &mut NewFileSystem) -> Result<()> {
    let copy = &mut request.copy;
    copy.epoch = epoch()?;
    if copy.epoch.is_none() {
        copy.host_times = HostTimes::All;
    }
    let btrfs = &mut copy.btrfs;
    if std::env::var_os("DETERMINISTIC_SEED").is_some_and(|it| it == "1") {
        btrfs.uuid.context("DETERMINISTIC_SEED=1 needs --uuid")?;
        return Ok(());
    }
    for id in [&mut btrfs.uuid, &mut btrfs.device_uuid] {
        *id = Some(id.map_or_else(random_uuid, Ok)?);
    }
    Ok(())
}

/// The times of the root directory of an empty file system.
fn of_today(epoch: Option<i64>) -> Edits {
    let today = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = epoch.unwrap_or(today.map_or(0, |since| since.as_secs() as i64));
    Edits {
        time: Some(Time {
            seconds,
            nanoseconds: 0,
        }),
        ..Edits::default()
    }
}

/// Makes the file system.
///
/// # Errors
/// The command line is wrong, the target may not be written, or the files cannot be read.
pub(super) fn run(words: &[OsString]) -> Result<ExitCode> {
    let mut request = NewFileSystem::default();
    request.copy.recompress = true;
    request.copy.btrfs.compression = None;
    request.copy.btrfs.block_group_tree = true;
    let operands = parse(ROWS, Style::Getopt, words, &mut request)?;
    if let Some(words) = request.prints {
        io::stdout().write_all(words.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let paths: Vec<&Path> = operands.iter().map(Path::new).collect();
    let [dst, further @ ..] = &paths[..] else {
        bail!("mkfs.btrfs needs a device or a file");
    };
    let name = text::of_host_path(dst, "-");
    request.copy.btrfs.metadata = request.metadata.unwrap_or(match further {
        [] => Profile::Dup,
        _ => Profile::Raid1,
    });
    request.copy.devices = further.iter().map(PathBuf::from).collect();
    let of_files = [
        (!request.copy.subvolumes.is_empty(), "--subvol"),
        (!request.copy.attributes.is_empty(), "--inode-flags"),
        (request.copy.btrfs.reflink, "--reflink"),
        (request.shrinks, "--shrink"),
    ];
    if let Some((_, option)) = of_files.iter().find(|(is_set, _)| *is_set)
        && request.rootdir.is_none()
    {
        bail!("{option} needs --rootdir");
    }
    let mut targets = Vec::new();
    for path in &paths {
        let target = Target::of(path, request.overwrites)?;
        if target.is_none() && (request.rootdir.is_none() || !further.is_empty()) {
            bail!("{} does not exist", text::of_host_path(path, "-"));
        }
        targets.push((*path, target));
    }
    set_size(&mut request, &targets)?;
    request.copy.btrfs.discard = !request.keeps;
    set_environment(&mut request)?;
    let (source, edits) = match &request.rootdir {
        Some(dir) if dir.is_dir() => {
            let source = SourceTree::open(&Address::plain(dir), &OpenOptions::default())?;
            (source, None)
        }
        Some(dir) => bail!("{} is not a directory", text::of_host_path(dir, "-")),
        None => (SourceTree::empty()?, Some(of_today(request.copy.epoch))),
    };
    let summary = write(source, (dst, Format::Btrfs), edits, &request.copy)?;
    let made = summary.btrfs.unwrap_or_default();
    for ((path, target), written) in targets.iter().zip(&made.device_bytes) {
        let there = target.as_ref().filter(|it| !it.is_device);
        if let Some(target) = there.filter(|it| !request.shrinks && it.bytes > *written) {
            let file = File::options().write(true).open(path);
            file.and_then(|file| file.set_len(target.bytes))
                .with_context(|| format!("set the length of {}", text::of_host_path(path, "-")))?;
        }
    }
    if request.copy.btrfs.reflink && made.shared_bytes == 0 && made.image.data_bytes > 0 {
        tell(&format!(
            "--reflink: the data of the files is copied, because {name} cannot share theirs"
        ));
    }
    if !request.is_quiet {
        match print_summary(&request, &paths, &made) {
            // The file system is complete without its description.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            printed => printed.context("write standard output")?,
        }
    }
    // Those between subvolumes are split by mkfs.btrfs, too.
    let is_link = |it: &Unpreserved| matches!(it, Unpreserved::Links(_));
    let is_whole = summary.losses.is_empty() && summary.unpreserved.iter().all(is_link);
    Ok(ExitCode::from(u8::from(!is_whole)))
}

/// The lines that scripts read.
fn print_summary(request: &NewFileSystem, paths: &[&Path], made: &BtrfsSummary) -> io::Result<()> {
    let btrfs = &request.copy.btrfs;
    let mut out = io::stdout().lock();
    let bytes = size(made.image.image_bytes);
    let devices = paths.iter().zip(&made.device_bytes);
    let devices = devices.map(|(path, &bytes)| (text::of_host_path(path, "-"), size(bytes)));
    for (name, bytes) in devices.clone().filter(|_| made.discarded_bytes > 0) {
        writeln!(out, "Performing full device TRIM {name} ({bytes}) ...")?;
    }
    writeln!(
        out,
        "NOTE: default settings have changed in version 6.19 (supported since linux 6.1):\n      \
         - enable block-group-tree (-O bgt)\n"
    )?;
    if let Some(dir) = &request.rootdir {
        print_files(request, dir, &mut out)?;
    }
    let label = match &btrfs.label[..] {
        b"" => "(null)".to_owned(),
        label => text::of_name(label),
    };
    let uuid = text::of_uuid(&made.uuid);
    writeln!(
        out,
        "Label:              {label}\nUUID:               {uuid}"
    )?;
    if request.names_device {
        let uuid = text::of_uuid(&btrfs.device_uuid.unwrap_or_default());
        writeln!(out, "Device UUID:        {uuid}")?;
    }
    let page = linux::page_bytes();
    let ssd = if is_ssd(paths[0]) { "yes" } else { "no" };
    let tree = if btrfs.block_group_tree {
        ", block-group-tree"
    } else {
        ""
    };
    writeln!(out, "Node size:          {}", btrfs.nodesize)?;
    writeln!(out, "Sector size:        4096\t(CPU page size: {page})")?;
    writeln!(out, "Filesystem size:    {bytes}")?;
    writeln!(out, "Block group profiles:")?;
    let profiles = [
        ("Data:", btrfs.data),
        ("Metadata:", btrfs.metadata),
        ("System:", btrfs.metadata),
    ];
    for ((kind, profile), bytes) in profiles.into_iter().zip(made.group_bytes) {
        let profile = match profile {
            Profile::Single => "single".to_owned(),
            profile => profile.name().to_uppercase(),
        };
        let bytes = size(bytes);
        writeln!(out, "  {kind:<18}{profile:<8}{bytes:>17}")?;
    }
    writeln!(out, "SSD detected:       {ssd}\nZoned device:       no")?;
    let features = "extref, skinny-metadata, no-holes, free-space-tree";
    writeln!(out, "Features:           {features}{tree}")?;
    let checksum = match btrfs.checksum {
        ChecksumType::Xxhash64 => "xxhash64",
        checksum => checksum.name(),
    };
    writeln!(out, "Checksum:           {checksum}")?;
    let count = paths.len();
    writeln!(
        out,
        "Number of devices:  {count}\nDevices:\n   ID        SIZE  PATH"
    )?;
    for (id, (name, bytes)) in (1..).zip(devices) {
        writeln!(out, "   {id:>2}  {bytes:>10}  {name:<4}")?;
    }
    writeln!(out)
}

/// The lines about the directory that is copied.
fn print_files(request: &NewFileSystem, dir: &Path, out: &mut impl Write) -> io::Result<()> {
    let copy = &request.copy;
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let codec = request.codec.as_deref().unwrap_or("no");
    writeln!(out, "Rootdir from:       {}", text::of_host_path(&dir, "-"))?;
    writeln!(out, "  Compress:         {codec}")?;
    for subvolume in &copy.subvolumes {
        let is_default = copy.btrfs.default_subvolume.as_ref() == Some(&subvolume.path);
        let kind = match (is_default, subvolume.is_read_only) {
            (false, false) => "(rw):",
            (false, true) => "(ro):",
            (true, false) => "(drw):",
            (true, true) => "(dro):",
        };
        writeln!(
            out,
            "  Subvolume {kind:<8}{}",
            text::of_path(&subvolume.path)
        )?;
    }
    for (path, attributes) in &copy.attributes {
        let flag = if attributes.0 & FileAttributes::NO_COW != 0 {
            "NODATACOW"
        } else {
            "NODATASUM"
        };
        writeln!(out, "  Inode flags ({flag}):  {}", text::of_path(path))?;
    }
    let shrinks = if request.shrinks { "yes" } else { "no" };
    writeln!(out, "  Shrink:           {shrinks}")
}

/// A size in the largest unit that it has one of.
fn size(bytes: u64) -> String {
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].into_iter();
    let (mut size, mut unit) = (bytes as f64, units.next().unwrap_or_default());
    for next in units {
        if size < 1024.0 {
            break;
        }
        (size, unit) = (size / 1024.0, next);
    }
    format!("{size:.2}{unit}")
}

/// Whether the kernel says of a block device that it does not rotate.
fn is_ssd(device: &Path) -> bool {
    let Ok(found) = File::open(device).and_then(linux::stat) else {
        return false;
    };
    let (major, minor) = found.rdev;
    // A partition has the queue of its disk.
    ["queue", "../queue"].into_iter().any(|queue| {
        let file = format!("/sys/dev/block/{major}:{minor}/{queue}/rotational");
        fs::read(file).is_ok_and(|words| words.starts_with(b"0"))
    })
}
