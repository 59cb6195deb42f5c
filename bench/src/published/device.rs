//! A codec as the original's devices call it: 4,096 bytes in, room for 4,096 bytes out, and the
//! output is dropped.

use std::hint::black_box;
use std::io::{self, Read, Write};

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use liblzma::stream as xz;
use zstd::{DecodeOptions, Decoder, Encoder, Finish, Frame, Params, stream_workspace_size};
use zstd_safe::{CCtx, CParameter, DCtx, InBuffer, OutBuffer, ResetDirective, get_error_name};

/// Bytes given, and bytes of room, in one call.
pub(super) const PIECE: usize = 4096;

/// Takes the output.
pub(super) type Sink<'a> = &'a mut dyn FnMut(&[u8]);

/// One direction of a codec, whose memory is kept from file to file.
pub(super) trait DeviceCodec {
    /// Passes a whole file.
    fn run(&mut self, input: &[u8], sink: Sink) -> Result<(), String>;

    /// Passes a whole file; returns the result.
    fn output(&mut self, input: &[u8]) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        self.run(input, &mut |part| bytes.extend_from_slice(part))?;
        Ok(bytes)
    }
}

/// A compressor: `method` is a codec, and a level where it has some.
pub(super) fn compressor(method: &str, peer: &str) -> Result<Box<dyn DeviceCodec>, String> {
    let (codec, level) = codec_and_level(method)?;
    Ok(match (codec, peer) {
        ("none", _) => Box::new(Nothing),
        ("zstd", "C") => {
            let mut context = CCtx::try_create().ok_or("C has no memory")?;
            let level = CParameter::CompressionLevel(level);
            context.set_parameter(level).map_err(c_fault)?;
            Box::new(CompressC(context))
        }
        ("zstd", _) => {
            let params = Params::for_level(level, None);
            // One per run, kept to its end.
            let workspace = vec![0; stream_workspace_size(&params)].leak();
            Box::new(CompressOurs(
                Encoder::new(&params, workspace).map_err(fault)?,
            ))
        }
        ("zlib", _) => {
            let level = Compression::new(level.unsigned_abs());
            Box::new(CompressZlib(Compress::new(level, true)))
        }
        ("lz4", _) => Box::new(CompressLz4),
        ("xz", _) => Box::new(CompressXz),
        _ => return Err(format!("no method is called {method}")),
    })
}

/// The decompressor of `file`.
pub(super) fn decompressor(
    method: &str,
    peer: &str,
    file: &[u8],
) -> Result<Box<dyn DeviceCodec>, String> {
    Ok(match (codec_and_level(method)?.0, peer) {
        ("none", _) => Box::new(Nothing),
        ("zstd", "C") => Box::new(DecompressC(DCtx::try_create().ok_or("C has no memory")?)),
        ("zstd", _) => {
            let Ok(Frame::Zstd(header)) = Frame::parse(file) else {
                return Err("the file does not begin with a frame".into());
            };
            let size = Decoder::workspace_size(header.window_size);
            Box::new(DecompressOurs(vec![0; size.ok_or("a large window")?]))
        }
        ("zlib", _) => Box::new(DecompressZlib(Decompress::new(true))),
        ("lz4", _) => Box::new(DecompressLz4),
        ("xz", _) => Box::new(DecompressXz),
        _ => return Err(format!("no method is called {method}")),
    })
}

/// A codec and its level.
pub(super) fn codec_and_level(method: &str) -> Result<(&str, i32), String> {
    let Some((codec, level)) = method.split_once(' ') else {
        return Ok((method, 0));
    };
    let level = level.parse();
    Ok((codec, level.map_err(|_| format!("{method} has no level"))?))
}

/// Copies each piece, as a device does from its user, and marks the last.
fn pieces(
    input: &[u8],
    mut give: impl FnMut(&[u8], bool) -> Result<(), String>,
) -> Result<(), String> {
    let mut buffer = [0; PIECE];
    let mut rest = input;
    while let Some((chunk, behind)) = rest.split_at_checked(PIECE.min(rest.len()))
        && !chunk.is_empty()
    {
        buffer[..chunk.len()].copy_from_slice(chunk);
        give(black_box(&buffer[..chunk.len()]), behind.is_empty())?;
        rest = behind;
    }
    Ok(())
}

/// The device that only copies.
struct Nothing;

impl DeviceCodec for Nothing {
    fn run(&mut self, input: &[u8], sink: Sink) -> Result<(), String> {
        pieces(input, |piece, _| {
            sink(piece);
            Ok(())
        })
    }
}

struct CompressC(CCtx<'static>);

impl DeviceCodec for CompressC {
    fn run(&mut self, input: &[u8], sink: Sink) -> Result<(), String> {
        let mut room = [0; PIECE];
        self.0.reset(ResetDirective::SessionOnly).map_err(c_fault)?;
        pieces(input, |piece, is_last| {
            let mut piece = InBuffer::around(piece);
            while piece.pos() < piece.src.len() {
                let mut out = OutBuffer::around(&mut room[..]);
                let step = self.0.compress_stream(&mut out, &mut piece);
                step.map_err(c_fault)?;
                sink(out.as_slice());
            }
            let mut is_left = is_last;
            while is_left {
                let mut out = OutBuffer::around(&mut room[..]);
                is_left = self.0.end_stream(&mut out).map_err(c_fault)? != 0;
                sink(out.as_slice());
            }
            Ok(())
        })
    }
}

struct CompressOurs(Encoder<'static, &'static mut [u8]>);

impl DeviceCodec for CompressOurs {
    fn run(&mut self, input: &[u8], sink: Sink) -> Result<(), String> {
        let mut room = [0; PIECE];
        self.0.reset(None);
        pieces(input, |mut piece, is_last| {
            let finish = if is_last {
                Finish::Frame
            } else {
                Finish::Nothing
            };
            loop {
                let done = self.0.step(piece, &mut room, finish).map_err(fault)?;
                piece = &piece[done.read..];
                sink(&room[..done.written]);
                if piece.is_empty() && (done.held == 0 || !is_last) {
                    return Ok(());
                }
            }
        })
    }
}

struct CompressZlib(Compress);

impl DeviceCodec for CompressZlib {
    fn run(&mut self, input: &[u8], sink: Sink) -> Result<(), String> {
        let mut room = [0; PIECE];
        self.0.reset();
        pieces(input, |mut piece, is_last| {
            let flush = if is_last {
                FlushCompress::Finish
            } else {
                FlushCompress::None
            };
            loop {
                let (read, written) = (self.0.total_in(), self.0.total_out());
                let status = self.0.compress(piece, &mut room, flush);
                let status = status.map_err(|error| format!("zlib: {error}"))?;
                piece = &piece[(self.0.total_in() - read) as usize..];
                let out = (self.0.total_out() - written) as usize;
                sink(&room[..out]);
                if status == Status::StreamEnd || !is_last && piece.is_empty() && out < PIECE {
                    return Ok(());
                }
            }
        })
    }
}

struct CompressLz4;

impl DeviceCodec for CompressLz4 {
    fn run(&mut self, input: &[u8], sink: Sink) -> Result<(), String> {
        let fault = |error| format!("lz4: {error}");
        let encoder = lz4::EncoderBuilder::new().build(Taker(sink));
        let mut encoder = encoder.map_err(fault)?;
        pieces(input, |piece, _| encoder.write_all(piece).map_err(fault))?;
        encoder.finish().1.map_err(fault)
    }
}

/// A writer.
struct Taker<'a>(Sink<'a>);

impl Write for Taker<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct CompressXz;

impl DeviceCodec for CompressXz {
    fn run(&mut self, input: &[u8], sink: Sink) -> Result<(), String> {
        let stream = xz::Stream::new_easy_encoder(6, xz::Check::Crc32);
        through_xz(stream, input, sink)
    }
}

struct DecompressXz;

impl DeviceCodec for DecompressXz {
    fn run(&mut self, input: &[u8], sink: Sink) -> Result<(), String> {
        through_xz(xz::Stream::new_stream_decoder(1 << 30, 0), input, sink)
    }
}

fn through_xz(
    stream: Result<xz::Stream, xz::Error>,
    input: &[u8],
    sink: Sink,
) -> Result<(), String> {
    let fault = |error| format!("xz: {error}");
    let mut stream = stream.map_err(fault)?;
    let mut room = [0; PIECE];
    pieces(input, |mut piece, is_last| {
        let action = if is_last {
            xz::Action::Finish
        } else {
            xz::Action::Run
        };
        loop {
            let (read, written) = (stream.total_in(), stream.total_out());
            let status = stream.process(piece, &mut room, action).map_err(fault)?;
            piece = &piece[(stream.total_in() - read) as usize..];
            let out = (stream.total_out() - written) as usize;
            sink(&room[..out]);
            if status == xz::Status::StreamEnd || !is_last && piece.is_empty() && out < PIECE {
                return Ok(());
            }
        }
    })
}

struct DecompressC(DCtx<'static>);

impl DeviceCodec for DecompressC {
    fn run(&mut self, input: &[u8], sink: Sink) -> Result<(), String> {
        let mut room = [0; PIECE];
        self.0.reset(ResetDirective::SessionOnly).map_err(c_fault)?;
        pieces(input, |piece, _| {
            let mut piece = InBuffer::around(piece);
            loop {
                let mut out = OutBuffer::around(&mut room[..]);
                let step = self.0.decompress_stream(&mut out, &mut piece);
                let wanted = step.map_err(c_fault)?;
                let is_full = out.pos() == PIECE;
                sink(out.as_slice());
                if wanted == 0 || piece.pos() == piece.src.len() && !is_full {
                    return Ok(());
                }
            }
        })
    }
}

struct DecompressOurs(Vec<u8>);

impl DeviceCodec for DecompressOurs {
    fn run(&mut self, input: &[u8], sink: Sink) -> Result<(), String> {
        let mut room = [0; PIECE];
        let decoder = Decoder::new(DecodeOptions::new(), &mut self.0);
        let mut decoder = decoder.map_err(fault)?;
        pieces(input, |mut piece, _| {
            loop {
                let done = decoder.step(piece, &mut room).map_err(fault)?;
                piece = &piece[done.read..];
                sink(&room[..done.written]);
                if piece.is_empty() && done.written < PIECE {
                    return Ok(());
                }
            }
        })
    }
}

struct DecompressZlib(Decompress);

impl DeviceCodec for DecompressZlib {
    fn run(&mut self, input: &[u8], sink: Sink) -> Result<(), String> {
        let mut room = [0; PIECE];
        self.0.reset(true);
        pieces(input, |mut piece, _| {
            loop {
                let (read, written) = (self.0.total_in(), self.0.total_out());
                let status = self.0.decompress(piece, &mut room, FlushDecompress::None);
                let status = status.map_err(|error| format!("zlib: {error}"))?;
                piece = &piece[(self.0.total_in() - read) as usize..];
                let out = (self.0.total_out() - written) as usize;
                sink(&room[..out]);
                if status == Status::StreamEnd || piece.is_empty() && out < PIECE {
                    return Ok(());
                }
            }
        })
    }
}

struct DecompressLz4;

impl DeviceCodec for DecompressLz4 {
    fn run(&mut self, input: &[u8], sink: Sink) -> Result<(), String> {
        let fault = |error| format!("lz4: {error}");
        let mut room = [0; PIECE];
        let mut decoder = lz4::Decoder::new(Giver(input)).map_err(fault)?;
        loop {
            let count = decoder.read(&mut room).map_err(fault)?;
            if count == 0 {
                return decoder.finish().1.map_err(fault);
            }
            sink(&room[..count]);
        }
    }
}

/// A reader that gives at most a piece.
struct Giver<'a>(&'a [u8]);

impl Read for Giver<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = buffer.len().min(PIECE);
        self.0.read(&mut buffer[..count])
    }
}

fn fault(error: zstd::Error) -> String {
    format!("ours: {error}")
}

fn c_fault(code: usize) -> String {
    format!("C: {}", get_error_name(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_through_both_devices_is_the_same() {
        let content: Vec<u8> = (0..100_003u32)
            .map(|n| (n.wrapping_mul(n) >> 11) as u8 & 0x3f)
            .collect();
        for len in [1, 3 * PIECE, content.len()] {
            for method in ["none", "zstd 1", "zstd 5", "zlib 6", "lz4", "xz"] {
                for peer in ["C", "ours"] {
                    let mut device = compressor(method, peer).unwrap();
                    device.output(&content[..len]).unwrap();
                    let packed = device.output(&content[..len]).unwrap();
                    let mut device = decompressor(method, peer, &packed).unwrap();
                    device.output(&packed).unwrap();
                    let got = device.output(&packed).unwrap();
                    assert!(got == content[..len], "{method}, {peer}, {len}");
                }
            }
        }
    }
}
