// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* KUnit tests of Zstandard in Rust. */

#include <kunit/test.h>
#include <linux/vmalloc.h>
#include <linux/xxhash.h>
#include <linux/zstd.h>

/* No frame has more content. */
#define CONTENT_MAX @content_max@
/* The length of the text that is compressed. */
#define TEXT_SIZE 20000

/* Bytes that are one frame or more, and their content. */
struct vector {
	const char *name;
	const char *frame;
	size_t size;
	bool is_good;
	/* Of the content. */
	size_t length;
	u64 hash;
};

static const struct vector vectors[] = {
@vectors@
};

KUNIT_DEFINE_ACTION_WRAPPER(give_back, vfree, const void *)

/* Memory until the test ends. */
static void *allocate(struct kunit *test, size_t size)
{
	void *memory = vmalloc(size);

	KUNIT_ASSERT_NOT_NULL(test, memory);
	KUNIT_ASSERT_EQ(test, kunit_add_action_or_reset(test, give_back, memory), 0);
	return memory;
}

static void decodes_frames(struct kunit *test)
{
	size_t bound = zstd_dctx_workspace_bound();
	u8 *content = allocate(test, CONTENT_MAX);
	zstd_dctx *context = zstd_init_dctx(allocate(test, bound), bound);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, context);
	for (i = 0; i < ARRAY_SIZE(vectors); i++) {
		const struct vector *it = &vectors[i];
		size_t length = zstd_decompress_dctx(context, content, CONTENT_MAX, it->frame,
						     it->size);

		KUNIT_EXPECT_EQ_MSG(test, !zstd_is_error(length), it->is_good, "%s", it->name);
		if (!it->is_good || zstd_is_error(length))
			continue;
		KUNIT_EXPECT_EQ_MSG(test, length, it->length, "%s", it->name);
		KUNIT_EXPECT_EQ_MSG(test, xxh64(content, length, 0), it->hash, "%s", it->name);
	}
}

/* Text with numbers in it. */
static void write_text(char *text)
{
	int number, length = 0;

	for (number = 0; length < TEXT_SIZE; number++)
		length += scnprintf(text + length, TEXT_SIZE + 1 - length,
				    "%d green bottles hanging on the wall, ", number * number);
}

static void compresses_whole_frames(struct kunit *test)
{
	char *text = allocate(test, TEXT_SIZE + 1);
	char *content = allocate(test, TEXT_SIZE);
	size_t capacity = zstd_compress_bound(TEXT_SIZE);
	size_t bound = zstd_dctx_workspace_bound();
	u8 *frame = allocate(test, capacity);
	zstd_dctx *decoder = zstd_init_dctx(allocate(test, bound), bound);
	int level;

	write_text(text);
	KUNIT_ASSERT_NOT_NULL(test, decoder);
	for (level = -5; level <= zstd_max_clevel(); level++) {
		zstd_parameters params = zstd_get_params(level, TEXT_SIZE);
		size_t needed = zstd_cctx_workspace_bound(&params.cParams);
		void *workspace = vmalloc(needed);
		zstd_cctx *encoder = workspace ? zstd_init_cctx(workspace, needed) : NULL;
		size_t size = 0;

		if (encoder)
			size = zstd_compress_cctx(encoder, frame, capacity, text, TEXT_SIZE,
						  &params);
		vfree(workspace);
		KUNIT_ASSERT_NOT_NULL(test, encoder);
		KUNIT_ASSERT_FALSE_MSG(test, zstd_is_error(size), "level %d", level);
		KUNIT_EXPECT_LT_MSG(test, size, TEXT_SIZE / 3, "level %d", level);
		memset(content, 0, TEXT_SIZE);
		KUNIT_EXPECT_EQ(test, TEXT_SIZE,
				zstd_decompress_dctx(decoder, content, TEXT_SIZE, frame, size));
		KUNIT_EXPECT_MEMEQ_MSG(test, content, text, TEXT_SIZE, "level %d", level);
	}
}

/* As btrfs and squashfs do: pages of 4,096 bytes in and out. */
static void streams_pages(struct kunit *test)
{
	char *text = allocate(test, TEXT_SIZE + 1);
	char *content = allocate(test, TEXT_SIZE);
	zstd_parameters params = zstd_get_params(3, TEXT_SIZE);
	size_t capacity = zstd_compress_bound(TEXT_SIZE);
	size_t needed = zstd_cstream_workspace_bound(&params.cParams);
	void *workspace = allocate(test, needed);
	zstd_cstream *encoder = zstd_init_cstream(&params, TEXT_SIZE, workspace, needed);
	zstd_in_buffer in = { .src = text };
	zstd_out_buffer out = { .dst = allocate(test, capacity) };
	zstd_dstream *decoder;
	size_t left, rounds = 0;

	write_text(text);
	KUNIT_ASSERT_NOT_NULL(test, encoder);
	do {
		in.size = min_t(size_t, in.size + 4096, TEXT_SIZE);
		out.size = min_t(size_t, out.pos + 4096, capacity);
		left = zstd_compress_stream(encoder, &out, &in);
		KUNIT_ASSERT_FALSE(test, zstd_is_error(left));
		KUNIT_ASSERT_LT(test, rounds++, 100);
	} while (in.pos < TEXT_SIZE);
	do {
		out.size = min_t(size_t, out.pos + 4096, capacity);
		left = zstd_end_stream(encoder, &out);
		KUNIT_ASSERT_FALSE(test, zstd_is_error(left));
		KUNIT_ASSERT_LT(test, rounds++, 100);
	} while (left);

	in = (zstd_in_buffer){ .src = out.dst, .size = out.pos };
	out = (zstd_out_buffer){ .dst = content };
	needed = zstd_dstream_workspace_bound(TEXT_SIZE);
	decoder = zstd_init_dstream(TEXT_SIZE, allocate(test, needed), needed);
	KUNIT_ASSERT_NOT_NULL(test, decoder);
	do {
		out.size = min_t(size_t, out.pos + 4096, TEXT_SIZE);
		left = zstd_decompress_stream(decoder, &out, &in);
		KUNIT_ASSERT_FALSE(test, zstd_is_error(left));
		KUNIT_ASSERT_LT(test, rounds++, 100);
	} while (left);
	KUNIT_EXPECT_EQ(test, out.pos, TEXT_SIZE);
	KUNIT_EXPECT_MEMEQ(test, content, text, TEXT_SIZE);
}

static struct kunit_case cases[] = {
	KUNIT_CASE(decodes_frames),
	KUNIT_CASE_SLOW(compresses_whole_frames),
	KUNIT_CASE(streams_pages),
	{}
};

static struct kunit_suite suite = {
	.name = "restow",
	.test_cases = cases,
};
kunit_test_suite(suite);

MODULE_DESCRIPTION("KUnit tests of Zstandard in Rust");
MODULE_LICENSE("Dual MIT/GPL");
