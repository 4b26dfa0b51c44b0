/* Rows of tokens instead of routes: an exchange that deduplicates.
 *
 * How many tokens of each rank go to every group and rank is exchanged first.  Then, for each row
 * that will travel, the places of its token's routes in their source's send order and their
 * weights: what a rank needs to know of it to pass it on, and to copy it to its experts' rows
 * (distinct.h).  A place tells the rank, as all know the plan; routes that a row is not sent for
 * are left out.  Weights' gradients return the same way.  One layer's rows are under way at a time.
 */
#include <stdlib.h>
#include <string.h>

#include "reference/trainer/internal.h"

/* What travels beside a row: [K] places, -1: not by this row, and [K] weights. */
enum { WORDS_PER_ROUTE = 2 };

int mp_trainer_create_distinct(struct mp_trainer *trainer, struct mp_error *error) {
    size_t ranks = (size_t)trainer->comm->ranks, top_k = (size_t)trainer->model.shape.top_k;
    size_t counts = 2 * ranks; /* most of a rank: there are no more groups than ranks */
    bool failed = false;
    trainer->distinct = calloc(counts, sizeof *trainer->distinct);
    trainer->host_routes =
        calloc(2 * (size_t)trainer->model.tokens * top_k, sizeof *trainer->host_routes);
    for (int l = 0; l < trainer->job.layers; l++) {
        trainer->load[l].distinct = calloc(ranks * counts, sizeof *trainer->distinct);
        failed |= !trainer->load[l].distinct;
    }
    if (!trainer->distinct || !trainer->host_routes || failed)
        return mp_fail(error, MP_ENOMEM, "no memory for the routes of %d tokens",
                       trainer->model.tokens);
    for (int i = 0; i < 2; i++) {
        trainer->beside[i].bytes = WORDS_PER_ROUTE * top_k * sizeof(int32_t);
        trainer->host_beside[i] = (struct mp_rows){.bytes = trainer->beside[i].bytes, .host = true};
    }
    trainer->host_fans = (struct mp_rows){.bytes = sizeof(int32_t), .host = true};
    return MP_OK;
}

void mp_trainer_destroy_distinct(struct mp_trainer *trainer) {
    for (int i = 0; trainer->distinct && i < 2; i++) {
        mp_rows_release(trainer->device, &trainer->beside[i]);
        mp_rows_release(trainer->device, &trainer->host_beside[i]);
    }
    if (trainer->distinct)
        mp_rows_release(trainer->device, &trainer->host_fans);
    free(trainer->distinct);
    free(trainer->host_routes);
}

/* The rows of a layer. */
struct passage {
    struct mp_trainer *trainer;
    int layer;
    struct mp_block_state *state;
    const struct mp_exchange *exchange;
    struct mp_topology groups;
    const struct mp_exchange_path *path;
    int top_k, ranks, rank;
};

static struct passage passage_of(struct mp_trainer *trainer, int layer) {
    const struct mp_plan *plan = mp_planner_plan(&trainer->planner, layer);
    return (struct passage){trainer,
                            layer,
                            &trainer->model.state[layer],
                            mp_exchange_of(plan->exchange),
                            mp_plan_token_groups(plan),
                            &trainer->path[layer],
                            trainer->model.shape.top_k,
                            trainer->comm->ranks,
                            trainer->comm->rank};
}

static int sum_of(const int rows[], int ranks) {
    int sum = 0;
    for (int r = 0; r < ranks; r++)
        sum += rows[r];
    return sum;
}

/* ---- one round ---- */

/* Starts it, or with `back` the way back. */
static int start_round(const struct passage *passage, int round, bool back, size_t row_bytes,
                       const void *from, void *to, struct mp_error *error) {
    const struct mp_exchange_round *at = &passage->path->round[round];
    struct mp_trainer *trainer = passage->trainer;
    return mp_exchange_start(trainer->comm, back ? at->receive_rows : at->send_rows,
                             back ? at->send_rows : at->receive_rows, row_bytes, from, to,
                             trainer->model.stream, trainer->rows[0], error);
}

static int carry_round(const struct passage *passage, int round, bool back, size_t row_bytes,
                       const void *from, void *to, struct mp_error *error) {
    int code = start_round(passage, round, back, row_bytes, from, to, error);
    return code ? code : mp_request_wait(passage->trainer->rows[0], error);
}

/* What is beside the rows of a round, from the host's second place to its first. */
static int carry_beside(const struct passage *passage, int round, struct mp_error *error) {
    struct mp_trainer *trainer = passage->trainer;
    const struct mp_device_operations *operations = trainer->device->operations;
    const struct mp_exchange_round *at = &passage->path->round[round];
    size_t row = trainer->beside[0].bytes, sent = (size_t)sum_of(at->send_rows, passage->ranks);
    size_t received = (size_t)sum_of(at->receive_rows, passage->ranks);
    operations->copy_from_host(trainer->device, trainer->model.stream, trainer->beside[0].memory,
                               trainer->host_beside[1].memory, sent * row);
    int code = carry_round(passage, round, false, row, trainer->beside[0].memory,
                           trainer->beside[1].memory, error);
    if (!code)
        operations->copy_to_host(trainer->device, trainer->model.stream,
                                 trainer->host_beside[0].memory, trainer->beside[1].memory,
                                 received * row);
    return code;
}

/* ---- counts ---- */

/* The rank that a place in a source's send order is for. */
static int rank_of(const struct passage *passage, int source, int32_t place) {
    const int *begin = passage->trainer->path_rows + (size_t)source * (size_t)passage->ranks;
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

/* Whether `value` is among those before number `count`. */
static bool has(const int value[], int count) {
    int i = 0;
    while (i < count && value[i] != value[count])
        i++;
    return i < count;
}

/* This rank's tokens in every group and on every rank. */
static void count_distinct(const struct passage *passage, const int32_t place[]) {
    struct mp_trainer *trainer = passage->trainer;
    uint32_t *groups = trainer->distinct, *ranks = groups + mp_topology_nodes(&passage->groups);
    memset(groups, 0, (size_t)mp_exchange_counts(&passage->groups) * sizeof *groups);
    for (int t = 0; t < trainer->model.tokens; t++, place += passage->top_k) {
        int rank[MP_CHOICES_LIMIT], group[MP_CHOICES_LIMIT], count = 0;
        for (int j = 0; j < passage->top_k; j++) {
            if (place[j] < 0)
                continue;
            rank[count] = rank_of(passage, passage->rank, place[j]);
            group[count] = mp_topology_node(&passage->groups, rank[count]);
            ranks[rank[count]] += !has(rank, count);
            groups[group[count]] += !has(group, count);
            count++;
        }
    }
}

/* Places and weights of this rank's routes, each [N * K], where this rank's tokens are to be. */
static void read_routes(const struct passage *passage, int32_t **place, float **weight) {
    struct mp_trainer *trainer = passage->trainer;
    const struct mp_device_operations *operations = trainer->device->operations;
    size_t routes = (size_t)trainer->model.tokens * (size_t)passage->top_k;
    *place = trainer->host_routes;
    *weight = (float *)(trainer->host_routes + routes);
    operations->copy_to_host(trainer->device, trainer->model.stream, *place,
                             passage->state->position, routes * sizeof **place);
    operations->copy_to_host(trainer->device, trainer->model.stream, *weight,
                             passage->state->weight, routes * sizeof **weight);
}

/* ---- room ---- */

static int smaller(int a, int b) {
    return a < b ? a : b;
}

/* How many rows each fan has. */
static void size_fans(const struct passage *passage, struct mp_fan fan[MP_FANS]) {
    const struct mp_exchange_round *round = passage->path->round;
    fan[0] = (struct mp_fan){.in = passage->trainer->model.tokens,
                             .out = sum_of(round[0].send_rows, passage->ranks),
                             .ways = smaller(mp_topology_nodes(&passage->groups), passage->top_k)};
    fan[1] = (struct mp_fan){.in = sum_of(round[0].receive_rows, passage->ranks),
                             .out = sum_of(round[1].send_rows, passage->ranks),
                             .ways = smaller(passage->groups.ranks_per_node, passage->top_k)};
    fan[2] = (struct mp_fan){.in = sum_of(round[1].receive_rows, passage->ranks),
                             .out = passage->state->routing.receive_total,
                             .ways = passage->top_k};
}

static bool reserve(const struct passage *passage, int64_t needed, struct mp_rows *rows) {
    struct mp_trainer *trainer = passage->trainer;
    int64_t before = mp_rows_bytes(rows, 0);
    bool is_there =
        mp_rows_reserve(trainer->device, trainer->model.stream, needed, needed + needed / 4, rows);
    trainer->model.row_bytes += mp_rows_bytes(rows, 0) - before;
    return is_there;
}

static int reserve_all(const struct passage *passage, const struct mp_fan fan[MP_FANS],
                       struct mp_error *error) {
    struct mp_trainer *trainer = passage->trainer;
    int64_t numbers = mp_distinct_numbers(fan, passage->top_k), beside = fan[0].in;
    int64_t transit = passage->path->transit_rows;
    for (int i = 0; i < MP_FANS; i++) {
        beside = fan[i].in > beside ? fan[i].in : beside;
        beside = i + 1 < MP_FANS && fan[i].out > beside ? fan[i].out : beside;
    }
    bool is_there = reserve(passage, numbers, &passage->state->distinct.rows) &&
                    reserve(passage, numbers + fan[2].out, &trainer->host_fans);
    for (int i = 0; i < 2 && is_there; i++)
        is_there = reserve(passage, transit, &trainer->transit[i]) &&
                   reserve(passage, beside, &trainer->beside[i]) &&
                   reserve(passage, beside, &trainer->host_beside[i]);
    return is_there ? MP_OK
                    : mp_fail(error, MP_ENOMEM,
                              "layer %d: no memory for %lld rows that this rank passes on, and "
                              "what travels beside rows; exchange flat takes none",
                              passage->layer, (long long)transit);
}

/* ---- fans ---- */

/* A row becomes one for each of its routes' ranks, or of those where their groups' rows stop. */
static void spread_row(const struct passage *passage, int number, int source, int row,
                       struct mp_fan *fan, int next[]) {
    int top_k = passage->top_k, key[MP_CHOICES_LIMIT], behind[MP_CHOICES_LIMIT] = {0}, ways = 0;
    size_t words = WORDS_PER_ROUTE * (size_t)top_k;
    const int32_t *in = (int32_t *)passage->trainer->host_beside[0].memory + (size_t)row * words;
    int32_t *rows = passage->trainer->host_beside[1].memory;
    int32_t *sum = fan->sum + (size_t)row * (size_t)fan->ways;
    int32_t *pick = fan->pick + (size_t)row * (size_t)top_k;
    for (int j = 0; j < top_k; j++) {
        key[j] = -1;
        pick[j] = -1;
        if (in[j] < 0)
            continue;
        int rank = rank_of(passage, source, in[j]), same = 0;
        key[j] = mp_exchange_stop(passage->exchange, &passage->groups, source, rank, number);
        while (key[same] != key[j])
            same++;
        if (same == j) {
            behind[j] = next[key[j]]++;
            fan->gather[behind[j]] = row;
            sum[ways++] = behind[j];
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

/* Tokens' rows into those of groups; and what comes from each source into those of ranks. */
static void spread_tokens(const struct passage *passage, struct mp_fan *fan) {
    int *next = passage->state->routing.next_row;
    begin_rows(passage->path->round[0].send_rows, passage->ranks, next);
    for (int t = 0; t < fan->in; t++)
        spread_row(passage, 0, passage->rank, t, fan, next);
}

static void spread_on(const struct passage *passage, struct mp_fan *fan) {
    int *next = passage->state->routing.next_row, row = 0;
    begin_rows(passage->path->round[1].send_rows, passage->ranks, next);
    for (int source = 0; source < passage->ranks; source++)
        for (int i = passage->path->round[0].receive_rows[source]; i > 0; i--)
            spread_row(passage, 1, source, row++, fan, next);
}

/* A row that has come from a source is copied to its routes' places in expert order. */
static void place_row(const struct passage *passage, int source, int row,
                      const int32_t expert_row[], struct mp_fan *fan) {
    size_t top_k = (size_t)passage->top_k;
    const int *begin = passage->trainer->path_rows + (size_t)source * (size_t)passage->ranks;
    const int32_t *in =
        (int32_t *)passage->trainer->host_beside[0].memory + (size_t)row * WORDS_PER_ROUTE * top_k;
    int first = passage->state->routing.next_row[source];
    for (size_t j = 0; j < top_k; j++) {
        int32_t to = in[j] < 0 ? -1 : expert_row[first + in[j] - begin[passage->rank]];
        fan->sum[(size_t)row * top_k + j] = to;
        if (to >= 0)
            fan->gather[to] = row;
    }
    memcpy(fan->weight + (size_t)row * top_k, in + top_k, top_k * sizeof *fan->weight);
}

/* Rows come from the ranks that have passed them on, within each in order of their sources. */
static void spread_to_experts(const struct passage *passage, struct mp_fan *fan) {
    struct mp_trainer *trainer = passage->trainer;
    const struct mp_routing *routing = &passage->state->routing;
    const int32_t *arrives = passage->state->index.memory; /* of rows in expert order */
    int32_t *expert_row = (int32_t *)trainer->host_fans.memory + trainer->host_fans.room - fan->out;
    int counts = mp_exchange_counts(&passage->groups), row = 0;
    const uint32_t *distinct =
        trainer->load[passage->layer].distinct + counts - passage->ranks + passage->rank;
    for (int i = 0; i < fan->out; i++)
        expert_row[arrives[i]] = i;
    begin_rows(routing->receive_rows, passage->ranks, routing->next_row);
    for (int relay = 0; relay < passage->ranks; relay++)
        for (int source = 0; source < passage->ranks; source++)
            if (mp_exchange_stop(passage->exchange, &passage->groups, source, passage->rank, 0) ==
                relay)
                for (uint32_t i = distinct[(size_t)source * (size_t)counts]; i > 0; i--)
                    place_row(passage, source, row++, expert_row, fan);
}

/* The routes of this rank's tokens as if they had come from elsewhere. */
static void place_routes(const struct passage *passage, const int32_t place[],
                         const float weight[]) {
    size_t top_k = (size_t)passage->top_k;
    int32_t *row = passage->trainer->host_beside[0].memory;
    for (int t = 0; t < passage->trainer->model.tokens; t++, row += WORDS_PER_ROUTE * top_k) {
        memcpy(row, place + (size_t)t * top_k, top_k * sizeof *row);
        memcpy(row + top_k, weight + (size_t)t * top_k, top_k * sizeof *row);
    }
}

static int build_fans(const struct passage *passage, struct mp_fan fan[MP_FANS],
                      struct mp_error *error) {
    spread_tokens(passage, &fan[0]);
    int code = carry_beside(passage, 0, error);
    if (code)
        return code;
    spread_on(passage, &fan[1]);
    code = carry_beside(passage, 1, error);
    if (!code)
        spread_to_experts(passage, &fan[2]);
    return code;
}

int mp_trainer_make_distinct(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    const struct passage passage = passage_of(trainer, layer);
    struct mp_fan *on_device = passage.state->distinct.fan, fan[MP_FANS];
    int32_t *place;
    float *weight;
    read_routes(&passage, &place, &weight);
    count_distinct(&passage, place);
    struct mp_load *load = &trainer->load[layer];
    load->distinct_counts = mp_exchange_counts(&passage.groups);
    int code = mp_gather_counts_start(trainer->comm, trainer->distinct, load->distinct_counts,
                                      load->distinct, trainer->gather, error);
    if (!code)
        code = mp_request_wait(trainer->gather, error);
    if (code)
        return code;
    mp_exchange_path_distinct(passage.exchange, &passage.groups, passage.rank, load->distinct,
                              &trainer->path[layer]);
    size_fans(&passage, fan);
    int64_t before = trainer->model.row_bytes;
    code = mp_trainer_note_rows(trainer, layer, before, reserve_all(&passage, fan, error), error);
    if (code)
        return code;
    memcpy(on_device, fan, sizeof fan);
    mp_distinct_place(on_device, passage.top_k, passage.state->distinct.rows.memory);
    mp_distinct_place(fan, passage.top_k, trainer->host_fans.memory);
    place_routes(&passage, place, weight);
    code = build_fans(&passage, fan, error);
    if (!code)
        trainer->device->operations->copy_from_host(
            trainer->device, trainer->model.stream, passage.state->distinct.rows.memory,
            trainer->host_fans.memory,
            (size_t)mp_distinct_numbers(fan, passage.top_k) * sizeof(int32_t));
    return code;
}

/* ---- rows ---- */

#define QUEUE(trainer, name, ...)                                                                  \
    (trainer)->device->operations->name((trainer)->device, (trainer)->model.stream, __VA_ARGS__)

static void sum_rows(const struct passage *passage, int number, const void *in, const float *weight,
                     void *out) {
    const struct mp_fan *fan = &passage->state->distinct.fan[number];
    QUEUE(passage->trainer, combine_forward, fan->in, fan->ways, passage->trainer->job.width, in,
          fan->sum, weight, NULL, out);
}

/* Weights' gradients, one of each route, to the rank of its token. */
static int return_weights(const struct passage *passage, struct mp_error *error) {
    struct mp_trainer *trainer = passage->trainer;
    void *here = trainer->beside[0].memory, *there = trainer->beside[1].memory;
    int figure = (int)(sizeof(float) / mp_element_bytes(trainer->device)), code = MP_OK;
    for (int round = 1; round >= 0 && !code; round--) {
        const struct mp_fan *fan = &passage->state->distinct.fan[round];
        code = carry_round(passage, round, true, (size_t)passage->top_k * sizeof(float), here,
                           there, error);
        if (!code)
            QUEUE(trainer, gather_rows, fan->in * passage->top_k, figure, there, fan->pick,
                  round > 0 ? here : trainer->model.dweight);
    }
    return code;
}

static int start_there(const struct passage *passage, size_t row, struct mp_error *error) {
    struct mp_trainer *trainer = passage->trainer;
    const struct mp_fan *fan = &passage->state->distinct.fan[1];
    void *come = trainer->transit[0].memory, *leave = trainer->transit[1].memory;
    int code = carry_round(passage, 0, false, row, trainer->model.send, come, error);
    if (code)
        return code;
    QUEUE(trainer, gather_rows, fan->out, trainer->job.width, come, fan->gather, leave);
    return start_round(passage, 1, false, row, leave, trainer->model.expert_rows, error);
}

static int start_back(const struct passage *passage, bool forward, size_t row,
                      struct mp_error *error) {
    struct mp_trainer *trainer = passage->trainer;
    void *here = trainer->model.expert_rows;
    void *come = trainer->transit[1].memory, *leave = trainer->transit[0].memory;
    sum_rows(passage, 2, forward ? passage->state->combine_in : trainer->model.received,
             forward ? passage->state->distinct.fan[2].weight : NULL, here);
    int code = forward ? MP_OK : return_weights(passage, error);
    if (!code)
        code = carry_round(passage, 1, true, row, here, come, error);
    if (code)
        return code;
    sum_rows(passage, 1, come, NULL, leave);
    return start_round(passage, 0, true, row, leave, trainer->model.send, error);
}

int mp_trainer_start_distinct(struct mp_trainer *trainer, const struct mp_operation *operation,
                              struct mp_error *error) {
    const struct passage passage = passage_of(trainer, operation->layer);
    size_t row = (size_t)trainer->setting.route_bytes;
    return operation->kind == MP_TRAVEL_RETURNS
               ? start_back(&passage, operation->direction == MP_FORWARD, row, error)
               : start_there(&passage, row, error);
}

int mp_trainer_wait_distinct(struct mp_trainer *trainer, const struct mp_operation *operation,
                             struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    struct mp_block_state *state = &model->state[operation->layer];
    const struct mp_fan *fan = &state->distinct.fan[2];
    int code = mp_request_wait(trainer->rows[0], error);
    if (code || operation->kind == MP_TRAVEL_RETURNS)
        return code;
    if (operation->direction == MP_FORWARD)
        QUEUE(trainer, gather_rows, fan->out, trainer->job.width, model->expert_rows, fan->gather,
              state->expert_in);
    else
        QUEUE(trainer, combine_backward, fan->in, fan->ways, trainer->job.width, state->combine_in,
              fan->sum, fan->weight, model->expert_rows, model->received,
              trainer->beside[0].memory);
    return MP_OK;
}
