/* UltraEP: golden quotas, the released planner on plain arrays, plans that are legal, late and
 * fetched again, and what it refuses. */
#include "tests/baselines/rehearsal.h"

#include "baselines/ultraep/ultraep.h"

static struct mp_arena memory;

enum { MOST_RANKS = 12, MOST_EXPERTS = 30 };

static const struct mp_ultraep_options DEFAULTS = {
    .redundant = 2, .threshold = 1, .tolerance = 0.01, .least_quota = 1024, .locality = true};

/* ---- the released planner, on plain arrays ---- */

struct decision {
    int ranks, experts, per_node;
    struct mp_ultraep_options options;
    int32_t owner[MOST_EXPERTS];
    int64_t total[MOST_EXPERTS], load[MOST_RANKS];
    int64_t routes[MOST_EXPERTS][MOST_RANKS];
};

/* The rank or expert not yet used with the largest value, or -1. */
static int next_largest(const int64_t value[], int first, int end, bool used[]) {
    int found = -1;
    for (int index = first; index < end; index++)
        if (!used[index] && (found < 0 || value[index] > value[found]))
            found = index;
    if (found >= 0)
        used[found] = true;
    return found;
}

/* warp_build_export_plan */
static bool build(const struct decision *d, int first, int end, int64_t bound, bool floor_by_need,
                  int64_t given[MOST_EXPERTS][MOST_RANKS]) {
    int64_t slack[MOST_RANKS] = {0};
    int slots[MOST_RANKS] = {0};
    bool used_rank[MOST_RANKS] = {false};
    memset(given, 0, sizeof d->routes);
    for (int rank = first; rank < end; rank++)
        slack[rank] = bound > d->load[rank] ? bound - d->load[rank] : 0;
    for (int rank; (rank = next_largest(d->load, first, end, used_rank)) >= 0;) {
        int64_t need = d->load[rank] - bound;
        bool used[MOST_EXPERTS];
        for (int expert = 0; expert < d->experts; expert++)
            used[expert] = d->owner[expert] != rank;
        for (int expert; need > 0 && (expert = next_largest(d->total, 0, d->experts, used)) >= 0;) {
            int64_t available = d->total[expert];
            available -= available > 0 && !d->options.empty_owners;
            while (need > 0 && available > 0) {
                int best = -1, feasible = 0;
                for (int to = first; to < end; to++) {
                    if (slack[to] <= 0 || slots[to] >= d->options.redundant || given[expert][to])
                        continue;
                    feasible++;
                    best = best < 0 || slack[to] > slack[best] ? to : best;
                }
                if (best < 0)
                    break;
                int64_t quota = need < slack[best] ? need : slack[best];
                quota = quota < available ? quota : available;
                if (quota <
                    (floor_by_need ? (need + feasible - 1) / feasible : d->options.least_quota))
                    break;
                given[expert][best] = quota;
                slack[best] -= quota;
                slots[best]++;
                need -= quota;
                available -= quota;
            }
        }
        if (need > 0)
            return false;
    }
    return true;
}

/* The bound whose quotas are taken, and whether these are of the first tries. */
static int64_t find_bound(const struct decision *d, int first, int end, bool *quick) {
    static int64_t given[MOST_EXPERTS][MOST_RANKS];
    int64_t sum = 0, most = 0;
    for (int rank = first; rank < end; rank++) {
        sum += d->load[rank];
        most = d->load[rank] > most ? d->load[rank] : most;
    }
    int64_t low = (int64_t)ceil((double)sum / (end - first) * d->options.threshold);
    int64_t high = most > low ? most : low, step = (high + 99) / 100 > 1 ? (high + 99) / 100 : 1;
    int64_t bound = (int64_t)ceil((double)low * (1 + d->options.tolerance));
    *quick = true;
    for (int retry = 0; retry <= 2; retry++) {
        if (build(d, first, end, bound, true, given))
            return bound;
        bound = high < bound + step ? high : bound + step;
    }
    *quick = false;
    if (build(d, first, end, low, false, given))
        return low;
    low = low + 1 < high ? low + 1 : high;
    while (low < high) {
        int64_t range = high - low, probe[4];
        bool feasible[4], few = range <= 4;
        int found = -1;
        for (int warp = 3; warp >= 0; warp--) {
            probe[warp] = few ? low + warp : low + range * (warp + 1) / 5;
            feasible[warp] =
                (!few || probe[warp] < high) && build(d, first, end, probe[warp], false, given);
            found = feasible[warp] ? warp : found;
        }
        if (few)
            low = high = found >= 0 ? probe[found] : high;
        else if (found >= 0) {
            high = probe[found];
            low = found > 0 ? probe[found - 1] + 1 : low;
        } else
            low = probe[3] + 1;
    }
    return low;
}

static void follow_procedure(struct decision *d, int *searched) {
    static int64_t given[MOST_EXPERTS][MOST_RANKS];
    memset(d->load, 0, sizeof d->load);
    memset(d->routes, 0, sizeof d->routes);
    for (int expert = 0; expert < d->experts; expert++)
        d->load[d->owner[expert]] += d->total[expert];
    for (int first = 0; first < d->ranks; first += d->per_node) {
        int end = first + d->per_node < d->ranks ? first + d->per_node : d->ranks;
        bool quick;
        int64_t bound = find_bound(d, first, end, &quick);
        *searched += !quick;
        assert_true(build(d, first, end, bound, quick, given));
        for (int expert = 0; expert < d->experts; expert++) {
            if (d->owner[expert] < first || d->owner[expert] >= end)
                continue;
            d->routes[expert][d->owner[expert]] = d->total[expert];
            for (int rank = 0; rank < d->ranks; rank++) {
                d->routes[expert][rank] += given[expert][rank];
                d->routes[expert][d->owner[expert]] -= given[expert][rank];
            }
        }
    }
}

static void decide(const struct decision *d, int64_t routes[MOST_EXPERTS][MOST_RANKS]) {
    const struct mp_topology topology = {d->ranks, d->per_node};
    struct mp_ultraep state;
    memset(routes, 0, sizeof d->routes);
    assert_works(mp_ultraep_create(&memory, d->ranks, d->experts, &state, &error));
    for (int twice = 0; twice < 2; twice++) { /* nothing is left of the first time */
        memcpy(state.total, d->total, sizeof(int64_t) * (size_t)d->experts);
        assert_works(mp_ultraep_decide(&state, &d->options, &topology, d->owner, &error));
    }
    for (int expert = 0; expert < d->experts; expert++)
        for (int32_t at = state.pieces.first[expert]; at >= 0; at = state.pieces.item[at].next)
            routes[expert][state.pieces.item[at].rank] += state.pieces.item[at].routes;
    mp_arena_release(&memory);
}

TEST_RANDOM(decisions_are_those_of_the_procedure) {
    int searched = 0, copies = 0;
    for (int round = 0; round < 1000; round++) {
        static struct decision d;
        static int64_t routes[MOST_EXPERTS][MOST_RANKS];
        d.ranks = test_random_int(random, 1, MOST_RANKS);
        d.per_node = test_random_int(random, 1, MOST_RANKS);
        d.experts = test_random_int(random, 1, MOST_EXPERTS);
        d.options = DEFAULTS;
        d.options.redundant = test_random_int(random, 0, 3);
        d.options.tolerance = test_random_int(random, 0, 1) * 0.01;
        d.options.threshold = 1 + test_random_int(random, 0, 1) * 0.2;
        d.options.least_quota = test_random_int(random, 1, 300);
        d.options.empty_owners = test_random_int(random, 0, 1);
        for (int expert = 0; expert < d.experts; expert++) {
            int heat = test_random_int(random, 0, 9);
            d.owner[expert] = round % 2 ? mp_contiguous_owner(expert, d.experts, d.ranks)
                                        : test_random_int(random, 0, d.ranks - 1);
            d.total[expert] = test_random_int(random, 0, heat < 2 ? 0 : heat < 7 ? 100 : 3000);
        }
        follow_procedure(&d, &searched);
        decide(&d, routes);
        assert_memory_equal(routes, d.routes, sizeof routes);
        for (int expert = 0; expert < d.experts; expert++)
            for (int rank = 0; rank < d.ranks; rank++)
                copies += routes[expert][rank] > 0 && rank != d.owner[expert];
    }
    print_message("  %d copies, %d nodes searched\n", copies, searched);
    assert_true(copies > 500 && searched > 100);
}

/* Four ranks of a node with two experts each; routes of each expert on each rank. */
TEST(golden_decisions) {
    static const struct {
        const char *name;
        int redundant;
        double tolerance;
        int64_t least, total[8], routes[8][4];
    } row[] = {
        /* Mean 100: the hottest expert of rank 0 gives 70 to rank 3, that of rank 1 the 20 left. */
        {"the fullest first",
         2,
         0,
         1,
         {130, 40, 60, 60, 50, 50, 5, 5},
         {{60, 0, 0, 70},
          {40},
          {0, 40, 0, 20},
          {0, 60},
          {0, 0, 50},
          {0, 0, 50},
          {0, 0, 0, 5},
          {0, 0, 0, 5}}},
        /* One slot each, three copies. */
        {"everybody takes",
         1,
         0,
         1,
         {100, 0, 0, 0, 0, 0, 0, 0},
         {{25, 25, 25, 25}, {0}, {0}, {0}, {0}, {0}, {0}, {0}}},
        /* Nothing to be done without slots. */
        {"no slots",
         0,
         0,
         1,
         {100, 0, 0, 0, 0, 0, 0, 0},
         {{100}, {0}, {0}, {0}, {0}, {0}, {0}, {0}}},
        /* Within the tolerance nothing moves. */
        {"tolerated",
         2,
         0.5,
         1,
         {30, 0, 24, 0, 23, 0, 23, 0},
         {{30}, {0}, {0, 24}, {0}, {0, 0, 23}, {0}, {0, 0, 0, 23}, {0}}},
    };
    for (size_t index = 0; index < sizeof row / sizeof *row; index++) {
        static struct decision d;
        static int64_t routes[MOST_EXPERTS][MOST_RANKS];
        print_message("  %s\n", row[index].name);
        d = (struct decision){.ranks = 4, .experts = 8, .per_node = 4, .options = DEFAULTS};
        d.options.redundant = row[index].redundant;
        d.options.tolerance = row[index].tolerance;
        d.options.least_quota = row[index].least;
        mp_contiguous_owners(1, 8, 4, d.owner);
        memcpy(d.total, row[index].total, sizeof row[index].total);
        decide(&d, routes);
        for (int expert = 0; expert < 8; expert++)
            for (int rank = 0; rank < 4; rank++)
                assert_int_equal(routes[expert][rank], row[index].routes[expert][rank]);
    }
}

/* ---- plans ---- */

/* Copies come late, from the node alone, into the slots, and again for backward; a rank's own
 * routes go to its own copy as far as its quota goes. */
TEST_RANDOM(copies_stay_in_the_node) {
    const struct mp_setting setting = small_setting(1, 24, (struct mp_topology){8, 4});
    AUTO(rehearsal) struct rehearsal rehearsal;
    AUTO(load) struct mp_load load;
    int copies = 0;
    assert_works(mp_load_create(8, 24, &load, &error));
    rehearsal_create(&rehearsal, &mp_system_ultraep, &setting, &DEFAULTS);
    for (int round = 0; round < 20; round++) {
        const struct mp_plan *plan = rehearsal.planner.plan;
        int slots[8] = {0};
        random_load(random, &load);
        rehearsal_plan(&rehearsal, 0, &load);
        assert_true(plan->policy->rematerialise);
        for (int index = 0; index < plan->fetch.count; index++) {
            const struct mp_transfer *fetch = &plan->fetch.item[index];
            int64_t quota = 0, own = mp_load_at(&load, fetch->to, fetch->expert);
            assert_int_equal(fetch->stage, MP_STAGE_AFTER_GATE);
            assert_int_equal(fetch->from / 4, fetch->to / 4);
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

TEST(what_cannot_be_is_refused) {
    struct mp_ultraep_options options = DEFAULTS;
    struct mp_ultraep state;
    assert_refuses_none(&mp_system_ultraep, &options, "threshold", "0.9");
    assert_int_equal(mp_ultraep_create(&memory, 0, 4, &state, NULL), MP_EINVAL);
}
