/* Writer of the native format. */
#include <jansson.h>
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

#include "harness/workload/native.h"
#include "harness/workload/order.h"
#include "reference/base/whole_file.h"

enum { LEVEL = 3 }; /* of zstd: its default */

/* Bytes that grow. */
struct mp_buffer {
    unsigned char *bytes; /* owned */
    size_t size, room;
};

struct mp_trace_writer {
    struct mp_trace_shape shape;
    struct trace_order order;
    char *path;
    struct mp_whole_file file;
    ZSTD_CCtx *context;
    unsigned char *raw, *packed; /* of one frame; packed has room for its head */
    size_t block_bytes, frame_blocks;
    size_t blocks; /* gathered in raw */
    bool has_routes;
    struct mp_buffer routes, packed_routes; /* of the same blocks; the second with its head */
    int failed;
};

static int put_bytes(struct mp_trace_writer *writer, const void *bytes, size_t count,
                     struct mp_error *error) {
    return fwrite(bytes, 1, count, writer->file.stream) == count
               ? MP_OK
               : mp_whole_file_fail(&writer->file, error);
}

/* JSON is UTF-8 and names of files need not be: then letters beyond ASCII become '?'. */
static json_t *pack_text(const char *text) {
    if (!text)
        text = "";
    json_t *packed = json_string(text);
    char *plain = packed ? NULL : strdup(text);
    if (!plain)
        return packed;
    for (char *letter = plain; *letter; letter++)
        if (*letter & 0x80)
            *letter = '?';
    packed = json_string(plain);
    free(plain);
    return packed;
}

static int put_header_text(struct mp_trace_writer *writer, const char *text,
                           struct mp_error *error) {
    unsigned char word[4];
    size_t length = strlen(text);
    if (length > NATIVE_HEADER_LIMIT)
        return mp_fail(error, MP_EINVAL, "what %s says of its source takes %zu bytes, more than %d",
                       writer->path, length, NATIVE_HEADER_LIMIT);
    MP_TRY(put_bytes(writer, NATIVE_MAGIC, NATIVE_MAGIC_BYTES, error));
    native_put32(word, (uint32_t)length);
    MP_TRY(put_bytes(writer, word, sizeof word, error));
    MP_TRY(put_bytes(writer, text, length, error));
    native_put32(word, (uint32_t)crc32_z(0, (const unsigned char *)text, length));
    return put_bytes(writer, word, sizeof word, error);
}

static int put_header(struct mp_trace_writer *writer, const struct mp_trace_info *info,
                      struct mp_error *error) {
    const struct mp_trace_shape *shape = &info->shape;
    json_t *object = json_pack(
        "{s:i, s:{s:i, s:i, s:i, s:i, s:i}, s:o, s:o}", "version",
        info->routes ? NATIVE_VERSION_WITH_ROUTES : NATIVE_VERSION, "shape", "ranks", shape->ranks,
        "experts", shape->experts, "layers", shape->layers, "micro_batches", shape->micro_batches,
        "top_k", shape->top_k, "source", pack_text(info->source), "notes", pack_text(info->notes));
    if ((object && info->ragged && json_object_set_new(object, "ragged", json_true())) ||
        (object && info->routes && json_object_set_new(object, "routes", json_true())) ||
        (object && info->of_run && json_object_set_new(object, "of_run", json_true())) ||
        (object && info->dense_layers &&
         json_object_set_new(object, "dense_layers", json_integer(info->dense_layers)))) {
        json_decref(object);
        object = NULL;
    }
    MP_AUTO(text) char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text ? put_header_text(writer, text, error) : mp_no_memory(error);
}

/* Writes a frame of `blocks` blocks; body has room for its head and what `raw` bytes are packed to
 * at most. */
static int put_packed(struct mp_trace_writer *writer, uint32_t magic, size_t blocks,
                      const unsigned char *bytes, size_t raw, unsigned char *body,
                      struct mp_error *error) {
    size_t packed = 0;
    if (raw > 0)
        packed = ZSTD_compressCCtx(writer->context, body + NATIVE_FRAME_HEAD,
                                   ZSTD_compressBound(raw), bytes, raw, LEVEL);
    if (ZSTD_isError(packed))
        return mp_fail(error, MP_ENOMEM, "can't compress a frame of %s: %s", writer->path,
                       ZSTD_getErrorName(packed));
    const uint32_t head[NATIVE_FRAME_WORDS] = {
        magic, (uint32_t)blocks, (uint32_t)raw, (uint32_t)packed,
        (uint32_t)crc32_z(0, body + NATIVE_FRAME_HEAD, packed)};
    for (int i = 0; i < NATIVE_FRAME_WORDS; i++)
        native_put32(body + (size_t)i * 4, head[i]);
    return put_bytes(writer, body, NATIVE_FRAME_HEAD + packed, error);
}

/* Makes room for so many bytes in all, keeping those that are there. */
static int make_room(struct mp_buffer *buffer, size_t wanted, struct mp_error *error) {
    if (wanted <= buffer->room)
        return MP_OK;
    unsigned char *larger = realloc(buffer->bytes, wanted + wanted / 2);
    if (!larger)
        return mp_no_memory(error);
    *buffer = (struct mp_buffer){larger, buffer->size, wanted + wanted / 2};
    return MP_OK;
}

/* Writes what was gathered as a frame, and tokens' experts behind it; the frame without blocks ends
 * a file. */
static int put_frame(struct mp_trace_writer *writer, struct mp_error *error) {
    struct mp_buffer *routes = &writer->routes, *packed = &writer->packed_routes;
    size_t blocks = writer->blocks;
    writer->blocks = 0;
    MP_TRY(put_packed(writer, NATIVE_FRAME_MAGIC, blocks, writer->raw, blocks * writer->block_bytes,
                      writer->packed, error));
    if (!writer->has_routes || blocks == 0)
        return MP_OK;
    MP_TRY(make_room(packed, NATIVE_FRAME_HEAD + ZSTD_compressBound(routes->size), error));
    MP_TRY(put_packed(writer, NATIVE_ROUTES_MAGIC, blocks, routes->bytes, routes->size,
                      packed->bytes, error));
    routes->size = 0;
    return MP_OK;
}

static void destroy(struct mp_trace_writer *writer) {
    ZSTD_freeCCtx(writer->context);
    free(writer->raw);
    free(writer->packed);
    free(writer->routes.bytes);
    free(writer->packed_routes.bytes);
    free(writer->path);
    free(writer);
}

static int allocate(struct mp_trace_writer *writer, const char *path) {
    writer->block_bytes = native_block_bytes(&writer->shape);
    writer->frame_blocks = NATIVE_FRAME_BYTES / writer->block_bytes;
    if (writer->frame_blocks == 0)
        writer->frame_blocks = 1;
    size_t raw = writer->frame_blocks * writer->block_bytes;
    writer->raw = malloc(raw);
    writer->packed = malloc(NATIVE_FRAME_HEAD + ZSTD_compressBound(raw));
    writer->context = ZSTD_createCCtx();
    writer->path = strdup(path);
    return writer->raw && writer->packed && writer->context && writer->path;
}

static int open_file(struct mp_trace_writer *writer, const struct mp_trace_info *info,
                     struct mp_error *error) {
    MP_TRY(mp_whole_file_open(&writer->file, writer->path, error));
    return put_header(writer, info, error);
}

int mp_trace_writer_create(const char *path, const struct mp_trace_info *info,
                           struct mp_trace_writer **writer, struct mp_error *error) {
    *writer = NULL;
    MP_TRY(trace_shape_check(&info->shape, error));
    struct mp_trace_writer *made;
    MP_TRY(MP_NEW(made, 1, error));
    made->shape = info->shape;
    made->has_routes = info->routes;
    int code = allocate(made, path) ? open_file(made, info, error) : mp_no_memory(error);
    if (code) {
        mp_whole_file_close(&made->file, code, error);
        destroy(made);
        return code;
    }
    *writer = made;
    return MP_OK;
}

static void encode_block(unsigned char *at, const struct mp_trace_block *block) {
    long cells = (long)block->load.ranks * block->load.experts;
    native_put64(at, (uint64_t)block->iteration);
    native_put32(at + 8, (uint32_t)block->micro_batch);
    native_put32(at + 12, (uint32_t)block->layer);
    at += NATIVE_BLOCK_HEAD;
    for (long cell = 0; cell < cells; cell++)
        native_put32(at + cell * 4, block->load.count[cell]);
}

/* Gathers the experts of a block's tokens. */
static int take_routes(struct mp_trace_writer *writer, const struct mp_load *load,
                       struct mp_error *error) {
    struct mp_buffer *buffer = &writer->routes;
    if (!load->routes)
        return mp_fail(error, MP_EINVAL, "block %lld has no experts of tokens, which %s is to have",
                       (long long)writer->order.blocks - 1, writer->path);
    size_t bytes = native_routes_bytes(load);
    if (bytes > NATIVE_ROUTES_LIMIT)
        return mp_fail(error, MP_EINVAL,
                       "block %lld: its tokens' experts take %zu bytes, more than %d",
                       (long long)writer->order.blocks - 1, bytes, NATIVE_ROUTES_LIMIT);
    /* One block may be large; several are not together. */
    if (buffer->size > 0 && buffer->size + bytes > NATIVE_FRAME_LIMIT)
        MP_TRY(put_frame(writer, error));
    MP_TRY(make_room(buffer, buffer->size + bytes, error));
    native_put_routes(buffer->bytes + buffer->size, load);
    buffer->size += bytes;
    return MP_OK;
}

static int write_block(struct mp_trace_writer *writer, const struct mp_trace_block *block,
                       struct mp_error *error) {
    const struct mp_load *load = &block->load;
    if (load->ranks != writer->shape.ranks || load->experts != writer->shape.experts)
        return mp_fail(error, MP_EINVAL,
                       "block %lld has %d ranks and %d experts, the trace %s %d ranks and %d "
                       "experts",
                       (long long)writer->order.blocks, load->ranks, load->experts, writer->path,
                       writer->shape.ranks, writer->shape.experts);
    MP_TRY(trace_order_take(&writer->order, &writer->shape, block, MP_EINVAL, error));
    if (writer->has_routes)
        MP_TRY(take_routes(writer, load, error));
    encode_block(writer->raw + writer->blocks++ * writer->block_bytes, block);
    bool full =
        writer->blocks == writer->frame_blocks || writer->routes.size >= NATIVE_ROUTES_BYTES;
    return full ? put_frame(writer, error) : MP_OK;
}

int mp_trace_write(struct mp_trace_writer *writer, const struct mp_trace_block *block,
                   struct mp_error *error) {
    if (writer->failed)
        return mp_fail(error, writer->failed, "writing %s failed before", writer->path);
    writer->failed = write_block(writer, block, error);
    return writer->failed;
}

static int put_last_frames(struct mp_trace_writer *writer, struct mp_error *error) {
    MP_TRY(trace_order_end(&writer->order, &writer->shape, MP_EINVAL, error));
    if (writer->blocks > 0)
        MP_TRY(put_frame(writer, error));
    return put_frame(writer, error);
}

int mp_trace_writer_finish(struct mp_trace_writer *writer, bool commit, struct mp_error *error) {
    int code = writer->failed;
    if (code)
        mp_fail(error, code, "writing %s failed before", writer->path);
    else if (commit)
        code = put_last_frames(writer, error);
    code = mp_whole_file_close(&writer->file, code || commit ? code : MP_EINTERRUPTED, error);
    destroy(writer);
    return commit ? code : MP_OK;
}
