/* Ports: what the network and its traffic share; nobody else's.
 *
 * Every level at which ranks meet falls apart into groups that have nothing to do with each other:
 * a gate belongs to one level, and the bytes of a level stay inside its groups.  So an exchange is
 * one small problem per group, with a square matrix of bytes and one gate per `width` ranks in each
 * direction.  Rows are padded with zeros to whole lanes, so that loops over them have no tails. */
#ifndef MOEPERF_HARNESS_PREDICT_PORTS_H
#define MOEPERF_HARNESS_PREDICT_PORTS_H

#include "harness/predict/network.h"

enum { MP_LANES = 8 };

/* A level of the cluster at which ranks meet. */
struct mp_port_level {
    int level;      /* of the cluster */
    int span, near; /* ranks of a group, and of the groups of the next nearer level */
    int stride;     /* span in whole lanes: floats of a row */
    int groups;
    int width; /* neighbours that share a gate; divides near */
    double bandwidth, latency;
    size_t matrix; /* where its matrices begin, [groups][span][stride] */
    size_t lane;   /* where its figures of ranks begin, [groups][stride] */
};

struct mp_network {
    const struct mp_cluster *cluster;
    int ranks, levels;
    struct mp_port_level level[MP_CLUSTER_LEVELS]; /* from near to far; the last has one group */
    size_t floats, lanes;                          /* of all matrices; of all figures of ranks */
    /* Working memory of one group. */
    int *order, *merge, *position;
    float *ready, *part, *done;
    float *end[2], *own[2]; /* of the gates that send and of those that receive */
    double *finish;         /* [ranks] */
};

/* How long messages through a rank's gate take if all of them start together and share it fairly:
 * one of b bytes is through after min(count*b, rest + slope*b) bytes have passed, the last one
 * after `total` bytes (traffic.c says why).  All 0 if the rank has no bytes there. */
struct mp_port_curve {
    float *total, *count, *slope, *rest; /* [lanes] */
};

enum { MP_SENDING, MP_RECEIVING };

struct mp_port_bytes {
    /* rows[from][to] and its transpose.  While bytes are added, the last level's rows take those of
     * all levels; arranging moves them to their own. */
    float *rows, *columns;
    struct mp_port_curve curve[2];
    double *self; /* [ranks] */
    bool arranged;
};

struct mp_traffic {
    const struct mp_network *network;
    float *all; /* [ranks][stride]: the last level's rows */
    size_t stride;
    struct mp_port_bytes *bytes;
};

/* Sorts the bytes by level and works out curves, if that is still to be done. */
void mp_traffic_arrange(const struct mp_traffic *traffic);

#endif
