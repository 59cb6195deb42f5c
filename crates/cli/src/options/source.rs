//! Where an image is, and which part of it is a source.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use restow::{Address, DiskFile, ImageAt, OpenOptions, Platform, SourceTree, VerityRoot};

use super::bytes::{bytes, hexadecimal};

/// The help of arguments that name a tree.
pub(crate) const SOURCE_HELP: &str = "\
A directory, tar or cpio archive, SquashFS, btrfs or EROFS image, btrfs send stream or container image; `-` is standard input";

/// The same in full, with the syntax of `restow::Address`.
pub(crate) const SOURCE_LONG_HELP: &str = "\
A directory, tar or cpio archive, SquashFS, btrfs or EROFS image, btrfs send stream or container image; `-` is standard input

FILE:PATH selects a directory of an archive or image, as in `src.tar.gz:src/doc`. In a btrfs image, it selects the \
subvolume of that name if there is one, as in `disk.btrfs:home`, or a directory of a subvolume, as in \
`disk.btrfs:home/user`; IMAGE:ID selects a subvolume by its number, as in `disk.btrfs:257`. A file whose \
name contains colons is always found by its full name; to select the subvolume `home` even if there is a file \
`disk.btrfs:home`, write `disk.btrfs:/home`. STREAM:NAME selects \
a subvolume of a send stream that has several.

oci:DIR, oci-archive:FILE and docker-archive:FILE are container images: their merged layers, after checking their digests (in zstd:chunked, \
those of the table of contents and of each file). \
A name follows a colon if there are several, as in `oci:images:app`. Archives of `docker save`, `podman save` and skopeo are \
recognised by their content; `app.tar:/` is the archive itself.

https://SERVER/PATH, s3://BUCKET/NAME, gs://BUCKET/NAME and az://CONTAINER/NAME are read where they are, with the \
credentials of each cloud's own variables and files; a subvolume or directory follows the last colon, and a colon in a name is \
written %3A.

An image, or the disk with the partition that --image-at names, can be in a disk file of a virtual machine: qcow2, VMDK, VHDX or VHD.

overlay:LOWER:UPPER is the tree that a mount of overlayfs shows of these layers, the lowest first; each is a source, with `\\:` \
for a colon. overlay,userxattr:LOWER:UPPER is for mounts with that option.";

/// Which part of an image is a source.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SourceArgs {
    /// Read this subvolume of btrfs images for which none is given as IMAGE:PATH [default: the
    /// default subvolume; when copying to a btrfs image, the top level]
    #[arg(long, value_name = "PATH|ID", help_heading = "btrfs sources")]
    pub(crate) subvolume: Option<OsString>,

    /// Read a subvolume alone: the subvolumes nested in it are empty directories, as in a snapshot
    #[arg(long, help_heading = "btrfs sources")]
    pub(crate) no_nested: bool,

    /// Replay this send stream first (repeatable): an incremental stream needs its parent
    #[arg(long, value_name = "STREAM", help_heading = "Send streams as sources")]
    pub(crate) base: Vec<PathBuf>,
    /// Read only the last commit of a btrfs image, without the newer changes in its log
    #[arg(long, help_heading = "btrfs sources")]
    pub(crate) no_log: bool,

    /// Use this copy of the superblock of a btrfs image: 0, 1 or 2 [default: the newest that is
    /// valid]
    #[arg(long, value_name = "N", help_heading = "btrfs sources",
          value_parser = clap::value_parser!(u8).range(0..=2))]
    pub(crate) superblock: Option<u8>,

    /// Read a btrfs image as it was N commits before the last, 1 to 3, as far as its blocks were
    /// not overwritten since
    #[arg(long, value_name = "N", help_heading = "btrfs sources",
          value_parser = clap::value_parser!(u8).range(1..=3))]
    pub(crate) older_root: Option<u8>,

    /// Do not cross into other file systems: mount points and btrfs subvolumes are empty
    /// directories
    #[arg(long, help_heading = "Directories as sources")]
    pub(crate) one_file_system: bool,

    /// Follow symbolic links: read the files and directories that they lead to in their place
    #[arg(
        long,
        help_heading = "Directories as sources",
        conflicts_with = "one_file_system"
    )]
    pub(crate) dereference: bool,

    /// Read the container image for this platform, as in linux/arm64 [default: this machine's, or
    /// the only one]
    #[arg(
        long,
        value_name = "OS/ARCH[/VARIANT]",
        help_heading = "Container images as sources"
    )]
    pub(crate) platform: Option<Platform>,

    /// Continue after the end of a tar archive: for concatenated archives
    #[arg(long, help_heading = "Tar archives as sources")]
    pub(crate) ignore_zeros: bool,

    #[command(flatten)]
    pub(crate) file: ImageFileArgs,

    /// Members of archives that cannot be read are left out; only copy has this, with
    /// `--skip-unreadable`.
    #[arg(skip)]
    pub(crate) skip_damaged: bool,

    /// Data is read without verifying its checksums; only mount has this, as an option of its own.
    #[arg(skip)]
    pub(crate) ignore_checksums: bool,
}

/// Where an image is.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ImageFileArgs {
    /// Add the image of another device of the same btrfs file system, or of a seed that it is based
    /// on, or the next device of an EROFS image (repeatable)
    #[arg(long, value_name = "IMAGE", help_heading = "btrfs sources")]
    pub(crate) device: Vec<PathBuf>,

    /// Read the SquashFS, btrfs or EROFS image at this offset (as in 1MiB), in this partition (as
    /// in partition:2), or the first one in the file (search) [default: at the beginning, or after
    /// the program in an AppImage]
    ///
    /// `restow info` lists the partitions of a disk image (MBR or GPT).
    #[arg(
        long,
        value_name = "BYTES|search|partition:N",
        value_parser = image_at,
        help_heading = "Image sources"
    )]
    pub(crate) image_at: Option<ImageAt>,

    /// Read the EROFS image of a file that is also a SquashFS or btrfs image, which `copy --dual`
    /// makes
    #[arg(long, help_heading = "Image sources")]
    pub(crate) as_erofs: bool,

    /// Read this file behind a disk file (qcow2), in place of the one that it names (repeatable:
    /// the file behind that)
    ///
    /// A name in a disk file is followed only to a regular file in or below its directory.
    #[arg(long, value_name = "FILE", help_heading = "Image sources")]
    pub(crate) backing: Vec<PathBuf>,

    /// Read the internal snapshot with this ID or name of a disk file (qcow2), not its last state
    #[arg(long, value_name = "ID|NAME", help_heading = "Image sources")]
    pub(crate) disk_snapshot: Option<OsString>,

    /// Verify each block of the image with this root hash of dm-verity before it is used
    ///
    /// The hash tree is behind the image, as `restow copy --verity` puts it, or in the FILE of
    /// --hash-tree; on a device that is longer, --hash-offset gives its place. The hash is of SRC,
    /// or of the first image, alone.
    #[arg(
        long,
        value_name = "HASH",
        value_parser = root_hash,
        help_heading = "Image sources"
    )]
    pub(crate) root_hash: Option<RootHash>,

    /// The hash tree of --root-hash is in FILE
    #[arg(
        long,
        value_name = "FILE",
        requires = "root_hash",
        help_heading = "Image sources"
    )]
    pub(crate) hash_tree: Option<PathBuf>,

    /// The hash tree of --root-hash begins at this byte of its FILE, or of the image [default: 0 in
    /// FILE; otherwise where a tree begins with which the image ends]
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = bytes,
        requires = "root_hash",
        help_heading = "Image sources"
    )]
    pub(crate) hash_offset: Option<u64>,
}

/// The hash at the root of a hash tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RootHash([u8; 32]);

fn root_hash(words: &str) -> Result<RootHash> {
    let hash = hexadecimal(words).and_then(|bytes| bytes.try_into().ok());
    hash.map(RootHash).context("must be 64 hexadecimal digits")
}

pub(crate) fn image_at(words: &str) -> Result<ImageAt> {
    match words {
        "search" => Ok(ImageAt::Search),
        words => match words.strip_prefix("partition") {
            Some(number) => {
                let number = number.trim_start_matches([':', ' ']).parse();
                Ok(ImageAt::Partition(number.context("must be partition:N")?))
            }
            None => bytes(words).map(ImageAt::Byte),
        },
    }
}

/// Options with which everything is opened: `TMPDIR` is for the content of pipes and of compressed
/// archives.
pub(crate) fn open_options() -> OpenOptions {
    let mut options = OpenOptions::default();
    if let Some(dir) = std::env::var_os("TMPDIR").filter(|dir| !dir.is_empty()) {
        options.spool_dir = dir.into();
    }
    #[cfg(feature = "remote")]
    {
        options.remote = super::remote::remote_options();
    }
    options
}

/// Refuses two addresses that are both standard input, of which the second would be empty or wait
/// forever.
///
/// # Errors
/// Both are.
pub(crate) fn only_one_is_standard_input(a: &Address, b: &Address) -> Result<()> {
    if a.is_standard_input() && b.is_standard_input() {
        bail!("standard input cannot be both trees");
    }
    Ok(())
}

impl SourceArgs {
    /// The same for the library; with `top_level`, a btrfs image is read from its top level if no
    /// subvolume is named.
    pub(crate) fn options(&self, top_level: bool) -> OpenOptions {
        let mut options = self.file.options();
        options.subvolume.clone_from(&self.subvolume);
        options.top_level = top_level;
        options.no_nested = self.no_nested;
        options.no_log = self.no_log;
        options.superblock = self.superblock.map(usize::from);
        options.older_root = self.older_root.map_or(0, usize::from);
        options.ignore_checksums = self.ignore_checksums;
        options.platform.clone_from(&self.platform);
        options.base.clone_from(&self.base);
        options.one_file_system = self.one_file_system;
        options.dereference = self.dereference;
        options.ignore_zeros = self.ignore_zeros;
        options.skip_damaged = self.skip_damaged;
        options
    }

    /// Opens the tree at an address.
    ///
    /// # Errors
    /// It cannot be opened or read, or options do not apply to it.
    pub(crate) fn open(&self, address: &Address, top_level: bool) -> Result<SourceTree> {
        let source = SourceTree::open(address, &self.options(top_level))?;
        let refuse = || -> Result<()> {
            if self.one_file_system && source.directory().is_none() {
                bail!("not a directory: --one-file-system does not apply");
            }
            if self.dereference && !address.path.is_dir() {
                bail!("not a directory: --dereference does not apply");
            }
            if source.directory().is_some() {
                self.refuse_options_of_files()?;
            }
            if source.container_image().is_none() {
                self.refuse_platform()?;
            }
            self.file.refuse_options_of_disks(source.disk_file())?;
            if source.btrfs().is_none() {
                if self.ignore_checksums {
                    bail!("not a btrfs image: option ignore_checksums does not apply");
                }
                self.refuse_options_of_btrfs()?;
                if source.erofs().is_none() {
                    self.file.refuse_device()?;
                }
            } else if address.subvolume.is_some() {
                self.refuse_subvolume()?;
            }
            Ok(())
        };
        refuse().with_context(|| format!("open {}", address.name()))?;
        Ok(source)
    }

    /// Opens two trees. An option for btrfs images must apply to one of them. The image in the
    /// second one can be at another place.
    ///
    /// # Errors
    /// As for [`SourceArgs::open`].
    pub(crate) fn open_pair(
        &self,
        addresses: [&Address; 2],
        second_image_at: Option<ImageAt>,
    ) -> Result<[SourceTree; 2]> {
        let first = self.options(false);
        let mut second = first.clone();
        second.image_at = second_image_at.or(first.image_at);
        second.verity = None;
        let sources = SourceTree::open_pair(addresses, [&first, &second])?;
        if second_image_at.is_some() && sources[1].directory().is_some() {
            bail!("a directory: --second-image-at does not apply");
        }
        if sources
            .iter()
            .all(|source| source.container_image().is_none())
        {
            self.refuse_platform()?;
        }
        let disk_file = sources.iter().find_map(SourceTree::disk_file);
        self.file.refuse_options_of_disks(disk_file)?;
        let both = addresses.iter().zip(&sources);
        let mut images = both
            .filter(|(_, source)| source.btrfs().is_some())
            .peekable();
        if images.peek().is_none() {
            self.refuse_options_of_btrfs()?;
            if sources.iter().all(|source| source.erofs().is_none()) {
                self.file.refuse_device()?;
            }
        } else if images.all(|(address, _)| address.subvolume.is_some()) {
            self.refuse_subvolume()?;
        }
        Ok(sources)
    }

    /// Refuses options for files where the source is a directory.
    ///
    /// # Errors
    /// There is such an option; the error names it.
    fn refuse_options_of_files(&self) -> Result<()> {
        for (is_given, option) in [
            (self.file.image_at.is_some(), "--image-at"),
            (self.file.as_erofs, "--as-erofs"),
            (!self.file.backing.is_empty(), "--backing"),
            (self.file.disk_snapshot.is_some(), "--disk-snapshot"),
            (!self.base.is_empty(), "--base"),
            (self.ignore_zeros, "--ignore-zeros"),
        ] {
            if is_given {
                bail!("a directory: {option} does not apply");
            }
        }
        Ok(())
    }

    /// Refuses options for btrfs images where no source is one, but for `--device`.
    ///
    /// # Errors
    /// There is such an option; the error names it.
    pub(crate) fn refuse_options_of_btrfs(&self) -> Result<()> {
        if self.subvolume.is_some() {
            bail!("not a btrfs image: --subvolume does not apply");
        }
        if self.no_nested {
            bail!("not a btrfs image: --no-nested does not apply");
        }
        if self.no_log {
            bail!("not a btrfs image: --no-log does not apply");
        }
        if self.superblock.is_some() {
            bail!("not a btrfs image: --superblock does not apply");
        }
        if self.older_root.is_some() {
            bail!("not a btrfs image: --older-root does not apply");
        }
        Ok(())
    }

    /// Refuses `--platform` where no source is a container image.
    ///
    /// # Errors
    /// The option is there.
    pub(crate) fn refuse_platform(&self) -> Result<()> {
        if self.platform.is_some() {
            bail!("not a container image: --platform does not apply");
        }
        Ok(())
    }

    /// Refuses `--subvolume` where every btrfs image has a subvolume in its address.
    ///
    /// # Errors
    /// The option is there.
    pub(crate) fn refuse_subvolume(&self) -> Result<()> {
        if self.subvolume.is_some() {
            bail!("--subvolume does not apply: the subvolume is already named");
        }
        Ok(())
    }
}

impl ImageFileArgs {
    /// The same for the library.
    pub(crate) fn options(&self) -> OpenOptions {
        let mut options = open_options();
        options.devices.clone_from(&self.device);
        options.image_at = self.image_at;
        options.as_erofs = self.as_erofs;
        options.backing.clone_from(&self.backing);
        options.disk_snapshot.clone_from(&self.disk_snapshot);
        options.verity = self.root_hash.map(|root| {
            let root = VerityRoot::new(root.0).file(self.hash_tree.clone());
            root.offset(self.hash_offset)
        });
        options
    }

    /// Refuses options for disk files where no source is one.
    ///
    /// # Errors
    /// There is such an option; the error names it.
    pub(crate) fn refuse_options_of_disks(&self, disk_file: Option<&Arc<DiskFile>>) -> Result<()> {
        for (is_given, option) in [
            (!self.backing.is_empty(), "--backing"),
            (self.disk_snapshot.is_some(), "--disk-snapshot"),
        ] {
            if is_given && disk_file.is_none() {
                bail!("not a disk file of a virtual machine: {option} does not apply");
            }
        }
        Ok(())
    }

    /// Refuses `--device` where the image is neither a btrfs nor an EROFS image.
    ///
    /// # Errors
    /// The option is there.
    pub(crate) fn refuse_device(&self) -> Result<()> {
        if !self.device.is_empty() {
            bail!("neither a btrfs nor an EROFS image: --device does not apply");
        }
        Ok(())
    }
}
