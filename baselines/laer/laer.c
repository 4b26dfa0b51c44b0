/* LAER-MoE as a system: candidates for the next layout, and the descriptor. */
#include "baselines/laer/laer.h"

#include <string.h>

#include "baselines/flexmoe/flexmoe.h"
#include "reference/base/random.h"
#include "reference/plan/layouts.h"
#include "reference/plan/recent.h"

#define FIELD(member) offsetof(struct mp_laer_options, member)

static const struct mp_option option_table[] = {
    {"slots", MP_OPTION_COUNT, FIELD(slots), "experts", "auto", -1, 65536, NULL,
     "experts of a layer on one rank (C); auto: the larger of top-k and two slots per expert, "
     "which are the paper's 2 and 4; all: every expert"},
    {"window", MP_OPTION_INT, FIELD(window), "iterations", "5", 1, 1000, NULL,
     "iterations whose loads are summed to plan the next layout"},
    {"layout", MP_OPTION_CHOICE, FIELD(layout), "", "planned", 0, 0, "planned static flex",
     "planned after every iteration; or the paper's baseline FSDP with expert parallelism, slot i "
     "of rank j having expert i * E / C + j mod E / C; or its baseline FLEX, which changes that "
     "layout by FlexMoE's primitives"},
    {"even", MP_OPTION_BOOL, FIELD(even), "", "yes", 0, 0, NULL,
     "try as many slots for every expert, where experts divide slots (no: ablation no_even)"},
    {"priority-queue", MP_OPTION_BOOL, FIELD(priority_queue), "", "yes", 0, 0, NULL,
     "try slots by load, the most loaded first (no: ablation no_pq)"},
    {"perturbations", MP_OPTION_INT, FIELD(perturbations), "layouts", "0", 0, 1000, NULL,
     "further tries, each with a slot moved from one expert to another at random"},
    {"bandwidth-in-node", MP_OPTION_DOUBLE, FIELD(bandwidth_in_node), "B/s", "0", 0, 1e18, NULL,
     "of routes that stay in a node, for the cost (the paper's 2.16269e11); 0: measured"},
    {"bandwidth-between-nodes", MP_OPTION_DOUBLE, FIELD(bandwidth_between_nodes), "B/s", "0", 0,
     1e18, NULL, "of routes that leave it, for the cost (the paper's 8.89539e10); 0: measured"},
    {"seconds-per-route", MP_OPTION_DOUBLE, FIELD(seconds_per_route), "s", "0", 0, 1e6, NULL,
     "forward of one route through an expert, for the cost (the code's default is 1.484375e-6); 0: "
     "measured"},
    {"rematerialise", MP_OPTION_BOOL, FIELD(rematerialise), "", "yes", 0, 0, NULL,
     "free experts after forward and put them together again for backward, as FSDP does"},
    {"prefetch", MP_OPTION_INT, FIELD(prefetch), "layers", "1", 0, MP_MOST_AHEAD + 1, NULL,
     "experts are put together so many layers ahead: 1 under the attention before them, 2 from the "
     "attention of the layer above on; 0: all after the optimizer, where nothing hides it"},
    {0},
};

enum { PERTURBATION_SEED = 2333, FLEX_ROUNDS = 10 };

struct laer {
    struct mp_layouts layouts; /* first, as its hooks want it */
    struct mp_setting setting;
    struct mp_laer_options options;
    int per_rank; /* C */
    struct mp_laer_costs costs;
    struct mp_queue queue;
    struct mp_laer_placer placer;
    struct mp_laer_evaluator evaluator;
    struct mp_recent recent;          /* cells [layers][ranks][experts] */
    struct mp_slots best, trial;      /* of the layer being planned */
    int64_t *total;                   /* [experts] */
    int32_t *heap_replicas, *changed; /* [experts] */
    /* With layout flex: */
    struct mp_flex flex;
    struct mp_load *recent_load; /* of the layer being planned */
};

/* C under these options. */
static int slots_per_rank(const struct mp_setting *setting, const struct mp_laer_options *options) {
    int experts = setting->experts, ranks = setting->topology.ranks;

    if (options->slots != MP_AUTO)
        return options->slots == MP_ALL ? experts : options->slots;
    int slots = 2 * ((experts - 1) / ranks + 1);
    if (slots < setting->top_k)
        slots = setting->top_k;
    return slots < experts ? slots : experts;
}

static int check_slots(const struct mp_setting *setting, const struct mp_laer_options *options,
                       struct mp_error *error) {
    int experts = setting->experts, ranks = setting->topology.ranks;
    int slots = slots_per_rank(setting, options);
    int64_t all = (int64_t)slots * ranks;

    MP_TRY(mp_layouts_check("laer", setting, slots, 0, error));
    if (options->layout != MP_LAER_PLANNED && (experts % slots != 0 || ranks < experts / slots))
        return mp_fail(error, MP_EINVAL,
                       "laer with layout static or flex spreads the experts over experts / slots "
                       "ranks: %d experts with %d slots on %d ranks can't",
                       experts, slots, ranks);
    if (options->layout == MP_LAER_PLANNED && !options->priority_queue &&
        (!options->even || all % experts != 0))
        return mp_fail(error, MP_EINVAL,
                       "laer without its priority queue needs option even and a whole number of "
                       "slots per expert: %lld slots for %d experts",
                       (long long)all, experts);
    return MP_OK;
}

/* Whether layouts are compared at all. */
static bool compares(const struct mp_setting *setting, const struct mp_laer_options *options) {
    int all = slots_per_rank(setting, options) * setting->topology.ranks;
    bool even = options->even && all % setting->experts == 0;

    return options->layout == MP_LAER_PLANNED && setting->topology.ranks > 1 &&
           even + options->priority_queue + options->perturbations > 1;
}

static double otherwise(double option, double measured) {
    return option > 0 ? option : measured;
}

static int check_figures(const struct mp_setting *setting, const struct mp_laer_options *options,
                         struct mp_error *error) {
    if (!compares(setting, options))
        return MP_OK;
    if (!(otherwise(options->bandwidth_in_node, setting->bandwidth_in_node) > 0) ||
        !(otherwise(options->bandwidth_between_nodes, setting->bandwidth) > 0))
        return mp_fail(error, MP_EINVAL,
                       "laer needs bandwidths above 0, in nodes and between them; its options are "
                       "%g and %g B/s, and measured were %g and %g B/s",
                       options->bandwidth_in_node, options->bandwidth_between_nodes,
                       setting->bandwidth_in_node, setting->bandwidth);
    return MP_OK;
}

struct mp_laer_costs mp_laer_costs(const struct mp_setting *setting,
                                   const struct mp_laer_options *options) {
    double bytes = (double)setting->route_bytes;

    return (struct mp_laer_costs){
        .in_node = bytes / otherwise(options->bandwidth_in_node, setting->bandwidth_in_node),
        .between_nodes = bytes / otherwise(options->bandwidth_between_nodes, setting->bandwidth),
        .compute = otherwise(options->seconds_per_route, setting->seconds_per_route),
        .forward_only = setting->forward_only,
    };
}

/* Even allocation, if there is a whole number of slots per expert. */
static bool allocate_evenly(const struct laer *self, int32_t replicas[]) {
    int experts = self->setting.experts, all = self->per_rank * self->setting.topology.ranks;

    for (int expert = 0; expert < experts; expert++)
        replicas[expert] = all / experts;
    return all % experts == 0;
}

static void allocate_by_load(struct laer *self, const int64_t load[], int32_t replicas[]) {
    const struct mp_topology *topology = &self->setting.topology;

    mp_laer_replicas(load, self->setting.experts, self->per_rank * topology->ranks,
                     mp_topology_nodes(topology), replicas, &self->queue);
}

/* The layout before the first loads. */
static void place_first(struct laer *self, struct mp_slots *slots) {
    int ranks_per_node = self->setting.topology.ranks_per_node;

    if (self->options.layout != MP_LAER_PLANNED) {
        mp_laer_place_static(slots, ranks_per_node);
        return;
    }
    for (int expert = 0; expert < self->setting.experts; expert++)
        self->total[expert] = 1;
    if (!self->options.even || !allocate_evenly(self, self->changed))
        allocate_by_load(self, self->total, self->changed);
    mp_laer_place(&self->placer, self->total, self->changed, slots);
}

static int create_parts(struct laer *self) {
    struct mp_arena *memory = mp_system_arena(self);
    const struct mp_topology *topology = &self->setting.topology;
    int layers = self->setting.layers, experts = self->setting.experts, ranks = topology->ranks;

    MP_TAKE_EACH(memory, experts, self->total, self->heap_replicas, self->changed);
    self->recent_load = mp_loads_take(memory, 1, ranks, experts);
    mp_queue_create(memory, experts, &self->queue);
    mp_laer_placer_create(memory, topology, experts, &self->placer);
    mp_laer_evaluator_create(memory, topology, experts, self->per_rank, &self->evaluator);
    mp_recent_create(memory, (size_t)layers * (size_t)ranks * (size_t)experts, self->options.window,
                     &self->recent);
    if (self->options.layout == MP_LAER_FLEX)
        mp_flex_create(memory, ranks, experts, self->per_rank, &self->flex);
    mp_slots_create(memory, ranks, experts, self->per_rank, &self->best);
    mp_slots_create(memory, ranks, experts, self->per_rank, &self->trial);
    mp_layouts_create(memory, layers, ranks, experts, self->per_rank, topology->ranks_per_node,
                      &self->layouts);
    if (memory->lacking)
        return MP_ENOMEM;
    for (int layer = 0; layer < layers; layer++)
        place_first(self, &self->layouts.slots[layer]);
    return MP_OK;
}

static int laer_create(void *opaque, const struct mp_setting *setting, const void *options,
                       struct mp_error *error) {
    MP_TRY(check_slots(setting, options, error));
    MP_TRY(check_figures(setting, options, error));
    struct laer *self = opaque;
    self->setting = *setting;
    self->options = *(const struct mp_laer_options *)options;
    self->per_rank = slots_per_rank(setting, options);
    if (compares(setting, options))
        self->costs = mp_laer_costs(setting, options);
    return create_parts(self);
}

static int laer_copies_limit(const void *opaque) {
    const struct laer *self = opaque;
    return self->per_rank < self->setting.experts ? self->per_rank : self->setting.experts;
}

static void laer_policy(const void *opaque, struct mp_policy *policy) {
    const struct laer *self = opaque;

    if (self->options.prefetch == 0)
        return;
    policy->gather_before_gate = true;
    policy->gather_ahead = self->options.prefetch - 1;
    policy->rematerialise = self->options.rematerialise;
}

static int laer_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                           struct mp_error *error) {
    struct laer *self = opaque;
    struct mp_slots *slots = mp_layouts_for_home(&self->layouts, plan->layer, &plan->before);

    return mp_plan_dispatch_slots(plan, load, slots, MP_SPREAD_NODE, error);
}

/* --- Planning --- */

/* The search for one layer's layout. */
struct search {
    const int64_t *count; /* [ranks][experts] */
    double cost;          /* of self->best */
    int tries;
};

static void try_layout(struct laer *self, const int32_t replicas[], struct search *search) {
    mp_laer_place(&self->placer, self->total, replicas, &self->trial);
    double cost = 0;
    if (compares(&self->setting, &self->options))
        cost = mp_laer_cost(&self->evaluator, &self->trial, search->count, &self->costs);
    if (search->tries++ == 0 || cost < search->cost) {
        struct mp_slots better = self->trial;
        self->trial = self->best;
        self->best = better;
        search->cost = cost;
    }
}

/* Any state is a good one. */
static uint64_t next_random(uint64_t *state) {
    uint64_t drawn = mp_random_splitmix(*state);
    *state += MP_SPLITMIX_STEP;
    return drawn;
}

/* A slot from an expert with several to another. */
static void perturb(const int32_t replicas[], int experts, uint64_t *random, int32_t changed[]) {
    int several = 0;

    memcpy(changed, replicas, (size_t)experts * sizeof *changed);
    for (int expert = 0; expert < experts; expert++)
        several += replicas[expert] > 1;
    if (several == 0 || experts < 2)
        return;
    int skip = (int)(next_random(random) % (uint64_t)several), from = -1;
    while (skip >= 0)
        skip -= replicas[++from] > 1;
    int to = (int)(next_random(random) % (uint64_t)(experts - 1));
    to += to >= from;
    changed[from]--;
    changed[to]++;
}

static void plan_layer(struct laer *self, int64_t iteration, int layer) {
    int experts = self->setting.experts, ranks = self->setting.topology.ranks;
    struct search search = {.count =
                                self->recent.sum + (size_t)layer * (size_t)ranks * (size_t)experts};
    uint64_t random =
        PERTURBATION_SEED + (uint64_t)iteration * (uint64_t)self->setting.layers + (uint64_t)layer;

    memset(self->total, 0, (size_t)experts * sizeof *self->total);
    for (int source = 0; source < ranks; source++)
        for (int expert = 0; expert < experts; expert++)
            self->total[expert] += search.count[(long)source * experts + expert];
    if (self->options.even && allocate_evenly(self, self->changed))
        try_layout(self, self->changed, &search);
    if (!self->options.priority_queue && self->options.perturbations == 0)
        return;
    allocate_by_load(self, self->total, self->heap_replicas);
    if (self->options.priority_queue)
        try_layout(self, self->heap_replicas, &search);
    for (int index = 0; index < self->options.perturbations; index++) {
        perturb(self->heap_replicas, experts, &random, self->changed);
        try_layout(self, self->changed, &search);
    }
}

/* Changes a layer's layout as FLEX does, from the loads of the window. */
static void change_layer(struct laer *self, int layer) {
    struct mp_slots *slots = &self->layouts.slots[layer];
    size_t cells = (size_t)slots->ranks * (size_t)slots->experts;
    const int64_t *count = self->recent.sum + (size_t)layer * cells;

    for (size_t cell = 0; cell < cells; cell++)
        self->recent_load->count[cell] =
            count[cell] < UINT32_MAX ? (uint32_t)count[cell] : UINT32_MAX;
    mp_flex_begin(&self->flex, slots->expert, self->recent_load);
    mp_flex_laer_policy(&self->flex, self->setting.topology.ranks_per_node, FLEX_ROUNDS);
    memcpy(slots->expert, self->flex.expert,
           (size_t)slots->ranks * (size_t)slots->per_rank * sizeof *slots->expert);
    mp_slots_index(slots, self->setting.topology.ranks_per_node);
}

/* Plans a layer anew. */
static void replace_layer(struct laer *self, int64_t iteration, int layer) {
    struct mp_slots *slots = &self->layouts.slots[layer], before = *slots;

    plan_layer(self, iteration, layer);
    *slots = self->best;
    self->best = before;
}

static int laer_after_step(void *opaque, int64_t iteration, const struct mp_load load[],
                           const struct mp_placement home[], struct mp_rehome *change,
                           struct mp_error *error) {
    struct laer *self = opaque;

    (void)home;
    if (self->options.layout == MP_LAER_STATIC)
        return MP_OK;
    mp_recent_push_counts(&self->recent, load, self->setting.layers);
    for (int layer = 0; layer < self->setting.layers; layer++) {
        if (self->options.layout == MP_LAER_FLEX)
            change_layer(self, layer);
        else
            replace_layer(self, iteration, layer);
        MP_TRY(mp_slots_homes(&self->layouts.slots[layer], &change->next[layer], error));
    }
    change->changed = true;
    return MP_OK;
}

/* --- State --- */

/* Saved: the layouts and the window. */
static const char MAGIC[8] = {'M', 'P', 'L', 'A', 'E', 'R', '_', '1'};

static size_t laer_save(const void *opaque, void *buffer, size_t size) {
    const struct laer *self = opaque;
    return mp_layouts_save(&self->layouts, &self->recent, MAGIC, buffer, size);
}

/* Counts by source mean nothing to other ranks: then everything begins anew. */
static int laer_load(void *opaque, const void *buffer, size_t size, struct mp_error *error) {
    struct laer *self = opaque;
    struct mp_saved_layouts saved;
    MP_TRY(mp_layouts_read(&self->layouts, "laer", MAGIC, buffer, size, &saved, error));

    if (saved.ranks != self->setting.topology.ranks)
        return MP_OK;
    MP_TRY(mp_recent_load(&self->recent, saved.rest, saved.rest_bytes, error));
    mp_layouts_restore(&self->layouts, &saved);
    return MP_OK;
}

const struct mp_system mp_system_laer = {
    .abi = MP_SYSTEM_ABI,
    .name = "laer",
    .title = "LAER-MoE: fully sharded expert parallelism with planned layouts (FSEP)",
    .source = "LAER-MoE, arXiv 2602.11686; Hetu-Galvatron, branch laer-moe",
    .models =
        "Modelled: experts sharded over all ranks and put together in C slots per rank under the "
        "attention before them or some layers ahead, again for backward; gradients sent apart into "
        "slices; layouts planned from the last iterations' loads, even and by priority queue, "
        "placed and compared by the released planner's rules and cost, used one iteration later; "
        "lite routing; the ablations, and the static layout of the paper's baseline and its FLEX. "
        "Nodes are the run's instead of 8 devices. The released over-count of remainders is not "
        "reproduced. Not modelled: planning in another process while the iteration runs (it is "
        "counted, after the step), and recomputation of activations.",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_MOVES_OWNERS | MP_SYSTEM_UNEVEN_EXPERTS |
                    MP_SYSTEM_MORE_RANKS,
    .options = option_table,
    .options_size = sizeof(struct mp_laer_options),
    .size = sizeof(struct laer),
    .create = laer_create,
    .initial_owners = mp_layouts_owners,
    .initial_holders = mp_layouts_holders,
    .optimizer = MP_OPTIMIZER_SLICES,
    .policy = laer_policy,
    .copies_limit = laer_copies_limit,
    .after_gate = laer_after_gate,
    .after_step = laer_after_step,
    .save = laer_save,
    .load = laer_load,
};
