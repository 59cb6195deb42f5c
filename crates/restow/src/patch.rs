//! Patches between two files, made and applied.

pub use ::delta::{DeltaOptions, DeltaSummary, make};
pub use ::patch::format::{APPLY_MEMORY_BYTES, Header};
pub use ::patch::{Applied, ApplyOptions, Destination, Patch, PatchError, PatchFile, is_same};
