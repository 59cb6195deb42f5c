//! SHA-256, for the formats that store it.

use sha2::{Digest, Sha256};

/// The SHA-256 (FIPS 180-4) of `bytes`.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
