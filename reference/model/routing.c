#include "reference/model/routing.h"

#include <string.h>

#include "reference/schedule/schedule.h"

int mp_routing_create(int ranks, int experts, int64_t send_limit, int64_t receive_limit,
                      struct mp_routing *routing, struct mp_error *error) {
    size_t r = (size_t)ranks, e = (size_t)experts, d = MP_MOST_DEGREE;
    size_t s = (size_t)mp_exchange_most_steps(ranks);
    *routing = (struct mp_routing){.ranks = ranks,
                                   .experts = experts,
                                   .send_limit = send_limit,
                                   .receive_limit = receive_limit};
    struct mp_arena *arena = &routing->arena;
    MP_TAKE_EACH(arena, e, routing->dropped, routing->group_expert, routing->late);
    MP_TAKE(arena, routing->part_begin, 2 * e + 1);
    MP_TAKE_EACH(arena, (r + 1) * e * d, routing->part_count, routing->part_row);
    MP_TAKE(arena, routing->step, s);
    MP_TAKE(arena, routing->segment, s + 1);
    MP_TAKE_EACH(arena, d * r, routing->send_rows, routing->receive_rows, routing->next_row);
    MP_TAKE_EACH(arena, s * r, routing->step_send_rows, routing->step_receive_rows);
    MP_TAKE(arena, routing->segment_rows, (s + 1) * e * MP_ROUTING_SHARES);
    MP_TAKE(arena, routing->pair_rows, r * e * d);
    return mp_arena_check(arena, error);
}

void mp_routing_destroy(struct mp_routing *routing) {
    mp_arena_release(&routing->arena);
    *routing = (struct mp_routing){0};
}

/* How the ranks of a step are found: in groups of neighbours, of which there is one unless the
 * exchange is between groups; and its rows, in so many chunks. */
struct groups {
    int size, count, mine, degree;
};

static struct groups groups_of(const struct mp_plan *plan, int rank) {
    int count = mp_plan_steps(plan) / plan->degree, size = plan->topology.ranks / count;
    return (struct groups){size, count, rank / size, plan->degree};
}

/* The first rank of the group that step `step` sends to, or receives from. */
static int first_target(struct groups groups, int step) {
    return (groups.mine + step / groups.degree) % groups.count * groups.size;
}
static int first_source(struct groups groups, int step) {
    return (groups.mine + groups.count - step / groups.degree) % groups.count * groups.size;
}

/* Of rows of a step's chunk to, or from, each rank. */
static int *of_chunk(const struct mp_routing *routing, int *rows, int step) {
    return rows + (size_t)(step % routing->degree) * (size_t)routing->ranks;
}

/* Rows of a group's chunk from each source. */
static int *pair_of(const struct mp_routing *routing, int group, int step) {
    size_t row = (size_t)group * (size_t)routing->degree + (size_t)(step % routing->degree);
    return routing->pair_rows + row * (size_t)routing->ranks;
}

/* Late copies of this rank: what they get from elsewhere, and what stays, is complete on every rank
 * before anything else is computed. */
static void find_late_copies(const struct mp_plan *plan, int rank, struct mp_routing *routing) {
    memset(routing->late, 0, (size_t)routing->experts * sizeof *routing->late);
    routing->has_late = false;
    if (!mp_exchange_of(plan->exchange)->keeps_late_rows)
        return;
    for (struct mp_late_copy copy = {.expert = -1}; mp_plan_next_late(plan, &copy);) {
        routing->has_late = true;
        if (copy.rank == rank)
            routing->late[copy.expert] = true;
    }
}

/* Routes of this rank's own that stay out of the exchange. */
static bool in_last_segment(const struct mp_routing *routing, int rank, int source, int holder,
                            int expert) {
    return routing->late[expert] && source == rank && holder == rank;
}

/* ---- Send side ---- */

/* A holder's rows in a chunk, of which the first ones have a route. */
struct chunk {
    int rows, routes;
};

/* A chunk of `routes` of a source's to a place of an expert, behind `before` others. */
static struct chunk chunk_of(const struct mp_plan *plan, int source, int expert, int32_t place,
                             int64_t before, uint32_t routes, int chunk) {
    if (plan->padding == 0) {
        int rows = (int)mp_plan_chunk(plan, source, expert, place, before, routes, chunk);
        return (struct chunk){rows, rows};
    }
    struct chunk of = {.rows = (int)mp_exchange_chunk(plan->padding, plan->degree, chunk)};
    int64_t left = routes;
    for (int i = 0; i < chunk; i++)
        left -= mp_exchange_chunk(plan->padding, plan->degree, i);
    of.routes = (int)(left < 0 ? 0 : left < of.rows ? left : of.rows);
    return of;
}

/* The parts of this rank's dispatch, one per holder and chunk; counts them, and the rows to each
 * rank. */
static int list_parts(const struct mp_plan *plan, const struct mp_load *load, int rank,
                      struct mp_routing *routing, struct mp_error *error) {
    int at = 0, limit = routing->ranks * routing->experts * routing->degree;
    memset(routing->send_rows, 0,
           (size_t)routing->degree * (size_t)routing->ranks * sizeof *routing->send_rows);
    routing->local_rows = 0;
    for (int e = 0; e < routing->experts; e++) {
        int parts;
        const struct mp_dispatch_part *part = mp_plan_parts(plan, rank, e, &parts);
        uint32_t routes = 0;
        routing->part_begin[e] = at;
        for (int p = 0; p < parts; p++) {
            for (int i = 0; i < part[p].run; i++) {
                int holder = plan->holder[part[p].first + i];
                bool last = in_last_segment(routing, rank, rank, holder, e);
                if (at == limit)
                    return mp_fail(error, MP_EPLAN,
                                   "layer %d: rank %d sends an expert's routes to one rank twice",
                                   plan->layer, rank);
                for (int c = 0; c < routing->degree; c++, at++) {
                    struct chunk chunk =
                        chunk_of(plan, rank, e, part[p].first + i, routes, part[p].count, c);
                    *(last ? &routing->local_rows
                           : &of_chunk(routing, routing->send_rows, c)[holder]) += chunk.rows;
                    routing->part_count[at] = chunk.routes;
                }
                routes += part[p].count;
            }
        }
        routing->dropped[e] = load ? mp_load_at(load, rank, e) - routes : 0;
    }
    routing->part_begin[routing->experts] = at;
    return MP_OK;
}

/* Where each part's first row is. */
static int place_parts(const struct mp_plan *plan, int rank, struct mp_routing *routing,
                       struct mp_error *error) {
    int64_t total = 0;
    int at = 0;
    for (int r = 0; r < routing->degree * routing->ranks; r++) {
        routing->next_row[r] = (int)total;
        total += routing->send_rows[r];
    }
    int local = (int)total;
    total += routing->local_rows;
    if (total > routing->send_limit)
        return mp_fail(error, MP_ELIMIT,
                       "layer %d: rank %d would send %lld rows, at most %lld are possible",
                       plan->layer, rank, (long long)total, (long long)routing->send_limit);
    routing->send_total = (int)total;
    for (int e = 0; e < routing->experts; e++) {
        int parts;
        const struct mp_dispatch_part *part = mp_plan_parts(plan, rank, e, &parts);
        int64_t routes = 0;
        for (int p = 0; p < parts; p++) {
            for (int i = 0; i < part[p].run; i++, routes += part[p].count) {
                int holder = plan->holder[part[p].first + i];
                bool last = in_last_segment(routing, rank, rank, holder, e);
                for (int c = 0; c < routing->degree; c++, at++) {
                    int *next = last ? &local : &of_chunk(routing, routing->next_row, c)[holder];
                    routing->part_row[at] = *next;
                    *next +=
                        chunk_of(plan, rank, e, part[p].first + i, routes, part[p].count, c).rows;
                }
            }
        }
    }
    return MP_OK;
}

/* The parts of a pair's rows that first choices take, and behind all of these those that second
 * ones do: policy.overlaid. */
static int overlay_parts(const struct mp_plan *plan, const struct mp_load *load, int rank,
                         struct mp_routing *routing, struct mp_error *error) {
    if (!load || !load->first)
        return mp_fail(error, MP_EPLAN,
                       "layer %d: rank %d can't tell first choices from second ones, whose rows "
                       "they may share",
                       plan->layer, rank);
    int at = 0, behind = routing->part_begin[routing->experts];
    for (int e = 0; e < routing->experts; e++) {
        int64_t first = load->first[(int64_t)rank * load->experts + e];
        int64_t second = mp_load_at(load, rank, e) - first, row = 0;
        routing->part_begin[routing->experts + e] = behind;
        for (int c = 0; c < plan->degree; c++, at++, behind++) {
            int64_t end = row + mp_exchange_chunk(plan->padding, plan->degree, c);
            int64_t from = second > row ? second : row, to = 2 * second < end ? 2 * second : end;
            routing->part_count[behind] = to > from ? (int)(to - from) : 0;
            routing->part_row[behind] = routing->part_row[at] + (int)(to > from ? from - row : 0);
            routing->part_count[at] = (int)(first < row ? 0 : (first < end ? first : end) - row);
            row = end;
        }
    }
    routing->part_begin[2 * routing->experts] = behind;
    return MP_OK;
}

/* ---- Receive side ---- */

/* Rows of (source, expert) for the holder at `index` of plan.holder, in every chunk into
 * pair [chunks][ranks]; in all. */
static int rows_for(const struct mp_plan *plan, int source, int expert, int32_t index, int pair[]) {
    int64_t before = 0, rows = 0;
    int parts, ranks = plan->topology.ranks;
    const struct mp_dispatch_part *part = mp_plan_parts(plan, source, expert, &parts);
    for (int c = 0; c < plan->degree; c++)
        pair[c * ranks + source] = 0;
    for (int p = 0; p < parts; p++) {
        int32_t at = index - part[p].first;
        if (at >= 0 && at < part[p].run) {
            int64_t some = plan->padding > 0 ? plan->padding : part[p].count;
            int64_t first = before + (int64_t)at * part[p].count;
            for (int c = 0; c < plan->degree; c++)
                pair[c * ranks + source] +=
                    (int)mp_plan_chunk(plan, source, expert, index, first, some, c);
            rows += some;
        }
        before += (int64_t)part[p].run * part[p].count;
    }
    return (int)rows;
}

/* Rows of each group's shares in segment `segment`; the one that never travels has the last number.
 */
static int *rows_of_segment(const struct mp_routing *routing, int segment) {
    return routing->segment_rows + (size_t)segment * (size_t)routing->experts * MP_ROUTING_SHARES;
}

/* Groups, what each source sends to them, and the rows of the last segment. */
static int64_t count_received(const struct mp_plan *plan, int rank, struct mp_routing *routing) {
    int ranks = routing->ranks, groups = 0;
    int *last = rows_of_segment(routing, mp_exchange_most_steps(ranks));
    int64_t total = routing->local_rows;
    memset(routing->receive_rows, 0,
           (size_t)routing->degree * (size_t)ranks * sizeof *routing->receive_rows);
    for (int e = 0; e < routing->experts; e++) {
        int32_t index = mp_plan_holder_index(plan, e, rank);
        if (index < 0)
            continue;
        int *pair = pair_of(routing, groups, 0);
        last[groups] = 0;
        for (int s = 0; s < ranks; s++) {
            int rows = rows_for(plan, s, e, index, pair);
            if (in_last_segment(routing, rank, s, rank, e)) { /* of rows that are not cut */
                last[groups] = rows;
                rows = pair[s] = 0;
            }
            for (int c = 0; c < routing->degree; c++)
                of_chunk(routing, routing->receive_rows, c)[s] += pair[c * ranks + s];
            total += rows;
        }
        routing->group_expert[groups++] = e;
    }
    routing->groups = groups;
    return total;
}

static void build_step(struct groups groups, int step, struct mp_routing *routing) {
    int *send = routing->step_send_rows + (size_t)step * (size_t)routing->ranks;
    int *receive = routing->step_receive_rows + (size_t)step * (size_t)routing->ranks;
    int target = first_target(groups, step), source = first_source(groups, step);
    size_t row_bytes = (size_t)routing->ranks * sizeof(int);
    const int *to = of_chunk(routing, routing->send_rows, step);
    const int *from = of_chunk(routing, routing->receive_rows, step);
    struct mp_routing_step *out = &routing->step[step];
    memset(send, 0, row_bytes);
    memset(receive, 0, row_bytes);
    memcpy(send + target, to + target, (size_t)groups.size * sizeof(int));
    memcpy(receive + source, from + source, (size_t)groups.size * sizeof(int));
    *out = (struct mp_routing_step){
        .send_rows = send, .receive_rows = receive, .first_source = source, .sources = groups.size};
    for (const int *rows = routing->send_rows; rows < to + target; rows++)
        out->send_first += *rows;
    for (int r = target; r < target + groups.size; r++)
        out->send_total += to[r];
}

/* next_row of a step's sources: where the rows of each begin in receive order. */
static void begin_sources(struct mp_routing *routing, int step) {
    const struct mp_routing_step *at = &routing->step[step];
    int row = routing->segment[step].first;
    for (int s = at->first_source; s < at->first_source + at->sources; s++) {
        routing->next_row[s] = row;
        row += at->receive_rows[s];
    }
}

/* The rows that a step brings, and whether they lie as the experts want them. */
static void build_segment(int step, int first, struct mp_routing *routing) {
    int source = routing->step[step].first_source, end = source + routing->step[step].sources;
    int *group_rows = rows_of_segment(routing, step), row = first;
    struct mp_routing_segment *out = &routing->segment[step];
    int shares = routing->ranks == MP_ROUTING_SHARES ? end - source : 1;
    *out = (struct mp_routing_segment){
        .group_rows = group_rows, .shares = shares, .first = first, .in_expert_order = true};
    begin_sources(routing, step);
    for (int g = 0; g < routing->groups; g++) {
        const int *pair = pair_of(routing, g, step);
        memset(group_rows, 0, (size_t)shares * sizeof *group_rows);
        for (int s = source; s < end; s++) {
            int rows = pair[s];
            if (rows && routing->next_row[s] != row && !routing->deduplicated)
                out->in_expert_order = false;
            routing->next_row[s] += rows;
            row += rows;
            group_rows[(s - source) % shares] += rows;
        }
        group_rows += shares;
    }
    out->rows = row - first;
}

void mp_routing_index(struct mp_routing *routing, int32_t index[]) {
    for (int step = 0; step < routing->steps; step++) {
        int source = routing->step[step].first_source, end = source + routing->step[step].sources;
        int row = routing->segment[step].first;
        begin_sources(routing, step);
        for (int g = 0; g < routing->groups; g++) {
            const int *pair = pair_of(routing, g, step);
            for (int s = source; s < end; s++)
                for (int i = pair[s]; i > 0; i--)
                    index[row++] = routing->next_row[s]++;
        }
    }
}

/* What would lead beyond the arrays; the rest of the law is mp_plan_check's, which may be off. */
static int check_exchange(const struct mp_plan *plan, int rank, const struct mp_routing *routing,
                          struct mp_error *error) {
    int ranks = plan->topology.ranks;
    if (plan->padding > routing->send_limit / plan->experts) /* before rows are counted in int */
        return mp_fail(
            error, MP_ELIMIT,
            "layer %d: rank %d would send %lld rows to each of %d experts, at most %lld are "
            "possible",
            plan->layer, rank, (long long)plan->padding, plan->experts,
            (long long)routing->send_limit);
    if (!mp_exchange_takes_degree(mp_exchange_of(plan->exchange), plan->degree))
        return mp_fail(error, MP_EPLAN, "layer %d: an exchange that is %s takes no degree %d",
                       plan->layer, mp_exchange_name(plan->exchange), plan->degree);
    if (plan->chunk_routes && plan->policy->route_order != MP_ROUTES_BY_TOKEN)
        return mp_fail(error, MP_EPLAN, "layer %d: chunks of tokens take routes by token, not %s",
                       plan->layer, mp_route_order_name(plan->policy->route_order));
    if (mp_plan_steps(plan) < 1)
        return mp_fail(error, MP_EPLAN, "layer %d: groups of %d do not divide %d ranks",
                       plan->layer, plan->group_size, ranks);
    int64_t first = (int64_t)rank * plan->experts;
    for (int64_t i = plan->part_begin[first];
         plan->padding > 0 && i < plan->part_begin[first + plan->experts]; i++)
        if (plan->part[i].count > plan->padding)
            return mp_fail(error, MP_EPLAN,
                           "layer %d: rank %d has %u routes for an expert that takes %lld rows",
                           plan->layer, rank, plan->part[i].count, (long long)plan->padding);
    return MP_OK;
}

int mp_routing_build(const struct mp_plan *plan, const struct mp_load *load, int rank,
                     struct mp_routing *routing, struct mp_error *error) {
    MP_TRY(check_exchange(plan, rank, routing, error));
    struct groups groups = groups_of(plan, rank);
    routing->order = plan->policy->route_order;
    routing->renormalise_survivors = plan->policy->renormalise_survivors;
    routing->padding = plan->padding;
    routing->one_hot = plan->policy->one_hot && plan->padding > 0;
    routing->overlaid = plan->policy->overlaid;
    routing->deduplicated = mp_exchange_of(plan->exchange)->deduplicates;
    routing->degree = plan->degree;
    find_late_copies(plan, rank, routing);
    MP_TRY(list_parts(plan, load, rank, routing, error));
    MP_TRY(place_parts(plan, rank, routing, error));
    if (plan->policy->overlaid)
        MP_TRY(overlay_parts(plan, load, rank, routing, error));
    int64_t total = count_received(plan, rank, routing);
    if (total > routing->receive_limit)
        return mp_fail(error, MP_ELIMIT,
                       "layer %d: rank %d would receive %lld rows, at most %lld are possible",
                       plan->layer, rank, (long long)total, (long long)routing->receive_limit);
    routing->receive_total = (int)total;
    routing->steps = routing->segments = groups.count * groups.degree;
    int first = 0;
    for (int step = 0; step < routing->steps; step++) {
        build_step(groups, step, routing);
        build_segment(step, first, routing);
        first += routing->segment[step].rows;
    }
    if (routing->has_late)
        routing->segment[routing->segments++] = (struct mp_routing_segment){
            .group_rows = rows_of_segment(routing, mp_exchange_most_steps(routing->ranks)),
            .shares = 1,
            .first = first,
            .rows = routing->local_rows,
            .in_expert_order = true};
    routing->stays = routing->ranks == 1 && routing->segments == 1 && !routing->deduplicated &&
                     mp_exchange_of(plan->exchange)->rounds == 1;
    routing->in_order = !routing->deduplicated;
    for (int i = 0; i < routing->segments; i++)
        routing->in_order = routing->in_order && routing->segment[i].in_expert_order;
    return MP_OK;
}

void mp_routing_single(struct mp_routing *routing, int rows) {
    routing->padding = 0;
    routing->one_hot = routing->overlaid = routing->deduplicated = routing->stays = false;
    routing->in_order = true;
    routing->send_total = routing->local_rows = 0;
    routing->receive_total = rows;
    routing->steps = 0;
    routing->degree = 1;
    routing->groups = 1;
    routing->group_expert[0] = 0;
    routing->segment_rows[0] = rows;
    routing->segments = 1;
    routing->segment[0] = (struct mp_routing_segment){
        .group_rows = routing->segment_rows, .shares = 1, .rows = rows, .in_expert_order = true};
}
