#include "reference/trainer/distinct.h"

#include <string.h>

/* What travels beside a row: [K] places, -1: not by this row, and [K] weights. */
enum { WORDS_PER_ROUTE = 2 };

int mp_distinct_rows_create(struct mp_distinct_rows *exchange, struct mp_arena *arena,
                            struct mp_error *error) {
    size_t ranks = (size_t)exchange->comm->ranks, top_k = (size_t)exchange->model->shape.top_k;
    size_t chunks = (size_t)exchange->paths->steps;
    size_t counts = (size_t)mp_levels_most_groups(exchange->comm->ranks) * chunks;
    size_t layers = (size_t)exchange->model->shape.layers;
    if (!exchange->paths->exchange || !exchange->paths->exchange->deduplicates)
        return MP_OK;
    MP_TAKE(arena, exchange->counts, counts);
    MP_TAKE(arena, exchange->host_routes, 2 * (size_t)exchange->model->tokens * top_k);
    MP_TAKE(arena, exchange->sources, 2 * ranks);
    if (chunks > 1)
        MP_TAKE(arena, exchange->chunk_routes,
                layers * ranks * chunks * (size_t)exchange->model->shape.experts);
    for (size_t l = 0; l < layers; l++) {
        MP_TAKE(arena, exchange->load[l].distinct, ranks * counts);
    }
    MP_TRY(mp_arena_check(arena, error));
    for (int i = 0; i < 2; i++) {
        exchange->beside[i].bytes = WORDS_PER_ROUTE * top_k * sizeof(int32_t);
        exchange->host_beside[i] =
            (struct mp_rows){.bytes = exchange->beside[i].bytes, .host = true};
    }
    exchange->host_fans = (struct mp_rows){.bytes = sizeof(int32_t), .host = true};
    return MP_OK;
}

void mp_distinct_rows_destroy(struct mp_distinct_rows *exchange) {
    for (int i = 0; exchange->counts && i < 2; i++) {
        mp_rows_release(exchange->model->device, &exchange->beside[i]);
        mp_rows_release(exchange->model->device, &exchange->host_beside[i]);
    }
    if (exchange->counts)
        mp_rows_release(exchange->model->device, &exchange->host_fans);
}

/* ---- passages ---- */

/* The rows of a layer's chunk. */
struct passage {
    struct mp_distinct_rows *exchange;
    int layer, chunk, chunks;
    struct mp_block_state *state;
    struct mp_levels levels;
    const struct mp_exchange_path *path;
    const int *begin; /* [R][R] where blocks begin in their sources' send order */
    int top_k, ranks, rank, rounds;
    /* Rows of the chunks before it: that leave this rank's tokens, and that come to its experts;
     * and those with something beside them, at any time. */
    int sent, arrived, beside;
};

static int sum_of(const int rows[], int ranks) {
    int sum = 0;
    for (int r = 0; r < ranks; r++)
        sum += rows[r];
    return sum;
}

static int larger(int a, int b) {
    return a > b ? a : b;
}

static int sent_rows(const struct passage *passage, int round) {
    return sum_of(passage->path->round[round].send_rows, passage->ranks);
}

static int received_rows(const struct passage *passage, int round) {
    return sum_of(passage->path->round[round].receive_rows, passage->ranks);
}

/* The most rows that something is beside, in one place of two. */
static int beside_rows(const struct passage *passage) {
    int most = 0;
    for (int round = 0; round < passage->rounds; round++)
        most = larger(most, larger(sent_rows(passage, round), received_rows(passage, round)));
    return most;
}

static struct passage first_passage(struct mp_distinct_rows *exchange, int layer) {
    const struct mp_plan *plan = mp_planner_plan(exchange->paths->planner, layer);
    return (struct passage){.exchange = exchange,
                            .layer = layer,
                            .chunks = plan->degree,
                            .state = &exchange->model->state[layer],
                            .levels = mp_plan_token_levels(plan),
                            .rounds = mp_plan_token_levels(plan).count,
                            .path = &exchange->paths->path[layer * exchange->paths->steps],
                            .begin = exchange->paths->begin,
                            .top_k = exchange->model->shape.top_k,
                            .ranks = exchange->comm->ranks,
                            .rank = exchange->comm->rank};
}

/* Goes on to the next chunk, once its rows are counted. */
static void next_passage(struct passage *passage) {
    passage->sent += sent_rows(passage, 0);
    passage->beside += beside_rows(passage);
    passage->arrived += received_rows(passage, passage->rounds - 1);
    passage->begin += passage->ranks * passage->ranks;
    passage->path++;
    passage->chunk++;
}

static struct passage passage_of(struct mp_distinct_rows *exchange,
                                 const struct mp_operation *operation) {
    struct passage passage = first_passage(exchange, operation->layer);
    while (passage.chunk < operation->step)
        next_passage(&passage);
    return passage;
}

/* Of tokens, the first of a chunk. */
static int first_token(const struct passage *passage, int chunk) {
    return (int)((int64_t)passage->exchange->model->tokens * chunk / passage->chunks);
}

/* The chunk's part of what is beside rows. */
static void *beside_of(const struct passage *passage, const struct mp_rows *rows) {
    return (char *)rows->memory + (size_t)passage->beside * rows->bytes;
}

/* ---- counts ---- */

/* Of this rank: places and weights of as many are in host_routes. */
static size_t routes_of(const struct mp_distinct_rows *exchange) {
    return (size_t)exchange->model->tokens * (size_t)exchange->model->shape.top_k;
}

void mp_distinct_rows_count_chunks(struct mp_distinct_rows *exchange, int layer,
                                   uint32_t counts[]) {
    size_t experts = (size_t)exchange->model->shape.experts,
           top_k = (size_t)exchange->model->shape.top_k;
    const int32_t *choice = exchange->host_routes;
    int chunks = exchange->paths->steps;
    exchange->model->device->operations->copy_to_host(
        exchange->model->device, exchange->model->stream, exchange->host_routes,
        exchange->model->state[layer].choice,
        (size_t)exchange->model->tokens * top_k * sizeof *choice);
    memset(counts, 0, (size_t)chunks * experts * sizeof *counts);
    for (int chunk = 0; chunk < chunks; chunk++, counts += experts) {
        int64_t tokens = mp_exchange_chunk(exchange->model->tokens, chunks, chunk);
        for (const int32_t *end = choice + (size_t)tokens * top_k; choice < end; choice++)
            if (*choice >= 0)
                counts[*choice]++;
    }
}

uint32_t *mp_distinct_rows_chunks(const struct mp_distinct_rows *exchange, int layer) {
    const struct mp_paths *paths = exchange->paths;
    return exchange->chunk_routes
               ? exchange->chunk_routes + (size_t)layer * (size_t)paths->comm->ranks *
                                              (size_t)paths->steps *
                                              (size_t)paths->model->shape.experts
               : NULL;
}

/* The rank that a place in a source's send order is for. */
static int rank_of(const struct passage *passage, int source, int32_t place) {
    const int *begin = passage->begin + (size_t)source * (size_t)passage->ranks;
    int first = 0, past = passage->ranks;
    while (past - first > 1) {
        int middle = (first + past) / 2;
        if (begin[middle] <= place)
            first = middle;
        else
            past = middle;
    }
    return first;
}

/* This rank's tokens of a chunk in every group. */
static void count_distinct(const struct passage *passage, const int32_t place[]) {
    const struct mp_levels *levels = &passage->levels;
    uint32_t *groups = passage->exchange->counts + passage->chunk * mp_levels_groups(levels);
    int first = first_token(passage, passage->chunk),
        end = first_token(passage, passage->chunk + 1);
    memset(groups, 0, (size_t)mp_levels_groups(levels) * sizeof *groups);
    place += (size_t)first * (size_t)passage->top_k;
    for (int t = first; t < end; t++, place += passage->top_k) {
        int rank[MP_CHOICES_LIMIT], count = 0;
        for (int j = 0; j < passage->top_k; j++) {
            if (place[j] < 0)
                continue;
            rank[count] = rank_of(passage, passage->rank, place[j]);
            for (int l = mp_levels_apart(levels, rank, count); l < levels->count; l++)
                groups[mp_levels_group(levels, l, rank[count])]++;
            count++;
        }
    }
}

/* Of all chunks, and all ranks', and the paths that follow. */
static int gather_distinct(struct passage passage, const int32_t place[], struct mp_error *error) {
    struct mp_distinct_rows *exchange = passage.exchange;
    struct mp_load *load = &exchange->load[passage.layer];
    int counts = mp_levels_groups(&passage.levels);
    for (; passage.chunk < passage.chunks;
         passage.chunk++, passage.begin += passage.ranks * passage.ranks)
        count_distinct(&passage, place);
    load->distinct_counts = passage.chunks * counts;
    MP_TRY(mp_gather_counts_start(exchange->comm, exchange->counts, load->distinct_counts,
                                  load->distinct, exchange->gather, error));
    MP_TRY(mp_request_wait(exchange->gather, error));
    for (int c = 0; c < passage.chunks; c++)
        mp_exchange_path_distinct(
            &passage.levels, passage.rank, load->distinct + c * counts, load->distinct_counts,
            &exchange->paths->path[passage.layer * exchange->paths->steps + c]);
    return MP_OK;
}

/* ---- room ---- */

static int smaller(int a, int b) {
    return a < b ? a : b;
}

/* How many rows each fan has. */
static void size_fans(struct passage passage) {
    struct mp_distinct *distinct = &passage.state->distinct;
    const struct mp_topology *groups = passage.levels.groups;
    struct mp_fan *fan = distinct->fan;
    const int last = passage.rounds - 1;
    distinct->fans = 1 + passage.rounds * passage.chunks;
    fan[0] = (struct mp_fan){.in = passage.exchange->model->tokens,
                             .ways = smaller(mp_topology_nodes(&groups[0]), passage.top_k)};
    for (; passage.chunk < passage.chunks; passage.chunk++, passage.path++) {
        distinct->fan[0].out += sent_rows(&passage, 0);
        for (int round = 0; round < last; round++) {
            int inside = groups[round].ranks_per_node / groups[round + 1].ranks_per_node;
            *++fan = (struct mp_fan){.in = received_rows(&passage, round),
                                     .out = sent_rows(&passage, round + 1),
                                     .ways = smaller(inside, passage.top_k)};
        }
        *++fan = (struct mp_fan){.in = received_rows(&passage, last),
                                 .out = passage.state->routing.segment[passage.chunk].rows,
                                 .ways = passage.top_k};
    }
}

static bool reserve(const struct passage *passage, int64_t needed, struct mp_rows *rows) {
    return mp_model_reserve_rows(passage->exchange->model, needed, needed + needed / 4, rows);
}

static int reserve_all(struct passage passage, struct mp_error *error) {
    struct mp_distinct_rows *exchange = passage.exchange;
    struct mp_distinct *distinct = &passage.state->distinct;
    int64_t numbers = mp_distinct_numbers(distinct->fan, distinct->fans, passage.top_k);
    int64_t transit = 0;
    while (passage.chunk < passage.chunks) {
        transit += passage.path->transit_rows;
        next_passage(&passage);
    }
    int64_t beside = passage.beside, on_host = larger(passage.beside, exchange->model->tokens);
    bool is_there =
        reserve(&passage, numbers, &distinct->rows) &&
        reserve(&passage, numbers + passage.state->routing.receive_total, &exchange->host_fans);
    for (int i = 0; i < 2 && is_there; i++)
        is_there = reserve(&passage, transit, &exchange->paths->transit[i]) &&
                   reserve(&passage, beside, &exchange->beside[i]) &&
                   reserve(&passage, on_host, &exchange->host_beside[i]);
    return is_there ? MP_OK
                    : mp_fail(error, MP_ENOMEM,
                              "layer %d: no memory for %lld rows that this rank passes on, and "
                              "what travels beside rows; exchange flat takes none",
                              passage.layer, (long long)transit);
}

/* ---- fans ---- */

#define QUEUE(exchange, name, stream, ...)                                                         \
    (exchange)->model->device->operations->name((exchange)->model->device, stream, __VA_ARGS__)

static int fan_number(const struct passage *passage, int number) {
    return number > 0 ? passage->rounds * passage->chunk + number : 0;
}

static struct mp_fan *host_fan(const struct passage *passage, int number) {
    return &passage->exchange->host_fan[fan_number(passage, number)];
}

static const struct mp_fan *fan_of(const struct passage *passage, int number) {
    return &passage->state->distinct.fan[fan_number(passage, number)];
}

static void upload(const struct passage *passage, int number, mp_stream stream) {
    const struct mp_fan *fan = host_fan(passage, number);
    QUEUE(passage->exchange, copy_from_host, stream, fan_of(passage, number)->gather, fan->gather,
          (size_t)mp_fan_numbers(fan, passage->top_k) * sizeof(int32_t));
}

/* A row, number `row` of a fan's, becomes one for each of the ranks where rows of its routes stop
 * after a round; what is beside it is at `in`.  The fan's rows from `first` on are the chunk's. */
static void spread_row(const struct passage *passage, int round, int source, const int32_t *in,
                       int row, int first, int next[]) {
    int top_k = passage->top_k, key[MP_CHOICES_LIMIT], behind[MP_CHOICES_LIMIT] = {0}, ways = 0;
    size_t words = WORDS_PER_ROUTE * (size_t)top_k;
    const struct mp_fan *fan = host_fan(passage, round);
    int32_t *rows = beside_of(passage, &passage->exchange->host_beside[1]);
    int32_t *sum = fan->sum + (size_t)row * (size_t)fan->ways;
    int32_t *pick = fan->pick + (size_t)row * (size_t)top_k;
    for (int j = 0; j < top_k; j++) {
        key[j] = -1;
        pick[j] = -1;
        if (in[j] < 0)
            continue;
        int rank = rank_of(passage, source, in[j]), same = 0;
        key[j] = mp_levels_stop(&passage->levels, source, rank, round);
        while (key[same] != key[j])
            same++;
        if (same == j) {
            behind[j] = next[key[j]]++;
            fan->gather[first + behind[j]] = row;
            sum[ways++] = first + behind[j];
            int32_t *out = rows + (size_t)behind[j] * words;
            memset(out, -1, (size_t)top_k * sizeof *out);
            memcpy(out + top_k, in + top_k, (size_t)top_k * sizeof *out);
        }
        behind[j] = behind[same];
        rows[(size_t)behind[j] * words + (size_t)j] = in[j];
        pick[j] = behind[j] * top_k + j;
    }
    for (; ways < fan->ways; ways++)
        sum[ways] = -1;
}

static void begin_rows(const int rows[], int ranks, int next[]) {
    for (int r = 0, sum = 0; r < ranks; sum += rows[r++])
        next[r] = sum;
}

/* Tokens' rows into those of groups. */
static void spread_tokens(const struct passage *passage, const int32_t place[],
                          const float weight[]) {
    size_t top_k = (size_t)passage->top_k;
    int32_t in[WORDS_PER_ROUTE * MP_CHOICES_LIMIT];
    int *next = passage->state->routing.next_row, end = first_token(passage, passage->chunk + 1);
    begin_rows(passage->path->round[0].send_rows, passage->ranks, next);
    for (int t = first_token(passage, passage->chunk); t < end; t++) {
        memcpy(in, place + (size_t)t * top_k, top_k * sizeof *in);
        memcpy(in + top_k, weight + (size_t)t * top_k, top_k * sizeof *in);
        spread_row(passage, 0, passage->rank, in, t, passage->sent, next);
    }
}

/* The order in which sources' rows come to this rank in a round: of those that have passed them on,
 * of each as they have come to it.  Of ranks that come with the same one the order stays. */
static const int *order_sources(const struct passage *passage, int round) {
    const struct mp_levels *levels = &passage->levels;
    int *begin = passage->state->routing.next_row, ranks = passage->ranks;
    int *order = passage->exchange->sources, *sorted = order + ranks;
    for (int i = 0; i < ranks; i++)
        order[i] = i;
    for (int before = 0; before < round; before++) {
        memset(begin, 0, (size_t)ranks * sizeof *begin);
        for (int i = 0; i < ranks; i++)
            begin[mp_levels_stop(levels, i, passage->rank, before)]++;
        for (int r = 0, sum = 0; r < ranks; r++) {
            int count = begin[r];
            begin[r] = sum;
            sum += count;
        }
        for (int i = 0; i < ranks; i++)
            sorted[begin[mp_levels_stop(levels, order[i], passage->rank, before)]++] = order[i];
        int *last = order;
        order = sorted;
        sorted = last;
    }
    return order;
}

/* How many rows of a source's tokens come to this rank in a round. */
static uint32_t rows_from(const struct passage *passage, int source, int round) {
    const struct mp_load *load = &passage->exchange->load[passage->layer];
    const struct mp_levels *levels = &passage->levels;
    const uint32_t *distinct =
        load->distinct + source * load->distinct_counts + passage->chunk * mp_levels_groups(levels);
    if (mp_levels_stop(levels, source, passage->rank, round) != passage->rank)
        return 0;
    return distinct[mp_levels_group(levels, round, passage->rank)];
}

/* What has come in the round before this one into its rows. */
static void spread_on(const struct passage *passage, int round) {
    const int *order = order_sources(passage, round - 1);
    int *next = passage->state->routing.next_row, row = 0;
    const int32_t *in = beside_of(passage, &passage->exchange->host_beside[0]);
    begin_rows(passage->path->round[round].send_rows, passage->ranks, next);
    for (const int *source = order; source < order + passage->ranks; source++)
        for (uint32_t i = rows_from(passage, *source, round - 1); i > 0; i--, row++)
            spread_row(passage, round, *source, in + row * WORDS_PER_ROUTE * passage->top_k, row, 0,
                       next);
}

/* A row that has come from a source is copied to its routes' places in expert order. */
static void place_row(const struct passage *passage, int source, int row,
                      const int32_t expert_row[], const struct mp_fan *fan) {
    size_t top_k = (size_t)passage->top_k;
    const int *begin = passage->begin + (size_t)source * (size_t)passage->ranks;
    const int32_t *in = beside_of(passage, &passage->exchange->host_beside[0]);
    in += (size_t)row * WORDS_PER_ROUTE * top_k;
    int first = passage->state->routing.next_row[source];
    for (size_t j = 0; j < top_k; j++) {
        int32_t to = in[j] < 0 ? -1 : expert_row[first + in[j] - begin[passage->rank]];
        fan->sum[(size_t)row * top_k + j] = to;
        if (to >= 0)
            fan->gather[to] = row;
    }
    memcpy(fan->weight + (size_t)row * top_k, in + top_k, top_k * sizeof *fan->weight);
}

/* Rows of the last round. */
static void spread_to_experts(const struct passage *passage) {
    struct mp_distinct_rows *exchange = passage->exchange;
    const struct mp_routing *routing = &passage->state->routing;
    const struct mp_routing_segment *segment = &routing->segment[passage->chunk];
    const struct mp_fan *fan = host_fan(passage, passage->rounds);
    const int32_t *arrives = passage->state->index.memory; /* of rows in expert order */
    int32_t *expert_row = (int32_t *)exchange->host_fans.memory + exchange->host_fans.room;
    const int *order = order_sources(passage, passage->rounds - 1);
    int row = 0;
    expert_row -= routing->receive_total;
    for (int i = 0; i < segment->rows; i++)
        expert_row[arrives[segment->first + i]] = i;
    begin_rows(routing->step[passage->chunk].receive_rows, passage->ranks, routing->next_row);
    for (int r = 0; r < passage->ranks; r++)
        routing->next_row[r] += segment->first;
    for (const int *source = order; source < order + passage->ranks; source++)
        for (uint32_t i = rows_from(passage, *source, passage->rounds - 1); i > 0; i--)
            place_row(passage, *source, row++, expert_row, fan);
}

/* What leaves with the first rows of all chunks. */
static void spread_all(struct passage passage, const int32_t place[], const float weight[]) {
    struct mp_distinct_rows *exchange = passage.exchange;
    struct mp_distinct *distinct = &passage.state->distinct;
    mp_distinct_place(distinct->fan, distinct->fans, passage.top_k, distinct->rows.memory);
    memcpy(exchange->host_fan, distinct->fan, sizeof exchange->host_fan);
    mp_distinct_place(exchange->host_fan, distinct->fans, passage.top_k,
                      exchange->host_fans.memory);
    for (; passage.chunk < passage.chunks; next_passage(&passage))
        spread_tokens(&passage, place, weight);
    upload(&passage, 0, exchange->model->stream);
    QUEUE(exchange, copy_from_host, exchange->model->stream, exchange->beside[0].memory,
          exchange->host_beside[1].memory, (size_t)passage.beside * exchange->beside[0].bytes);
}

int mp_distinct_rows_gather(struct mp_distinct_rows *exchange, int layer, struct mp_error *error) {
    const struct mp_device_operations *operations = exchange->model->device->operations;
    const struct passage passage = first_passage(exchange, layer);
    size_t routes = routes_of(exchange);
    operations->copy_to_host(exchange->model->device, exchange->model->stream,
                             exchange->host_routes, passage.state->position,
                             routes * sizeof *exchange->host_routes);
    operations->copy_to_host(exchange->model->device, exchange->model->stream,
                             exchange->host_routes + routes, passage.state->weight,
                             routes * sizeof *exchange->host_routes);
    return gather_distinct(passage, exchange->host_routes, error);
}

int mp_distinct_rows_make(struct mp_distinct_rows *exchange, int layer, struct mp_error *error) {
    const struct passage passage = first_passage(exchange, layer);
    size_fans(passage);
    MP_TRY(reserve_all(passage, error));
    spread_all(passage, exchange->host_routes,
               (const float *)(exchange->host_routes + routes_of(exchange)));
    return MP_OK;
}

/* ---- rows ---- */

static bool goes_there(const struct mp_operation *operation) {
    return operation->kind == MP_TRAVEL_ROWS;
}

/* Places and weights go forth in forward, and weights' gradients back in backward. */
static bool has_beside(const struct mp_operation *operation) {
    return goes_there(operation) == (operation->direction == MP_FORWARD);
}

static void *row_of(const struct passage *passage, void *matrix, int row) {
    return mp_element_at(passage->exchange->model->device, matrix,
                         (size_t)row * (size_t)passage->exchange->model->shape.width);
}

static void sum_rows(const struct passage *passage, int number, mp_stream stream, const void *in,
                     const float *weight, void *out) {
    const struct mp_fan *fan = fan_of(passage, number);
    QUEUE(passage->exchange, combine_forward, stream, fan->in, fan->ways,
          passage->exchange->model->shape.width, in, fan->sum, weight, NULL, out);
}

/* Weights' gradients, one of each route, of `rows` rows before a fan from those behind it. */
static void pick_weights(const struct passage *passage, mp_stream stream, int rows,
                         const int32_t *pick, void *to) {
    struct mp_distinct_rows *exchange = passage->exchange;
    int figure = (int)(sizeof(float) / mp_element_bytes(exchange->model->device));
    QUEUE(exchange, gather_rows, stream, rows * passage->top_k, figure,
          beside_of(passage, &exchange->beside[1]), pick, to);
}

/* A round's rows from those of the one before, with what is beside them; or back. */
static int make_rows(void *context, mp_stream stream, struct mp_error *error) {
    struct mp_distinct_turn *turn = context;
    struct mp_distinct_rows *exchange = turn->exchange;
    const struct mp_operation *operation = &turn->operation;
    const struct passage passage = passage_of(exchange, operation);
    const int round = goes_there(operation) ? ++turn->round : --turn->round;
    const struct mp_fan *fan = fan_of(&passage, round);
    void *come = mp_paths_transit(exchange->paths, operation, 0);
    void *leave = mp_paths_transit(exchange->paths, operation, 1);
    size_t row = exchange->beside[0].bytes;
    void *here = beside_of(&passage, &exchange->beside[0]);
    (void)error;
    if (!goes_there(operation)) {
        sum_rows(&passage, round, stream, come, NULL, leave);
        if (has_beside(operation))
            pick_weights(&passage, stream, fan->in, fan->pick, here);
        return MP_OK;
    }
    if (has_beside(operation)) {
        QUEUE(exchange, copy_to_host, stream, beside_of(&passage, &exchange->host_beside[0]),
              beside_of(&passage, &exchange->beside[1]), (size_t)fan->in * row);
        spread_on(&passage, round);
        upload(&passage, round, stream);
        QUEUE(exchange, copy_from_host, stream, here,
              beside_of(&passage, &exchange->host_beside[1]), (size_t)fan->out * row);
    }
    QUEUE(exchange, gather_rows, stream, fan->out, exchange->model->shape.width, come, fan->gather,
          leave);
    return MP_OK;
}

int mp_distinct_rows_start(struct mp_distinct_rows *exchange, const struct mp_operation *operation,
                           struct mp_request *request, struct mp_error *error) {
    const struct passage passage = passage_of(exchange, operation);
    struct mp_model *model = exchange->model;
    bool there = goes_there(operation), forward = operation->direction == MP_FORWARD;
    int first = passage.state->routing.segment[passage.chunk].first;
    void *of_tokens = row_of(&passage, model->send, passage.sent);
    void *of_experts = row_of(&passage, model->expert_rows, passage.arrived);
    void *beside[] = {beside_of(&passage, &exchange->beside[0]),
                      beside_of(&passage, &exchange->beside[1])};
    const struct mp_exchange_cargo cargo[] = {
        {exchange->paths->transit[0].bytes,
         {there ? of_tokens : of_experts, mp_paths_transit(exchange->paths, operation, 0),
          mp_paths_transit(exchange->paths, operation, 1), there ? of_experts : of_tokens}},
        {there ? exchange->beside[0].bytes : (size_t)passage.top_k * sizeof(float),
         {beside[0], beside[1], beside[0], beside[1]}}};
    struct mp_distinct_turn *turn = &exchange->turn[2 * passage.chunk + !there];
    *turn = (struct mp_distinct_turn){exchange,
                                      *operation,
                                      there ? 0 : passage.rounds,
                                      {make_rows, turn, there && has_beside(operation)}};
    if (!there)
        sum_rows(&passage, passage.rounds, model->stream,
                 row_of(&passage, forward ? passage.state->combine_in : model->received, first),
                 forward ? fan_of(&passage, passage.rounds)->weight : NULL, of_experts);
    return mp_exchange_made_start(exchange->comm, passage.path, !there, cargo,
                                  has_beside(operation) ? 2 : 1, &turn->maker, model->stream,
                                  request, error);
}

/* Rows of experts from what has come. */
static void arrive(const struct passage *passage, bool forward) {
    struct mp_distinct_rows *exchange = passage->exchange;
    struct mp_model *model = exchange->model;
    struct mp_block_state *state = passage->state;
    const struct mp_fan *fan = fan_of(passage, passage->rounds);
    int first = state->routing.segment[passage->chunk].first;
    void *come = row_of(passage, model->expert_rows, passage->arrived);
    if (!forward) {
        QUEUE(exchange, combine_backward, model->stream, fan->in, fan->ways,
              exchange->model->shape.width, row_of(passage, state->combine_in, first), fan->sum,
              fan->weight, come, false, row_of(passage, model->received, first),
              beside_of(passage, &exchange->beside[0]));
        return;
    }
    QUEUE(exchange, copy_to_host, model->stream, beside_of(passage, &exchange->host_beside[0]),
          beside_of(passage, &exchange->beside[1]), (size_t)fan->in * exchange->beside[1].bytes);
    spread_to_experts(passage);
    upload(passage, passage->rounds, model->stream);
    QUEUE(exchange, gather_rows, model->stream, fan->out, exchange->model->shape.width, come,
          fan->gather, row_of(passage, state->expert_in, first));
}

void mp_distinct_rows_arrive(struct mp_distinct_rows *exchange,
                             const struct mp_operation *operation) {
    const struct passage passage = passage_of(exchange, operation);
    int first = first_token(&passage, passage.chunk), top_k = passage.top_k;
    if (goes_there(operation))
        arrive(&passage, operation->direction == MP_FORWARD);
    else if (has_beside(operation))
        pick_weights(&passage, exchange->model->stream,
                     first_token(&passage, passage.chunk + 1) - first,
                     fan_of(&passage, 0)->pick + (size_t)first * (size_t)top_k,
                     exchange->model->dweight + (size_t)first * (size_t)top_k);
}
