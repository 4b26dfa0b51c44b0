/* Identity: on two ranks, systems that neither drop nor split a source's routes to an expert
 * compute what plain expert parallelism computes to the last bit: every loss and, in the end, every
 * parameter.  On more ranks that holds where experts' gradients are still summed in one place.
 *
 * Runs under mpirun; all ranks go through the same cases in the same order. */
#include "reference/base/random.h"
#include "tests/reference/trainer/mpi/trainers.h"

enum { ITERATIONS = 12, SEQUENCE = 32, BATCH = 12 };

/* Rows of 1 to several hundred per expert, and widths that no vector divides. */
#define SHAPE                                                                                      \
    "width=66", "expert-width=130", "sequence=32", "batch=12", "experts=12", "layers=3",           \
        "auxiliary-weight=0"

struct identical_case {
    const char *name;
    const char *settings[8];
    bool copies; /* experts must have been computed by both ranks at once, */
    bool moves;  /* or have moved */
    /* Nothing is computed in two places: the bits are the same on any number of ranks. */
    bool in_one_place;
};

static const struct identical_case cases[] = {
    {"fastermoe", {"system=fastermoe", "options.smart-schedule=no"}, .copies = true},
    {"fastermoe in steps", {"system=fastermoe", "options.group-size=1"}, .copies = true},
    {"fastermoe, flat group",
     {"system=fastermoe", "options.policy=paper-printed", "options.group-size=2"},
     .copies = true},
    {"fssdp", {"system=fssdp", "options.reshard-interval=3"}, .copies = true, .moves = true},
    {"frugal", {"system=frugal", "options.reshard-interval=3"}, .copies = true, .moves = true},
    {"fssdp, all copied, again in backward",
     {"system=fssdp", "options.memory=all", "options.overlap=all", "options.rematerialise=yes"},
     .copies = true},
    {"eplb",
     {"system=eplb", "options.interval=3", "options.dispatch=nearest"},
     .copies = true,
     .moves = true},
    {"laer, slices", {"system=laer", "options.rematerialise=no"}, .copies = true},
    {"smartmoe",
     {"system=smartmoe", "options.interval=3", "options.shadows=0"},
     .moves = true,
     .in_one_place = true},
    {"smartmoe with shadows",
     {"system=smartmoe", "options.interval=3", "options.smart-schedule=no"},
     .copies = true,
     .moves = true},
    {"skeleton", {"system=skeleton", "options.owners=cyclic"}, .in_one_place = true},
};

/* A language of few words that change, so that loads are uneven and move. */
static void step(struct mp_trainer *trainer, int iteration, struct mp_trainer_result *result) {
    const struct mp_comm *comm = trainer->comm;
    int32_t token[BATCH * SEQUENCE], target[BATCH * SEQUENCE];
    struct mp_error error = {0};
    int tokens = BATCH / comm->ranks * SEQUENCE;
    for (int i = 0; i < tokens; i++) {
        uint64_t at = (uint64_t)(iteration * BATCH * SEQUENCE + comm->rank * tokens + i);
        token[i] = (int32_t)mp_random_below(seed, 1, at, 9 + 7 * (uint64_t)comm->rank) *
                   (iteration / 4 + 1);
        target[i] = (token[i] * 7 + 3) % 256;
    }
    must(mp_trainer_step_on(trainer, token, target, result, &error), &error);
}

/* What a run computed, the same on every rank. */
struct outcome {
    double loss[ITERATIONS];
    double *parameter; /* [dense, then layers * experts * chunk] */
    size_t parameters;
    struct mp_trainer_totals totals;
};

/* Every parameter once: the dense ones of this rank, experts from their owners or out of slices. */
static void collect(struct mp_trainer *trainer, struct outcome *outcome) {
    const struct mp_experts *experts = &trainer->model.experts;
    const struct mp_dense *dense = &trainer->model.dense;
    size_t all = (size_t)experts->layers * (size_t)experts->experts;
    outcome->parameters = dense->count + all * experts->chunk;
    double *to = outcome->parameter = calloc(outcome->parameters, sizeof *to);
    assert_non_null(to);
    for (size_t at = 0; at < all; at++) {
        int layer = (int)at / experts->experts, expert = (int)at % experts->experts;
        double *chunk = to + dense->count + at * experts->chunk;
        size_t begin = (size_t)experts->piece[at] * experts->slice;
        float *state[3];
        if (!experts->slice && trainer->planner.home[layer].owner[expert] != world->rank)
            continue;
        if (!mp_experts_state(experts, layer, expert, state))
            continue;
        for (size_t i = begin; i < begin + experts->kept && i < experts->chunk; i++)
            chunk[i] = (double)state[0][i - begin];
    }
    must(mp_comm_sum(world, to + dense->count, (int)(all * experts->chunk), NULL),
         &(struct mp_error){0});
    for (size_t i = 0; i < dense->count; i++)
        to[i] = (double)dense->parameter[i];
}

static void run(const char *const given[], struct outcome *outcome) {
    const char *settings[32] = {SHAPE};
    int count = 0;
    while (settings[count])
        count++;
    for (int i = 0; given[i]; i++)
        settings[count++] = given[i];
    struct mp_trainer *trainer = create_trainer(world, NULL, settings);
    for (int i = 0; i < ITERATIONS; i++) {
        struct mp_trainer_result result;
        step(trainer, i, &result);
        outcome->loss[i] = result.loss;
    }
    outcome->totals = *mp_trainer_totals(trainer);
    collect(trainer, outcome);
    mp_trainer_destroy(trainer);
}

static struct outcome plain; /* plain expert parallelism */

static int enter(void **state) {
    (void)state;
    run((const char *const[]){"system=ep", NULL}, &plain);
    return 0;
}

static int leave(void **state) {
    (void)state;
    free(plain.parameter);
    return 0;
}

static void bits_are_those_of_ep(void **state) {
    const struct identical_case *c = *state;
    struct outcome outcome = {0};
    run(c->settings, &outcome);
    const struct mp_trainer_totals *totals = &outcome.totals;
    int64_t copies = totals->copies[MP_STAGE_BEFORE_GATE] + totals->copies[MP_STAGE_AFTER_GATE] +
                     totals->copies[MP_STAGE_AFTER_STEP] + totals->replicas;
    assert_int_equal(copies > 0, c->copies);
    assert_int_equal(totals->moves > 0, c->moves);
    assert_memory_equal(outcome.loss, plain.loss, sizeof plain.loss);
    assert_int_equal(outcome.parameters, plain.parameters);
    assert_memory_equal(outcome.parameter, plain.parameter,
                        plain.parameters * sizeof *plain.parameter);
    assert_true(plain.loss[ITERATIONS - 1] < plain.loss[0]); /* it learns, so something happens */
    free(outcome.parameter);
}

/* Registers the cases that a test of so many ranks has; returns their number. */
static int list_cases(int ranks, struct CMUnitTest tests[]) {
    int count = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (ranks == 2 || cases[i].in_one_place)
            tests[count++] = (struct CMUnitTest){cases[i].name, bits_are_those_of_ep, NULL, NULL,
                                                 (void *)(uintptr_t)&cases[i]};
    return count;
}

int main(void) {
    struct CMUnitTest tests[sizeof cases / sizeof *cases];
    struct mp_error error = {0};
    if (mp_comm_mpi_create(NULL, &world, &error)) {
        print_error("%s\n", error.text);
        return 1;
    }
    if (world->rank == 0)
        seed = test_seed();
    must(mp_comm_broadcast(world, &seed, sizeof seed, 0, &error), &error);
    int count = list_cases(world->ranks, tests);
    int failed = _cmocka_run_group_tests("identical", tests, (size_t)count, enter, leave);
    if (failed)
        mp_comm_abort(world, 1);
    mp_comm_destroy(world);
    return 0;
}
