/* Options: one table, many readers.
 *
 * Job files, suite files, --set, --help, `moeperf show`, the fingerprint stored with a run and the
 * documentation are all read from the same rows.  A default is text, so that help prints what is
 * parsed. */
#ifndef MOEPERF_REFERENCE_PLAN_OPTION_H
#define MOEPERF_REFERENCE_PLAN_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reference/base/error.h"

enum mp_option_type {
    MP_OPTION_INT,    /* field: int */
    MP_OPTION_INT64,  /* field: int64_t */
    MP_OPTION_DOUBLE, /* field: double */
    MP_OPTION_BOOL,   /* field: bool; yes/no, true/false, on/off */
    MP_OPTION_COUNT,  /* field: int; a number, or "all" (MP_ALL), or "auto" (MP_AUTO) */
    MP_OPTION_CHOICE, /* field: int; index into `choices`, a blank-separated list of words */
    MP_OPTION_TEXT    /* field: char[MP_TEXT_SIZE] */
};
enum { MP_ALL = INT32_MAX, MP_AUTO = -1, MP_TEXT_SIZE = 4096 };

/* A table ends with a row whose name is NULL. */
struct mp_option {
    const char *name; /* whole words with hyphens */
    enum mp_option_type type;
    size_t offset;             /* of the field in the options struct */
    const char *unit;          /* "ranks", "B/s", "" */
    const char *default_value; /* text; NULL: the option must be given */
    double minimum, maximum;   /* of numbers, inclusive; COUNT: of the number form; "auto" is
                                  accepted only where minimum <= -1 */
    const char *choices;       /* MP_OPTION_CHOICE only */
    const char *help;          /* one sentence, lower case, no full stop */
};

/* Size of the field that a type needs, for registration checks. */
size_t mp_option_field_size(enum mp_option_type type);

/* In all messages `owner` is a phrase for whose table it is: "system fastermoe", "the job". */

/* Checks a table once: names unique and well-formed, fields inside options_size, help non-empty,
 * ranges and choices sane, every default parses.  A NULL table is an empty one. */
int mp_options_check(const struct mp_option table[], size_t options_size, const char *owner,
                     struct mp_error *error);

/* Sets all defaults; options with no default are left zero. */
int mp_options_set_defaults(const struct mp_option table[], void *options, struct mp_error *error);

/* The row of this name, or NULL. */
const struct mp_option *mp_options_find(const struct mp_option table[], const char *name);

/* All options with their values in one line, "slots=auto interval=50", as far as it fits; "" for
 * none.  Returns `line`. */
const char *mp_options_line(const struct mp_option table[], const void *options, char *line,
                            size_t size);

/* Hands every option of such a line to `set` until that fails; `owner` is put before messages.
 * MP_EINVAL for a word without '=', MP_ENOMEM, and what `set` returns. */
typedef int mp_option_setter(void *context, const char *name, const char *value,
                             struct mp_error *error);
int mp_options_read_line(const char *line, const char *owner, mp_option_setter *set, void *context,
                         struct mp_error *error);

/* Parses `text` into the field of option `name`.  `where` ("suite.yaml:14") is put into messages
 * and may be NULL.  MP_EINVAL with a sentence such as
 *   suite.yaml:14: group-size: 0 is outside 1 .. 1024 ranks
 *   suite.yaml:15: unknown option "grup-size" for system fastermoe; did you mean "group-size"? */
int mp_options_set(const struct mp_option table[], void *options, const char *owner,
                   const char *name, const char *text, const char *where, struct mp_error *error);

/* Writes the field's value as text that mp_options_set would parse back; returns `buffer`. */
const char *mp_options_format(const struct mp_option *option, const void *options, char *buffer,
                              size_t size);

/* "a number 1 .. 1024 ranks", "yes or no", "one of flat, hierarchical": what would be right. */
const char *mp_options_describe(const struct mp_option *option, char *buffer, size_t size);

/* The known word nearest to `word` by edit distance (at most a third of its length, at least 1),
 * or NULL.  `words` ends with NULL. */
const char *mp_nearest_word(const char *word, const char *const words[]);
/* What to put behind an unknown word: "; did you mean \"WORD\"?", or "" where none is near. */
struct mp_meant {
    char text[96];
};
struct mp_meant mp_meant(const char *word, const char *const words[]);
/* Edits (a letter more, less or another, two neighbours swapped) from one word to another; of words
 * longer than 64 letters a large number. */
int mp_word_distance(const char *one, const char *other);

#endif
