#include "reference/trainer/sizes.h"

static const double FP32_BYTES = 4;

struct mp_element_sizes mp_training_elements(size_t element) {
    double bytes = (double)element, moments = 2 * FP32_BYTES;
    return (struct mp_element_sizes){
        .expert_matrices = 2,
        .element = bytes,
        .gradient = FP32_BYTES,
        .optimizer = bytes < FP32_BYTES ? FP32_BYTES + moments : moments,
    };
}

size_t mp_job_element_bytes(const struct mp_job *job) {
    return job->precision == MP_PRECISION_BF16 ? 2 : 4;
}

/* The optimizer's fp32 copy travels in the place of the elements, if there is one. */
static struct mp_move_bytes move_bytes(const struct mp_element_sizes *elements, double parameters) {
    bool has_copy = elements->element < FP32_BYTES && elements->optimizer >= FP32_BYTES;
    double state = has_copy ? elements->optimizer - FP32_BYTES : elements->optimizer;
    return (struct mp_move_bytes){
        (int64_t)(parameters * (has_copy ? FP32_BYTES : elements->element)),
        (int64_t)(parameters * state)};
}

void mp_job_sizes(const struct mp_job *job, const struct mp_element_sizes *elements,
                  struct mp_sizes *sizes) {
    double parameters =
        (double)elements->expert_matrices * job->width * job->expert_width / mp_job_shards(job);
    struct mp_element_sizes kept = *elements;
    if (mp_job_serves(job))
        kept.gradient = kept.optimizer = 0;
    *sizes = (struct mp_sizes){
        .expert_parameters = parameters,
        .row = elements->element * job->width,
        .expert = elements->element * parameters,
        .expert_gradient = kept.gradient * parameters,
        .expert_state = kept.optimizer * parameters,
        .move = move_bytes(&kept, parameters),
    };
}

void mp_job_setting(const struct mp_job *job, const struct mp_sizes *sizes,
                    const struct mp_topology *topology, int micro_batches,
                    struct mp_setting *setting) {
    int64_t parts = (int64_t)topology->ranks * micro_batches;
    struct mp_gate_rule rule;
    mp_job_gate_rule(job, &rule, NULL); /* the job's check says what is wrong with it */
    *setting = (struct mp_setting){
        .layers = job->layers,
        .experts = mp_job_plan_experts(job),
        .top_k = mp_job_top_k(job) * mp_job_shards(job),
        .shards = mp_job_shards(job),
        .expert_width = job->expert_width,
        .fixed_choices = mp_gate_has_own_choices(&rule),
        .choices_apart = rule.prototypes > 1,
        .topology = *topology,
        .micro_batches = micro_batches,
        .tokens_per_rank = job->batch / parts * mp_job_step_tokens(job),
        .forward_only = mp_job_serves(job),
        .expert_bytes = (int64_t)sizes->expert,
        .gradient_bytes = (int64_t)sizes->expert_gradient,
        .route_bytes = (int64_t)sizes->row,
        .attention_bytes = (int64_t)(4.0 * job->width * job->width * sizes->expert_gradient /
                                     sizes->expert_parameters),
        .exchange = job->exchange,
        .exchange_degree = job->exchange_degree,
        .weights_behind = (enum mp_weights_behind)job->weights_behind,
        .seed = (uint64_t)job->seed,
    };
}

void mp_job_given_figures(const struct mp_job *job, const struct mp_sizes *sizes,
                          struct mp_setting *setting) {
    if (job->bandwidth > 0) { /* with latency, as what is measured */
        setting->bandwidth = setting->bandwidth_in_node = job->bandwidth;
        setting->latency = setting->latency_in_node = 0;
    }
    if (job->bandwidth_in_node > 0)
        setting->bandwidth_in_node = job->bandwidth_in_node;
    if (job->non_moe_seconds > 0)
        setting->non_moe_seconds = job->non_moe_seconds;
    if (job->copies_memory > 0)
        setting->copies_memory = job->copies_memory;
    if (job->expert_rate > 0) {
        setting->seconds_per_route = mp_sizes_route_flops(sizes) / job->expert_rate;
        setting->seconds_per_expert = 0;
    }
}

void mp_job_usual_figures(struct mp_setting *setting) {
    if (!(setting->bandwidth > 0))
        setting->bandwidth = 1e9;
    if (!(setting->bandwidth_in_node > 0))
        setting->bandwidth_in_node = setting->bandwidth;
    if (!(setting->seconds_per_route > 0))
        setting->seconds_per_route = setting->seconds_per_expert = 1e-6;
    if (!(setting->non_moe_seconds > 0))
        setting->non_moe_seconds = 1e-3;
}
