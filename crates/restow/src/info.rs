//! The contents of images: format, features, space by algorithm.
//!
//! ```
//! use restow::info::BtrfsInfo;
//! use restow::{Container, OpenOptions};
//!
//! # use restow::{CopyOptions, NoProgress};
//! # let dir = std::env::temp_dir().join(format!("restow-info-{}", std::process::id()));
//! # std::fs::create_dir_all(&dir)?;
//! # let path = dir.join("disk.btrfs");
//! # restow::copy(restow::open("src")?, &path, &CopyOptions::default(), &NoProgress)?;
//! let Container::Btrfs(image) = Container::open(&path, &OpenOptions::default())? else {
//!     return Err("not a btrfs image".into());
//! };
//! let info = BtrfsInfo::of(&image.open_btrfs(&OpenOptions::default())?);
//! println!("{} of {} bytes used", info.used_bytes, info.total_bytes);
//! for (subvolume, is_default) in info.subvolumes()? {
//!     println!("subvolume {}, default: {is_default}", subvolume.id);
//! }
//! # assert_eq!(info.subvolumes()?.len(), 1);
//! # assert!(info.usage(None)?.total().referenced > 0);
//! # std::fs::remove_dir_all(dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::sync::Arc;

use btrfs::{Btrfs, Chunk, Subvolume, block_group, incompat, object};
use erofs::{Erofs, Kernel};
use tree::usage::{All, StoredParts, Totals, measure};
use tree::{ByPath, DirEntry, FileKind, FileSystem, Inventory, Limits, NoProgress, Result, Time};

use crate::{Address, OpenOptions, container_image};

pub use ::btrfs::{DeviceInfo, SubvolumeInfo};
pub use ::oci::{Digest, Image, Layer, LayoutKind, ListedImage};
pub use ::squashfs::{Compressor, Squashfs, flags};

/// The kinds of chunks.
const CHUNK_KINDS: [(u64, &str); 4] = [
    (block_group::DATA, "data"),
    (block_group::METADATA, "metadata"),
    (block_group::SYSTEM, "system"),
    (block_group::DATA | block_group::METADATA, "mixed"),
];

/// The optional features, by the names that `mkfs.btrfs` gives them.
const FEATURES: [(u64, &str); 11] = [
    (incompat::DEFAULT_SUBVOL, "default-subvol"),
    (incompat::MIXED_GROUPS, "mixed-bg"),
    (incompat::COMPRESS_LZO, "compress-lzo"),
    (incompat::COMPRESS_ZSTD, "compress-zstd"),
    (incompat::EXTENDED_IREF, "extref"),
    (incompat::RAID56, "raid56"),
    (incompat::SKINNY_METADATA, "skinny-metadata"),
    (incompat::NO_HOLES, "no-holes"),
    (incompat::METADATA_UUID, "metadata-uuid"),
    (incompat::RAID1C34, "raid1c34"),
    (incompat::SIMPLE_QUOTA, "squota"),
];

/// A btrfs file system as its superblock and its chunks describe it.
#[non_exhaustive]
pub struct BtrfsInfo {
    btrfs: Arc<Btrfs>,
    /// The label; any bytes except NUL.
    pub label: Box<[u8]>,
    /// The UUID.
    pub uuid: [u8; 16],
    /// The UUID in the metadata, which differs after the other one was changed.
    pub metadata_uuid: [u8; 16],
    /// The last transaction.
    pub generation: u64,
    /// The name of the checksum algorithm.
    pub checksum: &'static str,
    /// Bytes of a sector.
    pub sector_bytes: u32,
    /// Bytes of a tree block.
    pub node_bytes: u32,
    /// Bytes of all devices.
    pub total_bytes: u64,
    /// Bytes used, each copy counted once.
    pub used_bytes: u64,
    /// The names of its optional features.
    pub features: Vec<&'static str>,
    /// Whether it was not unmounted cleanly.
    pub has_log: bool,
    /// Whether a damaged chunk tree hides devices and chunks.
    pub lacks_chunks: bool,
    /// Its devices, and whether each is missing.
    pub devices: Vec<(DeviceInfo, bool)>,
    /// The chunks of each kind that there is.
    pub chunks: Vec<ChunkTotals>,
}

/// The chunks of one kind.
#[derive(Debug)]
#[non_exhaustive]
pub struct ChunkTotals {
    /// Data, metadata, system or mixed.
    pub kind: &'static str,
    /// Bytes, each copy counted once.
    pub bytes: u64,
    /// The number of chunks.
    pub count: u64,
    /// The names of their profiles.
    pub profiles: Vec<&'static str>,
}

impl BtrfsInfo {
    /// Describes a file system. Reads nothing.
    pub fn of(btrfs: &Arc<Btrfs>) -> BtrfsInfo {
        let superblock = btrfs.superblock();
        let present: Vec<u64> = btrfs.present_devices().collect();
        let devices = btrfs.devices().iter();
        let devices = devices.map(|device| (*device, !present.contains(&device.id)));
        let features = FEATURES
            .iter()
            .filter(|(bit, _)| superblock.incompat & bit != 0);
        let chunks = CHUNK_KINDS
            .iter()
            .map(|&(kind, name)| ChunkTotals::of(btrfs, kind, name));
        BtrfsInfo {
            btrfs: Arc::clone(btrfs),
            label: superblock.label.clone(),
            uuid: superblock.fsid,
            metadata_uuid: superblock.metadata_uuid,
            generation: superblock.generation.0,
            checksum: superblock.checksum.name(),
            sector_bytes: superblock.sectorsize,
            node_bytes: superblock.nodesize,
            total_bytes: superblock.total_bytes,
            used_bytes: superblock.bytes_used,
            features: features.map(|(_, name)| *name).collect(),
            has_log: btrfs.has_log(),
            lacks_chunks: btrfs.lacks_chunks(),
            devices: devices.collect(),
            chunks: chunks.filter(|chunks| chunks.bytes > 0).collect(),
        }
    }

    /// The subvolumes, and whether each is the default one.
    ///
    /// # Errors
    /// The image cannot be read.
    pub fn subvolumes(&self) -> Result<Vec<(SubvolumeInfo, bool)>> {
        let default = self.btrfs.default_subvolume()?;
        let subvolumes = self.btrfs.subvolumes()?.into_iter();
        let subvolumes = subvolumes.map(|subvolume| {
            let is_default = subvolume.id == default;
            (subvolume, is_default)
        });
        Ok(subvolumes.collect())
    }

    /// The space that the files of a subvolume take; of all subvolumes if `id` is not given.
    ///
    /// # Errors
    /// Something cannot be read.
    pub fn usage(&self, id: Option<u64>) -> Result<Totals> {
        let tree = match id {
            Some(id) => self.btrfs.subvolume(id)?.without_nested(),
            None => self.btrfs.subvolume(object::FS_TREE)?,
        };
        usage_of_root(&tree, &tree)
    }

    /// The space that a file or directory of a subvolume takes, with all below it.
    ///
    /// # Errors
    /// Something cannot be read, or there is no such file.
    pub fn usage_below(tree: &Subvolume, path: &[u8]) -> Result<Totals> {
        let file = tree.find_no_follow(path)?;
        measure(tree, tree, (&file, path), &NoProgress, &mut All(Vec::new()))
    }
}

impl ChunkTotals {
    fn of(btrfs: &Btrfs, kind: u64, name: &'static str) -> ChunkTotals {
        let chunks = btrfs.chunks().chunks().iter();
        let chunks: Vec<&Chunk> = chunks
            .filter(|chunk| chunk.flags & block_group::TYPE_MASK == kind)
            .collect();
        let mut profiles: Vec<&str> = chunks.iter().map(|chunk| chunk.profile.name()).collect();
        profiles.sort_unstable();
        profiles.dedup();
        ChunkTotals {
            kind: name,
            bytes: chunks.iter().map(|chunk| chunk.len).sum(),
            count: chunks.len() as u64,
            profiles,
        }
    }
}

/// A SquashFS image as its superblock and its tables describe it.
#[derive(Debug)]
#[non_exhaustive]
pub struct SquashfsInfo {
    /// The codec with its options.
    pub compressor: Compressor,
    /// Bytes of a data block.
    pub block_bytes: u32,
    /// When the image was made.
    pub made: Time,
    /// Bytes of the image, without padding.
    pub image_bytes: u64,
    /// Bytes of the contents of all files.
    pub content_bytes: u64,
    /// The number of inodes.
    pub inodes: u32,
    /// The number of regular files.
    pub files: u64,
    /// The number of directories.
    pub directories: u64,
    /// The number of symbolic links.
    pub symlinks: u64,
    /// The number of names.
    pub names: u32,
    /// The number of fragment blocks.
    pub fragments: u32,
    /// The number of different user and group IDs.
    pub ids: u32,
    /// The number of different sets of extended attributes.
    pub xattr_sets: u32,
    /// Whether it can be exported over NFS.
    pub is_exportable: bool,
    /// Where the data begins.
    pub data_at: u64,
    /// Where the inode table begins.
    pub inode_table_at: u64,
    /// Where the directory table begins.
    pub directory_table_at: u64,
    /// The space that files take.
    pub usage: Totals,
}

impl SquashfsInfo {
    /// Describes an image.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of(image: &Squashfs) -> Result<SquashfsInfo> {
        let superblock = image.superblock();
        let inventory = Inventory::of(image, &Limits::default())?;
        let count = |kind| {
            let files = inventory.files();
            files.filter(|&file| inventory.kind(file) == kind).count() as u64
        };
        Ok(SquashfsInfo {
            compressor: image.compressor(),
            block_bytes: superblock.block_bytes,
            made: Time {
                seconds: superblock.mkfs_time.into(),
                nanoseconds: 0,
            },
            image_bytes: superblock.bytes_used,
            content_bytes: inventory.content_bytes(),
            inodes: superblock.inode_count,
            files: count(FileKind::Regular),
            directories: count(FileKind::Directory),
            symlinks: count(FileKind::Symlink),
            names: inventory.entry_count(),
            fragments: superblock.fragment_count,
            ids: superblock.id_count,
            xattr_sets: image.xattr_set_count(),
            is_exportable: superblock.flags & flags::EXPORTABLE != 0,
            data_at: 96,
            inode_table_at: superblock.inode_table,
            directory_table_at: superblock.directory_table,
            usage: usage_of_root(image, image)?,
        })
    }
}

/// An EROFS image as its superblock and its inodes describe it.
#[derive(Debug)]
#[non_exhaustive]
pub struct ErofsInfo {
    /// The names of the codecs that it may use.
    pub codecs: Vec<&'static str>,
    /// The names of its incompatible features.
    pub features: Vec<&'static str>,
    /// The label; any bytes except NUL.
    pub label: Box<[u8]>,
    /// The UUID.
    pub uuid: [u8; 16],
    /// Bytes of a block.
    pub block_bytes: u64,
    /// When the image was made.
    pub made: Time,
    /// The oldest Linux that reads images with these features and codecs.
    pub min_kernel: Kernel,
    /// Bytes of the image, without further devices.
    pub image_bytes: u64,
    /// Bytes of the contents of all files.
    pub content_bytes: u64,
    /// Bytes of zeros before compressed data that ends with a block.
    pub padding_bytes: u64,
    /// The number of inodes.
    pub inodes: u64,
    /// The number of regular files.
    pub files: u64,
    /// The number of directories.
    pub directories: u64,
    /// The number of symbolic links.
    pub symlinks: u64,
    /// The number of names.
    pub names: u32,
    /// The number of further devices.
    pub devices: u16,
    /// The space that files take.
    pub usage: Totals,
}

impl ErofsInfo {
    /// Describes an image.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of(image: &Erofs) -> Result<ErofsInfo> {
        let superblock = image.superblock();
        let inventory = Inventory::of(image, &Limits::default())?;
        let count = |kind| {
            let files = inventory.files();
            files.filter(|&file| inventory.kind(file) == kind).count() as u64
        };
        Ok(ErofsInfo {
            codecs: superblock.codecs().collect(),
            features: superblock.features().collect(),
            label: superblock.label.clone(),
            uuid: superblock.uuid,
            block_bytes: superblock.block_bytes(),
            made: superblock.made,
            min_kernel: superblock.min_kernel(),
            image_bytes: image.image_bytes()?,
            content_bytes: inventory.content_bytes(),
            padding_bytes: image.padding_bytes()?,
            inodes: inventory.file_count().into(),
            files: count(FileKind::Regular),
            directories: count(FileKind::Directory),
            symlinks: count(FileKind::Symlink),
            names: inventory.entry_count(),
            devices: superblock.devices,
            usage: usage_of_root(image, image)?,
        })
    }
}

/// A directory or archive of container images as its index and manifests describe it.
#[non_exhaustive]
pub struct ContainerImagesInfo {
    /// How images are stored.
    pub kind: LayoutKind,
    /// The images.
    pub images: Vec<ListedImage>,
    /// The one that the address and the options select; `None` if that leaves several.
    pub selected: Option<(ListedImage, Image)>,
}

impl ContainerImagesInfo {
    /// Describes the container images at an address; `None` for an archive without any.
    ///
    /// # Errors
    /// They cannot be read, or the address and the options name another one.
    pub fn of(
        address: &Address,
        options: &OpenOptions,
    ) -> crate::Result<Option<ContainerImagesInfo>> {
        let Some(layout) = container_image::open_layout(address, options)? else {
            return Ok(None);
        };
        let selected = match container_image::choose(&layout, address, options) {
            Ok(listed) => Some((listed.clone(), layout.image(listed)?)),
            Err(error) if address.names_image() || options.platform.is_some() => return Err(error),
            Err(_) => None,
        };
        Ok(Some(ContainerImagesInfo {
            kind: layout.kind(),
            images: layout.images().to_vec(),
            selected,
        }))
    }
}

fn usage_of_root(tree: &dyn FileSystem, parts: &dyn StoredParts) -> Result<Totals> {
    let root = DirEntry {
        name: Box::default(),
        ino: tree.root(),
        kind: FileKind::Directory,
    };
    let start = (&root, &b""[..]);
    measure(tree, parts, start, &NoProgress, &mut All(Vec::new()))
}
