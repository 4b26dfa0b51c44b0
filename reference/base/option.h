/* Options: one table, many readers.
 *
 * Files (jobs, suites, clusters, rules, papers, notes, checkpoints), --set, --help, `moeperf show`,
 * the fingerprint stored with a run and the documentation are all read from the same rows.  A
 * default is text, so that help prints what is parsed.  Rows nest: a value may be a mapping, or a
 * list, with rows of its own. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "reference/base/error.h"
#include "reference/base/yaml.h"

enum mp_option_type {
    MP_OPTION_INT,    /* field: int */
    MP_OPTION_INT64,  /* field: int64_t */
    MP_OPTION_DOUBLE, /* field: double */
    MP_OPTION_BOOL,   /* field: bool; yes/no, true/false, on/off */
    MP_OPTION_COUNT,  /* field: int; a number, or "all" (MP_ALL), or "auto" (MP_AUTO) */
    MP_OPTION_CHOICE, /* field: int; index into `of`, a blank-separated list of words */
    MP_OPTION_WORD,   /* the same, of a list that ends with NULL (const char *const[]) */
    MP_OPTION_TEXT,   /* field: char[MP_TEXT_SIZE]; with `of`, a list in a file is joined by that,
                         and its rows by ';' */

    /* In files only.  What they point to lives as long as the document. */
    MP_OPTION_STRING,  /* field: const char *; with a maximum so many bytes, else not empty */
    MP_OPTION_NODE,    /* field: const struct mp_yaml *, for another reader; with a maximum, a list
                          of so many values, each what the form `of` says, if there is one */
    MP_OPTION_FORM,    /* field: whatever the reader of `of` makes of it */
    MP_OPTION_MAPPING, /* field: the struct of the rows of `of`; `minimum` keys at least */
    MP_OPTION_LIST,    /* field: such structs [maximum], and behind them an int, their number */
    MP_OPTION_NAMED,   /* the same, from a mapping of their names; as many as `minimum` at least */

    /* Of a row named "", which no key means: the line of the mapping itself, int; what it is called
     * in the one that it is in, const char *; itself, const struct mp_yaml *, and with that it may
     * have keys that no row knows. */
    MP_OPTION_LINE,
    MP_OPTION_KEY,
    MP_OPTION_ITSELF
};
/* Added to a type: runs with other values of the option are not compared. */
enum { MP_OPTION_DECIDES = 64 };
#define MP_DECIDES(type) ((enum mp_option_type)((type) + MP_OPTION_DECIDES))
enum { MP_ALL = INT32_MAX, MP_AUTO = -1, MP_TEXT_SIZE = 4096 };

/* A table ends with a row whose name is NULL. */
struct mp_option {
    const char *name; /* whole words with hyphens */
    enum mp_option_type type;
    size_t offset;             /* of the field in the options struct */
    const char *unit;          /* "ranks", "B/s", "" */
    const char *default_value; /* text; NULL: the option must be given; "": NULL of a string, NAN
                                  of a double, -1 of a choice or word */
    double minimum, maximum;   /* of numbers, inclusive; COUNT: of the number form; "auto" is
                                  accepted only where minimum <= -1 */
    const void *of;            /* words, a separator, or struct mp_option_form */
    const char *help;          /* one sentence, lower case, no full stop */
};

static inline enum mp_option_type mp_option_kind(const struct mp_option *row) {
    return (enum mp_option_type)(row->type % MP_OPTION_DECIDES);
}
static inline bool mp_option_decides(const struct mp_option *row) {
    return row->type / MP_OPTION_DECIDES;
}

/* A file being read. */
struct mp_reading {
    const char *path;
    struct mp_error *error;
};

/* What is inside a value. */
struct mp_option_form {
    const char *what;             /* "a window"; FORM: what would be right */
    const struct mp_option *rows; /* one named "" of another type than those three: the values are
                                     such ones and no mappings */
    size_t size;                  /* of the struct */
    int (*read)(const struct mp_reading *reading, const struct mp_option *row,
                const struct mp_yaml *value, void *field); /* FORM */
};

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

/* Parses `text` into the field of option `name`; of a row at hand, into its.  `where`
 * ("suite.yaml:14") is put into messages and may be NULL.  MP_EINVAL with a sentence such as
 *   suite.yaml:14: group-size: 0 is outside 1 .. 1024 ranks
 *   suite.yaml:15: unknown option "grup-size" for system fastermoe; did you mean "group-size"? */
int mp_options_set(const struct mp_option table[], void *options, const char *owner,
                   const char *name, const char *text, const char *where, struct mp_error *error);
int mp_option_set(const struct mp_option *row, void *options, const char *text, const char *where,
                  struct mp_error *error);

/* Rows of what is inside a value; NULL: it has none. */
const struct mp_option *mp_options_inside(const struct mp_option *option);

/* Writes the field's value as text that mp_options_set would parse back; returns `buffer`. */
const char *mp_options_format(const struct mp_option *option, const void *options, char *buffer,
                              size_t size);

/* "a number 1 .. 1024 ranks", "yes or no", "one of flat, hierarchical": what would be right. */
const char *mp_options_describe(const struct mp_option *option, char *buffer, size_t size);

/* ---- files ---- */

/* Reads a mapping into a struct: defaults, then what it says, in its order.  Structs start as
 * zeros.  MP_EINVAL "path:line: ..." for what is no mapping, unknown keys, values that their rows
 * don't take, and rows without a default that are not there. */
int mp_options_read(const struct mp_reading *reading, const struct mp_option table[],
                    const char *owner, const struct mp_yaml *mapping, void *options);
/* The value of one row. */
int mp_options_read_value(const struct mp_reading *reading, const struct mp_option *row, int line,
                          const struct mp_yaml *value, void *options);
/* MP_EINVAL, "path:line: ..." */
int mp_reading_fail(const struct mp_reading *reading, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Tables that are set together: several at the top (key ""), or under keys of their own.  A list
 * ends with a key of NULL. */
struct mp_option_group {
    const char *key;
    const struct mp_option *table;
    void *values;
    const char *owner;
};
/* What a mapping says of them, over what they have; a group's own key may have nothing under it.
 * The errors are those of mp_options_read, but for rows that are not there. */
int mp_groups_apply(const struct mp_reading *reading, const struct mp_option_group groups[],
                    const struct mp_yaml *mapping);
/* "name=value" or "key.name=value", from --set. */
int mp_groups_set(const struct mp_option_group groups[], const char *assignment,
                  struct mp_error *error);
/* Writes what mp_groups_apply reads back, every option listed.  MP_EINVAL (a text that YAML can't
 * have), MP_EIO. */
int mp_groups_write(const struct mp_option_group groups[], FILE *stream, struct mp_error *error);

/* ---- words ---- */

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
