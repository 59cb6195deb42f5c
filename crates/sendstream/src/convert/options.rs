//! The options of a conversion, and its summary.

use codec::{Algorithm, Encoder, Settings};
use tree::{Error, Result, setters};

use crate::encoded::compression;
use crate::raw::Version;

/// The largest sector of btrfs.
const SECTOR_BYTES_MAX: u32 = 64 << 10;
/// Unless set, the most zeros for punched holes in one conversion.
const ZEROS_BYTES_MAX: u64 = 16 << 30;

/// The treatment of file data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recode {
    /// Stays as it is, as far as the version can hold it.
    #[default]
    Keep,
    /// Is decoded.
    Decode,
    /// Is encoded with these settings where that makes it smaller, and stored plain elsewhere.
    Encode(Settings),
}

/// How to convert.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConvertOptions {
    /// The version of the result; by default that of the source, or 2 if data of version 1 is to be
    /// encoded.
    pub version: Option<Version>,
    /// The treatment of file data.
    pub recode: Recode,
    /// The sector size of the file system that will receive the stream: encoded writes begin and
    /// end with a sector.
    pub sector_bytes: u32,
    /// Leave out file attributes, which version 1 does not have.
    pub drops_fileattr: bool,
    /// Leave out fs-verity, which versions before 3 do not have.
    pub drops_verity: bool,
    /// Believe that no punched hole reaches beyond the end of its file. Version 1 needs zeros for a
    /// hole, and zeros beyond the end make the file longer; the stream does not always state the
    /// size.
    pub trusts_holes: bool,
    /// The most zeros to write for punched holes, which need a few bytes in version 2.
    pub zeros_bytes_max: u64,
}

setters!(ConvertOptions {
    version: Option<Version>,
    recode: Recode,
    sector_bytes: u32,
    drops_fileattr: bool,
    drops_verity: bool,
    trusts_holes: bool,
    zeros_bytes_max: u64,
});

impl Default for ConvertOptions {
    fn default() -> Self {
        ConvertOptions {
            version: None,
            recode: Recode::default(),
            sector_bytes: 4096,
            drops_fileattr: false,
            drops_verity: false,
            trusts_holes: false,
            zeros_bytes_max: ZEROS_BYTES_MAX,
        }
    }
}

/// The summary of a conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Converted {
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Commands read.
    pub commands: u64,
    /// Times of creation left out, which version 1 does not have.
    pub otimes_dropped: u64,
    /// File attributes left out.
    pub fileattrs_dropped: u64,
    /// Commands that enable fs-verity left out.
    pub verity_dropped: u64,
    /// Zeros written for punched holes.
    pub zeros_bytes: u64,
}

/// Refuses options that btrfs cannot have.
pub(super) fn check(options: &ConvertOptions) -> Result<()> {
    let sector = options.sector_bytes;
    if !sector.is_power_of_two() || !(4096..=SECTOR_BYTES_MAX).contains(&sector) {
        return Err(Error::InvalidInput(
            "btrfs has sectors of 4096 to 65536 bytes, a power of two",
        ));
    }
    if let Recode::Encode(settings) = options.recode {
        if options.version == Some(Version::V1) {
            return Err(Error::InvalidInput(
                "version 1 of send streams has no compressed data",
            ));
        }
        if algorithm(settings, sector).is_none() || Encoder::new(&settings).is_err() {
            return Err(Error::InvalidInput(
                "btrfs has no such compression, or not at this level",
            ));
        }
    }
    Ok(())
}

/// The algorithm in a stream for these settings.
pub(super) fn algorithm(settings: Settings, sector_bytes: u32) -> Option<Algorithm> {
    let algorithm = match settings.algorithm() {
        Algorithm::Lzo => Algorithm::LzoBtrfs { sector_bytes },
        algorithm => algorithm,
    };
    compression(algorithm).map(|_| algorithm)
}
