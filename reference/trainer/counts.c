#include "reference/trainer/counts.h"

#include <string.h>

/* Of a gate whose loss is not the same for all experts. */
static void create_loss_factors(struct mp_counts *counts, struct mp_arena *arena) {
    const struct mp_job *job = counts->job;
    const struct mp_gate_kind *gate = mp_gate_kinds[job->gate];
    const struct mp_gate_sizes sizes = mp_job_gate_sizes(job);
    const struct mp_topology topology = mp_job_topology(job, job->ranks);
    if (!gate->loss_factors)
        return;
    MP_TAKE(arena, counts->loss_factor, job->experts);
    if (counts->loss_factor)
        gate->loss_factors(&sizes, job->gate_options.bytes, &topology, counts->comm->rank,
                           counts->loss_factor);
}

int mp_counts_create(struct mp_counts *counts, struct mp_arena *arena, struct mp_error *error) {
    struct mp_device_memory *memory = &counts->model->memory;
    size_t layers = (size_t)counts->job->layers, experts = (size_t)counts->job->experts;
    size_t slopes = layers * experts * (size_t)mp_model_loss_parts(counts->model);
    size_t most = (2 + MP_MOST_DEGREE) * experts; /* chunks are known only with the first plan */
    MP_TAKE(arena, counts->own, most);
    MP_TAKE(arena, counts->all, most * (size_t)counts->comm->ranks);
    MP_TAKE(arena, counts->loss, layers);
    create_loss_factors(counts, arena);
    counts->slope =
        mp_device_take_host(memory, (int64_t)(slopes + layers * experts), sizeof *counts->slope);
    if (!counts->slope)
        return mp_no_memory(error);
    counts->step = counts->slope + slopes;
    return mp_arena_check(arena, error);
}

/* That a rank tells all others. */
static size_t told(const struct mp_counts *counts) {
    const struct mp_distinct_rows *distinct = counts->distinct;
    return (2 + (size_t)(distinct->chunk_routes ? distinct->paths->steps : 0)) *
           (size_t)counts->job->experts;
}

int mp_counts_start(struct mp_counts *counts, struct mp_error *error) {
    return mp_gather_counts_start(counts->comm, counts->own, (int)told(counts), counts->all,
                                  counts->request, error);
}

/* How often an expert was chosen in a part of the batch: over all its choices, or as first. */
static double chosen_in(const struct mp_counts *counts, int part, size_t expert) {
    const struct mp_gate_rule *rule = &counts->model->shape.gate;
    size_t experts = (size_t)counts->job->experts;
    size_t at = (rule->loss_counts == MP_COUNT_ALL ? 0 : experts) + expert;
    double chosen = 0;
    if (rule->loss_level != MP_BALANCE_BATCH)
        return mp_model_part_statistics(counts->model, part)[at];
    for (size_t r = 0; r < (size_t)counts->comm->ranks; r++)
        chosen += counts->all[r * told(counts) + at];
    return chosen;
}

/* This rank's part of the losses, and the balancing one's slopes. */
static void balance(struct mp_counts *counts, int layer) {
    struct mp_model *model = counts->model;
    const struct mp_gate_rule *rule = &model->shape.gate;
    size_t experts = (size_t)counts->job->experts, parts = (size_t)mp_model_loss_parts(model);
    double tokens = (double)counts->batch->global_tokens, loss = mp_model_gate_loss(model);
    double counted =
        rule->loss_level == MP_BALANCE_BATCH ? tokens : (double)model->tokens / (double)parts;
    double weight = rule->loss_counts == MP_COUNT_NONE ? 0 : counts->job->auxiliary_weight;
    counted *= rule->loss_divisor;
    float *slopes = counts->slope + (size_t)layer * parts * experts;
    for (size_t part = 0; part < parts; part++) {
        const float *mass =
            (const float *)(mp_model_part_statistics(model, (int)part) + 2 * experts);
        for (size_t e = 0; e < experts; e++) {
            double chosen = chosen_in(counts, (int)part, e);
            double slope = weight * (double)experts * (chosen / counted) / tokens;
            slope *= counts->loss_factor ? counts->loss_factor[e] : 1;
            slopes[part * experts + e] = (float)slope;
            loss += slope * mass[e];
        }
    }
    counts->loss[layer] = loss;
    model->device->operations->copy(model->device, model->stream, model->state[layer].auxiliary,
                                    slopes, parts * experts * sizeof *slopes);
}

int mp_counts_wait(struct mp_counts *counts, int layer, struct mp_error *error) {
    size_t experts = (size_t)counts->job->experts, each = told(counts), chunks = each - 2 * experts;
    struct mp_load *load = &counts->load[layer];
    uint32_t *chunk = mp_distinct_rows_chunks(counts->distinct, layer);
    MP_TRY(mp_request_wait(counts->request, error));
    for (size_t r = 0; r < (size_t)counts->comm->ranks; r++) {
        const uint32_t *count = counts->all + r * each;
        memcpy(load->count + r * (size_t)load->experts, count, experts * sizeof *count);
        memcpy(load->first + r * (size_t)load->experts, count + experts, experts * sizeof *count);
        if (chunk)
            memcpy(chunk + r * chunks, count + 2 * experts, chunks * sizeof *count);
    }
    mp_load_repeat(load, (int)experts);
    balance(counts, layer);
    return MP_OK;
}

double mp_counts_loss(const struct mp_counts *counts) {
    double sum = 0;
    for (int l = 0; l < counts->job->layers; l++)
        sum += counts->loss[l];
    return sum;
}

/* Experts with fewer routes than the mean become a little likelier, those with more less likely. */
static void move_bias(struct mp_counts *counts, int layer) {
    struct mp_model *model = counts->model;
    const struct mp_load *load = &counts->load[layer];
    const struct mp_device_operations *operations = model->device->operations;
    size_t experts = (size_t)counts->job->experts;
    float *step = counts->step + (size_t)layer * experts;
    float rate = model->shape.gate.bias_rate;
    int64_t all = mp_load_total(load);
    for (size_t e = 0; e < experts; e++) {
        int64_t own = 0;
        for (int r = 0; r < load->ranks; r++)
            own += (int64_t)load->experts * mp_load_at(load, r, (int)e);
        step[e] = own < all ? rate : own > all ? -rate : 0;
    }
    float *bias = mp_dense_block(&model->dense, model->dense.parameter, layer).gate_bias;
    operations->copy(model->device, model->stream, model->state[layer].auxiliary, step,
                     experts * sizeof *step);
    operations->add(model->device, model->stream, experts, bias, model->state[layer].auxiliary,
                    bias);
}

void mp_counts_move_biases(struct mp_counts *counts) {
    for (int l = 0; l < counts->job->layers && counts->model->shape.gate.bias_rate > 0; l++)
        move_bias(counts, l);
}
