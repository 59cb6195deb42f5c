//! Huffman tables (RFC 8878, section 4.2).

// ---- reading (feature `decompress`) ----

// ---- writing (feature `compress`) ----
