/*
 * Edge cases of the modern interface beside libzstd, called as Linux calls it: each case says in words what came of it, and both
 * libraries must say the same, but for the differences that docs/formats/zstd.md lists.
 */
#include "check.h"
#include <limits.h>
#include <restow/zstd.h>
#include <stdarg.h>

/* ---- libzstd without its headers, under the names of Linux ---- */

typedef unsigned long long u64;
typedef zstd_compression_parameters cparams;

unsigned int ZSTD_isError(size_t);
unsigned int ZSTD_getErrorCode(size_t);
int ZSTD_minCLevel(void);
int ZSTD_maxCLevel(void);
int ZSTD_defaultCLevel(void);
zstd_parameters ZSTD_getParams(int, u64, size_t);
cparams ZSTD_getCParams(int, u64, size_t);
size_t ZSTD_compressBound(size_t);
size_t ZSTD_estimateCCtxSize_usingCParams(cparams);
size_t ZSTD_estimateCStreamSize_usingCParams(cparams);
size_t ZSTD_estimateDCtxSize(void);
size_t ZSTD_estimateDStreamSize(size_t);
zstd_cctx *ZSTD_initStaticCCtx(void *, size_t);
zstd_dctx *ZSTD_initStaticDCtx(void *, size_t);
zstd_cctx *ZSTD_initStaticCStream(void *, size_t);
zstd_dctx *ZSTD_initStaticDStream(void *, size_t);
size_t ZSTD_CCtx_reset(zstd_cctx *, int);
size_t ZSTD_CCtx_setPledgedSrcSize(zstd_cctx *, u64);
size_t ZSTD_CCtx_setParameter(zstd_cctx *, int, int);
size_t ZSTD_compress2(zstd_cctx *, void *, size_t, const void *, size_t);
size_t ZSTD_compressStream(zstd_cctx *, zstd_out_buffer *, zstd_in_buffer *);
size_t ZSTD_flushStream(zstd_cctx *, zstd_out_buffer *);
size_t ZSTD_endStream(zstd_cctx *, zstd_out_buffer *);
size_t ZSTD_DCtx_reset(zstd_dctx *, int);
size_t ZSTD_decompress(void *, size_t, const void *, size_t);
size_t ZSTD_decompressDCtx(zstd_dctx *, void *, size_t, const void *, size_t);
size_t ZSTD_decompressStream(zstd_dctx *, zstd_out_buffer *, zstd_in_buffer *);
size_t ZSTD_findFrameCompressedSize(const void *, size_t);
size_t ZSTD_getFrameHeader(void *, const void *, size_t);
zstd_cctx *ZSTD_createCCtx_advanced(zstd_custom_mem);
zstd_dctx *ZSTD_createDCtx_advanced(zstd_custom_mem);
zstd_cdict *ZSTD_createCDict_advanced(const void *, size_t, int, int, cparams, zstd_custom_mem);
zstd_ddict *ZSTD_createDDict_advanced(const void *, size_t, int, int, zstd_custom_mem);
size_t ZSTD_freeCCtx(zstd_cctx *);
size_t ZSTD_freeDCtx(zstd_dctx *);
size_t ZSTD_freeCDict(zstd_cdict *);
size_t ZSTD_freeDDict(zstd_ddict *);
size_t ZSTD_compress_usingCDict(zstd_cctx *, void *, size_t, const void *, size_t, const zstd_cdict *);
size_t ZSTD_decompress_usingDDict(zstd_dctx *, void *, size_t, const void *, size_t, const zstd_ddict *);

static zstd_parameters c_get_params(int level, u64 size)
{
	return ZSTD_getParams(level, size, 0);
}

static size_t c_cctx_bound(const cparams *params)
{
	return ZSTD_estimateCCtxSize_usingCParams(*params);
}

static size_t c_cstream_bound(const cparams *params)
{
	return ZSTD_estimateCStreamSize_usingCParams(*params);
}

/* Parameters, flags and size become those of the context. */
static size_t c_prepare(zstd_cctx *cctx, const zstd_parameters *params, u64 size)
{
	const cparams *c = &params->cParams;
	/* Of 2^32 - 1 the C library sees -1. */
	const int values[][2] = {
		{ 101, (int)c->windowLog }, { 102, (int)c->hashLog }, { 103, (int)c->chainLog }, { 104, (int)c->searchLog },
		{ 105, (int)c->minMatch }, { 106, (int)c->targetLength }, { 107, (int)c->strategy },
		{ 200, params->fParams.contentSizeFlag }, { 201, params->fParams.checksumFlag }, { 202, !params->fParams.noDictIDFlag },
	};
	size_t code = ZSTD_CCtx_reset(cctx, 3);

	if (!ZSTD_isError(code))
		code = ZSTD_CCtx_setPledgedSrcSize(cctx, size);
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]) && !ZSTD_isError(code); i++)
		code = ZSTD_CCtx_setParameter(cctx, values[i][0], values[i][1]);
	return code;
}

static size_t c_compress_cctx(zstd_cctx *cctx, void *dst, size_t capacity, const void *src, size_t size,
			      const zstd_parameters *params)
{
	size_t code = c_prepare(cctx, params, size);

	return ZSTD_isError(code) ? code : ZSTD_compress2(cctx, dst, capacity, src, size);
}

static zstd_cstream *c_init_cstream(const zstd_parameters *params, u64 pledged, void *workspace, size_t size)
{
	zstd_cstream *cstream = workspace ? ZSTD_initStaticCStream(workspace, size) : NULL;

	if (!cstream || ZSTD_isError(c_prepare(cstream, params, pledged ? pledged : ZSTD_CONTENTSIZE_UNKNOWN)))
		return NULL;
	return cstream;
}

static size_t c_reset_cstream(zstd_cstream *cstream, u64 pledged)
{
	size_t code = ZSTD_CCtx_reset(cstream, 1);

	return ZSTD_isError(code) ? code : ZSTD_CCtx_setPledgedSrcSize(cstream, pledged ? pledged : ZSTD_CONTENTSIZE_UNKNOWN);
}

static zstd_cctx *c_init_cctx(void *workspace, size_t size)
{
	return workspace ? ZSTD_initStaticCCtx(workspace, size) : NULL;
}

static zstd_dctx *c_init_dctx(void *workspace, size_t size)
{
	return workspace ? ZSTD_initStaticDCtx(workspace, size) : NULL;
}

static zstd_dstream *c_init_dstream(size_t window, void *workspace, size_t size)
{
	(void)window;
	return workspace ? ZSTD_initStaticDStream(workspace, size) : NULL;
}

static size_t c_reset_dstream(zstd_dstream *dstream)
{
	return ZSTD_DCtx_reset(dstream, 1);
}

static size_t c_get_frame_header(zstd_frame_header *header, const void *src, size_t size)
{
	/* Newer ones have two fields more. */
	struct {
		zstd_frame_header header;
		unsigned int reserved[2];
	} larger;
	size_t code = ZSTD_getFrameHeader(&larger, src, size);

	if (code == 0)
		*header = larger.header;
	return code;
}

static zstd_cdict *c_create_cdict(const void *dict, size_t size, cparams params, zstd_custom_mem custom)
{
	return ZSTD_createCDict_advanced(dict, size, 1, 0, params, custom);
}

static zstd_ddict *c_create_ddict(const void *dict, size_t size, zstd_custom_mem custom)
{
	return ZSTD_createDDict_advanced(dict, size, 1, 0, custom);
}

static zstd_error_code c_get_error_code(size_t code)
{
	return (zstd_error_code)ZSTD_getErrorCode(code);
}

/* The two libraries. */
static const struct codec {
	unsigned int (*is_error)(size_t);
	zstd_error_code (*get_error_code)(size_t);
	int (*min_clevel)(void);
	int (*max_clevel)(void);
	int (*default_clevel)(void);
	zstd_parameters (*get_params)(int, u64);
	cparams (*get_cparams)(int, u64, size_t);
	size_t (*compress_bound)(size_t);
	size_t (*cctx_bound)(const cparams *);
	size_t (*cstream_bound)(const cparams *);
	size_t (*dctx_bound)(void);
	size_t (*dstream_bound)(size_t);
	zstd_cctx *(*init_cctx)(void *, size_t);
	zstd_dctx *(*init_dctx)(void *, size_t);
	zstd_cstream *(*init_cstream)(const zstd_parameters *, u64, void *, size_t);
	zstd_dstream *(*init_dstream)(size_t, void *, size_t);
	size_t (*compress_cctx)(zstd_cctx *, void *, size_t, const void *, size_t, const zstd_parameters *);
	size_t (*reset_cstream)(zstd_cstream *, u64);
	size_t (*compress_stream)(zstd_cstream *, zstd_out_buffer *, zstd_in_buffer *);
	size_t (*flush_stream)(zstd_cstream *, zstd_out_buffer *);
	size_t (*end_stream)(zstd_cstream *, zstd_out_buffer *);
	size_t (*decompress_dctx)(zstd_dctx *, void *, size_t, const void *, size_t);
	size_t (*reset_dstream)(zstd_dstream *);
	size_t (*decompress_stream)(zstd_dstream *, zstd_out_buffer *, zstd_in_buffer *);
	size_t (*find_size)(const void *, size_t);
	size_t (*get_frame_header)(zstd_frame_header *, const void *, size_t);
	zstd_cctx *(*create_cctx)(zstd_custom_mem);
	zstd_dctx *(*create_dctx)(zstd_custom_mem);
	zstd_cdict *(*create_cdict)(const void *, size_t, cparams, zstd_custom_mem);
	zstd_ddict *(*create_ddict)(const void *, size_t, zstd_custom_mem);
	size_t (*free_cctx)(zstd_cctx *);
	size_t (*free_dctx)(zstd_dctx *);
	size_t (*free_cdict)(zstd_cdict *);
	size_t (*free_ddict)(zstd_ddict *);
	size_t (*using_cdict)(zstd_cctx *, void *, size_t, const void *, size_t, const zstd_cdict *);
	size_t (*using_ddict)(zstd_dctx *, void *, size_t, const void *, size_t, const zstd_ddict *);
} libraries[2] = {
	{ zstd_is_error, zstd_get_error_code, zstd_min_clevel, zstd_max_clevel, zstd_default_clevel, zstd_get_params,
	  zstd_get_cparams, zstd_compress_bound, zstd_cctx_workspace_bound, zstd_cstream_workspace_bound,
	  zstd_dctx_workspace_bound, zstd_dstream_workspace_bound, zstd_init_cctx, zstd_init_dctx, zstd_init_cstream,
	  zstd_init_dstream, zstd_compress_cctx, zstd_reset_cstream, zstd_compress_stream, zstd_flush_stream, zstd_end_stream,
	  zstd_decompress_dctx, zstd_reset_dstream, zstd_decompress_stream, zstd_find_frame_compressed_size,
	  zstd_get_frame_header, zstd_create_cctx_advanced, zstd_create_dctx_advanced, zstd_create_cdict_byreference,
	  zstd_create_ddict_byreference, zstd_free_cctx, zstd_free_dctx, zstd_free_cdict, zstd_free_ddict,
	  zstd_compress_using_cdict, zstd_decompress_using_ddict },
	{ ZSTD_isError, c_get_error_code, ZSTD_minCLevel, ZSTD_maxCLevel, ZSTD_defaultCLevel, c_get_params, ZSTD_getCParams,
	  ZSTD_compressBound, c_cctx_bound, c_cstream_bound, ZSTD_estimateDCtxSize, ZSTD_estimateDStreamSize, c_init_cctx,
	  c_init_dctx, c_init_cstream, c_init_dstream, c_compress_cctx, c_reset_cstream, ZSTD_compressStream, ZSTD_flushStream,
	  ZSTD_endStream, ZSTD_decompressDCtx, c_reset_dstream, ZSTD_decompressStream, ZSTD_findFrameCompressedSize,
	  c_get_frame_header, ZSTD_createCCtx_advanced, ZSTD_createDCtx_advanced, c_create_cdict, c_create_ddict, ZSTD_freeCCtx,
	  ZSTD_freeDCtx, ZSTD_freeCDict, ZSTD_freeDDict, ZSTD_compress_usingCDict, ZSTD_decompress_usingDDict },
};

/* ---- the words of a case ---- */

static char said[2][1000];
static const struct codec *z;

static void say(const char *format, ...)
{
	char *text = said[z - libraries];
	size_t length = strlen(text);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text + length, sizeof(said[0]) - length, format, arguments);
	va_end(arguments);
}

/* "0", "+" for another number, or "E72" for an error. */
static size_t verdict(size_t code)
{
	if (z->is_error(code))
		say(" E%d", (int)z->get_error_code(code));
	else
		say(code ? " +" : " 0");
	return code;
}

#define DATA ((size_t)128 << 10)
#define ROOM (DATA + 4096)

static char data[DATA], frame[ROOM], back[ROOM];

/* The verdict of libzstd on a frame, and the window that its header asks for. */
static void judge(size_t size, size_t content)
{
	zstd_frame_header header = { 0, 0, 0, 0, 0, 0, 0 };
	size_t length = ZSTD_decompress(back, ROOM, frame, size);

	say(length == content && memcmp(back, data, content) == 0 ? " right" : " wrong");
	c_get_frame_header(&header, frame, size);
	say(" window %llu size %lld checksum %u", header.windowSize, (long long)header.frameContentSize, header.checksumFlag);
}

static void *workspace_of(size_t size)
{
	static void *blocks[64];
	static int next;

	/* Those of long ago are not used any more. */
	free(blocks[next]);
	blocks[next] = memory(size);
	next = (next + 1) % 64;
	return blocks[(next + 63) % 64];
}

static zstd_cctx *new_cctx(const zstd_parameters *params)
{
	size_t size = z->cctx_bound(&params->cParams);

	return z->init_cctx(workspace_of(size), size);
}

static zstd_cstream *new_cstream(const zstd_parameters *params, u64 pledged)
{
	size_t size = z->cstream_bound(&params->cParams);

	return z->init_cstream(params, pledged, workspace_of(size), size);
}

static zstd_dstream *new_dstream(size_t window)
{
	size_t size = z->dstream_bound(window);

	return z->init_dstream(window, workspace_of(size), size);
}

/* ---- numbers ---- */

static const int levels[] = { INT_MIN, -131073, -131072, -100, -16, -15, -1, 0, 1, 3, 9, 15, 19, 22, 23, INT_MAX };
#define LEVELS ((int)(sizeof(levels) / sizeof(levels[0])))

/* The window and the flags for a size. */
static void params_of_levels(int i)
{
	static const u64 sizes[] = { 1, 1000, 131072, ZSTD_CONTENTSIZE_UNKNOWN, 0 };
	zstd_parameters params = z->get_params(levels[i / 5], sizes[i % 5]);

	if (i % 5 < 3)
		say("window %u", params.cParams.windowLog);
	else
		say("%d", memcmp(&params.cParams, &(cparams[]){ z->get_cparams(levels[i / 5], sizes[7 - i % 5], 0) },
				 sizeof(params.cParams)));
	say(" flags %d %d %d", params.fParams.contentSizeFlag, params.fParams.checksumFlag, params.fParams.noDictIDFlag);
}

/* Behind dictionaries, with an unknown size, too. */
static void params_behind_dictionaries(int i)
{
	static const u64 sizes[] = { 0, ZSTD_CONTENTSIZE_UNKNOWN, 1000 };
	static const size_t dictionaries[] = { 1, 161, 15884, 15885, 15886, 100000, 200000 };
	int level = i % 2 ? 3 : 19;
	u64 size = sizes[i / 2 % 3];
	cparams params = z->get_cparams(level, size, dictionaries[i / 6]);
	cparams in_c = ZSTD_getCParams(level, size, dictionaries[i / 6]);

	/* The memory is of the same order. */
	say("window %u %d", params.windowLog, z->cstream_bound(&params) < 2 * c_cstream_bound(&in_c) + 40000);
}

static void ends_of_levels(int i)
{
	say("%d", i == 0 ? z->min_clevel() : i == 1 ? z->max_clevel() : z->default_clevel());
}

static void bounds_of_sizes(int i)
{
	static const size_t sizes[] = { 0, 1, 255, 256, 131071, 131072, SIZE_MAX / 2, 0xff00ff00ff00fefe, 0xff00ff00ff00feff,
					0xff00ff00ff00ff00, 0xff00ff00ff00ff01, SIZE_MAX - 100, SIZE_MAX };

	say("%zx", z->compress_bound(sizes[i]));
}

static void numbers_of_errors(int i)
{
	static const int codes[] = { 0, 1, 70, -1, -2, -70, -119, -120, -121, -1000 };
	size_t code = (size_t)(long long)codes[i];

	say("%u %d", z->is_error(code), (int)z->get_error_code(code));
}

/* ---- workspaces ---- */

static int init(int which, void *workspace, size_t size)
{
	zstd_parameters params = z->get_params(1, 1000);

	switch (which) {
	case 0:
		return z->init_cctx(workspace, size) != NULL;
	case 1:
		return z->init_cstream(&params, 0, workspace, size) != NULL;
	case 2:
		return z->init_dctx(workspace, size) != NULL;
	default:
		return z->init_dstream(1024, workspace, size) != NULL;
	}
}

static size_t bound_of(int which)
{
	zstd_parameters params = z->get_params(1, 1000);

	return which == 0   ? z->cctx_bound(&params.cParams)
	       : which == 1 ? z->cstream_bound(&params.cParams)
	       : which == 2 ? z->dctx_bound()
			    : z->dstream_bound(1024);
}

static void small_workspaces(int i)
{
	static const size_t sizes[] = { 0, 1, 7, 8, 63, 200 };

	say("%d", init(i % 4, i < 4 ? NULL : workspace_of(bound_of(i % 4)), i < 4 ? 1 << 20 : sizes[i / 4 - 1]));
}

static void aligned_workspaces(int i)
{
	char *workspace = workspace_of(bound_of(i % 4) + 64);

	say("%d", init(i % 4, workspace + i / 4 * 8, bound_of(i % 4)));
}

static void workspaces_between(int i)
{
	char *workspace = workspace_of(bound_of(i % 4) + 8);

	say("%d", init(i % 4, workspace + i / 4 + 1, bound_of(i % 4)));
}

/* ---- frames in one call ---- */

static const size_t lengths[] = { 0, 1, 1000, DATA };

static void frames(int i)
{
	static const size_t rooms[] = { 0, 5, ROOM };
	size_t length = lengths[i % 4], room = rooms[i / 4 % 3];
	zstd_parameters params = z->get_params(1, i < 48 ? DATA : 0);
	size_t size;

	params.fParams.contentSizeFlag = i / 12 & 1;
	params.fParams.checksumFlag = i / 24 & 1;
	size = verdict(z->compress_cctx(new_cctx(&params), room ? frame : NULL, room, length ? data : NULL, length, &params));
	if (!z->is_error(size))
		judge(size, length);
}

static void set(cparams *params, int field, unsigned int value)
{
	unsigned int *const fields[] = { &params->windowLog, &params->chainLog, &params->hashLog, &params->searchLog,
					 &params->minMatch, &params->targetLength, &params->strategy };

	*fields[field] = value;
}

/* Of an optimal parser, which looks at all parameters but minMatch. */
static void parameters(const unsigned int (*values)[2], int i)
{
	zstd_parameters params = z->get_params(19, 1000);
	zstd_cctx *cctx = new_cctx(&params);
	size_t size = 1 << 20;

	set(&params.cParams, (int)values[i][0], values[i][1]);
	say("stream %d", z->init_cstream(&params, 1000, workspace_of(size), size) != NULL);
	verdict(z->compress_cctx(cctx, frame, ROOM, data, 1000, &params));
}

static void parameters_at_bounds(int i)
{
	static const unsigned int values[][2] = {
		{ 0, 9 },  { 0, 10 }, { 0, 32 },	   { 0, 1000 }, { 0, UINT_MAX },  { 1, 5 },  { 1, 6 },	{ 1, 31 },
		{ 2, 5 },  { 2, 6 },  { 2, 31 },    { 3, 31 },	   { 3, 1 },	{ 5, 4096 },	  { 6, 10 }, { 6, 11 }, { 6, UINT_MAX },
		{ 5, 16 }, { 4, 3 },  { 5, 131073 }, { 5, UINT_MAX },
	};

	parameters(values, i);
}

static void parameters_of_zero(int i)
{
	static const unsigned int values[][2] = { { 0, 0 }, { 1, 0 }, { 2, 0 }, { 3, 0 }, { 6, 0 } };

	parameters(values, i);
}

static void large_windows(int i)
{
	static const unsigned int values[][2] = { { 0, 28 }, { 0, 31 }, { 5, 131072 } };

	parameters(values, i);
}

static size_t sample(void)
{
	zstd_parameters params = c_get_params(3, 3000);
	static char made[ROOM];
	static size_t size;

	if (!size) {
		params.fParams.checksumFlag = 1;
		zstd_cctx *cctx = ZSTD_createCCtx_advanced((zstd_custom_mem){ NULL, NULL, NULL });

		size = c_compress_cctx(cctx, made, ROOM, data, 3000, &params);
		CHECK(!ZSTD_isError(size));
		ZSTD_freeCCtx(cctx);
	}
	memcpy(frame, made, size);
	return size;
}

static void cut_frames(int i)
{
	size_t size = sample();
	size_t cuts[] = { 0, 1, 4, 5, 6, 7, 8, 9, 10, 11, size / 2, size - 5, size, size - 4, size - 1 };
	size_t at = z->dctx_bound();

	verdict(z->decompress_dctx(z->init_dctx(workspace_of(at), at), back, ROOM, i ? frame : NULL, cuts[i]));
	verdict(z->find_size(i ? frame : NULL, cuts[i]));
}

static void cut_checksums(int i)
{
	cut_frames(13 + i);
}

static void rooms_for_content(int i)
{
	static const size_t rooms[] = { 3000, 3001, 2999, 1, 0 };
	size_t size = sample(), at = z->dctx_bound();

	verdict(z->decompress_dctx(z->init_dctx(workspace_of(at), at), i < 4 ? back : NULL, rooms[i], frame, size));
}

static void damaged_frames(int i)
{
	static const char skippable[] = "\x50\x2a\x4d\x18\x03\0\0\0abc";
	size_t size = sample(), at = z->dctx_bound();
	zstd_dctx *dctx = z->init_dctx(workspace_of(at), at);

	switch (i) {
	case 0: /* Another magic number. */
		frame[0] ^= 1;
		break;
	case 1: /* The reserved bit. */
		frame[4] |= 8;
		break;
	case 2: /* The checksum. */
		frame[size - 1] ^= 1;
		break;
	case 3: /* A reserved block. */
		frame[7] |= 6;
		break;
	case 4: /* Another size. */
		frame[5] ^= 1;
		break;
	case 5: /* Two frames. */
		memcpy(frame + size, frame, size);
		size *= 2;
		break;
	case 6: /* Something behind it. */
		frame[size++] = 'x';
		break;
	case 7:
		memcpy(frame + size, "xxxxxxxx", 8);
		size += 8;
		break;
	case 8:
		memcpy(frame + size, skippable, 11);
		size += 11;
		break;
	case 9:
		memmove(frame + 11, frame, size);
		memcpy(frame, skippable, 11);
		size += 11;
		break;
	case 10: /* Cut within a skippable frame. */
		memcpy(frame, skippable, size = 10);
		break;
	default: /* A dictionary that is not there. */
		memcpy(frame, "\x28\xb5\x2f\xfd\x21\x07\x01\x09\0\0x", size = 11);
	}
	verdict(z->decompress_dctx(dctx, back, ROOM, frame, size));
	/* The context can be used after that. */
	size = sample();
	verdict(z->decompress_dctx(dctx, back, ROOM, frame, size));
}

static void headers(int i)
{
	static const char *const starts[] = { "\x28\xb5\x2f\xfd\x20\x05", "\x28\xb5\x2f\xfd\x00\x58", "\x28\xb5\x2f\xfd\xe4\1\2\3\4\5\6\7\1\2",
					      "\x57\x2a\x4d\x18\1\2\3\4", "\x28\xb5\x2f\xfd\x03\x58\1\2\3\4", "\x28\xb5\x2f\xfd\x00\xff",
					      "\x28\xb5\x2f\xfd\x28\x05" };
	zstd_frame_header header = { 0, 0, 0, 0, 0, 0, 0 };
	char bytes[32] = { 0 };
	size_t size = (size_t)(i % 7) * 3;

	memcpy(bytes, starts[i / 7], i / 7 == 2 ? 14 : i / 7 == 3 ? 8 : i / 7 == 4 ? 10 : 6);
	size = z->get_frame_header(&header, bytes, size);
	if (verdict(size) && !z->is_error(size))
		say(" %zu", size);
	say(" %lld %llu %u %u %u", (long long)header.frameContentSize, header.windowSize, header.blockSizeMax, header.frameType,
	    header.checksumFlag);
	/* Of skippable frames, only newer ones tell these. */
	if (header.frameType == 0)
		say(" %u %u", header.headerSize, header.dictID);
}

/* ---- streams ---- */

/*
 * c compress 100 bytes, C without room, f flush, F without room, e end, E without room, n nothing at all, p input beyond its end,
 * q output beyond its end, r reset, R reset with 100 bytes pledged, U reset with an unknown size pledged.
 */
static const char *const compressions[] = {
	"ce", "f", "fe", "cfe", "cfcfe", "cffe", "ffe", "ne", "nnne", "CCce", "cEEe", "cFFfe", "CFfe", "cerce", "rce", "crce", "rrce",
	"cerRce", "Rce", "Rcce", "Rfe", "RccrRce", "Uce", "pce", "qce", "cpe", "cqe", "cececece", "cece", "ceRce",
	"cfrce", "cErce", "CErce", "cnfne", "Rcfe", "RcUcce", "nrne", "fnfne", "cpfe", "cqfe",
};
#define COMPRESSIONS ((int)(sizeof(compressions) / sizeof(compressions[0])))

static void compress_by(const char *script, u64 pledged)
{
	zstd_parameters params = z->get_params(1, 1000);
	zstd_cstream *cstream = new_cstream(&params, pledged);
	zstd_out_buffer out = { frame, ROOM, 0 };
	size_t from = 0;

	say("%s:", script);
	for (; *script; script++) {
		zstd_in_buffer in = { data, 100, 0 };
		zstd_out_buffer none = { NULL, 0, 0 }, late = { frame, 1, 2 };

		switch (*script) {
		case 'c':
			verdict(z->compress_stream(cstream, &out, &in));
			say("/%zu", in.pos);
			break;
		case 'C':
			in.size = 0;
			verdict(z->compress_stream(cstream, &none, &in));
			break;
		case 'f':
			verdict(z->flush_stream(cstream, &out));
			break;
		case 'F':
			verdict(z->flush_stream(cstream, &none));
			break;
		case 'e':
			verdict(z->end_stream(cstream, &out));
			break;
		case 'E':
			verdict(z->end_stream(cstream, &none));
			break;
		case 'n':
			in = (zstd_in_buffer){ NULL, 0, 0 };
			verdict(z->compress_stream(cstream, &out, &in));
			break;
		case 'p':
			in.pos = 101;
			verdict(z->compress_stream(cstream, &out, &in));
			break;
		case 'q':
			verdict(z->compress_stream(cstream, &late, &in));
			break;
		default:
			verdict(z->reset_cstream(cstream, *script == 'r' ? 0 : *script == 'R' ? 100 : ZSTD_CONTENTSIZE_UNKNOWN));
			/* The begun frame is given up. */
			out.pos = from;
		}
		if (*script == 'e')
			from = out.pos;
	}
	from = ZSTD_decompress(back, ROOM, frame, from);
	say(" content %d", ZSTD_isError(from) ? -1 : (int)from);
}

static void compressing(int i)
{
	compress_by(compressions[i / 2], i % 2 ? 100 : 0);
}

static void ending_at_once(int i)
{
	compress_by(i ? "rere" : "e", 0);
}

static void ending_at_once_what_was_pledged(int i)
{
	static const char *const scripts[] = { "e", "Re", "RerRce", "cRe", "reRe" };

	compress_by(scripts[i], 100);
}

/*
 * a all input and room, 1 one byte of input, h the header and half of the rest, i no input, o no room, x neither, X neither for
 * fifteen times, r reset, b bytes that are no frame, p input beyond its end, q output beyond its end.
 */
static const char *const decompressions[] = {
	"a", "aa", "r", "ra", "rra", "111a", "1ra", "1r1a", "ha", "hra", "hhra", "i", "iia", "o", "oa", "ooa", "x", "xxa", "XXXa", "hxa", "hXa", "hXx",
	"hXxa", "hXxxa", "hXxra", "hXixa", "hXia", "hXia", "hXox", "hoXx", "hoooooooooooooooooa", "1XXa", "111111XXa", "b", "bra", "bba", "hbra",
	"pa", "qa", "hpa", "hqa", "aX", "aXXra", "aXXa", "hrXXa", "iiiiiiiiiiiiiiiiiia", "hiiiiiiiiiiiiiii", "hiiiiiiiiiiiiiiii", "hiiiiiiiiiiiiiiiiia",
	"oooooooooooooooooo", "aooooooooooooooooooa", "hXra", "hrhra", "arara", "hXxXx1",
};
#define DECOMPRESSIONS ((int)(sizeof(decompressions) / sizeof(decompressions[0])))

static void decompressing(int i)
{
	zstd_dstream *dstream = new_dstream(4096);
	const char *script = decompressions[i];
	size_t size = sample();
	zstd_in_buffer in = { frame, 0, 0 };
	zstd_out_buffer out = { back, 0, 0 };

	say("%s:", script);
	for (; *script; script++) {
		size_t code = 0;

		switch (*script) {
		case 'a':
			in.size = size;
			out.size = 3000;
			code = verdict(z->decompress_stream(dstream, &out, &in));
			if (code == 0)
				say("%s", out.pos == 3000 && in.pos == size && memcmp(back, data, 3000) == 0 ? "right" : "wrong");
			break;
		case '1':
			in.size = in.pos + 1;
			code = verdict(z->decompress_stream(dstream, &out, &in));
			break;
		case 'h':
			in.size = in.pos + (size - in.pos) / 2;
			code = verdict(z->decompress_stream(dstream, &out, &in));
			break;
		case 'o':
			in.size = size;
			out.size = out.pos;
			code = verdict(z->decompress_stream(dstream, &out, &in));
			break;
		case 'i':
			in.size = in.pos;
			out.size = 3000;
			code = verdict(z->decompress_stream(dstream, &out, &in));
			break;
		case 'X':
		case 'x':
			in.size = in.pos;
			out.size = out.pos;
			for (int round = *script == 'X' ? 15 : 1; round > 0; round--)
				code = verdict(z->decompress_stream(dstream, &out, &in));
			break;
		case 'b': {
			zstd_in_buffer bad = { "no frame of zstd", 16, 0 };

			verdict(z->decompress_stream(dstream, &out, &bad));
			break;
		}
		case 'p': {
			zstd_in_buffer late = { frame, 1, 2 };

			verdict(z->decompress_stream(dstream, &out, &late));
			break;
		}
		case 'q': {
			zstd_out_buffer late = { back, 1, 2 };

			verdict(z->decompress_stream(dstream, &late, &in));
			break;
		}
		default:
			verdict(z->reset_dstream(dstream));
			in.pos = in.size = out.pos = out.size = 0;
		}
		if (code == 0 && *script == 'a')
			in.pos = in.size = out.pos = out.size = 0;
	}
}

/* ---- dictionaries ---- */

static void *give(void *opaque, size_t size)
{
	(void)opaque;
	return memory(size);
}

static void take_back(void *opaque, void *address)
{
	(void)opaque;
	free(address);
}

/* Bytes of content, of a dictionary that compresses and of one that decompresses. */
static void dictionaries(int i)
{
	static const size_t sizes[][3] = { { 1000, 500, 500 }, { 0, 500, 500 }, { 1000, 0, 0 }, { 1000, 8, 8 }, { 1000, 7, 7 }, { 1, 1, 1 },
					   { 1000, 500, 0 }, { 1000, 0, 500 }, { DATA, 500, 500 }, { 1000, 60000, 60000 } };
	const size_t *of = sizes[i];
	zstd_custom_mem custom = { give, take_back, NULL };
	zstd_cctx *cctx = z->create_cctx(custom);
	zstd_dctx *dctx = z->create_dctx(custom);
	/* The end of the content comes first in it. */
	zstd_cdict *cdict = z->create_cdict(of[1] ? data : NULL, of[1], z->get_cparams(3, of[0], of[1]), custom);
	zstd_ddict *ddict = z->create_ddict(of[2] ? data : NULL, of[2], custom);
	size_t size;

	say("%d %d %d %d", cctx != NULL, dctx != NULL, cdict != NULL, ddict != NULL);
	size = verdict(z->using_cdict(cctx, frame, ROOM, data, of[0], cdict));
	if (!z->is_error(size)) {
		size = z->using_ddict(dctx, back, ROOM, frame, size, ddict);
		verdict(size);
		say(size == of[0] && memcmp(back, data, size) == 0 ? " right" : " wrong");
	}
	say(" %zu %zu %zu %zu", z->free_cctx(cctx), z->free_dctx(dctx), z->free_cdict(cdict), z->free_ddict(ddict));
}

static void without_memory(int i)
{
	/* Without both, Linux has no memory, and libzstd takes its own. */
	zstd_custom_mem custom = { i & 1 ? NULL : give, i & 2 ? NULL : take_back, NULL };

	say("%d", i == 0 ? (z->free_cctx(NULL) | z->free_dctx(NULL) | z->free_cdict(NULL) | z->free_ddict(NULL)) != 0
			 : z->create_cctx(custom) != NULL);
}

/* ---- all cases ---- */

static const struct {
	const char *name;
	void (*run)(int);
	int count;
	/* Listed in docs/formats/zstd.md: each case differs. */
	int differs;
} all[] = {
	{ "params_of_levels", params_of_levels, 5 * LEVELS, 0 },
	{ "params_behind_dictionaries", params_behind_dictionaries, 42, 0 },
	{ "ends_of_levels", ends_of_levels, 3, 0 },
	{ "bounds_of_sizes", bounds_of_sizes, 13, 0 },
	{ "numbers_of_errors", numbers_of_errors, 10, 0 },
	{ "small_workspaces", small_workspaces, 28, 0 },
	{ "aligned_workspaces", aligned_workspaces, 8, 0 },
	{ "workspaces_between", workspaces_between, 28, 1 },
	{ "frames", frames, 96, 0 },
	{ "parameters_at_bounds", parameters_at_bounds, 21, 0 },
	{ "parameters_of_zero", parameters_of_zero, 5, 1 },
	{ "large_windows", large_windows, 3, 1 },
	{ "cut_frames", cut_frames, 13, 0 },
	{ "cut_checksums", cut_checksums, 2, 1 },
	{ "rooms_for_content", rooms_for_content, 5, 0 },
	{ "damaged_frames", damaged_frames, 12, 0 },
	{ "headers", headers, 49, 0 },
	{ "compressing", compressing, 2 * COMPRESSIONS, 0 },
	{ "ending_at_once", ending_at_once, 2, 0 },
	{ "ending_at_once_what_was_pledged", ending_at_once_what_was_pledged, 5, 1 },
	{ "decompressing", decompressing, DECOMPRESSIONS, 0 },
	{ "dictionaries", dictionaries, 10, 0 },
	{ "without_memory", without_memory, 3, 0 },
};

int main(void)
{
	int cases = 0, wrong = 0;

	for (size_t i = 0; i < DATA; i++)
		data[i] = (char)(random_number() % 5);
	for (size_t group = 0; group < sizeof(all) / sizeof(all[0]); group++) {
		for (int i = 0; i < all[group].count; i++) {
			for (int library = 0; library < 2; library++) {
				z = &libraries[library];
				said[library][0] = 0;
				all[group].run(i);
			}
			cases++;
			if ((strcmp(said[0], said[1]) != 0) != all[group].differs) {
				wrong++;
				fprintf(stderr, "%s %d\n  ours: %s\n  C:    %s\n", all[group].name, i, said[0], said[1]);
			}
		}
	}
	if (wrong)
		return 1;
	printf("ok %d cases\n", cases);
	return 0;
}
