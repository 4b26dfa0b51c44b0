/* moeperf predict: what systems would make of given loads on a cluster that is not here. */
#include "harness/cli/predict.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/cli/cli.h"
#include "harness/cli/predict_exchanges.h"
#include "harness/cli/predict_job.h"
#include "harness/cli/system_words.h"
#include "harness/cli/what_if.h"
#include "harness/suite/estimate.h"
#include "harness/suite/keep.h"
#include "harness/suite/paths.h"
#include "harness/suite/predicted.h"
#include "harness/suite/progress.h"

/* Those that people compare first: the reference, one that copies after the gate, one that moves,
 * one that does so on past loads and drops, FSSDP by the paper's rule and by ours. */
static const char *const usual_systems[] = {"ep",   "fastermoe", "smartmoe", "swiftmoe",
                                            "llep", "fssdp",     "frugal"};
enum { USUAL = sizeof usual_systems / sizeof *usual_systems };
enum { SETTINGS_LIMIT = CLI_WORDS_LIMIT + 8, SETTING_SIZE = MP_TEXT_SIZE + 32 };

static const char SUITE[] = "predict"; /* what the database calls it */

struct predict_flags {
    const char *cluster, *nodes, *trace, *loads, *suite, *iterations, *database, *html;
    struct cli_words system, set, vary;
    bool fit, bound, json, assumptions, quiet;
};

static int parse(struct predict_flags *flags, int argc, char *argv[], struct mp_error *error) {
    struct cli_words words;
    const struct cli_flag table[] = {
        {"--cluster", CLI_VALUE, &flags->cluster, "NAME",
         "a ready-made cluster (moeperf list clusters) or a file"},
        {"--nodes", CLI_VALUE, &flags->nodes, "N", "so many nodes of it instead"},
        {"--trace", CLI_VALUE, &flags->trace, "FILE",
         "the loads: a trace, or what moeperf import reads by\n"
         "its ending; sizes that are not set are the trace's"},
        {"--loads", CLI_VALUE, &flags->loads, "TEXT",
         "the loads: a generator and its options in one word,\n"
         "\"zipf exponent=0.8 seed=3\" (moeperf generate --help)"},
        {"--fit", CLI_SWITCH, &flags->fit, NULL,
         "folds or splits a trace of another shape to the\n"
         "prediction's (moeperf reshape --help has the rules)"},
        {"--system", CLI_REPEATED, &flags->system, "NAME[:OPTION=VALUE,...]",
         "predicts this system instead of the usual ones; may\n"
         "be repeated; ep is always there to compare with"},
        {"--set", CLI_REPEATED, &flags->set, "KEY=VALUE",
         "sets an option of the job (moeperf show job), as\n"
         "predict.KEY=VALUE one of predictions (moeperf show\n"
         "predict), as options.KEY=VALUE one of the systems that\n"
         "have it; may be repeated"},
        {"--vary", CLI_REPEATED, &flags->vary, "KEY=VALUE,VALUE...",
         "predicts every value of the key, and prints how many\n"
         "times as fast as ep each system is; of two keys, with\n"
         "every value of the other.  KEY: a job's option, loads,\n"
         "nodes, levels.NAME.bandwidth (B/s; moeperf show\n"
         "CLUSTER), levels.NAME.latency or .message-cost (s)"},
        {"--html", CLI_VALUE, &flags->html, "FILE", "draws what is varied as heat maps, too"},
        {"--bound", CLI_SWITCH, &flags->bound, NULL,
         "the least time in which any system could run these\n"
         "loads, proven, and how near each system comes, also\n"
         "where that takes more than a second or so; otherwise\n"
         "tables have it anyway"},
        {"--suite", CLI_VALUE, &flags->suite, "SUITE",
         "predicts the jobs of a suite instead, be they\n"
         "measured or predicted in it"},
        {"--iterations", CLI_VALUE, &flags->iterations, "N",
         "at most so many (30 of a generator, 100 of a trace)"},
        {"--db", CLI_VALUE, &flags->database, "FILE",
         "adds everything to this database, span by span"},
        {"--assumptions", CLI_SWITCH, &flags->assumptions, NULL,
         "lists all assumptions, not the first few"},
        {"--quiet", CLI_SWITCH, &flags->quiet, NULL, "no progress"},
        {"--json", CLI_SWITCH, &flags->json, NULL, "prints one JSON object"},
        {0},
    };
    const struct cli_usage usage = {
        "moeperf predict --cluster NAME (--trace FILE | --loads TEXT) [options]",
        "Predicts, without the machines, how long an iteration takes under each system on a\n"
        "cluster: the same planners as in training, carried out in model time.  Systems are\n"
        "ep, fastermoe, smartmoe, swiftmoe, llep, fssdp and frugal unless named.  The model is\n"
        "GPT-MoE-S of Hecate's paper with 4 sequences per rank unless the trace or --set\n"
        "says otherwise.  Needing more memory than there is, is a result; so is a system that\n"
        "refuses such a job, unless none that was named can do it.",
        table,
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
    return cli_parse(&usage, argc, argv, &words, error);
}

/* ---- the suite that the command line means ---- */

/* What the flags set beside --set, in the same words. */
struct settings {
    char text[8][SETTING_SIZE];
    const char *item[SETTINGS_LIMIT];
    int count;
};

static void add_setting(struct settings *settings, const char *key, const char *value) {
    if (!value)
        return;
    snprintf(settings->text[settings->count], SETTING_SIZE, "%s=%s", key, value);
    settings->item[settings->count] = settings->text[settings->count];
    settings->count++;
}

static int collect_settings(const struct predict_flags *flags, struct settings *settings,
                            struct mp_error *error) {
    char nodes[64];
    settings->count = 0;
    if (flags->html && (flags->vary.count == 0 || flags->json))
        return mp_fail(error, MP_EINVAL, "--html draws what --vary varies, without --json");
    if (flags->bound && flags->vary.count > 0)
        return mp_fail(error, MP_EINVAL, "--bound is a row of a table, which --vary has none of");
    if (flags->trace && flags->loads)
        return mp_fail(error, MP_EINVAL, "--trace and --loads: give one of them");
    if (flags->trace && access(flags->trace, R_OK))
        return mp_fail(error, errno == ENOENT ? MP_ENOTFOUND : MP_EIO,
                       "--trace %.1000s: %s; it takes a file, --loads a generator", flags->trace,
                       strerror(errno));
    const char *loads = flags->trace ? flags->trace : flags->loads;
    const char *const longest[] = {flags->cluster, loads, flags->iterations};
    for (size_t i = 0; i < sizeof longest / sizeof *longest; i++)
        if (longest[i] && strlen(longest[i]) >= MP_TEXT_SIZE)
            return mp_fail(error, MP_EINVAL, "%.100s...: longer than %d characters", longest[i],
                           MP_TEXT_SIZE - 1);
    if (flags->nodes)
        snprintf(nodes, sizeof nodes, "nodes=%.40s", flags->nodes);
    add_setting(settings, "cluster", flags->cluster);
    add_setting(settings, "change", flags->nodes ? nodes : NULL);
    add_setting(settings, "loads", loads);
    add_setting(settings, "fit", flags->fit ? "yes" : NULL);
    bool is_own = flags->loads && !flags->suite; /* a trace has as many as it has, up to 100 */
    add_setting(settings, "iterations",
                flags->iterations ? flags->iterations
                : is_own          ? "30"
                                  : NULL);
    for (int i = 0; i < flags->set.count; i++)
        settings->item[settings->count++] = flags->set.word[i];
    return MP_OK;
}

/* What a command line without a suite says. */
struct command_line {
    const struct mp_systems *systems;
    const struct settings *settings;
    const struct cli_axes *axes;
    const struct mp_predict_job *job; /* what all its jobs have in common */
};

/* "fssdp:window=2,overlap=4" with values of its point as an entry of a suite's jobs. */
static int write_point(const struct command_line *line, const struct cli_point *point, FILE *stream,
                       struct mp_error *error) {
    struct cli_system_words words;
    char name[MP_TEXT_SIZE], values[MP_TEXT_SIZE];
    int code = cli_system_words_parse(line->systems, point->system, &words, error);
    if (code)
        return code;
    snprintf(name, sizeof name, "%.2000s%.2000s", point->system,
             cli_axes_name(line->axes, point->at, values, sizeof values));
    fputs("  - name: ", stream);
    code = mp_yaml_write_text(stream, name, error);
    fputc('\n', stream);
    if (!code)
        code = cli_axes_write(line->axes, point->at, line->job->change, stream, error);
    fprintf(stream, "    system: %s\n%s", words.system->name,
            words.options ? "    options:\n" : "");
    for (int i = 0; i < words.options && !code; i++) {
        fputs("      ", stream);
        code = mp_yaml_write_text(stream, words.option[i][0], error);
        fputs(": ", stream);
        if (!code)
            code = mp_yaml_write_text(stream, words.option[i][1], error);
        fputc('\n', stream);
    }
    return code;
}

/* The job's options one level deeper, as a suite's common part. */
static int write_common(const struct mp_predict_job *job, FILE *stream, struct mp_error *error) {
    char *text = NULL, *rest, *line;
    size_t size = 0;
    FILE *lines = open_memstream(&text, &size);
    if (!lines)
        return mp_fail(error, MP_ENOMEM, "no memory for a suite");
    int code = mp_predict_job_write(job, lines, error);
    if (fclose(lines) && !code)
        code = mp_fail(error, MP_ENOMEM, "no memory for a suite");
    for (rest = text; !code && (line = strsep(&rest, "\n"));)
        if (*line)
            fprintf(stream, "  %s\n", line);
    free(text);
    return code;
}

/* The suite of these points as text; free it. */
static int write_suite(const struct command_line *line, const struct cli_point points[], int count,
                       char **text, struct mp_error *error) {
    size_t size = 0;
    *text = NULL;
    FILE *stream = open_memstream(text, &size);
    if (!stream)
        return mp_fail(error, MP_ENOMEM, "no memory for a suite");
    fprintf(stream, "suite: %s\ncommon:\n", SUITE);
    int code = write_common(line->job, stream, error);
    fputs("jobs:\n", stream);
    for (int i = 0; i < count && !code; i++)
        code = write_point(line, &points[i], stream, error);
    if (fclose(stream) && !code)
        code = mp_fail(error, MP_ENOMEM, "no memory for a suite");
    return code;
}

/* Reads the suite of these points, with its errors in the words of the command line. */
static int read_points(const struct command_line *line, const struct settings *settings,
                       const struct cli_point points[], int count, struct mp_suite *suite,
                       struct mp_error *error) {
    static const char name[] = "command line";
    const struct mp_suite_changes changes = {settings->item, settings->count, NULL, true};
    struct mp_error first = {0};
    char *text = NULL;
    int code = write_suite(line, points, count, &text, error);
    if (!code)
        code = mp_suite_parse(name, text, line->systems, &changes, suite, &first);
    free(text);
    if (first.code) { /* without the place in a file that nobody has written */
        const char *place =
            strncmp(first.text, name, sizeof name - 1) ? NULL : strstr(first.text, ": ");
        mp_fail(error, first.code, "%s", place ? place + 2 : first.text);
    }
    return code;
}

/* The systems that were asked for, and ep in front; or the usual ones. */
struct chosen {
    const char *name[CLI_WORDS_LIMIT + 1];
    int count, asked; /* the last `asked` were named by the user */
};

static void choose_systems(const struct predict_flags *flags, struct chosen *chosen) {
    bool has_ep = false;
    for (int i = 0; i < flags->system.count; i++)
        has_ep |= !strcmp(flags->system.word[i], "ep");
    if (flags->system.count > 0 && !has_ep)
        chosen->name[chosen->count++] = "ep";
    for (int i = 0; i < flags->system.count; i++)
        chosen->name[chosen->count++] = flags->system.word[i];
    chosen->asked = flags->system.count;
    for (int i = 0; i < USUAL && !flags->system.count; i++)
        chosen->name[chosen->count++] = usual_systems[i];
}

/* The options of --set; of those of a system only what it has: another one may have the others.
 * All else that is set is in the job. */
static void select_options(const struct mp_systems *systems, const char *name,
                           const struct settings *settings, struct settings *own) {
    const struct mp_system *system = name ? mp_systems_find(systems, name, NULL) : NULL;
    own->count = 0;
    for (int i = 0; i < settings->count; i++) {
        const char *item = settings->item[i], *dot = item + 8;
        char key[128];
        if (strncmp(item, "options.", 8) != 0)
            continue;
        snprintf(key, sizeof key, "%.*s", (int)strcspn(dot, "="), dot);
        if (!name || (system && system->options && mp_options_find(system->options, key)))
            own->item[own->count++] = item;
    }
}

/* Whether this point alone can be predicted; MP_EREFUSED: not by its system. */
static int try_point(const struct command_line *line, const struct cli_point *point,
                     struct mp_error *error) {
    struct mp_suite suite = {0};
    struct settings options;
    select_options(line->systems, point->system, line->settings, &options);
    int code = read_points(line, &options, point, 1, &suite, error);
    mp_suite_destroy(&suite);
    return code;
}

/* A sentence that is not there yet. */
static void add_left_out(struct cli_points *points, const char *why) {
    size_t length = strlen(points->left_out);
    if (!strstr(points->left_out, why))
        snprintf(points->left_out + length, sizeof points->left_out - length, "%sLeft out: %s.",
                 length ? "  " : "", why);
}

/* What became of the points of one system or more. */
struct tried {
    int possible, refused;
    struct mp_error why; /* the first that is not possible */
};

/* The points of a system: those that it refuses are there with the others; where the job itself is
 * wrong, the point is left out. */
static void add_points(const struct command_line *line, const char *system,
                       struct cli_points *points, struct tried *tried) {
    int count = cli_axes_points(line->axes);
    for (int p = 0; p < count; p++) {
        struct cli_point *point = &points->item[points->count];
        struct mp_error own = {0};
        *point = (struct cli_point){.system = system};
        cli_axes_point(line->axes, p, point->at);
        int code = try_point(line, point, &own);
        tried->possible += code == MP_OK;
        tried->refused += code == MP_EREFUSED;
        points->count += code == MP_OK || code == MP_EREFUSED;
        tried->why = tried->why.code ? tried->why : own;
        if (code && code != MP_EREFUSED)
            add_left_out(points, own.text);
    }
}

/* The error of a system that was asked for where its words are wrong; the first of all where
 * nothing can be predicted of what was asked for. */
static int choose_points(const struct command_line *line, const struct predict_flags *flags,
                         struct cli_points *points, struct mp_error *error) {
    struct chosen chosen = {0};
    struct tried wanted = {0};
    choose_systems(flags, &chosen);
    points->item =
        calloc((size_t)(chosen.count * cli_axes_points(line->axes) + 1), sizeof *points->item);
    if (!points->item)
        return mp_fail(error, MP_ENOMEM, "no memory for the jobs");
    for (int i = 0; i < chosen.count; i++) {
        struct tried own = {0};
        bool is_wanted = !chosen.asked || i >= chosen.count - chosen.asked;
        add_points(line, chosen.name[i], points, &own);
        if (chosen.asked && is_wanted && !own.possible && !own.refused)
            return mp_fail(error, own.why.code, "%s", own.why.text);
        wanted.possible += is_wanted ? own.possible : 0;
        wanted.why = is_wanted && !wanted.why.code ? own.why : wanted.why;
    }
    return wanted.possible ? MP_OK : mp_fail(error, wanted.why.code, "%s", wanted.why.text);
}

static int read_command_line(const struct mp_systems *systems, const struct predict_flags *flags,
                             const struct settings *settings, struct cli_points *points,
                             struct mp_suite *suite, struct mp_error *error) {
    struct mp_predict_job job;
    struct settings options;
    const struct command_line line = {systems, settings, points->axes, &job};
    int code = mp_predict_job_create(&job, error);
    if (!code)
        code = cli_prepare_job(systems, settings->item, settings->count, &job, error);
    if (!code)
        code = choose_points(&line, flags, points, error);
    select_options(systems, NULL, settings, &options);
    if (!code)
        code = read_points(&line, &options, points->item, points->count, suite, error);
    mp_predict_job_destroy(&job);
    return code;
}

static int read_suite(const struct mp_systems *systems, const struct predict_flags *flags,
                      const struct settings *settings, struct mp_suite *suite,
                      struct mp_error *error) {
    char path[MP_PATH_SIZE];
    const struct mp_suite_changes changes = {settings->item, settings->count, NULL, true};
    if (flags->system.count > 0 || flags->vary.count > 0)
        return mp_fail(error, MP_EINVAL, "%s and --suite: a suite says itself which %s",
                       flags->vary.count > 0 ? "--vary" : "--system",
                       flags->vary.count > 0 ? "jobs it has" : "systems its jobs have");
    int code = mp_path_suite(flags->suite, path, error);
    return code ? code : mp_suite_load(path, systems, &changes, suite, error);
}

/* ---- predicting ---- */

/* What a job needs while it is predicted. */
struct session {
    const struct mp_suite *suite;
    struct mp_store *store; /* NULL: nothing is kept */
    struct mp_progress progress;
    struct mp_estimate *estimate;
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
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    if (!stream)
        return mp_fail(error, MP_ENOMEM, "no memory for the job's text");
    int code = mp_predict_job_write(&session->suite->job[job], stream, error);
    if (fclose(stream) && !code)
        code = mp_fail(error, MP_ENOMEM, "no memory for the job's text");
    const struct mp_ended_job ended = {.suite = session->suite,
                                       .index = job,
                                       .suite_run = session->suite_run,
                                       .started_at = started_at,
                                       .job_text = text,
                                       .spools = spools,
                                       .result = result};
    if (!code)
        code = mp_suite_keep(session->store, &ended, NULL, error);
    free(text);
    return code;
}

/* Refused jobs before this one that are not there yet: they are kept with what was predicted, in
 * the suite's order, and never alone. */
static int keep_refusals(struct session *session, int end, struct mp_error *error) {
    int code = MP_OK;
    for (; session->store && session->kept < end && !code; session->kept++) {
        const char *refusal = session->suite->refusal[session->kept];
        struct mp_launch_result result = {.end = MP_LAUNCH_REFUSED};
        char now[32];
        if (!refusal)
            continue;
        snprintf(result.reason, sizeof result.reason, "%s", refusal);
        mp_suite_format_utc("%Y-%m-%dT%H:%M:%SZ", now, sizeof now);
        code = keep_job(session, session->kept, &result, now, NULL, error);
    }
    return code;
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
                                           .watch = show_progress,
                                           .context = session};
    int code = create_spools(session, error);
    if (code)
        return code;
    mp_suite_format_utc("%Y-%m-%dT%H:%M:%SZ", started_at, sizeof started_at);
    mp_estimate_begin_job(session->estimate, session->job);
    code = mp_predicted_run(&predicted, &result, summary, error);
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

/* Whether the bound takes a second at most, roughly. */
static bool is_quick(const struct mp_suite *suite, int number, int64_t iterations) {
    const struct mp_job *job = &suite->job[number].file.job;
    struct mp_topology topology = mp_cluster_topology(suite->cluster[number]);
    double nodes = mp_topology_nodes(&topology), places = nodes > 1 ? nodes : topology.ranks;
    return places * places * job->experts * job->layers * (double)iterations <= 2e6;
}

/* One bound for all jobs under the same conditions; `all`: however long it takes. */
static int bound_all(const struct mp_suite *suite, bool all, struct cli_prediction items[],
                     struct mp_error *error) {
    int code = MP_OK;
    for (int i = 0; i < suite->count && !code; i++) {
        int same = 0;
        if (items[i].refusal)
            continue;
        while (same < i &&
               (items[same].refusal || !cli_predictions_comparable(&items[same], &items[i])))
            same++;
        if (same < i)
            items[i].bound = items[same].bound;
        else if (all || is_quick(suite, i, items[i].summary.iterations))
            code = mp_predict_job_bound(&suite->job[i], suite->cluster[i], cli_count_signals(),
                                        &items[i].bound, error);
    }
    return code;
}

static int predict_and_print(const struct predict_flags *flags, const struct mp_suite *suite,
                             const struct cli_points *points, struct mp_error *error) {
    struct session session = {.suite = suite};
    struct cli_prediction *items = calloc((size_t)suite->count + 1, sizeof *items);
    int code = MP_OK;
    if (!items)
        return mp_fail(error, MP_ENOMEM, "no memory for the predictions");
    if (flags->database)
        code = mp_path_create_parent(flags->database, error);
    if (!code && flags->database)
        code = mp_store_open(flags->database, &session.store, error);
    mp_progress_begin(&session.progress, flags->quiet ? NULL : stderr);
    if (!code)
        code = predict_all(&session, items, error);
    if (!code && flags->vary.count == 0)
        code = bound_all(suite, flags->bound, items, error);
    mp_store_close(session.store);
    const struct cli_predictions predictions = {.suite = suite,
                                                .item = items,
                                                .count = suite->count,
                                                .points = points,
                                                .html = flags->html,
                                                .database = flags->database,
                                                .suite_run = session.suite_run,
                                                .all_assumptions = flags->assumptions};
    if (!code)
        code = flags->json ? cli_print_predictions_json(&predictions, error)
                           : cli_print_predictions(&predictions, error);
    free(items);
    return code;
}

static int predict(const struct mp_systems *systems, int argc, char *argv[],
                   struct mp_error *error) {
    struct predict_flags flags = {0};
    struct mp_suite suite = {0};
    struct cli_axes axes = {0};
    struct cli_points points = {.axes = &axes};
    if (cli_is_what_if(argc, argv))
        return cli_what_if(systems, argc, argv, error);
    if (cli_is_exchanges(argc, argv))
        return cli_exchanges(argc, argv, error);
    struct settings *settings = calloc(1, sizeof *settings);
    if (!settings)
        return mp_fail(error, MP_ENOMEM, "no memory for the options");
    int code = parse(&flags, argc, argv, error);
    for (int i = 0; i < flags.vary.count && !code; i++)
        code = cli_axes_add(&axes, flags.vary.word[i], error);
    if (!code)
        code = collect_settings(&flags, settings, error);
    if (!code)
        code = flags.suite ? read_suite(systems, &flags, settings, &suite, error)
                           : read_command_line(systems, &flags, settings, &points, &suite, error);
    if (!code)
        code = predict_and_print(&flags, &suite, &points, error);
    mp_suite_destroy(&suite);
    free(points.item);
    free(settings);
    return code > 0 ? CLI_SUCCESS : code;
}

const struct cli_command cli_predict = {"predict", "predicts systems on a cluster that is not here",
                                        predict};
