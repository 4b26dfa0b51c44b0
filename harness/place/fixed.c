/* A placement that stays. */
#include "harness/place/place.h"

#include <string.h>

#include "reference/plan/layouts.h"

struct fixed {
    struct mp_layouts layouts[2]; /* of map, of next; first, as its hooks want it */
    struct place_fixed_options options;
    int active;
};

static int fill(struct fixed *self, const struct mp_place_map *map, struct mp_layouts *layouts) {
    const size_t slots = (size_t)map->ranks * (size_t)map->per_rank;
    mp_layouts_create(mp_system_arena(self), map->layers, map->ranks, map->experts, map->per_rank,
                      0, layouts);
    if (mp_system_arena(self)->lacking)
        return MP_ENOMEM;
    for (int layer = 0; layer < map->layers; layer++) {
        memcpy(layouts->slots[layer].expert, mp_place_slots(map, layer), slots * sizeof(int32_t));
        mp_slots_index(&layouts->slots[layer], 0);
    }
    return MP_OK;
}

static int fixed_create(void *opaque, const struct mp_setting *setting, const void *options,
                        struct mp_error *error) {
    (void)setting, (void)error;
    struct fixed *self = opaque;
    self->options = *(const struct place_fixed_options *)options;
    MP_TRY(fill(self, self->options.map, &self->layouts[0]));
    return self->options.next ? fill(self, self->options.next, &self->layouts[1]) : MP_OK;
}

static int fixed_homes_limit(const void *opaque) {
    const struct fixed *self = opaque;
    int now = mp_layouts_limit(&self->layouts[0]);
    int then = self->options.next ? mp_layouts_limit(&self->layouts[1]) : 0;
    return now > then ? now : then;
}

static int fixed_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                            struct mp_error *error) {
    struct fixed *self = opaque;
    struct mp_slots *slots =
        mp_layouts_for_home(&self->layouts[self->active], plan->layer, &plan->before);
    return mp_plan_dispatch_slots(plan, load, slots, MP_SPREAD_SOURCE, error);
}

static int fixed_after_step(void *opaque, int64_t iteration, const struct mp_load load[],
                            const struct mp_placement home[], struct mp_rehome *change,
                            struct mp_error *error) {
    struct fixed *self = opaque;
    int code = MP_OK;
    (void)iteration, (void)load, (void)home;
    if (!self->options.next || self->active)
        return MP_OK;
    for (int layer = 0; layer < self->options.next->layers && !code; layer++)
        code = mp_slots_homes(&self->layouts[1].slots[layer], &change->next[layer], error);
    change->changed = true;
    self->active = 1;
    return code;
}

const struct mp_system place_fixed = {
    .abi = MP_SYSTEM_ABI,
    .name = "placed",
    .title = "a placement that stays",
    .source = "none",
    .models = "A placement as an engine reads it from a file.",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_MOVES_OWNERS | MP_SYSTEM_UNEVEN_EXPERTS |
                    MP_SYSTEM_MORE_RANKS,
    .size = sizeof(struct fixed),
    .create = fixed_create,
    .initial_owners = mp_layouts_owners,
    .initial_holders = mp_layouts_holders,
    .optimizer = MP_OPTIMIZER_REPLICATED,
    .homes_limit = fixed_homes_limit,
    .after_gate = fixed_after_gate,
    .after_step = fixed_after_step,
};
