//! btrfs images: as sources, `restow info` and `restow check` of them.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use btrfs::{
    Amount, Btrfs, SUPERBLOCK_PLACES, Subvolume, SubvolumeInfo, Usage, block_group, incompat,
};
use tree::{CheckOptions, ReadAt};

use crate::args::{Check, Info, SourceArgs};
use crate::bar::Bar;
use crate::{text, threads};

/// Where in a superblock its mark is.
const MARK_AT: u64 = 64;

/// Whether a file that can seek has a btrfs superblock, be it only a copy.
pub(crate) fn has_mark(file: &File) -> Result<bool> {
    let size = ReadAt::size(file)?;
    for place in SUPERBLOCK_PLACES {
        let at = place.0 + MARK_AT;
        let mut mark = [0; 8];
        if size >= at + mark.len() as u64 {
            ReadAt::read_exact_at(file, &mut mark, at)?;
            if mark == *b"_BHRfS_M" {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn open(path: &Path, others: &[PathBuf]) -> Result<Arc<Btrfs>> {
    let mut sources: Vec<Box<dyn ReadAt>> = vec![Box::new(File::open(path)?)];
    for other in others {
        let name = || format!("open {}", text::of_host_path(other, "standard input"));
        sources.push(Box::new(File::open(other).with_context(name)?));
    }
    Ok(Arc::new(Btrfs::open(sources)?))
}

/// What of the file system is meant, by number or path.
fn chosen(btrfs: &Arc<Btrfs>, args: &SourceArgs) -> Result<Option<u64>> {
    let Some(wanted) = &args.subvolume else {
        return Ok(None);
    };
    let number = wanted.to_str().and_then(|text| text.parse().ok());
    let id = match number {
        Some(id) => Ok(id),
        None => btrfs.find_subvolume(wanted.as_bytes()),
    };
    let id = id.and_then(|id| btrfs.subvolume(id).map(|_| id));
    let name = || format!("find subvolume {}", text::of_name(wanted.as_bytes()));
    Ok(Some(id.with_context(name)?))
}

/// The subvolume that is meant, and what the user should know of it.
pub(crate) fn subvolume(path: &Path, args: &SourceArgs) -> Result<(Subvolume, Vec<String>)> {
    let btrfs = open(path, &args.device)?;
    let id = match chosen(&btrfs, args)? {
        Some(id) => id,
        None => btrfs.default_subvolume()?,
    };
    let tree = btrfs.subvolume(id)?;
    let mut notes = Vec::new();
    if btrfs.has_log() {
        notes.push("the image was not unmounted cleanly: what its log holds beyond the last commit is not read".to_owned());
    }
    Ok((tree, notes))
}

/// `restow info` of a btrfs image.
pub(crate) fn info(args: &Info) -> Result<()> {
    let name = text::of_host_path(&args.file, "standard input");
    let btrfs = open(&args.file, &args.source.device).with_context(|| format!("open {name}"))?;
    let id = chosen(&btrfs, &args.source)?;
    let mut out = io::stdout().lock();
    let Some(path) = &args.path else {
        return show(&btrfs, id, &mut out).with_context(|| format!("read {name}"));
    };
    let tree = btrfs.subvolume(match id {
        Some(id) => id,
        None => btrfs.default_subvolume()?,
    })?;
    let path = path.as_bytes();
    let found = crate::open::find(&tree, path, false);
    let usage = found.and_then(|file| tree.usage(file.ino));
    let usage = usage.with_context(|| format!("read {name}: {}", text::of_name(path)))?;
    show_usage(&usage, &mut out)
}

fn show(btrfs: &Btrfs, id: Option<u64>, out: &mut dyn Write) -> Result<()> {
    let superblock = btrfs.superblock();
    writeln!(out, "format          btrfs")?;
    writeln!(out, "label           {}", text::of_name(&superblock.label))?;
    writeln!(out, "uuid            {}", uuid(&superblock.fsid))?;
    if superblock.metadata_uuid != superblock.fsid {
        writeln!(out, "metadata uuid   {}", uuid(&superblock.metadata_uuid))?;
    }
    writeln!(out, "generation      {}", superblock.generation.0)?;
    writeln!(out, "checksum        {}", superblock.checksum.name())?;
    writeln!(out, "sector size     {}", superblock.sectorsize)?;
    writeln!(out, "node size       {}", superblock.nodesize)?;
    writeln!(out, "total bytes     {}", superblock.total_bytes)?;
    writeln!(out, "used bytes      {}", superblock.bytes_used)?;
    writeln!(out, "features        {}", features(superblock.incompat))?;
    let log = if btrfs.has_log() {
        "yes, not replayed"
    } else {
        "no"
    };
    writeln!(out, "log             {log}")?;
    let present: Vec<u64> = btrfs.present_devices().collect();
    for device in btrfs.devices() {
        let missing = if present.contains(&device.id) {
            ""
        } else {
            ", missing"
        };
        writeln!(
            out,
            "device {:<8} {}, {} bytes, {} in chunks{missing}",
            device.id,
            uuid(&device.uuid),
            device.total_bytes,
            device.bytes_used
        )?;
    }
    for (kind, words) in [
        (block_group::DATA, "data"),
        (block_group::METADATA, "metadata"),
        (block_group::SYSTEM, "system"),
        (block_group::DATA | block_group::METADATA, "mixed"),
    ] {
        let chunks = btrfs.chunks().chunks().iter();
        let chunks = chunks.filter(|chunk| chunk.flags & block_group::TYPE_MASK == kind);
        let mut profiles: Vec<&str> = chunks.clone().map(|chunk| chunk.profile.name()).collect();
        profiles.sort_unstable();
        profiles.dedup();
        let bytes: u64 = chunks.clone().map(|chunk| chunk.len).sum();
        if bytes > 0 {
            let count = text::count(chunks.count() as u64, "chunk");
            writeln!(
                out,
                "{words:<15} {bytes} bytes in {count}, {}",
                profiles.join(", ")
            )?;
        }
    }
    let default = btrfs.default_subvolume()?;
    for subvolume in btrfs.subvolumes()? {
        show_subvolume(&subvolume, subvolume.id == default, out)?;
    }
    show_usage(&btrfs.usage(id)?, out)
}

/// Bytes by algorithm, as compsize gives them.
fn show_usage(usage: &Usage, out: &mut dyn Write) -> Result<()> {
    writeln!(
        out,
        "files           extents       stored      decoded        shown"
    )?;
    for (name, amount) in [
        ("plain", usage.plain),
        ("zlib", usage.zlib),
        ("lzo", usage.lzo),
        ("zstd", usage.zstd),
        ("all", usage.total()),
        ("inline of all", usage.inline),
        ("preallocated", usage.preallocated),
    ] {
        if amount != Amount::default() || name == "all" {
            let Amount {
                extents,
                stored,
                decoded,
                shown,
            } = amount;
            let percent = (100 * stored).checked_div(decoded).unwrap_or(100);
            writeln!(
                out,
                "  {name:<13} {extents:>7} {stored:>12} {decoded:>12} {shown:>12}  {percent} %"
            )?;
        }
    }
    Ok(())
}

fn show_subvolume(subvolume: &SubvolumeInfo, is_default: bool, out: &mut dyn Write) -> Result<()> {
    let path = match &subvolume.path {
        Some(path) if path.is_empty() => "/".to_owned(),
        Some(path) => text::of_name(path),
        None => "(nowhere)".to_owned(),
    };
    write!(out, "subvolume {:<5} {path}", subvolume.id)?;
    for (is_so, words) in [
        (is_default, "default"),
        (subvolume.is_read_only, "read-only"),
        (subvolume.is_deleted, "being deleted"),
    ] {
        if is_so {
            write!(out, ", {words}")?;
        }
    }
    for (words, id) in [
        ("uuid", subvolume.uuid),
        ("snapshot of", subvolume.parent_uuid),
        ("received as", subvolume.received_uuid),
    ] {
        if let Some(id) = id {
            write!(out, ", {words} {}", uuid(&id))?;
        }
    }
    Ok(writeln!(out)?)
}

fn features(bits: u64) -> String {
    let names = [
        (incompat::DEFAULT_SUBVOL, "default-subvol"),
        (incompat::MIXED_GROUPS, "mixed-bg"),
        (incompat::COMPRESS_LZO, "compress-lzo"),
        (incompat::COMPRESS_ZSTD, "compress-zstd"),
        (incompat::EXTENDED_IREF, "extref"),
        (incompat::RAID56, "raid56"),
        (incompat::SKINNY_METADATA, "skinny-metadata"),
        (incompat::NO_HOLES, "no-holes"),
        (incompat::METADATA_UUID, "metadata-uuid"),
        (incompat::RAID1C34, "raid1c34"),
        (incompat::SIMPLE_QUOTA, "squota"),
    ];
    let on: Vec<&str> = names
        .iter()
        .filter(|(bit, _)| bits & bit != 0)
        .map(|(_, name)| *name)
        .collect();
    on.join(" ")
}

/// A UUID as RFC 9562 writes it.
fn uuid(bytes: &[u8; 16]) -> String {
    let mut words = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            words.push('-');
        }
        words += &format!("{byte:02x}");
    }
    words
}

/// `restow check`: gives whether nothing is wrong.
pub(crate) fn check(args: &Check) -> Result<bool> {
    let name = text::of_host_path(&args.file, "standard input");
    let btrfs = open(&args.file, &args.device).with_context(|| format!("open {name}"))?;
    let mut out = io::stdout().lock();
    let mut result = Ok(());
    let options = CheckOptions {
        data: !args.no_data,
    };
    let bar = Bar::new("checked", false);
    let summary = btrfs.check(options, threads(args.threads), &bar, &mut |finding| {
        if result.is_ok() {
            result = writeln!(out, "{}", text::of_finding(&finding));
        }
    });
    bar.finish();
    let summary = summary.with_context(|| format!("read {name}"))?;
    result?;
    writeln!(
        out,
        "{} in {}, {}, {}, {} of data verified",
        text::count(summary.findings, "error"),
        text::count(summary.tree_blocks, "tree block"),
        text::count(summary.extents, "extent"),
        text::count(summary.inodes, "inode"),
        text::count(summary.data_bytes, "byte")
    )?;
    if btrfs.has_log() {
        writeln!(
            out,
            "the image was not unmounted cleanly; its log was not checked"
        )?;
    }
    Ok(summary.findings == 0)
}
