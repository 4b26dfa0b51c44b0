/* Memory of a rank: the published counts of activations and of copies, their sums, and what the
 * trainer's model takes for the same rows. */
#include "harness/predict/cost.h"

#include "reference/model/block.h"
#include "tests/harness/predict/one_device.h"
#include "tests/harness/predict/predictor_support.h"

static const struct mp_memory_use use = {.experts_kept = 8,
                                         .states_kept = 7,
                                         .copies = 3,
                                         .gradients = 11,
                                         .rows = 130,
                                         .rows_one_layer = 70,
                                         .sent = 150,
                                         .sent_one_layer = 90};

static struct mp_memory memory_of(const struct work *on) {
    AUTO(costs) struct mp_costs *costs = costs_of(on);
    struct mp_memory memory;
    mp_costs_memory(costs, &use, &memory);
    return memory;
}

TEST(states_by_hand) {
    AUTO(work) struct work on = work_on(one_device(""), small_job());
    struct mp_memory memory = memory_of(&on);
    double expert = 2 * 64 * 128, block = 4 * 64 + 4 * 64 * 64 + 64 * 8;
    assert_numbers(memory.dense, 2 * block * 16, memory.parameters, 8 * expert * 2);
    assert_numbers(memory.copies, 3 * expert * 2, memory.gradients, 11 * expert * 2);
    assert_numbers(memory.optimizer, 7 * expert * 12, memory.buffers, (90 + 70) * 64 * 2);
    assert_close(memory.limit, 7.2e9, 1e-15);
    assert_close(memory.total,
                 memory.dense + memory.parameters + memory.copies + memory.gradients +
                     memory.optimizer + memory.activations + memory.buffers,
                 0);
}

/* Serving: parameters, one block's activations, and keys and values of all tokens in all layers. */
TEST(serving_keeps_a_cache_and_nothing_of_training) {
    AUTO(work) struct work on = work_on(one_device(""), small_job());
    on.options.key_value_heads = 2;
    on.options.attention = MP_ATTENTION_FLASH;
    on.options.vocabulary = 50;
    on.options.micro_batches = 2;
    on.job.mode = MP_MODE_DECODE;
    on.job.context = 1000;
    on.job.batch = 12; /* 3 of each of two ranks and micro-batches */
    struct mp_memory memory = memory_of(&on);
    double h = 64, kv = 32, n = 3, f = 128, expert = 2 * 64 * 128, places = 1001;
    double block = 4 * h + h * (h + 2 * kv) + h * h + h * 8, tables = (50 + places + 2) * h;
    assert_close(memory.cache, 2 * 6 * places * 2 * kv * 2, 0);
    assert_numbers(memory.dense, 2 * (2 * block + tables), memory.parameters, 8 * expert * 2);
    assert_close(memory.copies, 3 * expert * 2, 0);
    assert_true(memory.gradients == 0 && memory.optimizer == 0);
    double token = 4 * h * 2 + (h + 2 * kv) * 2 + h + 4 * 4 + 3 * h + 4 * 8 + 2 * 12;
    assert_close(memory.activations,
                 n * (token + 2 * h * 2 + 50 * 4) + 90 * 2 * h + 70 * (2 * (h + 2 * f) + 4), 0);
    assert_close(memory.total,
                 memory.dense + memory.parameters + memory.copies + memory.activations +
                     memory.cache + memory.buffers,
                 0);
    on.options.cache_width = 24; /* of keys and values the latent alone */
    assert_close(memory_of(&on).cache, 2 * 6 * places * 24 * 2, 0);
    on.job.mode = MP_MODE_PREFILL; /* of 32 new tokens a sequence */
    assert_close(memory_of(&on).cache, 2 * 6 * 1032 * 24 * 2, 0);
}

/* A cluster that says nothing of its hosts is asked to only where state lies there. */
TEST_TURNS(hosts_must_be_known, 2, missing) {
    struct test_machine machine = GOOD_MACHINE;
    struct mp_predictor *predictor = NULL;
    *(missing ? &machine.host_update : &machine.host_bandwidth) = 0;
    AUTO(test) struct test_case test = test_make(&machine, "swiftmoe", 2, 8, 1);
    struct mp_predictor_config config = {
        .cluster = test.cluster, .job = &test.job, .options = &test.options};
    assert_works(mp_predictor_create(&config, &predictor, &error));
    mp_predictor_destroy(predictor);
    test_set(&test, "options.offload-optimizer=yes");
    assert_fails(mp_predictor_create(&config, &predictor, &error), MP_EINVAL,
                 missing ? "gives no device.host-update," : "gives no device.host-bandwidth,");
}

/* Korthikanti et al.: 11 + 4 + 5 a s / h bytes per element of a row for attention and layer norms.
 * Then the gate's: input and dropout's mask (3 h), probabilities, and of each of 2 routes three
 * numbers; of each row sent the one that came back; and at the expert 2 (h + 2 F) and an index per
 * route. */
TEST(activations_by_hand) {
    AUTO(work) struct work on = work_on(one_device(""), small_job());
    double h = 64, a = 4, s = 32, f = 128, e = 8, n = 32, layers = 2;
    double gate = 3 * h + 4 * e + 2 * 12, sent = 150 * 2 * h, sent_once = 90 * 2 * h;
    double full = 15 * h + 5 * a * s + gate, flash = 15 * h + 4 * a + gate;
    double route = 2 * (h + 2 * f) + 4, gated = 2 * (h + 3 * f) + 4;
    assert_close(memory_of(&on).activations, layers * n * full + sent + 130 * route, 0);

    on.options.expert_matrices = 3;
    assert_close(memory_of(&on).activations, layers * n * full + sent + 130 * gated, 0);

    on.options.attention = MP_ATTENTION_FLASH;
    assert_close(memory_of(&on).activations, layers * n * flash + sent + 130 * gated, 0);

    on.options.recompute = MP_RECOMPUTE_FULL;
    assert_close(memory_of(&on).activations, n * (layers * 2 * h + flash) + sent_once + 70 * gated,
                 0);

    on.options.vocabulary = 100;
    assert_close(memory_of(&on).activations,
                 n * (layers * 2 * h + flash + 4 * h + 4 * 100) + sent_once + 70 * gated, 0);
    assert_close(memory_of(&on).dense,
                 (layers * (4 * h + 4 * h * h + h * e) + (100 + s + 2) * h) * 16, 0);

    on.options.vocabulary = 0;
    on.options.recompute = MP_RECOMPUTE_NONE;
    on.options.key_value_heads = 1; /* of four: keys and values have a quarter of the width */
    assert_close(memory_of(&on).activations,
                 layers * n * (flash - 2 * 2 * h * 3 / 4) + sent + 130 * gated, 0);
    on.options.precision = MP_FP32;
    on.options.key_value_heads = MP_AUTO;
    on.options.attention = MP_ATTENTION_FULL;
    assert_close(memory_of(&on).activations,
                 layers * n * (29 * h + 9 * a * s + 5 * h + 4 * e + 2 * 12) + 150 * 4 * h +
                     130 * (4 * (h + 3 * f) + 4),
                 0);
}

/* Cells of 32 tokens for every row that is sent, as elements for dispatch and for combining in all
 * layers; in 32 bits and as a mask in one. */
TEST(one_hot_matrices_by_hand) {
    AUTO(work) struct work on = work_on(one_device(""), small_job());
    struct mp_memory memory[2];
    for (int once = 0; once < 2; once++) {
        on.options.recompute = once ? MP_RECOMPUTE_FULL : MP_RECOMPUTE_NONE;
        AUTO(costs) struct mp_costs *costs = costs_of(&on);
        for (int i = 0; i < 2; i++) {
            struct mp_memory_use with = use;
            with.one_hot = i;
            mp_costs_memory(costs, &with, &memory[i]);
        }
        assert_close(memory[1].activations - memory[0].activations, (once ? 90 : 150) * 32 * 2 * 2,
                     1e-12);
        assert_close(memory[1].buffers - memory[0].buffers, 90 * 32 * 5, 1e-12);
    }
}

/* Hecate's published figures of parameter, gradient and optimizer memory of experts (BERT-MoE-Deep,
 * 24 layers of 64 experts on 32 ranks) agree with each other here.  Given: parameters are 5.73
 * times those of expert parallelism, so that there are 227 copies beside 48 experts.  Printed and
 * asserted: with their gradients of two layers that comes to 64 % more in all; with
 * re-materialisation copies of two layers are alive, 92 % fewer (printed: 90.2 %), and 10 % more
 * than expert parallelism in all (printed: 11.6 %). */
TEST(published_ratios) {
    AUTO(work) struct work on = work_on(one_device(""), small_job());
    AUTO(costs) struct mp_costs *costs = costs_of(&on);
    double copies = 4.73 * 48, layers = 24;
    struct mp_memory_use plain = {.experts_kept = 48, .states_kept = 48, .gradients = 48};
    struct mp_memory_use hecate = plain, again = plain;
    struct mp_memory memory[3];
    hecate.copies = copies;
    again.copies = 2 * copies / layers;
    hecate.gradients = again.gradients = 48 + 2 * copies / layers;
    mp_costs_memory(costs, &plain, &memory[0]);
    mp_costs_memory(costs, &hecate, &memory[1]);
    mp_costs_memory(costs, &again, &memory[2]);
    double states[3];
    for (int i = 0; i < 3; i++)
        states[i] =
            memory[i].parameters + memory[i].copies + memory[i].gradients + memory[i].optimizer;
    assert_close(states[1] / states[0], 1.64, 0.01);
    assert_within(memory[2].copies / memory[1].copies, 1 - 0.902, 0.02);
    assert_close(states[2] / states[0], 1.116, 0.02);
}

/* ---- rows ---- */

static struct mp_device_operations counting;
static const struct mp_device_operations *plain;
static int64_t given;

static void *allocate(struct mp_device *device, size_t bytes) {
    given += (int64_t)bytes;
    return plain->allocate(device, bytes);
}

static void *host_allocate(struct mp_device *device, size_t bytes) {
    given += (int64_t)bytes;
    return plain->host_allocate(device, bytes);
}

/* Bytes that a model of the job's asks for, and then for so many rows of every layer in turn. */
static int64_t model_bytes(const struct mp_job *job, int sent, int worked) {
    struct mp_model_shape shape = shape_of(job);
    const struct mp_device_limits limits = {
        .attention = {job->batch / 2, job->sequence, job->heads, job->width / job->heads},
        .experts = job->experts,
        .width = job->expert_width,
        .tokens = job->sequence * 2};
    struct mp_device *device;
    struct mp_model model;
    assert_works(mp_job_gate_rule(job, &shape.gate, &error));
    assert_works(mp_device_cpu_create(1, &limits, &device, &error));
    plain = device->operations;
    counting = *plain;
    counting.allocate = allocate;
    counting.host_allocate = host_allocate;
    device->operations = &counting;
    given = 0;
    /* Limits as low as the rows, so that there is no spare room. */
    assert_works(
        mp_model_create(&shape, device, job->batch / 2, 2, sent, worked, 1, &model, &error));
    int64_t beside_rows = given - model.row_bytes;
    for (int l = 0; l < job->layers; l++) {
        mp_routing_single(&model.state[l].routing, worked);
        model.state[l].routing.send_total = sent;
        assert_works(mp_model_reserve(&model, l, &error));
    }
    int64_t bytes = beside_rows + model.row_bytes;
    mp_model_destroy(&model);
    mp_device_destroy(device);
    return bytes;
}

/* The trainer's model has what is predicted, but for what follows.  It takes GELU of hidden again
 * in backward, so keeps one row of F less; it has no dropout.  Statistics of layer norms and the
 * auxiliary loss are not predicted, nor is what only the layer at hand and the head work with, nor
 * tokens and targets on their way from the host.  The last gate has an alignment loss, a number of
 * every token that is kept in all layers and copied to the host. */
TEST(the_model_takes_what_is_predicted) {
    static const int rows[][2] = {{64, 64}, {64, 640}, {1024, 320}, {64, 64}};
    AUTO(work) struct work on = work_on(one_device(""), small_job());
    on.options.precision = MP_FP32;
    on.options.attention = MP_ATTENTION_FLASH;
    on.options.vocabulary = MP_VOCABULARY;
    on.options.gradient_bytes = 4;
    on.options.optimizer_bytes = 8;
    for (int i = 0; i < 4; i++) {
        struct mp_job_file file;
        assert_works(mp_job_file_create(&file, &error));
        file.job = small_job();
        if (i == 3) /* as many choices as before */
            assert_works(mp_job_set(&file, NULL, "gate=sam", NULL, &error));
        on.job = file.job;
        AUTO(costs) struct mp_costs *costs = costs_of(&on);
        double n = 32, d = 64, f = 128, e = 8, k = 2, layers = 2, b = 4;
        double sent = rows[i][0], worked = rows[i][1];
        struct mp_memory memory;
        struct mp_memory_use once = {.rows = layers * worked,
                                     .rows_one_layer = worked,
                                     .sent = layers * sent,
                                     .sent_one_layer = sent};
        mp_costs_memory(costs, &once, &memory);
        double less = layers * (worked * f * b + n * 2 * d);
        double statistics = layers * (n * 4 * 4 + e * 4);
        double layer_at_hand = sent * 4 + worked * (d + 2 * f) * b + n * (6 * d * b + e * 4) +
                               n * k * 2 * 4 + 2 * 3 * e * 4;
        double host_tokens = 2 * n * 4, head = n * 5 * 4 + host_tokens + (i == 3 ? n * 4 : 0);
        assert_close((double)model_bytes(&file.job, rows[i][0], rows[i][1]),
                     memory.dense + memory.activations + memory.buffers - less + statistics +
                         layer_at_hand + head,
                     0);
        assert_close(memory.total, memory.dense + memory.activations + memory.buffers, 0);
        mp_job_file_destroy(&file);
    }
}

static const int even[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/* Loads of a layer, the same from every rank: routes to expert e by weight [e] of 16. */
static void fill(struct mp_load *load, int routes, const int weight[16]) {
    for (int i = 0; i < load->ranks * load->experts; i++)
        load->count[i] = (uint32_t)(routes / 16 * weight[i % load->experts]);
}

/* Predicted with the loads of one layer (of three, the others being even) as they are given. */
static struct mp_memory predicted(const char *system, const int weight[16], int *rank) {
    struct mp_memory memory;
    AUTO(test) struct test_case test = test_make(&GOOD_MACHINE, system, 3, 16, 1);
    for (int l = 0; l < 3; l++)
        fill(&test.load[l], test_routes(&test), l == 1 ? weight : even);
    AUTO(predictor) struct mp_predictor *predictor = test_predictor(&test, NULL);
    test_step(predictor, &test);
    mp_predictor_memory(predictor, &memory, rank);
    return memory;
}

static const struct {
    const char *name;
    double kept; /* of 3 * 16 experts on 8 ranks, by one of them */
} offloading[] = {{"swiftmoe", 6}, {"deepspeed options.zero=1", 6}, {"flexmoe", 12}};

/* State in host memory leaves the device, and nothing else does: 12 bytes for each parameter of
 * experts, which have 2 * 256 * 1024. */
TEST_EACH(offloaded_state_is_not_there, offloading, system) {
    struct mp_memory memory[2];
    int rank;
    for (int gone = 0; gone < 2; gone++)
        memory[gone] = predicted(
            formatted("%s options.offload-optimizer=%s", system->name, gone ? "yes" : "no"), even,
            &rank);
    assert_numbers(memory[0].optimizer, system->kept * 2 * 256 * 1024 * 12, memory[1].optimizer, 0);
    assert_close(memory[0].total - memory[1].total, memory[0].optimizer, 1e-12);
}

/* Eight ranks of 512 tokens, top 2: 1024 routes each. */
TEST(predictions_follow_rows) {
    static const int one[16] = {[6] = 8, [7] = 8}, half[16] = {8, 2, 2, 2, 2};
    const double row = 256 * 2, route = (256 + 2 * 1024) * 2 + 4, routes = 1024;
    int rank;
    struct mp_memory usual = predicted("ep", even, &rank);
    assert_close(usual.buffers, 2 * routes * row, 0);
    /* Everything to rank 3 in one layer: seven ranks' routes more. */
    struct mp_memory hot = predicted("ep", one, &rank);
    assert_int_equal(rank, 3);
    assert_close(hot.activations - usual.activations, 7 * routes * route, 1e-12);
    assert_close(hot.buffers - usual.buffers, 7 * routes * row, 1e-12);
    /* A padded exchange that drops nothing: each pair takes the largest count, half the routes, so
     * that every rank sends and works on eight times as many in that layer. */
    struct mp_memory padded = predicted("deepspeed options.drop-tokens=no", half, &rank);
    assert_close(padded.buffers, 2 * 8 * routes * row, 0);
    assert_close(padded.activations - usual.activations, 7 * routes * (route + row), 1e-12);
    /* The same with the capacity of even loads: what is dropped is padded again. */
    padded = predicted("deepspeed", half, &rank);
    assert_close(padded.buffers, usual.buffers, 0);
    /* And without padding, what survives: 64 routes to each of five experts, of which the fullest
     * rank has two. */
    struct mp_memory dropped = predicted("deepspeed options.padded=no", half, &rank);
    assert_close(usual.activations - dropped.activations, (routes - 5 * 64) * row, 1e-12);
    /* Rows in transit twice over: a rank's own, or at a leader those of its node. */
    struct mp_memory through = predicted("ep exchange=two-level", even, &rank);
    assert_close(through.buffers - usual.buffers, 2 * routes * row, 1e-12);
    through = predicted("ep exchange=leader", even, &rank);
    assert_int_equal(rank % GOOD_MACHINE.ranks_per_node, 0);
    assert_close(through.buffers - usual.buffers, 2 * GOOD_MACHINE.ranks_per_node * routes * row,
                 1e-12);
}
