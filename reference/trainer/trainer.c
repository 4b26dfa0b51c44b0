/* A trainer's life: what it is made of, and what others may ask it. */
#include "reference/trainer/trainer.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/nvtx/emit.h"
#include "reference/trainer/internal.h"
#include "reference/trainer/numbers.h"

static void shape_of(const struct mp_job *job, const struct mp_gate_rule *rule,
                     struct mp_model_shape *shape) {
    *shape = (struct mp_model_shape){.layers = job->layers,
                                     .width = job->width,
                                     .heads = job->heads,
                                     .experts = job->experts,
                                     .expert_width = job->expert_width,
                                     .shards = mp_job_shards(job),
                                     .shared_width = job->shared_experts * job->expert_width,
                                     .sequence = mp_job_step_tokens(job),
                                     .serves = mp_job_serves(job),
                                     .context = job->context,
                                     .top_k = mp_job_top_k(job),
                                     .gate = *rule,
                                     .auxiliary_weight = job->auxiliary_weight};
}

static void describe_setting(struct mp_trainer *trainer) {
    const struct mp_job *job = &trainer->job;
    const struct mp_element_sizes elements =
        mp_training_elements(mp_element_bytes(trainer->device));
    const struct mp_topology topology = mp_job_topology(job, trainer->comm->ranks);
    mp_job_sizes(job, &elements, &trainer->sizes);
    mp_job_setting(job, &trainer->sizes, &topology, 1, &trainer->setting);
}

static int create_tables(struct mp_trainer *trainer, struct mp_error *error) {
    size_t layers = (size_t)trainer->job.layers;
    int ranks = trainer->comm->ranks, experts = mp_job_plan_experts(&trainer->job);
    MP_TAKE(&trainer->arena, trainer->facts, layers);
    trainer->load = mp_loads_take(&trainer->arena, (int64_t)layers, ranks, experts);
    for (size_t l = 0; trainer->load && l < layers; l++)
        MP_TAKE(&trainer->arena, trainer->load[l].first, ranks * experts);
    MP_TAKE(&trainer->arena, trainer->inside, trainer->job.experts);
    MP_TAKE(&trainer->arena, trainer->dense_flight, layers + 1);
    mp_batch_create(&trainer->batch, &trainer->arena);
    return mp_arena_check(&trainer->arena, error);
}

/* What parts look at of each other. */
static void connect_parts(struct mp_trainer *trainer, const struct mp_text *text) {
    struct mp_comm *comm = trainer->comm;
    struct mp_model *model = &trainer->model;
    struct mp_planner *planner = &trainer->planner;
    struct mp_spans *spans = &trainer->spans;
    const struct mp_job *job = &trainer->job;
    *spans = (struct mp_spans){.comm = comm, .iteration = &trainer->iteration};
    trainer->batch = (struct mp_batch){.job = job, .text = text, .rank = comm->rank};
    trainer->forced = (struct mp_forced){.job = job, .model = model, .rank = comm->rank};
    trainer->paths = (struct mp_paths){.comm = comm, .model = model, .planner = planner};
    trainer->moves =
        (struct mp_moves){.comm = comm, .model = model, .planner = planner, .spans = spans};
    trainer->carriages =
        (struct mp_carriages){.spans = spans, .comm = comm, .model = model, .planner = planner};
}

/* The same of those that look at loads. */
static void connect_loads(struct mp_trainer *trainer) {
    trainer->distinct = (struct mp_distinct_rows){.comm = trainer->comm,
                                                  .model = &trainer->model,
                                                  .paths = &trainer->paths,
                                                  .load = trainer->load};
    trainer->counts = (struct mp_counts){.job = &trainer->job,
                                         .batch = &trainer->batch,
                                         .comm = trainer->comm,
                                         .model = &trainer->model,
                                         .distinct = &trainer->distinct,
                                         .load = trainer->load};
    trainer->choices = (struct mp_choices){.comm = trainer->comm,
                                           .model = &trainer->model,
                                           .spans = &trainer->spans,
                                           .load = trainer->load,
                                           .records = trainer->job.record_routes,
                                           .experts = trainer->job.experts};
}

/* Lets transfers move on while this rank computes; a failure is told when the iteration ends, if no
 * wait has met it before. */
static void move_on(void *context) {
    struct mp_trainer *trainer = context;
    if (!trainer->progress_error.code)
        mp_comm_progress(trainer->comm, &trainer->progress_error);
}

/* The system at work, and what its plans are made of and lead through. */
static int create_planner(struct mp_trainer *trainer, const struct mp_job_file *file,
                          struct mp_error *error) {
    const struct mp_setting *setting = &trainer->setting;
    const struct mp_planner_config config = {.system = file->system,
                                             .options = file->system_options,
                                             .setting = setting,
                                             .gradient_bytes =
                                                 (int64_t)trainer->sizes.expert_gradient,
                                             .move = trainer->sizes.move,
                                             .keeps_plans = true,
                                             .check_plans = trainer->job.check_plans};
    MP_TRY(mp_planner_create(&config, &trainer->planner, error));
    mp_options_line(file->system->options, file->system_options, trainer->options,
                    sizeof trainer->options);
    MP_TRY(mp_schedule_create(&mp_trainer_executor, trainer, &trainer->planner.policy,
                              setting->layers, setting->topology.ranks, &trainer->schedule, error));
    trainer->spans.pauses = trainer->planner.policy.free_transfers;
    trainer->schedule.learns = file->system->after_step;
    trainer->schedule.keeps_order = mp_comm_keeps_order(trainer->comm);
    trainer->schedule.shares = trainer->job.shared_experts > 0;
    return MP_OK;
}

static int create_requests(struct mp_trainer *trainer, struct mp_error *error) {
    struct mp_comm *comm = trainer->comm;
    /* Gradients travel in fp32, whatever parameters do. */
    size_t chunk = mp_model_expert_floats(&trainer->model.shape) * sizeof(float);
    int layers = trainer->job.layers, experts = trainer->setting.experts, ranks = comm->ranks;
    int moves = trainer->planner.homes_limit * ranks, copies = experts * (ranks - 1), sums = copies;
    int most = trainer->planner.law.extra_copies_limit * ranks;
    if (mp_optimizer_sliced(trainer->planner.policy.optimizer)) {
        /* This rank's slices to all holders, and all keepers' to its own. */
        copies = 2 * trainer->planner.homes_limit * trainer->model.experts.keepers;
        sums = copies > sums ? copies : sums;
        moves = 0;
    } else if (trainer->planner.policy.optimizer == MP_OPTIMIZER_OWNER) {
        copies = sums = most < copies ? most : copies;
    }
    bool serves = mp_job_serves(&trainer->job);
    int again = serves ? 0 : copies; /* for backward */
    sums = serves ? 0 : sums;
    const struct {
        struct mp_request **request;
        int transfers;
    } wanted[] = {
        {&trainer->counts.request, 0},
        {&trainer->carriages.late_fetch.request[0], copies},
        {&trainer->carriages.refetch[0].request[1],
         again}, /* of late copies, which are of no slices */
        {&trainer->carriages.sums[0].request[0], sums},
        {&trainer->carriages.sums[1].request[0], sums},
        {&trainer->moves.request[0], moves},
        {&trainer->moves.request[1], serves ? 0 : moves},
        {&trainer->moves.request[2], serves ? 0 : moves},
    };
    int single = sizeof wanted / sizeof *wanted;
    int fetches = mp_policy_fetches(&trainer->planner.policy);
    int refetches = mp_policy_refetches(&trainer->planner.policy);
    int ahead = trainer->planner.policy.updates_early && !serves ? layers : 0;
    int sparse = single + fetches + ahead + refetches;
    trainer->requests = sparse + layers + 1 + 2 * mp_exchange_most_steps(ranks);
    MP_TAKE(&trainer->arena, trainer->request, trainer->requests);
    MP_TRY(mp_arena_check(&trainer->arena, error));
    trainer->dense_request = trainer->request + sparse;
    trainer->rows = trainer->dense_request + layers + 1;
    for (int i = 0; i < trainer->requests; i++) {
        int transfers = i < single               ? wanted[i].transfers
                        : i < sparse - refetches ? copies
                        : i < sparse             ? again
                                                 : 0;
        MP_TRY(
            mp_request_create(comm, transfers, transfers ? chunk : 0, &trainer->request[i], error));
        if (i < single)
            *wanted[i].request = trainer->request[i];
    }
    trainer->distinct.gather = trainer->counts.request;
    for (int i = 0; i < fetches; i++)
        trainer->carriages.fetch[i].request[0] = trainer->request[single + i];
    for (int i = 0; i < refetches; i++)
        trainer->carriages.refetch[i].request[0] = trainer->request[sparse - refetches + i];
    for (int layer = 0; layer < ahead; layer++)
        trainer->carriages.ahead[layer].request[0] = trainer->request[single + fetches + layer];
    return MP_OK;
}

/* Who updates what is offloaded: the device itself where that is a processor of the host. */
static int take_host(struct mp_trainer *trainer, struct mp_device **host, struct mp_error *error) {
    const struct mp_device_limits least = {.attention = {1, 1, 1, 1}, 1, 1, 1};
    *host = trainer->device;
    if (strcmp(trainer->device->operations->name, "cpu") == 0)
        return MP_OK;
    int code = mp_device_cpu_create(trainer->job.threads, &least, &trainer->host, error);
    if (code)
        mp_error_prefix(error, "optimizer state in host memory");
    *host = trainer->host;
    return code;
}

/* Shards and room for copies. */
static int create_experts(struct mp_trainer *trainer, struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    int layers = trainer->job.layers;
    const struct mp_planner *planner = &trainer->planner;
    int fetches = mp_policy_fetches(&trainer->planner.policy), in_turn = fetches > 2 ? fetches : 2;
    struct mp_device *host = NULL;
    bool serves = mp_job_serves(&trainer->job);
    if (planner->policy.offload && !serves)
        MP_TRY(take_host(trainer, &host, error));
    struct mp_experts_layout layout = {
        .rank = trainer->comm->rank,
        .ranks = trainer->comm->ranks,
        .optimizer = planner->policy.optimizer,
        .host = host,
        .slots = planner->homes_limit,
        .regions = (planner->policy.rematerialise || serves) && layers > in_turn &&
                           !mp_policy_gathers_homes(&planner->policy)
                       ? in_turn
                       : layers,
        .copies = planner->law.extra_copies_limit,
        .serves = serves,
    };
    return mp_experts_create(&model->shape, trainer->device, (uint64_t)trainer->job.seed,
                             planner->home, &layout, &model->experts, error);
}

/* The model, which takes in as many rows as a rank may send or be sent. */
static int create_model(struct mp_trainer *trainer, const struct mp_model_shape *shape,
                        const struct mp_job_file *file, struct mp_error *error) {
    const struct mp_setting *setting = &trainer->setting;
    int64_t ranks = setting->topology.ranks, experts = setting->experts;
    int64_t sent = setting->tokens_per_rank * setting->top_k, received = sent * ranks;
    int64_t padding = mp_system_padding_limit(file->system, setting, file->system_options);
    int64_t held = (experts + ranks - 1) / ranks; /* padded exchanges have one holder a pair */
    sent = padding * experts > sent ? padding * experts : sent;
    received = padding * held * ranks > received ? padding * held * ranks : received;
    /* Rows are counted in int; a plan that brings more is refused when it is there. */
    sent = sent < INT_MAX ? sent : INT_MAX;
    received = received < INT_MAX ? received : INT_MAX;
    return mp_model_create(shape, trainer->device, trainer->batch.sequences, (int)ranks, sent,
                           received, (uint64_t)trainer->job.seed, &trainer->model, error);
}

/* Rows and sequences are counted in int, and one rank may be sent the rows of all. */
static int check_batch(const struct mp_job *job, int ranks, struct mp_error *error) {
    int64_t routes = mp_job_tokens(job) * mp_job_top_k(job) * mp_job_shards(job);
    int64_t validation = job->validate_every ? (int64_t)job->batch * job->validation_batches : 0;
    if (job->batch % ranks != 0)
        return mp_fail(error, MP_EINVAL, "batch: %d sequences do not divide over %d ranks",
                       job->batch, ranks);
    if (routes > INT_MAX)
        return mp_fail(error, MP_ELIMIT,
                       "batch: %d sequences of %d tokens make %lld routes, at most %d are possible",
                       job->batch, mp_job_step_tokens(job), (long long)routes, INT_MAX);
    if (validation > INT_MAX)
        return mp_fail(error, MP_ELIMIT,
                       "validation-batches: %d of %d sequences are more than %d sequences",
                       job->validation_batches, job->batch, INT_MAX);
    return MP_OK;
}

void mp_trainer_limits(const struct mp_job *job, struct mp_device_limits *limits) {
    int sequences = job->batch / job->ranks, shared = job->shared_experts * job->expert_width;
    int widest = shared > job->expert_width ? shared : job->expert_width;
    *limits = (struct mp_device_limits){
        .attention = {sequences, (int)mp_job_positions(job), job->heads, job->width / job->heads},
        .experts = mp_job_plan_experts(job),
        .width = job->width > widest ? job->width : widest,
        .tokens = sequences * mp_job_step_tokens(job) * mp_job_top_k(job),
    };
}

/* The device that was given, or one of the trainer's own, and what depends on it. */
static int take_device(struct mp_trainer *trainer, struct mp_device *device,
                       struct mp_error *error) {
    struct mp_device_limits limits;
    mp_trainer_limits(&trainer->job, &limits);
    if (!device)
        MP_TRY(mp_device_cpu_create(trainer->job.threads, &limits, &trainer->own_device, error));
    trainer->device = device ? device : trainer->own_device;
    /* A layer has some 20 spans, and with several steps 4 for each. */
    int spans = 64 + trainer->job.layers * (32 + 6 * mp_exchange_most_steps(trainer->comm->ranks));
    trainer->spans.device = trainer->device;
    return mp_spans_create(&trainer->spans, spans, error);
}

/* What has no memory left knows how much there is; what wanted some knows what for.  And a device
 * that failed before gives none. */
static void explain_memory(const struct mp_device *device, struct mp_error *error) {
    if (!error || error->code != MP_ENOMEM || !device || !device->error.code)
        return;
    if (device->error.code != MP_ENOMEM) {
        *error = device->error;
        return;
    }
    char what_for[sizeof error->text];
    snprintf(what_for, sizeof what_for, "%s", error->text);
    *error = (struct mp_error){0};
    mp_fail(error, MP_ENOMEM, "%.400s (%.360s)", device->error.text, what_for);
}

int mp_trainer_reserve_rows(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    int64_t before = model->row_bytes;
    int code = mp_model_reserve(model, layer, error);
    if (!code)
        code = mp_paths_build(&trainer->paths, layer, error);
    return mp_trainer_note_rows(trainer, layer, before, code, error);
}

int mp_trainer_note_rows(struct mp_trainer *trainer, int layer, int64_t before, int code,
                         struct mp_error *error) {
    const struct mp_model *model = &trainer->model;
    if (code) {
        mp_error_prefix(error, "iteration %lld", (long long)trainer->iteration);
        explain_memory(trainer->device, error);
        return code;
    }
    if (model->row_bytes == before)
        return MP_OK;
    trainer->totals.row_growths++;
    if (trainer->spans.compute)
        mp_record_number(trainer->spans.compute, trainer->iteration, layer, "row-memory-bytes",
                         (double)model->row_bytes);
    return MP_OK;
}

/* All parts, in an order in which each finds those that it looks at. */
static int create_parts(struct mp_trainer *trainer, const struct mp_job_file *file,
                        const struct mp_model_shape *shape, struct mp_device *device,
                        struct mp_error *error) {
    struct mp_arena *arena = &trainer->arena;
    MP_TRY(create_tables(trainer, error));
    connect_loads(trainer);
    MP_TRY(mp_inject_parse(trainer->job.inject, &trainer->spans.inject, error));
    if (trainer->spans.inject.rank != trainer->comm->rank)
        trainer->spans.inject.seconds = 0;
    MP_TRY(take_device(trainer, device, error));
    describe_setting(trainer);
    mp_comm_set_nodes(trainer->comm, trainer->setting.topology.ranks_per_node);
    MP_TRY(create_model(trainer, shape, file, error));
    MP_TRY(mp_counts_create(&trainer->counts, arena, error));
    MP_TRY(mp_forced_create(&trainer->forced, arena, error));
    MP_TRY(mp_trainer_measure(trainer, error));
    MP_TRY(create_planner(trainer, file, error));
    MP_TRY(mp_choices_create(
        &trainer->choices, file->system->capabilities & MP_SYSTEM_USES_TRANSITIONS, arena, error));
    MP_TRY(mp_paths_create(&trainer->paths, arena, error));
    MP_TRY(mp_distinct_rows_create(&trainer->distinct, arena, error));
    MP_TRY(create_experts(trainer, error));
    MP_TRY(mp_moves_create(&trainer->moves, arena, error));
    MP_TRY(mp_carriages_create(&trainer->carriages, arena, error));
    MP_TRY(create_requests(trainer, error));
    if (trainer->comm->ranks > 1) {
        trainer->device->between = move_on;
        trainer->device->between_context = trainer;
    }
    return mp_schedule_gather_homes(&trainer->schedule, error);
}

int mp_trainer_create(const struct mp_job_file *file, struct mp_comm *comm,
                      struct mp_device *device, const struct mp_text *text, struct mp_trainer **out,
                      struct mp_error *error) {
    struct mp_gate_rule rule;
    struct mp_model_shape shape;
    MP_TRY(check_batch(&file->job, comm->ranks, error));
    MP_TRY(mp_job_gate_rule(&file->job, &rule, error));
    struct mp_trainer *trainer;
    MP_TRY(MP_NEW(trainer, 1, error));
    trainer->job = file->job;
    trainer->job.ranks = comm->ranks;
    trainer->job.expert_shards = mp_job_wanted_shards(
        &(struct mp_job_file){trainer->job, file->system, file->system_options});
    trainer->comm = comm;
    shape_of(&trainer->job, &rule, &shape);
    connect_parts(trainer, text);
    int code = create_parts(trainer, file, &shape, device, error);
    if (code) {
        explain_memory(trainer->device, error);
        mp_trainer_destroy(trainer);
        return code;
    }
    *out = trainer;
    return MP_OK;
}

void mp_trainer_destroy(struct mp_trainer *trainer) {
    if (!trainer)
        return;
    for (int i = 0; trainer->request && i < trainer->requests; i++)
        mp_request_destroy(trainer->request[i]);
    mp_distinct_rows_destroy(&trainer->distinct);
    mp_paths_destroy(&trainer->paths);
    mp_forced_destroy(&trainer->forced);
    mp_model_destroy(&trainer->model);
    mp_planner_destroy(&trainer->planner);
    mp_schedule_destroy(&trainer->schedule);
    mp_spans_destroy(&trainer->spans);
    mp_device_destroy(trainer->own_device);
    mp_device_destroy(trainer->host);
    mp_arena_release(&trainer->arena);
    free(trainer);
}

void mp_trainer_record(struct mp_trainer *trainer, struct mp_record_thread *compute,
                       struct mp_record_thread *communication) {
    trainer->spans.compute = compute;
    trainer->spans.communication = communication;
    mp_nvtx_start();
}

int mp_trainer_describe(struct mp_trainer *trainer, struct mp_record_thread *thread,
                        struct mp_error *error) {
    const struct mp_model_shape *shape = &trainer->model.shape;
    int64_t tokens = mp_job_tokens(&trainer->job);
    char device[256];
    double cost_ns;
    MP_TRY(mp_spans_cost(&trainer->spans, &cost_ns, error));
    mp_device_describe(trainer->device, device, sizeof device);
    mp_record_text(thread, "environment.device", device);
    mp_record_number(thread, -1, -1, "record-span-ns", cost_ns);
    if (trainer->comm->rank != 0)
        return MP_OK;
    mp_record_named(thread, -1, -1, mp_setting_figures, &trainer->setting);
    if (mp_job_shards(&trainer->job) > 1)
        mp_record_number(thread, -1, -1, "expert-shards", mp_job_shards(&trainer->job));
    mp_record_number(thread, -1, -1, "parameters", (double)mp_model_parameters(shape));
    mp_record_number(thread, -1, -1, "parameters-active",
                     (double)mp_model_active_parameters(shape));
    mp_record_number(thread, -1, -1, "tokens-per-iteration", (double)tokens);
    mp_record_number(thread, -1, -1, "model-flops-per-iteration",
                     (double)mp_model_iteration_flops(shape, tokens));
    return MP_OK;
}

void mp_trainer_request_stop(struct mp_trainer *trainer) {
    trainer->stop = 1;
}

int64_t mp_trainer_iteration(const struct mp_trainer *trainer) {
    return trainer->iteration;
}

const struct mp_trainer_totals *mp_trainer_totals(const struct mp_trainer *trainer) {
    return &trainer->totals;
}

struct mp_model *mp_trainer_model(struct mp_trainer *trainer) {
    return &trainer->model;
}
