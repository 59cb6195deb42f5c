//! `restow info` of btrfs images.

use std::io::Write;

use anyhow::Result;
use btrfs::{Amount, Btrfs, SubvolumeInfo, Usage, block_group, incompat};

use crate::text;

/// Prints what a file system contains; of the space that files take, only that of one subvolume if `id` is given.
///
/// # Errors
/// The image cannot be read, or the words cannot be written.
pub(crate) fn show(btrfs: &Btrfs, id: Option<u64>, out: &mut dyn Write) -> Result<()> {
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
        "yes, not counted below"
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

/// Prints bytes by algorithm, as compsize does.
///
/// # Errors
/// The words cannot be written.
pub(crate) fn show_usage(usage: &Usage, out: &mut dyn Write) -> Result<()> {
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
            // The numbers of a hostile image have any size.
            let percent = 100 * u128::from(stored);
            let percent = percent.checked_div(decoded.into()).unwrap_or(100);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_bytes_has_a_share() {
        let mut usage = Usage::default();
        (usage.plain.stored, usage.plain.decoded) = (u64::MAX, u64::MAX / 2);
        let mut words = Vec::new();
        show_usage(&usage, &mut words).unwrap();
        assert!(String::from_utf8(words).unwrap().contains("  200 %\n"));
    }
}
