//! Tests of the codec through its public interface, by layer.
#![forbid(unsafe_code)]

/// Frames put together by hand.
#[cfg(feature = "decompress")]
mod assemble;
/// The hand-made vectors.
#[cfg(feature = "decompress")]
mod catalogue;
/// Small frames as literals.
#[cfg(feature = "decompress")]
mod decode;
/// Every way to decode a frame.
#[cfg(feature = "decompress")]
mod doors;
/// Frames that we make, decoded by C.
#[cfg(feature = "compress")]
mod encode;
/// Streams and dictionaries that we make, decoded by C.
#[cfg(feature = "compress")]
mod encode_stream;
/// Known bytes, known answers.
#[cfg(feature = "decompress")]
mod vectors;
