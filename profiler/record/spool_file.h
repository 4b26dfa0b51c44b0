/* The writing end of a spool file: whole records go in, and only whole records stay.
 *
 * Collectors write from inside programs that others wrote, which may close any descriptor and get
 * its number again for a file of their own.  So nothing is done with the descriptor before device
 * and inode have been compared with those of the file that was created.  If it is another file's,
 * or nobody's, the spool is opened again by its path. */
#pragma once

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reference/base/error.h"

struct spool_file {
    int descriptor; /* -1: not open; as a number in a foreign program, worth what the check says */
    dev_t device;   /* of the file that was created */
    ino_t inode;
    _Atomic int64_t bytes; /* of whole records in the file */
    bool failed;           /* a write failed; later records are not written */
    int64_t reopened;      /* how often somebody had closed the descriptor */
    int64_t lost;          /* records that came while the file could not be opened again */
    char path[PATH_MAX]; /* absolute; no memory of the heap, which a signal may have interrupted */
};

/* Creates the file.  Errors: MP_EINVAL (it exists), MP_EIO, MP_ENOSPACE. */
int spool_file_create(struct spool_file *file, const char *path, struct mp_error *error);

/* Appends the header record, with this process, this host and both clocks of this moment.  Errors:
 * as of spool_file_append. */
int spool_file_write_header(struct spool_file *file, int rank, int ranks, int node,
                            struct mp_error *error);

/* Fills in the checks of `size` bytes of complete records and appends them.  When writing fails the
 * file is cut back to its last whole record, and later calls do nothing and return MP_OK: the first
 * call has reported it.  When somebody has closed the descriptor and the file can't be opened
 * again, these records are lost and counted, and the next call tries again.  Errors: MP_ENOSPACE
 * (disk, quota or file size limit), MP_EIO. */
int spool_file_append(struct spool_file *file, uint8_t *records, size_t size,
                      struct mp_error *error);

/* What has happened to the descriptor, as a sentence for the recording's notes; "": nothing.
 * Returns its length, less than `size`. */
size_t spool_file_note(struct spool_file *file, char *text, size_t size);

/* Closes it.  Errors: MP_ENOSPACE, MP_EIO. */
int spool_file_close(struct spool_file *file, struct mp_error *error);
