/* The skeleton plans as plain expert parallelism does, with either of its placements, and keeps
 * what it has seen over a restart. */
#include "tests/baselines/rehearsal.h"

#include "baselines/systems.h"

static const struct mp_system *const tested = &mp_system_skeleton;

/* Options as a job would give them; free them. */
static void *options_of(const char *owners) {
    void *options = calloc(1, tested->options_size);
    assert_non_null(options);
    parse_options(tested, options, formatted("owners=%s", owners));
    return options;
}

static void *create(const struct mp_setting *setting, const char *owners) {
    void *self, *options = options_of(owners);
    assert_works(mp_system_create(tested, setting, options, &self, &error));
    free(options);
    return self;
}

TEST(it_registers) {
    struct mp_systems systems = {0};
    assert_works(mp_systems_register(&systems, tested, &error));
}

static void plan_layer(void *self, int64_t iteration, int layer, const int32_t owner[],
                       const struct mp_load *load, struct mp_plan *plan) {
    struct mp_placement home = placement_of(load->ranks, load->experts);
    mp_placement_set_owners(&home, owner);
    assert_works(mp_system_begin_plan(tested, self, iteration, layer, &home, plan, &error));
    assert_works(mp_system_end_plan(tested, self, load, plan, &error));
}

TEST_RANDOM(every_plan_is_legal_and_leaves_experts_alone) {
    enum { LAYERS = 3, RANKS = 70, EACH = 5 };
    for (int round = 0; round < 100; round++) {
        struct mp_setting setting = {.layers = LAYERS, .topology = random_topology(random, RANKS)};
        int ranks = setting.topology.ranks, each = test_random_int(random, 1, EACH);
        bool cyclic = test_random_int(random, 0, 1);
        struct mp_plan plan;
        struct mp_load load;
        int32_t owner[LAYERS * RANKS * EACH];
        int64_t computed[RANKS], wanted[RANKS] = {0};
        setting.experts = ranks * each;
        void *self = create(&setting, cyclic ? "cyclic" : "contiguous");
        struct mp_plan_law law = {.extra_copies_limit = tested->copies_limit(self)};
        tested->initial_owners(self, owner);
        for (int index = 0; index < LAYERS * setting.experts; index++) {
            int expert = index % setting.experts;
            assert_int_equal(owner[index], cyclic ? expert % ranks : expert / each);
        }
        assert_works(mp_plan_create(&setting.topology, setting.experts, 8, &plan, &error));
        assert_works(mp_load_create(ranks, setting.experts, &load, &error));
        random_load(random, &load);
        plan_layer(self, round, 1, owner + setting.experts, &load, &plan);
        assert_works(mp_plan_check(&plan, &load, &law, NULL, &error));
        if (plan.fetch.count > 0)
            fail_msg("%s copies %d experts, which plain expert parallelism does not: this test is "
                     "to become its own",
                     tested->name, plan.fetch.count);
        rank_routes(&plan, computed, NULL, NULL);
        for (int source = 0; source < ranks; source++)
            for (int expert = 0; expert < setting.experts; expert++)
                wanted[owner[expert]] += mp_load_at(&load, source, expert);
        for (int rank = 0; rank < ranks; rank++)
            if (computed[rank] != wanted[rank])
                fail_msg("%s has rank %d compute %lld routes, plain expert parallelism %lld: this "
                         "test is to become its own",
                         tested->name, rank, (long long)computed[rank], (long long)wanted[rank]);
        mp_plan_destroy(&plan);
        mp_load_destroy(&load);
        mp_system_destroy(tested, self);
    }
}

static void refuses(int experts, int ranks, const char *words) {
    struct mp_setting setting = {.layers = 1, .experts = experts, .topology = {ranks, 1}};
    AUTO(allocated) void *options = options_of("contiguous");
    assert_refused(tested, &setting, options, words);
}

TEST(what_it_can_not_do_is_refused) {
    refuses(10, 4, "10 experts can't be shared by 4 ranks");
    refuses(0, 4, "of at least 1, not 1, 0 and 4");
}

/* The state of `self` in `buffer`; its bytes are returned. */
static size_t save(const void *self, char buffer[], size_t room) {
    size_t size = tested->save(self, NULL, 0);
    assert_true(size > 0 && size <= room);
    assert_int_equal(tested->save(self, buffer, size), size);
    return size;
}

TEST_RANDOM(state_survives_a_restart_on_other_ranks) {
    struct mp_setting setting = small_setting(2, 16, (struct mp_topology){4, 2});
    char first[4096], second[4096];
    AUTO(rehearsal) struct rehearsal seen;
    rehearsal_open(&seen, tested, &setting, NULL);
    size_t empty = save(seen.planner.self, first, sizeof first);
    for (int iteration = 0; iteration < 5; iteration++) {
        for (int layer = 0; layer < 2; layer++)
            random_load(random, &seen.load[layer]);
        rehearsal_step(&seen, seen.load);
        assert_false(seen.planner.change.changed);
    }
    size_t size = save(seen.planner.self, second, sizeof second);
    assert_int_equal(empty, size);
    assert_memory_not_equal(first, second, size); /* something was learned */
    setting.topology.ranks = 8;
    void *restored = create(&setting, "contiguous");
    assert_works(tested->load(restored, second, size, &error));
    assert_int_equal(save(restored, first, sizeof first), size);
    assert_memory_equal(first, second, size);
    /* Bytes that are not its own leave it as it was. */
    assert_int_equal(tested->load(restored, second, size - 1, NULL), MP_EFORMAT);
    for (size_t at = 0; at < 16; at++) { /* magic and shape */
        char wrong[4096];
        memcpy(wrong, second, size);
        wrong[at] ^= 0x40;
        memset(wrong + size - 8, 0x55, 8);
        assert_int_equal(tested->load(restored, wrong, size, NULL), MP_EFORMAT);
    }
    save(restored, first, sizeof first);
    assert_memory_equal(first, second, size);
    mp_system_destroy(tested, restored);
}
