/*
 * zstd in memory that the caller gives, with the names, structs and error numbers of Linux' linux/zstd.h from 4.14 to 5.15.
 *
 * libzstd has some of these names with other parameters: a program that holds both cannot use this header. For it there is
 * restow/zstd.h.
 *
 * A context lies in a workspace, which may begin at any address. It needs no function that frees it. NULL for a context, a
 * struct or a buffer that is not empty gives an error, and so does a workspace that is too small; where a context is
 * returned, NULL. Dictionaries are not copied.
 *
 * All functions are here. Where they are more or less than in Linux:
 *
 *   ZSTD_CCtxWorkspaceBound      is ZSTD_CStreamWorkspaceBound: dictionaries and ZSTD_compressContinue need a window
 *   ZSTD_compressContinue,       the source may go away after the call
 *   ZSTD_compressBlock
 *   ZSTD_decompressContinue,     refer to content before the destination only if that goes on where the last call's content has
 *   ZSTD_decompressBlock         ended; ring buffers in which a window begins at the end and goes on at the start are refused
 *   searchLength                 may be 0: a sample of the content decides
 */
#ifndef RESTOW_ZSTD_2017_H
#define RESTOW_ZSTD_2017_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stddef.h>
#include <stdint.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
	ZSTD_error_no_error,
	ZSTD_error_GENERIC,
	ZSTD_error_prefix_unknown,
	ZSTD_error_version_unsupported,
	ZSTD_error_parameter_unknown,
	ZSTD_error_frameParameter_unsupported,
	ZSTD_error_frameParameter_unsupportedBy32bits,
	ZSTD_error_frameParameter_windowTooLarge,
	ZSTD_error_compressionParameter_unsupported,
	ZSTD_error_init_missing,
	ZSTD_error_memory_allocation,
	ZSTD_error_stage_wrong,
	ZSTD_error_dstSize_tooSmall,
	ZSTD_error_srcSize_wrong,
	ZSTD_error_corruption_detected,
	ZSTD_error_checksum_wrong,
	ZSTD_error_tableLog_tooLarge,
	ZSTD_error_maxSymbolValue_tooLarge,
	ZSTD_error_maxSymbolValue_tooSmall,
	ZSTD_error_dictionary_corrupted,
	ZSTD_error_dictionary_wrong,
	ZSTD_error_dictionaryCreation_failed,
	ZSTD_error_maxCode
} ZSTD_ErrorCode;

/* What a function has returned: whether it is an error, and which one. */
static inline unsigned int ZSTD_isError(size_t code)
{
	return code > (size_t)-ZSTD_error_maxCode;
}

static inline ZSTD_ErrorCode ZSTD_getErrorCode(size_t code)
{
	if (!ZSTD_isError(code))
		return ZSTD_error_no_error;
	return (ZSTD_ErrorCode)(0 - code);
}

/* ---- parameters ---- */

typedef enum {
	ZSTD_fast,
	ZSTD_dfast,
	ZSTD_greedy,
	ZSTD_lazy,
	ZSTD_lazy2,
	ZSTD_btlazy2,
	ZSTD_btopt,
	ZSTD_btopt2
} ZSTD_strategy;

typedef struct {
	unsigned int windowLog;
	unsigned int chainLog;
	unsigned int hashLog;
	unsigned int searchLog;
	unsigned int searchLength;
	unsigned int targetLength;
	ZSTD_strategy strategy;
} ZSTD_compressionParameters;

typedef struct {
	unsigned int contentSizeFlag;
	unsigned int checksumFlag;
	unsigned int noDictIDFlag;
} ZSTD_frameParameters;

typedef struct {
	ZSTD_compressionParameters cParams;
	ZSTD_frameParameters fParams;
} ZSTD_parameters;

int ZSTD_maxCLevel(void);

/* The largest size of a frame of so much content. */
size_t ZSTD_compressBound(size_t srcSize);

/* The parameters of a level for content of a size, 0 if that is unknown, behind a dictionary. All frame flags are 0. */
ZSTD_compressionParameters ZSTD_getCParams(int compressionLevel, unsigned long long estimatedSrcSize, size_t dictSize);
ZSTD_parameters ZSTD_getParams(int compressionLevel, unsigned long long estimatedSrcSize, size_t dictSize);

/* 0, or an error. */
size_t ZSTD_checkCParams(ZSTD_compressionParameters cParams);

/* The same, with window and tables reduced to what the content can use. */
ZSTD_compressionParameters ZSTD_adjustCParams(ZSTD_compressionParameters cParams, unsigned long long srcSize,
					      size_t dictSize);

/* ---- frames in one call ---- */

typedef struct ZSTD_CCtx_s ZSTD_CCtx;
typedef struct ZSTD_DCtx_s ZSTD_DCtx;

size_t ZSTD_CCtxWorkspaceBound(ZSTD_compressionParameters cParams);
ZSTD_CCtx *ZSTD_initCCtx(void *workspace, size_t workspaceSize);
size_t ZSTD_compressCCtx(ZSTD_CCtx *ctx, void *dst, size_t dstCapacity, const void *src, size_t srcSize,
			 ZSTD_parameters params);

size_t ZSTD_DCtxWorkspaceBound(void);
ZSTD_DCtx *ZSTD_initDCtx(void *workspace, size_t workspaceSize);

/* Several frames may follow one another. */
size_t ZSTD_decompressDCtx(ZSTD_DCtx *ctx, void *dst, size_t dstCapacity, const void *src, size_t srcSize);

/* ---- dictionaries ---- */

typedef struct ZSTD_CDict_s ZSTD_CDict;
typedef struct ZSTD_DDict_s ZSTD_DDict;

size_t ZSTD_compress_usingDict(ZSTD_CCtx *ctx, void *dst, size_t dstCapacity, const void *src, size_t srcSize,
			       const void *dict, size_t dictSize, ZSTD_parameters params);
size_t ZSTD_decompress_usingDict(ZSTD_DCtx *ctx, void *dst, size_t dstCapacity, const void *src, size_t srcSize,
				 const void *dict, size_t dictSize);

size_t ZSTD_CDictWorkspaceBound(ZSTD_compressionParameters cParams);
ZSTD_CDict *ZSTD_initCDict(const void *dictBuffer, size_t dictSize, ZSTD_parameters params, void *workspace,
			   size_t workspaceSize);
size_t ZSTD_compress_usingCDict(ZSTD_CCtx *cctx, void *dst, size_t dstCapacity, const void *src, size_t srcSize,
				const ZSTD_CDict *cdict);

size_t ZSTD_DDictWorkspaceBound(void);
ZSTD_DDict *ZSTD_initDDict(const void *dictBuffer, size_t dictSize, void *workspace, size_t workspaceSize);
size_t ZSTD_decompress_usingDDict(ZSTD_DCtx *dctx, void *dst, size_t dstCapacity, const void *src, size_t srcSize,
				  const ZSTD_DDict *ddict);

/* ---- streams ---- */

typedef struct {
	const void *src;
	size_t size;
	size_t pos;
} ZSTD_inBuffer;

typedef struct {
	void *dst;
	size_t size;
	size_t pos;
} ZSTD_outBuffer;

typedef ZSTD_CCtx ZSTD_CStream;
typedef ZSTD_DCtx ZSTD_DStream;

size_t ZSTD_CStreamWorkspaceBound(ZSTD_compressionParameters cParams);
ZSTD_CStream *ZSTD_initCStream(ZSTD_parameters params, unsigned long long pledgedSrcSize, void *workspace,
			       size_t workspaceSize);
ZSTD_CStream *ZSTD_initCStream_usingCDict(const ZSTD_CDict *cdict, unsigned long long pledgedSrcSize, void *workspace,
					  size_t workspaceSize);

/* Begins another frame, whatever became of this one. The header tells pledgedSrcSize unless it is 0. */
size_t ZSTD_resetCStream(ZSTD_CStream *zcs, unsigned long long pledgedSrcSize);

/* Gives how much input would complete a block, or an error. */
size_t ZSTD_compressStream(ZSTD_CStream *zcs, ZSTD_outBuffer *output, ZSTD_inBuffer *input);

/* Complete blocks, or the frame. Give 0 when that is done, how many bytes wait for room, or an error. */
size_t ZSTD_flushStream(ZSTD_CStream *zcs, ZSTD_outBuffer *output);
size_t ZSTD_endStream(ZSTD_CStream *zcs, ZSTD_outBuffer *output);

size_t ZSTD_CStreamInSize(void);
size_t ZSTD_CStreamOutSize(void);

size_t ZSTD_DStreamWorkspaceBound(size_t maxWindowSize);
ZSTD_DStream *ZSTD_initDStream(size_t maxWindowSize, void *workspace, size_t workspaceSize);
ZSTD_DStream *ZSTD_initDStream_usingDDict(size_t maxWindowSize, const ZSTD_DDict *ddict, void *workspace,
					  size_t workspaceSize);
size_t ZSTD_resetDStream(ZSTD_DStream *zds);

/*
 * Gives 0 when a frame is complete and given out, how much input would do for the next step, or an error, which comes again
 * until the stream is reset.
 */
size_t ZSTD_decompressStream(ZSTD_DStream *zds, ZSTD_outBuffer *output, ZSTD_inBuffer *input);

size_t ZSTD_DStreamInSize(void);
size_t ZSTD_DStreamOutSize(void);

/* ---- frames ---- */

#define ZSTD_MAGICNUMBER 0xFD2FB528
#define ZSTD_MAGIC_SKIPPABLE_START 0x184D2A50U
#define ZSTD_CONTENTSIZE_UNKNOWN (0ULL - 1)
#define ZSTD_CONTENTSIZE_ERROR (0ULL - 2)
#define ZSTD_WINDOWLOG_MAX 27
#define ZSTD_WINDOWLOG_MIN 10
#define ZSTD_BLOCKSIZE_ABSOLUTEMAX (128 * 1024)
#define ZSTD_FRAMEHEADERSIZE_MIN 6
#define ZSTD_FRAMEHEADERSIZE_MAX 18
#define ZSTD_SKIPPABLEHEADERSIZE 8

size_t ZSTD_findFrameCompressedSize(const void *src, size_t srcSize);
unsigned long long ZSTD_getFrameContentSize(const void *src, size_t srcSize);
unsigned long long ZSTD_findDecompressedSize(const void *src, size_t srcSize);
unsigned int ZSTD_isFrame(const void *buffer, size_t size);
unsigned int ZSTD_getDictID_fromDict(const void *dict, size_t dictSize);
unsigned int ZSTD_getDictID_fromDDict(const ZSTD_DDict *ddict);
unsigned int ZSTD_getDictID_fromFrame(const void *src, size_t srcSize);

/* windowSize is 0 for a skippable frame. */
typedef struct {
	unsigned long long frameContentSize;
	unsigned int windowSize;
	unsigned int dictID;
	unsigned int checksumFlag;
} ZSTD_frameParams;

/* 0, how many bytes are needed from the start of the frame, or an error. */
size_t ZSTD_getFrameParams(ZSTD_frameParams *fparamsPtr, const void *src, size_t srcSize);

/* ---- frames from calls that each complete their blocks ---- */

size_t ZSTD_compressBegin(ZSTD_CCtx *cctx, int compressionLevel);
size_t ZSTD_compressBegin_usingDict(ZSTD_CCtx *cctx, const void *dict, size_t dictSize, int compressionLevel);
size_t ZSTD_compressBegin_advanced(ZSTD_CCtx *cctx, const void *dict, size_t dictSize, ZSTD_parameters params,
				   unsigned long long pledgedSrcSize);
size_t ZSTD_copyCCtx(ZSTD_CCtx *cctx, const ZSTD_CCtx *preparedCCtx, unsigned long long pledgedSrcSize);
size_t ZSTD_compressBegin_usingCDict(ZSTD_CCtx *cctx, const ZSTD_CDict *cdict, unsigned long long pledgedSrcSize);
size_t ZSTD_compressContinue(ZSTD_CCtx *cctx, void *dst, size_t dstCapacity, const void *src, size_t srcSize);
size_t ZSTD_compressEnd(ZSTD_CCtx *cctx, void *dst, size_t dstCapacity, const void *src, size_t srcSize);

/* ---- frames piece by piece ---- */

typedef enum {
	ZSTDnit_frameHeader,
	ZSTDnit_blockHeader,
	ZSTDnit_block,
	ZSTDnit_lastBlock,
	ZSTDnit_checksum,
	ZSTDnit_skippableFrame
} ZSTD_nextInputType_e;

size_t ZSTD_decompressBegin(ZSTD_DCtx *dctx);
size_t ZSTD_decompressBegin_usingDict(ZSTD_DCtx *dctx, const void *dict, size_t dictSize);
void ZSTD_copyDCtx(ZSTD_DCtx *dctx, const ZSTD_DCtx *preparedDCtx);
size_t ZSTD_nextSrcSizeToDecompress(ZSTD_DCtx *dctx);
size_t ZSTD_decompressContinue(ZSTD_DCtx *dctx, void *dst, size_t dstCapacity, const void *src, size_t srcSize);
ZSTD_nextInputType_e ZSTD_nextInputType(ZSTD_DCtx *dctx);

/* ---- blocks without headers ---- */

size_t ZSTD_getBlockSizeMax(ZSTD_CCtx *cctx);

/* 0 if the block is to be stored as it is. */
size_t ZSTD_compressBlock(ZSTD_CCtx *cctx, void *dst, size_t dstCapacity, const void *src, size_t srcSize);
size_t ZSTD_decompressBlock(ZSTD_DCtx *dctx, void *dst, size_t dstCapacity, const void *src, size_t srcSize);

/* Declares a block that was stored as it is. */
size_t ZSTD_insertBlock(ZSTD_DCtx *dctx, const void *blockStart, size_t blockSize);

#ifdef __cplusplus
}
#endif

#endif
