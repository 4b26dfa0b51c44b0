/* What planners assume about this machine, measured before the first iteration on rank 0's clock
 * and told to all, so that every rank plans the same. */
#include <stdlib.h>
#include <string.h>

#include "reference/trainer/internal.h"

enum { REPETITIONS = 5 };

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double seconds[REPETITIONS]) {
    qsort(seconds, REPETITIONS, sizeof *seconds, ascending);
    return seconds[REPETITIONS / 2];
}

static void settle(struct mp_trainer *trainer) {
    trainer->device->operations->stream_synchronize(trainer->device, trainer->model.stream);
}

/* Forward of a block without its experts, on the tokens of the first batch (or of none). */
static double measure_non_moe(struct mp_trainer *trainer) {
    struct mp_model *model = &trainer->model;
    double seconds[REPETITIONS];
    for (int i = 0; i < model->tokens; i++)
        trainer->token[i] = trainer->target[i] = i % MP_VOCABULARY;
    mp_model_embed(model, trainer->token, trainer->target);
    mp_model_attention(model, 0);
    for (int i = 0; i < REPETITIONS; i++) {
        settle(trainer);
        int64_t start = mp_clock_ns();
        mp_model_attention(model, 0);
        mp_model_gate(model, 0, NULL, trainer->counts, trainer->counts + trainer->job.experts,
                      trainer->mass);
        settle(trainer);
        seconds[i] = 1e-9 * (double)(mp_clock_ns() - start);
    }
    return median(seconds);
}

/* Forward of the mean number of routes through one expert. */
static int measure_route(struct mp_trainer *trainer, double *seconds_per_route,
                         struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    const struct mp_device_operations *operations = trainer->device->operations;
    size_t bytes = (size_t)trainer->setting.expert_bytes;
    float *host = malloc(bytes), *chunk = operations->allocate(trainer->device, bytes);
    if (!host || !chunk) {
        free(host);
        operations->release(trainer->device, chunk);
        return mp_fail(error, MP_ENOMEM, "no memory to measure an expert of %zu bytes", bytes);
    }
    mp_expert_initialise(&model->shape, trainer->setting.seed, 0, 0, host);
    operations->copy_from_host(trainer->device, model->stream, chunk, host, bytes);

    int64_t routes = trainer->global_tokens * model->shape.top_k;
    int rows = (int)(routes / model->shape.experts);
    rows = rows < 1 ? 1 : rows;
    struct mp_routing *routing = &model->state[0].routing;
    routing->groups = 1;
    routing->group_expert[0] = 0;
    routing->group_rows[0] = rows;
    routing->receive_total = rows;
    routing->in_expert_order = true;
    model->parameter[0] = chunk;
    operations->zero(trainer->device, model->stream, model->state[0].expert_in,
                     (size_t)rows * (size_t)model->shape.width * sizeof(float));
    double seconds[REPETITIONS];
    for (int i = -1; i < REPETITIONS; i++) { /* the first one touches the memory */
        settle(trainer);
        int64_t start = mp_clock_ns();
        mp_model_experts(model, 0);
        settle(trainer);
        if (i >= 0)
            seconds[i] = 1e-9 * (double)(mp_clock_ns() - start);
    }
    *seconds_per_route = median(seconds) / rows;
    free(host);
    operations->release(trainer->device, chunk);
    return MP_OK;
}

/* Broadcast of one expert to all ranks. */
static int measure_bandwidth(struct mp_trainer *trainer, double *bandwidth,
                             struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    size_t room = (size_t)model->rows_limit * (size_t)model->shape.width * sizeof(float);
    size_t bytes = (size_t)trainer->setting.expert_bytes;
    bytes = bytes < room ? bytes : room;
    double seconds[REPETITIONS];
    trainer->device->operations->zero(trainer->device, model->stream, model->received, bytes);
    for (int i = -1; i < REPETITIONS; i++) { /* the first one opens connections */
        int code = mp_comm_barrier(trainer->comm, error);
        int64_t start = mp_clock_ns();
        if (!code)
            code = mp_comm_broadcast(trainer->comm, model->received, bytes, 0, error);
        if (!code)
            code = mp_comm_barrier(trainer->comm, error);
        if (code)
            return code;
        if (i >= 0)
            seconds[i] = 1e-9 * (double)(mp_clock_ns() - start);
    }
    *bandwidth = (double)bytes / median(seconds);
    return MP_OK;
}

int mp_trainer_measure(struct mp_trainer *trainer, struct mp_error *error) {
    struct mp_setting *setting = &trainer->setting;
    const struct mp_job *job = &trainer->job;
    double given[3] = {job->bandwidth, 0, job->non_moe_seconds};
    if (job->expert_rate > 0)
        given[1] = (double)mp_model_route_flops(&trainer->model.shape) / job->expert_rate;
    double figures[3] = {given[0], given[1], given[2]};
    int code = MP_OK;
    if (!(given[0] > 0) && trainer->comm->ranks > 1)
        code = measure_bandwidth(trainer, &figures[0], error);
    if (!code && !(given[1] > 0))
        code = measure_route(trainer, &figures[1], error);
    if (!code && !(given[2] > 0))
        figures[2] = measure_non_moe(trainer);
    if (!code)
        code = mp_comm_broadcast(trainer->comm, figures, sizeof figures, 0, error);
    setting->bandwidth = figures[0];
    setting->seconds_per_route = figures[1];
    setting->non_moe_seconds = figures[2];
    return code;
}
