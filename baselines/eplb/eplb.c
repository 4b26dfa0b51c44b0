/* EPLB as a system: when to place anew, and the descriptor. */
#include "baselines/eplb/eplb.h"

#include <string.h>

#include "reference/plan/layouts.h"
#include "reference/plan/recent.h"

#define FIELD(member) offsetof(struct mp_eplb_options, member)

static const struct mp_option option_table[] = {
    {"policy", MP_OPTION_CHOICE, FIELD(policy), "", "auto", 0, 0, "auto global hierarchical",
     "copies anywhere, or groups of experts to nodes first; auto, as released: hierarchical if "
     "nodes divide groups"},
    {"replicas", MP_OPTION_COUNT, FIELD(replicas), "experts", "auto", -1, 1 << 20, NULL,
     "physical experts of a layer on all ranks together; auto: twice the experts, rounded up so "
     "that "
     "ranks divide it (a choice of the deployment in the source); all: every expert on every rank"},
    {"groups", MP_OPTION_INT, FIELD(groups), "groups", "1", 1, 65536, NULL,
     "of neighbouring experts that stay on one node under the hierarchical policy (those of a "
     "group-limited gate)"},
    {"interval", MP_OPTION_INT, FIELD(interval), "iterations", "10", 0, 1000000, NULL,
     "iterations between placements (periodically, in the source); 0: never"},
    {"window", MP_OPTION_INT, FIELD(window), "iterations", "10", 1, 1000, NULL,
     "iterations whose mean load is placed (left to the caller in the source)"},
    {"dispatch", MP_OPTION_CHOICE, FIELD(dispatch), "", "even", 0, 0, "even nearest",
     "a source's routes of an expert go to all physical copies evenly, or to the nearest ones"},
    {"moves", MP_OPTION_CHOICE, FIELD(moves), "", "exposed", 0, 0, "exposed asynchronous",
     "experts move after a step, as in SGLang, or in the background of the next one, as in vLLM"},
    {"utilisation", MP_OPTION_DOUBLE, FIELD(utilisation), "", "1", 0, 1, NULL,
     "mean over largest load of ranks, of the window's mean loads, above which nothing is placed "
     "anew (SGLang's threshold); 1: always placed"},
    {0},
};

struct eplb {
    struct mp_layouts layouts; /* first, as its hooks want it */
    struct mp_setting setting;
    struct mp_eplb_options options;
    struct mp_eplb placer;
    struct mp_recent recent; /* cells [layers][experts] */
    int64_t *equal;          /* [experts], the loads of the first placement */
    double *rank_load;       /* [ranks], working memory */
};

static bool asynchronous(const struct eplb *self) {
    return self->options.moves == MP_EPLB_ASYNCHRONOUS;
}

/* Physical experts of a layer. */
static int64_t count_replicas(const struct mp_setting *setting,
                              const struct mp_eplb_options *options) {
    int64_t ranks = setting->topology.ranks, experts = setting->experts;

    if (options->replicas == MP_AUTO)
        return (2 * experts + ranks - 1) / ranks * ranks;
    return options->replicas == MP_ALL ? experts * ranks : options->replicas;
}

static int check_setting(const struct mp_setting *setting, const struct mp_eplb_options *options,
                         struct mp_error *error) {
    const struct mp_topology *topology = &setting->topology;

    int64_t replicas = count_replicas(setting, options);
    if (replicas < setting->experts || replicas % topology->ranks != 0 || replicas > INT32_MAX / 2)
        return mp_fail(
            error, MP_EINVAL,
            "eplb needs as many physical experts on every rank and at least one of each: "
            "%lld can't be those of %d experts on %d ranks",
            (long long)replicas, setting->experts, topology->ranks);
    if (setting->experts % options->groups != 0)
        return mp_fail(
            error, MP_EINVAL,
            "eplb needs groups of equally many experts: %d experts can't be in %d groups",
            setting->experts, options->groups);
    return MP_OK;
}

/* Nodes that groups of experts are packed to; 1: the global policy. */
static int choose_policy(const struct mp_setting *setting, const struct mp_eplb_options *options,
                         int *nodes, struct mp_error *error) {
    const struct mp_topology *topology = &setting->topology;

    *nodes = mp_topology_nodes(topology);
    if (options->policy == MP_EPLB_GLOBAL ||
        (options->policy == MP_EPLB_AUTO && options->groups % *nodes != 0))
        *nodes = 1;
    if (options->groups % *nodes != 0)
        return mp_fail(
            error, MP_EINVAL,
            "eplb with policy hierarchical needs as many groups on every node: %d groups "
            "can't be shared by %d nodes",
            options->groups, *nodes);
    if (*nodes > 1 && topology->ranks % topology->ranks_per_node != 0)
        return mp_fail(error, MP_EINVAL,
                       "eplb places groups on nodes of equal size: %d ranks can't be shared by %d "
                       "nodes of %d; policy global does without",
                       topology->ranks, *nodes, topology->ranks_per_node);
    return MP_OK;
}

/* The placer's result as a layer's slots. */
static void place_layer(struct eplb *self, int layer, const int64_t load[]) {
    mp_eplb_place(&self->placer, load);
    mp_layouts_change(&self->layouts, layer, self->placer.expert);
}

static int create_parts(struct eplb *self, int nodes) {
    struct mp_arena *memory = mp_system_arena(self);
    const struct mp_setting *setting = &self->setting;
    int ranks = setting->topology.ranks, experts = setting->experts, layers = setting->layers;
    int replicas = (int)count_replicas(setting, &self->options);

    mp_eplb_create(memory, experts, replicas, nodes > 1 ? self->options.groups : 1, nodes, ranks,
                   &self->placer);
    mp_recent_create(memory, (size_t)layers * (size_t)experts, self->options.window, &self->recent);
    mp_layouts_create(memory, layers, ranks, experts, replicas / ranks, 0, &self->layouts);
    MP_TAKE(memory, self->equal, (size_t)experts);
    MP_TAKE(memory, self->rank_load, (size_t)ranks);
    if (memory->lacking)
        return MP_ENOMEM;
    for (int expert = 0; expert < experts; expert++)
        self->equal[expert] = 1;
    for (int layer = 0; layer < layers; layer++)
        place_layer(self, layer, self->equal);
    if (asynchronous(self))
        mp_layouts_keep_earlier(&self->layouts);
    return MP_OK;
}

static int eplb_create(void *opaque, const struct mp_setting *setting, const void *options,
                       struct mp_error *error) {
    int nodes;

    MP_TRY(check_setting(setting, options, error));
    MP_TRY(choose_policy(setting, options, &nodes, error));
    struct eplb *self = opaque;
    self->setting = *setting;
    self->options = *(const struct mp_eplb_options *)options;
    return create_parts(self, nodes);
}

/* What arrives in the background is there beside what is in use. */
static int eplb_homes_limit(const void *opaque) {
    const struct eplb *self = opaque;
    return mp_layouts_limit(&self->layouts) * (asynchronous(self) ? 2 : 1);
}

static int eplb_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                           struct mp_error *error) {
    struct eplb *self = opaque;

    if (self->options.dispatch == MP_EPLB_NEAREST)
        return mp_plan_dispatch_nearest(plan, load, error);
    struct mp_slots *slots = mp_layouts_for_home(&self->layouts, plan->layer, &plan->before);
    return mp_plan_dispatch_slots(plan, load, slots, MP_SPREAD_SOURCE, error);
}

/* Mean over largest load of ranks if each slot of an expert has as much of the window's load; the
 * mean of layers.  1 without loads. */
static double utilisation(const struct eplb *self) {
    int layers = self->setting.layers, experts = self->setting.experts;
    double sum = 0;

    for (int layer = 0; layer < layers; layer++) {
        const struct mp_slots *slots = &self->layouts.slots[layer];
        const int64_t *load = self->recent.sum + (size_t)layer * (size_t)experts;
        double all = 0, most = 0;
        memset(self->rank_load, 0, (size_t)slots->ranks * sizeof *self->rank_load);
        for (int expert = 0; expert < experts; expert++)
            for (int32_t slot = slots->begin[expert]; slot < slots->begin[expert + 1]; slot++)
                self->rank_load[slots->rank[slot]] +=
                    (double)load[expert] / mp_slots_of(slots, expert);
        for (int rank = 0; rank < slots->ranks; rank++) {
            all += self->rank_load[rank];
            most = self->rank_load[rank] > most ? self->rank_load[rank] : most;
        }
        sum += most > 0 ? all / slots->ranks / most : 1;
    }
    return sum / layers;
}

static int eplb_after_step(void *opaque, int64_t iteration, const struct mp_load load[],
                           const struct mp_placement home[], struct mp_rehome *change,
                           struct mp_error *error) {
    struct eplb *self = opaque;
    int layers = self->setting.layers;

    (void)home;
    mp_recent_push_totals(&self->recent, load, layers);
    if (self->options.interval == 0 || (iteration + 1) % self->options.interval != 0)
        return MP_OK;
    if (self->options.utilisation < 1 && utilisation(self) > self->options.utilisation)
        return MP_OK;
    for (int layer = 0; layer < layers; layer++) {
        place_layer(self, layer, self->recent.sum + (size_t)layer * (size_t)self->setting.experts);
        MP_TRY(mp_slots_homes(&self->layouts.slots[layer], &change->next[layer], error));
    }
    change->changed = true;
    change->asynchronous = asynchronous(self);
    return MP_OK;
}

/* Saved: the layouts and the window. */
static const char MAGIC[8] = {'M', 'P', 'E', 'P', 'L', 'B', '_', '1'};

static size_t eplb_save(const void *opaque, void *buffer, size_t size) {
    const struct eplb *self = opaque;
    return mp_layouts_save(&self->layouts, &self->recent, MAGIC, buffer, size);
}

/* Under other ranks, or with other slots, the next placement comes from the window. */
static int eplb_load(void *opaque, const void *buffer, size_t size, struct mp_error *error) {
    struct eplb *self = opaque;
    struct mp_saved_layouts saved;
    MP_TRY(mp_layouts_read(&self->layouts, "eplb", MAGIC, buffer, size, &saved, error));

    MP_TRY(mp_recent_load(&self->recent, saved.rest, saved.rest_bytes, error));
    mp_layouts_restore(&self->layouts, &saved);
    return MP_OK;
}

const struct mp_system mp_system_eplb = {
    .abi = MP_SYSTEM_ABI,
    .name = "eplb",
    .title = "EPLB: experts replicated and packed periodically",
    .source = "deepseek-ai/EPLB; DeepSeek-V3 technical report, section 3.4",
    .models =
        "Modelled: replication of hot experts and packing of physical experts onto ranks from the "
        "mean of past loads, global and hierarchical (groups of experts on one node), every so "
        "many iterations, exact to the released code's order of ties. The source places experts "
        "for inference; in training every copy is a tied replica with optimizer state of its own, "
        "gradients of all copies are summed, and new copies arrive with parameters and optimizer "
        "state. As in serving, when wanted: no placement while ranks are used evenly enough "
        "(SGLang), and moves in the background of the next iteration (vLLM). Not modelled: keeping "
        "a copy where it is to save its move, which the released code does not do either, and "
        "moving some layers per step (SGLang).",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_MOVES_OWNERS | MP_SYSTEM_UNEVEN_EXPERTS |
                    MP_SYSTEM_MORE_RANKS,
    .options = option_table,
    .options_size = sizeof(struct mp_eplb_options),
    .size = sizeof(struct eplb),
    .create = eplb_create,
    .initial_owners = mp_layouts_owners,
    .initial_holders = mp_layouts_holders,
    .optimizer = MP_OPTIMIZER_REPLICATED,
    .homes_limit = eplb_homes_limit,
    .after_gate = eplb_after_gate,
    .after_step = eplb_after_step,
    .save = eplb_save,
    .load = eplb_load,
};
