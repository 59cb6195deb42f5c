//! `restow info` of btrfs images.

use std::io::Write;

use anyhow::Result;
use restow::info::{BtrfsInfo, SubvolumeInfo};
use restow::text::of_uuid;
use tree::json::Object;

use crate::{text, usage};

/// Prints the contents of a file system; of the space that files take, only that of one subvolume
/// if `id` is given.
///
/// # Errors
/// The image cannot be read, or the words cannot be written.
pub(crate) fn show(info: &BtrfsInfo, id: Option<u64>, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "format          btrfs")?;
    writeln!(out, "label           {}", text::of_name(&info.label))?;
    writeln!(out, "uuid            {}", of_uuid(&info.uuid))?;
    if info.metadata_uuid != info.uuid {
        writeln!(out, "metadata uuid   {}", of_uuid(&info.metadata_uuid))?;
    }
    writeln!(out, "generation      {}", info.generation)?;
    writeln!(out, "checksum        {}", info.checksum)?;
    writeln!(out, "sector size     {}", info.sector_bytes)?;
    writeln!(out, "node size       {}", info.node_bytes)?;
    writeln!(out, "total bytes     {}", info.total_bytes)?;
    writeln!(out, "used bytes      {}", info.used_bytes)?;
    writeln!(out, "features        {}", info.features.join(" "))?;
    let log = if info.has_log {
        "yes, replayed below"
    } else {
        "no"
    };
    writeln!(out, "log             {log}")?;
    if info.lacks_chunks {
        writeln!(
            out,
            "damaged         chunk tree: devices and chunks may be missing here"
        )?;
    }
    for (device, is_missing) in &info.devices {
        let missing = if *is_missing { ", missing" } else { "" };
        writeln!(
            out,
            "device {:<8} {}, {} bytes, {} in chunks{missing}",
            device.id,
            of_uuid(&device.uuid),
            device.total_bytes,
            device.bytes_used
        )?;
    }
    for chunks in &info.chunks {
        let count = text::count(chunks.count, "chunk");
        let (kind, bytes, profiles) = (chunks.kind, chunks.bytes, chunks.profiles.join(", "));
        writeln!(out, "{kind:<15} {bytes} bytes in {count}, {profiles}")?;
    }
    for (subvolume, is_default) in info.subvolumes()? {
        show_subvolume(&subvolume, is_default, out)?;
    }
    out.write_all(usage::forms(&info.usage(id)?, true).as_bytes())?;
    Ok(())
}

/// The same as an object.
///
/// # Errors
/// The image cannot be read.
pub(crate) fn object(info: &BtrfsInfo, id: Option<u64>, object: Object) -> Result<Object> {
    let devices = info.devices.iter().map(|(device, is_missing)| {
        Object::new()
            .number("id", device.id)
            .text("uuid", &of_uuid(&device.uuid))
            .number("total_bytes", device.total_bytes)
            .number("chunk_bytes", device.bytes_used)
            .flag("is_missing", *is_missing)
    });
    let kinds = info.chunks.iter().map(|chunks| {
        Object::new()
            .text("kind", chunks.kind)
            .number("bytes", chunks.bytes)
            .number("chunks", chunks.count)
            .texts("profiles", chunks.profiles.iter().copied())
    });
    let subvolumes = info.subvolumes()?;
    let subvolumes = subvolumes.iter().map(|(subvolume, is_default)| {
        let mut object = Object::new().number("id", subvolume.id);
        if let Some(path) = &subvolume.path {
            object = object.name("path", path);
        }
        object = object
            .flag("is_default", *is_default)
            .flag("is_read_only", subvolume.is_read_only)
            .flag("is_deleted", subvolume.is_deleted);
        for (key, id) in [
            ("uuid", subvolume.uuid),
            ("parent_uuid", subvolume.parent_uuid),
            ("received_uuid", subvolume.received_uuid),
        ] {
            if let Some(id) = id {
                object = object.text(key, &of_uuid(&id));
            }
        }
        object
    });
    Ok(object
        .text("format", "btrfs")
        .name("label", &info.label)
        .text("uuid", &of_uuid(&info.uuid))
        .text("metadata_uuid", &of_uuid(&info.metadata_uuid))
        .number("generation", info.generation)
        .text("checksum", info.checksum)
        .number("sector_bytes", info.sector_bytes)
        .number("node_bytes", info.node_bytes)
        .number("total_bytes", info.total_bytes)
        .number("used_bytes", info.used_bytes)
        .texts("features", info.features.iter().copied())
        .flag("has_log", info.has_log)
        .flag("lacks_chunks", info.lacks_chunks)
        .list("devices", devices)
        .list("chunks", kinds)
        .list("subvolumes", subvolumes)
        .object("usage", usage::of_totals(&info.usage(id)?)))
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
            write!(out, ", {words} {}", of_uuid(&id))?;
        }
    }
    Ok(writeln!(out)?)
}
