#include "harness/suite/suite.h"

#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/suite/paths.h"
#include "harness/workload/named.h"
#include "reference/trainer/loads_file.h"

/* ---- loads that are replayed ---- */

static struct mp_loads_shape shape_of(const struct mp_job *job) {
    return (struct mp_loads_shape){
        .sources = job->ranks,
        .experts = job->experts,
        .layers = job->layers,
        .top_k = mp_job_top_k(job),
        .tokens = (int64_t)(job->batch / job->ranks) * mp_job_step_tokens(job),
        .fewer = mp_job_takes_fewer(job),
    };
}

/* The stream is to be destroyed, also where it has another shape. */
static int open_loads(const struct mp_job *job, struct mp_trace_stream **stream,
                      struct mp_error *error) {
    const struct mp_loads_shape shape = shape_of(job);
    const struct mp_trace_wanted wanted = {
        .shape = {.ranks = shape.sources,
                  .experts = shape.experts,
                  .layers = shape.layers,
                  .micro_batches = 1,
                  .top_k = shape.top_k},
        .tokens = shape.tokens,
        .iterations = job->iterations,
    };
    char has[160], needs[160];
    MP_TRY(mp_trace_open_named(job->trace, &wanted, stream, error));
    const struct mp_trace_shape *given = &mp_trace_stream_info(*stream)->shape;
    return mp_trace_shape_fits(given, &wanted.shape)
               ? MP_OK
               : mp_fail(error, MP_EINVAL,
                         "trace: %.300s has %s; the job has %s.  moeperf reshape makes a trace of "
                         "another shape, but for experts per token, which top-k says",
                         job->trace, mp_trace_shape_describe(given, has, sizeof has),
                         mp_trace_shape_describe(&wanted.shape, needs, sizeof needs));
}

int mp_suite_check_loads(struct mp_job *job, struct mp_error *error) {
    const struct mp_loads_shape shape = shape_of(job);
    const struct mp_trace_block *block;
    MP_AUTO(stream) struct mp_trace_stream *stream = NULL;
    uint32_t digest = 0;
    int64_t blocks = 0;
    if (job->routing != MP_ROUTING_TRACE)
        return MP_OK;
    MP_TRY(open_loads(job, &stream, error));
    for (;; blocks++) {
        MP_TRY(mp_trace_next(stream, &block, error));
        if (!block)
            break;
        int code = mp_loads_check(&shape, block->iteration, block->layer, block->load.count, error);
        if (code) {
            mp_error_prefix(error, "trace: %.300s", job->trace);
            return code;
        }
        digest = mp_loads_digest(digest, &block->load);
    }
    if (blocks == 0)
        return mp_fail(error, MP_EINVAL, "trace: %.300s has no iteration", job->trace);
    snprintf(job->trace_digest, sizeof job->trace_digest, "%08x", digest);
    return MP_OK;
}

/* At most the job's iterations; all are read, as the digest is the whole trace's. */
static int write_blocks(const struct mp_job *job, struct mp_trace_stream *stream,
                        struct mp_loads_writer *writer, uint32_t *digest, struct mp_error *error) {
    const struct mp_trace_block *block;
    int64_t blocks = 0;
    int code;
    while (!(code = mp_trace_next(stream, &block, error)) && block) {
        *digest = mp_loads_digest(*digest, &block->load);
        if (blocks++ / job->layers < job->iterations)
            MP_TRY(mp_loads_write(writer, &block->load, error));
    }
    return code;
}

int mp_suite_write_loads(struct mp_job *job, const char *path, struct mp_error *error) {
    const struct mp_loads_shape shape = shape_of(job);
    MP_AUTO(stream) struct mp_trace_stream *stream = NULL;
    struct mp_loads_writer *writer;
    uint32_t digest = 0;
    if (job->routing != MP_ROUTING_TRACE)
        return MP_OK;
    if (strlen(path) >= sizeof job->trace_loads)
        return mp_fail(error, MP_ELIMIT, "%.200s...: the path is too long", path);
    MP_TRY(open_loads(job, &stream, error));
    MP_TRY(mp_loads_writer_create(path, &shape, &writer, error));
    int code = write_blocks(job, stream, writer, &digest, error);
    int finished = mp_loads_writer_finish(writer, !code, digest, error);
    if (code || finished)
        return code ? code : finished;
    strcpy(job->trace_loads, path);
    return MP_OK;
}

#define FIELD(member) offsetof(struct mp_suite, member)
enum { JOB_LIMIT = 4096 };

static const struct mp_option_form job_form = {.what = "a job"};
const struct mp_option mp_suite_options[] = {
    {"suite", MP_OPTION_TEXT, FIELD(name), "", NULL, 0, 0, NULL, "name of the suite"},
    {"description", MP_OPTION_TEXT, FIELD(description), "", "", 0, 0, NULL,
     "what the suite shows, in one line"},
    {"repeat", MP_OPTION_INT, FIELD(repeat), "rounds", "1", 1, 10000, NULL,
     "rounds; in each the whole list of jobs runs once"},
    {"timeout", MP_OPTION_DOUBLE, FIELD(timeout), "s", "3600", 0.1, 1e7, NULL,
     "time that one job may take"},
    {"common", MP_OPTION_NODE, FIELD(common), "", "", 0, 0, NULL, "options of every job"},
    {"jobs", MP_OPTION_NODE, FIELD(jobs), "", NULL, 1, JOB_LIMIT, &job_form,
     "its own options, over the common ones"},
    {0},
};

void mp_suite_destroy(struct mp_suite *suite) {
    if (!suite)
        return;
    for (int i = 0; suite->job && i < suite->count; i++)
        mp_predict_job_destroy(&suite->job[i]);
    for (int i = 0; suite->cluster && i < suite->count; i++)
        mp_cluster_destroy(suite->cluster[i]);
    mp_arena_release(&suite->arena);
    free(suite->path);
    free(suite->text);
    memset(suite, 0, sizeof *suite);
}

/* Job i: defaults, then the common options, then its own. */
static int read_job(struct mp_suite *suite, int i, const struct mp_yaml *common,
                    const struct mp_yaml *own, const struct mp_systems *systems,
                    struct mp_error *error) {
    struct mp_predict_job *job = &suite->job[i];
    struct mp_job_file *file = &job->file;
    MP_TRY(mp_predict_job_create(job, error));
    if (common)
        MP_TRY(mp_predict_job_apply(job, common, suite->path, systems, error));
    MP_TRY(mp_predict_job_apply(job, own, suite->path, systems, error));
    if (!file->system)
        return mp_fail(error, MP_EINVAL,
                       "%s:%d: system: not given for this job; moeperf list systems names them",
                       suite->path, own->line);
    if (!mp_yaml_get(own, "name"))
        memcpy(file->job.name, file->job.system, sizeof file->job.name);
    for (int j = 0; j < i; j++)
        if (!strcmp(suite->job[j].file.job.name, file->job.name))
            return mp_fail(error, MP_EINVAL,
                           "%s:%d: name: \"%.100s\" is already the job of line %d; give each its "
                           "own",
                           suite->path, own->line, file->job.name, suite->line[j]);
    return MP_OK;
}

static int read_jobs(struct mp_suite *suite, const struct mp_systems *systems,
                     struct mp_error *error) {
    const struct mp_yaml *common = suite->common, *jobs = suite->jobs;
    if (common && common->kind == MP_YAML_SCALAR && !*common->text)
        common = NULL; /* "common:" with nothing under it */
    MP_TAKE_EACH(&suite->arena, jobs->count, suite->job, suite->cluster, suite->line,
                 suite->refusal);
    MP_TRY(mp_arena_check(&suite->arena, error));
    for (int i = 0; i < jobs->count; i++) {
        suite->count++;
        suite->line[i] = jobs->item[i]->line;
        MP_TRY(read_job(suite, i, common, jobs->item[i], systems, error));
    }
    return MP_OK;
}

/* "options.key=value": the systems that have this option take it.  With none, the job whose system
 * has options at all says what is wrong with the key. */
static int set_system_option(struct mp_suite *suite, const char *assignment,
                             const struct mp_systems *systems, struct mp_error *error) {
    char key[128];
    const char *start = strchr(assignment, '.') + 1;
    snprintf(key, sizeof key, "%.*s", (int)strcspn(start, "="), start);
    int taken = 0, witness = 0;
    for (int i = 0; i < suite->count; i++) {
        const struct mp_system *system = suite->job[i].file.system;
        if (!system->options)
            continue;
        witness = i;
        if (!mp_options_find(system->options, key))
            continue;
        taken++;
        MP_TRY(mp_predict_job_set(&suite->job[i], assignment, systems, error));
    }
    return taken ? MP_OK : mp_predict_job_set(&suite->job[witness], assignment, systems, error);
}

static int set_one(struct mp_suite *suite, const char *assignment, const struct mp_systems *systems,
                   struct mp_error *error) {
    static const char *const own[] = {"repeat", "timeout"};
    for (int i = 0; i < 2; i++) {
        size_t length = strlen(own[i]);
        if (!strncmp(assignment, own[i], length) && assignment[length] == '=')
            return mp_options_set(mp_suite_options, suite, "a suite", own[i],
                                  assignment + length + 1, "--set", error);
    }
    if (!strncmp(assignment, "name=", 5))
        return mp_fail(error, MP_EINVAL, "--set: name: jobs of a suite keep their own names");
    if (!strncmp(assignment, "options.", 8))
        return set_system_option(suite, assignment, systems, error);
    int measured = 0;
    for (int i = 0; i < suite->count; i++)
        measured += suite->job[i].executor != MP_EXECUTOR_PREDICTED;
    if (measured == 0)
        MP_TRY(mp_predict_job_check_setting("--set", assignment, error));
    for (int i = 0; i < suite->count; i++)
        MP_TRY(mp_predict_job_set(&suite->job[i], assignment, systems, error));
    return MP_OK;
}

/* Whether a byte is in a file, or in one below a folder. */
static bool has_text(char *path) {
    char *const paths[] = {path, NULL};
    FTS *tree = fts_open(paths, FTS_LOGICAL | FTS_NOCHDIR, NULL);
    FTSENT *entry;
    bool found = false;
    while (tree && !found && (entry = fts_read(tree))) {
        MP_AUTO(file) FILE *file = entry->fts_info == FTS_F ? fopen(entry->fts_path, "re") : NULL;
        found = file && getc(file) != EOF;
    }
    if (tree)
        fts_close(tree);
    return found;
}

/* Every one of the job's files and folders must be there before anything runs, and not all empty.
 */
static int check_text(const char *key, const struct mp_job *job, struct mp_error *error) {
    char path[MP_TEXT_SIZE];
    bool is_empty = *job->text;
    for (const char *at = job->text; *at;) {
        size_t length = strcspn(at, ":");
        memcpy(path, at, length);
        path[length] = '\0';
        if (access(path, R_OK))
            return mp_fail(error, MP_ENOTFOUND, "%s: %s: %s", key, path, strerror(errno));
        is_empty = is_empty && !has_text(path);
        at += length + (at[length] == ':');
    }
    return is_empty ? mp_fail(error, MP_EINVAL,
                              "%s: %.500s: there is not one byte in it; files of text, or folders "
                              "with some, are right",
                              key, job->text)
                    : MP_OK;
}

static int resolve_text(struct mp_job *job, const char *replacement, struct mp_error *error) {
    if (replacement) {
        if (strlen(replacement) >= sizeof job->text)
            return mp_fail(error, MP_EINVAL, "--text: longer than %d characters", MP_TEXT_SIZE - 1);
        strcpy(job->text, replacement);
    }
    if (!strcmp(job->text, "default"))
        return mp_path_default_text(job->text, error);
    return MP_OK;
}

/* Of a job that its system refuses the rest is checked, too: MP_EREFUSED comes last. */
static int finish_measured(struct mp_job_file *file, const struct mp_suite_changes *changes,
                           struct mp_error *error) {
    struct mp_error own = {0};
    int code = MP_OK;
    MP_TRY(resolve_text(&file->job, changes->text, error));
    int checked = mp_job_check(file, &own);
    if (checked && checked != MP_EREFUSED)
        return mp_fail(error, checked, "%s", own.text);
    if (!changes->text)
        code = check_text("text", &file->job, error);
    if (!code)
        code = mp_suite_check_loads(&file->job, error);
    return code || !checked ? code : mp_fail(error, checked, "%s", own.text);
}

int mp_suite_job_cluster(struct mp_predict_job *job, struct mp_cluster **cluster,
                         struct mp_error *error) {
    char path[MP_PATH_SIZE];
    if (!*job->cluster)
        return mp_fail(error, MP_EINVAL,
                       "cluster: not given; a prediction needs --cluster with the name of one "
                       "(moeperf list clusters) or a file");
    MP_TRY(mp_path_file(MP_CLUSTERS, job->cluster, path, error));
    return mp_predict_job_cluster(job, path, cluster, error);
}

static int finish_predicted(struct mp_predict_job *job, struct mp_cluster **cluster,
                            struct mp_error *error) {
    struct mp_error own = {0};
    int code = MP_OK;
    MP_TRY(mp_suite_job_cluster(job, cluster, error));
    int checked = mp_predict_job_check(job, *cluster, &own);
    if (checked && checked != MP_EREFUSED)
        return mp_fail(error, checked, "%s", own.text);
    /* Without loads of its own it meets those of the measured job, under the same name. */
    if (!*job->loads && !job->fit)
        code = mp_suite_check_loads(&job->file.job, error);
    return code || !checked ? code : mp_fail(error, checked, "%s", own.text);
}

static int finish_job(struct mp_suite *suite, int i, const struct mp_suite_changes *changes,
                      struct mp_error *error) {
    struct mp_error own = {0};
    int code = mp_suite_is_predicted(suite, i)
                   ? finish_predicted(&suite->job[i], &suite->cluster[i], &own)
                   : finish_measured(&suite->job[i].file, changes, &own);
    if (code == MP_EREFUSED) {
        suite->refusal[i] = mp_arena_text(&suite->arena, own.text);
        return mp_arena_check(&suite->arena, error);
    }
    return !code ? MP_OK
                 : mp_fail(error, code, "%s:%d: job %.100s: %s", suite->path, suite->line[i],
                           suite->job[i].file.job.name, own.text);
}

/* A cluster in a suite without predicted jobs means that `executor` was forgotten. */
static int check_executors(const struct mp_suite *suite, struct mp_error *error) {
    int named = -1;
    for (int i = 0; i < suite->count; i++) {
        if (mp_suite_is_predicted(suite, i))
            return MP_OK;
        named = *suite->job[i].cluster || *suite->job[i].loads ? i : named;
    }
    if (named < 0)
        return MP_OK;
    return mp_fail(
        error, MP_EINVAL,
        "%s:%d: job %.100s has a cluster or loads, which are for predictions, and no job "
        "of the suite says executor: predicted",
        suite->path, suite->line[named], suite->job[named].file.job.name);
}

/* What is wrong with a line of a file that is no YAML at all doesn't say that it is the wrong file;
 * its name may. */
static int parse(const struct mp_suite *suite, size_t size, struct mp_yaml **document,
                 struct mp_error *error) {
    struct mp_error first = {0};
    int code = mp_yaml_parse(suite->path, suite->text, size, document, &first);
    const char *ending = strrchr(suite->path, '.');
    bool is_other = code == MP_EFORMAT && (!ending || strcmp(ending, ".yaml") != 0);
    return code ? mp_fail(error, code, "%s%s", first.text,
                          is_other ? "; is this file a suite? One is written in YAML (moeperf show "
                                     "suite says what it holds)"
                                   : "")
                : MP_OK;
}

static int create(const char *path, const char *text, const struct mp_systems *systems,
                  const struct mp_suite_changes *changes, struct mp_suite *suite,
                  struct mp_error *error) {
    MP_AUTO(yaml) struct mp_yaml *document = NULL;
    size_t size = text ? strlen(text) : 0;
    *suite = (struct mp_suite){.path = strdup(path), .text = text ? strdup(text) : NULL};
    if (!suite->path || (text && !suite->text))
        return mp_fail(error, MP_ENOMEM, "%s: no memory for the suite", path);
    if (!text)
        MP_TRY(mp_yaml_read_file(path, &suite->text, &size, error));
    MP_TRY(parse(suite, size, &document, error));
    const struct mp_reading reading = {suite->path, error};
    MP_TRY(mp_options_read(&reading, mp_suite_options, "a suite", document, suite));
    MP_TRY(read_jobs(suite, systems, error));
    suite->common = suite->jobs = NULL; /* they go with the document */
    for (int i = 0; i < suite->count && changes->predicted; i++)
        suite->job[i].executor = MP_EXECUTOR_PREDICTED;
    for (int i = 0; i < changes->set_count; i++)
        MP_TRY(set_one(suite, changes->set[i], systems, error));
    int measured = -1;
    MP_TRY(check_executors(suite, error));
    for (int i = 0; i < suite->count; i++) {
        MP_TRY(finish_job(suite, i, changes, error));
        measured = mp_suite_is_predicted(suite, i) ? measured : i;
    }
    if (changes->text && measured >= 0) /* the same for all jobs */
        MP_TRY(check_text("--text", &suite->job[measured].file.job, error));
    /* With every job refused there is nothing to run. */
    char others[64] = "";
    if (mp_suite_possible(suite) > 0)
        return MP_OK;
    if (suite->count > 1)
        snprintf(others, sizeof others, "; the other jobs (%d) are refused, too", suite->count - 1);
    return mp_fail(error, MP_EREFUSED, "%s:%d: job %.100s: %s%s", suite->path, suite->line[0],
                   suite->job[0].file.job.name, suite->refusal[0], others);
}

int mp_suite_parse(const char *path, const char *text, const struct mp_systems *systems,
                   const struct mp_suite_changes *changes, struct mp_suite *suite,
                   struct mp_error *error) {
    static const struct mp_suite_changes no_changes;
    int code = create(path, text, systems, changes ? changes : &no_changes, suite, error);
    if (code)
        mp_suite_destroy(suite);
    return code;
}

int mp_suite_load(const char *path, const struct mp_systems *systems,
                  const struct mp_suite_changes *changes, struct mp_suite *suite,
                  struct mp_error *error) {
    return mp_suite_parse(path, NULL, systems, changes, suite, error);
}
