/* moeperf compare: two groups of runs, counts exactly and times by effect and evidence. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/cli/cli.h"
#include "harness/predict/job.h"
#include "harness/suite/paths.h"
#include "reference/base/arena.h"
#include "reference/base/characters.h"
#include "reference/base/whole_file.h"
#include "results/compare/gate.h"

enum { RUNS_LIMIT = 4096 };

static struct {
    const char *database, *junit, *action, *bencher, *benchstat, *minimum_effect;
    struct cli_words accept;
    struct cli_format format;
    bool strict, any_machine;
} given = {.database = CLI_DATABASE};

/* One side as the user named it. */
struct chosen {
    char path[MP_PATH_SIZE];
    const char *runs_text; /* what stands behind the file; NULL: nothing */
    char *suite_run;       /* owned */
    int64_t *run;          /* [runs], owned */
    int runs;
    struct mp_store *store;
};

static const struct cli_flag known_flags[] = {
    {"--db", CLI_VALUE, &given.database, "FILE",
     "database of sides that name no file (" CLI_DATABASE ")"},
    {"--minimum-effect", CLI_VALUE, &given.minimum_effect, "PERCENT",
     "smallest change of a time that counts (2)"},
    {"--accept", CLI_REPEATED, &given.accept, "MEASURE",
     "this exact measure may differ; may be repeated"},
    {"--any-machine", CLI_SWITCH, &given.any_machine, NULL,
     "judges times although the machines differ"},
    {"--strict", CLI_SWITCH, &given.strict, NULL, "inconclusive is a finding, too"},
    CLI_FORMAT_FLAGS(&given.format),
    {"--junit", CLI_VALUE, &given.junit, "FILE", "also writes JUnit XML"},
    {"--benchmark-action", CLI_VALUE, &given.action, "FILE",
     "head's times for github-action-benchmark\n(customSmallerIsBetter)"},
    {"--bencher", CLI_VALUE, &given.bencher, "FILE", "head's times in Bencher's metric format"},
    {"--benchstat", CLI_VALUE, &given.benchstat, "FILE",
     "all samples for: benchstat -col side FILE"},
    {0},
};
static const struct cli_usage usage = {
    "moeperf compare [BASE HEAD] [options]",
    "Says whether head is slower than base, or does something else.  A side is FILE\n"
    "(the latest invocation in that database), FILE:SUITE-RUN or FILE:1,3-5 (runs),\n"
    "or without FILE: one of --db.  With no side, or one FILE, the latest measurement\n"
    "in turns in it (moeperf run SUITE --pairs 12 --against TRAINER).  Routes, bytes,\n"
    "copies, operations and predicted times must be equal; measured times fail when\n"
    "they are slower by the minimum effect and a test is sure of it.  What\n"
    "cannot be told is inconclusive and says what would decide it.  Exit status: 0\n"
    "nothing found, 1 a finding, 2 the sides cannot be compared.",
    known_flags,
    0,
    2,
    "  moeperf compare\n"
    "  moeperf compare base.db head.db --junit gate.xml --format markdown\n"
    "  moeperf compare pairs.db --strict --minimum-effect 3\n"
    "  moeperf compare out/results.db:1-6 out/results.db:7-12 --accept copies\n"};

/* ---- naming sides ---- */

static int add_range(struct chosen *chosen, const char *all, long first, long last,
                     struct mp_error *error) {
    if (first < 1 || last < first || last - first >= RUNS_LIMIT ||
        chosen->runs + (last - first) >= RUNS_LIMIT)
        return mp_fail(error, MP_EINVAL, "%.100s: should be numbers of runs, like 1,3-5", all);
    for (long run = first; run <= last; run++)
        MP_TRY(MP_APPEND(chosen->run, chosen->runs, error, run));
    return MP_OK;
}

static int parse_runs(struct chosen *chosen, const char *text, struct mp_error *error) {
    const char *at = text;
    for (;;) {
        char *end;
        long first = strtol(at, &end, 10), last = first;
        if (end > at && *end == '-') {
            at = end + 1;
            last = strtol(at, &end, 10);
        }
        if (end == at || (*end && *end != ','))
            return mp_fail(error, MP_EINVAL, "%.100s: should be numbers of runs, like 1,3-5", text);
        int code = add_range(chosen, text, first, last, error);
        if (code || !*end)
            return code;
        at = end + 1;
    }
}

/* Where the file's name ends: at the word's end, or before a colon behind the name of a file. */
static size_t file_length(const char *word) {
    char path[MP_PATH_SIZE];
    if (access(word, F_OK) == 0)
        return strlen(word);
    for (const char *colon = strrchr(word, ':'); colon && colon > word;
         colon = memrchr(word, ':', (size_t)(colon - word))) {
        snprintf(path, sizeof path, "%.*s", (int)(colon - word), word);
        if (access(path, F_OK) == 0)
            return (size_t)(colon - word);
    }
    return 0;
}

static int choose(const char *word, const char *database, struct chosen *chosen,
                  struct mp_error *error) {
    size_t length = file_length(word);
    bool names_file = length > 0 || strchr(word, '/') || strstr(word, ".db");
    if (length == 0 && names_file)
        length = strlen(word); /* a file that is not there: opening it says so */
    snprintf(chosen->path, sizeof chosen->path, "%.*s",
             names_file ? (int)length : (int)strlen(database), names_file ? word : database);
    chosen->runs_text = names_file ? (word[length] ? word + length + 1 : NULL) : word;
    if (!chosen->runs_text)
        return MP_OK;
    if (*chosen->runs_text &&
        strspn(chosen->runs_text, "0123456789,-") == strlen(chosen->runs_text))
        return parse_runs(chosen, chosen->runs_text, error);
    chosen->suite_run = strdup(chosen->runs_text);
    return chosen->suite_run ? MP_OK : mp_fail(error, MP_ENOMEM, "no memory for a name");
}

/* Without names of runs the latest measurement in turns. */
static int choose_all(const struct cli_words *words, const char *database, struct chosen side[2],
                      struct mp_error *error) {
    for (int s = 0; s < 2; s++) {
        const char *word = words->count == 0 ? database : words->word[words->count == 1 ? 0 : s];
        MP_TRY(choose(word, database, &side[s], error));
        MP_TRY(cli_open_database(side[s].path, &side[s].store, error));
    }
    bool named = side[0].runs_text || side[1].runs_text;
    if (words->count == 1 && named)
        return mp_fail(error, MP_EINVAL, "%.200s is one side: name the other one, too",
                       words->word[0]);
    if (!named && strcmp(side[0].path, side[1].path) == 0)
        MP_TRY(mp_gate_find_pairs(side[0].store, &side[0].suite_run, &side[1].suite_run, error));
    return MP_OK;
}

struct sides {
    struct chosen of[2];
};
/* Of one database that both are in, what was opened first removes the log that it made. */
static void release(struct sides *sides) {
    for (int s = 1; s >= 0; s--) {
        mp_store_close(sides->of[s].store);
        free(sides->of[s].suite_run);
        free(sides->of[s].run);
    }
}
MP_END(sides, struct sides, release(it))

/* ---- what was found ---- */

static int print_both_sides(const struct mp_gate *gate, FILE *out, struct mp_error *error) {
    MP_TRY(mp_gate_print_benchstat(gate, false, out, error));
    return mp_gate_print_benchstat(gate, true, out, error);
}

typedef int print_gate(const struct mp_gate *gate, FILE *out, struct mp_error *error);

static int write_file(const struct mp_gate *gate, const char *path, print_gate *print,
                      struct mp_error *error) {
    if (!path)
        return MP_OK;
    MP_AUTO(whole_file) struct mp_whole_file file = {.stream = NULL};
    MP_TRY(mp_whole_file_open(&file, path, error));
    MP_TRY(print(gate, file.stream, error));
    return mp_whole_file_close(&file, MP_OK, error);
}

static int write_all(const struct mp_gate *gate, struct mp_error *error) {
    MP_TRY(write_file(gate, given.junit, mp_gate_print_junit, error));
    MP_TRY(write_file(gate, given.action, mp_gate_print_action, error));
    MP_TRY(write_file(gate, given.bencher, mp_gate_print_bencher, error));
    MP_TRY(write_file(gate, given.benchstat, print_both_sides, error));
    return mp_gate_print(gate, given.format.kind, stdout, error);
}

static int compare(const struct cli_call *call, struct mp_error *error) {
    MP_AUTO(sides) struct sides sides = {0};
    struct chosen *side = sides.of;
    MP_AUTO(gate) struct mp_gate *gate = NULL;
    double percent = 100 * MP_MINIMUM_EFFECT;
    if (given.minimum_effect &&
        (!mp_real_number(given.minimum_effect, "%", 0, 100, &percent) || percent == 0))
        return mp_fail(error, MP_EINVAL,
                       "--minimum-effect %.60s: should be percent above 0 and up to 100",
                       given.minimum_effect);
    MP_TRY(choose_all(call->words, given.database, side, error));
    const struct mp_gate_options options = {percent / 100,
                                            given.any_machine,
                                            given.accept.word,
                                            given.accept.count,
                                            {mp_predict_job_defaults, call->systems}};
    const struct mp_gate_side base = {side[0].store, side[0].suite_run, side[0].run, side[0].runs},
                              head = {side[1].store, side[1].suite_run, side[1].run, side[1].runs};
    MP_TRY(mp_gate_compare(&base, &head, &options, &gate, error));
    MP_TRY(write_all(gate, error));
    const enum mp_outcome outcome = mp_gate_outcome(gate);
    return outcome == MP_OUTCOME_FAIL || (outcome == MP_OUTCOME_INCONCLUSIVE && given.strict)
               ? CLI_FINDING
               : CLI_SUCCESS;
}

const struct cli_command cli_compare = {"compare", "says whether a change made it slower", compare,
                                        .usage = &usage};
