/* Recordings: what other tools recorded of a program's ranks, for `moeperf import`.
 *
 * A format is one descriptor and one file of code that reads into a writer (writer.h).  What is
 * read goes the way of `moeperf record --from`: rules map ranges to phases, and the run is in the
 * database, with every view, report and what-if. */
#pragma once

#include <stdio.h>

#include "harness/record/run.h"
#include "harness/recordings/writer.h"

struct mp_recording_format {
    const char *name;        /* of --as */
    const char *description; /* one line for a list of formats */

    /* Whether this is such a file: by its name, or by its first `size` bytes, unpacked. */
    bool (*recognises)(const char *path, const char *head, size_t size);

    /* Reads all of a file.  Damage ends the reading, keeps what is before it, and is said with
     * mp_recording_cut; only a file with nothing in it before is an error.  `rules`: those that
     * will map the ranges; a format with many more ranges than anyone maps may leave out what none
     * matches.  Errors: MP_ENOTFOUND, MP_EIO, MP_EFORMAT (it is no such file, or nobody can say
     * whose: the sentence says what is missing), and those of the writer. */
    int (*read)(const char *path, const struct mp_rules *rules, struct mp_recording *recording,
                struct mp_error *error);
};

/* Ends with NULL. */
extern const struct mp_recording_format *const mp_recording_formats[];

/* The format of this name, or NULL. */
const struct mp_recording_format *mp_recording_format_named(const char *name);

/* The format that recognises a file; NULL: none does, or it can't be read, as `error` says:
 * MP_EFORMAT (empty, or packed and damaged), MP_ENOTFOUND, MP_EIO (a folder is one), MP_ENOMEM. */
const struct mp_recording_format *mp_recording_recognise(const char *path, struct mp_error *error);

struct mp_recordings {
    const struct mp_recording_format *format;
    const char *const *path; /* [paths] */
    int paths;
    const char *database;
    /* What else is known of the run.  `system` NULL: the format's name; command, spools, importer
     * and is_earlier are set here. */
    struct mp_record_run run;
};

/* Reads all files into spools in a folder beside the database, which is gone afterwards, and adds
 * them as one run; adding the same again adds nothing and says as what it is there.
 * Findings go to `stream`: what was in the
 * files, what rules did with it, how clocks compare, and what was cut off.  On every error the
 * database is as it was.  `opened` is called once the database is open (for patience with others
 * who write); may be NULL.  Errors: those of the format, of mp_store_open and of mp_record_keep. */
int mp_recordings_import(const struct mp_recordings *recordings, void (*opened)(struct mp_store *),
                         FILE *stream, struct mp_error *error);
