/* Golden files: named tensors computed by PyTorch, for tests to compare with.
 *
 * Written by make_golden.py; the tensors are listed in README.md, the bytes in golden.py. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "reference/base/error.h"

struct mp_golden;

/* Reads a whole file; on success *golden is the caller's and goes to mp_golden_close.
 * Errors: MP_EIO, MP_ENOMEM; MP_EFORMAT for anything that is not a complete golden file;
 * MP_EVERSION for another version.  Messages name the path. */
int mp_golden_open(const char *path, struct mp_golden **golden, struct mp_error *error);

void mp_golden_close(struct mp_golden *golden); /* accepts NULL */

/* A tensor's elements, row major, valid until mp_golden_close.  NULL if there is no tensor of that
 * name, type and number of elements. */
const float *mp_golden_float(const struct mp_golden *golden, const char *name,
                             size_t expected_count);
const int32_t *mp_golden_int32(const struct mp_golden *golden, const char *name,
                               size_t expected_count);
