//! Kernels with raw pointers, the only unsafe code of the crate.
//!
//! Each has a safe twin beside its caller, which is the definition and is always compiled. The crate feature `portable`
//! leaves this module out.

#![allow(unsafe_code, reason = "this is where it may be")]

// ---- reading (feature `decompress`) ----

#[cfg(all(feature = "decompress", target_pointer_width = "64"))]
pub(crate) mod huffman;
#[cfg(all(feature = "decompress", target_pointer_width = "64"))]
pub(crate) mod sequences;

// ---- writing (feature `compress`) ----

#[cfg(feature = "compress")]
pub(crate) mod find;

/// Whether the processor has the instructions that the fast versions of the kernels are built with. Without
/// the standard library, whether every processor that the crate is built for has them.
#[cfg(all(feature = "decompress", target_arch = "x86_64"))]
fn is_haswell() -> bool {
    #[cfg(feature = "std")]
    return std::is_x86_feature_detected!("avx2")
        && std::is_x86_feature_detected!("bmi1")
        && std::is_x86_feature_detected!("bmi2")
        && std::is_x86_feature_detected!("lzcnt");
    #[cfg(not(feature = "std"))]
    return cfg!(all(
        target_feature = "avx2",
        target_feature = "bmi1",
        target_feature = "bmi2",
        target_feature = "lzcnt"
    ));
}
