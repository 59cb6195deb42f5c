//! The sequences section of a block (RFC 8878, section 3.1.1.3.2), and repeat offsets.

// ---- reading (feature `decompress`) ----

// ---- writing (feature `compress`) ----
