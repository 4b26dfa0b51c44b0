#include "reference/plan/system.h"

#include <ctype.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *mp_system_capability_name(unsigned bit) {
    static const char *const name[] = {
        "replicates",     "drops",      "changes-gate", "moves-owners",    "plans-before-gate",
        "uneven-experts", "more-ranks", "unattainable", "uses-transitions"};
    for (unsigned i = 0; i < sizeof name / sizeof *name; i++)
        if (bit == 1u << i)
            return name[i];
    return NULL;
}

#define FIGURE(member) offsetof(struct mp_setting, member)

const struct mp_named_number mp_setting_figures[] = {
    {"bandwidth", FIGURE(bandwidth), MP_NUMBER_DOUBLE},
    {"bandwidth-in-node", FIGURE(bandwidth_in_node), MP_NUMBER_DOUBLE},
    {"seconds-per-route", FIGURE(seconds_per_route), MP_NUMBER_DOUBLE},
    {"seconds-per-expert", FIGURE(seconds_per_expert), MP_NUMBER_DOUBLE},
    {"non-moe-seconds", FIGURE(non_moe_seconds), MP_NUMBER_DOUBLE},
    {"copies-memory", FIGURE(copies_memory), MP_NUMBER_DOUBLE},
    {0},
};

static bool is_word(const char *name) {
    if (!islower((unsigned char)name[0]))
        return false;
    for (; *name; name++)
        if (!islower((unsigned char)*name) && !isdigit((unsigned char)*name) && *name != '-')
            return false;
    return true;
}

static bool is_empty(const char *text) {
    return !text || !text[0];
}

/* Data that everybody relies on, and functions against capabilities: the first broken rule, or
 * NULL.
 */
static const char *fault_of(const struct mp_system *system) {
    const unsigned can = system->capabilities;
    const bool copies = can & MP_SYSTEM_REPLICATES, early = can & MP_SYSTEM_PLANS_BEFORE_GATE;
    const struct {
        bool is_broken;
        const char *rule;
    } rules[] = {
        {is_empty(system->title), "the title is empty"},
        {is_empty(system->source), "the source is empty"},
        {is_empty(system->models), "it does not say what of its source is modelled"},
        {can & ~(unsigned)MP_SYSTEM_CAPABILITIES, "it claims a capability that does not exist"},
        {!system->options != !system->options_size,
         "an option table and the size of its struct come together"},
        {!system->create || !system->size, "create and the size of its struct are required"},
        {!system->after_gate, "after_gate is required"},
        {early && !system->before_gate, "plans-before-gate needs before_gate"},
        {system->before_gate && !early, "before_gate needs plans-before-gate"},
        {(can & MP_SYSTEM_MOVES_OWNERS) && !system->after_step, "moves-owners needs after_step"},
        {(can & MP_SYSTEM_USES_TRANSITIONS) && !system->after_step,
         "uses-transitions needs after_step"},
        {copies && !system->copies_limit && !system->initial_holders,
         "replicates needs copies_limit or initial_holders"},
        {system->initial_holders && !(copies && (system->optimizer || system->policy)),
         "initial_holders needs replicates and optimizer or policy"},
        {!system->save != !system->load, "save and load come together"},
        {!system->facts != !system->found, "facts and found come together"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].is_broken)
            return rules[i].rule;
    return NULL;
}

/* Room, tables and tests rely on what a system says of itself. */
static int check_declared(const struct mp_system *system, const struct mp_plan *plan,
                          struct mp_error *error) {
    const struct mp_placement *during = &plan->during;
    int expert = 0, rank;

    if (system->capabilities & MP_SYSTEM_REPLICATES)
        return MP_OK;
    while (expert < during->experts && mp_placement_copies(during, expert) <= 1)
        expert++;
    if (expert == during->experts)
        return MP_OK;
    rank = mp_placement_next(during, expert, 0);
    if (rank == during->owner[expert])
        rank = mp_placement_next(during, expert, rank + 1);
    return mp_fail(error, MP_EPLAN,
                   "system %s: iteration %lld, layer %d: expert %d is on rank %d beside its owner, "
                   "rank %d, and the system does not declare that it copies or replicates: add "
                   "MP_SYSTEM_REPLICATES to .capabilities of its descriptor, mp_system_%s",
                   system->name, (long long)plan->iteration, plan->layer, expert, rank,
                   during->owner[expert], system->name);
}

/* What is to be there before the gate can't be asked for after it: nobody would send it. */
static int check_stages(const struct mp_system *system, const struct mp_plan *plan, int first,
                        struct mp_error *error) {
    for (int i = first; i < plan->fetch.count; i++)
        if (plan->fetch.item[i].stage != MP_STAGE_AFTER_GATE)
            return mp_fail(
                error, MP_EPLAN,
                "system %s: iteration %lld, layer %d: after the gate a copy of expert %d "
                "is added that should be there before it; MP_STAGE_AFTER_GATE is right",
                system->name, (long long)plan->iteration, plan->layer, plan->fetch.item[i].expert);
    return MP_OK;
}

/* A system's own struct, and what comes with it. */
struct made {
    struct mp_arena memory;
    alignas(max_align_t) unsigned char self[];
};

static struct made *made_of(void *self) {
    return (struct made *)((unsigned char *)self - offsetof(struct made, self));
}

struct mp_arena *mp_system_arena(void *self) {
    return &made_of(self)->memory;
}

void mp_system_destroy(const struct mp_system *system, void *self) {
    if (!self)
        return;
    if (system->destroy)
        system->destroy(self);
    mp_arena_release(mp_system_arena(self));
    free(made_of(self));
}

static int check_numbers(const struct mp_system *system, const struct mp_setting *setting,
                         struct mp_error *error) {
    int ranks = setting->topology.ranks, experts = setting->experts;
    if (setting->layers < 1 || experts < 1 || ranks < 1)
        return mp_fail(error, MP_EREFUSED,
                       "%s needs layers, experts and ranks of at least 1, not %d, %d and %d",
                       system->name, setting->layers, experts, ranks);
    if (experts % ranks &&
        !(system->capabilities & (MP_SYSTEM_UNEVEN_EXPERTS | MP_SYSTEM_MORE_RANKS)))
        return mp_fail(error, MP_EREFUSED,
                       "%s needs the same number of experts on every rank: %d experts can't be "
                       "shared by %d ranks",
                       system->name, experts, ranks);
    return MP_OK;
}

/* Creates what may be refused by nobody but the system itself. */
static int make(const struct mp_system *system, const struct mp_setting *setting,
                const void *options, void **self, struct mp_error *error) {
    struct mp_error own = {0};
    struct made *made = calloc(1, sizeof *made + system->size);
    if (!made)
        return mp_fail(error, MP_ENOMEM, "no memory for the system %s", system->name);
    int code = system->create(made->self, setting, options, &own);
    if (made->memory.lacking)
        code = mp_arena_check(&made->memory, &own);
    if (!code) {
        *self = made->self;
        return MP_OK;
    }
    mp_system_destroy(system, made->self);
    return mp_fail(error, code == MP_EINVAL ? MP_EREFUSED : code, "%s", own.text);
}

int mp_system_create(const struct mp_system *system, const struct mp_setting *setting,
                     const void *options, void **self, struct mp_error *error) {
    *self = NULL;
    MP_TRY(check_numbers(system, setting, error));
    const struct mp_exchange *exchange = mp_exchange_of((enum mp_exchange_kind)setting->exchange);
    if (system->exchange && setting->exchange != MP_EXCHANGE_FLAT &&
        (int)system->exchange != setting->exchange)
        return mp_fail(error, MP_EREFUSED,
                       "system %s has an exchange of its own, %s; exchange %s has to go",
                       system->name, mp_exchange_name(system->exchange), exchange->name);
    if (!exchange->takes_padding && mp_system_padding_limit(system, setting, options) > 0)
        return mp_fail(error, MP_EREFUSED, "system %s pads rows, which exchange %s does not take",
                       system->name, exchange->name);
    const struct mp_exchange *taken = mp_exchange_of(mp_system_exchange(system, setting->exchange));
    if (setting->exchange_degree > 1 && !mp_exchange_takes_degree(taken, setting->exchange_degree))
        return mp_fail(error, MP_EREFUSED,
                       "exchange %s takes no exchange-degree %d: it has steps of its own",
                       taken->name, setting->exchange_degree);
    if (mp_setting_shards(setting) > 1 && (system->capabilities & MP_SYSTEM_USES_TRANSITIONS))
        return mp_fail(error, MP_EREFUSED,
                       "system %s follows tokens from expert to expert, which are whole: "
                       "expert-shards %d has to go",
                       system->name, setting->shards);
    if (mp_setting_shards(setting) > 1 && taken->deduplicates)
        return mp_fail(error, MP_EREFUSED,
                       "exchange %s sends a token's row once for all its experts on a rank, which "
                       "are whole: expert-shards %d has to go",
                       taken->name, setting->shards);
    return make(system, setting, options, self, error);
}

void mp_system_policy(const struct mp_system *system, const void *self,
                      const struct mp_setting *setting, struct mp_policy *policy) {
    *policy = mp_policy_plain;
    policy->optimizer = system->optimizer;
    policy->forward_only = setting->forward_only;
    if (system->policy)
        system->policy(self, policy);
    if (setting->weights_behind != MP_WEIGHTS_AS_PLANNED)
        policy->weights_behind = setting->weights_behind == MP_WEIGHTS_BEHIND;
}

int mp_system_begin_plan(const struct mp_system *system, void *self, int64_t iteration, int layer,
                         const struct mp_placement *home, struct mp_plan *plan,
                         struct mp_error *error) {
    MP_TRY(mp_plan_begin(plan, iteration, layer, home, error));

    if (system->before_gate)
        MP_TRY(system->before_gate(self, plan, error));
    return check_declared(system, plan, error);
}

int mp_system_end_plan(const struct mp_system *system, void *self, const struct mp_load *load,
                       struct mp_plan *plan, struct mp_error *error) {
    const int fetches = plan->fetch.count;
    MP_TRY(system->after_gate(self, load, plan, error));
    MP_TRY(check_stages(system, plan, fetches, error));
    return check_declared(system, plan, error);
}

int mp_system_initial_homes(const struct mp_system *system, const void *self, int layers,
                            struct mp_placement home[], struct mp_error *error) {
    size_t experts = (size_t)home[0].experts;
    MP_AUTO(memory) int32_t *owner = NULL;
    MP_TRY(MP_NEW(owner, (size_t)layers * experts, error));
    if (system->initial_owners)
        system->initial_owners(self, owner);
    else
        mp_even_owners(layers, home[0].experts, home[0].ranks, owner);
    for (int layer = 0; layer < layers; layer++)
        mp_placement_set_owners(&home[layer], owner + (size_t)layer * experts);
    if (system->initial_holders)
        system->initial_holders(self, home);
    return MP_OK;
}

int mp_system_shards(const struct mp_system *system, const struct mp_setting *setting,
                     const void *options) {
    int shards = mp_setting_shards(setting);
    if (shards == 1 && system->shards)
        shards = system->shards(setting, options);
    return shards > 1 ? shards : 1;
}

int64_t mp_system_padding_limit(const struct mp_system *system, const struct mp_setting *setting,
                                const void *options) {
    struct mp_setting sizes = *setting;
    for (const struct mp_named_number *figure = mp_setting_figures; figure->name; figure++)
        *mp_setting_figure(&sizes, figure) = 0;
    return system->padding_limit ? system->padding_limit(&sizes, options) : 0;
}

int mp_systems_register(struct mp_systems *systems, const struct mp_system *system,
                        struct mp_error *error) {
    char owner[96];

    if (system->abi != MP_SYSTEM_ABI)
        return mp_fail(error, MP_EVERSION, "system %s was made for ABI %d, this is ABI %d",
                       is_empty(system->name) ? "without a name" : system->name, system->abi,
                       MP_SYSTEM_ABI);
    if (is_empty(system->name) || !is_word(system->name))
        return mp_fail(error, MP_EINVAL,
                       "system \"%s\": the name is not one word of lower-case letters, digits and "
                       "hyphens",
                       system->name ? system->name : "");
    for (int index = 0; index < systems->count; index++)
        if (strcmp(systems->item[index]->name, system->name) == 0)
            return mp_fail(error, MP_EINVAL, "system %s is there already", system->name);
    if (systems->count == MP_SYSTEMS_LIMIT)
        return mp_fail(error, MP_ELIMIT, "system %s is one more than the limit of %d systems",
                       system->name, MP_SYSTEMS_LIMIT);
    const char *fault = fault_of(system);
    if (fault)
        return mp_fail(error, MP_EINVAL, "system %s: %s", system->name, fault);
    snprintf(owner, sizeof owner, "system %s", system->name);
    MP_TRY(mp_options_check(system->options, system->options_size, owner, error));
    systems->item[systems->count++] = system;
    return MP_OK;
}

const struct mp_system *mp_systems_find(const struct mp_systems *systems, const char *name,
                                        struct mp_error *error) {
    const char *word[MP_SYSTEMS_LIMIT + 1];
    char known[512] = "";
    size_t length = 0;

    for (int index = 0; index < systems->count; index++) {
        if (strcmp(systems->item[index]->name, name) == 0)
            return systems->item[index];
        word[index] = systems->item[index]->name;
        if (length < sizeof known)
            length += (size_t)snprintf(known + length, sizeof known - length, "%s%s",
                                       index ? ", " : "", word[index]);
    }
    word[systems->count] = NULL;
    const char *nearest = mp_nearest_word(name, word);
    if (nearest)
        mp_fail(error, MP_ENOTFOUND, "unknown system \"%.80s\"; did you mean \"%s\"?", name,
                nearest);
    else
        mp_fail(error, MP_ENOTFOUND, "unknown system \"%.80s\"; known are %s", name,
                systems->count ? known : "none");
    return NULL;
}
