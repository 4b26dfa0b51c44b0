/* Ports: what the network and its traffic share; nobody else's.
 *
 * Every level at which ranks meet falls apart into groups that have nothing to do with each other:
 * a gate belongs to one level, and the bytes of a level stay inside its groups.  So an exchange is
 * one small problem per group, with a square matrix of bytes and one gate per `width` ranks in each
 * direction.
 *
 * With many ranks most of a matrix is empty, and neighbours send to much the same ranks: what there
 * is is kept in tiles of MP_LANES ranks by MP_LANES, so that memory and time follow the messages
 * and loops have no tails.  Groups are padded to whole strips of MP_LANES ranks. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "harness/predict/network.h"
#include "reference/base/arena.h"

enum { MP_LANES = 4, MP_TILE = MP_LANES * MP_LANES, MP_PRESENT_BITS = 64 };

/* A level of the cluster at which ranks meet. */
struct mp_port_level {
    int level;      /* of the cluster */
    int span, near; /* ranks of a group, and of the groups of the next nearer level */
    int stride;     /* span in whole lanes */
    int groups;
    int width; /* neighbours that share a gate; divides near */
    double bandwidth, latency;
    double rank_bandwidth; /* of one rank of a gate; as much as bandwidth: no limit of its own */
    double message_cost;   /* seconds that a message holds a gate beside its bytes */
    size_t lane;           /* where its figures of ranks begin, [groups][stride] */
};

/* Whether one rank of a gate gets less than the gate carries. */
static inline bool mp_port_limited(const struct mp_port_level *level) {
    return level->rank_bandwidth < level->bandwidth;
}

/* Where a rank's figures at a level are. */
static inline size_t mp_port_lane(const struct mp_port_level *level, int rank) {
    return level->lane + (size_t)(rank / level->span * level->stride + rank % level->span);
}

/* A message on its way into a traffic's matrices. */
struct mp_port_message {
    int32_t from, to;
    float bytes;
};

/* Working memory for arranging a traffic. */
struct mp_port_memory {
    float *rows;       /* [levels][MP_LANES][stride] of the strip at hand; zero between strips */
    uint64_t *present; /* [levels][stride / MP_LANES / MP_PRESENT_BITS + 1] which tiles have bytes;
                          likewise */
    size_t row_floats, present_words;
    size_t *count;          /* [ranks + 1] */
    uint32_t *sent;         /* [ranks] rows of a sender, by destination; zero between senders */
    int32_t *to;            /* [ranks] who gets some */
    bool failed;            /* there was no memory for some traffic */
    struct mp_arena tables; /* of all these, and of the network's */
};

struct mp_network {
    const struct mp_cluster *cluster;
    int ranks, levels;
    bool limited; /* some level has a limit for one rank of a gate */
    bool priced;  /* messages of some level hold gates beside their bytes */
    struct mp_port_level level[MP_CLUSTER_LEVELS]; /* from near to far; the last has one group */
    size_t lanes;                                  /* of all figures of ranks */
    struct mp_port_memory *memory;
    /* Working memory of one group. */
    int *order, *merge, *position;
    float *ready, *part, *done;
    float *end[2], *own[2]; /* of the gates that send and of those that receive */
    double *finish;         /* [ranks] */
};

/* How long messages through a rank's gate take if all of them start together and share it fairly,
 * where what a message costs beside its bytes counts as so many bytes more: one of b is through
 * after min(count*b, rest + slope*b) bytes have passed, the last one after `total` bytes (traffic.c
 * says why).  All 0 if the rank has no bytes there. */
struct mp_port_curve {
    float *total, *count, *slope, *rest; /* [lanes] */
};

/* What MP_LANES neighbours exchange with others of their group. */
struct mp_port_strip {
    size_t first; /* tile of its matrix */
    int tiles;
};

/* The bytes of all levels' groups by rank at one end. */
struct mp_port_matrix {
    struct mp_port_strip *strip; /* [lanes / MP_LANES] */
    int32_t *other;              /* [tiles] strip of the group at the other end, ascending */
    float *bytes;                /* [tiles][MP_LANES][MP_LANES] */
    float *held[2]; /* the same with what messages cost, as bytes at the gates' bandwidth and at
                       ranks' limits; NULL: nothing */
    size_t tiles, room;
};

enum { MP_GATES, MP_OWN_LIMITS };

enum { MP_SENDING, MP_RECEIVING };

struct mp_traffic {
    const struct mp_network *network;
    struct mp_port_message *message; /* added, and not arranged yet */
    size_t messages, room;
    int last_from; /* sender of the last one */
    bool in_order; /* of senders */
    bool arranged;
    struct mp_port_matrix matrix[2]; /* MP_SENDING: rows of senders; MP_RECEIVING: the transpose */
    struct mp_port_curve curve[2];
    struct mp_port_curve own[2]; /* the same as if each rank had a gate; of limited networks */
    double *self;                /* [ranks] */
    struct mp_arena tables;      /* of what stays as large as it is */
};

/* Sorts the bytes by level and works out curves, if that is still to be done. */
void mp_traffic_arrange(struct mp_traffic *traffic);

/* A tile's row in a register, and what comparing it says. */
typedef float mp_four __attribute__((vector_size(16)));
typedef int32_t mp_four_bits __attribute__((vector_size(16)));

static inline mp_four mp_get_four(const float *from) {
    mp_four x;
    memcpy(&x, from, sizeof x);
    return x;
}

static inline void mp_put_four(mp_four x, float *to) {
    memcpy(to, &x, sizeof x);
}

static inline mp_four mp_spread_four(float x) {
    return (mp_four){x, x, x, x};
}

/* x where a bit is set, y elsewhere. */
static inline mp_four mp_choose_four(mp_four_bits bits, mp_four x, mp_four y) {
    return (mp_four)(((mp_four_bits)x & bits) | ((mp_four_bits)y & ~bits));
}

static inline mp_four mp_larger_four(mp_four x, mp_four y) {
#ifdef __SSE__
    return __builtin_ia32_maxps(x, y); /* which compilers don't find */
#else
    return mp_choose_four(x > y, x, y);
#endif
}

static inline mp_four mp_smaller_four(mp_four x, mp_four y) {
#ifdef __SSE__
    return __builtin_ia32_minps(x, y);
#else
    return mp_choose_four(x < y, x, y);
#endif
}

/* The k-th row of a strip's first tile; that of the next one is MP_TILE behind it. */
static inline const float *mp_port_row(const float *tiles, const struct mp_port_strip *strip,
                                       size_t k) {
    return tiles + strip->first * MP_TILE + k * MP_LANES;
}
