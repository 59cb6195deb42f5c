//! Layouts: the files that say which images there are, and of which layers they consist.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tree::json::Json;
use tree::{ByPath, Error, FileKind, FileSystem, Result, Sha256, to_u64, to_usize};

use crate::descriptor::{Descriptor, Digest, TablePlace, is_tar};
use crate::platform::Platform;

/// Maximum size of an index, manifest or configuration: registries accept 4 MiB.
const JSON_BYTES_MAX: u64 = 4 << 20;

/// Maximum size of all that are read, so that small indexes that name each other many times end.
/// Each counts as at least [`JSON_BYTES_MIN`].
const JSON_BYTES_ALL_MAX: u64 = 64 << 20;
const JSON_BYTES_MIN: u64 = 4 << 10;

/// Maximum depth of indexes in indexes. Images for several platforms need two.
const INDEX_DEPTH_MAX: u32 = 4;

/// Annotations with the name of an image: of the specification, and of containerd and Docker.
pub(crate) const NAME_ANNOTATIONS: [&str; 2] = [
    "org.opencontainers.image.ref.name",
    "io.containerd.image.name",
];

/// How images are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutKind {
    /// `index.json`, and blobs that are named by their digests (image-spec, image-layout.md).
    Oci,
    /// `manifest.json` of `docker save`.
    Docker,
}

/// A directory or archive that holds container images.
pub struct ImageLayout {
    pub(crate) tree: Arc<dyn FileSystem>,
    kind: LayoutKind,
    images: Vec<ListedImage>,
    /// Bytes of JSON that were read.
    read_bytes: AtomicU64,
}

/// An image of a layout, as its index names it.
#[derive(Clone, Debug)]
pub struct ListedImage {
    /// Its names.
    pub names: Vec<String>,
    /// Its platform, if it is known.
    pub platform: Option<Platform>,
    manifest: ManifestPlace,
}

/// Where the manifest of an image is.
#[derive(Clone, Debug)]
enum ManifestPlace {
    Blob(Descriptor),
    /// An item of `manifest.json`.
    Docker(Json),
}

/// An image: its configuration and its layers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Image {
    /// The digest of the manifest; `None` in a docker archive, where it is a part of a file.
    pub digest: Option<Digest>,
    /// The configuration (image-spec, config.md).
    pub config: Json,
    /// The layers, the lowest first.
    pub layers: Vec<Layer>,
}

/// A layer of an image.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Layer {
    /// The digest of the stored bytes, if the manifest has it.
    pub digest: Option<Digest>,
    /// The digest of the archive before compression, if the configuration has it.
    pub diff_id: Option<Digest>,
    /// The length of the stored bytes.
    pub stored_bytes: u64,
    /// The media type; empty in a docker archive.
    pub media_type: String,
    /// Where the layout has it.
    pub(crate) path: Vec<u8>,
    /// Where its table of contents is.
    pub(crate) table: Option<TablePlace>,
    /// The annotations of its descriptor.
    pub(crate) annotations: Option<Json>,
}

impl ImageLayout {
    /// The kind of layout that a tree is; `None` for another tree.
    pub fn kind_of(tree: &dyn FileSystem) -> Option<LayoutKind> {
        let is_file = |path: &str| {
            tree.find(path)
                .is_ok_and(|found| found.kind == FileKind::Regular)
        };
        let is_oci = is_file("oci-layout") && is_file("index.json");
        // The first `docker save` of version 25 lists an image without a name in manifest.json
        // alone, beside an index of none.
        if is_oci && !(is_file("manifest.json") && lists_none(tree)) {
            return Some(LayoutKind::Oci);
        }
        // The name is not unusual, so the content decides.
        let is_image =
            |item: &Json| item.text("Config").is_some() && item.field("Layers").is_some();
        match read_json(tree, b"manifest.json", None) {
            Ok((Json::List(items), _)) if !items.is_empty() && items.iter().all(is_image) => {
                Some(LayoutKind::Docker)
            }
            _ => is_oci.then_some(LayoutKind::Oci),
        }
    }

    /// Lists the images of a directory or archive.
    ///
    /// # Errors
    /// It is no layout, or its index cannot be read.
    pub fn open(tree: Arc<dyn FileSystem>, kind: LayoutKind) -> Result<ImageLayout> {
        let mut layout = ImageLayout {
            tree,
            kind,
            images: Vec::new(),
            read_bytes: AtomicU64::new(0),
        };
        match kind {
            LayoutKind::Oci => {
                let path = b"oci-layout";
                let version = layout.json(path, None)?;
                if !version
                    .text("imageLayoutVersion")
                    .is_some_and(|it| it.starts_with("1."))
                {
                    let what = Error::Unsupported("this version of image layouts");
                    return Err(what.in_file("read", path));
                }
                let index = layout.json(b"index.json", None)?;
                layout.list_index(&index, b"index.json", &[], INDEX_DEPTH_MAX)?;
            }
            LayoutKind::Docker => {
                let path = b"manifest.json";
                let Json::List(items) = layout.json(path, None)? else {
                    let error = Error::corrupt("manifest.json of an archive is no list", 0, 0);
                    return Err(error.in_file("read", path));
                };
                for item in items {
                    let config = docker_config(&item)?;
                    let image = ListedImage {
                        names: item.texts("RepoTags"),
                        platform: Platform::of_json(&layout.json(&config, None)?),
                        manifest: ManifestPlace::Docker(item),
                    };
                    layout.images.push(image);
                }
            }
        }
        Ok(layout)
    }

    /// The kind of layout.
    pub fn kind(&self) -> LayoutKind {
        self.kind
    }

    /// The images, in the order of the index.
    pub fn images(&self) -> &[ListedImage] {
        &self.images
    }

    fn list_index(
        &mut self,
        index: &Json,
        path: &[u8],
        names: &[String],
        depth: u32,
    ) -> Result<()> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(Error::Limit("depth of indexes in a layout"));
        };
        for item in manifests(index).map_err(|it| it.in_file("read", path))? {
            let descriptor = Descriptor::of_json(item).map_err(|it| it.in_file("read", path))?;
            let mut names = names.to_vec();
            if let Some(annotations) = item.field("annotations") {
                let own = NAME_ANNOTATIONS
                    .iter()
                    .filter_map(|it| annotations.text(it));
                names.extend(own.map(str::to_owned));
            }
            names.dedup();
            if descriptor.is_index() {
                let path = descriptor.digest.path().into_bytes();
                let index = self.json(&path, Some(&descriptor))?;
                self.list_index(&index, &path, &names, depth)?;
                continue;
            }
            let platform = item.field("platform").and_then(Platform::of_json);
            let mut image = ListedImage {
                names,
                platform,
                manifest: ManifestPlace::Blob(descriptor),
            };
            // A layout may lack the images of other platforms, but then says which they are.
            if image.platform.is_none()
                && let Ok(read) = self.image(&image)
            {
                image.platform = Platform::of_json(&read.config);
            }
            self.images.push(image);
        }
        Ok(())
    }

    /// Reads the manifest and the configuration of an image. Their digests are checked.
    ///
    /// # Errors
    /// One is missing or wrong.
    pub fn image(&self, listed: &ListedImage) -> Result<Image> {
        match &listed.manifest {
            ManifestPlace::Blob(descriptor) => self.oci_image(descriptor),
            ManifestPlace::Docker(item) => self.docker_image(item),
        }
    }

    fn oci_image(&self, descriptor: &Descriptor) -> Result<Image> {
        let path = descriptor.digest.path().into_bytes();
        let manifest = self.json(&path, Some(descriptor))?;
        let read = || -> Result<(Descriptor, Vec<Descriptor>)> {
            // Docker's first version has other fields.
            let Some(config) = manifest.field("config") else {
                return Err(Error::Unsupported(
                    "an image manifest without a configuration",
                ));
            };
            let layers = manifest.list("layers").iter().map(Descriptor::of_json);
            Ok((Descriptor::of_json(config)?, layers.collect::<Result<_>>()?))
        };
        let (config, layers) = read().map_err(|error| error.in_file("read", &path))?;
        let config = self.json(config.digest.path().as_bytes(), Some(&config))?;
        let diff_ids = diff_ids(&config, layers.len())?;
        let layers = layers
            .into_iter()
            .zip(diff_ids)
            .map(|(layer, diff_id)| Layer {
                digest: Some(layer.digest),
                diff_id,
                stored_bytes: layer.size,
                media_type: layer.media_type,
                path: layer.digest.path().into_bytes(),
                table: (layer.annotations.as_ref()).and_then(TablePlace::of_annotations),
                annotations: layer.annotations,
            });
        Ok(Image {
            digest: Some(descriptor.digest),
            config,
            layers: layers.collect(),
        })
    }

    fn docker_image(&self, item: &Json) -> Result<Image> {
        let config = self.json(&docker_config(item)?, None)?;
        let paths = item.texts("Layers");
        let mut layers = Vec::new();
        for (path, diff_id) in paths.iter().zip(diff_ids(&config, paths.len())?) {
            let path = path.as_bytes();
            let of_layer = |error: Error| error.in_file("read", path);
            let found = self.tree.find(path).map_err(of_layer)?;
            layers.push(Layer {
                digest: None,
                diff_id,
                stored_bytes: self.tree.metadata(found.ino)?.size,
                media_type: String::new(),
                path: path.to_vec(),
                table: None,
                annotations: None,
            });
        }
        Ok(Image {
            digest: None,
            config,
            layers,
        })
    }

    fn json(&self, path: &[u8], descriptor: Option<&Descriptor>) -> Result<Json> {
        let read = || {
            let (json, size) = read_json(&*self.tree, path, descriptor)?;
            let size = size.max(JSON_BYTES_MIN);
            if self.read_bytes.fetch_add(size, Ordering::Relaxed) > JSON_BYTES_ALL_MAX {
                return Err(Error::Limit("size of all manifests of a layout"));
            }
            Ok(json)
        };
        read().map_err(|error| error.in_file("read", path))
    }
}

impl Layer {
    /// Whether the layer is of the type of a tar archive.
    pub fn is_tar(&self) -> bool {
        self.media_type.is_empty() || is_tar(&self.media_type)
    }
}

/// Whether the index of a layout has no items, or `null` in their place.
fn lists_none(tree: &dyn FileSystem) -> bool {
    let Ok((index, _)) = read_json(tree, b"index.json", None) else {
        return false;
    };
    match index.field("manifests") {
        Some(Json::List(items)) => items.is_empty(),
        Some(Json::Other(word)) => **word == *"null",
        _ => false,
    }
}

/// The items of an index.
pub(crate) fn manifests(index: &Json) -> Result<&[Json]> {
    match index.field("manifests") {
        Some(Json::List(items)) => Ok(items),
        _ => Err(Error::corrupt(
            "index of images has no list of manifests",
            0,
            0,
        )),
    }
}

fn docker_config(item: &Json) -> Result<Vec<u8>> {
    let config = item.text("Config").map(|path| path.as_bytes().to_vec());
    let what = "image in an archive has no configuration";
    config.ok_or(Error::corrupt(what, 0, 0).in_file("read", b"manifest.json"))
}

/// The digests of the layers in a configuration; none if it has none, as those of other artifacts.
fn diff_ids(config: &Json, count: usize) -> Result<Vec<Option<Digest>>> {
    let ids = config
        .field("rootfs")
        .map(|rootfs| rootfs.texts("diff_ids"));
    let ids = ids.unwrap_or_default();
    if ids.is_empty() {
        return Ok(vec![None; count]);
    }
    if ids.len() != count {
        let what = "configuration of an image has another number of layers than its manifest";
        return Err(Error::corrupt(what, to_u64(count), to_u64(ids.len())));
    }
    ids.iter().map(|id| Digest::parse(id).map(Some)).collect()
}

/// Reads a file of JSON, and checks its length and digest if they are known. Returns its length,
/// too.
pub(crate) fn read_json(
    tree: &dyn FileSystem,
    path: &[u8],
    descriptor: Option<&Descriptor>,
) -> Result<(Json, u64)> {
    let found = tree.find(path)?;
    if found.kind != FileKind::Regular {
        return Err(Error::InvalidInput("not a regular file"));
    }
    let size = tree.metadata(found.ino)?.size;
    check_size(size, descriptor.map(|it| it.size))?;
    if size > JSON_BYTES_MAX {
        return Err(Error::Limit("size of a manifest or configuration"));
    }
    let mut bytes = vec![0; to_usize(size)];
    if tree.read_at(found.ino, 0, &mut bytes)? != bytes.len() {
        return Err(Error::Changed);
    }
    if let Some(descriptor) = descriptor {
        let mut sum = Sha256::new();
        sum.update(&bytes);
        descriptor.digest.check(sum)?;
    }
    let what = "manifest or configuration is no valid JSON";
    let json = Json::parse(&bytes).ok_or(Error::corrupt(what, 0, size))?;
    Ok((json, size))
}

/// Checks the length of a blob.
pub(crate) fn check_size(size: u64, expected: Option<u64>) -> Result<()> {
    match expected {
        Some(expected) if expected != size => {
            let what = "blob does not have the length in its descriptor";
            Err(Error::corrupt(what, expected, size))
        }
        _ => Ok(()),
    }
}
