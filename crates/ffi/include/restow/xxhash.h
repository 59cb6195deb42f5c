/*
 * xxHash with the names and states of Linux' linux/xxhash.h.
 */
#ifndef RESTOW_XXHASH_H
#define RESTOW_XXHASH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The layouts are public, so that a state can lie anywhere; the fields are not to be used. */
struct xxh32_state {
	uint32_t total_len_32;
	uint32_t large_len;
	uint32_t v1;
	uint32_t v2;
	uint32_t v3;
	uint32_t v4;
	uint32_t mem32[4];
	uint32_t memsize;
};

struct xxh64_state {
	uint64_t total_len;
	uint64_t v1;
	uint64_t v2;
	uint64_t v3;
	uint64_t v4;
	uint64_t mem64[4];
	uint32_t memsize;
};

/* The hash of length bytes. NULL is a pointer to no bytes. */
uint32_t xxh32(const void *input, size_t length, uint32_t seed);
uint64_t xxh64(const void *input, size_t length, uint64_t seed);

/* Begins a hash. */
void xxh32_reset(struct xxh32_state *state, uint32_t seed);
void xxh64_reset(struct xxh64_state *state, uint64_t seed);

/* Appends input: 0, or -EINVAL (-22) if a pointer is NULL, even to no bytes. */
int xxh32_update(struct xxh32_state *state, const void *input, size_t length);
int xxh64_update(struct xxh64_state *state, const void *input, size_t length);

/* The hash of all input so far. More may follow. */
uint32_t xxh32_digest(const struct xxh32_state *state);
uint64_t xxh64_digest(const struct xxh64_state *state);

void xxh32_copy_state(struct xxh32_state *dst, const struct xxh32_state *src);
void xxh64_copy_state(struct xxh64_state *dst, const struct xxh64_state *src);

/* The one that suits the processor's words. */
static inline unsigned long xxhash(const void *input, size_t length, uint64_t seed)
{
	if (sizeof(unsigned long) == 8)
		return (unsigned long)xxh64(input, length, seed);
	return xxh32(input, length, (uint32_t)seed);
}

#ifdef __cplusplus
}
#endif

#endif
