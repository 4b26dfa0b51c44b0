#include "harness/workload/format_json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/format_readers.h"
#include "harness/workload/input.h"

enum { SIZE_LIMIT = 64 << 20 };

struct reading {
    const char *path;
    struct mp_input *input;
    size_t size; /* read so far */
    int code;
    struct mp_error *error;
};

static size_t read_more(void *to, size_t size, void *context) {
    struct reading *reading = context;
    size_t got = 0;
    reading->code = mp_input_read(reading->input, to, size, &got, reading->error);
    reading->size += got;
    if (!reading->code && reading->size > SIZE_LIMIT)
        reading->code = mp_fail(reading->error, MP_ELIMIT, "%s: more than %d bytes of JSON",
                                reading->path, SIZE_LIMIT);
    return reading->code ? (size_t)-1 : got;
}

/* Reads an object from a file of at most SIZE_LIMIT bytes (unpacked); json_decref what is there,
 * also after an error. */
static int read_object(const char *path, json_t **object, struct mp_error *error) {
    MP_AUTO(input) struct mp_input *input = NULL;
    json_error_t wrong;
    MP_TRY(mp_input_open(path, &input, error));
    struct reading reading = {.path = path, .input = input, .error = error};
    *object = json_load_callback(read_more, &reading, JSON_REJECT_DUPLICATES, &wrong);
    MP_TRY(reading.code);
    if (!*object)
        return mp_fail(error, MP_EFORMAT, "%s:%d:%d: not valid JSON: %s", path, wrong.line,
                       wrong.column, wrong.text);
    return json_is_object(*object)
               ? MP_OK
               : mp_fail(error, MP_EFORMAT, "%s: a JSON array; an object is right", path);
}

/* ---- loads in memory ---- */

static int held_next(void *self, struct mp_trace_block *block, bool *end, struct mp_error *error) {
    (void)error;
    struct mp_held *held = self;
    *end = held->next == held->iterations * held->shape.layers;
    if (*end)
        return MP_OK;
    block->iteration = held->iteration[held->next / held->shape.layers];
    int64_t loads = (int64_t)held->shape.ranks * held->shape.experts;
    memcpy(block->load.count, held->count + held->next * loads,
           (size_t)loads * sizeof *held->count);
    held->next++;
    return MP_OK;
}

static void held_destroy(void *self) {
    struct mp_held *held = self;
    mp_arena_release(&held->memory);
    free(held);
}

int mp_held_take(struct mp_held *held, int64_t iterations, struct mp_error *error) {
    const struct mp_trace_shape *shape = &held->shape;
    held->iterations = iterations;
    MP_TAKE(&held->memory, held->iteration, iterations);
    MP_TAKE(&held->memory, held->count, iterations * shape->layers * shape->ranks * shape->experts);
    return mp_arena_check(&held->memory, error);
}

int mp_json_open(const char *path, const char *kind, mp_json_loads *read,
                 struct mp_trace_stream **stream, struct mp_error *error) {
    static const struct mp_trace_stream_operations operations = {held_next, held_destroy};
    struct mp_trace_info info = {0};
    char notes[MP_JSON_NOTES] = "";
    json_t *object = NULL;
    struct mp_held *held;
    MP_TRY(MP_NEW(held, 1, error));
    int code = read_object(path, &object, error);
    if (!code)
        code = read(path, object, held, &info, notes, error);
    json_decref(object);
    if (!code)
        code = mp_format_describe(path, kind, notes, &info, error);
    info.shape = held->shape;
    return mp_trace_stream_create(code, &operations, held, &info, stream, error);
}

/* ---- values ---- */

int mp_json_array(const char *path, const json_t *value, const char *what, size_t length,
                  struct mp_error *error) {
    if (!json_is_array(value))
        return mp_fail(error, MP_EFORMAT, "%s: %s is %s; an array is right", path, what,
                       value ? "not an array" : "missing");
    if (json_array_size(value) == 0)
        return mp_fail(error, MP_EFORMAT, "%s: %s is empty", path, what);
    if (length && json_array_size(value) != length)
        return mp_fail(error, MP_EFORMAT, "%s: %s has %zu values; %zu are right", path, what,
                       json_array_size(value), length);
    return MP_OK;
}

int mp_json_whole(const char *path, const json_t *value, const char *what, size_t first,
                  size_t second, int64_t most, int64_t *number, struct mp_error *error) {
    if (!json_is_number(value))
        return mp_fail(error, MP_EFORMAT, "%s: %s[%zu][%zu] is not a number", path, what, first,
                       second);
    double real = json_number_value(value);
    if (!(real >= 0 && real <= (double)most) || floor(real) != real)
        return mp_fail(error, MP_EFORMAT,
                       "%s: %s[%zu][%zu] is %.17g; a whole number from 0 to %lld is right", path,
                       what, first, second, real, (long long)most);
    *number = (int64_t)real;
    return MP_OK;
}
