//! Tests of the codec through its public interface, by layer.
#![forbid(unsafe_code)]
#![cfg_attr(
    miri,
    allow(
        dead_code,
        unused_imports,
        reason = "its callers are left out under Miri"
    )
)]

/// The adapters for `std::io`, and vectors.
#[cfg(all(
    feature = "std",
    feature = "compress",
    feature = "decompress",
    not(miri)
))]
mod adapters;
/// Frames put together by hand.
#[cfg(feature = "decompress")]
mod assemble;
/// Blocks without a frame, and what else a C interface stands on.
#[cfg(all(feature = "compress", feature = "decompress", not(miri)))]
mod blocks;
/// The hand-made vectors.
#[cfg(feature = "decompress")]
mod catalogue;
/// Small frames as literals.
#[cfg(feature = "decompress")]
mod decode;
/// The same as C's decoder and a slow one, frame after frame.
#[cfg(all(feature = "decompress", not(miri)))]
mod differential;
/// What our frames were when somebody last looked at them.
#[cfg(all(feature = "compress", feature = "decompress", not(miri)))]
mod digests;
/// Every way to decode a frame.
#[cfg(feature = "decompress")]
mod doors;
/// Frames that we make, decoded by C.
#[cfg(all(feature = "compress", not(miri)))]
mod encode;
/// Streams and dictionaries that we make, decoded by C.
#[cfg(all(feature = "compress", not(miri)))]
mod encode_stream;
/// Valid frames that an encoder would hardly make.
#[cfg(feature = "decompress")]
mod generator;
/// Frames that ask for too much.
#[cfg(all(feature = "decompress", not(miri)))]
mod limits;
/// A dictionary with codes that are too long for a frame.
#[cfg(all(feature = "compress", feature = "decompress", not(miri)))]
mod long_codes;
/// What Miri runs instead of the modules that ask C or take it too long.
#[cfg(all(feature = "compress", feature = "decompress", miri))]
mod miri;
/// Dictionaries that are made ready once.
#[cfg(all(feature = "compress", feature = "decompress", not(miri)))]
mod prepared;
/// A slow decoder after the RFC.
#[cfg(all(feature = "decompress", not(miri)))]
mod reference;
/// How deep the codec goes down the stack, with each set of features: it compiles them itself, so
/// once is enough.
#[cfg(all(
    feature = "arch",
    feature = "compress",
    feature = "decompress",
    target_os = "linux",
    not(miri)
))]
mod stack;
/// Changes within a frame.
#[cfg(all(feature = "compress", feature = "decompress", not(miri)))]
mod stages;
/// Known bytes, known answers.
#[cfg(all(feature = "decompress", not(miri)))]
mod vectors;
/// Memory of exactly the size that is asked for.
#[cfg(all(feature = "compress", feature = "decompress", not(miri)))]
mod workspaces;
