/* Owner changes: parameters and both moments move, in rounds that need one spare slot per rank.
 *
 * Every rank works the rounds out from the same list.  A move joins a round when its receiver has a
 * free slot left; the sender's slot is free in the next round.  A round is never empty: were every
 * receiver full, more experts would be on these ranks than their shards hold at the end, so one of
 * them would have to send to a rank that is not full. */
#include <string.h>

#include "reference/trainer/internal.h"

static void count_free(struct mp_trainer *trainer) {
    int all = trainer->job.layers * trainer->job.experts;
    for (int r = 0; r < trainer->comm->ranks; r++)
        trainer->free_slots[r] = trainer->slots + 1;
    for (int i = 0; i < all; i++)
        trainer->free_slots[trainer->owner[i]]--;
}

static int choose_round(struct mp_trainer *trainer) {
    int count = 0;
    for (int i = 0; i < trainer->moves.count; i++) {
        const struct mp_transfer *move = &trainer->moves.item[i];
        if (trainer->moved[i] || trainer->free_slots[move->to] == 0)
            continue;
        trainer->free_slots[move->to]--;
        trainer->moved[i] = true;
        trainer->round[count++] = *move;
    }
    return count;
}

static void *moment(struct mp_experts *experts, int which, int slot) {
    float *memory[] = {experts->parameter, experts->first, experts->second};
    return memory[which] + (size_t)slot * experts->chunk;
}

static int locate_round(struct mp_trainer *trainer, int count, struct mp_error *error) {
    struct mp_experts *experts = &trainer->model.experts;
    for (int i = 0; i < count; i++) {
        const struct mp_transfer *move = &trainer->round[i];
        int from = -1, to = -1;
        if (move->from == trainer->comm->rank)
            from = experts->slot[move->layer * experts->experts + move->expert];
        if (move->to == trainer->comm->rank) {
            to = mp_experts_take(experts, move->layer, move->expert);
            if (to < 0)
                return mp_fail(error, MP_ELIMIT,
                               "rank %d has no slot for expert %d of layer %d, which moves to it",
                               trainer->comm->rank, move->expert, move->layer);
        }
        for (int w = 0; w < 3; w++) {
            trainer->round_from[w][i] = from < 0 ? NULL : moment(experts, w, from);
            trainer->round_to[w][i] = to < 0 ? NULL : moment(experts, w, to);
        }
    }
    return MP_OK;
}

static int carry_out(struct mp_trainer *trainer, int count, struct mp_error *error) {
    struct mp_experts *experts = &trainer->model.experts;
    int code = locate_round(trainer, count, error);
    for (int w = 0; !code && w < 3; w++)
        code = mp_move_start(trainer->comm, trainer->round, count, trainer->round_from[w],
                             trainer->round_to[w], experts->chunk * sizeof(float),
                             trainer->model.stream, trainer->move[w], error);
    for (int w = 0; !code && w < 3; w++)
        code = mp_request_wait(trainer->move[w], error);
    for (int i = 0; !code && i < count; i++) {
        const struct mp_transfer *move = &trainer->round[i];
        trainer->owner[move->layer * experts->experts + move->expert] = move->to;
        if (move->from == trainer->comm->rank)
            mp_experts_give(experts, move->layer, move->expert);
    }
    return code;
}

int mp_trainer_move_owners(struct mp_trainer *trainer, struct mp_error *error) {
    memset(trainer->moved, 0, (size_t)trainer->moves.count * sizeof *trainer->moved);
    for (int done = 0; done < trainer->moves.count;) {
        count_free(trainer);
        int count = choose_round(trainer);
        if (count == 0)
            return mp_fail(error, MP_EPLAN,
                           "%d owner changes need more than the %d slots of each rank",
                           trainer->moves.count - done, trainer->slots);
        int code = carry_out(trainer, count, error);
        if (code)
            return code;
        done += count;
    }
    return MP_OK;
}
