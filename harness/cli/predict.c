/* moeperf predict: what systems would make of given loads on a cluster that is not here. */
#include "harness/cli/predict.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/cli/cli.h"
#include "harness/predict/bound.h"
#include "harness/predict/workers.h"
#include "harness/record/parts.h"
#include "harness/suite/keep.h"
#include "harness/suite/paths.h"
#include "harness/suite/predicted.h"
#include "harness/suite/progress.h"
#include "harness/suite/seconds.h"

static const char SUITE[] = "predict"; /* what the database calls it */

static struct {
    struct cli_job_flags job;
    const char *suite, *database;
    struct mp_page_output page;
    struct cli_words system, vary;
    struct cli_format format;
    bool bound, assumptions, quiet;
} given;

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
     "predicts every value of the key, and prints ep's times,\n"
     "how many times as fast each system is and what share of\n"
     "its time the bound is; of two or three keys, with every\n"
     "value of the others, the last one's side by side.\n"
     "KEY: a job's option, predict.KEY, loads (generators,\n"
     "files), cluster, nodes, levels.NAME.bandwidth (B/s;\n"
     "moeperf show CLUSTER), levels.NAME.latency or\n"
     ".message-cost (s)"},
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

static int read_suite(const struct mp_systems *systems, const struct cli_settings *settings,
                      struct mp_suite *suite, struct mp_error *error) {
    char path[MP_PATH_SIZE];
    const struct mp_suite_changes changes = {settings->item, settings->count, NULL, true};
    if (given.system.count > 0 || given.vary.count > 0)
        return mp_fail(error, MP_EINVAL, "%s and --suite: a suite says itself which %s",
                       given.vary.count > 0 ? "--vary" : "--system",
                       given.vary.count > 0 ? "jobs it has" : "systems its jobs have");
    MP_TRY(mp_path_file(MP_SUITES, given.suite, path, error));
    return mp_suite_load(path, systems, &changes, suite, error);
}

/* ---- predicting ---- */

/* All that is predicted: job by job, or, of what varies, point by point in several processes, of
 * which each writes to its own points and their items. */
struct session {
    const struct mp_suite *suite;
    const struct cli_points *points;
    struct cli_prediction *item; /* [suite->count] */
    struct mp_progress progress;
    struct mp_known_bounds *bounds; /* to each process what it has worked out itself */
    /* Job by job. */
    struct mp_store *store; /* NULL: nothing is kept */
    struct mp_estimate *estimate;
    int job, kept; /* the one at hand; refused ones before `kept` are in the store */
    char suite_run[64], spools[MP_PATH_SIZE];
    /* Point by point. */
    const volatile sig_atomic_t *signals;
    double started;
    int count;                /* of points */
    struct mp_error *error;   /* [count] of all systems there */
    struct mp_error *failure; /* [suite->count] */
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
    MP_AUTO(text) char *text = NULL;
    MP_TRY(mp_predict_job_text(&session->suite->job[job], true, &text, error));
    const struct mp_ended_job ended = {.suite = session->suite,
                                       .index = job,
                                       .suite_run = session->suite_run,
                                       .started_at = started_at,
                                       .job_text = text,
                                       .spools = spools,
                                       .result = result};
    return mp_suite_keep(session->store, &ended, error);
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
    if (session->store)
        MP_TRY(mp_parts_create_folder(given.database, "spools", session->spools, error));
    mp_suite_format_utc("%Y-%m-%dT%H:%M:%SZ", started_at, sizeof started_at);
    mp_estimate_begin_job(session->estimate);
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
    if (session->store)
        mp_parts_remove_folder(session->spools); /* what could not be kept */
    return code;
}

static int predict_all(struct session *session, struct mp_error *error) {
    const struct mp_suite *suite = session->suite;
    char now[32];
    mp_suite_format_utc("%Y%m%dT%H%M%SZ", now, sizeof now);
    snprintf(session->suite_run, sizeof session->suite_run, "%s-%s-%d", SUITE, now, (int)getpid());
    int code = mp_estimate_create(mp_suite_possible(suite), 1, &session->estimate, error);
    for (int i = 0; i < suite->count && !code; i++) {
        session->job = i;
        if (!suite->refusal[i])
            code = predict_job(session, &session->item[i].summary, error);
    }
    if (!code)
        code = keep_refusals(session, suite->count, error);
    mp_progress_end(&session->progress);
    mp_estimate_destroy(session->estimate);
    return code;
}

/* One bound for all jobs under the same conditions and with the same exchange; --bound: however
 * long it takes. */
static int bound_all(const struct session *session, struct mp_error *error) {
    const struct mp_suite *suite = session->suite;
    struct cli_prediction *items = session->item;
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
        else if (given.bound || mp_bound_is_quick(suite->cluster[i], &suite->job[i].file.job,
                                                  items[i].summary.iterations))
            MP_TRY(mp_predict_job_bound(&suite->job[i], suite->cluster[i], cli_count_signals(),
                                        session->bounds, &items[i].bound, error));
    }
    return MP_OK;
}

/* ---- points, several of them at once ---- */

static bool show_points(void *context, int done) {
    struct session *session = context;
    cli_draw_share(&session->progress, "points", done, session->count, session->started);
    return !*session->signals;
}

/* An item that is predicted at this point. */
static bool is_at(const struct session *session, int item, int point) {
    return !session->item[item].refusal && session->points->item[item].number == point;
}

/* The systems at a point, whose loads are read once for all. */
static void predict_point(void *context, int point) {
    const struct session *session = context;
    const struct mp_predict_job *job[CLI_WORDS_LIMIT + 1];
    struct mp_prediction_summary *summary[CLI_WORDS_LIMIT + 1];
    struct mp_error *failure[CLI_WORDS_LIMIT + 1];
    struct mp_predict_bound bound = {0};
    const struct mp_cluster *cluster = NULL;
    int count = 0;
    for (int i = 0; i < session->points->count; i++)
        if (is_at(session, i, point)) {
            cluster = count ? cluster : session->suite->cluster[i];
            job[count] = &session->suite->job[i];
            summary[count] = &session->item[i].summary;
            failure[count++] = &session->failure[i];
        }
    if (!count)
        return;
    const struct mp_job *any = &job[0]->file.job;
    bool is_bounded = given.bound || mp_bound_is_quick(cluster, any, any->iterations);
    mp_predict_jobs_run(job, count, cluster, summary, failure, session->bounds,
                        is_bounded ? &bound : NULL, &session->error[point]);
    for (int i = 0; i < session->points->count; i++)
        if (is_at(session, i, point))
            session->item[i].bound = bound;
}

/* The first error there is; but a system that can't do its job, or not within a limit of its own,
 * is refused there. */
static int take_failures(struct session *session, struct mp_error *error) {
    for (int point = 0; point < session->count; point++)
        for (int i = 0; i < session->points->count; i++) {
            const struct mp_error *own = &session->failure[i];
            if (!is_at(session, i, point))
                continue;
            if (own->code == MP_EREFUSED || own->code == MP_ELIMIT)
                session->item[i].refusal = own->text;
            else if (own->code || (own = &session->error[point])->code)
                return mp_fail(error, own->code, "%s: %s", session->suite->job[i].file.job.name,
                               own->text);
        }
    return MP_OK;
}

/* Predicts and bounds all points, as many at once as there are processors. */
static int predict_points(struct session *session, struct mp_error *error) {
    struct cli_machine machine;
    cli_machine_read(&machine);
    const struct mp_workers workers = {machine.cores, session, predict_point, show_points};
    session->signals = cli_count_signals();
    session->started = mp_seconds_now();
    mp_progress_begin(&session->progress, given.quiet ? NULL : stderr);
    int code = mp_workers_run(&workers, 0, session->count, error);
    mp_progress_end(&session->progress);
    return code ? code : take_failures(session, error);
}

/* ---- all ---- */

static int predict_one_by_one(struct session *session, struct mp_error *error) {
    MP_AUTO(store) struct mp_store *store = NULL;
    if (given.database)
        MP_TRY(cli_create_database(given.database, &store, error));
    session->store = store;
    mp_progress_begin(&session->progress, given.quiet ? NULL : stderr);
    MP_TRY(predict_all(session, error));
    return bound_all(session, error);
}

/* What varies is predicted by several processes, unless it is kept, job by job. */
static int predict_and_print(const struct mp_suite *suite, const struct cli_points *points,
                             struct mp_error *error) {
    const int count = cli_axes_points(points->axes);
    size_t jobs = (size_t)suite->count, items = jobs * sizeof(struct cli_prediction),
           failures = jobs * sizeof(struct mp_error),
           errors = (size_t)count * sizeof(struct mp_error);
    struct session session = {.suite = suite,
                              .points = points,
                              .count = count,
                              .error = mp_workers_memory(errors),
                              .item = mp_workers_memory(items),
                              .failure = mp_workers_memory(failures)};
    int code = session.error && session.item && session.failure ? MP_OK : mp_no_memory(error);
    if (!code)
        code = mp_known_bounds_create(&session.bounds, error);
    for (int i = 0; i < suite->count && !code; i++)
        session.item[i] = (struct cli_prediction){
            .job = &suite->job[i], .cluster = suite->cluster[i], .refusal = suite->refusal[i]};
    if (!code)
        code = given.vary.count > 0 && !given.database ? predict_points(&session, error)
                                                       : predict_one_by_one(&session, error);
    const struct cli_predictions predictions = {.item = session.item,
                                                .count = suite->count,
                                                .points = points,
                                                .page = given.page,
                                                .database = given.database,
                                                .suite_run = session.suite_run,
                                                .all_assumptions = given.assumptions};
    if (!code)
        code = cli_print_predictions(&predictions, given.format.kind, error);
    mp_known_bounds_destroy(session.bounds);
    mp_workers_release(session.failure, failures);
    mp_workers_release(session.item, items);
    mp_workers_release(session.error, errors);
    return code;
}

static int predict(const struct cli_call *call, struct mp_error *error) {
    static struct cli_job_settings settings;
    MP_AUTO(suite) struct mp_suite suite = {0};
    struct cli_axes axes = {0};
    MP_AUTO(points) struct cli_points points = {.axes = &axes};
    if (call->usage == &cli_what_if_usage)
        return cli_what_if(call, error);
    if (call->usage == &cli_exchanges_usage)
        return cli_exchanges(error);
    for (int i = 0; i < given.vary.count; i++)
        MP_TRY(cli_axes_add(&axes, given.vary.word[i], error));
    if ((given.page.html || given.page.figures) &&
        (given.vary.count == 0 || given.format.kind == MP_REPORT_JSON))
        return mp_fail(error, MP_EINVAL,
                       "--html and --figures draw what --vary varies, without --json");
    MP_TRY(mp_page_check(&given.page, error));
    MP_TRY(cli_read_job_flags(&given.job, &settings, error));
    MP_TRY(given.suite ? read_suite(call->systems, &settings.all, &suite, error)
                       : cli_points_read(call->systems, &given.system, &settings.all, &points,
                                         &suite, error));
    return predict_and_print(&suite, &points, error);
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
