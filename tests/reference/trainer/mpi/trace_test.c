/* Replayed traces: every count of every iteration, layer and rank is the trace's, and, because the
 * same tokens choose the same experts on any number of ranks, the loss curve is that of one. */
#include "reference/base/random.h"
#include "tests/reference/trainer/mpi/trainers.h"
#include "tests/reference/trainer/random_loads.h"

enum { SOURCES = 4, EXPERTS = 8, LAYERS = 2, SEQUENCE = 16, BATCH = 8, TRACE = 5, ITERATIONS = 12 };

static char path[64], setting[96];
static uint32_t *count; /* [TRACE][LAYERS][SOURCES][EXPERTS], the same on every rank */

static struct mp_loads_shape shape_of(int sources, int top_k) {
    return (struct mp_loads_shape){sources, EXPERTS, LAYERS, top_k, BATCH * SEQUENCE / sources,
                                   false};
}

/* Rank 0 writes a trace of `sources`; all have its counts. */
static void make_trace(int sources, int top_k) {
    const struct mp_loads_shape shape = shape_of(sources, top_k);
    uint64_t state = seed++;
    struct mp_error error = {0};
    name_file(path, "trace");
    snprintf(setting, sizeof setting, "trace-loads=%s", path);
    count = random_loads(&state, &shape, TRACE);
    if (world->rank == 0)
        write_loads(path, &shape, TRACE, count, 0xabcdef);
    must(mp_comm_barrier(world, &error), &error);
}

static void remove_trace(void) {
    struct mp_error error = {0};
    must(mp_comm_barrier(world, &error), &error);
    if (world->rank == 0)
        unlink(path);
    free(count);
}

static double step(struct mp_trainer *trainer, int iteration) {
    const struct mp_comm *comm = trainer->comm;
    int32_t token[BATCH * SEQUENCE], target[BATCH * SEQUENCE];
    int tokens = BATCH / comm->ranks * SEQUENCE;
    struct mp_trainer_result result;
    struct mp_error error = {0};
    for (int i = 0; i < tokens; i++) {
        uint64_t at = (uint64_t)(iteration * BATCH * SEQUENCE + comm->rank * tokens + i);
        token[i] = (int32_t)mp_random_below(seed, 1, at, 40);
        target[i] = (token[i] * 7 + 3) % 256;
    }
    must(mp_trainer_step_on(trainer, token, target, &result, &error), &error);
    return result.loss;
}

TEST(every_count_is_the_trace_s) {
    static const char *const systems[] = {"system=ep", "system=fssdp", "system=deepspeed"};
    for (int top_k = 1; top_k <= EXPERTS; top_k *= 2) {
        char choices[24];
        snprintf(choices, sizeof choices, "top-k=%d", top_k);
        make_trace(world->ranks, top_k);
        for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
            const char *const settings[] = {systems[i],      "gate=softmax", choices,
                                            "routing=trace", setting,        NULL};
            struct mp_trainer *trainer = create_trainer(world, NULL, settings);
            for (int iteration = 0; iteration < ITERATIONS; iteration++) {
                step(trainer, iteration);
                for (int l = 0; l < LAYERS; l++) { /* all ranks' rows, on every rank */
                    size_t cells = (size_t)world->ranks * EXPERTS;
                    size_t block = (size_t)(iteration % TRACE * LAYERS + l) * cells;
                    assert_memory_equal(trainer->load[l].count, count + block,
                                        cells * sizeof *count);
                }
            }
            mp_trainer_destroy(trainer);
        }
        remove_trace();
    }
}

static void curve(struct mp_comm *comm, const char *const settings[], double loss[ITERATIONS]) {
    struct mp_trainer *trainer = create_trainer(comm, NULL, settings);
    for (int i = 0; i < ITERATIONS; i++)
        loss[i] = step(trainer, i);
    mp_trainer_destroy(trainer);
}

TEST(the_loss_is_that_of_one_rank) {
    static const char *const systems[][2] = {{"system=ep"},
                                             {"system=fssdp", "options.reshard-interval=5"}};
    struct mp_comm *self;
    struct mp_error error = {0};
    must(mp_comm_self_create(&self, &error), &error);
    make_trace(SOURCES, 2);
    const char *const one[] = {"system=ep", "routing=trace", setting, NULL};
    double expected[ITERATIONS], loss[ITERATIONS];
    curve(self, one, expected);
    assert_true(expected[ITERATIONS - 1] < expected[0]);
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        const char *const settings[] = {systems[i][0], "routing=trace", setting, systems[i][1],
                                        NULL};
        curve(world, settings, loss);
        for (int k = 0; k < ITERATIONS; k++)
            assert_close(loss[k], expected[k], 1e-5 * expected[k]);
    }
    remove_trace();
    mp_comm_destroy(self);
}

/* What is wrong with the file is told by the rank that reads it. */
TEST(another_job_s_loads_are_refused) {
    static const struct {
        const char *setting, *words;
    } cases[] = {
        {"layers=3", "the job has 1 ranks with 128 tokens to 2 of 8 experts in 3 layers"},
        {"trace-digest=00123456",
         "has loads of trace 00abcdef, the job's trace-digest is 00123456"},
        {"trace-loads=", "trace-loads: not given; moeperf run makes this file"},
    };
    struct mp_systems systems = {0};
    struct mp_comm *self;
    struct mp_error error = {0};
    must(mp_comm_self_create(&self, &error), &error);
    must(mp_systems_register_all(&systems, &error), &error);
    make_trace(1, 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const settings[] = {
            "system=ep",   "text=-",  "layers=2",      "width=32", "heads=2",   "experts=8",
            "sequence=16", "batch=8", "routing=trace", setting,    "trace=any", cases[i].setting};
        struct mp_job_file file;
        struct mp_trainer *trainer = NULL;
        error = (struct mp_error){0};
        must(mp_job_file_create(&file, &error), &error);
        for (size_t s = 0; s < sizeof settings / sizeof *settings; s++)
            must(mp_job_set(&file, settings[s], &systems, &error), &error);
        assert_int_equal(mp_trainer_create(&file, self, NULL, NULL, &trainer, &error), MP_EINVAL);
        assert_non_null(strstr(error.text, cases[i].words));
        mp_job_file_destroy(&file);
    }
    remove_trace();
    mp_comm_destroy(self);
}

int main(void) {
    return run_on_all_ranks();
}
