/* HarMoEny: golden decisions, the released procedure word by word, plans that are legal and late,
 * and what it refuses. */
#include "tests/baselines/rehearsal.h"

#include "baselines/harmoeny/harmoeny.h"

static struct mp_arena memory;

enum { MOST_RANKS = 12, MOST_EXPERTS = 24 };

/* Routes of a source to an expert on a rank: the released schedule. */
typedef int64_t schedule[MOST_RANKS][MOST_EXPERTS][MOST_RANKS];

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

static int largest(const int64_t value[], int count, int sign) {
    int found = 0;
    for (int index = 1; index < count; index++)
        found = sign * value[index] > sign * value[found] ? index : found;
    return found;
}

/* schedule_harmony, on dense arrays. */
static void follow_procedure(int ranks, int experts, int64_t least, const int32_t owner[],
                             const struct mp_load *load, schedule routes) {
    int64_t amount[MOST_RANKS] = {0}, mean = mp_load_total(load) / ranks;
    memset(routes, 0, sizeof(schedule));
    for (int source = 0; source < ranks; source++)
        for (int expert = 0; expert < experts; expert++) {
            routes[source][expert][owner[expert]] = mp_load_at(load, source, expert);
            amount[owner[expert]] += mp_load_at(load, source, expert);
        }
    for (int over; amount[over = largest(amount, ranks, 1)] > mean;) {
        int under = largest(amount, ranks, -1);
        int64_t sent[MOST_EXPERTS] = {0};
        if (under == over || amount[under] + least > mean)
            break;
        for (int source = 0; source < ranks; source++)
            for (int expert = 0; expert < experts; expert++)
                sent[expert] += routes[source][expert][over];
        int expert = largest(sent, experts, 1);
        if (sent[expert] < least)
            break;
        for (int64_t above = amount[over] - mean; above > 0 && amount[under] < mean;) {
            int64_t from[MOST_RANKS];
            for (int source = 0; source < ranks; source++)
                from[source] = routes[source][expert][over];
            int sender = largest(from, ranks, 1);
            int64_t send = from[sender];
            if (send <= 0)
                break;
            send = send < mean - amount[under] ? send : mean - amount[under];
            routes[sender][expert][over] -= send;
            routes[sender][expert][under] += send;
            amount[over] -= send;
            amount[under] += send;
            above -= send;
        }
    }
}

/* Two ranks with two experts each, routes of both sources, and what ends on rank 1 of expert 0. */
TEST(golden_decisions) {
    static const int32_t OWNER[4] = {0, 0, 1, 1};
    static const struct {
        uint32_t count[8];
        int64_t least, moved[2]; /* of source 0, of source 1 */
    } row[] = {
        {{300, 10, 0, 0, 100, 10, 0, 0}, 150, {210, 0}}, /* mean 210: the larger source fills it */
        {{100, 10, 0, 0, 300, 10, 0, 0}, 150, {0, 210}},
        {{200, 0, 0, 0, 200, 0, 0, 0}, 150, {200, 0}},       /* ties to the lower source */
        {{300, 10, 0, 0, 100, 10, 0, 0}, 211, {0, 0}},       /* less room than that */
        {{60, 60, 0, 0, 40, 40, 0, 0}, 100, {60, 40}},       /* just as many as that */
        {{150, 100, 100, 0, 60, 90, 100, 0}, 100, {100, 0}}, /* mean 300, 200 on rank 1 */
        {{0, 0, 0, 0, 0, 0, 0, 0}, 1, {0, 0}},
    };
    for (size_t index = 0; index < sizeof row / sizeof *row; index++) {
        const struct mp_harmoeny_options options = {.least = row[index].least};
        static schedule routes;
        struct mp_harmoeny state;
        struct mp_load load;
        print_message("  %zu\n", index);
        assert_works(mp_harmoeny_create(&memory, 2, 4, &state, &error));
        assert_works(mp_load_create(2, 4, &load, &error));
        memcpy(load.count, row[index].count, sizeof row[index].count);
        mp_harmoeny_decide(&state, &options, OWNER, &load);
        lay_out(&state, OWNER, routes);
        for (int source = 0; source < 2; source++)
            assert_int_equal(routes[source][0][1], row[index].moved[source]);
        mp_load_destroy(&load);
        mp_arena_release(&memory);
    }
}

TEST_RANDOM(decisions_are_those_of_the_procedure) {
    int moves = 0;
    for (int round = 0; round < 500; round++) {
        static schedule routes, expected;
        int ranks = test_random_int(random, 1, MOST_RANKS);
        int experts = test_random_int(random, 1, MOST_EXPERTS);
        const struct mp_harmoeny_options options = {.least = test_random_int(random, 1, 400)};
        int32_t owner[MOST_EXPERTS];
        struct mp_harmoeny state;
        struct mp_load load;
        for (int expert = 0; expert < experts; expert++)
            owner[expert] = round % 2 ? mp_contiguous_owner(expert, experts, ranks)
                                      : test_random_int(random, 0, ranks - 1);
        assert_works(mp_harmoeny_create(&memory, ranks, experts, &state, &error));
        assert_works(mp_load_create(ranks, experts, &load, &error));
        random_load(random, &load);
        for (int twice = 0; twice < 2; twice++) /* nothing is left of the first time */
            mp_harmoeny_decide(&state, &options, owner, &load);
        lay_out(&state, owner, routes);
        follow_procedure(ranks, experts, options.least, owner, &load, expected);
        assert_memory_equal(routes, expected, sizeof routes);
        moves += state.moves;
        mp_load_destroy(&load);
        mp_arena_release(&memory);
    }
    print_message("  %d moves\n", moves);
    assert_true(moves > 500);
}

/* Plans carry out what is decided: copies come late, and routes go where the decision says. */
TEST_RANDOM(plans_follow_decisions) {
    const struct mp_setting setting = small_setting(1, 10, (struct mp_topology){4, 2});
    const struct mp_harmoeny_options options = {.least = 20};
    AUTO(rehearsal) struct rehearsal rehearsal;
    AUTO(load) struct mp_load load;
    int copies = 0;
    assert_works(mp_load_create(4, 10, &load, &error));
    rehearsal_create(&rehearsal, &mp_system_harmoeny, &setting, &options);
    for (int round = 0; round < 20; round++) {
        static schedule expected;
        const struct mp_plan *plan = rehearsal.planner.plan;
        random_load(random, &load);
        rehearsal_plan(&rehearsal, 0, &load);
        follow_procedure(4, 10, 20, plan->during.owner, &load, expected);
        for (int source = 0; source < 4; source++)
            for (int expert = 0; expert < 10; expert++)
                for (int rank = 0; rank < 4; rank++)
                    assert_int_equal(mp_plan_routes_to(plan, source, expert, rank),
                                     expected[source][expert][rank]);
        for (int index = 0; index < plan->fetch.count; index++)
            assert_int_equal(plan->fetch.item[index].stage, MP_STAGE_AFTER_GATE);
        copies += plan->fetch.count;
    }
    assert_true(copies > 0);
}

TEST(what_cannot_be_is_refused) {
    struct mp_harmoeny_options options = {.least = 1};
    struct mp_harmoeny state;
    assert_refuses_none(&mp_system_harmoeny, &options, "least", "0");
    assert_int_equal(mp_harmoeny_create(&memory, 0, 4, &state, NULL), MP_EINVAL);
}
