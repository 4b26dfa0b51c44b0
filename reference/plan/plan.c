#include "reference/plan/plan.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS_AT_FIRST = 64 };

const char *mp_stage_name(enum mp_stage stage) {
    static const char *const name[MP_STAGES] = {"before-gate", "after-gate", "backward-prefetch",
                                                "backward-reduce", "after-step"};
    return (unsigned)stage < MP_STAGES ? name[stage] : "no-stage";
}

int mp_transfers_add(struct mp_transfers *list, struct mp_transfer transfer,
                     struct mp_error *error) {
    if (list->count == list->capacity) {
        int capacity = list->capacity ? 2 * list->capacity : 64;
        struct mp_transfer *item = list->capacity > INT_MAX / 2
                                       ? NULL
                                       : realloc(list->item, (size_t)capacity * sizeof *item);
        if (!item)
            return mp_fail(error, MP_ENOMEM, "no memory for more than %d transfers", list->count);
        list->item = item;
        list->capacity = capacity;
    }
    list->item[list->count++] = transfer;
    return MP_OK;
}

void mp_transfers_destroy(struct mp_transfers *list) {
    if (!list)
        return;
    free(list->item);
    *list = (struct mp_transfers){0};
}

int mp_plan_create(const struct mp_topology *topology, int experts, int64_t expert_bytes,
                   struct mp_plan *plan, struct mp_error *error) {
    *plan = (struct mp_plan){0};
    if (topology->ranks < 1 || topology->ranks_per_node < 1 || experts < 1 || expert_bytes < 1)
        return mp_fail(error, MP_EINVAL,
                       "a plan needs ranks, ranks per node, experts and bytes per expert of at "
                       "least 1, not %d, %d, %d and %lld",
                       topology->ranks, topology->ranks_per_node, experts, (long long)expert_bytes);
    plan->topology = *topology;
    plan->experts = experts;
    plan->expert_bytes = expert_bytes;
    plan->part_begin =
        calloc((size_t)topology->ranks * (size_t)experts + 1, sizeof *plan->part_begin);
    plan->part_capacity = PARTS_AT_FIRST;
    plan->part = malloc(PARTS_AT_FIRST * sizeof *plan->part);
    if (!plan->part_begin || !plan->part) {
        mp_plan_destroy(plan);
        return mp_fail(error, MP_ENOMEM, "no memory for the dispatch of %d experts on %d ranks",
                       experts, topology->ranks);
    }
    int code = mp_placement_create(topology->ranks, experts, &plan->before, error);
    if (!code)
        code = mp_placement_create(topology->ranks, experts, &plan->during, error);
    if (code)
        mp_plan_destroy(plan);
    return code;
}

void mp_plan_destroy(struct mp_plan *plan) {
    if (!plan)
        return;
    mp_placement_destroy(&plan->before);
    mp_placement_destroy(&plan->during);
    mp_transfers_destroy(&plan->fetch);
    mp_transfers_destroy(&plan->reduce);
    free(plan->part_begin);
    free(plan->part);
    free(plan->holder_list);
    *plan = (struct mp_plan){0};
}

void mp_plan_begin(struct mp_plan *plan, int64_t iteration, int layer, const int32_t owner[]) {
    size_t pairs = (size_t)plan->topology.ranks * (size_t)plan->experts;

    plan->iteration = iteration;
    plan->layer = layer;
    mp_placement_set_owners(&plan->before, owner);
    mp_placement_copy(&plan->during, &plan->before);
    plan->fetch.count = 0;
    plan->reduce.count = 0;
    plan->rematerialise = false;
    memset(plan->part_begin, 0, (pairs + 1) * sizeof *plan->part_begin);
    plan->pair = 0;
    plan->capacity = 0;
    plan->exchange = MP_EXCHANGE_FLAT;
    plan->optimizer = MP_OPTIMIZER_OWNER;
}

int mp_plan_add_copy(struct mp_plan *plan, int expert, int rank, enum mp_stage stage,
                     struct mp_error *error) {
    int32_t owner = plan->during.owner[expert];
    struct mp_transfer transfer = {plan->layer, expert, owner, rank, plan->expert_bytes, stage};

    if (mp_placement_holds(&plan->during, expert, rank))
        return mp_fail(error, MP_EINVAL,
                       "iteration %lld, layer %d: rank %d already holds expert %d",
                       (long long)plan->iteration, plan->layer, rank, expert);
    int code = mp_transfers_add(&plan->fetch, transfer, error);
    if (code)
        return code;
    transfer.from = rank;
    transfer.to = owner;
    transfer.stage = MP_STAGE_BACKWARD_REDUCE;
    code = mp_transfers_add(&plan->reduce, transfer, error);
    if (code) {
        plan->fetch.count--;
        return code;
    }
    mp_placement_add(&plan->during, expert, rank);
    return MP_OK;
}

void mp_plan_rank_routes(const struct mp_plan *plan, int64_t computed[], int64_t sent[],
                         int64_t received[]) {
    int ranks = plan->topology.ranks;

    for (int rank = 0; rank < ranks; rank++) {
        if (computed)
            computed[rank] = 0;
        if (sent)
            sent[rank] = 0;
        if (received)
            received[rank] = 0;
    }
    /* The parts of a source lie together, whatever the expert. */
    for (int source = 0; source < ranks; source++) {
        const int64_t *begin = plan->part_begin + (int64_t)source * plan->experts;
        for (int64_t index = begin[0]; index < begin[plan->experts]; index++) {
            struct mp_dispatch_part part = plan->part[index];
            if (computed)
                computed[part.holder] += part.count;
            if (sent && part.holder != source)
                sent[source] += part.count;
            if (received && part.holder != source)
                received[part.holder] += part.count;
        }
    }
}

/* Extra copies over all ranks and the most on one, 64 ranks at a time: no working memory. */
static void count_copies(const struct mp_placement *during, struct mp_plan_facts *facts) {
    for (int word = 0; word < during->words; word++) {
        int on_rank[64] = {0};
        for (int expert = 0; expert < during->experts; expert++) {
            uint64_t extra = during->holder[(long)expert * during->words + word];
            if (during->owner[expert] / 64 == word)
                extra &= ~(UINT64_C(1) << (during->owner[expert] % 64));
            for (; extra; extra &= extra - 1) {
                int copies = ++on_rank[__builtin_ctzll(extra)];
                facts->copies++;
                if (copies > facts->largest_rank_copies)
                    facts->largest_rank_copies = copies;
            }
        }
    }
}

void mp_plan_facts(const struct mp_plan *plan, const struct mp_load *load,
                   struct mp_plan_facts *facts) {
    const struct mp_topology *topology = &plan->topology;

    *facts = (struct mp_plan_facts){0};
    count_copies(&plan->during, facts);
    for (int index = 0; index < plan->fetch.count; index++) {
        facts->bytes[plan->fetch.item[index].stage] += plan->fetch.item[index].bytes;
        if (plan->rematerialise)
            facts->bytes[MP_STAGE_BACKWARD_PREFETCH] += plan->fetch.item[index].bytes;
    }
    for (int index = 0; index < plan->reduce.count; index++)
        facts->bytes[plan->reduce.item[index].stage] += plan->reduce.item[index].bytes;
    for (int source = 0; source < topology->ranks; source++) {
        const int64_t *begin = plan->part_begin + (int64_t)source * plan->experts;
        int node = mp_topology_node(topology, source);
        for (int64_t index = begin[0]; index < begin[plan->experts]; index++) {
            struct mp_dispatch_part part = plan->part[index];
            if (part.holder == source)
                facts->routes_local += part.count;
            else if (mp_topology_node(topology, part.holder) == node)
                facts->routes_in_node += part.count;
            else
                facts->routes_between_nodes += part.count;
        }
    }
    int64_t kept = facts->routes_local + facts->routes_in_node + facts->routes_between_nodes;
    facts->routes = load ? mp_load_total(load) : kept;
    facts->routes_dropped = facts->routes - kept;
}
