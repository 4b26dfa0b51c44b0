/* A predictor's life, and one iteration: forward, backward, optimizer, new homes. */
#include "harness/predict/predictor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/predict/engine.h"

enum { BACKGROUND_BESIDE_BUCKETS = 16 /* fetches and gradients on their way at once, with room */ };

/* ---- creation ---- */

int mp_predict_planner(const struct mp_costs *costs, const struct mp_job_file *job,
                       bool check_plans, struct mp_planner *planner, struct mp_error *error) {
    const struct mp_sizes *sizes = &costs->sizes;
    const struct mp_planner_config config = {.system = job->system,
                                             .options = job->system_options,
                                             .setting = &costs->setting,
                                             .gradient_bytes = (int64_t)sizes->expert_gradient,
                                             .move = sizes->move,
                                             .check_plans = check_plans};
    return mp_planner_create(&config, planner, error);
}

int mp_predict_shards(const struct mp_job_file *file, const struct mp_cluster *cluster,
                      const struct mp_predict_options *options, int *shards,
                      struct mp_error *error) {
    struct mp_costs *costs;
    *shards = mp_job_shards(&file->job);
    if (*shards > 1 || !file->system->shards)
        return MP_OK;
    MP_TRY(mp_costs_create(cluster, &file->job, options, &costs, error));
    *shards = mp_system_shards(file->system, &costs->setting, file->system_options);
    mp_costs_destroy(costs);
    return MP_OK;
}

/* Experts are cut as the job says, or its system; given costs are of experts as the job has them.
 */
static int create_costs(struct mp_predictor *predictor, const struct mp_predictor_config *config,
                        struct mp_error *error) {
    predictor->costs = config->costs;
    if (config->costs)
        return MP_OK;
    MP_TRY(mp_predict_shards(config->job, config->cluster, &predictor->options,
                             &predictor->job.expert_shards, error));
    MP_TRY(mp_costs_create(config->cluster, &predictor->job, &predictor->options,
                           &predictor->own_costs, error));
    predictor->costs = predictor->own_costs;
    return MP_OK;
}

static int create_loads(struct mp_predictor *predictor, bool is_gated, struct mp_error *error) {
    const struct mp_policy *policy = &predictor->planner.policy;
    bool limits = mp_policy_changes_gate(policy) && !is_gated;
    predictor->loads = (struct mp_gated_loads){.ranks = predictor->ranks,
                                               .layers = predictor->layers,
                                               .micro_batches = predictor->options.micro_batches,
                                               .chosen = predictor->job.experts,
                                               .experts = mp_job_plan_experts(&predictor->job)};
    return mp_gated_loads_create(&predictor->memory, limits || mp_job_shards(&predictor->job) > 1,
                                 predictor->planner.system->capabilities &
                                     MP_SYSTEM_USES_TRANSITIONS,
                                 &predictor->loads, error);
}

static int create_carrier(struct mp_predictor *predictor, struct mp_error *error) {
    predictor->carrier = (struct mp_carrier){.job = &predictor->job,
                                             .planner = &predictor->planner,
                                             .costs = predictor->costs,
                                             .network = predictor->network,
                                             .ranks = predictor->ranks};
    return mp_carrier_create(&predictor->memory, predictor->loads.experts, predictor->layers,
                             predictor->sink.span, &predictor->carrier, error);
}

static int create_rows(struct mp_predictor *predictor, struct mp_error *error) {
    bool drops = predictor->planner.law.drops_routes && predictor->sink.load;
    predictor->rows =
        (struct mp_predicted_rows){.planner = &predictor->planner,
                                   .costs = predictor->costs,
                                   .network = predictor->network,
                                   .loads = &predictor->loads,
                                   .by_expert = predictor->options.exchange == MP_ROWS_BY_EXPERT};
    return mp_predicted_rows_create(&predictor->memory, drops, &predictor->rows, error);
}

static int create_holding(struct mp_predictor *predictor, struct mp_error *error) {
    predictor->holding = (struct mp_holding){.planner = &predictor->planner,
                                             .costs = predictor->costs,
                                             .rows = &predictor->rows,
                                             .ranks = predictor->ranks,
                                             .layers = predictor->layers,
                                             .micro_batches = predictor->options.micro_batches};
    MP_TRY(mp_holding_create(&predictor->memory, &predictor->holding, error));
    mp_holding_count_homes(&predictor->holding);
    return MP_OK;
}

static int create_all(struct mp_predictor *predictor, const struct mp_predictor_config *config,
                      struct mp_error *error) {
    MP_TRY(create_costs(predictor, config, error));
    MP_TRY(mp_network_create(config->cluster, &predictor->network, error));
    MP_TRY(mp_predict_planner(predictor->costs, config->job, config->check_plans,
                              &predictor->planner, error));
    if (predictor->planner.policy.offload && !mp_job_serves(&predictor->job))
        MP_TRY(mp_costs_check_offload(predictor->costs, error));
    MP_TRY(create_loads(predictor, config->is_gated, error));
    MP_TRY(create_carrier(predictor, error));
    MP_TRY(create_rows(predictor, error));
    MP_TRY(mp_timeline_create(predictor->network, predictor->ranks,
                              mp_cluster_overlap(config->cluster),
                              2 * predictor->layers + BACKGROUND_BESIDE_BUCKETS, &predictor->sink,
                              &predictor->timeline, error));
    MP_TRY(mp_inject_parse(predictor->job.inject, &predictor->timeline.inject, error));
    MP_TRY(mp_predictor_create_executor(predictor, error));
    return create_holding(predictor, error);
}

int mp_predictor_create(const struct mp_predictor_config *config, struct mp_predictor **out,
                        struct mp_error *error) {
    struct mp_predictor *predictor;
    MP_TRY(MP_NEW(predictor, 1, error));
    predictor->job = config->job->job;
    predictor->options = *config->options;
    if (config->sink)
        predictor->sink = *config->sink;
    predictor->ranks = mp_cluster_ranks(config->cluster);
    predictor->layers = predictor->job.layers;
    predictor->iteration = config->first_iteration;
    int code = create_all(predictor, config, error);
    if (code)
        mp_predictor_destroy(predictor);
    else
        *out = predictor;
    return code;
}

void mp_predictor_destroy(struct mp_predictor *predictor) {
    if (!predictor)
        return;
    mp_predictor_destroy_executor(predictor);
    mp_predicted_rows_destroy(&predictor->rows);
    mp_traffic_destroy(predictor->carrier.traffic);
    mp_timeline_destroy(&predictor->timeline);
    mp_planner_destroy(&predictor->planner);
    mp_network_destroy(predictor->network);
    mp_costs_destroy(predictor->own_costs);
    mp_arena_release(&predictor->memory);
    free(predictor);
}

/* ---- the iteration ---- */

static int begin(struct mp_predictor *predictor, const struct mp_load load[],
                 struct mp_error *error) {
    MP_TRY(mp_gated_loads_begin(&predictor->loads, load, predictor->called, error));
    predictor->planner.planned = -1;
    memset(predictor->carrier.bytes, 0, sizeof predictor->carrier.bytes);
    mp_predicted_rows_begin(&predictor->rows);
    mp_predictor_begin_executor(predictor);
    mp_timeline_begin(&predictor->timeline, predictor->iteration, predictor->called);
    return MP_OK;
}

static void sum_up_time(const struct mp_predictor *predictor, struct mp_prediction *prediction) {
    const struct mp_time_sums *sums = &predictor->timeline.sums;
    const struct mp_moe_sums *moe = &predictor->sums;
    double spent = 0, waited = 0, ranks = predictor->ranks;
    for (int phase = 0; phase < MP_PHASES; phase++) {
        spent += sums->spent[phase];
        waited += sums->waited[phase];
    }
    prediction->compute_seconds = (spent - waited) / ranks;
    prediction->exposed_seconds = waited / ranks;
    prediction->late_seconds = sums->late / ranks;
    prediction->exchange_seconds =
        (sums->spent[MP_PHASE_DISPATCH] + sums->spent[MP_PHASE_COMBINE]) / ranks;
    prediction->expert_seconds =
        (sums->spent[MP_PHASE_EXPERT] + sums->spent[MP_PHASE_WEIGHTS]) / ranks;
    prediction->moe_seconds = moe->moe / ranks;
    prediction->layer_seconds = moe->layer_moe;
    prediction->attention_seconds = sums->spent[MP_PHASE_ATTENTION] / ranks;
    prediction->transfer_seconds = sums->transfers / ranks;
    prediction->transfer_exposed_seconds =
        (sums->waited[MP_PHASE_FETCH] + sums->waited[MP_PHASE_REDUCE] - moe->gathering_waited) /
        ranks;
    prediction->move_seconds = (sums->spent[MP_PHASE_MOVE] + moe->gathering) / ranks;
    prediction->all_reduce_exposed_seconds = sums->waited[MP_PHASE_ALLREDUCE] / ranks;
    prediction->serial_seconds = sums->serial;
    for (int r = 0; r < predictor->ranks; r++) {
        if (moe->experts[r] > prediction->expert_seconds_max)
            prediction->expert_seconds_max = moe->experts[r];
        if (predictor->timeline.port[r] > prediction->port_seconds)
            prediction->port_seconds = predictor->timeline.port[r];
    }
}

static void sum_up_rows(const struct mp_predictor *predictor, struct mp_prediction *prediction) {
    const struct mp_predicted_rows *rows = &predictor->rows;
    prediction->imbalance =
        rows->imbalance / (predictor->layers * predictor->options.micro_batches);
    prediction->routes = rows->routes;
    prediction->dropped = rows->lost;
    prediction->copies = rows->copies;
    prediction->exchanged_bytes = rows->exchanged_bytes;
    memcpy(prediction->bytes, predictor->carrier.bytes, sizeof prediction->bytes);
}

static void record_loads(const struct mp_predictor *predictor) {
    const struct mp_predict_sink *sink = &predictor->sink;
    const uint32_t *dropped = predictor->rows.dropped;
    size_t experts = (size_t)predictor->loads.experts;
    for (int l = 0; sink->load && l < predictor->layers; l++)
        for (int r = 0; r < predictor->ranks; r++) {
            size_t row = (size_t)(l * predictor->ranks + r) * experts;
            sink->load(sink->context, r, predictor->called, l, predictor->job.experts,
                       predictor->loads.sum[l].count + (size_t)r * experts,
                       dropped ? dropped + row : NULL);
        }
}

static void record_found(const struct mp_predictor *predictor) {
    const struct mp_predict_sink *sink = &predictor->sink;
    const void *found = sink->found ? mp_planner_found(&predictor->planner) : NULL;
    if (found)
        sink->found(sink->context, predictor->called, predictor->planner.system->facts, found);
}

int mp_predictor_step(struct mp_predictor *predictor, const struct mp_load load[],
                      struct mp_prediction *prediction, struct mp_error *error) {
    int64_t tokens = predictor->options.micro_batches * (int64_t)predictor->costs->tokens;
    MP_TRY(begin(predictor, load, error));
    MP_TRY(mp_schedule_iteration(&predictor->schedule, error));
    MP_TRY(mp_network_check(predictor->network, error));
    *prediction = (struct mp_prediction){.iteration = predictor->called,
                                         .seconds = mp_timeline_end(&predictor->timeline, tokens),
                                         .bound_seconds = NAN};
    sum_up_time(predictor, prediction);
    sum_up_rows(predictor, prediction);
    if (prediction->dropped > 0 && !predictor->planner.law.drops_routes)
        return mp_fail(
            error, MP_EPLAN,
            "iteration %lld: system %s dispatches %lld of %lld routes to nobody and does "
            "not declare MP_SYSTEM_DROPS; check-plans says which",
            (long long)predictor->called, predictor->planner.system->name,
            (long long)prediction->dropped, (long long)prediction->routes);
    record_loads(predictor);
    record_found(predictor);
    predictor->iteration++;
    predictor->called++;
    return MP_OK;
}

int mp_predictor_shards(const struct mp_predictor *predictor) {
    return mp_job_shards(&predictor->job);
}

bool mp_predictor_changes_loads(const struct mp_predictor *predictor) {
    return mp_gated_loads_change(&predictor->loads, &predictor->planner.policy);
}

void mp_predictor_call(struct mp_predictor *predictor, int64_t number) {
    predictor->called = number;
}

void mp_predictor_memory(const struct mp_predictor *predictor, struct mp_memory *memory,
                         int *rank) {
    const struct mp_holding *holding = &predictor->holding;
    int fullest = 0;
    for (int r = 1; r < predictor->ranks; r++)
        if (holding->most_total[r] > holding->most_total[fullest])
            fullest = r;
    mp_costs_memory(predictor->costs, &holding->most[fullest], memory);
    *rank = fullest;
}
