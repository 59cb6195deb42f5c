/*
 * Our shared library and libzstd in one process: each decodes what the other has encoded.
 */
#include "check.h"
#include <restow/zstd.h>

/* libzstd without its headers. */
size_t ZSTD_compress(void *dst, size_t capacity, const void *src, size_t size, int level);
size_t ZSTD_decompress(void *dst, size_t capacity, const void *src, size_t size);
unsigned int ZSTD_isError(size_t code);
unsigned int ZSTD_versionNumber(void);

#define DATA ((size_t)200000)

int main(void)
{
	char *data = memory(DATA), *frame = memory(2 * DATA), *back = memory(DATA);
	size_t dsize = zstd_dctx_workspace_bound();
	zstd_dctx *dctx = zstd_init_dctx(memory(dsize), dsize);

	for (size_t i = 0; i < DATA; i++)
		data[i] = (char)(random_number() % 7);
	for (int level = -15; level <= zstd_max_clevel(); level++) {
		zstd_parameters params = zstd_get_params(level, DATA);
		size_t csize = zstd_cctx_workspace_bound(&params.cParams), size;
		void *workspace = memory(csize);
		zstd_cctx *cctx = zstd_init_cctx(workspace, csize);

		size = zstd_compress_cctx(cctx, frame, zstd_compress_bound(DATA), data, DATA, &params);
		CHECK(!zstd_is_error(size));
		CHECK(ZSTD_decompress(back, DATA, frame, size) == DATA);
		CHECK(memcmp(data, back, DATA) == 0);
		size = ZSTD_compress(frame, 2 * DATA, data, DATA, level);
		CHECK(!ZSTD_isError(size));
		memset(back, 0, DATA);
		CHECK(zstd_decompress_dctx(dctx, back, DATA, frame, size) == DATA);
		CHECK(memcmp(data, back, DATA) == 0);
		free(workspace);
	}
	printf("ok beside libzstd %u\n", ZSTD_versionNumber());
	return 0;
}
