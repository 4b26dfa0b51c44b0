/* The list of a program's cases. */
#include "tests/support.h"

#include <errno.h>
#include <string.h>

static struct CMUnitTest *units;
static size_t count;
static CMFixtureFunction group_set_up, group_tear_down;
static uint64_t *seeded, own_state;

void test_add(const char *name, CMUnitTestFunction function, CMFixtureFunction set_up,
              CMFixtureFunction tear_down, void *state) {
    struct CMUnitTest *longer = realloc(units, (count + 1) * sizeof *units);
    if (!longer)
        abort();
    units = longer;
    units[count++] = (struct CMUnitTest){name, function, set_up, tear_down, state};
}

void test_group(CMFixtureFunction set_up, CMFixtureFunction tear_down) {
    group_set_up = set_up;
    group_tear_down = tear_down;
}

uint64_t *test_seeded(uint64_t *state) {
    return seeded = state ? state : &own_state;
}

int test_run(void) {
    if (seeded)
        *seeded = test_seed();
    return _cmocka_run_group_tests(program_invocation_short_name, units, count, group_set_up,
                                   group_tear_down);
}
