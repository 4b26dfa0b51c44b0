/* FlexMoE as a system: layouts between iterations, options and the descriptor. */
#include "baselines/flexmoe/flexmoe.h"

#include "reference/plan/layouts.h"

#define FIELD(member) offsetof(struct mp_flexmoe_options, member)

static const struct mp_option option_table[] = {
    {"policy", MP_OPTION_CHOICE, FIELD(policy), "", "cost-model", 0, 0, "cost-model laer",
     "how slots change: by FlexMoE's cost model, or as in the variant that LAER-MoE's authors "
     "compared with"},
    {"slots", MP_OPTION_COUNT, FIELD(slots), "slots", "auto", -1, 65536, NULL,
     "for experts on each rank and layer; auto: two per expert, rounded up (all: one per expert)"},
    {"interval", MP_OPTION_INT, FIELD(interval), "iterations", "50", 1, 1e9, NULL,
     "between two looks at the balance"},
    {"threshold", MP_OPTION_DOUBLE, FIELD(threshold), "", "1.2", 1, 1e6, NULL,
     "largest over mean load of a rank above which slots change; laer: any difference"},
    {"rounds", MP_OPTION_INT, FIELD(rounds), "rounds", "10", 1, 1e6, NULL,
     "of changes to a layer at once, at most"},
    {"capacity-factor", MP_OPTION_DOUBLE, FIELD(capacity_factor), "", "0", 0, 1e6, NULL,
     "a slot takes this times its even share of all routes, what is more is dropped (1 in SYMI's "
     "comparison); 0: nothing is dropped"},
    {"moves", MP_OPTION_CHOICE, FIELD(moves), "", "asynchronous", 0, 0, "asynchronous exposed",
     "experts move under the next iteration, a layer at a time, or after the step while ranks "
     "wait"},
    {"offload-optimizer", MP_OPTION_BOOL, FIELD(offload), "", "no", 0, 0, NULL,
     "parameters and optimizer state of replicas lie in host memory and are updated there, as in "
     "SYMI's comparison"},
    {0},
};

struct flexmoe {
    struct mp_layouts layouts; /* first, as its hooks want it */
    int layers, experts, per_rank;
    int at_once;           /* layers that change after one step, at most */
    int64_t slot_capacity; /* routes, -1: no limit */
    struct mp_topology topology;
    struct mp_flexmoe_options options;
    struct mp_flex_costs costs;
    int32_t *first; /* [ranks][per_rank], working memory, owned */
    struct mp_flex flex;
};

static int slots_per_rank(const struct mp_setting *setting,
                          const struct mp_flexmoe_options *options) {
    int ranks = setting->topology.ranks;

    if (options->slots == MP_ALL)
        return setting->experts;
    return options->slots == MP_AUTO ? (2 * setting->experts + ranks - 1) / ranks : options->slots;
}

static int check_setting(const struct mp_setting *setting, const struct mp_flexmoe_options *options,
                         struct mp_error *error) {
    MP_TRY(mp_layouts_check("flexmoe", setting, slots_per_rank(setting, options),
                            options->capacity_factor, error));
    if (options->policy != MP_FLEXMOE_COST_MODEL || setting->topology.ranks == 1 ||
        setting->bandwidth > 0)
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "the cost model of flexmoe needs a bandwidth above 0, not %g B/s",
                   setting->bandwidth);
}

static int32_t owner_of(const struct flexmoe *self, int expert) {
    return mp_contiguous_owner(expert, self->experts, self->topology.ranks);
}

static void flexmoe_initial_owners(const void *opaque, int32_t owner[]) {
    const struct flexmoe *self = opaque;
    for (int i = 0; i < self->layers * self->experts; i++)
        owner[i] = owner_of(self, i % self->experts);
}

/* The layout before the first iteration: a rank has the experts that it owns and those that follow;
 * one that owns none begins with the last expert owned before it. */
static void first_layout(const struct flexmoe *self, struct mp_slots *slots) {
    int32_t *slot = slots->expert;
    int expert = 0;

    for (int rank = 0; rank < self->topology.ranks; rank++) {
        while (expert < self->experts && owner_of(self, expert) < rank)
            expert++;
        bool owns = expert < self->experts && owner_of(self, expert) == rank;
        for (int next = owns ? expert : expert - 1, end = next + self->per_rank; next < end; next++)
            *slot++ = next % self->experts;
    }
    mp_slots_index(slots, 0);
}

static bool asynchronous(const struct flexmoe *self) {
    return self->options.moves == MP_FLEXMOE_ASYNCHRONOUS;
}

static int create_parts(struct flexmoe *self) {
    struct mp_arena *memory = mp_system_arena(self);
    int ranks = self->topology.ranks;
    MP_TAKE(memory, self->first, (size_t)ranks * (size_t)self->per_rank);
    mp_flex_create(memory, ranks, self->experts, self->per_rank, &self->flex);
    mp_layouts_create(memory, self->layers, ranks, self->experts, self->per_rank, 0,
                      &self->layouts);
    if (memory->lacking)
        return MP_ENOMEM;
    for (int layer = 0; layer < self->layers; layer++)
        first_layout(self, &self->layouts.slots[layer]);
    if (asynchronous(self))
        mp_layouts_keep_earlier(&self->layouts);
    return MP_OK;
}

static int flexmoe_create(void *opaque, const struct mp_setting *setting, const void *options,
                          struct mp_error *error) {
    MP_TRY(check_setting(setting, options, error));
    struct flexmoe *self = opaque;
    self->layers = setting->layers;
    self->experts = setting->experts;
    self->topology = setting->topology;
    self->options = *(const struct mp_flexmoe_options *)options;
    self->per_rank = slots_per_rank(setting, options);
    self->at_once = asynchronous(self)
                        ? (self->layers + self->options.interval - 1) / self->options.interval
                        : self->layers;
    self->slot_capacity = mp_slot_capacity(setting, self->per_rank, self->options.capacity_factor);
    if (self->options.policy == MP_FLEXMOE_COST_MODEL && self->topology.ranks > 1)
        self->costs = mp_flex_costs(setting);
    return create_parts(self);
}

static void flexmoe_policy(const void *opaque, struct mp_policy *policy) {
    const struct flexmoe *self = opaque;
    policy->offload = self->options.offload;
}

/* What arrives in the background is there beside what is in use. */
static int flexmoe_homes_limit(const void *opaque) {
    const struct flexmoe *self = opaque;
    int limit = mp_layouts_limit(&self->layouts);
    return asynchronous(self) ? limit + limit / self->layers * self->at_once : limit;
}

/* The experts of a layer's slots to self->first.  A restored run may have begun with homes that are
 * not those remembered: then every holder has one slot. */
static int start_from_home(struct flexmoe *self, int layer, const struct mp_placement *home,
                           struct mp_error *error) {
    const struct mp_slots *slots = mp_layouts_for_home(&self->layouts, layer, home);

    for (int rank = 0; rank < slots->ranks; rank++) {
        const int32_t *from = slots->expert + (size_t)rank * (size_t)slots->per_rank;
        int32_t *to = self->first + (size_t)rank * (size_t)self->per_rank;
        int used = 0;
        for (int slot = 0; slot < slots->per_rank; slot++) {
            if (from[slot] < 0)
                continue;
            if (used == self->per_rank)
                return mp_fail(error, MP_EPLAN,
                               "flexmoe has %d slots for experts of a layer on a rank, and rank %d "
                               "holds more of layer %d",
                               self->per_rank, rank, layer);
            to[used++] = from[slot];
        }
        while (used < self->per_rank)
            to[used++] = -1;
    }
    return MP_OK;
}

static int flexmoe_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                              struct mp_error *error) {
    struct flexmoe *self = opaque;
    struct mp_slots *slots = mp_layouts_for_home(&self->layouts, plan->layer, &plan->before);

    mp_plan_slot_capacities(plan, slots, self->slot_capacity);
    return mp_plan_dispatch_slots(plan, load, slots, MP_SPREAD_TURN, error);
}

static int plan_layer(struct flexmoe *self, int layer, const struct mp_load *load,
                      const struct mp_placement *home, struct mp_rehome *change,
                      struct mp_error *error) {
    struct mp_flex *flex = &self->flex;
    MP_TRY(start_from_home(self, layer, home, error));
    mp_flex_begin(flex, self->first, load);
    int rounds =
        self->options.policy == MP_FLEXMOE_LAER
            ? mp_flex_laer_policy(flex, self->topology.ranks_per_node, self->options.rounds)
            : mp_flex_cost_policy(flex, &self->costs, self->options.threshold,
                                  self->options.rounds);
    if (rounds == 0)
        return MP_OK;
    mp_layouts_change(&self->layouts, layer, flex->expert);
    change->changed = true;
    change->asynchronous = asynchronous(self);
    return mp_slots_homes(&self->layouts.slots[layer], &change->next[layer], error);
}

/* Whether it is the layer's turn: those of an interval's end come one after another. */
static bool is_due(const struct flexmoe *self, int64_t iteration, int layer) {
    int last = (self->layers - 1) / self->at_once; /* turn */
    return (iteration + 1 + last - layer / self->at_once) % self->options.interval == 0;
}

static int flexmoe_after_step(void *opaque, int64_t iteration, const struct mp_load load[],
                              const struct mp_placement home[], struct mp_rehome *change,
                              struct mp_error *error) {
    struct flexmoe *self = opaque;

    if (self->topology.ranks == 1)
        return MP_OK;
    for (int layer = 0; layer < self->layers; layer++)
        if (is_due(self, iteration, layer))
            MP_TRY(plan_layer(self, layer, &load[layer], &home[layer], change, error));
    return MP_OK;
}

/* Saved: the layouts. */
static const char MAGIC[8] = {'M', 'P', 'F', 'L', 'E', 'X', 'S', '1'};

static size_t flexmoe_save(const void *opaque, void *buffer, size_t size) {
    const struct flexmoe *self = opaque;
    return mp_layouts_save(&self->layouts, NULL, MAGIC, buffer, size);
}

/* On another number of ranks a run begins with its first layout again, and so does this. */
static int flexmoe_load(void *opaque, const void *buffer, size_t size, struct mp_error *error) {
    struct flexmoe *self = opaque;
    struct mp_saved_layouts saved;
    MP_TRY(mp_layouts_read(&self->layouts, "flexmoe", MAGIC, buffer, size, &saved, error));
    if (saved.ranks == self->topology.ranks && saved.per_rank != self->per_rank)
        return mp_fail(error, MP_EFORMAT,
                       "the saved state of flexmoe is of %d slots per rank, the job has %d",
                       saved.per_rank, self->per_rank);
    if (saved.rest_bytes != 0)
        return mp_fail(error, MP_EFORMAT, "the saved state of flexmoe has %zu bytes instead of %zu",
                       size, size - saved.rest_bytes);
    mp_layouts_restore(&self->layouts, &saved);
    return MP_OK;
}

const struct mp_system mp_system_flexmoe = {
    .abi = MP_SYSTEM_ABI,
    .name = "flexmoe",
    .title = "FlexMoE: tied replicas that follow the load",
    .source = "FlexMoE, SIGMOD 2023 (arXiv 2304.03946), as others describe it; FLEX of LAER-MoE's "
              "code (Hetu-Galvatron, branch laer-moe)",
    .models =
        "Modelled: slots for experts (vExperts) on every rank, tokens of an expert spread evenly "
        "over its slots, tied replicas with all-reduced gradients, a search over Expands, Shrinks "
        "and Migrates by a cost model of computing, exchange and synchronisation when ranks are "
        "out of balance, optimizer state that moves with replicas in the background of one "
        "iteration, layer after layer; that state in host memory, where it is updated, if asked "
        "for; a capacity of slots with drops, if asked for; and the variant that LAER-MoE's "
        "authors published. Not modelled: moves that take several iterations, which here are "
        "waited for at the end of one, and what a change itself costs in the decision for it.",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_DROPS | MP_SYSTEM_MOVES_OWNERS |
                    MP_SYSTEM_UNEVEN_EXPERTS | MP_SYSTEM_MORE_RANKS,
    .options = option_table,
    .options_size = sizeof(struct mp_flexmoe_options),
    .size = sizeof(struct flexmoe),
    .create = flexmoe_create,
    .initial_owners = flexmoe_initial_owners,
    .initial_holders = mp_layouts_holders,
    .optimizer = MP_OPTIMIZER_REPLICATED,
    .policy = flexmoe_policy,
    .homes_limit = flexmoe_homes_limit,
    .after_gate = flexmoe_after_gate,
    .after_step = flexmoe_after_step,
    .save = flexmoe_save,
    .load = flexmoe_load,
};
