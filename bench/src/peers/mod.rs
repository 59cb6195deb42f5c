//! Codecs under test, all with the same two calls each way: one shot, and a stream in pieces.
//!
//! A peer keeps its context (or workspace) from call to call, as a file system does.

/// C's libzstd by its binding.
mod c;
/// The crate zstd of this repository.
mod ours {
    use crate::peers::pieces::PIECE;
    use zstd as codec;
    include!("ours.rs");
}
/// The same without unsafe code.
mod portable {
    use crate::peers::pieces::PIECE;
    use zstd_portable as codec;
    include!("ours.rs");
}
/// How a stream is divided.
mod pieces;
/// Others in Rust.
#[cfg(feature = "rust-peers")]
mod rust;

use c::{CDecoder, CEncoder};
use ours::{OurDecoder, OurEncoder};

/// One decoder.
pub(crate) enum Decoder {
    C(&'static str, CDecoder),
    Ours(OurDecoder),
    Portable(portable::OurDecoder),
    #[cfg(feature = "rust-peers")]
    Rust(rust::Peer),
}

impl Decoder {
    pub(crate) fn new(name: &str) -> Result<Self, String> {
        Ok(match name {
            "c" => Self::C("c", CDecoder::new()?),
            "c-again" => Self::C("c-again", CDecoder::new()?),
            "ours" => Self::Ours(OurDecoder::new()),
            "portable" => Self::Portable(portable::OurDecoder::new()),
            #[cfg(feature = "rust-peers")]
            other if rust::Peer::new(other).is_some() => {
                Self::Rust(rust::Peer::new(other).ok_or("no such peer")?)
            }
            _ => return Err(format!("no decoder is called {name}")),
        })
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::C(name, _) => name,
            Self::Ours(_) => "ours",
            Self::Portable(_) => "portable",
            #[cfg(feature = "rust-peers")]
            Self::Rust(peer) => peer.name(),
        }
    }

    /// Decodes a frame at once; returns the length of the content.
    pub(crate) fn decode(&mut self, frame: &[u8], output: &mut [u8]) -> Result<usize, String> {
        match self {
            Self::C(_, c) => c.decode(frame, output),
            Self::Ours(ours) => ours.decode(frame, output),
            Self::Portable(ours) => ours.decode(frame, output),
            #[cfg(feature = "rust-peers")]
            Self::Rust(peer) => peer.decode(frame, output),
        }
    }

    /// Decodes a frame in pieces into consecutive places of `output`.
    pub(crate) fn decode_stream(
        &mut self,
        frame: &[u8],
        output: &mut [u8],
    ) -> Result<usize, String> {
        match self {
            Self::C(_, c) => c.decode_stream(frame, output),
            Self::Ours(ours) => ours.decode_stream(frame, output),
            Self::Portable(ours) => ours.decode_stream(frame, output),
            #[cfg(feature = "rust-peers")]
            Self::Rust(peer) => Err(format!("{} does not decode streams here", peer.name())),
        }
    }
}

/// One encoder.
pub(crate) enum Encoder {
    C(&'static str, CEncoder),
    Ours(OurEncoder),
    Portable(portable::OurEncoder),
    #[cfg(feature = "rust-peers")]
    Rust(rust::Peer),
}

impl Encoder {
    pub(crate) fn new(name: &str) -> Result<Self, String> {
        Ok(match name {
            "c" => Self::C("c", CEncoder::new()?),
            "c-again" => Self::C("c-again", CEncoder::new()?),
            "ours" => Self::Ours(OurEncoder::new()),
            "portable" => Self::Portable(portable::OurEncoder::new()),
            #[cfg(feature = "rust-peers")]
            other if rust::Peer::new(other).is_some() => {
                Self::Rust(rust::Peer::new(other).ok_or("no such peer")?)
            }
            _ => return Err(format!("no encoder is called {name}")),
        })
    }

    /// Room for any frame of so much content.
    pub(crate) fn bound(content: usize) -> usize {
        content + content / 64 + 1024
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::C(name, _) => name,
            Self::Ours(_) => "ours",
            Self::Portable(_) => "portable",
            #[cfg(feature = "rust-peers")]
            Self::Rust(peer) => peer.name(),
        }
    }

    /// Makes a frame at once: content size in the header, no checksum; returns its length.
    pub(crate) fn encode(
        &mut self,
        level: i32,
        content: &[u8],
        output: &mut [u8],
    ) -> Result<usize, String> {
        match self {
            Self::C(_, c) => c.encode(level, content, output),
            Self::Ours(ours) => ours.encode(level, content, output),
            Self::Portable(ours) => ours.encode(level, content, output),
            #[cfg(feature = "rust-peers")]
            Self::Rust(peer) => peer.encode(level, content, output),
        }
    }

    /// Makes a frame of unknown content size in pieces; returns its length.
    pub(crate) fn encode_stream(
        &mut self,
        level: i32,
        content: &[u8],
        output: &mut [u8],
    ) -> Result<usize, String> {
        match self {
            Self::C(_, c) => c.encode_stream(level, content, output),
            Self::Ours(ours) => ours.encode_stream(level, content, output),
            Self::Portable(ours) => ours.encode_stream(level, content, output),
            #[cfg(feature = "rust-peers")]
            Self::Rust(peer) => Err(format!("{} does not encode streams here", peer.name())),
        }
    }
}
