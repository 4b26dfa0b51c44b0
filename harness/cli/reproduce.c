/* moeperf reproduce: a paper's tables, predicted on the paper's machines. */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/cli/reproduce.h"
#include "harness/suite/paths.h"
#include "harness/suite/progress.h"
#include "harness/suite/seconds.h"
#include "reference/base/characters.h"
#include "results/report/query.h"

enum { MEASUREMENTS = 64 };

static struct {
    bool details, strict, list, infer, write;
    struct cli_format format;
    const char *loads, *measured;
    int64_t budget, seed; /* 0: not given */
    struct mp_page_output page;
    struct cli_words set, iterations;
} given;

/* Iterations to a loss, from flags and from a database. */
struct measurements {
    struct mp_reproduce_measured item[MEASUREMENTS];
    int count;
};

static const struct cli_flag known_flags[] = {
    {"--list", CLI_SWITCH, &given.list, NULL, "the published rows only; predicts nothing"},
    {"--details", CLI_SWITCH, &given.details, NULL,
     "each job's times and memory too, how near its system comes\n"
     "to the bound (a second a job), and all\n"
     "assumptions"},
    {"--set", CLI_REPEATED, &given.set, "KEY=VALUE",
     "over every job: sequence=512, predict.precision=bf16,\n"
     "options.window=10 (systems that have it)"},
    {"--loads", CLI_VALUE, &given.loads, "LOADS",
     "a trace, or a generator with its options, instead of the\n"
     "paper file's; --set fit=yes for a trace of another shape"},
    {"--iterations", CLI_REPEATED, &given.iterations, "JOB=N",
     "iterations that JOB needs to a loss, measured by training"},
    {"--db-measured", CLI_VALUE, &given.measured, "F",
     "the same from a database: medians by job name, as\n"
     "`moeperf run convergence --db F` keeps them"},
    {"--infer", CLI_SWITCH, &given.infer, NULL,
     "seek values of what the paper does not say under which its\n"
     "figures hold, on all cores; minutes"},
    {"--budget", CLI_WHOLE, CLI_NUMBER(&given.budget, 1, INT64_MAX), "N",
     "predictions that --infer makes; default: the paper file's"},
    {"--seed", CLI_WHOLE, CLI_NUMBER(&given.seed, 1, INT64_MAX), "N",
     "of what --infer draws; default 1: the same every time"},
    {"--write", CLI_SWITCH, &given.write, NULL,
     "put the best set and this command into the paper's file,\n"
     "which later commands then use"},
    {"--html", CLI_VALUE, &given.page.html, "FILE",
     "draws published figures and predicted ones, or what --infer\n"
     "found, as a page"},
    {"--figures", CLI_VALUE, &given.page.figures, "FOLDER", CLI_FIGURES_HELP},
    {"--strict", CLI_SWITCH, &given.strict, NULL,
     "exit status 1 if a row is outside or refused that is\n"
     "inside by the paper's file (of a file that says of none:\n"
     "any row)"},
    CLI_FORMAT_FLAGS(&given.format),
    {0},
};
static const struct cli_usage usage = {
    "moeperf reproduce PAPER [options]",
    "Predicts what a paper measured, on its machines (moeperf list clusters), and prints\n"
    "its published figures beside ours, the ratio, and every assumption.  One cluster file\n"
    "per machine and one set of assumptions per paper; nothing is tuned by row.  PAPER is\n"
    "hecate, swiftmoe, fastermoe, smartmoe, flexmoe, laer, hetumoe, hiermoe, tutel, tamoe or\n"
    "moetuner, or a file like theirs.\n"
    "A number outside the published range is a finding, not a failure; where a system\n"
    "refuses a job, its rows say so and why, and the others have their numbers.\n"
    "What a paper does not say is an unknown of its file, with a range and the value that\n"
    "--infer found.  --infer draws sets of values, fits half of the rows, counts what\n"
    "of the other half is inside, prints the interval of every unknown over all sets nearly\n"
    "as good as the best one, and which rows hold together under no set.",
    known_flags,
    1,
    1,
    "  moeperf reproduce hecate --list\n"
    "  moeperf reproduce hecate --details\n"
    "  moeperf reproduce fastermoe --loads \"zipf exponent=1 iterations=60\"\n"
    "  moeperf reproduce laer --infer --html laer.html\n"
    "  moeperf reproduce laer --infer --budget 5000 --write\n"
    "  moeperf reproduce swiftmoe --iterations swiftmoe=1191 --iterations deepspeed=1516\n"};

/* ---- the paper's file ---- */

static int find_file(const char *name, char path[MP_PATH_SIZE], struct mp_error *error) {
    const char *known[32] = {NULL};
    size_t length = strlen(name);
    if (length > 5 && !strcmp(name + length - 5, ".yaml")) {
        snprintf(path, MP_PATH_SIZE, "%s", name);
        return MP_OK;
    }
    if (!mp_paper_find(name)) {
        for (int i = 0; mp_papers[i].name && i < 31; i++)
            known[i] = mp_papers[i].name;
        const struct mp_meant meant = mp_meant(name, known);
        return mp_fail(error, MP_ENOTFOUND, "unknown paper \"%.80s\"%s", name,
                       *meant.text ? meant.text : "; moeperf reproduce --help names them");
    }
    char folder[MP_PATH_SIZE];
    MP_TRY(mp_path_folder(MP_SUITES, folder, error));
    if (snprintf(path, MP_PATH_SIZE, "%s/paper/%s.yaml", folder, name) >= MP_PATH_SIZE)
        return mp_fail(error, MP_ELIMIT, "%.200s...: the path is too long", folder);
    return MP_OK;
}

/* ---- measured iterations ---- */

static int add_measurement(struct measurements *all, const char *job, size_t length,
                           double iterations, struct mp_error *error) {
    if (all->count == MEASUREMENTS)
        return mp_fail(error, MP_ELIMIT, "more than %d measured jobs", MEASUREMENTS);
    struct mp_reproduce_measured *item = &all->item[all->count++];
    snprintf(item->job, sizeof item->job, "%.*s", (int)length, job);
    item->iterations = iterations;
    return MP_OK;
}

static int read_flag(struct measurements *all, const struct mp_reproduction *reproduction,
                     const char *word, struct mp_error *error) {
    const char *equals = strchr(word, '=');
    double iterations = 0;
    if (!equals || equals == word || !mp_real_number(equals + 1, "", 0, DBL_MAX, &iterations) ||
        iterations == 0)
        return mp_fail(error, MP_EINVAL,
                       "--iterations %.80s: should be JOB=N with N above 0, as in swiftmoe=1191",
                       word);
    for (int i = 0; i < reproduction->jobs.count; i++) {
        const char *name = reproduction->jobs.part[i].name;
        if (strlen(name) == (size_t)(equals - word) && !strncmp(name, word, strlen(name)))
            return add_measurement(all, word, strlen(name), iterations, error);
    }
    return mp_fail(error, MP_ENOTFOUND, "--iterations %.80s: %s has no such job", word,
                   reproduction->path);
}

/* Jobs of suite convergence and of papers' files have the same names where they are the same.  The
 * median: of an even number of rounds the mean of the two in the middle. */
static const char measured_sql[] =
    "SELECT job, avg(iterations_to_target) FROM (SELECT job, iterations_to_target, row_number() "
    "OVER (PARTITION BY job ORDER BY iterations_to_target) AS place, count(*) OVER (PARTITION BY "
    "job) AS rounds FROM v_convergence WHERE iterations_to_target IS NOT NULL) WHERE place IN "
    "((rounds + 1) / 2, rounds / 2 + 1) GROUP BY job ORDER BY job";

static int read_database(struct measurements *all, const char *path, struct mp_error *error) {
    MP_AUTO(store) struct mp_store *store = NULL;
    MP_TRY(mp_store_open_read_only(path, &store, error));
    struct query query = query_begin(store, measured_sql, 0, error);
    while (query_next(&query)) {
        const char *job = query_text(query.row, 0);
        query.code = add_measurement(all, job, strlen(job), query_double(query.row, 1), error);
    }
    MP_TRY(query_end(&query));
    return all->count ? MP_OK
                      : mp_fail(error, MP_ENOTFOUND,
                                "%s: no run there reached a target loss; moeperf run convergence "
                                "--db %s makes some",
                                path, path);
}

/* ---- running ---- */

struct watch {
    struct mp_progress progress;
    const volatile sig_atomic_t *signals;
    double started;
};

static bool draw(void *context, int done, int all, const char *label) {
    struct watch *watch = context;
    cli_draw_share(&watch->progress, label, done, all, watch->started);
    return !*watch->signals;
}

static bool is_drawn(void) {
    return given.page.html || given.page.figures;
}

/* Says which lines are lost; whether any is. */
static bool say_lost(const struct mp_reproduction *reproduction) {
    char name[2 * MP_REPRODUCE_LABEL];
    bool is_lost = false;
    for (int i = 0; i < reproduction->lines; i++) {
        const struct mp_reproduced *line = &reproduction->line[i];
        if (!mp_reproduced_is_lost(reproduction, line))
            continue;
        is_lost = true;
        mp_reproduced_name(line, name);
        if (line->is_refused)
            fprintf(stderr, "%s has no number: %s\n", name, line->missing);
        else
            fprintf(stderr, "%s is outside with %.4g\n", name, line->value);
    }
    return is_lost;
}

static int run_and_print(struct mp_reproduction *reproduction,
                         struct mp_reproduce_settings *settings, struct mp_error *error) {
    struct watch *watch = settings->context;
    MP_AUTO(known_bounds) struct mp_known_bounds *bounds = NULL;
    if (given.details)
        MP_TRY(mp_known_bounds_create(&bounds, error));
    settings->bounds = bounds;
    settings->loads = given.loads;
    settings->progress = draw;
    const int code = mp_reproduction_run(reproduction, settings, error);
    mp_progress_end(&watch->progress);
    MP_TRY(code);
    MP_TRY(cli_print_reproduction(reproduction, settings, given.format.kind, given.details, error));
    if (is_drawn())
        MP_TRY(cli_draw_reproduction(reproduction, &given.page, error));
    const bool is_lost = given.strict && say_lost(reproduction);
    return *watch->signals || is_lost ? CLI_FINDING : CLI_SUCCESS;
}

/* ---- inferring ---- */

static bool draw_sets(void *context, int done, int all) {
    return draw(context, done, all, "sets of unknowns");
}

static int infer_and_print(struct mp_reproduction *reproduction,
                           const struct mp_reproduce_settings *reproduce, struct mp_error *error) {
    MP_AUTO(inference) struct mp_inference *inference = NULL;
    struct watch *watch = reproduce->context;
    struct cli_machine machine;
    cli_machine_read(&machine);
    const int64_t seed = given.seed ? given.seed : 1;
    const struct mp_infer_settings settings = {.reproduce = *reproduce,
                                               .budget = given.budget,
                                               .seed = (uint64_t)seed,
                                               .processes = machine.cores,
                                               .context = watch,
                                               .progress = draw_sets};
    if (given.write && given.set.count)
        return mp_fail(error, MP_EINVAL,
                       "--write goes without --set: the file has its own options");
    if (given.loads)
        return mp_fail(error, MP_EINVAL, "--infer goes without --loads: loads are an unknown");
    const int code = mp_infer(reproduction, &settings, &inference, error);
    mp_progress_end(&watch->progress);
    MP_TRY(code);
    MP_TRY(cli_print_inference(inference, given.format.kind, error));
    char command[MP_PATH_SIZE];
    if (is_drawn())
        MP_TRY(cli_draw_inference(inference, &given.page, error));
    snprintf(command, sizeof command,
             "moeperf reproduce %s --infer --budget %lld --seed %lld --write",
             inference->reproduction->name, (long long)inference->predictions, (long long)seed);
    return given.write ? mp_infer_write(inference, command, error) : MP_OK;
}

/* ---- both ---- */

/* What the file says after all settings, or of every job anew. */
static int check_settings(const struct mp_reproduction *all, struct mp_error *error) {
    const bool has_batch =
        all->largest_batch ||
        MP_ANY(i, all->unknowns, !strcmp(all->unknown[i].key, "tokens-per-rank"));
    for (int i = 0; i < given.set.count; i++) {
        const char *word = given.set.word[i];
        MP_TRY(mp_predict_job_check_setting("--set", word, error));
        if (!strncmp(word, "system=", 7) || !strncmp(word, "name=", 5) ||
            !strncmp(word, "iterations=", 11) || !strncmp(word, "loads=", 6) ||
            (has_batch && !strncmp(word, "batch=", 6)))
            return mp_fail(error, MP_EINVAL,
                           "--set %.100s: %s says what that is of every job; --loads takes other "
                           "loads, and a file of your own what else",
                           word, all->path);
    }
    return MP_OK;
}

static int predict_and_print(struct mp_reproduction *reproduction, const struct mp_systems *systems,
                             struct mp_error *error) {
    struct measurements measured = {.count = 0};
    struct watch watch = {.signals = cli_count_signals(), .started = mp_seconds_now()};
    mp_progress_begin(&watch.progress, stderr);
    MP_TRY(check_settings(reproduction, error));
    for (int i = 0; i < given.iterations.count; i++)
        MP_TRY(read_flag(&measured, reproduction, given.iterations.word[i], error));
    if (given.measured)
        MP_TRY(read_database(&measured, given.measured, error));
    struct mp_reproduce_settings settings = {.systems = systems,
                                             .set = given.set.word,
                                             .sets = given.set.count,
                                             .measured = measured.item,
                                             .measurements = measured.count,
                                             .context = &watch};
    return given.infer ? infer_and_print(reproduction, &settings, error)
                       : run_and_print(reproduction, &settings, error);
}

static int reproduce(const struct cli_call *call, struct mp_error *error) {
    MP_AUTO(reproduction) struct mp_reproduction *reproduction = NULL;
    char path[MP_PATH_SIZE];
    MP_TRY(find_file(call->words->word[0], path, error));
    MP_TRY(mp_reproduction_load(path, call->systems, &reproduction, error));
    const bool predicts = given.infer || given.details || given.strict || given.loads ||
                          given.measured || given.set.count || given.iterations.count || is_drawn();
    if (!given.infer && (given.budget || given.seed || given.write))
        return mp_fail(error, MP_EINVAL, "--budget, --seed and --write go with --infer");
    if (given.list && predicts)
        return mp_fail(error, MP_EINVAL, "--list predicts nothing: it goes with --format alone");
    if (given.infer && (given.details || given.strict))
        return mp_fail(error, MP_EINVAL, "--infer goes without --details and --strict");
    MP_TRY(mp_page_check(&given.page, error));
    return given.list ? cli_print_published(reproduction, given.format.kind, error)
                      : predict_and_print(reproduction, call->systems, error);
}

const struct cli_command cli_reproduce = {
    "reproduce", "prints a paper's figures beside predicted ones", reproduce, .usage = &usage};
