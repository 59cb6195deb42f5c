//! Raw and formatted dictionaries (RFC 8878, section 5).

// ---- reading (feature `decompress`) ----

// ---- writing (feature `compress`) ----
