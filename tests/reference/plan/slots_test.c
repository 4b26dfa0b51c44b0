/* Slots, and routes spread over them, against a model that hands out route by route. */
#include "tests/reference/plan/plan_support.h"

#include "reference/plan/slots.h"

static struct mp_arena memory;

static uint64_t random_state;

static int below(int count) {
    return test_random_int(&random_state, 0, count - 1);
}

/* A random job: slots, and what a plan with them needs; destroy with destroy_job. */
struct job {
    struct mp_topology topology;
    struct mp_slots slots;
    struct mp_placement home;
    struct mp_plan plan;
    struct mp_load load;
};

/* Every expert gets a slot, the others go to any expert, with company of its own or to none. */
static void random_slots(struct mp_slots *slots) {
    int all = slots->ranks * slots->per_rank, last = 0;

    for (int index = 0; index < all; index++) {
        int what = below(8);
        if (what < 4) /* a neighbour, most often on the same or the next rank */
            slots->expert[index] = last;
        else
            slots->expert[index] = what == 4 ? -1 : below(slots->experts);
        if (slots->expert[index] >= 0)
            last = slots->expert[index];
    }
    bool *used = calloc((size_t)all, sizeof *used);
    for (int expert = 0; expert < slots->experts; expert++) {
        int index = below(all);
        while (used[index])
            index = (index + 1) % all;
        used[index] = true;
        slots->expert[index] = expert;
    }
    free(used);
}

static void random_job(struct job *job) {
    int per_rank = test_random_int(&random_state, 1, 6);

    job->topology = random_topology(&random_state, 40);
    int all = job->topology.ranks * per_rank;
    int experts = test_random_int(&random_state, 1, all < 30 ? all : 30);
    if (below(3) == 0) /* few experts have many slots */
        experts = 1 + experts / 8;
    assert_works(
        mp_slots_create(&memory, job->topology.ranks, experts, per_rank, &job->slots, &error));
    assert_works(mp_placement_create(job->topology.ranks, experts, &job->home, &error));
    assert_works(mp_load_create(job->topology.ranks, experts, &job->load, &error));
    assert_works(mp_plan_create(&job->topology, experts, 64, &job->plan, &error));
    random_slots(&job->slots);
    random_load(&random_state, &job->load);
}

static void destroy_job(struct job *job) {
    mp_arena_release(&memory);
    mp_placement_destroy(&job->home);
    mp_load_destroy(&job->load);
    mp_plan_destroy(&job->plan);
}

TEST_END(destroy_job, struct job, destroy_job(it))

/* Slots of an expert in ascending order of rank; returns their number. */
static int list_slots(const struct mp_slots *slots, int expert, int32_t rank[]) {
    int count = 0;
    for (int index = 0; index < slots->ranks * slots->per_rank; index++)
        if (slots->expert[index] == expert)
            rank[count++] = index / slots->per_rank;
    return count;
}

TEST(slots_are_listed_and_become_homes) {
    for (int round = 0; round < 200; round++) {
        AUTO(destroy_job) struct job job;
        int32_t rank[240];
        random_job(&job);
        mp_slots_index(&job.slots, below(2) ? job.topology.ranks_per_node : 0);
        AUTO(memory) int32_t *before = malloc((size_t)job.slots.experts * sizeof *before);
        random_homes(&random_state, true, &job.home);
        memcpy(before, job.home.owner, (size_t)job.slots.experts * sizeof *before);
        assert_works(mp_slots_homes(&job.slots, &job.home, &error));
        for (int expert = 0; expert < job.slots.experts; expert++) {
            int count = list_slots(&job.slots, expert, rank), holders = 0;
            assert_int_equal(mp_slots_of(&job.slots, expert), count);
            assert_memory_equal(job.slots.rank + job.slots.begin[expert], rank,
                                (size_t)count * sizeof *rank);
            bool stays = false;
            for (int index = 0; index < count; index++) {
                holders += index == 0 || rank[index] != rank[index - 1];
                stays |= rank[index] == before[expert];
                assert_true(mp_placement_holds(&job.home, expert, rank[index]));
            }
            assert_int_equal(mp_placement_copies(&job.home, expert), holders);
            assert_int_equal(job.home.owner[expert], stays ? before[expert] : rank[0]);
        }
    }
}

/* --- The model --- */

/* Gives route after route of one expert to slot after slot, from `start` on. */
static void hand_out(const int32_t rank[], int slots, int64_t start, int64_t routes,
                     int64_t got[]) {
    for (int64_t route = 0; route < routes; route++)
        got[rank[(start + route) % slots]]++;
}

/* m / n routes to every slot, and what is left one by one from `start` on. */
static void hand_out_evenly(const int32_t rank[], int slots, int64_t start, int64_t routes,
                            int64_t got[]) {
    for (int slot = 0; slot < slots; slot++)
        got[rank[slot]] += routes / slots;
    hand_out(rank, slots, start, routes % slots, got);
}

/* Of the slots those of the source's node, if it has any. */
static int near_slots(const struct mp_topology *topology, int source, const int32_t rank[],
                      int slots, int32_t near[]) {
    int count = 0;
    for (int slot = 0; slot < slots; slot++)
        if (mp_topology_node(topology, rank[slot]) == mp_topology_node(topology, source))
            near[count++] = rank[slot];
    if (count == 0)
        memcpy(near, rank, (size_t)slots * sizeof *near);
    return count > 0 ? count : slots;
}

/* Compares what every source's routes to `expert` became with what they should have. */
static void check_expert(const struct job *job, int expert, enum mp_spread spread) {
    int32_t rank[240], near[240];
    int slots = list_slots(&job->slots, expert, rank);
    int64_t turn = 0, capacity = job->plan.capacity[expert];

    for (int source = 0; source < job->topology.ranks; source++) {
        int64_t routes = mp_load_at(&job->load, source, expert), got[40] = {0};
        if (spread == MP_SPREAD_TURN) {
            if (capacity >= 0 && routes > capacity - turn)
                routes = capacity - turn;
            hand_out(rank, slots, turn, routes, got);
            turn += routes;
        } else if (spread == MP_SPREAD_SOURCE) {
            hand_out_evenly(rank, slots, source, routes, got);
        } else {
            int count = near_slots(&job->topology, source, rank, slots, near);
            hand_out_evenly(near, count, 0, routes, got);
        }
        for (int to = 0; to < job->topology.ranks; to++)
            assert_int_equal(mp_plan_routes_to(&job->plan, source, expert, to), got[to]);
    }
}

static void dispatch_and_check(struct job *job, enum mp_spread spread, bool limited) {
    struct mp_plan_law law = {.drops_routes = limited, .extra_copies_limit = job->slots.per_rank};

    mp_slots_index(&job->slots, spread == MP_SPREAD_NODE ? job->topology.ranks_per_node : 0);
    assert_works(mp_slots_homes(&job->slots, &job->home, &error));
    job->plan.policy = policy_with(MP_OPTIMIZER_SLICES_OF_SUM);
    assert_works(mp_plan_begin(&job->plan, 1, 0, &job->home, &error));
    for (int expert = 0; limited && expert < job->slots.experts; expert++)
        job->plan.capacity[expert] = test_random_int(&random_state, -1, 2000);
    assert_works(mp_plan_dispatch_slots(&job->plan, &job->load, &job->slots, spread, &error));
    assert_works(mp_plan_check(&job->plan, &job->load, &law, NULL, &error));
    for (int expert = 0; expert < job->slots.experts; expert++)
        check_expert(job, expert, spread);
}

TEST(routes_are_spread_as_by_hand) {
    for (int round = 0; round < 150; round++) {
        AUTO(destroy_job) struct job job;
        random_job(&job);
        for (int again = 0; again < 2; again++) { /* nothing is left over from other slots */
            dispatch_and_check(&job, MP_SPREAD_TURN, false);
            dispatch_and_check(&job, MP_SPREAD_SOURCE, false);
            dispatch_and_check(&job, MP_SPREAD_NODE, false);
            random_slots(&job.slots);
        }
    }
}

TEST(the_first_routes_are_kept) {
    for (int round = 0; round < 60; round++) {
        AUTO(destroy_job) struct job job;
        random_job(&job);
        dispatch_and_check(&job, MP_SPREAD_TURN, true);
    }
}

/* As SYMI lays slots out: in order of experts, so that only the ends of a stretch share a rank. */
TEST(contiguous_slots_are_no_special_case) {
    for (int round = 0; round < 60; round++) {
        AUTO(destroy_job) struct job job;
        random_job(&job);
        int all = job.slots.ranks * job.slots.per_rank, index = 0;
        for (int expert = 0; expert < job.slots.experts; expert++) {
            int left = job.slots.experts - 1 - expert, most = all - index - left;
            int count = expert + 1 < job.slots.experts ? 1 + below(most) / 2 : most;
            for (; count > 0; count--)
                job.slots.expert[index++] = expert;
        }
        for (int spread = MP_SPREAD_TURN; spread <= MP_SPREAD_NODE; spread++)
            dispatch_and_check(&job, (enum mp_spread)spread, false);
    }
}

/* Few routes and many slots, many routes and many slots on one rank. */
TEST(extreme_numbers_are_no_special_case) {
    static const uint32_t routes[] = {0, 1, 2, 3, 5, 31, 1000003};
    for (size_t row = 0; row < sizeof routes / sizeof *routes; row++)
        for (int ranks = 1; ranks < 9; ranks += 3) {
            AUTO(destroy_job) struct job job = {.topology = {ranks, 2}};
            assert_works(mp_slots_create(&memory, ranks, 2, 7, &job.slots, &error));
            assert_works(mp_placement_create(ranks, 2, &job.home, &error));
            assert_works(mp_load_create(ranks, 2, &job.load, &error));
            assert_works(mp_plan_create(&job.topology, 2, 64, &job.plan, &error));
            for (int index = 0; index < 7 * ranks; index++)
                job.slots.expert[index] = index == 3;
            for (int index = 0; index < 2 * ranks; index++)
                job.load.count[index] = routes[row] + (uint32_t)below(2);
            for (int spread = MP_SPREAD_TURN; spread <= MP_SPREAD_NODE; spread++)
                dispatch_and_check(&job, (enum mp_spread)spread, false);
        }
}

TEST(what_does_not_fit_is_refused) {
    struct job job = {.topology = {4, 2}};
    struct mp_slots none;
    static const int size[][3] = {{0, 1, 1}, {1, 0, 1}, {1, 1, 0}, {1 << 20, 1, 1 << 20}};
    for (size_t row = 0; row < sizeof size / sizeof *size; row++)
        assert_int_equal(
            mp_slots_create(&memory, size[row][0], size[row][1], size[row][2], &none, NULL),
            MP_EINVAL);
    assert_works(mp_slots_create(&memory, 4, 3, 1, &job.slots, &error));
    assert_works(mp_placement_create(4, 3, &job.home, &error));
    assert_works(mp_load_create(4, 3, &job.load, &error));
    assert_works(mp_plan_create(&job.topology, 3, 64, &job.plan, &error));
    memcpy(job.slots.expert, (int32_t[4]){0, 1, 1, 0}, 4 * sizeof(int32_t));
    mp_slots_index(&job.slots, 0);
    assert_sentence(mp_slots_homes(&job.slots, &job.home, &error), MP_EPLAN,
                    "expert 2 has none of 4 slots");
    job.slots.expert[3] = 2;
    mp_slots_index(&job.slots, 0);
    assert_works(mp_slots_homes(&job.slots, &job.home, &error));
    mp_placement_add(&job.home, 2, 0);
    job.plan.policy = policy_with(MP_OPTIMIZER_SLICES);
    assert_works(mp_plan_begin(&job.plan, 5, 2, &job.home, &error));
    assert_sentence(
        mp_plan_dispatch_slots(&job.plan, &job.load, &job.slots, MP_SPREAD_TURN, &error), MP_EPLAN,
        "iteration 5, layer 2: the holders of expert 2 are not the "
        "ranks with a slot of it");
    destroy_job(&job);
    mp_arena_release(&memory);
}

TEST_SEED(random_state);
