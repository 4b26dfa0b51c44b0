/* Sparse all-gather, sparse reduce-scatter and moves, over messages between two ranks.
 *
 * One state machine per direction.  Down the trees (gather, move): a rank receives pieces into
 * their final place and sends each on to its children as soon as it is here.  Up the trees
 * (reduce): a rank receives its children's pieces into a ring of buffers, adds them to its own
 * chunk in a fixed order, and sends each piece up when it is complete.  Everything that can be
 * started is started at once, so an operation is finished when nothing of it is in flight. */
#include "reference/comm/tree.h"

static int send_pieces(struct mp_request *request, int index, int child, int rank,
                       struct mp_error *error) {
    struct mp_flow *flow = &request->flow;
    struct mp_node *node = &flow->node[index];
    while (node->sent[child] < node->ready && node->outstanding[child] < MP_WINDOW) {
        int piece = node->sent[child]++;
        node->outstanding[child]++;
        MP_TRY(mp_request_send(
            request, mp_node_piece(node, piece), mp_node_piece_size(flow, node, piece), rank,
            flow->first_tag + node->tag,
            (struct mp_note){.node = index, .index = piece, .child = child}, error));
    }
    return MP_OK;
}

/* Down: starts whatever receives and sends this rank can start in one tree. */
static int gather_step(struct mp_request *request, int index, struct mp_error *error) {
    struct mp_flow *flow = &request->flow;
    struct mp_node *node = &flow->node[index];
    while (node->parent >= 0 && node->posted < node->pieces &&
           node->posted - node->ready < MP_WINDOW) {
        int piece = node->posted++;
        MP_TRY(mp_request_receive(
            request, mp_node_piece(node, piece), mp_node_piece_size(flow, node, piece),
            node->parent, flow->first_tag + node->tag,
            (struct mp_note){.node = index, .index = piece, .child = -1}, error));
    }
    for (int child = 0; child < MP_HOP_FAN; child++)
        if (node->child[child] >= 0)
            MP_TRY(send_pieces(request, index, child, node->child[child], error));
    return MP_OK;
}

static int gather_follow(struct mp_request *request, const struct mp_note *note,
                         struct mp_error *error) {
    struct mp_node *node = &request->flow.node[note->node];
    if (note->child >= 0) {
        node->outstanding[note->child]--;
    } else { /* large messages that were started in order may still end out of order */
        node->arrived |= UINT32_C(1) << (note->index - node->ready);
        for (; node->arrived & 1; node->arrived >>= 1)
            node->ready++;
    }
    return gather_step(request, note->node, error);
}

/* Up: the step in which this rank adds the first piece, one after those it gets it from. */
static int first_step(const struct mp_node *node) {
    return node->height - node->depth;
}

/* The next receive in the order (step, tree, child), or false at the end. */
static bool next_arrival(struct mp_flow *flow, struct mp_arrival *arrival) {
    for (; flow->next_step < flow->steps; flow->next_step++, flow->next_node = 0) {
        for (; flow->next_node < flow->nodes; flow->next_node++) {
            const struct mp_node *node = &flow->node[flow->next_node];
            int piece = flow->next_step - first_step(node);
            if (node->child[0] < 0 || piece < 0 || piece >= node->pieces)
                continue;
            *arrival = (struct mp_arrival){
                .node = flow->next_node, .piece = piece, .child = flow->next_child};
            bool last_child = flow->next_child || node->child[1] < 0;
            flow->next_child = !last_child;
            flow->next_node += last_child;
            return true;
        }
    }
    return false;
}

static int start_arrivals(struct mp_request *request, struct mp_error *error) {
    struct mp_flow *flow = &request->flow;
    while (flow->tail - flow->head < MP_RING) {
        int place = (int)(flow->tail % MP_RING);
        struct mp_arrival *arrival = &flow->arrival[place];
        if (!next_arrival(flow, arrival))
            return MP_OK;
        flow->tail++;
        const struct mp_node *node = &flow->node[arrival->node];
        MP_TRY(mp_request_receive(
            request, flow->buffer + (size_t)place * flow->buffer_bytes,
            mp_node_piece_size(flow, node, arrival->piece), node->child[arrival->child],
            flow->first_tag + node->tag,
            (struct mp_note){.node = arrival->node, .index = place, .child = -1}, error));
    }
    return MP_OK;
}

/* Adds what is here, in order, and passes complete pieces on. */
static int add_arrivals(struct mp_request *request, struct mp_error *error) {
    struct mp_flow *flow = &request->flow;
    struct mp_comm *comm = &request->transport->comm;
    for (; flow->head < flow->tail; flow->head++) {
        int place = (int)(flow->head % MP_RING);
        const struct mp_arrival *arrival = &flow->arrival[place];
        if (!arrival->here)
            return MP_OK;
        struct mp_node *node = &flow->node[arrival->node];
        comm->operations->add(comm, request->stream,
                              mp_node_piece_size(flow, node, arrival->piece) / sizeof(float),
                              (float *)(flow->buffer + (size_t)place * flow->buffer_bytes),
                              (float *)mp_node_piece(node, arrival->piece));
        if (arrival->child == 0 && node->child[1] >= 0)
            continue;
        node->ready++;
        if (node->parent < 0)
            continue;
        MP_TRY(send_pieces(request, arrival->node, 0, node->parent, error));
    }
    return MP_OK;
}

static int reduce_follow(struct mp_request *request, const struct mp_note *note,
                         struct mp_error *error) {
    struct mp_flow *flow = &request->flow;
    if (note->child >= 0) {
        struct mp_node *node = &flow->node[note->node];
        node->outstanding[0]--;
        return send_pieces(request, note->node, 0, node->parent, error);
    }
    flow->arrival[note->index].here = true;
    MP_TRY(add_arrivals(request, error));
    return start_arrivals(request, error);
}

static int check_bytes(const struct mp_comm *comm, const struct mp_flow *flow,
                       struct mp_error *error) {
    const size_t bytes = flow->bytes;
    if (bytes > flow->chunk_limit)
        return mp_fail(error, MP_ELIMIT,
                       "rank %d: chunks of %zu bytes; the request was made for at most %zu",
                       comm->rank, bytes, flow->chunk_limit);
    if (bytes / MP_REDUCE_PIECE >= INT32_MAX)
        return mp_fail(error, MP_ELIMIT, "rank %d: a chunk of %zu bytes is too large", comm->rank,
                       bytes);
    return MP_OK;
}

/* Common to both directions: the trees of the list and the memory of this rank's nodes. */
static int prepare(struct mp_request *request, const struct mp_transfers *list, enum mp_stage stage,
                   int experts, void *const chunk[], bool reduce, struct mp_error *error) {
    struct mp_flow *flow = &request->flow;
    struct mp_transport *transport = request->transport;
    const size_t bytes = flow->bytes;
    int trees = 0;
    MP_TRY(check_bytes(&transport->comm, flow, error));
    MP_TRY(mp_trees_build(&transport->comm, flow, list, stage, experts, reduce, &trees, error));
    MP_TRY(mp_transport_take_tags(transport, trees, &flow->first_tag, error));
    for (int i = 0; i < flow->nodes; i++) {
        struct mp_node *node = &flow->node[i];
        if (bytes && !chunk[node->expert])
            return mp_fail(error, MP_EINVAL,
                           "rank %d: expert %d travels over it and has no memory there",
                           transport->comm.rank, node->expert);
        node->memory = chunk[node->expert];
        /* Pieces are worth their cost only where somebody forwards or adds. */
        mp_node_cut(node, bytes,
                    reduce             ? flow->buffer_bytes
                    : node->height > 1 ? MP_GATHER_PIECE
                                       : MP_MESSAGE_LIMIT);
    }
    return MP_OK;
}

/* Takes the request for a flow of `bytes` per chunk. */
static int begin(struct mp_comm *comm, size_t bytes, mp_stream stream, struct mp_request *request,
                 struct mp_error *error) {
    struct mp_flow *flow = &request->flow;
    MP_TRY(mp_request_begin(comm, request, MP_COMM_BACKGROUND, stream, error));
    flow->nodes = 0;
    flow->moves = false;
    flow->bytes = bytes;
    flow->head = flow->tail = 0;
    flow->steps = flow->next_step = flow->next_node = flow->next_child = 0;
    if (comm->ranks > 1 && !comm->operations->queued)
        comm->operations->settle(comm, stream);
    return MP_OK;
}

/* Hands what is prepared to a back end with operations of its own.  It gets no empty chunks, and
 * nothing where this rank takes part in no tree. */
static int queue(struct mp_request *request,
                 int (*operation)(struct mp_request *request, struct mp_error *error), int code,
                 struct mp_error *error) {
    const struct mp_flow *flow = &request->flow;
    if (code || !flow->bytes || !flow->nodes)
        return mp_request_started(request, code);
    return mp_request_queued(request, operation(request, error));
}

int mp_sparse_all_gather_start(struct mp_comm *comm, const struct mp_transfers *list,
                               enum mp_stage stage, int experts, void *const chunk[], size_t bytes,
                               mp_stream stream, struct mp_request *request,
                               struct mp_error *error) {
    MP_TRY(begin(comm, bytes, stream, request, error));
    request->follow = gather_follow;
    int code = prepare(request, list, stage, experts, chunk, false, error);
    if (mp_transport_queued(comm))
        return queue(request, comm->operations->queued->down, code, error);
    for (int i = 0; code == MP_OK && i < request->flow.nodes; i++) {
        struct mp_node *node = &request->flow.node[i];
        if (node->parent < 0)
            node->ready = node->pieces;
        code = gather_step(request, i, error);
    }
    return mp_request_started(request, code);
}

int mp_sparse_reduce_scatter_start(struct mp_comm *comm, const struct mp_transfers *list,
                                   int experts, float *const chunk[], size_t bytes,
                                   mp_stream stream, struct mp_request *request,
                                   struct mp_error *error) {
    if (bytes % sizeof(float))
        return mp_fail(error, MP_EINVAL, "rank %d: a sum over chunks of %zu bytes, no whole floats",
                       comm->rank, bytes);
    MP_TRY(begin(comm, bytes, stream, request, error));
    request->follow = reduce_follow;
    int code = prepare(request, list, MP_STAGE_BACKWARD_REDUCE, experts, (void *const *)chunk, true,
                       error);
    if (mp_transport_queued(comm))
        return queue(request, comm->operations->queued->up, code, error);
    for (int i = 0; code == MP_OK && i < request->flow.nodes; i++) {
        struct mp_node *node = &request->flow.node[i];
        int steps = first_step(node) + node->pieces;
        request->flow.steps = steps > request->flow.steps ? steps : request->flow.steps;
        if (node->child[0] >= 0)
            continue;
        node->ready = node->pieces;
        code = send_pieces(request, i, 0, node->parent, error);
    }
    if (code == MP_OK)
        code = start_arrivals(request, error);
    return mp_request_started(request, code);
}

static int check_move(const struct mp_comm *comm, const struct mp_transfer *item,
                      const void *send_chunk, const void *receive_chunk, struct mp_error *error) {
    if (item->from < 0 || item->from >= comm->ranks || item->to < 0 || item->to >= comm->ranks)
        return mp_fail(error, MP_EINVAL,
                       "rank %d: a move of expert %d from rank %d to rank %d; ranks are 0 .. %d",
                       comm->rank, item->expert, item->from, item->to, comm->ranks - 1);
    if ((item->from == comm->rank && !send_chunk) || (item->to == comm->rank && !receive_chunk))
        return mp_fail(error, MP_EINVAL,
                       "rank %d: expert %d moves from rank %d to rank %d and has no memory here",
                       comm->rank, item->expert, item->from, item->to);
    return MP_OK;
}

/* Item i between this rank and another as a tree of two, whose tag is i. */
static int add_move(struct mp_request *request, const struct mp_transfer *item, int i,
                    void *send_chunk, void *receive_chunk, struct mp_error *error) {
    struct mp_flow *flow = &request->flow;
    const int rank = request->transport->comm.rank;
    const bool sends = item->from == rank;
    if (flow->nodes == flow->limit)
        return mp_fail(error, MP_ELIMIT,
                       "rank %d: the request was made for %d transfers and the list has more", rank,
                       flow->limit);
    struct mp_node *node = &flow->node[flow->nodes++];
    *node = (struct mp_node){.expert = item->expert,
                             .owner = item->from,
                             .members = 2,
                             .depth = !sends,
                             .height = 1,
                             .tag = i,
                             .parent = sends ? -1 : item->from,
                             .child = {sends ? item->to : -1, -1},
                             .memory = sends ? send_chunk : receive_chunk};
    mp_node_cut(node, flow->bytes, MP_MESSAGE_LIMIT);
    node->ready = sends ? node->pieces : 0;
    return MP_OK;
}

static int prepare_moves(struct mp_request *request, const struct mp_transfer list[], int count,
                         void *const send_chunk[], void *const receive_chunk[],
                         struct mp_error *error) {
    struct mp_flow *flow = &request->flow;
    const struct mp_comm *comm = &request->transport->comm;
    if (comm->ranks > 1) {
        MP_TRY(check_bytes(comm, flow, error));
        MP_TRY(mp_transport_take_tags(request->transport, count, &flow->first_tag, error));
    }
    for (int i = 0; flow->bytes && i < count; i++) {
        const bool from_here = list[i].from == comm->rank, to_here = list[i].to == comm->rank;
        MP_TRY(check_move(comm, &list[i], send_chunk[i], receive_chunk[i], error));
        if (from_here && to_here)
            mp_transport_copy(request->transport, request->stream, receive_chunk[i], send_chunk[i],
                              flow->bytes);
        else if (from_here || to_here)
            MP_TRY(add_move(request, &list[i], i, send_chunk[i], receive_chunk[i], error));
    }
    return MP_OK;
}

int mp_move_start(struct mp_comm *comm, const struct mp_transfer list[], int count,
                  void *const send_chunk[], void *const receive_chunk[], size_t bytes,
                  mp_stream stream, struct mp_request *request, struct mp_error *error) {
    MP_TRY(begin(comm, bytes, stream, request, error));
    request->follow = gather_follow;
    request->flow.moves = true;
    int code = prepare_moves(request, list, count, send_chunk, receive_chunk, error);
    if (mp_transport_queued(comm))
        return queue(request, comm->operations->queued->down, code, error);
    for (int i = 0; code == MP_OK && i < request->flow.nodes; i++)
        code = gather_step(request, i, error);
    return mp_request_started(request, code);
}
