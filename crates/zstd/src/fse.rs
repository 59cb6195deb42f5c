//! Finite State Entropy tables (RFC 8878, section 4.1).

// ---- reading (feature `decompress`) ----

// ---- writing (feature `compress`) ----
