/* New homes: experts move, with their optimizer state or without, in rounds that need one spare
 * slot per rank.
 *
 * Every rank works the rounds out from the same list.  Before a round, ranks give up what is not
 * theirs any more and nobody waits for.  A move joins a round when its receiver has a free slot
 * left.  A round is never empty: were every receiver full, with one expert more than it may keep at
 * the end, each would still have to send more than it is to receive, and there would be more
 * senders than moves.
 *
 * Asynchronous moves are one round: the system has left room for all that arrives beside all that
 * is still in use.
 *
 * State that is offloaded goes from host to host.  NCCL takes page-locked memory as it takes the
 * device's (its user guide, "Data Pointers"). */
#include "reference/trainer/moves.h"

#include <string.h>

int mp_moves_create(struct mp_moves *moves, struct mp_arena *arena, struct mp_error *error) {
    size_t layers = (size_t)moves->model->experts.layers,
           most = (size_t)moves->planner->moves.capacity;
    MP_TAKE(arena, moves->source, layers);
    MP_TAKE_EACH(arena, most, moves->round, moves->moved);
    for (int w = 0; w < MP_MOVED_STATES; w++) {
        MP_TAKE_EACH(arena, most, moves->from[w], moves->to[w]);
    }
    MP_TAKE(arena, moves->old_moments, layers * (size_t)moves->model->experts.experts);
    MP_TAKE(arena, moves->free_slots, moves->comm->ranks);
    for (size_t l = 0; moves->source && l < layers; l++)
        mp_placement_take(arena, moves->comm->ranks, moves->model->experts.experts,
                          &moves->source[l]);
    return mp_arena_check(arena, error);
}

static bool serves(const struct mp_moves *moves) {
    return moves->planner->policy.forward_only;
}

/* How many of them move. */
static int states_of(const struct mp_moves *moves) {
    return moves->planner->change.leave_state || serves(moves) ? 1 : MP_MOVED_STATES;
}

/* Who still has to send what. */
static void note_sources(struct mp_moves *moves) {
    for (int l = 0; l < moves->model->experts.layers; l++)
        memset(moves->source[l].holder, 0,
               (size_t)moves->source[l].experts * (size_t)moves->source[l].words *
                   sizeof *moves->source[l].holder);
    for (int i = 0; i < moves->planner->moves.count; i++) {
        const struct mp_transfer *move = &moves->planner->moves.item[i];
        if (!moves->moved[i])
            mp_placement_add(&moves->source[move->layer], move->expert, move->from);
    }
}

/* Ranks let go of what they neither keep nor have to send, and what they have then is counted. */
static void let_go(struct mp_moves *moves) {
    int experts = moves->model->experts.experts;
    note_sources(moves);
    for (int r = 0; r < moves->comm->ranks; r++)
        moves->free_slots[r] = moves->planner->homes_limit + 1;
    for (int i = 0; i < moves->model->experts.layers * experts; i++) {
        int layer = i / experts, expert = i % experts;
        struct mp_placement *home = &moves->planner->home[layer];
        for (int r = mp_placement_next(home, expert, 0); r >= 0;
             r = mp_placement_next(home, expert, r + 1)) {
            if (mp_placement_holds(&moves->planner->change.next[layer], expert, r) ||
                mp_placement_holds(&moves->source[layer], expert, r)) {
                moves->free_slots[r]--;
                continue;
            }
            mp_placement_remove(home, expert, r);
            if (r == moves->comm->rank)
                mp_experts_give(&moves->model->experts, layer, expert);
        }
    }
}

static int choose_round(struct mp_moves *moves) {
    int count = 0;
    for (int i = 0; i < moves->planner->moves.count; i++) {
        const struct mp_transfer *move = &moves->planner->moves.item[i];
        if (moves->moved[i] || moves->free_slots[move->to] == 0)
            continue;
        moves->free_slots[move->to]--;
        moves->moved[i] = true;
        moves->round[count++] = *move;
    }
    return count;
}

static int locate_round(struct mp_moves *moves, int count, struct mp_error *error) {
    struct mp_experts *experts = &moves->model->experts;
    int rank = moves->comm->rank;
    for (int i = 0; i < count; i++) {
        const struct mp_transfer *move = &moves->round[i];
        if (move->to == rank && mp_experts_take(experts, move->layer, move->expert) < 0)
            return mp_fail(error, MP_ELIMIT,
                           "rank %d has no slot for expert %d of layer %d, which moves to it", rank,
                           move->expert, move->layer);
        float *state[MP_MOVED_STATES] = {NULL};
        mp_experts_state(experts, move->layer, move->expert, state);
        for (int w = 0; w < MP_MOVED_STATES; w++) {
            moves->from[w][i] = move->from == rank ? state[w] : NULL;
            moves->to[w][i] = move->to == rank ? state[w] : NULL;
        }
    }
    return MP_OK;
}

static int start_round(struct mp_moves *moves, int count, int states, struct mp_error *error) {
    MP_TRY(locate_round(moves, count, error));
    for (int w = 0; w < states; w++)
        MP_TRY(mp_move_start(moves->comm, moves->round, count, moves->from[w], moves->to[w],
                             moves->model->experts.chunk * sizeof(float), moves->model->stream,
                             moves->request[w], error));
    return MP_OK;
}

static int wait_round(struct mp_moves *moves, int count, int states, struct mp_error *error) {
    for (int w = 0; w < states; w++)
        MP_TRY(mp_request_wait(moves->request[w], error));
    for (int i = 0; i < count; i++)
        mp_placement_add(&moves->planner->home[moves->round[i].layer], moves->round[i].expert,
                         moves->round[i].to);
    return MP_OK;
}

/* Elements for the forward that follows; asynchronous moves have an update before that, but in
 * serving. */
static void refresh_round(struct mp_moves *moves, int count) {
    for (int i = 0; i < count; i++)
        if (moves->round[i].to == moves->comm->rank)
            mp_experts_refresh(&moves->model->experts, moves->model->stream, moves->round[i].layer,
                               moves->round[i].expert);
}

/* What arrived in a layer goes on with the moments of what left it, in ascending order. */
static void adopt_moments(struct mp_moves *moves) {
    struct mp_experts *experts = &moves->model->experts;
    int all = experts->layers * experts->experts;
    for (int l = 0; l < experts->layers; l++) {
        int left = 0; /* the next expert to have left */
        int32_t *old = moves->old_moments + l * experts->experts;
        int32_t *now = experts->moments + l * experts->experts;
        int32_t *slot = experts->slot + l * experts->experts;
        for (int e = 0; e < experts->experts; e++) {
            if (slot[e] < 0 || old[e] >= 0)
                continue;
            while (left < experts->experts && (old[left] < 0 || slot[left] >= 0))
                left++;
            if (left < experts->experts)
                now[e] = old[left++];
        }
    }
    memset(experts->used_moments, 0, (size_t)experts->slots * sizeof *experts->used_moments);
    for (int i = 0; i < all; i++)
        if (experts->moments[i] >= 0)
            experts->used_moments[experts->moments[i]] = true;
}

static int move_experts(struct mp_moves *moves, struct mp_error *error) {
    bool leave_state = moves->planner->change.leave_state;
    const struct mp_experts *experts = &moves->model->experts;
    int most = moves->planner->homes_limit * moves->comm->ranks;
    if (moves->planner->moves.count > most)
        return mp_fail(error, MP_EPLAN, "%d moves need more than the %d slots of each rank",
                       moves->planner->moves.count, moves->planner->homes_limit);
    memset(moves->moved, 0, (size_t)moves->planner->moves.count * sizeof *moves->moved);
    memcpy(moves->old_moments, experts->moments,
           (size_t)experts->layers * (size_t)experts->experts * sizeof *moves->old_moments);
    for (int done = 0; done < moves->planner->moves.count;) {
        let_go(moves);
        int count = choose_round(moves);
        if (count == 0)
            return mp_fail(error, MP_EPLAN, "%d moves need more than the %d slots of each rank",
                           moves->planner->moves.count - done, moves->planner->homes_limit);
        MP_TRY(start_round(moves, count, states_of(moves), error));
        MP_TRY(wait_round(moves, count, states_of(moves), error));
        refresh_round(moves, count);
        done += count;
    }
    let_go(moves);
    if (leave_state)
        adopt_moments(moves);
    return MP_OK;
}

/* All of them in one round: what leaves is still in use. */
static int start_all(struct mp_moves *moves, struct mp_error *error) {
    const struct mp_transfers *list = &moves->planner->moves;
    moves->flight = mp_spans_departed(moves->spans, MP_PHASE_MOVE);
    memcpy(moves->round, list->item, (size_t)list->count * sizeof *list->item);
    return start_round(moves, list->count, states_of(moves), error);
}

static int64_t arrived_bytes(const struct mp_moves *moves) {
    int64_t bytes = 0;
    for (int i = 0; i < moves->planner->moves.count; i++)
        if (moves->planner->moves.item[i].to == moves->comm->rank)
            bytes += moves->planner->moves.item[i].bytes;
    return bytes;
}

static int wait_all(struct mp_moves *moves, struct mp_error *error) {
    int count = moves->planner->moves.count;
    int code = wait_round(moves, count, states_of(moves), error);
    mp_spans_arrived(moves->spans, moves->flight, MP_PHASE_MOVE, MP_NO_DIRECTION, -1,
                     arrived_bytes(moves));
    memset(moves->moved, true, (size_t)count * sizeof *moves->moved);
    if (!code && serves(moves))
        refresh_round(moves, count);
    if (!code)
        let_go(moves);
    return code;
}

int mp_moves_start(struct mp_moves *moves, struct mp_error *error) {
    if (mp_optimizer_sliced(moves->planner->policy.optimizer))
        return MP_OK;
    return moves->planner->change.asynchronous ? start_all(moves, error)
                                               : move_experts(moves, error);
}

int mp_moves_wait(struct mp_moves *moves, struct mp_error *error) {
    if (moves->planner->change.asynchronous)
        MP_TRY(wait_all(moves, error));
    mp_planner_adopt_homes(moves->planner);
    return MP_OK;
}
