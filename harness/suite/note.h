/* Note: what a job's folder says of the job until it is in a database, so that its recordings can
 * still be put into one when moeperf is killed, or when the disk is full at its end.
 *
 * A YAML mapping of the fields of struct mp_store_run that are known before the job ends: texts,
 * numbers, and "facts" with the facts' names and values.  Where moeperf saw the job's end and could
 * not put it into the database, "status" and "reason" are among them. */
#ifndef MOEPERF_HARNESS_SUITE_NOTE_H
#define MOEPERF_HARNESS_SUITE_NOTE_H

#include "reference/base/yaml.h"
#include "results/store/store.h"

#define MP_NOTE_NAME "run.yaml" /* in the job's folder */
enum { MP_NOTE_FACTS = 1024 };  /* most of a run */

struct mp_note {
    struct mp_store_run run; /* texts are borrowed from `document` */
    struct mp_store_fact fact[MP_NOTE_FACTS];
    int facts;
    struct mp_yaml *document; /* owned */
};

/* Writes the note, whole or not at all; bytes of texts that are no UTF-8 become '?'.  MP_EIO,
 * MP_ENOSPACE, MP_ENOMEM. */
int mp_note_write(const struct mp_store_run *run, const char *path, struct mp_error *error);

/* MP_EINVAL and MP_EFORMAT name path, line and field; MP_EIO; MP_ENOMEM.  mp_note_destroy in any
 * case. */
int mp_note_read(const char *path, struct mp_note *note, struct mp_error *error);
void mp_note_destroy(struct mp_note *note); /* accepts a zeroed one */

/* Marks a job's folder as in use, by this process and those that it starts, until the returned
 * descriptor is closed and they have ended; -1 where that can't be marked. */
int mp_note_hold(const char *folder);

/* Whether somebody still holds it. */
bool mp_note_is_held(const char *folder);

#endif
