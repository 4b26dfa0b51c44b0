/* The predictor: carries plans out in model time.
 *
 * It carries out the iteration of reference/schedule with the same planners as the trainer, on the
 * loads that it is given; a rank has a stream for its own work ("compute") and one for what
 * travels ("comm").  Rows are exchanged in the foreground: a rank goes on when its part is done.
 * Copies, gradients and all-reduces travel in the background, in the gaps that exchanges leave, and
 * a rank waits for them only where it needs them; where the processor that computes also copies
 * (mp_cluster_overlap < 1), that share of a background transfer stretches the rank's own work.
 *
 * The rules, beside those of network.h, timeline.h (streams) and carriage.h (broadcasts in pieces):
 * - Loads are gathered from all ranks after every gate, so ranks start their dispatch together.
 * - Four exchanges of a layer's rows in an iteration of training, also where blocks' forward is
 *   computed again (mp_predict_options.recompute), as LAER-MoE's cost model counts them; two in one
 * of serving.
 * - Of several micro-batches, copies that are not re-materialised travel in the first and their
 *   gradients in the last one, as do replicas' and non-expert gradients; copies fetched after the
 *   gate, unless they stay (policy.copies_stay), and what is re-materialised, travel in each.
 * - Experts move to new homes all at once; the trainer's rounds, which save memory, are not made.
 * - Adding up gradients that arrive costs nothing.
 * - Where a plan limits how many tokens leave their node, loads are what mp_replay_limit makes of
 *   them, as a trainer that replays loads has it; they don't say what a gate would choose.
 *
 * Nothing is random and no clock is read: the same inputs give the same bits. */
#pragma once

#include "harness/predict/cost.h"
#include "harness/predict/network.h"
#include "profiler/record/record.h"
#include "reference/plan/planner.h"

/* A span of a rank in model time.  mp_span's fields, as the trainer would fill them; start_ns and
 * end_ns count from the run's begin, rounded to the nearest nanosecond. */
enum mp_predict_stream { MP_STREAM_COMPUTE, MP_STREAM_COMM };

/* Where spans, loads and plan facts go.  Any function may be NULL; with no sink at all nothing of
 * it is computed.  Spans of a rank's work come in order and do not overlap, but for the phase
 * "iteration", which encloses all others and comes last; exchanges may have what travels in the
 * background beside them.  Loads and drops are those of the whole iteration; facts, those of its
 * last micro-batch. */
struct mp_predict_sink {
    void *context;
    void (*span)(void *context, int rank, enum mp_predict_stream stream,
                 const struct mp_span *span);
    void (*load)(void *context, int rank, int64_t iteration, int layer, int experts,
                 const uint32_t routes[], const uint32_t dropped[]);
    void (*facts)(void *context, int64_t iteration, int layer, const struct mp_plan *plan,
                  const struct mp_plan_facts *facts);
    /* What the system found out after the step (system.h), where it did: borrowed. */
    void (*found)(void *context, int64_t iteration, const struct mp_named_number facts[],
                  const void *values);
};

struct mp_predictor;

struct mp_predictor_config {
    const struct mp_cluster *cluster;         /* borrowed until destroy */
    const struct mp_job_file *job;            /* sizes, system, options; borrowed until destroy */
    const struct mp_predict_options *options; /* copied */
    struct mp_costs *costs;                   /* borrowed until destroy, of experts as the job has
                                                 them; NULL: by formula, and cut as wanted */
    bool is_gated;                            /* this system's gate has made the loads: a limit of
                                                 its plans is kept in them */
    bool check_plans;                         /* plan_check on every plan; without NDEBUG always */
    int64_t first_iteration;                  /* number of the first, as planners count */
    const struct mp_predict_sink *sink;       /* copied; NULL: none */
};

/* Into how many shards a predicted job's experts are cut: as it says, or as its system wants by the
 * cluster's figures.  Errors: mp_costs_create's. */
int mp_predict_shards(const struct mp_job_file *file, const struct mp_cluster *cluster,
                      const struct mp_predict_options *options, int *shards,
                      struct mp_error *error);

/* The planner of a job, told what its costs say; zeroed before.  Errors: mp_planner_create's. */
int mp_predict_planner(const struct mp_costs *costs, const struct mp_job_file *job,
                       bool check_plans, struct mp_planner *planner, struct mp_error *error);

/* Errors: those of mp_system_create and mp_costs_create; MP_ENOMEM. */
int mp_predictor_create(const struct mp_predictor_config *config, struct mp_predictor **predictor,
                        struct mp_error *error);
void mp_predictor_destroy(struct mp_predictor *predictor); /* accepts NULL */
MP_END(predictor, struct mp_predictor *, mp_predictor_destroy(*it))
/* Into how many shards its experts are cut. */
int mp_predictor_shards(const struct mp_predictor *predictor);
/* Whether its plans send routes to other experts than the loads say. */
bool mp_predictor_changes_loads(const struct mp_predictor *predictor);

/* What one iteration came to. */
struct mp_prediction {
    int64_t iteration;
    double seconds;          /* from the common start to the last rank's end */
    double compute_seconds;  /* mean over ranks of the rank's own work */
    double exposed_seconds;  /* mean over ranks of the time the compute stream waits for what
                                travels, or for those who are late to it */
    double late_seconds;     /* of exposed_seconds: waiting for ranks that come late, mean */
    double exchange_seconds; /* mean over ranks of the time in dispatch and combine */
    double expert_seconds;   /* mean over ranks; and of the rank with most: */
    double expert_seconds_max;
    double moe_seconds;       /* mean over ranks of the MoE layers: gate to combine, both ways */
    double attention_seconds; /* mean over ranks, with stretching */
    double transfer_seconds;  /* mean over ranks of the background stream's busy time with copies
                                 and gradients of experts; and of it waited for: */
    double transfer_exposed_seconds;
    double move_seconds; /* mean over ranks: rehoming and gathering after the step */
    double all_reduce_exposed_seconds;
    double imbalance; /* mean over layers and micro-batches of max/mean computed routes */
    int64_t routes, dropped;
    int64_t copies;          /* extra holders, all layers of the last micro-batch */
    double bytes[MP_STAGES]; /* of the plans' transfers, all micro-batches, all ranks */
    double exchanged_bytes; /* rows that cross a rank's border, all four exchanges; serving: both */
    double port_seconds;    /* lower bound: of the rank whose gates are busiest with its own
                               exchanges and background transfers, how long they are */
    double bound_seconds;   /* that no system takes less than (bound.h); NAN: not worked out, as the
                               predictor leaves it to whoever has asked for it (job.h) */
    double serial_seconds;  /* upper bound: all operations of both streams laid end to end, each
                               as long as at its slowest rank */
    /* moe_seconds of each layer, [layers]; until the next one is predicted. */
    const double *layer_seconds;
};

/* What the next iteration is called in spans, loads, facts and messages, at most INT32_MAX; without
 * this, one more than the one before, from 0.  Planners count from 0 whatever it is called, as
 * their intervals are of iterations that happen. */
void mp_predictor_call(struct mp_predictor *predictor, int64_t number);

/* Predicts the next iteration.  load is [micro_batches][layers], each [ranks][experts] of the
 * gate's experts, whole or not.  Errors:
 * the planner's, MP_EPLAN from plan_check and for drops that the system does not declare, MP_EINVAL
 * for loads of another shape. */
int mp_predictor_step(struct mp_predictor *predictor, const struct mp_load load[],
                      struct mp_prediction *prediction, struct mp_error *error);

/* What the fullest rank held at most so far, and which one: predicted memory.  More than the limit
 * is a result, not an error. */
void mp_predictor_memory(const struct mp_predictor *predictor, struct mp_memory *memory, int *rank);
