//! btrfs send streams with compressed data.

use std::collections::HashSet;
use std::io::{self, Write};

use codec::{Algorithm, Decoder, Encoder, Settings};
use sendstream::{SendData, SendOptions, StreamWriter, Version, send};
use tree::{Error, FileId, FileKind, Inventory, NoProgress, Parallel, Result, Sha256};

use crate::candidate::Candidate;
use crate::cut::{Clock, Cut, Trial, TrialWork, Tried, timed};
use crate::population::{Kinds, Unit};

/// The most data of a command of version 2, and of an extent.
const PIECE_BYTES: u64 = 128 << 10;
const SECTOR_BYTES: usize = 4096;
/// What is encoded to at most this is inline at the receiver.
const INLINE_BYTES_MAX: usize = 2048;
/// How much longer the attributes of an encoded write are than those of a plain one: four numbers
/// of eight bytes less the offset, and two of four, each with a type and a length. Inline data has
/// one of the latter less.
const ENCODED_BYTES: usize = 52;
const INLINE_ENCODED_BYTES: usize = 44;

/// The tree as a send stream.
pub(crate) struct CutStream<'a> {
    inventory: &'a Inventory<'a>,
    pieces: Vec<(FileId, u64)>,
    units: Vec<Unit>,
    /// The size of a stream with plain data.
    pub(crate) plain_bytes: u64,
    /// How long it takes to write such a stream and hash it, in seconds.
    pub(crate) seconds: f64,
}

impl<'a> CutStream<'a> {
    /// Writes a stream with plain data, throws it away, and cuts the content as the encoder of a
    /// stream does.
    pub(crate) fn new(inventory: &'a Inventory<'a>, clock: Clock<'_>) -> Result<CutStream<'a>> {
        let (plain, seconds) = timed(clock, || plain_bytes(inventory));
        let mut stream = CutStream {
            inventory,
            pieces: Vec::new(),
            units: Vec::new(),
            plain_bytes: plain?,
            seconds,
        };
        let kinds = Kinds::of(inventory);
        let mut seen = HashSet::new();
        for file in inventory.files() {
            if inventory.kind(file) == FileKind::Regular {
                stream.cut(file, kinds.kind(inventory, file), &mut seen)?;
            }
        }
        Ok(stream)
    }

    /// Cuts the data of a file. What another file shows too is cloned.
    fn cut(
        &mut self,
        file: FileId,
        kind: u16,
        seen: &mut HashSet<(tree::ExtentId, u64)>,
    ) -> Result<()> {
        let mut extents = self.inventory.extents(file);
        let (mut begin, mut end) = (0, 0);
        loop {
            let next = extents.next().map_err(|error| {
                let path = self.inventory.path(self.inventory.first_name(file));
                error.in_file("read", &path)
            })?;
            let is_data = next.is_some_and(|extent| {
                extent.kind.has_data() && extent.id.is_none_or(|id| seen.insert((id, extent.len)))
            });
            if let Some(extent) = next
                && is_data
                && extent.offset == end
            {
                end = extent.end();
                continue;
            }
            let mut at: u64 = begin;
            while at < end {
                let len = (end - at).min(PIECE_BYTES);
                self.pieces.push((file, at));
                self.units.push(Unit {
                    len: len as u32,
                    plain: len as u32,
                    class: (len <= SECTOR_BYTES as u64).into(),
                    kind,
                    quantum: 1,
                });
                at += len;
            }
            let Some(extent) = next else {
                return Ok(());
            };
            (begin, end) = (extent.end(), extent.end());
            if is_data {
                begin = extent.offset;
            }
        }
    }
}

/// The size of a stream with plain data, which is hashed: a copy makes the UUID of the subvolume of
/// that.
fn plain_bytes(inventory: &Inventory<'_>) -> Result<u64> {
    let options = SendOptions::new(b"plan")
        .data(SendData::Plain)
        .sector_bytes(SECTOR_BYTES as u32);
    let mut writer = StreamWriter::new(Hashed(Sha256::new()), Version::V2);
    writer.header()?;
    send(inventory, &options, &NoProgress, &mut writer)?;
    writer.command(&sendstream::Command::End)?;
    Ok(writer.position())
}

struct Hashed(Sha256);

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Cut for CutStream<'_> {
    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn with<'a>(&'a self, candidate: &Candidate) -> Result<Box<dyn Trial + 'a>> {
        Ok(Box::new(StreamTrial {
            cut: self,
            settings: candidate.compression(),
        }))
    }

    fn load(&mut self, _: &[usize], _: Clock<'_>) -> Result<Option<f64>> {
        // Written twice: to hash it, and to encode it. The second time is on a thread of its own.
        Ok(Some(self.seconds / 2.0))
    }
}

struct StreamTrial<'a> {
    cut: &'a CutStream<'a>,
    settings: Option<Settings>,
}

impl Trial for StreamTrial<'_> {
    fn worker(&self) -> Result<Box<dyn TrialWork + '_>> {
        let encoder = self.settings.map(|settings| Encoder::new(&settings));
        let encoder = encoder
            .transpose()
            .map_err(|error| Error::InvalidInput(error.as_str()))?;
        Ok(Box::new(StreamWork {
            cut: self.cut,
            encoder,
            decoder: Decoder::new(),
            algorithm: match self.settings {
                None => Algorithm::Zstd,
                Some(Settings::Lzo | Settings::LzoOptimal { .. }) => Algorithm::LzoBtrfs {
                    sector_bytes: SECTOR_BYTES as u32,
                },
                Some(settings) => settings.algorithm(),
            },
            content: vec![0; PIECE_BYTES as usize],
            packed: vec![0; PIECE_BYTES as usize],
            decoded: vec![0; PIECE_BYTES as usize],
        }))
    }

    fn whole(&self, lens: &[u32], _: Parallel) -> Result<u64> {
        let sum = |lens: &mut dyn Iterator<Item = u32>| lens.map(u64::from).sum::<u64>();
        let plain = sum(&mut self.cut.units.iter().map(|unit| unit.len));
        let stored = sum(&mut lens.iter().copied());
        Ok((self.cut.plain_bytes + stored).saturating_sub(plain))
    }
}

struct StreamWork<'a> {
    cut: &'a CutStream<'a>,
    encoder: Option<Encoder>,
    decoder: Decoder,
    algorithm: Algorithm,
    content: Vec<u8>,
    packed: Vec<u8>,
    decoded: Vec<u8>,
}

impl StreamWork<'_> {
    /// Encodes the content as the encoder of a stream does: extents must save a sector, and what
    /// can be inline any byte. Returns the encoded length, and how much longer the command is.
    fn encode(&mut self, len: usize, offset: u64) -> Option<(usize, usize)> {
        let whole = len.next_multiple_of(SECTOR_BYTES);
        let (room, more) = if offset == 0 && len <= SECTOR_BYTES {
            (INLINE_BYTES_MAX.min(len - 1), INLINE_ENCODED_BYTES)
        } else {
            (whole - SECTOR_BYTES, ENCODED_BYTES)
        };
        let packed = self.encoder.as_mut()?.compress_extent(
            SECTOR_BYTES as u32,
            &mut self.packed[..room],
            &self.content[..len],
        );
        packed
            .filter(|&packed| packed > 0)
            .map(|packed| (packed, more))
    }
}

impl TrialWork for StreamWork<'_> {
    fn run(&mut self, unit: usize, clock: Clock<'_>) -> Result<Tried> {
        let (file, offset) = self.cut.pieces[unit];
        let len = self.cut.units[unit].len as usize;
        let start = clock();
        let ino = self.cut.inventory.ino(file);
        if self
            .cut
            .inventory
            .tree()
            .read_at(ino, offset, &mut self.content[..len])?
            < len
        {
            return Err(Error::Changed);
        }
        let encoded = self.encode(len, offset);
        let encode = clock().saturating_sub(start).as_secs_f64();
        let Some((packed, more)) = encoded else {
            return Ok(Tried {
                len: len as u32,
                encode,
                decode: 0.0,
            });
        };
        let (algorithm, decoder) = (self.algorithm, &mut self.decoder);
        let (stored, decoded) = (&self.packed[..packed], &mut self.decoded[..len]);
        let (result, decode) = timed(clock, || {
            decoder.decompress_extent(algorithm, decoded, stored)
        });
        if result.is_err() || self.decoded[..len] != self.content[..len] {
            return Err(Error::Unverified("a sample decodes to something else"));
        }
        Ok(Tried {
            len: (packed + more) as u32,
            encode,
            decode,
        })
    }
}
