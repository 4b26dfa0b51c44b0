/* NumPy's array files, versions 1.0 to 3.0, block by block. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/format_readers.h"
#include "harness/workload/input.h"

enum { HEADER_LIMIT = 65536, AXES = 4 };

struct npy {
    struct mp_input *input;
    struct mp_trace_shape shape;
    int64_t iterations;
    int width;            /* bytes of a number */
    bool negative;        /* the type has a sign */
    unsigned char *bytes; /* [ranks][experts] numbers */
};

static void npy_destroy(void *self) {
    struct npy *npy = self;
    if (!npy)
        return;
    mp_input_destroy(npy->input);
    free(npy->bytes);
    free(npy);
}

static uint64_t little_endian(const unsigned char *bytes, int width) {
    uint64_t value = 0;
    for (int i = width; i-- > 0;)
        value = value << 8 | bytes[i];
    return value;
}

/* The header's dictionary as a text; free it. */
static int read_header(struct npy *npy, char **header, struct mp_error *error) {
    unsigned char start[12];
    size_t got;
    const char *path = mp_input_path(npy->input);
    MP_TRY(mp_input_read(npy->input, start, 8, &got, error));
    if (got < 8 || memcmp(start, "\x93NUMPY", 6) != 0)
        return mp_fail(error, MP_EFORMAT, "%s: not an npy file: it doesn't begin with \\x93NUMPY",
                       path);
    if (start[6] < 1 || start[6] > 3)
        return mp_fail(error, MP_EVERSION, "%s: npy version %d.%d; 1.0, 2.0 and 3.0 are known",
                       path, start[6], start[7]);
    int width = start[6] == 1 ? 2 : 4;
    MP_TRY(mp_input_read(npy->input, start, (size_t)width, &got, error));
    size_t size = (size_t)little_endian(start, width);
    if (got != (size_t)width) /* `size` is nothing */
        return mp_fail(error, MP_EFORMAT, "%s: cut off inside the header", path);
    if (size > HEADER_LIMIT)
        return mp_fail(error, MP_ELIMIT, "%s: a header of %zu bytes; at most %d are right", path,
                       size, HEADER_LIMIT);
    if (!(*header = calloc(1, size + 1)))
        return mp_no_memory(error);
    size_t length = 0;
    MP_TRY(mp_input_read(npy->input, *header, size, &length, error));
    if (length != size)
        return mp_fail(error, MP_EFORMAT, "%s: cut off inside the header", path);
    return MP_OK;
}

/* The text behind 'key': in the dictionary, or NULL. */
static const char *value_of(const char *header, const char *key) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s':", key);
    const char *at = strstr(header, quoted);
    return at ? at + strlen(quoted) + strspn(at + strlen(quoted), " ") : NULL;
}

static int read_type(struct npy *npy, const char *header, struct mp_error *error) {
    const char *path = mp_input_path(npy->input);
    const char *type = value_of(header, "descr");
    const char *order = value_of(header, "fortran_order");
    if (!type || !order)
        return mp_fail(error, MP_EFORMAT, "%s: no %s in the header", path,
                       type ? "fortran_order" : "descr");
    if (strncmp(type, "'<u4'", 5) != 0 && strncmp(type, "'<i4'", 5) != 0 &&
        strncmp(type, "'<i8'", 5) != 0)
        return mp_fail(
            error, MP_EFORMAT,
            "%s: numbers of type %.*s; '<u4', '<i4' and '<i8' (uint32, int32, int64) are right",
            path, (int)strcspn(type, ","), type);
    if (strncmp(order, "False", 5) != 0)
        return mp_fail(error, MP_EFORMAT,
                       "%s: Fortran order; save numpy.ascontiguousarray(...) instead", path);
    npy->width = type[3] - '0';
    npy->negative = type[2] == 'i';
    return MP_OK;
}

static int read_axes(struct npy *npy, const char *header, struct mp_error *error) {
    const char *path = mp_input_path(npy->input);
    const char *at = value_of(header, "shape");
    if (!at || *at != '(')
        return mp_fail(error, MP_EFORMAT, "%s: no shape in the header", path);
    int64_t axis[AXES];
    int axes = 0;
    for (at++; axes < AXES && *at >= '0' && *at <= '9'; axes++) {
        char *end;
        axis[axes] = strtoll(at, &end, 10);
        at = end + strspn(end, ", ");
    }
    int64_t full[AXES] = {1, 1, 1, 1};
    bool fits = axes > 0 && *at == ')';
    for (int i = 0; i < axes; i++) {
        int place = AXES - axes + i;
        full[place] = axis[i];
        fits = fits && axis[i] >= 1 && axis[i] <= (place ? 65536 : INT64_C(1) << 31);
    }
    if (!fits)
        return mp_fail(error, MP_EFORMAT,
                       "%s: shape %.64s; 1 to 4 axes of 1 to 65536 (iterations: to 2^31) are right",
                       path, value_of(header, "shape"));
    npy->iterations = full[0];
    npy->shape = (struct mp_trace_shape){
        .layers = (int)full[1], .ranks = (int)full[2], .experts = (int)full[3], .micro_batches = 1};
    return mp_format_check_shape(path, &npy->shape, error);
}

/* Nothing may follow the last block. */
static int check_end(struct npy *npy, struct mp_error *error) {
    unsigned char more;
    size_t got;
    MP_TRY(mp_input_read(npy->input, &more, 1, &got, error));
    if (got)
        return mp_fail(error, MP_EFORMAT, "%s: more bytes than its shape asks for",
                       mp_input_path(npy->input));
    return MP_OK;
}

static int npy_next(void *self, struct mp_trace_block *block, bool *end, struct mp_error *error) {
    struct npy *npy = self;
    *end = block->iteration == npy->iterations;
    if (*end)
        return check_end(npy, error);
    const char *path = mp_input_path(npy->input);
    size_t loads = (size_t)npy->shape.ranks * (size_t)npy->shape.experts;
    size_t size = loads * (size_t)npy->width;
    size_t got;
    MP_TRY(mp_input_read(npy->input, npy->bytes, size, &got, error));
    if (got != size)
        return mp_fail(
            error, MP_EFORMAT, "%s: cut off in iteration %lld of %lld, layer %d: %zu bytes of %zu",
            path, (long long)block->iteration, (long long)npy->iterations, block->layer, got, size);
    for (size_t i = 0; i < loads; i++) {
        uint64_t value = little_endian(npy->bytes + i * (size_t)npy->width, npy->width);
        int64_t number = npy->width == 4 && npy->negative ? (int32_t)value : (int64_t)value;
        if (number < 0 || number > UINT32_MAX)
            return mp_fail(error, MP_EFORMAT,
                           "%s: iteration %lld, layer %d, rank %zu, expert %zu: %lld; a count from "
                           "0 to %u is right",
                           path, (long long)block->iteration, block->layer,
                           i / (size_t)npy->shape.experts, i % (size_t)npy->shape.experts,
                           (long long)number, UINT32_MAX);
        block->load.count[i] = (uint32_t)number;
    }
    return MP_OK;
}

int mp_format_open_npy(const struct mp_format *format, const char *path, int experts,
                       struct mp_trace_stream **stream, struct mp_error *error) {
    static const struct mp_trace_stream_operations operations = {npy_next, npy_destroy};
    struct npy *npy;
    MP_TRY(MP_NEW(npy, 1, error));
    char *header = NULL;
    struct mp_trace_info info = {0};
    (void)experts;
    int code = mp_input_open(path, &npy->input, error);
    if (!code)
        code = read_header(npy, &header, error);
    if (!code && !(code = read_type(npy, header, error)))
        code = read_axes(npy, header, error);
    free(header);
    if (!code) {
        npy->bytes =
            malloc((size_t)npy->shape.ranks * (size_t)npy->shape.experts * (size_t)npy->width);
        code = npy->bytes ? mp_format_describe(path, format->name, "", &info, error)
                          : mp_no_memory(error);
    }
    info.shape = npy->shape;
    return mp_trace_stream_create(code, &operations, npy, &info, stream, error);
}
