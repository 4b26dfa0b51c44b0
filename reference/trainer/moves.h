/* Moves: experts that get new homes, with their optimizer state or without.
 *
 * What moves are the planner's moves, which lead from its homes to the next ones.  With a sliced
 * optimizer nothing moves but the next gathering. */
#pragma once

#include "reference/model/block.h"
#include "reference/plan/planner.h"
#include "reference/trainer/spans.h"

enum { MP_MOVED_STATES = 3 }; /* parameters, first and second moments */

struct mp_moves {
    struct mp_comm *comm; /* borrowed, as is all down to spans */
    struct mp_model *model;
    struct mp_planner *planner;
    struct mp_spans *spans;
    struct mp_placement *source; /* [L] who still has to send what, while experts move */
    struct mp_transfer *round;   /* [moves limit] moves carried out together */
    void **from[MP_MOVED_STATES], **to[MP_MOVED_STATES]; /* [moves limit] of the round */
    bool *moved;                                         /* [moves limit] */
    int32_t *old_moments;                                /* [L * E] */
    int *free_slots;                                     /* [R] */
    struct mp_request *request[MP_MOVED_STATES];
    struct mp_flight flight;
};

/* Tables for all that may move, since homes change inside a step.  Borrowed members are set, and
 * requests are the caller's.  MP_ENOMEM. */
int mp_moves_create(struct mp_moves *moves, struct mp_arena *arena, struct mp_error *error);

/* Asynchronous moves set out all at once, into slots that the system has left room for, and are
 * waited for with the state of nobody's experts touched in between.  The others are carried out
 * when they start, in rounds that never need more than the spare slot.  After the wait homes are
 * the next ones. */
int mp_moves_start(struct mp_moves *moves, struct mp_error *error);
int mp_moves_wait(struct mp_moves *moves, struct mp_error *error);
