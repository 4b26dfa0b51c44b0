/* A predictor's life, and one iteration: forward, backward, optimizer, new homes. */
#include "harness/predict/predictor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/predict/engine.h"

enum {
    BACKGROUND_BESIDE_BUCKETS = 16, /* fetches and gradients on their way at once, with room */
    KEPT_BYTES = 1 << 30            /* of rows that are kept until backward, at most */
};

/* ---- creation ---- */

static int create_tables(struct mp_predictor *predictor, struct mp_error *error) {
    struct mp_arena *memory = &predictor->memory;
    bool drops = predictor->planner.law.drops_routes && predictor->sink.load;
    size_t ranks = (size_t)predictor->ranks, experts = (size_t)predictor->experts;
    size_t layers = (size_t)predictor->layers, words = (ranks + 63) / 64;
    MP_TAKE_EACH(memory, ranks, predictor->zero, predictor->tokens, predictor->routes);
    if (drops)
        MP_TAKE(memory, predictor->dropped, layers * ranks * experts);
    MP_TAKE_EACH(memory, experts * words, predictor->wanted, predictor->late);
    MP_TAKE_EACH(memory, experts, predictor->listed, predictor->touched);
    MP_TAKE_EACH(memory, ranks, predictor->receiver, predictor->hop, predictor->holds,
                 predictor->expert_seconds, predictor->kept, predictor->optimizer_seconds,
                 predictor->most, predictor->most_total);
    MP_TAKE(memory, predictor->kept_of_layer, layers * ranks);
    MP_TAKE_EACH(memory, layers, predictor->layer_moe, predictor->layer);
    if (predictor->options.micro_batches > 1)
        MP_TAKE(memory, predictor->sum, layers);
    for (size_t r = 0; !memory->lacking && r < ranks; r++)
        predictor->tokens[r] = mp_costs_tokens(predictor->costs);
    return mp_arena_check(memory, error);
}

static int create_layer(struct mp_predictor *predictor, struct mp_predicted_layer *layer,
                        struct mp_error *error) {
    size_t ranks = (size_t)predictor->ranks;
    bool spans = predictor->sink.span;
    MP_TAKE(&predictor->memory, layer->sent, 5 * ranks);
    MP_TAKE(&predictor->memory, layer->rows, 2 * ranks);
    if (predictor->memory.lacking)
        return mp_arena_check(&predictor->memory, error);
    layer->received = layer->sent + ranks;
    layer->permute = layer->received + ranks;
    layer->copies = layer->permute + ranks;
    layer->transit = layer->copies + ranks;
    layer->sent_rows = layer->rows + ranks;
    int code = mp_carriage_create(predictor->ranks, spans, &layer->prefetch, error);
    for (int i = 0; !code && i < MP_GRADIENT_STAGES; i++)
        code = mp_carriage_create(predictor->ranks, spans, &layer->gradient[i], error);
    return code;
}

static int create_layers(struct mp_predictor *predictor, struct mp_error *error) {
    bool spans = predictor->sink.span;
    int code = mp_traffic_create(predictor->network, &predictor->traffic, error);
    if (!code)
        code = mp_carriage_create(predictor->ranks, spans, &predictor->fetch, error);
    if (!code)
        code = mp_carriage_create(predictor->ranks, spans, &predictor->late_fetch, error);
    if (!code)
        code = mp_carriage_create(predictor->ranks, spans, &predictor->ahead, error);
    for (int l = 0; !code && l < predictor->layers; l++) {
        code = create_layer(predictor, &predictor->layer[l], error);
        if (!code && predictor->sum)
            code = mp_load_create(predictor->ranks, predictor->experts, &predictor->sum[l], error);
    }
    return code;
}

static int create_planner(struct mp_predictor *predictor, const struct mp_predictor_config *config,
                          struct mp_error *error) {
    const struct mp_sizes *sizes = mp_costs_sizes(predictor->costs);
    struct mp_setting setting;
    mp_costs_setting(predictor->costs, &setting);
    const struct mp_planner_config planner = {.system = config->job->system,
                                              .options = config->job->system_options,
                                              .setting = &setting,
                                              .gradient_bytes = (int64_t)sizes->expert_gradient,
                                              .move = sizes->move,
                                              .check_plans = config->check_plans};
    return mp_planner_create(&planner, &predictor->planner, error);
}

static int create_schedule(struct mp_predictor *predictor, const struct mp_predictor_config *config,
                           struct mp_error *error) {
    int code = mp_predictor_create_executor(predictor, error);
    predictor->schedule.learns = config->job->system->after_step;
    predictor->schedule.micro_batches = predictor->options.micro_batches;
    predictor->schedule.shares = config->job->job.shared_experts > 0;
    return code;
}

static void find_constants(struct mp_predictor *predictor) {
    const struct mp_network *network = predictor->network;
    const struct mp_costs *costs = predictor->costs;
    predictor->reduce_seconds =
        mp_costs_sums(costs) * mp_network_all_reduce(network, mp_costs_block_gradient_bytes(costs));
    predictor->table_reduce_seconds =
        mp_costs_sums(costs) * mp_network_all_reduce(network, mp_costs_table_gradient_bytes(costs));
    /* And where chunks are of tokens, routes of each. */
    const int chunks = predictor->distinct ? predictor->planner.plan->degree : 1;
    const double counts = MP_BYTES_OF_COUNTS + (chunks > 1 ? chunks * sizeof(uint32_t) : 0);
    predictor->gather_seconds =
        mp_network_all_gather(network, counts * (double)predictor->job.experts);
    predictor->agree_seconds = mp_network_all_reduce(network, MP_AGREED_BYTES);
}

/* Where the exchange has rows of tokens, as the first plan says. */
static int create_distinct(struct mp_predictor *predictor, struct mp_error *error) {
    size_t ranks = (size_t)predictor->ranks;
    size_t most =
        (size_t)(mp_levels_most_groups(predictor->ranks) * predictor->planner.plan->degree);
    if (!mp_exchange_of(predictor->planner.plan->exchange)->deduplicates)
        return MP_OK;
    MP_TAKE(&predictor->memory, predictor->distinct, ranks * most);
    return mp_distinct_model_create(&predictor->memory, predictor->ranks, predictor->experts,
                                    mp_costs_top_k(predictor->costs), &predictor->distinct_model,
                                    error);
}

int mp_predict_shards(const struct mp_job_file *file, const struct mp_cluster *cluster,
                      const struct mp_predict_options *options, int *shards,
                      struct mp_error *error) {
    struct mp_costs *costs;
    struct mp_setting setting;
    *shards = mp_job_shards(&file->job);
    if (*shards > 1 || !file->system->shards)
        return MP_OK;
    int code = mp_costs_create(cluster, &file->job, options, &costs, error);
    if (code)
        return code;
    mp_costs_setting(costs, &setting);
    mp_costs_destroy(costs);
    *shards = mp_system_shards(file->system, &setting, file->system_options);
    return MP_OK;
}

/* Experts are cut as the job says, or its system; given costs are of experts as the job has them.
 */
static int take_shards(struct mp_predictor *predictor, const struct mp_predictor_config *config,
                       struct mp_error *error) {
    int code = MP_OK;
    if (!config->costs)
        code = mp_predict_shards(config->job, config->cluster, &predictor->options,
                                 &predictor->job.expert_shards, error);
    predictor->experts = mp_job_plan_experts(&predictor->job);
    return code;
}

static int create_all(struct mp_predictor *predictor, const struct mp_predictor_config *config,
                      struct mp_error *error) {
    int ranks = predictor->ranks, code = take_shards(predictor, config, error);
    if (!code && !config->costs)
        code = mp_costs_create(config->cluster, &predictor->job, &predictor->options,
                               &predictor->own_costs, error);
    predictor->costs = config->costs ? config->costs : predictor->own_costs;
    if (!code)
        code = mp_network_create(config->cluster, &predictor->network, error);
    if (code)
        return code;
    code = create_planner(predictor, config, error);
    if (!code && predictor->planner.policy.offload && !mp_job_serves(&predictor->job))
        code = mp_costs_check_offload(predictor->costs, error);
    if (!code)
        code = create_tables(predictor, error);
    if (!code)
        code = create_layers(predictor, error);
    if (!code)
        code = create_distinct(predictor, error);
    if (!code)
        code = mp_predictor_create_transitions(predictor, error);
    const struct mp_policy *policy = &predictor->planner.policy;
    bool limits = (policy->outgoing_limit >= 0 || policy->pull > 0) && !config->is_gated;
    if (!code && (limits || mp_job_shards(&predictor->job) > 1))
        code = mp_predictor_create_copies(predictor, error);
    if (!code)
        code = mp_timeline_create(predictor->network, ranks, mp_costs_overlap(predictor->costs),
                                  predictor->layers + BACKGROUND_BESIDE_BUCKETS, &predictor->sink,
                                  &predictor->timeline, error);
    if (!code)
        code = mp_inject_parse(predictor->job.inject, &predictor->timeline.inject, error);
    if (!code)
        code = create_schedule(predictor, config, error);
    if (code)
        return code;
    find_constants(predictor);
    mp_predictor_count_homes(predictor);
    return MP_OK;
}

int mp_predictor_create(const struct mp_predictor_config *config, struct mp_predictor **out,
                        struct mp_error *error) {
    const struct mp_job *job = &config->job->job;
    struct mp_predictor *predictor = calloc(1, sizeof *predictor);
    if (!predictor)
        return mp_no_memory(error);
    predictor->job = *job;
    predictor->options = *config->options;
    if (config->sink)
        predictor->sink = *config->sink;
    predictor->ranks = mp_cluster_ranks(config->cluster);
    predictor->layers = job->layers;
    predictor->kept_limit = KEPT_BYTES;
    predictor->iteration = config->first_iteration;
    int code = create_all(predictor, config, error);
    if (code) {
        mp_predictor_destroy(predictor);
        return code;
    }
    *out = predictor;
    return MP_OK;
}

static void destroy_layer(struct mp_predictor *predictor, int number) {
    struct mp_predicted_layer *layer = &predictor->layer[number];
    mp_steps_destroy(&layer->kept);
    mp_carriage_destroy(&layer->prefetch);
    for (int i = 0; i < MP_GRADIENT_STAGES; i++)
        mp_carriage_destroy(&layer->gradient[i]);
    if (predictor->sum)
        mp_load_destroy(&predictor->sum[number]);
}

void mp_predictor_destroy(struct mp_predictor *predictor) {
    if (!predictor)
        return;
    for (int l = 0; predictor->layer && l < predictor->layers; l++)
        destroy_layer(predictor, l);
    mp_traffic_destroy(predictor->traffic);
    mp_carriage_destroy(&predictor->fetch);
    mp_carriage_destroy(&predictor->late_fetch);
    mp_carriage_destroy(&predictor->ahead);
    mp_predictor_destroy_copies(predictor);
    mp_predictor_destroy_executor(predictor);
    mp_timeline_destroy(&predictor->timeline);
    mp_planner_destroy(&predictor->planner);
    mp_network_destroy(predictor->network);
    mp_costs_destroy(predictor->own_costs);
    mp_arena_release(&predictor->memory);
    free(predictor);
}

/* ---- the iteration ---- */

static const struct mp_load *loads_of_iteration(struct mp_predictor *predictor,
                                                const struct mp_load load[]) {
    if (!predictor->sum)
        return load;
    for (int l = 0; l < predictor->layers; l++) {
        struct mp_load *sum = &predictor->sum[l];
        mp_load_copy(sum, &load[l]);
        for (int m = 1; m < predictor->options.micro_batches; m++) {
            const struct mp_load *one = &load[m * predictor->layers + l];
            for (int64_t i = 0; i < (int64_t)sum->ranks * sum->experts; i++)
                sum->count[i] += one->count[i];
        }
    }
    return predictor->sum;
}

static int check_loads(const struct mp_predictor *predictor, const struct mp_load load[],
                       struct mp_error *error) {
    for (int i = 0; i < predictor->layers * predictor->options.micro_batches; i++)
        if (load[i].ranks != predictor->ranks || load[i].experts != predictor->job.experts)
            return mp_fail(error, MP_EINVAL,
                           "iteration %lld, micro-batch %d, layer %d: loads of %d ranks and %d "
                           "experts, the job has %d and %d",
                           (long long)predictor->called, i / predictor->layers,
                           i % predictor->layers, load[i].ranks, load[i].experts, predictor->ranks,
                           predictor->job.experts);
    return MP_OK;
}

static void begin(struct mp_predictor *predictor, struct mp_prediction *prediction) {
    size_t pairs = (size_t)predictor->ranks * (size_t)predictor->experts;
    *prediction = (struct mp_prediction){.iteration = predictor->called, .bound_seconds = NAN};
    predictor->prediction = prediction;
    predictor->moe = predictor->gathering = predictor->gathering_waited = 0;
    predictor->imbalance = 0;
    predictor->planner.planned = -1;
    memset(predictor->expert_seconds, 0, (size_t)predictor->ranks * sizeof(double));
    memset(predictor->layer_moe, 0, (size_t)predictor->layers * sizeof(double));
    if (predictor->dropped)
        memset(predictor->dropped, 0, (size_t)predictor->layers * pairs * sizeof(uint32_t));
    mp_timeline_begin(&predictor->timeline, predictor->iteration, predictor->called);
}

static void sum_up(struct mp_predictor *predictor, struct mp_prediction *prediction) {
    const struct mp_time_sums *sums = &predictor->timeline.sums;
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
    prediction->expert_seconds = sums->spent[MP_PHASE_EXPERT] / ranks;
    prediction->moe_seconds = predictor->moe / ranks;
    prediction->layer_seconds = predictor->layer_moe;
    prediction->attention_seconds = sums->spent[MP_PHASE_ATTENTION] / ranks;
    prediction->transfer_seconds = sums->transfers / ranks;
    prediction->transfer_exposed_seconds =
        (sums->waited[MP_PHASE_FETCH] + sums->waited[MP_PHASE_REDUCE] -
         predictor->gathering_waited) /
        ranks;
    prediction->move_seconds = (sums->spent[MP_PHASE_MOVE] + predictor->gathering) / ranks;
    prediction->all_reduce_exposed_seconds = sums->waited[MP_PHASE_ALLREDUCE] / ranks;
    prediction->imbalance =
        predictor->imbalance / (predictor->layers * predictor->options.micro_batches);
    prediction->serial_seconds = sums->serial;
    for (int r = 0; r < predictor->ranks; r++) {
        if (predictor->expert_seconds[r] > prediction->expert_seconds_max)
            prediction->expert_seconds_max = predictor->expert_seconds[r];
        if (predictor->timeline.port[r] > prediction->port_seconds)
            prediction->port_seconds = predictor->timeline.port[r];
    }
}

static void record_loads(const struct mp_predictor *predictor, const struct mp_load load[]) {
    size_t experts = (size_t)predictor->experts, pairs = experts * (size_t)predictor->ranks;
    if (!predictor->sink.load)
        return;
    for (int l = 0; l < predictor->layers; l++)
        for (int r = 0; r < predictor->ranks; r++) {
            size_t at = (size_t)r * experts;
            predictor->sink.load(predictor->sink.context, r, predictor->called, l,
                                 predictor->job.experts, load[l].count + at,
                                 predictor->dropped ? predictor->dropped + (size_t)l * pairs + at
                                                    : NULL);
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
    int micro_batches = predictor->options.micro_batches;
    int code = check_loads(predictor, load, error);
    if (code)
        return code;
    begin(predictor, prediction);
    predictor->given = load;
    predictor->all_loads = mp_predictor_copy_loads(predictor, load);
    predictor->learnt = loads_of_iteration(predictor, predictor->all_loads);
    code = mp_schedule_iteration(&predictor->schedule, error);
    if (!code) /* what moved after the step has filled traffic, too */
        code = mp_network_check(predictor->network, error);
    if (code)
        return code;
    prediction->seconds =
        mp_timeline_end(&predictor->timeline, micro_batches * mp_costs_tokens(predictor->costs));
    sum_up(predictor, prediction);
    record_loads(predictor, predictor->learnt);
    record_found(predictor);
    predictor->iteration++;
    predictor->called++;
    return MP_OK;
}

int mp_predictor_shards(const struct mp_predictor *predictor) {
    return mp_job_shards(&predictor->job);
}

void mp_predictor_call(struct mp_predictor *predictor, int64_t number) {
    predictor->called = number;
}
