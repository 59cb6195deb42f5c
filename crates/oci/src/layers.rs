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
    Sha256, StoreId, spool, to_u64,
};

use crate::layout::check_size;
use crate::{Digest, Image, ImageLayout, Layer};

/// Bytes that show whether a layer is compressed: a header of a tar archive.
const START_BYTES: u64 = 512;

/// Layers that are open, so that images which share some read them once, and the trees of such
/// images know their common content (`Storage::store`).
pub struct KnownLayers {
    store: StoreId,
    layers: Mutex<HashMap<LayerKey, OpenLayer>>,
}

/// A layer with its number, of those that are known.
type OpenLayer = (u16, Arc<dyn ReadAt>);

/// A digest that was checked: of the stored bytes, or of the archive in them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum LayerKey {
    Stored(Digest),
    Archive(Digest),
}

impl Default for KnownLayers {
    fn default() -> KnownLayers {
        KnownLayers {
            store: StoreId::new(),
            layers: Mutex::default(),
        }
    }
}

impl ImageLayout {
    /// The merged tree of the layers of an image. The digest and the length of each layer are
    /// checked first. Layers that are compressed, but for those of zstd with a seek table, are
    /// decompressed once, into one unnamed file in the directory `spool_dir`. Layers that are
    /// known, and were checked before, are not read again.
    ///
    /// # Errors
    /// A layer is missing, is not a tar archive, does not have its digest, or breaks the rules of
    /// [`Tar::open_layers`]. The error names its blob.
    pub fn open_tree(
        &self,
        image: &Image,
        known: Option<&KnownLayers>,
        spool_dir: &Path,
        limits: Limits,
        options: TarOptions,
    ) -> Result<Tar> {
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
        let mut ranges = Vec::new();
        let mut failed = None;
        let unpack = |out: &mut dyn Write| {
            let mut end = 0u64;
            for (_, layer, blob) in &added {
                let len = blob.check(layer, out).map_err(|error| {
                    failed = Some(of_layer(layer, error));
                    io::ErrorKind::Other
                })?;
                ranges.push(len.map(|len| (end, len)));
                end = end.saturating_add(len.unwrap_or(0));
            }
            Ok(end)
        };
        let file = match (spool(unpack, spool_dir), failed) {
            // The disk is to blame, not the layer.
            (Err(error @ Error::File { .. }), _) => return Err(error),
            (_, Some(error)) => return Err(error),
            (spooled, None) => Arc::new(spooled?),
        };
        for ((key, _, blob), range) in added.into_iter().zip(ranges) {
            let archive: Arc<dyn ReadAt> = match (range, blob) {
                (Some((at, len)), _) => Arc::new(SpooledLayer {
                    file: Arc::clone(&file),
                    at,
                    len,
                }),
                (None, Blob::Seekable(_, seekable)) => Arc::new(seekable),
                (None, Blob::Plain(bytes) | Blob::Packed(bytes, _)) => bytes,
            };
            let number = u16::try_from(layers.len());
            let number = number.map_err(|_| Error::Limit("layers of container images"))?;
            layers.insert(key, (number, archive));
        }
        let (mut numbers, mut archives): (Vec<u16>, Vec<Box<dyn ReadAt>>) = Default::default();
        for (number, archive) in keys.iter().filter_map(|key| layers.get(key)) {
            numbers.push(*number);
            archives.push(Box::new(Arc::clone(archive)));
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
        Ok(match known {
            Some(known) => tar.in_store(known.store, numbers),
            None => tar,
        })
    }

    /// The stored bytes of a layer.
    pub(crate) fn blob(&self, layer: &Layer) -> Result<Blob> {
        if !layer.is_tar() {
            return Err(Error::Unsupported(
                "a layer that is no tar archive; `restow info` shows its media type",
            ));
        }
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
        let mut start = Vec::new();
        (SequentialReader::new(Arc::clone(&bytes)).take(START_BYTES)).read_to_end(&mut start)?;
        if Tar::recognises(&start) {
            return Ok(Blob::Plain(bytes));
        }
        Ok(match Wrapper::of(&start) {
            None => Blob::Plain(bytes),
            Some(Wrapper::Zstd) if layer.digest.is_some() => {
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
        let what = "layer of an image has no digest";
        match (self.digest, self.diff_id) {
            (Some(digest), _) => Ok(LayerKey::Stored(digest)),
            (None, Some(digest)) => Ok(LayerKey::Archive(digest)),
            (None, None) => Err(Error::corrupt(what, 0, 0)),
        }
    }
}

/// The bytes of a layer as they are stored.
pub(crate) enum Blob {
    Plain(Arc<TreeFile>),
    /// Compressed so that it can be read in place.
    Seekable(Arc<TreeFile>, Seekable<Arc<TreeFile>>),
    /// Compressed as a whole.
    Packed(Arc<TreeFile>, Wrapper),
}

impl Blob {
    /// The stored bytes, and how they are compressed as a whole.
    pub(crate) fn stored(self) -> (Arc<TreeFile>, Option<Wrapper>) {
        match self {
            Blob::Plain(stored) => (stored, None),
            Blob::Seekable(stored, _) => (stored, Some(Wrapper::Zstd)),
            Blob::Packed(stored, wrapper) => (stored, Some(wrapper)),
        }
    }

    /// Checks the digest of the layer, and decompresses it if it is compressed as a whole. Returns
    /// the written length.
    fn check(&self, layer: &Layer, out: &mut dyn Write) -> Result<Option<u64>> {
        let (Blob::Plain(stored) | Blob::Seekable(stored, _) | Blob::Packed(stored, _)) = self;
        let mut input = Summed::new(SequentialReader::new(Arc::clone(stored)));
        let Blob::Packed(_, wrapper) = self else {
            input.drain()?;
            // Plain layers have the same digest before and after.
            let (LayerKey::Stored(digest) | LayerKey::Archive(digest)) = layer.key()?;
            return digest.check(input.sum).map(|()| None);
        };
        let mut output = Summed::new(out);
        output.counts_only = layer.digest.is_some();
        let unpacked = wrapper.decompress(&mut input, &mut output)?;
        input.drain()?;
        refuse_garbage(unpacked)?;
        match layer.key()? {
            LayerKey::Stored(digest) => digest.check(input.sum)?,
            LayerKey::Archive(digest) => digest.check(output.sum)?,
        }
        Ok(Some(unpacked.bytes))
    }
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
    pub(crate) sum: Sha256,
    counts_only: bool,
}

impl<T> Summed<T> {
    pub(crate) fn new(inner: T) -> Summed<T> {
        Summed {
            inner,
            sum: Sha256::new(),
            counts_only: false,
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
        self.sum.update(buf.get(..len).unwrap_or_default());
        Ok(len)
    }
}

impl<T: Write> Write for Summed<T> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let len = self.inner.write(buf)?;
        if !self.counts_only {
            self.sum.update(buf.get(..len).unwrap_or_default());
        }
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
