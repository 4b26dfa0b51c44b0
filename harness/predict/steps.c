#include "harness/predict/steps.h"

#include <string.h>

#include "profiler/record/record.h"
#include "reference/schedule/schedule.h"

/* ---- memory ---- */

void mp_steps_destroy(struct mp_steps *steps) {
    for (int t = 0; steps->traffic && t < steps->traffic_limit; t++)
        mp_traffic_destroy(steps->traffic[t]);
    mp_arena_release(&steps->tables);
    *steps = (struct mp_steps){0};
}

void mp_steps_memory_destroy(struct mp_steps_memory *memory) {
    mp_arena_release(&memory->tables);
    *memory = (struct mp_steps_memory){0};
}

static int reserve_steps(struct mp_steps *steps, const struct mp_network *network, int count,
                         int traffics, size_t ranks, struct mp_error *error) {
    if (count <= steps->steps_limit && traffics <= steps->traffic_limit)
        return MP_OK;
    mp_steps_destroy(steps);
    MP_TAKE(&steps->tables, steps->traffic, traffics);
    MP_TAKE_EACH(&steps->tables, ((size_t)count + 1) * ranks, steps->alone,
                 steps->expert[MP_FORWARD], steps->expert[MP_BACKWARD], steps->rows);
    MP_TAKE_EACH(&steps->tables, ranks, steps->sent, steps->own);
    MP_TRY(mp_arena_check(&steps->tables, error));
    for (; steps->traffic_limit < traffics; steps->traffic_limit++)
        MP_TRY(mp_traffic_create(network, &steps->traffic[steps->traffic_limit], error));
    steps->steps_limit = count;
    return MP_OK;
}

static int reserve_memory(struct mp_steps_memory *memory, int steps, int64_t places, size_t ranks,
                          struct mp_error *error) {
    int64_t rows = (steps + 1) * places;
    if (rows > memory->rows_limit || places > memory->places_limit) {
        int64_t all_rows = rows > memory->rows_limit ? 2 * rows : memory->rows_limit;
        int64_t all_places = places > memory->places_limit ? 2 * places : memory->places_limit;
        mp_steps_memory_destroy(memory);
        MP_TAKE_EACH(&memory->tables, ranks, memory->row, memory->receiver);
        MP_TAKE(&memory->tables, memory->rows, all_rows);
        MP_TAKE_EACH(&memory->tables, all_places, memory->late, memory->round);
        MP_TRY(mp_arena_check(&memory->tables, error));
        memory->rows_limit = all_rows;
        memory->places_limit = all_places;
    }
    memset(memory->rows, 0, (size_t)rows * sizeof *memory->rows);
    return MP_OK;
}

/* ---- rows ---- */

/* Where a plan's rows are counted. */
struct pass {
    const struct mp_plan *plan;
    const struct mp_exchange *exchange;
    const uint64_t *late;
    struct mp_steps *steps;
    const struct mp_steps_memory *memory;
    struct mp_costs *costs;
    int group_size;
    int64_t places;          /* of plan.holder */
    int round, chunk;        /* whose rows are counted now */
    const double *distinct;  /* [ranks][chunks][groups] of tokens; NULL: rows are of routes */
    struct mp_levels levels; /* of these */
};

/* Which places are those of late copies. */
static void find_late(const struct pass *pass) {
    const struct mp_plan *plan = pass->plan;
    const uint64_t *late = pass->late;
    for (int expert = 0; expert < plan->experts; expert++, late += plan->during.words)
        for (int32_t at = plan->holder_begin[expert]; at < plan->holder_begin[expert + 1]; at++)
            pass->memory->late[at] = late[plan->holder[at] / 64] >> (plan->holder[at] & 63) & 1;
}

/* In which round the rows of each place travel; how many rounds there are. */
static int find_rounds(const struct mp_plan *plan, const struct mp_steps_memory *memory) {
    int32_t *held = memory->receiver, rounds = 1;
    memset(held, 0, (size_t)plan->topology.ranks * sizeof *held);
    for (int32_t at = 0; at < plan->holder_begin[plan->experts]; at++) {
        memory->round[at] = held[plan->holder[at]]++;
        rounds = memory->round[at] < rounds ? rounds : memory->round[at] + 1;
    }
    return rounds;
}

/* Rows of a source by destination, its own included but for those of a late copy, and added up by
 * place and the source's group, or chunk; those of one round or (round NULL) all, of one chunk if
 * they are cut. */
static inline __attribute__((always_inline)) int spread(const struct pass *pass, int source,
                                                        uint32_t row[], int32_t receiver[],
                                                        bool has_late, const int32_t *round,
                                                        bool cut) {
    const struct mp_plan *plan = pass->plan;
    const int64_t *begin = plan->part_begin + (int64_t)source * plan->experts;
    const struct mp_dispatch_part *part = plan->part + begin[0];
    const struct mp_dispatch_part *end = plan->part + begin[plan->experts];
    const int32_t *holder = plan->holder;
    const uint8_t *place_chunk = plan->place_chunk;
    const bool *late = pass->memory->late;
    int64_t *counted_late = pass->memory->rows + pass->steps->steps * pass->places;
    int64_t *counted =
        pass->memory->rows + (cut ? pass->chunk : source / pass->group_size) * pass->places;
    int64_t own = 0, sent = 0;
    uint32_t padding = (uint32_t)plan->padding;
    int receivers = 0;
    for (; part < end; part++) {
        uint32_t rows = padding > 0 ? padding : part->count;
        if (cut && !place_chunk)
            rows = (uint32_t)mp_exchange_chunk(rows, plan->degree, pass->chunk);
        if (cut && rows == 0)
            continue;
        int64_t at = part->first, past = at + part->run;
        do {
            int rank = holder[at];
            if (round && round[at] != pass->round)
                continue;
            if (cut && place_chunk && place_chunk[at] != pass->chunk)
                continue;
            if (has_late && late[at] && rank == source) {
                counted_late[at] += rows;
                own += rows;
                continue;
            }
            if (row[rank] == 0)
                receiver[receivers++] = rank;
            row[rank] += rows;
            counted[at] += rows;
        } while (__builtin_expect(++at < past, 0)); /* most parts are a run of 1 */
    }
    for (int i = 0; i < receivers; i++)
        sent += row[receiver[i]];
    pass->steps->own[source] += own + row[source];
    pass->steps->sent[source] += own + sent;
    return receivers;
}

static int spread_source(void *context, int source, uint32_t row[], int32_t receiver[]) {
    return spread(context, source, row, receiver, false, NULL, false);
}

static int spread_with_late(void *context, int source, uint32_t row[], int32_t receiver[]) {
    return spread(context, source, row, receiver, true, NULL, false);
}

static int spread_chunk(void *context, int source, uint32_t row[], int32_t receiver[]) {
    return spread(context, source, row, receiver, false, NULL, true);
}

static int spread_round(void *context, int source, uint32_t row[], int32_t receiver[]) {
    const struct pass *pass = context;
    return spread(pass, source, row, receiver, pass->late, pass->memory->round,
                  pass->plan->degree > 1);
}

/* The step in which rows of one group go to another, if they are not cut. */
static inline int step_of(const struct pass *pass, int from, int rank) {
    int to = rank / pass->group_size;
    return to - from + (to < from ? pass->steps->steps : 0);
}

/* The bytes of a block on its way, round by round; what has to be put in order before one is copied
 * by the rank that has it. */
static void __attribute__((noinline))
add_block(const struct pass *pass, struct mp_traffic *const traffic[], int source, int rank,
          double bytes) {
    const struct mp_exchange *exchange = pass->exchange;
    int at = source;
    for (int round = 0; round < exchange->rounds; round++) {
        int next = mp_exchange_stop(exchange, &pass->plan->topology, source, rank, round);
        if (exchange->reorders >> round & 1)
            mp_traffic_add(*traffic++, at, at, bytes);
        mp_traffic_add(*traffic++, at, next, bytes);
        at = next;
    }
}

/* A chunk of a source's tokens on their way.  What a group has of them is copied for those in it.
 */
static void add_tokens(const struct pass *pass, struct mp_traffic *const traffic[], int source,
                       int chunk, double bytes) {
    const struct mp_levels *levels = &pass->levels;
    const double *tokens = pass->distinct + (size_t)(source * pass->plan->degree + chunk) *
                                                (size_t)mp_levels_groups(levels);
    for (int round = 0; round < levels->count; round++) {
        const struct mp_topology *groups = &levels->groups[round];
        for (int group = 0; group < mp_topology_nodes(groups); group++, tokens++) {
            int first = mp_topology_node_begin(groups, group);
            int at = mp_levels_stop(levels, source, first, round - 1);
            if (round > 0)
                mp_traffic_add(traffic[2 * round - 1], at, at, *tokens * bytes);
            mp_traffic_add(traffic[2 * round], at, mp_levels_stop(levels, source, first, round),
                           *tokens * bytes);
        }
    }
}

/* All trips of all tokens. */
static void fill_tokens(const struct pass *pass, double row_bytes, double route_bytes) {
    static const int numbers[MP_TRIPS] = {[MP_TRIP_FORTH] = 2, [MP_TRIP_BACK] = 1};
    struct mp_traffic **traffic = pass->steps->traffic;
    const int chunks = pass->plan->degree;
    for (int i = 0; i < MP_TRIPS * chunks; i++, traffic += pass->steps->rounds) {
        for (int hop = 0; hop < pass->steps->rounds; hop++)
            mp_traffic_clear(traffic[hop]);
        for (int source = 0; source < pass->plan->topology.ranks; source++)
            add_tokens(pass, traffic, source, i % chunks,
                       row_bytes + numbers[i / chunks] * route_bytes);
    }
}

/* The traffic of a round, or of several if blocks have several, in all steps; or in a chunk's. */
static void fill_round(struct pass *pass, mp_traffic_rows *rows_of, double row_bytes) {
    const int steps = pass->steps->steps, rounds = pass->steps->rounds, hops = pass->steps->hops;
    struct mp_traffic **traffic = pass->steps->traffic + pass->round;
    uint32_t *row = pass->memory->row;
    if (steps * hops == 1) {
        mp_traffic_fill(*traffic, rows_of, pass, row_bytes);
        return;
    }
    const bool cut = pass->plan->degree > 1;
    for (int step = cut ? pass->chunk : 0; step <= (cut ? pass->chunk : steps - 1); step++)
        for (int hop = 0; hop < hops; hop++)
            mp_traffic_clear(traffic[step * rounds + hop]);
    for (int source = 0; source < pass->plan->topology.ranks; source++) {
        int receivers = rows_of(pass, source, row, pass->memory->receiver);
        int group = source / pass->group_size;
        for (int i = 0; i < receivers; i++) {
            int rank = pass->memory->receiver[i];
            int step = cut ? pass->chunk : step_of(pass, group, rank);
            if (hops == 1)
                mp_traffic_add(traffic[step * rounds], source, rank, row[rank] * row_bytes);
            else if (!pass->distinct)
                add_block(pass, traffic + step * rounds, source, rank, row[rank] * row_bytes);
            row[rank] = 0;
        }
    }
}

static void fill_traffic(struct pass *pass, double row_bytes) {
    struct mp_steps *steps = pass->steps;
    mp_traffic_rows *rows_of = pass->late ? spread_with_late : spread_source;
    if (steps->rounds > steps->hops)
        rows_of = spread_round;
    else if (pass->plan->degree > 1)
        rows_of = spread_chunk;
    memset(steps->sent, 0, (size_t)pass->plan->topology.ranks * sizeof *steps->sent);
    memset(steps->own, 0, (size_t)pass->plan->topology.ranks * sizeof *steps->own);
    for (pass->chunk = 0; pass->chunk < pass->plan->degree; pass->chunk++)
        for (pass->round = 0; pass->round < steps->rounds; pass->round += steps->hops)
            fill_round(pass, rows_of, row_bytes);
    if (pass->distinct)
        fill_tokens(pass, row_bytes, sizeof(float) * pass->costs->top_k);
}

/* How long each rank's gates are busy: rounds added up, with the row behind the last step's as
 * working memory. */
static void find_alone(struct mp_network *network, struct mp_steps *steps, size_t ranks) {
    double *part = steps->alone + (size_t)steps->steps * ranks;
    for (int step = 0; step < steps->steps; step++) {
        struct mp_traffic **traffic = steps->traffic + (size_t)step * (size_t)steps->rounds;
        double *alone = steps->alone + (size_t)step * ranks;
        mp_network_alone(network, traffic[0], alone, NULL, NULL);
        for (int round = 1; round < steps->rounds; round++) {
            mp_network_alone(network, traffic[round], part, NULL, NULL);
            for (size_t r = 0; r < ranks; r++)
                alone[r] += part[r];
        }
    }
}

/* Rows that a place has in a step. */
static inline void add_work(const struct pass *pass, int step, int rank, int64_t rows) {
    struct mp_steps *steps = pass->steps;
    size_t cell = (size_t)step * (size_t)pass->plan->topology.ranks + (size_t)rank;
    steps->rows[cell] += rows;
    for (int direction = MP_FORWARD; direction <= MP_BACKWARD; direction++)
        steps->expert[direction][cell] += mp_costs_expert(pass->costs, rows, direction);
}

/* Work in experts by step and rank. */
static void count_work(const struct pass *pass) {
    const struct mp_steps *steps = pass->steps;
    const int32_t *holder = pass->plan->holder;
    const int64_t *counted = pass->memory->rows;
    size_t cells = ((size_t)steps->steps + 1) * (size_t)pass->plan->topology.ranks;
    memset(steps->expert[MP_FORWARD], 0, cells * sizeof(double));
    memset(steps->expert[MP_BACKWARD], 0, cells * sizeof(double));
    memset(steps->rows, 0, cells * sizeof *steps->rows);
    const bool cut = pass->plan->degree > 1;
    for (int row = 0; row < steps->steps; row++)
        for (int64_t at = 0; at < pass->places; at++, counted++)
            if (*counted > 0)
                add_work(pass, cut ? row : step_of(pass, row, holder[at]), holder[at], *counted);
    for (int64_t at = 0; pass->late && at < pass->places; at++)
        if (counted[at] > 0)
            add_work(pass, steps->steps, holder[at], counted[at]);
}

static void count_bytes(struct mp_steps *steps, size_t ranks) {
    size_t limit = (size_t)steps->traffic_limit;
    size_t cells = ((size_t)steps->steps_limit + 1) * ranks;
    steps->bytes = limit * sizeof(struct mp_traffic *) + 3 * cells * sizeof *steps->alone +
                   (cells + 2 * ranks) * sizeof *steps->rows;
    for (size_t t = 0; t < limit; t++)
        steps->bytes += mp_traffic_bytes(steps->traffic[t]);
}

int mp_steps_fill(struct mp_steps *steps, struct mp_steps_memory *memory,
                  struct mp_network *network, struct mp_costs *costs, const struct mp_plan *plan,
                  const uint64_t *late, bool by_expert, const double distinct[],
                  struct mp_error *error) {
    int count = mp_plan_steps(plan);
    size_t ranks = (size_t)plan->topology.ranks;
    int64_t places = plan->holder_begin[plan->experts];
    const struct mp_exchange *exchange = mp_exchange_of(plan->exchange);
    struct pass pass = {.plan = plan,
                        .exchange = exchange,
                        .late = late,
                        .steps = steps,
                        .memory = memory,
                        .costs = costs,
                        .group_size = (int)ranks / (count / plan->degree),
                        .places = places,
                        .distinct = exchange->deduplicates ? distinct : NULL,
                        .levels = mp_plan_token_levels(plan)};
    int trips = exchange->deduplicates ? MP_TRIPS : 1;
    int hops = exchange->deduplicates ? 2 * pass.levels.count - 1
                                      : exchange->rounds + __builtin_popcount(exchange->reorders);
    if (by_expert && hops > 1)
        return mp_fail(
            error, MP_EINVAL,
            "predict.exchange: by-expert is an order of rows that are sent directly, not "
            "of an exchange that is %s",
            exchange->name);
    MP_TRY(reserve_memory(memory, count, places, ranks, error));
    int rounds = by_expert ? find_rounds(plan, memory) : hops;
    MP_TRY(reserve_steps(steps, network, count, trips * count * rounds, ranks, error));
    steps->steps = count;
    steps->rounds = rounds;
    steps->hops = hops;
    steps->trips = trips;
    if (late)
        find_late(&pass);
    fill_traffic(&pass, costs->sizes.row);
    count_work(&pass);
    find_alone(network, steps, ranks);
    count_bytes(steps, ranks);
    return MP_OK;
}
