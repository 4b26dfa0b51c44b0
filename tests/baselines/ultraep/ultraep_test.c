/* UltraEP: golden quotas, plans that are legal, late and fetched again, and what it refuses. */
#include "tests/baselines/rehearsal.h"

#include "baselines/systems.h"

/* Four ranks of a node with two experts each (see assert_division), worked out by hand from the
 * rules of the released kernel. */
static const struct {
    const char *name, *options, *total, *routes;
} decisions[] = {
    /* Mean 100: the hottest expert of rank 0 gives 70 to rank 3, that of rank 1 the 20 left. */
    {"the fullest first", "tolerance=0", "130 40 60 60 50 50 5 5", "0=60,0,0,70 2=0,40,0,20"},
    /* 10: rank 0 gives 7 to rank 2, which has 8; then rank 3 has most, 5 for rank 1, and the last
     * one goes to what is left of rank 2. */
    {"room is what is left of it", "tolerance=0", "17 0 16 0 2 0 5", "0=10,0,7 2=0,10,1,5"},
    /* One slot each, three copies. */
    {"everybody takes", "redundant=1 tolerance=0", "100", "0=25,25,25,25"},
    {"no slots", "redundant=0 tolerance=0", "100", ""},
    {"tolerated", "tolerance=0.5", "30 0 24 0 23 0 23", ""},
    /* Bound 250 * 1.01, up. */
    {"what is usual", "", "1000", "0=253,253,253,241"},
    {"a mean of 50.5", "tolerance=0", "202", "0=51,51,51,49"},
    {"a bound of 16.5", "tolerance=0.1", "60", "0=17,17,17,9"},
    {"from a threshold on", "tolerance=0 threshold=1.2", "130 0 90 0 90 0 90", "0=120,10"},
    /* 15: of 44 the hottest gives 15, and of 29 its other 14 are less than half; the next one gives
     * 15, and its other 13 are not all of 14.  16: of 43 the hottest gives 16, its other 13 are
     * less than half of 27; the next one gives 16 and the 11 left. */
    {"what is left is shared, upwards", "tolerance=0", "30 29", "0=14,16 1=2,0,16,11"},
    /* 1: rank 0 has one too much, of two experts with but the one that stays.  2: nothing is. */
    {"owners keep a route", "tolerance=0", "1 1", ""},
    {"owners may give all", "tolerance=0 empty-owners=yes", "1 1", "0=0,1"},
    /* 26: the hottest gives 26 of 77, its other 24 are less than half of 51; the next one gives 26,
     * its other 23 are less than the 25 left.  28, two hundredths of 103 more: 28 and 28 of 75, and
     * the next one has the 19 left. */
    {"a second bound", "redundant=1 tolerance=0", "0 0 0 0 51 52", "4=0,28,4,19 5=28,0,24"},
    /* 5 and 6: rank 1 needs both slots, and nothing is left for rank 2. */
    {"a third bound", "redundant=1 tolerance=0 least-quota=8", "0 0 13 0 7", "2=6,7"},
    /* 4: of 10 the hottest gives 4 to each of two, which are full and share nothing more; its other
     * one is less than the 2 left, which the next expert gives. */
    {"who is full is out", "tolerance=0", "0 0 10 4", "2=4,2,4 3=0,2,0,2"},
    /* 9, 10 and 11: rank 2 needs both slots, rank 0 too.  9: 5 are less than a quota, and from 12
     * on what rank 0 has too much.  Of 10 to 23, 12 fails and 15 does; of 13 to 15, 13 does. */
    {"searched with a least quota", "redundant=1 tolerance=0 least-quota=8", "13 0 0 0 0 23",
     "5=0,10,13"},
    /* Of 11 to 25, 13 fails and 16 does; of 14 to 16, 15 does. */
    {"four at a time", "redundant=1 tolerance=0 least-quota=8", "25 0 0 0 0 15", "0=15,10"},
    /* 11 to 13 fail as above.  Of 12 to 27, 15 fails, as rank 0 has 1 too much and must give 2, and
     * 18 does; of 16 to 18, 16 does.  14 would have. */
    {"a smaller bound is missed", "redundant=1 tolerance=0 least-quota=2", "0 16 0 27",
     "3=0,16,11"},
    /* 26 to 28: the hottest gives twice, and what is left is more than rank 3 has room for.  Of 27
     * to 86, 38 fails (4 are left, less than a quota) and 50 does; of 39 to 50, 41 fails and 43
     * does; of 42 and 43, the first fails.  40 would have done. */
    {"what failed is not tried again", "redundant=1 tolerance=0 least-quota=5", "0 0 0 0 41 45 16",
     "5=43,0,2"},
    /* One copy has to take all, so that rank 2, which may not give as little as it has too much, is
     * at the bound or below: 1877 is found, where a copy gets 1025. */
    {"the usual least quota", "redundant=1 tolerance=0", "2902 0 0 0 0 1877", "0=1877,1025"},
};

TEST_EACH(golden_decisions, decisions, c) {
    assert_division(&mp_system_ultraep, "ranks-per-node=4", c->options, c->total, c->routes);
}

/* ---- plans ---- */

/* Copies come late, from the node alone, into the slots, and again for backward; a rank's own
 * routes go to its own copy as far as its quota goes. */
TEST_RANDOM(copies_stay_in_the_node) {
    const struct mp_setting setting = small_setting(1, 24, (struct mp_topology){8, 4});
    AUTO(rehearsal) struct rehearsal rehearsal;
    int copies = 0;
    rehearsal_open(&rehearsal, &mp_system_ultraep, &setting, NULL);
    struct mp_load *load = rehearsal.load;
    for (int round = 0; round < 20; round++) {
        const struct mp_plan *plan = rehearsal.planner.plan;
        int slots[8] = {0};
        random_load(random, load);
        rehearsal_plan(&rehearsal, 0, load);
        assert_true(plan->policy->rematerialise);
        for (int index = 0; index < plan->fetch.count; index++) {
            const struct mp_transfer *fetch = &plan->fetch.item[index];
            int64_t quota = 0, own = mp_load_at(load, fetch->to, fetch->expert);
            assert_numbers(fetch->stage, MP_STAGE_AFTER_GATE, fetch->from / 4, fetch->to / 4);
            assert_true(++slots[fetch->to] <= 2);
            for (int source = 0; source < 8; source++)
                quota += mp_plan_routes_to(plan, source, fetch->expert, fetch->to);
            assert_int_equal(mp_plan_routes_to(plan, fetch->to, fetch->expert, fetch->to),
                             own < quota ? own : quota);
        }
        copies += plan->fetch.count;
    }
    assert_true(copies > 0);
}

/* Four quotas of 50, of 100 routes that rank 2 has and 100 of rank 3. */
TEST(own_copies_come_first_or_in_order) {
    const struct mp_setting setting = setting_of("ranks-per-node=4");
    for (int order = 0; order < 2; order++) {
        AUTO(rehearsal) struct rehearsal rehearsal;
        rehearsal_open(&rehearsal, &mp_system_ultraep, &setting,
                       order ? "tolerance=0 locality=no" : "tolerance=0");
        for (int rank = 2; rank < 4; rank++)
            rehearsal.load->count[rank * setting.experts] = 100;
        rehearsal_plan(&rehearsal, 0, rehearsal.load);
        const struct mp_plan *plan = rehearsal.planner.plan;
        assert_numbers(mp_plan_routes_to(plan, 2, 0, 2), order ? 0 : 50,
                       mp_plan_routes_to(plan, 2, 0, 1), order ? 50 : 0,
                       mp_plan_routes_to(plan, 3, 0, 3), 50, mp_plan_routes_to(plan, 3, 0, 2),
                       order ? 50 : 0);
    }
}

TEST(what_cannot_be_is_refused) {
    assert_option_refused(&mp_system_ultraep, "threshold", "0.9");
}
