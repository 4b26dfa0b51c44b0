/* FastMoE's gates.  GShard: a second choice at random, and a capacity of each rank for each expert.
 * Switch: a capacity of an expert for all ranks together.  Every route is recounted: who is left by
 * the gate, who finds the expert full, with which weight. */
#include "tests/reference/trainer/mpi/trainers.h"

enum { EXPERTS = 8 };
#define LIMITED "options.capacity-factor=1.2 options.policy=position options.padded=no"
static const double RATE = 1.2;

struct counted {
    int left, dropped, kept;
};

/* Tokens in their order; the plan knows counts only. */
static struct counted recount(const struct mp_model *model) {
    const struct mp_block_state *state = &model->state[0];
    int capacity = (int)ceil(RATE * model->tokens) * 2 / EXPERTS, taken[EXPERTS] = {0};
    struct counted counted = {0};
    for (int i = 0; i < 2 * model->tokens; i++) {
        const float *probability = state->probability + (size_t)(i / 2) * EXPERTS;
        int first = state->choice[i / 2 * 2],
            second = mp_choice_expert(state->choice[i / 2 * 2 + 1]);
        int expert = mp_choice_expert(state->choice[i]);
        double both = (double)probability[first] + (double)probability[second];
        bool is_left = state->choice[i] < 0, is_full = !is_left && taken[expert] == capacity;
        assert_int_equal(state->position[i] < 0, is_left || is_full);
        assert_close(state->weight[i], is_left ? 0 : (double)probability[expert] / both, 1e-5);
        assert_true(i % 2 == 1 || !is_left);
        taken[expert] += !is_left && !is_full;
        counted.left += is_left;
        counted.dropped += is_full;
        counted.kept += !is_left && !is_full;
    }
    return counted;
}

TEST(every_route_is_accounted_for) {
    AUTO(trainer)
    struct mp_trainer *trainer =
        create_trainer(world, NULL,
                       "system=deepspeed layers=1 options.formula=fastmoe gate=gshard "
                       "gate-options.second=random " LIMITED);
    struct counted all = {0};
    for (int step = 0; step < 5; step++) { /* few bytes: experts fill up */
        random_step(trainer, 6);
        struct counted here = recount(&trainer->model);
        assert_int_equal(here.left + here.dropped + here.kept, 2 * trainer->model.tokens);
        all.left += here.left;
        all.dropped += here.dropped;
    }
    assert_true(all.left > 0 && all.dropped > 0);
}

/* What lower ranks have left of an expert, as everybody knows from the loads of all. */
static int64_t room_of(const struct mp_trainer *trainer, int expert) {
    int64_t room = (int64_t)ceil(RATE * trainer->model.tokens / (EXPERTS / (double)world->ranks));
    for (int r = 0; r < world->rank; r++) {
        int64_t routes = mp_load_at(&trainer->load[0], r, expert);
        room -= routes < room ? routes : room;
    }
    return room;
}

TEST(a_receiver_is_full_for_all_ranks) {
    AUTO(trainer)
    struct mp_trainer *trainer = create_trainer(
        world, NULL,
        "system=deepspeed layers=1 options.formula=fastmoe-switch gate=switch " LIMITED);
    const struct mp_block_state *block = &trainer->model.state[0];
    int full = 0, kept = 0;
    for (int step = 0; step < 5; step++) {
        int64_t room[EXPERTS];
        random_step(trainer, 6);
        for (int e = 0; e < EXPERTS; e++)
            room[e] = room_of(trainer, e);
        for (int i = 0; i < trainer->model.tokens; i++) {
            bool is_full = room[block->choice[i]]-- <= 0;
            assert_int_equal(block->position[i] < 0, is_full);
            full += is_full;
            kept += !is_full;
        }
    }
    assert_true(world->rank < world->ranks - 1 || full > 0);
    assert_true(world->rank > 0 || kept > 0);
}
