#include "reference/plan/plan.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/digest.h"
#include "reference/plan/split.h"

enum { PARTS_AT_FIRST = 64 };

const char *mp_stage_name(enum mp_stage stage) {
    static const char *const name[MP_STAGES] = {"before-gate", "after-gate", "backward-prefetch",
                                                "backward-reduce", "after-step"};
    return (unsigned)stage < MP_STAGES ? name[stage] : "no-stage";
}

#define FACT(member) offsetof(struct mp_plan_facts, member)

const struct mp_named_number mp_plan_fact_names[] = {
    {"copies", FACT(copies), MP_NUMBER_INT},
    {"largest-rank-copies", FACT(largest_rank_copies), MP_NUMBER_INT},
    {"bytes-before-gate", FACT(bytes[MP_STAGE_BEFORE_GATE]), MP_NUMBER_INT64},
    {"bytes-after-gate", FACT(bytes[MP_STAGE_AFTER_GATE]), MP_NUMBER_INT64},
    {"bytes-backward-prefetch", FACT(bytes[MP_STAGE_BACKWARD_PREFETCH]), MP_NUMBER_INT64},
    {"bytes-backward-reduce", FACT(bytes[MP_STAGE_BACKWARD_REDUCE]), MP_NUMBER_INT64},
    {"bytes-host", FACT(bytes_host), MP_NUMBER_INT64},
    {"routes-local", FACT(routes_local), MP_NUMBER_INT64},
    {"routes-in-node", FACT(routes_in_node), MP_NUMBER_INT64},
    {"routes-between-nodes", FACT(routes_between_nodes), MP_NUMBER_INT64},
    {"routes-dropped", FACT(routes_dropped), MP_NUMBER_INT64},
    {"rows-padded", FACT(rows_padded), MP_NUMBER_INT64},
    {0},
};

int mp_transfers_add(struct mp_transfers *list, struct mp_transfer transfer,
                     struct mp_error *error) {
    if (list->count == list->capacity)
        MP_TRY(
            mp_transfers_reserve(list, list->capacity ? 2 * (int64_t)list->capacity : 64, error));
    list->item[list->count++] = transfer;
    return MP_OK;
}

int mp_transfers_reserve(struct mp_transfers *list, int64_t count, struct mp_error *error) {
    if (count <= list->capacity)
        return MP_OK;
    struct mp_transfer *item =
        count > INT_MAX ? NULL : realloc(list->item, (size_t)count * sizeof *item);
    if (!item)
        return mp_fail(error, MP_ENOMEM, "no memory for %lld transfers", (long long)count);
    list->item = item;
    list->capacity = (int)count;
    return MP_OK;
}

void mp_transfers_destroy(struct mp_transfers *list) {
    if (!list)
        return;
    free(list->item);
    *list = (struct mp_transfers){0};
}

static void set_defaults(struct mp_plan *plan) {
    plan->fetch.count = plan->reduce.count = plan->share.count = plan->ahead.count = 0;
    plan->coming = NULL;
    plan->pair = 0;
    for (int expert = 0; expert < plan->experts; expert++)
        plan->capacity[expert] = -1;
    plan->source_capacity = -1;
    plan->outside_capacity = -1;
    plan->padding = 0;
    plan->exchange = MP_EXCHANGE_FLAT;
    plan->group_size = 0;
    memset(plan->level_size, 0, sizeof plan->level_size);
    plan->degree = 1;
    plan->chunk_routes = NULL;
    plan->place_chunk = NULL;
}

int mp_plan_create(const struct mp_topology *topology, int experts, int64_t expert_bytes,
                   struct mp_plan *plan, struct mp_error *error) {
    *plan = (struct mp_plan){.policy = &mp_policy_plain};
    if (topology->ranks < 1 || topology->ranks_per_node < 1 || experts < 1 || expert_bytes < 1)
        return mp_fail(error, MP_EINVAL,
                       "a plan needs ranks, ranks per node, experts and bytes per expert of at "
                       "least 1, not %d, %d, %d and %lld",
                       topology->ranks, topology->ranks_per_node, experts, (long long)expert_bytes);
    plan->topology = *topology;
    plan->experts = experts;
    plan->expert_bytes = plan->gradient_bytes = expert_bytes;
    MP_TAKE(&plan->memory, plan->part_begin, (size_t)topology->ranks * (size_t)experts + 1);
    MP_TAKE(&plan->memory, plan->holder_begin, (size_t)experts + 1);
    MP_TAKE_EACH(&plan->memory, experts, plan->window, plan->owner_place, plan->capacity);
    mp_placement_take(&plan->memory, topology->ranks, experts, &plan->before);
    mp_placement_take(&plan->memory, topology->ranks, experts, &plan->during);
    plan->part_capacity = PARTS_AT_FIRST;
    plan->part = malloc(PARTS_AT_FIRST * sizeof *plan->part);
    plan->holder_capacity = 2 * (int64_t)experts;
    plan->holder = malloc((size_t)plan->holder_capacity * sizeof *plan->holder);
    if (plan->memory.lacking || !plan->part || !plan->holder) {
        mp_plan_destroy(plan);
        return mp_fail(error, MP_ENOMEM, "no memory for the dispatch of %d experts on %d ranks",
                       experts, topology->ranks);
    }
    set_defaults(plan);
    return MP_OK;
}

void mp_plan_destroy(struct mp_plan *plan) {
    if (!plan)
        return;
    mp_transfers_destroy(&plan->fetch);
    mp_transfers_destroy(&plan->reduce);
    mp_transfers_destroy(&plan->share);
    mp_transfers_destroy(&plan->ahead);
    free(plan->part);
    free(plan->holder);
    mp_arena_release(&plan->memory);
    *plan = (struct mp_plan){0};
}

/* Runs of a pair: a split makes three at most, and other ways of spreading routes few more. */
enum { RUNS_OF_PAIR = 4 };

int mp_plan_reserve(struct mp_plan *plan, int transfers, struct mp_error *error) {
    struct mp_transfers *lists[] = {&plan->fetch, &plan->reduce, &plan->share, &plan->ahead};
    int64_t pairs = (int64_t)plan->topology.ranks * plan->experts, parts = RUNS_OF_PAIR * pairs;

    for (int list = 0; list < 4; list++)
        MP_TRY(mp_transfers_reserve(lists[list], transfers, error));
    MP_TRY(mp_plan_reserve_parts(plan, parts, error));
    return mp_plan_reserve_holders(plan, pairs, error);
}

/* Gradients of everybody beside the owner into it, and their sum back. */
static int tie_holders(struct mp_plan *plan, struct mp_error *error) {
    const struct mp_placement *home = &plan->before;

    for (int expert = 0; expert < plan->experts; expert++) {
        int owner = home->owner[expert];
        for (int rank = mp_placement_next(home, expert, 0); rank >= 0;
             rank = mp_placement_next(home, expert, rank + 1)) {
            struct mp_transfer tie = {.layer = plan->layer,
                                      .expert = expert,
                                      .from = rank,
                                      .to = owner,
                                      .bytes = plan->gradient_bytes,
                                      .stage = MP_STAGE_BACKWARD_REDUCE};
            if (rank == owner)
                continue;
            MP_TRY(mp_transfers_add(&plan->reduce, tie, error));
            tie.from = owner;
            tie.to = rank;
            MP_TRY(mp_transfers_add(&plan->share, tie, error));
        }
    }
    return MP_OK;
}

/* Whoever sent them: they are there. */
static int add_stayed(struct mp_plan *plan, struct mp_error *error) {
    for (int i = 0; i < plan->stayed->count; i++) {
        const struct mp_transfer *copy = &plan->stayed->item[i];
        MP_TRY((copy->enters ? mp_plan_add_entry : mp_plan_add_copy)(
            plan, copy->expert, copy->to, MP_STAGE_BACKWARD_PREFETCH, error));
    }
    return MP_OK;
}

int mp_plan_begin(struct mp_plan *plan, int64_t iteration, int layer,
                  const struct mp_placement *home, struct mp_error *error) {
    size_t pairs = (size_t)plan->topology.ranks * (size_t)plan->experts;

    plan->iteration = iteration;
    plan->layer = layer;
    mp_placement_copy(&plan->before, home);
    mp_placement_copy(&plan->during, home);
    set_defaults(plan);
    memset(plan->part_begin, 0, (pairs + 1) * sizeof *plan->part_begin);
    if (plan->stayed)
        MP_TRY(add_stayed(plan, error));
    return mp_optimizer_sums(plan->policy->optimizer) ? tie_holders(plan, error) : MP_OK;
}

int mp_plan_add_copy(struct mp_plan *plan, int expert, int rank, enum mp_stage stage,
                     struct mp_error *error) {
    return mp_plan_add_copy_from(plan, expert, plan->during.owner[expert], rank, stage, error);
}

int mp_plan_add_entry(struct mp_plan *plan, int expert, int rank, enum mp_stage stage,
                      struct mp_error *error) {
    MP_TRY(mp_plan_add_copy(plan, expert, rank, stage, error));
    plan->fetch.item[plan->fetch.count - 1].enters = true;
    plan->reduce.item[plan->reduce.count - 1].enters = true;
    return MP_OK;
}

int mp_plan_add_copy_from(struct mp_plan *plan, int expert, int from, int rank, enum mp_stage stage,
                          struct mp_error *error) {
    struct mp_transfer transfer = {.layer = plan->layer,
                                   .expert = expert,
                                   .from = from,
                                   .to = rank,
                                   .bytes = plan->expert_bytes,
                                   .stage = stage};

    if (mp_placement_holds(&plan->during, expert, rank))
        return mp_fail(error, MP_EINVAL,
                       "iteration %lld, layer %d: rank %d already holds expert %d",
                       (long long)plan->iteration, plan->layer, rank, expert);
    if (mp_optimizer_sliced(plan->policy->optimizer))
        return mp_fail(error, MP_EINVAL,
                       "iteration %lld, layer %d: no rank has expert %d whole, to copy it from",
                       (long long)plan->iteration, plan->layer, expert);
    if (stage == MP_STAGE_BEFORE_GATE && mp_plan_keeps(plan, expert, rank))
        transfer.stage = MP_STAGE_BACKWARD_PREFETCH;
    MP_TRY(mp_transfers_add(&plan->fetch, transfer, error));
    transfer.from = rank;
    transfer.to = plan->during.owner[expert];
    transfer.bytes = plan->gradient_bytes;
    transfer.stage = MP_STAGE_BACKWARD_REDUCE;
    int code = mp_transfers_add(&plan->reduce, transfer, error);
    if (code) {
        plan->fetch.count--;
        return code;
    }
    mp_placement_add(&plan->during, expert, rank);
    return MP_OK;
}

bool mp_plan_keeps(const struct mp_plan *plan, int expert, int rank) {
    return plan->kept && plan->kept->owner[expert] != rank &&
           mp_placement_holds(plan->kept, expert, rank);
}

int mp_plan_send_ahead(struct mp_plan *plan, int expert, int rank, struct mp_error *error) {
    return mp_transfers_add(&plan->ahead,
                            (struct mp_transfer){.layer = plan->layer,
                                                 .expert = expert,
                                                 .from = plan->during.owner[expert],
                                                 .to = rank,
                                                 .bytes = plan->expert_bytes,
                                                 .stage = MP_STAGE_BACKWARD_PREFETCH,
                                                 .enters = true},
                            error);
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

/* Parameters put together from slices, and gradients taken apart. */
static void count_slices(const struct mp_plan *plan, struct mp_plan_facts *facts) {
    int64_t foreign = 0;

    for (int expert = 0; expert < plan->experts; expert++) {
        int64_t holders = mp_placement_copies(&plan->during, expert);
        int64_t keepers = mp_keepers(plan->policy->optimizer, &plan->before, expert);
        foreign += holders * (plan->expert_bytes * (keepers - 1) / keepers);
        facts->bytes[MP_STAGE_BACKWARD_REDUCE] +=
            mp_optimizer_sums(plan->policy->optimizer) /* holders serve themselves */
                ? plan->gradient_bytes * (keepers - holders) / keepers
                : holders * (plan->gradient_bytes * (keepers - 1) / keepers);
    }
    facts->bytes[mp_plan_gather_stage(plan)] += foreign;
    if (plan->policy->rematerialise && plan->policy->gather_before_gate)
        facts->bytes[MP_STAGE_BACKWARD_PREFETCH] += foreign;
}

/* Gradients down and parameters up, of slices once, of whole experts with everybody who updates. */
static void count_host(const struct mp_plan *plan, struct mp_plan_facts *facts) {
    const struct mp_placement *home = plan->coming ? plan->coming : &plan->before;
    int64_t updates = 0;

    if (!plan->policy->offload)
        return;
    for (int expert = 0; expert < plan->experts; expert++)
        updates +=
            mp_optimizer_sliced(plan->policy->optimizer) ? 1 : mp_placement_copies(home, expert);
    facts->bytes_host = updates * (plan->gradient_bytes + plan->expert_bytes);
}

static void count_transfers(const struct mp_plan *plan, struct mp_plan_facts *facts) {
    const struct mp_transfers *lists[] = {&plan->fetch, &plan->reduce, &plan->share, &plan->ahead};

    for (int list = 0; list < 4; list++)
        for (int index = 0; index < lists[list]->count; index++) {
            const struct mp_transfer *transfer = &lists[list]->item[index];
            if (list == 0 && transfer->stage == MP_STAGE_BACKWARD_PREFETCH)
                continue; /* it counts where it is sent */
            facts->bytes[transfer->stage] += transfer->bytes;
            if (list == 0 && plan->policy->rematerialise)
                facts->bytes[MP_STAGE_BACKWARD_PREFETCH] += transfer->bytes;
        }
    if (mp_optimizer_sliced(plan->policy->optimizer))
        count_slices(plan, facts);
    count_host(plan, facts);
    if (plan->policy->forward_only)
        facts->bytes[MP_STAGE_BACKWARD_PREFETCH] = facts->bytes[MP_STAGE_BACKWARD_REDUCE] =
            facts->bytes_host = 0;
}

static void count_routes(const struct mp_plan *plan, int source, struct mp_dispatch_part part,
                         struct mp_plan_facts *facts) {
    const struct mp_topology *topology = &plan->topology;

    for (int32_t at = part.first; at < part.first + part.run; at++) {
        int holder = plan->holder[at];
        if (holder == source)
            facts->routes_local += part.count;
        else if (mp_topology_node(topology, holder) == mp_topology_node(topology, source))
            facts->routes_in_node += part.count;
        else
            facts->routes_between_nodes += part.count;
    }
}

void mp_plan_facts(const struct mp_plan *plan, const struct mp_load *load,
                   struct mp_plan_facts *facts) {
    int64_t pairs = (int64_t)plan->topology.ranks * plan->experts;

    *facts = (struct mp_plan_facts){0};
    count_copies(&plan->during, facts);
    count_transfers(plan, facts);
    for (int source = 0; source < plan->topology.ranks; source++) {
        const int64_t *begin = plan->part_begin + (int64_t)source * plan->experts;
        for (int64_t index = begin[0]; index < begin[plan->experts]; index++)
            count_routes(plan, source, plan->part[index], facts);
    }
    int64_t kept = facts->routes_local + facts->routes_in_node + facts->routes_between_nodes;
    facts->routes = load ? mp_load_total(load) : kept;
    facts->routes_dropped = facts->routes - kept;
    if (plan->padding > 0)
        facts->rows_padded = pairs * plan->padding - kept;
}

int64_t mp_plan_source_capacity(const struct mp_plan *plan, int source, int expert) {
    if (plan->outside_capacity < 0)
        return plan->source_capacity;
    int node = mp_topology_node(&plan->topology, source);
    int holder =
        mp_placement_next(&plan->during, expert, mp_topology_node_begin(&plan->topology, node));
    bool inside = holder >= 0 && holder < mp_topology_node_end(&plan->topology, node);
    return inside ? plan->source_capacity : plan->outside_capacity;
}

int64_t mp_plan_overlaid_rows(int64_t first, int64_t second, int64_t rows) {
    int64_t begin = second, end = 2 * second < rows ? 2 * second : rows;
    first = first < rows ? first : rows;
    begin = begin > first ? begin : first;
    return first + (end > begin ? end - begin : 0);
}

/* Of members without padding between them, and not of what is behind the last. */
static uint64_t digest_transfers(const struct mp_transfers *list, uint64_t digest) {
    const size_t size = offsetof(struct mp_transfer, enters) + sizeof(bool);
    for (int i = 0; i < list->count; i++)
        digest = mp_digest_bytes(digest, &list->item[i], size);
    return digest;
}

uint64_t mp_plan_digest(const struct mp_plan *plan) {
    const size_t pairs = (size_t)plan->topology.ranks * (size_t)plan->experts;
    const int64_t rules[] = {plan->source_capacity, plan->outside_capacity, plan->padding,
                             (int64_t)plan->exchange, plan->degree};
    uint64_t digest = mp_placement_digest(&plan->during, MP_DIGEST);
    digest = digest_transfers(&plan->fetch, digest);
    digest = digest_transfers(&plan->ahead, digest);
    digest = mp_digest_bytes(digest, rules, sizeof rules);
    digest =
        mp_digest_bytes(digest, plan->capacity, (size_t)plan->experts * sizeof *plan->capacity);
    digest = mp_digest_bytes(digest, plan->part_begin, (pairs + 1) * sizeof *plan->part_begin);
    return mp_digest_bytes(digest, plan->part,
                           (size_t)plan->part_begin[pairs] * sizeof *plan->part);
}
