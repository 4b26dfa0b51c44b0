/* The law for owner changes after a step. */
#include <stdlib.h>

#include "reference/plan/plan_check.h"

struct sharding {
    const int32_t *owner; /* [layers][experts] */
    int layers, experts, ranks, slots;
    bool *moved; /* [layers][experts] */
    int *owned;  /* [ranks] */
};

static int check_move(const struct sharding *sharding, const struct mp_transfer *move,
                      struct mp_error *error) {
    if (move->layer < 0 || move->layer >= sharding->layers || move->expert < 0 ||
        move->expert >= sharding->experts)
        return mp_fail(error, MP_EPLAN, "a move of layer %d, expert %d; there are %d layers of %d",
                       move->layer, move->expert, sharding->layers, sharding->experts);
    long index = (long)move->layer * sharding->experts + move->expert;
    if (move->stage != MP_STAGE_AFTER_STEP || move->bytes < 1)
        return mp_fail(error, MP_EPLAN,
                       "the move of layer %d, expert %d has stage %s and %lld bytes; it takes some "
                       "bytes in stage after-step",
                       move->layer, move->expert, mp_stage_name(move->stage),
                       (long long)move->bytes);
    if (sharding->moved[index])
        return mp_fail(error, MP_EPLAN, "layer %d, expert %d moves twice", move->layer,
                       move->expert);
    if (move->from != sharding->owner[index])
        return mp_fail(error, MP_EPLAN,
                       "layer %d, expert %d moves from rank %d and is owned by rank %d",
                       move->layer, move->expert, move->from, sharding->owner[index]);
    if (move->to == move->from || move->to < 0 || move->to >= sharding->ranks)
        return mp_fail(error, MP_EPLAN,
                       "layer %d, expert %d moves from rank %d to rank %d, not to another of %d "
                       "ranks",
                       move->layer, move->expert, move->from, move->to, sharding->ranks);
    sharding->moved[index] = true;
    sharding->owned[move->from]--;
    sharding->owned[move->to]++;
    return MP_OK;
}

static int check_sharding(const struct sharding *sharding, const struct mp_transfers *moves,
                          struct mp_error *error) {
    long all = (long)sharding->layers * sharding->experts;

    for (long index = 0; index < all; index++) {
        int32_t owner = sharding->owner[index];
        if (owner < 0 || owner >= sharding->ranks)
            return mp_fail(error, MP_EPLAN, "layer %ld, expert %ld is owned by rank %d of %d",
                           index / sharding->experts, index % sharding->experts, owner,
                           sharding->ranks);
        sharding->owned[owner]++;
    }
    for (int index = 0; index < moves->count; index++) {
        int code = check_move(sharding, &moves->item[index], error);
        if (code)
            return code;
    }
    for (int rank = 0; rank < sharding->ranks; rank++)
        if (sharding->owned[rank] > sharding->slots)
            return mp_fail(error, MP_EPLAN,
                           "after the moves rank %d owns %d experts and has %d slots", rank,
                           sharding->owned[rank], sharding->slots);
    return MP_OK;
}

int mp_moves_check(const struct mp_transfers *moves, const int32_t owner[], int layers, int experts,
                   int ranks, int slots, struct mp_error *error) {
    struct sharding sharding = {owner, layers, experts, ranks, slots, NULL, NULL};
    int code;

    if (layers < 1 || experts < 1 || ranks < 1)
        return mp_fail(error, MP_EINVAL, "moves of %d layers, %d experts and %d ranks", layers,
                       experts, ranks);
    sharding.moved = calloc((size_t)layers * (size_t)experts, sizeof *sharding.moved);
    sharding.owned = calloc((size_t)ranks, sizeof *sharding.owned);
    if (sharding.moved && sharding.owned)
        code = check_sharding(&sharding, moves, error);
    else
        code = mp_fail(error, MP_ENOMEM, "no memory to check the moves of %d layers", layers);
    free(sharding.moved);
    free(sharding.owned);
    return code;
}
