/* DeepSpeed-MoE: fixed capacity, drops, padded exchange, data-parallel experts (arXiv 2201.05596;
 * DeepSpeed, deepspeed/moe/sharded_moe.py).
 *
 * Placement never changes: groups of `expert-parallel` ranks (reference/plan/groups.h).  The
 * released layer has groups of one rank unless told otherwise; here they are as large as can be,
 * min(R, E), which is what others mean by DeepSpeed as a baseline.
 *
 * Of each (source, expert) at most a capacity of routes is kept, whatever other sources send; the
 * rest is dropped.  Every pair takes as many rows in the exchange and in computing, used or not:
 * imbalance shows as drops and not as time.  With `drop-tokens` off the capacity is the largest
 * count of the layer, so that one hot expert sets the rows of all.
 *
 * ZeRO-1 (`zero: 1`) cuts an expert's optimizer state into as many slices as it has replicas.
 * DeepSpeed's configuration promises a reduce-scatter of gradients (reduce_scatter), and carries it
 * out as an all-reduce of which every rank uses its part, unless use_multi_rank_bucket_allreduce is
 * off; it is on by default (deepspeed/runtime/zero/config.py, stage_1_and_2.py).  Both are here.
 * offload_optimizer moves state and update to the host, which it allows from stage 1 on.
 *
 * Which gate of the source a plan stands for follows from top-k and `policy`:
 *   top-1  auto         random token selection, weights are probabilities as they are
 *          position     the same without random token selection.  That is a top-k over a column of
 *                       zeros and ones there, in whatever order; the earlier token wins here
 *   top-2  auto         slots for second choices begin after all first choices (dropped ones too);
 *                       tokens in their order; weights divided by the sum over survivors
 *   top-k  probability  drop policy "probs": the highest probabilities stay; auto for k > 2
 *          position     drop policy "position": token by token, all choices together
 * and survivors are renormalised for every k > 1.  The other combinations (a policy of top-k with
 * two choices is released code, probability with one and random with several are not) are
 * experiments that the released gates don't offer.
 *
 * Other frameworks' formulas (reference/plan/capacity.h) are there for comparison.  That of
 * FastMoE's Switch gate is of an expert for all ranks together: ranks are served in their order,
 * here.
 *
 * Differences to the released code:
 *   - Without drops it takes the largest count in each group of ranks; here it is the largest of
 *     all groups, as a plan has one.  They wait for each other in every step anyhow.
 *   - Its dispatch is the one-hot one unless Tutel is there; here rows are copied unless told
 *     otherwise, so that what is compared is the plan.
 *   - Padding to a multiple of tensor-parallel ranks does not arise: there is no such parallelism.
 *   - Its top-1 gate asserts at least min-capacity tokens on a rank.  Its top-k gate does not, and
 *     neither do we: a capacity may exceed the tokens.
 *   - Its own capacity factor for evaluation (1.0 too) is not told apart: validation batches are
 *     planned as training ones are. */
#include "reference/plan/capacity.h"
#include "reference/plan/groups.h"

enum policy { AUTO, POSITION, PROBABILITY, RANDOM };

/* How tokens' rows become those of the exchange, and experts' rows tokens'.  ONE_HOT is what the
 * released code does without Tutel, GShard's einsums "sec,sm->ecm" and "sec,ecm->sm": matrices of
 * S tokens by E experts by a capacity of C rows, and 2 S E C M operations for each of two products
 * forward and three backward.  With a capacity that goes with the tokens they grow with their
 * square.  SPARSE copies rows, as Tutel's kernels do; both give the same numbers. */
enum dispatch { SPARSE, ONE_HOT };

struct deepspeed_options {
    int expert_parallel; /* ranks of a group; MP_AUTO: min(R, E); MP_ALL: R */
    double capacity_factor;
    int min_capacity; /* of formula deepspeed.  4 in DeepSpeed's layer, 8 in its gate class, which
                         users don't create themselves */
    bool drop_tokens;
    int policy;   /* enum policy */
    int formula;  /* enum mp_capacity_formula */
    bool padded;  /* false: the exchange carries what survives and nothing else (our own) */
    int dispatch; /* enum dispatch */
    int zero;     /* stage: 0, 1 */
    bool all_reduce;
    bool offload;
};

#define FIELD(member) offsetof(struct deepspeed_options, member)

static const struct mp_option option_table[] = {
    MP_EXPERT_PARALLEL_OPTION(FIELD(expert_parallel)),
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
    {"formula", MP_OPTION_CHOICE, FIELD(formula), "", "deepspeed", 0, 0, MP_CAPACITY_CHOICES,
     "whose formula gives the capacity; they round differently, and fastmoe-switch is of all ranks "
     "together"},
    {"padded", MP_OPTION_BOOL, FIELD(padded), "", "yes", 0, 0, NULL,
     "every rank sends a capacity of rows to every expert; no: only routes that survive"},
    {"dispatch", MP_OPTION_CHOICE, FIELD(dispatch), "", "sparse", 0, 0, "sparse one-hot",
     "how rows get into that order and back: copied, or by products with one-hot matrices"},
    {"zero", MP_OPTION_INT, FIELD(zero), "", "0", 0, 1, NULL,
     "stage of ZeRO for experts: 0 updates every replica whole; 1 keeps a slice of the optimizer's "
     "state on each of them and puts parameters together after the step"},
    {"multi-rank-bucket-allreduce", MP_OPTION_BOOL, FIELD(all_reduce), "", "yes", 0, 0, NULL,
     "with ZeRO every replica gets the whole sum of gradients, as the released code does it unless "
     "told otherwise; no: its slice alone"},
    {"offload-optimizer", MP_OPTION_BOOL, FIELD(offload), "", "no", 0, 0, NULL,
     "optimizer state of experts in host memory, where it is updated; needs zero 1"},
    {0},
};

struct deepspeed {
    struct mp_expert_groups groups; /* first, as its hooks want it */
    struct deepspeed_options options;
    int64_t tokens;   /* of a rank */
    int64_t capacity; /* with drops */
    enum mp_route_order order;
    bool renormalise;
};

/* ---- what it is asked ---- */

static bool is_at_receiver(const struct deepspeed_options *options) {
    return mp_capacity_rules[options->formula].at_receiver;
}

static int64_t capacity_of(const struct mp_setting *setting,
                           const struct deepspeed_options *options) {
    struct mp_capacity_sizes sizes = mp_capacity_sizes_of(setting, options->capacity_factor);
    sizes.least = options->min_capacity;
    return mp_capacity((enum mp_capacity_formula)options->formula, &sizes);
}

static int check_capacity(const struct mp_setting *setting, const struct deepspeed_options *options,
                          struct mp_error *error) {
    if (options->dispatch == ONE_HOT && !options->padded)
        return mp_fail(error, MP_EINVAL,
                       "deepspeed's one-hot dispatch makes a capacity of rows for every expert: it "
                       "takes padded=yes");
    if (is_at_receiver(options) && (options->padded || !options->drop_tokens))
        return mp_fail(error, MP_EINVAL,
                       "deepspeed's formula fastmoe-switch is a capacity for all ranks' routes "
                       "together: it takes padded=no and drop-tokens=yes");
    return options->drop_tokens ? mp_capacity_check("deepspeed", setting, options->capacity_factor,
                                                    capacity_of(setting, options), error)
                                : MP_OK;
}

static int check_groups(const struct mp_expert_groups *groups,
                        const struct deepspeed_options *options, struct mp_error *error) {
    if (groups->groups == 1 || !is_at_receiver(options))
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "deepspeed's formula fastmoe-switch needs every expert on one rank, whose "
                   "capacity it is; here are %d groups of ranks",
                   groups->groups);
}

static int check_zero(const struct deepspeed_options *options, struct mp_error *error) {
    if (options->zero >= 1 || !options->offload)
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "deepspeed needs zero 1 for offload-optimizer, not %d: what is offloaded is a "
                   "replica's slice",
                   options->zero);
}

static enum mp_route_order order_of(enum policy policy, int top_k) {
    switch (policy) {
    case POSITION:
        return MP_ROUTES_BY_TOKEN;
    case PROBABILITY:
        return MP_ROUTES_BY_PROBABILITY;
    case RANDOM:
        return MP_ROUTES_AT_RANDOM;
    default:
        return top_k == 1   ? MP_ROUTES_AT_RANDOM
               : top_k == 2 ? MP_ROUTES_BY_CHOICE
                            : MP_ROUTES_BY_PROBABILITY;
    }
}

static int check_chunks(const struct mp_setting *setting, enum mp_route_order order,
                        struct mp_error *error) {
    const struct mp_exchange *exchange = mp_exchange_of((enum mp_exchange_kind)setting->exchange);
    if (setting->exchange_degree <= 1 || !exchange->deduplicates || order == MP_ROUTES_BY_TOKEN)
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "deepspeed's policy hands out routes %s, not token by token as chunks of tokens "
                   "are: exchange %s takes exchange-degree 1 then, or policy: position",
                   mp_route_order_name(order), exchange->name);
}

static int deepspeed_create(void *opaque, const struct mp_setting *setting, const void *parsed,
                            struct mp_error *error) {
    const struct deepspeed_options *options = parsed;
    struct deepspeed *self = opaque;
    MP_TRY(mp_expert_groups_create("deepspeed", setting, options->expert_parallel, &self->groups,
                                   error));
    MP_TRY(check_capacity(setting, options, error));
    MP_TRY(check_groups(&self->groups, options, error));
    MP_TRY(check_zero(options, error));
    self->options = *options;
    self->tokens = setting->tokens_per_rank;
    self->capacity = capacity_of(setting, options);
    self->order = order_of((enum policy)options->policy, mp_setting_choices(setting));
    self->renormalise = mp_setting_choices(setting) > 1;
    return check_chunks(setting, self->order, error);
}

/* ---- where experts are ---- */

static void deepspeed_policy(const void *opaque, struct mp_policy *policy) {
    const struct deepspeed *self = opaque;
    mp_expert_groups_policy(&self->groups, policy);
    if (self->options.zero >= 1)
        policy->optimizer = self->options.all_reduce ? MP_OPTIMIZER_REPLICA_SLICES_OF_SUM
                                                     : MP_OPTIMIZER_REPLICA_SLICES;
    policy->offload = self->options.offload;
    policy->route_order = self->order;
    policy->renormalise_survivors = self->renormalise;
    policy->one_hot = self->options.dispatch == ONE_HOT;
}

static int deepspeed_copies_limit(const void *opaque) {
    const struct deepspeed *self = opaque;
    /* Replicas persist and no plan adds any; with slices all that is held is put together. */
    return self->options.zero < 1 ? 0 : self->groups.each;
}

static int64_t deepspeed_padding_limit(const struct mp_setting *setting, const void *parsed) {
    const struct deepspeed_options *options = parsed;

    if (!options->padded)
        return 0;
    return options->drop_tokens ? capacity_of(setting, options) : setting->tokens_per_rank;
}

/* ---- plans ---- */

/* A token goes to different experts, so that no source has more routes for one than it has tokens:
 * the bound is the released top-1 gate's. */
static int64_t largest_count(const struct deepspeed *self, const struct mp_load *load) {
    int64_t largest = mp_load_largest(load);
    return largest < self->tokens ? largest : self->tokens;
}

/* Ranks in their order, until an expert is full; whose routes are lost there is left to chance. */
static int dispatch_at_receiver(const struct deepspeed *self, const struct mp_load *load,
                                struct mp_plan *plan, struct mp_error *error) {
    int64_t *room = plan->capacity;
    for (int expert = 0; expert < load->experts; expert++)
        room[expert] = self->capacity;
    MP_TRY(mp_plan_dispatch_begin(plan, error));
    for (int source = 0; source < load->ranks; source++)
        for (int expert = 0; expert < load->experts; expert++) {
            uint32_t routes = mp_load_at(load, source, expert);
            uint32_t kept = routes > room[expert] ? (uint32_t)room[expert] : routes;
            room[expert] -= kept;
            MP_TRY(mp_plan_dispatch_part(plan, plan->during.owner[expert], kept, error));
            mp_plan_dispatch_end_pair(plan);
        }
    for (int expert = 0; expert < load->experts; expert++)
        plan->capacity[expert] = self->capacity;
    return MP_OK;
}

static int deepspeed_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                                struct mp_error *error) {
    const struct deepspeed *self = opaque;

    if (is_at_receiver(&self->options))
        return dispatch_at_receiver(self, load, plan, error);
    plan->source_capacity = self->options.drop_tokens ? self->capacity : largest_count(self, load);
    plan->padding = self->options.padded ? plan->source_capacity : 0;
    return mp_expert_groups_dispatch(&self->groups, load, plan, error);
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
        "dropped, dispatch by products with one-hot matrices as an option, and for experts ZeRO-1, "
        "sums of gradients as the released code makes them, and offload of optimizer state, "
        "updated by the host, which takes its turn after backward. Exchange of survivors alone and "
        "other frameworks' formulas are our own options. Not modelled: what changes the gate's "
        "choices, that is sampling of the second expert by Gumbel noise (on by default there) and "
        "the noisy gates RSample and Jitter; a capacity factor of its own for evaluation; ZeRO of "
        "non-expert parameters and beyond stage 1; tensor parallelism; and the hierarchical "
        "exchange of its inference side.",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_DROPS | MP_SYSTEM_MORE_RANKS,
    .options = option_table,
    .options_size = sizeof(struct deepspeed_options),
    .size = sizeof(struct deepspeed),
    .create = deepspeed_create,
    .initial_owners = mp_expert_groups_owners,
    .initial_holders = mp_expert_groups_holders,
    .policy = deepspeed_policy,
    .copies_limit = deepspeed_copies_limit,
    .padding_limit = deepspeed_padding_limit,
    .after_gate = deepspeed_after_gate,
};
