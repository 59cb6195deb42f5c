//! Bit streams: read and written in the directions that the format uses (RFC 8878, section 4).

// ---- reading (feature `decompress`) ----

// ---- writing (feature `compress`) ----
