//! Options for copies.

use std::collections::HashSet;
use std::path::PathBuf;

use btrfs::NewSubvolume;
use codec::{Settings, Wrapper};
use oci::{LayerFormat, Platform};
use sendstream::Version;
use tree::edit::Priorities;
use tree::extract::Existing;
use tree::json::Json;
use tree::{
    FileAttributes, FileId, FileKind, HostTimes, Inventory, Limits, Parallel, Verify, setters,
};

use super::format::Format;
use crate::{Error, PartNumber, RemoteOptions, Result, UploadOptions, VerityOptions, text};

/// How a tree is copied. Options for another format than that of the destination have no effect.
#[derive(Debug)]
#[non_exhaustive]
pub struct CopyOptions {
    /// The format of the destination; by default the one that its name says.
    pub format: Option<Format>,
    /// Replace an existing file.
    pub overwrite: bool,
    /// Write over an existing file, which keeps its names, its number and its open descriptors,
    /// instead of replacing it. Its content is gone before the new one is complete.
    pub in_place: bool,
    /// The threads that encode and write.
    pub parallel: Parallel,
    /// The most memory of the whole process, in bytes: fewer threads work, and less waits, or the
    /// copy is refused before anything is written.
    pub memory_max: Option<u64>,
    /// Limits on the source.
    pub limits: Limits,
    /// Skip files that cannot be read.
    pub skip_unreadable: bool,
    /// As `skip_unreadable`, but keep the readable parts of damaged files.
    pub keep_damaged: bool,
    /// Accept files of a directory that change while they are read.
    pub accept_changed: bool,
    /// Directories: an existing destination.
    pub existing: Existing,
    /// Directories: where trees are merged, existing directories get the owner, mode, attributes
    /// and times that they have in the source.
    pub update_dirs: bool,
    /// Directories: restore owners.
    pub owners: bool,
    /// Directories: wait until the data is on disk.
    pub sync: bool,
    /// Round times down to whole seconds.
    pub whole_seconds: bool,
    /// Compressed archives: the level.
    pub level: Option<u8>,
    /// Images: do not keep data in compressed form.
    pub recompress: bool,
    /// Images: the older image whose compressed data is kept where content is unchanged.
    pub reuse: Option<PathBuf>,
    /// Images: take files of equal path, size and modification time for unchanged.
    pub trust_mtime: bool,
    /// Images: store files with equal content once.
    pub duplicates: bool,
    /// Images: data that is decoded again before the image counts as finished.
    pub verify: Verify,
    /// Images: add a hash tree of dm-verity.
    pub verity: Option<VerityOptions>,
    /// Images: no time of a file is later, in seconds since 1970.
    pub epoch: Option<i64>,
    /// btrfs images: the times that files of a directory of this machine get.
    pub host_times: HostTimes,
    /// SquashFS images: the format's own options. Those above count for both.
    pub squashfs: squashfs::Options,
    /// EROFS images: the format's own options. Those above count for both.
    pub erofs: erofs::Options,
    /// SquashFS and EROFS images: the creation time; by default the newest modification time of a
    /// file.
    pub mkfs_time: Option<u32>,
    /// SquashFS images: the order of file data.
    pub priorities: Option<Priorities>,
    /// SquashFS and btrfs images: make this part of the image instead of the whole.
    pub part: Option<PartNumber>,
    /// SquashFS and btrfs images: the parts to join, or directories with files that end in `.part`.
    /// For a part, one that lists the equal files, which are then not searched.
    pub parts: Vec<PathBuf>,
    /// btrfs images: the format's own options. Those above count for both.
    pub btrfs: btrfs::Options,
    /// btrfs images: the further devices of the file system, new files or block devices, of which
    /// the destination is the first one.
    pub devices: Vec<PathBuf>,
    /// SquashFS and btrfs images: also make an EROFS image in the same file, for which the options
    /// of EROFS images count. It names the data of the other one; that of btrfs has no free space.
    pub dual: bool,
    /// btrfs images: directories that become subvolumes, beside the subvolumes of a btrfs source.
    pub subvolumes: Vec<NewSubvolume>,
    /// btrfs images: attributes that files get, by path. [`FileAttributes::NO_COW`] is inherited by
    /// everything below a directory, as far as the next subvolumes.
    pub attributes: Vec<(Vec<u8>, FileAttributes)>,
    /// Send streams: the options of the format.
    pub stream: StreamOptions,
    /// Container images: the options of the format.
    pub image: ImageOptions,
    /// How objects of other machines are read, such as the image to reuse, and reached.
    pub remote: RemoteOptions,
    /// How an object is written, but for `overwrite` above.
    pub upload: UploadOptions,
    /// The directory for unnamed files with the content of an archive that is reused.
    pub spool_dir: PathBuf,
    /// Images: bytes behind the image, which are no part of it.
    pub(crate) appended: Vec<u8>,
}

/// How a send stream is written.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StreamOptions {
    /// The name of the subvolume; by default that of the destination without its ending.
    pub name: Option<Vec<u8>>,
    /// The UUID of the subvolume; by default a hash of the commands.
    pub uuid: Option<[u8; 16]>,
    /// The version.
    pub version: Version,
    /// Write plain data, not as it is stored.
    pub plain: bool,
    /// Encode all data.
    pub encode: Option<Settings>,
}

/// How a container image is written.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ImageOptions {
    /// The image on whose layers a layer of the differences is put: its address, as `oci:DIR:NAME`.
    pub base: Option<PathBuf>,
    /// The configuration that is taken over, but for the layers; by default that of the base, or of
    /// a source that is a container image.
    pub config: Option<Json>,
    /// The platform, if there is no configuration, and that of the base, if it has several; by
    /// default this machine's.
    pub platform: Option<Platform>,
    /// The compression of the layer: gzip, zstd, or none. Zstd gets a seek table. The level is
    /// [`CopyOptions::level`].
    pub wrapper: Option<Wrapper>,
    /// The layer is an image of this format, for which the options of the format count, instead of
    /// a tar archive.
    pub layer: Option<LayerFormat>,
}

impl Default for ImageOptions {
    fn default() -> Self {
        ImageOptions {
            base: None,
            config: None,
            platform: None,
            wrapper: Some(Wrapper::Zstd),
            layer: None,
        }
    }
}

setters!(ImageOptions {
    base: Option<PathBuf>,
    config: Option<Json>,
    platform: Option<Platform>,
    wrapper: Option<Wrapper>,
    layer: Option<LayerFormat>,
});

impl Default for CopyOptions {
    fn default() -> Self {
        CopyOptions {
            format: None,
            overwrite: false,
            in_place: false,
            parallel: Parallel::available(),
            memory_max: None,
            limits: Limits::default(),
            skip_unreadable: false,
            keep_damaged: false,
            accept_changed: false,
            existing: Existing::Refuse,
            update_dirs: false,
            owners: true,
            sync: true,
            whole_seconds: false,
            level: None,
            recompress: false,
            reuse: None,
            trust_mtime: false,
            duplicates: true,
            verify: Verify::Encoded,
            verity: None,
            epoch: None,
            host_times: HostTimes::Modification,
            squashfs: squashfs::Options::default(),
            erofs: erofs::Options::default(),
            mkfs_time: None,
            priorities: None,
            part: None,
            parts: Vec::new(),
            btrfs: btrfs::Options::default(),
            devices: Vec::new(),
            dual: false,
            subvolumes: Vec::new(),
            attributes: Vec::new(),
            stream: StreamOptions::default(),
            image: ImageOptions::default(),
            remote: RemoteOptions::default(),
            upload: UploadOptions::default(),
            spool_dir: "/var/tmp".into(),
            appended: Vec::new(),
        }
    }
}

setters!(CopyOptions {
    format: Option<Format>,
    overwrite: bool,
    in_place: bool,
    parallel: Parallel,
    memory_max: Option<u64>,
    limits: Limits,
    skip_unreadable: bool,
    keep_damaged: bool,
    accept_changed: bool,
    existing: Existing,
    update_dirs: bool,
    owners: bool,
    sync: bool,
    whole_seconds: bool,
    level: Option<u8>,
    recompress: bool,
    reuse: impl Into<Option<PathBuf>>,
    trust_mtime: bool,
    duplicates: bool,
    verify: Verify,
    verity: Option<VerityOptions>,
    epoch: Option<i64>,
    host_times: HostTimes,
    squashfs: squashfs::Options,
    erofs: erofs::Options,
    mkfs_time: Option<u32>,
    priorities: Option<Priorities>,
    part: Option<PartNumber>,
    parts: Vec<PathBuf>,
    btrfs: btrfs::Options,
    devices: Vec<PathBuf>,
    dual: bool,
    subvolumes: Vec<NewSubvolume>,
    attributes: Vec<(Vec<u8>, FileAttributes)>,
    stream: StreamOptions,
    image: ImageOptions,
    remote: RemoteOptions,
    upload: UploadOptions,
    spool_dir: impl Into<PathBuf>,
});

impl Default for StreamOptions {
    fn default() -> Self {
        StreamOptions {
            name: None,
            uuid: None,
            version: Version::V2,
            plain: false,
            encode: None,
        }
    }
}

setters!(StreamOptions {
    name: Option<Vec<u8>>,
    uuid: Option<[u8; 16]>,
    version: Version,
    plain: bool,
    encode: Option<Settings>,
});

impl CopyOptions {
    /// Whether files that cannot be read are left out.
    pub fn skips(&self) -> bool {
        self.skip_unreadable || self.keep_damaged
    }

    /// The format that holds the files: that of the layer of a container image.
    pub(super) fn content_format(&self, format: Format) -> Format {
        match self.image.layer {
            Some(LayerFormat::Squashfs) if format.is_container_image() => Format::Squashfs,
            Some(LayerFormat::Erofs) if format.is_container_image() => Format::Erofs,
            _ => format,
        }
    }

    /// Gives files their attributes.
    ///
    /// # Errors
    /// A file does not exist.
    pub(super) fn add_attributes(&self, inventory: &mut Inventory<'_>) -> Result<()> {
        let roots = self.subvolumes.iter();
        let roots = roots.filter_map(|root| inventory.find(&root.path));
        let roots: HashSet<FileId> = roots.map(|entry| inventory.file(entry)).collect();
        for (path, attributes) in &self.attributes {
            let Some(entry) = inventory.find(path) else {
                let path = text::of_name(path);
                return Err(Error::refused(format!("{path} does not exist")));
            };
            let file = inventory.file(entry);
            inventory.add_attributes(file, *attributes);
            let inherited = FileAttributes(attributes.0 & FileAttributes::NO_COW);
            let mut open = if inherited.0 == 0 { vec![] } else { vec![file] };
            while let Some(dir) = open.pop() {
                for entry in inventory.entries(dir) {
                    let file = inventory.file(entry);
                    if roots.contains(&file) {
                        continue;
                    }
                    inventory.add_attributes(file, inherited);
                    if inventory.kind(file) == FileKind::Directory {
                        open.push(file);
                    }
                }
            }
        }
        Ok(())
    }
}
