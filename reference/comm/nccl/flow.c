/* Sparse collectives and moves over NCCL.
 *
 * Trees are gone through in groups of sends and receives.  Copies (down): in group g the edge from
 * depth l to depth l + 1 carries piece g - l, so that a rank forwards in a group what it received
 * in the one before.  Sums (up): in a tree of depth D the edge from depth l carries piece g - (D -
 * l), and what a group has brought is added before the next one, first child first, as in sparse.c.
 * Both ends of an edge number groups alike, so groups match without a word between ranks; a group
 * in which a rank has nothing to do is none for it. */
#include "reference/comm/nccl/nccl.h"

static int log2_of(int value) {
    int log = 0;
    while (value >>= 1)
        log++;
    return log;
}

/* Depth of this rank in the tree, and of the whole tree. */
static int depth_of(const struct mp_node *node) {
    return log2_of(node->place + 1);
}
static int tree_depth(const struct mp_node *node) {
    return log2_of(node->members);
}

static void cut(struct mp_node *node, size_t bytes, size_t piece) {
    node->piece = piece;
    node->pieces = (int)((bytes + piece - 1) / piece);
}

static size_t piece_size(const struct mp_flow *flow, const struct mp_node *node, int piece) {
    size_t begin = (size_t)piece * node->piece;
    return flow->bytes - begin < node->piece ? flow->bytes - begin : node->piece;
}

static char *piece_memory(const struct mp_node *node, int piece) {
    return node->memory + (size_t)piece * node->piece;
}

/* A group that is opened by its first operation. */
struct group {
    struct mp_nccl *nccl;
    bool open;
    int result;
};

static void open_group(struct group *group) {
    if (group->open)
        return;
    group->open = true;
    group->result = group->nccl->library.group_start();
}

static void send(struct group *group, const void *memory, size_t bytes, int rank) {
    struct mp_nccl *nccl = group->nccl;
    open_group(group);
    if (group->result != MP_NCCL_SUCCESS)
        return;
    group->result = nccl->library.send(memory, bytes, MP_NCCL_UINT8, rank, nccl->background.comm,
                                       nccl->background.native);
    nccl->transport.comm.sent_bytes += (int64_t)bytes;
}

static void receive(struct group *group, void *memory, size_t bytes, int rank) {
    struct mp_nccl *nccl = group->nccl;
    open_group(group);
    if (group->result == MP_NCCL_SUCCESS)
        group->result = nccl->library.receive(memory, bytes, MP_NCCL_UINT8, rank,
                                              nccl->background.comm, nccl->background.native);
}

static int close_group(struct group *group, const char *doing, struct mp_error *error) {
    if (!group->open)
        return MP_OK;
    int ended = group->nccl->library.group_end();
    group->open = false;
    return mp_nccl_check(group->nccl, doing,
                         group->result == MP_NCCL_SUCCESS ? ended : group->result, error);
}

/* ---- down ---- */

static bool within(const struct mp_node *node, int piece) {
    return piece >= 0 && piece < node->pieces;
}

/* What this rank does in group `number` for one tree. */
static void copy_in_group(struct group *group, const struct mp_flow *flow,
                          const struct mp_node *node, int number) {
    int sent = number - depth_of(node), received = sent + 1;
    if (node->parent >= 0 && within(node, received))
        receive(group, piece_memory(node, received), piece_size(flow, node, received),
                node->parent);
    for (int child = 0; child < 2; child++)
        if (node->child[child] >= 0 && within(node, sent))
            send(group, piece_memory(node, sent), piece_size(flow, node, sent), node->child[child]);
}

static int copy_down_trees(struct mp_request *request, const char *doing, struct mp_error *error) {
    struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    struct mp_flow *flow = &request->flow;
    struct group group = {.nccl = nccl};
    int groups = 0, code = MP_OK;
    for (int i = 0; i < flow->nodes; i++) {
        struct mp_node *node = &flow->node[i];
        /* Nobody forwards in a tree of three: no pieces. */
        cut(node, flow->bytes, node->members > 3 ? nccl->piece : flow->bytes);
        int last = depth_of(node) + node->pieces;
        groups = last > groups ? last : groups;
    }
    for (int number = 0; !code && number < groups; number++) {
        for (int i = 0; i < flow->nodes; i++)
            copy_in_group(&group, flow, &flow->node[i], number);
        code = close_group(&group, doing, error);
    }
    return code;
}

/* In what a ring of all ranks sends, from the owner on or towards it, one rank sends nothing. */
static void count_ring(struct mp_nccl *nccl, size_t bytes, int silent) {
    if (nccl->transport.comm.rank != silent)
        nccl->transport.comm.sent_bytes += (int64_t)bytes;
}

/* The node of this rank in the tree; nodes are in the order of trees.  NULL: it has none. */
static struct mp_node *node_of(struct mp_flow *flow, const struct mp_tree *tree, int *next) {
    while (*next < flow->nodes && flow->node[*next].tag < tree->number)
        ++*next;
    return *next < flow->nodes && flow->node[*next].tag == tree->number ? &flow->node[*next] : NULL;
}

/* Every expert that all ranks hold: one broadcast each, together in a group. */
static int broadcast_whole(struct mp_request *request, const char *doing, struct mp_error *error) {
    struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    struct mp_flow *flow = &request->flow;
    struct group group = {.nccl = nccl};
    const int ranks = nccl->transport.comm.ranks;
    int next = 0;
    for (struct mp_tree tree = {0}; mp_tree_next(flow, false, &tree);) {
        const struct mp_node *node = node_of(flow, &tree, &next);
        if (tree.members < ranks || !node)
            continue;
        open_group(&group);
        if (group.result == MP_NCCL_SUCCESS)
            group.result =
                nccl->library.broadcast(node->memory, node->memory, flow->bytes, MP_NCCL_UINT8,
                                        tree.owner, nccl->background.comm, nccl->background.native);
        count_ring(nccl, flow->bytes, (tree.owner + ranks - 1) % ranks);
    }
    return close_group(&group, doing, error);
}

/* The other experts: from the owner to each holder. */
static int send_direct(struct mp_request *request, const char *doing, struct mp_error *error) {
    struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    struct mp_flow *flow = &request->flow;
    struct group group = {.nccl = nccl};
    int next = 0;
    for (struct mp_tree tree = {0}; mp_tree_next(flow, false, &tree);) {
        const struct mp_node *node = node_of(flow, &tree, &next);
        if (tree.members == nccl->transport.comm.ranks || !node)
            continue;
        if (tree.owner != nccl->transport.comm.rank)
            receive(&group, node->memory, flow->bytes, tree.owner);
        for (int i = 1; tree.owner == nccl->transport.comm.rank && i < tree.members; i++)
            send(&group, node->memory, flow->bytes, mp_tree_member(&tree, i));
    }
    return close_group(&group, doing, error);
}

int mp_nccl_down(struct mp_request *request, struct mp_error *error) {
    const struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    const bool moves = !request->flow.list;
    const char *doing = moves ? "moving experts" : "gathering copies";
    int code = mp_nccl_begin(request, doing, error);
    if (!code && (moves || nccl->gather == MP_NCCL_TREES))
        code = copy_down_trees(request, doing, error);
    else if (!code) {
        code = broadcast_whole(request, doing, error);
        if (!code)
            code = send_direct(request, doing, error);
    }
    return code ? code : mp_nccl_end(request);
}

/* ---- up ---- */

/* What this rank does in group `number` for nodes begin .. end - 1; receives go to the buffer one
 * after another. */
static void pass_up(struct group *group, const struct mp_flow *flow, int begin, int end,
                    int number) {
    char *buffer = group->nccl->buffer;
    for (int i = begin; i < end; i++) {
        const struct mp_node *node = &flow->node[i];
        int sent = number - (tree_depth(node) - depth_of(node)), received = sent + 1;
        if (node->parent >= 0 && within(node, sent))
            send(group, piece_memory(node, sent), piece_size(flow, node, sent), node->parent);
        for (int child = 0; child < 2; child++)
            if (node->child[child] >= 0 && within(node, received)) {
                receive(group, buffer, piece_size(flow, node, received), node->child[child]);
                buffer += node->piece;
            }
    }
}

/* Adds what pass_up has brought, in the same order. */
static void add_up(const struct mp_nccl *nccl, const struct mp_flow *flow, int begin, int end,
                   int number) {
    struct mp_device *device = nccl->transport.device;
    const char *buffer = nccl->buffer;
    for (int i = begin; i < end; i++) {
        const struct mp_node *node = &flow->node[i];
        int piece = number - (tree_depth(node) - depth_of(node)) + 1;
        for (int child = 0; child < 2; child++)
            if (node->child[child] >= 0 && within(node, piece)) {
                device->operations->accumulate(
                    device, nccl->background.stream, piece_size(flow, node, piece) / sizeof(float),
                    (const float *)buffer, (float *)piece_memory(node, piece));
                buffer += node->piece;
            }
    }
}

/* Trees first .. first + MP_NCCL_TREES_AT_A_TIME - 1 of the whole list: as many as are sure to have
 * room in the buffer, cut off at the same trees on every rank. */
static int sum_trees(struct mp_request *request, int begin, int end, const char *doing,
                     struct mp_error *error) {
    struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    const struct mp_flow *flow = &request->flow;
    struct group group = {.nccl = nccl};
    int groups = 0, code = MP_OK;
    for (int i = begin; i < end; i++) {
        const struct mp_node *node = &flow->node[i];
        int last = tree_depth(node) - depth_of(node) + node->pieces;
        groups = last > groups ? last : groups;
    }
    for (int number = 0; !code && number < groups; number++) {
        pass_up(&group, flow, begin, end, number);
        code = close_group(&group, doing, error);
        if (!code)
            add_up(nccl, flow, begin, end, number);
    }
    return code;
}

static int sum_up_trees(struct mp_request *request, const char *doing, struct mp_error *error) {
    const struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    struct mp_flow *flow = &request->flow;
    int code = MP_OK;
    for (int i = 0; i < flow->nodes; i++)
        cut(&flow->node[i], flow->bytes, nccl->piece);
    for (int begin = 0, end; !code && begin < flow->nodes; begin = end) {
        int batch = flow->node[begin].tag / MP_NCCL_TREES_AT_A_TIME;
        for (end = begin; end < flow->nodes; end++)
            if (flow->node[end].tag / MP_NCCL_TREES_AT_A_TIME != batch)
                break;
        code = sum_trees(request, begin, end, doing, error);
    }
    return code;
}

/* Every expert that all ranks hold: one reduction each, after which its node is done with. */
static int reduce_whole(struct mp_request *request, const char *doing, struct mp_error *error) {
    struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    struct mp_flow *flow = &request->flow;
    struct group group = {.nccl = nccl};
    int next = 0, kept = 0;
    for (struct mp_tree tree = {0}; mp_tree_next(flow, true, &tree);) {
        const struct mp_node *node = node_of(flow, &tree, &next);
        if (tree.members < nccl->transport.comm.ranks || !node)
            continue;
        open_group(&group);
        if (group.result == MP_NCCL_SUCCESS)
            group.result = nccl->library.reduce(
                node->memory, node->memory, flow->bytes / sizeof(float), MP_NCCL_FLOAT32,
                MP_NCCL_SUM, tree.owner, nccl->background.comm, nccl->background.native);
        count_ring(nccl, flow->bytes, tree.owner);
    }
    for (int i = 0; i < flow->nodes; i++)
        if (flow->node[i].members < nccl->transport.comm.ranks)
            flow->node[kept++] = flow->node[i];
    flow->nodes = kept;
    return close_group(&group, doing, error);
}

int mp_nccl_up(struct mp_request *request, struct mp_error *error) {
    static const char doing[] = "summing copies";
    const struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    int code = mp_nccl_begin(request, doing, error);
    if (!code && nccl->gather == MP_NCCL_BROADCASTS)
        code = reduce_whole(request, doing, error);
    if (!code)
        code = sum_up_trees(request, doing, error);
    return code ? code : mp_nccl_end(request);
}
