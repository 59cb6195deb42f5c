//! Frame and block headers (RFC 8878, section 3.1.1).

// ---- reading (feature `decompress`) ----

// ---- writing (feature `compress`) ----
