#include "baselines/deepspeed/deepspeed.h"

#include <stdlib.h>

#define FIELD(member) offsetof(struct mp_deepspeed_options, member)

static const struct mp_option option_table[] = {
    {"expert-parallel", MP_OPTION_COUNT, FIELD(expert_parallel), "ranks", "auto", -1, 4096, NULL,
     "ranks that share one set of experts; auto for min(ranks, experts); fewer ranks make "
     "replicas"},
    {"capacity-factor", MP_OPTION_DOUBLE, FIELD(capacity_factor), "", "1.0", 0, 1024, NULL,
     "an expert's capacity for the routes of a rank, over its even share of them"},
    {"min-capacity", MP_OPTION_INT, FIELD(min_capacity), "routes", "4", 0, 1 << 24, NULL,
     "least capacity with formula deepspeed"},
    {"drop-tokens", MP_OPTION_BOOL, FIELD(drop_tokens), "", "yes", 0, 0, NULL,
     "drop routes above the capacity; no: the largest count of a layer is its capacity"},
    {"policy", MP_OPTION_CHOICE, FIELD(policy), "", "auto", 0, 0,
     "auto position probability random",
     "who keeps a place: auto is random for top-1, first choices before second for top-2, "
     "probability beyond"},
    {"formula", MP_OPTION_CHOICE, FIELD(formula), "", "deepspeed", 0, 0,
     "deepspeed hetumoe tutel megatron fastmoe",
     "whose formula gives the capacity; they round differently"},
    {"padded", MP_OPTION_BOOL, FIELD(padded), "", "yes", 0, 0, NULL,
     "every rank sends a capacity of rows to every expert; no: only routes that survive"},
    {0},
};

struct deepspeed {
    struct mp_deepspeed_options options;
    int layers, experts, ranks;
    int group;        /* ranks of a group, P */
    int groups;       /* R / P, holders of every expert */
    int each;         /* experts of a rank, E / P */
    int64_t tokens;   /* of a rank */
    int64_t capacity; /* with drops */
    enum mp_route_order order;
    bool renormalise;
};

/* ---- what it is asked ---- */

static int group_of(const struct mp_setting *setting, const struct mp_deepspeed_options *options) {
    int ranks = setting->topology.ranks;

    if (options->expert_parallel == MP_ALL)
        return ranks;
    if (options->expert_parallel != MP_AUTO)
        return options->expert_parallel;
    return ranks < setting->experts ? ranks : setting->experts;
}

static int64_t capacity_of(const struct mp_setting *setting,
                           const struct mp_deepspeed_options *options) {
    return mp_deepspeed_capacity((enum mp_deepspeed_formula)options->formula,
                                 setting->tokens_per_rank, setting->experts, setting->top_k,
                                 options->capacity_factor, options->min_capacity);
}

static int check_sizes(const struct mp_setting *setting, struct mp_error *error) {
    if (setting->layers >= 1 && setting->experts >= 1 && setting->topology.ranks >= 1 &&
        setting->top_k >= 1 && setting->tokens_per_rank >= 1)
        return MP_OK;
    return mp_fail(
        error, MP_EINVAL,
        "deepspeed needs layers, experts, ranks, choices and tokens per rank of at least "
        "1, not %d, %d, %d, %d and %lld",
        setting->layers, setting->experts, setting->topology.ranks, setting->top_k,
        (long long)setting->tokens_per_rank);
}

static int check_groups(const struct mp_setting *setting,
                        const struct mp_deepspeed_options *options, struct mp_error *error) {
    int ranks = setting->topology.ranks, experts = setting->experts;
    int group = group_of(setting, options);

    if (group < 1)
        return mp_fail(error, MP_EINVAL, "deepspeed needs expert-parallel of at least 1, not %d",
                       group);
    if (ranks % group != 0)
        return mp_fail(error, MP_EINVAL,
                       "deepspeed needs expert-parallel to divide the ranks: %d ranks can't form "
                       "groups of %d, which hold the %d experts once each",
                       ranks, group, experts);
    if (experts % group != 0)
        return mp_fail(error, MP_EINVAL,
                       "deepspeed needs the same number of experts on every rank: %d experts can't "
                       "be shared by groups of %d of the %d ranks",
                       experts, group, ranks);
    return MP_OK;
}

static int check_capacity(const struct mp_setting *setting,
                          const struct mp_deepspeed_options *options, struct mp_error *error) {
    int64_t capacity = capacity_of(setting, options);

    if (!options->drop_tokens || (capacity >= 1 && capacity <= INT32_MAX))
        return MP_OK;
    return mp_fail(
        error, MP_EINVAL,
        "deepspeed needs a capacity of 1 to %d routes of a rank for an expert, not %lld: "
        "%lld tokens, top-%d, %d experts, capacity factor %g",
        INT32_MAX, (long long)capacity, (long long)setting->tokens_per_rank, setting->top_k,
        setting->experts, options->capacity_factor);
}

static enum mp_route_order order_of(enum mp_deepspeed_policy policy, int top_k) {
    switch (policy) {
    case MP_DEEPSPEED_POSITION:
        return MP_ROUTES_BY_TOKEN;
    case MP_DEEPSPEED_PROBABILITY:
        return MP_ROUTES_BY_PROBABILITY;
    case MP_DEEPSPEED_RANDOM:
        return MP_ROUTES_AT_RANDOM;
    default:
        return top_k == 1   ? MP_ROUTES_AT_RANDOM
               : top_k == 2 ? MP_ROUTES_BY_CHOICE
                            : MP_ROUTES_BY_PROBABILITY;
    }
}

static int deepspeed_create(const struct mp_setting *setting, const void *parsed, void **created,
                            struct mp_error *error) {
    const struct mp_deepspeed_options *options = parsed;

    *created = NULL;
    int code = check_sizes(setting, error);
    if (!code)
        code = check_groups(setting, options, error);
    if (!code)
        code = check_capacity(setting, options, error);
    if (code)
        return code;
    struct deepspeed *self = malloc(sizeof *self);
    if (!self)
        return mp_fail(error, MP_ENOMEM, "no memory for the system deepspeed");
    int group = group_of(setting, options);
    *self = (struct deepspeed){
        .options = *options,
        .layers = setting->layers,
        .experts = setting->experts,
        .ranks = setting->topology.ranks,
        .group = group,
        .groups = setting->topology.ranks / group,
        .each = setting->experts / group,
        .tokens = setting->tokens_per_rank,
        .capacity = capacity_of(setting, options),
        .order = order_of((enum mp_deepspeed_policy)options->policy, setting->top_k),
        .renormalise = setting->top_k > 1,
    };
    *created = self;
    return MP_OK;
}

static void deepspeed_destroy(void *self) {
    free(self);
}

/* ---- where experts are ---- */

static int holder_of(const struct deepspeed *self, int group, int expert) {
    return group * self->group + expert / self->each;
}

/* Owners are where sums of gradients are made: groups take turns, so that no rank sums more than
 * others do where it can be helped. */
static void deepspeed_initial_owners(const void *opaque, int32_t owner[]) {
    const struct deepspeed *self = opaque;

    for (int layer = 0; layer < self->layers; layer++)
        for (int expert = 0; expert < self->experts; expert++)
            *owner++ = holder_of(self, expert % self->groups, expert);
}

static void deepspeed_initial_holders(const void *opaque, struct mp_placement home[]) {
    const struct deepspeed *self = opaque;

    for (int layer = 0; layer < self->layers; layer++)
        for (int expert = 0; expert < self->experts; expert++)
            for (int group = 0; group < self->groups; group++)
                mp_placement_add(&home[layer], expert, holder_of(self, group, expert));
}

static enum mp_optimizer_split deepspeed_optimizer(const void *opaque) {
    const struct deepspeed *self = opaque;

    return self->groups > 1 ? MP_OPTIMIZER_REPLICATED : MP_OPTIMIZER_OWNER;
}

static int deepspeed_copies_limit(const void *opaque) {
    (void)opaque;
    return 0; /* replicas persist; no plan adds any */
}

static int64_t deepspeed_padding_limit(const struct mp_setting *setting, const void *parsed) {
    const struct mp_deepspeed_options *options = parsed;

    if (!options->padded)
        return 0;
    return options->drop_tokens ? capacity_of(setting, options) : setting->tokens_per_rank;
}

/* ---- plans ---- */

/* A token goes to different experts, so that no source has more routes for one than it has tokens:
 * the bound is the released top-1 gate's. */
static int64_t largest_count(const struct deepspeed *self, const struct mp_load *load) {
    size_t pairs = (size_t)load->ranks * (size_t)load->experts;
    uint32_t largest = 0;

    for (size_t pair = 0; pair < pairs; pair++)
        largest = load->count[pair] > largest ? load->count[pair] : largest;
    return largest < self->tokens ? largest : self->tokens;
}

/* Holder number g of an expert is the one in group g, as long as homes are the initial ones. */
static int check_homes(const struct deepspeed *self, const struct mp_plan *plan,
                       struct mp_error *error) {
    for (int expert = 0; expert < self->experts; expert++) {
        const int32_t *holder = plan->holder + plan->holder_begin[expert];
        int holders = plan->holder_begin[expert + 1] - plan->holder_begin[expert];
        for (int group = 0; group < self->groups; group++)
            if (holders != self->groups || holder[group] != holder_of(self, group, expert))
                return mp_fail(error, MP_EPLAN,
                               "iteration %lld, layer %d: expert %d should be on the %d ranks that "
                               "deepspeed put it on, among them rank %d; it is on %d ranks",
                               (long long)plan->iteration, plan->layer, expert, self->groups,
                               holder_of(self, group, expert), holders);
    }
    return MP_OK;
}

static int dispatch(const struct deepspeed *self, const struct mp_load *load, struct mp_plan *plan,
                    struct mp_error *error) {
    uint32_t capacity = (uint32_t)plan->source_capacity;

    for (int source = 0; source < self->ranks; source++) {
        const uint32_t *row = load->count + (size_t)source * (size_t)self->experts;
        int group = source / self->group;
        for (int expert = 0; expert < self->experts; expert++) {
            uint32_t kept = row[expert] < capacity ? row[expert] : capacity;
            int code =
                mp_plan_dispatch_run(plan, plan->holder_begin[expert] + group, 1, kept, error);
            if (code)
                return code;
            mp_plan_dispatch_end_pair(plan);
        }
    }
    return MP_OK;
}

static int deepspeed_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                                struct mp_error *error) {
    const struct deepspeed *self = opaque;

    plan->source_capacity = self->options.drop_tokens ? self->capacity : largest_count(self, load);
    plan->route_order = self->order;
    plan->renormalise_survivors = self->renormalise;
    plan->padding = self->options.padded ? plan->source_capacity : 0;
    int code = mp_plan_dispatch_begin(plan, error);
    if (!code)
        code = check_homes(self, plan, error);
    return code ? code : dispatch(self, load, plan, error);
}

const struct mp_system mp_system_deepspeed = {
    .abi = MP_SYSTEM_ABI,
    .name = "deepspeed",
    .title = "DeepSpeed-MoE: fixed capacity, drops, padded exchange",
    .source = "DeepSpeed-MoE, arXiv 2201.05596; DeepSpeed, deepspeed/moe/sharded_moe.py",
    .models =
        "Modelled: contiguous placement that never changes, data-parallel experts as tied replicas "
        "(when ranks exceed experts, or expert-parallel says so), capacity of each source for each "
        "expert in the released code's arithmetic, random token selection, drops by position and "
        "by probability, weights divided by the sum over survivors for two and more choices, "
        "padded exchange of equal size, capacity from the largest count when nothing may be "
        "dropped. Exchange of survivors alone and other frameworks' formulas are our own options. "
        "Not modelled: what changes the gate's choices, that is sampling of the second expert by "
        "Gumbel noise (on by default there) and the noisy gates RSample and Jitter; a capacity "
        "factor of its own for evaluation; ZeRO's partitioning and offload of optimizer state; "
        "tensor parallelism; and the hierarchical exchange of its inference side.",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_DROPS | MP_SYSTEM_MORE_RANKS,
    .options = option_table,
    .options_size = sizeof(struct mp_deepspeed_options),
    .create = deepspeed_create,
    .destroy = deepspeed_destroy,
    .initial_owners = deepspeed_initial_owners,
    .initial_holders = deepspeed_initial_holders,
    .optimizer = deepspeed_optimizer,
    .copies_limit = deepspeed_copies_limit,
    .padding_limit = deepspeed_padding_limit,
    .after_gate = deepspeed_after_gate,
};
