/* What the tables of docs/published.md compare with and no crate offers: zlib and xxHash in C, as this system has them.
   xxHash is declared here since its header is rarely installed.

   peers version
   peers none|zlib-compress|zlib-decompress LEVEL FILE [OUTPUT]   4096 bytes at a time; prints nanoseconds, bytes, KiB of address space
   peers copy|xxh32|xxh64|crc32 SIZE FILE                         buffers of SIZE bytes; prints nanoseconds and the sum of the values */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zlib.h>

unsigned XXH_versionNumber(void);
uint32_t XXH32(const void *data, size_t length, uint32_t seed);
uint64_t XXH64(const void *data, size_t length, uint64_t seed);

#define PIECE 4096

static unsigned char *content;
static size_t content_bytes;
static FILE *output;
static uint64_t written;

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void load(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        fail("the file cannot be read");
    content_bytes = (size_t)ftell(file);
    rewind(file);
    content = malloc(content_bytes + 1);
    if (!content || fread(content, 1, content_bytes, file) != content_bytes)
        fail("the file cannot be read");
    fclose(file);
}

static void sink(const unsigned char *bytes, size_t count)
{
    written += count;
    if (output && fwrite(bytes, 1, count, output) != count)
        fail("the output cannot be written");
}

static void devices(int is_none, int compresses, int level)
{
    static unsigned char in[PIECE], out[PIECE];
    z_stream z;
    memset(&z, 0, sizeof z);
    if (!is_none && (compresses ? deflateInit(&z, level) : inflateInit(&z)) != Z_OK)
        fail("zlib does not start");
    uint64_t start = now();
    for (size_t at = 0; at < content_bytes; at += PIECE) {
        size_t count = content_bytes - at < PIECE ? content_bytes - at : PIECE;
        int is_last = at + count == content_bytes;
        memcpy(in, content + at, count);
        __asm__ volatile("" : : "r"(in) : "memory");
        if (is_none) {
            sink(in, count);
            continue;
        }
        z.next_in = in;
        z.avail_in = (uInt)count;
        for (;;) {
            z.next_out = out;
            z.avail_out = PIECE;
            int got = compresses ? deflate(&z, is_last ? Z_FINISH : Z_NO_FLUSH) : inflate(&z, Z_NO_FLUSH);
            if (got != Z_OK && got != Z_STREAM_END && got != Z_BUF_ERROR)
                fail("zlib fails");
            sink(out, PIECE - z.avail_out);
            if (got == Z_STREAM_END)
                break;
            if (z.avail_in == 0 && z.avail_out != 0) {
                if (is_last)
                    fail("zlib does not end");
                break;
            }
        }
    }
    uint64_t time = now() - start;
    char line[256];
    unsigned long peak = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        sscanf(line, "VmPeak: %lu", &peak);
    printf("%llu %llu %lu\n", (unsigned long long)time, (unsigned long long)written, peak);
}

static void hashes(const char *name, size_t size)
{
    unsigned char *buffer = malloc(size);
    uint64_t sum = 0;
    if (!buffer)
        fail("no memory");
    uint64_t start = now();
    for (size_t at = 0; at + size <= content_bytes; at += size) {
        memcpy(buffer, content + at, size);
        __asm__ volatile("" : : "r"(buffer) : "memory");
        if (!strcmp(name, "xxh32"))
            sum += XXH32(buffer, size, 0);
        else if (!strcmp(name, "xxh64"))
            sum += XXH64(buffer, size, 0);
        else if (!strcmp(name, "crc32"))
            sum += crc32(0, buffer, (uInt)size);
    }
    uint64_t time = now() - start;
    printf("%llu %llu\n", (unsigned long long)time, (unsigned long long)sum);
}

int main(int count, char **words)
{
    if (count == 2 && !strcmp(words[1], "version")) {
        unsigned xxh = XXH_versionNumber();
        printf("zlib %s, xxHash %u.%u.%u\n", zlibVersion(), xxh / 10000, xxh / 100 % 100, xxh % 100);
        return 0;
    }
    if (count < 4)
        fail("usage: peers WORK LEVEL|SIZE FILE [OUTPUT]");
    load(words[3]);
    if (count > 4 && !(output = fopen(words[4], "wb")))
        fail("the output cannot be made");
    const char *work = words[1];
    if (!strcmp(work, "copy") || !strcmp(work, "xxh32") || !strcmp(work, "xxh64") || !strcmp(work, "crc32"))
        hashes(work, (size_t)atoi(words[2]));
    else
        devices(!strcmp(work, "none"), !strcmp(work, "zlib-compress"), atoi(words[2]));
    if (output && fclose(output))
        fail("the output cannot be written");
    return 0;
}
