/*
 * What the user-space test of xxHash demands. The numbers in expected.h are those of another implementation.
 */
#include "check.h"
#include "expected.h"
#include <restow/xxhash.h>

#define EINVAL 22
#define SEEDS (sizeof(expected) / sizeof(expected[0]))
#define INPUTS (sizeof(lengths) / sizeof(lengths[0]))

static const char digits[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
static const size_t lengths[] = { 0, 1, 5, 15, 16, 17, 20, 31, 32, 33, 64 };

static void Simple_Null(void)
{
	for (size_t s = 0; s < SEEDS; s++) {
		CHECK(xxh32(NULL, 0, (uint32_t)expected[s].seed) == expected[s].hashes32[0]);
		CHECK(xxh64(NULL, 0, expected[s].seed) == expected[s].hashes64[0]);
	}
}

static void Stream_Null(void)
{
	struct xxh32_state state32;
	struct xxh64_state state64;

	xxh32_reset(&state32, 0);
	xxh64_reset(&state64, 0);
	CHECK(xxh32_update(&state32, NULL, 0) == -EINVAL && xxh32_update(&state32, NULL, 1) == -EINVAL);
	CHECK(xxh64_update(&state64, NULL, 0) == -EINVAL && xxh64_update(&state64, NULL, 1) == -EINVAL);
	CHECK(xxh32_update(&state32, digits, 0) == 0 && xxh64_update(&state64, digits, 0) == 0);
	CHECK(xxh32_update(NULL, digits, 1) == -EINVAL && xxh64_update(NULL, digits, 1) == -EINVAL);
	CHECK(xxh32_digest(&state32) == xxh32(NULL, 0, 0) && xxh64_digest(&state64) == xxh64(NULL, 0, 0));
}

static void Simple_TestInputs(void)
{
	for (size_t s = 0; s < SEEDS; s++)
		for (size_t i = 0; i < INPUTS; i++) {
			CHECK(xxh32(digits, lengths[i], (uint32_t)expected[s].seed) == expected[s].hashes32[i]);
			CHECK(xxh64(digits, lengths[i], expected[s].seed) == expected[s].hashes64[i]);
			CHECK(xxhash(digits, lengths[i], expected[s].seed) ==
			      (sizeof(unsigned long) == 8 ? expected[s].hashes64[i] : expected[s].hashes32[i]));
		}
}

static void Stream_TestInputs(void)
{
	for (size_t s = 0; s < SEEDS; s++)
		for (size_t i = 0; i < INPUTS; i++) {
			struct xxh32_state state32;
			struct xxh64_state state64;

			xxh32_reset(&state32, (uint32_t)expected[s].seed);
			xxh64_reset(&state64, expected[s].seed);
			CHECK(xxh32_update(&state32, digits, lengths[i]) == 0);
			CHECK(xxh64_update(&state64, digits, lengths[i]) == 0);
			CHECK(xxh32_digest(&state32) == expected[s].hashes32[i]);
			CHECK(xxh64_digest(&state64) == expected[s].hashes64[i]);
			/* Linux shows how many bytes wait. */
			CHECK(state32.memsize == lengths[i] % 16 && state32.total_len_32 == lengths[i]);
			CHECK(state64.memsize == lengths[i] % 32 && state64.total_len == lengths[i]);
		}
}

static void Stream_MultipleTestInputs(void)
{
	for (size_t s = 0; s < SEEDS; s++) {
		struct xxh32_state state32;
		struct xxh64_state state64;

		xxh32_reset(&state32, (uint32_t)expected[s].seed);
		xxh64_reset(&state64, expected[s].seed);
		for (size_t i = 0; i < INPUTS; i++) {
			CHECK(xxh32_update(&state32, digits, lengths[i]) == 0);
			CHECK(xxh64_update(&state64, digits, lengths[i]) == 0);
		}
		CHECK(xxh32_digest(&state32) == expected[s].all32 && xxh32_digest(&state32) == expected[s].all32);
		CHECK(xxh64_digest(&state64) == expected[s].all64 && xxh64_digest(&state64) == expected[s].all64);
	}
}

static void Stream_CopyState(void)
{
	for (size_t s = 0; s < SEEDS; s++) {
		struct xxh32_state state32, copy32;
		struct xxh64_state state64, copy64;

		xxh32_reset(&state32, (uint32_t)expected[s].seed);
		xxh64_reset(&state64, expected[s].seed);
		for (size_t i = 0; i < INPUTS; i++) {
			xxh32_copy_state(&copy32, &state32);
			xxh64_copy_state(&copy64, &state64);
			CHECK(xxh32_update(&copy32, digits, lengths[i]) == 0);
			CHECK(xxh64_update(&copy64, digits, lengths[i]) == 0);
			xxh32_copy_state(&state32, &copy32);
			xxh64_copy_state(&state64, &copy64);
		}
		CHECK(xxh32_digest(&state32) == expected[s].all32);
		CHECK(xxh64_digest(&state64) == expected[s].all64);
	}
}

static const struct named_case cases[] = {
	CASE(Simple_Null),
	CASE(Stream_Null),
	CASE(Simple_TestInputs),
	CASE(Stream_TestInputs),
	CASE(Stream_MultipleTestInputs),
	CASE(Stream_CopyState),
};

int main(int argc, char **argv)
{
	return run_cases(cases, sizeof(cases) / sizeof(cases[0]), argc, argv);
}
