/* Numbers of ranks that are no power of two: experts that don't divide over them, or are fewer than
 * they are, one layer, two and three.  Every system that drops nothing gives the curve of one rank,
 * and planning for validation batches changes none. */
#include "tests/reference/trainer/mpi/trainers.h"

enum { ITERATIONS = 7, TEXT = 4096, MAX_SETTINGS = 10 };
static const double TOLERANCE = 1e-5, VALIDATION_TOLERANCE = 1e-4;

static struct mp_comm *self;
static unsigned char byte[TEXT];
static const struct mp_text text = {.byte = byte, .size = TEXT, .training = TEXT * 3 / 4};

/* Letters that follow from the last one, with surprises. */
static void make_text(void) {
    uint64_t state = seed;
    for (int i = 0; i < TEXT; i++)
        byte[i] = (unsigned char)(i && test_random_int(&state, 0, 3)
                                      ? (byte[i - 1] * 5 + i / 512 + 7) % 32
                                      : test_random_int(&state, 0, 31));
}

/* Losses of a run, after it that of text kept for validation. */
struct curve {
    double loss[ITERATIONS], validation;
};

static void train(struct mp_comm *comm, const char *const settings[], int validate_every,
                  struct curve *curve) {
    const char *all[MAX_SETTINGS + 3] = {"batch=15", "validation-batches=2"};
    for (int i = 0; settings[i]; i++)
        all[i + 2] = settings[i];
    struct mp_trainer *trainer = create_trainer(comm, &text, all);
    for (int i = 0; i < ITERATIONS; i++) {
        struct mp_trainer_result result;
        struct mp_error error = {0};
        must(mp_trainer_step(trainer, &result, &error), &error);
        curve->loss[i] = result.loss;
        if ((validate_every && (i + 1) % validate_every == 0) || i + 1 == ITERATIONS)
            must(mp_trainer_validate(trainer, &curve->validation, &error), &error);
    }
    mp_trainer_destroy(trainer);
}

/* A model, and the systems that can train it here. */
struct shape {
    const char *experts, *layers, *gate;
};

/* The curve of plain expert parallelism on one rank, and its choices. */
static void train_reference(const struct shape *shape, struct curve *curve,
                            struct choices *choices) {
    const char *const settings[] = {"system=ep", shape->experts, shape->layers, shape->gate, NULL};
    struct mp_error error = {0};
    noted = choices;
    if (world->rank == 0)
        train(self, settings, 0, curve);
    noted = NULL;
    must(mp_comm_broadcast(world, curve, sizeof *curve, 0, &error), &error);
    share_choices(choices);
}

struct row {
    const char *settings[5];
    unsigned needs; /* of these: */
};
enum { EVEN = 1, AS_MANY = 2 }; /* experts divide over the ranks; there are as many, at least */

static const struct row rows[] = {
    {{"system=ep"}, EVEN | AS_MANY},
    {{"system=smartmoe", "options.interval=3"}, EVEN | AS_MANY},
    {{"system=fastermoe", "options.smart-schedule=no"}, AS_MANY},
    {{"system=fastermoe", "options.group-size=1"}, AS_MANY},
    {{"system=fssdp", "options.overlap=2", "options.reshard-interval=3",
      "options.rematerialise=yes"},
     0},
    {{"system=deepep"}, EVEN | AS_MANY},
    {{"system=hiermoe"}, EVEN | AS_MANY},
    {{"system=hiermoe", "options.hierarchy=2"}, EVEN | AS_MANY},
    {{"system=deepspeed", "options.drop-tokens=no"}, EVEN},
    {{"system=deepspeed", "options.drop-tokens=no", "options.expert-parallel=1",
      "options.padded=no"},
     0},
    {{"system=flexmoe", "options.interval=3"}, 0},
    {{"system=swiftmoe", "options.capacity-factor=0"}, 0},
    {{"system=swiftmoe", "options.capacity-factor=0", "options.slots=all"}, 0},
    {{"system=laer", "options.rematerialise=yes"}, 0},
    {{"system=laer", "options.rematerialise=no"}, 0},
    {{"system=eplb", "options.interval=3", "ranks-per-node=1"}, 0},
    {{"system=llep", "options.smallest-gemm=1", "options.threshold=1"}, 0},
    {{"system=lp"}, 0},
    {{"system=moonep"}, 0},
    {{"system=nodewise", "options.cover=all"}, 0},
    {{"system=harmoeny", "options.least=1"}, 0},
    {{"system=ultraep"}, 0},
    {{"system=moetuner", "options.window=3", "options.solver=search"}, EVEN | AS_MANY},
    {{"system=hetumoe", "options.capacity-factor=16"}, EVEN},
    {{"system=tutel", "options.capacity-factor=0", "options.r=0"}, 0},
    {{"system=free-balance"}, 0},
};

static void equal_one_rank(const struct shape *shape) {
    int experts = atoi(strchr(shape->experts, '=') + 1);
    struct curve expected, curve;
    struct choices choices = {0};
    double worst = 0, worst_validation = 0;
    train_reference(shape, &expected, &choices);
    followed = &choices;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const char *settings[MAX_SETTINGS] = {shape->experts, shape->layers, shape->gate};
        memcpy(settings + 3, rows[r].settings, sizeof rows[r].settings);
        if (((rows[r].needs & EVEN) && experts % world->ranks != 0) ||
            ((rows[r].needs & AS_MANY) && experts < world->ranks))
            continue;
        train(world, settings, 0, &curve);
        for (int i = 0; i < ITERATIONS; i++) {
            double difference = fabs(curve.loss[i] / expected.loss[i] - 1);
            worst = fmax(worst, difference);
            if (!(difference <= TOLERANCE))
                fail_msg("%s %s %s: iteration %d: loss %.9g, on one rank %.9g", shape->experts,
                         settings[3], settings[4] ? settings[4] : "", i, curve.loss[i],
                         expected.loss[i]);
        }
        /* No draw keeps its choices safe; one that parts changes a row of 480. */
        double difference = fabs(curve.validation / expected.validation - 1);
        worst_validation = fmax(worst_validation, difference);
        if (!(difference <= VALIDATION_TOLERANCE))
            fail_msg("%s %s: validation loss %.9g, on one rank %.9g", shape->experts, settings[3],
                     curve.validation, expected.validation);
    }
    followed = NULL;
    forget_choices(&choices);
    assert_true(expected.loss[ITERATIONS - 1] < expected.loss[0]);
    if (world->rank == 0)
        print_message("  %s, %s, %s: largest relative difference %.2g, of validation %.2g\n",
                      shape->experts, shape->layers, shape->gate, worst, worst_validation);
}

TEST(as_many_experts_on_every_rank) {
    equal_one_rank(&(struct shape){"experts=15", "layers=3", "gate=gshard"});
}

TEST(experts_that_do_not_divide) {
    equal_one_rank(&(struct shape){"experts=7", "layers=1", "gate=gshard"});
    equal_one_rank(&(struct shape){"experts=7", "layers=3", "gate=switch"});
}

TEST(fewer_experts_than_ranks) {
    equal_one_rank(&(struct shape){"experts=2", "layers=2", "gate=switch"});
    equal_one_rank(&(struct shape){"experts=2", "layers=3", "gate=gshard"});
}

/* Pipelined, padded, dropping, replicated, sliced, re-materialised. */
static const char *const planners[][5] = {
    {"system=fssdp", "options.rematerialise=yes", "options.reshard-interval=2"},
    {"system=fastermoe"},
    {"system=deepspeed"},
    {"system=deepspeed", "options.policy=random", "options.capacity-factor=0.5"},
    {"system=flexmoe", "options.interval=2"},
    {"system=swiftmoe"},
    {"system=laer"},
    {"system=eplb", "options.interval=2", "ranks-per-node=1"},
    {"system=smartmoe", "options.interval=2"},
    {"system=llep", "options.smallest-gemm=1", "options.threshold=1"},
    {"system=moonep"},
    {"system=nodewise"},
    {"system=free-balance"},
};

TEST(validation_leaves_training_alone) {
    for (size_t p = 0; p < sizeof planners / sizeof *planners; p++) {
        const char *settings[MAX_SETTINGS] = {"experts=15", "layers=3"};
        memcpy(settings + 2, planners[p], sizeof planners[p]);
        struct curve without, with;
        train(world, settings, 0, &without);
        train(world, settings, 2, &with);
        for (int i = 0; i < ITERATIONS; i++)
            if (with.loss[i] != without.loss[i])
                fail_msg("%s: iteration %d: loss %.17g, without validation %.17g", planners[p][0],
                         i, with.loss[i], without.loss[i]);
    }
}

static int enter(void **state) {
    (void)state;
    struct mp_error error = {0};
    must(mp_comm_self_create(&self, &error), &error);
    make_text();
    return 0;
}

static int leave(void **state) {
    (void)state;
    mp_comm_destroy(self);
    return 0;
}

TEST_GROUP(enter, leave);

int main(void) {
    return run_on_all_ranks();
}
