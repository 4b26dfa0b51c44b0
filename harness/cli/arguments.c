/* Arguments of subcommands: what is said beside reference/plan/arguments.h. */
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/suite/suite.h"
#include "reference/base/characters.h"

enum { OPTIONS_LIMIT = 128 };

/* The option of a job or suite that "--NAME" may mean: exactly so, or the nearest.  NULL: none. */
static const char *find_setting(const char *name, bool exactly) {
    const char *known[OPTIONS_LIMIT + 1];
    int count = 0;
    if (strncmp(name, "--", 2) != 0)
        return NULL;
    for (const struct mp_option *option = mp_job_options; option->name; option++)
        if (count < OPTIONS_LIMIT && strcmp(option->name, "name") != 0) /* jobs keep theirs */
            known[count++] = option->name;
    for (const struct mp_option *option = mp_suite_options; option->name; option++)
        if (count < OPTIONS_LIMIT && mp_option_kind(option) != MP_OPTION_TEXT)
            known[count++] = option->name;
    known[count] = NULL;
    for (int i = 0; exactly && i < count; i++)
        if (!strcmp(known[i], name + 2))
            return known[i];
    return exactly ? NULL : mp_nearest_word(name + 2, known);
}

int cli_parse(const struct cli_usage *usage, int argc, char *argv[], struct cli_words *words,
              struct mp_error *error) {
    MP_TRY(cli_parse_arguments(usage, find_setting, argc, argv, words, error));
    for (const struct cli_flag *flag = usage->flags; flag->name; flag++)
        if (!strcmp(flag->name, "--format"))
            MP_TRY(cli_read_format(flag->target, error));
    return MP_OK;
}

int cli_run_number(const char *text, int64_t *run_id, struct mp_error *error) {
    return mp_whole_number(text, 1, INT64_MAX, run_id)
               ? MP_OK
               : mp_fail(error, MP_EINVAL,
                         "--run %.100s: should be the number of a run; moeperf report --runs "
                         "lists them",
                         text);
}
