/* Dispatch: writing the compressed rows of a plan, and the two rules that several systems share.
 *
 * While pair p is being written, part_begin[p + 1] is the running end of its parts. */
#include <stdlib.h>

#include "reference/plan/plan.h"
#include "reference/plan/split.h"

int mp_plan_reserve_parts(struct mp_plan *plan, int64_t needed, struct mp_error *error) {
    if (needed <= plan->part_capacity)
        return MP_OK;
    int64_t capacity = plan->part_capacity;
    while (capacity < needed)
        capacity *= 2;
    struct mp_dispatch_part *part = realloc(plan->part, (size_t)capacity * sizeof *part);
    if (!part)
        return mp_fail(error, MP_ENOMEM, "no memory for %lld parts of a dispatch",
                       (long long)needed);
    plan->part = part;
    plan->part_capacity = capacity;
    return MP_OK;
}

int mp_plan_reserve_holders(struct mp_plan *plan, int64_t count, struct mp_error *error) {
    int64_t needed = count + 64; /* ranks of a word */
    if (needed <= plan->holder_capacity)
        return MP_OK;
    int64_t capacity = needed > 2 * plan->holder_capacity ? needed : 2 * plan->holder_capacity;
    int32_t *holder = realloc(plan->holder, (size_t)capacity * sizeof *holder);
    if (!holder)
        return mp_fail(error, MP_ENOMEM, "no memory for lists of %lld holders", (long long)needed);
    plan->holder = holder;
    plan->holder_capacity = capacity;
    return MP_OK;
}

/* The holders of every expert as a list, ascending. */
static int list_holders(struct mp_plan *plan, struct mp_error *error) {
    const struct mp_placement *during = &plan->during;
    int32_t end = 0;

    for (int expert = 0; expert < plan->experts; expert++) {
        const uint64_t *row = during->holder + (long)expert * during->words;
        plan->holder_begin[expert] = end;
        for (int word = 0; word < during->words; word++) {
            if (row[word] == 0)
                continue;
            MP_TRY(mp_plan_reserve_holders(plan, end, error));
            for (uint64_t bits = row[word]; bits; bits &= bits - 1)
                plan->holder[end++] = word * 64 + __builtin_ctzll(bits);
        }
        if (end == plan->holder_begin[expert])
            return mp_fail(error, MP_EPLAN, "iteration %lld, layer %d: no rank holds expert %d",
                           (long long)plan->iteration, plan->layer, expert);
    }
    plan->holder_begin[plan->experts] = end;
    return MP_OK;
}

int mp_plan_dispatch_begin(struct mp_plan *plan, struct mp_error *error) {
    plan->pair = 0;
    plan->part_begin[0] = 0;
    plan->part_begin[1] = 0;
    return list_holders(plan, error);
}

int mp_plan_holder_index(const struct mp_plan *plan, int expert, int rank) {
    int32_t low = plan->holder_begin[expert], high = plan->holder_begin[expert + 1];

    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (plan->holder[middle] < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low < plan->holder_begin[expert + 1] && plan->holder[low] == rank ? low : -1;
}

int mp_plan_slice_source(const struct mp_plan *plan, int expert, int rank) {
    int32_t begin = plan->holder_begin[expert], holders = plan->holder_begin[expert + 1] - begin;

    return mp_placement_holds(&plan->during, expert, rank) ? rank
                                                           : plan->holder[begin + rank % holders];
}

int64_t mp_plan_routes_to(const struct mp_plan *plan, int source, int expert, int rank) {
    int32_t index = mp_plan_holder_index(plan, expert, rank);
    int64_t routes = 0;
    int parts;
    const struct mp_dispatch_part *part = mp_plan_parts(plan, source, expert, &parts);

    for (int p = 0; p < parts; p++)
        if (index >= part[p].first && index < part[p].first + part[p].run)
            routes += part[p].count;
    return routes;
}

int mp_plan_dispatch_run(struct mp_plan *plan, int32_t first, int32_t run, uint32_t count,
                         struct mp_error *error) {
    int64_t *end = &plan->part_begin[plan->pair + 1];

    if (run == 0 || (count == 0 && plan->padding == 0))
        return MP_OK;
    MP_TRY(mp_plan_reserve_parts(plan, *end + 1, error));
    plan->part[(*end)++] = (struct mp_dispatch_part){first, run, count};
    return MP_OK;
}

int mp_plan_dispatch_part(struct mp_plan *plan, int rank, uint32_t count, struct mp_error *error) {
    int expert = (int)(plan->pair % plan->experts);
    int index = mp_plan_holder_index(plan, expert, rank);

    if (index < 0)
        return mp_fail(error, MP_EINVAL,
                       "iteration %lld, layer %d: routes for expert %d on rank %d, which does not "
                       "hold it",
                       (long long)plan->iteration, plan->layer, expert, rank);
    return mp_plan_dispatch_run(plan, index, 1, count, error);
}

void mp_plan_dispatch_end_pair(struct mp_plan *plan) {
    int64_t pairs = (int64_t)plan->topology.ranks * plan->experts;

    if (++plan->pair < pairs)
        plan->part_begin[plan->pair + 1] = plan->part_begin[plan->pair];
}

int mp_plan_dispatch_to_owner(struct mp_plan *plan, const struct mp_load *load,
                              struct mp_error *error) {
    int64_t pairs = (int64_t)plan->topology.ranks * plan->experts;
    const bool drops = plan->source_capacity >= 0;
    MP_TRY(mp_plan_reserve_parts(plan, pairs, error));
    int64_t end = 0;

    MP_TRY(mp_plan_dispatch_begin(plan, error));
    for (int expert = 0; expert < plan->experts; expert++)
        plan->owner_place[expert] = mp_plan_holder_index(plan, expert, plan->during.owner[expert]);
    for (int source = 0; source < load->ranks; source++) {
        const uint32_t *row = load->count + (long)source * load->experts;
        int64_t *row_end = plan->part_begin + (int64_t)source * load->experts + 1;
        for (int expert = 0; expert < load->experts; expert++) {
            uint32_t kept =
                drops ? (uint32_t)mp_plan_kept(plan, load, source, expert) : row[expert];
            plan->part[end] = (struct mp_dispatch_part){plan->owner_place[expert], 1, kept};
            end += kept > 0;
            row_end[expert] = end;
        }
    }
    plan->pair = pairs;
    return MP_OK;
}

/* Every expert's window when no source has been served. */
static void open_windows(struct mp_plan *plan) {
    for (int expert = 0; expert < plan->experts; expert++) {
        int32_t begin = plan->holder_begin[expert], end = plan->holder_begin[expert + 1];
        plan->window[expert] = (struct mp_dispatch_window){.first = begin,
                                                           .candidates = end - begin,
                                                           .reciprocal = mp_reciprocal(end - begin),
                                                           .local = begin,
                                                           .local_rank = plan->holder[begin]};
    }
}

/* Moves every expert's window to the node of ranks node_begin .. node_end - 1, whose holders are
 * the next that have not been served: to those, or to all holders if there are none. */
static void enter_node(struct mp_plan *plan, int node_begin, int node_end) {
    for (int expert = 0; expert < plan->experts; expert++) {
        struct mp_dispatch_window *window = &plan->window[expert];
        int32_t begin = plan->holder_begin[expert], end = plan->holder_begin[expert + 1];
        int32_t near = window->local;
        if (end - begin == 1)
            continue;
        while (near < end && plan->holder[near] < node_end)
            near++;
        if (near > window->local) {
            begin = window->local;
            end = near;
        }
        if (end - begin != window->candidates)
            window->reciprocal = mp_reciprocal(end - begin);
        window->first = begin;
        window->candidates = end - begin;
        window->start = node_begin % window->candidates;
    }
}

/* The routes of a source that holds the expert, and on to the next holder. */
static struct mp_dispatch_part *keep_local(const struct mp_plan *plan,
                                           struct mp_dispatch_window *window, int expert,
                                           uint32_t routes, struct mp_dispatch_part *part) {
    *part = (struct mp_dispatch_part){window->local++, 1, routes};
    window->local_rank = window->local < plan->holder_begin[expert + 1]
                             ? plan->holder[window->local]
                             : plan->topology.ranks;
    return part + (routes > 0);
}

/* The parts of one source, appended at `part`; returns their end. */
static struct mp_dispatch_part *dispatch_source(struct mp_plan *plan, const struct mp_load *load,
                                                int source, struct mp_dispatch_part *part) {
    const uint32_t *row = load->count + (long)source * load->experts;
    int64_t *row_end = plan->part_begin + (int64_t)source * load->experts + 1;

    for (int expert = 0; expert < load->experts; expert++) {
        struct mp_dispatch_window *window = &plan->window[expert];
        if (window->local_rank == source) {
            part = keep_local(plan, window, expert, row[expert], part);
        } else if (window->candidates == 1) {
            *part = (struct mp_dispatch_part){window->first, 1, row[expert]};
            part += row[expert] > 0;
        } else {
            part = mp_split(part, window->first, window->candidates, window->reciprocal,
                            window->start, row[expert]);
        }
        window->start = window->start + 1 < window->candidates ? window->start + 1 : 0;
        row_end[expert] = part - plan->part;
    }
    return part;
}

int mp_plan_dispatch_nearest(struct mp_plan *plan, const struct mp_load *load,
                             struct mp_error *error) {
    const struct mp_topology *topology = &plan->topology;
    int64_t end = 0;

    MP_TRY(mp_plan_dispatch_begin(plan, error));
    open_windows(plan);
    for (int node = 0; node < mp_topology_nodes(topology); node++) {
        int node_begin = mp_topology_node_begin(topology, node);
        int node_end = mp_topology_node_end(topology, node);
        enter_node(plan, node_begin, node_end);
        for (int source = node_begin; source < node_end; source++) {
            MP_TRY(mp_plan_reserve_parts(plan, end + MP_PARTS_OF_SPLIT * (int64_t)plan->experts,
                                         error));
            end = dispatch_source(plan, load, source, plan->part + end) - plan->part;
        }
    }
    plan->pair = (int64_t)topology->ranks * plan->experts;
    return MP_OK;
}
