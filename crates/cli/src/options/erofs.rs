//! How EROFS images are written.

use anyhow::{Context, Result, bail};
use clap::Args;
use codec::Settings;
use restow::{CopyOptions, Kernel};

use super::image::ImageArgs;
use super::squashfs::{SquashfsArgs, settings_of};
use super::{BtrfsArgs, epoch};

/// The longest label of an EROFS image.
const LABEL_BYTES_MAX: usize = 16;

/// How EROFS images are written.
#[derive(Debug, Args)]
#[command(next_help_heading = "EROFS images")]
pub(crate) struct ErofsArgs {
    /// Make an image that Linux VERSION and newer can read
    ///
    /// From 6.17 on, metadata is compressed, which makes images of small files much smaller. From
    /// 6.15 on, compressed data is stored without gaps, holes take no space, and compressed data of
    /// the source is kept. For older versions, each unit of data begins at a multiple of 4
    /// KiB, which makes the image 2 to 10 % larger, the less the larger its units are
    /// (--block-size). zstd needs 6.10, gzip 6.6, lz4 5.13. [default: 6.12; with --dual 6.15]
    #[arg(long, value_name = "VERSION")]
    min_kernel: Option<Kernel>,

    /// Give each regular file the SHA-256 of its content as the attribute
    /// trusted.erofs.fingerprint, by which Linux 7.0 shares the memory of equal files between
    /// images that are mounted with inode_share
    #[arg(long)]
    content_digest: bool,
}

impl ErofsArgs {
    /// Sets the options for an image.
    ///
    /// # Errors
    /// The codec is impossible, or `SOURCE_DATE_EPOCH` is.
    pub(crate) fn set(
        &self,
        image: &ImageArgs,
        (squashfs, btrfs): (&SquashfsArgs, &BtrfsArgs),
        options: &mut CopyOptions,
    ) -> Result<()> {
        let words = image.compress.as_deref().unwrap_or("zstd:15");
        let erofs = &mut options.erofs;
        erofs.compression = erofs_settings(words)?;
        erofs.min_kernel = self.min_kernel.unwrap_or(erofs.min_kernel);
        erofs.content_digest = self.content_digest;
        erofs.unit_bytes = squashfs.block_size.unwrap_or(0);
        erofs.align_bytes = squashfs.align.unwrap_or(1);
        erofs.uuid = btrfs.uuid();
        erofs.label = btrfs.label().to_vec();
        options.mkfs_time = squashfs.mkfs_time;
        options.epoch = epoch()?;
        Ok(())
    }
}

impl ErofsArgs {
    /// Sets the options for an EROFS image in the same file as a SquashFS or btrfs image, whose
    /// codec is `compression`.
    ///
    /// # Errors
    /// EROFS does not have the codec, or Linux cannot read the image.
    pub(crate) fn set_dual(
        &self,
        compression: Option<Settings>,
        options: &mut CopyOptions,
    ) -> Result<()> {
        let usual = Settings::Zstd { level: 3 };
        let compression = match compression {
            None | Some(Settings::Zstd { level: ..1 }) => usual,
            Some(Settings::LzoOptimal { .. } | Settings::Lzo | Settings::Xz { .. }) => {
                bail!("--dual: EROFS reads data in zstd, gzip (zlib) or lz4, or uncompressed data")
            }
            Some(settings) => settings,
        };
        let erofs = &mut options.erofs;
        erofs.compression = Some(compression);
        erofs.min_kernel = self.min_kernel.unwrap_or(Kernel(6, 15));
        if options.btrfs.label.len() <= LABEL_BYTES_MAX {
            erofs.label.clone_from(&options.btrfs.label);
        }
        options.dual = true;
        Ok(())
    }
}

/// The settings of `--compress`.
///
/// # Errors
/// EROFS has no such codec.
pub(crate) fn erofs_settings(words: &str) -> Result<Option<Settings>> {
    let settings = settings_of("EROFS", words).and_then(check);
    settings.with_context(|| format!("--compress {words}"))
}

fn check(settings: Option<Settings>) -> Result<Option<Settings>> {
    match settings {
        None | Some(Settings::Zstd { .. } | Settings::Zlib { .. }) => {}
        Some(Settings::Lz4 | Settings::Lz4Hc { .. }) => {}
        Some(_) => bail!("an EROFS image has zstd, gzip, lz4 or none"),
    }
    Ok(settings)
}
