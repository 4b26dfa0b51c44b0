/* Pieces: each expert's routes cut by number, so many for this rank and so many for that one.
 *
 * What planners that balance by counting arrive at (least-loaded expert parallelism, perfect
 * balance): not which source's routes a rank computes, only how many. */
#pragma once

#include "reference/base/arena.h"
#include "reference/plan/plan.h"

struct mp_piece {
    int64_t routes;
    int64_t left; /* working memory of mp_plan_dispatch_pieces, as are near, holder and alone */
    int64_t near; /* kept for ranks of the piece's node */
    int32_t rank;
    int32_t next; /* of the same expert, an index into item[], or -1 */
    int32_t holder;
    bool alone; /* has all routes of all ranks, or of its node's */
};

struct mp_pieces {
    int experts;
    struct mp_piece *item; /* [capacity], owned */
    int count, capacity;
    int32_t *first, *last; /* [experts], indices into item[], -1: none; owned */
    int32_t *turn;         /* [experts] working memory, owned */
    int32_t *of_node;      /* [experts] likewise: pieces from the source's node on */
    int32_t *only;   /* [experts] likewise: the holder of all that a source's node has, or -1 */
    int64_t *wanted; /* [experts] likewise: routes of a node */
};

/* None, with room for `capacity`.  Tables are the arena's, whose user looks whether there was
 * memory. */
void mp_pieces_create(struct mp_arena *memory, int experts, int capacity, struct mp_pieces *pieces);
void mp_pieces_clear(struct mp_pieces *pieces);
/* Adds the next piece of an expert; 0 routes are ignored.  An expert has at most one piece on a
 * rank.  MP_ELIMIT beyond `capacity`. */
int mp_pieces_add(struct mp_pieces *pieces, int expert, int rank, int64_t routes,
                  struct mp_error *error);

/* Which routes go into which piece. */
enum mp_piece_cut {
    /* An expert's routes, source after source, are cut where pieces end. */
    MP_CUT_IN_ORDER,
    /* A rank's own routes go into its own piece, as many as fit; the others as above into what is
     * left of the pieces. */
    MP_CUT_LOCAL_FIRST,
    /* The same, and before the others those of ranks of a piece's node, as many as fit, the same
     * share of what is left of each.  Pieces of an expert have to have been added in ascending
     * order of ranks. */
    MP_CUT_NEAREST_FIRST
};

/* Fetches after the gate every piece's expert to the rank that lacks it, expert by expert, from
 * whoever of its node has it by then, else from its owner (mp_plan_add_copy_from), and fills the
 * plan's dispatch, which is not padded.  Errors: those of mp_plan_add_copy; MP_ENOMEM; MP_EINVAL
 * for pieces out of order; MP_EPLAN if an expert's are fewer routes than its load. */
int mp_plan_dispatch_pieces(struct mp_plan *plan, const struct mp_load *load,
                            struct mp_pieces *pieces, enum mp_piece_cut cut,
                            struct mp_error *error);
