#include "harness/workload/format_json.h"

#include <math.h>
#include <stdlib.h>

#include "harness/workload/input.h"

enum { SIZE_LIMIT = 64 << 20, FIRST_SIZE = 1 << 16 };

/* The whole text; free it. */
static int read_text(const char *path, char **text, size_t *size, struct mp_error *error) {
    struct mp_input *input = NULL;
    size_t capacity = FIRST_SIZE;
    *text = NULL;
    *size = 0;
    int code = mp_input_open(path, &input, error);
    for (size_t got = 1; !code && got; *size += got) {
        if (!*text || *size == capacity) {
            capacity = *text ? 2 * capacity : capacity;
            char *larger = realloc(*text, capacity);
            if (!larger) {
                code = mp_fail(error, MP_ENOMEM, "%s: no memory for its text", path);
                break;
            }
            *text = larger;
        }
        code = mp_input_read(input, *text + *size, capacity - *size, &got, error);
        if (!code && *size + got > SIZE_LIMIT)
            code = mp_fail(error, MP_ELIMIT, "%s: more than %d bytes of JSON", path, SIZE_LIMIT);
        if (code)
            break;
    }
    mp_input_destroy(input);
    return code;
}

int mp_json_read(const char *path, json_t **object, struct mp_error *error) {
    char *text;
    size_t size;
    int code = read_text(path, &text, &size, error);
    if (!code) {
        json_error_t wrong;
        *object = json_loadb(text, size, JSON_REJECT_DUPLICATES, &wrong);
        if (!*object)
            code = mp_fail(error, MP_EFORMAT, "%s:%d:%d: not valid JSON: %s", path, wrong.line,
                           wrong.column, wrong.text);
        else if (!json_is_object(*object)) {
            json_decref(*object);
            code = mp_fail(error, MP_EFORMAT, "%s: a JSON array; an object is right", path);
        }
    }
    free(text);
    return code;
}

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
