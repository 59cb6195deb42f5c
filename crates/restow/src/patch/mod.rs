//! Patches between two files, made and applied.

mod blocks;

pub use self::blocks::lz4_blocks;
pub use ::delta::{DeltaInput, DeltaOptions, DeltaSummary, Lz4Block, make};
pub use ::patch::format::{APPLY_MEMORY_BYTES, Header};
pub use ::patch::{Applied, ApplyOptions, Destination, Patch, PatchError, PatchFile, is_same};
