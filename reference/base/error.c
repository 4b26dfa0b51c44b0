#include "reference/base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

int mp_fail(struct mp_error *error, int code, const char *format, ...) {
    if (error && error->code == MP_OK) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error->text, sizeof error->text, format, arguments);
        va_end(arguments);
        error->code = code;
    }
    return code;
}

int mp_fail_errno(struct mp_error *error, const char *format, ...) {
    const int number = errno;
    char what[sizeof error->text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    const bool is_full = number == ENOSPC || number == EDQUOT || number == EFBIG;
    const int code = number == ENOENT ? MP_ENOTFOUND : is_full ? MP_ENOSPACE : MP_EIO;
    return mp_fail(error, code, "%s: %s", what, strerror(number));
}

/* Appends as much of `more` as fits. */
static void append(char *text, size_t size, const char *more) {
    size_t length = strlen(text), room = size - 1 - length, added = strlen(more);

    if (added > room)
        added = room;
    memcpy(text + length, more, added);
    text[length + added] = '\0';
}

int mp_no_memory(struct mp_error *error) {
    return mp_fail(error, MP_ENOMEM, "no memory");
}

int mp_error_prefix(struct mp_error *error, const char *format, ...) {
    char sentence[sizeof error->text];
    va_list arguments;

    if (!error || error->code == MP_OK)
        return MP_OK;
    memcpy(sentence, error->text, sizeof sentence);
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    append(error->text, sizeof error->text, ": ");
    append(error->text, sizeof error->text, sentence);
    return error->code;
}

void *mp_new(size_t count, size_t size) {
    return calloc(count, size);
}

int mp_make(void *table, size_t count, size_t size, struct mp_error *error) {
    void *items = calloc(count, size);
    if (!items)
        return mp_fail(error, MP_ENOMEM, "no memory for %zu x %zu bytes", count, size);
    memcpy(table, &items, sizeof items);
    return MP_OK;
}
