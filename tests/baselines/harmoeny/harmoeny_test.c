/* HarMoEny: golden decisions, and what it refuses. */
#include "tests/baselines/rehearsal.h"
#include "tests/reference/base/memory.h"

#include "baselines/harmoeny/harmoeny.h"

enum { RANKS = 2, EXPERTS = 4 };

/* Routes of a source to an expert on a rank: the released schedule. */
typedef int64_t schedule[RANKS][EXPERTS][RANKS];

static void lay_out(const struct mp_harmoeny *state, const int32_t owner[], schedule routes) {
    memset(routes, 0, sizeof(schedule));
    for (int source = 0; source < state->ranks; source++)
        for (int expert = 0; expert < state->experts; expert++) {
            long cell = (long)source * state->experts + expert;
            routes[source][expert][owner[expert]] += state->kept[cell];
            for (int32_t at = state->first[cell]; at >= 0; at = state->move[at].next)
                routes[source][expert][state->move[at].rank] += state->move[at].routes;
        }
}

/* Two ranks with two experts each, routes of both sources, and what ends on rank 1 of expert 0. */
static const struct {
    uint32_t count[8];
    int64_t least, moved[2]; /* of source 0, of source 1 */
} decisions[] = {
    {{300, 10, 0, 0, 100, 10, 0, 0}, 150, {210, 0}}, /* mean 210: the larger source fills it */
    {{100, 10, 0, 0, 300, 10, 0, 0}, 150, {0, 210}},
    {{200, 0, 0, 0, 200, 0, 0, 0}, 150, {200, 0}},       /* ties to the lower source */
    {{300, 10, 0, 0, 100, 10, 0, 0}, 211, {0, 0}},       /* less room than that */
    {{60, 60, 0, 0, 40, 40, 0, 0}, 100, {60, 40}},       /* just as many as that */
    {{150, 100, 100, 0, 60, 90, 100, 0}, 100, {100, 0}}, /* mean 300, 200 on rank 1 */
    {{0, 0, 0, 0, 0, 0, 0, 0}, 1, {0, 0}},
};

TEST_ROWS(golden_decisions, decisions, row) {
    static const int32_t OWNER[4] = {0, 0, 1, 1};
    const struct mp_harmoeny_options options = {.least = row->least};
    static schedule routes;
    struct mp_harmoeny state;
    AUTO(load) struct mp_load load;
    mp_harmoeny_create(&memory, 2, 4, &state);
    assert_works(mp_load_create(2, 4, &load, &error));
    memcpy(load.count, row->count, sizeof row->count);
    mp_harmoeny_decide(&state, &options, OWNER, &load);
    lay_out(&state, OWNER, routes);
    for (int source = 0; source < 2; source++)
        assert_int_equal(routes[source][0][1], row->moved[source]);
}

TEST(what_cannot_be_is_refused) {
    assert_option_refused(&mp_system_harmoeny, "least", "0");
}
