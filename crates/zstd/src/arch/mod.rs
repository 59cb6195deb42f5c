//! The only unsafe code. Each file here is a twin of safe code that is always compiled.

#[cfg(feature = "compress")]
pub(crate) mod find;
