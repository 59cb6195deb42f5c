//! `restow info` of btrfs images.

use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use btrfs::{Btrfs, Chunk, Subvolume, SubvolumeInfo, block_group, incompat, object};
use tree::json::Object;
use tree::usage::{All, Totals, measure};
use tree::{DirEntry, FileKind, FileSystem, NoProgress};

use crate::{text, usage};

/// The kinds of chunks.
const KINDS: [(u64, &str); 4] = [
    (block_group::DATA, "data"),
    (block_group::METADATA, "metadata"),
    (block_group::SYSTEM, "system"),
    (block_group::DATA | block_group::METADATA, "mixed"),
];

/// Prints the contents of a file system; of the space that files take, only that of one subvolume
/// if `id` is given.
///
/// # Errors
/// The image cannot be read, or the words cannot be written.
pub(crate) fn show(btrfs: &Arc<Btrfs>, id: Option<u64>, out: &mut dyn Write) -> Result<()> {
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
    writeln!(
        out,
        "features        {}",
        features(superblock.incompat).join(" ")
    )?;
    let log = if btrfs.has_log() {
        "yes, replayed below"
    } else {
        "no"
    };
    writeln!(out, "log             {log}")?;
    if btrfs.lacks_chunks() {
        writeln!(
            out,
            "damaged         chunk tree: devices and chunks may be missing here"
        )?;
    }
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
    for (kind, words) in KINDS {
        let (bytes, count, profiles) = chunks(btrfs, kind);
        if bytes > 0 {
            let count = text::count(count, "chunk");
            let profiles = profiles.join(", ");
            writeln!(out, "{words:<15} {bytes} bytes in {count}, {profiles}")?;
        }
    }
    let default = btrfs.default_subvolume()?;
    for subvolume in btrfs.subvolumes()? {
        show_subvolume(&subvolume, subvolume.id == default, out)?;
    }
    out.write_all(usage::forms(&totals(btrfs, id)?, true).as_bytes())?;
    Ok(())
}

/// The space that the files of a subvolume take; of all subvolumes if `id` is not given.
///
/// # Errors
/// Something cannot be read.
fn totals(btrfs: &Arc<Btrfs>, id: Option<u64>) -> Result<Totals> {
    let tree = match id {
        Some(id) => btrfs.subvolume(id)?.without_nested(),
        None => btrfs.subvolume(object::FS_TREE)?,
    };
    let root = DirEntry {
        name: Box::default(),
        ino: tree.root(),
        kind: FileKind::Directory,
    };
    totals_of(&tree, (&root, b""))
}

/// The space that a file or directory takes.
///
/// # Errors
/// Something cannot be read.
pub(crate) fn totals_of(tree: &Subvolume, start: (&DirEntry, &[u8])) -> Result<Totals> {
    Ok(measure(
        tree,
        tree,
        start,
        &NoProgress,
        &mut All(Vec::new()),
    )?)
}

/// The same as an object.
///
/// # Errors
/// The image cannot be read.
pub(crate) fn object(btrfs: &Arc<Btrfs>, id: Option<u64>, object: Object) -> Result<Object> {
    let superblock = btrfs.superblock();
    let present: Vec<u64> = btrfs.present_devices().collect();
    let devices = btrfs.devices().iter().map(|device| {
        Object::new()
            .number("id", device.id)
            .text("uuid", &uuid(&device.uuid))
            .number("total_bytes", device.total_bytes)
            .number("chunk_bytes", device.bytes_used)
            .flag("is_missing", !present.contains(&device.id))
    });
    let kinds = KINDS.iter().filter_map(|&(kind, words)| {
        let (bytes, count, profiles) = chunks(btrfs, kind);
        let object = Object::new().text("kind", words).number("bytes", bytes);
        let object = object.number("chunks", count).texts("profiles", profiles);
        (bytes > 0).then_some(object)
    });
    let default = btrfs.default_subvolume()?;
    let subvolumes = btrfs.subvolumes()?;
    let subvolumes = subvolumes.iter().map(|subvolume| {
        let mut object = Object::new().number("id", subvolume.id);
        if let Some(path) = &subvolume.path {
            object = object.name("path", path);
        }
        object = object
            .flag("is_default", subvolume.id == default)
            .flag("is_read_only", subvolume.is_read_only)
            .flag("is_deleted", subvolume.is_deleted);
        for (key, id) in [
            ("uuid", subvolume.uuid),
            ("parent_uuid", subvolume.parent_uuid),
            ("received_uuid", subvolume.received_uuid),
        ] {
            if let Some(id) = id {
                object = object.text(key, &uuid(&id));
            }
        }
        object
    });
    Ok(object
        .text("format", "btrfs")
        .name("label", &superblock.label)
        .text("uuid", &uuid(&superblock.fsid))
        .text("metadata_uuid", &uuid(&superblock.metadata_uuid))
        .number("generation", superblock.generation.0)
        .text("checksum", superblock.checksum.name())
        .number("sector_bytes", superblock.sectorsize)
        .number("node_bytes", superblock.nodesize)
        .number("total_bytes", superblock.total_bytes)
        .number("used_bytes", superblock.bytes_used)
        .texts("features", features(superblock.incompat))
        .flag("has_log", btrfs.has_log())
        .flag("lacks_chunks", btrfs.lacks_chunks())
        .list("devices", devices)
        .list("chunks", kinds)
        .list("subvolumes", subvolumes)
        .object("usage", usage::of_totals(&totals(btrfs, id)?)))
}

/// Bytes and number of the chunks of a kind, and their profiles.
fn chunks(btrfs: &Btrfs, kind: u64) -> (u64, u64, Vec<&'static str>) {
    let chunks = btrfs.chunks().chunks().iter();
    let chunks: Vec<&Chunk> = chunks
        .filter(|chunk| chunk.flags & block_group::TYPE_MASK == kind)
        .collect();
    let mut profiles: Vec<&str> = chunks.iter().map(|chunk| chunk.profile.name()).collect();
    profiles.sort_unstable();
    profiles.dedup();
    let bytes = chunks.iter().map(|chunk| chunk.len).sum();
    (bytes, chunks.len() as u64, profiles)
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

fn features(bits: u64) -> Vec<&'static str> {
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
    let on = names.iter().filter(|(bit, _)| bits & bit != 0);
    on.map(|(_, name)| *name).collect()
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
