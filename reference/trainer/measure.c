/* What planners assume about this machine, measured before the first iteration on rank 0's clock
 * and told to all, so that every rank plans the same. */
#include <stdlib.h>
#include <string.h>

#include "reference/base/random.h"
#include "reference/trainer/internal.h"

enum { REPETITIONS = 7 };

/* What the machine can do: other work on it only ever adds time. */
static double least(const double seconds[REPETITIONS]) {
    double smallest = seconds[0];
    for (int i = 1; i < REPETITIONS; i++)
        smallest = seconds[i] < smallest ? seconds[i] : smallest;
    return smallest;
}

static void settle(struct mp_trainer *trainer) {
    trainer->device->operations->stream_synchronize(trainer->device, trainer->model.stream);
}

/* Forward of a block without the experts that tokens choose, on the tokens of the first batch (or
 * of none). */
static double measure_non_moe(struct mp_trainer *trainer) {
    struct mp_model *model = &trainer->model;
    double seconds[REPETITIONS];
    for (int i = 0; i < model->tokens; i++)
        trainer->batch.token[i] = trainer->batch.target[i] = i % MP_VOCABULARY;
    bool needs_choices = mp_gate_kinds[trainer->job.gate]->choose != NULL;
    const int32_t *forced = needs_choices ? trainer->forced.choice : NULL; /* any */
    mp_model_embed(model, trainer->batch.token, trainer->batch.target);
    mp_model_attention(model, 0);
    for (int i = 0; i < REPETITIONS; i++) {
        settle(trainer);
        int64_t start = mp_clock_ns();
        mp_model_attention(model, 0);
        mp_model_gate(model, 0, forced, NULL, trainer->counts.own,
                      trainer->counts.own + trainer->job.experts);
        mp_model_shared(model, 0);
        settle(trainer);
        seconds[i] = 1e-9 * (double)(mp_clock_ns() - start);
    }
    return least(seconds);
}

/* Forward of `rows` routes, for which there is room, through the one expert at
 * model->parameter[0]. */
static double measure_rows(struct mp_trainer *trainer, int rows) {
    struct mp_model *model = &trainer->model;
    mp_routing_single(&model->state[0].routing, rows);
    double seconds[REPETITIONS];
    for (int i = -1; i < REPETITIONS; i++) { /* the first one touches the memory */
        settle(trainer);
        int64_t start = mp_clock_ns();
        mp_model_experts(model, 0, 0);
        settle(trainer);
        if (i >= 0)
            seconds[i] = 1e-9 * (double)(mp_clock_ns() - start);
    }
    return least(seconds);
}

/* Random numbers, or an expert's, as elements of the device; `staging` is device memory for them.
 */
static void place(struct mp_trainer *trainer, const float *host, size_t count, float *staging,
                  void *to) {
    const struct mp_device_operations *operations = trainer->device->operations;
    mp_stream stream = trainer->model.stream;
    operations->copy_from_host(trainer->device, stream, staging, host, count * sizeof *host);
    operations->to_elements(trainer->device, stream, count, staging, to);
}

/* The line through the times of the mean number of routes and of one route: seconds per route, and
 * what an expert costs beside its routes. */
static int measure_expert(struct mp_trainer *trainer, double *per_route, double *per_expert,
                          struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    int64_t routes = trainer->batch.global_tokens * model->shape.top_k / model->shape.experts;
    int rows = routes < 2 ? 2 : (int)routes;
    size_t row_floats = (size_t)model->shape.width;
    size_t expert = mp_model_expert_floats(&model->shape), floats = expert;
    if ((int64_t)rows > model->rows_limit)
        rows = (int)model->rows_limit;
    mp_routing_single(&model->state[0].routing, rows);
    MP_TRY(mp_model_reserve(model, 0, error));
    if (floats < (size_t)rows * row_floats)
        floats = (size_t)rows * row_floats;
    MP_AUTO(device_memory) struct mp_device_memory memory = {.device = trainer->device};
    float *host = mp_device_take_host(&memory, (int64_t)floats, sizeof *host);
    float *staging = mp_device_take(&memory, (int64_t)floats, sizeof *staging);
    void *chunk = mp_device_take(&memory, trainer->setting.expert_bytes, 1);
    if (memory.lacking)
        return mp_fail(error, MP_ENOMEM, "no memory to measure an expert of %zu bytes",
                       (size_t)trainer->setting.expert_bytes);
    mp_random_normal(trainer->setting.seed, 0, 1, floats, host);
    place(trainer, host, (size_t)rows * row_floats, staging, model->state[0].expert_in);
    mp_expert_initialise(&model->shape, trainer->setting.seed, 0, 0, host);
    place(trainer, host, expert, staging, chunk);
    model->parameter[0] = chunk;
    double many = measure_rows(trainer, rows), one = measure_rows(trainer, 1);
    *per_route = rows > 1 && many > one ? (many - one) / (rows - 1) : many / rows;
    *per_expert = one > *per_route ? one - *per_route : 0;
    return MP_OK;
}

/* One expert from rank 0 to the first `ranks`, as a plan would copy it.  Every time it lies in
 * another stretch of a large buffer: in a run, experts do not lie in the cache either. */
static int measure_bandwidth(struct mp_trainer *trainer, int ranks, double *bandwidth,
                             struct mp_error *error) {
    enum { STRETCHES = REPETITIONS + 1 };
    const struct mp_device_operations *operations = trainer->device->operations;
    size_t bytes = (size_t)trainer->setting.expert_bytes;
    int copies = ranks - 1;
    MP_AUTO(arena) struct mp_arena tables = {0};
    MP_AUTO(device_memory) struct mp_device_memory buffer = {.device = trainer->device};
    MP_AUTO(request) struct mp_request *request = NULL;
    struct mp_transfer *item = mp_arena_take(&tables, (size_t)copies, sizeof *item);
    char *memory = mp_device_take(&buffer, STRETCHES, bytes);
    if (!item || !memory)
        return mp_fail(error, MP_ENOMEM, "no memory to measure transfers");
    MP_TRY(mp_request_create(trainer->comm, copies, bytes, &request, error));
    operations->zero(trainer->device, trainer->model.stream, memory, STRETCHES * bytes);
    for (int i = 0; i < copies; i++)
        item[i] = (struct mp_transfer){
            .from = 0, .to = i + 1, .bytes = (int64_t)bytes, .stage = MP_STAGE_BEFORE_GATE};
    const struct mp_transfers list = {item, copies, copies};
    double seconds[REPETITIONS];
    for (int i = -1; i < REPETITIONS; i++) { /* the first one opens connections */
        void *chunk = memory + (size_t)(i + 1) * bytes;
        settle(trainer);
        MP_TRY(mp_comm_barrier(trainer->comm, error));
        int64_t start = mp_clock_ns();
        MP_TRY(mp_sparse_all_gather_start(trainer->comm, &list, MP_STAGE_BEFORE_GATE, 1, &chunk,
                                          bytes, trainer->model.stream, request, error));
        MP_TRY(mp_request_wait(request, error));
        settle(trainer);
        MP_TRY(mp_comm_barrier(trainer->comm, error));
        if (i >= 0)
            seconds[i] = 1e-9 * (double)(mp_clock_ns() - start);
    }
    *bandwidth = (double)bytes / least(seconds);
    return MP_OK;
}

/* Between nodes and in one of them, which is the same where there is but one. */
static int measure_bandwidths(struct mp_trainer *trainer, struct mp_error *error) {
    struct mp_setting *setting = &trainer->setting;
    int ranks = trainer->comm->ranks, near = mp_topology_node_end(&setting->topology, 0);
    if (ranks > 1)
        MP_TRY(measure_bandwidth(trainer, ranks, &setting->bandwidth, error));
    setting->bandwidth_in_node = setting->bandwidth;
    if (near > 1 && near < ranks && !(trainer->job.bandwidth_in_node > 0))
        MP_TRY(measure_bandwidth(trainer, near, &setting->bandwidth_in_node, error));
    return MP_OK;
}

int mp_trainer_measure(struct mp_trainer *trainer, struct mp_error *error) {
    struct mp_setting *setting = &trainer->setting;
    const struct mp_job *job = &trainer->job;
    if (!(job->bandwidth > 0))
        MP_TRY(measure_bandwidths(trainer, error));
    if (!(job->expert_rate > 0))
        MP_TRY(measure_expert(trainer, &setting->seconds_per_route, &setting->seconds_per_expert,
                              error));
    if (!(job->non_moe_seconds > 0))
        setting->non_moe_seconds = measure_non_moe(trainer);
    MP_TRY(mp_comm_broadcast(trainer->comm, setting, sizeof *setting, 0, error));
    mp_job_given_figures(job, &trainer->sizes, setting);
    return MP_OK;
}
