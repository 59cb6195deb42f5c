//! The lines of `unsquashfs -stat`.

use std::fmt::Write as _;

use codec::{Algorithm, Filters};
use restow::info::{Compressor, Squashfs, flags};

use super::listing;

/// The strategies of gzip, by bit.
const STRATEGIES: [&str; 5] = [
    "default",
    "filtered",
    "huffman_only",
    "run_length_encoded",
    "fixed",
];

/// The algorithms of LZO, by number.
const LZO: [&str; 5] = [
    "lzo1x_1",
    "lzo1x_1_11",
    "lzo1x_1_12",
    "lzo1x_1_15",
    "lzo1x_999",
];

/// Describes the superblock, from the second line.
pub(super) fn lines(image: &Squashfs, is_utc: bool) -> String {
    let superblock = image.superblock();
    let has = |flag: u16| superblock.flags & flag != 0;
    let bytes = superblock.bytes_used;
    let mut words = format!(
        "Creation or last append time {}\n\
         Filesystem size {bytes} bytes ({:.2} Kbytes / {:.2} Mbytes)\n\
         Compression {}\n",
        listing::date(superblock.mkfs_time, is_utc),
        bytes as f64 / 1024.0,
        bytes as f64 / 1024.0 / 1024.0,
        name(superblock.algorithm),
    );
    if has(flags::OPTIONS) {
        words += &options(&image.compressor());
    }
    let _ = writeln!(words, "Block size {}", superblock.block_bytes);
    let exportable = if has(flags::EXPORTABLE) { "" } else { "not " };
    let _ = writeln!(words, "Filesystem is {exportable}exportable via NFS");
    let mut state = |part: &str, is_plain: bool| {
        let un = if is_plain { "un" } else { "" };
        let _ = writeln!(words, "{part} {un}compressed");
    };
    state("Inodes are", has(flags::INODES_PLAIN));
    state("Data is", has(flags::DATA_PLAIN));
    let are_ids_plain = has(flags::IDS_PLAIN) || has(flags::INODES_PLAIN);
    state("Uids/Gids (Id table) are", are_ids_plain);
    if has(flags::NO_FRAGMENTS) {
        words += "Fragments are not stored\n";
    } else {
        state("Fragments are", has(flags::FRAGMENTS_PLAIN));
        let not = if has(flags::ALWAYS_FRAGMENTS) {
            ""
        } else {
            "not "
        };
        let _ = writeln!(words, "Tailends are {not}packed into fragments");
    }
    if has(flags::NO_XATTRS) {
        words += "Xattrs are not stored\n";
    } else {
        let un = if has(flags::XATTRS_PLAIN) { "un" } else { "" };
        let _ = writeln!(words, "Xattrs are {un}compressed");
    }
    let not = if has(flags::DUPLICATES) { "" } else { "not " };
    let _ = write!(
        words,
        "Duplicates are {not}removed\n\
         Number of fragments {}\n\
         Number of inodes {}\n\
         Number of ids {}\n",
        superblock.fragment_count, superblock.inode_count, superblock.id_count,
    );
    if !has(flags::NO_XATTRS) {
        let _ = writeln!(words, "Number of xattr ids {}", image.xattr_set_count());
    }
    words
}

fn name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Zlib => "gzip",
        Algorithm::Lzma => "lzma",
        Algorithm::Lzo | Algorithm::LzoBtrfs { .. } => "lzo",
        Algorithm::Xz => "xz",
        Algorithm::Lz4 => "lz4",
        Algorithm::Zstd => "zstd",
    }
}

/// The options of the compressor.
fn options(compressor: &Compressor) -> String {
    let selected = |names: &[&'static str], bits: u32| {
        let names = names.iter().enumerate();
        let names: Vec<&str> = names
            .filter(|(bit, _)| bits & (1 << bit) != 0)
            .map(|(_, name)| *name)
            .collect();
        names.join(", ")
    };
    match *compressor {
        Compressor::Gzip {
            level,
            window_log2,
            strategies,
        } => {
            let strategies = selected(&STRATEGIES, u32::from(strategies.max(1)));
            format!(
                "\tcompression-level {level}\n\twindow-size {window_log2}\n\
                 \tStrategies selected: {strategies}\n"
            )
        }
        Compressor::Lzo { algorithm, level } => {
            let name = LZO.get(algorithm as usize).unwrap_or(&"unknown");
            let level = match algorithm {
                4 => format!("\tcompression level {level}\n"),
                _ => String::new(),
            };
            format!("\talgorithm {name}\n{level}")
        }
        Compressor::Xz {
            dictionary_bytes,
            filters: Filters(filters),
        } => {
            let filters = match filters {
                0 => "No filters specified".to_owned(),
                filters => format!("Filters selected: {}", selected(&Filters::NAMES, filters)),
            };
            format!("\tDictionary size {dictionary_bytes}\n\t{filters}\n")
        }
        Compressor::Lz4 { high: true } => "\tHigh Compression option specified (-Xhc)\n".to_owned(),
        Compressor::Zstd { level } => format!("\tcompression-level {level}\n"),
        _ => String::new(),
    }
}
