/* Non-expert parameters: their layout, initial values and update; counts of parameters and flop. */
#include "reference/base/random.h"
#include "reference/model/model.h"
#include "tests/errors.h"
#include "tests/reference/plan/plan_support.h"

static uint64_t random_state;
static uint64_t seed; /* TEST_SEED */
static struct mp_device *device;

TEST_STEP(open_device) {
    random_state = seed;
    const struct mp_device_limits limits = {
        .attention = {1, 4, 2, 4}, .experts = 8, .width = 12, .tokens = 16};
    return mp_device_cpu_create(1, &limits, &device, NULL);
}

TEST_STEP(close_device) {
    mp_device_destroy(device);
    return 0;
}

static struct mp_model_shape random_shape(void) {
    int heads = test_random_int(&random_state, 1, 4);
    return (struct mp_model_shape){.layers = test_random_int(&random_state, 1, 5),
                                   .width = heads * test_random_int(&random_state, 1, 9),
                                   .heads = heads,
                                   .experts = test_random_int(&random_state, 2, 20),
                                   .expert_width = test_random_int(&random_state, 1, 30),
                                   .sequence = test_random_int(&random_state, 1, 20),
                                   .top_k = test_random_int(&random_state, 1, 2)};
}

TEST(tensors_follow_one_another) {
    for (int round = 0; round < 50; round++) {
        struct mp_model_shape shape = random_shape();
        struct mp_dense dense;
        assert_works(mp_dense_create(&shape, device, seed, &dense, &error));
        size_t end = 0;
        int64_t parameters = 0;
        for (int i = 0; i < dense.tensors; i++) {
            const struct mp_tensor *tensor = &dense.tensor[i];
            assert_int_equal(tensor->offset, (end + 15) / 16 * 16); /* on a cache line */
            assert_ptr_equal(mp_dense_find(&dense, tensor->name), tensor);
            end = tensor->offset + tensor->count;
            parameters += (int64_t)tensor->count;
        }
        assert_null(mp_dense_find(&dense, "no such tensor"));
        assert_int_equal(dense.count, (end + 15) / 16 * 16);
        assert_int_equal(mp_model_parameters(&shape),
                         parameters + shape.layers * shape.experts *
                                          (int64_t)mp_model_expert_floats(&shape));
        /* A bucket per block and one for the rest, without gaps. */
        assert_numbers(dense.bucket[0], 0, dense.bucket[shape.layers + 1], dense.count);
        for (int l = 0; l < shape.layers; l++) {
            char name[64];
            struct mp_block_tensors block = mp_dense_block(&dense, dense.gradient, l);
            struct {
                const char *name;
                float *place;
                int count;
            } parts[] = {{"ln1_gain", block.norm1_gain, shape.width},
                         {"ln1_bias", block.norm1_bias, shape.width},
                         {"qkv", block.qkv, shape.width * 3 * shape.width},
                         {"out", block.out, shape.width * shape.width},
                         {"ln2_gain", block.norm2_gain, shape.width},
                         {"ln2_bias", block.norm2_bias, shape.width},
                         {"gate", block.gate, shape.width * shape.experts}};
            for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
                snprintf(name, sizeof name, "layer.%d.%s", l, parts[p].name);
                const struct mp_tensor *tensor = mp_dense_find(&dense, name);
                assert_non_null(tensor);
                assert_ptr_equal(parts[p].place, dense.gradient + tensor->offset);
                assert_int_equal(tensor->count, parts[p].count);
                assert_true(tensor->offset >= dense.bucket[l]);
                assert_true(tensor->offset + tensor->count <= dense.bucket[l + 1]);
            }
        }
        static const char *const shared[] = {"final_gain", "final_bias", "position_table",
                                             "token_table"};
        for (int i = 0; i < MP_COMMON_TENSORS; i++) {
            const struct mp_tensor *tensor = mp_dense_find(&dense, shared[i]);
            assert_non_null(tensor);
            assert_true(tensor->offset >= dense.bucket[shape.layers]);
            assert_ptr_equal(mp_dense_common(&dense, dense.first, i), dense.first + tensor->offset);
        }
        mp_dense_destroy(&dense);
    }
}

static bool ends_in(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

TEST(initial_values_are_those_of_gpt_2) {
    struct mp_model_shape shape = {.layers = 8,
                                   .width = 64,
                                   .heads = 4,
                                   .experts = 32,
                                   .expert_width = 96,
                                   .sequence = 64,
                                   .top_k = 2};
    struct mp_dense dense;
    assert_works(mp_dense_create(&shape, device, seed, &dense, &error));
    for (int i = 0; i < dense.tensors; i++) {
        const struct mp_tensor *tensor = &dense.tensor[i];
        const float *value = dense.parameter + tensor->offset;
        double sum = 0, squares = 0, count = (double)tensor->count;
        for (size_t f = 0; f < tensor->count; f++) {
            sum += value[f];
            squares += (double)value[f] * value[f];
            assert_true(dense.first[tensor->offset + f] == 0);
            assert_true(dense.second[tensor->offset + f] == 0);
        }
        bool gain = ends_in(tensor->name, "gain"), bias = ends_in(tensor->name, "bias");
        assert_int_equal(tensor->decays, !gain && !bias);
        if (gain || bias) {
            assert_close(sum, gain ? count : 0, 0);
            assert_close(squares, gain ? count : 0, 0);
            continue;
        }
        double deviation = ends_in(tensor->name, ".out") ? 0.02 / sqrt(2 * 8) : 0.02;
        assert_true(fabs(sum / count) < 6 * deviation / sqrt(count));
        assert_true(fabs(sqrt(squares / count) / deviation - 1) < 6 / sqrt(2 * count));
    }
    size_t floats = mp_model_expert_floats(&shape);
    float *chunk = malloc(2 * floats * sizeof *chunk);
    mp_expert_initialise(&shape, seed, 3, 7, chunk);
    double squares[2] = {0};
    for (size_t f = 0; f < floats; f++)
        squares[f >= floats / 2] += (double)chunk[f] * chunk[f];
    double half = (double)floats / 2;
    assert_true(fabs(sqrt(squares[0] / half) / 0.02 - 1) < 6 / sqrt(2 * half));
    assert_true(fabs(sqrt(squares[1] / half) / 0.005 - 1) < 6 / sqrt(2 * half));
    /* From streams of its own, 2 i and 2 i + 1 above 2^32. */
    mp_random_normal(seed, (UINT64_C(1) << 32) + 2 * (3 * 32 + 7), 0.02f, floats / 2,
                     chunk + floats);
    assert_memory_equal(chunk, chunk + floats, floats / 2 * sizeof *chunk);
    mp_random_normal(seed, (UINT64_C(1) << 32) + 2 * (3 * 32 + 7) + 1, 0.005f, floats / 2,
                     chunk + floats);
    assert_memory_equal(chunk + floats / 2, chunk + floats, floats / 2 * sizeof *chunk);
    /* Every expert draws its own numbers. */
    for (int other = 0; other < 4 * 32; other++) {
        if (other == 3 * 32 + 7)
            continue;
        mp_expert_initialise(&shape, seed, other / 32, other % 32, chunk + floats);
        assert_true(chunk[0] != chunk[floats] && chunk[floats / 2] != chunk[floats + floats / 2]);
    }
    free(chunk);
    mp_dense_destroy(&dense);
}

/* Of whatever number of shards: columns of the first matrix, rows of the second. */
TEST(shards_have_their_experts_values) {
    enum { D = 3, F = 15, E = 2, SHARDS = 5, EACH = F / SHARDS };
    struct mp_model_shape shape = {
        .layers = 2, .width = D, .experts = E, .expert_width = F, .top_k = 1};
    float whole[2 * D * F], shard[2 * D * EACH];
    for (int p = 0; p < E * SHARDS; p++) {
        int s = p / E, e = p % E;
        shape.shards = 0;
        assert_int_equal(mp_model_expert_floats(&shape), 2 * D * F);
        int64_t parameters = mp_model_parameters(&shape), flops = mp_model_route_flops(&shape);
        mp_expert_initialise(&shape, seed, 1, e, whole);
        shape.shards = SHARDS;
        assert_int_equal(mp_model_expert_floats(&shape), 2 * D * EACH);
        assert_int_equal(mp_model_plan_experts(&shape), E * SHARDS);
        assert_int_equal(mp_model_parameters(&shape), parameters);
        assert_int_equal(mp_model_route_flops(&shape) * SHARDS, flops);
        mp_expert_initialise(&shape, seed, 1, p, shard);
        for (int d = 0; d < D; d++)
            for (int f = 0; f < EACH; f++) {
                assert_true(shard[d * EACH + f] == whole[d * F + s * EACH + f]);
                assert_true(shard[D * EACH + f * D + d] == whole[D * F + (s * EACH + f) * D + d]);
            }
    }
}

/* By hand: L = 2, D = 4, F = 3, E = 5, S = 6, top-2.
 * Block: norms 4 * 4 = 16, qkv and out 4 * 16 = 64, gate 20; experts 5 * 24 = 120.
 * Shared: norm 8, tables (6 + 256) * 4 = 1048. */
TEST(parameters_and_flop_by_hand) {
    const struct mp_model_shape shape = {.layers = 2,
                                         .width = 4,
                                         .heads = 2,
                                         .experts = 5,
                                         .expert_width = 3,
                                         .sequence = 6,
                                         .top_k = 2};
    assert_int_equal(mp_model_expert_floats(&shape), 24);
    assert_int_equal(mp_model_parameters(&shape), 2 * (100 + 120) + 8 + 1048);
    assert_int_equal(mp_model_active_parameters(&shape), 2 * (100 + 48) + 8 + 1048);
    assert_int_equal(mp_model_route_flops(&shape), 48);
    /* Matrices that a token meets: 2 * (64 + 20 + 48) + 1024 = 1288, 6 flop each; attention
     * 2 layers * 6 * S * D = 288. */
    assert_int_equal(mp_model_iteration_flops(&shape, 10), 10 * (6 * 1288 + 288));
}

TEST_SEED(seed);
TEST_GROUP(open_device, close_device);
