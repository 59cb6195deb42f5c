//! XXH32 and XXH64: fast non-cryptographic hashes, without a standard library or an allocator.
#![no_std]
#![forbid(unsafe_code)]
