#include "reference/base/error.h"

#include <stdarg.h>
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

int mp_error_prefix(struct mp_error *error, const char *format, ...) {
    char sentence[sizeof error->text];
    va_list arguments;
    int length;

    if (!error || error->code == MP_OK)
        return MP_OK;
    memcpy(sentence, error->text, sizeof sentence);
    va_start(arguments, format);
    length = vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    /* A prefix that fills the whole text leaves no room; what fits is kept. */
    if (length >= 0 && (size_t)length < sizeof error->text)
        snprintf(error->text + length, sizeof error->text - (size_t)length, ": %s", sentence);
    return error->code;
}

const char *mp_code_name(int code) {
    static const char *const name[] = {
        "MP_OK",       "MP_EINVAL",   "MP_EIO",         "MP_ENOMEM", "MP_EFORMAT",
        "MP_EVERSION", "MP_ENOSPACE", "MP_ENOTFOUND",   "MP_ELIMIT", "MP_ECOMM",
        "MP_EDEVICE",  "MP_EPLAN",    "MP_EINTERRUPTED"};
    int count = (int)(sizeof name / sizeof name[0]);
    return code <= 0 && code > -count ? name[-code] : "MP_E?";
}
