//! Looking at frames and dictionaries.

use core::ffi::{c_uint, c_void};
use core::mem::MaybeUninit;

use zstd::{Dictionary, Error, Frame, content_size, frame_size, is_frame, total_content_size};

use super::decompress::DDict;
use super::returned;
use crate::buffers::source;
use crate::failure::Failure;

/// `ZSTD_CONTENTSIZE_UNKNOWN`.
const CONTENT_SIZE_UNKNOWN: u64 = u64::MAX;
/// `ZSTD_CONTENTSIZE_ERROR`.
const CONTENT_SIZE_ERROR: u64 = u64::MAX - 1;

/// `ZSTD_frameParams`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FrameParams {
    /// Bytes of content, `ZSTD_CONTENTSIZE_UNKNOWN` if the header does not tell; bytes behind the
    /// header of a skippable frame.
    pub frame_content_size: u64,
    /// How far back matches reach; 0 for a skippable frame.
    pub window_size: c_uint,
    /// The dictionary that the frame names, or 0.
    pub dict_id: c_uint,
    /// Whether there is a checksum at the end.
    pub checksum_flag: c_uint,
}

/// Bytes up to the end of the first frame, or an error.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_findFrameCompressedSize(
    src: *const c_void,
    src_size: usize,
) -> usize {
    // SAFETY: the caller promises it.
    let src = unsafe { source(src, src_size) };
    returned(src.and_then(|src| Ok(frame_size(src)?)))
}

/// A size as C has it.
fn content(size: Result<Option<u64>, Failure>) -> u64 {
    match size {
        Ok(Some(size)) => size,
        Ok(None) => CONTENT_SIZE_UNKNOWN,
        Err(_) => CONTENT_SIZE_ERROR,
    }
}

/// Bytes of content of the first frame.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_getFrameContentSize(src: *const c_void, src_size: usize) -> u64 {
    // SAFETY: the caller promises it.
    let src = unsafe { source(src, src_size) };
    content(src.and_then(|src| Ok(content_size(src)?)))
}

/// Bytes of content of all frames.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_findDecompressedSize(src: *const c_void, src_size: usize) -> u64 {
    // SAFETY: the caller promises it.
    let src = unsafe { source(src, src_size) };
    content(src.and_then(|src| Ok(total_content_size(src)?)))
}

/// Whether a frame begins here, skippable or not.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_isFrame(buffer: *const c_void, size: usize) -> c_uint {
    // SAFETY: the caller promises it.
    let buffer = unsafe { source(buffer, size) };
    buffer.is_ok_and(is_frame).into()
}

/// The identifier of a dictionary, 0 if it has none.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_getDictID_fromDict(dict: *const c_void, dict_size: usize) -> c_uint {
    // SAFETY: the caller promises it.
    let dict = unsafe { source(dict, dict_size) };
    let dictionary = dict.and_then(|dict| Ok(Dictionary::new(dict)?));
    dictionary.map_or(0, |dictionary| dictionary.id())
}

/// The identifier of a dictionary, 0 if it has none.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_getDictID_fromDDict(ddict: Option<&DDict>) -> c_uint {
    ddict.map_or(0, |ddict| ddict.dictionary.dictionary().id())
}

/// The identifier of the dictionary that a frame names, 0 if it names none.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_getDictID_fromFrame(src: *const c_void, src_size: usize) -> c_uint {
    // SAFETY: the caller promises it.
    let src = unsafe { source(src, src_size) };
    match src.and_then(|src| Ok(Frame::parse(src)?)) {
        Ok(Frame::Zstd(header)) => header.dictionary_id,
        _ => 0,
    }
}

/// Reads the header of a frame: 0, how many bytes are needed from the start of the frame, or an
/// error.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_getFrameParams(
    params: Option<&mut MaybeUninit<FrameParams>>,
    src: *const c_void,
    src_size: usize,
) -> usize {
    let parse = || {
        let place = params.ok_or(Failure::Null)?;
        // SAFETY: the caller promises it.
        let src = unsafe { source(src, src_size) }?;
        place.write(match Frame::parse(src)? {
            Frame::Incomplete { needed } => return Ok(needed),
            Frame::Zstd(header) => FrameParams {
                frame_content_size: header.content_size.unwrap_or(CONTENT_SIZE_UNKNOWN),
                window_size: c_uint::try_from(header.window_size)
                    .map_err(|_| Error::WindowTooLarge)?,
                dict_id: header.dictionary_id,
                checksum_flag: header.checksum.into(),
            },
            Frame::Skippable { size, .. } => FrameParams {
                frame_content_size: size.into(),
                window_size: 0,
                dict_id: 0,
                checksum_flag: 0,
            },
            _ => return Err(Failure::Null),
        });
        Ok(0)
    };
    returned(parse())
}
