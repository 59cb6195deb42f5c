//! Calls as C makes them, small enough for Miri: contexts in a workspace of any alignment.

use std::vec;

use crate::legacy::bufferless::{ZSTD_compressBegin_usingDict, ZSTD_compressEnd, ZSTD_copyCCtx};
use crate::legacy::compress::{ZSTD_CCtxWorkspaceBound, ZSTD_initCCtx};
use crate::legacy::decompress::{ZSTD_DCtxWorkspaceBound, ZSTD_initDCtx};
use crate::legacy::parameters::ZSTD_getCParams;
use crate::legacy::pieces::{
    ZSTD_decompressBegin_usingDict, ZSTD_decompressContinue, ZSTD_nextSrcSizeToDecompress,
};
use crate::modern::compress::{
    zstd_compress_stream, zstd_cstream_workspace_bound, zstd_end_stream, zstd_get_params,
    zstd_init_cstream,
};
use crate::modern::decompress::{
    zstd_decompress_stream, zstd_dstream_workspace_bound, zstd_init_dstream,
};
use crate::{InBuffer, OutBuffer};

static CONTENT: &[u8] = b"container ship, container ship, container ships";

#[test]
fn streams_in_one_workspace_at_any_address() {
    let mut params = zstd_get_params(1, CONTENT.len() as u64);
    // Smaller tables, for Miri's sake.
    params.compression.hash_log = 8;
    // SAFETY: this is a struct.
    let bound = unsafe { zstd_cstream_workspace_bound(Some(&params.compression)) };
    let bound = bound.max(zstd_dstream_workspace_bound(1024));
    let mut memory = vec![0xa5_u8; bound + 3];
    for at in [0, 1, 3] {
        let workspace = memory[at..].as_mut_ptr().cast();
        let (mut frame, mut back) = ([0_u8; 100], [0_u8; 100]);
        let mut input = InBuffer {
            src: CONTENT.as_ptr().cast(),
            size: CONTENT.len(),
            pos: 0,
        };
        let mut output = OutBuffer {
            dst: frame.as_mut_ptr().cast(),
            size: frame.len(),
            pos: 0,
        };
        // SAFETY: there are as many bytes, and nothing else uses them.
        let stream = unsafe { zstd_init_cstream(Some(&params), 0, workspace, bound) };
        let stream = stream.unwrap();
        // SAFETY: the buffers are those above.
        let result =
            unsafe { zstd_compress_stream(Some(stream), Some(&mut output), Some(&mut input)) };
        assert_eq!((result > 0, input.pos), (true, CONTENT.len()));
        // SAFETY: as above.
        let left = unsafe { zstd_end_stream(Some(stream), Some(&mut output)) };
        assert_eq!(left, 0);
        let size = output.pos;

        // SAFETY: there are as many bytes, and the encoder is not used any more.
        let stream = unsafe { zstd_init_dstream(1024, workspace, bound) };
        let stream = stream.unwrap();
        input = InBuffer {
            src: frame.as_ptr().cast(),
            size,
            pos: 0,
        };
        output = OutBuffer {
            dst: back.as_mut_ptr().cast(),
            size: back.len(),
            pos: 0,
        };
        // SAFETY: the buffers are those above.
        let result =
            unsafe { zstd_decompress_stream(Some(stream), Some(&mut output), Some(&mut input)) };
        assert_eq!((result, input.pos), (0, size));
        assert_eq!(&back[..output.pos], CONTENT);
    }
}

#[test]
fn pieces_behind_a_dictionary() {
    let dictionary = &CONTENT[..32];
    let bound = ZSTD_CCtxWorkspaceBound(ZSTD_getCParams(1, 0, dictionary.len()));
    let (mut first, mut second) = (vec![0xa5_u8; bound], vec![0xa5_u8; bound]);
    // SAFETY: there are as many bytes, and nothing else uses them.
    let cctx = unsafe { ZSTD_initCCtx(first.as_mut_ptr().cast(), bound) }.unwrap();
    // SAFETY: as above.
    let copy = unsafe { ZSTD_initCCtx(second.as_mut_ptr().cast(), bound) }.unwrap();
    let (dict, dict_size) = (dictionary.as_ptr().cast(), dictionary.len());
    // SAFETY: the dictionary stays as it is.
    let begun = unsafe { ZSTD_compressBegin_usingDict(Some(&mut *cctx), dict, dict_size, 1) };
    // SAFETY: both are contexts.
    let copied = unsafe { ZSTD_copyCCtx(Some(&mut *copy), Some(&*cctx), CONTENT.len() as u64) };
    assert_eq!((begun, copied), (0, 0));
    let mut frame = [0_u8; 100];
    let (src, dst) = (CONTENT.as_ptr().cast(), frame.as_mut_ptr().cast());
    // SAFETY: there are as many bytes.
    let size = unsafe { ZSTD_compressEnd(Some(copy), dst, 100, src, CONTENT.len()) };
    assert!(size < 40, "{size}");

    let bound = ZSTD_DCtxWorkspaceBound();
    let mut memory = vec![0xa5_u8; bound];
    // SAFETY: there are as many bytes, and nothing else uses them.
    let dctx = unsafe { ZSTD_initDCtx(memory.as_mut_ptr().cast(), bound) }.unwrap();
    // SAFETY: the dictionary stays as it is.
    let begun = unsafe { ZSTD_decompressBegin_usingDict(Some(&mut *dctx), dict, dict_size) };
    assert_eq!(begun, 0);
    let mut back = [0_u8; 100];
    let start = back.as_mut_ptr();
    let (mut at, mut done) = (0, 0);
    loop {
        // SAFETY: it is a context.
        let wanted = unsafe { ZSTD_nextSrcSizeToDecompress(Some(&mut *dctx)) };
        if wanted == 0 {
            break;
        }
        let src = frame[at..at + wanted].as_ptr().cast();
        let dst = start.wrapping_add(done).cast();
        // SAFETY: there are as many bytes, and the content so far lies before them.
        let got =
            unsafe { ZSTD_decompressContinue(Some(&mut *dctx), dst, 100 - done, src, wanted) };
        assert!(got < 100, "{got}");
        (at, done) = (at + wanted, done + got);
    }
    assert_eq!((at, &back[..done]), (size, CONTENT));
}
