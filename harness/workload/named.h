/* Loads that one line names: a trace file, or a generator and its options. */
#pragma once

#include "harness/workload/trace.h"

/* What a generator need not be told. */
struct mp_trace_wanted {
    struct mp_trace_shape shape;
    int64_t tokens; /* of a rank in a micro-batch */
    int64_t iterations;
};

/* "zipf exponent=1 seed=3" starts the generator zipf for `wanted`, each of whose numbers it may be
 * given otherwise; what does not begin with a generator's name is a file's path: a trace's, or of
 * a format that its name's ending suggests (formats.h).  The shape is not checked.  Errors: those
 * of mp_trace_open, formats.h and generate.h; MP_EINVAL for a word without
 * '='. */
int mp_trace_open_named(const char *text, const struct mp_trace_wanted *wanted,
                        struct mp_trace_stream **stream, struct mp_error *error);

/* Whether it begins with a generator's name. */
bool mp_trace_names_generator(const char *text);
