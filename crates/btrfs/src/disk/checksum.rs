//! The four checksum algorithms (`fs/btrfs/accessors.h`, `enum btrfs_csum_type`), for superblocks,
//! tree blocks and data.

use tree::{Checksum, Error, Result};

use crate::disk::raw::CHECKSUM_BYTES;

/// The checksum algorithm of a file system, for metadata and data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChecksumType {
    /// CRC-32C, 4 bytes: the default.
    #[default]
    Crc32c,
    /// XXH64 with seed 0, 8 bytes.
    Xxhash64,
    /// SHA-256, 32 bytes.
    Sha256,
    /// BLAKE2b with a 32-byte digest.
    Blake2b,
}

impl ChecksumType {
    /// All algorithms, in the order of their IDs on disk.
    pub const ALL: [ChecksumType; 4] = [
        ChecksumType::Crc32c,
        ChecksumType::Xxhash64,
        ChecksumType::Sha256,
        ChecksumType::Blake2b,
    ];

    /// The algorithm with this ID on disk (`csum_type`).
    ///
    /// # Errors
    /// [`Error::Unsupported`] if Linux does not define the ID.
    pub fn parse(number: u16) -> Result<ChecksumType> {
        (Self::ALL.get(usize::from(number)).copied()).ok_or(Error::Unsupported(
            "a btrfs checksum type of a newer kernel",
        ))
    }

    /// Its ID on disk.
    pub const fn number(self) -> u16 {
        match self {
            ChecksumType::Crc32c => 0,
            ChecksumType::Xxhash64 => 1,
            ChecksumType::Sha256 => 2,
            ChecksumType::Blake2b => 3,
        }
    }

    /// Its name, as in `mkfs.btrfs --checksum`.
    pub const fn name(self) -> &'static str {
        match self {
            ChecksumType::Crc32c => "crc32c",
            ChecksumType::Xxhash64 => "xxhash",
            ChecksumType::Sha256 => "sha256",
            ChecksumType::Blake2b => "blake2b",
        }
    }

    /// The equivalent in the terms shared by all formats.
    pub(crate) const fn verifies(self) -> Checksum {
        match self {
            ChecksumType::Crc32c => Checksum::Crc32c,
            ChecksumType::Xxhash64 => Checksum::Xxh64,
            ChecksumType::Sha256 => Checksum::Sha256,
            ChecksumType::Blake2b => Checksum::Blake2b,
        }
    }

    /// Size of one checksum in bytes.
    pub const fn size(self) -> usize {
        match self {
            ChecksumType::Crc32c => 4,
            ChecksumType::Xxhash64 => 8,
            ChecksumType::Sha256 | ChecksumType::Blake2b => 32,
        }
    }

    /// The checksum of `bytes`, padded with zeros after [`ChecksumType::size`].
    pub fn of(self, bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
        let mut sum = [0; CHECKSUM_BYTES];
        match self {
            ChecksumType::Crc32c => {
                sum[..4].copy_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
            }
            ChecksumType::Xxhash64 => {
                sum[..8].copy_from_slice(&xxhash::xxh64(bytes, 0).to_le_bytes());
            }
            ChecksumType::Sha256 => sum = tree::sha256(bytes),
            ChecksumType::Blake2b => {
                let hash = blake2b_simd::Params::new().hash_length(32).hash(bytes);
                sum.copy_from_slice(hash.as_bytes());
            }
        }
        sum
    }

    /// Whether `stored`, as in the header of a block, begins with the checksum of `bytes`.
    pub(crate) fn is_of(self, bytes: &[u8], stored: &[u8; CHECKSUM_BYTES]) -> bool {
        let sum = self.of(bytes);
        sum.iter()
            .zip(stored)
            .take(self.size())
            .all(|(a, b)| a == b)
    }
}

/// The hash of a name: the key offset of directory entries and attributes and, seeded with the
/// directory's inode number, of extended references. CRC-32C without the initial and final
/// inversions.
pub(crate) fn name_hash(seed: u32, name: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, name)
}

/// The seed of [`name_hash`] for directory entries and attributes.
pub(crate) const NAME_SEED: u32 = !1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_vectors() {
        // RFC 3720 B.4; the xxHash specification; FIPS 180-2; RFC 7693 has only BLAKE2b-512, hence
        // the output of b2sum
        // -l 256.
        let digest = |kind: ChecksumType, text: &[u8]| {
            let sum = kind.of(text);
            assert!(sum[kind.size()..].iter().all(|&byte| byte == 0));
            sum[..kind.size()]
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        assert_eq!(digest(ChecksumType::Crc32c, &[0; 32]), "aa36918a");
        assert_eq!(digest(ChecksumType::Xxhash64, b""), "99e9d85137db46ef");
        assert_eq!(
            digest(ChecksumType::Sha256, b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(
            digest(ChecksumType::Blake2b, b"abc"),
            "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319"
        );
        for kind in ChecksumType::ALL {
            assert_eq!(ChecksumType::parse(kind.number()).unwrap(), kind);
        }
        assert!(ChecksumType::parse(4).is_err());
    }

    #[test]
    fn names_hash_as_the_kernel_does() {
        // `default` in the root tree's directory, present in every file system: key (6 DIR_ITEM
        // 2378154706).
        assert_eq!(name_hash(NAME_SEED, b"default"), 2_378_154_706);
    }
}
