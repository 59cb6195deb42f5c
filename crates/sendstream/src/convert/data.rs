//! The work of a thread: decodes data, encodes it, and makes commands of it.

use std::sync::{Mutex, PoisonError};

use codec::{Algorithm, Decoder, Encoder};
use tree::Result;

use super::options::{ConvertOptions, Recode, algorithm};
use crate::command::Command;
use crate::encoded::{ENCODED_BYTES_MAX, EncodedWrite};
use crate::raw::Version;
use crate::reader::begins_with_length;

/// Data that is encoded to at most this many bytes becomes inline at the receiver, unless it was
/// mounted with another `max_inline`.
const INLINE_BYTES_MAX: usize = 2048;

/// The longest data of a command that Linux writes in version 1.
pub(super) const V1_DATA_BYTES: usize = 48 << 10;
/// The longest data of a command that Linux writes in version 2 and later.
pub(super) const V2_DATA_BYTES: usize = ENCODED_BYTES_MAX as usize;
/// How many bytes of data a command of this version has at most.
pub(super) fn data_bytes_max(version: Version) -> usize {
    match version {
        Version::V1 => V1_DATA_BYTES,
        Version::V2 | Version::V3 => V2_DATA_BYTES,
    }
}

/// Some steps of a conversion.
#[derive(Default)]
pub(super) struct ConvertJob {
    pub(super) steps: Vec<ConvertStep>,
    /// How much of the source they are, for progress.
    pub(super) read_bytes: u64,
}

/// One step.
pub(super) enum ConvertStep {
    /// Commands that are written as they are.
    Copied(Vec<u8>),
    /// Plain data.
    PlainRun(PlainRun),
    /// Encoded data.
    EncodedExtent(EncodedExtent),
}

/// Where data is from, and in which stream it is written.
#[derive(Clone, Copy)]
pub(super) struct DataOrigin {
    /// The number of the command that it is from.
    pub(super) number: u64,
    /// The version of the result.
    pub(super) to: Version,
    /// Whether its file may have existed before the stream.
    pub(super) is_incremental: bool,
}

/// The data of writes that follow each other.
pub(super) struct PlainRun {
    pub(super) path: Vec<u8>,
    pub(super) file_offset: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) place: DataOrigin,
}

/// An encoded write.
pub(super) struct EncodedExtent {
    path: Vec<u8>,
    file_offset: u64,
    unencoded_file_len: u64,
    unencoded_len: u64,
    unencoded_offset: u64,
    compression: Algorithm,
    data: Vec<u8>,
    place: DataOrigin,
}

/// The result of a job.
pub(super) struct ConvertedJob {
    /// The commands.
    pub(super) bytes: Vec<u8>,
    /// As in [`ConvertJob`].
    pub(super) read_bytes: u64,
}

impl ConvertStep {
    /// How many bytes it holds or makes.
    pub(super) fn len(&self) -> usize {
        let bytes = match self {
            ConvertStep::Copied(bytes) => bytes.len(),
            ConvertStep::PlainRun(run) => run.path.len() + run.bytes.len(),
            ConvertStep::EncodedExtent(encoded) => {
                let decoded = encoded.unencoded_file_len as usize;
                encoded.path.len() + encoded.data.len().max(decoded)
            }
        };
        size_of::<ConvertStep>() + bytes
    }
}

impl PlainRun {
    /// Where it ends in its file.
    pub(super) fn end(&self) -> u64 {
        self.file_offset + self.bytes.len() as u64
    }
}

impl EncodedExtent {
    pub(super) fn of(write: &EncodedWrite<'_>, place: DataOrigin) -> EncodedExtent {
        EncodedExtent {
            path: write.path.to_vec(),
            file_offset: write.file_offset,
            unencoded_file_len: write.unencoded_file_len,
            unencoded_len: write.unencoded_len,
            unencoded_offset: write.unencoded_offset,
            compression: write.compression,
            data: write.data.to_vec(),
            place,
        }
    }
}

/// A thread's state.
pub(super) struct ConvertWorker<'a> {
    pub(super) options: ConvertOptions,
    /// There is one if data is to be encoded.
    pub(super) encoder: Option<Encoder>,
    pub(super) decoder: Decoder,
    /// Memory for decoded data.
    pub(super) content: Vec<u8>,
    /// Memory for encoded data.
    pub(super) packed: Vec<u8>,
    /// Memory of results that were written.
    pub(super) spent: &'a Mutex<Vec<Vec<u8>>>,
}

impl ConvertWorker<'_> {
    pub(super) fn run(&mut self, job: ConvertJob) -> Result<ConvertedJob> {
        let spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = { spent }.pop().unwrap_or_default();
        out.clear();
        for step in &job.steps {
            match step {
                ConvertStep::Copied(bytes) => out.extend_from_slice(bytes),
                ConvertStep::PlainRun(PlainRun {
                    path,
                    file_offset,
                    bytes,
                    place,
                }) => self
                    .write(path, *file_offset, bytes, *place, &mut out)
                    .map_err(|error| error.in_part("command", place.number))?,
                ConvertStep::EncodedExtent(write) => self
                    .recode(write, &mut out)
                    .map_err(|error| error.in_part("command", write.place.number))?,
            }
        }
        Ok(ConvertedJob {
            bytes: out,
            read_bytes: job.read_bytes,
        })
    }

    fn recode(&mut self, write: &EncodedExtent, out: &mut Vec<u8>) -> Result<()> {
        let command = EncodedWrite {
            path: &write.path,
            file_offset: write.file_offset,
            unencoded_file_len: write.unencoded_file_len,
            unencoded_len: write.unencoded_len,
            unencoded_offset: write.unencoded_offset,
            compression: write.compression,
            encryption: None,
            data: &write.data,
        };
        let mut content = std::mem::take(&mut self.content);
        let shown = command.decode_exactly(&mut self.decoder, &mut content);
        let written = shown
            .and_then(|shown| self.write(&write.path, write.file_offset, shown, write.place, out));
        self.content = content;
        written
    }

    /// The commands that write `bytes`, encoded if that is wanted and makes them smaller.
    fn write(
        &mut self,
        path: &[u8],
        offset: u64,
        bytes: &[u8],
        place: DataOrigin,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let encoded = self.encode(path, offset, bytes, place, out)?;
        let (mut offset, mut rest) = (offset + encoded as u64, &bytes[encoded..]);
        if encoded > 0 && rest.is_empty() {
            return Ok(());
        }
        // A write without data stays one.
        loop {
            let mut data = &rest[..rest.len().min(data_bytes_max(place.to))];
            // No data may look as if only the header had been changed, not even if nothing else
            // shows the version: see `StreamReader`.
            if place.to >= Version::V2 && begins_with_length(data) {
                data = &data[..1];
            }
            let write = Command::Write {
                path,
                file_offset: offset,
                data,
            };
            write.emit(place.to, out)?;
            offset += data.len() as u64;
            rest = &rest[data.len()..];
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Writes the beginning of `bytes` as one encoded extent, if that saves space. Returns how many
    /// bytes of it.
    fn encode(
        &mut self,
        path: &[u8],
        offset: u64,
        bytes: &[u8],
        place: DataOrigin,
        out: &mut Vec<u8>,
    ) -> Result<usize> {
        let (Some(encoder), Recode::Encode(settings)) = (&mut self.encoder, self.options.recode)
        else {
            return Ok(0);
        };
        let sector = self.options.sector_bytes as usize;
        let Some(compression) = algorithm(settings, self.options.sector_bytes) else {
            return Ok(0);
        };
        if !offset.is_multiple_of(sector as u64) {
            return Ok(0);
        }
        // Linux takes a part of a sector only at the end of a file. Where the file existed before,
        // it can be longer.
        let len = if place.is_incremental {
            bytes.len() - bytes.len() % sector
        } else {
            bytes.len()
        };
        if len == 0 {
            return Ok(0);
        }
        let whole = len.next_multiple_of(sector);
        // Extents in whole sectors must save one. Inline extents must save anything.
        let can_be_inline = offset == 0 && len <= sector;
        let room = if can_be_inline {
            INLINE_BYTES_MAX.min(len - 1)
        } else {
            whole - sector
        };
        self.packed.resize(room, 0);
        let packed =
            encoder.compress_extent(self.options.sector_bytes, &mut self.packed, &bytes[..len]);
        let Some(packed) = packed.filter(|&packed| packed > 0) else {
            return Ok(0);
        };
        let write = EncodedWrite {
            path,
            file_offset: offset,
            unencoded_file_len: len as u64,
            unencoded_len: if can_be_inline { len } else { whole } as u64,
            unencoded_offset: 0,
            compression,
            encryption: (!can_be_inline).then_some(0),
            data: &self.packed[..packed],
        };
        Command::EncodedWrite(write).emit(place.to, out)?;
        Ok(len)
    }
}
