/* A rehearsal: a system plans iteration after iteration as the trainer has it do, on loads that a
 * test makes, and every plan and every change of homes is held against the law. */
#pragma once

#include "reference/base/digest.h"
#include "reference/plan/planner.h"
#include "tests/reference/plan/plan_support.h"
#include "tests/reference/plan/system_support.h"

struct rehearsal {
    struct mp_planner planner; /* all layers share its plan */
    struct mp_load *load;      /* [layers] for tests to fill; of no routes at first */
    int64_t iteration;
    int changes;    /* experts that gained a holder in steps so far */
    int copies;     /* fetched by plans so far */
    uint64_t moves; /* digest of what moved so far; begins as 0 */
};

/* FNV-1a by words of 8 bytes, each mixed downwards. */
static inline uint64_t digest_of(uint64_t digest, const void *memory, size_t size) {
    for (size_t at = 0; at < size; at += sizeof digest) {
        uint64_t word = 0;
        memcpy(&word, (const char *)memory + at, size - at < sizeof word ? size - at : sizeof word);
        digest = (digest ^ word) * UINT64_C(1099511628211);
        digest ^= digest >> 32;
    }
    return digest;
}

static inline uint64_t digest_of_homes(uint64_t digest, const struct mp_placement *homes) {
    size_t experts = (size_t)homes->experts, words = experts * (size_t)homes->words;
    digest = digest_of(digest, homes->holder, words * sizeof *homes->holder);
    return digest_of(digest, homes->owner, experts * sizeof *homes->owner);
}

static inline uint64_t digest_of_transfers(uint64_t digest, const struct mp_transfers *list) {
    for (int i = 0; i < list->count; i++) {
        const struct mp_transfer *one = &list->item[i];
        const int64_t facts[] = {one->layer, one->expert, one->from,
                                 one->to,    one->bytes,  (int64_t)one->stage};
        digest = digest_of(digest, facts, sizeof facts);
    }
    return digest;
}

static inline void rehearsal_create(struct rehearsal *rehearsal, const struct mp_system *system,
                                    const struct mp_setting *setting, const void *options) {
    const struct mp_planner_config config = {
        .system = system, .options = options, .setting = setting, .check_plans = true};
    *rehearsal = (struct rehearsal){0};
    assert_works(mp_planner_create(&config, &rehearsal->planner, &error));
    rehearsal->load = calloc((size_t)setting->layers, sizeof *rehearsal->load);
    assert_non_null(rehearsal->load);
    for (int layer = 0; layer < setting->layers; layer++)
        assert_works(mp_load_create(setting->topology.ranks, setting->experts,
                                    &rehearsal->load[layer], &error));
}

/* With options as users write them; see parse_options. */
static inline void rehearsal_open(struct rehearsal *rehearsal, const struct mp_system *system,
                                  const struct mp_setting *setting, const char *text) {
    AUTO(allocated) void *options = malloc(system->options_size);
    assert_non_null(options);
    parse_options(system, options, text);
    rehearsal_create(rehearsal, system, setting, options);
}

static inline void rehearsal_destroy(struct rehearsal *rehearsal) {
    for (int layer = 0; layer < rehearsal->planner.setting.layers; layer++)
        mp_load_destroy(&rehearsal->load[layer]);
    free(rehearsal->load);
    mp_planner_destroy(&rehearsal->planner);
}

TEST_END(rehearsal, struct rehearsal, rehearsal_destroy(it))

static inline void rehearsal_plan(struct rehearsal *rehearsal, int layer,
                                  const struct mp_load *load) {
    struct mp_planner *planner = &rehearsal->planner;
    assert_works(mp_planner_begin_layer(planner, rehearsal->iteration, layer, &error));
    assert_works(mp_planner_end_layer(planner, layer, load, &error));
    rehearsal->copies += planner->plan->fetch.count;
}

/* Of "EXPERT=ROUTES,ROUTES,... ..." how many ranks 0, 1, ... compute; an expert that is not named
 * stays where it is. */
static inline void read_division(const char *text, int ranks, int64_t routes[]) {
    int expert, length;
    for (; sscanf(text, "%d%n", &expert, &length) == 1; text += strspn(text, " ")) {
        text += length;
        for (int rank = 0; rank < ranks; rank++)
            routes[expert * ranks + rank] =
                *text && *text != ' ' ? strtoll(text + 1, (char **)(uintptr_t)&text, 10) : 0;
    }
}

/* Who computes how many routes of those that rank 0 sends, of experts 0, 1, ... ("40 10"), and once
 * more: nothing is left of the first time. */
static inline void assert_division(const struct mp_system *system, const char *setting,
                                   const char *options, const char *total, const char *division) {
    const struct mp_setting of = setting_of(setting);
    const int ranks = of.topology.ranks;
    int64_t routes[64] = {0};
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, system, &of, options);
    assert_in_range(of.experts * ranks, 1, 64);
    for (int expert = 0; expert < of.experts; expert++) {
        uint32_t count = (uint32_t)strtoll(total, (char **)(uintptr_t)&total, 10);
        rehearsal.load->count[expert] = count;
        routes[expert * ranks + rehearsal.planner.home->owner[expert]] = count;
    }
    read_division(division, ranks, routes);
    for (int twice = 0; twice < 2; twice++) {
        rehearsal_plan(&rehearsal, 0, rehearsal.load);
        for (int cell = 0; cell < of.experts * ranks; cell++)
            assert_int_equal(
                mp_plan_routes_to(rehearsal.planner.plan, 0, cell / ranks, cell % ranks),
                routes[cell]);
    }
}

/* What moves in the background has arrived. */
static inline void rehearsal_settle(struct rehearsal *rehearsal) {
    if (rehearsal->planner.change.asynchronous)
        mp_planner_adopt_homes(&rehearsal->planner);
}

/* Learns from the loads and takes over the homes that the system wants: now, or if its moves are
 * asynchronous at the next step. */
static inline void rehearsal_step(struct rehearsal *rehearsal, const struct mp_load load[]) {
    struct mp_planner *planner = &rehearsal->planner;
    rehearsal_settle(rehearsal);
    assert_works(mp_planner_after_step(planner, rehearsal->iteration, load, &error));
    rehearsal->moves = digest_of_transfers(rehearsal->moves, &planner->moves);
    for (int layer = 0; planner->change.changed && layer < planner->setting.layers; layer++) {
        const struct mp_placement *home = &planner->home[layer];
        const struct mp_placement *next = &planner->change.next[layer];
        for (long word = 0; word < (long)home->experts * home->words; word++)
            rehearsal->changes += (next->holder[word] & ~home->holder[word]) != 0;
    }
    if (!planner->change.asynchronous)
        mp_planner_adopt_homes(planner);
    rehearsal->iteration++;
}

/* An iteration of random loads. */
static inline void rehearsal_iterate(uint64_t *random, struct rehearsal *rehearsal) {
    const struct mp_setting *setting = &rehearsal->planner.setting;
    for (int layer = 0; layer < setting->layers; layer++) {
        random_load(random, &rehearsal->load[layer]);
        mp_load_repeat(&rehearsal->load[layer], mp_setting_whole_experts(setting));
        rehearsal_plan(rehearsal, layer, &rehearsal->load[layer]);
    }
    rehearsal_step(rehearsal, rehearsal->load);
}

/* Homes that nobody planned: about half of the holders beside owners are gone. */
static inline void rehearsal_thin_out(uint64_t *random, struct rehearsal *rehearsal) {
    for (int layer = 0; layer < rehearsal->planner.setting.layers; layer++) {
        struct mp_placement *home = &rehearsal->planner.home[layer];
        for (int expert = 0; expert < home->experts; expert++)
            for (int rank = 0; rank < home->ranks; rank++)
                if (rank != home->owner[expert] && test_random_int(random, 0, 1))
                    mp_placement_remove(home, expert, rank);
    }
}

/* With all that a system decides for a layer; what follows from it is not looked at. */
static inline uint64_t digest_of_plan(uint64_t digest, const struct mp_plan *plan) {
    const struct mp_policy *policy = plan->policy;
    const int64_t numbers[] = {plan->source_capacity,  plan->outside_capacity,
                               plan->padding,          plan->exchange,
                               plan->group_size,       plan->degree,
                               policy->optimizer,      policy->gather_before_gate,
                               policy->gather_ahead,   policy->fetch_early,
                               policy->offload,        policy->rematerialise,
                               policy->free_transfers, policy->outgoing_limit,
                               policy->route_order,    policy->renormalise_survivors,
                               policy->one_hot,        policy->overlaid};
    const double gate[] = {policy->pull, policy->outside_cost};
    size_t experts = (size_t)plan->experts, pairs = (size_t)plan->topology.ranks * experts;
    digest = digest_of(digest, numbers, sizeof numbers);
    digest = digest_of(digest, gate, sizeof gate);
    digest = digest_of_homes(digest_of_homes(digest, &plan->before), &plan->during);
    digest = digest_of_transfers(digest, &plan->fetch);
    digest = digest_of_transfers(digest, &plan->ahead);
    digest = digest_of(digest, plan->level_size, sizeof plan->level_size);
    digest = digest_of(digest, plan->capacity, experts * sizeof *plan->capacity);
    digest = digest_of(digest, plan->part_begin, (pairs + 1) * sizeof *plan->part_begin);
    return digest_of(digest, plan->part, (size_t)plan->part_begin[pairs] * sizeof *plan->part);
}

static inline void assert_equal_plans(const struct mp_plan *a, const struct mp_plan *b) {
    assert_int_equal(digest_of_plan(MP_DIGEST, a), digest_of_plan(MP_DIGEST, b));
}

/* `to` knows what `from` saves. */
static inline void rehearsal_restart(const struct rehearsal *from, struct rehearsal *to) {
    size_t size = from->planner.system->save(from->planner.self, NULL, 0);
    AUTO(allocated) char *state = malloc(size + 1);
    assert_non_null(state);
    assert_int_equal(from->planner.system->save(from->planner.self, state, size), size);
    assert_works(to->planner.system->load(to->planner.self, state, size, &error));
}

struct rehearsed {
    int changes, copies; /* as of a rehearsal */
    uint64_t digest;     /* of plans, what is said of them, moves and limits */
};

/* Plans random loads with two instances, and from the middle on with a third that was restored from
 * what the first one saved, with its homes: all plan the same.  Returns experts that moved and
 * copies. */
static inline struct rehearsed rehearse(uint64_t *random, const struct mp_system *system,
                                        const struct mp_setting *setting, const void *options,
                                        int iterations) {
    struct rehearsal rehearsal[3];
    struct mp_plan_facts facts;
    uint64_t digest = MP_DIGEST;
    for (int index = 0; index < 3; index++)
        rehearsal_create(&rehearsal[index], system, setting, options);
    struct mp_load *load = rehearsal->load;
    for (int iteration = 0; iteration < iterations; iteration++) {
        int planning = 2 * iteration < iterations ? 2 : 3;
        if (2 * iteration >= iterations && rehearsal[2].iteration == 0) {
            for (int index = 0; index < 2; index++) { /* as before a checkpoint, and without the
                                                         copies that it leaves out */
                rehearsal_settle(&rehearsal[index]);
                rehearsal[index].planner.keeps = false;
            }
            if (system->save)
                rehearsal_restart(&rehearsal[0], &rehearsal[2]);
            for (int layer = 0; layer < setting->layers; layer++)
                mp_placement_copy(&rehearsal[2].planner.home[layer],
                                  &rehearsal[0].planner.home[layer]);
            rehearsal[2].iteration = rehearsal[0].iteration;
        }
        for (int layer = 0; layer < setting->layers; layer++) {
            random_load(random, &load[layer]);
            mp_load_repeat(&load[layer], mp_setting_whole_experts(setting));
            for (int index = 0; index < planning; index++) {
                rehearsal_plan(&rehearsal[index], layer, &load[layer]);
                assert_equal_plans(rehearsal[index].planner.plan, rehearsal[0].planner.plan);
            }
            digest = digest_of_plan(digest, rehearsal[0].planner.plan);
            mp_plan_facts(rehearsal[0].planner.plan, &load[layer], &facts);
            digest = digest_of(digest, &facts, sizeof facts);
        }
        for (int index = 0; index < planning; index++)
            rehearsal_step(&rehearsal[index], load);
    }
    digest = digest_of(digest, &rehearsal[0].moves, sizeof rehearsal[0].moves);
    const struct mp_planner *planner = &rehearsal[0].planner;
    const int64_t limits[] = {planner->law.extra_copies_limit, planner->law.padding_limit,
                              planner->homes_limit};
    digest = digest_of(digest, limits, sizeof limits);
    const struct rehearsed met = {rehearsal[0].changes, rehearsal[0].copies, digest};
    for (int index = 0; index < 3; index++)
        rehearsal_destroy(&rehearsal[index]);
    return met;
}
