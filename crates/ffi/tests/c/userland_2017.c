/*
 * What the user-space test of the 2017 interface demands, case by case.
 */
#include "check.h"
#include "dictionary.h"
#include <restow/zstd_2017.h>

#define MESSAGE "Hello world"
#define SIZE (sizeof(MESSAGE) - 1)
#define ROOM 1024

static char frame[ROOM];
static char back[ROOM];

static ZSTD_CCtx *new_cctx(ZSTD_compressionParameters cParams)
{
	size_t size = ZSTD_CCtxWorkspaceBound(cParams);
	ZSTD_CCtx *cctx = ZSTD_initCCtx(memory(size), size);

	CHECK(cctx != NULL);
	return cctx;
}

static ZSTD_DCtx *new_dctx(void)
{
	size_t size = ZSTD_DCtxWorkspaceBound();
	ZSTD_DCtx *dctx = ZSTD_initDCtx(memory(size), size);

	CHECK(dctx != NULL);
	return dctx;
}

static void check_back(size_t size)
{
	CHECK(!ZSTD_isError(size));
	CHECK(size == SIZE);
	CHECK(memcmp(back, MESSAGE, SIZE) == 0);
	memset(back, 0, sizeof(back));
}

static size_t compress(ZSTD_CCtx *cctx, ZSTD_parameters params)
{
	size_t size = ZSTD_compressCCtx(cctx, frame, ROOM, MESSAGE, SIZE, params);

	CHECK(!ZSTD_isError(size));
	return size;
}

static void Block_CCtx(void)
{
	ZSTD_parameters params = ZSTD_getParams(1, SIZE, 0);
	size_t size = compress(new_cctx(params.cParams), params);

	check_back(ZSTD_decompressDCtx(new_dctx(), back, ROOM, frame, size));
}

static void Block_NoContentSize(void)
{
	ZSTD_parameters params = ZSTD_getParams(1, SIZE, 0);
	size_t size;

	CHECK(params.fParams.contentSizeFlag == 0 && params.fParams.checksumFlag == 0 && params.fParams.noDictIDFlag == 0);
	size = compress(new_cctx(params.cParams), params);
	CHECK(ZSTD_findDecompressedSize(frame, size) == ZSTD_CONTENTSIZE_UNKNOWN);
	CHECK(ZSTD_getFrameContentSize(frame, size) == ZSTD_CONTENTSIZE_UNKNOWN);
}

static void Block_ContentSize(void)
{
	ZSTD_parameters params = ZSTD_getParams(1, SIZE, 0);
	size_t size;

	params.fParams.contentSizeFlag = 1;
	size = compress(new_cctx(params.cParams), params);
	CHECK(ZSTD_findDecompressedSize(frame, size) == SIZE);
	CHECK(ZSTD_getFrameContentSize(frame, size) == SIZE);
}

static void Block_CCtxLevelIncrease(void)
{
	unsigned long long estimates[] = { 0, SIZE };

	for (int i = 0; i < 2; i++) {
		ZSTD_CCtx *cctx = new_cctx(ZSTD_getCParams(22, estimates[i], 0));
		ZSTD_DCtx *dctx = new_dctx();

		for (int level = 0; level <= 22; level++) {
			size_t size = compress(cctx, ZSTD_getParams(level, SIZE, 0));

			check_back(ZSTD_decompressDCtx(dctx, back, ROOM, frame, size));
		}
	}
}

static char plain[10010];

static size_t plain_dictionary(void)
{
	size_t size = 0;

	while (size < 10000) {
		memcpy(plain + size, MESSAGE, SIZE);
		size += SIZE;
	}
	return size;
}

static void with_dictionary(const void *dict, size_t dict_size)
{
	ZSTD_parameters params = ZSTD_getParams(1, SIZE, dict_size);
	ZSTD_CCtx *cctx = new_cctx(params.cParams);
	ZSTD_DCtx *dctx = new_dctx();
	size_t size = ZSTD_compress_usingDict(cctx, frame, ROOM, MESSAGE, SIZE, dict, dict_size, params);

	CHECK(!ZSTD_isError(size));
	CHECK(ZSTD_isError(ZSTD_decompressDCtx(dctx, back, ROOM, frame, size)));
	check_back(ZSTD_decompress_usingDict(dctx, back, ROOM, frame, size, dict, dict_size));
}

static void Block_PlainDict(void)
{
	with_dictionary(plain, plain_dictionary());
}

static void Block_ZstdDict(void)
{
	with_dictionary(formatted_dictionary, sizeof(formatted_dictionary));
	CHECK(ZSTD_getDictID_fromFrame(frame, ROOM) == 0x7e57);
}

static ZSTD_CDict *new_cdict(const void *dict, size_t dict_size, ZSTD_parameters params)
{
	size_t size = ZSTD_CDictWorkspaceBound(params.cParams);
	ZSTD_CDict *cdict = ZSTD_initCDict(dict, dict_size, params, memory(size), size);

	CHECK(cdict != NULL);
	return cdict;
}

static ZSTD_DDict *new_ddict(const void *dict, size_t dict_size)
{
	size_t size = ZSTD_DDictWorkspaceBound();
	ZSTD_DDict *ddict = ZSTD_initDDict(dict, dict_size, memory(size), size);

	CHECK(ddict != NULL);
	return ddict;
}

static void with_prepared_dictionary(const void *dict, size_t dict_size)
{
	ZSTD_parameters params = ZSTD_getParams(1, SIZE, dict_size);
	ZSTD_CCtx *cctx = new_cctx(params.cParams);
	ZSTD_CDict *cdict = new_cdict(dict, dict_size, params);
	ZSTD_DDict *ddict = new_ddict(dict, dict_size);
	ZSTD_DCtx *dctx = new_dctx();
	size_t size = ZSTD_compress_usingCDict(cctx, frame, ROOM, MESSAGE, SIZE, cdict);

	CHECK(!ZSTD_isError(size));
	CHECK(ZSTD_isError(ZSTD_decompressDCtx(dctx, back, ROOM, frame, size)));
	check_back(ZSTD_decompress_usingDDict(dctx, back, ROOM, frame, size, ddict));
	CHECK(ZSTD_getDictID_fromDDict(ddict) == ZSTD_getDictID_fromFrame(frame, size));
}

static void Block_PreprocessedPlainDict(void)
{
	with_prepared_dictionary(plain, plain_dictionary());
}

static void Block_PreprocessedZstdDict(void)
{
	with_prepared_dictionary(formatted_dictionary, sizeof(formatted_dictionary));
}

static void Block_ReinitializeCCtx(void)
{
	ZSTD_parameters params = ZSTD_getParams(1, SIZE, 0);
	size_t workspace_size = ZSTD_CCtxWorkspaceBound(params.cParams);
	void *workspace = memory(workspace_size);
	ZSTD_DCtx *dctx = new_dctx();

	for (int i = 0; i < 3; i++) {
		ZSTD_CCtx *cctx = ZSTD_initCCtx(workspace, workspace_size);

		CHECK(cctx != NULL);
		check_back(ZSTD_decompressDCtx(dctx, back, ROOM, frame, compress(cctx, params)));
	}
}

static void Block_ReinitializeDCtx(void)
{
	ZSTD_parameters params = ZSTD_getParams(1, SIZE, 0);
	size_t size = compress(new_cctx(params.cParams), params);
	size_t workspace_size = ZSTD_DCtxWorkspaceBound();
	void *workspace = memory(workspace_size);

	for (int i = 0; i < 3; i++) {
		ZSTD_DCtx *dctx = ZSTD_initDCtx(workspace, workspace_size);

		CHECK(dctx != NULL);
		check_back(ZSTD_decompressDCtx(dctx, back, ROOM, frame, size));
	}
}

static ZSTD_CStream *new_cstream(ZSTD_parameters params, unsigned long long pledged)
{
	size_t size = ZSTD_CStreamWorkspaceBound(params.cParams);
	ZSTD_CStream *zcs = ZSTD_initCStream(params, pledged, memory(size), size);

	CHECK(zcs != NULL);
	return zcs;
}

static ZSTD_DStream *new_dstream(size_t max_window)
{
	size_t size = ZSTD_DStreamWorkspaceBound(max_window);
	ZSTD_DStream *zds = ZSTD_initDStream(max_window, memory(size), size);

	CHECK(zds != NULL);
	return zds;
}

/* One call each, with as much room as a frame may take. */
static size_t stream(ZSTD_CStream *zcs)
{
	ZSTD_inBuffer in = { MESSAGE, SIZE, 0 };
	ZSTD_outBuffer out = { frame, ZSTD_compressBound(SIZE), 0 };

	CHECK(!ZSTD_isError(ZSTD_compressStream(zcs, &out, &in)));
	CHECK(in.pos == SIZE);
	CHECK(ZSTD_endStream(zcs, &out) == 0);
	return out.pos;
}

static void unstream(ZSTD_DStream *zds, size_t size)
{
	ZSTD_inBuffer in = { frame, size, 0 };
	ZSTD_outBuffer out = { back, ROOM, 0 };

	CHECK(ZSTD_decompressStream(zds, &out, &in) == 0);
	CHECK(in.pos == size);
	check_back(out.pos);
}

static int unstream_fails(ZSTD_DStream *zds, size_t size)
{
	ZSTD_inBuffer in = { frame, size, 0 };
	ZSTD_outBuffer out = { back, ROOM, 0 };

	return ZSTD_isError(ZSTD_decompressStream(zds, &out, &in));
}

static void Stream_Basic(void)
{
	ZSTD_parameters params = ZSTD_getParams(1, SIZE, 0);

	unstream(new_dstream((size_t)1 << params.cParams.windowLog), stream(new_cstream(params, SIZE)));
	/* The size is pledged, but the parameters do not ask to tell it. */
	CHECK(ZSTD_getFrameContentSize(frame, ROOM) == ZSTD_CONTENTSIZE_UNKNOWN);
}

static void Stream_PlainDict(void)
{
	size_t dict_size = plain_dictionary();
	ZSTD_parameters params = ZSTD_getParams(1, SIZE, dict_size);
	size_t bound, size;
	void *workspace;
	ZSTD_CStream *zcs;
	ZSTD_DStream *zds;

	params.cParams.windowLog = 17;
	bound = ZSTD_CStreamWorkspaceBound(params.cParams);
	zcs = ZSTD_initCStream_usingCDict(new_cdict(plain, dict_size, params), SIZE, memory(bound), bound);
	CHECK(zcs != NULL);
	size = stream(zcs);
	CHECK(unstream_fails(new_dstream(1 << 17), size));
	bound = ZSTD_DStreamWorkspaceBound(1 << 17);
	workspace = memory(bound);
	zds = ZSTD_initDStream_usingDDict(1 << 17, new_ddict(plain, dict_size), workspace, bound);
	CHECK(zds != NULL);
	unstream(zds, size);
}

static void Stream_ZstdDict(void)
{
	size_t dict_size = sizeof(formatted_dictionary);
	/* Of unknown size, which counts as small behind a dictionary. */
	ZSTD_parameters params = ZSTD_getParams(1, 0, dict_size);
	ZSTD_CDict *cdict = new_cdict(formatted_dictionary, dict_size, params);
	size_t bound, size;
	ZSTD_CStream *zcs;
	ZSTD_DStream *zds;

	CHECK(params.cParams.windowLog == 10 && ZSTD_CStreamWorkspaceBound(params.cParams) < 40000);
	params.cParams.windowLog = 17;
	bound = ZSTD_CStreamWorkspaceBound(params.cParams);
	zcs = ZSTD_initCStream_usingCDict(cdict, SIZE, memory(bound), bound);
	CHECK(zcs != NULL);
	size = stream(zcs);
	CHECK(unstream_fails(new_dstream(1 << 17), size));
	bound = ZSTD_DStreamWorkspaceBound(1 << 17);
	zds = ZSTD_initDStream_usingDDict(1 << 17, new_ddict(formatted_dictionary, dict_size), memory(bound), bound);
	CHECK(zds != NULL);
	unstream(zds, size);
}

static void Stream_ResetCStream(void)
{
	ZSTD_parameters params = ZSTD_getParams(1, SIZE, 0);
	ZSTD_CStream *zcs = new_cstream(params, 0);
	ZSTD_DStream *zds = new_dstream((size_t)1 << params.cParams.windowLog);

	unstream(zds, stream(zcs));
	CHECK(!ZSTD_isError(ZSTD_resetCStream(zcs, 0)));
	unstream(zds, stream(zcs));
	CHECK(ZSTD_getFrameContentSize(frame, ROOM) == ZSTD_CONTENTSIZE_UNKNOWN);
	/* A size other than 0 goes into the header. */
	CHECK(!ZSTD_isError(ZSTD_resetCStream(zcs, SIZE)));
	unstream(zds, stream(zcs));
	CHECK(ZSTD_getFrameContentSize(frame, ROOM) == SIZE);
	CHECK(!ZSTD_isError(ZSTD_resetCStream(zcs, 0)));
	unstream(zds, stream(zcs));
	CHECK(ZSTD_getFrameContentSize(frame, ROOM) == ZSTD_CONTENTSIZE_UNKNOWN);
}

static void Stream_ResetDStream(void)
{
	ZSTD_parameters params = ZSTD_getParams(1, SIZE, 0);
	ZSTD_DStream *zds = new_dstream((size_t)1 << params.cParams.windowLog);
	ZSTD_inBuffer in = { MESSAGE, SIZE, 0 };
	ZSTD_outBuffer out = { back, ROOM, 0 };
	size_t size = stream(new_cstream(params, SIZE));

	unstream(zds, size);
	CHECK(ZSTD_getErrorCode(ZSTD_decompressStream(zds, &out, &in)) == ZSTD_error_prefix_unknown);
	CHECK(unstream_fails(zds, size));
	CHECK(!ZSTD_isError(ZSTD_resetDStream(zds)));
	unstream(zds, size);
	/* Another frame may follow without a reset. */
	unstream(zds, size);
}

static void Stream_Flush(void)
{
	ZSTD_parameters params = ZSTD_getParams(1, SIZE, 0);
	ZSTD_CStream *zcs = new_cstream(params, 0);
	ZSTD_DStream *zds = new_dstream((size_t)1 << params.cParams.windowLog);
	ZSTD_inBuffer in = { MESSAGE, SIZE, 0 };
	ZSTD_outBuffer out = { frame, ROOM, 0 };

	CHECK(!ZSTD_isError(ZSTD_compressStream(zcs, &out, &in)));
	CHECK(out.pos == 0);
	CHECK(ZSTD_flushStream(zcs, &out) == 0);
	CHECK(out.pos > 0);
	in = (ZSTD_inBuffer){ frame, out.pos, 0 };
	out = (ZSTD_outBuffer){ back, ROOM, 0 };
	CHECK(!ZSTD_isError(ZSTD_decompressStream(zds, &out, &in)));
	check_back(out.pos);
}

static void Stream_DStreamLevelIncrease(void)
{
	ZSTD_DStream *zds = new_dstream((size_t)1 << ZSTD_getCParams(22, 0, 0).windowLog);

	CHECK(ZSTD_getCParams(22, 0, 0).windowLog == 27);
	for (int level = 1; level <= 22; level++) {
		ZSTD_parameters params = ZSTD_getParams(level, 0, 0);
		size_t size = ZSTD_CStreamWorkspaceBound(params.cParams);
		void *workspace = memory(size);
		ZSTD_CStream *zcs = ZSTD_initCStream(params, 0, workspace, size);

		CHECK(zcs != NULL);
		unstream(zds, stream(zcs));
		CHECK(!ZSTD_isError(ZSTD_resetDStream(zds)));
		free(workspace);
	}
}

#include "pointers_2017.h"

static void API_Symbols(void)
{
	for (size_t i = 0; i < sizeof(pointers) / sizeof(pointers[0]); i++)
		CHECK(*pointers[i] != NULL);
}

static const struct named_case cases[] = {
	CASE(Block_CCtx),
	CASE(Block_NoContentSize),
	CASE(Block_ContentSize),
	CASE(Block_CCtxLevelIncrease),
	CASE(Block_PlainDict),
	CASE(Block_ZstdDict),
	CASE(Block_PreprocessedPlainDict),
	CASE(Block_PreprocessedZstdDict),
	CASE(Block_ReinitializeCCtx),
	CASE(Block_ReinitializeDCtx),
	CASE(Stream_Basic),
	CASE(Stream_PlainDict),
	CASE(Stream_ZstdDict),
	CASE(Stream_ResetCStream),
	CASE(Stream_ResetDStream),
	CASE(Stream_Flush),
	CASE(Stream_DStreamLevelIncrease),
	CASE(API_Symbols),
};

int main(int argc, char **argv)
{
	return run_cases(cases, sizeof(cases) / sizeof(cases[0]), argc, argv);
}
