/* Dispatch: writing the compressed rows of a plan, and the two rules that several systems share.
 *
 * While pair p is being written, part_begin[p + 1] is the running end of its parts. */
#include <stdlib.h>

#include "reference/plan/plan.h"

static int reserve_parts(struct mp_plan *plan, int64_t needed, struct mp_error *error) {
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

void mp_plan_dispatch_begin(struct mp_plan *plan) {
    plan->pair = 0;
    plan->part_begin[0] = 0;
    plan->part_begin[1] = 0;
}

int mp_plan_dispatch_part(struct mp_plan *plan, int holder, uint32_t count,
                          struct mp_error *error) {
    int64_t *end = &plan->part_begin[plan->pair + 1];

    if (count == 0)
        return MP_OK;
    int code = reserve_parts(plan, *end + 1, error);
    if (!code)
        plan->part[(*end)++] = (struct mp_dispatch_part){holder, count};
    return code;
}

void mp_plan_dispatch_end_pair(struct mp_plan *plan) {
    int64_t pairs = (int64_t)plan->topology.ranks * plan->experts;

    if (++plan->pair < pairs)
        plan->part_begin[plan->pair + 1] = plan->part_begin[plan->pair];
}

int mp_plan_dispatch_to_owner(struct mp_plan *plan, const struct mp_load *load,
                              struct mp_error *error) {
    int64_t pairs = (int64_t)plan->topology.ranks * plan->experts;
    int code = reserve_parts(plan, pairs, error);
    int64_t end = 0;

    if (code)
        return code;
    plan->part_begin[0] = 0;
    for (int source = 0; source < load->ranks; source++) {
        const uint32_t *row = load->count + (long)source * load->experts;
        int64_t *row_end = plan->part_begin + (int64_t)source * load->experts + 1;
        for (int expert = 0; expert < load->experts; expert++) {
            plan->part[end] = (struct mp_dispatch_part){plan->during.owner[expert], row[expert]};
            end += row[expert] > 0;
            row_end[expert] = end;
        }
    }
    plan->pair = pairs;
    return MP_OK;
}

/* The holders of every expert as lists, ascending: those of expert e are
 * list[begin[e]] .. list[begin[e + 1] - 1], and of these the ones of the node that is being served
 * are list[node_begin[e]] .. list[node_end[e] - 1].  All of it lies in plan->holder_list. */
struct holders {
    int32_t *begin;
    int32_t *node_begin;
    int32_t *node_end;
    int32_t *list;
};

static int reserve_holders(struct mp_plan *plan, struct mp_error *error) {
    int64_t needed = 3 * (int64_t)plan->experts + 1;

    for (int expert = 0; expert < plan->experts; expert++)
        needed += mp_placement_copies(&plan->during, expert);
    if (needed <= plan->holder_list_capacity)
        return MP_OK;
    int64_t capacity = 2 * needed;
    int32_t *memory = realloc(plan->holder_list, (size_t)capacity * sizeof *memory);
    if (!memory)
        return mp_fail(error, MP_ENOMEM, "no memory for lists of %lld holders", (long long)needed);
    plan->holder_list = memory;
    plan->holder_list_capacity = capacity;
    return MP_OK;
}

static struct holders list_holders(struct mp_plan *plan) {
    const struct mp_placement *during = &plan->during;
    struct holders holders;
    int32_t end = 0;

    holders.begin = plan->holder_list;
    holders.node_begin = holders.begin + plan->experts + 1;
    holders.node_end = holders.node_begin + plan->experts;
    holders.list = holders.node_end + plan->experts;
    for (int expert = 0; expert < plan->experts; expert++) {
        const uint64_t *row = during->holder + (long)expert * during->words;
        holders.begin[expert] = holders.node_begin[expert] = holders.node_end[expert] = end;
        for (int word = 0; word < during->words; word++)
            for (uint64_t bits = row[word]; bits; bits &= bits - 1)
                holders.list[end++] = word * 64 + __builtin_ctzll(bits);
    }
    holders.begin[plan->experts] = end;
    return holders;
}

/* Moves every expert's window of candidates to the node that ends before rank `node_end`. */
static void enter_node(struct holders *holders, int experts, int node_end) {
    for (int expert = 0; expert < experts; expert++) {
        int32_t end = holders->node_end[expert];
        holders->node_begin[expert] = end;
        while (end < holders->begin[expert + 1] && holders->list[end] < node_end)
            end++;
        holders->node_end[expert] = end;
    }
}

/* `count` routes to each of candidate[begin] .. candidate[end - 1]; returns the end of the parts.
 */
static struct mp_dispatch_part *give(struct mp_dispatch_part *part, const int32_t candidate[],
                                     uint32_t begin, uint32_t end, uint32_t count) {
    if (count == 0)
        return part;
    for (uint32_t index = begin; index < end; index++)
        *part++ = (struct mp_dispatch_part){candidate[index], count};
    return part;
}

/* n routes of `source` over q candidates: n / q each, and for i < n mod q the candidate
 * (source + i) mod q one more.  Those with one more are a run of candidates, or two at the ends.
 * Kept out of the loop over experts, which is faster without it: most experts have one candidate.
 */
__attribute__((noinline)) static struct mp_dispatch_part *split(struct mp_dispatch_part *part,
                                                                const int32_t candidate[],
                                                                uint32_t candidates, int source,
                                                                uint32_t routes) {
    uint32_t each = routes / candidates;
    uint32_t more = routes % candidates;
    uint32_t start = (uint32_t)source % candidates;
    uint32_t end = start + more;

    if (end <= candidates) {
        part = give(part, candidate, 0, start, each);
        part = give(part, candidate, start, end, each + 1);
        return give(part, candidate, end, candidates, each);
    }
    part = give(part, candidate, 0, end - candidates, each + 1);
    part = give(part, candidate, end - candidates, start, each);
    return give(part, candidate, start, candidates, each + 1);
}

/* Writes the routes of `source` to an expert with copies.  Kept out of the loop over experts, which
 * is faster without it: most experts have no copies. */
__attribute__((noinline)) static struct mp_dispatch_part *dispatch_copied(
    struct mp_dispatch_part *part, const struct holders *holders, int expert, int source,
    uint32_t routes) {
    int32_t begin = holders->node_begin[expert];
    int32_t end = holders->node_end[expert];

    if (begin == end) {
        begin = holders->begin[expert];
        end = holders->begin[expert + 1];
    }
    if (end - begin > 1)
        return split(part, holders->list + begin, (uint32_t)(end - begin), source, routes);
    *part = (struct mp_dispatch_part){holders->list[begin], routes};
    return part + 1;
}

/* The parts of one source, appended at `part`; returns their end. */
static struct mp_dispatch_part *dispatch_source(struct mp_plan *plan, const struct mp_load *load,
                                                const struct holders *holders, int source,
                                                struct mp_dispatch_part *part) {
    const uint32_t *row = load->count + (long)source * load->experts;
    int64_t *row_end = plan->part_begin + (int64_t)source * load->experts + 1;

    for (int expert = 0; expert < load->experts; expert++) {
        int32_t begin = holders->begin[expert];
        if (row[expert] > 0) {
            if (holders->begin[expert + 1] - begin == 1)
                *part++ = (struct mp_dispatch_part){holders->list[begin], row[expert]};
            else if (mp_placement_holds(&plan->during, expert, source))
                *part++ = (struct mp_dispatch_part){source, row[expert]};
            else
                part = dispatch_copied(part, holders, expert, source, row[expert]);
        }
        row_end[expert] = part - plan->part;
    }
    return part;
}

int mp_plan_dispatch_nearest(struct mp_plan *plan, const struct mp_load *load,
                             struct mp_error *error) {
    const struct mp_topology *topology = &plan->topology;
    int64_t end = 0;

    int code = reserve_holders(plan, error);
    if (code)
        return code;
    struct holders holders = list_holders(plan);
    plan->part_begin[0] = 0;
    for (int node = 0; node < mp_topology_nodes(topology); node++) {
        int node_end = mp_topology_node_end(topology, node);
        enter_node(&holders, plan->experts, node_end);
        for (int source = mp_topology_node_begin(topology, node); source < node_end; source++) {
            /* A source has at most one part per holder of each expert. */
            code = reserve_parts(plan, end + holders.begin[plan->experts], error);
            if (code)
                return code;
            end = dispatch_source(plan, load, &holders, source, plan->part + end) - plan->part;
        }
    }
    plan->pair = (int64_t)topology->ranks * plan->experts;
    return MP_OK;
}
