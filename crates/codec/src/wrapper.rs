//! Files compressed as a whole, such as `.tar.gz`: streams of any length, in bounded memory.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::io::{self, Read, Write};

use crate::{Algorithm, Error};

/// The largest window of a zstd frame in bytes, the default limit of the `zstd` command.
const ZSTD_WINDOW_MAX: u64 = 128 << 20;
/// Maximum memory of an xz stream in bytes, four times that of `xz -9`.
const XZ_MEMORY_MAX: u64 = 256 << 20;

/// How many bytes are read and written at once.
const CHUNK_BYTES: usize = 128 << 10;

/// The compression format of a whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wrapper {
    /// Concatenated gzip members (RFC 1952).
    Gzip,
    /// Concatenated .xz streams.
    Xz,
    /// Concatenated Zstandard frames (RFC 8878).
    Zstd,
}

impl Wrapper {
    /// The compression format of a file that begins with these bytes.
    pub fn of(start: &[u8]) -> Option<Wrapper> {
        match start {
            [0x1f, 0x8b, 8, ..] => Some(Wrapper::Gzip),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Wrapper::Xz),
            // A frame, or a skippable one.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
                Some(Wrapper::Zstd)
            }
            _ => None,
        }
    }

    /// The usual name of the format.
    pub const fn name(self) -> &'static str {
        match self {
            Wrapper::Gzip => "gzip",
            Wrapper::Xz => "xz",
            Wrapper::Zstd => "zstd",
        }
    }

    /// The algorithm of its blocks.
    pub(crate) const fn algorithm(self) -> Algorithm {
        match self {
            Wrapper::Gzip => Algorithm::Zlib,
            Wrapper::Xz => Algorithm::Xz,
            Wrapper::Zstd => Algorithm::Zstd,
        }
    }

    /// Decompresses `input`, from its current position to its end, into `out`. Returns the number
    /// of bytes written.
    ///
    /// # Errors
    /// `UnexpectedEof` if the input is truncated; `InvalidData` or `InvalidInput` if it breaks the
    /// format, does not match its checksum, or requires too much memory; `Unsupported` with
    /// [`Error::NotBuilt`] without the format's feature; otherwise the errors of `input` and `out`.
    pub fn decompress(self, input: &mut dyn Read, out: &mut dyn Write) -> io::Result<u64> {
        match self {
            #[cfg(feature = "zlib")]
            Wrapper::Gzip => {
                let input = io::BufReader::with_capacity(CHUNK_BYTES, input);
                copy(&mut flate2::bufread::MultiGzDecoder::new(input), out)
            }
            #[cfg(feature = "xz")]
            Wrapper::Xz => {
                use liblzma::stream::{CONCATENATED, Stream};
                let stream = Stream::new_stream_decoder(XZ_MEMORY_MAX, CONCATENATED)?;
                copy(
                    &mut liblzma::read::XzDecoder::new_stream(input, stream),
                    out,
                )
            }
            #[cfg(feature = "zstd")]
            Wrapper::Zstd => zstd_frames(input, out),
            #[allow(unreachable_patterns, reason = "all codecs can be built")]
            _ => {
                let error = Error::not_built(self.algorithm());
                Err(io::Error::new(io::ErrorKind::Unsupported, error))
            }
        }
    }
}

fn copy(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<u64> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut total = 0;
    loop {
        let part = read(from, &mut buffer)?;
        if part.is_empty() {
            return Ok(total);
        }
        to.write_all(part)?;
        total = add(total, part);
    }
}

fn add(total: u64, part: &[u8]) -> u64 {
    total.saturating_add(u64::try_from(part.len()).unwrap_or(u64::MAX))
}

/// The bytes that were read into `buffer`; empty at the end.
fn read<'b>(from: &mut dyn Read, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
    loop {
        match from.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => {
                // `Read` promises a length of at most that of the buffer.
                let len = read?.min(buffer.len());
                return Ok(buffer.split_at(len).0);
            }
        }
    }
}

#[cfg(feature = "zstd")]
fn zstd_frames(input: &mut dyn Read, out: &mut dyn Write) -> io::Result<u64> {
    let bad = |error| io::Error::new(io::ErrorKind::InvalidData, Error::Zstd(error));
    let size = zstd::Decoder::workspace_size(ZSTD_WINDOW_MAX).expect("a constant");
    // Zeroed memory is never touched if no frame needs it.
    let mut workspace = vec![0; size];
    let options = zstd::DecodeOptions::new().window_max(ZSTD_WINDOW_MAX);
    let mut decoder = zstd::Decoder::new(options, &mut workspace).map_err(bad)?;
    let (mut source, mut content) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let (mut total, mut is_whole) = (0, false);
    loop {
        let mut rest = read(input, &mut source)?;
        if rest.is_empty() {
            break;
        }
        let mut has_more = true;
        while has_more || !rest.is_empty() {
            let done = decoder.step(rest, &mut content).map_err(bad)?;
            let written = content.get(..done.written).unwrap_or_default();
            rest = rest.get(done.read..).unwrap_or_default();
            out.write_all(written)?;
            total = add(total, written);
            is_whole = done.status == zstd::Status::Done;
            has_more = done.status == zstd::Status::Output;
        }
    }
    if is_whole {
        Ok(total)
    } else {
        let why = "the zstd frame is cut off";
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, why))
    }
}
