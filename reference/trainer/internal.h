/* The trainer's own state, shared by the files of this folder. */
#ifndef MOEPERF_REFERENCE_TRAINER_INTERNAL_H
#define MOEPERF_REFERENCE_TRAINER_INTERNAL_H

#include <signal.h>

#include "reference/plan/plan_check.h"
#include "reference/trainer/trainer.h"

enum { MP_REDUCES_IN_FLIGHT = 2 };

struct mp_trainer {
    struct mp_job job;
    const struct mp_system *system;
    void *self; /* the system's state */
    struct mp_setting setting;
    struct mp_plan_law law;
    bool check_plans;

    struct mp_comm *comm;
    struct mp_device *device;
    const struct mp_text *text;
    struct mp_model model;
    int sequences;         /* of this rank */
    int64_t global_tokens; /* per iteration */
    int64_t iteration;
    int64_t updates; /* optimizer steps taken, for AdamW's bias correction */

    int32_t *owner;       /* [L][E] */
    int slots;            /* experts a rank owns at most */
    struct mp_plan *plan; /* [L] */
    struct mp_load *load; /* [L] */
    struct mp_transfers moves;
    struct mp_transfer *round;           /* [L * E] moves carried out together */
    void **round_from[3], **round_to[3]; /* [L * E]: parameters, first, second moment */
    bool *moved;                         /* [L * E] */
    int *free_slots;                     /* [R] */

    uint32_t *counts, *all_counts;               /* [2 E] and [R][2 E]: routes, then firsts */
    float *mass;                                 /* [E] */
    float *auxiliary;                            /* [E] */
    double *auxiliary_loss;                      /* [L] this rank's part */
    int32_t *token, *target;                     /* [N] */
    int32_t *forced;                             /* [N][K]; NULL: the gate chooses */
    uint32_t *forced_count;                      /* [E] of this rank */
    float *host_loss;                            /* [N] */
    float **prefetch_chunk, **prefetch_gradient; /* [E] */

    struct mp_request *gather, *exchange, *fetch, *late_fetch;
    struct mp_request *prefetch[2];
    struct mp_request *reduce[MP_REDUCES_IN_FLIGHT];
    int reduce_layer[MP_REDUCES_IN_FLIGHT];
    struct mp_request **bucket; /* [L + 1] */
    struct mp_request *move[3];

    struct mp_record_thread *compute, *communication;
    int64_t fetch_started, late_fetch_started, reduce_started[MP_REDUCES_IN_FLIGHT],
        *bucket_started;
    volatile sig_atomic_t stop;
    struct mp_trainer_totals totals;
};

/* ---- spans (spans.c) ---- */
struct mp_mark {
    int64_t start_ns, waited_ns, sent_bytes;
};
struct mp_mark mp_trainer_mark(const struct mp_trainer *trainer);
/* Records what was spent since `mark` as a span of the compute stream. */
void mp_trainer_spent(struct mp_trainer *trainer, struct mp_mark mark, enum mp_phase phase,
                      enum mp_direction direction, int layer, int64_t tokens, int64_t flops);
/* Records an operation that was in flight from start_ns until now on the communication stream. */
void mp_trainer_in_flight(struct mp_trainer *trainer, int64_t start_ns, enum mp_phase phase,
                          enum mp_direction direction, int layer, int64_t bytes);
/* Loads and plan facts of an iteration (facts on rank 0). */
void mp_trainer_record_plans(struct mp_trainer *trainer);

/* ---- step.c ---- */
/* All blocks, without the head. */
int mp_trainer_forward(struct mp_trainer *trainer, const int32_t *token, const int32_t *target,
                       struct mp_error *error);

/* ---- moe_layer.c: a plan's exchange, fetches and reductions around the experts ---- */
int mp_trainer_moe_forward(struct mp_trainer *trainer, int layer, struct mp_error *error);
int mp_trainer_moe_backward(struct mp_trainer *trainer, int layer, struct mp_error *error);
/* Plans what is known before the gate and starts its fetches. */
int mp_trainer_plan_before_gate(struct mp_trainer *trainer, int layer, struct mp_error *error);
/* Waits for all gradients still being reduced. */
int mp_trainer_finish_reduces(struct mp_trainer *trainer, struct mp_error *error);
/* trainer->forced for a layer of this iteration, from the job's routing. */
int mp_trainer_force_choices(struct mp_trainer *trainer, int layer, struct mp_error *error);
/* Re-materialisation: starts fetching a layer's copies again for backward. */
int mp_trainer_prefetch(struct mp_trainer *trainer, int layer, struct mp_error *error);

/* ---- moves.c ---- */
/* Carries trainer->moves out: parameters and both moments, in rounds that never need more than the
 * spare slot. */
int mp_trainer_move_owners(struct mp_trainer *trainer, struct mp_error *error);

/* ---- measure.c ---- */
/* Fills the figures that planners assume and the job leaves open, measured on rank 0. */
int mp_trainer_measure(struct mp_trainer *trainer, struct mp_error *error);

#endif
