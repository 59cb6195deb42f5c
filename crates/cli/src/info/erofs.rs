//! `restow info` of EROFS images.

use std::io::Write;

use anyhow::Result;
use restow::info::ErofsInfo;
use restow::text::of_uuid;
use tree::json::Object;

use crate::{text, usage};

/// Prints the contents of an image.
///
/// # Errors
/// The words cannot be written.
pub(crate) fn show(info: &ErofsInfo, out: &mut dyn Write) -> Result<()> {
    let list = |names: &[&str]| match names {
        [] => "none".to_owned(),
        names => names.join(", "),
    };
    let (image, content) = (info.image_bytes, info.content_bytes);
    writeln!(out, "format          EROFS")?;
    writeln!(out, "label           {}", text::of_name(&info.label))?;
    writeln!(out, "uuid            {}", of_uuid(&info.uuid))?;
    writeln!(out, "codecs          {}", list(&info.codecs))?;
    writeln!(out, "features        {}", list(&info.features))?;
    writeln!(out, "block size      {}", info.block_bytes)?;
    writeln!(out, "made            {}", text::of_time(info.made))?;
    writeln!(out, "needs           Linux {}", info.min_kernel)?;
    writeln!(out, "image bytes     {image}")?;
    if info.devices > 0 {
        writeln!(out, "further devices {}", info.devices)?;
    }
    if info.padding_bytes > 0 {
        let (padding, share) = (info.padding_bytes, 100.0 / image as f64);
        let share = padding as f64 * share;
        writeln!(out, "padding bytes   {padding} ({share:.1} %)")?;
    }
    writeln!(out, "content bytes   {content}")?;
    writeln!(out, "ratio           {:.3}", content as f64 / image as f64)?;
    writeln!(out, "inodes          {}", info.inodes)?;
    for (name, count) in kinds(info) {
        writeln!(out, "  {name:<13} {count}")?;
    }
    writeln!(out, "names           {}", info.names)?;
    out.write_all(usage::forms(&info.usage, true).as_bytes())?;
    Ok(())
}

/// The same as an object.
pub(crate) fn object(info: &ErofsInfo, object: Object) -> Object {
    let mut object = object
        .text("format", "erofs")
        .name("label", &info.label)
        .text("uuid", &of_uuid(&info.uuid))
        .texts("codecs", info.codecs.iter().copied())
        .texts("features", info.features.iter().copied())
        .number("block_bytes", info.block_bytes)
        .time("made", info.made)
        .text("min_kernel", &info.min_kernel.to_string())
        .number("image_bytes", info.image_bytes)
        .number("devices", info.devices)
        .number("padding_bytes", info.padding_bytes)
        .number("content_bytes", info.content_bytes)
        .number("inodes", info.inodes);
    for (name, count) in kinds(info) {
        object = object.number(name, count);
    }
    object
        .number("names", info.names)
        .object("usage", usage::of_totals(&info.usage))
}

/// The kinds of files that are counted, and their numbers.
fn kinds(info: &ErofsInfo) -> [(&'static str, u64); 3] {
    [
        ("files", info.files),
        ("directories", info.directories),
        ("symlinks", info.symlinks),
    ]
}
