//! Kernels with raw pointers, the only unsafe code of the crate.
//!
//! Each has a safe twin beside its caller, which is the definition and is always compiled. Without
//! the crate feature `arch` this module is left out.

#![allow(unsafe_code, reason = "this is where it may be")]

#[cfg(any(target_arch = "x86_64", feature = "assume-bmi"))]
pub(crate) mod bmi;

// ---- reading (feature `decompress`) ----

#[cfg(all(feature = "decompress", target_pointer_width = "64"))]
pub(crate) mod huffman;
#[cfg(all(feature = "decompress", target_pointer_width = "64"))]
pub(crate) mod sequences;

// ---- writing (feature `compress`) ----

#[cfg(feature = "compress")]
mod access;
#[cfg(feature = "compress")]
pub(crate) mod compare;
#[cfg(feature = "compress")]
pub(crate) mod entropy;
#[cfg(feature = "compress")]
pub(crate) mod find;
#[cfg(feature = "compress")]
mod out;

/// An expression that the comment before it proves valid: see `search`.
#[cfg(feature = "compress")]
macro_rules! proven {
    ($read:expr) => {
        // SAFETY: the comment at each use proves it.
        unsafe { $read }
    };
}

/// A function whose documentation states the obligations of its caller: see `search`.
#[cfg(feature = "compress")]
macro_rules! proven_fn {
    ($(#[$meta:meta])* $visibility:vis fn $($rest:tt)*) => {
        $(#[$meta])*
        $visibility unsafe fn $($rest)*
    };
}

#[cfg(feature = "compress")]
pub(crate) mod search;
#[cfg(feature = "compress")]
pub(crate) mod streams;

/// Which twin of each kernel a test wants, on its own thread.
#[cfg(all(test, feature = "decompress"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Twin {
    /// The fastest that the processor allows.
    Fastest,
    /// Pointers, and no instructions that not every processor has.
    Plain,
    /// Safe code.
    Safe,
}

#[cfg(all(test, feature = "decompress"))]
std::thread_local! {
    pub(crate) static TWIN: core::cell::Cell<Twin> = const { core::cell::Cell::new(Twin::Fastest) };
}

#[cfg(all(test, feature = "decompress"))]
pub(crate) fn twin() -> Twin {
    TWIN.with(core::cell::Cell::get)
}
