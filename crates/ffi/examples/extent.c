/*
 * Decodes an extent as file systems store it: one zstd frame, padded to whole sectors.
 *
 *     cc extent.c $(pkg-config --cflags --libs restow_zstd) -o extent
 *     ./extent <stored >content
 */
#include <restow/zstd.h>
#include <stdio.h>
#include <stdlib.h>

/* No larger than a compressed extent of btrfs, in which a frame's window has up to 128 KiB. */
#define EXTENT_MAX (128 * 1024)

static unsigned char stored[EXTENT_MAX], content[4096];

int main(void)
{
	/* All memory that decoding needs. It can be allocated once, and used for any number of extents. */
	size_t size = zstd_dstream_workspace_bound(EXTENT_MAX);
	void *workspace = malloc(size);
	zstd_dstream *dstream = zstd_init_dstream(EXTENT_MAX, workspace, size);
	zstd_in_buffer in = { stored, fread(stored, 1, sizeof(stored), stdin), 0 };
	size_t left;

	if (!dstream) {
		fprintf(stderr, "extent: no memory\n");
		return 1;
	}
	do {
		zstd_out_buffer out = { content, sizeof(content), 0 };
		size_t before = in.pos;

		left = zstd_decompress_stream(dstream, &out, &in);
		if (zstd_is_error(left)) {
			fprintf(stderr, "extent: %s\n", zstd_get_error_name(left));
			return 1;
		}
		if (left > 0 && in.pos == before && out.pos == 0) {
			fprintf(stderr, "extent: the frame ends early\n");
			return 1;
		}
		fwrite(content, 1, out.pos, stdout);
	} while (left > 0);
	free(workspace);
	return 0;
}
