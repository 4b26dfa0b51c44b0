/* Replayed traces: every count of every iteration, layer and rank is the trace's, and, because the
 * same tokens choose the same experts on any number of ranks, the loss curve is that of one. */
#include "tests/reference/trainer/mpi/trainers.h"
#include "tests/reference/trainer/random_loads.h"

enum {
    SOURCES = 4,
    EXPERTS = 8,
    LAYERS = 2,
    SEQUENCE = 16,
    BATCH = 8,
    TRACE = 5,
    ITERATIONS = 12,
    KINDS = 40
};

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
    name_file(path, "trace");
    snprintf(setting, sizeof setting, "trace-loads=%s", path);
    count = random_loads(&state, &shape, TRACE);
    if (world->rank == 0)
        write_loads(path, &shape, TRACE, count, 0xabcdef);
    must(mp_comm_barrier(world, &error));
}

static void remove_trace(void) {
    must(mp_comm_barrier(world, &error));
    if (world->rank == 0)
        unlink(path);
    free(count);
}

TEST(every_count_is_the_trace_s) {
    static const char *const systems[] = {"ep", "fssdp", "deepspeed"};
    for (int top_k = 1; top_k <= EXPERTS; top_k *= 2) {
        make_trace(world->ranks, top_k);
        for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
            AUTO(trainer)
            struct mp_trainer *trainer =
                create_trainer(world, NULL,
                               formatted("system=%s gate=softmax top-k=%d routing=trace %s",
                                         systems[i], top_k, setting));
            for (int iteration = 0; iteration < ITERATIONS; iteration++) {
                random_step(trainer, KINDS);
                for (int l = 0; l < LAYERS; l++) { /* all ranks' rows, on every rank */
                    size_t cells = (size_t)world->ranks * EXPERTS;
                    size_t block = (size_t)(iteration % TRACE * LAYERS + l) * cells;
                    assert_memory_equal(trainer->load[l].count, count + block,
                                        cells * sizeof *count);
                }
            }
        }
        remove_trace();
    }
}

TEST(the_loss_is_that_of_one_rank) {
    static const char *const systems[] = {"ep", "fssdp options.reshard-interval=5"};
    double expected[ITERATIONS], loss[ITERATIONS];
    make_trace(SOURCES, 2);
    for (int i = 0; i < 3; i++) {
        losses_of(i ? world : alone,
                  formatted("routing=trace %s system=%s", setting, systems[i / 2]), KINDS,
                  ITERATIONS, i ? loss : expected);
        for (int k = 0; k < ITERATIONS && i; k++)
            assert_close(loss[k], expected[k], 1e-5 * expected[k]);
    }
    assert_true(expected[ITERATIONS - 1] < expected[0]);
    remove_trace();
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
    make_trace(1, 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuses_trainer(
            alone, formatted("system=ep routing=trace %s trace=any %s", setting, cases[i].setting),
            MP_EINVAL, cases[i].words);
    remove_trace();
}
