//! The literals section of a block (RFC 8878, section 3.1.1.3.1).

// ---- reading (feature `decompress`) ----

// ---- writing (feature `compress`) ----
