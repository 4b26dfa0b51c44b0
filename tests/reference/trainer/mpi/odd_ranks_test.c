/* Numbers of ranks that are no power of two: experts that don't divide over them, or are fewer than
 * they are, one layer, two and three; over five, slices of an expert that aren't of one size. Every
 * system that drops nothing gives the curve of one rank, and planning for validation batches
 * changes none. */
#include "tests/reference/trainer/mpi/trainers.h"

enum { ITERATIONS = TEST_SANITIZED ? 4 : 7, TEXT = 4096 };
static const double TOLERANCE = 1e-5, VALIDATION_TOLERANCE = 1e-4;

static unsigned char byte[TEXT];
static const struct mp_text text = {.byte = byte, .size = TEXT, .training = TEXT * 3 / 4};

/* Losses of a run, after it that of text kept for validation. */
struct curve {
    double loss[ITERATIONS], validation;
};

static void train(struct mp_comm *comm, const char *shape, const char *settings, int validate_every,
                  struct curve *curve) {
    AUTO(trainer)
    struct mp_trainer *trainer = create_trainer(
        comm, &text, formatted("batch=15 validation-batches=2 %s %s", shape, settings));
    for (int i = 0; i < ITERATIONS; i++) {
        struct mp_trainer_result result;
        must(mp_trainer_step(trainer, &result, &error));
        curve->loss[i] = result.loss;
        if ((validate_every && (i + 1) % validate_every == 0) || i + 1 == ITERATIONS)
            must(mp_trainer_validate(trainer, &curve->validation, &error));
    }
}

/* The curve of plain expert parallelism on one rank, and its choices. */
static void train_reference(const char *shape, struct curve *curve, struct choices *choices) {
    noted = choices;
    if (world->rank == 0)
        train(alone, shape, "system=ep", 0, curve);
    noted = NULL;
    must(mp_comm_broadcast(world, curve, sizeof *curve, 0, &error));
    share_choices(choices);
    followed = choices;
}

/* The systems that can train here. */
struct row {
    const char *settings;
    unsigned needs; /* of these: */
};
enum { EVEN = 1, AS_MANY = 2 }; /* experts divide over the ranks; there are as many, at least */

static const struct row rows[] = {
    {"system=ep", EVEN | AS_MANY},
    {"system=smartmoe options.interval=3", EVEN | AS_MANY},
    {"system=fastermoe options.smart-schedule=no", AS_MANY},
    {"system=fastermoe options.group-size=1", AS_MANY},
    {"system=fssdp options.overlap=2 options.reshard-interval=3 options.rematerialise=yes", 0},
    {"system=deepep", EVEN | AS_MANY},
    {"system=hiermoe", EVEN | AS_MANY},
    {"system=hiermoe options.hierarchy=2", EVEN | AS_MANY},
    {"system=deepspeed options.drop-tokens=no", EVEN},
    {"system=deepspeed options.drop-tokens=no options.expert-parallel=1 options.padded=no", 0},
    {"system=deepspeed options.drop-tokens=no options.expert-parallel=1 options.zero=1", 0},
    {"system=deepspeed options.drop-tokens=no options.expert-parallel=1 options.zero=1 "
     "options.offload-optimizer=yes options.multi-rank-bucket-allreduce=no",
     0},
    {"system=flexmoe options.interval=3", 0},
    {"system=swiftmoe options.capacity-factor=0", 0},
    {"system=swiftmoe options.capacity-factor=0 options.slots=all", 0},
    {"system=swiftmoe options.capacity-factor=0 options.offload-optimizer=yes", 0},
    {"system=laer options.rematerialise=yes", 0},
    {"system=laer options.rematerialise=no", 0},
    {"system=laer options.prefetch=3 options.window=1", 0},
    {"system=eplb options.interval=3 ranks-per-node=1", 0},
    {"system=llep options.smallest-gemm=1 options.threshold=1", 0},
    {"system=lp", 0},
    {"system=moonep", 0},
    {"system=nodewise options.cover=all options.ahead=1", 0},
    {"system=nodewise options.cover=all options.rematerialise=yes", 0},
    {"system=harmoeny options.least=1", 0},
    {"system=ultraep", 0},
    {"system=moetuner options.window=3 options.solver=search", EVEN | AS_MANY},
    {"system=hetumoe options.capacity-factor=16", EVEN},
    {"system=tutel options.capacity-factor=0 options.r=0", 0},
    {"system=free-balance", 0},
};

static void equal_one_rank(const char *shape) {
    int experts = atoi(shape + strlen("experts="));
    struct curve expected, curve;
    AUTO(choices) struct choices choices = {0};
    double worst = 0, worst_validation = 0;
    train_reference(shape, &expected, &choices);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const char *settings = rows[r].settings;
        if (((rows[r].needs & EVEN) && experts % world->ranks != 0) ||
            ((rows[r].needs & AS_MANY) && experts < world->ranks))
            continue;
        train(world, shape, settings, 0, &curve);
        for (int i = 0; i < ITERATIONS; i++) {
            double difference = fabs(curve.loss[i] / expected.loss[i] - 1);
            worst = fmax(worst, difference);
            if (!(difference <= TOLERANCE))
                fail_msg("%s %s: iteration %d: loss %.9g, on one rank %.9g", shape, settings, i,
                         curve.loss[i], expected.loss[i]);
        }
        /* No draw keeps its choices safe; one that parts changes a row of 480. */
        double difference = fabs(curve.validation / expected.validation - 1);
        worst_validation = fmax(worst_validation, difference);
        if (!(difference <= VALIDATION_TOLERANCE))
            fail_msg("%s %s: validation loss %.9g, on one rank %.9g", shape, settings,
                     curve.validation, expected.validation);
    }
    assert_true(TEST_SANITIZED || expected.loss[ITERATIONS - 1] < expected.loss[0]);
    if (world->rank == 0)
        print_message("  %s: largest relative difference %.2g, of validation %.2g\n", shape, worst,
                      worst_validation);
}

TEST(as_many_experts_on_every_rank) {
    equal_one_rank("experts=15 layers=3 gate=gshard");
}

TEST(experts_that_do_not_divide) {
    equal_one_rank("experts=7 layers=1 gate=gshard");
    equal_one_rank("experts=7 layers=3 gate=switch");
}

TEST(fewer_experts_than_ranks) {
    equal_one_rank("experts=2 layers=2 gate=switch");
    equal_one_rank("experts=2 layers=3 gate=gshard");
}

/* Pipelined, padded, dropping, replicated, sliced, re-materialised. */
static const char *const planners[] = {
    "system=fssdp options.rematerialise=yes options.reshard-interval=2",
    "system=fastermoe",
    "system=deepspeed",
    "system=deepspeed options.policy=random options.capacity-factor=0.5",
    "system=flexmoe options.interval=2",
    "system=swiftmoe",
    "system=laer",
    "system=eplb options.interval=2 ranks-per-node=1",
    "system=smartmoe options.interval=2",
    "system=llep options.smallest-gemm=1 options.threshold=1",
    "system=moonep",
    "system=nodewise options.cover=4 options.ahead=1 ranks-per-node=2",
    "system=free-balance",
};

TEST(validation_leaves_training_alone) {
    for (size_t p = 0; p < sizeof planners / sizeof *planners; p++) {
        struct curve without, with;
        train(world, "experts=15 layers=3", planners[p], 0, &without);
        train(world, "experts=15 layers=3", planners[p], 2, &with);
        for (int i = 0; i < ITERATIONS; i++)
            if (with.loss[i] != without.loss[i])
                fail_msg("%s: iteration %d: loss %.17g, without validation %.17g", planners[p], i,
                         with.loss[i], without.loss[i]);
    }
}

TEST_STEP(enter) {
    random_text(byte, TEXT);
    return 0;
}

TEST_GROUP(enter, NULL);
