//! Encoding.

use core::ffi::{c_int, c_uint, c_void};

use zstd::{CompressionParameters, Error, Finish, LEVEL_MAX, LEVEL_MIN, Params, workspace_size};

use super::returned;
use crate::buffers::{destination, source};
use crate::encode::{known, of_whole};
use crate::failure::Failure;
use crate::{CCtx, InBuffer, OutBuffer};

/// `zstd_frame_parameters`: the optional fields of a frame.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FrameParameters {
    /// Whether the header tells the size of the content, if it is known.
    pub content_size_flag: c_int,
    /// Whether a checksum of the content is at the end.
    pub checksum_flag: c_int,
    /// Whether the header does not name the dictionary.
    pub no_dict_id_flag: c_int,
}

/// `zstd_parameters`, 40 bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Parameters {
    /// How matches are found.
    pub compression: CompressionParameters,
    /// The optional fields of a frame.
    pub frame: FrameParameters,
}

impl Parameters {
    fn params(&self) -> Result<Params, Error> {
        let mut params = self.compression.params()?;
        params.content_size = self.frame.content_size_flag != 0;
        params.checksum = self.frame.checksum_flag != 0;
        params.dictionary_id = self.frame.no_dict_id_flag == 0;
        Ok(params)
    }
}

/// The fastest level, as in Linux. Acceleration ends at [`ACCELERATION_MAX`].
const FASTEST_LEVEL: c_int = -(1 << 17);
/// The largest acceleration that an encoder takes.
const ACCELERATION_MAX: c_uint = 1 << 12;

/// The first size of content without a bound, as in the C library.
const UNBOUNDED_SIZE: usize = usize::MAX / 0xffff * 0xff00;

/// The largest size of a frame of so much content, or an error if no frame has as much.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn zstd_compress_bound(src_size: usize) -> usize {
    const SMALL: usize = 128 << 10;
    if src_size >= UNBOUNDED_SIZE {
        return returned(Err(Error::SrcSizeWrong.into()));
    }
    let margin = SMALL.saturating_sub(src_size) >> 11;
    src_size.saturating_add((src_size >> 8) + margin)
}

/// The fastest level.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn zstd_min_clevel() -> c_int {
    FASTEST_LEVEL
}

/// The strongest level.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn zstd_max_clevel() -> c_int {
    LEVEL_MAX
}

/// The level for those who do not care.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn zstd_default_clevel() -> c_int {
    zstd::LEVEL_DEFAULT
}

/// The parameters of a level for content of a size, 0 if that is unknown. The header tells the
/// size.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn zstd_get_params(level: c_int, estimated_src_size: u64) -> Parameters {
    Parameters {
        compression: zstd_get_cparams(level, estimated_src_size, 0),
        frame: FrameParameters {
            content_size_flag: 1,
            checksum_flag: 0,
            no_dict_id_flag: 0,
        },
    }
}

/// The parameters of a level for content of a size behind a dictionary.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn zstd_get_cparams(
    level: c_int,
    estimated_src_size: u64,
    dict_size: usize,
) -> CompressionParameters {
    let size = known(estimated_src_size);
    let params = Params::for_level_with_dictionary(level, size, dict_size);
    let mut numbers = CompressionParameters::new(&params);
    if level < LEVEL_MIN {
        numbers.target_length = level.unsigned_abs().min(ACCELERATION_MAX);
    }
    numbers
}

/// Bytes of workspace that `bound` says for these parameters.
fn workspace_bound(
    parameters: Option<&CompressionParameters>,
    bound: fn(&Params) -> usize,
) -> usize {
    let bound = || {
        let params = parameters.ok_or(Failure::Null)?.params()?;
        Ok(bound(&params))
    };
    returned(bound())
}

/// Bytes of workspace for frames in one call with these parameters, or an error.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_cctx_workspace_bound(
    parameters: Option<&CompressionParameters>,
) -> usize {
    workspace_bound(parameters, |params| CCtx::with(workspace_size(params)))
}

/// As [`zstd_cctx_workspace_bound`].
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_cctx_workspace_bound_with_ext_seq_prod(
    parameters: Option<&CompressionParameters>,
) -> usize {
    workspace_bound(parameters, |params| CCtx::with(workspace_size(params)))
}

/// A context for frames in one call.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_init_cctx(
    workspace: *mut c_void,
    workspace_size: usize,
) -> Option<&'static mut CCtx> {
    // SAFETY: the caller promises it.
    unsafe { CCtx::place(workspace, workspace_size) }
}

/// Compresses to one frame; gives its size, or an error.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_compress_cctx(
    cctx: Option<&mut CCtx>,
    dst: *mut c_void,
    dst_capacity: usize,
    src: *const c_void,
    src_size: usize,
    parameters: Option<&Parameters>,
) -> usize {
    let compress = || {
        let (cctx, parameters) = cctx.zip(parameters).ok_or(Failure::Null)?;
        // SAFETY: the caller promises it.
        let dst = unsafe { destination(dst, dst_capacity) }?;
        // SAFETY: the caller promises it.
        let src = unsafe { source(src, src_size) }?;
        let params = of_whole(parameters.params()?, src.len());
        let compressor = cctx.once_in(workspace_size(&params))?;
        Ok(compressor.compress(dst, src, &params)?)
    };
    returned(compress())
}

/// Bytes of workspace for streams with these parameters, or an error.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_cstream_workspace_bound(
    parameters: Option<&CompressionParameters>,
) -> usize {
    workspace_bound(parameters, CCtx::with_stream)
}

/// As [`zstd_cstream_workspace_bound`].
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_cstream_workspace_bound_with_ext_seq_prod(
    parameters: Option<&CompressionParameters>,
) -> usize {
    workspace_bound(parameters, CCtx::with_stream)
}

/// A context for streams. `pledged_src_size` is the size of the first frame's content, 0 if it is
/// unknown.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_init_cstream(
    parameters: Option<&Parameters>,
    pledged_src_size: u64,
    workspace: *mut c_void,
    workspace_size: usize,
) -> Option<&'static mut CCtx> {
    let params = parameters?.params().ok()?;
    // SAFETY: the caller promises it.
    let cctx = unsafe { CCtx::place(workspace, workspace_size) }?;
    let encoder = cctx.begin(&params).ok()?;
    encoder.reset(known(pledged_src_size));
    Some(cctx)
}

/// Begins another frame, abandoning this one if it is incomplete. 0 stands for an unknown size.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_reset_cstream(
    cstream: Option<&mut CCtx>,
    pledged_src_size: u64,
) -> usize {
    let reset = || {
        cstream.ok_or(Failure::Null)?.reset(pledged_src_size)?;
        Ok(0)
    };
    returned(reset())
}

/// Takes input and writes output; gives how much input would complete a block, or an error. All
/// input is taken unless the output is full. Behind the end of a frame, this begins another one.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_compress_stream(
    cstream: Option<&mut CCtx>,
    output: Option<&mut OutBuffer>,
    input: Option<&mut InBuffer>,
) -> usize {
    let compress = || {
        let (output, input) = output.zip(input).ok_or(Failure::Null)?;
        let cstream = cstream.ok_or(Failure::Null)?;
        // SAFETY: the caller promises it.
        unsafe { cstream.compress(output, input) }
    };
    returned(compress())
}

/// Completes blocks, so that all input can be decoded. Gives 0 when that is done, how many bytes
/// wait for room, or an error.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_flush_stream(
    cstream: Option<&mut CCtx>,
    output: Option<&mut OutBuffer>,
) -> usize {
    let flush = || {
        let (cstream, output) = cstream.zip(output).ok_or(Failure::Null)?;
        // SAFETY: the caller promises it.
        unsafe { cstream.finish(output, Finish::Block) }
    };
    returned(flush())
}

/// Completes the frame. Gives 0 when that is done, how many bytes wait for room, or an error.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_end_stream(
    cstream: Option<&mut CCtx>,
    output: Option<&mut OutBuffer>,
) -> usize {
    let end = || {
        let (cstream, output) = cstream.zip(output).ok_or(Failure::Null)?;
        // SAFETY: the caller promises it.
        unsafe { cstream.finish(output, Finish::Frame) }
    };
    returned(end())
}

/// Registers a sequence producer, which this library does not support: the context answers
/// `parameter_unsupported` until this is called with NULL.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_register_sequence_producer(
    cctx: Option<&mut CCtx>,
    _state: *mut c_void,
    producer: Option<unsafe extern "C" fn() -> usize>,
) {
    if let Some(cctx) = cctx {
        cctx.has_producer = producer.is_some();
    }
}

/// Sets a parameter of a context, which is not supported: they come with each call.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn zstd_cctx_set_param(
    _cctx: Option<&mut CCtx>,
    _parameter: c_uint,
    _value: c_int,
) -> usize {
    returned(Err(Failure::Unsupported))
}
