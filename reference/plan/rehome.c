/* Rehoming: what has to move, and the law for homes. */
#include "reference/plan/rehome.h"

/* The holder that a newcomer receives from. */
static int nearest_source(const struct mp_placement *home, const struct mp_topology *topology,
                          int expert, int to) {
    int node = mp_topology_node(topology, to);
    int near = mp_placement_next(home, expert, mp_topology_node_begin(topology, node));
    if (near >= 0 && near < mp_topology_node_end(topology, node))
        return near;
    int rank = -1;
    for (int skip = to % mp_placement_copies(home, expert); skip >= 0; skip--)
        rank = mp_placement_next(home, expert, rank + 1);
    return rank;
}

int mp_rehome_transfers(const struct mp_placement home[], const struct mp_placement next[],
                        int layers, const struct mp_topology *topology, int64_t bytes,
                        struct mp_transfers *list, struct mp_error *error) {
    for (int layer = 0; layer < layers; layer++)
        for (int expert = 0; expert < home[layer].experts; expert++)
            for (int rank = mp_placement_next(&next[layer], expert, 0); rank >= 0;
                 rank = mp_placement_next(&next[layer], expert, rank + 1)) {
                if (mp_placement_holds(&home[layer], expert, rank))
                    continue;
                struct mp_transfer move = {.layer = layer,
                                           .expert = expert,
                                           .from =
                                               nearest_source(&home[layer], topology, expert, rank),
                                           .to = rank,
                                           .bytes = bytes,
                                           .stage = MP_STAGE_AFTER_STEP};
                MP_TRY(mp_transfers_add(list, move, error));
            }
    return MP_OK;
}

struct check {
    const struct mp_placement *home;
    const struct mp_rehome *change;
    int layers;
    enum mp_optimizer_split optimizer;
    int limit;
    int *kept;  /* [ranks] */
    int *delta; /* [ranks], experts of a layer gained minus lost */
};

static int check_expert(const struct check *check, int layer, int expert, struct mp_error *error) {
    const struct mp_placement *next = &check->change->next[layer];
    int owner = next->owner[expert], ranks = next->ranks;
    uint64_t last = next->holder[(long)expert * next->words + next->words - 1];

    if (owner < 0 || owner >= ranks)
        return mp_fail(error, MP_EPLAN,
                       "after the step layer %d, expert %d is owned by rank %d of %d", layer,
                       expert, owner, ranks);
    if (!mp_placement_holds(next, expert, owner))
        return mp_fail(
            error, MP_EPLAN,
            "after the step layer %d, expert %d is owned by rank %d, which does not hold "
            "it",
            layer, expert, owner);
    if (ranks % 64 && last >> (ranks % 64))
        return mp_fail(error, MP_EPLAN,
                       "after the step layer %d, expert %d is held by a rank beyond the last of %d",
                       layer, expert, ranks);
    int copies = mp_placement_copies(next, expert);
    if (copies > 1 && check->optimizer == MP_OPTIMIZER_OWNER)
        return mp_fail(error, MP_EPLAN,
                       "after the step layer %d, expert %d is kept by %d ranks, and its optimizer "
                       "by its owner alone",
                       layer, expert, copies);
    return MP_OK;
}

static int check_layer(struct check *check, int layer, struct mp_error *error) {
    const struct mp_placement *next = &check->change->next[layer], *home = &check->home[layer];

    if (!check->change->changed && !mp_placement_equal(next, home))
        return mp_fail(error, MP_EPLAN,
                       "after the step layer %d has other homes, and the change is not said to be "
                       "one",
                       layer);
    if (mp_optimizer_of_replicas(check->optimizer) && !mp_placement_equal(next, home))
        return mp_fail(error, MP_EPLAN,
                       "after the step layer %d has other homes, and its optimizer's slices stay "
                       "with the holders that they were made for",
                       layer);
    for (int rank = 0; rank < next->ranks; rank++) {
        check->delta[rank] = 0;
        if (mp_optimizer_sliced(check->optimizer))
            check->kept[rank] = 0;
    }
    for (int expert = 0; expert < next->experts; expert++) {
        MP_TRY(check_expert(check, layer, expert, error));
        for (int rank = 0; rank < next->ranks; rank++) {
            int held = mp_placement_holds(next, expert, rank);
            int before = mp_placement_holds(home, expert, rank);
            check->kept[rank] += check->change->asynchronous ? held | before : held;
            check->delta[rank] += held - before;
        }
    }
    for (int rank = 0; rank < next->ranks; rank++) {
        if (check->kept[rank] > check->limit)
            return mp_fail(
                error, MP_EPLAN,
                "after the step rank %d keeps %d experts by layer %d and has room for %d", rank,
                check->kept[rank], layer, check->limit);
        if (check->change->leave_state && check->delta[rank] != 0)
            return mp_fail(error, MP_EPLAN,
                           "optimizer state is left behind, and rank %d keeps %+d experts of layer "
                           "%d",
                           rank, check->delta[rank], layer);
    }
    return MP_OK;
}

int mp_rehome_check(const struct mp_placement home[], const struct mp_rehome *change, int layers,
                    enum mp_optimizer_split optimizer, int limit, struct mp_error *error) {
    struct check check = {
        .home = home, .change = change, .layers = layers, .optimizer = optimizer, .limit = limit};
    MP_AUTO(arena) struct mp_arena memory = {0};

    if (change->asynchronous && (optimizer != MP_OPTIMIZER_REPLICATED || change->leave_state))
        return mp_fail(error, MP_EPLAN,
                       "experts move while they are trained, with an optimizer %s%s; that needs "
                       "tied replicas, and state that moves along",
                       mp_optimizer_name(optimizer),
                       change->leave_state ? " whose state is left behind" : "");
    MP_TAKE_EACH(&memory, home[0].ranks, check.kept, check.delta);
    MP_TRY(mp_arena_check(&memory, error));
    for (int layer = 0; layer < layers; layer++)
        MP_TRY(check_layer(&check, layer, error));
    return MP_OK;
}
