/*
 * The contracts of both fuzz harnesses of 2017, and a driver that feeds them: files, or as many random inputs as are asked for.
 * With -DLIBFUZZER the driver is libFuzzer, which runs both.
 */
#include "check.h"
#include <restow/xxhash.h>
#include <restow/zstd_2017.h>

int LLVMFuzzerTestOneInput(const unsigned char *src, size_t size);

/* What was compressed comes back, at any level from 0 to 21, in a workspace for level 22. */
static void round_trip(const unsigned char *src, size_t size)
{
	static ZSTD_CCtx *cctx;
	static ZSTD_DCtx *dctx;
	int level = (int)(xxh32(src, size < 128 ? size : 128, 0) % 22);
	ZSTD_parameters params = ZSTD_getParams(level, size, 0);
	size_t room = ZSTD_compressBound(size), compressed;
	unsigned char *frame = malloc(room), *back = malloc(size > 0 ? size : 1);

	if (!cctx) {
		size_t csize = ZSTD_CCtxWorkspaceBound(ZSTD_getCParams(22, 0, 0)), dsize = ZSTD_DCtxWorkspaceBound();

		cctx = ZSTD_initCCtx(malloc(csize), csize);
		dctx = ZSTD_initDCtx(malloc(dsize), dsize);
		CHECK(cctx && dctx);
	}
	compressed = ZSTD_compressCCtx(cctx, frame, room, src, size, params);
	CHECK(!ZSTD_isError(compressed));
	CHECK(ZSTD_decompressDCtx(dctx, back, size, frame, compressed) == size);
	CHECK(memcmp(src, back, size) == 0);
	free(frame);
	free(back);
}

/* Any bytes can be decompressed, or not. */
static void decompress(const unsigned char *src, size_t size)
{
	static ZSTD_DCtx *dctx;
	size_t room = 20 * size, got;
	unsigned char *dst = malloc(room > 0 ? room : 1);

	if (!dctx) {
		size_t dsize = ZSTD_DCtxWorkspaceBound();

		dctx = ZSTD_initDCtx(malloc(dsize), dsize);
	}
	got = ZSTD_decompressDCtx(dctx, dst, room, src, size);
	CHECK(ZSTD_isError(got) || got <= room);
	free(dst);
}

int LLVMFuzzerTestOneInput(const unsigned char *src, size_t size)
{
	round_trip(src, size);
	decompress(src, size);
	return 0;
}

#ifndef LIBFUZZER
static unsigned char input[1 << 16], frame[(1 << 16) + 2048];

static size_t random_input(void)
{
	size_t size = random_number() % (random_number() % 2 ? 200 : sizeof(input));
	unsigned int symbols = 1 + random_number() % 256, repeat = random_number() % 64;

	for (size_t i = 0; i < size; i++) {
		int copy = i > 100 && random_number() % 64 < repeat;

		input[i] = copy ? input[i - 1 - random_number() % 100] : (unsigned char)(random_number() % symbols);
	}
	return size;
}

int main(int argc, char **argv)
{
	long count = argc > 1 ? strtol(argv[1], NULL, 10) : 100;
	size_t csize = ZSTD_CCtxWorkspaceBound(ZSTD_getCParams(22, 0, 0));
	ZSTD_CCtx *cctx = ZSTD_initCCtx(malloc(csize), csize);

	for (long i = 0; i < count; i++) {
		size_t size = random_input(), compressed;
		ZSTD_parameters params = ZSTD_getParams((int)(random_number() % 23), size, 0);

		LLVMFuzzerTestOneInput(input, size);
		/* A frame with damage is nearer to a frame than noise is. */
		params.fParams.contentSizeFlag = random_number() % 2;
		params.fParams.checksumFlag = random_number() % 2;
		compressed = ZSTD_compressCCtx(cctx, frame, sizeof(frame), input, size, params);
		CHECK(!ZSTD_isError(compressed));
		for (int damage = 0; damage < 8; damage++) {
			size_t at = random_number() % compressed;

			if (damage % 2 && at > 24)
				at %= 24;
			frame[at] ^= (unsigned char)(1 << random_number() % 8);
			decompress(frame, random_number() % 8 ? compressed : at);
		}
	}
	printf("ok %ld inputs\n", count);
	return 0;
}
#endif
