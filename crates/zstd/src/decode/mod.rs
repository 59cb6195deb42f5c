//! The decoder.
