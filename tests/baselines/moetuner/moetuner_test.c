/* The system moetuner: moves when its
 * window is full, and then says what it found. */
#include "baselines/moetuner/moetuner.h"
#include "baselines/systems.h"
#include "tests/baselines/rehearsal.h"
#include "tests/reference/base/solver.h"

static const struct mp_system *const tested = &mp_system_moetuner;

static struct mp_setting setting_with(int layers, int ranks, int ranks_per_node) {
    return setting_of(formatted("layers=%d ranks=%d ranks-per-node=%d expert-bytes=1000 "
                                "route-bytes=1000 bandwidth=1e9 bandwidth-in-node=1e10",
                                layers, ranks, ranks_per_node));
}

/* Two layers on two nodes of two ranks. All experts have the same load, and expert e of layer 0
 * goes on to expert 7 - e of layer 1: only transitions tell where to put them. */
static void make_loads(struct mp_load load[2]) {
    for (int i = 0; i < 4 * 8; i++)
        load[0].count[i] = load[1].count[i] = 25;
    load[0].next = calloc(64, sizeof *load[0].next);
    assert_non_null(load[0].next);
    for (int e = 0; e < 8; e++)
        load[0].next[e * 8 + 7 - e] = (uint32_t)(100 - e);
}

TEST(places_when_the_window_is_full) {
    const struct mp_setting setting = setting_with(2, 4, 2);
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, tested, &setting, "window=3 solver=search");
    make_loads(rehearsal.load);
    for (int iteration = 0; iteration < 7; iteration++) {
        rehearsal_step(&rehearsal, rehearsal.load);
        const struct mp_moetuner_facts *facts = mp_planner_found(&rehearsal.planner);
        assert_int_equal(facts != NULL, iteration == 2);
        if (iteration < 2)
            assert_int_equal(rehearsal.changes, 0);
        if (!facts)
            continue;
        assert_numbers(facts->deviation, 0, facts->programs, 0);
        assert_true(rehearsal.changes > 0);
        /* As homes are, in routes of the window: the most between two ranks of different layers. */
        double most = 0, between[4][4] = {{0}};
        const struct mp_placement *home = rehearsal.planner.home;
        for (int e = 0; e < 8; e++)
            between[home[0].owner[e]][home[1].owner[7 - e]] += 3.0 * (100 - e);
        for (int from = 0; from < 4; from++)
            for (int to = 0; to < 4; to++)
                if (from != to)
                    most = fmax(most, between[from][to] *
                                          (from / 2 == to / 2 ? 1000 / 1e10 : 1000 / 1e9));
        assert_close(facts->links, most, 1e-12);
        assert_true(facts->links_bound <= facts->links);
        assert_close(facts->links_gap,
                     most > 0 ? (facts->links - facts->links_bound) / facts->links : 0, 1e-9);
    }
}

/* Programs go on where the search may be off, and say so.  Of the first loads CBC ends with a
 * solution that is good enough and worse than the search's. */
TEST_RANDOM_TURNS(programs_are_counted, 2, turn) {
    uint64_t known = 598;
    random = turn ? random : &known;
    static const char *const both[] = {"window=1 solver=search", "window=1 solver=ilp"};
    const struct mp_setting setting = setting_with(4, 8, 4);
    double links[2];
    need_solver();
    struct mp_load load[4] = {0};
    for (int l = 0; l < 4; l++) {
        assert_works(mp_load_create(8, 8, &load[l], &error));
        random_load(random, &load[l]);
        load[l].next = l < 3 ? calloc(64, sizeof *load[l].next) : NULL;
        for (int i = 0; l < 3 && i < 64; i++)
            load[l].next[i] = (uint32_t)test_random_int(random, 0, 1000);
    }
    for (int which = 0; which < 2; which++) {
        AUTO(rehearsal) struct rehearsal rehearsal;
        rehearsal_open(&rehearsal, tested, &setting, both[which]);
        rehearsal_step(&rehearsal, load);
        const struct mp_moetuner_facts *facts = mp_planner_found(&rehearsal.planner);
        assert_non_null(facts);
        links[which] = facts->links;
        if (which == 0) {
            assert_int_equal(facts->programs, 0);
        } else {
            /* One expert per rank: clusters are settled.  Seldom are links, too, by the search. */
            assert_true(facts->programs == 1 || (facts->programs == 0 && links[1] == links[0]));
            assert_int_equal(facts->programs_limited, 0);
            assert_true(facts->links_gap <= 0.025);
        }
    }
    assert_true(links[1] <= links[0]);
    for (int l = 0; l < 4; l++)
        mp_load_destroy(&load[l]);
}

TEST(what_it_refuses) {
    setenv("MOEPERF_CBC_LIBRARY", "libno-solver.so", 1);
    assert_refusal(tested, &(const struct refusal){"bandwidth=1e9", "",
                                                   "moetuner with solver ilp (search does "
                                                   "without): integer programs can't be solved"});
    unsetenv("MOEPERF_CBC_LIBRARY");
    assert_refusal(tested, &(const struct refusal){"experts=9", "",
                                                   "moetuner needs the same number of experts on "
                                                   "every rank: 9 experts can't be shared by 4 "
                                                   "ranks"});
}
