/* MoonEP: golden decisions, how many copies there are at most, and what it refuses. */
#include "tests/baselines/rehearsal.h"

#include "baselines/systems.h"

/* V-MOON: four ranks with two experts each; see assert_division. */
struct golden_case {
    const char *name;
    double tolerance;
    const char *total, *routes;
};
static const struct golden_case GOLDEN[] = {
    {"V-MOON-1", 0, "40 10 5 5 10 10", "0=10,10,0,20"},
    {"V-MOON-2", 0, "1 2 3 4 30 20 10 10", "4=17,0,13 5=0,13,7"},
    {"V-MOON-3", 0, "0 0 0 0 0 0 80", "6=20,20,20,20"},
    {"V-MOON-4", 0, "20 0 10 10 5 15 12 8", ""},
    /* Of a hundred thousand routes that don't divide, the fullest groups have one more. */
    {"a remainder", 0, "100002 0 1", "0=25001,25000,25001,25000"},
    {"no routes", 0, "0", ""},
    /* Rank 0 has 30 above its share: three quarters of that are allowed, so that rank 3 takes 20.
     */
    {"V-MOON-1, tolerance", 0.75, "40 10 5 5 10 10", "0=20,0,0,20"},
};

TEST_EACH(golden_decisions, GOLDEN, row) {
    char options[32];
    snprintf(options, sizeof options, "tolerance=%g", row->tolerance);
    assert_division(&mp_system_moonep, "experts=8", options, row->total, row->routes);
}

static const struct {
    const char *setting;
    int limit; /* the largest group of another rank */
} groups[] = {{"experts=8", 2},         {"experts=9", 3},         {"experts=3", 1},
              {"experts=8 ranks=1", 0}, {"experts=8 ranks=2", 4}, {"experts=896 ranks=64", 14}};

TEST_ROWS(copies_are_at_most_a_group, groups, c) {
    const struct mp_setting setting = setting_of(c->setting);
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, &mp_system_moonep, &setting, NULL);
    assert_int_equal(rehearsal.planner.law.extra_copies_limit, c->limit);
}

TEST(what_cannot_be_is_refused) {
    assert_option_refused(&mp_system_moonep, "tolerance", "-0.1");
}
