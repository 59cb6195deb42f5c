/* A variable for each function, as a user-space build of the kernel's sources makes them. */
extern void *__ZSTD_maxCLevel;
extern void *__ZSTD_compressBound;
extern void *__ZSTD_getCParams;
extern void *__ZSTD_getParams;
extern void *__ZSTD_checkCParams;
extern void *__ZSTD_adjustCParams;
extern void *__ZSTD_CCtxWorkspaceBound;
extern void *__ZSTD_initCCtx;
extern void *__ZSTD_compressCCtx;
extern void *__ZSTD_DCtxWorkspaceBound;
extern void *__ZSTD_initDCtx;
extern void *__ZSTD_decompressDCtx;
extern void *__ZSTD_compress_usingDict;
extern void *__ZSTD_decompress_usingDict;
extern void *__ZSTD_CDictWorkspaceBound;
extern void *__ZSTD_initCDict;
extern void *__ZSTD_compress_usingCDict;
extern void *__ZSTD_DDictWorkspaceBound;
extern void *__ZSTD_initDDict;
extern void *__ZSTD_decompress_usingDDict;
extern void *__ZSTD_CStreamWorkspaceBound;
extern void *__ZSTD_initCStream;
extern void *__ZSTD_initCStream_usingCDict;
extern void *__ZSTD_resetCStream;
extern void *__ZSTD_compressStream;
extern void *__ZSTD_flushStream;
extern void *__ZSTD_endStream;
extern void *__ZSTD_CStreamInSize;
extern void *__ZSTD_CStreamOutSize;
extern void *__ZSTD_DStreamWorkspaceBound;
extern void *__ZSTD_initDStream;
extern void *__ZSTD_initDStream_usingDDict;
extern void *__ZSTD_resetDStream;
extern void *__ZSTD_decompressStream;
extern void *__ZSTD_DStreamInSize;
extern void *__ZSTD_DStreamOutSize;
extern void *__ZSTD_findFrameCompressedSize;
extern void *__ZSTD_getFrameContentSize;
extern void *__ZSTD_findDecompressedSize;
extern void *__ZSTD_isFrame;
extern void *__ZSTD_getDictID_fromDict;
extern void *__ZSTD_getDictID_fromDDict;
extern void *__ZSTD_getDictID_fromFrame;
extern void *__ZSTD_getFrameParams;
extern void *__ZSTD_compressBegin;
extern void *__ZSTD_compressBegin_usingDict;
extern void *__ZSTD_compressBegin_advanced;
extern void *__ZSTD_copyCCtx;
extern void *__ZSTD_compressBegin_usingCDict;
extern void *__ZSTD_compressContinue;
extern void *__ZSTD_compressEnd;
extern void *__ZSTD_decompressBegin;
extern void *__ZSTD_decompressBegin_usingDict;
extern void *__ZSTD_copyDCtx;
extern void *__ZSTD_nextSrcSizeToDecompress;
extern void *__ZSTD_decompressContinue;
extern void *__ZSTD_nextInputType;
extern void *__ZSTD_getBlockSizeMax;
extern void *__ZSTD_compressBlock;
extern void *__ZSTD_decompressBlock;
extern void *__ZSTD_insertBlock;

static void **const pointers[] = {
	&__ZSTD_maxCLevel,
	&__ZSTD_compressBound,
	&__ZSTD_getCParams,
	&__ZSTD_getParams,
	&__ZSTD_checkCParams,
	&__ZSTD_adjustCParams,
	&__ZSTD_CCtxWorkspaceBound,
	&__ZSTD_initCCtx,
	&__ZSTD_compressCCtx,
	&__ZSTD_DCtxWorkspaceBound,
	&__ZSTD_initDCtx,
	&__ZSTD_decompressDCtx,
	&__ZSTD_compress_usingDict,
	&__ZSTD_decompress_usingDict,
	&__ZSTD_CDictWorkspaceBound,
	&__ZSTD_initCDict,
	&__ZSTD_compress_usingCDict,
	&__ZSTD_DDictWorkspaceBound,
	&__ZSTD_initDDict,
	&__ZSTD_decompress_usingDDict,
	&__ZSTD_CStreamWorkspaceBound,
	&__ZSTD_initCStream,
	&__ZSTD_initCStream_usingCDict,
	&__ZSTD_resetCStream,
	&__ZSTD_compressStream,
	&__ZSTD_flushStream,
	&__ZSTD_endStream,
	&__ZSTD_CStreamInSize,
	&__ZSTD_CStreamOutSize,
	&__ZSTD_DStreamWorkspaceBound,
	&__ZSTD_initDStream,
	&__ZSTD_initDStream_usingDDict,
	&__ZSTD_resetDStream,
	&__ZSTD_decompressStream,
	&__ZSTD_DStreamInSize,
	&__ZSTD_DStreamOutSize,
	&__ZSTD_findFrameCompressedSize,
	&__ZSTD_getFrameContentSize,
	&__ZSTD_findDecompressedSize,
	&__ZSTD_isFrame,
	&__ZSTD_getDictID_fromDict,
	&__ZSTD_getDictID_fromDDict,
	&__ZSTD_getDictID_fromFrame,
	&__ZSTD_getFrameParams,
	&__ZSTD_compressBegin,
	&__ZSTD_compressBegin_usingDict,
	&__ZSTD_compressBegin_advanced,
	&__ZSTD_copyCCtx,
	&__ZSTD_compressBegin_usingCDict,
	&__ZSTD_compressContinue,
	&__ZSTD_compressEnd,
	&__ZSTD_decompressBegin,
	&__ZSTD_decompressBegin_usingDict,
	&__ZSTD_copyDCtx,
	&__ZSTD_nextSrcSizeToDecompress,
	&__ZSTD_decompressContinue,
	&__ZSTD_nextInputType,
	&__ZSTD_getBlockSizeMax,
	&__ZSTD_compressBlock,
	&__ZSTD_decompressBlock,
	&__ZSTD_insertBlock,
};
