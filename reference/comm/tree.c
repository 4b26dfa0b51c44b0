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
        MP_TRY(check_transfer(comm, transfer, experts, error));
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

/* One expert's transfers from, or to, one root: count keys from key[0] on. */
struct tree {
    const uint64_t *key;
    int count, expert, owner;
};

/* The rank at the root, as a transfer has it. */
static int root_of(const struct mp_transfers *list, uint64_t key, bool reduce) {
    const struct mp_transfer *transfer = &list->item[key_index(key)];
    return reduce ? transfer->to : transfer->from;
}

/* Other roots' keys of the expert go behind these, and all stay in their order. */
static struct tree first_tree(const struct mp_transfers *list, uint64_t key[], int keys,
                              bool reduce) {
    struct tree tree = {
        .key = key, .expert = key_expert(key[0]), .owner = root_of(list, key[0], reduce)};
    for (int i = 0; i < keys && key_expert(key[i]) == tree.expert; i++) {
        if (root_of(list, key[i], reduce) != tree.owner)
            continue;
        uint64_t moved = key[i];
        memmove(key + tree.count + 1, key + tree.count, (size_t)(i - tree.count) * sizeof *key);
        key[tree.count++] = moved;
    }
    return tree;
}

/* Neighbours of one expert: a copy has one transfer, and all sums go to one owner. */
static int check_keys(const struct mp_comm *comm, const struct mp_transfers *list,
                      const uint64_t key[], int count, bool reduce, struct mp_error *error) {
    for (int i = 1; i < count; i++) {
        int expert = key_expert(key[i]);
        if (expert != key_expert(key[i - 1]))
            continue;
        int root[] = {root_of(list, key[i - 1], reduce), root_of(list, key[i], reduce)};
        if (reduce && root[0] != root[1])
            return mp_fail(error, MP_EINVAL,
                           "rank %d: expert %d has two owners in one list, ranks %d and %d",
                           comm->rank, expert, root[0], root[1]);
        if (key_rank(key[i]) == key_rank(key[i - 1]))
            return mp_fail(error, MP_EINVAL,
                           "rank %d: expert %d has two transfers for its copy on rank %d",
                           comm->rank, expert, key_rank(key[i]));
    }
    return MP_OK;
}

/* This rank's place on the hops of the tree, if it has one. */
static void add_node(const struct mp_comm *comm, struct mp_flow *flow,
                     const struct mp_transfers *list, const struct tree *tree, int number) {
    const struct mp_topology topology = {
        comm->ranks, comm->ranks_per_node > 0 ? comm->ranks_per_node : comm->ranks};
    bool takes_part = tree->owner == comm->rank;
    for (int i = 0; i < tree->count; i++) {
        flow->receiver[i] = (struct mp_receiver){key_rank(tree->key[i]),
                                                 list->item[key_index(tree->key[i])].enters};
        takes_part |= flow->receiver[i].rank == comm->rank;
    }
    if (!takes_part)
        return;
    struct mp_node *node = &flow->node[flow->nodes++];
    *node = (struct mp_node){.expert = tree->expert,
                             .owner = tree->owner,
                             .members = tree->count + 1,
                             .tag = number,
                             .parent = -1,
                             .child = {-1, -1}};
    mp_hops(&topology, tree->expert, tree->owner, flow->receiver, tree->count, flow->hop);
    for (int i = 0, children = 0; i < tree->count; i++) {
        const struct mp_hop *hop = &flow->hop[i];
        node->height = hop->depth > node->height ? hop->depth : node->height;
        if (hop->to == comm->rank) {
            node->parent = hop->from;
            node->depth = hop->depth;
        } else if (hop->from == comm->rank) {
            node->child[children++] = hop->to;
        }
    }
}

int mp_trees_build(const struct mp_comm *comm, struct mp_flow *flow,
                   const struct mp_transfers *list, enum mp_stage stage, int experts, bool reduce,
                   int *trees, struct mp_error *error) {
    int count = collect(comm, flow, list, stage, experts, reduce, error);
    MP_TRY(count < 0 ? count : check_keys(comm, list, flow->key, count, reduce, error));
    flow->nodes = 0;
    *trees = 0;
    for (int begin = 0; begin < count; ++*trees) {
        struct tree tree = first_tree(list, flow->key + begin, count - begin, reduce);
        add_node(comm, flow, list, &tree, *trees);
        begin += tree.count;
    }
    return MP_OK;
}

void mp_comm_set_nodes(struct mp_comm *comm, int ranks_per_node) {
    comm->ranks_per_node = ranks_per_node;
}
