/* Spools that a test made, kept as those of a program that has ended. */
#pragma once

#include <sys/stat.h>

#include "harness/record/run.h"
#include "tests/results/runs.h"

enum { SPOOLS_SIZE = 80 };

/* Makes the folder for spools and says where it is. */
static inline void make_spools(const struct runs_folder *folder, char spools[SPOOLS_SIZE]) {
    snprintf(spools, SPOOLS_SIZE, "%s/spools", folder->path);
    assert_int_equal(mkdir(spools, 0700), 0);
}

/* `run` is without command and rules.  rules_text NULL: there are none. */
static inline int keep_run(const struct runs_folder *folder, struct mp_record_run run,
                           const char *rules_text, char said[], size_t size,
                           struct mp_error *error) {
    static char name[] = "program";
    static char *const command[] = {name, NULL};
    struct mp_rules rules = {0};
    FILE *stream = fmemopen(said, size, "w");
    if (rules_text)
        runs_ok(mp_rules_parse("rules", rules_text, strlen(rules_text), &rules, error), error);
    run.command = command;
    run.rules = &rules;
    int code = mp_record_keep(folder->store, &run, stream, error);
    fclose(stream);
    mp_rules_destroy(&rules);
    return code;
}
