/* Forced choices: experts of tokens that no logits make, replayed loads or a gate's own way. */
#pragma once

#include "reference/model/block.h"
#include "reference/plan/plan.h"
#include "reference/trainer/job.h"
#include "reference/trainer/loads_file.h"

struct mp_forced {
    const struct mp_job *job; /* borrowed, as is the model, whose routes they are */
    struct mp_model *model;
    int rank;
    int32_t *choice;       /* [N][K] of the model's host memory; NULL: the logits choose */
    struct mp_loads loads; /* of this rank, replayed; owned */
    uint32_t *limited;     /* [E] a source's loads within the plan's limit */
};

/* If the job's routing or its gate wants them: room, and the loads, which are tried once.  Borrowed
 * members are set, and the job's ranks are those that there are.  MP_EINVAL (no trace, or another
 * one), MP_ENOMEM, and what mp_loads_read and mp_job_replay say. */
int mp_forced_create(struct mp_forced *forced, struct mp_arena *arena, struct mp_error *error);
void mp_forced_destroy(struct mp_forced *forced); /* accepts a zeroed one */

/* forced->choice of a layer in an iteration.  Replayed loads become what a gate with the plan's
 * limit would leave of them; limit->inside NULL: none, and then `plan` is not looked at. */
int mp_forced_choose(struct mp_forced *forced, int64_t iteration, int layer,
                     const struct mp_plan *plan, const struct mp_gate_limit *limit,
                     const int32_t *token, struct mp_error *error);
