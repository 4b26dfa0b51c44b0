/* The trainer's own state, shared by the files of this folder. */
#ifndef MOEPERF_REFERENCE_TRAINER_INTERNAL_H
#define MOEPERF_REFERENCE_TRAINER_INTERNAL_H

#include <stdatomic.h>

#include "reference/plan/planner.h"
#include "reference/schedule/schedule.h"
#include "reference/trainer/carriages.h"
#include "reference/trainer/distinct.h"
#include "reference/trainer/loads_file.h"
#include "reference/trainer/moves.h"
#include "reference/trainer/sizes.h"
#include "reference/trainer/spans.h"
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
    const struct mp_text *text;
    struct mp_model model;
    int sequences;         /* of this rank */
    int64_t global_tokens; /* per iteration */
    int64_t answers; /* that losses are means of: as many, or in serving the batch's sequences */
    int64_t iteration;
    int64_t updates; /* optimizer steps taken, for AdamW's bias correction */

    struct mp_plan_facts *facts; /* [L] of the last plans */
    struct mp_load *load;        /* [L] */

    uint32_t *counts;     /* [2 + C][E] routes, firsts, and routes of each of C chunks of tokens */
    uint32_t *all_counts; /* [R][2 + C][E], with room for the most chunks */
    double *loss_factor;  /* [E] of the balancing loss, as the gate has them here; NULL: ones */
    float *auxiliary, *bias_step;          /* [L][parts][E] and [L][E] */
    double *auxiliary_loss;                /* [L] this rank's part */
    int32_t *token, *target;               /* [N] */
    int32_t *context;                      /* [sequences][context] in the cache, if serving */
    const int32_t *token_now, *target_now; /* [N] and [answers] of this iteration */
    int32_t *forced;         /* [N][K] of the device's host memory; NULL: the logits choose */
    struct mp_loads loads;   /* of this rank, replayed */
    int32_t *choices;        /* [L][N][K] of this rank's tokens; NULL: nobody asks (routes.c) */
    uint32_t *transitions;   /* [L - 1][E][E] of them; NULL: no system asks */
    double *transition_sums; /* the same over all ranks, on their way */
    float *host_loss;        /* [N] */
    bool *inside;            /* [E] has a holder in this rank's node before the gate */
    struct mp_gate_limit replay_limit; /* of loads that are replayed; inside NULL: none */
    uint32_t *limited;                 /* [E] a source's loads within it */

    struct mp_request **request; /* [requests] all of those below */
    int requests;
    struct mp_request **rows; /* [most steps][2] of an exchange: there, and back */
    struct mp_request *gather;
    struct mp_paths paths;
    struct mp_distinct_rows distinct; /* where the exchange deduplicates */
    struct mp_carriages carriages;
    struct mp_request **bucket; /* [L + 1] */
    struct mp_moves moves;

    struct mp_spans spans;
    struct mp_mark phase;             /* of the phase at hand */
    struct mp_flight *bucket_flight;  /* [L + 1] */
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

/* ---- gate.c ---- */
int mp_trainer_gate(struct mp_trainer *trainer, int layer, struct mp_error *error);
/* Counts that a rank tells all others. */
int mp_trainer_counts(const struct mp_trainer *trainer);
/* The load matrix of a layer, and this rank's share of the auxiliary loss with its gradient. */
int mp_trainer_start_counts(struct mp_trainer *trainer, struct mp_error *error);
int mp_trainer_wait_counts(struct mp_trainer *trainer, int layer, struct mp_error *error);
int mp_trainer_plan(struct mp_trainer *trainer, int layer, bool before_gate,
                    struct mp_error *error);
/* After an update: biases of gates that have one move towards even loads. */
void mp_trainer_move_biases(struct mp_trainer *trainer);
/* trainer->forced for a layer of this iteration, from the job's routing or the gate. */
int mp_trainer_force_choices(struct mp_trainer *trainer, int layer, struct mp_error *error);

/* ---- routes.c: the experts of this rank's tokens ---- */
/* MP_ELIMIT, MP_ENOMEM. */
int mp_trainer_create_routes(struct mp_trainer *trainer, struct mp_error *error);
/* Once a layer's gate is done. */
void mp_trainer_read_choices(struct mp_trainer *trainer, int layer);
/* If the job wants it. */
void mp_trainer_record_choices(struct mp_trainer *trainer, int layer);
/* The loads' `next`, of all ranks, where the system looks at it: 8 bytes for each of E * E pairs
 * and each layer but the last are summed. */
int mp_trainer_sum_transitions(struct mp_trainer *trainer, struct mp_error *error);

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

#endif
