//! Tests of the codec through its public interface, by layer.

#[cfg(feature = "decompress")]
mod decode;
#[cfg(feature = "compress")]
mod encode;
