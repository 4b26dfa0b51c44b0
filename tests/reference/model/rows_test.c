/* Memory for rows: how it grows, what it costs beside room for everything, and what is said where
 * there is none. */
#include "reference/model/rows.h"

#include "reference/model/block.h"
#include "tests/errors.h"

TEST_END(model, struct mp_model, mp_model_destroy(it))

/* ---- a device that counts, and has so much memory ---- */

static struct {
    int64_t budget; /* bytes that it has; -1: as much as the machine */
    int64_t given, most;
    int arrays, waits;
    bool waited; /* since memory was last made */
} account;

static struct mp_device *device;
static struct mp_device_operations counting;
static const struct mp_device_operations *plain;

/* The size lies in front of what is given. */
enum { FRONT = 64 };

static void *take(UNUSED struct mp_device *on, size_t bytes) {
    if (account.budget >= 0 && account.given + (int64_t)bytes > account.budget) {
        mp_fail(&device->error, MP_ENOMEM, "this device is full");
        return NULL;
    }
    char *memory = plain->allocate(on, FRONT + bytes);
    assert_non_null(memory);
    memcpy(memory, &bytes, sizeof bytes);
    account.given += (int64_t)bytes;
    account.most = account.given > account.most ? account.given : account.most;
    account.arrays++;
    account.waited = false;
    return memory + FRONT;
}

static void give(struct mp_device *on, void *memory) {
    size_t bytes;
    if (!memory)
        return;
    memcpy(&bytes, (char *)memory - FRONT, sizeof bytes);
    account.given -= (int64_t)bytes;
    account.arrays--;
    plain->release(on, (char *)memory - FRONT);
}

static void wait_for_stream(UNUSED struct mp_device *on, UNUSED mp_stream stream) {
    account.waits++;
    account.waited = true;
}

enum { LAYERS = 3, D = 8, H = 2, E = 4, F = 24, S = 4, K = 2, N = 64, RANKS = 16, EVEN = N * K };
static const struct mp_model_shape shape = {.layers = LAYERS,
                                            .width = D,
                                            .heads = H,
                                            .experts = E,
                                            .expert_width = F,
                                            .sequence = S,
                                            .top_k = K,
                                            .gate = {.renormalise = true}};

TEST_STEP(open_device) {
    const struct mp_device_limits limits = {
        .attention = {N / S, S, H, D / H}, .experts = E, .width = F, .tokens = N * K};
    if (mp_device_cpu_create(1, &limits, &device, NULL))
        return 1;
    plain = device->operations;
    counting = *plain;
    counting.allocate = counting.host_allocate = take;
    counting.release = counting.host_release = give;
    counting.stream_synchronize = wait_for_stream;
    device->operations = &counting;
    return 0;
}

TEST_STEP(close_device) {
    mp_device_destroy(device);
    return 0;
}

TEST_STEP(start) {
    memset(&account, 0, sizeof account);
    account.budget = -1;
    device->error = (struct mp_error){0};
    return 0;
}

TEST_STEP(nothing_is_left) {
    assert_numbers(account.given, 0, account.arrays, 0);
    return 0;
}

/* ---- one piece ---- */

TEST_WITH(memory_waits_for_the_stream_and_for_more_rows, start, nothing_is_left) {
    struct mp_rows rows = {.bytes = 10};
    assert_true(mp_rows_reserve(device, NULL, 0, 0, &rows)); /* an address, even for no rows */
    assert_non_null(rows.memory);
    assert_int_equal(account.waits, 0); /* for what nobody can have used */
    assert_int_equal(rows.room, MP_ROWS_TOGETHER);
    assert_true(mp_rows_reserve(device, NULL, MP_ROWS_TOGETHER, 10 * MP_ROWS_TOGETHER, &rows));
    assert_int_equal(rows.allocations, 1); /* it is needed that counts */
    assert_int_equal(mp_rows_bytes(&rows, 0), 10 * MP_ROWS_TOGETHER);
    assert_int_equal(mp_rows_bytes(&rows, MP_ROWS_TOGETHER + 1), 20 * MP_ROWS_TOGETHER);

    assert_true(mp_rows_reserve(device, NULL, MP_ROWS_TOGETHER + 1, 3 * MP_ROWS_TOGETHER, &rows));
    assert_int_equal(account.waits, 1);
    assert_numbers(rows.allocations, 2, rows.room, 3 * MP_ROWS_TOGETHER);
    assert_int_equal(account.given, 30 * MP_ROWS_TOGETHER); /* the old memory was given back, */
    assert_int_equal(account.most, 30 * MP_ROWS_TOGETHER);  /* and before there was new */
    mp_rows_release(device, &rows);
}

TEST_WITH(spare_room_is_taken_where_there_is_some, start, nothing_is_left) {
    enum { LOT = 10 * MP_ROWS_TOGETHER };
    struct mp_rows rows = {.bytes = 10};
    account.budget = 3 * LOT;
    assert_true(mp_rows_reserve(device, NULL, 2 * MP_ROWS_TOGETHER, 4 * MP_ROWS_TOGETHER, &rows));
    assert_int_equal(rows.room, 2 * MP_ROWS_TOGETHER);
    assert_int_equal(device->error.code, MP_OK); /* nothing that was needed is missing */
    assert_false(mp_rows_reserve(device, NULL, 4 * MP_ROWS_TOGETHER, 5 * MP_ROWS_TOGETHER, &rows));
    assert_int_equal(device->error.code, MP_ENOMEM);
    assert_null(rows.memory);
    assert_int_equal(rows.room, 0);
    mp_rows_release(device, &rows);
}

/* ---- a model's ---- */

/* Bytes of memory for rows with so much room in every layer: block.h's arrays, of four bytes each.
 */
static int64_t row_bytes(int64_t layers, int64_t sent, int64_t worked) {
    return 4 * (layers * (sent * D + worked * (D + F + 1)) + sent * (D + 1) + worked * 2 * (D + F));
}

static void create_model(struct mp_model *model) {
    assert_works(
        mp_model_create(&shape, device, N / S, RANKS, EVEN, RANKS * EVEN, 1, model, &error));
}

/* Reserves for a layer that works on so many rows. */
static int reserve(struct mp_model *model, int layer, int rows, struct mp_error *error) {
    mp_routing_single(&model->state[layer].routing, rows);
    return mp_model_reserve(model, layer, error);
}

TEST_WITH(memory_follows_rows, start, nothing_is_left) {
    AUTO(model) struct mp_model model;
    create_model(&model);
    int64_t even = row_bytes(LAYERS, EVEN, EVEN);
    assert_true(EVEN % MP_ROWS_TOGETHER == 0);
    assert_int_equal(model.row_bytes, even);
    int64_t given = account.given;
    for (int l = 0; l < LAYERS; l++)
        assert_works(reserve(&model, l, EVEN, &error));
    assert_int_equal(account.given, given);
    /* One layer gets everything: it and the workspace grow, up to what a plan may bring. */
    assert_works(reserve(&model, 1, RANKS * EVEN, &error));
    int64_t one =
        row_bytes(1, EVEN, RANKS * EVEN) + row_bytes(2, EVEN, EVEN) - row_bytes(0, EVEN, EVEN);
    assert_int_equal(model.row_bytes, one);
    assert_int_equal(account.given - given, one - even);
    for (int l = 0; l < LAYERS; l++)
        assert_works(reserve(&model, l, RANKS * EVEN, &error));
    assert_int_equal(model.row_bytes, row_bytes(LAYERS, EVEN, RANKS * EVEN));
}

/* Row for row more and more: a quarter each time, so few times. */
TEST_WITH(growth_is_logarithmic, start, nothing_is_left) {
    AUTO(model) struct mp_model model;
    uint64_t random = test_seed();
    int growths = 0;
    create_model(&model);
    for (int rows = 1, most = 0; rows <= RANKS * EVEN; rows++) {
        int some = test_random_int(&random, 1, rows), before = model.state[0].worked.allocations;
        most = some > most ? some : most;
        assert_works(reserve(&model, 0, some, &error));
        growths += model.state[0].worked.allocations > before;
        assert_true(model.state[0].worked.room >= most);
        assert_true(model.state[0].worked.room <= fmax(EVEN, 1.25 * most) + MP_ROWS_TOGETHER);
    }
    assert_in_range(growths, 2, (int)ceil(log(RANKS) / log(1.25)));
    int before = model.state[0].worked.allocations, shared = model.worked.allocations;
    for (int i = 0; i < 1000; i++) /* shrinking and growing below the most costs nothing */
        assert_works(reserve(&model, 0,
                             test_random_int(&random, 0, (int)model.state[0].worked.room), &error));
    assert_numbers(model.state[0].worked.allocations, before, model.worked.allocations, shared);
}

/* Every array is there in full, apart from the others: each is filled with its own byte. */
TEST_WITH(arrays_do_not_share_memory, start, nothing_is_left) {
    static const int rows[] = {1, 3 * EVEN, 5 * EVEN + 1, 2 * EVEN};
    AUTO(model) struct mp_model model;
    create_model(&model);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct mp_block_state *block = &model.state[i % 2];
        assert_works(reserve(&model, (int)(i % 2), rows[i], &error));
        size_t here = (size_t)rows[i] * sizeof(float), sent = EVEN * sizeof(float);
        struct {
            void *at;
            size_t bytes;
        } array[] = {{block->expert_in, here * D}, {block->hidden, here * F},
                     {block->receive_index, here}, {block->combine_in, sent * D},
                     {model.send, sent * D},       {model.row_token, sent},
                     {model.received, here * D},   {model.expert_rows, here * D},
                     {model.activated, here * F},  {model.hidden_gradient, here * F}};
        enum { ARRAYS = sizeof array / sizeof *array };
        for (int a = 0; a < ARRAYS; a++) {
            assert_int_equal((uintptr_t)array[a].at % 64, 0);
            memset(array[a].at, a + 1, array[a].bytes);
        }
        for (int a = 0; a < ARRAYS; a++) {
            const unsigned char *byte = array[a].at;
            assert_numbers(byte[0], a + 1, byte[array[a].bytes - 1], a + 1);
        }
    }
}

TEST_WITH(missing_memory_is_told, start, nothing_is_left) {
    AUTO(model) struct mp_model model;
    create_model(&model);
    account.budget = account.given + 4096;
    assert_works(reserve(&model, 2, EVEN, &error));
    assert_sentence(reserve(&model, 2, 2000, &error), MP_ENOMEM,
                    "layer 2: no memory for 2000 rows to work on and 0 to send (even loads have "
                    "128 of each): 0.77 MiB, beside 0.04 MiB of other layers' rows; a smaller "
                    "batch or a system that spreads routes takes less");
}

TEST_GROUP(open_device, close_device);
