/* FSSDP: fully sharded sparse data parallelism, as the system Hecate does it
 * (arXiv 2502.02581).
 *
 * Every expert has one owner in the whole job.  Each iteration and layer, the hottest experts are
 * copied for a while (spAG) to ranks that would otherwise wait, and their gradients are summed back
 * into the owner (spRS).  One file per algorithm:
 *   materialize.c  Algorithm 1: who gets which copies                     (1.6)
 *   calibrate.c    more copies once the real loads are known              (1.7)
 *   shard.c        even first sharding; Algorithm 2: re-sharding          (1.8)
 *   fssdp.c        the descriptor that joins them
 * Load prediction (1.5) is mp_recent, the sum of the last loads, and topology-aware dispatch (1.9)
 * mp_plan_dispatch_nearest, since other systems use them too.
 *
 * Loads are 64-bit integers and window averages are kept as sums, so that all ranks decide equally.
 * Nothing here allocates after its create function, whose tables are the arena's: its user looks
 * whether there was memory. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reference/base/arena.h"
#include "reference/plan/system.h"

extern const struct mp_system mp_system_fssdp;
/* The same with a rule of our own: of the t hottest experts as many are copied as pay although
 * nothing hides their travel (mp_choose_overlap). */
extern const struct mp_system mp_system_frugal;

/* Named in the option table of fssdp.c; the defaults are the paper's. */
struct mp_fssdp_options {
    int window;           /* w, iterations */
    int overlap;          /* t, experts, or MP_AUTO: what hides under attention; MP_ALL */
    int memory;           /* m, extra experts per rank and layer, or MP_AUTO: what fits; MP_ALL */
    bool calibrate;       /* second materialisation after the gate */
    int reshard_interval; /* iterations between re-shardings; 0: never */
    bool rematerialise;   /* Hecate-RM: copies are freed after forward and fetched again */
};

/* t = floor(non-MoE seconds * bandwidth / expert bytes), at most the experts of a layer (1.5). */
int mp_fssdp_overlap(const struct mp_setting *setting);

/* --- Algorithm 1: sparse materialisation --------------------------------------------------------
 */
struct mp_copy {
    int32_t expert, rank;
};
struct mp_materializer {
    struct mp_topology topology;
    int experts, overlap; /* overlap: at most experts */
    struct mp_copy *copy; /* [copies] of the last call, in the order of the algorithm */
    int copies;
    int32_t *hot;             /* [overlap], working memory as all below */
    int64_t *free_slots;      /* [ranks] */
    int64_t *node_free;       /* [nodes] */
    int32_t *node_copies;     /* [nodes], of the expert being placed */
    int32_t *node_candidates; /* [nodes], ranks that could take it */
    int32_t *node_open;       /* [nodes], ranks with a free slot */
    int32_t *winner;          /* [2 * nodes], a tournament of the nodes */
    int64_t *wanted;          /* [overlap], n_e */
};
void mp_materializer_create(struct mp_arena *memory, const struct mp_topology *topology,
                            int experts, int overlap, struct mp_materializer *state);
/* Adds copies of the `overlap` hottest experts to `placement`, as far as each rank's extra copies,
 * those it has already included, stay within `memory`, and lists them in `copy`.  Starting from
 * owners only this is Algorithm 1, starting from its result the proposal of calibration. */
void mp_materialize(struct mp_materializer *state, struct mp_placement *placement,
                    const int64_t load[], int memory);

/* --- Calibration ---------------------------------------------------------------------------------
 */
struct mp_calibrator {
    struct mp_topology topology;
    double seconds_per_route;  /* computing one route forward */
    double seconds_per_border; /* one route across a rank's border, one direction */
    double seconds_per_copy;   /* one expert's parameters arriving */
    bool forward_only;         /* serving: latencies have no backward */
    int64_t *total;            /* [experts], routes of the load looked at */
    int64_t *row_total;        /* [ranks], routes that a rank's tokens make */
    int64_t *computed;         /* [ranks], routes computed on a rank */
    int64_t *local;            /* [ranks], those of its own tokens */
    int64_t *share_node;       /* [ranks + 1], working memory as all below */
    int64_t *share_all;        /* [ranks + 1] */
    int32_t *holder;           /* [ranks] */
    int32_t *arrivals;         /* [ranks] */
    struct mp_placement proposal;
};
void mp_calibrator_create(struct mp_arena *memory, const struct mp_setting *setting,
                          struct mp_calibrator *state);
/* latency(P) = 3 max computed + 4 max of routes in or out, in seconds, under the dispatch of 1.9;
 * where only forward runs, 1 and 2.
 */
double mp_calibrator_latency(struct mp_calibrator *state, const struct mp_placement *placement,
                             const struct mp_load *load);
/* Proposes copies for these loads on top of `during`, listed in `materializer`.  Returns the
 * seconds that they save: the present latency minus the new one and the exposed arrival of the
 * copies; 0 if there are none to make. */
double mp_calibration_gain(struct mp_calibrator *state, struct mp_materializer *materializer,
                           const struct mp_placement *during, const struct mp_load *load,
                           int memory);
/* Calibration proper, on the real loads: true if its copies pay. */
bool mp_calibrate(struct mp_calibrator *state, struct mp_materializer *materializer,
                  const struct mp_placement *during, const struct mp_load *load, int memory);
/* The same rule for how many of the hottest experts to copy, 0 .. t: leaves the copies of the
 * number that saves most in `materializer` and returns that number, 0 when none saves anything. */
int mp_choose_overlap(struct mp_calibrator *state, struct mp_materializer *materializer,
                      const struct mp_placement *during, const struct mp_load *load, int memory);

/* --- Sharding ------------------------------------------------------------------------------------
 */

/* Experts of all layers that rank owns, always: as many as at first (mp_even_owners, 1.8). */
int mp_shard_slots(int layers, int experts, int ranks, int rank);

struct mp_sharder {
    struct mp_topology topology;
    int layers, experts;
    int32_t *hot; /* [layers], how many of a layer's experts count as hot; all `overlap` at first */
    int32_t *order; /* [layers][experts], each layer hottest first, working memory as all below */
    int32_t *layer_order; /* [layers] */
    int64_t *layer_peak;  /* [layers], largest load among the layer's cold experts */
    int32_t *slots;       /* [ranks], free */
    int32_t *node_slots;  /* [nodes] */
    int64_t *rank_load;   /* [ranks], of the layer being sharded */
    int64_t *node_load;   /* [nodes] */
};
void mp_sharder_create(struct mp_arena *memory, const struct mp_topology *topology, int layers,
                       int experts, int overlap, struct mp_sharder *state);
/* Algorithm 2.  load, present and owner are [layers][experts]; owner must not be present. */
void mp_shard(struct mp_sharder *state, const int64_t load[], const int32_t present[],
              int32_t owner[]);
