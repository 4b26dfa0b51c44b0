/* moeperf predict: what systems would make of given loads on a cluster that is not here. */
#include "harness/cli/predict.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/cli/cli.h"
#include "harness/cli/machine.h"
#include "harness/predict/bound.h"
#include "harness/predict/workers.h"
#include "harness/suite/estimate.h"
#include "harness/suite/keep.h"
#include "harness/suite/paths.h"
#include "harness/suite/predicted.h"
#include "harness/suite/progress.h"
#include "harness/suite/seconds.h"

static const char SUITE[] = "predict"; /* what the database calls it */

struct predict_flags {
    struct cli_job_flags job;
    const char *suite, *database;
    struct mp_page_output page;
    struct cli_words system, vary;
    struct cli_format format;
    bool bound, assumptions, quiet;
};

static struct predict_flags given;

static const struct cli_flag known_flags[] = {
    {"--cluster", CLI_VALUE, &given.job.cluster, "NAME",
     "a ready-made cluster (moeperf list clusters) or a file"},
    {"--nodes", CLI_WHOLE, CLI_NUMBER(&given.job.nodes, 1, CLI_NODES_MOST), "N",
     "so many nodes of it instead"},
    {"--trace", CLI_VALUE, &given.job.trace, "FILE",
     "the loads: a trace, or what moeperf import reads by\n"
     "its ending; sizes that are not set are the trace's"},
    {"--loads", CLI_VALUE, &given.job.loads, "TEXT",
     "the loads: a generator and its options in one word,\n"
     "\"zipf exponent=0.8 seed=3\" (moeperf generate --help)"},
    {"--fit", CLI_SWITCH, &given.job.fit, NULL,
     "folds or splits a trace of another shape to the\n"
     "prediction's (moeperf reshape --help has the rules)"},
    {"--system", CLI_REPEATED, &given.system, "NAME[:OPTION=VALUE,...]",
     "predicts this system instead of the usual ones; may\n"
     "be repeated; ep is always there to compare with"},
    {"--set", CLI_REPEATED, &given.job.set, "KEY=VALUE",
     "sets an option of the job (moeperf show job), as\n"
     "predict.KEY=VALUE one of predictions (moeperf show\n"
     "predict), as options.KEY=VALUE one of the systems that\n"
     "have it; may be repeated"},
    {"--vary", CLI_REPEATED, &given.vary, "KEY=VALUE,VALUE...",
     "predicts every value of the key, and prints how many\n"
     "times as fast as ep each system is and what share of\n"
     "its time the bound is; of two or three keys, with every\n"
     "value of the others, the last one's side by side.\n"
     "KEY: a job's option, loads (generators, files),\n"
     "cluster, nodes, levels.NAME.bandwidth (B/s; moeperf\n"
     "show CLUSTER), levels.NAME.latency or .message-cost (s)"},
    {"--html", CLI_VALUE, &given.page.html, "FILE", "draws what is varied as heat maps, too"},
    {"--figures", CLI_VALUE, &given.page.figures, "FOLDER", CLI_FIGURES_HELP},
    {"--bound", CLI_SWITCH, &given.bound, NULL,
     "the least time in which any system could run these\n"
     "loads, proven, and how near each system comes, also\n"
     "where that takes more than a second or so; otherwise\n"
     "tables have it anyway"},
    {"--suite", CLI_VALUE, &given.suite, "SUITE",
     "predicts the jobs of a suite instead, be they\n"
     "measured or predicted in it"},
    {"--iterations", CLI_WHOLE, CLI_NUMBER(&given.job.iterations, 1, CLI_ITERATIONS_MOST), "N",
     "at most so many (30 of a generator, 100 of a trace)"},
    {"--db", CLI_VALUE, &given.database, "FILE", "adds everything to this database, span by span"},
    {"--assumptions", CLI_SWITCH, &given.assumptions, NULL,
     "lists all assumptions, not the first few"},
    {"--quiet", CLI_SWITCH, &given.quiet, NULL, "no progress"},
    CLI_FORMAT_FLAGS(&given.format),
    {0},
};
static const struct cli_usage usage = {
    "moeperf predict --cluster NAME (--trace FILE | --loads TEXT) [options]",
    "Predicts, without the machines, how long an iteration takes under each system on a\n"
    "cluster: the same planners as in training, carried out in model time.  Systems are\n"
    "ep, fastermoe, smartmoe, swiftmoe, llep, fssdp and nodewise unless named.  The model\n"
    "is GPT-MoE-S of Hecate's paper with 4 sequences per rank unless the trace or --set\n"
    "says otherwise.  Needing more memory than there is, is a result; so is a system that\n"
    "refuses such a job, unless none that was named can do it.",
    known_flags,
    0,
    0,
    "  moeperf predict --cluster hecate-b --loads \"zipf exponent=0.6\"\n"
    "  moeperf predict --cluster hecate-a --nodes 2 --loads \"w1 heat=0.4\" --system fssdp \\\n"
    "    --system frugal --set experts=32\n"
    "  moeperf predict --cluster h100 --nodes 1 --loads \"zipf exponent=0.6\" \\\n"
    "    --system moonep --vary batch=8,32,128 --vary levels.node.bandwidth=25e9,400e9\n"
    "  moeperf predict --cluster hecate-b --nodes 2 --suite quickstart --set batch=32 \\\n"
    "    --loads \"zipf exponent=0.5\" --json\n"
    "  moeperf predict --run 1 --help    what a recorded run would have taken\n"
    "  moeperf predict --exchanges --help    where which exchange of rows wins\n"};

/* ---- the suite that the command line means ---- */

static int collect_settings(const struct predict_flags *flags, struct cli_job_settings *settings,
                            struct mp_error *error) {
    if ((flags->page.html || flags->page.figures) &&
        (flags->vary.count == 0 || flags->format.kind == MP_REPORT_JSON))
        return mp_fail(error, MP_EINVAL,
                       "--html and --figures draw what --vary varies, without --json");
    return cli_read_job_flags(&flags->job, settings, error);
}

static int read_suite(const struct mp_systems *systems, const struct predict_flags *flags,
                      const struct cli_settings *settings, struct mp_suite *suite,
                      struct mp_error *error) {
    char path[MP_PATH_SIZE];
    const struct mp_suite_changes changes = {settings->item, settings->count, NULL, true};
    if (flags->system.count > 0 || flags->vary.count > 0)
        return mp_fail(error, MP_EINVAL, "%s and --suite: a suite says itself which %s",
                       flags->vary.count > 0 ? "--vary" : "--system",
                       flags->vary.count > 0 ? "jobs it has" : "systems its jobs have");
    MP_TRY(mp_path_file(MP_SUITES, flags->suite, path, error));
    return mp_suite_load(path, systems, &changes, suite, error);
}

/* ---- predicting ---- */

/* What a job needs while it is predicted. */
struct session {
    const struct mp_suite *suite;
    struct mp_store *store; /* NULL: nothing is kept */
    struct mp_progress progress;
    struct mp_estimate *estimate;
    struct mp_known_bounds *bounds;
    int job, kept; /* the one at hand; refused ones before `kept` are in the store */
    char suite_run[64], spools[512];
};

static void show_progress(void *context, const struct mp_launch_progress *progress) {
    struct session *session = context;
    struct mp_progress_state state = {.job = session->job + 1,
                                      .jobs = session->suite->count,
                                      .name = session->suite->job[session->job].file.job.name,
                                      .iteration = progress->iteration,
                                      .iterations = progress->iterations,
                                      .ms = progress->ms};
    mp_estimate_update(session->estimate, progress->iteration, progress->iterations);
    mp_estimate_read(session->estimate, &state.share, &state.seconds_left);
    mp_progress_draw(&session->progress, &state);
}

/* spools: folder of its recording; NULL: none. */
static int keep_job(const struct session *session, int job, const struct mp_launch_result *result,
                    const char *started_at, const char *spools, struct mp_error *error) {
    char *text;
    MP_TRY(mp_predict_job_text(&session->suite->job[job], true, &text, error));
    const struct mp_ended_job ended = {.suite = session->suite,
                                       .index = job,
                                       .suite_run = session->suite_run,
                                       .started_at = started_at,
                                       .job_text = text,
                                       .spools = spools,
                                       .result = result};
    int code = mp_suite_keep(session->store, &ended, error);
    free(text);
    return code;
}

/* Refused jobs before this one that are not there yet: they are kept with what was predicted, in
 * the suite's order, and never alone. */
static int keep_refusals(struct session *session, int end, struct mp_error *error) {
    for (; session->store && session->kept < end; session->kept++) {
        const char *refusal = session->suite->refusal[session->kept];
        struct mp_launch_result result = {.end = MP_LAUNCH_REFUSED};
        char now[32];
        if (!refusal)
            continue;
        snprintf(result.reason, sizeof result.reason, "%s", refusal);
        mp_suite_format_utc("%Y-%m-%dT%H:%M:%SZ", now, sizeof now);
        MP_TRY(keep_job(session, session->kept, &result, now, NULL, error));
    }
    return MP_OK;
}

/* A folder for recordings, which is empty again once they are kept. */
static int create_spools(struct session *session, struct mp_error *error) {
    static const char name[] = "moeperf-predict-XXXXXX";
    const char *chosen = getenv("TMPDIR"), *above = chosen && *chosen ? chosen : "/tmp";
    if (!session->store)
        return MP_OK;
    if (snprintf(session->spools, sizeof session->spools, "%s/%s", above, name) >=
        (int)sizeof session->spools)
        return mp_fail(error, MP_ELIMIT, "TMPDIR: %.200s...: the path is too long", above);
    return mkdtemp(session->spools)
               ? MP_OK
               : mp_fail(error, MP_EIO,
                         "can't create a folder in %s: %s; TMPDIR=FOLDER in the environment names "
                         "another place",
                         above, strerror(errno));
}

/* What is left of the recordings of a job that could not be kept. */
static void remove_spools(const struct session *session) {
    char path[sizeof session->spools + 32];
    for (int r = 0; session->store && r < session->suite->job[session->job].file.job.ranks; r++) {
        snprintf(path, sizeof path, "%s/rank-%04d.spool", session->spools, r);
        unlink(path);
    }
    if (session->store)
        rmdir(session->spools);
}

static int predict_job(struct session *session, struct mp_prediction_summary *summary,
                       struct mp_error *error) {
    const struct mp_suite *suite = session->suite;
    struct mp_launch_result result;
    char started_at[32];
    const struct mp_predicted predicted = {.job = &suite->job[session->job],
                                           .cluster = suite->cluster[session->job],
                                           .spools = session->store ? session->spools : NULL,
                                           .signals = cli_count_signals(),
                                           .bounds = session->bounds,
                                           .watch = show_progress,
                                           .context = session};
    MP_TRY(create_spools(session, error));
    mp_suite_format_utc("%Y-%m-%dT%H:%M:%SZ", started_at, sizeof started_at);
    mp_estimate_begin_job(session->estimate, session->job);
    int code = mp_predicted_run(&predicted, &result, summary, error);
    mp_estimate_end_job(session->estimate);
    if (code)
        mp_error_prefix(error, "%s", suite->job[session->job].file.job.name);
    else if (result.end == MP_LAUNCH_INTERRUPTED)
        code = mp_fail(error, MP_EINTERRUPTED, "%s: %s; it is left out of everything",
                       suite->job[session->job].file.job.name, result.reason);
    if (!code)
        code = keep_refusals(session, session->job, error);
    if (!code && session->store)
        code = keep_job(session, session->job, &result, started_at, session->spools, error);
    remove_spools(session);
    return code;
}

static int predict_all(struct session *session, struct cli_prediction items[],
                       struct mp_error *error) {
    const struct mp_suite *suite = session->suite;
    char now[32];
    mp_suite_format_utc("%Y%m%dT%H%M%SZ", now, sizeof now);
    snprintf(session->suite_run, sizeof session->suite_run, "%s-%s-%d", SUITE, now, (int)getpid());
    int code = mp_estimate_create(suite->count, 1, &session->estimate, error);
    for (int i = 0; i < suite->count && !code; i++)
        if (suite->refusal[i])
            mp_estimate_leave_out(session->estimate, i);
    for (int i = 0; i < suite->count && !code; i++) {
        session->job = i;
        items[i].job = &suite->job[i];
        items[i].cluster = suite->cluster[i];
        items[i].refusal = suite->refusal[i];
        if (!items[i].refusal)
            code = predict_job(session, &items[i].summary, error);
    }
    if (!code)
        code = keep_refusals(session, suite->count, error);
    mp_progress_end(&session->progress);
    mp_estimate_destroy(session->estimate);
    return code;
}

/* One bound for all jobs under the same conditions and with the same exchange; `all`: however long
 * it takes. */
static int bound_all(const struct session *session, bool all, struct cli_prediction items[],
                     struct mp_error *error) {
    const struct mp_suite *suite = session->suite;
    for (int i = 0; i < suite->count; i++) {
        int same = 0;
        if (items[i].refusal)
            continue;
        while (same < i &&
               (items[same].refusal || !cli_predictions_comparable(&items[same], &items[i]) ||
                suite->job[same].file.job.exchange != suite->job[i].file.job.exchange))
            same++;
        if (same < i)
            items[i].bound = items[same].bound;
        else if (all || mp_bound_is_quick(suite->cluster[i], &suite->job[i].file.job,
                                          items[i].summary.iterations))
            MP_TRY(mp_predict_job_bound(&suite->job[i], suite->cluster[i], cli_count_signals(),
                                        session->bounds, &items[i].bound, error));
    }
    return MP_OK;
}

/* ---- points, several of them at once ---- */

/* The systems at a point, whose loads are read once for all. */
struct cell {
    int first, count;      /* in the order by points: items order[first] and so on */
    struct mp_error error; /* of all of them */
};

/* What workers share: each writes to its own cells and their items. */
struct cells {
    const struct predict_flags *flags;
    const struct mp_suite *suite;
    const struct cli_points *points;
    struct mp_known_bounds *bounds; /* to each process what it has worked out itself */
    struct mp_progress progress;
    const volatile sig_atomic_t *signals;
    double started;
    int count;
    int *order;                  /* [suite->count] items that are not refused, point by point */
    struct cell *cell;           /* [count], and room for one more */
    struct cli_prediction *item; /* [suite->count] */
    struct mp_error *failure;    /* likewise */
};

static bool show_cells(void *context, int done) {
    struct cells *cells = context;
    double passed = mp_seconds_now() - cells->started;
    const struct mp_progress_state state = {.job = done < cells->count ? done + 1 : done,
                                            .jobs = cells->count,
                                            .name = "points",
                                            .share = (double)done / cells->count,
                                            .seconds_left =
                                                done ? passed / done * (cells->count - done) : -1};
    mp_progress_draw(&cells->progress, &state);
    return !*cells->signals;
}

static void predict_cell(void *context, int number) {
    const struct cells *cells = context;
    struct cell *cell = &cells->cell[number];
    const struct mp_predict_job *job[CLI_WORDS_LIMIT + 1];
    struct mp_prediction_summary *summary[CLI_WORDS_LIMIT + 1];
    struct mp_error *failure[CLI_WORDS_LIMIT + 1];
    struct mp_predict_bound bound = {0};
    const int *order = cells->order + cell->first;
    const struct mp_predict_job *any = &cells->suite->job[order[0]];
    const struct mp_cluster *cluster = cells->suite->cluster[order[0]];
    for (int i = 0; i < cell->count; i++) {
        job[i] = &cells->suite->job[order[i]];
        summary[i] = &cells->item[order[i]].summary;
        failure[i] = &cells->failure[order[i]];
    }
    bool is_bounded =
        cells->flags->bound || mp_bound_is_quick(cluster, &any->file.job, any->file.job.iterations);
    mp_predict_jobs_run(job, cell->count, cluster, summary, failure, cells->bounds,
                        is_bounded ? &bound : NULL, &cell->error);
    for (int i = 0; i < cell->count; i++)
        cells->item[order[i]].bound = bound;
}

/* Those of each point one after the other, and which of them begin a point. */
static void order_cells(struct cells *cells) {
    const struct cli_points *points = cells->points;
    int ordered = 0, all = cli_axes_points(points->axes);
    for (int p = 0; p < all; p++) {
        struct cell *cell = &cells->cell[cells->count];
        cell->first = ordered;
        for (int i = 0; i < points->count; i++)
            if (!cells->item[i].refusal && cli_axes_number(points->axes, points->item[i].at) == p)
                cells->order[ordered++] = i;
        cell->count = ordered - cell->first;
        cells->count += cell->count > 0;
    }
}

/* The first error there is; but a system that can't do its job, or not within a limit of its own,
 * is refused there. */
static int take_failures(struct cells *cells, struct mp_error *error) {
    for (int c = 0; c < cells->count; c++)
        for (int i = 0; i < cells->cell[c].count; i++) {
            int number = cells->order[cells->cell[c].first + i];
            const struct mp_error *own = &cells->failure[number];
            if (own->code == MP_EREFUSED || own->code == MP_ELIMIT)
                cells->item[number].refusal = own->text;
            else if (own->code || (own = &cells->cell[c].error)->code)
                return mp_fail(error, own->code, "%s: %s", cells->suite->job[number].file.job.name,
                               own->text);
        }
    return MP_OK;
}

/* Predicts and bounds all points, as many at once as there are processors. */
static int predict_cells(struct cells *cells, struct mp_error *error) {
    const struct mp_suite *suite = cells->suite;
    struct cli_machine machine;
    cli_machine_read(&machine);
    const struct mp_workers workers = {machine.cores, cells, predict_cell, show_cells};
    for (int i = 0; i < suite->count; i++)
        cells->item[i] = (struct cli_prediction){
            .job = &suite->job[i], .cluster = suite->cluster[i], .refusal = suite->refusal[i]};
    order_cells(cells);
    cells->signals = cli_count_signals();
    cells->started = mp_seconds_now();
    mp_progress_begin(&cells->progress, cells->flags->quiet ? NULL : stderr);
    int code = mp_workers_run(&workers, 0, cells->count, error);
    mp_progress_end(&cells->progress);
    return code ? code : take_failures(cells, error);
}

/* ---- all ---- */

static int predict_one_by_one(const struct predict_flags *flags, struct session *session,
                              struct cli_prediction items[], struct mp_error *error) {
    if (flags->database)
        MP_TRY(cli_create_database(flags->database, &session->store, error));
    mp_progress_begin(&session->progress, flags->quiet ? NULL : stderr);
    int code = predict_all(session, items, error);
    if (!code)
        code = bound_all(session, flags->bound, items, error);
    mp_store_close(session->store);
    return code;
}

/* What varies is predicted by several processes, unless it is kept, job by job. */
static int predict_and_print(const struct predict_flags *flags, const struct mp_suite *suite,
                             const struct cli_points *points, struct mp_error *error) {
    struct session session = {.suite = suite};
    size_t jobs = (size_t)suite->count, items = jobs * sizeof(struct cli_prediction),
           failures = jobs * sizeof(struct mp_error), all = (jobs + 1) * sizeof(struct cell);
    struct cells cells = {.flags = flags,
                          .suite = suite,
                          .points = points,
                          .order = malloc(jobs * sizeof *cells.order),
                          .cell = mp_workers_memory(all),
                          .item = mp_workers_memory(items),
                          .failure = mp_workers_memory(failures)};
    int code =
        cells.order && cells.cell && cells.item && cells.failure ? MP_OK : mp_no_memory(error);
    if (!code)
        code = mp_known_bounds_create(&cells.bounds, error);
    session.bounds = cells.bounds;
    if (!code)
        code = flags->vary.count > 0 && !flags->database
                   ? predict_cells(&cells, error)
                   : predict_one_by_one(flags, &session, cells.item, error);
    const struct cli_predictions predictions = {.suite = suite,
                                                .item = cells.item,
                                                .count = suite->count,
                                                .points = points,
                                                .page = flags->page,
                                                .database = flags->database,
                                                .suite_run = session.suite_run,
                                                .all_assumptions = flags->assumptions};
    if (!code)
        code = cli_print_predictions(&predictions, flags->format.kind, error);
    mp_known_bounds_destroy(cells.bounds);
    mp_workers_release(cells.failure, failures);
    mp_workers_release(cells.item, items);
    mp_workers_release(cells.cell, all);
    free(cells.order);
    return code;
}

static int predict(const struct cli_call *call, struct mp_error *error) {
    struct mp_suite suite = {0};
    struct cli_axes axes = {0};
    struct cli_points points = {.axes = &axes};
    if (call->usage == &cli_what_if_usage)
        return cli_what_if(call, error);
    if (call->usage == &cli_exchanges_usage)
        return cli_exchanges(error);
    struct cli_job_settings *settings = calloc(1, sizeof *settings);
    if (!settings)
        return mp_no_memory(error);
    int code = MP_OK;
    for (int i = 0; i < given.vary.count && !code; i++)
        code = cli_axes_add(&axes, given.vary.word[i], error);
    if (!code)
        code = collect_settings(&given, settings, error);
    if (!code)
        code = given.suite ? read_suite(call->systems, &given, &settings->all, &suite, error)
                           : cli_points_read(call->systems, &given.system, &settings->all, &points,
                                             &suite, error);
    if (!code)
        code = predict_and_print(&given, &suite, &points, error);
    mp_suite_destroy(&suite);
    free(points.item);
    free(settings);
    return code;
}

/* Each of two flags makes another command of it. */
static const struct cli_usage *find_usage(int argc, char *argv[], struct mp_error *error) {
    const struct cli_usage *found = &usage;
    (void)error;
    for (int i = 1; i < argc && found != &cli_what_if_usage; i++)
        if (!strcmp(argv[i], "--run") || !strncmp(argv[i], "--run=", 6))
            found = &cli_what_if_usage;
        else if (!strcmp(argv[i], "--exchanges"))
            found = &cli_exchanges_usage;
    return found;
}

const struct cli_command cli_predict = {"predict", "predicts systems on a cluster that is not here",
                                        predict, .find_usage = find_usage};
