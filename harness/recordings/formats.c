#include <string.h>
#include <zlib.h>

#include "harness/recordings/recordings.h"

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

const struct mp_recording_format *mp_recording_recognise(const char *path) {
    char head[HEAD_BYTES];
    gzFile file = gzopen(path, "rbe"); /* reads what is not gzipped as it is */
    int got = file ? gzread(file, head, sizeof head) : 0;
    if (file)
        gzclose(file);
    for (int i = 0; got > 0 && mp_recording_formats[i]; i++)
        if (mp_recording_formats[i]->recognises(path, head, (size_t)got))
            return mp_recording_formats[i];
    return NULL;
}
