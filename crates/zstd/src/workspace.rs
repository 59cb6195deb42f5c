//! Carving a caller's memory into the parts that a codec needs.

// ---- reading (feature `decompress`) ----

// ---- writing (feature `compress`) ----
