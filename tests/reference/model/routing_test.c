/* Routing: labelled rows, exchanged between all ranks as their routings say, arrive where the plan
 * sends them and in the order that the experts want. */
#include "reference/model/routing.h"

#include <string.h>

#include "tests/reference/plan/plan_support.h"

enum { MOST_RANKS = 130 }; /* of a random example */
static uint64_t random_state;

/* A row carries which route it is: the i-th of a source's routes to an expert. */
struct label {
    int32_t source, expert, index;
};

struct exchange {
    const struct example *example;
    int ranks, experts;
    int64_t rows_limit; /* the most rows that a rank receives */
    struct mp_routing routing[MOST_RANKS];
    struct label *sent[MOST_RANKS]; /* [ranks][send_total] */
    struct label *received;         /* [rows_limit], of the rank at hand */
};

static int routes_covered(const struct mp_plan *plan, int source, int expert) {
    int parts, covered = 0;
    const struct mp_dispatch_part *part = mp_plan_parts(plan, source, expert, &parts);
    for (int p = 0; p < parts; p++)
        covered += (int)part[p].count * part[p].run;
    return covered;
}

/* Writes a rank's rows into its send buffer as the device would, from the parts. */
static void send_rows(struct exchange *exchange, int source) {
    const struct mp_routing *routing = &exchange->routing[source];
    struct label *row = malloc(((size_t)routing->send_total + 1) * sizeof *row);
    memset(row, 0xff, ((size_t)routing->send_total + 1) * sizeof *row);
    for (int e = 0; e < exchange->experts; e++) {
        int index = 0;
        for (int p = routing->part_begin[e]; p < routing->part_begin[e + 1]; p++)
            for (int i = 0; i < routing->part_count[p]; i++) {
                int at = routing->part_row[p] + i;
                assert_in_range(at, 0, routing->send_total - 1);
                assert_int_equal(row[at].source, -1); /* no row is used twice */
                row[at] = (struct label){source, e, index++};
            }
        assert_int_equal(index, routes_covered(&exchange->example->plan, source, e));
    }
    for (int i = 0; i < routing->send_total; i++)
        assert_int_equal(row[i].source, source);
    exchange->sent[source] = row;
}

/* Send order: by destination, within it by expert, within it by token. */
static void assert_send_order(const struct exchange *exchange, int source) {
    const struct mp_routing *routing = &exchange->routing[source];
    int row = 0;
    for (int r = 0; r < exchange->ranks; r++) {
        int end = row + routing->send_rows[r];
        for (int i = row; i < end; i++) {
            const struct label *here = &exchange->sent[source][i], *before = here - 1;
            assert_true(mp_placement_holds(&exchange->example->plan.during, here->expert, r));
            if (i > row)
                assert_true(before->expert < here->expert ||
                            (before->expert == here->expert && before->index < here->index));
        }
        row = end;
    }
    assert_int_equal(row, routing->send_total);
}

/* What `rank` receives, source after source. */
static void receive_rows(struct exchange *exchange, int rank) {
    const struct mp_routing *routing = &exchange->routing[rank];
    int row = 0;
    for (int s = 0; s < exchange->ranks; s++) {
        const struct mp_routing *sender = &exchange->routing[s];
        int offset = 0;
        for (int r = 0; r < rank; r++)
            offset += sender->send_rows[r];
        assert_int_equal(sender->send_rows[rank], routing->receive_rows[s]);
        memcpy(exchange->received + row, exchange->sent[s] + offset,
               (size_t)sender->send_rows[rank] * sizeof *exchange->received);
        row += sender->send_rows[rank];
    }
    assert_int_equal(row, routing->receive_total);
}

/* Groups are all held experts, ascending; each has its expert's rows, by source. */
static void assert_expert_order(const struct exchange *exchange, int rank) {
    const struct mp_routing *routing = &exchange->routing[rank];
    bool *seen = calloc((size_t)routing->receive_total + 1, sizeof *seen);
    bool identity = true;
    int row = 0, group = 0;
    for (int e = 0; e < exchange->experts; e++) {
        if (!mp_placement_holds(&exchange->example->plan.during, e, rank))
            continue;
        assert_int_equal(routing->group_expert[group], e);
        int end = row + routing->group_rows[group++];
        const struct label *before = NULL;
        for (; row < end; row++) {
            int32_t at = routing->receive_index[row];
            assert_in_range(at, 0, routing->receive_total - 1);
            assert_false(seen[at]);
            seen[at] = true;
            identity &= at == row;
            const struct label *here = &exchange->received[at];
            assert_int_equal(here->expert, e);
            if (before)
                assert_true(before->source < here->source ||
                            (before->source == here->source && before->index < here->index));
            before = here;
        }
    }
    assert_int_equal(group, routing->groups);
    assert_int_equal(row, routing->receive_total);
    assert_int_equal(routing->in_expert_order, identity);
    free(seen);
}

static void exchange_and_check(const struct example *example) {
    const struct mp_plan *plan = &example->plan;
    struct exchange exchange = {
        .example = example, .ranks = plan->topology.ranks, .experts = plan->experts};
    int64_t computed[MOST_RANKS];
    struct mp_error error = {0};
    mp_plan_rank_routes(plan, computed, NULL, NULL);
    for (int r = 0; r < exchange.ranks; r++)
        if (computed[r] > exchange.rows_limit)
            exchange.rows_limit = computed[r];
    assert_in_range(exchange.ranks, 1, MOST_RANKS);
    exchange.received = malloc(((size_t)exchange.rows_limit + 1) * sizeof *exchange.received);
    for (int r = 0; r < exchange.ranks; r++) {
        assert_ok(mp_routing_create(exchange.ranks, exchange.experts, exchange.rows_limit,
                                    &exchange.routing[r], &error),
                  &error);
        assert_ok(mp_routing_build(plan, r, &exchange.routing[r], &error), &error);
        assert_int_equal(exchange.routing[r].receive_total, computed[r]);
        send_rows(&exchange, r);
        assert_send_order(&exchange, r);
    }
    for (int r = 0; r < exchange.ranks; r++) {
        receive_rows(&exchange, r);
        assert_expert_order(&exchange, r);
    }
    for (int r = 0; r < exchange.ranks; r++) {
        mp_routing_destroy(&exchange.routing[r]);
        free(exchange.sent[r]);
    }
    free(exchange.received);
}

static void rows_arrive_under_random_dispatch(void **state) {
    (void)state;
    for (int round = 0; round < 30; round++) {
        struct example example;
        random_example(&random_state, round % 3 == 2, &example);
        exchange_and_check(&example);
        destroy_example(&example);
    }
}

static void rows_arrive_under_nearest_dispatch(void **state) {
    (void)state;
    for (int round = 0; round < 30; round++) {
        struct example example;
        struct mp_error error = {0};
        random_example(&random_state, false, &example);
        assert_ok(mp_plan_dispatch_nearest(&example.plan, &example.load, &error), &error);
        exchange_and_check(&example);
        assert_ok(mp_plan_dispatch_to_owner(&example.plan, &example.load, &error), &error);
        exchange_and_check(&example);
        destroy_example(&example);
    }
}

/* A routing is built again every iteration: nothing of the last plan may stay. */
static void building_again_forgets_the_last_plan(void **state) {
    (void)state;
    const struct mp_topology topology = {4, 2};
    const int32_t owners[2][5] = {{0, 1, 2, 3, 0}, {3, 3, 1, 0, 2}};
    struct mp_error error = {0};
    struct mp_routing used, fresh;
    struct mp_plan plan;
    struct mp_load load;
    assert_ok(mp_plan_create(&topology, 5, 8, &plan, &error), &error);
    assert_ok(mp_load_create(4, 5, &load, &error), &error);
    assert_ok(mp_routing_create(4, 5, 4000, &used, &error), &error);
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 20; i++)
            load.count[i] = (uint32_t)test_random_int(&random_state, 0, 200) *
                            (uint32_t)test_random_int(&random_state, 0, 1);
        begin_owned(&plan, round, 0, owners[round % 2]);
        random_copies(&random_state, &plan);
        assert_ok(mp_plan_dispatch_nearest(&plan, &load, &error), &error);
        assert_ok(mp_routing_create(4, 5, 4000, &fresh, &error), &error);
        assert_ok(mp_routing_build(&plan, round % 4, &used, &error), &error);
        assert_ok(mp_routing_build(&plan, round % 4, &fresh, &error), &error);
        assert_memory_equal(used.send_rows, fresh.send_rows, 4 * sizeof(int));
        assert_memory_equal(used.receive_rows, fresh.receive_rows, 4 * sizeof(int));
        assert_memory_equal(used.part_begin, fresh.part_begin, 6 * sizeof(int));
        size_t parts = (size_t)fresh.part_begin[5];
        assert_memory_equal(used.part_row, fresh.part_row, parts * sizeof(int));
        assert_memory_equal(used.part_count, fresh.part_count, parts * sizeof(int));
        assert_int_equal(used.groups, fresh.groups);
        assert_int_equal(used.in_expert_order, fresh.in_expert_order);
        size_t groups = (size_t)fresh.groups, rows = (size_t)fresh.receive_total;
        assert_memory_equal(used.group_expert, fresh.group_expert, groups * sizeof(int));
        assert_memory_equal(used.group_rows, fresh.group_rows, groups * sizeof(int));
        assert_memory_equal(used.receive_index, fresh.receive_index, rows * sizeof(int32_t));
        mp_routing_destroy(&fresh);
    }
    mp_routing_destroy(&used);
    mp_load_destroy(&load);
    mp_plan_destroy(&plan);
}

static void too_many_rows_are_refused(void **state) {
    (void)state;
    const struct mp_topology topology = {2, 2};
    const int32_t owner[2] = {0, 1};
    struct mp_error error = {0};
    struct mp_routing routing;
    struct mp_plan plan;
    struct mp_load load;
    assert_ok(mp_plan_create(&topology, 2, 8, &plan, &error), &error);
    assert_ok(mp_load_create(2, 2, &load, &error), &error);
    const uint32_t counts[4] = {3, 60, 4, 41};
    memcpy(load.count, counts, sizeof counts);
    begin_owned(&plan, 0, 7, owner);
    assert_ok(mp_plan_dispatch_to_owner(&plan, &load, &error), &error);
    assert_ok(mp_routing_create(2, 2, 100, &routing, &error), &error);
    assert_ok(mp_routing_build(&plan, 0, &routing, &error), &error);
    assert_int_equal(mp_routing_build(&plan, 1, &routing, &error), MP_ELIMIT);
    assert_string_equal(error.text,
                        "layer 7: rank 1 would receive 101 rows, there is room for 100");
    mp_routing_destroy(&routing);
    mp_load_destroy(&load);
    mp_plan_destroy(&plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_arrive_under_random_dispatch),
        cmocka_unit_test(rows_arrive_under_nearest_dispatch),
        cmocka_unit_test(building_again_forgets_the_last_plan),
        cmocka_unit_test(too_many_rows_are_refused),
    };
    random_state = test_seed();
    return cmocka_run_group_tests_name("routing", tests, NULL, NULL);
}
