/* Arguments: flags and words of a program or subcommand, and its help. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reference/base/error.h"

/* A program's flags. */
enum cli_flag_kind {
    CLI_SWITCH,  /* target: bool */
    CLI_VALUE,   /* target: const char * */
    CLI_WHOLE,   /* CLI_NUMBER of an int64_t */
    CLI_COUNT,   /* CLI_NUMBER of an int */
    CLI_REPEATED /* target: struct cli_words, one word per use */
};
enum { CLI_WORDS_LIMIT = 1024 };
struct cli_words {
    const char *word[CLI_WORDS_LIMIT];
    int count;
};
/* Where a whole number goes, and between which it has to be. */
struct cli_number {
    void *target;
    int64_t least, most;
};
#define CLI_NUMBER(target, least, most) (&(struct cli_number){target, least, most})
struct cli_flag {
    const char *name; /* "--db"; a table ends with NULL */
    enum cli_flag_kind kind;
    void *target;
    const char *value; /* what --help calls its value */
    const char *help;  /* filled to the page's width, as is `about` */
};

struct cli_usage {
    const char *synopsis; /* "moeperf run SUITE [options]" */
    const char *about;    /* lines that begin with a blank stay lines */
    const struct cli_flag *flags;
    int words_least, words_most; /* arguments that are no flags */
    const char *examples;        /* whole lines */
};

/* What "--NAME" may mean in a program with --set: the setting of exactly that name, or else the
 * nearest one; NULL: none. */
typedef const char *cli_find_setting(const char *name, bool exactly);

/* Parses argv[1..]; words that are no flags go to `words`.  "--flag value" and "--flag=value" mean
 * the same.  Returns 0 to go on, 1 when --help was asked for and has been printed, MP_EINVAL with
 * the nearest flag for unknown ones (or setting, unless `setting` is NULL), and for numbers outside
 * their limits. */
int cli_parse_arguments(const struct cli_usage *usage, cli_find_setting *setting, int argc,
                        char *argv[], struct cli_words *words, struct mp_error *error);
