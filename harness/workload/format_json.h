/* JSON files as a tree, numbers in them with their place, and their loads. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "harness/workload/trace.h"
#include "reference/base/arena.h"

/* Loads in memory: one micro-batch, iterations' loads one after the other. */
struct mp_held {
    int64_t iterations;
    int64_t *iteration; /* [iterations] */
    uint32_t *count;    /* [iterations][layers][ranks][experts] */
    int64_t next;       /* block */
    struct mp_trace_shape shape;
    struct mp_arena memory;
};
/* Zeroed loads of the shape.  MP_ENOMEM. */
int mp_held_take(struct mp_held *held, int64_t iterations, struct mp_error *error);

enum { MP_JSON_NOTES = 200 };
/* Fills in the loads of a file's object, and what info and its notes say beside the shape. */
typedef int mp_json_loads(const char *path, const json_t *object, struct mp_held *held,
                          struct mp_trace_info *info, char notes[MP_JSON_NOTES],
                          struct mp_error *error);

/* The loads of a file of at most 64 MiB (unpacked) that holds an object, as a stream.  Errors name
 * line and column: MP_ENOTFOUND, MP_EIO, MP_EFORMAT (syntax, double keys, nesting too deep, no
 * object), MP_ELIMIT, MP_ENOMEM, and what `read` returns. */
int mp_json_open(const char *path, const char *kind, mp_json_loads *read,
                 struct mp_trace_stream **stream, struct mp_error *error);

/* An array (of `length`, or of at least one if `length` is 0) named `what`.  MP_EFORMAT. */
int mp_json_array(const char *path, const json_t *value, const char *what, size_t length,
                  struct mp_error *error);

/* A whole number of 0 .. most, integer or real, named "what[first][second]" in the error. */
int mp_json_whole(const char *path, const json_t *value, const char *what, size_t first,
                  size_t second, int64_t most, int64_t *number, struct mp_error *error);
