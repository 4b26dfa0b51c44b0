/* ILP 1 of MoETuner: a layer's experts in clusters of equally many, of loads as even as can be.
 *
 *     minimise sum_c |T_c - mean|,  T_c = sum of the loads of cluster c
 *
 * Layers have nothing in common here, so each is a program of its own, and together they are
 * exact.  The sum is called deviation.  All numbers of it below are clusters x deviation, which is
 * whole: nothing is rounded. */
#pragma once

#include <stdint.h>

#include "reference/base/arena.h"
#include "reference/base/program.h"

/* Working memory for layers of one shape. */
struct mp_clusters {
    int experts, clusters, size; /* size = experts / clusters */
    int32_t *order;              /* [experts], by load; owned as what follows */
    int32_t *member;             /* [clusters][size] */
    int32_t *count;              /* [clusters] */
    int32_t *label;              /* [clusters] */
    int64_t *total;              /* [clusters] */
    int64_t *first;              /* [experts + 1], sums of the first ones in order */
};
/* Clusters divide experts.  Tables are the arena's, whose user looks whether there was memory. */
void mp_clusters_create(struct mp_arena *memory, int experts, int clusters,
                        struct mp_clusters *state);

/* cluster is [experts]. */
int64_t mp_clusters_deviation(struct mp_clusters *state, const int64_t load[],
                              const int32_t cluster[]);

/* No clusters deviate less.  The largest of three bounds: the routes left over when all are
 * divided; for every k, what the k heaviest experts, in j clusters with the lightest others, have
 * beyond j means, of the best j; and the same of the lightest.  (A program without whole numbers
 * bounds nothing: with 1 / clusters of every expert in every cluster its deviation is 0.) */
int64_t mp_clusters_bound(struct mp_clusters *state, const int64_t load[]);

/* Local search: heaviest expert first into the lightest cluster with room, ties to the lower one;
 * then, as long as there is one, for each two clusters the swap of two experts that leaves the
 * least difference.  Clusters are numbered by their heaviest experts.  Allocates nothing. */
void mp_clusters_search(struct mp_clusters *state, const int64_t load[], int32_t cluster[]);

/* The program: x[c][e] whole, one cluster of every expert, `size` experts in every cluster.  |T_c -
 * mean| counts twice what is above the mean, since as much is below it.  Clusters may change
 * numbers, so that the i-th heaviest expert is in one of the first i.
 *
 * cluster arrives as a solution to begin with and leaves as the best one; *bound arrives as a known
 * bound and leaves as the best one.  Errors: mp_program_create's and mp_program_solve's. */
int mp_clusters_program(struct mp_clusters *state, const int64_t load[],
                        const struct mp_program_limits *limits, int32_t cluster[], int64_t *bound,
                        struct mp_program_result *result, struct mp_error *error);
