/* Suggestion: rules for what a recorded program calls its ranges, as a file to edit.
 *
 * A name's phase is that of the first rule which matches it: of those in use, of the ready-made
 * ones, then of guesses.yaml (patterns for names in small letters).  Where the name says nothing,
 * what all processes do may: a range that covers their time again and again is an iteration, one
 * that ends on all of them together, whoever began last, is a meeting. */
#ifndef MOEPERF_HARNESS_RECORD_SUGGEST_H
#define MOEPERF_HARNESS_RECORD_SUGGEST_H

#include <stdio.h>

#include "harness/record/names.h"
#include "harness/record/rules.h"

extern const char mp_rules_guesses[]; /* guesses.yaml */

struct mp_suggestion;

/* Reads the spools of all processes.  `rules` are those in use and have to stay.  Errors: those of
 * mp_names_read, and of the ready-made rules' files. */
int mp_suggestion_create(const char *const paths[], int count, const struct mp_rules *rules,
                         struct mp_suggestion **suggestion, struct mp_error *error);
void mp_suggestion_destroy(struct mp_suggestion *suggestion); /* accepts NULL */

/* How many names have a phase of the model (attention, gate, dispatch, ...) by a guess only. */
int mp_suggestion_guesses(const struct mp_suggestion *suggestion);

/* The most frequent names with what they are taken for, proposals first, a few lines of each. */
void mp_suggestion_say(const struct mp_suggestion *suggestion, FILE *stream);

/* Writes a rules file: rules in use that matched, then proposals, and the other names as comments;
 * of each at most 200.  `resume` is the command that reads the recording once more.
 * Errors: MP_EINVAL (the file exists), MP_EIO, MP_ENOSPACE. */
int mp_suggestion_write(const struct mp_suggestion *suggestion, const char *path,
                        const char *resume, struct mp_error *error);

#endif
