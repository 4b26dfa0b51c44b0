/* Experts of one rank: what it keeps between iterations, and room for what a plan brings.
 *
 * An expert that is kept (owned, or a tied replica) has a slot: parameters and gradient sum, and a
 * place for both moments of AdamW.  Slots belong to no layer, so that a rank may keep 0 .. E
 * experts of a layer while their total is limited (Hecate, systems.md 1.8); one slot more than that
 * limit lets homes change one expert at a time.  With a sliced optimizer nothing is kept whole:
 * every rank has slice r of R of every expert's parameters, gradient sum and moments.
 *
 * Products read working elements: parameters rounded to the device's element type, or the
 * parameters themselves where that is fp32.  Elements are what travels between ranks as well, but
 * for homes that change: those take parameters and moments along.
 *
 * Copies have elements and a gradient only, in regions: one region per layer when copies live
 * until backward (or, put together after a step from slices, until the next step), two in turn when
 * they are re-materialised.  With a sliced optimizer everything held is a copy. */
#ifndef MOEPERF_REFERENCE_MODEL_EXPERTS_H
#define MOEPERF_REFERENCE_MODEL_EXPERTS_H

#include "reference/model/model.h"
#include "reference/plan/plan.h"

/* What memory is laid out for. */
struct mp_experts_layout {
    int rank, ranks;
    enum mp_optimizer_split optimizer;
    int slots;           /* most experts over all layers that any rank keeps; 0 with slices */
    int regions, copies; /* regions, and copies in each */
};

struct mp_experts {
    struct mp_device *device; /* borrowed */
    struct mp_experts_layout layout;
    int layers, experts;
    size_t chunk; /* floats of one expert */

    int slots;                   /* with the spare one */
    int held;                    /* slots in use */
    int32_t *slot;               /* [layers][experts]: slot, -1: not kept */
    int32_t *moments;            /* [layers][experts]: place of the moments, -1: none */
    bool *used, *used_moments;   /* [slots] */
    float *parameter, *gradient; /* [slots][chunk] */
    float *first, *second;       /* [slots][chunk], at `moments` */
    void *working;               /* [slots][chunk] elements; `parameter` where these are fp32 */
    size_t copy_stride;          /* floats from one copy to the next: chunk, or all slices */
    void *copy_parameter;        /* [regions][copies][copy_stride] elements */
    float *copy_gradient;        /* [regions][copies][copy_stride] */

    size_t slice; /* floats of one slice, ceil(chunk / ranks); 0 unless sliced */
    float *slice_parameter, *slice_gradient, *slice_first, *slice_second; /* [L][E][slice] */
    void *slice_working; /* [L][E][slice] elements; slice_parameter where these are fp32 */
};

/* Keeps what home [layers] gives to layout->rank (or its slice of everything), initialised from the
 * seed, moments zero.  Errors: MP_ENOMEM, MP_ELIMIT (homes that need more than layout->slots). */
int mp_experts_create(const struct mp_model_shape *shape, struct mp_device *device, uint64_t seed,
                      const struct mp_placement home[], const struct mp_experts_layout *layout,
                      struct mp_experts *experts, struct mp_error *error);
void mp_experts_destroy(struct mp_experts *experts); /* accepts a zeroed one */

/* Takes a free slot, and a place for moments, for an expert; contents undefined; -1 if there is
 * none. */
int mp_experts_take(struct mp_experts *experts, int layer, int expert);
/* Gives a kept expert's slot and the place of its moments back. */
void mp_experts_give(struct mp_experts *experts, int layer, int expert);

/* Where this rank keeps each expert of the plan's layer: parameter and gradient [experts] become
 * the slot of an expert that is kept, the next free place of the layer's region for a copy (in the
 * order of the plan's fetch list, so that copies fetched earlier stay where they are; with slices
 * in ascending order of experts), NULL otherwise. MP_ELIMIT if the plan brings more copies than
 * there is room for. */
int mp_experts_locate(const struct mp_experts *experts, const struct mp_plan *plan,
                      void *parameter[], float *gradient[], struct mp_error *error);

/* The same with slices, for what a home says (or any placement of `layer`). */
int mp_experts_locate_held(const struct mp_experts *experts, int layer,
                           const struct mp_placement *placement, void *parameter[],
                           float *gradient[], struct mp_error *error);

/* Slice `rank` of an expert's elements inside a copy, or of the copy's gradient; and this rank's
 * own slice of `what` (slice_parameter, ...) or of slice_working. */
static inline void *mp_experts_slice_of(const struct mp_experts *experts, void *copy, int rank) {
    return mp_element_at(experts->device, copy, (size_t)rank * experts->slice);
}
static inline float *mp_experts_gradient_slice_of(const struct mp_experts *experts, float *copy,
                                                  int rank) {
    return copy + (size_t)rank * experts->slice;
}
static inline float *mp_experts_own_slice(const struct mp_experts *experts, float *what, int layer,
                                          int expert) {
    return what + ((size_t)layer * (size_t)experts->experts + (size_t)expert) * experts->slice;
}

static inline void *mp_experts_own_elements(const struct mp_experts *experts, int layer,
                                            int expert) {
    return mp_element_at(experts->device, experts->slice_working,
                         ((size_t)layer * (size_t)experts->experts + (size_t)expert) *
                             experts->slice);
}

/* Parameters, first and second moment of what this rank keeps of an expert, whole or its slice of
 * it: false if nothing. */
bool mp_experts_state(const struct mp_experts *experts, int layer, int expert, float *state[3]);

/* Makes the working elements of an expert that this rank keeps those of its parameters, after these
 * were written by others than mp_experts_update; nothing where it keeps none.  The same for
 * everything kept. */
void mp_experts_refresh(struct mp_experts *experts, mp_stream stream, int layer, int expert);
void mp_experts_refresh_all(struct mp_experts *experts, mp_stream stream);

/* AdamW over everything kept. */
void mp_experts_update(struct mp_experts *experts, mp_stream stream,
                       const struct mp_adamw *settings);

#endif
