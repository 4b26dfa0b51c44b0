/* One rank's model: the memory that it takes and gives back, and rows that nobody sent.  Its
 * gradients are held against differences by the trainer's finite_difference_test.c. */
#include "reference/model/block.h"

#include "reference/base/random.h"
#include "tests/errors.h"
#include "tests/reference/plan/plan_support.h"

enum { LAYERS = 2, D = 32, H = 2, E = 4, F = 48, S = 8, K = 2, N = 16 };
enum { SEND = N * K, ROWS = N * K + 8, VOCABULARY = 256 };
static const struct mp_model_shape shape = {.layers = LAYERS,
                                            .width = D,
                                            .heads = H,
                                            .experts = E,
                                            .expert_width = F,
                                            .sequence = S,
                                            .top_k = K,
                                            .gate = {.renormalise = true}};

static uint64_t random_state;
static struct mp_device *device;
static struct mp_device_operations counting;
static const struct mp_device_operations *plain;
static int64_t given_bytes, given, host_bytes;

static void *allocate(struct mp_device *on, size_t bytes) {
    given_bytes += (int64_t)bytes;
    given++;
    return plain->allocate(on, bytes);
}

static void release(struct mp_device *on, void *memory) {
    given -= memory != NULL;
    plain->release(on, memory);
}

static void *host_allocate(struct mp_device *on, size_t bytes) {
    host_bytes += (int64_t)bytes;
    given++;
    return plain->host_allocate(on, bytes);
}

static void host_release(struct mp_device *on, void *memory) {
    given -= memory != NULL;
    plain->host_release(on, memory);
}

TEST_STEP(open_device) {
    const struct mp_device_limits limits = {
        .attention = {N / S, S, H, D / H}, .experts = E, .width = 3 * D, .tokens = N * K};
    if (mp_device_cpu_create(1, &limits, &device, NULL))
        return 1;
    plain = device->operations;
    counting = *plain;
    counting.allocate = allocate;
    counting.release = release;
    counting.host_allocate = host_allocate;
    counting.host_release = host_release;
    device->operations = &counting;
    return 0;
}

TEST_STEP(close_device) {
    mp_device_destroy(device);
    return 0;
}

/* ---- memory ---- */

/* Arrays as block.h lists them, fp32; room for even loads, in whole lots of rows (rows_test.c). */
TEST(memory_is_what_its_arrays_need) {
    enum { ROOM = MP_ROWS_TOGETHER };
    _Static_assert(N * K <= ROOM, "one lot");
    const int64_t layer = 2 * N + N * D + 3 * N * D + N * D + N * H + N * D + 2 * N + N * D +
                          N * E + 2 * N * K + N * K + ROOM * D + ROOM * F + ROOM * D + E;
    const int64_t workspace = 2 * N + 2 * N + N * D + N * VOCABULARY + N + N * E + 3 * E + N * K +
                              ROOM + ROOM * D + 2 * ROOM * D + 2 * ROOM * F + N * K + 2 * N * D +
                              3 * N * D + N * D;
    struct mp_dense dense;
    struct mp_model model;
    given = given_bytes = host_bytes = 0;
    assert_works(mp_dense_create(&shape, device, 1, &dense, &error));
    int64_t of_dense = given_bytes;
    mp_dense_destroy(&dense);
    assert_int_equal(given, 0);
    assert_true(of_dense > 0);
    given_bytes = 0;
    assert_works(mp_model_create(&shape, device, N / S, 1, SEND, ROWS, 1, &model, &error));
    assert_int_equal(given_bytes - of_dense,
                     4 * ((LAYERS + 1) * N * D + LAYERS * layer + workspace));
    assert_int_equal(host_bytes, 4 * (2 * N + 3 * E + LAYERS * ROOM));
    mp_model_destroy(&model);
    assert_int_equal(given, 0);
}

/* ---- rows ---- */

struct work {
    struct mp_model model;
    struct mp_plan plan;
    struct mp_load load;
    int32_t token[N], target[N], forced[N * K];
};

static void fill(float *value, size_t count, float middle) {
    for (size_t i = 0; i < count; i++)
        value[i] = middle + (float)(0.6 * test_random_double(&random_state) - 0.3);
}

static void create_work(struct work *work) {
    const struct mp_topology one = {1, 1};
    assert_works(mp_model_create(&shape, device, N / S, 1, E * N, E * N, 1, &work->model, &error));
    assert_works(mp_plan_create(&one, E, 8, &work->plan, &error));
    assert_works(mp_load_create(1, E, &work->load, &error));
    struct mp_dense *dense = &work->model.dense;
    for (int i = 0; i < dense->tensors; i++)
        fill(dense->parameter + dense->tensor[i].offset, dense->tensor[i].count,
             strstr(dense->tensor[i].name, "gain") ? 1 : 0);
    for (int t = 0; t < N; t++) {
        work->token[t] = test_random_int(&random_state, 0, VOCABULARY - 1);
        work->target[t] = test_random_int(&random_state, 0, VOCABULARY - 1);
        int first = test_random_int(&random_state, 0, E - 1);
        work->forced[2 * t] = first;
        work->forced[2 * t + 1] = (first + test_random_int(&random_state, 1, E - 1)) % E;
    }
}

static void destroy_work(struct work *work) {
    mp_model_destroy(&work->model);
    mp_plan_destroy(&work->plan);
    mp_load_destroy(&work->load);
}

/* All routes go to this rank, which is the only one. */
static void route(struct work *work, int layer) {
    uint32_t firsts[E];
    double all = 0;
    mp_model_gate(&work->model, layer, work->forced, NULL, work->load.count, firsts);
    const float *mass = (const float *)(mp_model_part_statistics(&work->model, 0) + 2 * E);
    for (int e = 0; e < E; e++) {
        uint32_t chosen[2] = {0};
        for (int r = 0; r < N * K; r++)
            chosen[r % K] += work->forced[r] == e;
        assert_int_equal(work->load.count[e], chosen[0] + chosen[1]);
        assert_int_equal(firsts[e], chosen[0]);
        all += mass[e];
    }
    assert_close(all, N, 1e-5);
    assert_works(mp_plan_dispatch_begin(&work->plan, &error));
    for (int e = 0; e < E; e++) {
        assert_works(mp_plan_dispatch_part(&work->plan, 0, work->load.count[e], &error));
        mp_plan_dispatch_end_pair(&work->plan);
    }
    assert_works(
        mp_routing_build(&work->plan, &work->load, 0, &work->model.state[layer].routing, &error));
    assert_true(work->model.state[layer].routing.stays);
    assert_works(mp_model_reserve(&work->model, layer, &error));
}

/* As many rows of every expert as there are tokens: those behind its routes have none, whatever lay
 * in their places before. */
TEST(rows_without_a_token_are_zeros) {
    static struct work work;
    struct mp_model *model = &work.model;
    int with_token = 0;
    create_work(&work);
    work.plan.padding = N;
    mp_model_embed(model, work.token, work.target);
    mp_model_attention(model, 0);
    route(&work, 0);
    int rows = model->state[0].routing.send_total;
    assert_int_equal(rows, E * N);
    memset(model->row_token, 0, (size_t)rows * sizeof *model->row_token);
    mp_model_permute(model, 0, 0);
    for (int r = 0; r < rows; r++) {
        const float *row = (const float *)model->state[0].expert_in + (size_t)r * D;
        with_token += model->row_token[r] >= 0;
        for (int i = 0; model->row_token[r] < 0 && i < D; i++)
            assert_true(row[i] == 0);
    }
    assert_int_equal(with_token, N * K);
    destroy_work(&work);
}

/* Rank, layer, iteration and seed all matter, in this order of drawing. */
TEST(seeds_of_routes_are_bits_of_bits) {
    assert_true(mp_model_route_seed(5, 6, 7, 8) == mp_random_bits(mp_random_bits(5, 6, 7), 0, 8));
}

TEST_SEED(random_state);
TEST_GROUP(open_device, close_device);
