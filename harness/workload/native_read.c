/* Reader of the native format. */
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include "harness/workload/native.h"
#include "harness/workload/order.h"

struct reader {
    char *path;
    FILE *file;
    ZSTD_DCtx *context;
    struct mp_trace_shape shape;
    size_t block_bytes;
    unsigned char *raw, *packed;
    size_t raw_size, packed_size; /* room that they have */
    size_t at, blocks;            /* of the frame in raw: next block, all */
    int64_t blocks_before;        /* of frames that were read before it */
    size_t file_size;
    bool has_routes;
    unsigned char *routes; /* of the same frame's tokens */
    size_t routes_size, routes_at, routes_left;
};

static void destroy(void *self) {
    struct reader *reader = self;
    if (!reader)
        return;
    if (reader->file)
        fclose(reader->file);
    ZSTD_freeDCtx(reader->context);
    free(reader->raw);
    free(reader->packed);
    free(reader->routes);
    free(reader->path);
    free(reader);
}

/* Exactly `count` bytes, or says how many there were. */
static int get_bytes(struct reader *reader, void *bytes, size_t count, size_t *got,
                     struct mp_error *error) {
    *got = fread(bytes, 1, count, reader->file);
    if (ferror(reader->file))
        return mp_fail_errno(error, "can't read %s", reader->path);
    return MP_OK;
}

static int fail_frame(const struct reader *reader, const char *what, struct mp_error *error) {
    return mp_fail(error, MP_EFORMAT,
                   "%s: %s after the first %lld blocks; they were read and are whole, nothing "
                   "behind them is",
                   reader->path, what, (long long)reader->blocks_before);
}

static int make_room(const struct reader *reader, unsigned char **buffer, size_t *size,
                     size_t wanted, struct mp_error *error) {
    if (wanted <= *size)
        return MP_OK;
    unsigned char *larger = realloc(*buffer, wanted);
    if (!larger)
        return mp_fail(error, MP_ENOMEM, "no memory for a frame of %zu bytes of %s", wanted,
                       reader->path);
    *buffer = larger;
    *size = wanted;
    return MP_OK;
}

/* Reads a frame's head. */
static int read_head(struct reader *reader, uint32_t magic, uint32_t head[],
                     struct mp_error *error) {
    unsigned char bytes[NATIVE_FRAME_HEAD];
    size_t got;
    MP_TRY(get_bytes(reader, bytes, sizeof bytes, &got, error));
    if (got < sizeof bytes)
        return fail_frame(reader,
                          got ? "the file is cut inside a frame" : "the file is cut between frames",
                          error);
    for (int i = 0; i < NATIVE_FRAME_WORDS; i++)
        head[i] = native_get32(bytes + (size_t)i * 4);
    if (head[0] != magic)
        return fail_frame(reader, "a damaged frame (it does not begin like one)", error);
    return MP_OK;
}

/* Reads and unpacks what belongs to a frame's head, whose sizes can be. */
static int read_body(struct reader *reader, const uint32_t head[], unsigned char **bytes,
                     size_t *size, struct mp_error *error) {
    size_t raw = head[2], packed = head[3], got;
    if (packed > ZSTD_compressBound(raw))
        return fail_frame(reader, "a damaged frame (its sizes can't be)", error);
    if (packed > reader->file_size)
        return fail_frame(reader, "the file is cut inside a frame", error);
    MP_TRY(make_room(reader, &reader->packed, &reader->packed_size, packed, error));
    MP_TRY(get_bytes(reader, reader->packed, packed, &got, error));
    if (got < packed)
        return fail_frame(reader, "the file is cut inside a frame", error);
    if (crc32_z(0, reader->packed, packed) != head[4])
        return fail_frame(reader, "a damaged frame (its checksum differs)", error);
    MP_TRY(make_room(reader, bytes, size, raw, error));
    if (ZSTD_decompressDCtx(reader->context, *bytes, raw, reader->packed, packed) != raw)
        return fail_frame(reader, "a damaged frame (it can't be unpacked)", error);
    return MP_OK;
}

static int read_counts(struct reader *reader, const uint32_t head[], struct mp_error *error) {
    size_t raw = head[2];
    bool too_large = raw > NATIVE_FRAME_LIMIT && raw > reader->block_bytes;
    if (head[1] == 0 || raw / reader->block_bytes != head[1] || raw % reader->block_bytes ||
        too_large)
        return fail_frame(reader, "a damaged frame (its sizes can't be)", error);
    return read_body(reader, head, &reader->raw, &reader->raw_size, error);
}

/* The experts of the tokens of as many blocks. */
static int read_routes(struct reader *reader, uint32_t blocks, struct mp_error *error) {
    uint32_t head[NATIVE_FRAME_WORDS] = {0};
    MP_TRY(read_head(reader, NATIVE_ROUTES_MAGIC, head, error));
    if (head[1] != blocks || head[2] == 0 ||
        head[2] > (uint32_t)(blocks == 1 ? NATIVE_ROUTES_LIMIT : NATIVE_FRAME_LIMIT))
        return fail_frame(reader, "a damaged frame (its sizes can't be)", error);
    reader->routes_left = head[2];
    reader->routes_at = 0;
    return read_body(reader, head, &reader->routes, &reader->routes_size, error);
}

static int read_frame(struct reader *reader, bool *end, struct mp_error *error) {
    uint32_t head[NATIVE_FRAME_WORDS] = {0};
    reader->blocks_before += (int64_t)reader->blocks;
    reader->blocks = reader->at = 0;
    MP_TRY(read_head(reader, NATIVE_FRAME_MAGIC, head, error));
    if (head[1] || head[2] || head[3] || head[4]) {
        MP_TRY(read_counts(reader, head, error));
        if (reader->has_routes)
            MP_TRY(read_routes(reader, head[1], error));
        reader->blocks = head[1];
        return MP_OK;
    }
    if (fgetc(reader->file) != EOF)
        return fail_frame(reader, "more bytes than the trace has", error);
    *end = true;
    return MP_OK;
}

/* The experts of the next block's tokens; the last block takes all that are left. */
static int take_routes(struct reader *reader, struct mp_load *load, struct mp_error *error) {
    size_t used;
    int code = native_get_routes(reader->routes + reader->routes_at, reader->routes_left, load,
                                 &used, error);
    reader->routes_at += used;
    reader->routes_left -= used;
    if (!code && (used == 0 || (reader->at == reader->blocks && reader->routes_left > 0)))
        code = mp_fail(error, MP_EFORMAT,
                       "%s: block %lld: experts of tokens that can't be: fewer or more bytes than "
                       "they take",
                       reader->path, (long long)(reader->blocks_before + (int64_t)reader->at - 1));
    return code;
}

static int next(void *self, struct mp_trace_block *block, bool *end, struct mp_error *error) {
    struct reader *reader = self;
    if (reader->at == reader->blocks)
        MP_TRY(read_frame(reader, end, error));
    if (*end)
        return MP_OK;
    const unsigned char *at = reader->raw + reader->at++ * reader->block_bytes;
    long cells = (long)reader->shape.ranks * reader->shape.experts;
    block->iteration = (int64_t)native_get64(at);
    block->micro_batch = (int)native_get32(at + 8);
    block->layer = (int)native_get32(at + 12);
    at += NATIVE_BLOCK_HEAD;
    for (long cell = 0; cell < cells; cell++)
        block->load.count[cell] = native_get32(at + cell * 4);
    return reader->has_routes ? take_routes(reader, &block->load, error) : MP_OK;
}

static int read_number(const struct reader *reader, json_t *object, const char *name, int *number,
                       struct mp_error *error) {
    json_t *value = json_object_get(object, name);
    json_int_t wide = json_integer_value(value);
    if (!json_is_integer(value) || wide < 0 || wide > INT_MAX)
        return mp_fail(error, MP_EFORMAT, "%s: its header should have a number \"%s\" in 0 .. %d",
                       reader->path, name, INT_MAX);
    *number = (int)wide;
    return MP_OK;
}

static int read_text(const struct reader *reader, json_t *object, const char *name, char **text,
                     struct mp_error *error) {
    const char *value = json_string_value(json_object_get(object, name));
    if (!value)
        return mp_fail(error, MP_EFORMAT, "%s: its header should have a text \"%s\"", reader->path,
                       name);
    *text = strdup(value);
    return *text ? MP_OK : mp_no_memory(error);
}

static int read_info(struct reader *reader, json_t *object, struct mp_trace_info *info,
                     struct mp_error *error) {
    json_t *shape = json_object_get(object, "shape");
    const struct {
        const char *name;
        int *number;
    } field[] = {{"ranks", &info->shape.ranks},
                 {"experts", &info->shape.experts},
                 {"layers", &info->shape.layers},
                 {"micro_batches", &info->shape.micro_batches},
                 {"top_k", &info->shape.top_k}};
    int version = 0;
    MP_TRY(read_number(reader, object, "version", &version, error));
    info->routes = json_is_true(json_object_get(object, "routes"));
    if (version != (info->routes ? NATIVE_VERSION_WITH_ROUTES : NATIVE_VERSION))
        return mp_fail(error, MP_EVERSION,
                       "%s has format version %d, this build reads version %d, and %d with the "
                       "experts of tokens",
                       reader->path, version, NATIVE_VERSION, NATIVE_VERSION_WITH_ROUTES);
    for (size_t i = 0; i < MP_LENGTH(field); i++)
        MP_TRY(read_number(reader, shape, field[i].name, field[i].number, error));
    if (trace_shape_check(&info->shape, error)) {
        error->code = MP_EFORMAT;
        return mp_error_prefix(error, "%s", reader->path);
    }
    info->ragged = json_is_true(json_object_get(object, "ragged"));
    info->of_run = json_is_true(json_object_get(object, "of_run"));
    json_int_t dense = json_integer_value(json_object_get(object, "dense_layers"));
    info->dense_layers = dense >= -1 && dense <= INT_MAX ? (int)dense : -1;
    MP_TRY(read_text(reader, object, "source", &info->source, error));
    return read_text(reader, object, "notes", &info->notes, error);
}

static int fail_header(const struct reader *reader, struct mp_error *error) {
    return mp_fail(
        error, MP_EFORMAT,
        "%s is no trace or its header is damaged; moeperf import makes one of loads of other tools",
        reader->path);
}

MP_END(json, json_t *, json_decref(*it))

/* Magic, size, JSON object, checksum. */
static int read_header(struct reader *reader, struct mp_trace_info *info, struct mp_error *error) {
    unsigned char head[NATIVE_MAGIC_BYTES + 4];
    size_t got;
    MP_TRY(get_bytes(reader, head, sizeof head, &got, error));
    size_t length = got < sizeof head ? 0 : native_get32(head + NATIVE_MAGIC_BYTES);
    if (length == 0 || length > NATIVE_HEADER_LIMIT ||
        memcmp(head, NATIVE_MAGIC, NATIVE_MAGIC_BYTES) != 0)
        return fail_header(reader, error);
    MP_AUTO(memory) unsigned char *text = NULL;
    MP_TRY(MP_NEW(text, length + 4, error));
    MP_TRY(get_bytes(reader, text, length + 4, &got, error));
    if (got < length + 4 || crc32_z(0, text, length) != native_get32(text + length))
        return fail_header(reader, error);
    MP_AUTO(json) json_t *object = json_loadb((const char *)text, length, 0, NULL);
    return object ? read_info(reader, object, info, error) : fail_header(reader, error);
}

static int open_file(struct reader *reader, const char *path, struct mp_trace_info *info,
                     struct mp_error *error) {
    struct stat status;
    reader->path = strdup(path);
    reader->context = ZSTD_createDCtx();
    if (!reader->path || !reader->context)
        return mp_no_memory(error);
    reader->file = fopen(path, "rb");
    if (!reader->file)
        return mp_fail_errno(error, "can't open %s", path);
    if (!fstat(fileno(reader->file), &status) && S_ISDIR(status.st_mode))
        return mp_fail(error, MP_EFORMAT, "%s is a folder, no trace", path);
    reader->file_size = SIZE_MAX; /* of what has none, as a pipe */
    if (S_ISREG(status.st_mode))
        reader->file_size = (size_t)status.st_size;
    int code = read_header(reader, info, error);
    reader->shape = info->shape;
    reader->has_routes = info->routes;
    reader->block_bytes = native_block_bytes(&reader->shape);
    return code;
}

int mp_trace_open(const char *path, struct mp_trace_stream **stream, struct mp_error *error) {
    static const struct mp_trace_stream_operations operations = {next, destroy};
    struct mp_trace_info info = {0};
    struct mp_error own = {0}; /* the caller's may be NULL */
    *stream = NULL;
    struct reader *reader;
    MP_TRY(MP_NEW(reader, 1, error));
    int code = open_file(reader, path, &info, &own);
    if (code)
        mp_fail(error, code, "%s", own.text);
    return mp_trace_stream_create(code, &operations, reader, &info, stream, error);
}
