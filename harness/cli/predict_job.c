#include "harness/cli/predict_job.h"

#include <string.h>

#include "harness/suite/paths.h"

enum { SEQUENCES = 4 };

/* Sizes of Hecate's GPT-MoE-S (its set-up of the evaluation). */
static void set_usual_sizes(struct mp_job *job) {
    job->layers = 12;
    job->width = 768;
    job->heads = 12;
    job->experts = 64;
    job->expert_width = 1536;
    job->sequence = 2048;
    job->batch = 0; /* by the ranks, once they are known */
}

static int apply_settings(struct mp_predict_job *job, const struct mp_systems *systems,
                          const char *const item[], int count, struct mp_error *error) {
    int code = MP_OK;
    for (int i = 0; i < count && !code; i++)
        if (strncmp(item[i], "options.", 8) != 0) /* of each system */
            code = mp_predict_job_set(job, item[i], systems, error);
    return code;
}

int cli_prepare_job(const struct mp_systems *systems, const char *const item[], int count,
                    struct mp_predict_job *job, struct mp_error *error) {
    char folder[MP_PATH_SIZE];
    struct mp_cluster *cluster = NULL;
    job->executor = MP_EXECUTOR_PREDICTED;
    set_usual_sizes(&job->file.job);
    int code = mp_path_clusters(folder, error);
    if (!code)
        code = mp_predict_job_set(job, "system=ep", systems, error);
    if (!code)
        code = apply_settings(job, systems, item, count, error);
    if (!code)
        code = mp_predict_job_cluster(job, folder, &cluster, error);
    if (!code)
        code = mp_predict_job_adopt(job, cluster, error);
    if (!code)
        code = apply_settings(job, systems, item, count, error);
    int64_t batch = (int64_t)job->file.job.ranks * job->options.micro_batches * SEQUENCES;
    if (!code && job->file.job.batch == 0 && batch <= 1 << 24)
        job->file.job.batch = (int)batch;
    mp_cluster_destroy(cluster);
    return code;
}
