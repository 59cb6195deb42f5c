//! `restow info` of SquashFS images.

use std::io::Write;

use anyhow::Result;
use codec::Filters;
use restow::info::{Compressor, SquashfsInfo};
use tree::json::Object;

use crate::{text, usage};

/// Prints the contents of an image.
///
/// # Errors
/// The words cannot be written.
pub(crate) fn show(info: &SquashfsInfo, out: &mut dyn Write) -> Result<()> {
    let (block, content) = (info.block_bytes, info.content_bytes);
    writeln!(out, "format          SquashFS 4.0")?;
    writeln!(out, "codec           {}", codec_words(&info.compressor))?;
    writeln!(out, "block size      {block}")?;
    writeln!(out, "made            {}", text::of_time(info.made))?;
    writeln!(out, "image bytes     {}", info.image_bytes)?;
    writeln!(out, "content bytes   {content}")?;
    writeln!(
        out,
        "ratio           {:.3}",
        content as f64 / info.image_bytes as f64
    )?;
    writeln!(out, "inodes          {}", info.inodes)?;
    for (name, count) in kinds(info) {
        writeln!(out, "  {name:<13} {count}")?;
    }
    writeln!(out, "names           {}", info.names)?;
    writeln!(out, "fragments       {}", info.fragments)?;
    writeln!(out, "owners, groups  {}", info.ids)?;
    writeln!(out, "xattr sets      {}", info.xattr_sets)?;
    let exports = if info.is_exportable { "yes" } else { "no" };
    writeln!(out, "export table    {exports}")?;
    let (inodes, directories) = (info.inode_table_at, info.directory_table_at);
    writeln!(out, "data            {}..{inodes}", info.data_at)?;
    writeln!(out, "inode table     {inodes}..{directories}")?;
    out.write_all(usage::forms(&info.usage, true).as_bytes())?;
    Ok(())
}

/// The same as an object.
pub(crate) fn object(info: &SquashfsInfo, object: Object) -> Object {
    let mut object = object
        .text("format", "squashfs")
        .text("codec", &codec_words(&info.compressor))
        .number("block_bytes", info.block_bytes)
        .time("made", info.made)
        .number("image_bytes", info.image_bytes)
        .number("content_bytes", info.content_bytes)
        .number("inodes", info.inodes);
    for (name, count) in kinds(info) {
        object = object.number(name, count);
    }
    object
        .number("names", info.names)
        .number("fragments", info.fragments)
        .number("ids", info.ids)
        .number("xattr_sets", info.xattr_sets)
        .flag("is_exportable", info.is_exportable)
        .number("inode_table_at", info.inode_table_at)
        .number("directory_table_at", info.directory_table_at)
        .object("usage", usage::of_totals(&info.usage))
}

/// The kinds of files that are counted, and their numbers.
fn kinds(info: &SquashfsInfo) -> [(&'static str, u64); 3] {
    [
        ("files", info.files),
        ("directories", info.directories),
        ("symlinks", info.symlinks),
    ]
}

fn codec_words(compressor: &Compressor) -> String {
    match *compressor {
        Compressor::Gzip {
            level,
            window_log2,
            strategies,
        } => {
            format!("gzip, level {level}, window 2^{window_log2}, strategies {strategies:#x}")
        }
        Compressor::Lzma => "lzma".into(),
        Compressor::Lzo { algorithm, level } => {
            format!("lzo, algorithm {algorithm}, level {level}")
        }
        Compressor::Xz {
            dictionary_bytes,
            filters,
        } => {
            let names = Filters::NAMES
                .iter()
                .enumerate()
                .filter(|(bit, _)| filters.0 & (1 << bit) != 0);
            let names: Vec<&str> = names.map(|(_, name)| *name).collect();
            let names = if names.is_empty() {
                "none".into()
            } else {
                names.join(", ")
            };
            format!("xz, dictionary {dictionary_bytes}, filters {names}")
        }
        Compressor::Lz4 { high } => if high { "lz4, slow encoder" } else { "lz4" }.into(),
        Compressor::Zstd { level } => format!("zstd, level {level}"),
        _ => "unknown".into(),
    }
}
