/* The predictor's laws, and every figure of a prediction against what its spans, loads and plans
 * say: for every system, on random machines and loads. */
#include "tests/harness/predict/predictor_support.h"

enum { MOST_RANKS = 16, MOST_LAYERS = 5, DIRECTIONS = 3 };

/* A rank's spans: those of a lane come one behind the other. */
enum lane { WORK, EXCHANGES, BACKGROUND, LANES };
struct lanes {
    int64_t begin, end[LANES]; /* of the iteration; of the last span */
    int64_t own, waited;       /* ns so far */
};

/* Seconds, bytes and rows of an iteration. */
struct told {
    double spent[MP_PHASES][DIRECTIONS], waited[MP_PHASES][DIRECTIONS];     /* of all ranks */
    double carried[MP_PHASES][DIRECTIONS], received[MP_PHASES][DIRECTIONS]; /* in the background */
    double experts[DIRECTIONS][MOST_LAYERS][MOST_RANKS], expert[MOST_RANKS];
    double own_of_rows[DIRECTIONS][MOST_RANKS], optimizer[MOST_RANKS];
    int64_t rows[DIRECTIONS][MOST_LAYERS][MOST_RANKS], flops[DIRECTIONS], tokens[DIRECTIONS];
    int64_t through[MP_PHASES]; /* most tokens of a span; a weights' span has none */
    double copies[DIRECTIONS][MOST_LAYERS][MOST_RANKS][2]; /* seconds and bytes of fetching */
    int64_t first, last, spans;
    /* What the plans ask for. */
    struct mp_costs *costs;
    double planned[DIRECTIONS][MOST_LAYERS][MOST_RANKS]; /* seconds of experts */
    double permuting[MOST_RANKS], homes[MOST_RANKS], kept[MOST_LAYERS][MOST_RANKS];
    double held[MOST_LAYERS][MOST_RANKS]; /* copies beside them */
    int64_t extra;
    bool flat, padded, free, sliced, owned, frees, early;
    bool distinct; /* rows of tokens: what travels beside them differs by trip */
    double sent;   /* bytes of rows that left */
    double passed[2][DIRECTIONS][MOST_RANKS]; /* bytes of dispatch, of combine */
    double leaving[MOST_RANKS],
        coming[MOST_RANKS];                 /* rows to other ranks' experts, and from them */
    double out[MOST_RANKS], in[MOST_RANKS]; /* [nodes] rows that cross the node's border */
    double bytes[MP_STAGES];
    int64_t routes, dropped;
    int loads, facts;
    struct lanes lanes[MOST_RANKS]; /* from the first iteration on */
};

static enum lane lane_of(enum mp_predict_stream stream, int phase) {
    static const bool travels_behind[MP_PHASES] = {[MP_PHASE_FETCH] = true,
                                                   [MP_PHASE_REDUCE] = true,
                                                   [MP_PHASE_ALLREDUCE] = true,
                                                   [MP_PHASE_MOVE] = true};
    return stream == MP_STREAM_COMPUTE ? WORK : travels_behind[phase] ? BACKGROUND : EXCHANGES;
}

/* An iteration encloses all of its spans, and begins where the one before has ended. */
static void end_lanes(struct lanes *lanes, const struct mp_span *span, int64_t spans) {
    assert_numbers(span->start_ns, lanes->begin, span->layer, -1);
    assert_numbers(span->bytes, -1, span->flops, -1);
    assert_true(span->end_ns - span->start_ns + 1 >= lanes->own);
    assert_true(llabs(span->wait_ns - lanes->waited) <= spans);
    for (int lane = 0; lane < LANES; lane++)
        assert_true(lanes->end[lane] <= span->end_ns);
    *lanes = (struct lanes){span->end_ns, {span->end_ns, span->end_ns, span->end_ns}, 0, 0};
}

static bool is_of_rows(int phase) {
    return phase == MP_PHASE_DISPATCH || phase == MP_PHASE_COMBINE;
}

static void follow_lane(struct lanes *lanes, enum mp_predict_stream stream,
                        const struct mp_span *span) {
    int64_t *end = &lanes->end[lane_of(stream, span->phase)];
    assert_true(span->start_ns >= *end && span->end_ns >= span->start_ns);
    *end = span->end_ns;
    if (!mp_phase_of_experts(span->phase) && span->phase != MP_PHASE_SHARED)
        assert_int_equal(span->flops, -1);
    if (stream == MP_STREAM_COMM) {
        assert_int_equal(span->tokens, -1);
        return;
    }
    assert_true(is_of_rows(span->phase) || span->bytes == -1);
    assert_true(span->wait_ns <= span->end_ns - span->start_ns + 1);
    lanes->own += span->end_ns - span->start_ns - span->wait_ns;
    lanes->waited += span->wait_ns;
}

static void take_span(void *context, int rank, enum mp_predict_stream stream,
                      const struct mp_span *span) {
    struct told *told = context;
    double seconds = 1e-9 * (double)(span->end_ns - span->start_ns);
    double own = seconds - 1e-9 * (double)span->wait_ns;
    int phase = span->phase, direction = span->direction, layer = span->layer;
    assert_in_range(phase, 0, MP_PHASES - 1);
    told->spans++;
    if (phase == MP_PHASE_ITERATION) {
        end_lanes(&told->lanes[rank], span, told->spans);
        told->first = span->start_ns;
        told->last = span->end_ns > told->last ? span->end_ns : told->last;
        return;
    }
    follow_lane(&told->lanes[rank], stream, span);
    if (stream == MP_STREAM_COMM) {
        told->carried[phase][direction] += seconds;
        told->received[phase][direction] += (double)span->bytes;
        if (phase == MP_PHASE_FETCH && layer >= 0) {
            told->copies[direction][layer][rank][0] += seconds;
            told->copies[direction][layer][rank][1] += (double)span->bytes;
        }
        return;
    }
    told->spent[phase][direction] += seconds;
    told->waited[phase][direction] += 1e-9 * (double)span->wait_ns;
    told->through[phase] =
        span->tokens > told->through[phase] ? span->tokens : told->through[phase];
    if (is_of_rows(phase)) {
        told->own_of_rows[direction][rank] += own;
        double bytes = span->bytes > 0 ? (double)span->bytes : 0;
        told->passed[phase == MP_PHASE_COMBINE][direction][rank] += bytes;
        told->sent += bytes;
    }
    if (phase == MP_PHASE_DISPATCH && direction == MP_FORWARD && span->tokens >= 0)
        told->tokens[direction] += span->tokens;
    if (phase == MP_PHASE_OPTIMIZER)
        told->optimizer[rank] += own;
    if (phase != MP_PHASE_EXPERT && phase != MP_PHASE_WEIGHTS)
        return;
    told->experts[direction][layer][rank] += seconds;
    told->expert[rank] += seconds;
    if (phase == MP_PHASE_EXPERT)
        told->rows[direction][layer][rank] += span->tokens;
    told->flops[direction] += span->flops;
}

/* The experts' seconds if all rows of an expert are there at once, and homes, of the last
 * micro-batch's plan. */
static void take_facts(void *context, int64_t iteration, int layer, const struct mp_plan *plan,
                       const struct mp_plan_facts *facts) {
    struct told *told = context;
    int64_t sent[MOST_RANKS] = {0};
    assert_numbers(plan->iteration, iteration, plan->layer, layer);
    told->facts++;
    for (int stage = 0; stage < MP_STAGES; stage++)
        told->bytes[stage] += (double)facts->bytes[stage];
    told->flat &= plan->exchange != MP_EXCHANGE_PIPELINED;
    told->distinct |= mp_exchange_of(plan->exchange)->deduplicates;
    told->padded |= plan->padding > 0;
    told->free |= plan->policy->free_transfers;
    told->sliced = mp_optimizer_sliced(plan->policy->optimizer);
    told->owned = plan->policy->optimizer == MP_OPTIMIZER_OWNER;
    told->frees |= plan->policy->rematerialise;
    told->early |= plan->policy->updates_early;
    for (int rank = 0; rank < plan->topology.ranks; rank++)
        for (int expert = 0; expert < plan->experts; expert++) {
            int64_t rows = 0;
            for (int source = 0; source < plan->topology.ranks; source++) {
                int64_t some = (int64_t)mp_plan_routes_to(plan, source, expert, rank);
                int from = mp_topology_node(&plan->topology, source);
                int to = mp_topology_node(&plan->topology, rank);
                rows += some;
                sent[source] += some;
                told->leaving[source] += source == rank ? 0 : (double)some;
                told->coming[rank] += source == rank ? 0 : (double)some;
                told->out[from] += from == to ? 0 : (double)some;
                told->in[to] += from == to ? 0 : (double)some;
            }
            for (int d = MP_FORWARD; d <= MP_BACKWARD; d++)
                told->planned[d][layer][rank] += mp_costs_expert(told->costs, rows, d);
            told->homes[rank] += mp_placement_holds(&plan->before, expert, rank);
            told->kept[layer][rank] += mp_placement_holds(&plan->before, expert, rank);
            told->extra += mp_placement_holds(&plan->during, expert, rank);
            told->held[layer][rank] += mp_placement_holds(&plan->during, expert, rank) -
                                       mp_placement_holds(&plan->before, expert, rank);
        }
    told->extra -= plan->experts;
    for (int rank = 0; rank < plan->topology.ranks; rank++)
        told->permuting[rank] += 2 * mp_costs_permute(told->costs, sent[rank]);
}

static void take_load(void *context, UNUSED int rank, UNUSED int64_t iteration, UNUSED int layer,
                      int experts, const uint32_t routes[], const uint32_t dropped[]) {
    struct told *told = context;
    told->loads++;
    for (int e = 0; e < experts; e++) {
        told->routes += routes[e];
        told->dropped += dropped ? dropped[e] : 0;
        assert_true(!dropped || dropped[e] <= routes[e]);
    }
}

static double all_directions(const double of[DIRECTIONS]) {
    return of[MP_FORWARD] + of[MP_BACKWARD] + of[MP_NO_DIRECTION];
}

/* ---- laws ---- */

static void check_laws(const struct mp_prediction *prediction) {
    double seconds = prediction->seconds;
    if (seconds < prediction->port_seconds * (1 - 1e-5))
        fail_msg("%.9g s, but a port is busy for %.9g s", seconds, prediction->port_seconds);
    assert_true(seconds > 0 && seconds <= prediction->serial_seconds * (1 + 1e-9));
    assert_close((prediction->compute_seconds + prediction->exposed_seconds) / seconds, 1, 1e-9);
    assert_true(prediction->late_seconds <= prediction->exposed_seconds * (1 + 1e-9));
    assert_true(prediction->expert_seconds <= prediction->compute_seconds * (1 + 1e-9));
    assert_true(prediction->imbalance >= 1 - 1e-12);
}

/* No node's port carries more than its bandwidth.  Rows leave a node twice and come back twice; of
 * the last micro-batch.  Ranks that share a gate start their next exchange before the gate is quite
 * done with the one before, which the network model forgets. */
static void check_ports(const struct test_case *test, const struct told *told, double seconds) {
    const int level = test->cluster->levels - 1;
    for (int node = 0; node < MOST_RANKS; node++) {
        double bytes = 2 * told->costs->sizes.row * (told->out[node] + told->in[node]);
        assert_true(seconds * 1.02 >= bytes / mp_cluster_bandwidth(test->cluster, level));
    }
}

/* ---- seconds ---- */

static void check_seconds(const struct told *told, const struct mp_prediction *prediction,
                          double ranks) {
    double spent[MP_PHASES], waited[MP_PHASES], most = 0, all = 0, all_waited = 0;
    const double near = 1e-9 * (double)told->spans + 1e-9 * prediction->seconds;
    for (int p = 0; p < MP_PHASES; p++) {
        all += spent[p] = all_directions(told->spent[p]);
        all_waited += waited[p] = all_directions(told->waited[p]);
    }
    for (int r = 0; r < (int)ranks; r++)
        most = fmax(most, told->expert[r]);
    double gathering = told->spent[MP_PHASE_FETCH][MP_NO_DIRECTION];
    double gathering_waited = told->waited[MP_PHASE_FETCH][MP_NO_DIRECTION];
    double exchange = spent[MP_PHASE_DISPATCH] + spent[MP_PHASE_COMBINE];
    assert_within(prediction->seconds, 1e-9 * (double)(told->last - told->first), near);
    assert_within(prediction->compute_seconds * ranks, all - all_waited, near);
    assert_within(prediction->exposed_seconds * ranks, all_waited, near);
    assert_within(prediction->exchange_seconds * ranks, exchange, near);
    double experts = spent[MP_PHASE_EXPERT] + spent[MP_PHASE_WEIGHTS];
    assert_within(prediction->expert_seconds * ranks, experts, near);
    assert_within(prediction->expert_seconds_max, most, near);
    assert_within(prediction->attention_seconds * ranks, spent[MP_PHASE_ATTENTION], near);
    assert_within(prediction->moe_seconds * ranks,
                  exchange + spent[MP_PHASE_GATE] + spent[MP_PHASE_PLAN] + experts +
                      spent[MP_PHASE_SHARED] + spent[MP_PHASE_REDUCE] + spent[MP_PHASE_FETCH] -
                      gathering,
                  near);
    assert_within(prediction->move_seconds * ranks, spent[MP_PHASE_MOVE] + gathering, near);
    assert_within(prediction->transfer_seconds * ranks,
                  all_directions(told->carried[MP_PHASE_FETCH]) +
                      all_directions(told->carried[MP_PHASE_REDUCE]),
                  near);
    assert_within(prediction->transfer_exposed_seconds * ranks,
                  waited[MP_PHASE_FETCH] - gathering_waited + waited[MP_PHASE_REDUCE], near);
    assert_within(prediction->all_reduce_exposed_seconds * ranks, waited[MP_PHASE_ALLREDUCE], near);
}

/* Own work is what it costs, where the processor has nothing to copy. */
static void check_own_work(const struct test_case *test, const struct told *told) {
    const struct mp_job *job = &test->job.job;
    struct mp_costs *costs = told->costs;
    const double near = 1e-9 * (double)told->spans, micro_batches = test->options.micro_batches;
    double times = micro_batches * job->ranks, expert = costs->sizes.expert;
    double element = expert / costs->sizes.expert_parameters;
    double dense =
        job->layers * mp_costs_block_parameters(costs) + mp_costs_table_parameters(costs);
    for (int d = MP_FORWARD; d <= MP_BACKWARD; d++) {
        assert_within(told->spent[MP_PHASE_ATTENTION][d],
                      times * job->layers * mp_costs_own(costs, MP_PHASE_ATTENTION, d), near);
        assert_within(told->spent[MP_PHASE_GATE][d] - told->waited[MP_PHASE_GATE][d],
                      times * job->layers * mp_costs_own(costs, MP_PHASE_GATE, d), near);
        assert_within(told->spent[MP_PHASE_EMBED][d],
                      times * mp_costs_own(costs, MP_PHASE_EMBED, d), near);
    }
    assert_within(all_directions(told->spent[MP_PHASE_HEAD]),
                  times * mp_costs_own(costs, MP_PHASE_HEAD, MP_FORWARD), near);
    double planning = told->free ? 0 : times * job->layers * test->options.planning;
    if (test->job.system->capabilities & MP_SYSTEM_USES_TRANSITIONS && job->layers > 1)
        assert_true(all_directions(told->spent[MP_PHASE_PLAN]) > planning); /* they are summed */
    else
        assert_within(all_directions(told->spent[MP_PHASE_PLAN]), planning, near);
    for (int r = 0; r < job->ranks; r++) {
        double experts =
            told->sliced ? (double)job->layers * job->experts / job->ranks : told->homes[r];
        double update = told->early ? 0 : mp_costs_optimizer(costs, experts * expert);
        for (int l = 0; told->early && l < job->layers; l++)
            update += mp_costs_optimizer(costs, told->kept[l][r] * expert);
        assert_within(told->optimizer[r], mp_costs_optimizer(costs, dense * element) + update,
                      near);
    }
}

/* Of plans that are seen whole: one micro-batch, nothing padded. */
static void check_experts(const struct test_case *test, const struct told *told) {
    const double near = 1e-9 * (double)told->spans;
    for (int d = MP_FORWARD; d <= MP_BACKWARD; d++)
        for (int r = 0; r < test->job.job.ranks; r++) {
            for (int l = 0; l < test->job.job.layers; l++) {
                double given = told->experts[d][l][r], planned = told->planned[d][l][r];
                if (told->flat && mp_cluster_overlap(test->cluster) >= 1)
                    assert_within(given, planned, near);
                else /* in steps, or beside copies: no less */
                    assert_true(given >= planned - near);
            }
            if (mp_cluster_overlap(test->cluster) >= 1)
                assert_within(told->own_of_rows[d][r], told->permuting[r], near);
        }
}

/* ---- rows and bytes ---- */

/* What all tokens of a rank go through. */
static const enum mp_phase of_tokens[] = {MP_PHASE_EMBED, MP_PHASE_ATTENTION, MP_PHASE_GATE,
                                          MP_PHASE_HEAD};

static void check_rows(const struct test_case *test, const struct told *told,
                       const struct mp_prediction *prediction) {
    double imbalance = 0, route = mp_sizes_route_flops(&told->costs->sizes);
    int64_t all[2] = {0, 0}, kept = prediction->routes - prediction->dropped;
    for (int l = 0; l < test->job.job.layers; l++) {
        double most = 0, sum = 0;
        for (int r = 0; r < test->job.job.ranks; r++) {
            double rows = (double)told->rows[MP_FORWARD][l][r];
            all[MP_FORWARD] += told->rows[MP_FORWARD][l][r];
            all[MP_BACKWARD] += told->rows[MP_BACKWARD][l][r];
            most = fmax(most, rows);
            sum += rows;
        }
        imbalance += sum > 0 ? most * test->job.job.ranks / sum : 1;
    }
    assert_int_equal(all[MP_FORWARD], all[MP_BACKWARD]);
    assert_close((double)told->flops[MP_FORWARD], (double)all[MP_FORWARD] * route, 1e-9);
    assert_close((double)told->flops[MP_BACKWARD], (double)all[MP_BACKWARD] * 2 * route, 1e-9);
    if (told->padded)
        assert_true(all[MP_FORWARD] >= kept);
    else
        assert_int_equal(all[MP_FORWARD], kept);
    assert_int_equal(told->tokens[MP_FORWARD], all[MP_FORWARD]);
    if (test->options.micro_batches == 1 && !told->padded)
        assert_close(prediction->imbalance, imbalance / test->job.job.layers, 1e-9);
    assert_int_equal(prediction->copies, told->extra);
    assert_numbers(told->routes, prediction->routes, told->dropped, prediction->dropped);
    assert_true(!told->dropped || test->job.system->capabilities & MP_SYSTEM_DROPS);
    assert_numbers(told->loads, test->job.job.ranks * test->job.job.layers, told->facts,
                   test->job.job.layers);
    for (const enum mp_phase *phase = of_tokens; phase < of_tokens + 4; phase++)
        if (all_directions(told->spent[*phase]) > 0)
            assert_int_equal(told->through[*phase], (int64_t)told->costs->tokens);
}

static void check_bytes(const struct test_case *test, const struct told *told,
                        const struct mp_prediction *prediction) {
    const double near = (double)told->spans, *bytes = prediction->bytes;
    const double expert = told->costs->sizes.expert;
    const double gradient = told->costs->sizes.expert_gradient;
    const double rows = 1e-9 * prediction->exchanged_bytes; /* of tokens: rounded in every span */
    assert_within(all_directions(told->received[MP_PHASE_DISPATCH]) +
                      all_directions(told->received[MP_PHASE_COMBINE]),
                  prediction->exchanged_bytes, rows + (told->distinct ? near : 0));
    assert_within(told->sent, prediction->exchanged_bytes, rows + (told->distinct ? near : 0));
    for (int stage = 0; test->options.micro_batches == 1 && stage < MP_STAGE_AFTER_STEP; stage++)
        assert_close(bytes[stage] + 1, told->bytes[stage] + 1, 1e-4); /* facts round slices down */
    for (int d = MP_FORWARD; !told->distinct && d <= MP_BACKWARD; d++) {
        assert_within(told->received[MP_PHASE_DISPATCH][d], prediction->exchanged_bytes / 4, rows);
        assert_within(told->received[MP_PHASE_COMBINE][d], prediction->exchanged_bytes / 4, rows);
    }
    if (told->free) { /* copies and sums that are there at once */
        assert_within(prediction->transfer_seconds, 0, 0);
        assert_within(all_directions(told->received[MP_PHASE_FETCH]) +
                          all_directions(told->received[MP_PHASE_REDUCE]),
                      0, 0);
        return;
    }
    assert_within(told->received[MP_PHASE_FETCH][MP_FORWARD],
                  bytes[MP_STAGE_BEFORE_GATE] + bytes[MP_STAGE_AFTER_GATE], near);
    assert_within(told->received[MP_PHASE_FETCH][MP_BACKWARD], bytes[MP_STAGE_BACKWARD_PREFETCH],
                  near);
    assert_within(all_directions(told->received[MP_PHASE_REDUCE]), bytes[MP_STAGE_BACKWARD_REDUCE],
                  near);
    assert_within(all_directions(told->received[MP_PHASE_MOVE]) +
                      told->received[MP_PHASE_FETCH][MP_NO_DIRECTION],
                  bytes[MP_STAGE_AFTER_STEP], near);
    if (told->owned) /* a gradient leaves as often as its copy has come */
        assert_close(bytes[MP_STAGE_BACKWARD_REDUCE] * expert,
                     (bytes[MP_STAGE_BEFORE_GATE] + bytes[MP_STAGE_AFTER_GATE]) * gradient, 1e-9);
}

/* A rank's span has what leaves it: of tokens where rows set out, of others' where they return.
 * Of plans that are seen whole, with rows that travel all at once. */
static void check_passages(const struct test_case *test, const struct told *told) {
    const double row = told->costs->sizes.row;
    for (int r = 0; r < test->job.job.ranks; r++)
        for (int d = MP_FORWARD; d <= MP_BACKWARD; d++) {
            bool back = d == MP_BACKWARD;
            double out = told->leaving[r] * row, in = told->coming[r] * row;
            assert_within(told->passed[back][d][r], out, (double)told->spans);
            assert_within(told->passed[!back][d][r], in, (double)told->spans);
        }
}

/* What is freed comes again for backward as it came for forward. */
static void check_fetches(const struct test_case *test, const struct told *told) {
    for (int l = 0; l < test->job.job.layers; l++)
        for (int r = 0; r < test->job.job.ranks; r++)
            for (int i = 0; i < 2; i++)
                assert_within(told->copies[MP_BACKWARD][l][r][i],
                              told->frees ? told->copies[MP_FORWARD][l][r][i] : 0,
                              (i ? 1 : 1e-9) * (double)told->spans);
}

/* ---- cases ---- */

static struct test_case random_case(uint64_t *random, const char *system, bool frees) {
    struct test_case test = test_random_case(random, system);
    test.job.job.shared_experts = test_random_int(random, 0, 1);
    test.options.planning = 3e-6;
    test.options.vocabulary = 1000;
    test.options.gradient_bytes = 4;
    if (frees)
        test_set(&test, "options.rematerialise=yes");
    return test;
}

static void check_case(uint64_t *random, const struct test_case *test) {
    static struct told told;
    const struct mp_predict_sink sink = {&told, take_span, take_load, take_facts, NULL};
    AUTO(predictor) struct mp_predictor *predictor = test_predictor(test, &sink);
    memset(told.lanes, 0, sizeof told.lanes);
    AUTO(costs) struct mp_costs *costs = NULL;
    assert_works(mp_costs_create(test->cluster, &test->job.job, &test->options, &costs, &error));
    for (int i = 0; i < 4; i++) {
        struct told fresh = {.costs = costs, .flat = true};
        memcpy(fresh.lanes, told.lanes, sizeof fresh.lanes);
        told = fresh;
        test_fill_loads((struct test_case *)test, random, 0.8);
        struct mp_prediction prediction = test_step(predictor, test);
        assert_int_equal(prediction.iteration, i);
        check_laws(&prediction);
        check_ports(test, &told, prediction.seconds);
        check_seconds(&told, &prediction, test->job.job.ranks);
        check_rows(test, &told, &prediction);
        check_bytes(test, &told, &prediction);
        check_fetches(test, &told);
        if (mp_cluster_overlap(test->cluster) >= 1)
            check_own_work(test, &told);
        if (test->options.micro_batches == 1 && !told.padded)
            check_experts(test, &told);
        if (test->options.micro_batches == 1 && !told.padded && told.flat && !told.distinct)
            check_passages(test, &told);
    }
}

TEST_RANDOM(figures_are_what_spans_say) {
    struct mp_systems systems = {0};
    assert_works(mp_systems_register_all(&systems, &error));
    for (int s = 0; s < systems.count; s++)
        for (int i = 0; i < 9; i++) {
            const char *name = systems.item[s]->name;
            AUTO(test)
            struct test_case test = random_case(random, name, !strcmp(name, "fssdp") && i % 2);
            check_case(random, &test);
        }
}

/* Copies and their gradients in memory, by whether copies are freed after each forward, and of one
 * micro-batch or two that are alike.  Gradients are added up over micro-batches, so those of all
 * layers stay; of one, they are summed while the next layer's are made. */
TEST_TURNS(memory_is_of_what_is_held, 4, i) {
    static struct told told;
    const struct mp_predict_sink sink = {.context = &told, .facts = take_facts};
    bool frees = i % 2;
    int micro_batches = 1 + i / 2, rank;
    uint64_t random = 3;
    struct mp_memory memory;
    AUTO(test)
    struct test_case test = test_make(&GOOD_MACHINE,
                                      frees ? "fssdp options.overlap=3 options.rematerialise=yes"
                                            : "fssdp options.overlap=3",
                                      MOST_LAYERS, 16, micro_batches);
    test.options.gradient_bytes = 4;
    test_fill_loads(&test, &random, 0.9);
    for (int l = 0; l < MOST_LAYERS && micro_batches > 1; l++)
        mp_load_copy(&test.load[MOST_LAYERS + l], &test.load[l]);
    AUTO(predictor) struct mp_predictor *predictor = test_predictor(&test, &sink);
    told = (struct told){.costs = predictor->costs, .flat = true};
    test_step(predictor, &test);
    mp_predictor_memory(predictor, &memory, &rank);
    double all = 0, two = 0, kept = told.homes[rank];
    for (int l = 0; l < MOST_LAYERS; l++) {
        all += told.held[l][rank];
        two = fmax(two, told.held[l][rank] + (l ? told.held[l - 1][rank] : 0));
    }
    assert_true(two > 0 && two < all);
    double expert = predictor->costs->sizes.expert;
    assert_close(memory.parameters, kept * expert, 1e-12);
    assert_close(memory.copies, (frees ? two : all) * expert, 1e-12);
    assert_close(memory.gradients,
                 (kept + (micro_batches > 1 && !frees ? all : two)) *
                     predictor->costs->sizes.expert_gradient,
                 1e-12);
    assert_close(memory.optimizer, kept * predictor->costs->sizes.expert_state, 1e-12);
}

/* Nobody has anything to send: nothing is uneven, and nothing is computed but what all compute. */
TEST_TURNS(without_routes_all_are_equal, 3, s) {
    static const char *const systems[] = {"ep", "fssdp", "fastermoe"};
    AUTO(test) struct test_case test = test_make(&GOOD_MACHINE, systems[s], 3, 16, 1);
    AUTO(predictor) struct mp_predictor *predictor = test_predictor(&test, NULL);
    struct mp_prediction prediction = test_step(predictor, &test);
    assert_numbers(prediction.imbalance, 1, prediction.routes, 0, prediction.dropped, 0);
    assert_within(prediction.expert_seconds_max, 0, 0);
    assert_within(prediction.exchanged_bytes, 0, 0);
    assert_within(prediction.late_seconds, 0, 1e-12);
}
