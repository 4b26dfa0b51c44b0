/* Identity: on two ranks, systems that neither drop nor split a source's routes to an expert
 * compute what plain expert parallelism computes to the last bit: every loss and, in the end, every
 * parameter.  On more ranks that holds where experts' gradients are still summed in one place.
 *
 * Runs under mpirun; all ranks go through the same cases in the same order. */
#include "tests/reference/trainer/mpi/trainers.h"

enum { ITERATIONS = 12, SEQUENCE = 32, BATCH = 12 };

/* Rows of 1 to several hundred per expert, and widths that no vector divides. */
static const char SHAPE[] = "width=66 expert-width=130 sequence=32 batch=12 experts=12 layers=3 "
                            "auxiliary-weight=0";

struct identical_case {
    const char *name;
    const char *settings;
    bool copies; /* experts must have been computed by both ranks at once, */
    bool moves;  /* or have moved */
    /* Nothing is computed in two places: the bits are the same on any number of ranks. */
    bool in_one_place;
};

static const struct identical_case cases[] = {
    {"fastermoe", "system=fastermoe options.smart-schedule=no", .copies = true},
    {"fastermoe in steps", "system=fastermoe options.group-size=1", .copies = true},
    {"fastermoe, flat group", "system=fastermoe options.policy=paper-printed options.group-size=2",
     .copies = true},
    {"fssdp", "system=fssdp options.reshard-interval=3", .copies = true, .moves = true},
    {"frugal", "system=frugal options.reshard-interval=3", .copies = true, .moves = true},
    {"fssdp, all copied, again in backward",
     "system=fssdp options.memory=all options.overlap=all options.rematerialise=yes",
     .copies = true},
    {"eplb", "system=eplb options.interval=3 options.dispatch=nearest", .copies = true,
     .moves = true},
    {"laer, slices", "system=laer options.rematerialise=no", .copies = true},
    {"smartmoe", "system=smartmoe options.interval=3 options.shadows=0", .moves = true,
     .in_one_place = true},
    {"smartmoe with shadows", "system=smartmoe options.interval=3 options.smart-schedule=no",
     .copies = true, .moves = true},
    {"skeleton", "system=skeleton options.owners=cyclic", .in_one_place = true},
};

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
    must(mp_comm_sum(world, to + dense->count, (int)(all * experts->chunk), &error));
    for (size_t i = 0; i < dense->count; i++)
        to[i] = (double)dense->parameter[i];
}

static void run(const char *settings, struct outcome *outcome) {
    struct mp_trainer *trainer = create_trainer(world, NULL, formatted("%s %s", SHAPE, settings));
    /* Of few words that change, so that loads are uneven and move. */
    for (int i = 0; i < ITERATIONS; i++)
        outcome->loss[i] = random_step(trainer, 9 + 7 * (uint64_t)world->rank).loss;
    outcome->totals = *mp_trainer_totals(trainer);
    collect(trainer, outcome);
    mp_trainer_destroy(trainer);
}

static struct outcome plain; /* plain expert parallelism */

TEST_STEP(enter) {
    run("system=ep", &plain);
    return 0;
}

TEST_STEP(leave) {
    free(plain.parameter);
    return 0;
}

TEST_EACH(bits_are_those_of_ep, cases, c) {
    struct outcome outcome = {0};
    if (world->ranks != 2 && !c->in_one_place)
        return;
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

TEST_GROUP(enter, leave);
