/* All systems of this build register and can be found by name. */
#include "baselines/systems.h"
#include "tests/support.h"

TEST(all_systems_register_once) {
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
