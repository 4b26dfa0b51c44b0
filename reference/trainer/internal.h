/* The trainer's own state, shared by the files of this folder. */
#pragma once

#include <stdatomic.h>

#include "reference/plan/planner.h"
#include "reference/schedule/schedule.h"
#include "reference/trainer/batch.h"
#include "reference/trainer/carriages.h"
#include "reference/trainer/choices.h"
#include "reference/trainer/counts.h"
#include "reference/trainer/distinct.h"
#include "reference/trainer/forced.h"
#include "reference/trainer/moves.h"
#include "reference/trainer/sizes.h"
#include "reference/trainer/trainer.h"

struct mp_trainer {
    struct mp_job job;
    char options[1024]; /* of the system: "slots=auto interval=50", for checkpoints */
    struct mp_sizes sizes;
    struct mp_setting setting;
    struct mp_planner planner;
    struct mp_schedule schedule;

    struct mp_comm *comm;
    struct mp_device *device;
    struct mp_device *own_device;   /* the same if the trainer made it; NULL: borrowed */
    struct mp_device *host;         /* beside a GPU, for state that is offloaded; otherwise NULL */
    struct mp_error progress_error; /* of transfers moved on while experts compute */
    struct mp_model model;
    int64_t iteration;
    int64_t updates; /* optimizer steps taken, for AdamW's bias correction */

    struct mp_plan_facts *facts; /* [L] of the last plans */
    struct mp_load *load;        /* [L] */

    struct mp_batch batch;
    bool *inside; /* [E] has a holder in this rank's node before the gate */
    struct mp_forced forced;
    struct mp_counts counts;
    struct mp_choices choices;

    struct mp_request **request; /* [requests] all of those below */
    int requests;
    struct mp_request **rows; /* [most steps][2] of an exchange: there, and back */
    struct mp_paths paths;
    struct mp_distinct_rows distinct; /* where the exchange deduplicates */
    struct mp_carriages carriages;
    /* Gradients of non-expert parameters, summed over all ranks a layer at a time, and those of no
     * layer behind them: [L + 1] buckets. */
    struct mp_request **dense_request;
    struct mp_flight *dense_flight;
    struct mp_moves moves;

    struct mp_spans spans;
    struct mp_mark phase;             /* of the phase at hand */
    struct mp_trainer_result *result; /* of this iteration */
    atomic_int stop;
    struct mp_trainer_totals totals;

    struct mp_arena arena; /* host memory of all of the above */
};

/* ---- step.c ---- */
/* All blocks, without the head. */
int mp_trainer_forward(struct mp_trainer *trainer, const int32_t *token, const int32_t *target,
                       struct mp_error *error);

/* ---- executor.c: what the schedule's verbs mean here ---- */
extern const struct mp_executor mp_trainer_executor;
/* AdamW's settings for the step at hand. */
struct mp_adamw mp_trainer_next_update(const struct mp_trainer *trainer);

/* ---- gate.c ---- */
int mp_trainer_gate(struct mp_trainer *trainer, int layer, struct mp_error *error);
int mp_trainer_plan(struct mp_trainer *trainer, int layer, bool before_gate,
                    struct mp_error *error);

/* MP_EPLAN, on all ranks, unless all come with the same digest.  For check-plans: ranks that
 * disagree wait for each other for ever. */
int mp_trainer_agree(struct mp_trainer *trainer, uint64_t digest, const char *what,
                     struct mp_error *error);

/* ---- rows.c: tokens' rows, and the experts that work on them ---- */
int mp_trainer_start_rows(struct mp_trainer *trainer, const struct mp_operation *operation,
                          struct mp_error *error);
int mp_trainer_wait_rows(struct mp_trainer *trainer, const struct mp_operation *operation,
                         struct mp_error *error);
int mp_trainer_permute(struct mp_trainer *trainer, const struct mp_operation *operation,
                       struct mp_error *error);
int mp_trainer_experts(struct mp_trainer *trainer, const struct mp_operation *operation,
                       struct mp_error *error);

/* ---- trainer.c ---- */
/* Room for the rows that a layer's plan brings, once its routing has been built; growth is counted
 * and recorded (mp_model_reserve). */
int mp_trainer_reserve_rows(struct mp_trainer *trainer, int layer, struct mp_error *error);
/* After a reservation that came to `code`, with `before` for model.row_bytes before it. */
int mp_trainer_note_rows(struct mp_trainer *trainer, int layer, int64_t before, int code,
                         struct mp_error *error);

/* ---- measure.c ---- */
/* Fills the figures that planners assume and the job leaves open, measured on rank 0. */
int mp_trainer_measure(struct mp_trainer *trainer, struct mp_error *error);
