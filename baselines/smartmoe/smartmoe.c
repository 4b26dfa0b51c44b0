/* SmartMoE as a system: history, options and the descriptor. */
#include "baselines/smartmoe/smartmoe.h"

#include <string.h>

#include "baselines/fastermoe/fastermoe.h"
#include "baselines/systems.h"
#include "reference/plan/recent.h"

#define FIELD(member) offsetof(struct mp_smartmoe_options, member)

static const struct mp_option option_table[] = {
    {"solver", MP_OPTION_CHOICE, FIELD(solver), "", "greedy", 0, 0,
     "greedy dynamic-programming hybrid",
     "how a placement is sought: the released code's greedy, the optimum (of at most 16 experts), "
     "or greedy to virtual devices and the optimum inside each"},
    {"groups", MP_OPTION_INT, FIELD(groups), "groups", "8", 2, MP_PERMUTATION_ITEMS, NULL,
     "of experts that hybrid places at once, at most (the released code's number is 8); planning "
     "time grows with 4^groups"},
    {"interval", MP_OPTION_INT, FIELD(interval), "iterations", "10", 1, 1e9, NULL,
     "between two searches for a better placement"},
    {"history", MP_OPTION_INT, FIELD(history), "iterations", "2", 1, 1000, NULL,
     "whose loads are averaged for a search"},
    {"threshold", MP_OPTION_DOUBLE, FIELD(threshold), "", "1", 1, 1e6, NULL,
     "a placement is taken if the largest load of a rank falls by more than this factor (the "
     "released code: 1, that is if it falls at all)"},
    {"state", MP_OPTION_CHOICE, FIELD(state), "", "moves", 0, 0, "moves stays",
     "whether optimizer state moves with parameters; in the released code it stays, and experts "
     "go on with the moments of others"},
    {"smart-schedule", MP_OPTION_BOOL, FIELD(smart_schedule), "", "yes", 0, 0, NULL,
     "whether tokens travel as in FasterMoE, in steps between groups of ranks, under computing; "
     "otherwise all at once"},
    {"group-size", MP_OPTION_COUNT, FIELD(group_size), "ranks", "0", -1, 65536, NULL,
     "of the smart schedule, as fastermoe has it"},
    {"shadows", MP_OPTION_COUNT, FIELD(shadows), "experts", "all", 0, 65536, NULL,
     "most experts of a layer that are shadowed at once, by the rule of FasterMoE's paper; 0: "
     "none"},
    {0},
};

struct smartmoe {
    struct mp_recent history; /* first, as its hooks want it; cells [layers][experts] */
    int layers, experts, ranks;
    struct mp_smartmoe_options options;
    struct mp_permutation permutation;
    int32_t *owner; /* [experts], working memory */
    void *exchange; /* of mp_system_fastermoe: what plans between two searches */
};

static void smartmoe_destroy(void *opaque) {
    struct smartmoe *self = opaque;
    mp_system_destroy(&mp_system_fastermoe, self->exchange);
}

/* With a multiple of the experts as ranks: groups of as many ranks as there are experts, with one
 * each, which leaves nothing to place. */
static bool replicates(const struct smartmoe *self) {
    return self->ranks > self->experts && self->ranks % self->experts == 0;
}

static int create_exchange(struct smartmoe *self, const struct mp_setting *setting,
                           struct mp_error *error) {
    struct mp_fastermoe_options options;
    struct mp_error why = {0};

    int code = mp_options_set_defaults(mp_system_fastermoe.options, &options, &why);
    options.smart_schedule = self->options.smart_schedule;
    options.group_size = self->options.group_size;
    options.shadows = self->options.shadows;
    if (!code)
        code = mp_system_create(&mp_system_fastermoe, setting, &options, &self->exchange, &why);
    if (code)
        mp_fail(error, code, "smartmoe runs on FasterMoE's exchange, and %s", why.text);
    return code;
}

static int smartmoe_create(void *opaque, const struct mp_setting *setting, const void *options,
                           struct mp_error *error) {
    struct smartmoe *self = opaque;
    struct mp_arena *memory = mp_system_arena(self);
    self->layers = setting->layers;
    self->experts = setting->experts;
    self->ranks = setting->topology.ranks;
    self->options = *(const struct mp_smartmoe_options *)options;
    MP_TRY(mp_permutation_create(memory, self->experts,
                                 replicates(self) ? self->experts : self->ranks,
                                 (enum mp_smartmoe_solver)self->options.solver,
                                 self->options.groups, &self->permutation, error));
    mp_recent_create(memory, (size_t)self->layers * (size_t)self->experts, self->options.history,
                     &self->history);
    MP_TAKE(memory, self->owner, (size_t)self->experts);
    return create_exchange(self, setting, error);
}

static void smartmoe_initial_owners(const void *opaque, int32_t owner[]) {
    const struct smartmoe *self = opaque;
    mp_system_fastermoe.initial_owners(self->exchange, owner);
}

static void smartmoe_initial_holders(const void *opaque, struct mp_placement home[]) {
    const struct smartmoe *self = opaque;
    mp_system_fastermoe.initial_holders(self->exchange, home);
}

static void smartmoe_policy(const void *opaque, struct mp_policy *policy) {
    const struct smartmoe *self = opaque;
    mp_system_fastermoe.policy(self->exchange, policy);
}

static int smartmoe_copies_limit(const void *opaque) {
    const struct smartmoe *self = opaque;
    return mp_system_fastermoe.copies_limit(self->exchange);
}

static int smartmoe_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                               struct mp_error *error) {
    struct smartmoe *self = opaque;
    return mp_system_fastermoe.after_gate(self->exchange, load, plan, error);
}

static int64_t largest_load(struct mp_permutation *state, const int64_t load[],
                            const int32_t owner[]) {
    int64_t largest = 0;

    memset(state->sum, 0, (size_t)state->ranks * sizeof *state->sum);
    for (int expert = 0; expert < state->experts; expert++) {
        int64_t sum = state->sum[owner[expert]] += load[expert];
        if (sum > largest)
            largest = sum;
    }
    return largest;
}

static int smartmoe_after_step(void *opaque, int64_t iteration, const struct mp_load load[],
                               const struct mp_placement home[], struct mp_rehome *change,
                               struct mp_error *error) {
    struct smartmoe *self = opaque;

    (void)error;
    mp_recent_push_totals(&self->history, load, self->layers);
    if (self->ranks == 1 || replicates(self) || (iteration + 1) % self->options.interval != 0)
        return MP_OK;
    for (int layer = 0; layer < self->layers; layer++) {
        const int64_t *sum = self->history.sum + (size_t)layer * (size_t)self->experts;
        int64_t present = largest_load(&self->permutation, sum, home[layer].owner);
        int64_t found =
            mp_permutation_solve(&self->permutation, sum, home[layer].owner, self->owner);
        if (!((double)found * self->options.threshold < (double)present))
            continue;
        mp_placement_set_owners(&change->next[layer], self->owner);
        change->changed = true;
        change->leave_state = self->options.state == MP_SMARTMOE_STATE_STAYS;
    }
    return MP_OK;
}

const struct mp_system mp_system_smartmoe = {
    .abi = MP_SYSTEM_ABI,
    .name = "smartmoe",
    .title = "SmartMoE: experts change owners to balance ranks",
    .source = "SmartMoE, USENIX ATC 2023, online placement; thu-pacman/SmartMoE-AE",
    .models =
        "Modelled: placements with equally many experts per rank and no replicas, sought every "
        "interval from the average of recent loads by the released code's greedy rule, by dynamic "
        "programming or by both, and taken if the largest load of a rank falls enough; parameters "
        "and optimizer state move after the step, or parameters alone as in the released code. "
        "FasterMoE's smart schedule and shadows, on the present placement. With more ranks than "
        "experts ranks have one each in groups, and there is nothing to place. "
        "Not modelled: the offline choice of a pool of data, tensor and pipeline parallelism, and "
        "the rule for shadows of the released code, in whose place is that of FasterMoE's paper.",
    .capabilities = MP_SYSTEM_MOVES_OWNERS | MP_SYSTEM_REPLICATES | MP_SYSTEM_MORE_RANKS,
    .options = option_table,
    .options_size = sizeof(struct mp_smartmoe_options),
    .size = sizeof(struct smartmoe),
    .create = smartmoe_create,
    .destroy = smartmoe_destroy,
    .initial_owners = smartmoe_initial_owners,
    .initial_holders = smartmoe_initial_holders,
    .policy = smartmoe_policy,
    .copies_limit = smartmoe_copies_limit,
    .after_gate = smartmoe_after_gate,
    .after_step = smartmoe_after_step,
    .save = mp_recent_save,
    .load = mp_recent_load,
};
