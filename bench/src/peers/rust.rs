//! Other zstd codecs in Rust, one shot only. The results of those that write only to a vector are
//! copied to the output.

use structured_zstd as structured;

use super::calls::{Decode, Encode};

/// A codec and its context.
pub(crate) enum Peer {
    Ruzstd(Box<ruzstd::decoding::FrameDecoder>),
    Structured(
        Box<structured::decoding::FrameDecoder>,
        Option<(i32, Box<structured::encoding::FrameCompressor>)>,
    ),
    ZstdRs(
        Box<zstd_rs::Decompressor>,
        Vec<u8>,
        Option<Box<zstd_rs::Compressor>>,
    ),
}

impl Peer {
    pub(crate) fn new(name: &str) -> Option<Self> {
        Some(match name {
            "ruzstd" => Self::Ruzstd(Box::new(ruzstd::decoding::FrameDecoder::new())),
            "structured-zstd" => {
                Self::Structured(Box::new(structured::decoding::FrameDecoder::new()), None)
            }
            "zstd-rs" => Self::ZstdRs(Box::new(zstd_rs::Decompressor::new()), Vec::new(), None),
            _ => return None,
        })
    }
}

impl Decode for Peer {
    fn decode(&mut self, frame: &[u8], output: &mut [u8]) -> Result<usize, String> {
        match self {
            Self::Ruzstd(decoder) => decoder
                .decode_all(frame, output)
                .map_err(|error| format!("ruzstd: {error}")),
            Self::Structured(decoder, _) => decoder
                .decode_all(frame, output)
                .map_err(|error| format!("structured-zstd: {error}")),
            Self::ZstdRs(decoder, content, _) => {
                content.clear();
                decoder
                    .decompress(frame, None, output.len(), content)
                    .map_err(|error| format!("zstd-rs: {error:?}"))?;
                place(content, output)
            }
        }
    }
}

impl Encode for Peer {
    fn encode(&mut self, level: i32, content: &[u8], output: &mut [u8]) -> Result<usize, String> {
        match self {
            Self::Ruzstd(_) => {
                let level = ruzstd::encoding::CompressionLevel::Fastest;
                place(&ruzstd::encoding::compress_to_vec(content, level), output)
            }
            Self::Structured(_, encoder) => {
                if encoder
                    .as_ref()
                    .is_none_or(|(made_for, _)| *made_for != level)
                {
                    let level_name = structured::encoding::CompressionLevel::Level(level);
                    let mut made = structured::encoding::FrameCompressor::new(level_name);
                    made.set_content_checksum(false);
                    *encoder = Some((level, Box::new(made)));
                }
                let (_, encoder) = encoder.as_mut().ok_or("just made")?;
                place(&encoder.compress_independent_frame(content), output)
            }
            Self::ZstdRs(_, frame, encoder) => {
                let fault = |error| format!("zstd-rs: {error:?}");
                frame.clear();
                if encoder
                    .as_ref()
                    .is_none_or(|made| made.config().level != level)
                {
                    let config = zstd_rs::CompressionConfig {
                        level,
                        ..zstd_rs::CompressionConfig::FAST
                    };
                    *encoder = Some(Box::new(zstd_rs::Compressor::new(config).map_err(fault)?));
                }
                let encoder = encoder.as_mut().ok_or("just made")?;
                encoder.compress(content, None, frame).map_err(fault)?;
                place(frame, output)
            }
        }
    }
}

fn place(bytes: &[u8], output: &mut [u8]) -> Result<usize, String> {
    output
        .get_mut(..bytes.len())
        .ok_or("no room")?
        .copy_from_slice(bytes);
    Ok(bytes.len())
}
