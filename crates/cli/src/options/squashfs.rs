//! How SquashFS images are written.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use codec::{Filters, Settings};
use squashfs::{Fragments, Options};
use tree::Inventory;
use tree::edit::Priorities;

use super::bytes::bytes;
use super::image::ImageArgs;
use super::rescue::RescueArgs;
use crate::message::tell;
use crate::text;

/// How SquashFS images are written.
#[derive(Debug, Args)]
#[command(next_help_heading = "SquashFS images")]
pub(crate) struct SquashfsArgs {
    /// Set the block size: a power of two, 4K to 1M
    #[arg(long, value_name = "BYTES", value_parser = block_size, default_value = "128K")]
    block_size: u32,

    /// Pack these into shared blocks: none, small files (less than a block), or all, including the tails of larger files
    #[arg(long, value_name = "WHICH", value_parser = fragments, default_value = "small")]
    fragments: Fragments,

    /// Do not write the export table, which NFS needs
    #[arg(long)]
    no_exports: bool,

    /// Do not pad the image to a multiple of 4 KiB; Linux cannot mount it without padding
    #[arg(long)]
    no_padding: bool,

    /// Set the creation time of the image, in seconds since 1970 [default: SOURCE_DATE_EPOCH, otherwise the newest
    /// modification time of a file]
    #[arg(long, value_name = "SECONDS")]
    mkfs_time: Option<u32>,

    /// Order file data by the priorities in LIST
    ///
    /// Each line has a path or pattern and a priority from -32768 to 32767; the highest comes first. The priority of a
    /// directory applies to everything in it. Files that are not listed have priority 0.
    #[arg(long, value_name = "LIST")]
    sort: Option<PathBuf>,

    /// Begin the image at this byte of the output; the bytes before it are zero
    #[arg(long, value_name = "BYTES", default_value = "0")]
    offset: u64,
}

/// The setting of xz for filters by file type.
const CODE: &str = "code";

/// Parses a codec with its settings, before the block size is known; `None` stores data uncompressed.
fn settings(words: &str) -> Result<Option<Settings>> {
    let mut parts = words.split(':');
    let name = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    fn level<T: std::str::FromStr>(rest: &[&str], usual: T) -> Result<T> {
        match rest {
            [] => Ok(usual),
            [level] => level
                .parse()
                .map_err(|_| anyhow!("`{level}` is not a level")),
            _ => bail!("a codec has only one level"),
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
        _ => bail!("must be zstd, gzip, xz, lz4, lzo or none, with settings after a colon"),
    };
    // The dictionary depends on the block size; the rest is checked now.
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
            bail!("`{word}` is not a level, `e`, or a filter ({names})");
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
    let size = u32::try_from(bytes(words)?).ok();
    size.filter(|size| size.is_power_of_two() && (4 << 10..=1 << 20).contains(size))
        .context("must be a power of two from 4K to 1M")
}

fn fragments(words: &str) -> Result<Fragments> {
    Ok(match words {
        "none" => Fragments::None,
        "small" => Fragments::SmallFiles,
        "all" => Fragments::Always,
        _ => bail!("must be none, small or all"),
    })
}

impl SquashfsArgs {
    /// How data is compressed.
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

    /// The options for an image of the files in `inventory`.
    pub(crate) fn options(
        &self,
        image: &ImageArgs,
        rescue: RescueArgs,
        inventory: &Inventory,
    ) -> Result<Options> {
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
            skip_unreadable: rescue.skips(),
            filter_code: image
                .compress
                .as_deref()
                .is_some_and(|words| words.split(':').any(|word| word == CODE)),
            verify: image.verify(),
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
            tell(&format!(
                "{name}: {} does not exist in the source",
                text::of_path(path)
            ));
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
