//! The errors of codecs.

use std::fmt;

use crate::Algorithm;

/// Why a block could not be decoded, or an encoder could not be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Error {
    /// A level or size is out of range; the text says which.
    Settings(&'static str),
    /// The block breaks its format; the text names the codec.
    Corrupt(&'static str),
    /// The frame around the blocks of an extent is broken.
    Framing {
        /// The broken rule.
        what: &'static str,
        /// The offset in the stored bytes.
        at: usize,
        /// The value found there.
        got: u64,
    },
    /// The block holds more than the destination.
    DstSizeTooSmall,
    /// The block requires more memory than its size can justify.
    MemoryLimit,
    /// The codec's feature was not enabled when this crate was built; the text names it.
    NotBuilt(&'static str),
    /// An error of the LZO decoder.
    #[cfg(feature = "lzo")]
    Lzo(lzo::Error),
    /// An error of zstd.
    #[cfg(feature = "zstd")]
    Zstd(zstd::Error),
}

impl Error {
    /// The offset in the stored bytes of the block and the value there: the wrong value if it is
    /// known, otherwise the first eight bytes as a number, in the order in which a hex dump shows
    /// them.
    pub fn found(self, stored: &[u8]) -> (usize, u64) {
        match self {
            Error::Framing { at, got, .. } => (at, got),
            _ => (0, first_bytes(stored)),
        }
    }

    /// The error of a codec that was not built.
    #[allow(dead_code, reason = "all codecs can be built")]
    pub(crate) const fn not_built(algorithm: Algorithm) -> Error {
        Error::NotBuilt(match algorithm {
            Algorithm::Zlib => "built without zlib",
            Algorithm::Zstd => "built without zstd",
            Algorithm::Lzo | Algorithm::LzoBtrfs { .. } => "built without lzo",
            Algorithm::Lz4 => "built without lz4",
            Algorithm::Xz | Algorithm::Lzma => "built without xz",
        })
    }

    /// The error in a few lower-case words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Error::Settings(what)
            | Error::Corrupt(what)
            | Error::Framing { what, .. }
            | Error::NotBuilt(what) => what,
            Error::DstSizeTooSmall => "compressed block holds more than it may",
            Error::MemoryLimit => "compressed block asks for too much memory",
            #[cfg(feature = "lzo")]
            Error::Lzo(error) => error.as_str(),
            #[cfg(feature = "zstd")]
            Error::Zstd(error) => error.as_str(),
        }
    }
}

/// The first eight bytes, or fewer, as a number in the order in which a hex dump shows them.
pub fn first_bytes(stored: &[u8]) -> u64 {
    let bytes = stored.iter().take(8);
    bytes.fold(0, |number, &byte| number << 8 | u64::from(byte))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_the_wrong_value_or_the_first_bytes() {
        let framing = Error::Framing {
            what: "length",
            at: 4,
            got: 7,
        };
        assert_eq!(framing.found(b"stored"), (4, 7));
        let stored = [0x28, 0xb5, 0x2f, 0xfd, 1, 2, 3, 4, 5];
        assert_eq!(
            Error::MemoryLimit.found(&stored),
            (0, 0x28b5_2ffd_0102_0304)
        );
        assert_eq!(Error::MemoryLimit.found(&stored[..2]), (0, 0x28b5));
        assert_eq!(Error::MemoryLimit.found(b""), (0, 0));
    }
}
