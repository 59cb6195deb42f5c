//! The encoder.
