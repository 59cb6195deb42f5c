//! Copies to btrfs send streams.

use std::ffi::OsStr;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, bail};
use codec::Settings;
use sendstream::{
    Command, ConvertOptions, Recode, SendData, SendOptions, SendSummary, StreamWriter, Version,
    convert, send,
};
use tree::{Error, Inventory, NoProgress, Output, Progress, Sha256, is_valid_name};

use super::args::Copy;
use super::job::{Done, Job};
use crate::stream::{create, settings};
use crate::text;

/// The transaction of a subvolume that is made from another container.
const TRANSACTION: u64 = 1;
const SECTOR_BYTES: u32 = 4096;
const BUFFER_BYTES: usize = 256 << 10;

/// Refuses what cannot be done, before the source is read.
///
/// # Errors
/// The name or the compression is impossible, or an option does not apply.
pub(crate) fn refuse(args: &Copy) -> Result<()> {
    if args.rescue.skips() {
        bail!("--skip-unreadable and --keep-damaged do not apply to a btrfs send stream");
    }
    subvolume_name(args)?;
    let encode = compression(args)?;
    if args.stream.proto == Some(Version::V1) && encode.is_some() {
        bail!("version 1 of send streams has no compressed data");
    }
    Ok(())
}

/// The codec of the new data; `None` for data as it is stored, or plain data.
fn compression(args: &Copy) -> Result<Option<Settings>> {
    match args.image.compress.as_deref() {
        None | Some("none") => Ok(None),
        Some(words) => {
            let settings = settings(words);
            settings
                .map(Some)
                .with_context(|| format!("--compress {words}"))
        }
    }
}

fn subvolume_name(args: &Copy) -> Result<&OsStr> {
    let name = match &args.stream.name {
        Some(name) => Some(&**name),
        None if args.dst == Path::new("-") => None,
        None => args.dst.file_stem(),
    };
    let name = name.context("name the subvolume with --name")?;
    if !is_valid_name(name.as_bytes()) {
        bail!(
            "{} cannot be a subvolume's name",
            text::of_name(name.as_bytes())
        );
    }
    Ok(name)
}

/// Writes a send stream.
///
/// # Errors
/// The source cannot be read, or the destination cannot be written.
pub(crate) fn write(job: &Job<'_>) -> Result<Done> {
    let args = job.args;
    let bar = job.bar();
    let inventory = job.inventory(&bar)?;
    let names = job.names(&bar, &inventory);
    let encode = compression(args)?;
    let version = args.stream.proto.unwrap_or(Version::V2);
    let is_plain = version == Version::V1 || encode.is_some() || args.image.compress.is_some();
    let mut options = SendOptions {
        name: subvolume_name(args)?.as_bytes(),
        uuid: [0; 16],
        ctransid: TRANSACTION,
        data: if is_plain {
            SendData::Plain
        } else {
            SendData::AsStored
        },
        sector_bytes: SECTOR_BYTES,
        stored: None,
    };
    let on_source = |error| match error {
        Error::File { .. } => job.source.name_error(error).into(),
        error => anyhow::Error::from(error).context(job.on_dst("write")),
    };
    options.uuid = match args.btrfs.uuid() {
        Some(uuid) => uuid,
        None => uuid_of(&inventory, &options, version).map_err(on_source)?,
    };
    let mut output = create(&args.dst, args.overwrite)?;
    let written = match encode {
        None => write_to(&inventory, &options, version, &names, &mut output),
        Some(settings) => encoded(job, &inventory, &options, settings, &names, &mut output),
    };
    let (summary, bytes) = written.map_err(on_source)?;
    output.commit().with_context(|| job.on_dst("finish"))?;
    names.finish();
    Ok(Done {
        files: inventory.entry_count().into(),
        read: inventory.content_bytes(),
        written: bytes,
        used: None,
        kept: summary.kept,
        listed: job.losses(&inventory, &[]),
        lost: Vec::new(),
        notes: Vec::new(),
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
    job: &Job<'_>,
    inventory: &Inventory,
    options: &SendOptions<'_>,
    settings: Settings,
    progress: &dyn Progress,
    output: &mut Output,
) -> tree::Result<(SendSummary, u64)> {
    let (plain, to_encode) = io::pipe()?;
    let converting = ConvertOptions {
        recode: Recode::Encode(settings),
        sector_bytes: SECTOR_BYTES,
        ..ConvertOptions::default()
    };
    let (sent, converted) = thread::scope(|scope| {
        let sent =
            scope.spawn(move || write_to(inventory, options, Version::V2, progress, to_encode));
        let converted = convert(plain, output, &converting, job.parallel, &NoProgress);
        let sent = sent.join();
        (sent.unwrap_or(Err(Error::Changed)), converted)
    });
    match (sent, converted) {
        // The encoder stopped reading.
        (Err(Error::Io(_)), Err(error)) => Err(error),
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
    let mut digest = Digest(Sha256::new());
    write_to(inventory, options, version, &NoProgress, &mut digest)?;
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&digest.0.finish()[..16]);
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok(uuid)
}

struct Digest(Sha256);

impl Write for Digest {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
