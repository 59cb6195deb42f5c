//! How btrfs images are written.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use codec::Settings;
use restow::{ChecksumType, CopyOptions, NewSubvolume, Profile, Rule};
use tree::HostTimes;
use tree::edit::Patterns;

use super::bytes::{bytes, hexadecimal};
use super::image::{ImageArgs, epoch};

/// How btrfs images are written.
#[derive(Debug, Args)]
#[command(next_help_heading = "btrfs images")]
pub(crate) struct BtrfsArgs {
    /// Try to compress all data, even if a sample looks incompressible
    #[arg(long)]
    compress_force: bool,

    /// Compress files that match PATTERN with CODEC, as in `**/*.so=zstd:15` or `... *.jpg=none`
    /// (repeatable; the first match applies)
    #[arg(long, value_name = "PATTERN=CODEC", value_parser = rule)]
    compress_path: Vec<Rule>,

    /// Set the checksum algorithm: crc32c, xxhash, sha256 or blake2b
    #[arg(long, value_name = "TYPE", value_parser = checksum, default_value = "crc32c")]
    checksum: ChecksumType,

    /// Write the file system to PATH, too, a file or a block device: as one of its devices
    /// (repeatable)
    #[arg(long, value_name = "PATH")]
    pub(crate) add_device: Vec<PathBuf>,

    /// Spread file data over the devices: single, dup, raid0, raid1, raid1c3, raid1c4 or raid10
    #[arg(long, value_name = "PROFILE", value_parser = profile, default_value = "single")]
    data: Profile,

    /// Spread metadata in the same way [default: dup; with --add-device raid1]
    #[arg(long, value_name = "PROFILE", value_parser = profile)]
    metadata: Option<Profile>,

    /// Set the size of tree blocks: a power of two, 4K to 64K
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "16K")]
    nodesize: u64,

    /// Set the size of the image, on each device [default: as small as possible]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    size: Option<u64>,

    /// Leave BYTES free for growth, in addition to the space that Linux needs to write; with 0,
    /// Linux can only read the image
    ///
    /// By default, the image has the space that Linux needs to write if that is at most 4 % of the
    /// rest; otherwise only enough to delete files and to enlarge the image. A file system on a
    /// device is as large as the device; with this option, as large as an image.
    #[arg(long, value_name = "BYTES", value_parser = bytes, conflicts_with = "size")]
    slack: Option<u64>,

    /// Set the label of the file system, also of an EROFS image
    #[arg(long, value_name = "NAME")]
    label: Option<OsString>,

    /// Set the UUID of the file system, also of an EROFS image, or of the subvolume in a send
    /// stream [default: derived from its content]
    #[arg(long, value_name = "UUID", value_parser = |words: &str| uuid(words).map(Uuid))]
    uuid: Option<Uuid>,

    /// Make the directory PATH a subvolume, read-only with `:ro` (repeatable)
    #[arg(long, value_name = "PATH[:ro]")]
    as_subvolume: Vec<OsString>,

    /// Set the default subvolume, which is mounted if none is named: a path given to
    /// --as-subvolume, or `/`
    #[arg(long, value_name = "PATH")]
    default_subvolume: Option<OsString>,

    /// Keep the access, change and birth times of files from a directory, which differ between
    /// copies of it; from images and archives they are always kept
    #[arg(long)]
    keep_ctime: bool,

    /// Use a block group tree: large file systems mount faster, but only Linux 6.1 and later can
    /// write to them
    #[arg(long)]
    block_group_tree: bool,
}

impl BtrfsArgs {
    /// The UUID that was given.
    pub(crate) fn uuid(&self) -> Option<[u8; 16]> {
        self.uuid.map(|uuid| uuid.0)
    }

    /// The label that was given.
    pub(crate) fn label(&self) -> &[u8] {
        self.label.as_ref().map_or(&[], |label| label.as_bytes())
    }
}

/// The bytes of a UUID.
#[derive(Clone, Copy, Debug)]
struct Uuid([u8; 16]);

/// A codec and its level; `None` for `none` and `no`.
pub(crate) fn settings(words: &str) -> Result<Option<Settings>> {
    let (name, level) = match words.split_once(':') {
        Some((name, level)) => (name, Some(level)),
        None => (words, None),
    };
    let number = |usual: i32| match level {
        None => Ok(usual),
        Some(level) => level
            .parse()
            .map_err(|_| anyhow!("`{level}` is not a level")),
    };
    let settings = match (name, level) {
        ("none" | "no", None) => return Ok(None),
        ("lzo", _) => match number(1)? {
            1 => Settings::Lzo,
            level @ 2..=9 => Settings::LzoOptimal { level: level as u8 },
            _ => bail!("lzo has levels 1 to 9"),
        },
        ("zlib", _) => match number(3)? {
            level @ 1..=9 => Settings::Zlib { level: level as u8 },
            _ => bail!("zlib in btrfs has levels 1 to 9"),
        },
        ("zstd", _) => match number(3)? {
            level @ (-15..=-1 | 1..=15) => Settings::Zstd { level },
            _ => bail!("zstd in btrfs has levels -15 to -1 and 1 to 15"),
        },
        ("none" | "no", Some(_)) => bail!("{name} has no levels"),
        _ => bail!("must be zstd, zlib, lzo or none, with a level after a colon"),
    };
    Ok(Some(settings))
}

fn rule(words: &str) -> Result<Rule> {
    let (pattern, codec) = words.rsplit_once('=').context("must be PATTERN=CODEC")?;
    Ok(Rule {
        patterns: Arc::new(Patterns::new([pattern])),
        compression: settings(codec)?,
    })
}

fn checksum(words: &str) -> Result<ChecksumType> {
    let mut all = ChecksumType::ALL.into_iter();
    all.find(|checksum| checksum.name() == words)
        .context("must be crc32c, xxhash, sha256 or blake2b")
}

/// A profile that restow writes.
pub(crate) fn profile(words: &str) -> Result<Profile> {
    let is_it = |it: &Profile| it.name() == words;
    match Profile::ALL.into_iter().find(is_it) {
        Some(Profile::Raid5 | Profile::Raid6) => bail!("{words} is read, and not written"),
        Some(profile) => Ok(profile),
        None => bail!("must be single, dup, raid0, raid1, raid1c3, raid1c4 or raid10"),
    }
}

/// The bytes of a UUID.
pub(crate) fn uuid(words: &str) -> Result<[u8; 16]> {
    let uuid = hexadecimal(&words.replace('-', "")).and_then(|bytes| bytes.try_into().ok());
    (uuid.filter(|uuid| *uuid != [0; 16]))
        .context("must be 32 hexadecimal digits, with or without hyphens, not all zero")
}

impl BtrfsArgs {
    /// How data is compressed.
    pub(crate) fn compression(image: &ImageArgs) -> Result<Option<Settings>> {
        let words = image.compress.as_deref().unwrap_or("zstd:3");
        settings(words).with_context(|| format!("--compress {words}"))
    }

    /// Sets the options for an image.
    ///
    /// # Errors
    /// The codec is impossible, or `SOURCE_DATE_EPOCH` is.
    pub(crate) fn set(&self, image: &ImageArgs, options: &mut CopyOptions) -> Result<()> {
        let btrfs = &mut options.btrfs;
        btrfs.compression = Self::compression(image)?;
        btrfs.rules.clone_from(&self.compress_path);
        btrfs.force = self.compress_force;
        btrfs.checksum = self.checksum;
        btrfs.data = self.data;
        btrfs.metadata = self.metadata.unwrap_or(match self.add_device[..] {
            [] => Profile::Dup,
            _ => Profile::Raid1,
        });
        btrfs.nodesize = u32::try_from(self.nodesize).unwrap_or(0); // 0 is refused
        btrfs.block_group_tree = self.block_group_tree;
        btrfs.size = self.size;
        btrfs.slack = self.slack;
        btrfs.uuid = self.uuid();
        btrfs.label = self.label().to_vec();
        let default = self.default_subvolume.as_ref();
        btrfs.default_subvolume = default.map(|path| joined(path.as_bytes()));
        for words in &self.as_subvolume {
            let (path, is_read_only) = match words.as_bytes().strip_suffix(b":ro") {
                Some(path) => (path, true),
                None => (words.as_bytes(), false),
            };
            options.subvolumes.push(NewSubvolume {
                path: joined(path),
                is_read_only,
                ..NewSubvolume::default()
            });
        }
        options.devices.clone_from(&self.add_device);
        options.epoch = epoch()?;
        if self.keep_ctime {
            options.host_times = HostTimes::All;
        }
        Ok(())
    }
}

/// A path without leading, trailing or double slashes.
pub(crate) fn joined(path: &[u8]) -> Vec<u8> {
    let names = path.split(|&byte| byte == b'/');
    let names: Vec<&[u8]> = names.filter(|name| !matches!(*name, b"" | b".")).collect();
    names.join(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_and_uuids_are_parsed() {
        assert_eq!(settings("none").unwrap(), None);
        assert_eq!(
            settings("zstd:-15").unwrap(),
            Some(Settings::Zstd { level: -15 })
        );
        assert_eq!(settings("zlib").unwrap(), Some(Settings::Zlib { level: 3 }));
        assert_eq!(settings("lzo:1").unwrap(), Some(Settings::Lzo));
        assert_eq!(
            settings("lzo:2").unwrap(),
            Some(Settings::LzoOptimal { level: 2 })
        );
        for wrong in [
            "zstd:0", "zstd:16", "zlib:10", "lzo:0", "lzo:10", "none:1", "xz", "zstd:x", "zstd:",
        ] {
            assert!(settings(wrong).is_err(), "{wrong}");
        }
        let id = uuid("01234567-89ab-cdef-0123-456789ABCDEF").unwrap();
        assert_eq!(id[..4], [1, 0x23, 0x45, 0x67]);
        for wrong in [
            "",
            "0",
            "00000000-0000-0000-0000-000000000000",
            "x1234567-89ab-cdef-0123-456789ABCDE",
            "+1234567-89ab-cdef-0123-456789ABCDEF",
        ] {
            assert!(uuid(wrong).is_err(), "{wrong}");
        }
        assert_eq!(joined(b"/a//b/./c/"), b"a/b/c");
    }
}
