//! Contexts and dictionaries in memory from an allocator of the caller.

use core::ffi::{c_uint, c_void};
use core::mem::MaybeUninit;

#[cfg(feature = "decompress")]
use zstd::DecodeOptions;
#[cfg(feature = "decompress")]
use zstd::DecoderDictionary;
use zstd::Dictionary;
#[cfg(feature = "compress")]
use zstd::{CompressionParameters, EncoderDictionary, stream_workspace_size};

#[cfg(feature = "compress")]
use crate::CCtx;
#[cfg(feature = "decompress")]
use crate::DCtx;
use crate::allocator::{AllocatedBytes, CustomMem, create};
use crate::buffers::{destination, source};
use crate::failure::Failure;
use crate::memory::bytes;

use super::returned;

/// A dictionary that is ready to encode with: `zstd_cdict`.
#[cfg(feature = "compress")]
pub struct CDict {
    dictionary: EncoderDictionary<'static>,
    block: Option<AllocatedBytes>,
}

/// A dictionary that is ready to decode with: `zstd_ddict`.
#[cfg(feature = "decompress")]
pub struct DDict {
    dictionary: DecoderDictionary<'static>,
    block: Option<AllocatedBytes>,
}

/// `zstd_sequence`: literals, then a match.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Sequence {
    /// How far back the match lies.
    pub offset: c_uint,
    /// Literals before it.
    pub literal_length: c_uint,
    /// Its length.
    pub match_length: c_uint,
    /// Which repeat offset it is.
    pub rep: c_uint,
}

/// A context for frames in one call, which takes memory as it needs it. NULL if there is none.
#[cfg(feature = "compress")]
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_create_cctx_advanced(
    custom_mem: CustomMem,
) -> Option<&'static mut CCtx> {
    // SAFETY: the caller promises it.
    unsafe { CCtx::create(&custom_mem) }
}

/// Gives back the memory of a context that was created, 0; an error for one in a workspace. NULL is
/// none.
#[cfg(feature = "compress")]
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_free_cctx(cctx: *mut CCtx) -> usize {
    if cctx.is_null() {
        return 0;
    }
    // SAFETY: it is a context, and the caller uses it no more.
    returned(unsafe { CCtx::free(cctx) }.map(|()| 0))
}

/// Prepares a dictionary, with parameters for the content compressed with it. It is not copied.
/// Returns NULL also if it is not valid.
#[cfg(feature = "compress")]
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_create_cdict_byreference(
    dict: *const c_void,
    dict_size: usize,
    parameters: CompressionParameters,
    custom_mem: CustomMem,
) -> Option<&'static mut CDict> {
    let params = parameters.params().ok()?;
    // SAFETY: the caller promises it.
    let dictionary = Dictionary::new(unsafe { bytes(dict, dict_size) }?).ok()?;
    let make = |place: &'static mut MaybeUninit<CDict>, memory| {
        let dictionary = EncoderDictionary::new(dictionary, &params, memory).ok()?;
        Some(place.write(CDict {
            dictionary,
            block: None,
        }))
    };
    // SAFETY: the caller promises it.
    unsafe {
        create(
            &custom_mem,
            EncoderDictionary::size(&params),
            make,
            |made, block| {
                made.block = Some(block);
            },
        )
    }
}

/// Gives back the memory of a dictionary. NULL is none.
#[cfg(feature = "compress")]
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_free_cdict(cdict: *mut CDict) -> usize {
    if cdict.is_null() {
        return 0;
    }
    // SAFETY: it is a dictionary, and the caller uses it no more.
    let block = unsafe { &mut (*cdict).block }.take();
    if let Some(block) = block {
        // SAFETY: as above.
        unsafe { block.free() };
    }
    0
}

/// Compresses to one frame behind a dictionary, with its parameters; gives the frame's size, or an
/// error.
#[cfg(feature = "compress")]
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_compress_using_cdict(
    cctx: Option<&mut CCtx>,
    dst: *mut c_void,
    dst_capacity: usize,
    src: *const c_void,
    src_size: usize,
    cdict: Option<&CDict>,
) -> usize {
    let compress = || {
        let (cctx, cdict) = cctx.zip(cdict).ok_or(Failure::Null)?;
        // SAFETY: the caller promises it.
        let dst = unsafe { destination(dst, dst_capacity) }?;
        // SAFETY: the caller promises it.
        let src = unsafe { source(src, src_size) }?;
        let needed = stream_workspace_size(cdict.dictionary.params());
        let compressor = cctx.once_in(needed)?;
        Ok(compressor.compress_with_prepared(dst, src, &cdict.dictionary)?)
    };
    returned(compress())
}

/// Encodes the caller's sequences and literals, which this library does not support.
#[cfg(feature = "compress")]
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_compress_sequences_and_literals(
    _cctx: Option<&mut CCtx>,
    _dst: *mut c_void,
    _dst_capacity: usize,
    _sequences: *const Sequence,
    _sequences_count: usize,
    _literals: *const c_void,
    _literals_size: usize,
    _literals_capacity: usize,
    _src_size: usize,
) -> usize {
    returned(Err(Failure::Unsupported))
}

/// A context for frames in one call. NULL if there is no memory.
#[cfg(feature = "decompress")]
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_create_dctx_advanced(
    custom_mem: CustomMem,
) -> Option<&'static mut DCtx> {
    // SAFETY: the caller promises it.
    unsafe { DCtx::create(&custom_mem) }
}

/// Gives back the memory of a context that was created, 0; an error for one in a workspace. NULL is
/// none.
#[cfg(feature = "decompress")]
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_free_dctx(dctx: *mut DCtx) -> usize {
    if dctx.is_null() {
        return 0;
    }
    // SAFETY: it is a context, and the caller uses it no more.
    returned(unsafe { DCtx::free(dctx) }.map(|()| 0))
}

/// Prepares a dictionary. It is not copied. Returns NULL also if it is not valid.
#[cfg(feature = "decompress")]
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_create_ddict_byreference(
    dict: *const c_void,
    dict_size: usize,
    custom_mem: CustomMem,
) -> Option<&'static mut DDict> {
    // SAFETY: the caller promises it.
    let dictionary = Dictionary::new(unsafe { bytes(dict, dict_size) }?).ok()?;
    let make = |place: &'static mut MaybeUninit<DDict>, memory| {
        let dictionary = DecoderDictionary::new(dictionary, memory).ok()?;
        Some(place.write(DDict {
            dictionary,
            block: None,
        }))
    };
    // SAFETY: the caller promises it.
    unsafe {
        create(&custom_mem, DecoderDictionary::SIZE, make, |made, block| {
            made.block = Some(block);
        })
    }
}

/// Gives back the memory of a dictionary. NULL is none.
#[cfg(feature = "decompress")]
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_free_ddict(ddict: *mut DDict) -> usize {
    if ddict.is_null() {
        return 0;
    }
    // SAFETY: it is a dictionary, and the caller uses it no more.
    let block = unsafe { &mut (*ddict).block }.take();
    if let Some(block) = block {
        // SAFETY: as above.
        unsafe { block.free() };
    }
    0
}

/// Decompresses frames behind a dictionary; gives the size of their content, or an error.
#[cfg(feature = "decompress")]
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_decompress_using_ddict(
    dctx: Option<&mut DCtx>,
    dst: *mut c_void,
    dst_capacity: usize,
    src: *const c_void,
    src_size: usize,
    ddict: Option<&DDict>,
) -> usize {
    let decompress = || {
        let (dctx, ddict) = dctx.zip(ddict).ok_or(Failure::Null)?;
        // SAFETY: the caller promises it.
        let dst = unsafe { destination(dst, dst_capacity) }?;
        // SAFETY: the caller promises it.
        let src = unsafe { source(src, src_size) }?;
        let options = DecodeOptions::new().prepared(&ddict.dictionary);
        dctx.decompress(&options, dst, src)
    };
    returned(decompress())
}
