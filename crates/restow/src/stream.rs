//! Send streams as they are: their commands, described, verified, converted, dumped and built.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tree::Parallel;

use crate::memory::{MemoryModel, PROGRAM_BYTES, READ_AHEAD_BYTES, THREAD_BYTES};
use crate::object::is_remote;
use crate::{Address, RemoteOptions, Result};

pub use ::sendstream::{
    Changes, CommandRecord, ConvertOptions, Converted, Dump, Event, Received, Recode,
    SentSubvolume, StreamInfo, StreamReader, Value, Verified, VerifyOptions, convert, json, verify,
};

/// Bytes of a job at most, before it is converted or behind it.
const JOB_BYTES: u64 = 256 << 10;

/// The threads of a conversion within a bound on memory, and the bytes of its output that wait if
/// it becomes an object.
///
/// # Errors
/// One thread needs more.
pub fn bound_convert(
    bytes_max: u64,
    (src, dst): (&Path, &Path),
    options: &ConvertOptions,
    remote: &RemoteOptions,
    parallel: Parallel,
) -> Result<(Parallel, u64)> {
    let encoder_bytes = match options.recode {
        Recode::Encode(settings) => settings.memory_bytes(128 << 10) as u64,
        Recode::Keep | Recode::Decode => 0,
    };
    let mut model = MemoryModel {
        fixed_bytes: PROGRAM_BYTES,
        thread_bytes: THREAD_BYTES + encoder_bytes,
        block_bytes: JOB_BYTES,
        jobs_factor: 1,
    };
    if is_remote(src.as_os_str().as_bytes()) {
        model.fixed_bytes += remote.cache_bytes as u64 + READ_AHEAD_BYTES;
    }
    let waiting_bytes = if Address::is_written_object(dst) {
        model.add_upload(bytes_max, false)
    } else {
        0
    };
    let parallel = model.fit(
        parallel,
        bytes_max,
        ("conversion", "; a lower level needs less"),
    )?;
    Ok((parallel, waiting_bytes))
}
