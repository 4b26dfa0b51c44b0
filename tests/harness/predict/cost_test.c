/* Costs: worked out by hand on a device with round figures, and what must hold on any. */
#include "harness/predict/cost.h"

#include "profiler/record/record.h"
#include "tests/harness/predict/one_device.h"

/* Devices on which products wait for memory, and for operations: there the order of rows, inner and
 * columns matters, too. */
static const struct device {
    const char *name, *efficiency;
    bool by_roots;
} devices[] = {{"on memory", ALWAYS_HALF, false}, {"on operations", BY_ROOTS, true}};
static bool by_roots; /* of the device at hand */

static struct mp_cluster *take_device(const struct device *device, const char *more) {
    by_roots = device->by_roots;
    return device_with(device->efficiency, more);
}

/* Score products have a share of their own on the one, and that of all products on the other. */
static const char *attention_of(const struct device *device) {
    return device->by_roots ? "" : "  attention: {value: 0.25, source: a test}\n";
}

static double share(double rows, double width) {
    return by_roots ? 1e-4 * sqrt(fmin(rows, 10000)) * pow(width, 0.25) : 0.5;
}

static double score_peak(double tokens, double head_width) {
    return 1e12 * (by_roots ? share(tokens, head_width) : 0.25);
}

/* Seconds by hand: a product of r x i x c with 2 bytes an element, and elementwise bytes. */
static double product_at(double peak, double r, double i, double c) {
    double compute = 2 * r * i * c / (peak * share(r, fmin(i, c)));
    double memory = 2 * (r * i + i * c + r * c) / 1e9;
    return 1e-6 + fmax(compute, memory);
}

static double product(double r, double i, double c) {
    return product_at(1e12, r, i, c);
}

/* The same where it gives a gradient. */
static double gradient(double r, double i, double c) {
    return product_at(by_roots ? 0.5e12 : 1e12, r, i, c);
}

static double moved(double bytes) {
    return 1e-6 + bytes / 1e9;
}

TEST_EACH(experts_by_hand, devices, device) {
    AUTO(work) struct work on = work_on(take_device(device, ""), small_job());
    AUTO(costs) struct mp_costs *costs = costs_of(&on);
    static const int64_t rows[] = {1, 5, 17, 1000, 100000};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double m = (double)rows[i], d = 64, f = 128;
        assert_close(mp_costs_expert(costs, rows[i], MP_FORWARD),
                     product(m, d, f) + moved(2 * 2 * m * f) + product(m, f, d), 1e-12);
        assert_close(mp_costs_expert(costs, rows[i], MP_BACKWARD),
                     gradient(m, d, f) + gradient(f, m, d) + moved(3 * 2 * m * f) +
                         gradient(m, f, d) + gradient(d, m, f),
                     1e-12);
    }
    assert_true(mp_costs_expert(costs, 0, MP_FORWARD) == 0);
    assert_true(mp_costs_expert(costs, 0, MP_BACKWARD) == 0);
    mp_costs_destroy(costs);

    on.options.expert_matrices = 3;
    costs = costs_of(&on);
    assert_close(mp_costs_expert(costs, 40, MP_FORWARD),
                 2 * product(40, 64, 128) + moved(3 * 2 * 40 * 128) + product(40, 128, 64), 1e-12);
    assert_close(mp_costs_expert(costs, 40, MP_BACKWARD),
                 gradient(40, 64, 128) + gradient(128, 40, 64) + moved(5 * 2 * 40 * 128) +
                     2 * (gradient(40, 128, 64) + gradient(64, 40, 128)),
                 1e-12);
    assert_close(costs->sizes.expert, 3 * 64 * 128 * 2, 0);
}

/* Two are one that is twice as wide, with all tokens of the rank and their residual. */
TEST_EACH(a_shared_expert_by_hand, devices, device) {
    AUTO(work) struct work on = work_on(take_device(device, ""), small_job());
    AUTO(costs) struct mp_costs *without = costs_of(&on);
    on.job.shared_experts = 2;
    AUTO(costs) struct mp_costs *costs = costs_of(&on);
    double n = 32, d = 64, u = 256, residual = moved(3 * 2 * n * d);
    assert_close(mp_costs_own(costs, MP_PHASE_SHARED, MP_FORWARD),
                 product(n, d, u) + moved(2 * 2 * n * u) + product(n, u, d) + residual, 1e-12);
    assert_close(mp_costs_own(costs, MP_PHASE_SHARED, MP_BACKWARD),
                 gradient(n, d, u) + gradient(u, n, d) + moved(3 * 2 * n * u) + gradient(n, u, d) +
                     gradient(d, n, u) + residual,
                 1e-12);
    assert_true(mp_costs_own(without, MP_PHASE_SHARED, MP_FORWARD) == 0);
    assert_true(mp_costs_shared_flops(costs) == 4 * d * u);
    assert_true(mp_costs_shared_flops(without) == 0);
    assert_true(mp_costs_block_parameters(costs) == mp_costs_block_parameters(without) + 2 * d * u);
    assert_close(costs->setting.non_moe_seconds,
                 mp_costs_own(costs, MP_PHASE_ATTENTION, MP_FORWARD) +
                     mp_costs_own(costs, MP_PHASE_GATE, MP_FORWARD) +
                     mp_costs_own(costs, MP_PHASE_SHARED, MP_FORWARD),
                 1e-12);
    struct mp_memory_use use = {.rows = 64, .rows_one_layer = 32};
    struct mp_memory memory, before;
    mp_costs_memory(costs, &use, &memory);
    mp_costs_memory(without, &use, &before);
    /* Hidden elements before and after the activation, of two bytes. */
    assert_close(memory.activations - before.activations, on.job.layers * n * 2 * u * 2, 1e-12);
    assert_true(memory.dense > before.dense && memory.parameters == before.parameters);
}

TEST_EACH(attention_by_hand, devices, device) {
    AUTO(work) struct work on = work_on(take_device(device, attention_of(device)), small_job());
    double n = 32, d = 64, s = 32, h = 4, peak = score_peak(n, d / h), kv;
    double around = moved(2 * 2 * n * d) + product(n, d, d) + moved(3 * 2 * n * d);
    for (int grouped = 0; grouped < 2; grouped++) {
        on.options.key_value_heads = grouped ? 2 : MP_AUTO;
        kv = grouped ? 32 : 64;
        double rows = 2 * n * (2 * d + 2 * kv), square = 2 * n * s * h;
        on.options.attention = MP_ATTENTION_FULL;
        AUTO(costs) struct mp_costs *costs = costs_of(&on);
        double scores = 2e-6 + fmax(4 * n * s * d / peak, (2 * square + rows) / 1e9);
        assert_close(mp_costs_own(costs, MP_PHASE_ATTENTION, MP_FORWARD),
                     around + product(n, d, d + 2 * kv) + scores + moved(2 * square), 1e-12);
        mp_costs_destroy(costs);

        on.options.attention = MP_ATTENTION_FLASH;
        costs = costs_of(&on);
        scores = 1e-6 + fmax(2 * n * s * d / peak, rows / 1e9);
        assert_close(mp_costs_own(costs, MP_PHASE_ATTENTION, MP_FORWARD),
                     around + product(n, d, d + 2 * kv) + scores, 1e-12);
        double back = by_roots ? peak / 2 : peak;
        scores = 1e-6 + fmax(5 * n * s * d / back, 2 * rows / 1e9);
        assert_close(mp_costs_own(costs, MP_PHASE_ATTENTION, MP_BACKWARD),
                     gradient(n, d, d) + gradient(d, n, d) + scores + gradient(n, d + 2 * kv, d) +
                         gradient(d, n, d + 2 * kv) + moved(4 * 2 * n * d),
                     1e-12);
    }
}

/* Serving: what the cache keeps is read and the new tokens' written, scores are of all that is
 * cached and half of the new square, and the head has one row of each sequence. */
TEST_EACH(steps_of_serving_by_hand, devices, device) {
    AUTO(work) struct work on = work_on(take_device(device, attention_of(device)), small_job());
    double d = 64, kv = 32, h = 4, v = 50;
    on.options.key_value_heads = 2;
    on.options.vocabulary = 50;
    for (int turn = 0; turn < 4; turn++) {
        bool decodes = turn % 2, latent = turn / 2;
        on.options.cache_width = latent ? 24 : MP_AUTO;
        on.job.mode = decodes ? MP_MODE_DECODE : MP_MODE_PREFILL;
        on.job.batch = 6; /* of two ranks */
        on.job.context = 1000;
        double s = decodes ? 1 : 32, n = 3 * s, met = 1000 + s, peak = score_peak(n, d / h);
        double around = moved(2 * 2 * n * d) + product(n, d, d + 2 * kv) + product(n, d, d) +
                        moved(3 * 2 * n * d);
        double rows = 2 * n * (2 * d + 2 * kv), cache = 2 * (latent ? 24 : 2 * kv) * (3 * met + n);
        double square = 2 * n * met * h;
        on.options.attention = MP_ATTENTION_FLASH;
        AUTO(costs) struct mp_costs *costs = costs_of(&on);
        assert_int_equal((int64_t)costs->tokens, (int)n);
        assert_close(mp_costs_own(costs, MP_PHASE_ATTENTION, MP_FORWARD),
                     around + 1e-6 + fmax(2 * n * (s + 2 * 1000) * d / peak, (rows + cache) / 1e9),
                     1e-12);
        assert_close(mp_costs_own(costs, MP_PHASE_HEAD, MP_FORWARD),
                     moved(2 * 2 * 3 * d) + product(3, d, v) + moved(2 * 4 * 3 * v), 1e-12);
        assert_true(mp_costs_table_parameters(costs) == (50 + met + 2) * d);
        assert_true(costs->sizes.expert_gradient == 0);
        assert_true(costs->sizes.expert_state == 0);
        assert_true(mp_costs_block_gradient_bytes(costs) == 0);
        mp_costs_destroy(costs);
        on.options.attention = MP_ATTENTION_FULL;
        costs = costs_of(&on);
        assert_close(mp_costs_own(costs, MP_PHASE_ATTENTION, MP_FORWARD),
                     around + 2e-6 +
                         fmax(4 * n * met * d / peak, (2 * square + rows + cache) / 1e9) +
                         moved(2 * square),
                     1e-12);
    }
}

TEST_EACH(everything_else_by_hand, devices, device) {
    AUTO(work)
    struct work on = work_on(take_device(device, "  elementwise: {value: 2e9, source: a test}\n"
                                                 "  update: {value: 4e9, source: a test}\n"),
                             small_job());
    on.options.vocabulary = 50;
    AUTO(costs) struct mp_costs *costs = costs_of(&on);
    double n = 32, d = 64, e = 8, v = 50, norm = 1e-6 + 2 * 2 * n * d / 2e9;
    double back = 1e-6 + 4 * 2 * n * d / 2e9, softmax = 1e-6 + 4 * n * (2 * e + 4) / 2e9;
    assert_close(mp_costs_own(costs, MP_PHASE_GATE, MP_FORWARD),
                 norm + product(n, d, e) + softmax + 1e-6 + 4 * 3 * n * 2 / 2e9, 1e-12);
    assert_close(
        mp_costs_own(costs, MP_PHASE_GATE, MP_BACKWARD),
        1e-6 + 3 * 2 * n * d / 2e9 + softmax + gradient(n, e, d) + gradient(d, n, e) + back, 1e-12);
    assert_close(mp_costs_own(costs, MP_PHASE_EMBED, MP_FORWARD), 1e-6 + 3 * 2 * n * d / 2e9,
                 1e-12);
    assert_close(mp_costs_own(costs, MP_PHASE_EMBED, MP_BACKWARD), 1e-6 + 3 * 2 * n * d / 2e9,
                 1e-12);
    assert_close(mp_costs_own(costs, MP_PHASE_HEAD, MP_FORWARD),
                 norm + product(n, d, v) + 1e-6 + 2 * 4 * n * v / 2e9 + gradient(n, v, d) +
                     gradient(d, n, v) + back,
                 1e-12);
    assert_close(mp_costs_permute(costs, 10), 1e-6 + 10 * 2 * 2 * d / 1e9, 1e-12);
    assert_true(mp_costs_permute(costs, 0) == 0);
    /* With one-hot matrices of 40 rows: weights in 32 bits written and read twice, a mask written
     * and read, both written as elements; one product forward each, and three backward. */
    double r = 40, made = 1e-6 + r * n * (3 * 4 + 2 + 2 * 2) / 2e9;
    assert_close(mp_costs_one_hot(costs, 40, MP_PHASE_DISPATCH, MP_FORWARD),
                 made + product(r, n, d), 1e-12);
    assert_close(mp_costs_one_hot(costs, 40, MP_PHASE_COMBINE, MP_FORWARD), product(n, r, d),
                 1e-12);
    assert_close(mp_costs_one_hot(costs, 40, MP_PHASE_COMBINE, MP_BACKWARD),
                 gradient(r, n, d) + gradient(r, d, n) + 1e-6 + r * n * (2 + 8) / 2e9, 1e-12);
    assert_close(mp_costs_one_hot(costs, 40, MP_PHASE_DISPATCH, MP_BACKWARD), gradient(n, r, d),
                 1e-12);
    /* 2 bytes read and written, 2 of gradient, 12 of state read and written. */
    assert_close(mp_costs_optimizer(costs, 2e6), 1e-6 + 1e6 * (4 + 2 + 24) / 4e9, 1e-12);
    assert_true(mp_costs_optimizer(costs, 0) == 0);
    assert_close(mp_costs_table_gradient_bytes(costs), (50 + 32 + 2) * d * 2, 0);
    assert_int_equal((int64_t)costs->tokens, 32);
    assert_true(costs->sizes.row == 128);
    mp_costs_destroy(costs);

    on.options.vocabulary = 0;
    costs = costs_of(&on);
    assert_true(mp_costs_own(costs, MP_PHASE_HEAD, MP_FORWARD) == 0 &&
                mp_costs_own(costs, MP_PHASE_EMBED, MP_FORWARD) == 0);
    assert_true(mp_costs_table_parameters(costs) == 0);
}

/* Weights' products of attention's backward are those of the projections that it begins with; of
 * experts', all but the last matrix's, each as long as the others; recomputing adds a third one. */
static const struct {
    enum mp_phase phase;
    int matrices, recompute;
    double weights; /* 0: as attention says */
} parts[] = {{MP_PHASE_EXPERT, 2, MP_RECOMPUTE_NONE, 1. / 4},
             {MP_PHASE_EXPERT, 3, MP_RECOMPUTE_NONE, 2. / 6},
             {MP_PHASE_EXPERT, 2, MP_RECOMPUTE_FULL, 1. / 6},
             {MP_PHASE_EXPERT, 3, MP_RECOMPUTE_FULL, 2. / 9},
             {MP_PHASE_ATTENTION, 2, MP_RECOMPUTE_NONE, 0},
             {MP_PHASE_ATTENTION, 2, MP_RECOMPUTE_FULL, 0}};

TEST_ROWS(parts_of_backward, parts, row) {
    AUTO(work) struct work on = work_on(take_device(&devices[1], ""), small_job());
    on.options.expert_matrices = row->matrices;
    on.options.recompute = row->recompute;
    on.options.key_value_heads = 2;
    AUTO(costs) struct mp_costs *costs = costs_of(&on);
    double backward = mp_costs_own(costs, MP_PHASE_ATTENTION, MP_BACKWARD);
    double weights = row->weights > 0 ? row->weights : gradient(64, 32, 128) / backward;
    assert_true(mp_costs_part(costs, row->phase, MP_ALL_PRODUCTS) == 1);
    assert_close(mp_costs_part(costs, row->phase, MP_WEIGHT_PRODUCTS), weights, 1e-12);
    assert_close(mp_costs_part(costs, row->phase, MP_INPUT_PRODUCTS), 1 - weights, 1e-12);
}

/* Two shards of an expert are experts half as wide, each with all routes: twice as many rows. */
TEST_EACH(shards_by_hand, devices, device) {
    AUTO(work) struct work on = work_on(take_device(device, ""), small_job());
    on.job.expert_shards = 2;
    AUTO(costs) struct mp_costs *costs = costs_of(&on);
    double n = 32, d = 64, e = 8, k = 2, softmax = moved(4 * n * (2 * e + 2 * k));
    assert_close(mp_costs_expert(costs, 40, MP_FORWARD),
                 product(40, d, 64) + moved(2 * 2 * 40 * 64) + product(40, 64, d), 1e-12);
    assert_close(mp_costs_own(costs, MP_PHASE_GATE, MP_FORWARD),
                 moved(2 * 2 * n * d) + product(n, d, e) + softmax + moved(4 * 5 * n * k), 1e-12);
    assert_close(mp_costs_own(costs, MP_PHASE_GATE, MP_BACKWARD),
                 moved(5 * 2 * n * d) + softmax + gradient(n, e, d) + gradient(d, n, e) +
                     moved(4 * 2 * n * d),
                 1e-12);
    /* Half of 2 * 16 shards, and 32 tokens with 2 * 2 rows. */
    const struct mp_memory_use even = {16, 16, 0, 16, 256, 128, 256, 128, 0, false};
    struct mp_memory memory;
    mp_costs_memory(costs, &even, &memory);
    assert_close(costs->setting.copies_memory, memory.limit - memory.total, 0);
}

/* Of 1e6 parameters: gradients of 2 bytes go down, parameters of 2 come up, the host reads and
 * writes both and 12 bytes of state. */
TEST(offloading_by_hand) {
    AUTO(work)
    struct work on = work_on(one_device("  host-bandwidth: {value: 5e8, source: a test}\n"
                                        "  host-update: {value: 3e8, source: a test}\n"),
                             small_job());
    AUTO(costs) struct mp_costs *costs = costs_of(&on);
    assert_works(mp_costs_check_offload(costs, &error));
    assert_close(mp_costs_offloaded(costs, 2e6), 2e-6 + (2e6 + 2e6) / 5e8 + 1e6 * 30 / 3e8, 1e-15);
    assert_close(mp_costs_come_up(costs, 2e6), 2e6 / 5e8, 1e-15);
    assert_true(mp_costs_offloaded(costs, 0) == 0 && mp_costs_come_up(costs, 0) == 0);
}

static struct mp_job random_job(uint64_t *random) {
    struct mp_job job = small_job();
    job.layers = test_random_int(random, 1, 8);
    job.heads = 1 << test_random_int(random, 0, 3);
    job.width = job.heads * test_random_int(random, 1, 64);
    job.experts = test_random_int(random, 2, 64);
    job.expert_width = test_random_int(random, 1, 512);
    job.sequence = test_random_int(random, 2, 256);
    job.gate = mp_gate_find("softmax");
    job.top_k = test_random_int(random, 1, job.experts < 8 ? job.experts : 8);
    job.batch = 2 * test_random_int(random, 1, 6);
    return job;
}

/* The model that the trainer trains counts its own operations and parameters. */
TEST_RANDOM(counts_are_the_models) {
    AUTO(work) struct work on = work_on(one_device(""), small_job());
    on.options.vocabulary = MP_VOCABULARY;
    for (int i = 0; i < 200; i++) {
        on.job = random_job(random);
        const struct mp_model_shape shape = shape_of(&on.job);
        on.options.attention = test_random_int(random, 0, 1);
        AUTO(costs) struct mp_costs *costs = costs_of(&on);
        assert_close(mp_sizes_route_flops(&costs->sizes), (double)mp_model_route_flops(&shape), 0);
        double parameters = on.job.layers * (mp_costs_block_parameters(costs) +
                                             on.job.experts * costs->sizes.expert_parameters) +
                            mp_costs_table_parameters(costs);
        assert_close(parameters, (double)mp_model_parameters(&shape), 0);
    }
}

static struct mp_cluster *shipped(const char *name) {
    struct mp_cluster *cluster = NULL;
    const char *path = formatted("%s/harness/cluster/clusters/%s.yaml", MOEPERF_SOURCE, name);
    assert_works(mp_cluster_load(path, &cluster, &error));
    return cluster;
}

static struct mp_job deep_job(void) {
    struct mp_job job = small_job(); /* Hecate's BERT-MoE-Deep, one sequence a rank */
    job.layers = 24;
    job.width = 1024;
    job.heads = 16;
    job.experts = 64;
    job.expert_width = 2048;
    job.sequence = 512;
    job.batch = 32;
    return job;
}

/* Bits that any machine must come to. */
TEST(golden_bits) {
    AUTO(work) struct work on = work_on(shipped("hecate-a"), deep_job());
    AUTO(costs) struct mp_costs *costs = costs_of(&on);
    assert_numbers(mp_costs_own(costs, MP_PHASE_ATTENTION, MP_FORWARD), 0x1.20e7dc4780b51p-13,
                   mp_costs_own(costs, MP_PHASE_ATTENTION, MP_BACKWARD), 0x1.019e0b005b048p-12,
                   mp_costs_own(costs, MP_PHASE_GATE, MP_FORWARD), 0x1.500275ad9135ep-16,
                   mp_costs_own(costs, MP_PHASE_GATE, MP_BACKWARD), 0x1.05eaf7c46afe2p-15,
                   mp_costs_expert(costs, 17, MP_FORWARD), 0x1.aff41697cb214p-16,
                   mp_costs_expert(costs, 17, MP_BACKWARD), 0x1.6bde815e9973p-15,
                   mp_costs_expert(costs, 3000, MP_FORWARD), 0x1.5d9ca4b7bc6b4p-12,
                   mp_costs_expert(costs, 3000, MP_BACKWARD), 0x1.5359a0d35f22cp-11);
}

TEST(recompute_runs_forward_again) {
    AUTO(work) struct work on = work_on(shipped("hecate-b"), deep_job());
    AUTO(costs) struct mp_costs *plain = costs_of(&on);
    on.options.recompute = MP_RECOMPUTE_FULL;
    AUTO(costs) struct mp_costs *again = costs_of(&on);
    assert_true(mp_costs_own(again, MP_PHASE_ATTENTION, MP_FORWARD) ==
                mp_costs_own(plain, MP_PHASE_ATTENTION, MP_FORWARD));
    assert_close(mp_costs_own(again, MP_PHASE_ATTENTION, MP_BACKWARD),
                 mp_costs_own(plain, MP_PHASE_ATTENTION, MP_BACKWARD) +
                     mp_costs_own(plain, MP_PHASE_ATTENTION, MP_FORWARD),
                 1e-15);
    assert_close(mp_costs_own(again, MP_PHASE_GATE, MP_BACKWARD),
                 mp_costs_own(plain, MP_PHASE_GATE, MP_BACKWARD) +
                     mp_costs_own(plain, MP_PHASE_GATE, MP_FORWARD),
                 1e-15);
    assert_close(mp_costs_expert(again, 77, MP_BACKWARD),
                 mp_costs_expert(plain, 77, MP_BACKWARD) + mp_costs_expert(plain, 77, MP_FORWARD),
                 1e-15);
}

TEST_EACH(planners_are_told, devices, device) {
    AUTO(work) struct work on = work_on(take_device(device, ""), small_job());
    on.job.batch = 8;
    on.options.micro_batches = 4;
    AUTO(costs) struct mp_costs *costs = costs_of(&on);
    const struct mp_setting *setting = &costs->setting;
    assert_numbers(setting->layers, 2, setting->experts, 8, setting->top_k, 2);
    assert_numbers(setting->topology.ranks, 2, setting->tokens_per_rank, 32);
    assert_numbers(setting->expert_bytes, 2 * 2 * 64 * 128, setting->route_bytes, 128);
    assert_numbers(setting->seed, 7, setting->bandwidth, 2e8, setting->bandwidth_in_node, 2e8);
    /* Half of the experts, and 32 tokens with 2 routes, on each of two ranks. */
    const struct mp_memory_use even = {8, 8, 0, 8, 128, 64, 128, 64, 0, false};
    struct mp_memory memory;
    mp_costs_memory(costs, &even, &memory);
    assert_true(memory.limit > memory.total);
    assert_close(setting->copies_memory, memory.limit - memory.total, 0);
    assert_close(setting->non_moe_seconds,
                 mp_costs_own(costs, MP_PHASE_ATTENTION, MP_FORWARD) +
                     mp_costs_own(costs, MP_PHASE_GATE, MP_FORWARD),
                 0);
    /* The line goes through one route and the mean number, 32 * 2 * 2 / 8. */
    assert_close(setting->seconds_per_expert + setting->seconds_per_route,
                 mp_costs_expert(costs, 1, MP_FORWARD), 1e-12);
    assert_close(setting->seconds_per_expert + 16 * setting->seconds_per_route,
                 mp_costs_expert(costs, 16, MP_FORWARD), 1e-12);
    mp_costs_destroy(costs);

    on.job.bandwidth = 3e9;
    on.job.copies_memory = 12;
    on.job.expert_rate = 2e12;
    on.job.non_moe_seconds = 0.5;
    costs = costs_of(&on);
    setting = &costs->setting;
    assert_true(setting->bandwidth == 3e9 && setting->non_moe_seconds == 0.5);
    assert_true(setting->bandwidth_in_node == 3e9 && setting->copies_memory == 12);
    assert_close(setting->seconds_per_route, 4 * 64 * 128 / 2e12, 1e-12);
    assert_true(setting->seconds_per_expert == 0);
}

/* Fewer than two routes of an expert are taken for two. */
TEST(few_routes_of_many_experts) {
    AUTO(work) struct work on = work_on(take_device(&devices[1], ""), small_job());
    on.job.experts = 80; /* of 32 * 2 * 2 routes: 1.6 of each */
    AUTO(costs) struct mp_costs *costs = costs_of(&on);
    const struct mp_setting *setting = &costs->setting;
    double one = mp_costs_expert(costs, 1, MP_FORWARD), two = mp_costs_expert(costs, 2, MP_FORWARD);
    assert_close(setting->seconds_per_route, two - one, 1e-12);
    assert_close(setting->seconds_per_expert, 2 * one - two, 1e-12);
}

/* Nodes of eight ranks with four cards; and devices without room, which is not to say that room is
 * unknown. */
TEST(planners_are_told_of_nodes) {
    AUTO(work) struct work on = work_on(shipped("hecate-b"), deep_job());
    int far = on.cluster->levels - 1;
    on.cluster->level[far].message_cost = (struct mp_quantity){.value = 3e-6, .origin = "a test"};
    on.cluster->level[far - 1].ports.value = 2;
    on.cluster->memory.value = 1e6;
    AUTO(costs) struct mp_costs *costs = costs_of(&on);
    const struct mp_setting *setting = &costs->setting;
    assert_numbers(setting->bandwidth, 4 * 12.5e9, setting->bandwidth_in_node, 2 * 300e9);
    assert_true(setting->knows_messages && setting->message_seconds == 3e-6);
    assert_true(setting->latency == 25e-6 && setting->latency_in_node == 5e-6);
    assert_int_equal(setting->ranks_per_gate, 2);
    assert_true(setting->copies_memory == 1);
    for (int ranks = 2; ranks > 0; ranks--) { /* of a node; alone they send to others only */
        on.cluster->ranks_per_node.value = on.cluster->level[far - 1].span = ranks;
        mp_costs_destroy(costs);
        costs = costs_of(&on);
        setting = &costs->setting;
        assert_close(setting->bandwidth_in_node, ranks > 1 ? 2 * 300e9 : setting->bandwidth, 0);
        assert_true(setting->latency_in_node == (ranks > 1 ? 5e-6 : 25e-6));
    }
    on.cluster->nodes.value = 1;
    mp_costs_destroy(costs);
    costs = costs_of(&on);
    assert_true(costs->setting.bandwidth == 0); /* there is nobody else */
}

static void refuses(const struct work *on, const char *sentence) {
    struct mp_costs *costs = NULL;
    assert_sentence(mp_costs_create(on->cluster, &on->job, &on->options, &costs, &error), MP_EINVAL,
                    sentence);
    assert_null(costs);
}

TEST(what_cannot_be_is_named) {
    AUTO(work) struct work on = work_on(one_device(""), small_job());
    const struct mp_predict_options usual = on.options;
    on.options.precision = MP_BF16;
    refuses(
        &on,
        formatted("%s:7: peak: gives none for bf16; give it, or take another (predict.precision)",
                  on.cluster->file));
    on.options = usual;
    on.options.micro_batches = 2;
    refuses(&on, "batch: 2 sequences can't be split over 2 ranks and 2 micro-batches");
    on.options = usual;
    on.options.cache_width = 0;
    refuses(&on, "cache-width: a cache keeps 1 number of a token at least");
    on.options = usual;
    on.options.key_value_heads = 3;
    refuses(&on, "key-value-heads: 4 heads can't share 3 of them");
    on.options.key_value_heads = 0;
    refuses(&on, "key-value-heads: 4 heads can't share 0 of them");
    on.options = usual;
    on.job.heads = 7;
    refuses(&on, "width: 64 is not a multiple of 7 heads");
}
