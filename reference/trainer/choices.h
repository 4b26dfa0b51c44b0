/* Choices: the experts of this rank's tokens on the host, where a system looks at transitions
 * between layers, or the job records them.  Otherwise nothing is kept, and nothing is copied. */
#pragma once

#include "reference/model/block.h"
#include "reference/plan/load.h"
#include "reference/trainer/spans.h"

struct mp_choices {
    struct mp_comm *comm; /* borrowed, as are the others down to loads */
    const struct mp_model *model;
    const struct mp_spans *spans;
    struct mp_load *load;  /* [L] */
    bool records;          /* the job wants it */
    int experts;           /* of a layer, whole ones */
    int32_t *expert;       /* [L][N][K]; NULL: nobody asks */
    uint32_t *transitions; /* [L - 1][E][E] of them; NULL: no system asks */
    double *sums;          /* the same over all ranks, on their way */
};

/* What the job wants, and the system if it `uses_transitions`, whose loads get room for them.
 * Borrowed members are set.  MP_ELIMIT, MP_ENOMEM. */
int mp_choices_create(struct mp_choices *choices, bool uses_transitions, struct mp_arena *arena,
                      struct mp_error *error);

/* Once a layer's gate is done; not in validations. */
void mp_choices_read(struct mp_choices *choices, int layer);
/* If the job wants it. */
void mp_choices_record(const struct mp_choices *choices, int layer);
/* The loads' `next`, of all ranks, where the system looks at it: 8 bytes for each of E * E pairs
 * and each layer but the last are summed. */
int mp_choices_sum(struct mp_choices *choices, struct mp_error *error);
