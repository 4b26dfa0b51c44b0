/* Every system on any setting and under any options that it takes: plans and changes of homes keep
 * the law and what the system declares, are the same on every rank and after a restart, and are
 * those that the system is known to make; homes and states of others are served or refused.  An
 * argument names the only system to be tried. */
#include "tests/baselines/rehearsal.h"

#include "baselines/systems.h"

enum { ROUNDS = 40, KNOWN_ROUNDS = 120, DRAWS = 3000 };

/* On four ranks of two nodes every system takes its defaults. */
static const struct mp_setting plain = {.layers = 2,
                                        .experts = 8,
                                        .top_k = 2,
                                        .topology = {4, 2},
                                        .tokens_per_rank = 64,
                                        .expert_bytes = 1000,
                                        .gradient_bytes = 1000,
                                        .route_bytes = 256,
                                        .bandwidth = 1e9,
                                        .bandwidth_in_node = 1e9,
                                        .seconds_per_route = 1e-6,
                                        .seconds_per_expert = 1e-6,
                                        .non_moe_seconds = 1e-4};

/* A third has as many experts on every rank, a third groups of ranks with all experts each. */
static struct mp_setting draw_setting(uint64_t *random, int draw) {
    struct mp_setting setting = {.layers = test_random_int(random, 1, 3),
                                 .experts = test_random_int(random, 1, 40),
                                 .topology = random_topology(random, 24),
                                 .tokens_per_rank = test_random_int(random, 1, 200),
                                 .expert_bytes = test_random_int(random, 1, 100000),
                                 .route_bytes = 256,
                                 .bandwidth = 1e9,
                                 .bandwidth_in_node = 1e9 * test_random_int(random, 1, 10),
                                 .seconds_per_route = 1e-6 * test_random_double(random),
                                 .seconds_per_expert = 1e-6 * test_random_double(random),
                                 .non_moe_seconds = 1e-3 * test_random_double(random),
                                 .shards = test_random_int(random, 0, 3) ? 1 : 2};
    setting.gradient_bytes = setting.expert_bytes;
    struct mp_topology *topology = &setting.topology;
    if (draw % 3 == 1)
        setting.experts = topology->ranks * test_random_int(random, 1, 3);
    if (draw % 3 == 2)
        topology->ranks = setting.experts * setting.shards * test_random_int(random, 1, 2);
    if (test_random_int(random, 0, 1)) /* nodes alike */
        while (topology->ranks % topology->ranks_per_node)
            topology->ranks_per_node--;
    setting.ranks_per_gate = test_random_int(random, 0, topology->ranks_per_node);
    setting.top_k = test_random_int(random, 1, setting.experts < 4 ? setting.experts : 4);
    setting.top_k *= setting.shards;
    setting.experts *= setting.shards;
    return setting;
}

static void draw_options(uint64_t *random, const struct mp_system *system, void *options) {
    char text[64];
    for (const struct mp_option *o = system->options; o && o->name; o++) {
        if (o->type == MP_OPTION_TEXT || test_random_int(random, 0, 1))
            continue;
        draw_value(random, o, text, sizeof text);
        assert_works(
            mp_options_set(system->options, options, system->name, o->name, text, NULL, &error));
    }
}

static bool is_taken(const struct mp_system *system, const struct mp_setting *setting,
                     const void *options) {
    struct mp_error error = {0};
    void *self = NULL;
    int code = mp_system_create(system, setting, options, &self, &error);
    if (code == MP_OK) {
        mp_system_destroy(system, self);
    } else if ((code != MP_EINVAL && code != MP_EREFUSED && code != MP_ENOTFOUND) || !*error.text) {
        fail_msg("%s: %s: %s", system->name, mp_code_name(code), error.text);
    }
    return code == MP_OK;
}

/* Experts travel for one iteration, not with their homes. */
static bool makes_copies(const struct mp_system *system) {
    static const char *const names[] = {"fastermoe", "frugal", "fssdp",  "free-balance",
                                        "harmoeny",  "llep",   "moonep", "nodewise",
                                        "smartmoe",  "ultraep"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(system->name, names[i]) == 0)
            return true;
    return false;
}

/* Whether the system has done what it is declared to do: few settings may give it a reason. */
static bool is_shown(const struct mp_system *system, const struct rehearsed *all) {
    return (all->changes > 0 || !(system->capabilities & MP_SYSTEM_MOVES_OWNERS)) &&
           (all->copies > 0 || !makes_copies(system));
}

/* So many settings that the system takes, and on until everything is shown. */
static struct rehearsed rehearse_all(uint64_t *random, const struct mp_system *system, int rounds,
                                     int iterations) {
    void *options = calloc(1, system->options_size + 1);
    struct rehearsed all = {.digest = MP_DIGEST};
    int taken = 0, draws = 0;
    assert_non_null(options);
    for (; draws < DRAWS && (taken < rounds || !is_shown(system, &all)); draws++) {
        const struct mp_setting setting = draws ? draw_setting(random, draws) : plain;
        parse_options(system, options, NULL);
        if (draws)
            draw_options(random, system, options);
        if (!is_taken(system, &setting, options))
            continue;
        const struct rehearsed met = rehearse(random, system, &setting, options, iterations);
        all.changes += met.changes;
        all.copies += met.copies;
        all.digest = digest_of(all.digest, &met.digest, sizeof met.digest);
        taken++;
    }
    print_message("  %s: %d of %d settings, %d experts moved, %d copies\n", system->name, taken,
                  draws, all.changes, all.copies);
    assert_true(taken >= rounds && is_shown(system, &all));
    free(options);
    return all;
}

static const char *wanted; /* NULL: all */

static void each_system(uint64_t *random, void (*test)(uint64_t *, const struct mp_system *)) {
    struct mp_systems systems = {0};
    assert_works(mp_systems_register_all(&systems, &error));
    for (int i = 0; i < systems.count; i++)
        if (!wanted || strcmp(wanted, systems.item[i]->name) == 0)
            test(random, systems.item[i]);
}

static void keep_the_law(uint64_t *random, const struct mp_system *system) {
    const struct rehearsed all = rehearse_all(random, system, ROUNDS, 8);
    if (all.copies > 0 && !makes_copies(system))
        fail_msg("%s made %d copies, which makes_copies() denies", system->name, all.copies);
}

static void all_systems_keep_the_law(void **state) {
    each_system(*state, keep_the_law);
}

/* Whether the system takes whatever homes it finds, as after a checkpoint of another system. */
static bool serves_other_homes(const struct mp_system *system) {
    static const char *const names[] = {"eplb", "flexmoe", "laer", "lp", "swiftmoe"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(system->name, names[i]) == 0)
            return true;
    return false;
}

static void serve_other_homes(uint64_t *random, const struct mp_system *system) {
    AUTO(allocated) void *options = calloc(1, system->options_size + 1);
    assert_non_null(options);
    for (int taken = 0, draws = 0; serves_other_homes(system) && taken < ROUNDS; draws++) {
        const struct mp_setting setting = draw_setting(random, draws);
        parse_options(system, options, NULL);
        draw_options(random, system, options);
        if (!is_taken(system, &setting, options))
            continue;
        AUTO(rehearsal) struct rehearsal run;
        rehearsal_create(&run, system, &setting, options);
        rehearsal_thin_out(random, &run);
        for (int iteration = 0; iteration < 4; iteration++)
            rehearsal_iterate(random, &run);
        taken++;
    }
}

static void all_serve_other_homes(void **state) {
    each_system(*state, serve_other_homes);
}

static void refuse_foreign_state(uint64_t *random, const struct mp_system *system) {
    AUTO(rehearsal) struct rehearsal run;
    rehearsal_open(&run, system, &plain,
                   strcmp(system->name, "moetuner") == 0 ? "solver=search" : NULL);
    for (int iteration = 0; iteration < 3; iteration++)
        rehearsal_iterate(random, &run);
    size_t size = system->save ? system->save(run.planner.self, NULL, 0) : 0;
    if (size > 0)
        assert_foreign_bytes_are_refused(system, run.planner.self, size < 16 ? size : 16);
}

static void all_refuse_foreign_states(void **state) {
    each_system(*state, refuse_foreign_state);
}

/* What a system plans with the same numbers drawn every time, as its own tests and the paper have
 * it. A system that is not here, or whose solver's version decides, is not looked at. */
static const struct {
    const char *name;
    uint64_t digest;
} known[] = {
    {"ep", 0x6ebeeb9a701f4c4e},           {"deepep", 0x0976a45141fe8e78},
    {"deepspeed", 0x8b5ffe2da57a6b2a},    {"eplb", 0x58468be19022fe04},
    {"fastermoe", 0x493c693741ae107d},    {"flexmoe", 0x371fa931dc448638},
    {"frugal", 0xaad1c31056481bd6},       {"fssdp", 0x8edb6d8dd82391b9},
    {"free-balance", 0x9a442a5df3132829}, {"harmoeny", 0x0ab65398394b5f45},
    {"hetumoe", 0xdd0a1163b9d23e2e},      {"hiermoe", 0x5c965707309ae761},
    {"laer", 0x929b9a3e5da0c9c8},         {"llep", 0xba92c298cd5a2d81},
    {"lp", 0x089244f7f27a0e1f},           {"moonep", 0xf5fd99045da23f09},
    {"nodewise", 0x24ff1cf42da58fa4},     {"skeleton", 0x20ef0581e97ab8ce},
    {"smartmoe", 0xed53731724045b54},     {"swiftmoe", 0xaec7c180f106ca00},
    {"tamoe", 0xe29f82064af38765},        {"tutel", 0x404cc620c5dbdefe},
    {"ultraep", 0x23934e5931a857c6},
};

static void plan_as_known(uint64_t *random, const struct mp_system *system) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        /* Sanitizers have seen above what gives these numbers. */
        if (TEST_SANITIZED || strcmp(known[i].name, system->name) != 0)
            continue;
        *random = 1;
        uint64_t digest = rehearse_all(random, system, KNOWN_ROUNDS, 5).digest;
        if (digest != known[i].digest)
            fail_msg("%s plans otherwise: 0x%016llx", system->name, (unsigned long long)digest);
    }
}

static void all_systems_plan_as_known(UNUSED void **state) {
    uint64_t random;
    each_system(&random, plan_as_known);
}

int main(int argc, char **argv) {
    uint64_t random = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(all_systems_keep_the_law, &random),
        cmocka_unit_test_prestate(all_serve_other_homes, &random),
        cmocka_unit_test_prestate(all_refuse_foreign_states, &random),
        cmocka_unit_test(all_systems_plan_as_known)};
    wanted = argc > 1 ? argv[1] : NULL;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
