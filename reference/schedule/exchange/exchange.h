/* Exchanges: the ways that rows of tokens travel to their experts and back.
 *
 * An exchange is a descriptor, one file each in this folder.  It says in how many rounds a block,
 * all rows from one rank to another, gets where it has to, and at which rank it is after each.  All
 * else follows: who sends what to whom in a round, and how blocks are put in order in between.  The
 * trainer's transports and the predictor's network carry out the same rounds and know no exchange
 * by name.
 *
 * A rank has a round's blocks in order of their next ranks, within it of their destinations, within
 * it of their sources.  They arrive by the rank that they come from.  So after the last round rows
 * lie in order of their sources, as if each had come in one go: what is built on them is the same
 * whatever the exchange, to the last bit.
 *
 *     2 nodes of 2 ranks, rank 0, two-level, "s>d": from s to d
 *         its rows          0>0 0>1 0>2 0>3
 *         put in order      0>0 0>2 | 0>1 0>3        to rank 0, to rank 1
 *         after the round   0>0 0>2 | 1>0 1>2        from rank 0, from rank 1
 *         put in order      0>0 1>0 | 0>2 1>2        to rank 0, to rank 2
 *         after the round   0>0 1>0 | 2>0 3>0        from rank 0, from rank 2
 *
 * Rows return the way they came, round by round and backwards.
 *
 * An exchange that deduplicates has rows of tokens in its rounds, not of routes, and a round for
 * each of a plan's levels (mp_plan_token_levels), groups of ranks inside one another of which the
 * last are single ranks: in it a row for every group of the level that has experts of the token,
 * to the rank of the group at the token's rank's place (HierMoE, arXiv 2508.09591).  A rank makes
 * the rows of a round of those before it by copying, and on the way back adds up what came of each.
 * What it has to know beside how many rows there are travels with them
 * (reference/trainer/distinct.c).
 *
 * Rows of any exchange in one group of ranks may be cut, too: with a plan's degree d every block of
 * (source, expert, holder) is cut into d consecutive chunks, and all first chunks travel by the
 * exchange's rounds, then all second ones, each a step of its own with the experts' work on it.
 * They are as equal as can be (Tutel, arXiv 2206.03382, which cuts the capacity); or, where rows
 * are of tokens, a rank's tokens are, so that all routes of a token are in one chunk and no row
 * travels twice.
 *
 * A further one is its file, its row of MP_EXCHANGES and, if a job may ask for it, its name in
 * mp_exchange_choices; the tests of this folder then hold it to all of this. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reference/base/error.h"
#include "reference/plan/topology.h"

/* All of them, MP_EXCHANGE_NAME and mp_exchange_name; first those that a job may ask for. */
#define MP_EXCHANGES(EXCHANGE)                                                                     \
    EXCHANGE(FLAT, flat)                                                                           \
    EXCHANGE(LEADER, leader)                                                                       \
    EXCHANGE(TWO_LEVEL, two_level)                                                                 \
    EXCHANGE(DEDUPLICATED, deduplicated)                                                           \
    EXCHANGE(PIPELINED, pipelined)

enum mp_exchange_kind {
#define MP_EXCHANGE_KIND(kind, descriptor) MP_EXCHANGE_##kind,
    MP_EXCHANGES(MP_EXCHANGE_KIND)
#undef MP_EXCHANGE_KIND
        MP_EXCHANGE_KINDS
};

enum { MP_EXCHANGE_ROUNDS = MP_MOST_LEVELS, MP_MOST_DEGREE = 8 }; /* at most */

struct mp_exchange {
    const char *name;   /* lower case, one word */
    const char *title;  /* one line */
    const char *source; /* paper and section, or code */
    const char *models; /* some sentences */
    const char *use;    /* how a job gets it */

    /* Steps between groups of ranks, one after the other, with the experts' work on what has
     * arrived between them (see schedule.h).  How many there are of so many ranks in groups of that
     * size, 0: impossible.  NULL: all ranks are one group, and each chunk of rows is a step. */
    int (*steps)(int ranks, int group_size);
    bool takes_padding;
    /* What ranks send themselves for copies that are fetched after the gate stays out of the
     * exchange and is worked on last. */
    bool keeps_late_rows;

    /* Rounds of a step: the next one begins when a rank's part of the one before is over.  Of one
     * that deduplicates: with one level of groups and ranks, as all below. */
    int rounds;
    /* The rank at which a block is after round 0 .. rounds - 1; after the last one that is `to`.
     * NULL: there is one round. */
    int (*stop)(const struct mp_topology *topology, int from, int to, int round);
    /* Bits 1 << round: rounds before which ranks have to put their blocks in order. */
    unsigned reorders;
    /* Rows are of tokens, and those of a round are made of those of the one before: see above. */
    bool deduplicates;
};

/* The descriptor, or NULL if there is none. */
const struct mp_exchange *mp_exchange_of(enum mp_exchange_kind kind);
const char *mp_exchange_name(enum mp_exchange_kind kind); /* "flat", ...; "no-exchange" */
/* Names that a job may ask for, "flat ...", numbered as the kinds are. */
extern const char mp_exchange_choices[];

/* Whether rows may be cut into chunks. */
static inline bool mp_exchange_takes_degree(const struct mp_exchange *exchange, int degree) {
    return degree == 1 || (degree > 1 && degree <= MP_MOST_DEGREE && !exchange->steps);
}
/* Of a block's rows, or of a rank's tokens, those in a chunk. */
static inline int64_t mp_exchange_chunk(int64_t rows, int degree, int chunk) {
    return degree == 1 ? rows : rows * (chunk + 1) / degree - rows * chunk / degree;
}
/* The most steps between so many ranks. */
static inline int mp_exchange_most_steps(int ranks) {
    return ranks > MP_MOST_DEGREE ? ranks : MP_MOST_DEGREE;
}

/* Rank at which a block is after a round; before the first one (-1) that is `from`. */
static inline int mp_exchange_stop(const struct mp_exchange *exchange,
                                   const struct mp_topology *topology, int from, int to,
                                   int round) {
    if (round < 0)
        return from;
    return round + 1 < exchange->rounds ? exchange->stop(topology, from, to, round) : to;
}

/* Of an exchange that deduplicates: where a token's row is after a round, on its way to the group
 * of the round's level that `to` is in. */
static inline int mp_levels_stop(const struct mp_levels *levels, int from, int to, int round) {
    if (round < 0)
        return from;
    const struct mp_topology *groups = &levels->groups[round];
    return mp_topology_at_place(groups, mp_topology_node(groups, to), from);
}

/* ---- one rank's part ---- */

/* Neighbouring rows that are copied together. */
struct mp_exchange_block {
    int from, to, rows; /* rows */
};

struct mp_exchange_round {
    /* Before it: rows are put in order for it.  None: they are. */
    struct mp_exchange_block *block;
    int blocks;
    const int *send_rows, *receive_rows; /* [ranks], to and from each, itself included */
};

/* What a rank does so that its rows get to all others, and theirs to it. */
struct mp_exchange_path {
    int ranks, rounds;
    struct mp_exchange_round round[MP_EXCHANGE_ROUNDS];
    bool makes;           /* rows of later rounds, as whoever carries the path out is told to */
    int64_t transit_rows; /* the most that are here between two of these things */
    int block_limit;
    void *memory; /* of all arrays */
};

/* Room for the path of a rank.  MP_ENOMEM. */
int mp_exchange_path_create(const struct mp_exchange *exchange, const struct mp_topology *topology,
                            int rank, struct mp_exchange_path *path, struct mp_error *error);
void mp_exchange_path_destroy(struct mp_exchange_path *path); /* accepts a zeroed one */
/* rows [ranks][ranks]: of the block from one rank to another.  O(ranks^2).  MP_ELIMIT if more rows
 * than an int counts would be at this rank. */
int mp_exchange_path_build(const struct mp_exchange *exchange, const struct mp_topology *topology,
                           int rank, const int rows[], struct mp_exchange_path *path,
                           struct mp_error *error);

/* Of an exchange that deduplicates, rounds, rows to and from each rank, and in transit: distinct,
 * every `stride` numbers of a rank, is how many of its tokens have experts in each group of all
 * levels (mp_levels_groups).  As many rows as there are routes are an int. */
void mp_exchange_path_distinct(const struct mp_levels *levels, int rank, const uint32_t distinct[],
                               int stride, struct mp_exchange_path *path);

/* What is to be done one after the other.  Memory is given by number: where rows are at the
 * beginning, two places for transit, where they are wanted. */
enum mp_exchange_memory {
    MP_ROWS_HERE,
    MP_ROWS_IN_TRANSIT,
    MP_ROWS_IN_TRANSIT_2,
    MP_ROWS_THERE,
    MP_ROWS_PLACES
};

struct mp_exchange_walk {
    const struct mp_exchange_path *path;
    bool back;
    int next; /* thing to do: 2 * round rows are put in order or made, 2 * round + 1 they travel */
    /* The thing at hand. */
    const struct mp_exchange_round *round;
    bool travels; /* otherwise blocks are put in order, from `to` to `from` on the way back, or, if
                     the path makes rows, those are made */
    enum mp_exchange_memory from, to;
};

struct mp_exchange_walk mp_exchange_walk_begin(const struct mp_exchange_path *path, bool back);
/* Goes on to the next thing; false: all is done. */
bool mp_exchange_walk_next(struct mp_exchange_walk *walk);
