//! Converting streams: another version, another compression.

mod data;
mod options;
mod plan;

use std::io::{Read, Write};
use std::sync::{Mutex, PoisonError};

use codec::{Decoder, Encoder};
use tree::{Parallel, Progress, Result, ordered};

use self::data::ConvertWorker;
use self::options::check;
pub use self::options::{ConvertOptions, Converted, Recode};
use self::plan::ConvertJobs;
use crate::reader::StreamReader;

/// The most jobs in flight. Each holds and makes at most a few hundred KiB.
const JOBS_MAX: usize = 64;

/// Converts all streams of `input` into `output`.
///
/// Only commands with data change, and those that the version cannot hold; all others are copied
/// byte for byte. Encoded data is decoded only if it has to be, and then verified: see
/// [`EncodedWrite::decode_exactly`](crate::EncodedWrite::decode_exactly). The result does not
/// depend on the number of threads. After an error, `output` holds a part that must not be used; it
/// has no [`Command::End`](crate::Command::End).
///
/// # Errors
/// Those of [`StreamReader`]; [`Unverified`](tree::Error::Unverified) for encoded data that is
/// broken; [`InvalidInput`](tree::Error::InvalidInput) for impossible options, and for commands
/// that the version cannot express; the error of the output.
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

fn encoder(options: &ConvertOptions) -> Option<Encoder> {
    match options.recode {
        Recode::Encode(settings) => Encoder::new(&settings).ok(),
        Recode::Keep | Recode::Decode => None,
    }
}
