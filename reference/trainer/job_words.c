/* What a job comes to: its gate's rule; and in words, by which runs are told apart. */
#include <inttypes.h>
#include <stdlib.h>

#include "reference/trainer/job.h"

static bool renormalises(const struct mp_job *job) {
    return job->renormalise == MP_RENORMALISE_AUTO ? mp_job_top_k(job) > 1
                                                   : job->renormalise == MP_RENORMALISE_YES;
}

int mp_job_gate_rule(const struct mp_job *job, struct mp_gate_rule *rule, struct mp_error *error) {
    const struct mp_gate_sizes sizes = mp_job_gate_sizes(job);
    return mp_gate_rule(mp_job_gate_kind(job), &sizes, renormalises(job), &job->gate_options, rule,
                        error);
}

bool mp_job_takes_fewer(const struct mp_job *job) {
    struct mp_gate_rule rule;
    return !mp_job_gate_rule(job, &rule, NULL) && mp_gate_takes_fewer(&rule);
}

const char *mp_job_gate(const struct mp_job *job, char buffer[MP_GATE_WORDS]) {
    return mp_gate_words(mp_job_gate_kind(job), mp_job_top_k(job), renormalises(job),
                         &job->gate_options, buffer);
}

const char *mp_job_mode(const struct mp_job *job) {
    static const char *const modes[] = {"train", "prefill", "decode"};
    return modes[job->mode];
}

const char *mp_job_model(const struct mp_job *job, char buffer[MP_MODEL_WORDS]) {
    char shared[32] = "", serving[64] = "";
    if (job->shared_experts > 0)
        snprintf(shared, sizeof shared, " and %d for all tokens", job->shared_experts);
    if (mp_job_serves(job))
        snprintf(serving, sizeof serving, ", %s behind %d", mp_job_mode(job), job->context);
    snprintf(buffer, MP_MODEL_WORDS,
             "layers %d, width %d, heads %d, experts %d x %d%s, sequence %d, batch %d%s",
             job->layers, job->width, job->heads, job->experts, job->expert_width, shared,
             mp_job_step_tokens(job), job->batch, serving);
    return buffer;
}

/* Tells load matrices apart: FNV-1a over what is written, blanks left out. */
static uint32_t digest_of_load(const char *load) {
    uint32_t digest = 2166136261u;
    for (; *load; load++)
        if (*load != ' ')
            digest = (digest ^ (unsigned char)*load) * 16777619u;
    return digest;
}

const char *mp_job_workload(const struct mp_job *job, char *buffer, size_t size) {
    char share[32];
    switch (job->routing) {
    case MP_ROUTING_BALANCED:
        snprintf(buffer, size, "balanced");
        break;
    case MP_ROUTING_SKEWED:
        snprintf(share, sizeof share, "%.2f", job->skew_share);
        if (strtod(share, NULL) != job->skew_share)
            snprintf(share, sizeof share, "%.6f", job->skew_share);
        snprintf(buffer, size, "skewed %s on %d", share, job->skew_experts);
        break;
    case MP_ROUTING_LOAD:
        snprintf(buffer, size, "load %08" PRIx32, digest_of_load(job->load));
        break;
    case MP_ROUTING_TRACE:
        snprintf(buffer, size, "trace%s%.16s", *job->trace_digest ? " " : "", job->trace_digest);
        break;
    default:
        snprintf(buffer, size, "text");
        break;
    }
    return buffer;
}
