/* One load made into another shape: the steps behind reshape.h.  All are exact: no route is lost or
 * made, but by scaling. */
#pragma once

#include "reference/plan/load.h"

/* from [R][E] to [R'][E], R' a divisor or a multiple of R.  MP_ELIMIT if a sum is above 2^32 - 1.
 */
int mp_load_reshape_ranks(const struct mp_load *from, struct mp_load *to, struct mp_error *error);

/* from [R][E] to [R][E'], E' a divisor or a multiple of E; `tilt` of 0.5 .. 1.  MP_ELIMIT. */
int mp_load_reshape_experts(const struct mp_load *from, double tilt, struct mp_load *to,
                            struct mp_error *error);

/* Adds `from` to `sum`, of the same shape.  MP_ELIMIT. */
int mp_load_add(const struct mp_load *from, struct mp_load *sum, struct mp_error *error);

/* Room for the scaling of one row of `experts`. */
struct mp_scale {
    struct mp_scale_share {
        uint64_t remainder;
        int expert;
    } * share;           /* [experts] */
    uint32_t *weight;    /* [experts] */
    unsigned char *full; /* [experts] */
};
/* Tables are the arena's, whose user looks whether there was memory. */
void mp_scale_create(struct mp_arena *memory, int experts, struct mp_scale *scale);

/* Scales every row to tokens * top_k routes (at most 2^31 - 1), none of which has more than
 * `tokens` on one expert.  MP_EFORMAT for a row without routes. */
int mp_load_scale(struct mp_load *load, int64_t tokens, int top_k, struct mp_scale *scale,
                  struct mp_error *error);

/* MP_EFORMAT if an expert has more routes of a source than the source has tokens (its routes over
 * top_k, rounded up). */
int mp_load_check_distinct(const struct mp_load *load, int top_k, struct mp_error *error);
