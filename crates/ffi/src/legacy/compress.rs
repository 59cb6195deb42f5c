//! Frames in one call, dictionaries, streams.

use core::ffi::c_void;

use zstd::{Dictionary, EncoderDictionary, Finish, Params};

use super::parameters::{Compression, Parameters, ZSTD_compressBound};
use super::{BLOCK_SIZE_MAX, returned};
use crate::buffers::{destination, source};
use crate::encode::{known, of_whole};
use crate::failure::Failure;
use crate::memory::{bytes, place, with};
use crate::{CCtx, InBuffer, OutBuffer};

/// A dictionary that is ready to encode with: `ZSTD_CDict`.
pub struct CDict {
    pub(super) dictionary: EncoderDictionary<'static>,
}

/// Bytes of workspace that `bound` says, or an error.
fn workspace_bound(parameters: Compression, bound: impl FnOnce(&Params) -> usize) -> usize {
    let params = parameters.params();
    returned(params.map(|params| bound(&params)).map_err(Into::into))
}

/// Bytes of workspace for a context with these parameters, with any dictionary.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn ZSTD_CCtxWorkspaceBound(parameters: Compression) -> usize {
    workspace_bound(parameters, CCtx::with_stream)
}

/// A context.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_initCCtx(
    workspace: *mut c_void,
    workspace_size: usize,
) -> Option<&'static mut CCtx> {
    // SAFETY: the caller promises it.
    unsafe { CCtx::place(workspace, workspace_size) }
}

/// Compresses to one frame; gives its size, or an error.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_compressCCtx(
    cctx: Option<&mut CCtx>,
    dst: *mut c_void,
    dst_capacity: usize,
    src: *const c_void,
    src_size: usize,
    parameters: Parameters,
) -> usize {
    let compress = || {
        let cctx = cctx.ok_or(Failure::Null)?;
        // SAFETY: the caller promises it.
        let dst = unsafe { destination(dst, dst_capacity) }?;
        // SAFETY: the caller promises it.
        let src = unsafe { source(src, src_size) }?;
        let params = of_whole(parameters.params()?, src.len());
        Ok(cctx.once()?.compress(dst, src, &params)?)
    };
    returned(compress())
}

/// As [`ZSTD_compressCCtx`], behind a dictionary.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_compress_usingDict(
    cctx: Option<&mut CCtx>,
    dst: *mut c_void,
    dst_capacity: usize,
    src: *const c_void,
    src_size: usize,
    dict: *const c_void,
    dict_size: usize,
    parameters: Parameters,
) -> usize {
    let compress = || {
        let cctx = cctx.ok_or(Failure::Null)?;
        // SAFETY: the caller promises it.
        let dst = unsafe { destination(dst, dst_capacity) }?;
        // SAFETY: the caller promises it.
        let src = unsafe { source(src, src_size) }?;
        // SAFETY: the caller promises it.
        let dictionary = Dictionary::new(unsafe { source(dict, dict_size) }?)?;
        let params = parameters.params()?;
        let compressor = cctx.once()?;
        Ok(compressor.compress_with_dictionary(dst, src, &params, &dictionary)?)
    };
    returned(compress())
}

/// Bytes of workspace for a dictionary with these parameters.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn ZSTD_CDictWorkspaceBound(parameters: Compression) -> usize {
    workspace_bound(parameters, |params| {
        with::<CDict>(EncoderDictionary::size(params))
    })
}

/// Prepares a dictionary. It is not copied. Returns NULL also if it is not valid.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_initCDict(
    dict: *const c_void,
    dict_size: usize,
    parameters: Parameters,
    workspace: *mut c_void,
    workspace_size: usize,
) -> Option<&'static mut CDict> {
    let params = parameters.params().ok()?;
    // SAFETY: the caller promises it.
    let dictionary = Dictionary::new(unsafe { bytes(dict, dict_size) }?).ok()?;
    // SAFETY: the caller promises it.
    let (place, memory) = unsafe { place::<CDict>(workspace, workspace_size) }?;
    let dictionary = EncoderDictionary::new(dictionary, &params, memory).ok()?;
    Some(place.write(CDict { dictionary }))
}

/// As [`ZSTD_compress_usingDict`], with the parameters of the dictionary.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_compress_usingCDict(
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
        let compressor = cctx.once()?;
        Ok(compressor.compress_with_prepared(dst, src, &cdict.dictionary)?)
    };
    returned(compress())
}

/// Bytes of workspace for streams with these parameters.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn ZSTD_CStreamWorkspaceBound(parameters: Compression) -> usize {
    workspace_bound(parameters, CCtx::with_stream)
}

/// A context for streams. `pledged_src_size` is the size of the first frame's content, 0 if it is
/// unknown.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_initCStream(
    parameters: Parameters,
    pledged_src_size: u64,
    workspace: *mut c_void,
    workspace_size: usize,
) -> Option<&'static mut CCtx> {
    let params = parameters.params().ok()?;
    // SAFETY: the caller promises it.
    let cctx = unsafe { CCtx::place(workspace, workspace_size) }?;
    cctx.begin(&params).ok()?.reset(known(pledged_src_size));
    Some(cctx)
}

/// As [`ZSTD_initCStream`], behind a dictionary and with its parameters.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
#[expect(
    clippy::mut_from_ref,
    reason = "the context lies in the workspace, not in the dictionary"
)]
pub unsafe extern "C" fn ZSTD_initCStream_usingCDict(
    cdict: Option<&'static CDict>,
    pledged_src_size: u64,
    workspace: *mut c_void,
    workspace_size: usize,
) -> Option<&'static mut CCtx> {
    let cdict = cdict?;
    // SAFETY: the caller promises it.
    let cctx = unsafe { CCtx::place(workspace, workspace_size) }?;
    let encoder = cctx.begin(cdict.dictionary.params()).ok()?;
    encoder.set_prepared(&cdict.dictionary).ok()?;
    encoder.reset(known(pledged_src_size));
    Some(cctx)
}

/// Begins another frame, abandoning this one if it is incomplete. The header tells the size if that
/// is not 0.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_resetCStream(zcs: Option<&mut CCtx>, pledged_src_size: u64) -> usize {
    let reset = || {
        let zcs = zcs.ok_or(Failure::Null)?;
        zcs.reset(pledged_src_size)?;
        zcs.encoder()?.set_content_size(pledged_src_size > 0)?;
        Ok(0)
    };
    returned(reset())
}

/// Takes input and writes output; gives how much input would complete a block, or an error.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_compressStream(
    zcs: Option<&mut CCtx>,
    output: Option<&mut OutBuffer>,
    input: Option<&mut InBuffer>,
) -> usize {
    let compress = || {
        let (output, input) = output.zip(input).ok_or(Failure::Null)?;
        let zcs = zcs.ok_or(Failure::Null)?;
        // SAFETY: the caller promises it.
        unsafe { zcs.compress(output, input) }
    };
    returned(compress())
}

fn finish(
    zcs: Option<&mut CCtx>,
    output: Option<&mut OutBuffer>,
    finish: Finish,
) -> Result<usize, Failure> {
    let (zcs, output) = zcs.zip(output).ok_or(Failure::Null)?;
    // SAFETY: the callers of both functions that call this promise it.
    unsafe { zcs.finish(output, finish) }
}

/// Completes blocks, so that all input can be decoded. Gives 0 when that is done, how many bytes
/// wait for room, or an error.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_flushStream(
    zcs: Option<&mut CCtx>,
    output: Option<&mut OutBuffer>,
) -> usize {
    returned(finish(zcs, output, Finish::Block))
}

/// Completes the frame. Gives 0 when that is done, how many bytes wait for room, or an error.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_endStream(
    zcs: Option<&mut CCtx>,
    output: Option<&mut OutBuffer>,
) -> usize {
    returned(finish(zcs, output, Finish::Frame))
}

/// A good size of input for [`ZSTD_compressStream`].
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn ZSTD_CStreamInSize() -> usize {
    BLOCK_SIZE_MAX
}

/// A good size of output for [`ZSTD_compressStream`]: a block with its header, and a checksum.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn ZSTD_CStreamOutSize() -> usize {
    ZSTD_compressBound(BLOCK_SIZE_MAX) + 3 + 4
}
