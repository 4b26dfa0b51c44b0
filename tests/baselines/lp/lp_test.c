/* LP: golden optima, the least largest load against all sets of experts, routes
 * that stay near, placements of the sources, plans that are legal, and what it refuses. */
#include "tests/baselines/rehearsal.h"
#include "tests/reference/base/memory.h"

#include "baselines/lp/lp.h"
#include "baselines/systems.h"

enum { MOST_RANKS = 20, MOST_EXPERTS = 40, SMALL = 9 };

/* ---- the program ---- */

/* Splits a load; checks that pieces are the load, lie on holders and that the fullest rank has z.
 */
static int64_t balance(const struct mp_topology *topology, const struct mp_placement *holders,
                       const struct mp_load *load) {
    int64_t computed[MOST_RANKS] = {0}, most = 0, total[MOST_EXPERTS];
    struct mp_lp state;
    mp_lp_create(&memory, topology, holders->experts, &state);
    for (int twice = 0; twice < 2; twice++) /* nothing is left of the first time */
        assert_works(mp_lp_balance(&state, topology, holders, load, &error));
    mp_load_expert_totals(load, total);
    for (int expert = 0; expert < holders->experts; expert++) {
        for (int32_t at = state.pieces.first[expert]; at >= 0; at = state.pieces.item[at].next) {
            const struct mp_piece *piece = &state.pieces.item[at];
            assert_true(piece->routes > 0 && mp_placement_holds(holders, expert, piece->rank));
            computed[piece->rank] += piece->routes;
            total[expert] -= piece->routes;
        }
        assert_int_equal(total[expert], 0);
    }
    for (int rank = 0; rank < topology->ranks; rank++)
        most = computed[rank] > most ? computed[rank] : most;
    assert_int_equal(state.most, most);
    return most;
}

/* V-LP-1, and loads that don't divide: two ranks of each expert. */
static const struct {
    int ranks, experts, host[4][2];
    uint32_t total[4];
    int64_t most;
} optima[] = {
    {3, 3, {{0, 1}, {1, 2}, {2, 0}}, {12, 3, 3}, 6},
    {3, 3, {{0, 1}, {1, 2}, {2, 0}}, {20, 1, 1}, 10},
    {4, 4, {{0, 1}, {1, 2}, {2, 3}, {3, 0}}, {24, 18, 6, 12}, 15}, /* 7.5 of 12 9 3 6 */
    {4, 4, {{0, 1}, {1, 2}, {2, 3}, {3, 0}}, {12, 9, 3, 6}, 8},
    {4, 4, {{0, 1}, {1, 2}, {2, 3}, {3, 0}}, {30, 4, 2, 4}, 15},
    {4, 2, {{0, 1}, {1, 2}}, {7, 6}, 5}, /* three ranks share 13 */
    {3, 1, {{0, 2}}, {0}, 0},
};

TEST_ROWS(golden_optima, optima, c) {
    struct mp_topology topology = {c->ranks, 2};
    AUTO(load) struct mp_load load;
    struct mp_placement holders = placement_of(topology.ranks, c->experts);
    assert_works(mp_load_create(topology.ranks, c->experts, &load, &error));
    for (int expert = 0; expert < c->experts; expert++) {
        mp_placement_remove(&holders, expert, holders.owner[expert]);
        for (int copy = 0; copy < 2; copy++)
            mp_placement_add(&holders, expert, c->host[expert][copy]);
        for (uint32_t route = 0; route < c->total[expert]; route++)
            load.count[(route % (uint32_t)topology.ranks) * (uint32_t)c->experts +
                       (uint32_t)expert]++;
    }
    assert_int_equal(balance(&topology, &holders, &load), c->most);
}

/* z of theory: no set of experts has more routes than all ranks that hold any of them can take. */
static int64_t over_all_sets(const struct mp_placement *holders, const struct mp_load *load) {
    int64_t total[MOST_EXPERTS], most = 0;
    mp_load_expert_totals(load, total);
    for (unsigned set = 1; set < 1U << holders->experts; set++) {
        int64_t routes = 0;
        uint64_t ranks = 0;
        for (int expert = 0; expert < holders->experts; expert++)
            if (set >> expert & 1) {
                routes += total[expert];
                ranks |= holders->holder[expert];
            }
        int64_t held_by = __builtin_popcountll(ranks), share = (routes + held_by - 1) / held_by;
        most = share > most ? share : most;
    }
    return most;
}

TEST_RANDOM(no_split_has_a_smaller_largest_load) {
    int even = 0, uneven = 0;
    for (int round = 0; round < 1000; round++) {
        struct mp_topology topology = random_topology(random, MOST_RANKS);
        int experts = test_random_int(random, 1, SMALL), more = test_random_int(random, 0, 3);
        AUTO(load) struct mp_load load;
        struct mp_placement holders = placement_of(topology.ranks, experts);
        assert_works(mp_load_create(topology.ranks, experts, &load, &error));
        for (int expert = 0; expert < experts; expert++) {
            int heat = test_random_int(random, 0, 2) ? 9 : 900;
            for (int copy = 0; copy < more; copy++)
                mp_placement_add(&holders, expert, test_random_int(random, 0, topology.ranks - 1));
            for (int source = 0; source < topology.ranks; source++)
                load.count[source * experts + expert] = (uint32_t)test_random_int(random, 0, heat);
        }
        int64_t least = over_all_sets(&holders, &load);
        assert_int_equal(balance(&topology, &holders, &load), least);
        int64_t share = (mp_load_total(&load) + topology.ranks - 1) / topology.ranks;
        *(least == share ? &even : &uneven) += 1;
    }
    print_message("  %d even, %d not\n", even, uneven);
    assert_true(even > 50 && uneven > 50);
}

/* ---- placements ---- */

static void *create_lp(const struct mp_setting *setting, const struct mp_lp_options *options) {
    void *self;
    assert_works(mp_system_create(&mp_system_lp, setting, options, &self, &error));
    return self;
}

/* The first homes, as many replicas on every rank, and the limit is what a rank holds. */
static void first_home(const struct mp_lp_options *options, int experts,
                       const struct mp_topology *topology, struct mp_placement *home) {
    const struct mp_setting setting = {.layers = 1, .experts = experts, .topology = *topology};
    int most = 0;
    void *self = create_lp(&setting, options);
    *home = placement_of(topology->ranks, experts);
    assert_works(mp_system_initial_homes(&mp_system_lp, self, 1, home, &error));
    for (int rank = 0; rank < topology->ranks; rank++) {
        int held = 0;
        for (int expert = 0; expert < experts; expert++)
            held += mp_placement_holds(home, expert, rank);
        most = held > most ? held : most;
    }
    assert_int_equal(mp_system_lp.homes_limit(self), most);
    mp_system_destroy(&mp_system_lp, self);
}

static struct mp_lp_options options_of(int placement, int replicas) {
    return (struct mp_lp_options){
        .placement = placement, .replicas = replicas, .redundant = MP_AUTO, .window = 3};
}

/* Every expert on d ranks, and of two replicas a rank shares experts with all others. */
TEST(cyclic_placements_overlap) {
    const struct mp_topology topology = {5, 5};
    for (int copies = 1; copies <= 5; copies++) {
        const struct mp_lp_options options = options_of(MP_LP_CYCLIC, copies);
        struct mp_placement home;
        first_home(&options, 20, &topology, &home);
        for (int expert = 0; expert < 20; expert++)
            assert_int_equal(mp_placement_copies(&home, expert), copies);
        /* The second expert of a rank goes on where the first one ended. */
        for (int offset = 1; offset < 5; offset++)
            assert_int_equal(mp_placement_holds(&home, 1, offset),
                             (offset - copies + 4) % 4 < copies - 1);
        for (int other = 1; other < 5 && copies == 2; other++) {
            int shared = 0;
            for (int expert = 0; expert < 20; expert++)
                shared += mp_placement_holds(&home, expert, 0) &&
                          mp_placement_holds(&home, expert, other);
            assert_int_equal(shared, 2);
        }
        for (int rank = 0; rank < 5; rank++) {
            int held = 0;
            for (int expert = 0; expert < 20; expert++)
                held += mp_placement_holds(&home, expert, rank);
            assert_int_equal(held, 4 * copies);
        }
    }
}

/* LPLB's matrices: whose i-th expert a rank holds beside its own three. */
static const struct {
    int placement;
    struct mp_topology topology;
    int links, from[2][16];
} topologies[] = {
    {MP_LP_CUBE, {8, 8}, 2, {{3, 0, 1, 2, 7, 4, 5, 6}, {6, 7, 4, 5, 0, 1, 2, 3}}},
    {MP_LP_CUBE,
     {16, 8},
     2,
     {{3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14},
      {6, 7, 4, 5, 0, 1, 2, 3, 14, 15, 12, 13, 8, 9, 10, 11}}},
    {MP_LP_HYPERCUBE,
     {16, 8},
     2,
     {{3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14},
      {12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}},
    {MP_LP_RING, {8, 8}, 1, {{1, 2, 3, 4, 5, 6, 7, 0}}},
    {MP_LP_TORUS, {6, 3}, 2, {{3, 4, 5, 0, 1, 2}, {1, 2, 0, 4, 5, 3}}},
};

TEST_ROWS(released_topologies_come_out, topologies, c) {
    const struct mp_lp_options options = options_of(c->placement, 7);
    int ranks = c->topology.ranks, copies = 0;
    struct mp_placement home;
    first_home(&options, 3 * ranks, &c->topology, &home);
    for (int rank = 0; rank < ranks; rank++)
        for (int link = 0; link < c->links; link++)
            assert_true(mp_placement_holds(&home, 3 * c->from[link][rank] + link, rank));
    for (int expert = 0; expert < 3 * ranks; expert++)
        copies += mp_placement_copies(&home, expert);
    assert_int_equal(copies, (3 + c->links) * ranks);
}

/* In EPLB's order every rank has as many owners, and those with replicas are its hottest. */
TEST_RANDOM(hottest_experts_get_the_replicas) {
    const struct mp_setting setting = small_setting(1, 24, (struct mp_topology){8, 4});
    struct mp_lp_options options = options_of(MP_LP_CUBE, 2);
    AUTO(rehearsal) struct rehearsal rehearsal;
    int64_t total[24];
    options.interval = options.window = 2;
    rehearsal_create(&rehearsal, &mp_system_lp, &setting, &options);
    struct mp_load *load = rehearsal.load;
    random_load(random, load);
    rehearsal_step(&rehearsal, load);
    assert_int_equal(rehearsal.changes, 0); /* not before the interval is over */
    rehearsal_step(&rehearsal, load);
    assert_true(rehearsal.changes > 0);
    mp_load_expert_totals(load, total);
    const struct mp_placement *home = &rehearsal.planner.home[0];
    for (int rank = 0; rank < 8; rank++) {
        int owned = 0, replicated = 0;
        int64_t most = -1, least = INT64_MAX;
        for (int expert = 0; expert < 24; expert++) {
            if (home->owner[expert] != rank)
                continue;
            bool single = mp_placement_copies(home, expert) == 1;
            owned++;
            replicated += !single;
            most = single ? total[expert] : most;
            least = !single && total[expert] < least ? total[expert] : least;
        }
        assert_true(owned == 3 && replicated == 2 && least >= most);
    }
}

/* ---- plans ---- */

/* Homes of another system, as after a checkpoint, are split over all the same. */
TEST_RANDOM(other_homes_are_served) {
    const struct mp_setting setting = small_setting(1, 12, (struct mp_topology){4, 2});
    const struct mp_lp_options options = options_of(MP_LP_CYCLIC, 3);
    AUTO(rehearsal) struct rehearsal rehearsal;
    int64_t computed[4], most = 0;
    rehearsal_create(&rehearsal, &mp_system_lp, &setting, &options);
    struct mp_load *load = rehearsal.load;
    for (int round = 0; round < 5; round++) {
        random_load(random, load);
        rehearsal_plan(&rehearsal, 0, load);
        rank_routes(rehearsal.planner.plan, computed, NULL, NULL);
        most = 0;
        for (int rank = 0; rank < 4; rank++)
            most = computed[rank] > most ? computed[rank] : most;
        assert_int_equal(most, over_all_sets(&rehearsal.planner.home[0], load));
        rehearsal_thin_out(random, &rehearsal);
    }
}

static const struct refusal refusals[] = {
    {"experts=9 ranks-per-node=2", "interval=1", "9 can't be shared by 4 ranks"},
    {"experts=24 ranks=12 ranks-per-node=4", "placement=cube", "a multiple of 8 ranks, not 12"},
    {"experts=32 ranks=8 ranks-per-node=4", "placement=cube redundant=3",
     "3 can't be those of 32 experts on 8 ranks"},
    {"experts=8 ranks=8 ranks-per-node=4", "placement=cube",
     "2 can't be those of 8 experts on 8 ranks"},
    {"experts=9 ranks=8 ranks-per-node=4", "placement=ring",
     "1 can't be those of 9 experts on 8 ranks"},
    {"experts=16 ranks=8 ranks-per-node=8", "placement=torus", "not 8 ranks in nodes of 8"},
};

TEST_ROWS(what_cannot_be_is_refused, refusals, c) {
    assert_refusal(&mp_system_lp, c);
}

TEST(an_expert_that_nobody_holds_is_told) {
    const struct mp_topology one = {1, 1};
    AUTO(load) struct mp_load load;
    struct mp_lp state;
    mp_lp_create(&memory, &one, 1, &state);
    struct mp_placement nobody = placement_of(1, 1);
    assert_works(mp_load_create(1, 1, &load, &error));
    mp_placement_remove(&nobody, 0, 0);
    assert_fails(mp_lp_balance(&state, &one, &nobody, &load, &error), MP_EPLAN, "");
}
