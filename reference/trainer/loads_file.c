#include "reference/trainer/loads_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/record/check.h"
#include "reference/base/whole_file.h"

static const char MAGIC[8] = "MPLOADS2";
enum head_word { SOURCES, EXPERTS, LAYERS, TOP_K, TOKENS, WORDS };
enum { HEAD_BYTES = sizeof MAGIC + 4 * WORDS, END_BYTES = 8 };

int mp_loads_check(const struct mp_loads_shape *shape, int64_t iteration, int layer,
                   const uint32_t count[], struct mp_error *error) {
    int64_t wanted = shape->tokens * shape->top_k;
    for (int source = 0; source < shape->sources; source++) {
        const uint32_t *row = count + (int64_t)source * shape->experts;
        int64_t routes = 0;
        for (int expert = 0; expert < shape->experts; expert++) {
            routes += row[expert];
            if (row[expert] > shape->tokens)
                return mp_fail(error, MP_EINVAL,
                               "iteration %lld, layer %d: source %d sends %u routes to expert %d, "
                               "but has %lld tokens, and a token chooses an expert at most once",
                               (long long)iteration, layer, source, row[expert], expert,
                               (long long)shape->tokens);
        }
        if (shape->fewer ? routes > wanted : routes != wanted)
            return mp_fail(error, MP_EINVAL,
                           "iteration %lld, layer %d: source %d has %lld routes, but the job's "
                           "%lld tokens of a rank with %d experts each have %s%lld",
                           (long long)iteration, layer, source, (long long)routes,
                           (long long)shape->tokens, shape->top_k, shape->fewer ? "at most " : "",
                           (long long)wanted);
    }
    return MP_OK;
}

static size_t counts_of(const struct mp_loads_shape *shape) {
    return (size_t)shape->sources * (size_t)shape->experts;
}

/* CRC-32 of words, which are little-endian: check.h is built for such hosts alone. */
static uint32_t check_of(uint32_t check, const uint32_t word[], size_t words) {
    return spool_crc32_on(check, word, words * sizeof *word);
}

uint32_t mp_loads_digest(uint32_t digest, const struct mp_load *load) {
    const uint32_t shape[] = {(uint32_t)load->ranks, (uint32_t)load->experts};
    digest = check_of(digest, shape, 2);
    return check_of(digest, load->count, (size_t)load->ranks * (size_t)load->experts);
}

/* ---- writing ---- */

struct mp_loads_writer {
    struct mp_loads_shape shape;
    struct mp_whole_file file;
    int64_t blocks;
    uint32_t check;
    int failed;
};

static int put_words(struct mp_loads_writer *writer, const uint32_t word[], size_t words,
                     struct mp_error *error) {
    writer->check = check_of(writer->check, word, words);
    if (!writer->failed && fwrite(word, sizeof *word, words, writer->file.stream) != words)
        writer->failed = mp_whole_file_fail(&writer->file, error);
    return writer->failed;
}

int mp_loads_writer_create(const char *path, const struct mp_loads_shape *shape,
                           struct mp_loads_writer **made, struct mp_error *error) {
    const uint32_t head[WORDS] = {[SOURCES] = (uint32_t)shape->sources,
                                  [EXPERTS] = (uint32_t)shape->experts,
                                  [LAYERS] = (uint32_t)shape->layers,
                                  [TOP_K] = (uint32_t)shape->top_k,
                                  [TOKENS] = (uint32_t)shape->tokens};
    struct mp_loads_writer *writer;
    *made = NULL;
    MP_TRY(MP_NEW(writer, 1, error));
    writer->shape = *shape;
    writer->check = spool_crc32(MAGIC, sizeof MAGIC);
    int code = mp_whole_file_open(&writer->file, path, error);
    if (!code && fwrite(MAGIC, 1, sizeof MAGIC, writer->file.stream) != sizeof MAGIC)
        code = mp_whole_file_fail(&writer->file, error);
    code = code ? code : put_words(writer, head, WORDS, error);
    if (code)
        mp_loads_writer_finish(writer, false, 0, NULL);
    else
        *made = writer;
    return code;
}

int mp_loads_write(struct mp_loads_writer *writer, const struct mp_load *load,
                   struct mp_error *error) {
    const struct mp_loads_shape *shape = &writer->shape;
    int64_t iteration = writer->blocks / shape->layers;
    int layer = (int)(writer->blocks++ % shape->layers);
    writer->failed = mp_loads_check(shape, iteration, layer, load->count, error);
    return writer->failed ? writer->failed
                          : put_words(writer, load->count, counts_of(shape), error);
}

/* What follows the last layer's load. */
static int put_end(struct mp_loads_writer *writer, uint32_t digest, struct mp_error *error) {
    MP_TRY(writer->failed);
    if (writer->blocks < 1 || writer->blocks % writer->shape.layers)
        return mp_fail(error, MP_EINVAL, "%s: %lld loads are no iterations of %d layers",
                       writer->file.path, (long long)writer->blocks, writer->shape.layers);
    MP_TRY(put_words(writer, &digest, 1, error));
    const uint32_t check = writer->check;
    return put_words(writer, &check, 1, error);
}

int mp_loads_writer_finish(struct mp_loads_writer *writer, bool commit, uint32_t digest,
                           struct mp_error *error) {
    int code = commit ? put_end(writer, digest, error) : writer->failed;
    code = mp_whole_file_close(&writer->file, code || commit ? code : MP_EINTERRUPTED, error);
    free(writer);
    return commit ? code : MP_OK;
}

/* ---- reading ---- */

/* The CRC-32 of anything with its own CRC-32 (little-endian) behind it. */
static const uint32_t CHECK_OF_WHOLE = 0x2144df1c;

/* The whole file, before anything in it is believed; its size.  What follows is the head. */
static int verify(FILE *file, const char *path, int64_t *size, struct mp_error *error) {
    unsigned char part[1 << 16];
    uint32_t check = 0;
    bool is_loads = false;
    *size = 0;
    for (size_t got; (got = fread(part, 1, sizeof part, file)) > 0; *size += (int64_t)got) {
        is_loads |= *size == 0 && got >= sizeof MAGIC && !memcmp(part, MAGIC, sizeof MAGIC);
        check = spool_crc32_on(check, part, got);
    }
    if (ferror(file))
        return mp_fail_errno(error, "can't read %s", path);
    if (!is_loads)
        return mp_fail(error, MP_EFORMAT,
                       "%s: is no loads file; moeperf run makes one from a suite's trace", path);
    if (check != CHECK_OF_WHOLE || *size < HEAD_BYTES + END_BYTES)
        return mp_fail(error, MP_EFORMAT, "%s: is cut off or damaged; its checksum is wrong", path);
    return fseek(file, sizeof MAGIC, SEEK_SET) ? mp_fail_errno(error, "can't read %s", path)
                                               : MP_OK;
}

static int get_words(FILE *file, const char *path, uint32_t word[], size_t words,
                     struct mp_error *error) {
    if (fread(word, sizeof *word, words, file) != words)
        return mp_fail(error, MP_EIO, "can't read %s: it has changed meanwhile", path);
    return MP_OK;
}

static int check_shape(const char *path, const struct mp_loads_shape *own,
                       const struct mp_loads_shape *job, struct mp_error *error) {
    int64_t parts = own->sources / job->sources;
    if (own->experts == job->experts && own->layers == job->layers && own->top_k == job->top_k &&
        own->sources % job->sources == 0 && own->tokens * parts == job->tokens)
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "%s: has loads of %d sources with %lld tokens to %d of %d experts in %d layers; "
                   "the job has %d ranks with %lld tokens to %d of %d experts in %d layers",
                   path, own->sources, (long long)own->tokens, own->top_k, own->experts,
                   own->layers, job->sources, (long long)job->tokens, job->top_k, job->experts,
                   job->layers);
}

/* All counts through `block` [sources][experts]; the rank's rows are kept. */
static int read_counts(FILE *file, const char *path, const struct mp_loads_shape *shape, int rank,
                       uint32_t *block, struct mp_loads *loads, struct mp_error *error) {
    size_t own = (size_t)loads->sources * (size_t)loads->experts;
    for (int64_t i = 0; i < loads->iterations * shape->layers; i++) {
        MP_TRY(get_words(file, path, block, counts_of(shape), error));
        MP_TRY(mp_loads_check(shape, i / shape->layers, (int)(i % shape->layers), block, error));
        memcpy(loads->count + (size_t)i * own, block + (size_t)rank * own, own * sizeof *block);
    }
    return get_words(file, path, &loads->digest, 1, error);
}

static int read_all(FILE *file, const char *path, const struct mp_loads_shape *job, int rank,
                    struct mp_loads *loads, struct mp_error *error) {
    uint32_t head[WORDS];
    int64_t size;
    MP_TRY(verify(file, path, &size, error));
    MP_TRY(get_words(file, path, head, WORDS, error));
    const struct mp_loads_shape shape = {(int)head[SOURCES], (int)head[EXPERTS], (int)head[LAYERS],
                                         (int)head[TOP_K],   head[TOKENS],       job->fewer};
    MP_TRY(check_shape(path, &shape, job, error));
    int64_t iteration = (int64_t)(counts_of(&shape) * sizeof(uint32_t)) * shape.layers;
    *loads = (struct mp_loads){.sources = shape.sources / job->sources,
                               .experts = shape.experts,
                               .layers = shape.layers,
                               .iterations = (size - HEAD_BYTES - END_BYTES) / iteration};
    if (loads->iterations < 1 || (size - HEAD_BYTES - END_BYTES) % iteration)
        return mp_fail(error, MP_EFORMAT, "%s: ends inside an iteration; it is no whole loads file",
                       path);
    size_t rows = (size_t)(loads->iterations * shape.layers * loads->sources);
    MP_AUTO(memory) uint32_t *block = NULL;
    MP_TRY(MP_NEW(block, counts_of(&shape), error));
    MP_TRY(MP_NEW(loads->count, rows * (size_t)shape.experts, error));
    return read_counts(file, path, &shape, rank, block, loads, error);
}

int mp_loads_read(const char *path, const struct mp_loads_shape *job, int rank,
                  struct mp_loads *loads, struct mp_error *error) {
    MP_AUTO(file) FILE *file = fopen(path, "rbe");
    *loads = (struct mp_loads){0};
    if (!file)
        return mp_fail_errno(error, "can't read %s", path);
    const int code = read_all(file, path, job, rank, loads, error);
    if (code)
        mp_loads_destroy(loads);
    return code;
}

void mp_loads_destroy(struct mp_loads *loads) {
    free(loads->count);
    *loads = (struct mp_loads){0};
}
