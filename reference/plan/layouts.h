/* Layouts: the slots of every layer, as a planner leaves them from one iteration to the next.
 *
 * What slot-based systems share beside the layouts themselves: homes made of slots, slots for homes
 * that others made, and the way through a checkpoint. */
#pragma once

#include <stddef.h>

#include "reference/base/arena.h"
#include "reference/plan/recent.h"
#include "reference/plan/slots.h"
#include "reference/plan/system.h"

struct mp_layouts {
    struct mp_arena *memory; /* borrowed */
    int layers, ranks, experts, per_rank;
    int ranks_per_node;       /* as mp_slots_index takes it */
    struct mp_slots *slots;   /* [layers], for the planner to fill and to index */
    struct mp_slots *earlier; /* [layers] those before the last change; NULL: not kept */
    struct mp_slots derived;  /* one slot per holder, for homes that are not those of `slots` */
    int32_t *seen;            /* [experts] working memory */
};

/* All slots empty; every expert must get one before anything below is called.  `ranks_per_node` is
 * for mp_slots_index.  Tables are the arena's, whose user looks whether there was memory. */
void mp_layouts_create(struct mp_arena *memory, int layers, int ranks, int experts, int per_rank,
                       int ranks_per_node, struct mp_layouts *layouts);

/* MP_EINVAL, with the job's numbers behind the system's name, for slots on each rank that are too
 * few for the experts, or a factor of capacity (mp_slot_capacity) that leaves them nothing or that
 * shards of an expert can't share. */
int mp_layouts_check(const char *system, const struct mp_setting *setting, int per_rank,
                     double capacity_factor, struct mp_error *error);

/* From now on also the slots that a layer had before it last changed: moves in the background leave
 * them in use for a while.  Likewise. */
void mp_layouts_keep_earlier(struct mp_layouts *layouts);
/* A layer's slots become these, [ranks][per_rank]. */
void mp_layouts_change(struct mp_layouts *layouts, int layer, const int32_t expert[]);

/* Hooks of systems whose structs begin with a struct mp_layouts: an expert's owner is the lowest
 * rank with a slot of it, its holders are all ranks with one. */
void mp_layouts_owners(const void *self, int32_t owner[]);
void mp_layouts_holders(const void *self, struct mp_placement home[]);
/* For homes_limit: experts of all layers that one rank can have slots for. */
int mp_layouts_limit(const struct mp_layouts *layouts);

/* The slots that a layer's homes stand for: the planner's own if holders and ranks with a slot are
 * the same, or the earlier ones, and otherwise one slot for every holder.  Homes are others than
 * those remembered when a run goes on from a checkpoint of other ranks or of another system. */
struct mp_slots *mp_layouts_for_home(struct mp_layouts *layouts, int layer,
                                     const struct mp_placement *home);

/* Saved: the magic, layers, experts, ranks and slots per rank as int32_t, and the expert of every
 * slot, [layers][ranks][slots]; then `recent`, unless that is NULL.  Writes at most `size` bytes
 * and returns the bytes needed. */
size_t mp_layouts_save(const struct mp_layouts *layouts, const struct mp_recent *recent,
                       const char magic[8], void *buffer, size_t size);

/* What was saved, borrowed from the buffer. */
struct mp_saved_layouts {
    int32_t ranks, per_rank;
    const char *expert; /* of the slots, not aligned */
    const char *rest;   /* what comes after */
    size_t rest_bytes;
};
/* Changes nothing.  MP_EFORMAT, with `system` in the sentence, unless layers and experts are those
 * of the job and in every layer each expert has a slot. */
int mp_layouts_read(struct mp_layouts *layouts, const char *system, const char magic[8],
                    const void *buffer, size_t size, struct mp_saved_layouts *saved,
                    struct mp_error *error);
/* Takes the saved slots over.  Those of another number of ranks or slots are of no use: then the
 * present ones stay. */
void mp_layouts_restore(struct mp_layouts *layouts, const struct mp_saved_layouts *saved);
