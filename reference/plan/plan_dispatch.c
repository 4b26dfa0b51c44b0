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

/* n routes of `source` over q candidates: n / q each, and for i < n mod q the candidate
 * (source + i) mod q one more.  Returns the end of the parts written. */
static struct mp_dispatch_part *split(struct mp_dispatch_part *part, const int32_t candidate[],
                                      uint32_t candidates, int source, uint32_t routes) {
    uint32_t each = routes / candidates;
    uint32_t more = routes % candidates;
    uint32_t start = (uint32_t)source % candidates;

    for (uint32_t index = 0; index < candidates; index++) {
        uint32_t turn = index >= start ? index - start : index + candidates - start;
        uint32_t count = each + (turn < more);
        *part = (struct mp_dispatch_part){candidate[index], count};
        part += count > 0;
    }
    return part;
}

/* The parts of one source, appended at `part`; returns their end. */
static struct mp_dispatch_part *dispatch_source(struct mp_plan *plan, const struct mp_load *load,
                                                const struct holders *holders, int source,
                                                struct mp_dispatch_part *part) {
    const uint32_t *row = load->count + (long)source * load->experts;
    int64_t *row_end = plan->part_begin + (int64_t)source * load->experts + 1;

    for (int expert = 0; expert < load->experts; expert++) {
        int32_t begin = holders->begin[expert];
        int32_t end = holders->begin[expert + 1];
        if (row[expert] > 0) {
            if (end - begin == 1) {
                *part++ = (struct mp_dispatch_part){holders->list[begin], row[expert]};
            } else if (mp_placement_holds(&plan->during, expert, source)) {
                *part++ = (struct mp_dispatch_part){source, row[expert]};
            } else {
                if (holders->node_begin[expert] < holders->node_end[expert]) {
                    begin = holders->node_begin[expert];
                    end = holders->node_end[expert];
                }
                part = split(part, holders->list + begin, (uint32_t)(end - begin), source,
                             row[expert]);
            }
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
            /* A source has at most one part per holder, plus the place where split() writes a part
             * that it then does not keep. */
            code = reserve_parts(plan, end + holders.begin[plan->experts] + 1, error);
            if (code)
                return code;
            end = dispatch_source(plan, load, &holders, source, plan->part + end) - plan->part;
        }
    }
    plan->pair = (int64_t)topology->ranks * plan->experts;
    return MP_OK;
}
