/* Bytes of experts that ranks send and get, along the hops that carry them
 * (reference/schedule/hops.h). */
#ifndef MOEPERF_HARNESS_PREDICT_WHAT_IF_BYTES_H
#define MOEPERF_HARNESS_PREDICT_WHAT_IF_BYTES_H

#include "reference/plan/plan.h"
#include "reference/schedule/hops.h"

struct mp_what_if_bytes {
    int ranks;
    double *in, *out; /* [ranks] since the last clear */
    /* Working memory. */
    bool *wanted;      /* [experts][ranks] */
    bool *listed;      /* [experts] */
    int32_t *receiver; /* [ranks] */
    struct mp_hop *hop;
};
int mp_what_if_bytes_create(int ranks, int experts, struct mp_what_if_bytes *bytes,
                            struct mp_error *error);           /* MP_ENOMEM */
void mp_what_if_bytes_destroy(struct mp_what_if_bytes *bytes); /* accepts a zeroed one */
void mp_what_if_bytes_clear(struct mp_what_if_bytes *bytes);

/* The transfers of a plan's list in this stage, which lead from owners, or as sums to them. */
void mp_what_if_bytes_add(struct mp_what_if_bytes *bytes, const struct mp_plan *plan,
                          const struct mp_transfers *list, enum mp_stage stage, bool sums);
/* Transfers of one hop each. */
void mp_what_if_bytes_add_moves(struct mp_what_if_bytes *bytes, const struct mp_transfers *moves);

/* What a rank sends or gets, whichever is more. */
static inline double mp_what_if_bytes_of(const struct mp_what_if_bytes *bytes, int rank) {
    return bytes->in[rank] > bytes->out[rank] ? bytes->in[rank] : bytes->out[rank];
}

#endif
