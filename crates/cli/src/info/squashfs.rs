//! `restow info` of SquashFS images.

use std::io::Write;

use anyhow::Result;
use codec::Filters;
use squashfs::{Compressor, Squashfs, flags};
use tree::json::Object;
use tree::usage::{All, Totals, measure};
use tree::{DirEntry, FileKind, FileSystem, Inventory, Limits, NoProgress, Time};

use crate::{text, usage};

/// The kinds of files that are counted.
const KINDS: [(&str, FileKind); 3] = [
    ("files", FileKind::Regular),
    ("directories", FileKind::Directory),
    ("symlinks", FileKind::Symlink),
];

/// The counts of an image.
struct Counts<'a> {
    inventory: Inventory<'a>,
    totals: Totals,
}

impl Counts<'_> {
    fn of(image: &Squashfs) -> Result<Counts<'_>> {
        let root = DirEntry {
            name: Box::default(),
            ino: image.root(),
            kind: FileKind::Directory,
        };
        let start = (&root, &b""[..]);
        Ok(Counts {
            inventory: Inventory::of(image, &Limits::default())?,
            totals: measure(image, image, start, &NoProgress, &mut All(Vec::new()))?,
        })
    }

    fn of_kind(&self, kind: FileKind) -> usize {
        let files = self.inventory.files();
        files
            .filter(|&file| self.inventory.kind(file) == kind)
            .count()
    }
}

/// Prints the contents of an image.
///
/// # Errors
/// The image cannot be read, or the words cannot be written.
pub(crate) fn show(image: &Squashfs, out: &mut dyn Write) -> Result<()> {
    let superblock = image.superblock();
    let counts = Counts::of(image)?;
    let (block, content) = (superblock.block_bytes, counts.inventory.content_bytes());
    writeln!(out, "format          SquashFS 4.0")?;
    writeln!(out, "codec           {}", codec_words(&image.compressor()))?;
    writeln!(out, "block size      {block}")?;
    writeln!(out, "made            {}", text::of_time(made(image)))?;
    writeln!(out, "image bytes     {}", superblock.bytes_used)?;
    writeln!(out, "content bytes   {content}")?;
    writeln!(
        out,
        "ratio           {:.3}",
        content as f64 / superblock.bytes_used as f64
    )?;
    writeln!(out, "inodes          {}", superblock.inode_count)?;
    for (name, kind) in KINDS {
        writeln!(out, "  {name:<13} {}", counts.of_kind(kind))?;
    }
    writeln!(out, "names           {}", counts.inventory.entry_count())?;
    writeln!(out, "fragments       {}", superblock.fragment_count)?;
    writeln!(out, "owners, groups  {}", superblock.id_count)?;
    writeln!(out, "xattr sets      {}", image.xattr_set_count())?;
    let exports = if is_exportable(image) { "yes" } else { "no" };
    writeln!(out, "export table    {exports}")?;
    let (inodes, directories) = (superblock.inode_table, superblock.directory_table);
    writeln!(out, "data            {}..{inodes}", superblock_end())?;
    writeln!(out, "inode table     {inodes}..{directories}")?;
    out.write_all(usage::forms(&counts.totals, true).as_bytes())?;
    Ok(())
}

/// The same as an object.
///
/// # Errors
/// The image cannot be read.
pub(crate) fn object(image: &Squashfs, object: Object) -> Result<Object> {
    let superblock = image.superblock();
    let counts = Counts::of(image)?;
    let mut object = object
        .text("format", "squashfs")
        .text("codec", &codec_words(&image.compressor()))
        .number("block_bytes", superblock.block_bytes)
        .time("made", made(image))
        .number("image_bytes", superblock.bytes_used)
        .number("content_bytes", counts.inventory.content_bytes())
        .number("inodes", superblock.inode_count);
    for (name, kind) in KINDS {
        object = object.number(name, counts.of_kind(kind) as u64);
    }
    Ok(object
        .number("names", counts.inventory.entry_count())
        .number("fragments", superblock.fragment_count)
        .number("ids", superblock.id_count)
        .number("xattr_sets", image.xattr_set_count())
        .flag("is_exportable", is_exportable(image))
        .number("inode_table_at", superblock.inode_table)
        .number("directory_table_at", superblock.directory_table)
        .object("usage", usage::of_totals(&counts.totals)))
}

fn made(image: &Squashfs) -> Time {
    Time {
        seconds: image.superblock().mkfs_time.into(),
        nanoseconds: 0,
    }
}

fn is_exportable(image: &Squashfs) -> bool {
    image.superblock().flags & flags::EXPORTABLE != 0
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
