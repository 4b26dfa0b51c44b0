/* Sparse collectives and moves over NCCL.
 *
 * Trees, the hops of an expert each, are gone through in groups of sends and receives.  Copies
 * (down): in group g the edge from depth l to depth l + 1 carries piece g - l, so that a rank
 * forwards in a group what it received in the one before.  Sums (up): in a tree of height H the
 * edge from depth l carries piece g - (H - l), and what a group has brought is added before the
 * next one, first child first, as in sparse.c.  Both ends of an edge number groups alike, so groups
 * match without a word between ranks; a group in which a rank has nothing to do is none for it. */
#include "reference/comm/nccl/nccl.h"

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
    mp_comm_sent(&nccl->transport.comm, rank, bytes);
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
    int sent = number - node->depth, received = sent + 1;
    if (node->parent >= 0 && within(node, received))
        receive(group, mp_node_piece(node, received), mp_node_piece_size(flow, node, received),
                node->parent);
    for (int child = 0; child < MP_HOP_FAN; child++)
        if (node->child[child] >= 0 && within(node, sent))
            send(group, mp_node_piece(node, sent), mp_node_piece_size(flow, node, sent),
                 node->child[child]);
}

static int copy_down_trees(struct mp_request *request, const char *doing, struct mp_error *error) {
    struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    struct mp_flow *flow = &request->flow;
    struct group group = {.nccl = nccl};
    int groups = 0, code = MP_OK;
    for (int i = 0; i < flow->nodes; i++) {
        struct mp_node *node = &flow->node[i];
        /* Pieces are of use where somebody forwards. */
        mp_node_cut(node, flow->bytes, node->height > 1 ? nccl->piece : flow->bytes);
        int last = node->depth + node->pieces;
        groups = last > groups ? last : groups;
    }
    for (int number = 0; !code && number < groups; number++) {
        for (int i = 0; i < flow->nodes; i++)
            copy_in_group(&group, flow, &flow->node[i], number);
        code = close_group(&group, doing, error);
    }
    return code;
}

/* NCCL's own for an expert that all ranks hold.  In the ring from the owner on, or towards it, one
 * rank sends nothing. */
static int whole(struct mp_nccl *nccl, const struct mp_flow *flow, const struct mp_node *node,
                 bool sum) {
    struct mp_comm *comm = &nccl->transport.comm;
    const int silent = sum ? node->owner : (node->owner + comm->ranks - 1) % comm->ranks;
    if (comm->rank != silent)
        comm->sent_bytes += (int64_t)flow->bytes;
    if (sum)
        return nccl->library.reduce(node->memory, node->memory, flow->bytes / sizeof(float),
                                    MP_NCCL_FLOAT32, MP_NCCL_SUM, node->owner,
                                    nccl->background.comm, nccl->background.native);
    return nccl->library.broadcast(node->memory, node->memory, flow->bytes, MP_NCCL_UINT8,
                                   node->owner, nccl->background.comm, nccl->background.native);
}

/* All of them, in one group; their nodes are then done with.  Moves are no broadcasts. */
static int carry_whole(struct mp_request *request, bool sum, const char *doing,
                       struct mp_error *error) {
    struct mp_nccl *nccl = mp_nccl_of(&request->transport->comm);
    struct mp_flow *flow = &request->flow;
    struct group group = {.nccl = nccl};
    int kept = 0;
    if (nccl->gather != MP_NCCL_BROADCASTS || flow->moves)
        return MP_OK;
    for (int i = 0; i < flow->nodes; i++) {
        if (flow->node[i].members < nccl->transport.comm.ranks) {
            flow->node[kept++] = flow->node[i];
            continue;
        }
        open_group(&group);
        if (group.result == MP_NCCL_SUCCESS)
            group.result = whole(nccl, flow, &flow->node[i], sum);
    }
    flow->nodes = kept;
    return close_group(&group, doing, error);
}

int mp_nccl_down(struct mp_request *request, struct mp_error *error) {
    const char *doing = request->flow.moves ? "moving experts" : "gathering copies";
    MP_TRY(mp_nccl_begin(request, doing, error));
    MP_TRY(carry_whole(request, false, doing, error));
    MP_TRY(copy_down_trees(request, doing, error));
    return mp_nccl_end(request);
}

/* ---- up ---- */

/* What this rank does in group `number` for nodes begin .. end - 1; receives go to the buffer one
 * after another. */
static void pass_up(struct group *group, const struct mp_flow *flow, int begin, int end,
                    int number) {
    char *buffer = group->nccl->buffer;
    for (int i = begin; i < end; i++) {
        const struct mp_node *node = &flow->node[i];
        int sent = number - (node->height - node->depth), received = sent + 1;
        if (node->parent >= 0 && within(node, sent))
            send(group, mp_node_piece(node, sent), mp_node_piece_size(flow, node, sent),
                 node->parent);
        for (int child = 0; child < MP_HOP_FAN; child++)
            if (node->child[child] >= 0 && within(node, received)) {
                receive(group, buffer, mp_node_piece_size(flow, node, received),
                        node->child[child]);
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
        int piece = number - (node->height - node->depth) + 1;
        for (int child = 0; child < MP_HOP_FAN; child++)
            if (node->child[child] >= 0 && within(node, piece)) {
                float *sum = (float *)mp_node_piece(node, piece);
                device->operations->add(device, nccl->background.stream,
                                        mp_node_piece_size(flow, node, piece) / sizeof(float), sum,
                                        (const float *)buffer, sum);
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
        int last = node->height - node->depth + node->pieces;
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
    for (int i = 0; i < flow->nodes; i++)
        mp_node_cut(&flow->node[i], flow->bytes, nccl->piece);
    for (int begin = 0, end; begin < flow->nodes; begin = end) {
        int batch = flow->node[begin].tag / MP_NCCL_TREES_AT_A_TIME;
        for (end = begin; end < flow->nodes; end++)
            if (flow->node[end].tag / MP_NCCL_TREES_AT_A_TIME != batch)
                break;
        MP_TRY(sum_trees(request, begin, end, doing, error));
    }
    return MP_OK;
}

int mp_nccl_up(struct mp_request *request, struct mp_error *error) {
    static const char doing[] = "summing copies";
    MP_TRY(mp_nccl_begin(request, doing, error));
    MP_TRY(carry_whole(request, true, doing, error));
    MP_TRY(sum_up_trees(request, doing, error));
    return mp_nccl_end(request);
}
