/* Hops: every copy is reached once, over as few borders as can be, and ports share the load. */
#include "reference/schedule/hops.h"
#include "tests/support.h"

enum { RANKS = 64 };

/* What a case's hops mean, checked as they come. */
struct walk {
    struct mp_topology topology;
    int owner, count;
    struct mp_receiver receiver[RANKS];
    struct mp_hop hop[RANKS];
    int depth[RANKS];               /* -1: not reached */
    int entry[RANKS];               /* where a node is entered from another, or -1 */
    int sent[RANKS], inside[RANKS]; /* hops that leave a rank, and those within its node */
    int crossed[RANKS];             /* hops into a node from another */
};

static void take(struct walk *walk, const struct mp_hop *hop) {
    int from = mp_topology_node(&walk->topology, hop->from);
    int to = mp_topology_node(&walk->topology, hop->to);
    assert_in_range(hop->from, 0, walk->topology.ranks - 1);
    assert_in_range(hop->to, 0, walk->topology.ranks - 1);
    assert_true(walk->depth[hop->from] >= 0); /* it has what it sends */
    assert_int_equal(walk->depth[hop->to], -1);
    assert_int_equal(hop->depth, walk->depth[hop->from] + 1);
    walk->depth[hop->to] = hop->depth;
    walk->sent[hop->from]++;
    walk->inside[hop->from] += from == to;
    walk->crossed[to] += from != to;
    walk->entry[to] = from != to ? hop->to : walk->entry[to];
    /* Inside first, then to the next node. */
    assert_true(from != to || walk->inside[hop->from] == walk->sent[hop->from]);
}

static void walk_hops(struct walk *walk, int expert) {
    int ranks = walk->topology.ranks;
    memset(walk->sent, 0, sizeof walk->sent);
    memset(walk->inside, 0, sizeof walk->inside);
    memset(walk->crossed, 0, sizeof walk->crossed);
    memset(walk->depth, -1, sizeof walk->depth);
    memset(walk->entry, -1, sizeof walk->entry);
    walk->depth[walk->owner] = 0;
    mp_hops(&walk->topology, expert, walk->owner, walk->receiver, walk->count, walk->hop);
    for (int i = 0; i < walk->count; i++)
        take(walk, &walk->hop[i]);
    for (int i = 0; i < walk->count; i++)
        assert_true(walk->depth[walk->receiver[i].rank] > 0);
    for (int r = 0; r < ranks; r++)
        assert_true(walk->sent[r] <= MP_HOP_FAN && walk->inside[r] <= 1);
}

static void all_but_the_owner(struct walk *walk) {
    walk->count = 0;
    for (int r = 0; r < walk->topology.ranks; r++)
        if (r != walk->owner)
            walk->receiver[walk->count++].rank = r;
}

/* Where an expert comes into a node: the lowest receiver that says so, or number e mod n. */
static int entry_of(const struct walk *walk, int expert, int node) {
    int of_node[RANKS], count = 0;
    for (int i = 0; i < walk->count; i++) {
        if (mp_topology_node(&walk->topology, walk->receiver[i].rank) != node)
            continue;
        if (walk->receiver[i].enters)
            return walk->receiver[i].rank;
        of_node[count++] = walk->receiver[i].rank;
    }
    return of_node[expert % count];
}

TEST_RANDOM(a_border_is_crossed_once_per_node) {
    for (int i = 0; i < 2000; i++) {
        struct walk walk = {.topology = {.ranks = test_random_int(random, 1, RANKS)}};
        int ranks = walk.topology.ranks, chance = test_random_int(random, 0, 8);
        bool wants[RANKS] = {false};
        walk.topology.ranks_per_node = test_random_int(random, 1, ranks + 2);
        walk.owner = test_random_int(random, 0, ranks - 1);
        int home = mp_topology_node(&walk.topology, walk.owner);
        for (int r = 0; r < ranks; r++) {
            if (r == walk.owner || test_random_int(random, 0, 7) >= chance)
                continue;
            walk.receiver[walk.count++] =
                (struct mp_receiver){r, test_random_int(random, 0, 2) == 0};
            wants[mp_topology_node(&walk.topology, r)] = true;
        }
        int expert = test_random_int(random, 0, 1000);
        walk_hops(&walk, expert);
        for (int node = 0; node < mp_topology_nodes(&walk.topology); node++) {
            assert_int_equal(walk.crossed[node], wants[node] && node != home);
            if (wants[node] && node != home)
                assert_int_equal(walk.entry[node], entry_of(&walk, expert, node));
        }
    }
}

struct example {
    const char *name;
    struct mp_topology topology;
    int expert, owner, count;
    int32_t receiver[8];
    struct mp_hop hop[8];
};

static const struct example examples[] = {
    {"nobody", {8, 4}, 3, 1, 0, {0}, {{0}}},
    {"three nodes of three", /* as in hops.h */
     {9, 3},
     0,
     1,
     8,
     {0, 2, 3, 4, 5, 6, 7, 8},
     {{1, 0, 1}, {0, 2, 2}, {1, 3, 1}, {3, 4, 2}, {4, 5, 3}, {3, 6, 2}, {6, 7, 3}, {7, 8, 4}}},
    {"the third comes first, and nodes are cyclic",
     {9, 3},
     5,
     6,
     7,
     {0, 1, 2, 3, 4, 5, 8},
     {{6, 8, 1}, {6, 2, 1}, {2, 0, 2}, {0, 1, 3}, {2, 5, 2}, {5, 3, 3}, {3, 4, 4}}},
    {"nobody else in the owner's node, and none in the next",
     {8, 2},
     1,
     2,
     3,
     {0, 6, 7},
     {{2, 7, 1}, {7, 6, 2}, {7, 0, 2}}},
    {"one node", {5, 5}, 2, 4, 4, {0, 1, 2, 3}, {{4, 2, 1}, {2, 3, 2}, {3, 0, 3}, {0, 1, 4}}},
    {"a rank per node", {4, 1}, 9, 2, 3, {0, 1, 3}, {{2, 3, 1}, {3, 0, 2}, {0, 1, 3}}},
    {"a last node of one", {4, 3}, 0, 3, 2, {1, 2}, {{3, 1, 1}, {1, 2, 2}}},
};

TEST_EACH(hops_are, examples, example) {
    struct walk walk = {
        .topology = example->topology, .owner = example->owner, .count = example->count};
    for (int i = 0; i < walk.count; i++)
        walk.receiver[i].rank = example->receiver[i];
    walk_hops(&walk, example->expert);
    for (int i = 0; i < walk.count; i++) {
        assert_numbers(walk.hop[i].from, example->hop[i].from, walk.hop[i].to, example->hop[i].to);
        assert_int_equal(walk.hop[i].depth, example->hop[i].depth);
    }
}

/* 4 nodes of 8 ranks, one owner of each of 32 experts, which all ranks need. */
TEST(nodes_share_the_load) {
    int crossings[4] = {0}, entered[32] = {0}, sent[32] = {0};
    struct walk walk = {.topology = {32, 8}};
    for (int expert = 0; expert < 32; expert++) {
        int all = 0;
        walk.owner = expert;
        all_but_the_owner(&walk);
        walk_hops(&walk, expert);
        for (int i = 0; i < walk.count; i++) {
            const struct mp_hop *hop = &walk.hop[i];
            bool crosses = hop->from / 8 != hop->to / 8;
            all += crosses;
            crossings[hop->from / 8] += crosses;
            entered[hop->to] += crosses;
            sent[hop->from]++;
        }
        assert_int_equal(all, 3); /* messages along a binary tree of ranks crossed 24 times */
    }
    for (int node = 0; node < 4; node++)
        assert_int_equal(crossings[node], 24); /* 0.75 of an expert each */
    for (int r = 0; r < 32; r++) {
        assert_int_equal(entered[r], 3); /* 32 * 3 over 32 ranks */
        assert_in_range(sent[r], 26, 36);
    }
}

/* Experts of one owner go out to different ranks first. */
TEST(an_owner_sends_to_all_in_turn) {
    struct walk walk = {.topology = {8, 8}};
    int first[8] = {0};
    all_but_the_owner(&walk);
    for (int expert = 0; expert < 14; expert++) {
        walk_hops(&walk, expert);
        first[walk.hop[0].to]++;
    }
    for (int r = 1; r < 8; r++)
        assert_int_equal(first[r], 2);
}

TEST(a_ring_goes_round) {
    for (int ranks = 1; ranks <= 6; ranks++)
        for (int owner = 0; owner < ranks; owner++) {
            struct mp_hop hop[RANKS];
            mp_hops_ring(ranks, owner, hop);
            for (int i = 0; i < ranks - 1; i++) {
                assert_int_equal(hop[i].from, (owner + i) % ranks);
                assert_numbers(hop[i].to, (owner + i + 1) % ranks, hop[i].depth, i + 1);
            }
        }
}
