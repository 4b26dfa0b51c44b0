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
#include <string.h>

#include "reference/trainer/internal.h"

enum { STATES = 3 }; /* parameters, first and second moments */

static bool serves(const struct mp_trainer *trainer) {
    return mp_job_serves(&trainer->job);
}

/* How many of them move. */
static int states_of(const struct mp_trainer *trainer) {
    return trainer->planner.change.leave_state || serves(trainer) ? 1 : STATES;
}

/* Who still has to send what. */
static void note_sources(struct mp_trainer *trainer) {
    for (int l = 0; l < trainer->job.layers; l++)
        memset(trainer->source[l].holder, 0,
               (size_t)trainer->source[l].experts * (size_t)trainer->source[l].words *
                   sizeof *trainer->source[l].holder);
    for (int i = 0; i < trainer->planner.moves.count; i++) {
        const struct mp_transfer *move = &trainer->planner.moves.item[i];
        if (!trainer->moved[i])
            mp_placement_add(&trainer->source[move->layer], move->expert, move->from);
    }
}

/* Ranks let go of what they neither keep nor have to send, and what they have then is counted. */
static void let_go(struct mp_trainer *trainer) {
    int experts = trainer->setting.experts;
    note_sources(trainer);
    for (int r = 0; r < trainer->comm->ranks; r++)
        trainer->free_slots[r] = trainer->planner.homes_limit + 1;
    for (int i = 0; i < trainer->job.layers * experts; i++) {
        int layer = i / experts, expert = i % experts;
        struct mp_placement *home = &trainer->planner.home[layer];
        for (int r = mp_placement_next(home, expert, 0); r >= 0;
             r = mp_placement_next(home, expert, r + 1)) {
            if (mp_placement_holds(&trainer->planner.change.next[layer], expert, r) ||
                mp_placement_holds(&trainer->source[layer], expert, r)) {
                trainer->free_slots[r]--;
                continue;
            }
            mp_placement_remove(home, expert, r);
            if (r == trainer->comm->rank)
                mp_experts_give(&trainer->model.experts, layer, expert);
        }
    }
}

static int choose_round(struct mp_trainer *trainer) {
    int count = 0;
    for (int i = 0; i < trainer->planner.moves.count; i++) {
        const struct mp_transfer *move = &trainer->planner.moves.item[i];
        if (trainer->moved[i] || trainer->free_slots[move->to] == 0)
            continue;
        trainer->free_slots[move->to]--;
        trainer->moved[i] = true;
        trainer->round[count++] = *move;
    }
    return count;
}

static int locate_round(struct mp_trainer *trainer, int count, struct mp_error *error) {
    struct mp_experts *experts = &trainer->model.experts;
    int rank = trainer->comm->rank;
    for (int i = 0; i < count; i++) {
        const struct mp_transfer *move = &trainer->round[i];
        if (move->to == rank && mp_experts_take(experts, move->layer, move->expert) < 0)
            return mp_fail(error, MP_ELIMIT,
                           "rank %d has no slot for expert %d of layer %d, which moves to it", rank,
                           move->expert, move->layer);
        float *state[3] = {NULL};
        mp_experts_state(experts, move->layer, move->expert, state);
        for (int w = 0; w < 3; w++) {
            trainer->round_from[w][i] = move->from == rank ? state[w] : NULL;
            trainer->round_to[w][i] = move->to == rank ? state[w] : NULL;
        }
    }
    return MP_OK;
}

static int start_round(struct mp_trainer *trainer, int count, int states, struct mp_error *error) {
    int code = locate_round(trainer, count, error);
    for (int w = 0; !code && w < states; w++)
        code = mp_move_start(trainer->comm, trainer->round, count, trainer->round_from[w],
                             trainer->round_to[w], trainer->model.experts.chunk * sizeof(float),
                             trainer->model.stream, trainer->move[w], error);
    return code;
}

static int wait_round(struct mp_trainer *trainer, int count, int states, struct mp_error *error) {
    int code = MP_OK;
    for (int w = 0; !code && w < states; w++)
        code = mp_request_wait(trainer->move[w], error);
    for (int i = 0; !code && i < count; i++)
        mp_placement_add(&trainer->planner.home[trainer->round[i].layer], trainer->round[i].expert,
                         trainer->round[i].to);
    return code;
}

/* Elements for the forward that follows; asynchronous moves have an update before that, but in
 * serving. */
static void refresh_round(struct mp_trainer *trainer, int count) {
    for (int i = 0; i < count; i++)
        if (trainer->round[i].to == trainer->comm->rank)
            mp_experts_refresh(&trainer->model.experts, trainer->model.stream,
                               trainer->round[i].layer, trainer->round[i].expert);
}

/* What arrived in a layer goes on with the moments of what left it, in ascending order. */
static void adopt_moments(struct mp_trainer *trainer) {
    struct mp_experts *experts = &trainer->model.experts;
    int all = experts->layers * experts->experts;
    for (int l = 0; l < experts->layers; l++) {
        int left = 0; /* the next expert to have left */
        int32_t *old = trainer->old_moments + l * experts->experts;
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

static int move_experts(struct mp_trainer *trainer, struct mp_error *error) {
    bool leave_state = trainer->planner.change.leave_state;
    const struct mp_experts *experts = &trainer->model.experts;
    int most = trainer->planner.homes_limit * trainer->comm->ranks;
    if (trainer->planner.moves.count > most)
        return mp_fail(error, MP_EPLAN, "%d moves need more than the %d slots of each rank",
                       trainer->planner.moves.count, trainer->planner.homes_limit);
    memset(trainer->moved, 0, (size_t)trainer->planner.moves.count * sizeof *trainer->moved);
    memcpy(trainer->old_moments, experts->moments,
           (size_t)experts->layers * (size_t)experts->experts * sizeof *trainer->old_moments);
    for (int done = 0; done < trainer->planner.moves.count;) {
        let_go(trainer);
        int count = choose_round(trainer);
        if (count == 0)
            return mp_fail(error, MP_EPLAN, "%d moves need more than the %d slots of each rank",
                           trainer->planner.moves.count - done, trainer->planner.homes_limit);
        int code = start_round(trainer, count, states_of(trainer), error);
        if (!code)
            code = wait_round(trainer, count, states_of(trainer), error);
        if (code)
            return code;
        refresh_round(trainer, count);
        done += count;
    }
    let_go(trainer);
    if (leave_state)
        adopt_moments(trainer);
    return MP_OK;
}

/* All of them in one round: what leaves is still in use. */
static int start_all(struct mp_trainer *trainer, struct mp_error *error) {
    const struct mp_transfers *moves = &trainer->planner.moves;
    trainer->moves_flight = mp_spans_departed(&trainer->spans, MP_PHASE_MOVE);
    memcpy(trainer->round, moves->item, (size_t)moves->count * sizeof *moves->item);
    return start_round(trainer, moves->count, states_of(trainer), error);
}

static int64_t arrived_bytes(const struct mp_trainer *trainer) {
    int64_t bytes = 0;
    for (int i = 0; i < trainer->planner.moves.count; i++)
        if (trainer->planner.moves.item[i].to == trainer->comm->rank)
            bytes += trainer->planner.moves.item[i].bytes;
    return bytes;
}

static int wait_all(struct mp_trainer *trainer, struct mp_error *error) {
    int count = trainer->planner.moves.count;
    int code = wait_round(trainer, count, states_of(trainer), error);
    mp_spans_arrived(&trainer->spans, trainer->moves_flight, MP_PHASE_MOVE, MP_NO_DIRECTION, -1,
                     arrived_bytes(trainer));
    memset(trainer->moved, true, (size_t)count * sizeof *trainer->moved);
    if (!code && serves(trainer))
        refresh_round(trainer, count);
    if (!code)
        let_go(trainer);
    return code;
}

int mp_trainer_start_moves(struct mp_trainer *trainer, struct mp_error *error) {
    trainer->totals.moves += trainer->planner.moves.count;
    if (mp_optimizer_sliced(trainer->planner.policy.optimizer))
        return MP_OK;
    return trainer->planner.change.asynchronous ? start_all(trainer, error)
                                                : move_experts(trainer, error);
}

int mp_trainer_wait_moves(struct mp_trainer *trainer, struct mp_error *error) {
    int code = trainer->planner.change.asynchronous ? wait_all(trainer, error) : MP_OK;
    if (!code)
        mp_planner_adopt_homes(&trainer->planner);
    return code;
}
