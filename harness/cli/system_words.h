/* What --system takes: a system's name, and options of it. */
#ifndef MOEPERF_HARNESS_CLI_SYSTEM_WORDS_H
#define MOEPERF_HARNESS_CLI_SYSTEM_WORDS_H

#include "reference/plan/system.h"

enum { CLI_SYSTEM_OPTIONS_LIMIT = 128 };

/* Of "fssdp:window=2,overlap=4". */
struct cli_system_words {
    char text[MP_TEXT_SIZE]; /* the words themselves */
    const struct mp_system *system;
    const char *option[CLI_SYSTEM_OPTIONS_LIMIT][2]; /* name, value */
    int options;
};

/* MP_ENOTFOUND with the nearest name for an unknown system; MP_EINVAL for what is no option=value;
 * both begin with --system.  Whether the system has the options is not looked at. */
int cli_system_words_parse(const struct mp_systems *systems, const char *text,
                           struct cli_system_words *words, struct mp_error *error);
/* Adds an option, which stays the caller's.  MP_EINVAL for one too many. */
int cli_system_words_add(struct cli_system_words *words, const char *name, const char *value,
                         struct mp_error *error);
/* MP_EINVAL, beginning with --system, for an option that the system does not have, with the nearest
 * it has, or that can't have this value; MP_ENOMEM. */
int cli_system_words_check(const struct cli_system_words *words, struct mp_error *error);

#endif
