//! How a btrfs image is made.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use btrfs::{ChecksumType, NewSubvolume, Options, Profile, Rule, Summary};
use clap::Args;
use codec::Settings;
use tree::Inventory;
use tree::edit::Patterns;

use crate::args::{ImageArgs, bytes};
use crate::open::Source;
use crate::{readable, text};

/// How a btrfs image is made.
#[derive(Debug, Args)]
#[command(next_help_heading = "btrfs images")]
pub(crate) struct BtrfsArgs {
    /// Try to encode everything, not only that of which a sample promises something
    #[arg(long)]
    pub(crate) compress_force: bool,

    /// Encode the files that match in another way, as in `**/*.so=zstd:15` or `... *.jpg=none`; may be given several times, and
    /// the first that matches counts
    #[arg(long, value_name = "PATTERN=CODEC", value_parser = rule)]
    pub(crate) compress_path: Vec<Rule>,

    /// The checksum of everything: crc32c, xxhash, sha256 or blake2b
    #[arg(long, value_name = "TYPE", value_parser = checksum, default_value = "crc32c")]
    pub(crate) checksum: ChecksumType,

    /// How many copies of tree blocks there are: single or dup
    #[arg(long, value_name = "PROFILE", value_parser = profile, default_value = "dup")]
    pub(crate) metadata: Profile,

    /// Bytes of a tree block: a power of two, 4K to 64K
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "16K")]
    pub(crate) nodesize: u64,

    /// Bytes of the image [default: what it takes]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) size: Option<u64>,

    /// Bytes that are left for growth, beside what Linux wants free before it writes; 0 for an image that is only read
    ///
    /// By default there is what Linux wants if that is at most a twenty-fifth of the rest, otherwise so much that files can be deleted
    /// and the image can be made larger.
    #[arg(long, value_name = "BYTES", value_parser = bytes, conflicts_with = "size")]
    pub(crate) slack: Option<u64>,

    /// The name of the file system
    #[arg(long, value_name = "NAME")]
    pub(crate) label: Option<OsString>,

    /// The UUID of the file system [default: one that follows from what is in it]
    #[arg(long, value_name = "UUID", value_parser = uuid)]
    pub(crate) uuid: Option<Uuid>,

    /// Make the directory PATH a subvolume, one that may not be changed with `:ro` behind it; may be given several times
    #[arg(long, value_name = "PATH[:ro]")]
    pub(crate) as_subvolume: Vec<OsString>,

    /// The subvolume that is mounted when none is named: a path given to --as-subvolume, or `/`
    #[arg(long, value_name = "PATH")]
    pub(crate) default_subvolume: Option<OsString>,

    /// Give block groups a tree of their own: large file systems are mounted faster, but written to only by Linux 6.1 and later
    #[arg(long)]
    pub(crate) block_group_tree: bool,
}

/// The bytes of a UUID.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uuid([u8; 16]);

fn settings(words: &str) -> Result<Option<Settings>> {
    let (name, level) = match words.split_once(':') {
        Some((name, level)) => (name, Some(level)),
        None => (words, None),
    };
    let number = |usual: i32| match level {
        None => Ok(usual),
        Some(level) => level.parse().map_err(|_| anyhow!("`{level}` is no level")),
    };
    let settings = match (name, level) {
        ("none" | "no", None) => return Ok(None),
        ("lzo", None) => Settings::Lzo,
        ("zlib", _) => match number(3)? {
            level @ 1..=9 => Settings::Zlib { level: level as u8 },
            _ => bail!("zlib has levels from 1 to 9 in btrfs"),
        },
        ("zstd", _) => match number(3)? {
            level @ (-15..=-1 | 1..=15) => Settings::Zstd { level },
            _ => bail!("zstd has levels from -15 to -1 and from 1 to 15 in btrfs"),
        },
        ("none" | "no" | "lzo", Some(_)) => bail!("{name} has no levels"),
        _ => bail!("btrfs has zstd, zlib, lzo and none, the first two with a level behind a colon"),
    };
    Ok(Some(settings))
}

fn rule(words: &str) -> Result<Rule> {
    let (pattern, codec) = words
        .rsplit_once('=')
        .context("it is a pattern, `=` and a codec")?;
    Ok(Rule {
        patterns: Arc::new(Patterns::new([pattern])),
        compression: settings(codec)?,
    })
}

fn checksum(words: &str) -> Result<ChecksumType> {
    let mut all = ChecksumType::ALL.into_iter();
    all.find(|checksum| checksum.name() == words)
        .context("it is crc32c, xxhash, sha256 or blake2b")
}

fn profile(words: &str) -> Result<Profile> {
    Ok(match words {
        "single" => Profile::Single,
        "dup" => Profile::Dup,
        _ => bail!("it is single or dup"),
    })
}

fn uuid(words: &str) -> Result<Uuid> {
    let digits: Vec<u8> = words.bytes().filter(|&byte| byte != b'-').collect();
    let wrong = || anyhow!("it is 32 hexadecimal digits with hyphens, not all of them 0");
    let mut uuid = [0; 16];
    if digits.len() != 32 {
        return Err(wrong());
    }
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks(2)) {
        let text = std::str::from_utf8(pair).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(text, 16).map_err(|_| wrong())?;
    }
    if uuid == [0; 16] {
        return Err(wrong());
    }
    Ok(Uuid(uuid))
}

impl BtrfsArgs {
    /// How an image is encoded.
    pub(crate) fn compression(image: &ImageArgs) -> Result<Option<Settings>> {
        let words = image.compress.as_deref().unwrap_or("zstd:3");
        settings(words).with_context(|| format!("--compress {words}"))
    }

    /// The options for an image of what is left of a source.
    pub(crate) fn options(
        &self,
        image: &ImageArgs,
        source: &Source,
        inventory: &Inventory,
    ) -> Result<Options> {
        let (mut subvolumes, mut default) = (Vec::new(), None);
        if let Some(tree) = &source.btrfs {
            let id = tree.btrfs().default_subvolume()?;
            for (own, subvolume) in tree.subvolumes_in(inventory)? {
                if own == id {
                    default = Some(subvolume.path.clone());
                }
                subvolumes.push(subvolume);
            }
            // A part of a file system becomes the whole of another one, which can be changed.
            if tree.id() != TOP_LEVEL {
                subvolumes.retain(|subvolume| !subvolume.path.is_empty());
            }
        }
        for words in &self.as_subvolume {
            let (path, is_read_only) = match words.as_bytes().strip_suffix(b":ro") {
                Some(path) => (path, true),
                None => (words.as_bytes(), false),
            };
            let path = joined(path);
            match subvolumes.iter_mut().find(|known| known.path == path) {
                Some(known) => known.is_read_only = is_read_only,
                None => subvolumes.push(NewSubvolume {
                    path,
                    is_read_only,
                    ..NewSubvolume::default()
                }),
            }
        }
        if let Some(path) = &self.default_subvolume {
            default = Some(joined(path.as_bytes()));
        }
        let nodesize = u32::try_from(self.nodesize).unwrap_or(0); // which is refused
        let label = self.label.as_ref().map(|label| label.as_bytes().to_vec());
        Ok(Options {
            compression: Self::compression(image)?,
            rules: self.compress_path.clone(),
            force: self.compress_force,
            keep_extents: !image.recompress,
            checksum: self.checksum,
            metadata: self.metadata,
            nodesize,
            block_group_tree: self.block_group_tree,
            size: self.size,
            slack: self.slack,
            subvolumes,
            default_subvolume: default.filter(|path| !path.is_empty()),
            label: label.unwrap_or_default(),
            uuid: self.uuid.map(|uuid| uuid.0),
            epoch: epoch()?,
            duplicates: !image.no_duplicates,
            skip_unreadable: image.skip_unreadable,
            verify: !image.no_verify,
            ..Options::default()
        })
    }
}

/// The number of the top-level subvolume.
const TOP_LEVEL: u64 = 5;

/// A path without slashes at its ends or double ones.
fn joined(path: &[u8]) -> Vec<u8> {
    let names = path.split(|&byte| byte == b'/');
    let names: Vec<&[u8]> = names.filter(|name| !matches!(*name, b"" | b".")).collect();
    names.join(&b'/')
}

/// What the environment says that no time is to be later than.
fn epoch() -> Result<Option<i64>> {
    let Some(epoch) = std::env::var_os("SOURCE_DATE_EPOCH") else {
        return Ok(None);
    };
    let number = epoch.to_str().and_then(|epoch| epoch.parse().ok());
    let number = number.context("SOURCE_DATE_EPOCH is not a number of seconds since 1970")?;
    Ok(Some(number))
}

/// What could not be kept, a line each.
pub(crate) fn lost(summary: &Summary, source: &Source) -> Vec<String> {
    let mut lost = readable::left_out(&summary.image.unreadable, source);
    for (path, name) in &summary.image.lost_xattrs {
        let (path, name) = (source.name(path), text::of_name(name));
        lost.push(format!(
            "{path}: the attribute {name}, which does not fit in a tree block, is left out"
        ));
    }
    for path in &summary.split_links {
        let path = source.name(path);
        lost.push(format!(
            "{path}: its hard links in other subvolumes became files that share its content"
        ));
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_sizes_and_uuids_are_read() {
        assert_eq!(settings("none").unwrap(), None);
        assert_eq!(
            settings("zstd:-15").unwrap(),
            Some(Settings::Zstd { level: -15 })
        );
        assert_eq!(settings("zlib").unwrap(), Some(Settings::Zlib { level: 3 }));
        for wrong in [
            "zstd:0", "zstd:16", "zlib:10", "lzo:1", "xz", "zstd:x", "zstd:",
        ] {
            assert!(settings(wrong).is_err(), "{wrong}");
        }
        assert_eq!(bytes("16K").unwrap(), 16384);
        assert_eq!(bytes("3g").unwrap(), 3 << 30);
        for wrong in ["", "K", "1KB", "-1", "99999999999999T"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        let id = uuid("01234567-89ab-cdef-0123-456789ABCDEF").unwrap();
        assert_eq!(id.0[..4], [1, 0x23, 0x45, 0x67]);
        for wrong in [
            "",
            "0",
            "00000000-0000-0000-0000-000000000000",
            "x1234567-89ab-cdef-0123-456789ABCDE",
        ] {
            assert!(uuid(wrong).is_err(), "{wrong}");
        }
        assert_eq!(joined(b"/a//b/./c/"), b"a/b/c");
    }
}
