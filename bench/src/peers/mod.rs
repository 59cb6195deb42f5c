//! Codecs under test, all with the same two calls each way: one shot, and a stream in pieces.
//!
//! A peer keeps its context (or workspace) from call to call, as a file system does.

/// C's libzstd by its binding.
mod c;
/// The crate zstd of this repository.
mod ours {
    use crate::peers::calls::{Decode, Encode, PIECE};
    use zstd as codec;
    include!("ours.rs");
}
/// The same without unsafe code.
mod portable {
    use crate::peers::calls::{Decode, Encode, PIECE};
    use zstd_portable as codec;
    include!("ours.rs");
}
/// The calls of all codecs.
mod calls;
/// Others in Rust.
#[cfg(feature = "rust-peers")]
mod rust;

use c::{CDecoder, CEncoder};
use calls::{Decode, Encode};
use ours::{OurDecoder, OurEncoder};

/// One decoder.
pub(crate) struct Decoder {
    name: String,
    codec: Box<dyn Decode>,
}

impl Decoder {
    pub(crate) fn new(name: &str) -> Result<Self, String> {
        let codec: Box<dyn Decode> = match name {
            "c" | "c-again" => Box::new(CDecoder::new()?),
            "ours" => Box::new(OurDecoder::new()),
            "portable" => Box::new(portable::OurDecoder::new()),
            #[cfg(feature = "rust-peers")]
            other if rust::Peer::new(other).is_some() => {
                Box::new(rust::Peer::new(other).ok_or("no such peer")?)
            }
            _ => return Err(format!("no decoder is called {name}")),
        };
        let name = name.to_owned();
        Ok(Self { name, codec })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Decodes a frame at once; returns the length of the content.
    pub(crate) fn decode(&mut self, frame: &[u8], output: &mut [u8]) -> Result<usize, String> {
        self.codec.decode(frame, output)
    }

    /// Decodes a frame in pieces into consecutive places of `output`.
    pub(crate) fn decode_stream(
        &mut self,
        frame: &[u8],
        output: &mut [u8],
    ) -> Result<usize, String> {
        self.codec.decode_stream(frame, output)
    }
}

/// One encoder.
pub(crate) struct Encoder {
    name: String,
    codec: Box<dyn Encode>,
}

impl Encoder {
    pub(crate) fn new(name: &str) -> Result<Self, String> {
        let codec: Box<dyn Encode> = match name {
            "c" | "c-again" => Box::new(CEncoder::new()?),
            "ours" => Box::new(OurEncoder::new()),
            "portable" => Box::new(portable::OurEncoder::new()),
            #[cfg(feature = "rust-peers")]
            other if rust::Peer::new(other).is_some() => {
                Box::new(rust::Peer::new(other).ok_or("no such peer")?)
            }
            _ => return Err(format!("no encoder is called {name}")),
        };
        let name = name.to_owned();
        Ok(Self { name, codec })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Room for any frame of so much content.
    pub(crate) fn bound(content: usize) -> usize {
        content + content / 64 + 1024
    }

    /// Makes a frame at once: content size in the header, no checksum; returns its length.
    pub(crate) fn encode(
        &mut self,
        level: i32,
        content: &[u8],
        output: &mut [u8],
    ) -> Result<usize, String> {
        self.codec.encode(level, content, output)
    }

    /// Makes a frame of unknown content size in pieces; returns its length.
    pub(crate) fn encode_stream(
        &mut self,
        level: i32,
        content: &[u8],
        output: &mut [u8],
    ) -> Result<usize, String> {
        self.codec.encode_stream(level, content, output)
    }
}
