/* All systems of this build register and can be found by name, and with their defaults every one
 * plans within the law and what it declares. */
#include "tests/baselines/rehearsal.h"

#include <string.h>

#include "baselines/systems.h"
#include "reference/base/program.h"

static void all_systems_register_once(void **state) {
    (void)state;
    /* A line each: the commands of baselines/README.md add to them. */
    /* clang-format off */
    static const char *const name[] = {
        "ep",
        "deepep",
        "deepspeed",
        "eplb",
        "fastermoe",
        "flexmoe",
        "frugal",
        "fssdp",
        "free-balance",
        "harmoeny",
        "hetumoe",
        "hiermoe",
        "laer",
        "llep",
        "lp",
        "moetuner",
        "moonep",
        "nodewise",
        "skeleton",
        "smartmoe",
        "swiftmoe",
        "tamoe",
        "tutel",
        "ultraep",
    };
    /* clang-format on */
    struct mp_systems systems = {0};
    struct mp_error error = {0};
    if (mp_systems_register_all(&systems, &error) != MP_OK)
        fail_msg("%s", error.text);
    for (size_t index = 0; index < sizeof name / sizeof name[0]; index++) {
        const struct mp_system *system = mp_systems_find(&systems, name[index], &error);
        assert_non_null(system);
        assert_string_equal(system->name, name[index]);
    }
    assert_null(mp_systems_find(&systems, "fsdp", &error));
    assert_string_equal(error.text, "unknown system \"fsdp\"; did you mean \"fssdp\"?");
    assert_int_equal(mp_systems_register_all(&systems, NULL), MP_EINVAL);
}

/* Systems that want experts whole, with their defaults on two nodes. */
static const char *const wholes[] = {"deepep", "hiermoe", "moetuner", "swiftmoe", "tamoe"};

static bool wants_whole_experts(const struct mp_system *system) {
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++)
        if (strcmp(system->name, wholes[i]) == 0)
            return true;
    return false;
}

/* And of experts cut into two shards, or it says why not. */
static void rehearse_shards(uint64_t *random, const struct mp_system *system,
                            struct mp_setting setting, const void *options) {
    struct mp_error error = {0};
    void *self = NULL;
    setting.shards = 2;
    setting.experts *= setting.shards;
    setting.top_k *= setting.shards;
    if (!wants_whole_experts(system)) {
        rehearse(random, system, &setting, options, 8);
        return;
    }
    assert_int_equal(mp_system_create(system, &setting, options, &self, &error), MP_EREFUSED);
    assert_non_null(strstr(error.text, "expert-shards 2"));
}

static void all_systems_keep_the_law_and_what_they_declare(void **state) {
    const struct mp_setting setting = {.layers = 2,
                                       .experts = 8,
                                       .top_k = 2,
                                       .topology = {4, 2},
                                       .tokens_per_rank = 64,
                                       .expert_bytes = 1000,
                                       .route_bytes = 256,
                                       .bandwidth = 1e9,
                                       .bandwidth_in_node = 1e9,
                                       .seconds_per_route = 1e-6,
                                       .seconds_per_expert = 1e-6,
                                       .non_moe_seconds = 1e-4};
    struct mp_systems systems = {0};
    struct mp_error error = {0}, none = {0};
    char solver[64];
    assert_ok(mp_systems_register_all(&systems, &error), &error);
    for (int index = 0; index < systems.count; index++) {
        const struct mp_system *system = systems.item[index];
        if (strcmp(system->name, "moetuner") == 0 &&
            mp_program_solver(solver, sizeof solver, &none)) {
            print_message("skipped: %s: %s\n", system->name, none.text);
            continue;
        }
        void *options = calloc(1, system->options_size + 1);
        assert_non_null(options);
        if (system->options)
            parse_options(system, options, NULL);
        rehearse(*state, system, &setting, options, 8);
        rehearse_shards(*state, system, setting, options);
        free(options);
    }
}

int main(void) {
    uint64_t random = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_systems_register_once),
        cmocka_unit_test_prestate(all_systems_keep_the_law_and_what_they_declare, &random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
