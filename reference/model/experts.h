/* Experts of one rank: what it keeps between iterations, and room for what a plan brings.
 *
 * An expert that is kept (owned, or a tied replica) has a slot: parameters and gradient sum, and a
 * place for both moments of AdamW.  Slots belong to no layer, so that a rank may keep 0 .. E
 * experts of a layer while their total is limited (Hecate, algorithm 2); one slot more than that
 * limit lets homes change one expert at a time.  With a sliced optimizer nothing is kept whole: a
 * slot is for one slice of an expert's parameters, gradient sum and moments, and there are as many
 * as the rank keeps.
 *
 * Products read working elements: parameters rounded to the device's element type, or the
 * parameters themselves where that is fp32 and on the device.  Elements are what travels between
 * ranks as well, but for homes that change: those take parameters and moments along.
 *
 * State that is offloaded lies in page-locked memory of the host, whose processors update it: once
 * per step gradients go down and parameters come up, in fp32, and become elements on the device.
 * Homes that change take it from host to host.
 *
 * Copies have elements and a gradient only, in regions: one region per layer when copies live
 * until backward (or, put together after a step from slices, until the next step), two in turn when
 * they are re-materialised.  With a sliced optimizer everything held is a copy. */
#pragma once

#include "reference/model/model.h"
#include "reference/plan/plan.h"

/* What memory is laid out for. */
struct mp_experts_layout {
    int rank, ranks;
    enum mp_optimizer_split optimizer;
    struct mp_device *host; /* updates what is offloaded, a device of fp32 in host memory; NULL:
                               nothing is.  Borrowed */
    int slots;              /* most experts over all layers that any rank keeps; 0 with slices */
    int regions, copies;    /* regions, and copies in each */
    bool serves; /* parameters alone: neither gradients nor moments, and nothing is offloaded */
};

struct mp_experts {
    struct mp_device *device; /* borrowed */
    struct mp_experts_layout layout;
    int layers, experts;
    size_t chunk; /* floats of one expert */

    int keepers;  /* slices of an expert; 1 unless sliced */
    size_t slice; /* floats of one slice, ceil(chunk / keepers); 0 unless sliced */
    size_t kept;  /* floats of a slot: slice, or chunk */

    int slots;                   /* with the spare one */
    int held;                    /* slots in use */
    int32_t *slot;               /* [layers][experts]: slot, -1: not kept */
    int32_t *moments;            /* [layers][experts]: place of the moments, -1: none */
    int32_t *piece;              /* [layers][experts]: which slice is kept; 0 unless sliced */
    bool *used, *used_moments;   /* [slots] */
    bool *updated;               /* [layers][experts] in this step already */
    float *parameter, *gradient; /* [slots][kept] */
    float *first, *second;       /* [slots][kept], at `moments`; like gradients NULL in serving */
    float *host_gradient;        /* [slots][kept] what has come down; NULL unless offloaded */
    void *working;               /* [slots][kept] elements; may be `parameter` */
    size_t copy_stride;          /* floats from one copy to the next: chunk, or all slices */
    void *copy_parameter;        /* [regions][copies][copy_stride] elements */
    float *copy_gradient;        /* [regions][copies][copy_stride] */
    int64_t host_bytes;          /* that updates have moved to and from the host so far */
    struct mp_arena memory;      /* of the tables */
    struct mp_device_memory blocks; /* all other memory */
};

/* Keeps what home [layers] gives to layout->rank (or its slices), initialised from the seed,
 * moments zero.  Errors: MP_ENOMEM, MP_EPLAN (homes with unequally many replicas, which can't be
 * slices of one length), MP_ELIMIT (homes that need more than layout->slots). */
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
 * in ascending order of experts), NULL otherwise.  A copy that was sent ahead is where
 * mp_experts_locate_ahead has put it.  MP_ELIMIT if the plan brings more copies than there is room
 * for. */
int mp_experts_locate(const struct mp_experts *experts, const struct mp_plan *plan,
                      void *parameter[], float *gradient[], struct mp_error *error);

/* Where what the plan sends ahead is, or comes to: places of the layer's region in ascending order
 * of experts.  `parameter` of all others is NULL.  MP_ELIMIT. */
int mp_experts_locate_ahead(const struct mp_experts *experts, const struct mp_plan *plan,
                            void *parameter[], struct mp_error *error);

/* The same with slices, for what a home says (or any placement of `layer`). */
int mp_experts_locate_held(const struct mp_experts *experts, int layer,
                           const struct mp_placement *placement, void *parameter[],
                           float *gradient[], struct mp_error *error);

/* What this rank keeps of an expert, whole or its slice: gradient, or elements; NULL if nothing. */
static inline float *mp_experts_own_gradient(const struct mp_experts *experts, int layer,
                                             int expert) {
    int32_t slot = experts->slot[layer * experts->experts + expert];
    return slot < 0 || !experts->gradient ? NULL : experts->gradient + (size_t)slot * experts->kept;
}
static inline void *mp_experts_own_elements(const struct mp_experts *experts, int layer,
                                            int expert) {
    int32_t slot = experts->slot[layer * experts->experts + expert];
    return slot < 0
               ? NULL
               : mp_element_at(experts->device, experts->working, (size_t)slot * experts->kept);
}

/* Parameters, first and second moment (NULL in serving) of what this rank keeps of an expert, whole
 * or its slice of it: false if nothing.  In host memory if they are offloaded. */
bool mp_experts_state(const struct mp_experts *experts, int layer, int expert, float *state[3]);
/* Writes into such state from memory of the host. */
void mp_experts_write(const struct mp_experts *experts, float *to, const float *from, size_t count);

/* Makes the working elements of an expert that this rank keeps those of its parameters, after these
 * were written by others than mp_experts_update; nothing where it keeps none.  Not with slices.
 * The same for everything kept, with slices too.  Gradients are undefined afterwards. */
void mp_experts_refresh(struct mp_experts *experts, mp_stream stream, int layer, int expert);
void mp_experts_refresh_all(struct mp_experts *experts, mp_stream stream);

/* Where AdamW finds one of the two matrices of an expert that this rank keeps whole, on the device:
 * `offset` floats behind the expert's first one.  Whoever has updated both says so. */
struct mp_weight_state mp_experts_weight(const struct mp_experts *experts, int layer, int expert,
                                         size_t offset);
static inline void mp_experts_note_updated(struct mp_experts *experts, int layer, int expert) {
    experts->updated[layer * experts->experts + expert] = true;
}

/* AdamW over everything kept of a layer that has not been updated in this step; not with slices,
 * nor where it is offloaded. */
void mp_experts_update_layer(struct mp_experts *experts, mp_stream stream,
                             const struct mp_adamw *settings, int layer);

/* AdamW over everything kept that has not been updated in this step; where it is offloaded, with
 * gradients' way down and parameters' way up, after which gradients are undefined. */
void mp_experts_update(struct mp_experts *experts, mp_stream stream,
                       const struct mp_adamw *settings);
