//! Decoding, and looking at frames.

use core::ffi::{c_uint, c_void};
use core::mem::MaybeUninit;

use zstd::{DecodeOptions, Frame, frame_size};

use super::returned;
use crate::buffers::{destination, source};
use crate::failure::Failure;
use crate::{DCtx, InBuffer, OutBuffer};

/// The content size of a header without one.
const CONTENT_SIZE_UNKNOWN: u64 = u64::MAX;

/// `zstd_frame_header`, without the reserved fields at its end.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FrameHeader {
    /// Bytes of content, `u64::MAX` if the header does not tell; bytes behind the header of a
    /// skippable frame.
    pub frame_content_size: u64,
    /// How far back matches reach; 0 for a skippable frame.
    pub window_size: u64,
    /// No block is larger.
    pub block_size_max: c_uint,
    /// 1 for a skippable frame.
    pub frame_type: c_uint,
    /// Bytes of the header.
    pub header_size: c_uint,
    /// The dictionary that the frame names, or 0; which of the sixteen magic numbers a skippable
    /// frame has.
    pub dict_id: c_uint,
    /// Whether there is a checksum at the end.
    pub checksum_flag: c_uint,
}

/// Bytes of workspace for frames in one call.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn zstd_dctx_workspace_bound() -> usize {
    DCtx::WORKSPACE_SIZE
}

/// A context for frames in one call.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_init_dctx(
    workspace: *mut c_void,
    workspace_size: usize,
) -> Option<&'static mut DCtx> {
    // SAFETY: the caller promises it.
    let dctx = unsafe { DCtx::place(workspace, workspace_size) };
    dctx.filter(|dctx| dctx.has_memory())
}

/// Decompresses frames, one after the other; gives the size of the content, or an error.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_decompress_dctx(
    dctx: Option<&mut DCtx>,
    dst: *mut c_void,
    dst_capacity: usize,
    src: *const c_void,
    src_size: usize,
) -> usize {
    let decompress = || {
        let dctx = dctx.ok_or(Failure::Null)?;
        // SAFETY: the caller promises it.
        let dst = unsafe { destination(dst, dst_capacity) }?;
        // SAFETY: the caller promises it.
        let src = unsafe { source(src, src_size) }?;
        dctx.decompress(&DecodeOptions::new(), dst, src)
    };
    returned(decompress())
}

/// Bytes of workspace for streams of frames whose windows have at most `max_window_size` bytes.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn zstd_dstream_workspace_bound(max_window_size: usize) -> usize {
    DCtx::with_stream(max_window_size)
}

/// A context for streams of frames whose windows fit in the workspace; as in Linux,
/// `max_window_size` is not looked at.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_init_dstream(
    _max_window_size: usize,
    workspace: *mut c_void,
    workspace_size: usize,
) -> Option<&'static mut DCtx> {
    // SAFETY: the caller promises it.
    let dctx = unsafe { DCtx::place(workspace, workspace_size) }?;
    dctx.begin(DecodeOptions::new()).ok()?;
    Some(dctx)
}

/// Begins another frame, abandoning this one if it is incomplete.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_reset_dstream(dstream: Option<&mut DCtx>) -> usize {
    let reset = || {
        dstream.ok_or(Failure::Null)?.reset()?;
        Ok(0)
    };
    returned(reset())
}

/// Decompresses the available part of a frame. Returns 0 when the frame is complete and written,
/// how much input would do for the next step, or an error, which comes again until the stream is
/// reset. The last byte of a frame counts as taken only when all of its content is given out. The
/// sixteenth call in a row within a frame that takes and gives nothing is an error, which ends with
/// the next progress.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_decompress_stream(
    dstream: Option<&mut DCtx>,
    output: Option<&mut OutBuffer>,
    input: Option<&mut InBuffer>,
) -> usize {
    let decompress = || {
        let (output, input) = output.zip(input).ok_or(Failure::Null)?;
        let dstream = dstream.ok_or(Failure::Null)?;
        // SAFETY: the caller promises it.
        let result = unsafe { dstream.decompress_stream(output, input) }?;
        dstream.check_progress(output)?;
        Ok(result)
    };
    returned(decompress())
}

/// Bytes up to the end of the first frame, or an error.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_find_frame_compressed_size(
    src: *const c_void,
    src_size: usize,
) -> usize {
    // SAFETY: the caller promises it.
    let src = unsafe { source(src, src_size) };
    returned(src.and_then(|src| Ok(frame_size(src)?)))
}

/// Reads the header of a frame: 0, how many bytes are needed from the start of the frame, or an
/// error.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_get_frame_header(
    header: Option<&mut MaybeUninit<FrameHeader>>,
    src: *const c_void,
    src_size: usize,
) -> usize {
    let parse = || {
        let place = header.ok_or(Failure::Null)?;
        // SAFETY: the caller promises it.
        let src = unsafe { source(src, src_size) }?;
        let header = match Frame::parse(src)? {
            Frame::Incomplete { needed } => return Ok(needed),
            Frame::Zstd(header) => FrameHeader {
                frame_content_size: header.content_size.unwrap_or(CONTENT_SIZE_UNKNOWN),
                window_size: header.window_size,
                block_size_max: header.block_size_max,
                frame_type: 0,
                header_size: header.size as c_uint,
                dict_id: header.dictionary_id,
                checksum_flag: header.checksum.into(),
            },
            Frame::Skippable { variant, size } => FrameHeader {
                frame_content_size: size.into(),
                window_size: 0,
                block_size_max: 0,
                frame_type: 1,
                header_size: 8,
                dict_id: variant.into(),
                checksum_flag: 0,
            },
            _ => return Err(Failure::Null),
        };
        place.write(header);
        Ok(0)
    };
    returned(parse())
}
