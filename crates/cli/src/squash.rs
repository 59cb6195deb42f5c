//! SquashFS: the options that an image is made with, and `restow info`.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use codec::{Filters, Settings};
use squashfs::{Compressor, Fragments, Options, Squashfs, flags};
use tree::edit::Priorities;
use tree::{CheckOptions, FileKind, Inventory, Limits, Time};

use crate::args::{Check, ImageArgs, Info, SourceArgs};
use crate::bar::Bar;
use crate::open;
use crate::{tell, text, threads};

/// How a SquashFS image is made.
#[derive(Debug, Args)]
#[command(next_help_heading = "SquashFS images")]
pub(crate) struct SquashfsArgs {
    /// Bytes of a block: a power of two, 4K to 1M
    #[arg(long, value_name = "BYTES", value_parser = block_size, default_value = "128K")]
    pub(crate) block_size: u32,

    /// Which files share blocks: none, those smaller than a block, or the tails of all
    #[arg(long, value_name = "WHICH", value_parser = fragments, default_value = "small")]
    pub(crate) fragments: Fragments,

    /// Leave out the table by which NFS finds files
    #[arg(long)]
    pub(crate) no_exports: bool,

    /// Do not fill the image up to a multiple of 4 KiB; Linux cannot mount it then
    #[arg(long)]
    pub(crate) no_padding: bool,

    /// When the image says that it was made, in seconds since 1970 [default: SOURCE_DATE_EPOCH, else the newest time of
    /// a file]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) mkfs_time: Option<u32>,

    /// The order in which data is stored: a list with a path or pattern and a number on each line, the highest number first
    ///
    /// A number is one from -32768 to 32767, and 0 for what is not in the list. A directory's goes to all in it.
    #[arg(long, value_name = "LIST")]
    pub(crate) sort: Option<PathBuf>,

    /// Where in the output the image begins; what is before it becomes zeros
    #[arg(long, value_name = "BYTES", default_value = "0")]
    pub(crate) offset: u64,
}

/// The word for filters by what files are.
const CODE: &str = "code";

/// A codec with its settings, before the block size is known; `None` stores all as it is.
fn settings(words: &str) -> Result<Option<Settings>> {
    let mut parts = words.split(':');
    let name = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    fn level<T: std::str::FromStr>(rest: &[&str], usual: T) -> Result<T> {
        match rest {
            [] => Ok(usual),
            [level] => level.parse().map_err(|_| anyhow!("`{level}` is no level")),
            _ => bail!("a codec has one level"),
        }
    }
    let settings = match name {
        "none" if rest.is_empty() => return Ok(None),
        "zstd" => Settings::Zstd {
            level: level(&rest, 15)?,
        },
        "gzip" | "zlib" => Settings::Zlib {
            level: level(&rest, 9)?,
        },
        "lzo" if rest.is_empty() => Settings::Lzo,
        "lz4" if rest.is_empty() => Settings::Lz4,
        "lz4" if rest[0] == "hc" => Settings::Lz4Hc {
            level: level(&rest[1..], 12)?,
        },
        "xz" if rest.contains(&CODE) => xz(&rest
            .into_iter()
            .filter(|word| *word != CODE)
            .collect::<Vec<_>>())?,
        "xz" => xz(&rest)?,
        _ => bail!("it is zstd, gzip, xz, lz4, lzo or none, with settings behind a colon"),
    };
    // The dictionary follows the block size; the rest can be refused now.
    codec::Encoder::new(&settings)?;
    Ok(Some(settings))
}

fn xz(words: &[&str]) -> Result<Settings> {
    let (mut level, mut extreme, mut filters) = (6, false, Filters(0));
    for word in words {
        if let Ok(number) = word.parse() {
            level = number;
        } else if *word == "e" {
            extreme = true;
        } else if let Some(bit) = Filters::NAMES.iter().position(|name| name == word) {
            filters.0 |= 1 << bit;
        } else {
            let names = Filters::NAMES.join(", ");
            bail!("`{word}` is no level, `e`, or filter ({names})");
        }
    }
    let dictionary_bytes = 1 << 20;
    Ok(Settings::Xz {
        level,
        extreme,
        dictionary_bytes,
        filters,
    })
}

fn block_size(words: &str) -> Result<u32> {
    let upper = words.to_ascii_uppercase();
    let (digits, factor) = match upper.as_bytes().last() {
        Some(b'K') => (&upper[..upper.len() - 1], 1 << 10),
        Some(b'M') => (&upper[..upper.len() - 1], 1 << 20),
        _ => (&upper[..], 1u32),
    };
    let bytes: Option<u32> = digits.parse().ok().and_then(|n: u32| n.checked_mul(factor));
    bytes
        .filter(|bytes| bytes.is_power_of_two() && (4 << 10..=1 << 20).contains(bytes))
        .context("it is a power of two from 4K to 1M")
}

fn fragments(words: &str) -> Result<Fragments> {
    Ok(match words {
        "none" => Fragments::None,
        "small" => Fragments::SmallFiles,
        "all" => Fragments::Always,
        _ => bail!("it is none, small or all"),
    })
}

impl SquashfsArgs {
    /// How an image is encoded.
    pub(crate) fn compression(&self, image: &ImageArgs) -> Result<Option<Settings>> {
        let words = image.compress.as_deref().unwrap_or("zstd:15");
        let mut compression = settings(words).with_context(|| format!("--compress {words}"))?;
        if let Some(Settings::Xz {
            dictionary_bytes, ..
        }) = &mut compression
        {
            *dictionary_bytes = self.block_size.max(8192);
        }
        Ok(compression)
    }

    /// The options for an image of that tree.
    pub(crate) fn options(&self, image: &ImageArgs, inventory: &Inventory) -> Result<Options> {
        Ok(Options {
            compression: self.compression(image)?,
            block_bytes: self.block_size,
            fragments: self.fragments,
            duplicates: !image.no_duplicates,
            exportable: !self.no_exports,
            xattrs: true,
            mkfs_time: self.mkfs_time(inventory)?,
            priorities: self.priorities(inventory)?,
            padding: !self.no_padding,
            offset: self.offset,
            keep_blocks: !image.recompress,
            skip_unreadable: image.skip_unreadable,
            filter_code: image
                .compress
                .as_deref()
                .is_some_and(|words| words.split(':').any(|word| word == CODE)),
            verify: !image.no_verify,
        })
    }

    fn priorities(&self, inventory: &Inventory) -> Result<Vec<i16>> {
        let Some(list) = &self.sort else {
            return Ok(Vec::new());
        };
        let name = text::of_host_path(list, "-");
        let read = || -> Result<Priorities> { Ok(Priorities::parse_list(&fs::read(list)?)?) };
        let list = read().with_context(|| format!("read {name}"))?;
        let priorities = list.of(inventory);
        for path in list.unmatched() {
            tell(&format!("{name}: {} is not there", text::of_path(path)));
        }
        Ok(priorities)
    }

    fn mkfs_time(&self, inventory: &Inventory) -> Result<u32> {
        if let Some(time) = self.mkfs_time {
            return Ok(time);
        }
        if let Some(epoch) = std::env::var_os("SOURCE_DATE_EPOCH") {
            let number = epoch.to_str().and_then(|epoch| epoch.parse().ok());
            return number.context("SOURCE_DATE_EPOCH is not a number of seconds since 1970");
        }
        let times = inventory
            .files()
            .map(|file| inventory.metadata(file).mtime.seconds);
        Ok(times.max().unwrap_or(0).clamp(0, u32::MAX.into()) as u32)
    }
}

/// `restow info`: what an image says of itself.
pub(crate) fn info(args: &Info) -> Result<()> {
    let name = text::of_host_path(&args.file, "standard input");
    let image = open::squashfs(&args.file, &args.source).with_context(|| format!("open {name}"))?;
    show(&image, &mut io::stdout().lock()).with_context(|| format!("read {name}"))
}

/// `restow check` of a SquashFS image: gives whether nothing is wrong.
pub(crate) fn check(args: &Check) -> Result<bool> {
    let name = text::of_host_path(&args.file, "standard input");
    if !args.device.is_empty() {
        bail!("open {name}: it is no btrfs image: --device does not apply");
    }
    let source = SourceArgs {
        image_at: args.image_at,
        ..SourceArgs::default()
    };
    let image = open::squashfs(&args.file, &source).with_context(|| format!("open {name}"))?;
    let mut out = io::stdout().lock();
    let mut result = Ok(());
    let options = CheckOptions {
        data: !args.no_data,
    };
    let bar = Bar::new("checked", false);
    let summary = image.check(options, threads(args.threads), &bar, &mut |finding| {
        if result.is_ok() {
            result = writeln!(out, "{}", text::of_finding(&finding));
        }
    });
    let summary = summary.with_context(|| format!("read {name}"))?;
    bar.finish();
    result?;
    writeln!(
        out,
        "{} in {}, {}, {}, {} of data decoded",
        text::count(summary.findings, "error"),
        text::count(summary.inodes, "inode"),
        text::count(summary.blocks, "block"),
        text::count(summary.fragments, "fragment"),
        text::count(summary.data_bytes, "byte")
    )?;
    Ok(summary.findings == 0)
}

fn show(image: &Squashfs, out: &mut dyn Write) -> Result<()> {
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
