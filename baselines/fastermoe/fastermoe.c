/* FasterMoE as a system: costs, options and the descriptor. */
#include "baselines/fastermoe/fastermoe.h"

#include <math.h>

#include "reference/plan/groups.h"

#define FIELD(member) offsetof(struct mp_fastermoe_options, member)

static const struct mp_option option_table[] = {
    {"policy", MP_OPTION_CHOICE, FIELD(policy), "", "paper", 0, 0,
     "paper paper-printed released released-fixed",
     "who is shadowed: the paper's rule, or with its update as printed; the released code's rule "
     "with its defect (it shadows nobody unless routes are dropped), or as it was meant"},
    {"bandwidth", MP_OPTION_DOUBLE, FIELD(bandwidth), "B/s", "0", 0, 1e18, NULL,
     "of the network, for the model (W_net; the released code's default is 6.25e9); 0: measured"},
    {"expert-flops", MP_OPTION_DOUBLE, FIELD(expert_flops), "operations/s", "0", 0, 1e24, NULL,
     "of a rank in its experts, for the model (Phi; the released code's default is 1.15e13); 0: "
     "measured"},
    {"alpha", MP_OPTION_DOUBLE, FIELD(alpha), "", "0", 0, 1e6, NULL,
     "hidden width over width of an expert, for the model (the released code's default is 2); 0: "
     "the run's"},
    {"element-bytes", MP_OPTION_INT, FIELD(element_bytes), "bytes", "4", 1, 16, NULL,
     "of one parameter and of one element of a row in this run; the released policies count 4"},
    {"shadows", MP_OPTION_COUNT, FIELD(shadows), "experts", "all", 0, 65536, NULL,
     "most experts of a layer that are shadowed at once (not in the paper)"},
    {"smart-schedule", MP_OPTION_BOOL, FIELD(smart_schedule), "", "yes", 0, 0, NULL,
     "whether tokens travel in steps between groups of ranks, under computing; otherwise all at "
     "once"},
    {"group-size", MP_OPTION_COUNT, FIELD(group_size), "ranks", "0", -1, 65536, NULL,
     "of the smart schedule, divides the ranks; 0: the released code's 4, or the largest divisor "
     "of the ranks below; auto: the one with the least predicted time"},
    {"topology-gate", MP_OPTION_BOOL, FIELD(topology_gate), "", "no", 0, 0, NULL,
     "whether the gate is changed so that fewer tokens leave their node (top-2 only)"},
    {"outgoing", MP_OPTION_CHOICE, FIELD(outgoing), "", "released", 0, 0, "released paper",
     "how many tokens of a rank may leave the node: a fraction (released), or as bandwidths are to "
     "each other (paper)"},
    {"outgoing-fraction", MP_OPTION_DOUBLE, FIELD(outgoing_fraction), "", "0.14", 0, 1, NULL,
     "of a rank's tokens that may leave the node, if outgoing is released"},
    {"local-bandwidth", MP_OPTION_DOUBLE, FIELD(local_bandwidth), "B/s", "0", 0, 1e18, NULL,
     "of a rank within its node (W_local), if outgoing is paper"},
    {0},
};

/* The released code knows only elements of this many bytes. */
enum { RELEASED_ELEMENT_BYTES = 4 };

struct fastermoe {
    struct mp_setting setting;
    struct mp_fastermoe_options options;
    struct mp_shadow_costs costs;
    struct mp_expert_groups groups; /* more than one with more ranks than experts only */
    struct mp_shadows shadows;      /* of one of them */
    int32_t *owner;                 /* [experts], ranks of the group at hand; working memory */
    int limit;                      /* shadows of a layer at most */
    int group_size;                 /* of the smart schedule; 0: everything at once */
};

struct mp_shadow_costs mp_fastermoe_costs(const struct mp_setting *setting,
                                          const struct mp_fastermoe_options *options) {
    double bandwidth = options->bandwidth > 0 ? options->bandwidth : setting->bandwidth;
    double width = (double)setting->route_bytes / options->element_bytes;
    double parameters = (double)setting->expert_bytes / options->element_bytes;
    double modelled = options->alpha > 0 ? 2 * options->alpha * width * width : parameters;
    int element_bytes =
        options->policy >= MP_FASTERMOE_RELEASED ? RELEASED_ELEMENT_BYTES : options->element_bytes;
    struct mp_shadow_costs costs = {.forward_only = setting->forward_only};

    /* A multiplication and an addition per parameter. */
    costs.compute = options->expert_flops > 0
                        ? 2 * modelled / options->expert_flops
                        : setting->seconds_per_route * (modelled / parameters);
    costs.feature = width * element_bytes / bandwidth;
    costs.model = modelled * element_bytes / bandwidth;
    return costs;
}

void mp_shadows_create(struct mp_arena *memory, int ranks, int experts, struct mp_shadows *state) {
    *state = (struct mp_shadows){.ranks = ranks, .experts = experts};
    size_t most = (size_t)(ranks > experts ? ranks : experts);
    MP_TAKE(memory, state->expert, experts);
    MP_TAKE(memory, state->latency, (most + 1));
    MP_TAKE_EACH(memory, most, state->order, state->total);
    MP_TAKE_EACH(memory, ranks, state->own, state->gained);
}

/* Ranks that have all experts once: as many as there are experts, where there are several times as
 * many ranks. */
static int group_of(const struct mp_setting *setting) {
    int ranks = setting->topology.ranks, experts = setting->experts;
    return ranks > experts && ranks % experts == 0 ? experts : ranks;
}

static int check_policy(const struct mp_setting *setting,
                        const struct mp_fastermoe_options *options, struct mp_error *error) {
    int ranks = setting->topology.ranks;

    if (options->policy == MP_FASTERMOE_RELEASED && setting->experts < group_of(setting))
        return mp_fail(error, MP_EINVAL,
                       "fastermoe with policy released takes ranks for experts and needs at least "
                       "as many experts as ranks, not %d experts on %d ranks",
                       setting->experts, ranks);
    if (ranks == 1 || options->bandwidth > 0 || setting->bandwidth > 0)
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "fastermoe needs a bandwidth above 0, and neither its option (%g B/s) nor the "
                   "measured one (%g B/s) is",
                   options->bandwidth, setting->bandwidth);
}

static int check_schedule(const struct mp_setting *setting,
                          const struct mp_fastermoe_options *options, struct mp_error *error) {
    int ranks = setting->topology.ranks, size = options->group_size;

    if (options->smart_schedule && setting->exchange_degree > 1)
        return mp_fail(error, MP_EINVAL,
                       "fastermoe with smart-schedule sends rows in steps of its own, of which "
                       "exchange-degree %d makes no more; one of the two has to go",
                       setting->exchange_degree);
    if (options->smart_schedule && setting->exchange != MP_EXCHANGE_FLAT)
        return mp_fail(error, MP_EINVAL,
                       "fastermoe with smart-schedule sends rows in steps of its own, not through "
                       "exchange %s; one of the two has to go",
                       mp_exchange_name((enum mp_exchange_kind)setting->exchange));
    if (!options->smart_schedule || size == MP_AUTO || size == MP_ALL || size == 0 ||
        ranks % size == 0)
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "fastermoe with smart-schedule needs groups that divide the ranks: groups of %d "
                   "don't divide %d ranks",
                   size, ranks);
}

/* The fewest experts that a node owns; see fastermoe_initial_owners.  With groups neighbours have
 * one each, in turn. */
static int64_t fewest_in_node(const struct mp_setting *setting) {
    const struct mp_topology *topology = &setting->topology;
    int64_t experts = setting->experts, fewest = experts;
    int64_t group = group_of(setting);

    for (int node = 0; node < mp_topology_nodes(topology); node++) {
        int64_t first = mp_topology_node_begin(topology, node) * experts + group - 1;
        int64_t end = mp_topology_node_end(topology, node) * experts + group - 1;
        if (end / group - first / group < fewest)
            fewest = end / group - first / group;
    }
    return fewest;
}

static int check_gate(const struct mp_setting *setting, const struct mp_fastermoe_options *options,
                      struct mp_error *error) {
    if (!options->topology_gate)
        return MP_OK;
    if (mp_setting_shards(setting) > 1)
        return mp_fail(error, MP_EINVAL,
                       "fastermoe with topology-gate needs to know in which node an expert is, and "
                       "with expert-shards %d it may be in several",
                       setting->shards);
    if (setting->top_k != 2)
        return mp_fail(error, MP_EINVAL,
                       "fastermoe with topology-gate needs 2 experts per token, not %d",
                       setting->top_k);
    if (setting->fixed_choices)
        return mp_fail(error, MP_EINVAL,
                       "fastermoe with topology-gate limits the choices of a gate that takes its "
                       "largest scores; this one has a rule of its own (hash, prototypes, groups "
                       "or bias)");
    if (fewest_in_node(setting) < 2)
        return mp_fail(
            error, MP_EINVAL,
            "fastermoe with topology-gate needs at least 2 experts in every node, and of "
            "%d experts on %d nodes one has %lld",
            setting->experts, mp_topology_nodes(&setting->topology),
            (long long)fewest_in_node(setting));
    if (options->outgoing == MP_OUTGOING_PAPER && !(options->local_bandwidth > 0))
        return mp_fail(error, MP_EINVAL,
                       "fastermoe with outgoing paper needs a local-bandwidth above 0, not %g B/s",
                       options->local_bandwidth);
    return MP_OK;
}

/* Tokens of a rank whose first choice may leave the node, under these options. */
static int64_t outgoing_limit(const struct mp_setting *setting,
                              const struct mp_fastermoe_options *options) {
    const struct mp_topology *topology = &setting->topology;
    double tokens = (double)setting->tokens_per_rank, bandwidth = options->bandwidth;
    int in_node =
        topology->ranks < topology->ranks_per_node ? topology->ranks : topology->ranks_per_node;

    if (options->outgoing == MP_OUTGOING_RELEASED)
        return (int64_t)floor(tokens * options->outgoing_fraction);
    if (!(bandwidth > 0))
        bandwidth = setting->bandwidth;
    double limit = bandwidth / (in_node * options->local_bandwidth) * tokens;
    return limit < tokens ? (int64_t)limit : setting->tokens_per_rank;
}

/* A rank holds no copies of what it owns, and the released policies never try their last candidate.
 */
static int shadows_limit(const struct mp_setting *setting,
                         const struct mp_fastermoe_options *options) {
    int ranks = group_of(setting), limit = setting->experts;

    if (ranks == 1)
        return 0;
    if (options->policy == MP_FASTERMOE_RELEASED)
        limit = ranks - 1;
    else if (options->policy == MP_FASTERMOE_RELEASED_FIXED)
        limit = setting->experts - 1;
    return limit < options->shadows ? limit : options->shadows;
}

/* Ranks per group, or 0 without the smart schedule; one rank has nothing to send. */
static int choose_groups(struct fastermoe *self, struct mp_error *error) {
    int ranks = self->setting.topology.ranks;

    if (!self->options.smart_schedule || ranks == 1)
        return MP_OK;
    if (self->options.group_size == MP_AUTO) {
        struct mp_shadow_costs costs = mp_fastermoe_costs(&self->setting, &self->options);
        return mp_smart_group_size(&self->setting, &costs, &self->group_size, error);
    }
    self->group_size = self->options.group_size;
    if (self->group_size == MP_ALL)
        self->group_size = ranks;
    if (self->group_size == 0)
        self->group_size = mp_smart_released_size(self->groups.group);
    return MP_OK;
}

static int create_groups(struct fastermoe *self, struct mp_error *error) {
    const struct mp_setting *setting = &self->setting;
    int group = group_of(setting);

    self->groups = (struct mp_expert_groups){.group = group, .groups = 1};
    MP_TAKE(mp_system_arena(self), self->owner, setting->experts);
    return group < setting->topology.ranks
               ? mp_expert_groups_create("fastermoe", setting, MP_AUTO, &self->groups, error)
               : MP_OK;
}

static int fastermoe_create(void *opaque, const struct mp_setting *setting, const void *options,
                            struct mp_error *error) {
    MP_TRY(check_policy(setting, options, error));
    MP_TRY(check_schedule(setting, options, error));
    MP_TRY(check_gate(setting, options, error));
    struct fastermoe *self = opaque;
    self->setting = *setting;
    self->options = *(const struct mp_fastermoe_options *)options;
    self->limit = shadows_limit(setting, options);
    if (self->limit > 0)
        self->costs = mp_fastermoe_costs(setting, options);
    MP_TRY(create_groups(self, error));
    mp_shadows_create(mp_system_arena(self), self->groups.group, setting->experts, &self->shadows);
    return choose_groups(self, error);
}

static void fastermoe_initial_owners(const void *opaque, int32_t owner[]) {
    const struct fastermoe *self = opaque;

    if (self->groups.groups > 1)
        mp_expert_groups_owners(&self->groups, owner);
    else
        mp_even_owners(self->setting.layers, self->setting.experts, self->setting.topology.ranks,
                       owner);
}

static void fastermoe_initial_holders(const void *opaque, struct mp_placement home[]) {
    const struct fastermoe *self = opaque;

    if (self->groups.groups > 1)
        mp_expert_groups_holders(&self->groups, home);
}

static void fastermoe_policy(const void *opaque, struct mp_policy *policy) {
    const struct fastermoe *self = opaque;
    mp_expert_groups_policy(&self->groups, policy);
    if (self->options.topology_gate && mp_topology_nodes(&self->setting.topology) > 1)
        policy->outgoing_limit = outgoing_limit(&self->setting, &self->options);
}

static int fastermoe_copies_limit(const void *opaque) {
    const struct fastermoe *self = opaque;
    int others = self->setting.experts - self->setting.experts / self->groups.group;

    return self->limit < others ? self->limit : others;
}

static void select_shadows(struct fastermoe *self, const struct mp_load *load) {
    enum mp_fastermoe_policy policy = (enum mp_fastermoe_policy)self->options.policy;

    if (policy == MP_FASTERMOE_PAPER || policy == MP_FASTERMOE_PAPER_PRINTED)
        mp_shadow_paper(&self->shadows, &self->costs, load, self->owner,
                        policy == MP_FASTERMOE_PAPER_PRINTED, self->limit);
    else
        mp_shadow_released(&self->shadows, &self->costs, load,
                           policy == MP_FASTERMOE_RELEASED_FIXED, self->limit);
}

/* A group's tokens, and what its ranks keep, make its shadows. */
static int add_shadows(struct fastermoe *self, int group, const struct mp_load *load,
                       struct mp_plan *plan, struct mp_error *error) {
    int first = group * self->groups.group, experts = plan->experts;
    const struct mp_load own = {.ranks = self->groups.group,
                                .experts = experts,
                                .count = load->count + (size_t)first * (size_t)experts};

    for (int expert = 0; expert < experts; expert++)
        self->owner[expert] =
            mp_expert_groups_holder(&self->groups, &plan->before, group, expert) - first;
    select_shadows(self, &own);
    for (int index = 0; index < self->shadows.count; index++) {
        int32_t expert = self->shadows.expert[index];
        for (int rank = 0; rank < self->groups.group; rank++)
            if (rank != self->owner[expert])
                MP_TRY(mp_plan_add_copy(plan, expert, first + rank, MP_STAGE_AFTER_GATE, error));
    }
    return MP_OK;
}

static int fastermoe_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                                struct mp_error *error) {
    struct fastermoe *self = opaque;

    if (self->group_size > 0) {
        plan->exchange = MP_EXCHANGE_PIPELINED;
        plan->group_size = self->group_size;
    }
    for (int group = 0; self->limit > 0 && group < self->groups.groups; group++)
        MP_TRY(add_shadows(self, group, load, plan, error));
    /* Every rank holds a shadow, so its tokens stay home; all others go to the only holder. */
    return self->groups.groups > 1
               ? mp_expert_groups_dispatch_near(&self->groups, load, plan, error)
               : mp_plan_dispatch_nearest(plan, load, error);
}

const struct mp_system mp_system_fastermoe = {
    .abi = MP_SYSTEM_ABI,
    .name = "fastermoe",
    .title = "FasterMoE: dynamic shadowing of hot experts, smart schedule",
    .source = "FasterMoE, PPoPP 2022; laekov/fastmoe, shadow policy, schedule and topology gate",
    .models =
        "Modelled: dynamic shadowing after the gate, copies to all ranks, tokens of shadows kept "
        "at home, gradients reduced to the owner, selection by the paper's policy (consistent or "
        "as printed) and by the released code's (with its defect: it sums routes by source instead "
        "of by expert and shadows nobody unless routes are dropped; or as meant). The smart "
        "schedule: tokens travel in steps between groups of ranks and are computed as they arrive, "
        "and shadows last. The topology-aware gate, with topology-gate=yes only: it limits the "
        "tokens whose first choice leaves the node and so changes what is learnt; without it the "
        "gate's choices stand and losses are those of plain expert parallelism; where loads are "
        "given and no gate chooses, replayed or predicted, a rule stands for it. Experts need not "
        "divide ranks, a limit of shadows can be set, and so can groups by predicted time; these "
        "are our own. With a multiple of the experts as ranks they form groups that have all "
        "experts once, tied replicas of each other's; each has its own shadows. Not modelled: that "
        "the topology-aware gate takes shadows for local, as they are chosen after it here.",
    /* Of the gate: with topology-gate=yes. */
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_UNEVEN_EXPERTS | MP_SYSTEM_CHANGES_GATE |
                    MP_SYSTEM_MORE_RANKS,
    .options = option_table,
    .options_size = sizeof(struct mp_fastermoe_options),
    .size = sizeof(struct fastermoe),
    .create = fastermoe_create,
    .initial_owners = fastermoe_initial_owners,
    .initial_holders = fastermoe_initial_holders,
    .policy = fastermoe_policy,
    .copies_limit = fastermoe_copies_limit,
    .after_gate = fastermoe_after_gate,
};
