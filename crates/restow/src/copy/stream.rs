//! Copies to btrfs send streams.

use std::ffi::OsStr;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;

use codec::Settings;
use sendstream::{
    Command, ConvertOptions, Recode, SendData, SendOptions, SendSummary, StreamWriter, Version,
    convert, send,
};
use tree::{Inventory, NoProgress, Output, Progress, Sha256, is_valid_name};

use super::format::is_stream;
use super::job::CopyJob;
use super::summary::CopySummary;
use crate::error::refuse;
use crate::{Error, Result, text};

/// The transaction of a subvolume that is made from another container.
const TRANSACTION: u64 = 1;
const SECTOR_BYTES: u32 = 4096;
const BUFFER_BYTES: usize = 256 << 10;

/// The name of the subvolume in a stream: the one that was given, or that of the destination
/// without its ending.
///
/// # Errors
/// There is none, or no subvolume can have it.
pub fn subvolume_name(dst: &Path, given: Option<&[u8]>) -> Result<Vec<u8>> {
    let name = match given {
        Some(name) => Some(name),
        None if is_stream(dst) => None,
        None => dst.file_stem().map(OsStr::as_bytes),
    };
    let name = name.ok_or_else(|| Error::refused("name the subvolume with --name"))?;
    if !is_valid_name(name) {
        refuse!("{} cannot be a subvolume's name", text::of_name(name));
    }
    Ok(name.to_vec())
}

/// Writes a send stream.
///
/// # Errors
/// The source cannot be read, or the destination cannot be written.
pub(super) fn write(job: &CopyJob<'_>, progress: &dyn Progress) -> Result<CopySummary> {
    let (inventory, all) = (&job.inventory, &job.options.stream);
    let is_plain = all.plain || all.version == Version::V1 || all.encode.is_some();
    let name = subvolume_name(job.dst, all.name.as_deref())?;
    for file in inventory.files() {
        let checked = inventory.metadata(file).check_owner();
        let path = || inventory.path(inventory.first_name(file));
        job.name_error(checked.map_err(|error| error.in_file("read", &path())))?;
    }
    let mut options = SendOptions::new(&name)
        .ctransid(TRANSACTION)
        .data(if is_plain {
            SendData::Plain
        } else {
            SendData::AsStored
        })
        .sector_bytes(SECTOR_BYTES);
    options.uuid = match all.uuid {
        Some(uuid) => uuid,
        None => job.name_error(uuid_of(inventory, &options, all.version))?,
    };
    let mut output = job.output()?;
    let written = match all.encode {
        None => write_to(inventory, &options, all.version, progress, &mut output),
        Some(settings) => encoded(job, &options, settings, progress, &mut output),
    };
    let (summary, written_bytes) = job.finish(written, output)?;
    Ok(CopySummary {
        files: inventory.entry_count().into(),
        read_bytes: inventory.content_bytes(),
        written_bytes,
        kept: summary.kept,
        losses: job.losses(Vec::new()),
        ..CopySummary::default()
    })
}

/// Writes a whole stream, and returns its length.
fn write_to(
    inventory: &Inventory<'_>,
    options: &SendOptions<'_>,
    version: Version,
    progress: &dyn Progress,
    output: impl Write,
) -> tree::Result<(SendSummary, u64)> {
    let output = BufWriter::with_capacity(BUFFER_BYTES, output);
    let mut writer = StreamWriter::new(output, version);
    writer.header()?;
    let summary = send(inventory, options, progress, &mut writer)?;
    writer.command(&Command::End)?;
    let bytes = writer.position();
    writer.into_inner().flush()?;
    Ok((summary, bytes))
}

/// Writes a whole stream with data that is encoded on the way, in parallel.
fn encoded(
    job: &CopyJob<'_>,
    options: &SendOptions<'_>,
    settings: Settings,
    progress: &dyn Progress,
    output: &mut Output,
) -> tree::Result<(SendSummary, u64)> {
    let (plain, to_encode) = io::pipe()?;
    let converting = ConvertOptions::default()
        .recode(Recode::Encode(settings))
        .sector_bytes(SECTOR_BYTES);
    let inventory = &job.inventory;
    let (sent, converted) = thread::scope(|scope| {
        let sent =
            scope.spawn(move || write_to(inventory, options, Version::V2, progress, to_encode));
        let converted = convert(plain, output, &converting, job.parallel, &NoProgress);
        let sent = sent.join();
        (sent.unwrap_or(Err(tree::Error::Changed)), converted)
    });
    match (sent, converted) {
        // The encoder stopped reading.
        (Err(tree::Error::Io(_)), Err(error)) => Err(error),
        (Err(error), _) | (_, Err(error)) => Err(error),
        (Ok((summary, _)), Ok(converted)) => Ok((summary, converted.bytes_written)),
    }
}

/// A UUID for the subvolume: a hash of its commands (RFC 9562, version 8).
fn uuid_of(
    inventory: &Inventory<'_>,
    options: &SendOptions<'_>,
    version: Version,
) -> tree::Result<[u8; 16]> {
    let mut digest = HashWriter(Sha256::new());
    write_to(inventory, options, version, &NoProgress, &mut digest)?;
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&digest.0.finish()[..16]);
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok(uuid)
}

struct HashWriter(Sha256);

impl Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
