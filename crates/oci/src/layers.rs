//! Layers: their bytes, checked and decompressed, and the tree that they make.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use codec::{Decompressed, Wrapper};
use tree::tar::{Tar, TarOptions};
use tree::{
    ByPath, Error, FileKind, FileSystem, Ino, Limits, ReadAt, Result, Seekable, SequentialReader,
    Sha256, StoreId, spool, to_u64, to_usize,
};

use crate::chunked::{ChunkedLayer, Table};
use crate::descriptor::{TablePlace, is_image};
use crate::layout::check_size;
use crate::{Digest, Image, ImageLayout, Layer};

/// Bytes that show the format of a layer: the superblock of EROFS is behind the first 1024.
const START_BYTES: u64 = 1024 + 4;

/// Maximum number of layers that are images of file systems, as in an overlay of Linux
/// (`OVL_MAX_STACK`): each takes memory of its own.
const IMAGES_MAX: usize = 500;

/// Layers that are open, so that images which share some read them once, and the trees of such
/// images know their common content (`Storage::store`).
pub struct KnownLayers {
    store: StoreId,
    layers: Mutex<HashMap<LayerKey, OpenLayer>>,
}

/// A layer with its number, of those that are known, and its format if it is no archive.
type OpenLayer = (u16, Arc<dyn ReadAt>, Option<LayerFormat>);

/// The digests that were checked: of the stored bytes, of the archive in them, and of the table of
/// contents.
type LayerKey = (Option<Digest>, Option<Digest>, Option<TablePlace>);

impl Default for KnownLayers {
    fn default() -> KnownLayers {
        KnownLayers {
            store: StoreId::new(),
            layers: Mutex::default(),
        }
    }
}

/// The layers of an image: archives, and on top of them images of file systems.
#[non_exhaustive]
pub struct LayerStack {
    /// The merged tree of the archives, unless the lowest layer is an image.
    pub archives: Option<Tar>,
    /// The images, the lowest first. They hide files of lower layers by the marks of overlayfs.
    pub images: Vec<LayerImage>,
}

/// A layer that is an image of a file system.
#[non_exhaustive]
pub struct LayerImage {
    /// Its format, by its content.
    pub format: LayerFormat,
    /// Its bytes.
    pub bytes: Arc<dyn ReadAt>,
    /// The path of its blob in the layout, for errors.
    pub path: Vec<u8>,
}

/// The format of an image of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerFormat {
    /// SquashFS.
    Squashfs,
    /// EROFS.
    Erofs,
}

impl LayerFormat {
    /// The format that the first bytes of a layer tell, if it is no archive.
    fn of_start(start: &[u8]) -> Option<LayerFormat> {
        if Tar::recognises(start) {
            return None;
        }
        if start.starts_with(b"hsqs") {
            return Some(LayerFormat::Squashfs);
        }
        let is_erofs = start.get(1024..) == Some(b"\xe2\xe1\xf5\xe0");
        is_erofs.then_some(LayerFormat::Erofs)
    }

    fn of(layer: &dyn ReadAt) -> io::Result<Option<LayerFormat>> {
        Ok(LayerFormat::of_start(&start_of(layer)?))
    }
}

/// The first bytes of a layer.
fn start_of(layer: &dyn ReadAt) -> io::Result<Vec<u8>> {
    let mut start = vec![0; to_usize(layer.size()?.min(START_BYTES))];
    layer.read_exact_at(&mut start, 0)?;
    Ok(start)
}

impl ImageLayout {
    /// The layers of an image; of those that are archives, the merged tree. The digest and the
    /// length of each layer are checked first; of a layer with a table of contents (zstd:chunked),
    /// that of the table, and those of its content when that is read. Other layers that are
    /// compressed, but for those of zstd with a seek table, are decompressed once, into one unnamed
    /// file in the directory `spool_dir`. Layers that are known, and were checked before, are not
    /// read again.
    ///
    /// # Errors
    /// A layer is missing, has another format, does not have its digest, is an archive on top of an
    /// image, or breaks the rules of [`Tar::open_layers`]. The error names its blob.
    pub fn open_layers(
        &self,
        image: &Image,
        known: Option<&KnownLayers>,
        spool_dir: &Path,
        limits: Limits,
        options: TarOptions,
    ) -> Result<LayerStack> {
        let of_layer = |layer: &Layer, error: Error| error.in_file("read", &layer.path);
        let own = KnownLayers::default();
        let shared = known.unwrap_or(&own);
        let mut layers = shared.layers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut added: Vec<(LayerKey, &Layer, Blob)> = Vec::new();
        let mut keys = Vec::new();
        for layer in &image.layers {
            let key = layer.key().map_err(|error| of_layer(layer, error))?;
            let blob = self.blob(layer).map_err(|error| of_layer(layer, error))?;
            if !layers.contains_key(&key) && !keys.contains(&key) {
                added.push((key, layer, blob));
            }
            keys.push(key);
        }
        let mut all_unpacked = Vec::new();
        let mut failed = None;
        let unpack = |out: &mut dyn Write| {
            let mut out = Summed::new(out, false);
            for (_, layer, blob) in &added {
                let unpacked = blob.check(layer, &mut out).map_err(|error| {
                    failed = Some(of_layer(layer, error));
                    io::ErrorKind::Other
                })?;
                all_unpacked.push(unpacked);
            }
            Ok(out.bytes)
        };
        let file = match (spool(unpack, spool_dir), failed) {
            // The disk is to blame, not the layer.
            (Err(error @ Error::File { .. }), _) => return Err(error),
            (_, Some(error)) => return Err(error),
            (spooled, None) => Arc::new(spooled?),
        };
        for ((key, layer, blob), unpacked) in added.into_iter().zip(all_unpacked) {
            let seen = match (&unpacked, &blob) {
                (Unpacked::Described(_), _) => Some(None),
                (_, Blob::Plain(_, format)) => Some(*format),
                _ => None,
            };
            let file = Arc::clone(&file);
            let archive: Arc<dyn ReadAt> = match (unpacked, blob) {
                (Unpacked::Spooled { at, len }, _) => Arc::new(SpooledLayer { file, at, len }),
                (Unpacked::Described(table), blob) => {
                    Arc::new(ChunkedLayer::new(blob.stored().0, file, table))
                }
                (Unpacked::InPlace, Blob::Seekable(_, seekable)) => Arc::new(seekable),
                (Unpacked::InPlace, blob) => blob.stored().0,
            };
            let number = u16::try_from(layers.len());
            let number = number.map_err(|_| Error::Limit("layers of container images"))?;
            let format = seen.map_or_else(|| LayerFormat::of(&*archive), Ok);
            let format = format.map_err(|error| of_layer(layer, error.into()))?;
            if format.is_none() && is_image(&layer.media_type) {
                let what = "layer does not have the file system that its media type says";
                return Err(of_layer(layer, Error::corrupt(what, 0, archive.size()?)));
            }
            layers.insert(key, (number, archive, format));
        }
        let (mut numbers, mut archives): (Vec<u16>, Vec<Box<dyn ReadAt>>) = Default::default();
        let mut images = Vec::new();
        for (key, layer) in keys.iter().zip(&image.layers) {
            let Some((number, bytes, format)) = layers.get(key) else {
                continue;
            };
            match format {
                Some(format) => images.push(LayerImage {
                    format: *format,
                    bytes: Arc::clone(bytes),
                    path: layer.path.clone(),
                }),
                None if !images.is_empty() => {
                    let what = "a tar archive on top of a layer that is a file system image";
                    return Err(of_layer(layer, Error::Unsupported(what)));
                }
                None => {
                    numbers.push(*number);
                    archives.push(Box::new(Arc::clone(bytes)));
                }
            }
        }
        if images.len() > IMAGES_MAX {
            return Err(Error::Limit("layers that are images of file systems"));
        }
        if archives.is_empty() && !images.is_empty() {
            let archives = None;
            return Ok(LayerStack { archives, images });
        }
        let tar = Tar::open_layers(archives, limits, options).map_err(|error| match &error {
            Error::Part { number, .. } => {
                let index = number
                    .checked_sub(1)
                    .and_then(|it| usize::try_from(it).ok());
                match index.and_then(|index| image.layers.get(index)) {
                    Some(layer) => of_layer(layer, error),
                    None => error,
                }
            }
            _ => error,
        })?;
        let tar = match known {
            Some(known) => tar.in_store(known.store, numbers),
            None => tar,
        };
        let archives = Some(tar);
        Ok(LayerStack { archives, images })
    }

    /// The stored bytes of a layer.
    pub(crate) fn blob(&self, layer: &Layer) -> Result<Blob> {
        let found = self.tree.find(&layer.path)?;
        if found.kind != FileKind::Regular {
            return Err(Error::InvalidInput("not a regular file"));
        }
        let size = self.tree.metadata(found.ino)?.size;
        check_size(size, Some(layer.stored_bytes))?;
        let bytes = Arc::new(TreeFile {
            tree: Arc::clone(&self.tree),
            ino: found.ino,
            size,
        });
        let start = start_of(&*bytes)?;
        let format = LayerFormat::of_start(&start);
        if format.is_none() && !layer.is_tar() && !is_image(&layer.media_type) {
            return Err(Error::Unsupported(
                "a layer that is neither a tar archive nor a SquashFS or EROFS image; `restow info` shows its media type",
            ));
        }
        if format.is_some() || Tar::recognises(&start) {
            return Ok(Blob::Plain(bytes, format));
        }
        Ok(match Wrapper::of(&start) {
            None => Blob::Plain(bytes, None),
            Some(Wrapper::Zstd) if layer.digest.is_some() => {
                if let Some(place) = layer.table {
                    return Ok(Blob::Chunked(bytes, place));
                }
                match Seekable::open(Arc::clone(&bytes)) {
                    Ok(Some(seekable)) => Blob::Seekable(bytes, seekable),
                    // A table that does not fit is not needed, either.
                    Ok(None) | Err(Error::Corrupt(_)) => Blob::Packed(bytes, Wrapper::Zstd),
                    Err(error) => return Err(error),
                }
            }
            Some(wrapper) => Blob::Packed(bytes, wrapper),
        })
    }
}

impl Layer {
    fn key(&self) -> Result<LayerKey> {
        if self.digest.or(self.diff_id).is_none() {
            return Err(Error::corrupt("layer of an image has no digest", 0, 0));
        }
        Ok((self.digest, self.diff_id, self.table))
    }

    /// Checks the digests of the stored bytes and of the archive in them, as far as both are known.
    pub(crate) fn check(&self, stored: Option<Sha256>, archive: Option<Sha256>) -> Result<()> {
        if let (Some(digest), Some(sum)) = (self.digest, stored) {
            digest.check(sum)?;
        }
        match (self.diff_id, archive) {
            (Some(digest), Some(sum)) => digest.check_archive(sum),
            _ => Ok(()),
        }
    }
}

/// The bytes of a layer as they are stored.
pub(crate) enum Blob {
    /// Not compressed as a whole.
    Plain(Arc<TreeFile>, Option<LayerFormat>),
    /// With a table of contents.
    Chunked(Arc<TreeFile>, TablePlace),
    /// Compressed so that it can be read in place.
    Seekable(Arc<TreeFile>, Seekable<Arc<TreeFile>>),
    /// Compressed as a whole.
    Packed(Arc<TreeFile>, Wrapper),
}

/// Where the archive of a layer is.
enum Unpacked {
    /// In the stored bytes.
    InPlace,
    /// In a part of the unnamed file.
    Spooled { at: u64, len: u64 },
    /// In parts of the stored bytes.
    Described(Table),
}

impl Blob {
    /// The stored bytes, and how they are compressed as a whole.
    pub(crate) fn stored(self) -> (Arc<TreeFile>, Option<Wrapper>) {
        match self {
            Blob::Plain(stored, _) => (stored, None),
            Blob::Chunked(stored, _) | Blob::Seekable(stored, _) => (stored, Some(Wrapper::Zstd)),
            Blob::Packed(stored, wrapper) => (stored, Some(wrapper)),
        }
    }

    /// Checks the digests of the layer, and decompresses it into the unnamed file if it is
    /// compressed as a whole.
    fn check(&self, layer: &Layer, out: &mut Summed<&mut dyn Write>) -> Result<Unpacked> {
        let (stored, wrapper) = match self {
            Blob::Packed(stored, wrapper) => (stored, *wrapper),
            Blob::Plain(stored, _) => {
                let sum = sum_of(stored)?;
                layer.check(Some(sum.clone()), Some(sum))?;
                return Ok(Unpacked::InPlace);
            }
            Blob::Seekable(stored, _) => {
                layer.check(Some(sum_of(stored)?), None)?;
                return Ok(Unpacked::InPlace);
            }
            Blob::Chunked(stored, place) => {
                let at = out.bytes;
                match Table::read(&**stored, *place, out, at)? {
                    Some(table) => return Ok(Unpacked::Described(table)),
                    None => (stored, Wrapper::Zstd),
                }
            }
        };
        let at = out.bytes;
        let stored = SequentialReader::new(Arc::clone(stored));
        let mut input = Summed::new(stored, layer.digest.is_some());
        let mut output = Summed::new(out, layer.diff_id.is_some());
        let unpacked = wrapper.decompress(&mut input, &mut output)?;
        input.drain()?;
        refuse_garbage(unpacked)?;
        layer.check(Some(input.sum), Some(output.sum))?;
        let len = unpacked.bytes;
        Ok(Unpacked::Spooled { at, len })
    }
}

/// The digest of stored bytes.
fn sum_of(stored: &Arc<TreeFile>) -> io::Result<Sha256> {
    let mut input = Summed::new(SequentialReader::new(Arc::clone(stored)), true);
    input.drain()?;
    Ok(input.sum)
}

/// Copies the stored bytes of a layer.
///
/// # Errors
/// The layer is missing or has another length, or `out` fails.
pub(crate) fn copy_stored(layout: &ImageLayout, layer: &Layer, out: &mut dyn Write) -> Result<()> {
    let stored = layout.blob(layer)?.stored().0;
    io::copy(&mut SequentialReader::new(stored), out)?;
    Ok(())
}

/// Refuses bytes behind the compressed content of a layer.
pub(crate) fn refuse_garbage(unpacked: Decompressed) -> Result<()> {
    if unpacked.has_garbage {
        let what = "bytes follow the compressed content of a layer";
        return Err(Error::corrupt(what, 0, unpacked.bytes));
    }
    Ok(())
}

/// Bytes on their way, with the digest of those that came by.
pub(crate) struct Summed<T> {
    inner: T,
    bytes: u64,
    pub(crate) sum: Sha256,
    is_summed: bool,
}

impl<T> Summed<T> {
    pub(crate) fn new(inner: T, is_summed: bool) -> Summed<T> {
        Summed {
            inner,
            bytes: 0,
            sum: Sha256::new(),
            is_summed,
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(to_u64(bytes.len()));
        if self.is_summed {
            self.sum.update(bytes);
        }
    }
}

impl<T: Read> Summed<T> {
    pub(crate) fn drain(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 17];
        while self.read(&mut buffer)? > 0 {}
        Ok(())
    }
}

impl<T: Read> Read for Summed<T> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(buf)?;
        self.add(buf.get(..len).unwrap_or_default());
        Ok(len)
    }
}

impl<T: Write> Write for Summed<T> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let len = self.inner.write(buf)?;
        self.add(buf.get(..len).unwrap_or_default());
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// A file of the layout.
pub(crate) struct TreeFile {
    tree: Arc<dyn FileSystem>,
    ino: Ino,
    size: u64,
}

impl ReadAt for TreeFile {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        match self.tree.read_at(self.ino, at, buf) {
            Ok(len) if len == buf.len() => Ok(()),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(Error::Io(error)) => Err(error),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }
}

/// A decompressed layer, a part of an unnamed file.
struct SpooledLayer {
    file: Arc<File>,
    at: u64,
    len: u64,
}

impl ReadAt for SpooledLayer {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let end = at.checked_add(to_u64(buf.len()));
        let at = self.at.checked_add(at);
        match (at, end) {
            (Some(at), Some(end)) if end <= self.len => self.file.read_exact_at(buf, at),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len)
    }
}
