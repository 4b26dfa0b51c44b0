/* Counts: what ranks tell each other of a layer's gate, as often as each expert was chosen, and the
 * balancing loss and biases that follow from it. */
#pragma once

#include "reference/plan/load.h"
#include "reference/trainer/batch.h"
#include "reference/trainer/distinct.h"

struct mp_counts {
    const struct mp_job *job; /* borrowed, as is all down to the request */
    const struct mp_batch *batch;
    struct mp_comm *comm;
    struct mp_model *model;
    struct mp_distinct_rows *distinct;
    struct mp_load *load; /* [L] */
    struct mp_request *request;
    uint32_t *own;       /* [2 + C][E] routes, firsts, and routes of each of C chunks of tokens */
    uint32_t *all;       /* [R][2 + C][E], with room for the most chunks */
    double *loss_factor; /* [E] of the balancing loss, as the gate has them here; NULL: ones */
    double *loss;        /* [L] this rank's part of the auxiliary loss */
    float *slope, *step; /* [L][parts][E] and [L][E] of biases, the model's host memory */
};

/* Borrowed members but the request are set.  MP_ENOMEM. */
int mp_counts_create(struct mp_counts *counts, struct mp_arena *arena, struct mp_error *error);

/* Tells all ranks of counts->own; the layer's load and chunks' routes of all are there once it has
 * been waited for, this rank's part of the auxiliary loss and its gradient on their way. */
int mp_counts_start(struct mp_counts *counts, struct mp_error *error);
int mp_counts_wait(struct mp_counts *counts, int layer, struct mp_error *error);

/* This rank's part of the auxiliary loss, all layers'. */
double mp_counts_loss(const struct mp_counts *counts);
/* After an update: biases of gates that have one move towards even loads. */
void mp_counts_move_biases(struct mp_counts *counts);
