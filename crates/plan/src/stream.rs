//! btrfs send streams with compressed data.

use std::collections::HashSet;
use std::io::{self, BufWriter, Write};
use std::panic::resume_unwind;
use std::thread;

use codec::{Algorithm, Decoder, Encoder, Settings};
use sendstream::{
    ConvertOptions, Recode, SendData, SendOptions, StreamWriter, Version, convert, send,
};
use tree::{Error, FileId, FileKind, Inventory, NoProgress, Parallel, Result, Sha256};

use crate::candidate::Candidate;
use crate::cut::{Clock, Cut, Trial, TrialWork, Tried, timed};
use crate::population::{Kinds, Unit};

/// The most data of a command of version 2, and of an extent.
const PIECE_BYTES: u64 = 128 << 10;
const SECTOR_BYTES: usize = 4096;
/// The sender of a copy writes to its pipe in pieces of this size.
const BUFFER_BYTES: usize = 256 << 10;
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
    pub(crate) hashed_seconds: f64,
    /// The same without the hash.
    pub(crate) sent_seconds: f64,
}

impl<'a> CutStream<'a> {
    /// Writes a stream with plain data twice, throws it away, and cuts the content as the encoder
    /// of a stream does.
    pub(crate) fn new(inventory: &'a Inventory<'a>, clock: Clock<'_>) -> Result<CutStream<'a>> {
        // A copy makes the UUID of the subvolume of a hash.
        let (hashed, hashed_seconds) =
            timed(clock, || write_plain(inventory, Hashed(Sha256::new())));
        let (plain, sent_seconds) = timed(clock, || write_plain(inventory, io::sink()));
        hashed?;
        let mut stream = CutStream {
            inventory,
            pieces: Vec::new(),
            units: Vec::new(),
            plain_bytes: plain?,
            hashed_seconds,
            sent_seconds,
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

/// Writes a stream with plain data, and returns its size.
fn write_plain(inventory: &Inventory<'_>, output: impl Write) -> Result<u64> {
    let options = SendOptions::new(b"plan")
        .data(SendData::Plain)
        .sector_bytes(SECTOR_BYTES as u32);
    let mut writer = StreamWriter::new(BufWriter::with_capacity(BUFFER_BYTES, output), Version::V2);
    writer.header()?;
    send(inventory, &options, &NoProgress, &mut writer)?;
    writer.command(&sendstream::Command::End)?;
    let bytes = writer.position();
    writer.into_inner().flush()?;
    Ok(bytes)
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
            // Rows of plain streams are there already.
            settings: candidate
                .compression()
                .ok_or(Error::InvalidInput("a trial encodes"))?,
        }))
    }

    fn in_flight(&self, _: Parallel) -> usize {
        usize::MAX // there are many, and threads seldom wait for a long one
    }

    /// A copy sends to a pipe, and another thread takes the commands apart and puts them together.
    fn load(&mut self, _: &[usize], clock: Clock<'_>) -> Result<Option<f64>> {
        let inventory = self.inventory;
        let (piped, seconds) = timed(clock, || {
            let (plain, to_encode) = io::pipe()?;
            thread::scope(|scope| {
                let sent = scope.spawn(move || write_plain(inventory, to_encode));
                let kept = ConvertOptions::default()
                    .recode(Recode::Keep)
                    .sector_bytes(SECTOR_BYTES as u32);
                let one = Parallel::new(1);
                let converted = convert(plain, io::sink(), &kept, one, &NoProgress);
                match (
                    sent.join().unwrap_or_else(|panic| resume_unwind(panic)),
                    converted,
                ) {
                    // The other end stopped reading.
                    (Err(Error::Io(_)), Err(error)) => Err(error),
                    (Err(error), _) | (_, Err(error)) => Err(error),
                    (Ok(_), Ok(_)) => Ok(()),
                }
            })
        });
        piped?;
        Ok(Some(seconds))
    }
}

struct StreamTrial<'a> {
    cut: &'a CutStream<'a>,
    settings: Settings,
}

impl Trial for StreamTrial<'_> {
    fn worker(&self) -> Result<Box<dyn TrialWork + '_>> {
        let encoder = Encoder::new(&self.settings);
        let encoder = encoder.map_err(|error| Error::InvalidInput(error.as_str()))?;
        Ok(Box::new(StreamWork {
            cut: self.cut,
            encoder,
            decoder: Decoder::new(),
            algorithm: match self.settings {
                Settings::Lzo | Settings::LzoOptimal { .. } => Algorithm::LzoBtrfs {
                    sector_bytes: SECTOR_BYTES as u32,
                },
                settings => settings.algorithm(),
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
    encoder: Encoder,
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
        let packed = self.encoder.compress_extent(
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
        // Content comes from the sender, whose time is measured on its own.
        let (encoded, encode) = timed(clock, || self.encode(len, offset));
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
