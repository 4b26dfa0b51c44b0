/* Rows of tokens that plans have travel, layer by layer, and what they come to. */
#pragma once

#include "harness/predict/carriage.h"
#include "harness/predict/gated_loads.h"
#include "harness/predict/steps.h"

/* What of a layer's rows is still needed when the plan is gone. */
struct mp_layer_rows {
    struct mp_steps *steps;  /* kept, or those that all layers share */
    struct mp_steps kept;    /* until backward */
    double *sent, *received; /* [ranks] bytes of rows across the rank's border */
    double *permute;         /* [ranks] seconds of putting sent rows in order, with one_hot what
                                the last product with its matrices took */
    int64_t one_hot;         /* rows of the matrices that they are put in order with; 0: copied */
    int64_t *sent_rows;      /* [ranks] */
    int64_t *rows;           /* [ranks] worked on */
    double *transit;         /* [ranks] bytes of rows that it passes on, at most at once */
};

struct mp_predicted_rows {
    /* Borrowed. */
    struct mp_planner *planner;
    struct mp_costs *costs;
    struct mp_network *network;
    const struct mp_gated_loads *loads;
    bool by_expert;                /* for one of a rank's experts after the other (steps.h) */
    struct mp_layer_rows *layer;   /* [layers] */
    struct mp_steps steps;         /* filled last, and not kept by a layer */
    size_t kept_bytes, kept_limit; /* of all layers' steps; and what they may come to */
    double *distinct;  /* [ranks][chunks][groups] of the layer at hand; NULL: rows are of routes */
    uint32_t *dropped; /* [layers][ranks][experts] of this iteration; NULL if nobody asks */
    /* Of this iteration. */
    double imbalance;       /* sum over layers and micro-batches of max/mean computed routes */
    double exchanged_bytes; /* across ranks' borders, all exchanges */
    int64_t routes, lost;   /* of all; and of these the dropped ones */
    int64_t copies;         /* extra holders, all layers of the last micro-batch */
    /* Working memory. */
    struct mp_steps_memory steps_memory;
    struct mp_distinct_model distinct_model;
    int64_t *computed;       /* [ranks] routes without padding */
    double *sent, *received; /* [ranks] */
};

/* Of rows whose borrowed members are set; tables are the arena's, the rest is destroyed, also after
 * an error.  `drops`: those of each source and expert are asked for.  MP_ENOMEM. */
int mp_predicted_rows_create(struct mp_arena *memory, bool drops, struct mp_predicted_rows *rows,
                             struct mp_error *error);
void mp_predicted_rows_destroy(struct mp_predicted_rows *rows);
/* An iteration begins: nothing has been counted. */
void mp_predicted_rows_begin(struct mp_predicted_rows *rows);

/* The rows of a layer whose plan is complete, whose late copies are those marked. */
int mp_predicted_rows_fill(struct mp_predicted_rows *rows, const struct mp_late_copies *late,
                           int micro_batch, int layer, struct mp_error *error);
/* The same again for backward, if they have not been kept. */
int mp_predicted_rows_restore(struct mp_predicted_rows *rows, struct mp_late_copies *late,
                              int micro_batch, int layer, int64_t iteration,
                              struct mp_error *error);
