#include <string.h>

#include "harness/recordings/recordings.h"
#include "harness/workload/input.h"

enum { HEAD_BYTES = 1 << 16 };

extern const struct mp_recording_format mp_recording_pytorch, mp_recording_spans, mp_recording_nsys;

const struct mp_recording_format *const mp_recording_formats[] = {
    &mp_recording_pytorch, &mp_recording_spans, &mp_recording_nsys, NULL};

const struct mp_recording_format *mp_recording_format_named(const char *name) {
    for (int i = 0; mp_recording_formats[i]; i++)
        if (!strcmp(mp_recording_formats[i]->name, name))
            return mp_recording_formats[i];
    return NULL;
}

const struct mp_recording_format *mp_recording_recognise(const char *path, struct mp_error *error) {
    MP_AUTO(input) struct mp_input *input = NULL;
    char head[HEAD_BYTES];
    size_t got = 0;
    if (!mp_input_open(path, &input, error) &&
        !mp_input_read(input, head, sizeof head, &got, error) && got == 0)
        mp_fail(error, MP_EFORMAT, "%s: is empty", path);
    for (int i = 0; got > 0 && mp_recording_formats[i]; i++)
        if (mp_recording_formats[i]->recognises(path, head, got))
            return mp_recording_formats[i];
    return NULL;
}
