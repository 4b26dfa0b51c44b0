/* SYMI, called SwiftMoE in its first version (arXiv 2504.19925).
 *
 * No rank keeps an expert's optimizer whole: it lies in uniform slices over all ranks, so that
 * weights are put together from everywhere after every step, and where they are put costs nothing
 * extra.  Every iteration therefore begins with a placement of its own: an expert gets slots in
 * proportion to its routes in the iteration before, and a capacity in proportion to its slots.
 *
 * The paper's optimizer lies in host memory.  Here it does so if asked to: who compares systems on
 * a cluster of his own wants all of them to keep their state in the same place.
 *
 * No code of the authors is known.  Decided here where the text is silent: ties go to the lower
 * expert; differences are exact; without any route all goals are equal; a slot's capacity is
 * rounded down; the lowest rank with an expert sums its gradients; an expert's routes are counted
 * over all sources in ascending order, route j goes to slot j mod n, and the first ones are kept.
 * The paper's gate is top-1: with more experts per token its tokens are our routes. */
#include "reference/plan/layouts.h"

struct swiftmoe_options {
    int slots;              /* per rank and layer, or MP_AUTO: 2 ceil(E / R) */
    double capacity_factor; /* 0: nothing is dropped */
    bool offload;
};

#define FIELD(member) offsetof(struct swiftmoe_options, member)

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

/* Slots per rank under these options.  The paper has 4 for 16 experts on 16 ranks, four times what
 * holding every expert once needs; auto is twice, since every slot is memory for an expert. */
static int slots_per_rank(const struct mp_setting *setting,
                          const struct swiftmoe_options *options) {
    int ranks = setting->topology.ranks, experts = setting->experts;

    if (options->slots == MP_ALL)
        return experts;
    if (options->slots == MP_AUTO)
        return 2 * (experts / ranks + (experts % ranks != 0));
    return options->slots;
}

/* ---- slots from popularity (SYMI's placement scheduler) ---- */

/* Differences are count - goal times the sum of all routes, which keeps them whole. */
static int32_t least_difference(const int64_t difference[], int experts) {
    int32_t least = 0;

    for (int32_t expert = 1; expert < experts; expert++)
        if (difference[expert] < difference[least])
            least = expert;
    return least;
}

/* The most above its goal of those that can lose a slot, or -1. */
static int32_t greatest_difference(const int64_t difference[], const int32_t count[], int experts) {
    int32_t greatest = -1;

    for (int32_t expert = 0; expert < experts; expert++)
        if (count[expert] > 1 && (greatest < 0 || difference[expert] > difference[greatest]))
            greatest = expert;
    return greatest;
}

/* Slots of every expert, as many at least as there are experts: goals popularity / sum * slots,
 * rounded down but at least 1; then slots are taken where the count is most above its goal, or
 * added where it is most below, until they add up.  The published loop also lets the difference of
 * an expert with one slot fall when its turn to lose one comes.  Nothing else depends on that
 * difference, so such experts are passed over here: the counts are the same.
 *   popularity  [experts], routes; all 0: equal goals
 *   difference  [experts], working memory
 *   count       [experts], out; adds up to `slots`
 * MP_ELIMIT (routes * slots beyond 62 bits). */
static int count_slots(const int64_t popularity[], int experts, int slots, int64_t difference[],
                       int32_t count[], struct mp_error *error) {
    int64_t sum = 0, given = 0;

    for (int expert = 0; expert < experts; expert++)
        sum += popularity[expert];
    bool equal = sum == 0;
    if (equal)
        sum = experts;
    if (sum > (INT64_MAX / 2) / slots)
        return mp_fail(error, MP_ELIMIT, "%lld routes are too many to be shared by %d slots",
                       (long long)sum, slots);
    for (int expert = 0; expert < experts; expert++) {
        int64_t goal = (equal ? 1 : popularity[expert]) * slots; /* times sum */
        count[expert] = goal < sum ? 1 : (int32_t)(goal / sum);
        difference[expert] = count[expert] * sum - goal;
        given += count[expert];
    }
    for (; given > slots; given--) {
        int32_t expert = greatest_difference(difference, count, experts);
        count[expert]--;
        difference[expert] -= sum;
    }
    for (; given < slots; given++) {
        int32_t expert = least_difference(difference, experts);
        count[expert]++;
        difference[expert] += sum;
    }
    return MP_OK;
}

/* Fills the slots expert by expert, rank by rank: expert 0 count[0] times, expert 1 ...  Replicas
 * lie on neighbouring ranks. */
static void place(const int32_t count[], struct mp_slots *slots) {
    int32_t *slot = slots->expert;

    for (int32_t expert = 0; expert < slots->experts; expert++)
        for (int32_t instance = 0; instance < count[expert]; instance++)
            *slot++ = expert;
    mp_slots_index(slots, 0);
}

/* ---- the system ---- */

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
        MP_TRY(count_slots(popularity, slots->experts, slots->ranks * slots->per_rank,
                           self->difference, self->count, error));
        place(self->count, slots);
    }
    return MP_OK;
}

static int swiftmoe_create(void *opaque, const struct mp_setting *setting, const void *options,
                           struct mp_error *error) {
    const struct swiftmoe_options *chosen = options;
    const int per_rank = slots_per_rank(setting, options);
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
    .options_size = sizeof(struct swiftmoe_options),
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
