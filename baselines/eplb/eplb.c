/* EPLB as a system: when to place anew, and the descriptor. */
#include "baselines/eplb/eplb.h"

#include <stdlib.h>
#include <string.h>

#include "reference/plan/recent.h"
#include "reference/plan/slots_home.h"

#define FIELD(member) offsetof(struct mp_eplb_options, member)

static const struct mp_option option_table[] = {
    {"policy", MP_OPTION_CHOICE, FIELD(policy), "", "auto", 0, 0, "auto global hierarchical",
     "copies anywhere, or groups of experts to nodes first; auto, as released: hierarchical if "
     "nodes "
     "divide groups"},
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
    {0},
};

struct eplb {
    struct mp_setting setting;
    struct mp_eplb_options options;
    struct mp_eplb placer;
    struct mp_recent recent;  /* cells [layers][experts] */
    struct mp_slots *slots;   /* [layers], owned */
    struct mp_slots restored; /* for homes of another placement */
    int64_t *equal;           /* [experts], the loads of the first placement; owned */
};

static int slots_per_rank(const struct eplb *self) {
    return self->placer.replicas / self->placer.ranks;
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

    if (setting->layers < 1 || setting->experts < 1 || topology->ranks < 1 ||
        topology->ranks_per_node < 1)
        return mp_fail(
            error, MP_EINVAL,
            "eplb needs layers, experts, ranks and ranks per node of at least 1, not %d, "
            "%d, %d and %d",
            setting->layers, setting->experts, topology->ranks, topology->ranks_per_node);
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

static void eplb_destroy(void *opaque) {
    struct eplb *self = opaque;
    if (!self)
        return;
    mp_eplb_destroy(&self->placer);
    mp_recent_destroy(&self->recent);
    for (int layer = 0; self->slots && layer < self->setting.layers; layer++)
        mp_slots_destroy(&self->slots[layer]);
    free(self->slots);
    mp_slots_destroy(&self->restored);
    free(self->equal);
    free(self);
}

/* The placer's result as a layer's slots. */
static void place_layer(struct eplb *self, int layer, const int64_t load[]) {
    struct mp_slots *slots = &self->slots[layer];

    mp_eplb_place(&self->placer, load);
    memcpy(slots->expert, self->placer.expert,
           (size_t)self->placer.replicas * sizeof *slots->expert);
    mp_slots_index(slots, 0);
}

static int create_parts(struct eplb *self, int nodes, struct mp_error *error) {
    const struct mp_setting *setting = &self->setting;
    int ranks = setting->topology.ranks, experts = setting->experts, layers = setting->layers;
    int replicas = (int)count_replicas(setting, &self->options);

    int code = mp_eplb_create(experts, replicas, nodes > 1 ? self->options.groups : 1, nodes, ranks,
                              &self->placer, error);
    if (!code)
        code = mp_recent_create((size_t)layers * (size_t)experts, self->options.window,
                                &self->recent, error);
    if (!code)
        code = mp_slots_create(ranks, experts, experts, &self->restored, error);
    self->slots = calloc((size_t)layers, sizeof *self->slots);
    self->equal = malloc((size_t)experts * sizeof *self->equal);
    if (!code && (!self->slots || !self->equal))
        code = mp_fail(error, MP_ENOMEM, "no memory for the slots of %d layers", layers);
    for (int expert = 0; expert < experts && !code; expert++)
        self->equal[expert] = 1;
    for (int layer = 0; layer < layers && !code; layer++) {
        code = mp_slots_create(ranks, experts, slots_per_rank(self), &self->slots[layer], error);
        if (!code)
            place_layer(self, layer, self->equal);
    }
    return code;
}

static int eplb_create(const struct mp_setting *setting, const void *options, void **created,
                       struct mp_error *error) {
    int nodes;

    *created = NULL;
    int code = check_setting(setting, options, error);
    if (!code)
        code = choose_policy(setting, options, &nodes, error);
    if (code)
        return code;
    struct eplb *self = calloc(1, sizeof *self);
    if (!self)
        return mp_fail(error, MP_ENOMEM, "no memory for the system eplb");
    self->setting = *setting;
    self->options = *(const struct mp_eplb_options *)options;
    code = create_parts(self, nodes, error);
    if (code)
        eplb_destroy(self);
    else
        *created = self;
    return code;
}

/* The lowest rank with a slot, as mp_slots_homes would have it. */
static void eplb_initial_owners(const void *opaque, int32_t owner[]) {
    const struct eplb *self = opaque;

    for (int layer = 0; layer < self->setting.layers; layer++)
        for (int expert = 0; expert < self->setting.experts; expert++)
            *owner++ = self->slots[layer].rank[self->slots[layer].begin[expert]];
}

static void eplb_initial_holders(const void *opaque, struct mp_placement home[]) {
    const struct eplb *self = opaque;

    /* No expert is without a slot, which is all that could go wrong. */
    for (int layer = 0; layer < self->setting.layers; layer++)
        (void)mp_slots_homes(&self->slots[layer], &home[layer], NULL);
}

static enum mp_optimizer_split eplb_optimizer(const void *opaque) {
    (void)opaque;
    return MP_OPTIMIZER_REPLICATED;
}

static int eplb_homes_limit(const void *opaque) {
    const struct eplb *self = opaque;
    int each = slots_per_rank(self), experts = self->setting.experts;

    return self->setting.layers * (each < experts ? each : experts);
}

static int eplb_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                           struct mp_error *error) {
    struct eplb *self = opaque;

    if (self->options.dispatch == MP_EPLB_NEAREST)
        return mp_plan_dispatch_nearest(plan, load, error);
    struct mp_slots *slots =
        mp_slots_for_home(&self->slots[plan->layer], &self->restored, &plan->before, 0);
    return mp_plan_dispatch_slots(plan, load, slots, MP_SPREAD_SOURCE, error);
}

static int eplb_after_step(void *opaque, int64_t iteration, const struct mp_load load[],
                           const struct mp_placement home[], struct mp_rehome *change,
                           struct mp_error *error) {
    struct eplb *self = opaque;
    int layers = self->setting.layers, code = MP_OK;

    (void)home;
    mp_recent_push_totals(&self->recent, load, layers);
    if (self->options.interval == 0 || (iteration + 1) % self->options.interval != 0)
        return MP_OK;
    for (int layer = 0; layer < layers && !code; layer++) {
        place_layer(self, layer, self->recent.sum + (size_t)layer * (size_t)self->setting.experts);
        code = mp_slots_homes(&self->slots[layer], &change->next[layer], error);
    }
    change->changed = true;
    return code;
}

/* Saved: this head, the expert of every slot of every layer, and the window. */
struct head {
    char magic[8];
    int32_t layers, experts, ranks, slots;
};
static const char MAGIC[8] = {'M', 'P', 'E', 'P', 'L', 'B', '_', '1'};

static size_t eplb_save(const void *opaque, void *buffer, size_t size) {
    const struct eplb *self = opaque;
    struct head head = {.layers = self->setting.layers,
                        .experts = self->setting.experts,
                        .ranks = self->setting.topology.ranks,
                        .slots = slots_per_rank(self)};
    size_t layer_bytes = (size_t)self->placer.replicas * sizeof(int32_t);
    size_t before = sizeof head + (size_t)head.layers * layer_bytes;
    size_t needed = before + mp_recent_save(&self->recent, NULL, 0);
    char *to = buffer;

    if (size < needed)
        return needed;
    memcpy(head.magic, MAGIC, sizeof MAGIC);
    memcpy(to, &head, sizeof head);
    for (int layer = 0; layer < head.layers; layer++)
        memcpy(to + sizeof head + (size_t)layer * layer_bytes, self->slots[layer].expert,
               layer_bytes);
    mp_recent_save(&self->recent, to + before, size - before);
    return needed;
}

/* MP_EFORMAT unless the head fits the job and what follows the slots begins within `size`. */
static int check_head(const struct eplb *self, const struct head *head, size_t size,
                      struct mp_error *error) {
    if (memcmp(head->magic, MAGIC, sizeof MAGIC) != 0)
        return mp_fail(error, MP_EFORMAT, "what was saved is no state of eplb of this version");
    if (head->layers != self->setting.layers || head->experts != self->setting.experts)
        return mp_fail(
            error, MP_EFORMAT,
            "the saved state of eplb is of %d layers with %d experts, the job has %d with "
            "%d",
            head->layers, head->experts, self->setting.layers, self->setting.experts);
    if (head->ranks < 1 || head->slots < 1 ||
        (size - sizeof *head) / sizeof(int32_t) / (size_t)head->layers / (size_t)head->ranks <
            (size_t)head->slots)
        return mp_fail(error, MP_EFORMAT,
                       "a saved state of eplb with %d slots on each of %d ranks has more than %zu "
                       "bytes",
                       head->slots, head->ranks, size);
    return MP_OK;
}

/* Slots that were made for other ranks, or others than these, are of no use: then the present ones
 * stay, and the next placement comes from the window. */
static int eplb_load(void *opaque, const void *buffer, size_t size, struct mp_error *error) {
    struct eplb *self = opaque;
    struct head head;
    const char *from = buffer;

    if (size < sizeof head)
        return mp_fail(error, MP_EFORMAT, "a saved state of eplb has at least %zu bytes, not %zu",
                       sizeof head, size);
    memcpy(&head, from, sizeof head);
    int code = check_head(self, &head, size, error);
    if (code)
        return code;
    bool same = head.ranks == self->setting.topology.ranks && head.slots == slots_per_rank(self);
    size_t slots = (size_t)head.ranks * (size_t)head.slots;
    size_t before = sizeof head + (size_t)head.layers * slots * sizeof(int32_t);
    for (size_t slot = 0; slot < (size_t)head.layers * slots; slot++) {
        int32_t expert;
        memcpy(&expert, from + sizeof head + slot * sizeof expert, sizeof expert);
        if (expert < 0 || expert >= head.experts)
            return mp_fail(error, MP_EFORMAT, "the saved state of eplb has expert %d in a slot",
                           expert);
    }
    code = mp_recent_load(&self->recent, from + before, size - before, error);
    for (int layer = 0; layer < head.layers && !code && same; layer++) {
        memcpy(self->slots[layer].expert,
               from + sizeof head + (size_t)layer * slots * sizeof(int32_t),
               slots * sizeof(int32_t));
        mp_slots_index(&self->slots[layer], 0);
    }
    return code;
}

const struct mp_system mp_system_eplb = {
    .abi = MP_SYSTEM_ABI,
    .name = "eplb",
    .title = "EPLB: experts replicated and packed periodically",
    .source = "deepseek-ai/EPLB; DeepSeek-V3 technical report, section 3.4",
    .models =
        "Modelled: replication of hot experts and packing of physical experts onto ranks from the "
        "mean of past loads, global and hierarchical (groups of experts on one node), every so "
        "many "
        "iterations, exact to the released code's order of ties. The source places experts for "
        "inference; in training every copy is a tied replica with optimizer state of its own, "
        "gradients of all copies are summed, and new copies arrive with parameters and optimizer "
        "state. "
        "Not modelled: keeping a copy where it is to save its move, which the released code does "
        "not "
        "do either, and moving copies in the background.",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_MOVES_OWNERS | MP_SYSTEM_UNEVEN_EXPERTS |
                    MP_SYSTEM_MORE_RANKS,
    .options = option_table,
    .options_size = sizeof(struct mp_eplb_options),
    .create = eplb_create,
    .destroy = eplb_destroy,
    .initial_owners = eplb_initial_owners,
    .initial_holders = eplb_initial_holders,
    .optimizer = eplb_optimizer,
    .homes_limit = eplb_homes_limit,
    .after_gate = eplb_after_gate,
    .after_step = eplb_after_step,
    .save = eplb_save,
    .load = eplb_load,
};
