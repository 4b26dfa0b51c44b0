#include "reference/plan/chunks.h"

#include <string.h>

/* When an expert is there; or whence its rows come. */
enum order { ANYWAY, COPIED, LATE, FROM_AWAY };

struct mp_place_rows {
    int64_t all, away; /* away: from other nodes */
    enum order order;
};

void mp_expert_chunks_create(struct mp_arena *memory, const struct mp_topology *topology,
                             int layers, int places, struct mp_expert_chunks *chunks) {
    *chunks = (struct mp_expert_chunks){.topology = *topology, .layers = layers, .places = places};
    MP_TAKE(memory, chunks->chunk, (size_t)layers * (size_t)places);
    MP_TAKE(memory, chunks->rows, (size_t)places);
    MP_TAKE(memory, chunks->all, (size_t)topology->ranks);
    MP_TAKE(memory, chunks->before, (size_t)topology->ranks);
}

static void count_rows(struct mp_expert_chunks *chunks, const struct mp_plan *plan) {
    const struct mp_topology *topology = &chunks->topology;
    memset(chunks->rows, 0, (size_t)plan->holder_begin[plan->experts] * sizeof *chunks->rows);
    for (int source = 0; source < topology->ranks; source++) {
        int node = mp_topology_node(topology, source);
        int begin = mp_topology_node_begin(topology, node);
        int end = mp_topology_node_end(topology, node);
        const int64_t *of_source = plan->part_begin + (int64_t)source * plan->experts;
        for (int64_t p = of_source[0]; p < of_source[plan->experts]; p++) {
            const struct mp_dispatch_part *part = &plan->part[p];
            for (int32_t at = part->first; at < part->first + part->run; at++) {
                bool away = plan->holder[at] < begin || plan->holder[at] >= end;
                chunks->rows[at].all += part->count;
                chunks->rows[at].away += away ? part->count : 0;
            }
        }
    }
}

/* Returns whether there are any from away. */
static bool order_places(struct mp_expert_chunks *chunks, const struct mp_plan *plan) {
    bool any = false;
    for (int expert = 0; expert < plan->experts; expert++)
        for (int32_t at = plan->holder_begin[expert]; at < plan->holder_begin[expert + 1]; at++) {
            struct mp_place_rows *rows = &chunks->rows[at];
            if (!mp_placement_holds(&plan->before, expert, plan->holder[at]))
                rows->order = COPIED;
            else if (2 * rows->away > rows->all)
                rows->order = FROM_AWAY;
            any |= rows->order == FROM_AWAY;
        }
    for (int i = 0; i < plan->fetch.count; i++) {
        const struct mp_transfer *fetch = &plan->fetch.item[i];
        if (fetch->stage == MP_STAGE_AFTER_GATE)
            chunks->rows[mp_plan_holder_index(plan, fetch->expert, fetch->to)].order = LATE;
    }
    return any;
}

void mp_expert_chunks_cut(struct mp_expert_chunks *chunks, struct mp_plan *plan) {
    const int32_t places = plan->holder_begin[plan->experts];
    uint8_t *chunk = chunks->chunk + (size_t)plan->layer * (size_t)chunks->places;
    const size_t ranks = (size_t)plan->topology.ranks;
    plan->place_chunk = chunk;
    count_rows(chunks, plan);
    const bool any = order_places(chunks, plan);
    const int others = plan->degree - any, middle = any ? plan->degree / 2 : plan->degree;
    memset(chunks->all, 0, ranks * sizeof *chunks->all);
    memset(chunks->before, 0, ranks * sizeof *chunks->before);
    for (int32_t at = 0; at < places; at++)
        if (chunks->rows[at].order != FROM_AWAY)
            chunks->all[plan->holder[at]] += chunks->rows[at].all;
    for (int order = ANYWAY; order <= FROM_AWAY; order++)
        for (int32_t at = 0; at < places; at++) {
            const struct mp_place_rows *rows = &chunks->rows[at];
            int64_t all = chunks->all[plan->holder[at]],
                    *before = &chunks->before[plan->holder[at]];
            if ((int)rows->order != order)
                continue;
            /* Where the middle of its rows is among the rank's. */
            int64_t centre = 2 * *before + rows->all;
            int number = all > 0 ? (int)((centre * (others - 1) + all) / (2 * all)) : 0;
            chunk[at] = (uint8_t)(order == FROM_AWAY ? middle : number + (number >= middle));
            *before += rows->all;
        }
}
