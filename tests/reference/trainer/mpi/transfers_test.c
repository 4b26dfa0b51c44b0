/* What plans move beside tokens: replicas that stay equal, and transfers that cost nothing. */
#include "tests/reference/trainer/mpi/trainers.h"

enum { ITERATIONS = 12, KINDS = 9 }; /* few words: loads are uneven and move */

/* The owner's parameters or moments of an expert, on every rank; `own` if this rank keeps it. */
static bool equals_owner(struct mp_trainer *trainer, int layer, int expert, const float *own) {
    size_t bytes = trainer->model.experts.chunk * sizeof(float);
    int owner = trainer->planner.home[layer].owner[expert];
    AUTO(allocated) float *memory = malloc(bytes);
    if (owner == world->rank)
        memcpy(memory, own, bytes);
    must(mp_comm_broadcast(world, memory, bytes, owner, &error));
    bool equal = !own || memcmp(memory, own, bytes) == 0;
    return equal;
}

static const struct replicating {
    const char *name, *settings;
} replicating[] = {
    /* Skewed: on the even routes that some seeds give, no replica pays. */
    {"flexmoe", "system=flexmoe options.interval=3 routing=skewed skew-experts=1 skew-share=0.45"},
    {"eplb", "system=eplb options.interval=3"},
    {"deepspeed", "system=deepspeed options.capacity-factor=1 options.expert-parallel=1"},
};

TEST_EACH(replicas_stay_equal, replicating, c) {
    AUTO(trainer) struct mp_trainer *trainer = create_trainer(world, NULL, c->settings);
    struct mp_experts *experts = &trainer->model.experts;
    int replicas = 0;
    for (int i = 0; i < ITERATIONS; i++)
        random_step(trainer, KINDS);
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
}

/* A bound's copies are made, and neither their bytes nor their time are counted. */
TEST(free_transfers_are_not_counted) {
    AUTO(trainer)
    struct mp_trainer *trainer =
        create_trainer(world, NULL, "system=free-balance expert-width=1024");
    int64_t sent = trainer->comm->sent_bytes, started = mp_clock_ns();
    int64_t clock = mp_spans_now(&trainer->spans);
    for (int i = 0; i < ITERATIONS; i++)
        random_step(trainer, KINDS);
    int64_t copies = mp_trainer_totals(trainer)->copies[MP_STAGE_AFTER_GATE];
    int64_t counted = mp_spans_now(&trainer->spans) - clock;
    sent = trainer->comm->sent_bytes - sent;
    assert_int_equal(copies > 0, world->ranks > 1);
    assert_true(counted > 0 && counted < mp_clock_ns() - started);
    assert_int_equal(sent > 0, world->ranks > 1);
    /* Fewer bytes than half the copies alone, which every rank but few sends or receives. */
    double sums[] = {(double)sent};
    must(mp_comm_sum(world, sums, 1, &error));
    if (world->ranks == 2)
        assert_true(sums[0] < (double)copies * (double)trainer->setting.expert_bytes);
}
