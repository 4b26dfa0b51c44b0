/* Spools that are written in one go from what is known already: what was mapped, or imported.
 *
 * Records are gathered and appended in batches; a program that records as it runs has record.h. */
#pragma once

#include "profiler/record/format.h"
#include "profiler/record/spool_file.h"

struct spool_writer {
    struct spool_file file;
    uint8_t *batch;
    size_t filled;
};

/* Creates the file.  Errors: those of spool_file_create, MP_ENOMEM; nothing is to be closed then.
 */
int spool_writer_create(struct spool_writer *writer, const char *path, struct mp_error *error);

/* Appends a record; texts longer than their limits are cut.  Errors: those of spool_file_append. */
int spool_writer_add(struct spool_writer *writer, const struct mp_spool_record *record,
                     struct mp_error *error);

/* Appends a whole record as it was read; its check is computed anew.  *record: where it lies
 * until the next call, for changing it; may be NULL. */
int spool_writer_copy(struct spool_writer *writer, const void *bytes, size_t size, void **record,
                      struct mp_error *error);

/* Writes what is left and closes.  Errors: those of spool_file_append and _close. */
int spool_writer_close(struct spool_writer *writer, struct mp_error *error);
