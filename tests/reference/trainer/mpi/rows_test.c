/* Memory for rows under loads that rise and fall, one rank getting everything among them: training
 * is, bit for bit, that of trainers with room for all rows from the start, and memory grows as
 * often as it must.  Memory that grows holds what is no number, so that nobody reads what was lost.
 */
#include "tests/reference/trainer/mpi/trainers.h"
#include "tests/reference/trainer/random_loads.h"
#include "tests/spools.h"

enum { EXPERTS = 8, LAYERS = 3, SEQUENCE = 32, BATCH = 32, TOP_K = 2, ITERATIONS = 7 };
enum { NO_NUMBER = 0xff }; /* every byte of it */

static char path[64], setting[96];

/* Even loads, then by chance, then all routes to two experts that rank 0 has (of eight, on up to
 * four ranks), then few again. */
static void make_trace(void) {
    const int tokens = BATCH * SEQUENCE / world->ranks;
    const struct mp_loads_shape shape = {world->ranks, EXPERTS, LAYERS, TOP_K, tokens, false};
    uint64_t state = seed++;
    size_t row = (size_t)EXPERTS, rows = (size_t)LAYERS * (size_t)world->ranks;
    name_file(path, "rows");
    snprintf(setting, sizeof setting, "trace-loads=%s", path);
    AUTO(allocated) uint32_t *count = random_loads(&state, &shape, ITERATIONS);
    for (size_t r = 0; r < rows; r++) {
        for (size_t e = 0; e < row; e++) {
            count[r * row + e] = (uint32_t)(tokens * TOP_K / EXPERTS);
            count[(4 * rows + r) * row + e] = e < TOP_K ? (uint32_t)tokens : 0;
        }
    }
    if (world->rank == 0)
        write_loads(path, &shape, ITERATIONS, count, 0);
    must(mp_comm_barrier(world, &error));
}

/* ---- memory that holds what is no number ---- */

static struct mp_device_operations poisoning;
static const struct mp_device_operations *plain;

static void *allocate(struct mp_device *device, size_t bytes) {
    void *memory = plain->allocate(device, bytes);
    return memory ? memset(memory, NO_NUMBER, bytes) : NULL;
}

/* A trainer on the trace; with `all`, one with room for everything that a plan may bring. */
static const char *const systems[] = {
    "system=ep",
    "system=fssdp options.reshard-interval=2",
    "system=fastermoe options.group-size=1",
    "system=deepspeed options.drop-tokens=no",
    "system=llep options.smallest-gemm=1",
};

static struct mp_trainer *create(const char *system, bool all) {
    struct mp_trainer *trainer =
        create_trainer(world, NULL,
                       formatted("layers=3 sequence=32 batch=32 gate=gshard routing=trace %s %s",
                                 setting, system));
    plain = trainer->device->operations;
    poisoning = *plain;
    poisoning.allocate = allocate;
    trainer->device->operations = &poisoning;
    for (int l = 0; all && l < LAYERS; l++) {
        struct mp_routing *routing = &trainer->model.state[l].routing;
        mp_routing_single(routing, (int)trainer->model.rows_limit);
        routing->send_total = (int)trainer->model.send_limit;
        must(mp_model_reserve(&trainer->model, l, &error));
    }
    return trainer;
}

/* ---- what a trainer has become ---- */

struct outcome {
    double loss[ITERATIONS];
    uint64_t digest[ITERATIONS]; /* of gradients and parameters of this rank */
    int64_t growths[ITERATIONS]; /* so far */
    int64_t row_bytes[ITERATIONS];
};

/* FNV-1a. */
static uint64_t digest_of(uint64_t digest, const void *memory, size_t bytes) {
    for (const unsigned char *byte = memory; bytes-- > 0; byte++)
        digest = (digest ^ *byte) * UINT64_C(0x100000001b3);
    return digest;
}

static uint64_t digest_model(const struct mp_model *model) {
    const struct mp_dense *dense = &model->dense;
    const struct mp_experts *experts = &model->experts;
    uint64_t digest =
        digest_of(UINT64_C(0xcbf29ce484222325), dense->gradient, dense->count * sizeof(float));
    digest = digest_of(digest, dense->parameter, dense->count * sizeof(float));
    for (int i = 0; i < LAYERS * EXPERTS; i++) {
        if (experts->slot && experts->slot[i] >= 0)
            digest =
                digest_of(digest, experts->parameter + (size_t)experts->slot[i] * experts->chunk,
                          experts->chunk * sizeof(float));
    }
    return digest;
}

static void train(struct mp_trainer *trainer, struct outcome *outcome) {
    for (int k = 0; k < ITERATIONS; k++) {
        outcome->loss[k] = random_step(trainer, 40).loss;
        outcome->digest[k] = digest_model(&trainer->model);
        outcome->growths[k] = mp_trainer_totals(trainer)->row_growths;
        outcome->row_bytes[k] = trainer->model.row_bytes;
    }
}

/* ---- the tests ---- */

/* Room is never more than a quarter above the most rows so far, or even loads. */
static void assert_room_follows_rows(const struct mp_trainer *trainer) {
    const struct mp_model *model = &trainer->model;
    int64_t even = (int64_t)model->tokens * TOP_K, spare = even / 4 + MP_ROWS_TOGETHER;
    for (int l = 0; l < LAYERS; l++) {
        assert_true(model->state[l].worked.room <= model->rows_limit + MP_ROWS_TOGETHER);
        if (trainer->planner.system->padding_limit) /* rows beside routes */
            continue;
        assert_int_equal(model->state[l].sent.room, even);
        assert_true(model->state[l].worked.room <= world->ranks * even + spare);
    }
}

TEST_ROWS(training_is_that_of_trainers_with_room_for_all, systems, system) {
    static struct outcome grown, roomy;
    make_trace();
    struct mp_trainer *trainer = create(*system, false);
    train(trainer, &grown);
    assert_room_follows_rows(trainer);
    mp_trainer_destroy(trainer);
    trainer = create(*system, true);
    int64_t bytes = trainer->model.row_bytes;
    train(trainer, &roomy);
    assert_numbers(roomy.growths[ITERATIONS - 1], 0, roomy.row_bytes[ITERATIONS - 1], bytes);
    mp_trainer_destroy(trainer);
    unlink(path);
    for (int k = 0; k < ITERATIONS; k++) {
        assert_true(isfinite(grown.loss[k]));
        assert_memory_equal(&grown.loss[k], &roomy.loss[k], sizeof grown.loss[k]);
        assert_true(grown.digest[k] == roomy.digest[k]);
        assert_true(grown.row_bytes[k] <= bytes);
    }
    assert_true(grown.digest[0] != grown.digest[1]);
    /* From even loads to all routes on one rank, a quarter at a time, in every layer. */
    int most = (int)ceil(log(EXPERTS) / log(1.25));
    assert_in_range(grown.growths[ITERATIONS - 1], 0, 2 * LAYERS * most);
}

/* Under expert parallelism rank 0 gets what its experts are sent: nothing beyond even loads, then
 * everything; nobody's memory grows without need. */
TEST(memory_grows_when_more_rows_come) {
    static struct outcome outcome;
    make_trace();
    struct mp_trainer *trainer = create(systems[0], false);
    int64_t at_first = trainer->model.row_bytes;
    train(trainer, &outcome);
    assert_numbers(outcome.growths[0], 0, outcome.row_bytes[0], at_first);
    for (int l = 0; l < LAYERS && world->rank == 0; l++)
        assert_true(trainer->model.state[l].worked.room >= BATCH * SEQUENCE * TOP_K);
    if (world->ranks == 1)
        assert_int_equal(outcome.growths[ITERATIONS - 1], 0);
    else if (world->rank == 0)
        assert_true(outcome.growths[4] > 0);
    assert_int_equal(outcome.growths[ITERATIONS - 1] > 0,
                     outcome.row_bytes[ITERATIONS - 1] > at_first);
    if (world->rank == 0) /* it has had the most there can be */
        assert_int_equal(outcome.growths[ITERATIONS - 1], outcome.growths[4]);
    mp_trainer_destroy(trainer);
    unlink(path);
}

/* Of every growth, its layer, its iteration and the bytes that there are then. */
TEST(growth_is_recorded) {
    static struct outcome outcome;
    char folder[] = "/tmp/moeperf-test-XXXXXX", file[64];
    struct mp_recorder *recorder;
    struct mp_record_thread *thread;
    struct mp_spool_record record;
    make_trace();
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/spool", folder);
    struct mp_recorder_config config = {.path = file, .rank = world->rank, .ranks = world->ranks};
    must(mp_recorder_create(&config, &recorder, &error));
    must(mp_recorder_thread(recorder, "compute", &thread, &error));
    struct mp_trainer *trainer = create(systems[0], false);
    mp_trainer_record(trainer, thread, NULL);
    train(trainer, &outcome);
    must(mp_recorder_finish(&recorder, MP_OK, NULL, &error));
    AUTO(spool) struct mp_spool_reader *reader = open_spool(file);
    int found = 0;
    double last = 0;
    while (next_of(reader, MP_SPOOL_NUMBER, &record)) {
        if (strcmp(record.as.number.name, "row-memory-bytes") != 0)
            continue;
        assert_in_range(record.as.number.layer, 0, LAYERS - 1);
        assert_in_range(record.as.number.iteration, 0, ITERATIONS - 1);
        assert_true(record.as.number.value > last);
        last = record.as.number.value;
        found++;
    }
    assert_int_equal(found, outcome.growths[ITERATIONS - 1]);
    if (found > 0)
        assert_close(last, (double)trainer->model.row_bytes, 0);
    mp_trainer_destroy(trainer);
    unlink(file);
    rmdir(folder);
    unlink(path);
}
