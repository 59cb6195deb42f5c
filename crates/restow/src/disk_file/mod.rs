//! Disk files of virtual machines (qcow2, VMDK, VHDX, VHD), read in place as the disks in them.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

mod backing;
mod format;
mod layer;
mod qcow2;
mod tables;
mod vhd;
mod vhdx;
mod vmdk;

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use codec::Decoder;
use tree::{Cache, Corrupt, ReadAt, to_u64, to_usize};

use crate::error::{During, refuse};
use crate::{OpenOptions, Result, text};
use backing::BackingFile;
pub(crate) use format::DiskFormat;
pub use layer::DiskLayer;
use layer::{BlockMap, OpenedLayer, Run, RunPlace, damage};
use tables::{FILE_SHIFT, Tables};

/// Maximum number of files in a chain: far more than anybody makes, and an end for circles.
const CHAIN_MAX: usize = 64;

/// Pages of tables, and decoded blocks of at most 2 MiB, that are kept, for each of a few threads.
const PAGES: (usize, usize) = (8, 32);
const BLOCKS: (usize, usize) = (4, 2);

/// A disk, in one file or in a chain of files, of which each has the changes since the next.
///
/// Nothing is copied: each read goes through the tables of the files. Memory use is that of the
/// caches: 4 MiB of tables and 16 MiB of decoded blocks.
pub struct DiskFile {
    format: DiskFormat,
    layers: Vec<DiskLayer>,
    blocks: Cache<Vec<u8>>,
    decoders: Mutex<Vec<Decoder>>,
}

impl DiskFile {
    /// Opens the disk in a file with this format, and the files behind it: those of the options,
    /// and after them those that the files name.
    ///
    /// # Errors
    /// A file cannot be read, breaks its format, needs a feature that is not read, or names a file
    /// that is not followed.
    pub(crate) fn open(
        format: DiskFormat,
        file: &Arc<dyn ReadAt>,
        path: &Path,
        options: &OpenOptions,
    ) -> Result<DiskFile> {
        let pages = Arc::new(Cache::new(PAGES.0, PAGES.1));
        let mut disk = DiskFile {
            format,
            layers: Vec::new(),
            blocks: Cache::new(BLOCKS.0, BLOCKS.1),
            decoders: Mutex::default(),
        };
        let mut given = options.backing.iter();
        let mut snapshot = options.disk_snapshot.as_deref();
        if snapshot.is_some() && format != DiskFormat::Qcow2 {
            refuse!("--disk-snapshot does not apply: only snapshots of qcow2 are read");
        }
        let mut next = BackingFile {
            file: Arc::clone(file),
            path: path.to_owned(),
            format: Some(format),
        };
        loop {
            let name = || text::of_host_path(&next.path, "standard input");
            let number = disk.layers.len();
            if number >= CHAIN_MAX {
                refuse!("a chain of more than {CHAIN_MAX} backing files, or one in a circle");
            }
            let noun = next.format.map_or("a raw disk", DiskFormat::noun);
            let opened = open_layer(
                &next,
                Tables::new(&next.file, number, &pages)?,
                snapshot.take(),
            );
            let opened = opened.during(|| match number {
                0 => format!("read it as {noun}"),
                _ => format!("read its backing file {} as {noun}", name()),
            })?;
            disk.layers.push(opened.layer);
            next = match (opened.backing, given.next()) {
                (Some(backing), Some(path)) => backing.open_given(path)?,
                (Some(backing), None) => backing.open_named(&next.path)?,
                (None, Some(given)) => {
                    let given = text::of_host_path(given, "-");
                    refuse!(
                        "--backing {given} does not apply: {} has no backing file",
                        name()
                    )
                }
                (None, None) => return Ok(disk),
            };
        }
    }

    /// Its format, with an article.
    pub fn noun(&self) -> &'static str {
        self.format.noun()
    }

    /// The file, and the backing files behind it.
    pub fn layers(&self) -> &[DiskLayer] {
        &self.layers
    }

    /// The file that has the byte at this offset, the place there, and how many bytes follow.
    fn find(&self, at: u64) -> io::Result<(usize, Run)> {
        let mut len = u64::MAX;
        for (number, layer) in self.layers.iter().enumerate() {
            let Some(left) = layer.disk_bytes.checked_sub(at).filter(|&left| left > 0) else {
                break;
            };
            let run = layer
                .map
                .run(at)
                .map_err(|error| self.name(number, error))?;
            len = len.min(run.len).min(left);
            if !matches!(run.place, RunPlace::Behind) {
                return Ok((number, Run { len, ..run }));
            }
        }
        let place = RunPlace::Zeros;
        Ok((0, Run { place, len }))
    }

    /// Adds the name of a backing file to its error.
    fn name(&self, number: usize, error: io::Error) -> io::Error {
        let layer = self.layers.get(number).filter(|_| number > 0);
        let Some(layer) = layer else {
            return error;
        };
        let name = text::of_host_path(&layer.path, "-");
        io::Error::new(error.kind(), format!("backing file {name}: {error}"))
    }

    fn read_run(&self, number: usize, place: RunPlace, buf: &mut [u8]) -> io::Result<()> {
        let layer = self.layers.get(number).ok_or(io::ErrorKind::NotFound)?;
        match place {
            RunPlace::Zeros | RunPlace::Behind => buf.fill(0),
            RunPlace::Stored(at) => layer.file.read_exact_at(buf, at)?,
            RunPlace::Packed(packed, from) => {
                let key = to_u64(number) << FILE_SHIFT | packed.at;
                let block = self.blocks.find_or_make(key, |_| {
                    let locked = || self.decoders.lock().unwrap_or_else(PoisonError::into_inner);
                    let mut decoder = locked().pop().unwrap_or_default();
                    let block = layer.map.unpack(packed, &mut decoder);
                    locked().push(decoder);
                    block
                })?;
                let content = block
                    .get(to_usize(from)..)
                    .and_then(|rest| rest.get(..buf.len()));
                let what = "compressed block of a disk file is too short";
                buf.copy_from_slice(content.ok_or_else(|| {
                    damage(Corrupt {
                        what,
                        at: packed.at,
                        got: to_u64(block.len()),
                    })
                })?);
            }
        }
        Ok(())
    }
}

impl ReadAt for DiskFile {
    fn read_exact_at(&self, mut buf: &mut [u8], mut at: u64) -> io::Result<()> {
        let end = at.checked_add(to_u64(buf.len()));
        if end.is_none_or(|end| self.size().is_ok_and(|size| end > size)) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while !buf.is_empty() {
            let (number, run) = self.find(at)?;
            let len = to_usize(run.len).min(buf.len());
            let (part, rest) = buf.split_at_mut(len);
            let read = self.read_run(number, run.place, part);
            read.map_err(|error| self.name(number, error))?;
            buf = rest;
            at = at.saturating_add(run.len);
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.layers.first().map_or(0, |layer| layer.disk_bytes))
    }
}

fn open_layer(next: &BackingFile, tables: Tables, snapshot: Option<&OsStr>) -> Result<OpenedLayer> {
    let (file, path) = (&next.file, &next.path);
    match next.format {
        Some(DiskFormat::Qcow2) => qcow2::open(file, path, tables, snapshot),
        Some(DiskFormat::Vmdk) => vmdk::open(file, path, tables),
        Some(DiskFormat::Vhdx) => vhdx::open(file, path, tables),
        Some(DiskFormat::Vhd) => vhd::open(file, path, tables),
        None => {
            let bytes = file.size()?;
            let layer = DiskLayer {
                path: path.clone(),
                format: "raw".to_owned(),
                disk_bytes: bytes,
                block_bytes: 0,
                snapshots: 0,
                file: Arc::clone(file),
                map: Box::new(RawDisk(bytes)),
            };
            Ok(OpenedLayer {
                layer,
                backing: None,
            })
        }
    }
}

/// A raw disk with its size.
struct RawDisk(u64);

impl BlockMap for RawDisk {
    fn run(&self, at: u64) -> io::Result<Run> {
        Ok(Run {
            place: RunPlace::Stored(at),
            len: self.0.saturating_sub(at),
        })
    }
}
