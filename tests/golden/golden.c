#include "tests/golden/golden.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "golden files are little endian and are read in place"
#endif

static const char magic[8] = "MPGOLDEN";
static const uint32_t version = 1;

enum tensor_type { TENSOR_FLOAT = 0, TENSOR_INT32 = 1 };

/* Points into the file's bytes. */
struct tensor {
    const char *name; /* not terminated */
    size_t name_length;
    uint32_t type; /* enum tensor_type */
    size_t count;  /* elements */
    const void *data;
};

struct mp_golden {
    unsigned char *bytes; /* the file; malloc aligns it, and every field lies at a multiple of 4 */
    size_t size;
    struct tensor *tensors;
    uint32_t tensor_count;
};

/* What is left to read. */
struct cursor {
    const unsigned char *at;
    size_t left;
};

static const void *take(struct cursor *cursor, size_t size) {
    if (size > cursor->left)
        return NULL;
    const void *taken = cursor->at;
    cursor->at += size;
    cursor->left -= size;
    return taken;
}

static bool take_uint32(struct cursor *cursor, uint32_t *value) {
    const void *bytes = take(cursor, sizeof(*value));
    if (bytes)
        memcpy(value, bytes, sizeof(*value));
    return bytes != NULL;
}

static bool take_tensor(struct cursor *cursor, struct tensor *tensor) {
    uint32_t length, dimensions;
    if (!take_uint32(cursor, &length))
        return false;
    tensor->name_length = length;
    tensor->name = take(cursor, ((size_t)length + 3) / 4 * 4);
    if (!tensor->name || !take_uint32(cursor, &tensor->type) || tensor->type > TENSOR_INT32 ||
        !take_uint32(cursor, &dimensions))
        return false;
    tensor->count = 1;
    for (uint32_t i = 0; i < dimensions; i++) {
        uint32_t extent;
        if (!take_uint32(cursor, &extent) ||
            __builtin_mul_overflow(tensor->count, extent, &tensor->count))
            return false;
    }
    if (tensor->count > cursor->left / 4)
        return false;
    tensor->data = take(cursor, tensor->count * 4);
    return true;
}

static int parse(struct mp_golden *golden, const char *path, struct mp_error *error) {
    struct cursor cursor = {golden->bytes, golden->size};
    const void *start = take(&cursor, sizeof(magic));
    uint32_t file_version;
    if (!start || memcmp(start, magic, sizeof(magic)) != 0 || !take_uint32(&cursor, &file_version))
        return mp_fail(error, MP_EFORMAT, "%s: not a golden file", path);
    if (file_version != version)
        return mp_fail(error, MP_EVERSION, "%s: golden file version %u, this build reads %u", path,
                       file_version, version);
    if (!take_uint32(&cursor, &golden->tensor_count) || golden->tensor_count > golden->size)
        return mp_fail(error, MP_EFORMAT, "%s: golden file ends before its first tensor", path);
    golden->tensors = calloc((size_t)golden->tensor_count + 1, sizeof(*golden->tensors));
    if (!golden->tensors)
        return mp_fail(error, MP_ENOMEM, "%s: no memory for %u tensors", path,
                       golden->tensor_count);
    for (uint32_t i = 0; i < golden->tensor_count; i++)
        if (!take_tensor(&cursor, &golden->tensors[i]))
            return mp_fail(error, MP_EFORMAT, "%s: tensor %u of %u is damaged or incomplete", path,
                           i + 1, golden->tensor_count);
    if (cursor.left)
        return mp_fail(error, MP_EFORMAT, "%s: %zu bytes after the last tensor", path, cursor.left);
    return MP_OK;
}

static int read_all(FILE *file, struct mp_golden *golden) {
    if (fseek(file, 0, SEEK_END) != 0)
        return MP_EIO;
    long size = ftell(file);
    if (size < 0 || fseek(file, 0, SEEK_SET) != 0)
        return MP_EIO;
    golden->size = (size_t)size;
    golden->bytes = malloc(golden->size + 1);
    if (!golden->bytes)
        return MP_ENOMEM;
    return fread(golden->bytes, 1, golden->size, file) == golden->size ? MP_OK : MP_EIO;
}

int mp_golden_open(const char *path, struct mp_golden **golden, struct mp_error *error) {
    *golden = NULL;
    FILE *file = fopen(path, "rb");
    if (!file)
        return mp_fail(error, MP_EIO, "%s: %s", path, strerror(errno));
    struct mp_golden *opened = calloc(1, sizeof(*opened));
    int code = opened ? read_all(file, opened) : MP_ENOMEM;
    fclose(file);
    if (code)
        mp_fail(error, code, "%s: could not be read whole", path);
    else
        code = parse(opened, path, error);
    if (code) {
        mp_golden_close(opened);
        return code;
    }
    *golden = opened;
    return MP_OK;
}

void mp_golden_close(struct mp_golden *golden) {
    if (!golden)
        return;
    free(golden->tensors);
    free(golden->bytes);
    free(golden);
}

static const void *find(const struct mp_golden *golden, const char *name, uint32_t type,
                        size_t expected_count) {
    size_t length = strlen(name);
    for (uint32_t i = 0; i < golden->tensor_count; i++) {
        const struct tensor *tensor = &golden->tensors[i];
        if (tensor->name_length == length && memcmp(tensor->name, name, length) == 0)
            return tensor->type == type && tensor->count == expected_count ? tensor->data : NULL;
    }
    return NULL;
}

const float *mp_golden_float(const struct mp_golden *golden, const char *name,
                             size_t expected_count) {
    return find(golden, name, TENSOR_FLOAT, expected_count);
}

const int32_t *mp_golden_int32(const struct mp_golden *golden, const char *name,
                               size_t expected_count) {
    return find(golden, name, TENSOR_INT32, expected_count);
}
