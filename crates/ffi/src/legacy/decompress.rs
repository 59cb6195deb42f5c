//! Frames in one call, dictionaries, streams.

use core::ffi::c_void;

use zstd::{DecodeOptions, Decoder, DecoderDictionary, Dictionary};

use super::{BLOCK_SIZE_MAX, returned};
use crate::buffers::{destination, source};
use crate::failure::Failure;
use crate::memory::{bytes, place, with};
use crate::{DCtx, InBuffer, OutBuffer};

/// A dictionary that is ready to decode with: `ZSTD_DDict`.
pub struct DDict {
    pub(super) dictionary: DecoderDictionary<'static>,
}

/// Bytes of workspace for a context.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn ZSTD_DCtxWorkspaceBound() -> usize {
    DCtx::WORKSPACE_SIZE
}

/// A context.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_initDCtx(
    workspace: *mut c_void,
    workspace_size: usize,
) -> Option<&'static mut DCtx> {
    // SAFETY: the caller promises it.
    let dctx = unsafe { DCtx::place(workspace, workspace_size) };
    dctx.filter(|dctx| dctx.has_memory())
}

/// Decompresses frames, one after the other; gives the size of the content, or an error.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_decompressDCtx(
    dctx: Option<&mut DCtx>,
    dst: *mut c_void,
    dst_capacity: usize,
    src: *const c_void,
    src_size: usize,
) -> usize {
    // SAFETY: the caller promises it.
    let dst = unsafe { destination(dst, dst_capacity) };
    // SAFETY: the caller promises it.
    let src = unsafe { source(src, src_size) };
    returned(decompress(dctx, &DecodeOptions::new(), dst, src))
}

fn decompress(
    dctx: Option<&mut DCtx>,
    options: &DecodeOptions<'_>,
    dst: Result<&mut [u8], Failure>,
    src: Result<&[u8], Failure>,
) -> Result<usize, Failure> {
    dctx.ok_or(Failure::Null)?.decompress(options, dst?, src?)
}

/// As [`ZSTD_decompressDCtx`], with a dictionary.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_decompress_usingDict(
    dctx: Option<&mut DCtx>,
    dst: *mut c_void,
    dst_capacity: usize,
    src: *const c_void,
    src_size: usize,
    dict: *const c_void,
    dict_size: usize,
) -> usize {
    // SAFETY: the caller promises it.
    let dst = unsafe { destination(dst, dst_capacity) };
    // SAFETY: the caller promises it.
    let src = unsafe { source(src, src_size) };
    let run = || {
        // SAFETY: the caller promises it.
        let dictionary = Dictionary::new(unsafe { source(dict, dict_size) }?)?;
        let options = DecodeOptions::new().dictionary(dictionary);
        decompress(dctx, &options, dst, src)
    };
    returned(run())
}

/// Bytes of workspace for a dictionary.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn ZSTD_DDictWorkspaceBound() -> usize {
    with::<DDict>(DecoderDictionary::SIZE)
}

/// Prepares a dictionary. It is not copied. Returns NULL also if it is not valid.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_initDDict(
    dict: *const c_void,
    dict_size: usize,
    workspace: *mut c_void,
    workspace_size: usize,
) -> Option<&'static mut DDict> {
    // SAFETY: the caller promises it.
    let dictionary = Dictionary::new(unsafe { bytes(dict, dict_size) }?).ok()?;
    // SAFETY: the caller promises it.
    let (place, memory) = unsafe { place::<DDict>(workspace, workspace_size) }?;
    let dictionary = DecoderDictionary::new(dictionary, memory).ok()?;
    Some(place.write(DDict { dictionary }))
}

/// As [`ZSTD_decompress_usingDict`].
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_decompress_usingDDict(
    dctx: Option<&mut DCtx>,
    dst: *mut c_void,
    dst_capacity: usize,
    src: *const c_void,
    src_size: usize,
    ddict: Option<&DDict>,
) -> usize {
    // SAFETY: the caller promises it.
    let dst = unsafe { destination(dst, dst_capacity) };
    // SAFETY: the caller promises it.
    let src = unsafe { source(src, src_size) };
    let run = || {
        let options = DecodeOptions::new().prepared(&ddict.ok_or(Failure::Null)?.dictionary);
        decompress(dctx, &options, dst, src)
    };
    returned(run())
}

/// Bytes of workspace for streams of frames whose windows have at most `max_window_size` bytes.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn ZSTD_DStreamWorkspaceBound(max_window_size: usize) -> usize {
    DCtx::with_stream(max_window_size)
}

/// A context for streams of frames whose windows have at most `max_window_size` bytes, which counts
/// as at least 1 KiB.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_initDStream(
    max_window_size: usize,
    workspace: *mut c_void,
    workspace_size: usize,
) -> Option<&'static mut DCtx> {
    // SAFETY: the caller promises it.
    let dctx = unsafe { DCtx::place(workspace, workspace_size) }?;
    begin(dctx, max_window_size, DecodeOptions::new())
}

/// As [`ZSTD_initDStream`], with a dictionary.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
#[expect(
    clippy::mut_from_ref,
    reason = "the context lies in the workspace, not in the dictionary"
)]
pub unsafe extern "C" fn ZSTD_initDStream_usingDDict(
    max_window_size: usize,
    ddict: Option<&'static DDict>,
    workspace: *mut c_void,
    workspace_size: usize,
) -> Option<&'static mut DCtx> {
    // SAFETY: the caller promises it.
    let dctx = unsafe { DCtx::place(workspace, workspace_size) }?;
    let options = DecodeOptions::new().prepared(&ddict?.dictionary);
    begin(dctx, max_window_size, options)
}

fn begin(
    dctx: &'static mut DCtx,
    window_max: usize,
    options: DecodeOptions<'static>,
) -> Option<&'static mut DCtx> {
    let window_max = window_max as u64;
    let needed = Decoder::workspace_size(window_max)?;
    if dctx.memory_size() < needed {
        return None;
    }
    dctx.begin(options.window_max(window_max)).ok()?;
    Some(dctx)
}

/// Begins another frame, abandoning this one if it is incomplete.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_resetDStream(zds: Option<&mut DCtx>) -> usize {
    let reset = zds.ok_or(Failure::Null).and_then(DCtx::reset);
    returned(reset.map(|()| 0))
}

/// Decompresses the available part of a frame. Returns 0 when the frame is complete and written,
/// how much input would do for the next step, or an error, which comes again until the stream is
/// reset.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_decompressStream(
    zds: Option<&mut DCtx>,
    output: Option<&mut OutBuffer>,
    input: Option<&mut InBuffer>,
) -> usize {
    let decompress = || {
        let (output, input) = output.zip(input).ok_or(Failure::Null)?;
        let zds = zds.ok_or(Failure::Null)?;
        // SAFETY: the caller promises it.
        unsafe { zds.decompress_stream(output, input) }
    };
    returned(decompress())
}

/// A good size of input for [`ZSTD_decompressStream`]: a block with its header.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn ZSTD_DStreamInSize() -> usize {
    BLOCK_SIZE_MAX + 3
}

/// A good size of output for [`ZSTD_decompressStream`].
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn ZSTD_DStreamOutSize() -> usize {
    BLOCK_SIZE_MAX
}
