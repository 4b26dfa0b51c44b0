/* The wanderer: a system whose policy is what its options say, and whose plans are anything that
 * the law allows: homes, copies early, late and sent ahead, who computes what, in which chunks.  It
 * has no reason for any of it, and so meets what no system happens to meet that has one. */
#pragma once

#include "reference/base/random.h"
#include "reference/plan/chunks.h"
#include "tests/reference/plan/system_support.h"

struct wanderer_options {
    int optimizer; /* mp_optimizer_split */
    int early, behind, rematerialise, updates, offload, asynchronous;
    int gather_ahead;
    int copies; /* a fifth each of the (expert, rank) that may become copies, early and late */
    int room;   /* for homes beyond those at first, and for copies */
    int moves;  /* tried in a layer and iteration */
    int degree;
};

#define WANDERS(name, type, member, usual, most, of)                                               \
    { name, type, offsetof(struct wanderer_options, member), "", usual, 0, most, of, "drawn" }
#define YES_OR_NO(name, member) WANDERS(name, MP_OPTION_CHOICE, member, "no", 0, "no yes")
static const struct mp_option wanderer_table[] = {
    WANDERS("optimizer", MP_OPTION_CHOICE, optimizer, "owner", 0,
            "owner replicated slices slices-of-sum replica-slices replica-slices-of-sum"),
    YES_OR_NO("early", early),
    YES_OR_NO("behind", behind),
    YES_OR_NO("rematerialise", rematerialise),
    YES_OR_NO("updates-early", updates),
    YES_OR_NO("offload", offload),
    YES_OR_NO("asynchronous", asynchronous),
    WANDERS("gather-ahead", MP_OPTION_INT, gather_ahead, "0", MP_MOST_AHEAD, NULL),
    WANDERS("copies", MP_OPTION_INT, copies, "0", 5, NULL),
    WANDERS("room", MP_OPTION_INT, room, "0", 64, NULL),
    WANDERS("moves", MP_OPTION_INT, moves, "0", 64, NULL),
    WANDERS("degree", MP_OPTION_INT, degree, "0", MP_MOST_DEGREE, NULL),
    {0},
};
#undef WANDERS
#undef YES_OR_NO

struct wanderer {
    struct mp_setting setting;
    struct wanderer_options options;
    struct mp_policy policy;
    struct mp_expert_chunks chunks;
    int32_t *kept; /* [layers][ranks], experts of homes */
    int32_t *copy; /* [ranks] of a layer */
    int most_kept; /* on a rank, of all layers, or of one with a sliced optimizer */
};

/* Where random numbers of one layer and iteration begin; 4 purposes. */
static inline uint64_t wanderer_draws(const struct wanderer *self, int64_t iteration, int layer,
                                      int purpose) {
    return mp_random_bits(self->setting.seed, (uint64_t)(iteration * 4 + purpose), (uint64_t)layer);
}

/* What there is of the policy under this optimizer. */
static inline void wanderer_settle(struct wanderer *self) {
    const struct wanderer_options *o = &self->options;
    struct mp_policy *policy = &self->policy;
    const bool sliced = mp_optimizer_sliced((enum mp_optimizer_split)o->optimizer);
    *policy = mp_policy_plain;
    policy->optimizer = (enum mp_optimizer_split)o->optimizer;
    policy->gather_before_gate = sliced && o->early;
    policy->gather_ahead = policy->gather_before_gate ? o->gather_ahead : 0;
    policy->fetch_early = !sliced && o->early;
    policy->weights_behind = o->behind;
    policy->rematerialise = o->rematerialise && (!sliced || o->early);
    policy->offload = o->offload;
    policy->updates_early = o->updates && o->optimizer == MP_OPTIMIZER_OWNER && !o->offload &&
                            !o->rematerialise && !self->setting.forward_only;
}

static inline int wanderer_create(void *opaque, const struct mp_setting *setting,
                                  const void *options, UNUSED struct mp_error *error) {
    struct wanderer *self = opaque;
    const int ranks = setting->topology.ranks;
    self->setting = *setting;
    self->options = *(const struct wanderer_options *)options;
    wanderer_settle(self);
    struct mp_arena *memory = mp_system_arena(self);
    MP_TAKE(memory, self->kept, setting->layers * ranks);
    MP_TAKE(memory, self->copy, ranks);
    mp_expert_chunks_create(memory, &setting->topology, setting->layers, setting->experts * ranks,
                            &self->chunks);
    return MP_OK;
}

static inline void wanderer_policy(const void *opaque, struct mp_policy *policy) {
    const bool serves = policy->forward_only;
    *policy = ((const struct wanderer *)opaque)->policy;
    policy->forward_only = serves;
}

static inline void wanderer_owners(const void *opaque, int32_t owner[]) {
    const struct wanderer *self = opaque;
    for (int layer = 0; layer < self->setting.layers; layer++) {
        uint64_t random = wanderer_draws(self, 0, layer, 0);
        for (int expert = 0; expert < self->setting.experts; expert++)
            *owner++ = test_random_int(&random, 0, self->setting.topology.ranks - 1);
    }
}

/* Beside the owner: any number, or as many of every expert where slices lie with its holders; as
 * many as divide experts of tests, whose elements are a multiple of 48. */
static inline void wanderer_holders(const void *opaque, struct mp_placement home[]) {
    const struct wanderer *self = opaque;
    const int ranks = self->setting.topology.ranks, split = self->options.optimizer;
    uint64_t random = wanderer_draws(self, 0, 0, 1);
    int each = test_random_int(&random, 1, ranks);
    while (48 % each != 0)
        each--;
    for (int layer = 0; layer < self->setting.layers && split != MP_OPTIMIZER_OWNER; layer++)
        for (int expert = 0; expert < self->setting.experts; expert++) {
            int wanted = mp_optimizer_of_replicas((enum mp_optimizer_split)split)
                             ? each
                             : test_random_int(&random, 1, ranks);
            while (mp_placement_copies(&home[layer], expert) < wanted)
                mp_placement_add(&home[layer], expert, test_random_int(&random, 0, ranks - 1));
        }
}

static inline int wanderer_least(int a, int b) {
    return a < b ? a : b;
}

/* Experts that ranks keep, and the most of one rank: all that count for its memory. */
static inline int wanderer_count(struct wanderer *self, const struct mp_placement home[]) {
    const int layers = self->setting.layers, ranks = self->setting.topology.ranks;
    const bool sliced = mp_optimizer_sliced(self->policy.optimizer);
    int most = 0;
    memset(self->kept, 0, (size_t)layers * (size_t)ranks * sizeof *self->kept);
    for (int layer = 0; layer < layers; layer++)
        for (int expert = 0; expert < self->setting.experts; expert++)
            for (int rank = mp_placement_next(&home[layer], expert, 0); rank >= 0;
                 rank = mp_placement_next(&home[layer], expert, rank + 1)) {
                int32_t *kept = &self->kept[(sliced ? layer * ranks : 0) + rank];
                most = ++*kept > most ? *kept : most;
            }
    return most;
}

/* As much as the first homes need, and room. */
static inline int wanderer_limit(const struct wanderer *self, int all) {
    const struct mp_setting *setting = &self->setting;
    struct mp_arena memory = {0};
    struct mp_placement *home;
    int32_t *owner;
    MP_TAKE(&memory, home, setting->layers);
    MP_TAKE(&memory, owner, setting->layers * setting->experts);
    wanderer_owners(self, owner);
    for (int layer = 0; layer < setting->layers; layer++) {
        mp_placement_take(&memory, setting->topology.ranks, setting->experts, &home[layer]);
        mp_placement_set_owners(&home[layer], owner + layer * setting->experts);
    }
    wanderer_holders(self, home);
    int most = wanderer_count((struct wanderer *)(uintptr_t)self, home);
    mp_arena_release(&memory);
    return wanderer_least(most + self->options.room, all);
}

static inline int wanderer_homes_limit(const void *opaque) {
    struct wanderer *self = (struct wanderer *)(uintptr_t)opaque;
    return self->most_kept = wanderer_limit(self, self->setting.layers * self->setting.experts);
}

static inline int wanderer_copies_limit(const void *opaque) {
    struct wanderer *self = (struct wanderer *)(uintptr_t)opaque;
    if (mp_optimizer_sliced(self->policy.optimizer))
        return self->most_kept = wanderer_limit(self, self->setting.experts);
    return wanderer_least(self->options.room, self->setting.experts);
}

/* For a copy more, on a rank. */
static inline bool wanderer_has_room(struct wanderer *self, const struct mp_plan *plan, int rank) {
    memset(self->copy, 0, (size_t)plan->topology.ranks * sizeof *self->copy);
    for (int i = 0; i < plan->fetch.count; i++)
        self->copy[plan->fetch.item[i].to]++;
    return self->copy[rank] < self->options.room;
}

/* Copies of this stage: from owners, from who holds the expert by then, or through an entry. */
static inline int wanderer_copy(struct wanderer *self, struct mp_plan *plan, enum mp_stage stage,
                                uint64_t *random, struct mp_error *error) {
    const struct mp_placement *has =
        self->policy.rematerialise || stage == MP_STAGE_BEFORE_GATE ? &plan->before : &plan->during;
    const int early = plan->fetch.count, ranks = plan->topology.ranks;
    for (int i = 0; i < plan->experts * ranks; i++) {
        const int expert = i / ranks, rank = i % ranks;
        if (test_random_int(random, 0, 4) >= self->options.copies ||
            mp_placement_holds(&plan->during, expert, rank) || !wanderer_has_room(self, plan, rank))
            continue;
        int from = mp_placement_next(has, expert, test_random_int(random, 0, ranks - 1));
        bool fresh = false; /* fetched in the same stage */
        for (int f = early; f < plan->fetch.count; f++)
            fresh |= plan->fetch.item[f].expert == expert && plan->fetch.item[f].to == from;
        if (stage == MP_STAGE_BEFORE_GATE && test_random_int(random, 0, 1))
            MP_TRY(mp_plan_add_entry(plan, expert, rank, stage, error));
        else if (stage == MP_STAGE_BEFORE_GATE || from < 0 || fresh)
            MP_TRY(mp_plan_add_copy(plan, expert, rank, stage, error));
        else
            MP_TRY(mp_plan_add_copy_from(plan, expert, from, rank, stage, error));
    }
    return MP_OK;
}

static inline int wanderer_before_gate(void *opaque, struct mp_plan *plan, struct mp_error *error) {
    struct wanderer *self = opaque;
    uint64_t random = wanderer_draws(self, plan->iteration, plan->layer, 1);
    const int degree = self->options.degree > 1 ? self->options.degree : 1;
    /* Of a job with chunks plans say nothing, and not every exchange takes any. */
    if (self->setting.exchange_degree <= 1 &&
        mp_exchange_takes_degree(mp_exchange_of((enum mp_exchange_kind)self->setting.exchange),
                                 degree))
        plan->degree = degree;
    if (mp_optimizer_sliced(self->policy.optimizer))
        return MP_OK;
    return wanderer_copy(self, plan, MP_STAGE_BEFORE_GATE, &random, error);
}

/* A source's routes to an expert in parts, from any of its holders on. */
static inline int wanderer_share_out(struct mp_plan *plan, int expert, uint32_t routes,
                                     uint64_t *random, struct mp_error *error) {
    const int32_t *holder = plan->holder + plan->holder_begin[expert];
    const int count = plan->holder_begin[expert + 1] - plan->holder_begin[expert];
    for (int i = 0, first = test_random_int(random, 0, count - 1); i < count; i++) {
        uint32_t part = i < count - 1 ? (uint32_t)test_random_int(random, 0, (int)routes) : routes;
        MP_TRY(mp_plan_dispatch_part(plan, holder[(first + i) % count], part, error));
        routes -= part;
    }
    mp_plan_dispatch_end_pair(plan);
    return MP_OK;
}

static inline int wanderer_send_ahead(struct wanderer *self, struct mp_plan *plan, uint64_t *random,
                                      struct mp_error *error) {
    memset(self->copy, 0, (size_t)plan->topology.ranks * sizeof *self->copy);
    for (int expert = 0; self->policy.updates_early && expert < plan->experts; expert++)
        for (int rank = 0; rank < plan->topology.ranks; rank++)
            if (test_random_int(random, 0, 2) == 0 && self->copy[rank] < self->options.room &&
                rank != plan->during.owner[expert]) {
                self->copy[rank]++;
                MP_TRY(mp_plan_send_ahead(plan, expert, rank, error));
            }
    return MP_OK;
}

static inline int wanderer_after_gate(void *opaque, const struct mp_load *load,
                                      struct mp_plan *plan, struct mp_error *error) {
    struct wanderer *self = opaque;
    uint64_t random = wanderer_draws(self, plan->iteration, plan->layer, 2);
    const struct mp_exchange *exchange = mp_exchange_of(plan->exchange);
    if (!mp_optimizer_sliced(self->policy.optimizer))
        MP_TRY(wanderer_copy(self, plan, MP_STAGE_AFTER_GATE, &random, error));
    if (test_random_int(&random, 0, 3) == 0) {
        MP_TRY(mp_plan_dispatch_nearest(plan, load, error));
    } else {
        MP_TRY(mp_plan_dispatch_begin(plan, error));
        for (int i = 0; i < load->ranks * load->experts; i++)
            MP_TRY(wanderer_share_out(plan, i % load->experts, load->count[i], &random, error));
    }
    if (!exchange->deduplicates)
        plan->degree = test_random_int(&random, 1, plan->degree);
    if (!exchange->deduplicates && plan->degree > 1 && test_random_int(&random, 0, 1))
        mp_expert_chunks_cut(&self->chunks, plan);
    return wanderer_send_ahead(self, plan, &random, error);
}

/* A holder, or an owner, elsewhere.  What leaves still counts until it has arrived. */
static inline void wanderer_move(struct wanderer *self, struct mp_placement *next, int32_t *kept,
                                 uint64_t *random) {
    const int expert = test_random_int(random, 0, next->experts - 1);
    const int to = test_random_int(random, 0, next->ranks - 1), from = next->owner[expert];
    const bool alone = self->policy.optimizer == MP_OPTIMIZER_OWNER;
    if (mp_placement_holds(next, expert, to)) {
        if (to != from && test_random_int(random, 0, 1)) {
            mp_placement_remove(next, expert, to);
            kept[to] -= !self->options.asynchronous;
        } else {
            next->owner[expert] = to;
        }
        return;
    }
    if (kept[to] >= self->most_kept)
        return;
    mp_placement_add(next, expert, to);
    kept[to]++;
    if (!alone && test_random_int(random, 0, 1))
        return;
    mp_placement_remove(next, expert, from);
    kept[from] -= !self->options.asynchronous;
    next->owner[expert] = to;
}

static inline int wanderer_after_step(void *opaque, int64_t iteration,
                                      UNUSED const struct mp_load load[],
                                      const struct mp_placement home[], struct mp_rehome *change,
                                      UNUSED struct mp_error *error) {
    struct wanderer *self = opaque;
    const enum mp_optimizer_split split = self->policy.optimizer;
    wanderer_count(self, home);
    for (int layer = 0; layer < self->setting.layers; layer++) {
        uint64_t random = wanderer_draws(self, iteration, layer, 3);
        int32_t *kept = self->kept;
        kept += mp_optimizer_sliced(split) ? layer * self->setting.topology.ranks : 0;
        for (int i = 0; i < self->options.moves && !mp_optimizer_of_replicas(split); i++)
            wanderer_move(self, &change->next[layer], kept, &random);
        change->changed |= !mp_placement_equal(&change->next[layer], &home[layer]);
    }
    change->asynchronous =
        change->changed && self->options.asynchronous && split == MP_OPTIMIZER_REPLICATED;
    return MP_OK;
}

static const struct mp_system wanderer = {
    .abi = MP_SYSTEM_ABI,
    .name = "wanderer",
    .title = "Anything that the law allows",
    .source = "tests",
    .models = "Nothing.",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_MOVES_OWNERS | MP_SYSTEM_PLANS_BEFORE_GATE |
                    MP_SYSTEM_UNEVEN_EXPERTS | MP_SYSTEM_MORE_RANKS,
    .options = wanderer_table,
    .options_size = sizeof(struct wanderer_options),
    .size = sizeof(struct wanderer),
    .create = wanderer_create,
    .initial_owners = wanderer_owners,
    .initial_holders = wanderer_holders,
    .policy = wanderer_policy,
    .copies_limit = wanderer_copies_limit,
    .homes_limit = wanderer_homes_limit,
    .before_gate = wanderer_before_gate,
    .after_gate = wanderer_after_gate,
    .after_step = wanderer_after_step,
};

/* "system=wanderer", and a value for each of its options. */
static inline const char *draw_wanderer(uint64_t *random, char text[1024]) {
    int at = sprintf(text, "system=wanderer");
    for (const struct mp_option *o = wanderer_table; o->name; o++) {
        char value[64];
        draw_value(random, o, value, sizeof value);
        at += sprintf(text + at, " options.%s=%s", o->name, value);
    }
    return text;
}
