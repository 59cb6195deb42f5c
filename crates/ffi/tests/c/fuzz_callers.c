/*
 * Callers of the streams that keep no order: any call at any time, buffers of any size, positions beyond them, errors that are
 * not looked at. What becomes of their frame is theirs; nothing may be written outside of a buffer, and each position stays in it.
 * With -DLIBFUZZER the driver is libFuzzer.
 */
#include "check.h"
#include <restow/zstd.h>

int LLVMFuzzerTestOneInput(const unsigned char *src, size_t size);

#define WINDOW_MAX (1 << 17)
/* What one input may write and decode, so that it ends. */
#define OUTPUT_MAX (1 << 16)

/* Bytes of the input that choose, and then no more. */
struct choices {
	const unsigned char *at;
	size_t left;
};

static unsigned int next(struct choices *choices)
{
	if (choices->left == 0)
		return 0;
	choices->left--;
	return *choices->at++;
}

/* A position that is within a buffer of this size, but for a few. */
static size_t position(struct choices *choices, size_t size)
{
	unsigned int choice = next(choices);

	if (choice >= 250)
		return choice == 255 ? (size_t)-1 : size + choice - 249;
	return choice % 4 ? 0 : choice % (size + 1);
}

/* Memory of exactly that size, or none. */
static unsigned char *piece(size_t size)
{
	return size > 0 ? malloc(size) : NULL;
}

struct stream {
	zstd_cstream *c;
	zstd_dstream *d;
	unsigned char frame[OUTPUT_MAX];
	size_t len;
};

static void call(struct stream *stream, struct choices *choices, unsigned int work)
{
	size_t in_size = next(choices) % 64, out_size = next(choices) % 64, in_pos, out_pos, returned;
	zstd_in_buffer in = { NULL, in_size, 0 };
	zstd_out_buffer out = { NULL, out_size, 0 };
	unsigned char *src;

	in.pos = in_pos = position(choices, in_size);
	out.pos = out_pos = position(choices, out_size);
	if (in_size > choices->left)
		in.size = in_size = choices->left;
	src = piece(in_size);
	if (in_size > 0)
		memcpy(src, choices->at, in_size);
	in.src = src;
	out.dst = piece(out_size);
	choices->at += in_size;
	choices->left -= in_size;
	switch (work) {
	case 0:
		returned = zstd_compress_stream(stream->c, &out, &in);
		break;
	case 1:
		returned = zstd_flush_stream(stream->c, &out);
		break;
	case 2:
		returned = zstd_end_stream(stream->c, &out);
		break;
	default:
		returned = zstd_decompress_stream(stream->d, &out, &in);
	}
	CHECK(out.pos == out_pos || (out_pos < out.pos && out.pos <= out_size));
	CHECK(in.pos == in_pos || (in_pos < in.pos && in.pos <= in_size));
	CHECK(in.size == in_size && out.size == out_size);
	if (in_pos > in_size && (work == 0 || work == 3))
		CHECK(zstd_is_error(returned));
	if (out_pos > out_size)
		CHECK(zstd_is_error(returned));
	/* What was made so far is decoded later, as far as it is a frame. */
	if (work < 3 && out.pos > out_pos && out.pos - out_pos <= OUTPUT_MAX - stream->len) {
		memcpy(stream->frame + stream->len, (unsigned char *)out.dst + out_pos, out.pos - out_pos);
		stream->len += out.pos - out_pos;
	}
	free(src);
	free(out.dst);
}

int LLVMFuzzerTestOneInput(const unsigned char *src, size_t size)
{
	struct choices choices = { src, size };
	static struct stream stream;
	zstd_parameters params = zstd_get_params((int)next(&choices) % 23 - 5, next(&choices));
	size_t csize, dsize = zstd_dstream_workspace_bound(WINDOW_MAX), whole = next(&choices);
	unsigned char *cmemory, *dmemory, *back = malloc(OUTPUT_MAX);
	zstd_in_buffer in;
	zstd_out_buffer out = { back, OUTPUT_MAX, 0 };

	params.fParams.checksumFlag = (int)whole % 2;
	csize = zstd_cstream_workspace_bound(&params.cParams);
	CHECK(!zstd_is_error(csize) && !zstd_is_error(dsize));
	/* One in sixteen is too small, and gives no stream; calls without one are errors. */
	if (whole % 16 == 0)
		csize = csize * (whole / 16) / 16;
	cmemory = piece(csize);
	dmemory = malloc(dsize);
	stream.len = 0;
	stream.c = zstd_init_cstream(&params, next(&choices) % 8 ? 0 : next(&choices), cmemory, csize);
	stream.d = zstd_init_dstream(WINDOW_MAX, dmemory, dsize);
	CHECK(stream.d != NULL);
	while (choices.left > 0) {
		unsigned int work = next(&choices) % 8;

		if (work == 6)
			zstd_reset_cstream(stream.c, next(&choices) % 4 ? 0 : next(&choices));
		else if (work == 7)
			zstd_reset_dstream(stream.d);
		else
			call(&stream, &choices, work > 3 ? 0 : work);
	}
	zstd_reset_dstream(stream.d);
	in.src = stream.frame;
	in.size = stream.len;
	in.pos = 0;
	zstd_decompress_stream(stream.d, &out, &in);
	CHECK(out.pos <= OUTPUT_MAX && in.pos <= in.size);
	free(back);
	free(cmemory);
	free(dmemory);
	return 0;
}

#ifndef LIBFUZZER
int main(int argc, char **argv)
{
	static unsigned char input[4096];
	long count = argc > 1 ? strtol(argv[1], NULL, 10) : 100;

	for (long i = 0; i < count; i++) {
		size_t size = random_number() % sizeof(input);
		unsigned int symbols = 1 + random_number() % 256;

		for (size_t at = 0; at < size; at++)
			input[at] = (unsigned char)(random_number() % symbols);
		LLVMFuzzerTestOneInput(input, size);
	}
	printf("ok %ld inputs\n", count);
	return 0;
}
#endif
