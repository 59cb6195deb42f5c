//! How images of either format are written.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use restow::VerityOptions;
use tree::Verify;

use super::bytes::hexadecimal;

/// How images of either format are written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "SquashFS, btrfs and EROFS images")]
pub(crate) struct ImageArgs {
    /// Compress data with CODEC, a name with optional settings after colons
    ///
    /// SquashFS: zstd:1 to zstd:22 [default: zstd:15], gzip:1 to gzip:12, xz, lz4, lz4:hc, lzo:1 to
    /// lzo:9, or none. xz takes a level, `e` (extreme) and filters, as in xz:9:e:x86; each filter
    /// is tried on every block. xz:code applies the filter of its processor to machine code; Linux
    /// reads that only if built with the filter. lz4:hc takes a level, 2 to 12. lzo is lzo:1, the
    /// fast one; lzo:8 gives the size of mksquashfs' default for lzo.
    ///
    /// EROFS: zstd:1 to zstd:22 [default: zstd:15], gzip:1 to gzip:12, lz4, lz4:hc, or none.
    ///
    /// btrfs: zstd:-15 to zstd:15 [default: zstd:3], zlib:1 to zlib:9, lzo:1 to lzo:9, or none.
    ///
    /// .tar.gz: gzip:1 to gzip:12 [default: gzip:6]; .tar.xz: xz:0 to xz:9 [default: xz:6];
    /// .tar.zst: zstd:1 to zstd:22 [default: zstd:3]. A .tar.zst has a seek table.
    ///
    /// Layers of container images: as .tar.zst, gzip:1 to gzip:12, or none.
    ///
    /// btrfs send streams: zstd:-15 to zstd:22, zlib:1 to zlib:9, lzo:1 to lzo:9, or none [default:
    /// as the source stores it].
    #[arg(long, value_name = "CODEC")]
    pub(crate) compress: Option<String>,

    /// Recompress all data, including data that could be copied in compressed form
    #[arg(long)]
    pub(crate) recompress: bool,

    /// Keep the compressed data of OLD, an image of the same format, for content that has not
    /// changed
    ///
    /// For each file, the data that OLD has at the same path, or of a file of equal size whose
    /// content begins alike, is decompressed and compared, which is much faster than compressing.
    /// OLD may be DST with --overwrite. A damaged OLD costs time but does no harm.
    ///
    /// A btrfs image gets the bytes that it would have without OLD, provided that OLD was made by
    /// the same version of restow with the same --compress. An image does not record its level, so
    /// a sample is compressed again first; if it differs, nothing is kept.
    ///
    /// In a SquashFS image, blocks of several files are kept while at least three quarters of their
    /// content is unchanged, which makes the image at most 1/64 larger; kept blocks have the level
    /// of OLD. See --reuse-exact. So have kept units of an EROFS image, which need the codec and
    /// the --block-size of OLD; those of small files are kept while all of these are unchanged.
    #[arg(long, value_name = "OLD", conflicts_with = "recompress")]
    pub(crate) reuse: Option<PathBuf>,

    /// With --reuse, take a file as unchanged if its path, size and modification time are those of
    /// a file in OLD
    #[arg(long, requires = "reuse")]
    pub(crate) trust_mtime: bool,

    /// Make the SquashFS or btrfs image an EROFS image, too, which names its data where it is
    ///
    /// Linux mounts the file as either; restow reads it as an EROFS image with --as-erofs. The
    /// EROFS image shows the tree that a mount of the other one shows. Its inodes and directories
    /// lie behind the other one, also on a block device, and its superblock in a part that the
    /// other one does not use. Only for images that do not change: a btrfs image has no free space
    /// then, and a balance, defragmentation or discard breaks the EROFS image. blkid finds two
    /// types: mount the file with -t.
    #[arg(long, conflicts_with_all = ["size", "slack", "add_device", "offset"])]
    pub(crate) dual: bool,

    /// Do not deduplicate identical files
    #[arg(long)]
    pub(crate) no_duplicates: bool,

    /// How to verify data that is copied in compressed form [default: checksum]
    ///
    /// Data that restow compresses is always decompressed and compared.
    #[arg(long, value_name = "HOW", conflicts_with = "no_verify")]
    verify: Option<VerifyKept>,

    /// Skip verification
    #[arg(long)]
    no_verify: bool,

    /// Append a hash tree of dm-verity to the image, or write it to FILE, and print its root hash
    ///
    /// The tree is one of `veritysetup format`: version 1, SHA-256, blocks of 4096 bytes. Its UUID
    /// is that of the image, or for SquashFS a hash of the superblock. `veritysetup open` takes the
    /// printed hash offset as --hash-offset.
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true
    )]
    verity: Option<Option<PathBuf>>,

    /// The salt of --verity, as hexadecimal digits, or `-` for none [default: the SHA-256 of the
    /// UUID]
    #[arg(long, value_name = "SALT", value_parser = salt, requires = "verity")]
    verity_salt: Option<Salt>,
}

/// The bytes of a salt.
#[derive(Clone, Debug)]
struct Salt(Vec<u8>);

fn salt(words: &str) -> Result<Salt> {
    let bytes = hexadecimal(if words == "-" { "" } else { words });
    let bytes = bytes.filter(|bytes| bytes.len() <= 256);
    (bytes.map(Salt)).context("must be `-` or at most 256 bytes as hexadecimal digits")
}

/// How data that is copied in compressed form is verified.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum VerifyKept {
    /// By the checksum of its source; decompress it if there is none
    Checksum,
    /// Decompress it, which also finds damage older than the checksum
    Decode,
}

impl ImageArgs {
    /// The hash tree to add.
    pub(crate) fn verity(&self) -> Option<VerityOptions> {
        let salt = self.verity_salt.as_ref().map(|salt| salt.0.clone());
        let options = VerityOptions::default().salt(salt);
        Some(options.file(self.verity.clone()?))
    }

    /// The data that is decoded again before the image counts as finished.
    pub(crate) fn verify(&self) -> Verify {
        match self.verify {
            _ if self.no_verify => Verify::Nothing,
            None | Some(VerifyKept::Checksum) => Verify::Encoded,
            Some(VerifyKept::Decode) => Verify::Everything,
        }
    }
}

/// `SOURCE_DATE_EPOCH`: no time of a file in the image is later.
///
/// # Errors
/// It is not a number.
pub(crate) fn epoch() -> Result<Option<i64>> {
    let epoch = std::env::var_os("SOURCE_DATE_EPOCH");
    let Some(epoch) = epoch.filter(|epoch| !epoch.is_empty()) else {
        return Ok(None);
    };
    let number = epoch.to_str().and_then(|epoch| epoch.parse().ok());
    let number = number.context("SOURCE_DATE_EPOCH must be a number of seconds since 1970")?;
    Ok(Some(number))
}
