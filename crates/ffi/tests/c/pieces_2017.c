/*
 * The rest of the 2017 interface: frames from calls that each complete their blocks, frames piece by piece, blocks without
 * headers, copies of contexts, and looking at frames.
 */
#include "check.h"
#include "dictionary.h"
#include <restow/zstd_2017.h>

#define DATA ((size_t)300 << 10)
#define ROOM ((size_t)400 << 10)

static char *data, *frame, *back;

static void allocate(void)
{
	if (data)
		return;
	data = memory(DATA);
	frame = memory(ROOM);
	back = memory(DATA);
	for (size_t i = 0; i < DATA; i++)
		data[i] = i > 5000 && random_number() % 16 ? data[i - 4999] : (char)(random_number() % 16);
}

static ZSTD_CCtx *new_cctx(void)
{
	size_t size = ZSTD_CCtxWorkspaceBound(ZSTD_getCParams(9, 0, 0));

	return ZSTD_initCCtx(memory(size), size);
}

static ZSTD_DCtx *new_dctx(void)
{
	size_t size = ZSTD_DCtxWorkspaceBound();

	return ZSTD_initDCtx(memory(size), size);
}

/* Pieces of 100,000 bytes, each of which may be gone after its call. */
static size_t compress_rest(ZSTD_CCtx *cctx)
{
	size_t size = 0, at = 0, piece = 100000;

	while (at + piece < DATA) {
		char *source = memory(piece);
		size_t got;

		memcpy(source, data + at, piece);
		got = ZSTD_compressContinue(cctx, frame + size, ROOM - size, source, piece);
		CHECK(!ZSTD_isError(got));
		memset(source, 0, piece);
		free(source);
		size += got;
		at += piece;
	}
	at = ZSTD_compressEnd(cctx, frame + size, ROOM - size, data + at, DATA - at);
	CHECK(!ZSTD_isError(at));
	return size + at;
}

static void decompress_rest(ZSTD_DCtx *dctx, size_t size)
{
	size_t at = 0, done = 0, wanted;
	int headers = 0, last = 0;

	while ((wanted = ZSTD_nextSrcSizeToDecompress(dctx)) > 0) {
		size_t got;

		CHECK(!ZSTD_isError(wanted) && wanted <= size - at);
		headers += ZSTD_nextInputType(dctx) == ZSTDnit_blockHeader;
		last += ZSTD_nextInputType(dctx) == ZSTDnit_lastBlock;
		CHECK(ZSTD_getErrorCode(ZSTD_decompressContinue(dctx, back + done, DATA - done, frame + at, wanted + 1)) ==
		      ZSTD_error_srcSize_wrong);
		got = ZSTD_decompressContinue(dctx, back + done, DATA - done, frame + at, wanted);
		CHECK(!ZSTD_isError(got));
		at += wanted;
		done += got;
	}
	CHECK(at == size && done == DATA && headers > 2 && last == 1);
	CHECK(memcmp(data, back, DATA) == 0);
	memset(back, 0, DATA);
}

static void calls_that_complete_their_blocks(void)
{
	ZSTD_CCtx *cctx = new_cctx();
	ZSTD_DCtx *dctx = new_dctx();

	allocate();
	for (int level = 1; level <= 9; level += 4) {
		size_t size;

		CHECK(ZSTD_compressBegin(cctx, level) == 0);
		size = compress_rest(cctx);
		CHECK(size < DATA / 2);
		CHECK(ZSTD_getFrameContentSize(frame, size) == ZSTD_CONTENTSIZE_UNKNOWN);
		CHECK(ZSTD_decompressDCtx(dctx, back, DATA, frame, size) == DATA);
		CHECK(memcmp(data, back, DATA) == 0);
		CHECK(ZSTD_decompressBegin(dctx) == 0);
		decompress_rest(dctx, size);
	}
	CHECK(ZSTD_getErrorCode(ZSTD_compressContinue(new_cctx(), frame, ROOM, data, 1)) == ZSTD_error_init_missing);
	CHECK(ZSTD_getErrorCode(ZSTD_nextSrcSizeToDecompress(new_dctx())) == ZSTD_error_init_missing);
}

static void dictionaries_and_copies(void)
{
	const void *dict = formatted_dictionary;
	size_t dict_size = sizeof(formatted_dictionary), size;
	ZSTD_CCtx *cctx = new_cctx(), *copy = new_cctx();
	ZSTD_DCtx *dctx = new_dctx(), *dcopy = new_dctx();
	ZSTD_parameters params = ZSTD_getParams(5, DATA, dict_size);
	size_t cdict_size = ZSTD_CDictWorkspaceBound(params.cParams);
	ZSTD_CDict *cdict = ZSTD_initCDict(dict, dict_size, params, memory(cdict_size), cdict_size);
	ZSTD_frameParams header;

	allocate();
	CHECK(cdict);
	CHECK(ZSTD_compressBegin_usingDict(cctx, dict, dict_size, 3) == 0);
	size = compress_rest(cctx);
	CHECK(ZSTD_getDictID_fromFrame(frame, size) == ZSTD_getDictID_fromDict(dict, dict_size));
	CHECK(ZSTD_decompressBegin(dctx) == 0);
	CHECK(!ZSTD_isError(ZSTD_decompressContinue(dctx, back, DATA, frame, ZSTD_nextSrcSizeToDecompress(dctx))));
	CHECK(ZSTD_getErrorCode(ZSTD_decompressContinue(dctx, back, DATA, frame + 5, ZSTD_nextSrcSizeToDecompress(dctx))) ==
	      ZSTD_error_dictionary_wrong);
	CHECK(ZSTD_decompressBegin_usingDict(dctx, dict, dict_size) == 0);
	ZSTD_copyDCtx(dcopy, dctx);
	decompress_rest(dctx, size);
	decompress_rest(dcopy, size);

	/* A copy begins a frame as its original has, and tells another size. */
	CHECK(ZSTD_compressBegin_usingCDict(cctx, cdict, 0) == 0);
	CHECK(ZSTD_copyCCtx(copy, cctx, DATA) == 0);
	size = compress_rest(cctx);
	CHECK(ZSTD_getFrameParams(&header, frame, size) == 0);
	CHECK(header.frameContentSize == ZSTD_CONTENTSIZE_UNKNOWN && header.dictID == 0x7e57 && header.checksumFlag == 0);
	CHECK(header.windowSize == 1u << params.cParams.windowLog);
	CHECK(ZSTD_decompress_usingDict(dctx, back, DATA, frame, size, dict, dict_size) == DATA);
	size = compress_rest(copy);
	CHECK(ZSTD_getFrameContentSize(frame, size) == DATA);
	CHECK(ZSTD_decompress_usingDict(dctx, back, DATA, frame, size, dict, dict_size) == DATA);
	CHECK(memcmp(data, back, DATA) == 0);

	params.fParams.contentSizeFlag = 1;
	params.fParams.checksumFlag = 1;
	CHECK(ZSTD_compressBegin_advanced(cctx, NULL, 0, params, DATA) == 0);
	size = compress_rest(cctx);
	CHECK(ZSTD_findDecompressedSize(frame, size) == DATA && ZSTD_findFrameCompressedSize(frame, size) == size);
	CHECK(ZSTD_decompressBegin(dctx) == 0);
	decompress_rest(dctx, size);
	/* Not what was pledged. */
	CHECK(ZSTD_compressBegin_advanced(cctx, NULL, 0, params, DATA + 1) == 0);
	CHECK(!ZSTD_isError(ZSTD_compressContinue(cctx, frame, ROOM, data, 100)));
	CHECK(ZSTD_getErrorCode(ZSTD_compressEnd(cctx, frame, ROOM, data, 100)) == ZSTD_error_srcSize_wrong);
}

static void blocks_without_headers(void)
{
	ZSTD_CCtx *cctx = new_cctx();
	ZSTD_DCtx *dctx = new_dctx();
	size_t at = 0, stored = 0, block = 20000;

	allocate();
	/* A part that no encoder makes smaller. */
	for (size_t i = 100000; i < 140000; i++)
		data[i] = (char)random_number();
	CHECK(ZSTD_compressBegin(cctx, 5) == 0);
	CHECK(ZSTD_getBlockSizeMax(cctx) == ZSTD_BLOCKSIZE_ABSOLUTEMAX);
	CHECK(ZSTD_decompressBegin(dctx) == 0);
	while (at + block <= DATA) {
		size_t size = ZSTD_compressBlock(cctx, frame, ROOM, data + at, block);

		CHECK(!ZSTD_isError(size) && size < block);
		if (size == 0) {
			memcpy(back + at, data + at, block);
			CHECK(ZSTD_insertBlock(dctx, back + at, block) == block);
			stored++;
		} else {
			CHECK(ZSTD_decompressBlock(dctx, back + at, DATA - at, frame, size) == block);
		}
		CHECK(memcmp(data + at, back + at, block) == 0);
		at += block;
	}
	CHECK(stored == 2);
	CHECK(ZSTD_getErrorCode(ZSTD_compressBlock(cctx, frame, ROOM, data, ZSTD_BLOCKSIZE_ABSOLUTEMAX + 1)) ==
	      ZSTD_error_srcSize_wrong);
	CHECK(ZSTD_isError(ZSTD_decompressBlock(dctx, back, DATA, frame, 0)));
}

static void parameters_by_value(void)
{
	ZSTD_parameters params = ZSTD_getParams(19, 0, 0);
	ZSTD_compressionParameters bad, small;

	CHECK(sizeof(ZSTD_compressionParameters) == 28 && sizeof(ZSTD_parameters) == 40);
	CHECK(ZSTD_maxCLevel() == 22);
	CHECK(params.cParams.strategy == ZSTD_btopt2 && params.cParams.windowLog == 23);
	CHECK(ZSTD_getParams(1, 0, 0).cParams.strategy == ZSTD_fast);
	for (int level = -1; level <= 22; level++)
		CHECK(ZSTD_checkCParams(ZSTD_getCParams(level, 0, 0)) == 0);
	bad = params.cParams;
	bad.windowLog = 28;
	CHECK(ZSTD_getErrorCode(ZSTD_checkCParams(bad)) == ZSTD_error_compressionParameter_unsupported);
	CHECK(ZSTD_isError(ZSTD_CCtxWorkspaceBound(bad)) && ZSTD_isError(ZSTD_CStreamWorkspaceBound(bad)));
	small = ZSTD_adjustCParams(params.cParams, 1000, 24);
	CHECK(small.windowLog == 10 && small.strategy == params.cParams.strategy);
	CHECK(memcmp(&(ZSTD_compressionParameters[]){ ZSTD_adjustCParams(params.cParams, 0, 0) }, &params.cParams,
		     sizeof(params.cParams)) == 0);
	CHECK(ZSTD_compressBound(128000) == 128000 + 1000 + 512 + 12);
	CHECK(ZSTD_CStreamInSize() == 131072 && ZSTD_CStreamOutSize() == ZSTD_compressBound(131072) + 7);
	CHECK(ZSTD_DStreamInSize() == 131075 && ZSTD_DStreamOutSize() == 131072);
}

static void looking_at_frames(void)
{
	static const unsigned char skippable[] = { 0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'a', 'b', 'c' };
	static const unsigned char empty[] = { 0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x00, 0x01, 0x00, 0x00 };
	ZSTD_DCtx *dctx = new_dctx();
	ZSTD_frameParams header;
	char both[sizeof(skippable) + sizeof(empty)];

	CHECK(ZSTD_isFrame(skippable, 4) && ZSTD_isFrame(empty, 4));
	CHECK(!ZSTD_isFrame("zstd", 4) && !ZSTD_isFrame(empty, 3) && !ZSTD_isFrame(NULL, 0));
	CHECK(ZSTD_getFrameParams(&header, skippable, sizeof(skippable)) == 0);
	CHECK(header.windowSize == 0 && header.frameContentSize == 3);
	CHECK(ZSTD_getFrameParams(&header, empty, 4) == 5 && ZSTD_getFrameParams(&header, empty, 5) == 6);
	CHECK(ZSTD_getFrameParams(&header, empty, 6) == 0 && header.windowSize == 1024);
	CHECK(ZSTD_getFrameContentSize(empty, 6) == ZSTD_CONTENTSIZE_UNKNOWN);
	CHECK(ZSTD_getFrameContentSize("zstd?", 5) == ZSTD_CONTENTSIZE_ERROR);
	CHECK(ZSTD_getFrameContentSize(skippable, sizeof(skippable)) == 0);
	CHECK(ZSTD_findDecompressedSize(skippable, sizeof(skippable)) == 0);
	CHECK(ZSTD_findDecompressedSize(empty, 8) == ZSTD_CONTENTSIZE_ERROR);
	CHECK(ZSTD_findFrameCompressedSize(skippable, sizeof(skippable)) == sizeof(skippable));
	CHECK(ZSTD_getErrorCode(ZSTD_findFrameCompressedSize(empty, 8)) == ZSTD_error_srcSize_wrong);
	CHECK(ZSTD_getDictID_fromDict("not a dictionary", 16) == 0 && ZSTD_getDictID_fromDDict(NULL) == 0);
	memcpy(both, skippable, sizeof(skippable));
	memcpy(both + sizeof(skippable), empty, sizeof(empty));
	CHECK(ZSTD_decompressDCtx(dctx, NULL, 0, both, sizeof(both)) == 0);
	CHECK(ZSTD_getErrorCode(ZSTD_decompressDCtx(dctx, NULL, 0, both, sizeof(both) - 1)) == ZSTD_error_srcSize_wrong);
}

static void windows_have_a_limit(void)
{
	size_t size = ZSTD_DStreamWorkspaceBound(100);
	ZSTD_DStream *zds = ZSTD_initDStream(100, memory(size), size);
	/* Windows of 1 KiB and of 2 KiB. */
	static const unsigned char fits[] = { 0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x00, 0x01, 0x00, 0x00 };
	static const unsigned char large[] = { 0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x08, 0x01, 0x00, 0x00 };
	ZSTD_inBuffer in = { fits, sizeof(fits), 0 };
	ZSTD_outBuffer out = { NULL, 0, 0 };

	CHECK(zds && size == ZSTD_DStreamWorkspaceBound(1024));
	CHECK(ZSTD_initDStream(100, memory(size), size - 64) == NULL);
	CHECK(ZSTD_initDStream(100, NULL, size) == NULL);
	CHECK(ZSTD_initCDict(NULL, 5, ZSTD_getParams(1, 0, 0), memory(100), 100) == NULL);
	CHECK(ZSTD_initDDict("dictionary", 10, memory(100), 100) == NULL);
	CHECK(ZSTD_initDStream_usingDDict(100, NULL, memory(size), size) == NULL);
	CHECK(ZSTD_initCStream_usingCDict(NULL, 0, memory(size), size) == NULL);
	CHECK(ZSTD_decompressStream(zds, &out, &in) == 0);
	in = (ZSTD_inBuffer){ large, sizeof(large), 0 };
	CHECK(ZSTD_getErrorCode(ZSTD_decompressStream(zds, &out, &in)) == ZSTD_error_frameParameter_windowTooLarge);
	CHECK(ZSTD_getErrorCode(ZSTD_decompressStream(NULL, &out, &in)) == ZSTD_error_GENERIC);
	CHECK(ZSTD_getErrorCode(ZSTD_resetDStream(NULL)) == ZSTD_error_GENERIC);
	CHECK(ZSTD_getErrorCode(ZSTD_compressBegin(NULL, 1)) == ZSTD_error_GENERIC);
}

static const struct named_case cases[] = {
	CASE(calls_that_complete_their_blocks),
	CASE(dictionaries_and_copies),
	CASE(blocks_without_headers),
	CASE(parameters_by_value),
	CASE(looking_at_frames),
	CASE(windows_have_a_limit),
};

int main(int argc, char **argv)
{
	return run_cases(cases, sizeof(cases) / sizeof(cases[0]), argc, argv);
}
