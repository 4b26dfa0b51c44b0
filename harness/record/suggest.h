/* Suggestion: rules for what a recorded program calls its ranges, as a file to edit.
 *
 * A name's phase is that of the first rule which matches it: of those in use, of the ready-made
 * ones, then of guesses.yaml (patterns for names in small letters).  Where the name says nothing,
 * what all processes do may: a range that covers their time again and again is an iteration, one
 * that ends on all of them together, whoever began last, is a meeting. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "harness/record/rules.h"
#include "reference/base/arena.h"

extern const char mp_rules_guesses[]; /* guesses.yaml */

/* Names: what a recorded program calls its ranges, for whoever has to say what they mean.
 *
 * Names that differ in numbers only are one: "layer 0 experts" and "layer 1 experts" are
 * `layer {layer} experts`.  Such a number is a run of digits that no letter touches, or one behind
 * a word that counts ("block3"); "fc1" and "fp16" are names of their own. */

/* Whole numbers of a payload that rules can take, by the names that programs give them. */
enum mp_name_field {
    MP_NAME_TOKENS,
    MP_NAME_BYTES,
    MP_NAME_LAYER,
    MP_NAME_ITERATION,
    MP_NAME_FIELDS
};

/* Ranges of one name in one domain. */
struct mp_name_use {
    const char *sample;  /* the name of the first one, as it was */
    const char *pattern; /* for rules: covers all of them */
    const char *domain;  /* "": the default one */
    int64_t count;       /* in all processes */
    double seconds;      /* together; ranges left open have none */
    int processes;       /* that have one */
    int parent;          /* which other use most of them lie in directly; -1: none */
    int before, after;   /* which one mostly comes before and behind them there; -1: none */
    bool says_layer, says_iteration;   /* the pattern does */
    bool has_value;                    /* they have a plain value as payload */
    const char *field[MP_NAME_FIELDS]; /* the payload's, NULL: none */
    int64_t least, most;               /* of them in a process, 0 where one has none */
    double share;  /* of the time of the process in which they cover least; overlaps count twice */
    bool encloses; /* another one's parent */
    bool meets;    /* they end together on all processes, whoever began last */
    bool may_meet; /* nobody ends before the last has begun, and ends are closer together: where the
                      name says the same, meetings on a busy machine */
    double first_end; /* s from the process's first range to the first end of one of these */
};

struct mp_names {
    const struct mp_name_use *use; /* [uses] in the order in which they were seen */
    int uses;
    int64_t left_out; /* ranges, whose names are beyond 50000 and not told apart any more */
};

/* Reads the spools of all processes, into `memory`.  Counts and times are of all ranges; what needs
 * their order (parents, shares, meetings) is of at most 4194304, of each process the first.
 * Errors: those of mp_spool_open, MP_ENOMEM. */
int mp_names_read(const char *const paths[], int count, struct mp_arena *memory,
                  struct mp_names *names, struct mp_error *error);

struct mp_suggestion;

/* Reads the spools of all processes.  `rules` are those in use and have to stay.  Errors: those of
 * mp_names_read, and of the ready-made rules' files. */
int mp_suggestion_create(const char *const paths[], int count, const struct mp_rules *rules,
                         struct mp_suggestion **suggestion, struct mp_error *error);
void mp_suggestion_destroy(struct mp_suggestion *suggestion); /* accepts NULL */
MP_END(suggestion, struct mp_suggestion *, mp_suggestion_destroy(*it))

/* How many names are an iteration or a phase of the model (attention, gate, dispatch, ...) by a
 * guess only. */
int mp_suggestion_guesses(const struct mp_suggestion *suggestion);

/* The most frequent names with what they are taken for, proposals first, a few lines of each. */
void mp_suggestion_say(const struct mp_suggestion *suggestion, FILE *stream);

/* Writes a rules file: rules in use that matched, then proposals, and the other names as comments;
 * of each at most 200.  `resume` is the command that reads the recording once more.
 * Errors: MP_EINVAL (the file exists), MP_EIO, MP_ENOSPACE. */
int mp_suggestion_write(const struct mp_suggestion *suggestion, const char *path,
                        const char *resume, struct mp_error *error);
