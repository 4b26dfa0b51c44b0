/* What a rank posts: messages below the operations of comm.h, and who begins and awaits these. */
#include <string.h>

#include "reference/comm/transport.h"
#include "reference/trainer/internal.h"
#include "tests/same/trace.h"
#include "tests/support.h"

LED_THROUGH(mp_gather_counts_start);
LED_THROUGH(mp_exchange_path_start);
LED_THROUGH(mp_exchange_made_start);
LED_THROUGH(mp_distinct_rows_gather);
LED_THROUGH(mp_all_reduce_start);
LED_THROUGH(mp_sparse_all_gather_start);
LED_THROUGH(mp_sparse_reduce_scatter_start);
LED_THROUGH(mp_move_start);
LED_THROUGH(mp_request_wait);
LED_THROUGH(mp_comm_sum);

LED_THROUGH(mp_model_embed);
LED_THROUGH(mp_model_embed_backward);
LED_THROUGH(mp_model_attention);
LED_THROUGH(mp_model_attention_backward);
LED_THROUGH(mp_model_gate);
LED_THROUGH(mp_model_gate_backward);
LED_THROUGH(mp_model_shared);
LED_THROUGH(mp_model_shared_backward);
LED_THROUGH(mp_model_experts);
LED_THROUGH(mp_model_experts_backward);
LED_THROUGH(mp_model_head);
LED_THROUGH(mp_dense_update);
LED_THROUGH(mp_experts_update_layer);

enum { REQUESTS = 128, LAYERS = 16 };

/* A request and the operation that it carries, or carried last. */
struct carried {
    const struct mp_request *request;
    int operation;
    bool awaited;
};

static struct {
    struct mp_trainer *trainer;
    struct trace *trace; /* NULL: nothing is noted */
    trace_row *sent;
    const struct mp_comm_operations *below;
    struct mp_comm_operations own; /* the same with the sending below */
    struct carried carried[REQUESTS];
    int requests;
    int gathers;        /* of counts so far: layers begun */
    int passes[LAYERS]; /* through a layer's exchange so far: forward, then backward */
    int64_t updates;    /* of parameters, before the iteration */
    bool served;        /* forward only, and the head is done */
    int starting;       /* rows that are being posted; -1: none */
    int moves;          /* the operation that all rounds of moves are; -1: none yet */
    int layer;          /* whose tokens are counted */
} seen;

/* ---- messages ---- */

static int send_message(struct mp_comm *comm, struct mp_messages *messages, int slot,
                        const void *memory, size_t bytes, int rank, int tag,
                        struct mp_error *error) {
    int i = 0;
    while (seen.trace && i < seen.requests && seen.carried[i].request->messages != messages)
        i++;
    if (seen.trace) {
        assert_true(i < seen.requests); /* every message belongs to an operation */
        int operation = seen.carried[i].operation;
        bool rows = seen.trace->operation[operation].phase == MP_PHASE_DISPATCH ||
                    seen.trace->operation[operation].phase == MP_PHASE_COMBINE;
        /* Whatever else is on its way, the first round has begun when they set out. */
        assert_true(!rows || operation == seen.starting ||
                    (seen.starting < 0 && seen.carried[i].request->go_on));
        seen.sent[operation][rank] += (uint32_t)bytes;
    }
    return seen.below->send(comm, messages, slot, memory, bytes, rank, tag, error);
}

void transport_watch(struct mp_trainer *trainer, struct trace *trace, trace_row sent[]) {
    struct mp_comm *comm = trainer->comm;
    if (!seen.below) {
        seen.below = comm->operations;
        seen.own = *comm->operations;
        seen.own.send = send_message;
        comm->operations = &seen.own;
    }
    trace->operations = trace->events = 0;
    memset(sent, 0, TRACE_OPERATIONS * sizeof *sent);
    memset(seen.passes, 0, sizeof seen.passes);
    seen.trainer = trainer;
    seen.trace = trace;
    seen.sent = sent;
    seen.requests = seen.gathers = 0;
    seen.updates = trainer->updates;
    seen.served = false;
    seen.moves = seen.starting = -1;
}

void transport_forget(void) {
    seen.trace = NULL;
}

/* ---- starts and waits ---- */

static struct carried *find(const struct mp_request *request) {
    for (int i = 0; i < seen.requests; i++)
        if (seen.carried[i].request == request)
            return &seen.carried[i];
    return NULL;
}

static void carry(const struct mp_request *request, int operation) {
    struct carried *carried = find(request);
    if (!carried) {
        assert_true(seen.requests < REQUESTS);
        carried = &seen.carried[seen.requests++];
    }
    *carried = (struct carried){request, operation, false};
}

static int start(const struct mp_request *request, enum mp_phase phase, enum mp_direction direction,
                 int layer) {
    int number = trace_start(seen.trace, (struct trace_operation){.phase = (int32_t)phase,
                                                                  .direction = (int32_t)direction,
                                                                  .layer = layer});
    carry(request, number);
    return number;
}

/* Rounds of moves are one operation, of which the next thing is that all have moved. */
static bool moves_in_rounds(void) {
    return !seen.trainer->planner.change.asynchronous;
}

int __wrap_mp_request_wait(struct mp_request *request, struct mp_error *error) {
    struct carried *carried = seen.trace ? find(request) : NULL;
    int code = __real_mp_request_wait(request, error);
    if (!carried || carried->awaited || (carried->operation == seen.moves && moves_in_rounds()))
        return code;
    carried->awaited = true;
    for (int i = 0; i < seen.requests; i++) /* the last of the operation's requests counts */
        if (seen.carried[i].operation == carried->operation && !seen.carried[i].awaited)
            return code;
    trace_wait(seen.trace, carried->operation);
    return code;
}

/* ---- the exchange lane ---- */

int __wrap_mp_gather_counts_start(struct mp_comm *comm, const uint32_t *mine, int count,
                                  uint32_t *all, struct mp_request *request,
                                  struct mp_error *error) {
    if (seen.trace) {
        bool distinct = mine == seen.trainer->distinct.counts;
        int number = distinct ? start(request, MP_PHASE_DISPATCH, MP_FORWARD, seen.layer)
                              : start(request, MP_PHASE_GATE, MP_FORWARD, seen.gathers++);
        seen.trace->operation[number].each = (uint32_t)count * (uint32_t)sizeof *mine;
    }
    return __real_mp_gather_counts_start(comm, mine, count, all, request, error);
}

/* Whose rows these are is known by the arrays that say how many, or by their path. */
static int layer_of_rows(const struct mp_exchange_path *path, int step) {
    const struct mp_model *model = &seen.trainer->model;
    for (int l = 0; l < model->shape.layers; l++) {
        const struct mp_routing *routing = &model->state[l].routing;
        if (path->rounds > 1
                ? path == &seen.trainer->paths.path[l * seen.trainer->paths.steps + step]
                : step < routing->steps &&
                      routing->step[step].send_rows == path->round[0].send_rows)
            return l;
    }
    fail_msg("rows of no layer");
    return -1;
}

static void start_rows(const struct mp_request *request, const struct mp_exchange_path *path,
                       bool back) {
    const struct mp_trainer *trainer = seen.trainer;
    int places = 2 * mp_exchange_most_steps(trainer->comm->ranks), place = 0;
    while (place < places && trainer->rows[place] != request)
        place++;
    assert_true(place < places);
    assert_int_equal(back, place % 2);
    int step = place / 2, layer = layer_of_rows(path, step);
    assert_true(layer < LAYERS);
    seen.passes[layer] += !back && step == 0;
    bool forward = seen.passes[layer] == 1;
    int number = start(request, back == forward ? MP_PHASE_COMBINE : MP_PHASE_DISPATCH,
                       forward ? MP_FORWARD : MP_BACKWARD, layer);
    seen.trace->operation[number].step = step;
}

int __wrap_mp_exchange_path_start(struct mp_comm *comm, const struct mp_exchange_path *path,
                                  bool back, size_t row_bytes, const void *here, void *there,
                                  void *const transit[2], mp_stream stream,
                                  struct mp_request *request, struct mp_error *error) {
    if (seen.trace)
        start_rows(request, path, back);
    seen.starting = seen.trace ? find(request)->operation : -1;
    int code = __real_mp_exchange_path_start(comm, path, back, row_bytes, here, there, transit,
                                             stream, request, error);
    seen.starting = -1;
    return code;
}

int __wrap_mp_exchange_made_start(struct mp_comm *comm, const struct mp_exchange_path *path,
                                  bool back, const struct mp_exchange_cargo cargo[], int cargoes,
                                  const struct mp_exchange_maker *maker, mp_stream stream,
                                  struct mp_request *request, struct mp_error *error) {
    if (seen.trace)
        start_rows(request, path, back);
    seen.starting = seen.trace ? find(request)->operation : -1;
    int code = __real_mp_exchange_made_start(comm, path, back, cargo, cargoes, maker, stream,
                                             request, error);
    seen.starting = -1;
    return code;
}

int __wrap_mp_distinct_rows_gather(struct mp_distinct_rows *exchange, int layer,
                                   struct mp_error *error) {
    seen.layer = layer;
    return __real_mp_distinct_rows_gather(exchange, layer, error);
}

int __wrap_mp_comm_sum(struct mp_comm *comm, double *values, int count, struct mp_error *error) {
    if (!seen.trace)
        return __real_mp_comm_sum(comm, values, count, error);
    int number =
        trace_start(seen.trace, (struct trace_operation){.phase = MP_PHASE_WAIT,
                                                         .direction = MP_NO_DIRECTION,
                                                         .layer = -1,
                                                         .each = (uint32_t)count * sizeof *values});
    int code = __real_mp_comm_sum(comm, values, count, error);
    trace_wait(seen.trace, number);
    return code;
}

/* ---- the background lane ---- */

int __wrap_mp_all_reduce_start(struct mp_comm *comm, float *values, size_t count, mp_stream stream,
                               struct mp_request *request, struct mp_error *error) {
    if (seen.trace) {
        int bucket = 0, layers = seen.trainer->job.layers;
        while (bucket <= layers && seen.trainer->dense_request[bucket] != request)
            bucket++;
        assert_true(bucket <= layers);
        int number = start(request, MP_PHASE_ALLREDUCE, MP_BACKWARD, bucket < layers ? bucket : -1);
        seen.trace->operation[number].each = (uint32_t)(count * sizeof *values);
    }
    return __real_mp_all_reduce_start(comm, values, count, stream, request, error);
}

static bool is_of(const struct mp_transfer_in_flight *carriage, const struct mp_request *request) {
    return request == carriage->request[0] || request == carriage->request[1];
}

/* Experts that come again in two stages come in one operation, of two requests. */
static bool joins(const struct mp_request *request) {
    const struct mp_transfer_in_flight *refetch = seen.trainer->carriages.refetch;
    const struct carried *first = find(refetch->request[0]);
    if (request != refetch->request[1] || !first || first->awaited)
        return false;
    carry(request, first->operation);
    return true;
}

static void start_experts(const struct mp_request *request, int layer) {
    const struct mp_trainer *trainer = seen.trainer;
    const struct mp_transfer_in_flight *sent = trainer->carriages.ahead;
    bool fetches = is_of(&trainer->carriages.late_fetch, request), refetches = false;
    for (int l = 0; sent && l < trainer->job.layers; l++)
        refetches |= is_of(&sent[l], request);
    for (int ahead = 0; ahead <= MP_MOST_AHEAD; ahead++) {
        fetches |= is_of(&trainer->carriages.fetch[ahead], request);
        refetches |= is_of(&trainer->carriages.refetch[ahead], request);
    }
    if (joins(request))
        return;
    enum mp_direction direction = fetches ? MP_FORWARD : MP_BACKWARD;
    if (trainer->updates > seen.updates || seen.served)
        direction = MP_NO_DIRECTION;
    int number =
        start(request, fetches || refetches ? MP_PHASE_FETCH : MP_PHASE_REDUCE, direction, layer);
    seen.trace->operation[number].free = seen.trainer->planner.policy.free_transfers;
}

int __wrap_mp_sparse_all_gather_start(struct mp_comm *comm, const struct mp_transfers *list,
                                      enum mp_stage stage, int experts, void *const chunk[],
                                      size_t bytes, mp_stream stream, struct mp_request *request,
                                      struct mp_error *error) {
    if (seen.trace)
        start_experts(request, list->count ? list->item[0].layer : 0);
    return __real_mp_sparse_all_gather_start(comm, list, stage, experts, chunk, bytes, stream,
                                             request, error);
}

int __wrap_mp_sparse_reduce_scatter_start(struct mp_comm *comm, const struct mp_transfers *list,
                                          int experts, float *const chunk[], size_t bytes,
                                          mp_stream stream, struct mp_request *request,
                                          struct mp_error *error) {
    if (seen.trace)
        start_experts(request, list->count ? list->item[0].layer : 0);
    return __real_mp_sparse_reduce_scatter_start(comm, list, experts, chunk, bytes, stream, request,
                                                 error);
}

static void start_moves(const struct mp_request *request) {
    if (seen.moves < 0) {
        seen.moves = start(request, MP_PHASE_MOVE, MP_NO_DIRECTION, -1);
        if (moves_in_rounds())
            trace_wait(seen.trace, seen.moves);
    }
    carry(request, seen.moves);
}

int __wrap_mp_move_start(struct mp_comm *comm, const struct mp_transfer list[], int count,
                         void *const send_chunk[], void *const receive_chunk[], size_t bytes,
                         mp_stream stream, struct mp_request *request, struct mp_error *error) {
    bool moves = false;
    for (int w = 0; seen.trace && w < 3; w++)
        moves |= request == seen.trainer->moves.request[w];
    if (moves)
        start_moves(request);
    else if (seen.trace)
        start_experts(request, count ? list[0].layer : 0);
    return __real_mp_move_start(comm, list, count, send_chunk, receive_chunk, bytes, stream,
                                request, error);
}

/* ---- own work ---- */

static void work(enum mp_phase phase, enum mp_direction direction) {
    if (seen.trace)
        trace_work(seen.trace, phase, direction);
}

void __wrap_mp_model_embed(struct mp_model *model, const int32_t *token, const int32_t *target) {
    work(MP_PHASE_EMBED, MP_FORWARD);
    __real_mp_model_embed(model, token, target);
}

void __wrap_mp_model_embed_backward(struct mp_model *model) {
    work(MP_PHASE_EMBED, MP_BACKWARD);
    __real_mp_model_embed_backward(model);
}

void __wrap_mp_model_attention(struct mp_model *model, int layer) {
    work(MP_PHASE_ATTENTION, MP_FORWARD);
    __real_mp_model_attention(model, layer);
}

void __wrap_mp_model_attention_backward(struct mp_model *model, int layer,
                                        enum mp_products products) {
    work(MP_PHASE_ATTENTION, MP_BACKWARD);
    __real_mp_model_attention_backward(model, layer, products);
}

void __wrap_mp_model_gate(struct mp_model *model, int layer, const int32_t *forced,
                          const struct mp_gate_limit *limit, uint32_t *routes, uint32_t *firsts) {
    work(MP_PHASE_GATE, MP_FORWARD);
    __real_mp_model_gate(model, layer, forced, limit, routes, firsts);
}

void __wrap_mp_model_gate_backward(struct mp_model *model, int layer) {
    work(MP_PHASE_GATE, MP_BACKWARD);
    __real_mp_model_gate_backward(model, layer);
}

void __wrap_mp_model_shared(struct mp_model *model, int layer) {
    work(MP_PHASE_SHARED, MP_FORWARD);
    __real_mp_model_shared(model, layer);
}

void __wrap_mp_model_shared_backward(struct mp_model *model, int layer) {
    work(MP_PHASE_SHARED, MP_BACKWARD);
    __real_mp_model_shared_backward(model, layer);
}

void __wrap_mp_model_experts(struct mp_model *model, int layer, int segment) {
    work(MP_PHASE_EXPERT, MP_FORWARD);
    __real_mp_model_experts(model, layer, segment);
}

void __wrap_mp_model_experts_backward(struct mp_model *model, int layer, int segment,
                                      enum mp_products products, bool accumulate,
                                      const struct mp_adamw *update) {
    work(MP_PHASE_EXPERT, MP_BACKWARD);
    __real_mp_model_experts_backward(model, layer, segment, products, accumulate, update);
}

void __wrap_mp_model_head(struct mp_model *model, float scale, bool backward) {
    work(MP_PHASE_HEAD, backward ? MP_BACKWARD : MP_FORWARD);
    seen.served = !backward;
    __real_mp_model_head(model, scale, backward);
}

void __wrap_mp_dense_update(struct mp_dense *dense, mp_stream stream,
                            const struct mp_adamw *settings) {
    work(MP_PHASE_OPTIMIZER, MP_NO_DIRECTION);
    __real_mp_dense_update(dense, stream, settings);
}

void __wrap_mp_experts_update_layer(struct mp_experts *experts, mp_stream stream,
                                    const struct mp_adamw *settings, int layer) {
    work(MP_PHASE_OPTIMIZER, MP_BACKWARD);
    __real_mp_experts_update_layer(experts, stream, settings, layer);
}
