/*
 * zstd in memory that the caller gives, with the names, structs and error numbers of Linux' linux/zstd.h since 5.16.
 *
 * A context lies in a workspace, which may begin at any address. It needs no function that frees it. NULL for a context, a
 * struct or a buffer that is not empty gives an error, and so does a workspace that is too small; where a context is
 * returned, NULL.
 *
 * What of linux/zstd.h is here:
 *
 *   whole    zstd_is_error, zstd_get_error_code, zstd_get_error_name
 *            zstd_min_clevel, zstd_max_clevel, zstd_default_clevel, zstd_get_params, zstd_get_cparams, zstd_compress_bound
 *            zstd_cctx_workspace_bound, zstd_init_cctx, zstd_compress_cctx
 *            zstd_cstream_workspace_bound, zstd_init_cstream, zstd_reset_cstream
 *            zstd_compress_stream, zstd_flush_stream, zstd_end_stream
 *            zstd_dctx_workspace_bound, zstd_init_dctx, zstd_decompress_dctx
 *            zstd_dstream_workspace_bound, zstd_init_dstream, zstd_reset_dstream, zstd_decompress_stream
 *            zstd_find_frame_compressed_size
 *            (the names of errors are in lower case here, so that a program may include the header of libzstd, too)
 *            zstd_create_cctx_advanced, zstd_free_cctx, zstd_create_dctx_advanced, zstd_free_dctx
 *            zstd_create_cdict_byreference, zstd_free_cdict, zstd_compress_using_cdict
 *            zstd_create_ddict_byreference, zstd_free_ddict, zstd_decompress_using_ddict
 *   partial  zstd_get_frame_header: the fields that Linux calls reserved are not written
 *            zstd_cctx_workspace_bound_with_ext_seq_prod, zstd_cstream_workspace_bound_with_ext_seq_prod: the bounds without
 *            producers
 *   refused  zstd_register_sequence_producer, zstd_cctx_set_param, zstd_compress_sequences_and_literals: parameter_unsupported
 */
#ifndef RESTOW_ZSTD_H
#define RESTOW_ZSTD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
	zstd_error_no_error = 0,
	zstd_error_GENERIC = 1,
	zstd_error_prefix_unknown = 10,
	zstd_error_version_unsupported = 12,
	zstd_error_frameParameter_unsupported = 14,
	zstd_error_frameParameter_windowTooLarge = 16,
	zstd_error_corruption_detected = 20,
	zstd_error_checksum_wrong = 22,
	zstd_error_literals_headerWrong = 24,
	zstd_error_dictionary_corrupted = 30,
	zstd_error_dictionary_wrong = 32,
	zstd_error_dictionaryCreation_failed = 34,
	zstd_error_parameter_unsupported = 40,
	zstd_error_parameter_combination_unsupported = 41,
	zstd_error_parameter_outOfBound = 42,
	zstd_error_tableLog_tooLarge = 44,
	zstd_error_maxSymbolValue_tooLarge = 46,
	zstd_error_maxSymbolValue_tooSmall = 48,
	zstd_error_stabilityCondition_notRespected = 50,
	zstd_error_stage_wrong = 60,
	zstd_error_init_missing = 62,
	zstd_error_memory_allocation = 64,
	zstd_error_workSpace_tooSmall = 66,
	zstd_error_dstSize_tooSmall = 70,
	zstd_error_srcSize_wrong = 72,
	zstd_error_dstBuffer_null = 74,
	zstd_error_noForwardProgress_destFull = 80,
	zstd_error_noForwardProgress_inputEmpty = 82,
	zstd_error_maxCode = 120
} zstd_error_code;

/* What a function has returned: whether it is an error, which one, and a few words about it. */
unsigned int zstd_is_error(size_t code);
zstd_error_code zstd_get_error_code(size_t code);
const char *zstd_get_error_name(size_t code);

/* ---- parameters ---- */

/* strategy: 1 (fast) to 9 (btultra2). minMatch 0 lets a sample of the content decide. */
typedef struct {
	unsigned int windowLog;
	unsigned int chainLog;
	unsigned int hashLog;
	unsigned int searchLog;
	unsigned int minMatch;
	unsigned int targetLength;
	unsigned int strategy;
} zstd_compression_parameters;

typedef struct {
	int contentSizeFlag;
	int checksumFlag;
	int noDictIDFlag;
} zstd_frame_parameters;

typedef struct {
	zstd_compression_parameters cParams;
	zstd_frame_parameters fParams;
} zstd_parameters;

int zstd_min_clevel(void);
int zstd_max_clevel(void);
int zstd_default_clevel(void);

/* The parameters of a level for content of a size, 0 if that is unknown. Level 0 is the default. The header tells the size. */
zstd_parameters zstd_get_params(int level, unsigned long long estimated_src_size);
zstd_compression_parameters zstd_get_cparams(int level, unsigned long long estimated_src_size, size_t dict_size);

/* The largest size of a frame of so much content, or an error if no frame has as much. */
size_t zstd_compress_bound(size_t src_size);

/* ---- frames in one call ---- */

typedef struct zstd_cctx_s zstd_cctx;
typedef struct zstd_dctx_s zstd_dctx;

/* Bytes of workspace, or an error. */
size_t zstd_cctx_workspace_bound(const zstd_compression_parameters *parameters);
size_t zstd_dctx_workspace_bound(void);

zstd_cctx *zstd_init_cctx(void *workspace, size_t workspace_size);
zstd_dctx *zstd_init_dctx(void *workspace, size_t workspace_size);

/* Compresses to one frame; gives its size, or an error. */
size_t zstd_compress_cctx(zstd_cctx *cctx, void *dst, size_t dst_capacity, const void *src, size_t src_size,
			  const zstd_parameters *parameters);

/* Decompresses frames, one after the other; gives the size of their content, or an error. */
size_t zstd_decompress_dctx(zstd_dctx *dctx, void *dst, size_t dst_capacity, const void *src, size_t src_size);

/* ---- streams ---- */

/* Bytes from pos on are input, or room for output. Calls advance pos. */
typedef struct {
	const void *src;
	size_t size;
	size_t pos;
} zstd_in_buffer;

typedef struct {
	void *dst;
	size_t size;
	size_t pos;
} zstd_out_buffer;

typedef zstd_cctx zstd_cstream;
typedef zstd_dctx zstd_dstream;

size_t zstd_cstream_workspace_bound(const zstd_compression_parameters *parameters);

/* pledged_src_size is the size of the frame's content; 0 or ZSTD_CONTENTSIZE_UNKNOWN if it is unknown. */
zstd_cstream *zstd_init_cstream(const zstd_parameters *parameters, unsigned long long pledged_src_size, void *workspace,
				size_t workspace_size);

/* Begins another frame, whatever became of this one. */
size_t zstd_reset_cstream(zstd_cstream *cstream, unsigned long long pledged_src_size);

/* All input is taken unless the output is full. Gives how much input would complete a block, or an error. */
size_t zstd_compress_stream(zstd_cstream *cstream, zstd_out_buffer *output, zstd_in_buffer *input);

/* Completes blocks, or the frame. Gives 0 when that is done, how many bytes wait for room, or an error. */
size_t zstd_flush_stream(zstd_cstream *cstream, zstd_out_buffer *output);
size_t zstd_end_stream(zstd_cstream *cstream, zstd_out_buffer *output);

size_t zstd_dstream_workspace_bound(size_t max_window_size);

/* Takes frames whose windows fit in the workspace, whatever max_window_size is. */
zstd_dstream *zstd_init_dstream(size_t max_window_size, void *workspace, size_t workspace_size);
size_t zstd_reset_dstream(zstd_dstream *dstream);

/*
 * Gives 0 when a frame is complete and given out, how much input would do for the next step, or an error, which comes again
 * until the stream is reset. The last byte of a frame counts as taken only when all of its content is given out. The
 * sixteenth call in a row within a frame that takes and gives nothing is an error, which ends with the next progress.
 */
size_t zstd_decompress_stream(zstd_dstream *dstream, zstd_out_buffer *output, zstd_in_buffer *input);

/* ---- frames ---- */

/* Bytes up to the end of the first frame, or an error. */
size_t zstd_find_frame_compressed_size(const void *src, size_t src_size);

/* frameContentSize is this if the header does not tell. */
#define ZSTD_CONTENTSIZE_UNKNOWN (0ULL - 1)

/* frameType: 0, or 1 for a skippable frame, whose windowSize is 0 and whose dictID is the number of its magic number. */
typedef struct {
	unsigned long long frameContentSize;
	unsigned long long windowSize;
	unsigned int blockSizeMax;
	unsigned int frameType;
	unsigned int headerSize;
	unsigned int dictID;
	unsigned int checksumFlag;
} zstd_frame_header;

/* 0, how many bytes are needed from the start of the frame, or an error. */
size_t zstd_get_frame_header(zstd_frame_header *header, const void *src, size_t src_size);

/* ---- memory from an allocator ---- */

/* The first returns memory of a size in bytes, or NULL; the second frees it. Without both functions there is no memory. */
typedef void *(*zstd_alloc_function)(void *opaque, size_t size);
typedef void (*zstd_free_function)(void *opaque, void *address);

typedef struct {
	zstd_alloc_function customAlloc;
	zstd_free_function customFree;
	void *opaque;
} zstd_custom_mem;

/* Contexts for frames in one call. One that compresses takes memory for the first frame, and again for larger parameters. */
zstd_cctx *zstd_create_cctx_advanced(zstd_custom_mem custom_mem);
zstd_dctx *zstd_create_dctx_advanced(zstd_custom_mem custom_mem);

/* 0, also for NULL; memory_allocation for a context in a workspace, which stays as it is. */
size_t zstd_free_cctx(zstd_cctx *cctx);
size_t zstd_free_dctx(zstd_dctx *dctx);

/* ---- dictionaries ---- */

typedef struct zstd_cdict_s zstd_cdict;
typedef struct zstd_ddict_s zstd_ddict;

/* A dictionary that is ready to be used. Its bytes are not copied. NULL also if it is not valid. */
zstd_cdict *zstd_create_cdict_byreference(const void *dict, size_t dict_size, zstd_compression_parameters cparams,
					  zstd_custom_mem custom_mem);
zstd_ddict *zstd_create_ddict_byreference(const void *dict, size_t dict_size, zstd_custom_mem custom_mem);

/* 0, also for NULL. */
size_t zstd_free_cdict(zstd_cdict *cdict);
size_t zstd_free_ddict(zstd_ddict *ddict);

/* As the functions without dictionary. A frame has the parameters of its dictionary. */
size_t zstd_compress_using_cdict(zstd_cctx *cctx, void *dst, size_t dst_capacity, const void *src, size_t src_size,
				 const zstd_cdict *cdict);
size_t zstd_decompress_using_ddict(zstd_dctx *dctx, void *dst, size_t dst_capacity, const void *src, size_t src_size,
				   const zstd_ddict *ddict);

/* ---- refused ---- */

/* Until this is called with NULL, the context answers parameter_unsupported. */
void zstd_register_sequence_producer(zstd_cctx *cctx, void *state, size_t (*producer)(void));
size_t zstd_cctx_workspace_bound_with_ext_seq_prod(const zstd_compression_parameters *parameters);
size_t zstd_cstream_workspace_bound_with_ext_seq_prod(const zstd_compression_parameters *parameters);
size_t zstd_cctx_set_param(zstd_cctx *cctx, unsigned int parameter, int value);

typedef struct {
	unsigned int offset;
	unsigned int litLength;
	unsigned int matchLength;
	unsigned int rep;
} zstd_sequence;

size_t zstd_compress_sequences_and_literals(zstd_cctx *cctx, void *dst, size_t dst_capacity, const zstd_sequence *sequences,
					    size_t sequences_count, const void *literals, size_t literals_size,
					    size_t literals_capacity, size_t src_size);

#ifdef __cplusplus
}
#endif

#endif
