/* Depths: how long a deduplicated exchange takes over the first levels of a hierarchy (HierMoE,
 * arXiv 2508.09591, the cost model of HierD-AlltoAll).  At depth d a token goes once to each group
 * of levels 1 .. d - 1 that needs it, and from those of the last of them straight to ranks:
 *
 *     t_d = sum over 1 <= i < d of (inter_i.beta U_i / U_(i-1) p_i row + inter_i.alpha)
 *           + intra_(d-1).beta R / U_(d-1) p row + intra_(d-1).alpha
 *
 * with U_i groups at level i (U_0 = 1), p_i the most tokens that one of them gets, p the most of
 * one of R ranks, and `row` the bytes of a token. */
#pragma once

#include "reference/plan/system.h"

/* Seconds of a round in which a group gets so many bytes at the most: alpha + beta bytes. */
struct mp_depth_line {
    double alpha, beta; /* s; s/B, that of the paper times groups in one of the level before */
};

struct mp_depths {
    struct mp_levels levels; /* the last: ranks */
    /* Between groups of each but the last; straight to ranks in the whole and in a group of each.
     */
    struct mp_depth_line inter[MP_MOST_LEVELS - 1], intra[MP_MOST_LEVELS];
};

/* Texts of options: sizes of groups, outermost first, "node" or numbers of ranks, "node:4:2";
 * lines, "alpha/beta:alpha/beta", as many as above, "": both follow from the setting's bandwidths,
 * of which every rank has its part, and the latency of an exchange between nodes or inside them.
 * MP_EINVAL with the constraint and the numbers. */
struct mp_depth_texts {
    const char *hierarchy, *inter, *intra;
    double latency, latency_in_node; /* s */
};
int mp_depths_create(const struct mp_setting *setting, const struct mp_depth_texts *texts,
                     struct mp_depths *depths, struct mp_error *error);

/* tokens [levels.count]: the most that a group of each level gets. */
double mp_depths_seconds(const struct mp_depths *depths, int depth, const double tokens[],
                         double row_bytes);
/* The fastest, 1 .. levels.count; of equals the least deep. */
int mp_depths_best(const struct mp_depths *depths, const double tokens[], double row_bytes);
