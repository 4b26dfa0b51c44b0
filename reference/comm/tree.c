#include "reference/comm/tree.h"

#include <string.h>

/* A sorting key: expert, then the rank that holds the copy, then the place in the list. */
enum { KEY_EXPERT_SHIFT = 44, KEY_RANK_SHIFT = 24, KEY_FIELD = (1 << 20) - 1 };

static inline int key_expert(uint64_t key) {
    return (int)(key >> KEY_EXPERT_SHIFT);
}
static inline int key_rank(uint64_t key) {
    return (int)(key >> KEY_RANK_SHIFT & KEY_FIELD);
}
static inline int key_index(uint64_t key) {
    return (int)(key & ((1 << KEY_RANK_SHIFT) - 1));
}

static void sift_down(uint64_t key[], int count, int at) {
    uint64_t value = key[at];
    for (int child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && key[child + 1] > key[child])
            child++;
        if (key[child] <= value)
            break;
        key[at] = key[child];
        at = child;
    }
    key[at] = value;
}

/* Heap sort, because qsort may allocate; skipped for lists that come in order. */
static void sort(uint64_t key[], int count) {
    int ordered = 1;
    while (ordered < count && key[ordered - 1] <= key[ordered])
        ordered++;
    if (ordered >= count)
        return;
    for (int at = count / 2 - 1; at >= 0; at--)
        sift_down(key, count, at);
    for (int last = count - 1; last > 0; last--) {
        uint64_t largest = key[0];
        key[0] = key[last];
        key[last] = largest;
        sift_down(key, last, 0);
    }
}

static int check_transfer(const struct mp_comm *comm, const struct mp_transfer *transfer,
                          int experts, struct mp_error *error) {
    if (transfer->expert < 0 || transfer->expert >= experts)
        return mp_fail(error, MP_EINVAL,
                       "rank %d: a transfer of expert %d from rank %d to rank %d; experts are "
                       "0 .. %d",
                       comm->rank, transfer->expert, transfer->from, transfer->to, experts - 1);
    if (transfer->from < 0 || transfer->from >= comm->ranks || transfer->to < 0 ||
        transfer->to >= comm->ranks || transfer->from == transfer->to)
        return mp_fail(error, MP_EINVAL,
                       "rank %d: a transfer of expert %d from rank %d to rank %d; it needs two "
                       "different ranks of 0 .. %d",
                       comm->rank, transfer->expert, transfer->from, transfer->to, comm->ranks - 1);
    return MP_OK;
}

/* Keys of the stage's transfers, sorted; returns their number or a negative code. */
static int collect(const struct mp_comm *comm, struct mp_flow *flow,
                   const struct mp_transfers *list, enum mp_stage stage, int experts, bool reduce,
                   struct mp_error *error) {
    int count = 0;
    if (experts > KEY_FIELD || comm->ranks > KEY_FIELD)
        return mp_fail(error, MP_ELIMIT, "rank %d: %d experts on %d ranks; at most %d of each",
                       comm->rank, experts, comm->ranks, KEY_FIELD);
    if (list->count > 1 << KEY_RANK_SHIFT)
        return mp_fail(error, MP_ELIMIT, "rank %d: a list of %d transfers; at most %d are possible",
                       comm->rank, list->count, 1 << KEY_RANK_SHIFT);
    for (int i = 0; i < list->count; i++) {
        const struct mp_transfer *transfer = &list->item[i];
        if (transfer->stage != stage)
            continue;
        int code = check_transfer(comm, transfer, experts, error);
        if (code)
            return code;
        if (count == flow->limit)
            return mp_fail(error, MP_ELIMIT,
                           "rank %d: the request was made for %d transfers and the list has more",
                           comm->rank, flow->limit);
        int copy = reduce ? transfer->from : transfer->to;
        flow->key[count++] = (uint64_t)transfer->expert << KEY_EXPERT_SHIFT |
                             (uint64_t)copy << KEY_RANK_SHIFT | (uint64_t)i;
    }
    sort(flow->key, count);
    return count;
}

bool mp_tree_next(const struct mp_flow *flow, bool reduce, struct mp_tree *tree) {
    int begin = tree->key ? (int)(tree->key - flow->key) + tree->members - 1 : 0, end = begin + 1;
    if (begin >= flow->keys)
        return false;
    tree->number = tree->key ? tree->number + 1 : 0;
    tree->key = &flow->key[begin];
    tree->expert = key_expert(tree->key[0]);
    while (end < flow->keys && key_expert(flow->key[end]) == tree->expert)
        end++;
    const struct mp_transfer *first = &flow->list->item[key_index(tree->key[0])];
    tree->owner = reduce ? first->to : first->from;
    tree->members = end - begin + 1;
    return true;
}

int mp_tree_member(const struct mp_tree *tree, int i) {
    if (i >= tree->members)
        return -1;
    return i ? key_rank(tree->key[i - 1]) : tree->owner;
}

static int check_tree(const struct mp_comm *comm, const struct mp_transfers *list,
                      const struct mp_tree *tree, bool reduce, struct mp_error *error) {
    const uint64_t *key = tree->key;
    for (int i = 0; i + 1 < tree->members; i++) {
        const struct mp_transfer *transfer = &list->item[key_index(key[i])];
        int other = reduce ? transfer->to : transfer->from;
        if (other != tree->owner)
            return mp_fail(error, MP_EINVAL,
                           "rank %d: expert %d has two owners in one list, ranks %d and %d",
                           comm->rank, transfer->expert, tree->owner, other);
        if (i && key_rank(key[i]) == key_rank(key[i - 1]))
            return mp_fail(error, MP_EINVAL,
                           "rank %d: expert %d has two transfers for its copy on rank %d",
                           comm->rank, transfer->expert, key_rank(key[i]));
    }
    return MP_OK;
}

static void add_node(const struct mp_comm *comm, struct mp_flow *flow, const struct mp_tree *tree) {
    int place = 0;
    while (place < tree->members && mp_tree_member(tree, place) != comm->rank)
        place++;
    if (place == tree->members)
        return;
    struct mp_node *node = &flow->node[flow->nodes++];
    memset(node, 0, sizeof *node);
    node->expert = tree->expert;
    node->members = tree->members;
    node->place = place;
    node->tag = tree->number;
    node->parent = place ? mp_tree_member(tree, (place - 1) / 2) : -1;
    node->child[0] = mp_tree_member(tree, 2 * place + 1);
    node->child[1] = mp_tree_member(tree, 2 * place + 2);
}

int mp_trees_build(const struct mp_comm *comm, struct mp_flow *flow,
                   const struct mp_transfers *list, enum mp_stage stage, int experts, bool reduce,
                   int *trees, struct mp_error *error) {
    int count = collect(comm, flow, list, stage, experts, reduce, error);
    if (count < 0)
        return count;
    flow->keys = count;
    flow->list = list;
    flow->nodes = 0;
    *trees = 0;
    for (struct mp_tree tree = {0}; mp_tree_next(flow, reduce, &tree); ++*trees) {
        int code = check_tree(comm, list, &tree, reduce, error);
        if (code)
            return code;
        add_node(comm, flow, &tree);
    }
    return MP_OK;
}
