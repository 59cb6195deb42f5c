//! Frames piece by piece, and bare blocks, decoded to memory that the caller keeps.
//!
//! Blocks refer to the content before the destination: each call continues at the end of the last
//! call's content. A call that does not may refer to its own output, and to the dictionary.

use core::ffi::{c_uint, c_void};

use zstd::{DecodeOptions, Dictionary, PieceKind};

use super::returned;
use crate::DCtx;
use crate::buffers::source;
use crate::failure::Failure;

/// Begins a frame, or a series of blocks.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_decompressBegin(dctx: Option<&mut DCtx>) -> usize {
    let begin = || {
        dctx.ok_or(Failure::Null)?
            .begin_pieces(DecodeOptions::new())
    };
    returned(begin().map(|()| 0))
}

/// As [`ZSTD_decompressBegin`], with a dictionary.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_decompressBegin_usingDict(
    dctx: Option<&mut DCtx>,
    dict: *const c_void,
    dict_size: usize,
) -> usize {
    let begin = || {
        // SAFETY: the caller promises it.
        let dictionary = Dictionary::new(unsafe { source(dict, dict_size) }?)?;
        let options = DecodeOptions::new().dictionary(dictionary);
        dctx.ok_or(Failure::Null)?.begin_pieces(options)
    };
    returned(begin().map(|()| 0))
}

/// Goes on as `src` does. Nothing if one of them is NULL, or `src` has begun nothing.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_copyDCtx(dst: Option<&mut DCtx>, src: Option<&DCtx>) {
    if let Some((dst, src)) = dst.zip(src) {
        // There is nothing to return an error with: without a copy, the next call fails.
        let _ = dst.begin_as(src);
    }
}

/// How many bytes the next call of [`ZSTD_decompressContinue`] takes; 0 when the frame is complete.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_nextSrcSizeToDecompress(dctx: Option<&mut DCtx>) -> usize {
    let pieces = dctx.ok_or(Failure::Null).and_then(DCtx::pieces);
    returned(pieces.map(|pieces| pieces.decoder.wanted()))
}

/// The type of these bytes: `ZSTD_nextInputType_e`.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_nextInputType(dctx: Option<&mut DCtx>) -> c_uint {
    let pieces = dctx.ok_or(Failure::Null).and_then(DCtx::pieces);
    match pieces.map(|pieces| pieces.decoder.next()) {
        Ok(PieceKind::FrameHeader) | Err(_) => 0,
        Ok(PieceKind::BlockHeader) => 1,
        Ok(PieceKind::Block) => 2,
        Ok(PieceKind::LastBlock) => 3,
        Ok(PieceKind::Checksum) => 4,
        Ok(PieceKind::SkippableFrame) => 5,
    }
}

/// Takes the next piece; gives the size of the content that was written, or an error.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_decompressContinue(
    dctx: Option<&mut DCtx>,
    dst: *mut c_void,
    dst_capacity: usize,
    src: *const c_void,
    src_size: usize,
) -> usize {
    let decompress = || {
        let pieces = dctx.ok_or(Failure::Null)?.pieces()?;
        // SAFETY: the caller promises it.
        let src = unsafe { source(src, src_size) }?;
        // SAFETY: the caller promises it.
        unsafe {
            pieces.decode(dst, dst_capacity, |decoder, output, at| {
                decoder.decode(src, output, at)
            })
        }
    };
    returned(decompress())
}

/// Decompresses a block without header; gives the size of its content, or an error.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_decompressBlock(
    dctx: Option<&mut DCtx>,
    dst: *mut c_void,
    dst_capacity: usize,
    src: *const c_void,
    src_size: usize,
) -> usize {
    let decompress = || {
        let pieces = dctx.ok_or(Failure::Null)?.pieces()?;
        // SAFETY: the caller promises it.
        let src = unsafe { source(src, src_size) }?;
        // SAFETY: the caller promises it.
        unsafe {
            pieces.decode(dst, dst_capacity, |decoder, output, at| {
                decoder.decode_block(src, output, at)
            })
        }
    };
    returned(decompress())
}

/// Declares a block that was stored as it is: those that follow refer to it. Gives its size, or an
/// error.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn ZSTD_insertBlock(
    dctx: Option<&mut DCtx>,
    block_start: *const c_void,
    block_size: usize,
) -> usize {
    let insert = || {
        let pieces = dctx.ok_or(Failure::Null)?.pieces()?;
        // SAFETY: the caller promises it.
        unsafe { source(block_start, block_size) }?;
        pieces.insert(block_start.cast_mut(), block_size)?;
        Ok(block_size)
    };
    returned(insert())
}
