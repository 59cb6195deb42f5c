//! Parameters of encoders.

use core::ffi::{c_int, c_uint};

use zstd::{CompressionParameters, Error, LEVEL_MAX, Params};

use super::returned;
use crate::encode::known;

/// Bytes of content that are expected behind a dictionary, where their number is unknown.
const EXPECTED_SIZE: u64 = 500;

/// The size that parameters are chosen for.
fn expected(size: u64, dict_size: usize) -> Option<u64> {
    known(size).or((dict_size > 0).then_some(EXPECTED_SIZE))
}

/// `ZSTD_compressionParameters`, 28 bytes. As today's, but that strategies count from 0.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Compression {
    /// Logarithm of the window.
    pub window_log: c_uint,
    /// Logarithm of the size of chains, or of a second table.
    pub chain_log: c_uint,
    /// Logarithm of the size of the largest hash table.
    pub hash_log: c_uint,
    /// Logarithm of the number of candidates.
    pub search_log: c_uint,
    /// Shortest match, or 0.
    pub search_length: c_uint,
    /// Length of a sufficient match, or acceleration.
    pub target_length: c_uint,
    /// `ZSTD_strategy`: 0 (fast) to 7 (btopt2).
    pub strategy: c_uint,
}

/// `ZSTD_frameParameters`: the optional fields of a frame.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FrameParameters {
    /// Whether the header tells the size of the content, if it is known.
    pub content_size_flag: c_uint,
    /// Whether a checksum of the content is at the end.
    pub checksum_flag: c_uint,
    /// Whether the header does not name the dictionary.
    pub no_dict_id_flag: c_uint,
}

/// `ZSTD_parameters`, 40 bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Parameters {
    /// How matches are found.
    pub compression: Compression,
    /// The optional fields of a frame.
    pub frame: FrameParameters,
}

impl Compression {
    fn new(numbers: CompressionParameters) -> Self {
        Compression {
            window_log: numbers.window_log,
            chain_log: numbers.chain_log,
            hash_log: numbers.hash_log,
            search_log: numbers.search_log,
            search_length: numbers.min_match,
            target_length: numbers.target_length,
            strategy: numbers.strategy.wrapping_sub(1),
        }
    }

    fn numbers(&self) -> CompressionParameters {
        CompressionParameters {
            window_log: self.window_log,
            chain_log: self.chain_log,
            hash_log: self.hash_log,
            search_log: self.search_log,
            min_match: self.search_length,
            target_length: self.target_length,
            strategy: self.strategy.wrapping_add(1),
        }
    }

    /// The parameters of frames that tell nothing.
    pub(super) fn params(&self) -> Result<Params, Error> {
        let mut params = self.numbers().params()?;
        params.content_size = false;
        Ok(params)
    }
}

impl Parameters {
    pub(super) fn params(&self) -> Result<Params, Error> {
        let mut params = self.compression.params()?;
        params.content_size = self.frame.content_size_flag != 0;
        params.checksum = self.frame.checksum_flag != 0;
        params.dictionary_id = self.frame.no_dict_id_flag == 0;
        Ok(params)
    }
}

/// The strongest level.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn ZSTD_maxCLevel() -> c_int {
    LEVEL_MAX
}

/// The largest size of a frame of so much content, or an error if no frame has as much.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn ZSTD_compressBound(src_size: usize) -> usize {
    let bound = src_size.checked_add((src_size >> 7) + 512 + 12);
    returned(bound.ok_or(Error::SrcSizeWrong.into()))
}

/// The parameters of a level for content of a size, 0 if that is unknown, behind a dictionary.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn ZSTD_getCParams(
    level: c_int,
    estimated_src_size: u64,
    dict_size: usize,
) -> Compression {
    let size = expected(estimated_src_size, dict_size);
    let params = Params::for_level_with_dictionary(level, size, dict_size);
    Compression::new(CompressionParameters::new(&params))
}

/// As [`ZSTD_getCParams`]; the header does not tell the size of the content.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn ZSTD_getParams(
    level: c_int,
    estimated_src_size: u64,
    dict_size: usize,
) -> Parameters {
    Parameters {
        compression: ZSTD_getCParams(level, estimated_src_size, dict_size),
        frame: FrameParameters {
            content_size_flag: 0,
            checksum_flag: 0,
            no_dict_id_flag: 0,
        },
    }
}

/// Whether an encoder takes these parameters: 0, or an error.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn ZSTD_checkCParams(parameters: Compression) -> usize {
    let checked = parameters.numbers().check();
    returned(checked.map(|()| 0).map_err(Into::into))
}

/// The same parameters, with window and tables reduced to the need of the content. Those that no
/// encoder takes stay as they are.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn ZSTD_adjustCParams(
    parameters: Compression,
    src_size: u64,
    dict_size: usize,
) -> Compression {
    let size = expected(src_size, dict_size);
    let adjusted = parameters.numbers().adjust(size, dict_size);
    adjusted.map_or(parameters, Compression::new)
}
