/* What ranks hold in memory: experts between iterations, copies, gradients, rows. */
#pragma once

#include "harness/predict/rows.h"

struct mp_holding {
    /* Borrowed. */
    const struct mp_planner *planner;
    const struct mp_costs *costs;
    const struct mp_predicted_rows *rows;
    int ranks, layers, micro_batches;
    double *kept;              /* [ranks] experts whose home the rank is, all layers */
    double *kept_of_layer;     /* [layers][ranks] */
    double *held_of_layer;     /* [layers][ranks] and with holders for the iteration */
    double *optimizer_seconds; /* [ranks] of the update, but for experts updated in backward */
    /* [ranks] When the rank was fullest so far, and bytes then. */
    struct mp_memory_use *most;
    double *most_total;
};

/* Of a holding whose borrowed members and numbers are set; tables are the arena's.  MP_ENOMEM. */
int mp_holding_create(struct mp_arena *memory, struct mp_holding *holding, struct mp_error *error);

/* Homes are the planner's from now on. */
void mp_holding_count_homes(struct mp_holding *holding);
/* Of a layer's experts that are updated in backward, seconds. */
double mp_holding_layer_update(const struct mp_holding *holding, int layer, int rank);
/* What moves in the background takes room beside what is in use until then. */
void mp_holding_expect_moves(struct mp_holding *holding);
/* Who holds what is what the complete plan says. */
void mp_holding_count_copies(struct mp_holding *holding, int layer);
/* Ranks are as full as they get, now that all layers are planned. */
void mp_holding_count_memory(struct mp_holding *holding);
