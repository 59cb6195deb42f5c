/*
 * A program that has nothing but the static library, four functions of its own for memory, and a place where it begins.
 */
#include <restow/xxhash.h>
#include <restow/zstd.h>

void *memcpy(void *dst, const void *src, size_t size)
{
	for (size_t i = 0; i < size; i++)
		((char *)dst)[i] = ((const char *)src)[i];
	return dst;
}

void *memmove(void *dst, const void *src, size_t size)
{
	if ((char *)dst <= (const char *)src)
		return memcpy(dst, src, size);
	for (size_t i = size; i-- > 0;)
		((char *)dst)[i] = ((const char *)src)[i];
	return dst;
}

void *memset(void *dst, int byte, size_t size)
{
	for (size_t i = 0; i < size; i++)
		((char *)dst)[i] = (char)byte;
	return dst;
}

int memcmp(const void *a, const void *b, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (((const unsigned char *)a)[i] != ((const unsigned char *)b)[i])
			return ((const unsigned char *)a)[i] - ((const unsigned char *)b)[i];
	return 0;
}

int bcmp(const void *a, const void *b, size_t size)
{
	return memcmp(a, b, size);
}

static char workspace[4 << 20], data[100000], frame[110000], back[100000];

static int run(void)
{
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i % 251 ^ i >> 10);
	for (int level = -1; level <= 9; level++) {
		zstd_parameters params = zstd_get_params(level, sizeof(data));
		zstd_cctx *cctx;
		size_t size;

		if (zstd_cctx_workspace_bound(&params.cParams) > sizeof(workspace))
			return 1;
		cctx = zstd_init_cctx(workspace, sizeof(workspace));
		size = zstd_compress_cctx(cctx, frame, sizeof(frame), data, sizeof(data), &params);
		if (zstd_is_error(size))
			return 2;
		if (zstd_decompress_dctx(zstd_init_dctx(workspace, sizeof(workspace)), back, sizeof(back), frame, size) !=
		    sizeof(back))
			return 3;
		if (xxh64(back, sizeof(back), 0) != xxh64(data, sizeof(data), 0))
			return 4;
	}
	return 0;
}

__attribute__((noreturn, force_align_arg_pointer)) void start(void)
{
	long status = run();

	/* exit_group */
	__asm__ volatile("syscall" : : "a"(231), "D"(status) : "rcx", "r11", "memory");
	__builtin_unreachable();
}
