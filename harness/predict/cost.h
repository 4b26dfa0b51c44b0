/* Costs: seconds of a rank's own work, and bytes of its memory, by formula from a cluster's device;
 * or seconds as a recorded run took them.
 *
 * Every formula says where its count of operations and bytes comes from.  Nothing in it is fitted;
 * what a cluster file does not say is an assumption in struct mp_predict_options, listed in every
 * table. */
#pragma once

#include "harness/predict/fitted.h"
#include "profiler/record/record.h"
#include "reference/base/option.h"
#include "reference/plan/system.h"
#include "reference/trainer/sizes.h"

enum mp_predict_recompute { MP_RECOMPUTE_NONE, MP_RECOMPUTE_FULL };
enum mp_predict_attention { MP_ATTENTION_FULL, MP_ATTENTION_FLASH };
enum mp_predict_exchange { MP_ROWS_WHOLE, MP_ROWS_BY_EXPERT };

/* What a job does not say and a prediction needs. */
struct mp_predict_options {
    int precision;       /* enum mp_precision of matrices, rows and activations: fp32, bf16, fp16 */
    int micro_batches;   /* of an iteration: the batch is split, gradients are added up */
    int expert_matrices; /* 2 (gelu), or 3 (gated, SwiGLU) */
    int64_t vocabulary;  /* of embedding and head; 0: neither */
    int key_value_heads; /* MP_AUTO: as many as heads; fewer: grouped-query attention */
    int cache_width;     /* numbers that the cache keeps of a token and layer; MP_AUTO: its keys and
                            values; fewer: latent attention (DeepSeek-V2, 2405.04434, 2.1.2), of
                            which only the cache's bytes are modelled, not the work */
    int attention;       /* enum mp_predict_attention: scores in memory, or not */
    int recompute;       /* enum mp_predict_recompute: blocks' forward again in backward */
    int exchange;        /* enum mp_predict_exchange: rows for all of a rank's experts in one go, or
                            for one after the other (steps.h) */
    double gradient_bytes;  /* of a parameter's gradient */
    double optimizer_bytes; /* per parameter: master copy and moments */
    double reserve;         /* share of a device's memory that is not the job's: framework, library
                               buffers, fragments */
    double planning;        /* seconds of a planner's call on the critical path, per layer */
};
/* Rows for the fields above, as `predict:` in suites and --set predict.NAME=VALUE. */
extern const struct mp_option mp_predict_options_table[];

/* What a prediction with these options keeps a model's numbers in. */
struct mp_element_sizes mp_predict_elements(const struct mp_predict_options *options);

/* Sizes in the letters of reference/model/model.h, and what is worked out once. */
struct mp_costs {
    const struct mp_cluster *cluster;  /* borrowed */
    struct mp_predict_options options; /* precision, matrices, ... */
    struct mp_sizes sizes; /* of the job with these; of a run, rows with what it took for them */
    /* What planners are told (reference/plan/system.h), all of it: sizes from job and cluster,
     * figures from the same formulas as the trainer measures them, unless the job sets them
     * (bandwidth, expert-rate, non-moe-seconds).  A plan is made for one micro-batch, so
     * tokens_per_rank are those of a micro-batch.  bandwidth is that of all ports of a group at the
     * farthest level, which broadcasts of several experts fill; 0 with one rank. */
    struct mp_setting setting;
    double element;                                     /* b: bytes of an element */
    double layers, width, heads, experts, expert_width; /* L D H E F / C */
    int top_k;                                          /* K: routes of a token */
    double shards;                                      /* C */
    double shared_width;                                /* U */
    double gate_kept; /* bytes of a token that its gate keeps for backward (mp_gate_keeps) */
    double sequence, vocabulary; /* S V */
    bool serves;
    double context;           /* cached tokens of a sequence; 0 in training */
    double answers;           /* rows of logits: N; serving: sequences of a micro-batch */
    double tokens;            /* N, of a rank in a micro-batch */
    double keys;              /* D of keys and of values */
    double cached;            /* numbers of a token and layer in the cache */
    double own[MP_PHASES][2]; /* seconds by phase and direction (mp_costs_own) */
    double behind; /* share of attention's backward that policy.weights_behind leaves for later */
    double *expert[2];              /* [known] by rows; 0: not yet */
    int64_t known;                  /* 0 or a power of two */
    const struct mp_fitted *fitted; /* borrowed; NULL: by formula */
    int iteration; /* of the run that it is fitted to: the one (index) that is at hand */
};

/* Sizes come from the job; its ranks and ranks_per_node are not read, the cluster's count.  All are
 * borrowed during the call only, but the cluster until destroy.  MP_EINVAL: no peak for the
 * precision, batch not divisible by ranks and micro-batches, width not a multiple of heads, heads
 * not a multiple of key-value-heads; MP_ENOMEM. */
int mp_costs_create(const struct mp_cluster *cluster, const struct mp_job *job,
                    const struct mp_predict_options *options, struct mp_costs **costs,
                    struct mp_error *error);
/* The same with what a run took in the place of formulas, on the cluster of its links.  `setting`
 * is what the run's planners were told.  fitted and cluster are borrowed until destroy.  MP_ENOMEM.
 */
int mp_costs_create_fitted(const struct mp_fitted *fitted, const struct mp_cluster *cluster,
                           const struct mp_job *job, const struct mp_predict_options *options,
                           const struct mp_setting *setting, struct mp_costs **costs,
                           struct mp_error *error);
void mp_costs_destroy(struct mp_costs *costs); /* accepts NULL */
MP_END(costs, struct mp_costs *, mp_costs_destroy(*it))

/* Seconds of own work in a phase of every rank, [ranks], as they were recorded; NULL: by formula.
 */
const double *mp_costs_recorded(const struct mp_costs *costs, enum mp_phase phase, int direction,
                                int layer);

/* Bytes of the gradients of a block's non-expert parameters, and of embedding and head's, each of
 * one rank. */
double mp_costs_block_gradient_bytes(const struct mp_costs *costs);
double mp_costs_table_gradient_bytes(const struct mp_costs *costs);

/* Seconds of one rank and micro-batch in a phase of own work that depends on no plan; direction
 * MP_FORWARD or MP_BACKWARD (profiler/record); with recompute, backward has the second forward in
 * it (of attention, gate and experts; rows that travel once more are the predictor's).  Phases are
 * cut as the trainer cuts them: the second layer norm and the routes' order belong to the gate, and
 * so does adding up the gradients of a token's returned rows.
 *   EMBED       none without a vocabulary
 *   ATTENTION, GATE
 *   PLAN        predict.planning
 *   SHARED      the shared expert with its residual; 0 where there is none
 *   HEAD        forward and, in training, backward, whatever the direction; none without a
 *               vocabulary */
double mp_costs_own(const struct mp_costs *costs, enum mp_phase phase, int direction);
/* How much of the time of attention's or experts' backward these products take, 1: all of it.  Of
 * attention it is what the product takes by formula, of experts its share of the operations. */
double mp_costs_part(const struct mp_costs *costs, enum mp_phase phase, enum mp_products products);
/* Rows put in order of experts and back: `rows` of them read and written. */
double mp_costs_permute(const struct mp_costs *costs, int64_t rows);
/* The same by products with one-hot matrices (policy.one_hot) of `rows` rows and N cells in each.
 *   DISPATCH, forward    what making them moves (DeepSpeed, deepspeed/moe/sharded_moe.py): weights
 *                        in 32 bits are written and read twice, a mask of one byte is written and
 *                        read, elements of both are written; and a product
 *   COMBINE, forward; DISPATCH, backward      a product each
 *   COMBINE, backward    that of rows, that of weights, whose gradient is turned into 32 bits of
 *                        which those of routes are picked */
double mp_costs_one_hot(const struct mp_costs *costs, int64_t rows, enum mp_phase phase,
                        int direction);
/* `rows` routes through one expert; 0 rows take no time.  Looked up: a table grows with the largest
 * number seen (never in the steady state). */
double mp_costs_expert(struct mp_costs *costs, int64_t rows, int direction);
/* How much longer than that each rank's experts take, [ranks] factors; NULL: no longer. */
const double *mp_costs_speed(const struct mp_costs *costs, int direction);
/* Optimizer step over so many bytes of parameters (at the precision's bytes each): all in one go.
 */
double mp_costs_optimizer(const struct mp_costs *costs, double parameters);
/* The same in host memory: gradients go down, the host updates, parameters come up, one after the
 * other.  What was fitted to a recorded run is taken for the sum of them. */
double mp_costs_offloaded(const struct mp_costs *costs, double parameters);
/* And of parameters alone, of state that has come to another host: their way up.  0 if fitted. */
double mp_costs_come_up(const struct mp_costs *costs, double parameters);
/* MP_EINVAL with what the cluster's file must give for that. */
int mp_costs_check_offload(const struct mp_costs *costs, struct mp_error *error);
double mp_costs_block_parameters(const struct mp_costs *costs); /* numbers of parameters: */
double mp_costs_table_parameters(const struct mp_costs *costs);
/* What sums of non-expert gradients take, times what the network says. */
double mp_costs_sums(const struct mp_costs *costs);

/* Operations of a token through the shared expert forward, a multiply and an add being two;
 * backward has twice as many. */
double mp_costs_shared_flops(const struct mp_costs *costs);

/* ---- memory ---- */

/* What a rank held at most. */
struct mp_memory_use {
    double experts_kept; /* experts whose parameters stay between iterations, all layers */
    double states_kept;  /* experts (or their slices, added up) whose optimizer state it keeps on
                            its device */
    double copies;       /* copies alive at once, all layers: with re-materialisation of two */
    double gradients;    /* experts' gradients alive at once, those of copies included */
    /* Rows, padding included, dropped routes not: as many as plans bring, as in the trainer
     * (reference/model/rows.h).  All layers' together, and the largest layer's, which is what
     * recompute keeps and what exchange buffers hold. */
    double rows, rows_one_layer; /* that its own experts work on */
    double sent, sent_one_layer; /* that it sends and that return to it */
    double transit;              /* bytes of rows on their way through it, at most at once */
    bool one_hot;                /* sent rows are those of one-hot matrices, too (policy.one_hot) */
};
struct mp_memory {
    double dense;        /* non-expert parameters, gradients and optimizer state: in serving, and so
                            below, parameters alone */
    double parameters;   /* of experts kept */
    double copies;       /* parameters of copies */
    double gradients;    /* of experts and copies */
    double optimizer;    /* of experts */
    double activations;  /* kept for backward: blocks', experts' and the head's; serving: of one
                            block at a time */
    double cache;        /* of keys and values, in serving */
    double buffers;      /* of an exchange: rows sent and received, and in transit twice over */
    double total, limit; /* limit: the device's memory without the reserve */
};
void mp_costs_memory(const struct mp_costs *costs, const struct mp_memory_use *use,
                     struct mp_memory *memory);
