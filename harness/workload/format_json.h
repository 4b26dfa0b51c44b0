/* JSON files as a tree, and numbers in them with their place. */
#ifndef MOEPERF_HARNESS_WORKLOAD_FORMAT_JSON_H
#define MOEPERF_HARNESS_WORKLOAD_FORMAT_JSON_H

#include <jansson.h>
#include <stdint.h>

#include "reference/base/error.h"

/* Reads an object from a file of at most 64 MiB (unpacked); json_decref it.  Errors name line and
 * column: MP_ENOTFOUND, MP_EIO, MP_EFORMAT (syntax, double keys, nesting too deep, no object),
 * MP_ELIMIT, MP_ENOMEM. */
int mp_json_read(const char *path, json_t **object, struct mp_error *error);

/* An array (of `length`, or of at least one if `length` is 0) named `what`.  MP_EFORMAT. */
int mp_json_array(const char *path, const json_t *value, const char *what, size_t length,
                  struct mp_error *error);

/* A whole number of 0 .. most, integer or real, named "what[first][second]" in the error. */
int mp_json_whole(const char *path, const json_t *value, const char *what, size_t first,
                  size_t second, int64_t most, int64_t *number, struct mp_error *error);

#endif
