/* Arbitrary bytes as a trace file, read and reshaped: blocks have the announced shape, folds and
 * splits keep every route.
 *
 * Random bytes never have a right checksum.  The first byte says what the rest is: a file as it is,
 * a file whose checksums are to be filled in, raw blocks that are packed into a file here, or some
 * with the experts of their tokens behind them. */
#include <zlib.h>
#include <zstd.h>

#include "harness/workload/native.h"
#include "harness/workload/reshape.h"
#include "tests/fuzz/trace_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

enum { FILE_LIMIT = 1 << 17, LENGTH = 4 };
enum { AS_IS, CHECKED, BLOCKS, BLOCKS_WITH_ROUTES, KINDS };
#define HEADER(version, top_k)                                                                     \
    "{\"version\": " version ", \"shape\": {\"ranks\": 2, \"experts\": 4, \"layers\": 2, "         \
    "\"micro_batches\": 1, \"top_k\": " top_k "}, \"source\": \"fuzz\", \"notes\": \"\"}"
static const char header[] = HEADER("1", "0");
static const char header_with_routes[] = HEADER("2, \"routes\": true", "2");
static const struct mp_trace_shape shape = {2, 4, 2, 1, 0}; /* of the first header */

static uint32_t checksum(const uint8_t *bytes, size_t size) {
    return (uint32_t)crc32(0, bytes, (uInt)size);
}

static void fill_in_checks(uint8_t *bytes, size_t size) {
    size_t at = NATIVE_MAGIC_BYTES;
    if (size < at + LENGTH)
        return;
    size_t length = native_get32(bytes + at);
    at += LENGTH;
    if (length > size - at || size - at - length < LENGTH)
        return;
    native_put32(bytes + at + length, checksum(bytes + at, length));
    at += length + LENGTH;
    while (size - at >= NATIVE_FRAME_HEAD) {
        size_t packed = native_get32(bytes + at + 12);
        uint8_t *check = bytes + at + 16;
        at += NATIVE_FRAME_HEAD;
        if (packed == 0 || packed > size - at)
            return;
        native_put32(check, checksum(bytes + at, packed));
        at += packed;
    }
}

static size_t put_header(const char *text, uint8_t *file) {
    size_t length = strlen(text);
    memcpy(file, NATIVE_MAGIC, NATIVE_MAGIC_BYTES);
    file += NATIVE_MAGIC_BYTES;
    native_put32(file, (uint32_t)length);
    memcpy(file + LENGTH, text, length);
    native_put32(file + LENGTH + length, checksum(file + LENGTH, length));
    return NATIVE_MAGIC_BYTES + LENGTH + length + LENGTH;
}

/* A frame of these bytes, and the bytes that it takes; none of them ends a file. */
static size_t put_frame(uint32_t magic, size_t blocks, const uint8_t *raw, size_t size,
                        uint8_t *file) {
    uint8_t *packed = file + NATIVE_FRAME_HEAD;
    size_t used = size ? ZSTD_compress(packed, ZSTD_compressBound(size), raw, size, 1) : 0;
    expect(!ZSTD_isError(used), "bytes can be packed");
    native_put32(file, magic);
    native_put32(file + 4, (uint32_t)blocks);
    native_put32(file + 8, (uint32_t)size);
    native_put32(file + 12, (uint32_t)used);
    native_put32(file + 16, size ? checksum(packed, used) : 0);
    return NATIVE_FRAME_HEAD + used;
}

/* Whole blocks of the input in one frame, and the frame that ends a file; the bytes written.  With
 * routes: at most two blocks, and what is behind them is their tokens' experts. */
static size_t pack(const uint8_t *raw, size_t size, bool routes, uint8_t *file) {
    const size_t block = native_block_bytes(&shape);
    size_t blocks = routes && size / block > 2 ? 2 : size / block;
    size_t at = put_header(routes ? header_with_routes : header, file);
    if (blocks > 0)
        at += put_frame(NATIVE_FRAME_MAGIC, blocks, raw, blocks * block, file + at);
    if (blocks > 0 && routes)
        at += put_frame(NATIVE_ROUTES_MAGIC, blocks, raw + blocks * block, size - blocks * block,
                        file + at);
    return at + put_frame(NATIVE_FRAME_MAGIC, 0, NULL, 0, file + at);
}

static struct mp_trace_stream *open_file(const char *path) {
    struct mp_trace_stream *stream = NULL;
    struct mp_error error = {0};
    int code = mp_trace_open(path, &stream, &error);
    expect_sentence(code, &error);
    if (code)
        return NULL;
    mp_trace_allow_ragged(stream);
    const struct mp_trace_shape *had = &mp_trace_stream_info(stream)->shape;
    if ((int64_t)had->ranks * had->experts * had->layers < 1 << 16)
        return stream;
    mp_trace_stream_destroy(stream); /* large blocks only take time */
    return NULL;
}

static void reshape(const char *path, uint8_t choice, int64_t routes) {
    struct mp_trace_stream *stream = open_file(path), *made;
    const struct mp_trace_shape *had = &mp_trace_stream_info(stream)->shape;
    struct mp_reshape wanted = {.ranks = choice & 1 ? had->ranks * 3 : 1,
                                .experts = choice & 2 ? had->experts * 5 : 0,
                                .layers = choice & 4 ? 3 : 0,
                                .micro_batches = choice & 8 ? 1 : 0,
                                .tilt = choice & 16 ? 0.7 : 0};
    if (choice & 32) {
        wanted.tokens = 1 + choice;
        wanted.top_k = had->top_k ? 0 : 1;
    }
    struct mp_error error = {0};
    int code = mp_trace_reshape(stream, &wanted, &made, &error);
    expect_sentence(code, &error);
    if (code)
        return;
    int64_t after = walk(made);
    expect(after < 0 || (choice & (4 | 32)) || after == routes, "no route is lost or made");
    mp_trace_stream_destroy(made);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    static uint8_t bytes[FILE_LIMIT];
    if (size < 2 || size > FILE_LIMIT / 2)
        return 0;
    const uint8_t kind = input[0] % KINDS, choice = input[1];
    input += 2;
    size -= 2;
    memcpy(bytes, input, size);
    if (kind == CHECKED)
        fill_in_checks(bytes, size);
    if (kind == BLOCKS || kind == BLOCKS_WITH_ROUTES)
        size = pack(input, size, kind == BLOCKS_WITH_ROUTES, bytes);
    const char *path = input_file(bytes, size);
    struct mp_trace_stream *stream = open_file(path);
    if (stream) {
        int64_t routes = walk(stream);
        mp_trace_stream_destroy(stream);
        if (routes >= 0)
            reshape(path, choice, routes);
    }
    return 0;
}
