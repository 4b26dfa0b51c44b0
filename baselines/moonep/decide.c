/* Who computes how many routes: exact balance by pairs of home groups (MoonshotAI/MoonEP). */
#include <stdlib.h>
#include <string.h>

#include "baselines/moonep/moonep.h"

static int create_arrays(struct mp_moonep *state, struct mp_error *error) {
    size_t ranks = (size_t)state->ranks, experts = (size_t)state->experts;

    state->total = malloc(experts * sizeof *state->total);
    state->load = malloc(ranks * sizeof *state->load);
    state->lack = malloc(ranks * sizeof *state->lack);
    state->quota = malloc(ranks * sizeof *state->quota);
    state->order = malloc(ranks * sizeof *state->order);
    state->first_expert = malloc(ranks * sizeof *state->first_expert);
    state->first_taker = malloc(ranks * sizeof *state->first_taker);
    state->first_taking = malloc(ranks * sizeof *state->first_taking);
    state->next_expert = malloc(experts * sizeof *state->next_expert);
    state->next_taker = malloc(ranks * sizeof *state->next_taker);
    state->taking = malloc((experts + ranks) * sizeof *state->taking);
    if (state->total && state->load && state->lack && state->quota && state->order &&
        state->first_expert && state->first_taker && state->first_taking && state->next_expert &&
        state->next_taker && state->taking)
        return MP_OK;
    return mp_fail(error, MP_ENOMEM, "no memory to balance %d experts on %d ranks", state->experts,
                   state->ranks);
}

int mp_moonep_create(int ranks, int experts, struct mp_moonep *state, struct mp_error *error) {
    *state = (struct mp_moonep){.ranks = ranks, .experts = experts};
    if (ranks < 1 || experts < 1)
        return mp_fail(error, MP_EINVAL, "no balance of %d experts on %d ranks", experts, ranks);
    /* Every taking uses up an expert or fills a rank; what is left of an expert is its owner's. */
    int code = mp_pieces_create(experts, 2 * experts + ranks, &state->pieces, error);
    if (!code)
        code = mp_queue_create(ranks, &state->above, error);
    if (!code)
        code = mp_queue_create(ranks, &state->below, error);
    if (!code)
        code = mp_queue_create(experts, &state->left, error);
    if (!code)
        code = mp_queue_create(ranks, &state->takers, error);
    if (!code)
        code = create_arrays(state, error);
    if (code)
        mp_moonep_destroy(state);
    return code;
}

void mp_moonep_destroy(struct mp_moonep *state) {
    mp_pieces_destroy(&state->pieces);
    mp_queue_destroy(&state->above);
    mp_queue_destroy(&state->below);
    mp_queue_destroy(&state->left);
    mp_queue_destroy(&state->takers);
    free(state->total);
    free(state->load);
    free(state->lack);
    free(state->quota);
    free(state->order);
    free(state->first_expert);
    free(state->first_taker);
    free(state->first_taking);
    free(state->next_expert);
    free(state->next_taker);
    free(state->taking);
    *state = (struct mp_moonep){0};
}

/* Every rank's group and its routes; nobody takes any yet.  Returns all routes. */
static int64_t list_groups(struct mp_moonep *state, const int32_t owner[]) {
    int64_t routes = 0;

    for (int rank = 0; rank < state->ranks; rank++) {
        state->first_expert[rank] = state->first_taker[rank] = state->first_taking[rank] = -1;
        state->load[rank] = state->quota[rank] = 0;
    }
    state->takings = 0;
    for (int expert = 0; expert < state->experts; expert++) {
        state->next_expert[expert] = state->first_expert[owner[expert]];
        state->first_expert[owner[expert]] = expert;
        state->load[owner[expert]] += state->total[expert];
        routes += state->total[expert];
    }
    return routes;
}

/* Which group gives how many routes to which rank, until none has more than `allowed` above its
 * share.  The shares are all routes, so that somebody lacks some as long as somebody has more. */
static void pair_groups(struct mp_moonep *state, double allowed) {
    state->above.count = state->below.count = 0;
    for (int rank = 0; rank < state->ranks; rank++)
        if (state->lack[rank] > 0)
            mp_queue_push(&state->below, (double)state->lack[rank], rank);
        else if (state->lack[rank] < 0)
            mp_queue_push(&state->above, -(double)state->lack[rank], rank);
    while (state->above.count > 0 && state->above.item[0].key > allowed) {
        int32_t home = state->above.item[0].id, taker = mp_queue_pop(&state->below).id;
        state->quota[taker] = state->lack[taker];
        state->next_taker[taker] = state->first_taker[home];
        state->first_taker[home] = taker;
        state->lack[home] += state->quota[taker];
        mp_queue_lessen_first(&state->above, state->quota[taker]);
        if (state->lack[home] > 0)
            mp_queue_push(&state->below, (double)state->lack[home], home);
    }
}

/* Which experts of a group its takers compute.  A group has at least what it gives: more than its
 * share before it gives to the last of them, who lacks a share at most. */
static void cut_experts(struct mp_moonep *state, int home) {
    state->takers.count = state->left.count = 0;
    for (int32_t taker = state->first_taker[home]; taker >= 0; taker = state->next_taker[taker])
        mp_queue_push(&state->takers, (double)state->quota[taker], taker);
    for (int32_t expert = state->first_expert[home]; expert >= 0 && state->takers.count > 0;
         expert = state->next_expert[expert])
        mp_queue_push(&state->left, (double)state->total[expert], expert);
    while (state->takers.count > 0) {
        struct mp_queued taker = state->takers.item[0], expert = state->left.item[0];
        int64_t routes = (int64_t)(taker.key < expert.key ? taker.key : expert.key);
        state->taking[state->takings] =
            (struct mp_moonep_taking){routes, expert.id, state->first_taking[taker.id]};
        state->first_taking[taker.id] = state->takings++;
        state->total[expert.id] -= routes;
        mp_queue_lessen_first(&state->takers, routes);
        mp_queue_lessen_first(&state->left, routes);
    }
}

/* Pieces of ascending ranks: what a rank takes, and what is left of its own experts. */
static int add_pieces(struct mp_moonep *state, int rank, struct mp_error *error) {
    int code = MP_OK;

    for (int32_t at = state->first_taking[rank]; at >= 0 && !code; at = state->taking[at].next)
        code = mp_pieces_add(&state->pieces, state->taking[at].expert, rank,
                             state->taking[at].routes, error);
    for (int32_t expert = state->first_expert[rank]; expert >= 0 && !code;
         expert = state->next_expert[expert])
        code = mp_pieces_add(&state->pieces, expert, rank, state->total[expert], error);
    return code;
}

int mp_moonep_decide(struct mp_moonep *state, const struct mp_moonep_options *options,
                     const int32_t owner[], struct mp_error *error) {
    int64_t routes = list_groups(state, owner);
    int code = MP_OK;

    mp_load_lacks(state->load, state->ranks, routes, state->order, state->lack);
    pair_groups(state, options->tolerance * (double)routes / state->ranks);
    for (int rank = 0; rank < state->ranks; rank++)
        cut_experts(state, rank);
    mp_pieces_clear(&state->pieces);
    for (int rank = 0; rank < state->ranks && !code; rank++)
        code = add_pieces(state, rank, error);
    return code;
}
