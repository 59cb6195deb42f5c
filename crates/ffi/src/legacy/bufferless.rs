//! Frames from calls that each complete their blocks, and bare blocks. The window is in the
//! workspace: the source may go away.

use core::ffi::{c_int, c_void};

use zstd::{Dictionary, Encoder, Finish, Params};

use super::compress::CDict;
use super::parameters::{Parameters, ZSTD_getParams};
use super::returned;
use crate::CCtx;
use crate::buffers::{destination, source};
use crate::encode::known;
use crate::failure::Failure;

/// Begins a frame of a level.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_compressBegin(cctx: Option<&mut CCtx>, level: c_int) -> usize {
    let params = ZSTD_getParams(level, 0, 0).params();
    returned(begin(cctx, params, None, 0))
}

/// Begins a frame of a level, behind a dictionary.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_compressBegin_usingDict(
    cctx: Option<&mut CCtx>,
    dict: *const c_void,
    dict_size: usize,
    level: c_int,
) -> usize {
    let params = ZSTD_getParams(level, 0, dict_size).params();
    // SAFETY: the caller promises it.
    let dict = unsafe { source(dict, dict_size) };
    returned(dict.and_then(|dict| begin(cctx, params, Some(dict), 0)))
}

/// Begins a frame with these parameters, behind a dictionary that may be empty. 0 stands for an
/// unknown size.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_compressBegin_advanced(
    cctx: Option<&mut CCtx>,
    dict: *const c_void,
    dict_size: usize,
    parameters: Parameters,
    pledged_src_size: u64,
) -> usize {
    // SAFETY: the caller promises it.
    let dict = unsafe { source(dict, dict_size) };
    let params = parameters.params();
    returned(dict.and_then(|dict| begin(cctx, params, Some(dict), pledged_src_size)))
}

fn begin(
    cctx: Option<&mut CCtx>,
    params: Result<Params, zstd::Error>,
    dict: Option<&'static [u8]>,
    pledged: u64,
) -> Result<usize, Failure> {
    let encoder = cctx.ok_or(Failure::Null)?.begin(&params?)?;
    if let Some(dict) = dict.filter(|dict| !dict.is_empty()) {
        encoder.set_dictionary(Some(Dictionary::new(dict)?))?;
    }
    encoder.reset(known(pledged));
    Ok(0)
}

/// Begins a frame behind a dictionary, with its parameters.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_compressBegin_usingCDict(
    cctx: Option<&mut CCtx>,
    cdict: Option<&'static CDict>,
    pledged_src_size: u64,
) -> usize {
    let begin = || {
        let (cctx, cdict) = cctx.zip(cdict).ok_or(Failure::Null)?;
        let encoder = cctx.begin(cdict.dictionary.params())?;
        encoder.set_prepared(&cdict.dictionary)?;
        encoder.reset(known(pledged_src_size));
        encoder.set_content_size(pledged_src_size > 0)?;
        Ok(0)
    };
    returned(begin())
}

/// Begins a frame as `src` has begun one. The header tells the size if that is not 0.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_copyCCtx(
    dst: Option<&mut CCtx>,
    src: Option<&CCtx>,
    pledged_src_size: u64,
) -> usize {
    let copy = || {
        let (dst, src) = dst.zip(src).ok_or(Failure::Null)?;
        dst.begin_as(src, pledged_src_size)?;
        dst.encoder()?.set_content_size(pledged_src_size > 0)?;
        Ok(0)
    };
    returned(copy())
}

/// Compresses to whole blocks; gives their size, or an error.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_compressContinue(
    cctx: Option<&mut CCtx>,
    dst: *mut c_void,
    dst_capacity: usize,
    src: *const c_void,
    src_size: usize,
) -> usize {
    // SAFETY: the caller promises it.
    let dst = unsafe { destination(dst, dst_capacity) };
    // SAFETY: the caller promises it.
    let src = unsafe { source(src, src_size) };
    returned(go_on(cctx, dst, src, Finish::Block))
}

/// Compresses the rest of the frame; returns its compressed size, or an error.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_compressEnd(
    cctx: Option<&mut CCtx>,
    dst: *mut c_void,
    dst_capacity: usize,
    src: *const c_void,
    src_size: usize,
) -> usize {
    // SAFETY: the caller promises it.
    let dst = unsafe { destination(dst, dst_capacity) };
    // SAFETY: the caller promises it.
    let src = unsafe { source(src, src_size) };
    returned(go_on(cctx, dst, src, Finish::Frame))
}

fn go_on(
    cctx: Option<&mut CCtx>,
    dst: Result<&mut [u8], Failure>,
    src: Result<&[u8], Failure>,
    finish: Finish,
) -> Result<usize, Failure> {
    let encoder = cctx.ok_or(Failure::Null)?.encoder()?;
    let (dst, src) = (dst?, src?);
    let progress = encoder.step(src, dst, finish)?;
    if progress.read < src.len() || progress.held > 0 {
        return Err(zstd::Error::DstSizeTooSmall.into());
    }
    Ok(progress.written)
}

/// Largest block of [`ZSTD_compressBlock`] in the frame that was begun.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_getBlockSizeMax(cctx: Option<&mut CCtx>) -> usize {
    let encoder = cctx.ok_or(Failure::Null).and_then(CCtx::encoder);
    returned(encoder.map(|encoder| Encoder::block_size_max(encoder)))
}

/// Compresses a block without header; gives its size, 0 if it is to be stored as it is, or an
/// error.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_compressBlock(
    cctx: Option<&mut CCtx>,
    dst: *mut c_void,
    dst_capacity: usize,
    src: *const c_void,
    src_size: usize,
) -> usize {
    let compress = || {
        let encoder = cctx.ok_or(Failure::Null)?.encoder()?;
        // SAFETY: the caller promises it.
        let dst = unsafe { destination(dst, dst_capacity) }?;
        // SAFETY: the caller promises it.
        let src = unsafe { source(src, src_size) }?;
        Ok(encoder.compress_block(dst, src)?.unwrap_or(0))
    };
    returned(compress())
}
