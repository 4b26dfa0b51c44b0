/* Routing: labelled rows, exchanged between all ranks as their routings say, arrive where the plan
 * sends them, in the step in which they should and in the order that the experts want. */
#include "reference/model/routing.h"

#include "tests/errors.h"
#include "tests/reference/plan/plan_support.h"

TEST_END(routing, struct mp_routing, mp_routing_destroy(it))

enum { MOST_RANKS = 130 }; /* of a random example */
static uint64_t random_state;

/* A row carries which route it is: the i-th of a source's routes to an expert, -1 for a row without
 * a token; and its number among those of one of the expert's holders. */
struct label {
    int32_t source, expert, index, number;
};

struct exchange {
    const struct example *example;
    const struct mp_plan *plan;
    int ranks, experts;
    struct mp_routing routing[MOST_RANKS];
    struct label *sent[MOST_RANKS]; /* [ranks][send_total] */
    struct label *received;         /* [most rows of a rank], of the rank at hand */
    uint8_t *arrived;               /* [arrivals] how often each route has come to its holder */
    int64_t *first_arrival;         /* [ranks * experts + 1] */
};

/* The holder of the index-th route of a pair, in the order in which parts take them. */
static int holder_of(const struct mp_plan *plan, int source, int expert, int index) {
    int parts;
    const struct mp_dispatch_part *part = mp_plan_parts(plan, source, expert, &parts);
    for (int p = 0; p < parts; p++)
        for (int i = 0; i < part[p].run; i++) {
            if (index < (int)part[p].count)
                return plan->holder[part[p].first + i];
            index -= (int)part[p].count;
        }
    return -1;
}

static int routes_covered(const struct mp_plan *plan, int source, int expert) {
    int parts, covered = 0;
    const struct mp_dispatch_part *part = mp_plan_parts(plan, source, expert, &parts);
    for (int p = 0; p < parts; p++)
        covered += (int)part[p].count * part[p].run;
    return covered;
}

/* The rank's own expert is fetched late by somebody, and each of its routes is computed where it
 * comes from. */
static bool stays_everywhere(const struct exchange *exchange, int expert, int rank) {
    const struct mp_plan *plan = exchange->plan;
    bool is_late = false;
    for (int r = 0; r < exchange->ranks; r++) {
        is_late |= fetched_late(plan, expert, r);
        for (int i = 0; i < routes_covered(plan, r, expert); i++)
            if (holder_of(plan, r, expert, i) != r)
                return false;
    }
    return is_late && plan->during.owner[expert] == rank;
}

/* Of the tokens with this route. */
static int chunk_of_token(const struct mp_plan *plan, const struct label *row) {
    int chunk = 0, left = row->index;
    for (;; chunk++) {
        long of = ((long)row->source * plan->degree + chunk) * plan->experts + row->expert;
        left -= (int)plan->chunk_routes[of];
        if (left < 0)
            return chunk;
    }
}

/* The segment in which `rank` computes what a source sends it, and with a plan's degree the one of
 * this row of the pair's, which has so many. */
static int segment_of(const struct exchange *exchange, int rank, const struct label *row,
                      int rows) {
    const struct mp_plan *plan = exchange->plan;
    int source = row->source, expert = row->expert, number = row->number;
    if (plan->chunk_routes)
        return chunk_of_token(plan, row);
    if (plan->place_chunk)
        return plan->place_chunk[mp_plan_holder_index(plan, expert, rank)];
    if (plan->exchange == MP_EXCHANGE_FLAT) {
        int chunk = 0;
        while (number >= rows * (chunk + 1) / plan->degree)
            chunk++;
        return chunk;
    }
    int groups = exchange->ranks / plan->group_size;
    if (source == rank &&
        (fetched_late(plan, expert, rank) || stays_everywhere(exchange, expert, rank)))
        return groups;
    for (int step = 0;; step++)
        if ((source / plan->group_size + step) % groups == rank / plan->group_size)
            return step;
}

/* Writes a rank's rows into its send buffer as the device would, from the parts. */
static void send_rows(struct exchange *exchange, int source) {
    const struct mp_routing *routing = &exchange->routing[source];
    struct label *row = malloc(((size_t)routing->send_total + 1) * sizeof *row);
    memset(row, 0xff, ((size_t)routing->send_total + 1) * sizeof *row);
    for (int e = 0; e < exchange->experts; e++) {
        int index = 0, number = 0, covered = routes_covered(exchange->plan, source, e);
        for (int p = routing->part_begin[e]; p < routing->part_begin[e + 1]; p++) {
            int rows = routing->part_count[p],
                chunk = (p - routing->part_begin[e]) % routing->degree;
            number = chunk > 0 ? number : 0;
            if (routing->padding > 0) /* one holder */
                rows = (int)(routing->padding * (chunk + 1) / routing->degree -
                             routing->padding * chunk / routing->degree);
            for (int i = 0; i < rows; i++) {
                int at = routing->part_row[p] + i;
                assert_in_range(at, 0, routing->send_total - 1);
                assert_int_equal(row[at].source, -1); /* no row is used twice */
                row[at] =
                    (struct label){source, e, i < routing->part_count[p] ? index++ : -1, number++};
            }
        }
        assert_int_equal(index, covered);
        assert_int_equal(routing->dropped[e],
                         (int)mp_load_at(&exchange->example->load, source, e) - covered);
    }
    for (int i = 0; i < routing->send_total; i++)
        assert_int_equal(row[i].source, source);
    exchange->sent[source] = row;
}

/* Rows of one pair: as routes are handed out, then those without a token. */
static bool comes_after(const struct label *before, const struct label *here) {
    return here->index < 0 || (before->index >= 0 && before->index < here->index);
}

/* Rows begin .. end - 1, all for `rank`: by expert, within it in the order in which routes are
 * handed out, then rows without a token. */
static void assert_sent_to(const struct exchange *exchange, int source, int rank, int begin,
                           int end) {
    for (int i = begin; i < end; i++) {
        const struct label *here = &exchange->sent[source][i], *before = here - 1;
        if (here->index >= 0)
            assert_int_equal(holder_of(exchange->plan, source, here->expert, here->index), rank);
        if (i > begin)
            assert_true(before->expert < here->expert ||
                        (before->expert == here->expert && comes_after(before, here)));
    }
}

/* Send order: by chunk, by destination; every destination belongs to one of a chunk's steps; the
 * last segment's behind. */
static void assert_send_order(const struct exchange *exchange, int source) {
    const struct mp_routing *routing = &exchange->routing[source];
    int row = 0;
    for (int i = 0; i < exchange->plan->degree * exchange->ranks; i++) {
        int rows = 0, r = i % exchange->ranks, chunk = i / exchange->ranks;
        for (int step = chunk; step < routing->steps; step += exchange->plan->degree) {
            const struct mp_routing_step *at = &routing->step[step];
            if (at->send_rows[r] == 0)
                continue;
            int before = at->send_first; /* where a transport looks for them */
            for (int to = 0; to < r; to++)
                before += at->send_rows[to];
            assert_int_equal(before, row);
            assert_int_equal(rows, 0);
            rows = at->send_rows[r];
        }
        assert_sent_to(exchange, source, r, row, row + rows);
        row += rows;
    }
    assert_int_equal(row, routing->send_total - routing->local_rows);
    assert_sent_to(exchange, source, source, row, routing->send_total);
    for (int step = 0; step < routing->steps; step++) {
        int total = 0;
        for (int r = 0; r < exchange->ranks; r++)
            total += routing->step[step].send_rows[r];
        assert_int_equal(total, routing->step[step].send_total);
    }
}

/* What `rank` receives, step after step, and within a step source after source. */
static void receive_rows(struct exchange *exchange, int rank) {
    const struct mp_routing *routing = &exchange->routing[rank];
    int row = 0;
    for (int step = 0; step < routing->steps; step++) {
        assert_int_equal(row, routing->segment[step].first);
        for (int s = 0; s < exchange->ranks; s++) {
            const struct mp_routing_step *sender = &exchange->routing[s].step[step];
            assert_int_equal(sender->send_rows[rank], routing->step[step].receive_rows[s]);
            int offset = sender->send_first;
            for (int r = 0; r < rank; r++)
                offset += sender->send_rows[r];
            if (sender->send_rows[rank] > 0)
                memcpy(exchange->received + row, exchange->sent[s] + offset,
                       (size_t)sender->send_rows[rank] * sizeof *exchange->received);
            row += sender->send_rows[rank];
        }
        assert_int_equal(row - routing->segment[step].first, routing->segment[step].rows);
    }
    if (routing->segments > routing->steps)
        memcpy(exchange->received + row,
               exchange->sent[rank] + routing->send_total - routing->local_rows,
               (size_t)routing->local_rows * sizeof *exchange->received);
    assert_int_equal(row + routing->local_rows, routing->receive_total);
}

/* Row `here` of a segment of `rank`, after `before` of the same group. */
static void assert_row(struct exchange *exchange, int rank, int segment, const struct label *before,
                       const struct label *here) {
    int rows = (int)mp_plan_routes_to(exchange->plan, here->source, here->expert, rank);
    if (exchange->plan->padding > 0)
        rows = (int)exchange->plan->padding;
    assert_int_equal(segment_of(exchange, rank, here, rows), segment);
    if (before)
        assert_true(
            before->source < here->source ||
            (before->source == here->source && (before->index < here->index || here->index < 0)));
    if (here->index >= 0)
        exchange->arrived[exchange->first_arrival[here->source * exchange->experts + here->expert] +
                          here->index]++;
}

/* Groups are all held experts, ascending; in each segment they have their rows, by source. */
static void assert_expert_order(struct exchange *exchange, int rank) {
    const struct mp_routing *routing = &exchange->routing[rank];
    AUTO(allocated) bool *seen = calloc((size_t)routing->receive_total + 1, sizeof *seen);
    AUTO(allocated) int32_t *index = malloc(((size_t)routing->receive_total + 1) * sizeof *index);
    int row = 0, held = 0;
    mp_routing_index(&exchange->routing[rank], index);
    for (int e = 0; e < exchange->experts; e++)
        if (mp_placement_holds(&exchange->plan->during, e, rank))
            assert_int_equal(routing->group_expert[held++], e);
    assert_int_equal(held, routing->groups);
    for (int segment = 0; segment < routing->segments; segment++) {
        const struct mp_routing_segment *at = &routing->segment[segment];
        bool identity = true, last = segment == routing->steps;
        assert_int_equal(at->first, row);
        assert_int_equal(at->shares, last || exchange->ranks != 2
                                         ? 1
                                         : 2 * exchange->plan->degree / routing->steps);
        for (int group = 0; group < routing->groups; group++) {
            int expert = routing->group_expert[group];
            const struct label *before = NULL;
            const int *share = at->group_rows + (size_t)group * (size_t)at->shares;
            int end = row;
            for (int i = 0; i < at->shares; i++)
                end += share[i];
            int second =
                row + (at->shares == 2 ? share[0] : end); /* where the other source begins */
            for (; row < end; row++) {
                int32_t from = segment < routing->steps ? index[row] : row;
                assert_in_range(from, at->first, at->first + at->rows - 1);
                assert_false(seen[from]);
                seen[from] = true;
                identity &= from == row;
                const struct label *here = &exchange->received[from];
                assert_int_equal(here->expert, expert);
                if (at->shares == 2)
                    assert_int_equal(here->source, row >= second);
                assert_row(exchange, rank, segment, before, here);
                before = here;
            }
        }
        assert_int_equal(row, at->first + at->rows);
        assert_int_equal(at->in_expert_order, identity);
    }
    assert_int_equal(row, routing->receive_total);
}

/* Rows that a rank works on, counted route by route. */
static int64_t rows_of(const struct mp_plan *plan, int rank) {
    int64_t rows = 0;
    if (plan->padding == 0) {
        int64_t computed[MOST_RANKS];
        rank_routes(plan, computed, NULL, NULL);
        return computed[rank];
    }
    for (int64_t pair = 0; pair < (int64_t)plan->topology.ranks * plan->experts; pair++)
        rows += plan->holder[plan->part[plan->part_begin[pair]].first] == rank ? plan->padding : 0;
    return rows;
}

static void create_exchange(const struct example *example, struct exchange *exchange) {
    const struct mp_plan *plan = &example->plan;
    *exchange = (struct exchange){
        .example = example, .plan = plan, .ranks = plan->topology.ranks, .experts = plan->experts};
    size_t pairs = (size_t)exchange->ranks * (size_t)exchange->experts;
    int64_t routes = 0, most = 0;
    assert_in_range(exchange->ranks, 1, MOST_RANKS);
    exchange->first_arrival = malloc((pairs + 1) * sizeof *exchange->first_arrival);
    for (size_t pair = 0; pair < pairs; pair++) {
        exchange->first_arrival[pair] = routes;
        routes +=
            routes_covered(plan, (int)pair / exchange->experts, (int)pair % exchange->experts);
    }
    exchange->first_arrival[pairs] = routes;
    exchange->arrived = calloc((size_t)routes + 1, sizeof *exchange->arrived);
    for (int r = 0; r < exchange->ranks; r++)
        most = rows_of(plan, r) > most ? rows_of(plan, r) : most;
    exchange->received = malloc(((size_t)most + 1) * sizeof *exchange->received);
}

static void destroy_exchange(struct exchange *exchange) {
    for (int r = 0; r < exchange->ranks; r++) {
        mp_routing_destroy(&exchange->routing[r]);
        free(exchange->sent[r]);
    }
    free(exchange->received);
    free(exchange->arrived);
    free(exchange->first_arrival);
}

static void exchange_and_check(const struct example *example) {
    const struct mp_plan *plan = &example->plan;
    struct exchange exchange;
    create_exchange(example, &exchange);
    for (int r = 0; r < exchange.ranks; r++) {
        int64_t sent = 0, rows = rows_of(plan, r);
        for (int e = 0; e < exchange.experts; e++)
            sent += plan->padding > 0 ? plan->padding : routes_covered(plan, r, e);
        assert_works(mp_routing_create(exchange.ranks, exchange.experts, sent, rows,
                                       &exchange.routing[r], &error));
        assert_works(mp_routing_build(plan, &example->load, r, &exchange.routing[r], &error));
        assert_int_equal(exchange.routing[r].send_total, sent);
        assert_int_equal(exchange.routing[r].receive_total, rows);
        send_rows(&exchange, r);
        assert_send_order(&exchange, r);
    }
    for (int r = 0; r < exchange.ranks; r++) {
        receive_rows(&exchange, r);
        assert_expert_order(&exchange, r);
    }
    int64_t routes = exchange.first_arrival[(long)exchange.ranks * exchange.experts];
    for (int64_t i = 0; i < routes; i++)
        assert_int_equal(exchange.arrived[i], 1);
    destroy_exchange(&exchange);
}

TEST(rows_arrive_under_any_plan) {
    for (int round = 0; round < TEST_ROUNDS(40); round++) {
        AUTO(example) struct example example;
        random_kind_of_example(&random_state, round % 3 == 2, &example);
        exchange_and_check(&example);
    }
}

/* Chunks of tokens: any number of each expert's routes, none perhaps, in each. */
TEST(rows_arrive_in_chunks_of_tokens) {
    for (int round = 0; round < TEST_ROUNDS(40); round++) {
        AUTO(example) struct example example;
        random_kind_of_example(&random_state, false, &example);
        struct mp_plan *plan = &example.plan;
        size_t experts = (size_t)plan->experts, ranks = (size_t)plan->topology.ranks;
        plan->exchange = MP_EXCHANGE_FLAT;
        plan->padding = 0;
        plan->degree = test_random_int(&random_state, 2, MP_MOST_DEGREE);
        size_t degree = (size_t)plan->degree;
        AUTO(allocated) uint32_t *routes = calloc(ranks * degree * experts, sizeof *routes);
        for (size_t s = 0; s < ranks; s++)
            for (size_t e = 0; e < experts; e++)
                for (uint32_t i = mp_load_at(&example.load, (int)s, (int)e); i > 0; i--)
                    routes[(s * degree +
                            (size_t)test_random_int(&random_state, 0, plan->degree - 1)) *
                               experts +
                           e]++;
        plan->chunk_routes = routes;
        exchange_and_check(&example);
    }
}

/* Chunks of experts, any to each holder. */
TEST(rows_arrive_in_chunks_of_experts) {
    for (int round = 0; round < TEST_ROUNDS(40); round++) {
        AUTO(example) struct example example;
        random_kind_of_example(&random_state, false, &example);
        struct mp_plan *plan = &example.plan;
        int places = plan->holder_begin[plan->experts];
        AUTO(allocated) uint8_t *chunk = malloc((size_t)places);
        plan->exchange = MP_EXCHANGE_FLAT;
        if (plan->padding > 0) {
            plan->padding = 0;
            random_dispatch(&random_state, &example);
        }
        plan->degree = test_random_int(&random_state, 2, MP_MOST_DEGREE);
        for (int at = 0; at < places; at++)
            chunk[at] = (uint8_t)test_random_int(&random_state, 0, plan->degree - 1);
        plan->place_chunk = chunk;
        exchange_and_check(&example);
    }
}

TEST(rows_arrive_under_nearest_dispatch) {
    for (int round = 0; round < TEST_ROUNDS(30); round++) {
        AUTO(example) struct example example;
        random_example(&random_state, false, &example);
        assert_works(mp_plan_dispatch_nearest(&example.plan, &example.load, &error));
        exchange_and_check(&example);
        assert_works(mp_plan_dispatch_to_owner(&example.plan, &example.load, &error));
        exchange_and_check(&example);
    }
}

/* Own routes of copies fetched after the gate are a last segment under every size of groups, and
 * everybody else's routes to the same copy say that it is needed. */
TEST(late_copies_are_computed_last) {
    static const int sizes[] = {1, 2, 4, 8};
    static const int32_t owner[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    AUTO(example) struct example example;
    owned_example((struct mp_topology){8, 4}, 8, owner, &example);
    for (int i = 0; i < 64; i++)
        example.load.count[i] = (uint32_t)test_random_int(&random_state, 1, 30);
    for (int i = 0; i < 4; i++) {
        begin_owned(&example.plan, 3, 0, owner);
        example.plan.exchange = MP_EXCHANGE_PIPELINED;
        example.plan.group_size = sizes[i];
        for (int r = 0; r < 8; r++) { /* expert 5 everywhere, expert 2 on rank 7 only */
            if (r != 5)
                assert_works(mp_plan_add_copy(&example.plan, 5, r, MP_STAGE_AFTER_GATE, &error));
        }
        assert_works(mp_plan_add_copy(&example.plan, 2, 7, MP_STAGE_AFTER_GATE, &error));
        assert_works(mp_plan_dispatch_nearest(&example.plan, &example.load, &error));
        exchange_and_check(&example);
        AUTO(routing) struct mp_routing routing;
        assert_works(mp_routing_create(8, 8, 2000, 2000, &routing, &error));
        assert_works(mp_routing_build(&example.plan, NULL, 7, &routing, &error));
        assert_numbers(routing.steps, 8 / sizes[i], routing.segments, routing.steps + 1);
        assert_int_equal(routing.local_rows,
                         mp_load_at(&example.load, 7, 5) + mp_load_at(&example.load, 7, 2));
    }
}

static void assert_same_routing(struct mp_routing *used, struct mp_routing *fresh) {
    static int32_t index[2][4000];
    size_t ranks = (size_t)fresh->ranks, experts = (size_t)fresh->experts;
    size_t parts = (size_t)fresh->part_begin[experts], groups = (size_t)fresh->groups;
    assert_numbers(used->steps, fresh->steps, used->segments, fresh->segments);
    assert_numbers(used->groups, fresh->groups, used->send_total, fresh->send_total);
    assert_numbers(used->local_rows, fresh->local_rows, used->receive_total, fresh->receive_total);
    assert_memory_equal(used->dropped, fresh->dropped, experts * sizeof *fresh->dropped);
    assert_memory_equal(used->part_begin, fresh->part_begin, (experts + 1) * sizeof(int));
    assert_memory_equal(used->part_row, fresh->part_row, parts * sizeof(int));
    assert_memory_equal(used->part_count, fresh->part_count, parts * sizeof(int));
    assert_memory_equal(used->group_expert, fresh->group_expert, groups * sizeof(int));
    for (int s = 0; s < fresh->steps; s++) {
        const struct mp_routing_step *a = &used->step[s], *b = &fresh->step[s];
        assert_memory_equal(a->send_rows, b->send_rows, ranks * sizeof(int));
        assert_memory_equal(a->receive_rows, b->receive_rows, ranks * sizeof(int));
        assert_numbers(a->send_first, b->send_first, a->send_total, b->send_total);
    }
    for (int s = 0; s < fresh->segments; s++) {
        const struct mp_routing_segment *a = &used->segment[s], *b = &fresh->segment[s];
        assert_int_equal(a->shares, b->shares);
        assert_memory_equal(a->group_rows, b->group_rows, groups * (size_t)a->shares * sizeof(int));
        assert_numbers(a->first, b->first, a->rows, b->rows);
        assert_int_equal(a->in_expert_order, b->in_expert_order);
    }
    mp_routing_index(used, index[0]);
    mp_routing_index(fresh, index[1]);
    assert_memory_equal(index[0], index[1],
                        (size_t)(fresh->receive_total - fresh->local_rows) * sizeof(int32_t));
}

/* A routing is built again every iteration: nothing of the last plan may stay. */
TEST(building_again_forgets_the_last_plan) {
    static const int32_t owners[2][5] = {{0, 1, 2, 3, 0}, {3, 3, 1, 0, 2}};
    struct mp_routing used, fresh;
    AUTO(example) struct example example;
    owned_example((struct mp_topology){4, 2}, 5, owners[0], &example);
    struct mp_plan *plan = &example.plan;
    const struct mp_load *load = &example.load;
    assert_works(mp_routing_create(4, 5, 4000, 4000, &used, &error));
    for (int round = 0; round < TEST_ROUNDS(40); round++) {
        for (int i = 0; i < 20; i++)
            load->count[i] = (uint32_t)test_random_int(&random_state, 0, 200) *
                             (uint32_t)test_random_int(&random_state, 0, 1);
        begin_owned(plan, round, 0, owners[round % 2]);
        random_copies(&random_state, plan);
        assert_works(mp_plan_dispatch_nearest(plan, load, &error));
        if (round % 3 == 1)
            plan->exchange = MP_EXCHANGE_PIPELINED;
        plan->group_size = 1 + round % 2;
        assert_works(mp_routing_create(4, 5, 4000, 4000, &fresh, &error));
        assert_works(mp_routing_build(plan, load, round % 4, &used, &error));
        assert_works(mp_routing_build(plan, load, round % 4, &fresh, &error));
        assert_same_routing(&used, &fresh);
        mp_routing_destroy(&fresh);
    }
    mp_routing_destroy(&used);
}

TEST(too_many_rows_are_refused) {
    static const int32_t owner[2] = {0, 1};
    static const uint32_t counts[4] = {3, 60, 4, 41};
    struct mp_routing routing;
    AUTO(example) struct example example;
    owned_example((struct mp_topology){2, 2}, 2, owner, &example);
    struct mp_plan *plan = &example.plan;
    memcpy(example.load.count, counts, sizeof counts);
    begin_owned(plan, 0, 7, owner);
    assert_works(mp_plan_dispatch_to_owner(plan, &example.load, &error));
    assert_works(mp_routing_create(2, 2, 63, 100, &routing, &error));
    assert_works(mp_routing_build(plan, NULL, 0, &routing, &error));
    assert_sentence(mp_routing_build(plan, NULL, 1, &routing, &error), MP_ELIMIT,
                    "layer 7: rank 1 would receive 101 rows, at most 100 are possible");
    mp_routing_destroy(&routing);
    assert_works(mp_routing_create(2, 2, 62, 101, &routing, &error));
    assert_works(mp_routing_build(plan, NULL, 1, &routing, &error));
    assert_sentence(mp_routing_build(plan, NULL, 0, &routing, &error), MP_ELIMIT,
                    "layer 7: rank 0 would send 63 rows, at most 62 are possible");
    plan->padding = INT64_C(1) << 31; /* an int that counts them would be 0 */
    assert_sentence(mp_routing_build(plan, NULL, 1, &routing, &error), MP_ELIMIT,
                    "layer 7: rank 1 would send 2147483648 rows to each of 2 "
                    "experts, at most 62 are possible");
    mp_routing_destroy(&routing);
}

TEST(impossible_exchanges_are_refused) {
    static const int32_t owner[2] = {0, 1};
    static const uint32_t counts[8] = {3, 6, 4, 4, 1, 2, 3, 4};
    AUTO(routing) struct mp_routing routing;
    AUTO(example) struct example example;
    owned_example((struct mp_topology){4, 2}, 2, owner, &example);
    struct mp_plan *plan = &example.plan;
    assert_works(mp_routing_create(4, 2, 100, 100, &routing, &error));
    memcpy(example.load.count, counts, sizeof counts);
    begin_owned(plan, 0, 5, owner);
    assert_works(mp_plan_dispatch_to_owner(plan, &example.load, &error));
    plan->exchange = MP_EXCHANGE_PIPELINED;
    for (int size = 0; size < 4; size += 3) {
        plan->group_size = size;
        assert_fails(mp_routing_build(plan, NULL, 0, &routing, &error), MP_EPLAN, "");
    }
    plan->exchange = MP_EXCHANGE_FLAT;
    plan->padding = 5;
    example.policy.route_order = MP_ROUTES_BY_CHOICE;
    assert_works(mp_routing_build(plan, NULL, 1, &routing, &error));
    assert_int_equal(routing.order, MP_ROUTES_BY_CHOICE);
    assert_sentence(mp_routing_build(plan, NULL, 0, &routing, &error), MP_EPLAN,
                    "layer 5: rank 0 has 6 routes for an expert that takes 5 rows");
    example.policy.overlaid = true;
    for (int known = 0; known < 2; known++) {
        assert_sentence(mp_routing_build(plan, known ? &example.load : NULL, 1, &routing, &error),
                        MP_EPLAN,
                        "layer 5: rank 1 can't tell first choices from second "
                        "ones, whose rows they may share");
    }
}

/* What a measurement multiplies: rows of one expert that come from nowhere. */
TEST(a_single_expert_needs_no_plan) {
    AUTO(routing) struct mp_routing routing;
    assert_works(mp_routing_create(2, 4, 20, 30, &routing, &error));
    mp_routing_single(&routing, 7);
    assert_numbers(routing.send_total, 0, routing.receive_total, 7, routing.local_rows, 0);
    assert_numbers(routing.steps, 0, routing.padding, 0, routing.groups, 1);
    assert_numbers(routing.group_expert[0], 0, routing.segments, 1, routing.segment[0].rows, 7);
    assert_numbers(routing.segment[0].shares, 1, routing.segment[0].group_rows[0], 7);
    assert_true(routing.segment[0].in_expert_order);
}

TEST_SEED(random_state);
