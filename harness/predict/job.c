/* Predicted jobs as text: see job.h. */
#include "harness/predict/job.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "reference/trainer/inject.h"

#define FIELD(member) offsetof(struct mp_predict_job, member)

const struct mp_option mp_predict_job_options[] = {
    {"executor", MP_OPTION_CHOICE, FIELD(executor), "", "measured", 0, 0, "measured predicted",
     "who carries the job out: ranks that train, or the predictor"},
    {"cluster", MP_OPTION_TEXT, FIELD(cluster), "", "", 0, 0, NULL,
     "cluster to predict on: a ready-made one or a file; it gives the ranks"},
    {"change", MP_OPTION_TEXT, FIELD(change), "", "", 0, 0, NULL,
     "what is different in the cluster, with blanks between: nodes=2 levels.node.bandwidth=50e9"},
    {"loads", MP_OPTION_TEXT, FIELD(loads), "", "", 0, 0, NULL,
     "a trace file, or a generator with options, as in \"zipf exponent=1\"; empty: as routing "
     "says"},
    {"fit", MP_OPTION_BOOL, FIELD(fit), "", "no", 0, 0, NULL,
     "fold or split a trace of another shape to the job's"},
    {0},
};

static const char OWNER[] = "a predicted job";
static const char OPTIONS_OWNER[] = "predict";
static const char OPTIONS_PREFIX[] = "predict.";
enum { WHERE_SIZE = 512, PATH_SIZE = MP_TEXT_SIZE };

int mp_predict_job_create(struct mp_predict_job *job, struct mp_error *error) {
    memset(job, 0, sizeof *job);
    int code = mp_job_file_create(&job->file, error);
    if (!code)
        code = mp_options_set_defaults(mp_predict_job_options, job, error);
    if (!code)
        code = mp_options_set_defaults(mp_predict_options_table, &job->options, error);
    return code;
}

void mp_predict_job_destroy(struct mp_predict_job *job) {
    if (!job)
        return;
    mp_job_file_destroy(&job->file);
    memset(job, 0, sizeof *job);
}

/* ---- reading ---- */

static int apply_options(struct mp_predict_job *job, const struct mp_yaml *mapping,
                         const char *path, struct mp_error *error) {
    char where[WHERE_SIZE];
    if (mapping->kind == MP_YAML_SCALAR && !*mapping->text)
        return MP_OK; /* "predict:" with nothing under it */
    if (mapping->kind != MP_YAML_MAPPING)
        return mp_fail(error, MP_EINVAL, "%s:%d: predict: should be a mapping of options", path,
                       mapping->line);
    for (int i = 0; i < mapping->count; i++) {
        const struct mp_yaml *value = mapping->item[i];
        snprintf(where, sizeof where, "%s:%d", path, mapping->key_line[i]);
        if (value->kind != MP_YAML_SCALAR &&
            mp_options_find(mp_predict_options_table, mapping->key[i]))
            return mp_fail(error, MP_EINVAL, "%s: %s: should be one value", where, mapping->key[i]);
        int code = mp_options_set(mp_predict_options_table, &job->options, OPTIONS_OWNER,
                                  mapping->key[i], value->text ? value->text : "", where, error);
        if (code)
            return code;
    }
    return MP_OK;
}

/* A key that is neither a job's nor one of ours, but near to one of ours. */
static int check_key(const char *key, const char *where, struct mp_error *error) {
    const char *const known[] = {"executor", "cluster", "change", "loads", "fit", "predict", NULL};
    if (mp_options_find(mp_job_options, key) || !strcmp(key, "options"))
        return MP_OK;
    const char *nearest = mp_nearest_word(key, known);
    if (!nearest)
        return MP_OK; /* mp_job_apply and mp_job_set have words for it */
    return mp_fail(error, MP_EINVAL, "%s: unknown option \"%.80s\" for %s; did you mean \"%s\"?",
                   where, key, OWNER, nearest);
}

/* Entry i, if it is one of ours; otherwise it is left for mp_job_apply in `rest`. */
static int apply_entry(struct mp_predict_job *job, const struct mp_yaml *mapping, int i,
                       const char *path, struct mp_yaml *rest, struct mp_error *error) {
    const char *key = mapping->key[i];
    const struct mp_yaml *value = mapping->item[i];
    char where[WHERE_SIZE];
    snprintf(where, sizeof where, "%s:%d", path, mapping->key_line[i]);
    if (!strcmp(key, "predict"))
        return apply_options(job, value, path, error);
    if (!mp_options_find(mp_predict_job_options, key)) {
        rest->key[rest->count] = mapping->key[i];
        rest->key_line[rest->count] = mapping->key_line[i];
        rest->item[rest->count++] = mapping->item[i];
        return check_key(key, where, error);
    }
    if (value->kind != MP_YAML_SCALAR)
        return mp_fail(error, MP_EINVAL, "%s: %s: should be one value", where, key);
    return mp_options_set(mp_predict_job_options, job, OWNER, key, value->text, where, error);
}

int mp_predict_job_apply(struct mp_predict_job *job, const struct mp_yaml *mapping,
                         const char *path, const struct mp_systems *systems,
                         struct mp_error *error) {
    if (mapping->kind != MP_YAML_MAPPING)
        return mp_job_apply(&job->file, mapping, path, systems, error);
    size_t count = (size_t)mapping->count + 1;
    struct mp_yaml rest = {.kind = MP_YAML_MAPPING, .line = mapping->line};
    rest.key = calloc(count, sizeof *rest.key);
    rest.key_line = calloc(count, sizeof *rest.key_line);
    rest.item = calloc(count, sizeof *rest.item);
    int code = rest.key && rest.key_line && rest.item
                   ? MP_OK
                   : mp_fail(error, MP_ENOMEM, "%s: no memory for a job", path);
    for (int i = 0; i < mapping->count && !code; i++)
        code = apply_entry(job, mapping, i, path, &rest, error);
    if (!code)
        code = mp_job_apply(&job->file, &rest, path, systems, error);
    free(rest.key);
    free(rest.key_line);
    free(rest.item);
    return code;
}

int mp_predict_job_set(struct mp_predict_job *job, const char *assignment,
                       const struct mp_systems *systems, struct mp_error *error) {
    char name[128];
    size_t length = strcspn(assignment, "="), prefix = sizeof OPTIONS_PREFIX - 1;
    if (!assignment[length] || !length || length >= sizeof name)
        return mp_job_set(&job->file, assignment, systems, error); /* it says what is wrong */
    const char *value = assignment + length + 1;
    memcpy(name, assignment, length);
    name[length] = '\0';
    if (!strncmp(name, OPTIONS_PREFIX, prefix))
        return mp_options_set(mp_predict_options_table, &job->options, OPTIONS_OWNER, name + prefix,
                              value, "--set", error);
    if (mp_options_find(mp_predict_job_options, name))
        return mp_options_set(mp_predict_job_options, job, OWNER, name, value, "--set", error);
    if (strncmp(name, "options.", 8) != 0 && check_key(name, "--set", error))
        return MP_EINVAL;
    return mp_job_set(&job->file, assignment, systems, error);
}

/* ---- writing ---- */

static int write_table(const struct mp_option table[], const void *options, const char *indent,
                       FILE *stream, struct mp_error *error) {
    char value[MP_TEXT_SIZE];
    int code = MP_OK;
    for (const struct mp_option *option = table; option->name && !code; option++) {
        fprintf(stream, "%s%s: ", indent, option->name);
        mp_options_format(option, options, value, sizeof value);
        if (option->type == MP_OPTION_TEXT)
            code = mp_yaml_write_text(stream, value, error);
        else
            fputs(value, stream);
        fputc('\n', stream);
    }
    return code;
}

int mp_predict_job_write(const struct mp_predict_job *job, FILE *stream, struct mp_error *error) {
    int code = write_table(mp_predict_job_options, job, "", stream, error);
    fputs("predict:\n", stream);
    if (!code)
        code = write_table(mp_predict_options_table, &job->options, "  ", stream, error);
    return code ? code : mp_job_write(&job->file, stream, error);
}

/* ---- the cluster ---- */

/* The ready-made cluster's file; MP_ENOTFOUND with the nearest name. */
static int find_cluster(const char *name, const char *folder, char path[PATH_SIZE],
                        struct mp_error *error) {
    if (snprintf(path, PATH_SIZE, "%s/%s.yaml", folder, name) >= PATH_SIZE)
        return mp_fail(error, MP_ELIMIT, "cluster %.200s...: the path is too long", name);
    if (!access(path, F_OK))
        return MP_OK;
    enum { MOST = 256 };
    char pattern[PATH_SIZE], *known[MOST + 1] = {NULL};
    glob_t found = {0};
    int count = 0;
    snprintf(pattern, sizeof pattern, "%s/*.yaml", folder);
    if (!glob(pattern, 0, NULL, &found))
        for (; count < (int)found.gl_pathc && count < MOST; count++) {
            known[count] = strrchr(found.gl_pathv[count], '/') + 1;
            *strrchr(known[count], '.') = '\0';
        }
    const char *nearest = mp_nearest_word(name, (const char *const *)known);
    int code = mp_fail(error, MP_ENOTFOUND,
                       "no ready-made cluster is called \"%.200s\"%s%s%s (moeperf list clusters "
                       "names them; a file's name ends in .yaml)",
                       name, nearest ? "; did you mean \"" : "", nearest ? nearest : "",
                       nearest ? "\"?" : "");
    globfree(&found);
    return code;
}

/* One word after the other. */
static int change_cluster(struct mp_cluster *cluster, const char *change, struct mp_error *error) {
    char words[MP_TEXT_SIZE], *rest = words, *word;
    int code = MP_OK;
    snprintf(words, sizeof words, "%s", change);
    while (!code && (word = strsep(&rest, " ")))
        if (*word)
            code = mp_cluster_set(cluster, word, error);
    return code;
}

int mp_predict_job_cluster(struct mp_predict_job *job, const char *folder,
                           struct mp_cluster **cluster, struct mp_error *error) {
    const char *name = job->cluster;
    char path[PATH_SIZE];
    size_t length = strlen(name);
    int code = MP_OK;
    if (!length)
        return mp_fail(error, MP_EINVAL,
                       "cluster: not given; a prediction needs the name of one (moeperf list "
                       "clusters) or a file");
    if (strchr(name, '/') || (length > 5 && !strcmp(name + length - 5, ".yaml")))
        memcpy(path, name, length + 1); /* both hold MP_TEXT_SIZE */
    else
        code = find_cluster(name, folder, path, error);
    struct mp_cluster *read = NULL;
    if (!code)
        code = mp_cluster_load(path, &read, error);
    if (!code)
        code = change_cluster(read, job->change, error);
    if (code) {
        mp_cluster_destroy(read);
        return code;
    }
    job->file.job.ranks = mp_cluster_ranks(read);
    job->file.job.ranks_per_node = mp_cluster_topology(read).ranks_per_node;
    job->file.job.nodes = 0; /* these are the nodes */
    *cluster = read;
    return MP_OK;
}

/* ---- checking ---- */

/* What the trainer would delay, where a prediction has it. */
static int check_inject(const struct mp_predict_job *job, struct mp_error *error) {
    struct mp_inject inject;
    int ranks = job->file.job.ranks, code = mp_inject_parse(job->file.job.inject, &inject, error);
    if (!code && inject.rank >= ranks)
        code =
            mp_fail(error, MP_EINVAL, "inject: rank %d of a job with %d ranks", inject.rank, ranks);
    if (!code && inject.seconds > 0 && inject.phase == MP_PHASE_DATA)
        code = mp_fail(error, MP_EINVAL,
                       "inject: phase data is not predicted: it takes no time of a prediction; "
                       "embed begins an iteration");
    return code;
}

int mp_predict_job_check(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                         struct mp_error *error) {
    struct mp_costs *costs = NULL;
    struct mp_trace_stream *stream = NULL;
    int code = mp_job_check_model(&job->file, error);
    if (!code)
        code = check_inject(job, error);
    if (!code)
        code = mp_costs_create(cluster, &job->file.job, &job->options, &costs, error);
    mp_costs_destroy(costs);
    if (!code)
        code = mp_predict_job_loads(job, cluster, &stream, error);
    mp_trace_stream_destroy(stream);
    return code;
}

const char *mp_predict_job_workload(const struct mp_predict_job *job, char *buffer, size_t size) {
    if (!*job->loads)
        return mp_job_workload(&job->file.job, buffer, size);
    snprintf(buffer, size, "%s%s", job->loads, job->fit ? ", fitted" : "");
    return buffer;
}
