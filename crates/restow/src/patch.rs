//! Patches between two files, made and applied.

pub use ::delta::{
    APPLY_MEMORY_BYTES, Applied, ApplyOptions, DeltaOptions, DeltaSummary, Destination, Header,
    Patch, PatchError, PatchFile, make,
};
