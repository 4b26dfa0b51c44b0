/* The writing end of a spool file: whole records go in, and only whole records stay. */
#ifndef MOEPERF_PROFILER_RECORD_SPOOL_FILE_H
#define MOEPERF_PROFILER_RECORD_SPOOL_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reference/base/error.h"

struct spool_file {
    int descriptor; /* -1: not open */
    char *path;
    _Atomic int64_t bytes; /* of whole records in the file */
    bool failed;           /* a write failed; later records are not written */
};

/* Creates the file.  Errors: MP_EINVAL (it exists), MP_EIO, MP_ENOSPACE, MP_ENOMEM. */
int spool_file_create(struct spool_file *file, const char *path, struct mp_error *error);

/* Appends the header record, with this process, this host and both clocks of this moment.  Errors:
 * as of spool_file_append. */
int spool_file_write_header(struct spool_file *file, int rank, int ranks, int node,
                            struct mp_error *error);

/* Fills in the checks of `size` bytes of complete records and appends them.  When writing fails the
 * file is cut back to its last whole record, and later calls do nothing and return MP_OK: the first
 * call has reported it.  Errors: MP_ENOSPACE (disk, quota or file size limit), MP_EIO. */
int spool_file_append(struct spool_file *file, uint8_t *records, size_t size,
                      struct mp_error *error);

/* Closes and frees the path.  Errors: MP_ENOSPACE, MP_EIO. */
int spool_file_close(struct spool_file *file, struct mp_error *error);

#endif
