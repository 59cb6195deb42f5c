//! How SquashFS images are written.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use codec::{Filters, Settings};
use restow::{CopyOptions, Fragments};
use tree::Inventory;
use tree::edit::Priorities;

use super::bytes::bytes;
use super::image::{ImageArgs, epoch};
use super::moment::seconds;
use crate::message::tell;
use crate::text;

/// How SquashFS images are written.
#[derive(Debug, Args)]
#[command(next_help_heading = "SquashFS images")]
pub(crate) struct SquashfsArgs {
    /// Set the block size, also of the units of an EROFS image: a power of two, 4K to 1M [default:
    /// 128K; 256K for EROFS before Linux 6.15]
    #[arg(long, value_name = "BYTES", value_parser = block_size)]
    pub(crate) block_size: Option<u32>,

    /// Pack these into shared blocks: none, small files (less than a block), or all, including the
    /// tails of larger files
    #[arg(long, value_name = "WHICH", value_parser = fragments, default_value = "small")]
    fragments: Fragments,

    /// Do not write the export table, which NFS needs
    #[arg(long)]
    no_exports: bool,

    /// Do not pad the image to a multiple of 4 KiB; Linux cannot mount it without padding
    #[arg(long)]
    no_padding: bool,

    /// Begin the data of each file, and each shared block, at a multiple of BYTES: a power of two,
    /// 512 to 1M
    ///
    /// A deduplicating store then finds the parts that an old version shares: unchanged files are
    /// stored in the same pieces of BYTES, at any position. This costs half of BYTES for each file
    /// that has blocks of its own. The blocks of one file are not aligned: in a large file, those
    /// after a change move. With --reuse, shared blocks also stay as they are. Of an EROFS image,
    /// blocks are its units.
    #[arg(long, value_name = "BYTES", value_parser = align)]
    pub(super) align: Option<u32>,

    /// Set the creation time of the image, also of an EROFS image, as for --all-time [default:
    /// SOURCE_DATE_EPOCH, otherwise the newest modification time of a file]
    #[arg(long, value_name = "TIME", value_parser = mkfs_time)]
    pub(crate) mkfs_time: Option<u32>,

    /// Order file data by the priorities in LIST
    ///
    /// Each line has a path or pattern and a priority from -32768 to 32767; the highest comes
    /// first. The priority of a directory applies to everything in it. Files that are not listed
    /// have priority 0.
    #[arg(long, value_name = "LIST")]
    sort: Option<PathBuf>,

    /// Fail if the holes of all files together exceed BYTES: SquashFS stores 4 bytes per block even
    /// for holes
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "1T")]
    sparse_max: u64,

    /// Begin the image at this byte of the output; the bytes before it are zero
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "0")]
    pub(crate) offset: u64,

    /// With --reuse, keep only blocks that leave the image as it would be without OLD
    ///
    /// The files that share a block with one that changed are then compressed again. This requires
    /// that OLD was made with the same options; nothing is kept if a sample of its blocks was not.
    #[arg(long, requires = "reuse")]
    reuse_exact: bool,
}

/// The setting of xz for filters by file type.
const CODE: &str = "code";

/// Parses a codec with its settings, before the block size is known; `None` stores data
/// uncompressed.
///
/// # Errors
/// There is no such codec or setting.
pub(crate) fn settings(words: &str) -> Result<Option<Settings>> {
    settings_of("SquashFS", words)
}

/// The same for a format of this name, which may have fewer codecs.
///
/// # Errors
/// There is no such codec or setting.
pub(crate) fn settings_of(format: &str, words: &str) -> Result<Option<Settings>> {
    let level =
        |codec: &str, words: &[&str], usual, range| level((format, codec), words, usual, range);
    let mut parts = words.split(':');
    let name = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    let settings = match name {
        "none" if rest.is_empty() => return Ok(None),
        "zstd" => Settings::Zstd {
            level: level(name, &rest, 15, 1..=22)?.into(),
        },
        "gzip" | "zlib" => Settings::Zlib {
            level: level(name, &rest, 9, 1..=12)? as u8,
        },
        "lzo" => match level(name, &rest, 1, 1..=9)? as u8 {
            1 => Settings::Lzo,
            level => Settings::LzoOptimal { level },
        },
        "lz4" if rest.is_empty() => Settings::Lz4,
        "lz4" if rest[0] == "hc" => Settings::Lz4Hc {
            level: level("lz4:hc", &rest[1..], 12, 2..=12)? as u8,
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

/// The level among the settings of a codec, within the range that it has in a format.
fn level(
    (format, codec): (&str, &str),
    words: &[&str],
    usual: i16,
    range: RangeInclusive<i16>,
) -> Result<i16> {
    let word = match words {
        [] => return Ok(usual),
        [word] => word,
        _ => bail!("a codec has only one level"),
    };
    let is_negative = word.starts_with('-');
    let digits = word.strip_prefix('-').unwrap_or(word);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        bail!("`{word}` is not a level");
    }
    let (first, last) = (range.start(), range.end());
    match word.parse() {
        Ok(level) if range.contains(&level) => Ok(level),
        _ if is_negative && codec == "zstd" && format == "SquashFS" => bail!(
            "zstd in SquashFS has levels {first} to {last}: squashfs-tools 4.5 cannot read the options of an image with a negative one"
        ),
        _ => bail!("{codec} in {format} has levels {first} to {last}"),
    }
}

fn xz(words: &[&str]) -> Result<Settings> {
    let (mut preset, mut extreme, mut filters) = (6, false, Filters(0));
    for word in words {
        if word.parse::<i64>().is_ok() {
            preset = level(("SquashFS", "xz"), &[word], 6, 0..=9)? as u8;
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
        level: preset,
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

fn align(words: &str) -> Result<u32> {
    let size = u32::try_from(bytes(words)?).ok();
    size.filter(|size| size.is_power_of_two() && (512..=1 << 20).contains(size))
        .context("must be a power of two from 512 to 1M")
}

fn mkfs_time(words: &str) -> Result<u32> {
    let seconds = u32::try_from(seconds(words)?);
    seconds.context("SquashFS holds times from 1970 to 2106")
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
    /// The block size.
    fn block_bytes(&self) -> u32 {
        self.block_size.unwrap_or(128 << 10)
    }

    /// How data is compressed.
    pub(crate) fn compression(&self, image: &ImageArgs) -> Result<Option<Settings>> {
        let words = image.compress.as_deref().unwrap_or("zstd:15");
        let mut compression = settings(words).with_context(|| format!("--compress {words}"))?;
        if let Some(Settings::Xz {
            dictionary_bytes, ..
        }) = &mut compression
        {
            *dictionary_bytes = self.block_bytes().max(8192);
        }
        Ok(compression)
    }

    /// Sets the options for an image.
    ///
    /// # Errors
    /// The codec is impossible, or the list of priorities cannot be read.
    pub(crate) fn set(&self, image: &ImageArgs, options: &mut CopyOptions) -> Result<()> {
        let squashfs = &mut options.squashfs;
        squashfs.compression = self.compression(image)?;
        squashfs.block_bytes = self.block_bytes();
        squashfs.fragments = self.fragments;
        squashfs.exportable = !self.no_exports;
        squashfs.sparse_max = self.sparse_max;
        squashfs.padding = !self.no_padding;
        squashfs.align_bytes = self.align.unwrap_or(1);
        squashfs.offset = self.offset;
        squashfs.reuse_exact = self.reuse_exact;
        squashfs.filter_code = image
            .compress
            .as_deref()
            .is_some_and(|words| words.split(':').any(|word| word == CODE));
        options.epoch = epoch()?;
        options.mkfs_time =
            match (self.mkfs_time, options.epoch) {
                (Some(time), _) => Some(time),
                (None, Some(epoch)) => Some(u32::try_from(epoch).ok().context(
                    "SOURCE_DATE_EPOCH must be from 0 to 4294967295 for a SquashFS image",
                )?),
                (None, None) => None,
            };
        if let Some(list) = &self.sort {
            let name = text::of_host_path(list, "-");
            let read = || -> Result<Priorities> { Ok(Priorities::parse_list(&fs::read(list)?)?) };
            options.priorities = Some(read().with_context(|| format!("read {name}"))?);
        }
        Ok(())
    }

    /// Names the files of the list of priorities that the source does not have.
    pub(crate) fn warn_of_unlisted(&self, list: &Priorities, inventory: &Inventory<'_>) {
        let name = text::of_host_path(self.sort.as_deref().unwrap_or(Path::new("-")), "-");
        list.of(inventory);
        for path in list.unmatched() {
            tell(&format!(
                "{name}: {} does not exist in the source",
                text::of_path(path)
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_ranges_are_those_of_squashfs() {
        assert_eq!(
            settings("zstd:22").unwrap(),
            Some(Settings::Zstd { level: 22 })
        );
        assert_eq!(settings("gzip").unwrap(), Some(Settings::Zlib { level: 9 }));
        for fast in ["lzo", "lzo:1"] {
            assert_eq!(settings(fast).unwrap(), Some(Settings::Lzo));
        }
        assert_eq!(
            settings("lzo:9").unwrap(),
            Some(Settings::LzoOptimal { level: 9 })
        );
        for (wrong, why) in [
            ("zstd:23", "zstd in SquashFS has levels 1 to 22"),
            ("zstd:0", "zstd in SquashFS has levels 1 to 22"),
            ("zstd:99999999999", "zstd in SquashFS has levels 1 to 22"),
            (
                "zstd:-1",
                "zstd in SquashFS has levels 1 to 22: squashfs-tools 4.5 cannot read the options of an image with a negative one",
            ),
            ("zstd:x", "`x` is not a level"),
            ("zstd:", "`` is not a level"),
            ("zstd:1:2", "a codec has only one level"),
            ("gzip:13", "gzip in SquashFS has levels 1 to 12"),
            ("lzo:0", "lzo in SquashFS has levels 1 to 9"),
            ("lzo:10", "lzo in SquashFS has levels 1 to 9"),
            ("lz4:hc:1", "lz4:hc in SquashFS has levels 2 to 12"),
            ("xz:10", "xz in SquashFS has levels 0 to 9"),
            ("xz:-1", "xz in SquashFS has levels 0 to 9"),
        ] {
            assert_eq!(settings(wrong).unwrap_err().to_string(), why, "{wrong}");
        }
    }
}
