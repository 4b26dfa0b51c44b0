/* Experts of one rank: the shards it owns, and room for the copies a plan brings.
 *
 * An owned expert has a slot: parameters, gradient sum and both moments of AdamW.  Slots belong to
 * no layer, so a layer's shard may hold 0 .. E experts while their total is fixed (Hecate,
 * systems.md 1.8); one slot more than that total lets re-sharding move experts one at a time.
 * Copies have parameters and a gradient only, in regions: one region per layer when copies live
 * until backward, two in turn when they are re-materialised. */
#ifndef MOEPERF_REFERENCE_MODEL_EXPERTS_H
#define MOEPERF_REFERENCE_MODEL_EXPERTS_H

#include "reference/model/model.h"
#include "reference/plan/plan.h"

struct mp_experts {
    struct mp_device *device; /* borrowed */
    int rank, layers, experts;
    size_t chunk;                                 /* floats of one expert */
    int slots;                                    /* owned at most, with the spare one */
    int held;                                     /* slots in use */
    int32_t *slot;                                /* [layers][experts]: slot, -1: not owned */
    bool *used;                                   /* [slots] */
    float *parameter, *gradient, *first, *second; /* [slots][chunk] */
    int regions, copies;                          /* regions, and copies in each */
    float *copy_parameter, *copy_gradient;        /* [regions][copies][chunk] */
};

/* Owns what owner [layers][experts] gives to `rank`, initialised from the seed, moments zero.
 * `slots` is the most experts that any rank will own. */
int mp_experts_create(const struct mp_model_shape *shape, struct mp_device *device, uint64_t seed,
                      int rank, const int32_t owner[], int slots, int regions, int copies,
                      struct mp_experts *experts, struct mp_error *error);
void mp_experts_destroy(struct mp_experts *experts); /* accepts a zeroed one */

/* Takes a free slot for an expert, its contents undefined; -1 when there is none. */
int mp_experts_take(struct mp_experts *experts, int layer, int expert);
/* Gives an owned expert's slot back. */
void mp_experts_give(struct mp_experts *experts, int layer, int expert);

/* Where this rank keeps each expert of the plan's layer: parameter and gradient [experts] become
 * the slot of an owned expert, the next free place of the layer's region for a copy (in the order
 * of the plan's fetch list, so that copies fetched earlier stay where they are), NULL otherwise.
 * MP_ELIMIT if the plan brings more copies than there is room for. */
int mp_experts_locate(const struct mp_experts *experts, const struct mp_plan *plan,
                      float *parameter[], float *gradient[], struct mp_error *error);

/* AdamW over all owned experts. */
void mp_experts_update(struct mp_experts *experts, mp_stream stream,
                       const struct mp_adamw *settings);

#endif
