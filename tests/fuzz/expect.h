/* How a fuzzer finds something: the process ends, and says which expectation of which fuzzer did
 * not hold; and its input as a file. */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "reference/base/error.h"

static inline void expect(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
        abort();
    }
}

/* A call with an error that was empty: it works and leaves it so, or has a sentence there. */
static inline void expect_sentence(int code, const struct mp_error *error) {
    expect(code == error->code && (code == MP_OK) == !error->text[0], "an error has its sentence");
}

/* The path of a file of nothing but these bytes, in memory, which the next one replaces. */
static inline const char *input_file(const void *bytes, size_t size) {
    static char path[64];
    static int descriptor = -1;
    if (descriptor < 0) {
        descriptor = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    }
    expect(descriptor >= 0 && ftruncate(descriptor, 0) == 0 &&
               pwrite(descriptor, bytes, size, 0) == (ssize_t)size,
           "a file in memory");
    return path;
}
