/* A rehearsal: a system plans iteration after iteration as the trainer has it do, on loads that a
 * test makes, and every plan and every change of homes is held against the law. */
#ifndef MOEPERF_TESTS_BASELINES_REHEARSAL_H
#define MOEPERF_TESTS_BASELINES_REHEARSAL_H

#include "tests/reference/plan/plan_support.h"
#include "tests/reference/plan/system_support.h"

struct rehearsal {
    const struct mp_system *system;
    struct mp_setting setting;
    int64_t padding_limit;
    void *self;
    struct mp_plan plan;       /* of the layer planned last */
    struct mp_placement *home; /* [layers] */
    struct mp_rehome change;   /* of the last step */
    int64_t iteration;
    int changes; /* experts that gained a holder in steps so far */
};

static inline struct mp_placement *rehearsal_homes(const struct mp_setting *setting) {
    struct mp_error error = {0};
    struct mp_placement *home = calloc((size_t)setting->layers, sizeof *home);
    assert_non_null(home);
    for (int layer = 0; layer < setting->layers; layer++)
        assert_ok(
            mp_placement_create(setting->topology.ranks, setting->experts, &home[layer], &error),
            &error);
    return home;
}

static inline void rehearsal_create(struct rehearsal *rehearsal, const struct mp_system *system,
                                    const struct mp_setting *setting, const void *options) {
    struct mp_error error = {0};
    *rehearsal = (struct rehearsal){.system = system, .setting = *setting};
    if (system->padding_limit)
        rehearsal->padding_limit = system->padding_limit(setting, options);
    assert_ok(system->create(setting, options, &rehearsal->self, &error), &error);
    assert_ok(mp_plan_create(&setting->topology, setting->experts, setting->expert_bytes,
                             &rehearsal->plan, &error),
              &error);
    rehearsal->home = rehearsal_homes(setting);
    rehearsal->change.next = rehearsal_homes(setting);
    assert_ok(
        mp_system_initial_homes(system, rehearsal->self, setting->layers, rehearsal->home, &error),
        &error);
}

static inline void rehearsal_destroy(struct rehearsal *rehearsal) {
    for (int layer = 0; layer < rehearsal->setting.layers; layer++) {
        mp_placement_destroy(&rehearsal->home[layer]);
        mp_placement_destroy(&rehearsal->change.next[layer]);
    }
    free(rehearsal->home);
    free(rehearsal->change.next);
    mp_plan_destroy(&rehearsal->plan);
    rehearsal->system->destroy(rehearsal->self);
}

static inline void rehearsal_plan(struct rehearsal *rehearsal, int layer,
                                  const struct mp_load *load) {
    const struct mp_system *system = rehearsal->system;
    struct mp_plan_law law = {.drops_routes = system->capabilities & MP_SYSTEM_DROPS,
                              .extra_copies_limit =
                                  system->copies_limit ? system->copies_limit(rehearsal->self) : 0,
                              .padding_limit = rehearsal->padding_limit};
    struct mp_error error = {0};
    assert_ok(mp_system_begin_plan(system, rehearsal->self, rehearsal->iteration, layer,
                                   &rehearsal->home[layer], &rehearsal->plan, &error),
              &error);
    assert_ok(mp_system_end_plan(system, rehearsal->self, load, &rehearsal->plan, &error), &error);
    assert_ok(mp_plan_check(&rehearsal->plan, load, &law, NULL, &error), &error);
}

/* The most experts that a rank may keep, as rehome.h counts them. */
static inline int rehearsal_limit(const struct rehearsal *rehearsal) {
    const struct mp_system *system = rehearsal->system;
    if (system->optimizer && mp_optimizer_sliced(system->optimizer(rehearsal->self)))
        return system->copies_limit(rehearsal->self);
    return system->homes_limit ? system->homes_limit(rehearsal->self) : INT32_MAX;
}

/* Learns from the loads and takes over the homes that the system wants. */
static inline void rehearsal_step(struct rehearsal *rehearsal, const struct mp_load load[]) {
    const struct mp_system *system = rehearsal->system;
    int layers = rehearsal->setting.layers;
    struct mp_error error = {0};
    rehearsal->change.changed = rehearsal->change.leave_state = false;
    for (int layer = 0; layer < layers; layer++)
        mp_placement_copy(&rehearsal->change.next[layer], &rehearsal->home[layer]);
    if (system->after_step)
        assert_ok(system->after_step(rehearsal->self, rehearsal->iteration, load, rehearsal->home,
                                     &rehearsal->change, &error),
                  &error);
    assert_ok(mp_rehome_check(rehearsal->home, &rehearsal->change, layers,
                              rehearsal->plan.optimizer, rehearsal_limit(rehearsal), &error),
              &error);
    for (int layer = 0; layer < layers; layer++) {
        struct mp_placement *home = &rehearsal->home[layer];
        const struct mp_placement *next = &rehearsal->change.next[layer];
        for (long word = 0; word < (long)home->experts * home->words; word++)
            rehearsal->changes += (next->holder[word] & ~home->holder[word]) != 0;
        mp_placement_copy(home, next);
    }
    rehearsal->iteration++;
}

/* Homes that nobody planned: about half of the holders beside owners are gone. */
static inline void rehearsal_thin_out(uint64_t *random, struct rehearsal *rehearsal) {
    for (int layer = 0; layer < rehearsal->setting.layers; layer++) {
        struct mp_placement *home = &rehearsal->home[layer];
        for (int expert = 0; expert < home->experts; expert++)
            for (int rank = 0; rank < home->ranks; rank++)
                if (rank != home->owner[expert] && test_random_int(random, 0, 1))
                    mp_placement_remove(home, expert, rank);
    }
}

static inline void assert_equal_plans(const struct mp_plan *a, const struct mp_plan *b) {
    int64_t pairs = (int64_t)a->topology.ranks * a->experts;
    size_t words = (size_t)a->experts * (size_t)a->during.words;
    assert_memory_equal(a->during.holder, b->during.holder, words * sizeof *a->during.holder);
    assert_memory_equal(a->during.owner, b->during.owner,
                        (size_t)a->experts * sizeof *a->during.owner);
    assert_int_equal(a->fetch.count, b->fetch.count);
    assert_memory_equal(a->part_begin, b->part_begin, (size_t)(pairs + 1) * sizeof *a->part_begin);
    if (a->part_begin[pairs] > 0)
        assert_memory_equal(a->part, b->part, (size_t)a->part_begin[pairs] * sizeof *a->part);
}

/* `to` knows what `from` saves. */
static inline void rehearsal_restart(const struct rehearsal *from, struct rehearsal *to) {
    struct mp_error error = {0};
    size_t size = from->system->save(from->self, NULL, 0);
    char *state = malloc(size + 1);
    assert_non_null(state);
    assert_int_equal(from->system->save(from->self, state, size), size);
    assert_ok(to->system->load(to->self, state, size, &error), &error);
    free(state);
}

/* Plans random loads with two instances, and from the middle on with a third that was restored from
 * what the first one saved, with its homes: all plan the same.  Returns experts that moved. */
static inline int rehearse(uint64_t *random, const struct mp_system *system,
                           const struct mp_setting *setting, const void *options, int iterations) {
    struct rehearsal rehearsal[3];
    struct mp_error error = {0};
    struct mp_load *load = calloc((size_t)setting->layers, sizeof *load);
    assert_non_null(load);
    for (int layer = 0; layer < setting->layers; layer++)
        assert_ok(mp_load_create(setting->topology.ranks, setting->experts, &load[layer], &error),
                  &error);
    for (int index = 0; index < 3; index++)
        rehearsal_create(&rehearsal[index], system, setting, options);
    for (int iteration = 0; iteration < iterations; iteration++) {
        int planning = 2 * iteration < iterations ? 2 : 3;
        if (2 * iteration >= iterations && rehearsal[2].iteration == 0) {
            if (system->save)
                rehearsal_restart(&rehearsal[0], &rehearsal[2]);
            for (int layer = 0; layer < setting->layers; layer++)
                mp_placement_copy(&rehearsal[2].home[layer], &rehearsal[0].home[layer]);
            rehearsal[2].iteration = rehearsal[0].iteration;
        }
        for (int layer = 0; layer < setting->layers; layer++) {
            random_load(random, &load[layer]);
            for (int index = 0; index < planning; index++) {
                rehearsal_plan(&rehearsal[index], layer, &load[layer]);
                assert_equal_plans(&rehearsal[index].plan, &rehearsal[0].plan);
            }
        }
        for (int index = 0; index < planning; index++)
            rehearsal_step(&rehearsal[index], load);
    }
    int changes = rehearsal[0].changes;
    for (int index = 0; index < 3; index++)
        rehearsal_destroy(&rehearsal[index]);
    for (int layer = 0; layer < setting->layers; layer++)
        mp_load_destroy(&load[layer]);
    free(load);
    return changes;
}

#endif
