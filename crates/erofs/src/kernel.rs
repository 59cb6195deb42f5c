//! Versions of Linux, and the parts of the format that each of them added.

use std::fmt;
use std::str::FromStr;

use tree::Error;

use crate::superblock::{Superblock, incompat};

/// A version of Linux: 6 and 12 for 6.12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kernel(pub u16, pub u16);

impl Kernel {
    /// Uncompressed images; and lz4 in clusters of one block.
    pub(crate) const PLAIN: Kernel = Kernel(5, 4);
    /// Clusters of several blocks.
    pub(crate) const LZ4: Kernel = Kernel(5, 13);
    /// Files of chunks.
    pub(crate) const CHUNKS: Kernel = Kernel(5, 15);
    /// MicroLZMA, and further devices.
    const LZMA: Kernel = Kernel(5, 16);
    /// Inline clusters.
    const TAILS: Kernel = Kernel(5, 17);
    /// The packed inode, and clusters that several extents show.
    pub(crate) const FRAGMENTS: Kernel = Kernel(6, 1);
    /// Blocks that are not of 4 KiB, and long prefixes of attributes.
    pub(crate) const BLOCKS: Kernel = Kernel(6, 4);
    /// Deflate.
    pub(crate) const DEFLATE: Kernel = Kernel(6, 6);
    /// zstd.
    pub(crate) const ZSTD: Kernel = Kernel(6, 10);
    /// Records of extents, and blocks of 48 bits.
    pub(crate) const RECORDS: Kernel = Kernel(6, 15);
    /// Compressed metadata.
    pub(crate) const METABOX: Kernel = Kernel(6, 17);
}

impl Superblock {
    /// The oldest Linux that reads images with these features and codecs.
    pub fn min_kernel(&self) -> Kernel {
        let features = [
            (incompat::COMPR_CFGS, Kernel::LZ4),
            (incompat::CHUNKED_FILE, Kernel::CHUNKS),
            (incompat::DEVICE_TABLE, Kernel::LZMA),
            (incompat::ZTAILPACKING, Kernel::TAILS),
            (incompat::FRAGMENTS, Kernel::FRAGMENTS),
            (incompat::XATTR_PREFIXES, Kernel::BLOCKS),
            (incompat::LAYOUT_48BIT, Kernel::RECORDS),
            (incompat::METABOX, Kernel::METABOX),
        ];
        let features = features.into_iter();
        let of_features =
            features.filter_map(|(bit, kernel)| (self.incompat & bit != 0).then_some(kernel));
        let of_codecs = self.codecs().map(|name| match name {
            "lzma" => Kernel::LZMA,
            "deflate" => Kernel::DEFLATE,
            "zstd" => Kernel::ZSTD,
            _ => Kernel::PLAIN,
        });
        let of_blocks = if self.block_log2 == 12 {
            Kernel::PLAIN
        } else {
            Kernel::BLOCKS
        };
        of_features.chain(of_codecs).fold(of_blocks, Kernel::max)
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl FromStr for Kernel {
    type Err = Error;

    /// Parses two numbers with a point between them; a third one is ignored.
    fn from_str(words: &str) -> Result<Kernel, Error> {
        const WRONG: Error = Error::InvalidInput("a version of Linux is like 6.12");
        let mut numbers = words.splitn(3, '.').map(str::parse);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor)), None | Some(Ok(_))) => Ok(Kernel(major, minor)),
            _ => Err(WRONG),
        }
    }
}
