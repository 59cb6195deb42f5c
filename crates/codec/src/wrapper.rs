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

/// The compression format of a whole file. [`Packer`](crate::Packer) writes the first three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wrapper {
    /// Concatenated gzip members (RFC 1952).
    Gzip,
    /// Concatenated .xz streams.
    Xz,
    /// Concatenated Zstandard frames (RFC 8878).
    Zstd,
    /// Concatenated bzip2 streams.
    Bzip2,
    /// Concatenated LZ4 frames.
    Lz4,
    /// One stream of the format before .xz.
    Lzma,
    /// Concatenated files of lzop.
    Lzop,
}

/// A file that was decompressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decompressed {
    /// The length of its content.
    pub bytes: u64,
    /// Whether bytes behind the last stream were ignored, as the programs gzip, bzip2 and lz4 do
    /// with a warning: behind gzip and lzop only others than zeros, which tapes and disks add.
    pub has_garbage: bool,
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
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Some(Wrapper::Bzip2),
            [4, 0x22, 0x4d, 0x18, ..] => Some(Wrapper::Lz4),
            [0x89, b'L', b'Z', b'O', 0, b'\r', b'\n', 0x1a, b'\n', ..] => Some(Wrapper::Lzop),
            // No magic number: the usual properties, the size of the dictionary, and the length of
            // the content, unknown or below 256 TiB.
            [0x5d, 0, 0, _, _, length @ ..]
                if length.starts_with(&[0xff; 8])
                    || matches!(length, [_, _, _, _, _, _, 0, 0, ..]) =>
            {
                Some(Wrapper::Lzma)
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
            Wrapper::Bzip2 => "bzip2",
            Wrapper::Lz4 => "LZ4",
            Wrapper::Lzma => "lzma",
            Wrapper::Lzop => "lzop",
        }
    }

    /// Whether the format's feature was enabled when this crate was built: for lzop `lzo`, and
    /// `zlib` for the checksums.
    pub const fn is_built(self) -> bool {
        match self {
            Wrapper::Gzip => cfg!(feature = "zlib"),
            Wrapper::Xz | Wrapper::Lzma => cfg!(feature = "xz"),
            Wrapper::Zstd => cfg!(feature = "zstd"),
            Wrapper::Bzip2 => cfg!(feature = "bzip2"),
            Wrapper::Lz4 => cfg!(feature = "lz4"),
            Wrapper::Lzop => cfg!(all(feature = "lzo", feature = "zlib")),
        }
    }

    /// The error of a format that was not built.
    #[allow(dead_code, reason = "all codecs can be built")]
    pub(crate) const fn not_built(self) -> Error {
        Error::not_built(match self {
            Wrapper::Gzip => Algorithm::Zlib,
            Wrapper::Xz | Wrapper::Lzma => Algorithm::Xz,
            Wrapper::Zstd => Algorithm::Zstd,
            Wrapper::Lz4 => Algorithm::Lz4,
            Wrapper::Lzop if cfg!(feature = "lzo") => Algorithm::Zlib,
            Wrapper::Lzop => Algorithm::Lzo,
            Wrapper::Bzip2 => return Error::NotBuilt("built without bzip2"),
        })
    }

    /// Decompresses `input`, from its current position to its end, into `out`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the input is truncated; `InvalidData` or `InvalidInput` if it breaks the
    /// format, does not match its checksum, or requires too much memory; `Unsupported` with
    /// [`Error::NotBuilt`] without the format's feature; otherwise the errors of `input` and `out`.
    pub fn decompress(self, input: &mut dyn Read, out: &mut dyn Write) -> io::Result<Decompressed> {
        let input = &mut io::BufReader::with_capacity(CHUNK_BYTES, input);
        let whole = |bytes| Decompressed {
            bytes,
            has_garbage: false,
        };
        match self {
            #[cfg(feature = "zlib")]
            Wrapper::Gzip => streams(&[0x1f, 0x8b], Some(0), input, |input| {
                copy(&mut flate2::bufread::GzDecoder::new(input), out)
            }),
            #[cfg(feature = "xz")]
            Wrapper::Xz => {
                use liblzma::stream::{CONCATENATED, Stream};
                let stream = Stream::new_stream_decoder(XZ_MEMORY_MAX, CONCATENATED)?;
                let mut decoder = liblzma::bufread::XzDecoder::new_stream(input, stream);
                copy(&mut decoder, out).map(whole)
            }
            #[cfg(feature = "zstd")]
            Wrapper::Zstd => zstd_frames(input, out).map(whole),
            #[cfg(feature = "bzip2")]
            Wrapper::Bzip2 => streams(b"BZh", None, input, |input| {
                copy(&mut bzip2::bufread::BzDecoder::new(input), out)
            }),
            #[cfg(feature = "lz4")]
            Wrapper::Lz4 => streams(&[4, 0x22, 0x4d, 0x18], None, input, |input| {
                lz4_frame(input, out)
            }),
            #[cfg(all(feature = "lzo", feature = "zlib"))]
            Wrapper::Lzop => {
                let magic = crate::lzop::MAGIC;
                streams(magic, Some(0), input, |input| crate::lzop::file(input, out))
            }
            #[cfg(feature = "xz")]
            Wrapper::Lzma => {
                let stream = liblzma::stream::Stream::new_lzma_decoder(XZ_MEMORY_MAX)?;
                let mut decoder = liblzma::bufread::XzDecoder::new_stream(&mut *input, stream);
                let bytes = copy(&mut decoder, out)?;
                // As for the program xz: without a checksum, these bytes may be its own.
                if !read(input, &mut [0])?.is_empty() {
                    let what = "bytes follow the end of the lzma stream";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
                Ok(whole(bytes))
            }
            #[allow(unreachable_patterns, reason = "all codecs can be built")]
            _ => Err(io::Error::new(io::ErrorKind::Unsupported, self.not_built())),
        }
    }
}

/// Decodes streams that follow each other, of which each begins with `magic`, up to other bytes or
/// the end. Bytes `padding` behind them are no garbage.
#[cfg(any(feature = "bzip2", feature = "lz4", feature = "zlib"))]
fn streams(
    magic: &[u8],
    padding: Option<u8>,
    input: &mut dyn io::BufRead,
    mut decode: impl FnMut(&mut dyn io::BufRead) -> io::Result<u64>,
) -> io::Result<Decompressed> {
    let mut done = Decompressed::default();
    let mut start = Vec::new();
    let magic_bytes = u64::try_from(magic.len()).unwrap_or(u64::MAX);
    loop {
        let bytes = decode(&mut start.as_slice().chain(&mut *input))?;
        done.bytes = done.bytes.saturating_add(bytes);
        start.clear();
        // The input's buffer may end within them.
        Read::take(&mut *input, magic_bytes).read_to_end(&mut start)?;
        if start.is_empty() || !magic.starts_with(&start) {
            break;
        }
    }
    let is_garbage = |bytes: &[u8]| bytes.iter().any(|&byte| Some(byte) != padding);
    done.has_garbage = is_garbage(&start);
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let rest = read(input, &mut buffer)?;
        if rest.is_empty() {
            return Ok(done);
        }
        done.has_garbage |= is_garbage(rest);
    }
}

/// Decodes the LZ4 frame at the beginning of `input`.
#[cfg(feature = "lz4")]
fn lz4_frame(input: &mut dyn Read, out: &mut dyn Write) -> io::Result<u64> {
    let mut decoder = lz4::Decoder::new(input)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut total = 0;
    loop {
        let part = read(&mut decoder, &mut buffer).map_err(|error| match error.kind() {
            // liblz4's own errors.
            io::ErrorKind::Other => io::Error::new(io::ErrorKind::InvalidData, error),
            _ => error,
        })?;
        if part.is_empty() {
            break;
        }
        out.write_all(part)?;
        total = add(total, part);
    }
    let (_, finished) = decoder.finish();
    finished.map_err(|_| {
        let why = "the LZ4 frame is cut off";
        io::Error::new(io::ErrorKind::UnexpectedEof, why)
    })?;
    Ok(total)
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

#[cfg(all(test, feature = "zlib"))]
mod tests {
    use std::io::{BufReader, Read};

    use super::*;
    use crate::Packer;

    /// A buffer of the input can end within the magic number of the next stream, or between the two
    /// bytes by which garbage differs from it.
    #[test]
    fn garbage_is_told_from_a_stream_wherever_a_buffer_ends() {
        let mut packer = Packer::new(Wrapper::Gzip, None).unwrap();
        let mut stream = Vec::new();
        packer.pack(b"content", &mut stream).unwrap();
        let two = [&stream[..], &stream].concat();
        let garbage = [&stream[..], &[0x1f, 0xff, 1]].concat();
        let cut = [&stream[..], &[0x1f]].concat();
        for split in [stream.len(), stream.len() + 1] {
            let decompress = |bytes: &[u8]| {
                let (first, rest) = bytes.split_at(split);
                let mut out = Vec::new();
                let mut input = BufReader::with_capacity(1, first).chain(rest);
                let done = Wrapper::Gzip.decompress(&mut input, &mut out);
                done.map(|done| (done.bytes, done.has_garbage))
            };
            assert_eq!(decompress(&two).unwrap(), (14, false));
            assert_eq!(decompress(&garbage).unwrap(), (7, true));
            let error = decompress(&cut).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
