/* SYMI as a system: options, layouts that follow popularity, plans and the descriptor. */
#include "baselines/swiftmoe/swiftmoe.h"

#include "reference/plan/layouts.h"

#define FIELD(member) offsetof(struct mp_swiftmoe_options, member)

static const struct mp_option option_table[] = {
    {"slots", MP_OPTION_COUNT, FIELD(slots), "slots", "auto", -1, 65536, NULL,
     "room for experts per rank and layer (the paper has 4 with as many experts as ranks); auto: "
     "twice what holding every expert once needs; all: as many as there are experts"},
    {"capacity-factor", MP_OPTION_DOUBLE, FIELD(capacity_factor), "", "1", 0, 1e6, NULL,
     "a slot takes this times its even share of all routes, what is more is dropped; 0: nothing "
     "is dropped"},
    {"offload-optimizer", MP_OPTION_BOOL, FIELD(offload), "", "no", 0, 0, NULL,
     "optimizer state in host memory, where it is updated, as in the paper's measurements"},
    {0},
};

struct swiftmoe {
    struct mp_layouts layouts; /* first, as its hooks want it; what the homes should be now */
    int64_t slot_capacity;     /* routes, -1: no limit */
    bool offload;
    struct mp_recent popularity; /* of the last iteration, cells [layers][experts] */
    int64_t *difference;         /* [experts], working memory */
    int32_t *count;              /* [experts], working memory */
};

int mp_swiftmoe_slots(const struct mp_setting *setting, const struct mp_swiftmoe_options *options) {
    int ranks = setting->topology.ranks, experts = setting->experts;

    if (options->slots == MP_ALL)
        return experts;
    if (options->slots == MP_AUTO)
        return 2 * (experts / ranks + (experts % ranks != 0));
    return options->slots;
}

/* Ranks with a slot of an expert are its homes, and the lowest of them makes the sum of their
 * gradients: where an expert ends and the next one begins, a rank sends one sum on and receives the
 * other one, and never two.  Nothing lies with an owner for which it had to stay. */
static int find_homes(const struct mp_slots *slots, struct mp_placement *home,
                      struct mp_error *error) {
    MP_TRY(mp_slots_homes(slots, home, error));
    for (int expert = 0; expert < slots->experts; expert++)
        home->owner[expert] = mp_placement_next(home, expert, 0);
    return MP_OK;
}

/* The layouts that follow from layers' popularity; none yet: equal goals. */
static int lay_out_all(struct swiftmoe *self, struct mp_error *error) {
    for (int layer = 0; layer < self->layouts.layers; layer++) {
        struct mp_slots *slots = &self->layouts.slots[layer];
        const int64_t *popularity = self->popularity.sum + (size_t)layer * (size_t)slots->experts;
        MP_TRY(mp_swiftmoe_counts(popularity, slots->experts, slots->ranks * slots->per_rank,
                                  self->difference, self->count, error));
        mp_swiftmoe_place(self->count, slots);
    }
    return MP_OK;
}

static int swiftmoe_create(void *opaque, const struct mp_setting *setting, const void *options,
                           struct mp_error *error) {
    const struct mp_swiftmoe_options *chosen = options;
    const int per_rank = mp_swiftmoe_slots(setting, options);
    MP_TRY(mp_layouts_check("swiftmoe", setting, per_rank, chosen->capacity_factor, error));
    struct swiftmoe *self = opaque;
    struct mp_arena *memory = mp_system_arena(self);
    self->slot_capacity = mp_slot_capacity(setting, per_rank, chosen->capacity_factor);
    self->offload = chosen->offload;
    MP_TAKE_EACH(memory, setting->experts, self->difference, self->count);
    mp_recent_create(memory, (size_t)setting->layers * (size_t)setting->experts, 1,
                     &self->popularity);
    mp_layouts_create(memory, setting->layers, setting->topology.ranks, setting->experts, per_rank,
                      0, &self->layouts);
    if (memory->lacking)
        return MP_ENOMEM;
    MP_TRY(lay_out_all(self, error));
    /* A run that was restored on other ranks begins with this layout whatever was popular. */
    mp_layouts_keep_earlier(&self->layouts);
    return MP_OK;
}

static void swiftmoe_policy(const void *opaque, struct mp_policy *policy) {
    const struct swiftmoe *self = opaque;
    policy->offload = self->offload;
}

static int swiftmoe_copies_limit(const void *opaque) {
    const struct mp_layouts *layouts = opaque;
    return layouts->per_rank < layouts->experts ? layouts->per_rank : layouts->experts;
}

static int swiftmoe_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                               struct mp_error *error) {
    struct swiftmoe *self = opaque;
    struct mp_slots *slots = mp_layouts_for_home(&self->layouts, plan->layer, &plan->before);

    mp_plan_slot_capacities(plan, slots, self->slot_capacity);
    return mp_plan_dispatch_slots(plan, load, slots, MP_SPREAD_TURN, error);
}

static int swiftmoe_after_step(void *opaque, int64_t iteration, const struct mp_load load[],
                               const struct mp_placement home[], struct mp_rehome *change,
                               struct mp_error *error) {
    struct swiftmoe *self = opaque;
    int layers = self->layouts.layers;

    (void)iteration;
    mp_recent_push_totals(&self->popularity, load, layers);
    MP_TRY(lay_out_all(self, error));
    for (int layer = 0; layer < layers; layer++) {
        MP_TRY(find_homes(&self->layouts.slots[layer], &change->next[layer], error));
        change->changed |= !mp_placement_equal(&change->next[layer], &home[layer]);
    }
    return MP_OK;
}

static size_t swiftmoe_save(const void *opaque, void *buffer, size_t size) {
    const struct swiftmoe *self = opaque;
    return mp_recent_save(&self->popularity, buffer, size);
}

static int swiftmoe_load(void *opaque, const void *buffer, size_t size, struct mp_error *error) {
    struct swiftmoe *self = opaque;
    MP_TRY(mp_recent_load(&self->popularity, buffer, size, error));
    return lay_out_all(self, error);
}

const struct mp_system mp_system_swiftmoe = {
    .abi = MP_SYSTEM_ABI,
    .name = "swiftmoe",
    .title = "SwiftMoE (SYMI): replicas follow popularity in every iteration",
    .source = "SYMI, arXiv 2504.19925 v2 (v1: SwiftMoE); no public code known",
    .models =
        "Modelled: optimizer in uniform slices over all ranks, slots per expert in proportion to "
        "the routes of the previous iteration with the published rounding, replicas on "
        "neighbouring ranks, gradients summed over replicas and sent to the slices by the "
        "published source rule, weights put together on the new slots after every step, capacity "
        "per slot and drops; routes of an expert in turn over its slots; the optimizer in host "
        "memory, if asked for. Not modelled: weights that are sent asynchronously after the step "
        "(the next iteration waits for them).",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_DROPS | MP_SYSTEM_MOVES_OWNERS |
                    MP_SYSTEM_UNEVEN_EXPERTS | MP_SYSTEM_MORE_RANKS,
    .options = option_table,
    .options_size = sizeof(struct mp_swiftmoe_options),
    .size = sizeof(struct swiftmoe),
    .create = swiftmoe_create,
    .initial_owners = mp_layouts_owners,
    .initial_holders = mp_layouts_holders,
    .optimizer = MP_OPTIMIZER_SLICES_OF_SUM,
    .policy = swiftmoe_policy,
    .copies_limit = swiftmoe_copies_limit,
    .after_gate = swiftmoe_after_gate,
    .after_step = swiftmoe_after_step,
    .save = swiftmoe_save,
    .load = swiftmoe_load,
};
