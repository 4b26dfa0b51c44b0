/* SYMI as a system: options, layouts that follow popularity, plans and the descriptor. */
#include "baselines/swiftmoe/swiftmoe.h"

#include <string.h>

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
    int layers, experts, ranks;
    int64_t slot_capacity; /* routes, -1: no limit */
    bool offload;
    struct mp_layouts layouts;        /* what the homes should be now */
    struct mp_slots initial;          /* before any load was seen, of every layer */
    struct mp_placement initial_home; /* the same as ranks that hold experts */
    int64_t *popularity;              /* [layers][experts], routes of the last iteration; owned */
    int64_t *difference;              /* [experts], working memory, owned */
    int32_t *count;                   /* [experts], working memory, owned */
};

int mp_swiftmoe_slots(const struct mp_setting *setting, const struct mp_swiftmoe_options *options) {
    int ranks = setting->topology.ranks, experts = setting->experts;

    if (options->slots == MP_ALL)
        return experts;
    if (options->slots == MP_AUTO)
        return 2 * (experts / ranks + (experts % ranks != 0));
    return options->slots;
}

static int check(const struct mp_setting *setting, const struct mp_swiftmoe_options *options,
                 struct mp_error *error) {
    if (setting->tokens_per_rank < 1 || setting->top_k < 1)
        return mp_fail(error, MP_EINVAL,
                       "swiftmoe needs tokens per rank and experts per token of at least 1, not "
                       "%lld and %d",
                       (long long)setting->tokens_per_rank, setting->top_k);
    return mp_layouts_check("swiftmoe", setting, mp_swiftmoe_slots(setting, options),
                            options->capacity_factor, error);
}

/* Ranks with a slot of an expert are its homes, and the lowest of them makes the sum of their
 * gradients: where an expert ends and the next one begins, a rank sends one sum on and receives the
 * other one, and never two.  Nothing lies with an owner for which it had to stay. */
static int find_homes(const struct mp_slots *slots, struct mp_placement *home,
                      struct mp_error *error) {
    int code = mp_slots_homes(slots, home, error);
    for (int expert = 0; expert < slots->experts && !code; expert++)
        home->owner[expert] = mp_placement_next(home, expert, 0);
    return code;
}

/* The layout that follows from a layer's popularity. */
static int lay_out(struct swiftmoe *self, const int64_t popularity[], struct mp_slots *slots,
                   struct mp_error *error) {
    int code = mp_swiftmoe_counts(popularity, self->experts, slots->ranks * slots->per_rank,
                                  self->difference, self->count, error);
    if (!code)
        mp_swiftmoe_place(self->count, slots);
    return code;
}

static int lay_out_all(struct swiftmoe *self, struct mp_error *error) {
    int code = MP_OK;

    for (int layer = 0; layer < self->layers && !code; layer++)
        code = lay_out(self, self->popularity + (size_t)layer * (size_t)self->experts,
                       &self->layouts.slots[layer], error);
    return code;
}

static void swiftmoe_destroy(void *opaque) {
    struct swiftmoe *self = opaque;
    mp_placement_destroy(&self->initial_home);
}

static int allocate(struct swiftmoe *self, int per_rank, struct mp_error *error) {
    struct mp_arena *memory = mp_system_arena(self);
    size_t layers = (size_t)self->layers, experts = (size_t)self->experts;

    MP_TAKE(memory, self->popularity, layers * experts);
    MP_TAKE_EACH(memory, experts, self->difference, self->count);
    if (memory->lacking)
        return MP_ENOMEM;
    int code = mp_layouts_create(memory, self->layers, self->ranks, self->experts, per_rank, 0,
                                 &self->layouts, error);
    if (!code)
        code = mp_slots_create(memory, self->ranks, self->experts, per_rank, &self->initial, error);
    if (!code)
        code = mp_placement_create(self->ranks, self->experts, &self->initial_home, error);
    return code;
}

static int swiftmoe_create(void *opaque, const struct mp_setting *setting, const void *options,
                           struct mp_error *error) {
    const struct mp_swiftmoe_options *chosen = options;
    const int per_rank = mp_swiftmoe_slots(setting, options);
    int code = check(setting, options, error);
    if (code)
        return code;
    struct swiftmoe *self = opaque;
    self->layers = setting->layers;
    self->experts = setting->experts;
    self->ranks = setting->topology.ranks;
    self->slot_capacity = mp_slot_capacity(setting, per_rank, chosen->capacity_factor);
    self->offload = chosen->offload;
    code = allocate(self, per_rank, error);
    if (!code)
        code = lay_out_all(self, error); /* nothing popular yet: equal goals */
    if (!code)
        code = lay_out(self, self->popularity, &self->initial, error);
    return code ? code : find_homes(&self->initial, &self->initial_home, error);
}

static void swiftmoe_initial_owners(const void *opaque, int32_t owner[]) {
    const struct swiftmoe *self = opaque;

    for (int layer = 0; layer < self->layers; layer++)
        for (int expert = 0; expert < self->experts; expert++)
            *owner++ = self->initial_home.owner[expert];
}

static void swiftmoe_initial_holders(const void *opaque, struct mp_placement home[]) {
    const struct swiftmoe *self = opaque;

    for (int layer = 0; layer < self->layers; layer++)
        mp_placement_copy(&home[layer], &self->initial_home);
}

static void swiftmoe_policy(const void *opaque, struct mp_policy *policy) {
    const struct swiftmoe *self = opaque;
    policy->offload = self->offload;
}

static int swiftmoe_copies_limit(const void *opaque) {
    const struct swiftmoe *self = opaque;
    int per_rank = self->initial.per_rank;

    return per_rank < self->experts ? per_rank : self->experts;
}

static bool same_holders(const struct mp_placement *one, const struct mp_placement *other) {
    size_t words = (size_t)one->experts * (size_t)one->words;
    return memcmp(one->holder, other->holder, words * sizeof *one->holder) == 0;
}

/* The slots that a layer's homes stand for.  A run that was restored on other ranks begins with the
 * initial layout whatever was popular; homes from elsewhere say nothing of slots. */
static struct mp_slots *slots_of(struct swiftmoe *self, int layer,
                                 const struct mp_placement *home) {
    struct mp_slots *slots = mp_layouts_for_home(&self->layouts, layer, home);

    if (slots == &self->layouts.derived && same_holders(&self->initial_home, home))
        return &self->initial;
    return slots;
}

static int swiftmoe_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                               struct mp_error *error) {
    struct swiftmoe *self = opaque;
    struct mp_slots *slots = slots_of(self, plan->layer, &plan->before);

    mp_plan_slot_capacities(plan, slots, self->slot_capacity);
    return mp_plan_dispatch_slots(plan, load, slots, MP_SPREAD_TURN, error);
}

static int swiftmoe_after_step(void *opaque, int64_t iteration, const struct mp_load load[],
                               const struct mp_placement home[], struct mp_rehome *change,
                               struct mp_error *error) {
    struct swiftmoe *self = opaque;

    (void)iteration;
    for (int layer = 0; layer < self->layers; layer++) {
        int64_t *popularity = self->popularity + (size_t)layer * (size_t)self->experts;
        struct mp_slots *slots = &self->layouts.slots[layer];
        mp_load_expert_totals(&load[layer], popularity);
        int code = lay_out(self, popularity, slots, error);
        if (!code)
            code = find_homes(slots, &change->next[layer], error);
        if (code)
            return code;
        change->changed |= !mp_placement_equal(&change->next[layer], &home[layer]);
    }
    return MP_OK;
}

/* Saved: this head, then `popularity`. */
struct head {
    char magic[8]; /* its last letter changes with the format */
    int32_t layers, experts;
};
static const char MAGIC[8] = {'M', 'P', 'S', 'W', 'I', 'F', 'T', '1'};

static size_t popularity_bytes(const struct swiftmoe *self) {
    return (size_t)self->layers * (size_t)self->experts * sizeof *self->popularity;
}

static size_t swiftmoe_save(const void *opaque, void *buffer, size_t size) {
    const struct swiftmoe *self = opaque;
    struct head head = {.layers = self->layers, .experts = self->experts};
    size_t bytes = popularity_bytes(self);

    if (size >= sizeof head + bytes) {
        memcpy(head.magic, MAGIC, sizeof MAGIC);
        memcpy(buffer, &head, sizeof head);
        memcpy((char *)buffer + sizeof head, self->popularity, bytes);
    }
    return sizeof head + bytes;
}

/* Popularity from outside adds up without overflow and is never negative. */
static bool plausible(const char *bytes, size_t cells) {
    int64_t routes;

    for (size_t cell = 0; cell < cells; cell++) {
        memcpy(&routes, bytes + cell * sizeof routes, sizeof routes);
        if (routes < 0 || routes > INT64_C(1) << 42)
            return false;
    }
    return true;
}

static int swiftmoe_load(void *opaque, const void *buffer, size_t size, struct mp_error *error) {
    struct swiftmoe *self = opaque;
    size_t bytes = popularity_bytes(self);
    struct head head;

    if (size != sizeof head + bytes)
        return mp_fail(error, MP_EFORMAT,
                       "the saved state of swiftmoe has %zu bytes instead of %zu", size,
                       sizeof head + bytes);
    memcpy(&head, buffer, sizeof head);
    if (memcmp(head.magic, MAGIC, sizeof MAGIC) != 0)
        return mp_fail(error, MP_EFORMAT, "what was saved is no state of swiftmoe of this version");
    if (head.layers != self->layers || head.experts != self->experts)
        return mp_fail(error, MP_EFORMAT,
                       "the saved state of swiftmoe is of %d layers with %d experts, the job has "
                       "%d with %d",
                       head.layers, head.experts, self->layers, self->experts);
    const char *popularity = (const char *)buffer + sizeof head;
    if (!plausible(popularity, bytes / sizeof *self->popularity))
        return mp_fail(error, MP_EFORMAT, "the saved state of swiftmoe has impossible routes");
    memcpy(self->popularity, popularity, bytes);
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
        "memory, if asked for. "
        "Not modelled: weights that are sent asynchronously after the step (the next iteration "
        "waits for them).",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_DROPS | MP_SYSTEM_MOVES_OWNERS |
                    MP_SYSTEM_UNEVEN_EXPERTS | MP_SYSTEM_MORE_RANKS,
    .options = option_table,
    .options_size = sizeof(struct mp_swiftmoe_options),
    .size = sizeof(struct swiftmoe),
    .create = swiftmoe_create,
    .destroy = swiftmoe_destroy,
    .initial_owners = swiftmoe_initial_owners,
    .initial_holders = swiftmoe_initial_holders,
    .optimizer = MP_OPTIMIZER_SLICES_OF_SUM,
    .policy = swiftmoe_policy,
    .copies_limit = swiftmoe_copies_limit,
    .after_gate = swiftmoe_after_gate,
    .after_step = swiftmoe_after_step,
    .save = swiftmoe_save,
    .load = swiftmoe_load,
};
