//! A pointer to each function, `__` before its name: a user-space build of the kernel's sources
//! derives such pointers from its list of exported symbols, to check that all are defined.
#![cfg_attr(
    not(feature = "export"),
    expect(non_upper_case_globals, reason = "these are the names in C")
)]

use core::ffi::c_void;

/// A pointer to a function.
#[derive(Debug)]
#[repr(transparent)]
pub struct Pointer(*const c_void);

// SAFETY: it points to code, which is immutable.
unsafe impl Sync for Pointer {}

macro_rules! pointers {
    ($($module:ident: $($pointer:ident $function:ident)*;)*) => {
        $($(
            #[doc = concat!("Points to [`", stringify!($function), "`](super::", stringify!($module), "::", stringify!($function), ").")]
            #[cfg_attr(feature = "export", unsafe(no_mangle))]
            pub static $pointer: Pointer = Pointer(super::$module::$function as *const c_void);
        )*)*
    };
}

#[cfg(feature = "compress")]
pointers! {
    parameters:
        __ZSTD_maxCLevel ZSTD_maxCLevel
        __ZSTD_compressBound ZSTD_compressBound
        __ZSTD_getCParams ZSTD_getCParams
        __ZSTD_getParams ZSTD_getParams
        __ZSTD_checkCParams ZSTD_checkCParams
        __ZSTD_adjustCParams ZSTD_adjustCParams;
    compress:
        __ZSTD_CCtxWorkspaceBound ZSTD_CCtxWorkspaceBound
        __ZSTD_initCCtx ZSTD_initCCtx
        __ZSTD_compressCCtx ZSTD_compressCCtx
        __ZSTD_compress_usingDict ZSTD_compress_usingDict
        __ZSTD_CDictWorkspaceBound ZSTD_CDictWorkspaceBound
        __ZSTD_initCDict ZSTD_initCDict
        __ZSTD_compress_usingCDict ZSTD_compress_usingCDict
        __ZSTD_CStreamWorkspaceBound ZSTD_CStreamWorkspaceBound
        __ZSTD_initCStream ZSTD_initCStream
        __ZSTD_initCStream_usingCDict ZSTD_initCStream_usingCDict
        __ZSTD_resetCStream ZSTD_resetCStream
        __ZSTD_compressStream ZSTD_compressStream
        __ZSTD_flushStream ZSTD_flushStream
        __ZSTD_endStream ZSTD_endStream
        __ZSTD_CStreamInSize ZSTD_CStreamInSize
        __ZSTD_CStreamOutSize ZSTD_CStreamOutSize;
    bufferless:
        __ZSTD_compressBegin ZSTD_compressBegin
        __ZSTD_compressBegin_usingDict ZSTD_compressBegin_usingDict
        __ZSTD_compressBegin_advanced ZSTD_compressBegin_advanced
        __ZSTD_copyCCtx ZSTD_copyCCtx
        __ZSTD_compressBegin_usingCDict ZSTD_compressBegin_usingCDict
        __ZSTD_compressContinue ZSTD_compressContinue
        __ZSTD_compressEnd ZSTD_compressEnd
        __ZSTD_getBlockSizeMax ZSTD_getBlockSizeMax
        __ZSTD_compressBlock ZSTD_compressBlock;
}

#[cfg(feature = "decompress")]
pointers! {
    decompress:
        __ZSTD_DCtxWorkspaceBound ZSTD_DCtxWorkspaceBound
        __ZSTD_initDCtx ZSTD_initDCtx
        __ZSTD_decompressDCtx ZSTD_decompressDCtx
        __ZSTD_decompress_usingDict ZSTD_decompress_usingDict
        __ZSTD_DDictWorkspaceBound ZSTD_DDictWorkspaceBound
        __ZSTD_initDDict ZSTD_initDDict
        __ZSTD_decompress_usingDDict ZSTD_decompress_usingDDict
        __ZSTD_DStreamWorkspaceBound ZSTD_DStreamWorkspaceBound
        __ZSTD_initDStream ZSTD_initDStream
        __ZSTD_initDStream_usingDDict ZSTD_initDStream_usingDDict
        __ZSTD_resetDStream ZSTD_resetDStream
        __ZSTD_decompressStream ZSTD_decompressStream
        __ZSTD_DStreamInSize ZSTD_DStreamInSize
        __ZSTD_DStreamOutSize ZSTD_DStreamOutSize;
    inspect:
        __ZSTD_findFrameCompressedSize ZSTD_findFrameCompressedSize
        __ZSTD_getFrameContentSize ZSTD_getFrameContentSize
        __ZSTD_findDecompressedSize ZSTD_findDecompressedSize
        __ZSTD_isFrame ZSTD_isFrame
        __ZSTD_getDictID_fromDict ZSTD_getDictID_fromDict
        __ZSTD_getDictID_fromDDict ZSTD_getDictID_fromDDict
        __ZSTD_getDictID_fromFrame ZSTD_getDictID_fromFrame
        __ZSTD_getFrameParams ZSTD_getFrameParams;
    pieces:
        __ZSTD_decompressBegin ZSTD_decompressBegin
        __ZSTD_decompressBegin_usingDict ZSTD_decompressBegin_usingDict
        __ZSTD_copyDCtx ZSTD_copyDCtx
        __ZSTD_nextSrcSizeToDecompress ZSTD_nextSrcSizeToDecompress
        __ZSTD_decompressContinue ZSTD_decompressContinue
        __ZSTD_nextInputType ZSTD_nextInputType
        __ZSTD_decompressBlock ZSTD_decompressBlock
        __ZSTD_insertBlock ZSTD_insertBlock;
}
