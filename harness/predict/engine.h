/* Inside of the predictor: what its files share. */
#ifndef MOEPERF_HARNESS_PREDICT_ENGINE_H
#define MOEPERF_HARNESS_PREDICT_ENGINE_H

#include "harness/predict/predictor.h"
#include "harness/predict/steps.h"
#include "harness/predict/timeline.h"
#include "reference/plan/planner.h"
#include "reference/schedule/hops.h"
#include "reference/schedule/schedule.h"

enum {
    MP_BYTES_OF_COUNTS = 8, /* of an expert: routes, and first choices among them */
    MP_AGREED_BYTES = 24    /* three doubles: loss, auxiliary loss, whether to stop */
};

/* A background transfer of a layer: what each rank's stream is kept for. */
struct mp_carriage {
    bool any;
    double *seconds;  /* [ranks] with everybody there at once; 0: no part in it */
    double *alone;    /* [ranks] */
    double *received; /* [ranks] bytes; NULL without a sink for spans */
};

/* How gradients come to those who keep their sums (reference/trainer/transfers.c). */
enum { MP_SUM_COPIES, MP_SHARE_SUMS, MP_SEND_SLICES, MP_GRADIENT_STAGES };

/* What of a layer's plan is still needed when the plan is gone. */
struct mp_predicted_layer {
    struct mp_steps *steps;  /* its rows: kept, or the predictor's, which all layers share */
    struct mp_steps kept;    /* until backward */
    double *sent, *received; /* [ranks] bytes of rows across the rank's border */
    double *permute;         /* [ranks] seconds of putting sent rows in order, with one_hot what
                                the last product with its matrices took */
    int64_t one_hot;         /* rows of the matrices that they are put in order with; 0: copied */
    int64_t *sent_rows;      /* [ranks] */
    int64_t *rows;           /* [ranks] worked on */
    double *transit;         /* [ranks] bytes of rows that it passes on, at most at once */
    double *copies;          /* [ranks] holders beside those of its home, or put together */
    struct mp_carriage prefetch, gradient[MP_GRADIENT_STAGES];
};

struct mp_predictor {
    struct mp_arena memory; /* of all tables that stay as large as they are */
    struct mp_job job;
    struct mp_predict_options options;
    struct mp_planner planner;
    struct mp_predict_sink sink;
    struct mp_costs *costs, *own_costs; /* own: NULL if they are borrowed */
    struct mp_network *network;
    struct mp_timeline timeline;
    int ranks, experts, layers; /* experts: of plans, each a shard if they are cut */
    int64_t iteration, called;  /* counted from 0, as planners see it; and as it is recorded */
    int micro_batch;

    /* Borrowed for a step: [micro_batches][layers], the present micro-batch's, and their sum. */
    const struct mp_load *given, *all_loads, *load, *learnt;
    struct mp_load *sum; /* [layers] over micro-batches, if there are several */
    /* For systems that look at transitions: `learnt` with them [layers], what they are, and working
     * memory [2][experts]; else NULL. */
    struct mp_load *told;
    uint32_t *transitions;
    int64_t *totals;
    struct mp_load *limited; /* [micro_batches][layers] copies: of experts that are cut into shards,
                                loads of these; of plans that limit the gate as it leaves them,
                                layer by layer; NULL: loads stand */
    bool *inside;            /* [experts] working memory of that */

    struct mp_predicted_layer *layer; /* [layers] */
    struct mp_traffic *traffic;       /* of transfers */
    struct mp_steps steps;            /* filled last, and not kept by a layer */
    struct mp_steps_memory steps_memory;
    double *distinct; /* [ranks][chunks][groups] of the layer at hand; NULL: rows are of routes */
    struct mp_distinct_model distinct_model;
    size_t kept_bytes, kept_limit; /* of all layers' steps; and what they may come to */
    struct mp_schedule schedule;
    struct mp_carriage fetch, late_fetch;
    struct mp_carriage ahead; /* what sets out before its layer is planned */
    /* Numbers of background operations on their way; -1: nothing travels.  By kind, for as many
     * layers as may be on their way together, and [layers + 1] of non-expert gradients. */
    int64_t number[MP_OPERATIONS][MP_MOST_AHEAD + 1], *dense_number;
    double *arrived;  /* [steps][ranks] when the rows of a step are here */
    double *returned; /* [steps][ranks] and back */
    double *bytes;    /* [ranks] of an exchange, for spans */
    int steps_limit;  /* that there is room for in both */
    double *seconds;  /* [ranks] working memory of experts */

    /* Working memory. */
    double *zero;      /* [ranks] zeros */
    int64_t *tokens;   /* [ranks] of a micro-batch, for spans */
    int64_t *routes;   /* [ranks] computed, without padding */
    uint32_t *dropped; /* [layers][ranks][experts] of this iteration; NULL if nobody asks */
    uint64_t *wanted;  /* [experts][words] ranks that a transfer list sends an expert to */
    bool *listed;      /* [experts] has bits in `wanted` */
    int32_t *touched;  /* [experts] those that have */
    int touched_count;
    int32_t *receiver;  /* [ranks] */
    struct mp_hop *hop; /* [ranks] */
    uint64_t *late;     /* [experts][words] the plan's late copies (mp_plan_next_late) */
    bool has_late;
    double *holds; /* [ranks] experts of a layer that the rank holds */

    double reduce_seconds, table_reduce_seconds, gather_seconds, agree_seconds;
    double transitions_seconds;
    double moe, gathering, gathering_waited; /* seconds of all ranks, of this iteration */
    double *layer_moe;                       /* [layers] of moe, means over ranks */
    bool passes;                             /* the present span has more than starts in it */
    double *expert_seconds;                  /* [ranks] of this iteration */
    double imbalance;                        /* sum over layers and micro-batches */
    struct mp_prediction *prediction;        /* of this iteration, while it is made */

    double *kept;               /* [ranks] experts whose home the rank is, all layers */
    double *kept_of_layer;      /* [layers][ranks] */
    double *optimizer_seconds;  /* [ranks] */
    struct mp_memory_use *most; /* [ranks] when the rank was fullest so far */
    double *most_total;         /* [ranks] bytes then */
};

/* ---- outgoing.c: gates that let few tokens out of their node ---- */
/* Memory for copies of loads; mp_predictor_destroy_copies, also after an error. */
int mp_predictor_create_copies(struct mp_predictor *predictor, struct mp_error *error);
void mp_predictor_destroy_copies(struct mp_predictor *predictor);
/* The loads of an iteration, or copies of them if there is memory for such. */
const struct mp_load *mp_predictor_copy_loads(struct mp_predictor *predictor,
                                              const struct mp_load load[]);
/* Keeps the limit of the plan, if it has one, in the layer's loads, by mp_replay_limit.  MP_EPLAN
 * for a node with fewer than 2 experts. */
int mp_predictor_limit_gate(struct mp_predictor *predictor, int layer, struct mp_error *error);

/* ---- transitions.c ---- */
/* Does nothing where the system doesn't look at transitions.  MP_ELIMIT, MP_ENOMEM. */
int mp_predictor_create_transitions(struct mp_predictor *predictor, struct mp_error *error);
/* What the system learns from: the iteration's loads, with transitions where it looks at them,
 * which all ranks have summed by then. */
const struct mp_load *mp_predictor_tell_transitions(struct mp_predictor *predictor);

/* ---- dispatch.c: a plan's rows ---- */
/* Plans the layer. */
int mp_predictor_plan_before(struct mp_predictor *predictor, int layer, struct mp_error *error);
int mp_predictor_plan_after(struct mp_predictor *predictor, int layer, struct mp_error *error);
/* Fills the layer's rows from the plan, and counts them. */
int mp_predictor_dispatch(struct mp_predictor *predictor, int layer, struct mp_error *error);
/* The layer's rows again for backward, if they have not been kept. */
int mp_predictor_restore(struct mp_predictor *predictor, int layer, struct mp_error *error);
/* Whether a rank's copy of an expert is fetched after the gate. */
bool mp_predictor_is_late(const struct mp_predictor *predictor, int expert, int rank);

/* ---- carriage.c: what plans move beside rows ---- */
int mp_carriage_create(int ranks, bool spans, struct mp_carriage *carriage, struct mp_error *error);
void mp_carriage_destroy(struct mp_carriage *carriage);
/* What travels in this stage before the experts compute. */
void mp_predictor_carry_fetch(struct mp_predictor *predictor, enum mp_stage stage,
                              struct mp_carriage *carriage);
/* Gradients of the plan: summed copies, shared sums, slices. */
void mp_predictor_carry_gradients(struct mp_predictor *predictor, struct mp_predicted_layer *layer);
/* Experts to new homes: carried out, or for the background. */
void mp_predictor_move(struct mp_predictor *predictor);
void mp_predictor_carry_moves(struct mp_predictor *predictor, struct mp_carriage *carriage);
/* Slices put together at a layer's homes, planned or not yet.  Returns all bytes. */
double mp_predictor_carry_homes(struct mp_predictor *predictor, int layer,
                                struct mp_carriage *carriage);
/* holds[r]: experts of the placement that rank r holds. */
void mp_predictor_count_holders(const struct mp_placement *placement, double holds[]);

/* ---- executor.c: what the schedule's verbs mean in model time ---- */
extern const struct mp_executor mp_predictor_executor;
/* Room for exchanges in up to as many steps as there are ranks. */
int mp_predictor_create_executor(struct mp_predictor *predictor, struct mp_error *error);
void mp_predictor_destroy_executor(struct mp_predictor *predictor);

/* ---- holding.c: who holds what in memory ---- */
void mp_predictor_count_homes(struct mp_predictor *predictor);
void mp_predictor_count_memory(struct mp_predictor *predictor);

#endif
