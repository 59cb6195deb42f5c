/*
 * What the user-space test of the modern interface demands, and what becomes of bad arguments.
 */
#include "check.h"
#include "dictionary.h"
#include <restow/zstd.h>

#define PIECE ((size_t)4096)
#define DATA ((size_t)128 << 10)
#define ROOM (DATA + 4096)

static char *data, *frame, *back;

static void allocate(void)
{
	if (data)
		return;
	data = memory(DATA);
	frame = memory(ROOM);
	back = memory(DATA);
	memset(data, 0, DATA);
}

static void f2fs(void)
{
	CHECK(zstd_min_clevel() == -131072);
	CHECK(zstd_max_clevel() == 22);
	CHECK(zstd_default_clevel() == 3);
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* Pages in, pages out, as a file system does it, in one workspace for both directions. */
static void through_pages(int level, char *workspace, size_t workspace_size)
{
	zstd_parameters params = zstd_get_params(level, DATA);
	zstd_cstream *cstream = zstd_init_cstream(&params, DATA, workspace, workspace_size);
	zstd_dstream *dstream;
	zstd_in_buffer in = { data, 0, 0 };
	zstd_out_buffer out = { frame, PIECE, 0 };
	size_t left, size;

	CHECK(params.cParams.windowLog <= 17);
	CHECK(cstream != NULL);
	while (in.pos < DATA) {
		if (in.pos == in.size)
			in.size += PIECE;
		if (out.pos == out.size)
			out.size += PIECE;
		CHECK(!zstd_is_error(zstd_compress_stream(cstream, &out, &in)));
		/* All input is taken unless the output is full. */
		CHECK(in.pos == in.size || out.pos == out.size);
	}
	do {
		if (out.pos == out.size)
			out.size += PIECE;
		left = zstd_end_stream(cstream, &out);
		CHECK(!zstd_is_error(left));
		CHECK(left == 0 || out.pos == out.size);
	} while (left > 0);
	size = out.pos;
	CHECK(zstd_find_frame_compressed_size(frame, ROOM) == size);

	dstream = zstd_init_dstream((size_t)1 << params.cParams.windowLog, workspace, workspace_size);
	CHECK(dstream != NULL);
	in = (zstd_in_buffer){ frame, 0, 0 };
	out = (zstd_out_buffer){ back, 0, 0 };
	do {
		/* Either may be empty. */
		if (in.pos == in.size)
			in.size = size - in.size < PIECE ? size : in.size + PIECE;
		if (out.pos == out.size && out.size < DATA)
			out.size += PIECE;
		left = zstd_decompress_stream(dstream, &out, &in);
		CHECK(!zstd_is_error(left));
		CHECK(left <= size - in.pos || out.pos == out.size);
	} while (left > 0);
	CHECK(out.pos == DATA && in.pos == size);
	CHECK(memcmp(data, back, DATA) == 0);
	memset(back, 0xa5, DATA);
}

static void btrfs(void)
{
	for (int content = 0; content < 3; content++) {
		allocate();
		for (size_t i = 0; i < DATA; i++)
			data[i] = content == 0 ? 0 : content == 1 ? (char)random_number() : (char)(random_number() % 3);
		for (int level = -15; level < 16; level++) {
			zstd_parameters params = zstd_get_params(level, DATA);
			size_t size = larger(zstd_cstream_workspace_bound(&params.cParams), zstd_dstream_workspace_bound(DATA));
			char *workspace = memory(size);

			through_pages(level, workspace, size);
			free(workspace);
		}
	}
	memset(data, 0, DATA);
}

static void unzstd(void)
{
	zstd_parameters params = zstd_get_params(19, 0);
	size_t csize = zstd_cctx_workspace_bound(&params.cParams), dsize = zstd_dctx_workspace_bound();
	void *cspace = memory(csize), *dspace = memory(dsize);
	zstd_cctx *cctx = zstd_init_cctx(cspace, csize);
	zstd_dctx *dctx = zstd_init_dctx(dspace, dsize);
	size_t size;

	allocate();
	CHECK(cctx != NULL && dctx != NULL);
	size = zstd_compress_cctx(cctx, frame, zstd_compress_bound(DATA), data, DATA, &params);
	CHECK(!zstd_is_error(size));
	CHECK(zstd_decompress_dctx(dctx, back, DATA, frame, size) == DATA);
	CHECK(memcmp(data, back, DATA) == 0);
	free(cspace);
	free(dspace);
}

static void empty_frame_into_NULL(void)
{
	static const unsigned char empty[] = { 0x28, 0xb5, 0x2f, 0xfd, 0x24, 0x00, 0x01, 0x00, 0x00, 0x99, 0xe9, 0xd8, 0x51 };
	size_t size = zstd_dctx_workspace_bound();
	void *workspace = memory(size);
	zstd_dctx *dctx = zstd_init_dctx(workspace, size);
	zstd_frame_header header;

	CHECK(zstd_decompress_dctx(dctx, NULL, 0, empty, sizeof(empty)) == 0);
	CHECK(zstd_find_frame_compressed_size(empty, sizeof(empty)) == sizeof(empty));
	CHECK(zstd_get_frame_header(&header, empty, sizeof(empty)) == 0);
	CHECK(header.frameContentSize == 0 && header.windowSize == 0 && header.headerSize == 6);
	CHECK(header.frameType == 0 && header.dictID == 0 && header.checksumFlag == 1 && header.blockSizeMax == 0);
	CHECK(zstd_get_frame_header(&header, empty, 4) == 5);
	CHECK(zstd_get_frame_header(&header, empty, 5) == 6);
	CHECK(zstd_get_error_code(zstd_get_frame_header(&header, "zstd?", 5)) == zstd_error_prefix_unknown);
	CHECK(zstd_get_frame_header(&header, "\x57\x2a\x4d\x18\x01\x02\0\0", 8) == 0);
	CHECK(header.frameType == 1 && header.frameContentSize == 0x201 && header.windowSize == 0 && header.dictID == 7);
	free(workspace);
}

/* ---- the stack ---- */

#define STACK_MAX (2048 + 512)
#define PAINTED 8192

/* A number, for what is below the stack is nobody's object. */
static volatile size_t painted;

__attribute__((noinline)) static void paint(void)
{
	volatile unsigned char area[PAINTED];

	for (size_t i = 0; i < PAINTED; i++)
		area[i] = 0xa5;
	painted = (size_t)area;
}

__attribute__((noinline)) static size_t used(void)
{
	const volatile unsigned char *area = (const volatile unsigned char *)painted;
	size_t untouched = 0;

	while (untouched < PAINTED && area[untouched] == 0xa5)
		untouched++;
	return PAINTED - untouched;
}

static void stack_of_cases(void)
{
	void (*const all[])(void) = { f2fs, btrfs, unzstd, empty_frame_into_NULL };

	allocate();
	for (int i = 0; i < 4; i++) {
		paint();
		all[i]();
		if (used() > STACK_MAX)
			fprintf(stderr, "case %d goes %zu bytes deep\n", i, used());
		CHECK(used() <= STACK_MAX);
	}
}

/* ---- streams ---- */

static void a_frame_follows_a_frame(void)
{
	zstd_parameters params = zstd_get_params(1, 0);
	size_t size = zstd_cstream_workspace_bound(&params.cParams);
	void *workspace = memory(size);
	zstd_cstream *cstream = zstd_init_cstream(&params, 3, workspace, size);
	zstd_out_buffer out = { NULL, ROOM, 0 };
	zstd_frame_header header;
	size_t first;

	allocate();
	out.dst = frame;
	for (int i = 0; i < 3; i++) {
		zstd_in_buffer in = { "abc", 3, 0 };

		if (i == 2)
			CHECK(zstd_reset_cstream(cstream, 4) == 0);
		CHECK(!zstd_is_error(zstd_compress_stream(cstream, &out, &in)));
		CHECK(in.pos == 3);
		if (i == 2)
			break;
		CHECK(zstd_end_stream(cstream, &out) == 0);
		/* There is nothing to end any more. */
		first = out.pos;
		CHECK(zstd_end_stream(cstream, &out) == 0 && out.pos == first);
	}
	/* Another size than was pledged, which stays an error until the next frame. */
	CHECK(zstd_get_error_code(zstd_end_stream(cstream, &out)) == zstd_error_srcSize_wrong);
	CHECK(zstd_get_error_code(zstd_flush_stream(cstream, &out)) == zstd_error_srcSize_wrong);
	CHECK(zstd_get_frame_header(&header, frame, out.pos) == 0 && header.frameContentSize == 3);
	first = zstd_find_frame_compressed_size(frame, out.pos);
	CHECK(!zstd_is_error(zstd_find_frame_compressed_size(frame + first, out.pos - first)));
	free(workspace);
}

static void flags_of_frames(void)
{
	for (int flags = 0; flags < 4; flags++) {
		zstd_parameters params = zstd_get_params(5, 100);
		size_t size = zstd_cctx_workspace_bound(&params.cParams);
		void *workspace = memory(size);
		zstd_cctx *cctx = zstd_init_cctx(workspace, size);
		zstd_frame_header header;

		CHECK(params.fParams.contentSizeFlag == 1 && params.fParams.checksumFlag == 0 && params.fParams.noDictIDFlag == 0);
		allocate();
		params.fParams.contentSizeFlag = flags & 1;
		params.fParams.checksumFlag = flags >> 1;
		size = zstd_compress_cctx(cctx, frame, ROOM, data, 100, &params);
		CHECK(!zstd_is_error(size));
		CHECK(zstd_get_frame_header(&header, frame, size) == 0);
		CHECK(header.frameContentSize == ((flags & 1) ? 100 : ZSTD_CONTENTSIZE_UNKNOWN));
		CHECK(header.checksumFlag == (unsigned int)flags >> 1);
		free(workspace);
	}
}

/* Frames of noise are the largest. */
static void bounds_of_frames(void)
{
	static const size_t sizes[] = { 0, 1, 2, 127, 128, 1024, 1025, 4096, 65536, 131071, 131072 };

	allocate();
	for (size_t i = 0; i < DATA; i++)
		data[i] = (char)random_number();
	for (int level = -15; level <= 22; level++) {
		zstd_parameters params = zstd_get_params(level, 0);
		size_t size, workspace_size;
		void *workspace;

		params.cParams.windowLog = 10;
		params.fParams.checksumFlag = 1;
		workspace_size = zstd_cctx_workspace_bound(&params.cParams);
		workspace = memory(workspace_size);
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			size = zstd_compress_cctx(zstd_init_cctx(workspace, workspace_size), frame,
						  zstd_compress_bound(sizes[i]), data, sizes[i], &params);
			CHECK(!zstd_is_error(size));
		}
		free(workspace);
	}
	memset(data, 0, DATA);
}

/* ---- bad arguments ---- */

static void workspaces_at_any_address(void)
{
	zstd_parameters params = zstd_get_params(3, 4096);
	size_t csize = zstd_cstream_workspace_bound(&params.cParams), dsize = zstd_dstream_workspace_bound(4096);
	size_t osize = zstd_cctx_workspace_bound(&params.cParams), isize = zstd_dctx_workspace_bound();

	allocate();
	for (size_t at = 0; at < 9; at++) {
		/* Exactly as much as is asked for, so that valgrind sees a byte too far. */
		char *cspace = malloc(csize + at), *dspace = malloc(dsize + at);
		char *ospace = malloc(osize + at), *ispace = malloc(isize + at);
		zstd_cstream *cstream = zstd_init_cstream(&params, 4096, cspace + at, csize);
		zstd_dstream *dstream = zstd_init_dstream(4096, dspace + at, dsize);
		zstd_cctx *cctx = zstd_init_cctx(ospace + at, osize);
		zstd_dctx *dctx = zstd_init_dctx(ispace + at, isize);
		zstd_in_buffer in = { data, 4096, 0 };
		zstd_out_buffer out = { frame, ROOM, 0 };
		size_t size;

		CHECK(cstream && dstream && cctx && dctx);
		CHECK(!zstd_is_error(zstd_compress_stream(cstream, &out, &in)));
		CHECK(zstd_end_stream(cstream, &out) == 0);
		size = out.pos;
		in = (zstd_in_buffer){ frame, size, 0 };
		out = (zstd_out_buffer){ back, DATA, 0 };
		CHECK(zstd_decompress_stream(dstream, &out, &in) == 0 && out.pos == 4096);
		CHECK(memcmp(data, back, 4096) == 0);
		CHECK(zstd_compress_cctx(cctx, frame, ROOM, data, 4096, &params) == size);
		CHECK(zstd_decompress_dctx(dctx, back, DATA, frame, size) == 4096);
		free(cspace);
		free(dspace);
		free(ospace);
		free(ispace);
	}
}

static void workspaces_that_are_too_small(void)
{
	zstd_parameters params = zstd_get_params(1, 1024);
	size_t csize = zstd_cstream_workspace_bound(&params.cParams), osize = zstd_cctx_workspace_bound(&params.cParams);
	size_t sizes[] = { 0, 1, 63, 64, 400, 1000, 10000 };

	allocate();
	CHECK(zstd_init_cstream(&params, 0, NULL, csize) == NULL);
	CHECK(zstd_init_cctx(NULL, osize) == NULL);
	CHECK(zstd_init_dstream(1024, NULL, zstd_dstream_workspace_bound(1024)) == NULL);
	CHECK(zstd_init_dctx(NULL, zstd_dctx_workspace_bound()) == NULL);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		char *workspace = malloc(sizes[i] ? sizes[i] : 1);
		zstd_cctx *cctx = zstd_init_cctx(workspace, sizes[i]);

		CHECK(zstd_init_cstream(&params, 0, workspace, sizes[i]) == NULL);
		CHECK(zstd_init_dstream(1024, workspace, sizes[i]) == NULL);
		CHECK(zstd_init_dctx(workspace, sizes[i]) == NULL);
		cctx = zstd_init_cctx(workspace, sizes[i]);
		if (cctx)
			CHECK(zstd_get_error_code(zstd_compress_cctx(cctx, frame, ROOM, data, 1024, &params)) ==
			      zstd_error_memory_allocation);
		free(workspace);
	}
	/* Windows that do not fit: the limit is what fits, whatever was said. */
	{
		zstd_parameters large = zstd_get_params(1, 0);
		size_t size = zstd_cstream_workspace_bound(&large.cParams), dsize = zstd_dstream_workspace_bound(1024);
		void *workspace = memory(size), *dspace = memory(dsize);
		zstd_cstream *cstream = zstd_init_cstream(&large, 0, workspace, size);
		zstd_dstream *dstream = zstd_init_dstream((size_t)1 << 27, dspace, dsize);
		zstd_in_buffer in = { data, 1024, 0 };
		zstd_out_buffer out = { frame, ROOM, 0 };

		CHECK(!zstd_is_error(zstd_compress_stream(cstream, &out, &in)));
		CHECK(zstd_flush_stream(cstream, &out) == 0);
		in = (zstd_in_buffer){ frame, out.pos, 0 };
		out = (zstd_out_buffer){ back, DATA, 0 };
		CHECK(zstd_get_error_code(zstd_decompress_stream(dstream, &out, &in)) == zstd_error_frameParameter_windowTooLarge);
		free(workspace);
		free(dspace);
	}
}

static void NULL_is_an_error(void)
{
	zstd_parameters params = zstd_get_params(1, 1024);
	size_t csize = zstd_cstream_workspace_bound(&params.cParams), dsize = zstd_dstream_workspace_bound(1024);
	zstd_cstream *cstream = zstd_init_cstream(&params, 0, memory(csize), csize);
	zstd_dstream *dstream = zstd_init_dstream(1024, memory(dsize), dsize);
	zstd_in_buffer in = { NULL, 0, 0 }, bad_in = { NULL, 1, 0 }, late_in = { "a", 1, 2 };
	zstd_out_buffer out = { NULL, 0, 0 }, bad_out = { NULL, 1, 0 }, late_out = { frame, 1, 2 };

	allocate();
	CHECK(zstd_is_error(zstd_cctx_workspace_bound(NULL)));
	CHECK(zstd_is_error(zstd_cstream_workspace_bound(NULL)));
	CHECK(zstd_init_cstream(NULL, 0, memory(csize), csize) == NULL);
	CHECK(zstd_get_error_code(zstd_compress_stream(NULL, &out, &in)) == zstd_error_GENERIC);
	CHECK(zstd_get_error_code(zstd_compress_stream(cstream, NULL, &in)) == zstd_error_GENERIC);
	CHECK(zstd_get_error_code(zstd_compress_stream(cstream, &out, NULL)) == zstd_error_GENERIC);
	CHECK(zstd_get_error_code(zstd_end_stream(NULL, &out)) == zstd_error_GENERIC);
	CHECK(zstd_get_error_code(zstd_end_stream(cstream, NULL)) == zstd_error_GENERIC);
	CHECK(zstd_get_error_code(zstd_flush_stream(NULL, NULL)) == zstd_error_GENERIC);
	CHECK(zstd_get_error_code(zstd_reset_cstream(NULL, 0)) == zstd_error_GENERIC);
	CHECK(zstd_get_error_code(zstd_reset_dstream(NULL)) == zstd_error_GENERIC);
	CHECK(zstd_get_error_code(zstd_decompress_stream(NULL, &out, &in)) == zstd_error_GENERIC);
	CHECK(zstd_get_error_code(zstd_decompress_stream(dstream, NULL, &in)) == zstd_error_GENERIC);
	CHECK(zstd_get_error_code(zstd_compress_cctx(NULL, frame, 1, data, 1, &params)) == zstd_error_GENERIC);
	CHECK(zstd_get_error_code(zstd_decompress_dctx(NULL, frame, 1, data, 1)) == zstd_error_GENERIC);
	CHECK(zstd_get_error_code(zstd_get_frame_header(NULL, frame, 1)) == zstd_error_GENERIC);

	CHECK(!zstd_is_error(zstd_compress_stream(cstream, &out, &in)));
	CHECK(!zstd_is_error(zstd_decompress_stream(dstream, &out, &in)));
	CHECK(zstd_get_error_code(zstd_compress_stream(cstream, &out, &bad_in)) == zstd_error_srcSize_wrong);
	CHECK(zstd_get_error_code(zstd_compress_stream(cstream, &bad_out, &in)) == zstd_error_dstBuffer_null);
	CHECK(zstd_get_error_code(zstd_decompress_stream(dstream, &out, &bad_in)) == zstd_error_srcSize_wrong);
	CHECK(zstd_get_error_code(zstd_decompress_stream(dstream, &bad_out, &in)) == zstd_error_dstBuffer_null);
	CHECK(zstd_get_error_code(zstd_decompress_stream(dstream, &late_out, &in)) == zstd_error_dstSize_tooSmall);
	CHECK(zstd_get_error_code(zstd_decompress_stream(dstream, &out, &late_in)) == zstd_error_srcSize_wrong);
	CHECK(zstd_get_error_code(zstd_find_frame_compressed_size(NULL, 1)) == zstd_error_srcSize_wrong);
	CHECK(zstd_get_error_code(zstd_find_frame_compressed_size(data, (size_t)-1)) == zstd_error_srcSize_wrong);
	/* A context that was made for streams has not forgotten that; one for single calls is no stream. */
	{
		size_t size = zstd_cctx_workspace_bound(&params.cParams);
		zstd_cctx *cctx = zstd_init_cctx(memory(size), size);

		CHECK(zstd_get_error_code(zstd_compress_stream(cctx, &out, &in)) == zstd_error_init_missing);
	}
}

static void parameters_out_of_range(void)
{
	zstd_parameters params = zstd_get_params(1, 1024);
	size_t size = zstd_cstream_workspace_bound(&params.cParams);
	void *workspace = memory(size);
	zstd_parameters bad = params;

	allocate();
	bad.cParams.windowLog = 9;
	CHECK(zstd_get_error_code(zstd_cstream_workspace_bound(&bad.cParams)) == zstd_error_parameter_outOfBound);
	CHECK(zstd_init_cstream(&bad, 0, workspace, size) == NULL);
	bad = params;
	bad.cParams.strategy = 10;
	CHECK(zstd_get_error_code(zstd_cctx_workspace_bound(&bad.cParams)) == zstd_error_parameter_outOfBound);
	CHECK(zstd_get_error_code(zstd_compress_cctx(zstd_init_cctx(workspace, size), frame, ROOM, data, 1, &bad)) ==
	      zstd_error_parameter_outOfBound);
	/* Levels are never out of range. */
	CHECK(zstd_get_params(1000, 0).cParams.windowLog == zstd_get_params(22, 0).cParams.windowLog);
	CHECK(memcmp(&(zstd_parameters[]){ zstd_get_params(0, 0) }, &(zstd_parameters[]){ zstd_get_params(3, 0) },
		     sizeof(zstd_parameters)) == 0);
	free(workspace);
}

static size_t producer(void)
{
	return 0;
}

static void sequence_producers_are_refused(void)
{
	zstd_parameters params = zstd_get_params(1, 1024);
	size_t size = zstd_cctx_workspace_bound_with_ext_seq_prod(&params.cParams);
	zstd_cctx *cctx = zstd_init_cctx(memory(size), size);

	allocate();
	CHECK(size == zstd_cctx_workspace_bound(&params.cParams));
	CHECK(zstd_cstream_workspace_bound_with_ext_seq_prod(&params.cParams) == zstd_cstream_workspace_bound(&params.cParams));
	zstd_register_sequence_producer(cctx, NULL, producer);
	CHECK(zstd_get_error_code(zstd_compress_cctx(cctx, frame, ROOM, data, 100, &params)) == zstd_error_parameter_unsupported);
	zstd_register_sequence_producer(cctx, NULL, NULL);
	CHECK(!zstd_is_error(zstd_compress_cctx(cctx, frame, ROOM, data, 100, &params)));
	CHECK(zstd_get_error_code(zstd_cctx_set_param(cctx, 100, 1)) == zstd_error_parameter_unsupported);
	CHECK(zstd_get_error_code(zstd_compress_sequences_and_literals(cctx, frame, ROOM, NULL, 0, data, 100, 100, 100)) ==
	      zstd_error_parameter_unsupported);
}

/* ---- memory from an allocator ---- */

/* How many blocks there are, and how many more will be given. */
struct blocks {
	int held;
	int left;
};

static void *give(void *opaque, size_t size)
{
	struct blocks *blocks = opaque;

	if (blocks->left == 0)
		return NULL;
	blocks->left--;
	blocks->held++;
	return memory(size);
}

static void take_back(void *opaque, void *address)
{
	struct blocks *blocks = opaque;

	CHECK(address != NULL);
	blocks->held--;
	free(address);
}

static void contexts_from_an_allocator(void)
{
	zstd_parameters small = zstd_get_params(1, 1000), large = zstd_get_params(12, DATA);
	struct blocks blocks = { 0, 1000 };
	zstd_custom_mem custom = { give, take_back, &blocks };
	zstd_cctx *cctx = zstd_create_cctx_advanced(custom);
	zstd_dctx *dctx = zstd_create_dctx_advanced(custom);
	size_t size;

	allocate();
	CHECK(cctx != NULL && dctx != NULL && blocks.held == 2);
	for (int i = 0; i < 3; i++) {
		size = zstd_compress_cctx(cctx, frame, ROOM, data, i == 1 ? DATA : 1000, i == 1 ? &large : &small);
		CHECK(!zstd_is_error(size));
		CHECK(zstd_decompress_dctx(dctx, back, DATA, frame, size) == (i == 1 ? DATA : 1000));
		CHECK(blocks.held == 3);
	}
	CHECK(zstd_free_cctx(cctx) == 0 && blocks.held == 1);
	CHECK(zstd_free_dctx(dctx) == 0 && blocks.held == 0);
	CHECK(zstd_free_cctx(NULL) == 0 && zstd_free_dctx(NULL) == 0);
	/* Nothing is kept of what fails. */
	for (blocks.left = 0; blocks.left < 2;) {
		int given = blocks.left;

		cctx = zstd_create_cctx_advanced(custom);
		CHECK((cctx != NULL) == (given > 0));
		if (cctx)
			CHECK(zstd_get_error_code(zstd_compress_cctx(cctx, frame, ROOM, data, 1000, &small)) ==
			      zstd_error_memory_allocation);
		CHECK(zstd_free_cctx(cctx) == 0 && blocks.held == 0);
		blocks.left = 0;
		CHECK(zstd_create_dctx_advanced(custom) == NULL && blocks.held == 0);
		blocks.left = given + 1;
	}
	custom.customFree = NULL;
	CHECK(zstd_create_cctx_advanced(custom) == NULL && zstd_create_dctx_advanced(custom) == NULL);
	CHECK(zstd_create_cctx_advanced((zstd_custom_mem){ NULL, NULL, NULL }) == NULL);
	/* What lies in a workspace is not to be freed. */
	size = zstd_cctx_workspace_bound(&small.cParams);
	cctx = zstd_init_cctx(memory(size), size);
	CHECK(zstd_get_error_code(zstd_free_cctx(cctx)) == zstd_error_memory_allocation);
	CHECK(!zstd_is_error(zstd_compress_cctx(cctx, frame, ROOM, data, 1000, &small)));
	size = zstd_dctx_workspace_bound();
	CHECK(zstd_get_error_code(zstd_free_dctx(zstd_init_dctx(memory(size), size))) == zstd_error_memory_allocation);
}

static void dictionaries(void)
{
	static const char raw[] = "how many words a dictionary has, and how few of them anybody needs";
	const void *const bytes[] = { raw, formatted_dictionary };
	const size_t sizes[] = { sizeof(raw), sizeof(formatted_dictionary) };
	struct blocks blocks = { 0, 1000 };
	zstd_custom_mem custom = { give, take_back, &blocks };
	unsigned char broken[sizeof(formatted_dictionary)];

	allocate();
	for (int i = 0; i < 2; i++) {
		zstd_compression_parameters params = zstd_get_cparams(3, 60, sizes[i]);
		const char *text = i == 0 ? "how few words anybody needs" : "hello world, hello world";
		size_t length = strlen(text), size;
		zstd_cdict *cdict = zstd_create_cdict_byreference(bytes[i], sizes[i], params, custom);
		zstd_ddict *ddict = zstd_create_ddict_byreference(bytes[i], sizes[i], custom);
		zstd_cctx *cctx = zstd_create_cctx_advanced(custom);
		zstd_dctx *dctx = zstd_create_dctx_advanced(custom);
		zstd_frame_header header;

		CHECK(cdict && ddict && cctx && dctx);
		size = zstd_compress_using_cdict(cctx, frame, ROOM, text, length, cdict);
		CHECK(!zstd_is_error(size) && size < length + 12);
		CHECK(zstd_decompress_using_ddict(dctx, back, DATA, frame, size, ddict) == length);
		CHECK(memcmp(back, text, length) == 0);
		CHECK(zstd_get_frame_header(&header, frame, size) == 0 && header.dictID == (i ? 0x7e57 : 0));
		/* The frame needs it. */
		CHECK(zstd_is_error(zstd_decompress_dctx(dctx, back, DATA, frame, size)));
		CHECK(zstd_get_error_code(zstd_compress_using_cdict(cctx, frame, ROOM, text, length, NULL)) == zstd_error_GENERIC);
		CHECK(zstd_get_error_code(zstd_compress_using_cdict(NULL, frame, ROOM, text, length, cdict)) == zstd_error_GENERIC);
		CHECK(zstd_get_error_code(zstd_decompress_using_ddict(dctx, back, DATA, frame, size, NULL)) == zstd_error_GENERIC);
		/* A workspace for frames without one may be too small, which is an error. */
		{
			size_t workspace_size = zstd_cctx_workspace_bound(&params);
			void *workspace = malloc(workspace_size);
			zstd_cctx *other = zstd_init_cctx(workspace, workspace_size);
			size_t result = zstd_compress_using_cdict(other, frame, ROOM, text, length, cdict);

			CHECK(result == size || zstd_get_error_code(result) == zstd_error_memory_allocation);
			free(workspace);
		}
		CHECK(zstd_free_cdict(cdict) == 0 && zstd_free_ddict(ddict) == 0);
		CHECK(zstd_free_cctx(cctx) == 0 && zstd_free_dctx(dctx) == 0);
		CHECK(blocks.held == 0);
		blocks.left = 0;
		CHECK(zstd_create_cdict_byreference(bytes[i], sizes[i], params, custom) == NULL);
		CHECK(zstd_create_ddict_byreference(bytes[i], sizes[i], custom) == NULL);
		CHECK(zstd_create_cdict_byreference(NULL, 1, params, custom) == NULL);
		params.windowLog = 9;
		blocks.left = 1000;
		CHECK(zstd_create_cdict_byreference(bytes[i], sizes[i], params, custom) == NULL);
	}
	memcpy(broken, formatted_dictionary, sizeof(broken));
	memset(broken + 8, 0xff, 40);
	CHECK(zstd_create_cdict_byreference(broken, sizeof(broken), zstd_get_cparams(3, 0, 0), custom) == NULL);
	CHECK(zstd_create_ddict_byreference(broken, sizeof(broken), custom) == NULL);
	CHECK(zstd_free_cdict(NULL) == 0 && zstd_free_ddict(NULL) == 0 && blocks.held == 0);
}

static void errors_have_their_numbers(void)
{
	CHECK(!zstd_is_error(0) && !zstd_is_error((size_t)-121) && !zstd_is_error((size_t)-120));
	CHECK(zstd_is_error((size_t)-1) && zstd_is_error((size_t)-119));
	CHECK(zstd_get_error_code((size_t)-70) == zstd_error_dstSize_tooSmall);
	CHECK(zstd_get_error_code(70) == zstd_error_no_error);
	CHECK(strcmp(zstd_get_error_name((size_t)-70), "destination is too small") == 0);
	CHECK(strcmp(zstd_get_error_name(12345), "no error") == 0);
	CHECK(strcmp(zstd_get_error_name((size_t)-119), "unknown error") == 0);
}

static const struct named_case cases[] = {
	CASE(f2fs),
	CASE(btrfs),
	CASE(unzstd),
	CASE(empty_frame_into_NULL),
	CASE(stack_of_cases),
	CASE(a_frame_follows_a_frame),
	CASE(flags_of_frames),
	CASE(bounds_of_frames),
	CASE(workspaces_at_any_address),
	CASE(workspaces_that_are_too_small),
	CASE(NULL_is_an_error),
	CASE(parameters_out_of_range),
	CASE(sequence_producers_are_refused),
	CASE(contexts_from_an_allocator),
	CASE(dictionaries),
	CASE(errors_have_their_numbers),
};

int main(int argc, char **argv)
{
	return run_cases(cases, sizeof(cases) / sizeof(cases[0]), argc, argv);
}
