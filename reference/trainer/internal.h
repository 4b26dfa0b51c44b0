/* The trainer's own state, shared by the files of this folder. */
#ifndef MOEPERF_REFERENCE_TRAINER_INTERNAL_H
#define MOEPERF_REFERENCE_TRAINER_INTERNAL_H

#include <stdatomic.h>

#include "reference/plan/planner.h"
#include "reference/schedule/schedule.h"
#include "reference/trainer/carriages.h"
#include "reference/trainer/loads_file.h"
#include "reference/trainer/moves.h"
#include "reference/trainer/sizes.h"
#include "reference/trainer/spans.h"
#include "reference/trainer/trainer.h"

/* Rows of tokens on their way. */
struct mp_distinct_turn {
    struct mp_trainer *trainer;
    struct mp_operation operation;
    int round; /* whose rows have been made last */
    struct mp_exchange_maker maker;
};

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
    const struct mp_exchange *path_exchange; /* in several rounds; NULL: rows are not passed on */
    struct mp_exchange_path *path;           /* [L][path_steps] */
    int path_steps;                          /* the most of a plan */
    /* [path_steps][R][R] where blocks begin in send order; or in [R][R] rows from each rank to each
     * other. */
    int *path_rows;
    struct mp_rows transit[2]; /* rows on their way through this rank */
    /* Where the exchange deduplicates (distinct.c). */
    uint32_t *distinct;     /* [chunks][groups of all levels] of this rank; loads have all */
    uint32_t *chunk_routes; /* [L][R][C][E] of plans; NULL: one chunk, and C is 0 */
    int32_t *host_routes;   /* [2][N * K] */
    int *sources;           /* [2][R] working memory */
    struct mp_rows beside[2], host_beside[2]; /* what travels beside rows */
    struct mp_rows host_fans;                 /* working memory: a layer's fans, as they are made */
    struct mp_fan host_fan[MP_FANS];
    struct mp_distinct_turn distinct_turn[2 * MP_MOST_DEGREE]; /* of a chunk there, and back */
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

/* ---- facts.c ---- */
/* Facts of the plans that have been carried out, and the totals that they add to; `backward`: also
 * what is fetched again. */
void mp_trainer_count_plans(struct mp_trainer *trainer, bool backward);
/* Loads and plan facts of an iteration (facts on rank 0). */
void mp_trainer_record_plans(struct mp_trainer *trainer);

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

/* ---- distinct.c: rows of tokens instead of routes ---- */
int mp_trainer_create_distinct(struct mp_trainer *trainer, struct mp_error *error);
void mp_trainer_destroy_distinct(struct mp_trainer *trainer);
/* Counts of a gate's choices by chunk of tokens, if there are several. */
void mp_trainer_count_chunks(struct mp_trainer *trainer, int layer);
/* Who gets which of them, once forward has found the routes' places.  MP_ENOMEM. */
int mp_trainer_make_distinct(struct mp_trainer *trainer, int layer, struct mp_error *error);
int mp_trainer_start_distinct(struct mp_trainer *trainer, const struct mp_operation *operation,
                              struct mp_request *request, struct mp_error *error);
/* What becomes of them where they have arrived. */
void mp_trainer_arrive_distinct(struct mp_trainer *trainer, const struct mp_operation *operation);

/* ---- path.c: the ways that they take ---- */
/* As the first plan says. */
int mp_trainer_create_paths(struct mp_trainer *trainer, struct mp_error *error);
void mp_trainer_destroy_paths(struct mp_trainer *trainer);
/* For a layer's plan, with room for what this rank passes on.  MP_EPLAN (rows are passed on, and
 * not as in the first plan), MP_ELIMIT, MP_ENOMEM. */
int mp_trainer_build_path(struct mp_trainer *trainer, int layer, struct mp_error *error);
/* The path of a step: one that has been built, or `direct` (out). */
const struct mp_exchange_path *mp_trainer_path(const struct mp_trainer *trainer,
                                               const struct mp_operation *operation,
                                               struct mp_exchange_path *direct);
/* Where rows of a step are in transit, 0 or 1; NULL where they go directly. */
void *mp_trainer_transit(const struct mp_trainer *trainer, const struct mp_operation *operation,
                         int place);

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
