//! `restow info` of SquashFS images.

use std::io::Write;

use anyhow::Result;
use codec::Filters;
use squashfs::{Compressor, Squashfs, flags};
use tree::{FileKind, Inventory, Limits, Time};

use crate::text;

/// Prints what an image contains.
///
/// # Errors
/// The image cannot be read, or the words cannot be written.
pub(crate) fn show(image: &Squashfs, out: &mut dyn Write) -> Result<()> {
    let superblock = image.superblock();
    let inventory = Inventory::of(image, &Limits::default())?;
    let count = |kind: FileKind| {
        inventory
            .files()
            .filter(|&file| inventory.kind(file) == kind)
            .count()
    };
    let (block, content) = (superblock.block_bytes, inventory.content_bytes());
    writeln!(out, "format          SquashFS 4.0")?;
    writeln!(out, "codec           {}", codec_words(&image.compressor()))?;
    writeln!(out, "block size      {block}")?;
    writeln!(
        out,
        "made            {}",
        text::of_time(Time {
            seconds: superblock.mkfs_time.into(),
            nanoseconds: 0
        })
    )?;
    writeln!(out, "image bytes     {}", superblock.bytes_used)?;
    writeln!(out, "content bytes   {content}")?;
    writeln!(
        out,
        "ratio           {:.3}",
        content as f64 / superblock.bytes_used as f64
    )?;
    writeln!(out, "inodes          {}", superblock.inode_count)?;
    for (name, kind) in [
        ("files", FileKind::Regular),
        ("directories", FileKind::Directory),
        ("symlinks", FileKind::Symlink),
    ] {
        writeln!(out, "  {name:<13} {}", count(kind))?;
    }
    writeln!(out, "names           {}", inventory.entry_count())?;
    writeln!(out, "fragments       {}", superblock.fragment_count)?;
    writeln!(out, "owners, groups  {}", superblock.id_count)?;
    writeln!(out, "xattr sets      {}", image.xattr_set_count())?;
    let yes = |bit: u16| {
        if superblock.flags & bit != 0 {
            "yes"
        } else {
            "no"
        }
    };
    writeln!(out, "export table    {}", yes(flags::EXPORTABLE))?;
    writeln!(
        out,
        "data            {}..{}",
        superblock_end(),
        superblock.inode_table
    )?;
    writeln!(
        out,
        "inode table     {}..{}",
        superblock.inode_table, superblock.directory_table
    )?;
    Ok(())
}

/// Where the superblock ends.
fn superblock_end() -> u64 {
    96
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
