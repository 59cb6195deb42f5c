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
/// The same as C's decoder and a slow one, frame after frame.
#[cfg(feature = "decompress")]
mod differential;
/// Every way to decode a frame.
#[cfg(feature = "decompress")]
mod doors;
/// Frames that we make, decoded by C.
#[cfg(feature = "compress")]
mod encode;
/// Streams and dictionaries that we make, decoded by C.
#[cfg(feature = "compress")]
mod encode_stream;
/// Valid frames that an encoder would hardly make.
#[cfg(feature = "decompress")]
mod generator;
/// Frames that ask for too much.
#[cfg(feature = "decompress")]
mod limits;
/// A slow decoder after the RFC.
#[cfg(feature = "decompress")]
mod reference;
/// How deep decoding goes down the stack.
#[cfg(all(feature = "decompress", target_os = "linux"))]
mod stack;
/// Known bytes, known answers.
#[cfg(feature = "decompress")]
mod vectors;
