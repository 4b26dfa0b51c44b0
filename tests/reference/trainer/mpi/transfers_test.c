/* What plans move beside tokens: experts in slices that do not divide evenly, replicas that stay
 * equal, and transfers that cost nothing. */
#include "reference/base/random.h"
#include "tests/reference/trainer/mpi/trainers.h"

enum { ITERATIONS = 12, SEQUENCE = 16, BATCH = 8 };

static struct mp_comm *self;

static int enter(void **state) {
    (void)state;
    return mp_comm_self_create(&self, NULL);
}

static int leave(void **state) {
    (void)state;
    mp_comm_destroy(self);
    return 0;
}

/* A language of few words, so that loads are uneven and move. */
static void step(struct mp_trainer *trainer, int iteration, struct mp_trainer_result *result) {
    const struct mp_comm *comm = trainer->comm;
    int32_t token[BATCH * SEQUENCE], target[BATCH * SEQUENCE];
    struct mp_error error = {0};
    int tokens = BATCH / comm->ranks * SEQUENCE;
    for (int i = 0; i < tokens; i++) {
        uint64_t at = (uint64_t)(iteration * BATCH * SEQUENCE + comm->rank * tokens + i);
        token[i] = (int32_t)mp_random_below(seed, 1, at, 9) * (iteration / 4 + 1);
        target[i] = (token[i] * 7 + 3) % 256;
    }
    must(mp_trainer_step_on(trainer, token, target, result, &error), &error);
}

/* Slices of 2 * 9 * 5 = 90 floats over 4 ranks: 23, 23, 23 and 21. */
#define SHAPE "width=9", "heads=3", "expert-width=5", "layers=3"

static const char *const *const slice_cases[] = {
    (const char *const[]){"system=swiftmoe", "options.capacity-factor=0", SHAPE, NULL},
    (const char *const[]){"system=swiftmoe", "options.capacity-factor=0",
                          "options.offload-optimizer=yes", SHAPE, NULL},
    (const char *const[]){"system=deepspeed", "options.drop-tokens=no", "options.zero=1",
                          "options.expert-parallel=1", SHAPE, NULL},
    (const char *const[]){"system=deepspeed", "options.drop-tokens=no", "options.zero=1",
                          "options.expert-parallel=1", "options.offload-optimizer=yes",
                          "options.multi-rank-bucket-allreduce=no", SHAPE, NULL},
    (const char *const[]){"system=laer", "options.rematerialise=no", SHAPE, NULL},
    (const char *const[]){"system=laer", "options.rematerialise=yes", SHAPE, NULL},
    (const char *const[]){"system=laer", "options.prefetch=3", "options.window=1", SHAPE, NULL},
};

/* The curve of one rank and its choices; the same on every rank. */
static void one_rank_curve(double loss[ITERATIONS], struct choices *choices) {
    static const char *const one[] = {"system=ep", SHAPE, NULL};
    struct mp_trainer_result result;
    struct mp_error error = {0};
    if (world->rank == 0) {
        noted = choices;
        struct mp_trainer *trainer = create_trainer(self, NULL, one);
        for (int i = 0; i < ITERATIONS; i++) {
            step(trainer, i, &result);
            loss[i] = result.loss;
        }
        mp_trainer_destroy(trainer);
        noted = NULL;
    }
    must(mp_comm_broadcast(world, loss, ITERATIONS * sizeof *loss, 0, &error), &error);
    share_choices(choices);
}

TEST(uneven_slices_make_whole_experts) {
    double expected[ITERATIONS] = {0};
    struct mp_trainer_result result;
    struct choices choices = {0};
    one_rank_curve(expected, &choices);
    followed = &choices;
    for (size_t c = 0; c < sizeof slice_cases / sizeof *slice_cases; c++) {
        struct mp_trainer *trainer = create_trainer(world, NULL, slice_cases[c]);
        if (world->ranks == 4)
            assert_int_equal(trainer->model.experts.slice, 23);
        for (int i = 0; i < ITERATIONS; i++) {
            step(trainer, i, &result);
            assert_close(result.loss, expected[i], 1e-5 * expected[i]);
        }
        mp_trainer_destroy(trainer);
    }
    followed = NULL;
    forget_choices(&choices);
    assert_true(expected[ITERATIONS - 1] < expected[0]);
}

/* The owner's parameters or moments of an expert, on every rank; `own` if this rank keeps it. */
static bool equals_owner(struct mp_trainer *trainer, int layer, int expert, const float *own) {
    size_t bytes = trainer->model.experts.chunk * sizeof(float);
    int owner = trainer->planner.home[layer].owner[expert];
    float *memory = malloc(bytes);
    struct mp_error error = {0};
    if (owner == world->rank)
        memcpy(memory, own, bytes);
    must(mp_comm_broadcast(world, memory, bytes, owner, &error), &error);
    bool equal = !own || memcmp(memory, own, bytes) == 0;
    free(memory);
    return equal;
}

/* Skewed: on the even routes that some seeds give, no replica pays. */
static const char *const flexmoe[] = {"system=flexmoe", "options.interval=3", "routing=skewed",
                                      "skew-experts=1", "skew-share=0.45",    NULL};
static const char *const eplb[] = {"system=eplb", "options.interval=3", NULL};
static const char *const deepspeed[] = {"system=deepspeed", "options.capacity-factor=1",
                                        "options.expert-parallel=1", NULL};

static const struct replicating {
    const char *name;
    const char *const *settings;
} replicating[] = {{"flexmoe", flexmoe}, {"eplb", eplb}, {"deepspeed", deepspeed}};

TEST_EACH(replicas_stay_equal, replicating, c) {
    const char *const *settings = c->settings;
    struct mp_trainer *trainer = create_trainer(world, NULL, settings);
    struct mp_experts *experts = &trainer->model.experts;
    struct mp_trainer_result result;
    int replicas = 0;
    for (int i = 0; i < ITERATIONS; i++)
        step(trainer, i, &result);
    for (int at = 0; at < experts->layers * experts->experts; at++) {
        int layer = at / experts->experts, expert = at % experts->experts;
        float *memory[] = {experts->parameter, experts->first, experts->second};
        replicas += mp_placement_copies(&trainer->planner.home[layer], expert) - 1;
        for (int w = 0; w < 3; w++) {
            int place = w == 0 ? experts->slot[at] : experts->moments[at];
            const float *own = place < 0 ? NULL : memory[w] + (size_t)place * experts->chunk;
            assert_true(equals_owner(trainer, layer, expert, own));
        }
    }
    assert_int_equal(replicas > 0, world->ranks > 1);
    mp_trainer_destroy(trainer);
}

/* A bound's copies are made, and neither their bytes nor their time are counted. */
TEST(free_transfers_are_not_counted) {
    static const char *const settings[] = {"system=free-balance", "expert-width=1024", NULL};
    struct mp_trainer *trainer = create_trainer(world, NULL, settings);
    struct mp_trainer_result result;
    int64_t sent = trainer->comm->sent_bytes, started = mp_clock_ns();
    int64_t clock = mp_spans_now(&trainer->spans);
    for (int i = 0; i < ITERATIONS; i++)
        step(trainer, i, &result);
    int64_t copies = mp_trainer_totals(trainer)->copies[MP_STAGE_AFTER_GATE];
    int64_t counted = mp_spans_now(&trainer->spans) - clock;
    sent = trainer->comm->sent_bytes - sent;
    assert_int_equal(copies > 0, world->ranks > 1);
    assert_true(counted > 0 && counted < mp_clock_ns() - started);
    assert_int_equal(sent > 0, world->ranks > 1);
    /* Fewer bytes than half the copies alone, which every rank but few sends or receives. */
    double sums[] = {(double)sent};
    must(mp_comm_sum(world, sums, 1, NULL), &(struct mp_error){0});
    if (world->ranks == 2)
        assert_true(sums[0] < (double)copies * (double)trainer->setting.expert_bytes);
    mp_trainer_destroy(trainer);
}

TEST_GROUP(enter, leave);

int main(void) {
    return run_on_all_ranks();
}
