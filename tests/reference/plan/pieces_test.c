/* Pieces: dispatches made of them are legal, whole, and follow the rules of cutting. */
#include "tests/reference/base/memory.h"
#include "tests/reference/plan/plan_support.h"

#include "reference/plan/pieces.h"

enum { MOST_RANKS = 24, MOST_EXPERTS = 20, ROUNDS = 300 };

struct cut_up {
    struct example of;
    struct mp_pieces pieces;
    int64_t routes[MOST_EXPERTS][MOST_RANKS]; /* of the piece of each rank */
};

/* Cuts an expert at random places, for ranks from a random one on, or from the first. */
static void cut_expert(uint64_t *random, struct cut_up *row, int expert, int64_t total,
                       bool ascending) {
    int ranks = row->of.plan.topology.ranks;
    int start = ascending ? 0 : test_random_int(random, 0, ranks - 1);

    for (int index = 0; index < ranks; index++) {
        int rank = (start + index) % ranks;
        int64_t routes = index == ranks - 1 ? total : test_random_int(random, 0, (int)total);
        if (test_random_int(random, 0, 2) == 0)
            routes = total;
        row->routes[expert][rank] = routes;
        total -= routes;
        assert_works(mp_pieces_add(&row->pieces, expert, rank, routes, &error));
    }
}

static void create_cut_up(uint64_t *random, struct cut_up *row, enum mp_piece_cut cut) {
    struct mp_topology topology = random_topology(random, MOST_RANKS);
    int experts = test_random_int(random, 1, MOST_EXPERTS);
    int64_t total[MOST_EXPERTS];
    int32_t owner[MOST_EXPERTS];

    for (int expert = 0; expert < experts; expert++)
        owner[expert] = test_random_int(random, 0, topology.ranks - 1);
    *row = (struct cut_up){0};
    owned_example(topology, experts, owner, &row->of);
    random_load(random, &row->of.load);
    mp_load_expert_totals(&row->of.load, total);
    mp_pieces_create(&memory, experts, MOST_RANKS * MOST_EXPERTS, &row->pieces);
    mp_pieces_clear(&row->pieces);
    for (int expert = 0; expert < experts; expert++)
        cut_expert(random, row, expert, total[expert], cut == MP_CUT_NEAREST_FIRST);
}

TEST_END(cut_up, struct cut_up, destroy_example(&it->of))

/* Every route goes to a piece, and every piece gets what it says. */
static void check_pieces(const struct cut_up *row) {
    for (int expert = 0; expert < row->of.plan.experts; expert++)
        for (int rank = 0; rank < row->of.plan.topology.ranks; rank++) {
            int64_t routes = 0;
            for (int source = 0; source < row->of.plan.topology.ranks; source++)
                routes += mp_plan_routes_to(&row->of.plan, source, expert, rank);
            assert_int_equal(routes, row->routes[expert][rank]);
        }
}

/* In order: no source before another is served by a later piece. */
static void check_order(const struct cut_up *row, int expert) {
    int32_t at = row->pieces.first[expert];
    int64_t left = at < 0 ? 0 : row->pieces.item[at].routes;

    for (int source = 0; source < row->of.plan.topology.ranks; source++) {
        int64_t routes = mp_load_at(&row->of.load, source, expert);
        while (routes > 0) {
            int64_t taken = routes < left ? routes : left;
            int rank = row->pieces.item[at].rank;
            assert_int_equal(mp_plan_routes_to(&row->of.plan, source, expert, rank), taken);
            routes -= taken;
            left -= taken;
            if (left == 0) {
                at = row->pieces.item[at].next;
                left = at < 0 ? 0 : row->pieces.item[at].routes;
            }
        }
    }
}

/* Local first: a rank's piece and its own routes have as many in common as can be. */
static void check_local(const struct cut_up *row, int expert) {
    for (int rank = 0; rank < row->of.plan.topology.ranks; rank++) {
        int64_t piece = row->routes[expert][rank], own = mp_load_at(&row->of.load, rank, expert);
        assert_int_equal(mp_plan_routes_to(&row->of.plan, rank, expert, rank),
                         own < piece ? own : piece);
    }
}

/* Nearest first: of what is not local, too, pieces of a node and its ranks' routes have as many in
 * common as can be, and equal parts of all pieces go to others, but for what is rounded. */
static void check_nearest(const struct cut_up *row, int expert) {
    const struct mp_topology *topology = &row->of.plan.topology;
    check_local(row, expert);
    for (int node = 0; node < mp_topology_nodes(topology); node++) {
        const int begin = mp_topology_node_begin(topology, node);
        const int end = mp_topology_node_end(topology, node);
        int64_t room = 0, wanted = 0, own = 0, inside = 0, others[MOST_RANKS] = {0};
        for (int to = begin; to < end; to++) {
            room += row->routes[expert][to];
            wanted += mp_load_at(&row->of.load, to, expert);
            own += mp_plan_routes_to(&row->of.plan, to, expert, to);
            for (int rank = begin; rank < end; rank++)
                others[to] += rank == to ? 0 : mp_plan_routes_to(&row->of.plan, rank, expert, to);
            inside += others[to];
        }
        assert_int_equal(own + inside, room < wanted ? room : wanted);
        for (int to = begin; to < end; to++) {
            int64_t left =
                row->routes[expert][to] - mp_plan_routes_to(&row->of.plan, to, expert, to);
            assert_true(llabs(others[to] * (room - own) - inside * left) <=
                        (end - begin) * (room - own));
        }
    }
}

static void (*const check_cut[])(const struct cut_up *, int) = {
    [MP_CUT_IN_ORDER] = check_order,
    [MP_CUT_LOCAL_FIRST] = check_local,
    [MP_CUT_NEAREST_FIRST] = check_nearest,
};

/* Some experts have copies before the gate. */
static void copy_some(uint64_t *random, struct mp_plan *plan) {
    for (int expert = 0; expert < plan->experts; expert++) {
        int rank = test_random_int(random, 0, plan->topology.ranks - 1);
        if (!mp_placement_holds(&plan->during, expert, rank))
            assert_works(mp_plan_add_copy(plan, expert, rank, MP_STAGE_BEFORE_GATE, &error));
    }
}

/* Late copies come out of their own node, if the expert is there; returns how many are of copies.
 */
static int check_sources(const struct mp_plan *plan, const struct mp_placement *before_gate) {
    const struct mp_topology *topology = &plan->topology;
    int of_copies = 0;
    for (int i = 0; i < plan->fetch.count; i++) {
        const struct mp_transfer *fetch = &plan->fetch.item[i];
        int node = mp_topology_node(topology, fetch->to), owner = plan->during.owner[fetch->expert];
        int near =
            mp_placement_next(before_gate, fetch->expert, mp_topology_node_begin(topology, node));
        if (fetch->stage != MP_STAGE_AFTER_GATE)
            continue;
        if (near < 0 || near >= mp_topology_node_end(topology, node) || plan->policy->rematerialise)
            assert_int_equal(fetch->from, owner);
        else
            assert_int_equal(mp_topology_node(topology, fetch->from), node);
        of_copies += fetch->from != owner;
    }
    return of_copies;
}

TEST_RANDOM(routes_fill_pieces) {
    int64_t copies = 0, of_copies = 0;

    for (int round = 0; round < ROUNDS; round++) {
        AUTO(cut_up) struct cut_up row;
        enum mp_piece_cut cut = (enum mp_piece_cut)(round % 3);
        create_cut_up(random, &row, cut);
        copy_some(random, &row.of.plan);
        row.of.policy.rematerialise = test_random_int(random, 0, 3) == 0;
        struct mp_placement before_gate =
            placement_of(row.of.plan.topology.ranks, row.of.plan.experts);
        mp_placement_copy(&before_gate, &row.of.plan.during);
        assert_works(mp_plan_dispatch_pieces(&row.of.plan, &row.of.load, &row.pieces, cut, &error));
        assert_works(mp_plan_check(&row.of.plan, &row.of.load, &row.of.law, NULL, &error));
        check_pieces(&row);
        for (int expert = 0; expert < row.of.plan.experts; expert++)
            check_cut[cut](&row, expert);
        copies += row.of.plan.fetch.count;
        of_copies += check_sources(&row.of.plan, &before_gate);
    }
    assert_true(copies > 0 && of_copies > 0);
}

TEST(pieces_that_do_not_fit_are_refused) {
    struct mp_topology topology = {2, 1};
    struct mp_pieces pieces;
    AUTO(plan) struct mp_plan plan;
    AUTO(load) struct mp_load load;

    mp_pieces_create(&memory, 1, 1, &pieces);
    assert_works(mp_pieces_add(&pieces, 0, 1, 5, &error));
    assert_works(mp_pieces_add(&pieces, 0, 0, 0, &error));
    assert_sentence(mp_pieces_add(&pieces, 0, 0, 1, &error), MP_ELIMIT,
                    "expert 0 has a piece more than there is room for, 1");
    assert_works(mp_load_create(2, 1, &load, &error));
    load.count[1] = 6;
    assert_works(mp_plan_create(&topology, 1, 8, &plan, &error));
    assert_sentence(mp_plan_dispatch_pieces(&plan, &load, &pieces, MP_CUT_IN_ORDER, &error),
                    MP_EPLAN,
                    "iteration 0, layer 0: the pieces of expert 0 are fewer routes than its load");
}
