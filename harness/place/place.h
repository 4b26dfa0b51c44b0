/* Place: where a system's planner would put experts for given loads, and what that is worth.
 *
 * The planner sees a trace as it would see a run: plans of every iteration, after_step at its end,
 * new homes from then on.  The homes that it has when the history has passed are the placement.  It
 * is judged on loads that came later, by the predictor, carried out as engines do that read a
 * placement from a file: it stays as it is, and every source spreads its routes to an expert evenly
 * over the expert's slots. */
#pragma once

#include "harness/predict/job.h"
#include "reference/plan/planner.h"

/* ---- loads ---- */

/* All iterations of a job's loads. */
struct mp_place_loads {
    const struct mp_predict_job *job; /* borrowed, as the cluster that it is predicted on */
    const struct mp_cluster *cluster;
    int layers, micro_batches, ranks, experts;
    int64_t iterations;
    struct mp_load *load; /* [iterations][micro_batches][layers] */
    /* What planners learn from: sums over micro-batches, [iterations][layers]; of one micro-batch
     * it is `load`. */
    struct mp_load *learnt;
    int64_t *total;   /* [iterations][layers][experts] routes of all sources */
    char *source;     /* what the loads say of themselves */
    bool of_run;      /* one iteration, a run's sum */
    bool one_source;  /* all ranks send alike, as where nobody said which sent what */
    int dense_layers; /* as in struct mp_trace_info */
    bool *never;      /* [layers][experts] no route in all iterations: padding */
    void (*predicted)(void *context); /* after every iteration that is predicted; NULL: untold */
    void *context;
    struct mp_arena memory;
};

/* Reads at most job->file.job.iterations of them.  Errors: those of the loads; MP_ELIMIT for more
 * than 4 GiB; MP_EFORMAT for none; MP_ENOMEM. */
int mp_place_loads_read(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                        struct mp_place_loads *loads, struct mp_error *error);
void mp_place_loads_destroy(struct mp_place_loads *loads); /* accepts a zeroed one */
MP_END(place_loads, struct mp_place_loads, mp_place_loads_destroy(it))
static inline const int64_t *mp_place_total(const struct mp_place_loads *loads, int64_t iteration,
                                            int layer) {
    return loads->total + (iteration * loads->layers + layer) * loads->experts;
}

/* ---- placements ---- */

/* Physical experts: every rank has as many slots of every layer, slot after slot, rank after rank
 * (what engines call physical_to_logical_map). */
struct mp_place_map {
    int layers, ranks, experts, per_rank;
    int32_t *expert; /* [layers][ranks][per_rank]; -1: empty; the arena's */
};
static inline const int32_t *mp_place_slots(const struct mp_place_map *map, int layer) {
    return map->expert + (long)layer * map->ranks * map->per_rank;
}
/* Contiguous experts, as without a system.  Slots are empty where ranks don't divide experts. */
int mp_place_map_contiguous(int layers, int ranks, int experts, struct mp_arena *memory,
                            struct mp_place_map *map, struct mp_error *error);
/* The slots that homes ([layers]) stand for: as many on every rank as the fullest has experts of a
 * layer.  A rank with fewer has one more of that of its experts which has most routes per slot
 * (ties to the lower one), since engines have equally many slots everywhere.  weight is
 * [layers][experts]. */
int mp_place_map_of_homes(const struct mp_placement home[], int layers, const int64_t weight[],
                          struct mp_arena *memory, struct mp_place_map *map,
                          struct mp_error *error);

/* slots[e] = slots of expert e in a layer, [experts]. */
void mp_place_count_slots(const struct mp_place_map *map, int layer, int32_t slots[]);
/* load[r] = routes of `total` ([experts]) that the layer's slots bring to rank r, each expert's
 * evenly over its slots.  slots is [experts], working memory. */
void mp_place_rank_loads(const struct mp_place_map *map, int layer, const int64_t total[],
                         int32_t slots[], double load[]);

/* Fullest rank over the mean, of layers of iterations.  Ranks that only ever hold experts without
 * a route are idle: they are in no mean.  Layers without routes count in nothing. */
struct mp_place_balance {
    double mean;  /* over layers and iterations */
    double worst; /* the largest layer's mean over iterations */
    int worst_layer;
    double *layer; /* [layers] means over iterations; NAN: no routes; the arena's */
};
int mp_place_balance(const struct mp_place_loads *loads, int64_t from, int64_t to,
                     const struct mp_place_map *map, struct mp_arena *memory,
                     struct mp_place_balance *balance, struct mp_error *error);
/* Whether the rank holds only experts without a route there, by `never` ([experts]; NULL: none). */
bool mp_place_is_idle(const struct mp_place_map *map, int layer, int rank, const bool never[]);
/* Of one layer and iteration; NAN without routes.  Working memory as above. */
double mp_place_max_over_mean(const struct mp_place_map *map, int layer, const int64_t total[],
                              const bool never[], int32_t slots[], double load[]);

/* ---- planning ---- */

/* Told whenever a step has changed homes; `step` counts the steps that have passed. */
struct mp_place_watch {
    void *context;
    int (*changed)(void *context, int64_t step, const struct mp_place_map *map,
                   struct mp_error *error);
};

struct mp_placed {
    struct mp_place_map before, after;
    int64_t steps;          /* that the planner saw: the history's, or more where it is repeated */
    int64_t changes;        /* of them that changed homes */
    double plan_seconds;    /* of planning, measured here, of a step that changes homes, mean */
    int copies;             /* slots beyond one per expert, of a layer */
    double expert_bytes;    /* parameters of one expert */
    double move_bytes_most; /* received by one rank to get from `before` to `after` */
    int moved;              /* experts, all layers, that some rank receives */
};

enum { MP_PLACE_STEPS = 200 }; /* most steps of a history that is repeated */

/* Has the job's system plan iterations 0 .. history - 1; `after` are its slots, or those that its
 * homes stand for.  As long as it has changed nothing they are repeated, up to MP_PLACE_STEPS
 * steps, since systems look every so many iterations.  watch may be NULL.  MP_EREFUSED for a system
 * whose homes never change, and what it refuses; the planner's errors; MP_ENOMEM. */
int mp_place_plan(const struct mp_place_loads *loads, int64_t history,
                  const struct mp_place_watch *watch, struct mp_arena *memory,
                  struct mp_placed *placed, struct mp_error *error);

/* ---- judging ---- */

struct mp_place_time {
    double median, mean; /* seconds of an iteration */
    double first;        /* of the first one */
    struct mp_memory memory;
};
/* Iterations from .. to - 1 under a placement that stays; with `next`, which may be NULL, that one
 * from the end of the first iteration on, its moves with that. */
int mp_place_predict(const struct mp_place_loads *loads, int64_t from, int64_t to,
                     const struct mp_place_map *map, const struct mp_place_map *next,
                     struct mp_place_time *time, struct mp_error *error);
/* Under the job's system at work, from iteration 0 on, of iterations from .. to - 1. */
int mp_place_predict_system(const struct mp_place_loads *loads, int64_t from, int64_t to,
                            struct mp_place_time *time, struct mp_error *error);

/* Bytes of rows from node to node, one way, mean of an iteration: [nodes][nodes], of which the
 * diagonal is what stays in a node but leaves its rank; and what stays on its rank. */
struct mp_place_traffic {
    int nodes;
    double *bytes;               /* the arena's */
    double own, inside, between; /* sums */
};
int mp_place_traffic(const struct mp_place_loads *loads, int64_t from, int64_t to,
                     const struct mp_place_map *map, struct mp_arena *memory,
                     struct mp_place_traffic *traffic, struct mp_error *error);

/* A placement as a planner, for the predictor (fixed.c): homes that stay, or change once. */
struct place_fixed_options {
    const struct mp_place_map *map;
    const struct mp_place_map *next; /* from the end of the first step on; NULL: it stays */
};
/* Not registered: its options are pointers, borrowed until it is destroyed. */
extern const struct mp_system place_fixed;

/* ---- files ---- */

enum mp_place_format { MP_PLACE_JSON, MP_PLACE_SGLANG, MP_PLACE_VLLM, MP_PLACE_FORMATS };
const char *mp_place_format_name(enum mp_place_format format);

/* Writes a whole file.
 *   sglang  what --init-expert-location reads: {"physical_to_logical_map": [layer][slot]}, dense
 *           layers included, whose slots are the trivial ones, slot mod experts (sglang:
 *           srt/eplb/expert_location.py)
 *   vllm    what vLLM Ascend's expert_map_path reads: {"moe_layer_count", "layer_list":
 *           [{"layer_id", "device_count", "device_list": [{"device_id", "device_expert"}]}]},
 *           layers with experts alone (vllm-ascend: eplb); vLLM itself reads no file
 *   json    the slots of each rank of each layer
 * MP_EINVAL where sglang can't be told which layers are dense; those of whole_file.h. */
int mp_place_write(const char *path, enum mp_place_format format, const struct mp_place_map *map,
                   int dense_layers, const char *made_by, struct mp_error *error);
