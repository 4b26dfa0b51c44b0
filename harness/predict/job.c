#include "harness/predict/job.h"

#include <stdlib.h>
#include <string.h>

#include "reference/base/digest.h"
#include "reference/trainer/inject.h"

#define FIELD(member) offsetof(struct mp_predict_job, member)

const struct mp_option mp_predict_job_options[] = {
    {"executor", MP_OPTION_CHOICE, FIELD(executor), "", "measured", 0, 0, "measured predicted",
     "who carries the job out: ranks that train, or the predictor"},
    {"cluster", MP_DECIDES(MP_OPTION_TEXT), FIELD(cluster), "", "", 0, 0, NULL,
     "cluster to predict on: a ready-made one or a file; it gives the ranks"},
    {"change", MP_DECIDES(MP_OPTION_TEXT), FIELD(change), "", "", 0, 0, NULL,
     "what is different in the cluster, with blanks between: nodes=2 levels.node.bandwidth=50e9"},
    {"loads", MP_OPTION_TEXT, FIELD(loads), "", "", 0, 0, NULL,
     "a trace file, or a generator with options, as in \"zipf exponent=1\"; empty: as routing "
     "says"},
    {"fit", MP_OPTION_BOOL, FIELD(fit), "", "no", 0, 0, NULL,
     "fold or split a trace of another shape to the job's"},
    {0},
};

int mp_predict_job_create(struct mp_predict_job *job, struct mp_error *error) {
    memset(job, 0, sizeof *job);
    MP_TRY(mp_job_file_create(&job->file, error));
    MP_TRY(mp_options_set_defaults(mp_predict_job_options, job, error));
    return mp_options_set_defaults(mp_predict_options_table, &job->options, error);
}

void mp_predict_job_destroy(struct mp_predict_job *job) {
    if (!job)
        return;
    mp_job_file_destroy(&job->file);
    memset(job, 0, sizeof *job);
}

/* ---- reading and writing ---- */

/* What a prediction has beside a job's own options. */
struct groups {
    struct mp_option_group group[3];
};
static struct groups groups_of(const struct mp_predict_job *const_job) {
    struct mp_predict_job *job = (struct mp_predict_job *)const_job; /* writing changes none */
    return (struct groups){{{"", mp_predict_job_options, job, "a job"},
                            {"predict", mp_predict_options_table, &job->options, "predict"}}};
}

int mp_predict_job_apply(struct mp_predict_job *job, const struct mp_yaml *mapping,
                         const char *path, const struct mp_systems *systems,
                         struct mp_error *error) {
    return mp_job_apply(&job->file, groups_of(job).group, mapping, path, systems, error);
}

int mp_predict_job_set(struct mp_predict_job *job, const char *assignment,
                       const struct mp_systems *systems, struct mp_error *error) {
    return mp_job_set(&job->file, groups_of(job).group, assignment, systems, error);
}

int mp_predict_job_text(const struct mp_predict_job *job, bool is_predicted, char **text,
                        struct mp_error *error) {
    size_t size;
    *text = NULL;
    FILE *stream = open_memstream(text, &size);
    int code = !stream ? MP_OK
                       : mp_job_write(&job->file, is_predicted ? groups_of(job).group : NULL,
                                      stream, error);
    if (!stream || (fclose(stream) && !code))
        code = mp_fail(error, MP_ENOMEM, "no memory for a job file");
    if (code) {
        free(*text);
        *text = NULL;
    }
    return code;
}

char *mp_predict_job_defaults(const struct mp_systems *systems, const char *system,
                              const char *gate, bool is_predicted) {
    MP_AUTO(predict_job) struct mp_predict_job job;
    struct mp_error unused = {0};
    char *text, assignment[2][100];
    if (mp_predict_job_create(&job, &unused))
        return NULL;
    snprintf(assignment[0], sizeof *assignment, "system=%s", system);
    snprintf(assignment[1], sizeof *assignment, "gate=%s", gate);
    for (int i = 0; i < 2; i++)
        mp_predict_job_set(&job, assignment[i], systems, &unused);
    mp_predict_job_text(&job, is_predicted, &text, &unused);
    return text;
}

/* ---- what is compared ---- */

int mp_predict_job_deciding(const struct mp_predict_job *job, bool is_predicted,
                            struct mp_option_group group[3]) {
    struct mp_predict_job *own = (struct mp_predict_job *)job; /* nobody writes to it */
    group[0] = (struct mp_option_group){"", mp_job_options, &own->file.job, "a job"};
    group[1] = groups_of(job).group[0];
    group[2] = groups_of(job).group[1];
    return is_predicted ? 3 : 1;
}

uint64_t mp_predict_job_setting(const struct mp_predict_job *job, bool is_predicted) {
    const struct mp_job *own = &job->file.job;
    const struct mp_topology topology = mp_job_topology(own, own->ranks);
    struct mp_option_group group[3];
    char model[MP_MODEL_WORDS], gate[MP_GATE_WORDS], value[MP_TEXT_SIZE];
    int groups = mp_predict_job_deciding(job, is_predicted, group);
    snprintf(value, sizeof value, "%d of %d ranks, %d threads, predicted %d", own->ranks,
             topology.ranks_per_node, own->threads, is_predicted);
    uint64_t digest =
        mp_digest(mp_digest(MP_DIGEST, mp_job_model(own, model)), mp_job_gate(own, gate));
    digest = mp_digest(digest, value);
    for (int g = 0; g < groups; g++)
        for (const struct mp_option *row = group[g].table; row->name; row++)
            if (mp_option_decides(row))
                digest = mp_digest(mp_digest(digest, row->name),
                                   mp_options_format(row, group[g].values, value, sizeof value));
    return digest;
}

/* ---- the cluster ---- */

/* One word after the other. */
static int change_cluster(struct mp_cluster *cluster, const char *change, struct mp_error *error) {
    char words[MP_TEXT_SIZE], *rest = words, *word;
    snprintf(words, sizeof words, "%s", change);
    while ((word = strsep(&rest, " ")))
        if (*word)
            MP_TRY(mp_cluster_set(cluster, word, error));
    return MP_OK;
}

int mp_predict_job_cluster(struct mp_predict_job *job, const char *path,
                           struct mp_cluster **cluster, struct mp_error *error) {
    struct mp_cluster *read;
    MP_TRY(mp_cluster_load(path, &read, error));
    int code = change_cluster(read, job->change, error);
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

int mp_predict_job_check_setting(const char *flag, const char *assignment, struct mp_error *error) {
    static const char cluster[] =
        "a prediction has the ranks and nodes of its cluster: --nodes N, or --set change=nodes=N, "
        "takes so many nodes of it, a file of your own has others (moeperf show cluster)";
    static const char device[] = "that is how ranks train; a prediction has its cluster's device "
                                 "(moeperf show cluster)";
    static const char training[] = "that is how ranks train, and changes nothing in a prediction; "
                                   "leave it out";
    static const struct {
        const char *keys, *why; /* a blank on both sides of each */
    } others[] = {
        {" ranks ranks-per-node nodes ", cluster},
        {" device threads grouped-products ", device},
        {" precision ",
         "that is how ranks train; a prediction has predict.precision (moeperf show predict)"},
        {" seed ", "what is drawn here has a seed of its own: --loads \"zipf seed=3\""},
        {" auxiliary-weight text validation-share validate-every validation-batches target-loss "
         "target-window learning-rate beta1 beta2 epsilon weight-decay checkpoint "
         "checkpoint-every restore record record-routes ",
         training}};
    char key[64];
    const int length = (int)strcspn(assignment, "=");
    snprintf(key, sizeof key, " %.*s ", length, assignment);
    for (size_t i = 0; i < MP_LENGTH(others); i++)
        if (strstr(others[i].keys, key))
            return mp_fail(error, MP_EINVAL, "%s %.100s: %s", flag, assignment, others[i].why);
    return MP_OK;
}

/* ---- checking ---- */

/* What the trainer would delay has to be there in a prediction. */
static int check_inject(const struct mp_predict_job *job, struct mp_error *error) {
    struct mp_inject inject;
    MP_TRY(mp_inject_parse(job->file.job.inject, &inject, error));
    if (inject.seconds > 0 && inject.phase == MP_PHASE_DATA)
        return mp_fail(error, MP_EINVAL,
                       "inject: phase data is not predicted: it takes no time of a prediction; "
                       "embed begins an iteration");
    return MP_OK;
}

bool mp_predict_option_counts(const struct mp_job *job, const char *name) {
    if (!mp_job_serves(job))
        return strcmp(name, "cache-width") != 0;
    return strcmp(name, "recompute") != 0 && strcmp(name, "gradient-bytes") != 0 &&
           strcmp(name, "optimizer-bytes") != 0;
}

/* What only the other kind of iteration has would change nothing. */
static int check_mode(const struct mp_predict_job *job, struct mp_error *error) {
    const struct mp_job *own = &job->file.job;
    struct mp_predict_options defaults;
    char value[64], usual[64];
    MP_TRY(mp_options_set_defaults(mp_predict_options_table, &defaults, error));
    for (const struct mp_option *row = mp_predict_options_table; row->name; row++)
        if (!mp_predict_option_counts(own, row->name) &&
            strcmp(mp_options_format(row, &job->options, value, sizeof value),
                   mp_options_format(row, &defaults, usual, sizeof usual)) != 0)
            return mp_fail(error, MP_EINVAL,
                           "predict.%s: mode %s has no %s; leave it out, or take mode %s",
                           row->name, mp_job_mode(own), mp_job_serves(own) ? "backward" : "cache",
                           mp_job_serves(own) ? "train" : "prefill or decode");
    return MP_OK;
}

int mp_predict_job_check(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                         struct mp_error *error) {
    struct mp_costs *costs;
    struct mp_trace_stream *stream;
    struct mp_error model = {0};
    int checked = mp_job_check_model(&job->file, &model);
    if (checked && checked != MP_EREFUSED)
        return mp_fail(error, checked, "%s", model.text);
    MP_TRY(check_inject(job, error));
    MP_TRY(check_mode(job, error));
    MP_TRY(mp_costs_create(cluster, &job->file.job, &job->options, &costs, error));
    mp_costs_destroy(costs);
    MP_TRY(mp_predict_job_loads(job, cluster, &stream, error));
    mp_trace_stream_destroy(stream);
    return checked ? mp_fail(error, checked, "%s", model.text) : MP_OK;
}

const char *mp_predict_job_workload(const struct mp_predict_job *job, char *buffer, size_t size) {
    if (!*job->loads)
        return mp_job_workload(&job->file.job, buffer, size);
    snprintf(buffer, size, "%s%s", job->loads, job->fit ? ", fitted" : "");
    return buffer;
}
