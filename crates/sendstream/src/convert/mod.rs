//! Converting streams: another version, another compression.

mod data;
mod plan;

use std::io::{Read, Write};
use std::sync::{Mutex, PoisonError};

use codec::{Algorithm, Decoder, Encoder, Settings};
use tree::{Error, Parallel, Progress, Result, ordered};

use self::data::ConvertWorker;
use self::plan::ConvertJobs;
use crate::command;
use crate::raw::Version;
use crate::reader::StreamReader;

/// The most jobs in flight. Each holds and makes at most a few hundred KiB.
const JOBS_MAX: usize = 64;
/// The largest sector of btrfs.
const SECTOR_BYTES_MAX: u32 = 64 << 10;
/// Unless set, the most zeros for punched holes in one conversion.
const ZEROS_BYTES_MAX: u64 = 16 << 30;

/// What happens to the data of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recode {
    /// Stays as it is, as far as the version can hold it.
    #[default]
    Keep,
    /// Is decoded.
    Decode,
    /// Is encoded with these settings where that makes it smaller, and stored plain elsewhere.
    Encode(Settings),
}

/// How to convert.
#[derive(Clone, Copy, Debug)]
pub struct ConvertOptions {
    /// The version of the result; by default that of the source, or 2 if data of version 1 is to be
    /// encoded.
    pub version: Option<Version>,
    /// What happens to the data.
    pub recode: Recode,
    /// The sector size of the file system that will receive the stream: encoded writes begin and
    /// end with a sector.
    pub sector_bytes: u32,
    /// Leave out file attributes, which version 1 does not have.
    pub drops_fileattr: bool,
    /// Leave out fs-verity, which versions before 3 do not have.
    pub drops_verity: bool,
    /// Believe that no punched hole reaches beyond the end of its file. Version 1 needs zeros for a
    /// hole, and zeros beyond the end make the file longer; the stream does not always state the
    /// size.
    pub trusts_holes: bool,
    /// The most zeros to write for punched holes, which need a few bytes in version 2.
    pub zeros_bytes_max: u64,
}

impl Default for ConvertOptions {
    fn default() -> Self {
        ConvertOptions {
            version: None,
            recode: Recode::default(),
            sector_bytes: 4096,
            drops_fileattr: false,
            drops_verity: false,
            trusts_holes: false,
            zeros_bytes_max: ZEROS_BYTES_MAX,
        }
    }
}

/// What a conversion did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Converted {
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Commands read.
    pub commands: u64,
    /// Times of creation left out, which version 1 does not have.
    pub otimes_dropped: u64,
    /// File attributes left out.
    pub fileattrs_dropped: u64,
    /// Commands that enable fs-verity left out.
    pub verity_dropped: u64,
    /// Zeros written for punched holes.
    pub zeros_bytes: u64,
}

/// Converts all streams of `input` into `output`.
///
/// Only commands with data change, and those that the version cannot hold; all others are copied
/// byte for byte. Encoded data is decoded only if it has to be, and then verified: see
/// [`EncodedWrite::decode_exactly`](crate::EncodedWrite::decode_exactly). The result does not
/// depend on the number of threads. After an error, `output` holds a part that must not be used; it
/// has no [`Command::End`](crate::Command::End).
///
/// # Errors
/// Those of [`StreamReader`]; [`Error::Unverified`] for encoded data that is broken;
/// [`Error::InvalidInput`] for impossible options, and for what the version cannot express; what
/// the output reports.
pub fn convert<R: Read>(
    input: R,
    mut output: impl Write,
    options: &ConvertOptions,
    parallel: Parallel,
    progress: &dyn Progress,
) -> Result<Converted> {
    check(options)?;
    let parallel = parallel.in_flight(parallel.jobs_max().min(JOBS_MAX));
    let mut jobs = ConvertJobs::new(StreamReader::new(input), *options);
    let mut written = 0;
    let spent = Mutex::new(Vec::new());
    let workspace = || ConvertWorker {
        options: *options,
        encoder: encoder(options),
        decoder: Decoder::new(),
        content: Vec::new(),
        packed: Vec::new(),
        spent: &spent,
    };
    ordered(
        parallel,
        &mut jobs,
        workspace,
        |worker, job| job.and_then(|job| worker.run(job)),
        |done| {
            output.write_all(&done.bytes)?;
            written += done.bytes.len() as u64;
            progress.advance(0, done.read_bytes);
            progress.wrote(done.bytes.len() as u64);
            spent
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(done.bytes);
            Ok(())
        },
    )?;
    Ok(Converted {
        bytes_written: written,
        ..jobs.converted()
    })
}

fn check(options: &ConvertOptions) -> Result<()> {
    let sector = options.sector_bytes;
    if !sector.is_power_of_two() || !(4096..=SECTOR_BYTES_MAX).contains(&sector) {
        return Err(Error::InvalidInput(
            "btrfs has sectors of 4096 to 65536 bytes, a power of two",
        ));
    }
    if let Recode::Encode(settings) = options.recode {
        if options.version == Some(Version::V1) {
            return Err(Error::InvalidInput(
                "version 1 of send streams has no compressed data",
            ));
        }
        if algorithm(settings, sector).is_none() || Encoder::new(&settings).is_err() {
            return Err(Error::InvalidInput(
                "btrfs has no such compression, or not at this level",
            ));
        }
    }
    Ok(())
}

fn encoder(options: &ConvertOptions) -> Option<Encoder> {
    match options.recode {
        Recode::Encode(settings) => Encoder::new(&settings).ok(),
        Recode::Keep | Recode::Decode => None,
    }
}

/// The algorithm in a stream for these settings.
fn algorithm(settings: Settings, sector_bytes: u32) -> Option<Algorithm> {
    let algorithm = match settings.algorithm() {
        Algorithm::Lzo => Algorithm::LzoBtrfs { sector_bytes },
        algorithm => algorithm,
    };
    command::compression(algorithm).map(|_| algorithm)
}
