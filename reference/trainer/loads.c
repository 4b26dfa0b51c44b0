/* Loads files: see loads.h. */
#include "reference/trainer/loads.h"

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/record/check.h"
#include "reference/base/whole_file.h"

static const char MAGIC[8] = "MPLOADS1";
enum head_word { SOURCES, EXPERTS, LAYERS, TOP_K, TOKENS, ITERATIONS, DIGEST, CHECK, WORDS };
enum { HEAD_BYTES = sizeof MAGIC + 4 * WORDS };

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
        if (routes != wanted)
            return mp_fail(error, MP_EINVAL,
                           "iteration %lld, layer %d: source %d has %lld routes, but the job's "
                           "%lld tokens of a rank with %d experts each have %lld",
                           (long long)iteration, layer, source, (long long)routes,
                           (long long)shape->tokens, shape->top_k, (long long)wanted);
    }
    return MP_OK;
}

static size_t counts_of(const struct mp_loads_shape *shape) {
    return (size_t)shape->sources * (size_t)shape->experts;
}

/* CRC-32 of little-endian words. */
static uint32_t check_of(uint32_t check, const uint32_t word[], size_t words) {
    if (htole32(1) == 1)
        return spool_crc32_on(check, word, words * sizeof *word);
    for (size_t i = 0; i < words; i++) {
        uint32_t little = htole32(word[i]);
        check = spool_crc32_on(check, &little, sizeof little);
    }
    return check;
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

static int fail_write(struct mp_loads_writer *writer, struct mp_error *error) {
    writer->failed = mp_whole_file_fail(&writer->file, error);
    return writer->failed;
}

static int put_words(struct mp_loads_writer *writer, const uint32_t word[], size_t words,
                     struct mp_error *error) {
    for (size_t i = 0; i < words; i++) {
        uint32_t little = htole32(word[i]);
        if (fwrite(&little, sizeof little, 1, writer->file.stream) != 1)
            return fail_write(writer, error);
    }
    return MP_OK;
}

int mp_loads_writer_create(const char *path, const struct mp_loads_shape *shape,
                           struct mp_loads_writer **made, struct mp_error *error) {
    static const char nothing[HEAD_BYTES];
    struct mp_loads_writer *writer = calloc(1, sizeof *writer);
    *made = NULL;
    if (!writer)
        return mp_fail(error, MP_ENOMEM, "%s: no memory to write loads", path);
    writer->shape = *shape;
    int code = mp_whole_file_open(&writer->file, path, error);
    if (!code && fwrite(nothing, 1, sizeof nothing, writer->file.stream) != sizeof nothing)
        code = fail_write(writer, error);
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
    int layer = (int)(writer->blocks % shape->layers);
    writer->failed = mp_loads_check(shape, iteration, layer, load->count, error);
    if (writer->failed)
        return writer->failed;
    writer->check = check_of(writer->check, load->count, counts_of(shape));
    writer->blocks++;
    return put_words(writer, load->count, counts_of(shape), error);
}

/* The head says what has been written. */
static int put_ends(struct mp_loads_writer *writer, uint32_t digest, struct mp_error *error) {
    const struct mp_loads_shape *shape = &writer->shape;
    int64_t iterations = writer->blocks / shape->layers;
    if (iterations < 1 || writer->blocks % shape->layers || iterations > INT_MAX)
        return mp_fail(error, MP_EINVAL, "%s: %lld loads are no iterations of %d layers",
                       writer->file.path, (long long)writer->blocks, shape->layers);
    uint32_t head[WORDS] = {[SOURCES] = (uint32_t)shape->sources,
                            [EXPERTS] = (uint32_t)shape->experts,
                            [LAYERS] = (uint32_t)shape->layers,
                            [TOP_K] = (uint32_t)shape->top_k,
                            [TOKENS] = (uint32_t)shape->tokens,
                            [ITERATIONS] = (uint32_t)iterations,
                            [DIGEST] = digest};
    head[CHECK] = check_of(0, head, CHECK);
    int code = put_words(writer, &writer->check, 1, error);
    if (!code && (fflush(writer->file.stream) || fseek(writer->file.stream, 0, SEEK_SET) ||
                  fwrite(MAGIC, 1, sizeof MAGIC, writer->file.stream) != sizeof MAGIC))
        code = fail_write(writer, error);
    return code ? code : put_words(writer, head, WORDS, error);
}

int mp_loads_writer_finish(struct mp_loads_writer *writer, bool commit, uint32_t digest,
                           struct mp_error *error) {
    int code = writer->failed;
    if (commit && !code)
        code = put_ends(writer, digest, error);
    code = mp_whole_file_close(&writer->file, code || commit ? code : MP_EINTERRUPTED, error);
    free(writer);
    return commit ? code : MP_OK;
}

/* ---- reading ---- */

/* An open file and what its head says. */
struct source {
    const char *path;
    FILE *file;
    struct mp_loads_shape shape;
    int64_t iterations;
    uint32_t digest;
};

static int fail_read(const struct source *source, const char *where, struct mp_error *error) {
    if (ferror(source->file))
        return mp_fail(error, MP_EIO, "can't read %s: %s", source->path, strerror(errno));
    return mp_fail(error, MP_EFORMAT, "%s: ends in %s; it is no whole loads file", source->path,
                   where);
}

static int get_words(const struct source *source, uint32_t word[], size_t words, const char *where,
                     struct mp_error *error) {
    if (fread(word, sizeof *word, words, source->file) != words)
        return fail_read(source, where, error);
    for (size_t i = 0; i < words; i++)
        word[i] = le32toh(word[i]);
    return MP_OK;
}

static int read_head(struct source *source, struct mp_error *error) {
    char magic[sizeof MAGIC];
    uint32_t head[WORDS];
    if (fread(magic, 1, sizeof magic, source->file) != sizeof magic)
        return fail_read(source, "its head", error);
    if (memcmp(magic, MAGIC, sizeof magic) != 0)
        return mp_fail(error, MP_EFORMAT,
                       "%s: is no loads file; moeperf run makes one from a suite's trace",
                       source->path);
    int code = get_words(source, head, WORDS, "its head", error);
    if (code)
        return code;
    if (head[CHECK] != check_of(0, head, CHECK))
        return mp_fail(error, MP_EFORMAT, "%s: its head is damaged", source->path);
    for (int i = 0; i < DIGEST; i++)
        if (head[i] < 1 || head[i] > INT_MAX)
            return mp_fail(error, MP_EFORMAT,
                           "%s: its head has a %u, which is no number of "
                           "anything",
                           source->path, head[i]);
    source->shape = (struct mp_loads_shape){.sources = (int)head[SOURCES],
                                            .experts = (int)head[EXPERTS],
                                            .layers = (int)head[LAYERS],
                                            .top_k = (int)head[TOP_K],
                                            .tokens = head[TOKENS]};
    source->iterations = head[ITERATIONS];
    source->digest = head[DIGEST];
    return MP_OK;
}

static int check_shape(const struct source *source, const struct mp_loads_shape *job,
                       struct mp_error *error) {
    const struct mp_loads_shape *own = &source->shape;
    int parts = own->sources / job->sources;
    if (own->experts == job->experts && own->layers == job->layers && own->top_k == job->top_k &&
        own->sources % job->sources == 0 && own->tokens * parts == job->tokens)
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "%s: has loads of %d sources with %lld tokens to %d of %d experts in %d layers; "
                   "the job has %d ranks with %lld tokens to %d of %d experts in %d layers",
                   source->path, own->sources, (long long)own->tokens, own->top_k, own->experts,
                   own->layers, job->sources, (long long)job->tokens, job->top_k, job->experts,
                   job->layers);
}

/* All counts through `block` [sources][experts]; the rank's rows are kept. */
static int read_counts(const struct source *source, int rank, uint32_t *block,
                       struct mp_loads *loads, struct mp_error *error) {
    const struct mp_loads_shape *shape = &source->shape;
    size_t words = counts_of(shape), own = (size_t)loads->sources * (size_t)loads->experts;
    uint32_t check = 0, expected;
    for (int64_t i = 0; i < source->iterations * shape->layers; i++) {
        int code = get_words(source, block, words, "its counts", error);
        if (!code)
            code = mp_loads_check(shape, i / shape->layers, (int)(i % shape->layers), block, error);
        if (code)
            return code;
        check = check_of(check, block, words);
        memcpy(loads->count + (size_t)i * own, block + (size_t)rank * own, own * sizeof *block);
    }
    int code = get_words(source, &expected, 1, "its counts", error);
    if (!code && check != expected)
        code = mp_fail(error, MP_EFORMAT, "%s: its counts are damaged", source->path);
    return code;
}

/* No more is asked for than a file of this size can have. */
static int check_size(const struct source *source, struct mp_error *error) {
    size_t words = counts_of(&source->shape), blocks;
    if (fseek(source->file, 0, SEEK_END))
        return fail_read(source, "its counts", error);
    long size = ftell(source->file);
    if (__builtin_mul_overflow((size_t)source->iterations, (size_t)source->shape.layers, &blocks) ||
        __builtin_mul_overflow(blocks, words * sizeof(uint32_t), &words) || size < 0 ||
        (size_t)size < words || fseek(source->file, HEAD_BYTES, SEEK_SET))
        return fail_read(source, "its counts", error);
    return MP_OK;
}

static int read_all(struct source *source, const struct mp_loads_shape *job, int rank,
                    struct mp_loads *loads, struct mp_error *error) {
    int code = read_head(source, error);
    if (!code)
        code = check_shape(source, job, error);
    if (!code)
        code = check_size(source, error);
    if (code)
        return code;
    const struct mp_loads_shape *shape = &source->shape;
    *loads = (struct mp_loads){.sources = shape->sources / job->sources,
                               .experts = shape->experts,
                               .layers = shape->layers,
                               .iterations = source->iterations,
                               .digest = source->digest};
    size_t rows = (size_t)(source->iterations * shape->layers * loads->sources);
    loads->count = calloc(rows, (size_t)shape->experts * sizeof *loads->count);
    uint32_t *block = calloc(counts_of(shape), sizeof *block);
    code = loads->count && block
               ? read_counts(source, rank, block, loads, error)
               : mp_fail(error, MP_ENOMEM, "%s: no memory for its %lld iterations", source->path,
                         (long long)source->iterations);
    free(block);
    return code;
}

int mp_loads_read(const char *path, const struct mp_loads_shape *job, int rank,
                  struct mp_loads *loads, struct mp_error *error) {
    struct source source = {.path = path, .file = fopen(path, "rbe")};
    *loads = (struct mp_loads){0};
    if (!source.file)
        return mp_fail(error, errno == ENOENT ? MP_ENOTFOUND : MP_EIO, "can't read %s: %s", path,
                       strerror(errno));
    int code = read_all(&source, job, rank, loads, error);
    fclose(source.file);
    if (code)
        mp_loads_destroy(loads);
    return code;
}

void mp_loads_destroy(struct mp_loads *loads) {
    free(loads->count);
    *loads = (struct mp_loads){0};
}
