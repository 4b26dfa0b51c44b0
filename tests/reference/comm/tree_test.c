/* Trees: who sends to whom, and lists that are refused. */
#include "reference/comm/tree.h"
#include "tests/errors.h"

enum { EXPERTS = 4, RANKS = 8, LIMIT = 8 };

struct tree_case {
    const char *name;
    struct mp_transfer item[LIMIT + 1];
    int count;
    /* On success, of expert 2: [rank] = {parent, child 0, child 1, depth}; of no rank outside. */
    int place[RANKS][4];
    int trees, height;
    int ranks_per_node;  /* 0: all are on one */
    const char *message; /* on failure: what the sentence contains */
    const char *sums;    /* the same of sums alone */
};

#define COPY(e, owner, copy)                                                                       \
    { .expert = e, .from = owner, .to = copy }

static const struct tree_case cases[] = {
    {.name = "no transfers"},
    {"one copy",
     {COPY(2, 5, 1)},
     1,
     {[1] = {5, -1, -1, 1}, [5] = {-1, 1, -1, 0}},
     .trees = 1,
     .height = 1},
    {"other experts make other trees",
     {COPY(2, 5, 1), COPY(0, 1, 2), COPY(3, 1, 5), COPY(0, 1, 0)},
     4,
     {[1] = {5, -1, -1, 1}, [5] = {-1, 1, -1, 0}},
     .trees = 3,
     .height = 1},
    {"on one node", /* 3, 4, 6, 7, 0, 1 */
     {COPY(2, 3, 7), COPY(2, 3, 0), COPY(2, 3, 6), COPY(2, 3, 1), COPY(2, 3, 4)},
     5,
     {[0] = {7, 1, -1, 4},
      [1] = {0, -1, -1, 5},
      [3] = {-1, 4, -1, 0},
      [4] = {3, 6, -1, 1},
      [6] = {4, 7, -1, 2},
      [7] = {6, 0, -1, 3}},
     .trees = 1,
     .height = 5},
    {"on nodes of three", /* 3, 4; 3, 6, 7; 6, 0, 1 */
     {COPY(2, 3, 7), COPY(2, 3, 0), COPY(2, 3, 6), COPY(2, 3, 1), COPY(2, 3, 4)},
     5,
     {[0] = {6, 1, -1, 2},
      [1] = {0, -1, -1, 3},
      [3] = {-1, 4, 6, 0},
      [4] = {3, -1, -1, 1},
      [6] = {3, 7, 0, 1},
      [7] = {6, -1, -1, 2}},
     .trees = 1,
     .height = 3,
     .ranks_per_node = 3},
    {"of copies, which sums have not", /* 3, 0, 6; 4, 1, 7 */
     {COPY(2, 3, 6), COPY(2, 4, 7), COPY(2, 3, 0), COPY(0, 2, 5), COPY(2, 4, 1)},
     5,
     {[0] = {3, 6, -1, 1},
      [1] = {4, 7, -1, 1},
      [3] = {-1, 0, -1, 0},
      [4] = {-1, 1, -1, 0},
      [6] = {0, -1, -1, 2},
      [7] = {1, -1, -1, 2}},
     .trees = 3,
     .height = 2,
     .sums = "expert 2 has two owners in one list, ranks 3 and 4"},
    {"a copy twice",
     {COPY(2, 3, 7), COPY(1, 3, 7), COPY(2, 3, 7)},
     3,
     .message = "two transfers for its copy on rank 7"},
    {"to itself", {COPY(2, 3, 3)}, 1, .message = "two different ranks"},
    {"no such rank", {COPY(2, 3, 8)}, 1, .message = "ranks of 0 .. 7"},
    {"no such owner", {COPY(2, -1, 3)}, 1, .message = "ranks of 0 .. 7"},
    {"no such expert", {COPY(4, 1, 3)}, 1, .message = "experts are 0 .. 3"},
    {"more than the request takes",
     {COPY(0, 1, 0), COPY(0, 1, 2), COPY(0, 1, 3), COPY(0, 1, 4), COPY(0, 1, 5), COPY(0, 1, 6),
      COPY(0, 1, 7), COPY(1, 1, 0), COPY(1, 1, 2)},
     9,
     .message = "made for 8 transfers"},
};

/* The list of the case for one direction, with transfers of other stages in between. */
static struct mp_transfers make_list(const struct tree_case *c, bool reduce) {
    struct mp_transfers list = {0};
    for (int i = 0; i < c->count; i++) {
        struct mp_transfer transfer = c->item[i];
        transfer.stage = MP_STAGE_BEFORE_GATE;
        if (reduce) {
            transfer.from = c->item[i].to;
            transfer.to = c->item[i].from;
            transfer.stage = MP_STAGE_BACKWARD_REDUCE;
        }
        assert_int_equal(mp_transfers_add(&list, transfer, NULL), MP_OK);
        transfer.stage = MP_STAGE_AFTER_GATE;
        transfer.expert = 1;
        assert_int_equal(mp_transfers_add(&list, transfer, NULL), MP_OK);
    }
    return list;
}

static void check_place(const struct mp_flow *flow, const int place[4], int height) {
    for (int i = 0; i < flow->nodes; i++) {
        const struct mp_node *node = &flow->node[i];
        assert_true(i == 0 || node->expert > flow->node[i - 1].expert);
        if (node->expert != 2)
            continue;
        assert_numbers(node->parent, place[0], node->child[0], place[1], node->child[1], place[2]);
        assert_numbers(node->depth, place[3], node->height, height);
        return;
    }
    assert_numbers(place[0], 0, place[1], 0); /* outside: no parent is a child */
}

TEST_EACH(tree_is, cases, c) {
    struct mp_node node[LIMIT];
    uint64_t key[LIMIT];
    struct mp_receiver receiver[RANKS];
    struct mp_hop hop[RANKS];
    for (int reduce = 0; reduce < 2; reduce++) {
        struct mp_transfers list = make_list(c, reduce);
        for (int rank = 0; rank < RANKS; rank++) {
            struct mp_comm comm = {.rank = rank, .ranks = RANKS};
            struct mp_flow flow = {
                .limit = LIMIT, .key = key, .receiver = receiver, .hop = hop, .node = node};
            struct mp_error error = {0};
            int trees = -1;
            mp_comm_set_nodes(&comm, c->ranks_per_node);
            int code = mp_trees_build(&comm, &flow, &list,
                                      reduce ? MP_STAGE_BACKWARD_REDUCE : MP_STAGE_BEFORE_GATE,
                                      EXPERTS, reduce, &trees, &error);
            const char *message = reduce && c->sums ? c->sums : c->message;
            if (message) {
                assert_true(code == MP_EINVAL || code == MP_ELIMIT);
                assert_contains(error.text, message);
                continue;
            }
            assert_int_equal(code, MP_OK);
            assert_int_equal(trees, c->trees);
            check_place(&flow, c->place[rank], c->height);
        }
        mp_transfers_destroy(&list);
    }
}

/* A place in a longer list would not fit its sorting key. */
TEST(a_list_too_long_to_sort_is_refused) {
    struct mp_transfers list = {.count = (1 << 24) + 1};
    struct mp_comm comm = {.rank = 0, .ranks = RANKS};
    struct mp_flow flow = {.limit = LIMIT};
    int trees;
    assert_fails(
        mp_trees_build(&comm, &flow, &list, MP_STAGE_BEFORE_GATE, EXPERTS, false, &trees, &error),
        MP_ELIMIT, "16777217 transfers; at most 16777216");
}
