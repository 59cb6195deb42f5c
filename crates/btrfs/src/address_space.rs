//! The devices as one address space: reads by logical address, trying every copy.

use tree::{Corrupt, Error, ReadAt, Result};

use crate::chunk::{Chunk, ChunkMap, Profile};
use crate::key::{Logical, Physical};
use crate::superblock::{Device, Superblock};

/// Maximum number of devices in a file system.
const DEVICES_MAX: usize = 1024;

/// The devices of a file system, and the chunks that map addresses to them.
pub(crate) struct AddressSpace {
    /// In ascending order of ID.
    devices: Vec<OpenDevice>,
    pub(crate) chunks: ChunkMap,
}

/// A device that is present.
pub(crate) struct OpenDevice {
    pub(crate) source: Box<dyn ReadAt>,
    pub(crate) device: Device,
}

const MISSING: Error = Error::InvalidInput(
    "a device of the file system is missing or older than the others; name the images of all its devices",
);

impl AddressSpace {
    /// Reads the superblocks and returns the newest. At first, only the chunks listed in it are known.
    pub(crate) fn open(sources: Vec<Box<dyn ReadAt>>) -> Result<(AddressSpace, Superblock)> {
        if sources.is_empty() || sources.len() > DEVICES_MAX {
            return Err(Error::InvalidInput(
                "a btrfs file system has 1 to 1024 devices",
            ));
        }
        let mut found = Vec::new();
        for source in sources {
            let superblock = Superblock::read(&*source)?;
            found.push((superblock, source));
        }
        let newest = found
            .iter()
            .map(|(superblock, _)| superblock.generation)
            .max();
        let newest = found
            .iter()
            .find(|(superblock, _)| Some(superblock.generation) == newest);
        let superblock = newest.expect("there is at least one").0.clone();
        let mut devices: Vec<OpenDevice> = Vec::new();
        for (own, source) in found {
            if own.fsid != superblock.fsid {
                return Err(Error::InvalidInput(
                    "the images are of different file systems",
                ));
            }
            if devices.iter().any(|other| other.device.id == own.device.id) {
                return Err(Error::InvalidInput("two images are of the same device"));
            }
            // A device that missed a commit holds stale bytes, and not all of them have a checksum.
            if own.generation == superblock.generation {
                let device = own.device;
                devices.push(OpenDevice { source, device });
            }
        }
        devices.sort_by_key(|open| open.device.id);
        let mut chunks = ChunkMap::default();
        for chunk in &superblock.system_chunks {
            chunks.add(chunk.clone(), 0)?;
        }
        Ok((AddressSpace { devices, chunks }, superblock))
    }

    /// The devices that are present.
    pub(crate) fn devices(&self) -> &[OpenDevice] {
        &self.devices
    }

    /// The chunk that contains all these bytes.
    pub(crate) fn chunk(&self, logical: Logical, len: u64) -> Result<&Chunk> {
        let corrupt = |what| {
            Error::Corrupt(Corrupt {
                what,
                at: logical.0,
                got: len,
            })
        };
        let chunk = self.chunks.find(logical);
        let chunk = chunk.ok_or_else(|| corrupt("address lies in no chunk"))?;
        if len > chunk.end().0 - logical.0 {
            return Err(corrupt("bytes reach behind the end of their chunk"));
        }
        Ok(chunk)
    }

    /// The number of ways to read from a chunk: its copies, and reconstruction from parity.
    pub(crate) fn copies(chunk: &Chunk) -> usize {
        match chunk.profile {
            Profile::Raid5 | Profile::Raid6 => 2,
            _ => chunk.copies(),
        }
    }

    /// Reads one copy of bytes in `chunk`.
    pub(crate) fn read_copy(
        &self,
        chunk: &Chunk,
        logical: Logical,
        buf: &mut [u8],
        copy: usize,
    ) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = Logical(logical.0 + done as u64);
            let left = &mut buf[done..];
            let place = chunk.place(at, left.len() as u64, copy.min(chunk.copies() - 1));
            let part = &mut left[..place.len as usize];
            if copy < chunk.copies() {
                self.read_device(place.device, place.at, part)?;
            } else {
                self.rebuild(chunk, at, part)?;
            }
            done += place.len as usize;
        }
        Ok(())
    }

    /// Reads bytes from the first copy that `verify` accepts.
    ///
    /// # Errors
    /// If every copy fails, the error of the first one whose device is present, or else of the first one.
    pub(crate) fn read_verified<T>(
        &self,
        logical: Logical,
        buf: &mut [u8],
        mut verify: impl FnMut(&[u8]) -> Result<T>,
    ) -> Result<T> {
        let chunk = self.chunk(logical, buf.len() as u64)?;
        let mut first: Option<Error> = None;
        for copy in 0..AddressSpace::copies(chunk) {
            let read = self.read_copy(chunk, logical, buf, copy);
            match read.and_then(|()| verify(buf)) {
                Ok(value) => return Ok(value),
                Err(error) => match first {
                    None | Some(Error::InvalidInput(_)) => first = Some(error),
                    Some(_) => {}
                },
            }
        }
        Err(first.expect("a chunk has at least one copy"))
    }

    /// Reconstructs bytes of one stripe of a RAID5 or RAID6 chunk from the other stripes and the first parity.
    fn rebuild(&self, chunk: &Chunk, logical: Logical, buf: &mut [u8]) -> Result<()> {
        let place = chunk.place(logical, buf.len() as u64, 0);
        let second_parity = chunk.second_parity(logical);
        buf.fill(0);
        let mut other = vec![0; buf.len()];
        let lost = chunk
            .stripes
            .iter()
            .position(|stripe| stripe.device == place.device);
        let lost = lost.expect("the place is on one of the chunk's devices");
        let offset = place.at.0 - chunk.stripes[lost].at.0;
        for (index, stripe) in chunk.stripes.iter().enumerate() {
            if index != lost && Some(index) != second_parity {
                self.read_device(stripe.device, Physical(stripe.at.0 + offset), &mut other)?;
                for (byte, other) in buf.iter_mut().zip(&other) {
                    *byte ^= other;
                }
            }
        }
        Ok(())
    }

    fn read_device(&self, id: u64, at: Physical, buf: &mut [u8]) -> Result<()> {
        let index = self
            .devices
            .binary_search_by_key(&id, |open| open.device.id);
        let open = &self.devices[index.map_err(|_| MISSING)?];
        open.source
            .read_exact_at(buf, at.0)
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::UnexpectedEof => Error::Corrupt(Corrupt {
                    what: "device ends before what it holds",
                    at: at.0,
                    got: buf.len() as u64,
                }),
                _ => error.into(),
            })
    }
}
