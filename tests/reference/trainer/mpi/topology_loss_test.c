/* TA-MoE's loss on several nodes: what every rank's gate learns from is its own counts, by where
 * experts are, and the loss that is told is the mean of all ranks'. */
#include "reference/gate/tamoe.h"
#include "tests/reference/trainer/mpi/trainers.h"

enum { LAYERS = 2, EXPERTS = 8, TOKENS = 8 * 16 };
static const double WEIGHT = 0.5, COST = 2.5;

/* This rank's part of a layer's loss, from probabilities and choices; its slopes are the state's.
 */
static double check_layer(const struct mp_trainer *trainer, int layer) {
    const struct mp_model *model = &trainer->model;
    const struct mp_block_state *state = &model->state[layer];
    const struct mp_topology topology = {world->ranks, world->ranks / 2};
    double loss = 0;
    for (int e = 0; e < EXPERTS; e++) {
        double firsts = 0, mass = 0;
        for (int t = 0; t < model->tokens; t++) {
            firsts += state->choice[2 * t] == e;
            mass += (double)state->probability[t * EXPERTS + e];
        }
        double scale =
            mp_tamoe_released_scale(&topology, COST, world->rank, e * world->ranks / EXPERTS);
        double each = EXPERTS / world->ranks; /* the released form, its mean over experts */
        double slope = WEIGHT * scale * firsts / model->tokens * each * each / EXPERTS / TOKENS;
        assert_close(state->auxiliary[e], slope, 1e-5);
        loss += slope * mass;
    }
    return loss;
}

TEST(every_rank_learns_from_its_own_counts) {
    AUTO(trainer)
    struct mp_trainer *trainer =
        create_trainer(world, NULL,
                       formatted("ranks-per-node=%d system=ep gate=tamoe auxiliary-weight=0.5 "
                                 "gate-options.outside-cost=2.5",
                                 world->ranks / 2));
    struct mp_trainer_result result = random_step(trainer, MP_VOCABULARY);
    double part = 0, all = 0;
    for (int l = 0; l < LAYERS; l++)
        part += check_layer(trainer, l);
    for (int r = 0; r < world->ranks; r++) {
        double other = part;
        must(mp_comm_broadcast(world, &other, sizeof other, r, &error));
        all += other;
    }
    assert_close(result.auxiliary_loss, all, 1e-5);
}
